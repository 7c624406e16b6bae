/* SPDX-License-Identifier: MIT */
/* Giving memory back: targets, flags and results of vrp_trim, and the gap rule
 * that bounds idle memory at growth. */

#include "unit_support.h"

#include <string.h>

static const vrpt_options hoarding = {.pool.gap_rule = VRP_GAP_RULE_OFF};

static vrp_trim_result trim(vrpt *t, uint64_t target, uint32_t flags) {
    vrp_trim_result result = {.struct_size = sizeof result};
    VRPT_OK(vrp_trim(t->pool, target, flags, &result));
    assert_int_equal(result.reserved_bytes, reserved(t));
    assert_int_equal(reserved(t), used_on_device(t));
    return result;
}

/* ---- targets ----------------------------------------------------------------------- */

static void target_is_reached_and_not_overshot_by_more_than_an_extent(void **state) {
    static const uint64_t targets_mib[] = {0, 1, 2, 63, 64, 65, 100, 200, 333, 511, 512, 513, 9999};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(targets_mib); i++) {
        vrp_devptr ptrs[16];
        vrpt t;
        open_pool(&t, &hoarding);
        for (size_t k = 0; k < VRPT_COUNT(ptrs); k++)
            ptrs[k] = take(&t, 32 * VRPT_MIB);
        for (size_t k = 0; k < VRPT_COUNT(ptrs); k++)
            give(&t, ptrs[k]);
        const uint64_t before = reserved(&t);
        const uint64_t target = targets_mib[i] * VRPT_MIB;
        const uint64_t calls = vrpt_driver_calls(&t);
        const vrp_trim_result result = trim(&t, target, 0);
        assert_int_equal(result.released_bytes, before - result.reserved_bytes);
        assert_int_equal(result.pending_bytes, 0);
        assert_int_equal(result.pinned_bytes, 0);
        assert_int_equal(result.extents_released > 0, target < before);
        assert_true(result.reserved_bytes <= target || target >= before);
        if (target >= before) {
            assert_int_equal(result.reserved_bytes, before);
            assert_int_equal(vrpt_driver_calls(&t), calls);
        } else {
            const uint64_t largest = (t.backing == VRP_BACKING_VMM ? 32 : 256) * VRPT_MIB;
            assert_true(result.reserved_bytes + largest >= target);
        }
        assert_int_equal(vrpt_stats(&t).trims, 1);
        assert_int_equal(vrpt_stats(&t).trimmed_bytes, result.released_bytes);
        close_pool(&t);
    }
}

static void live_memory_stays_and_is_said_to_pin(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    vrp_devptr small = take(&t, 512);
    vrp_devptr large = take(&t, 100 * VRPT_MIB);
    give(&t, take(&t, 200 * VRPT_MIB));
    vrp_trim_result result = trim(&t, 0, 0);
    assert_int_equal(result.released_bytes, 200 * VRPT_MIB);
    assert_true(vrpt_usable(&t, small) >= 512 && vrpt_usable(&t, large) == 100 * VRPT_MIB);
    assert_int_equal(result.pinned_bytes, reserved(&t) - allocated(&t));
    VRPT_REQUIRE(&t, vrpt_recount(&t));
    give(&t, small);
    give(&t, large);
    result = trim(&t, 0, 0);
    assert_int_equal(result.reserved_bytes, 0);
    assert_int_equal(result.pinned_bytes, 0);
    close_pool(&t);
}

/* Their frees were ordered by work that is done: nobody waits for it any more. */
static void holes_between_live_blocks_are_pinned(void **state) {
    vrp_devptr ptrs[128];
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    for (size_t i = 0; i < VRPT_COUNT(ptrs); i++)
        ptrs[i] = take(&t, 512 * VRPT_KIB);
    for (size_t i = 0; i < VRPT_COUNT(ptrs); i += 2)
        give(&t, ptrs[i]);
    for (int i = 0; i < 2; i++) {
        vrp_gap gap = {.struct_size = sizeof gap};
        const vrp_trim_result result = trim(&t, 0, 0);
        VRPT_OK(vrp_pool_gap_compute(t.pool, &gap));
        assert_int_equal(gap.pending_bytes, 0);
        assert_int_equal(gap.pinned_bytes, reserved(&t) - allocated(&t));
        assert_int_equal(result.pinned_bytes, gap.pinned_bytes);
        assert_int_equal(result.pending_bytes, 0);
    }
    close_pool(&t);
}

static void second_trim_finds_nothing_and_calls_nothing(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    for (uint64_t bytes = 512; bytes <= 256 * VRPT_MIB; bytes *= 8)
        give(&t, take(&t, bytes));
    (void)trim(&t, 0, 0);
    const uint64_t calls = vrpt_driver_calls(&t);
    for (int i = 0; i < 5; i++)
        assert_int_equal(trim(&t, 0, 0).released_bytes, 0);
    assert_int_equal(vrpt_driver_calls(&t), calls);
    close_pool(&t);
}

/* ---- flags --------------------------------------------------------------------------- */

static void caches_are_flushed_unless_they_are_to_be_kept(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    give(&t, take(&t, 100 * VRPT_MIB));
    vrp_devptr slot = take(&t, 512);
    give(&t, slot);
    assert_true(vrpt_stats(&t).cached_bytes > 0);
    const uint64_t cached = vrpt_stats(&t).cached_bytes;
    (void)trim(&t, 0, VRP_TRIM_KEEP_CACHES);
    assert_int_equal(vrpt_stats(&t).cached_bytes, cached);
    assert_true(reserved(&t) > 0);
    if (t.backing == VRP_BACKING_VMM) /* a segment may hold the slot and the large block */
        assert_int_equal(reserved(&t), piece(&t));
    const uint64_t calls = vrpt_driver_calls(&t);
    assert_int_equal(take(&t, 512), slot);
    give(&t, slot);
    assert_int_equal(vrpt_driver_calls(&t), calls);
    (void)trim(&t, 0, 0);
    assert_int_equal(vrpt_stats(&t).cached_bytes, 0);
    assert_int_equal(reserved(&t), 0);
    close_pool(&t);
}

static void waiting_is_a_flag(void **state) {
    static const uint64_t sizes[] = {512, 3 * VRPT_MIB, 100 * VRPT_MIB};
    const vrpt_options options = {.completion = VRP_SIM_CLOCK,
                                  .pool.gap_rule = VRP_GAP_RULE_OFF,
                                  .pool.flags = VRP_NO_RECLAIMER};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrpt t;
        open_pool(&t, &options);
        vrp_stream streams[2] = {vrpt_stream_create(&t), vrpt_stream_create(&t)};
        for (size_t k = 0; k < VRPT_COUNT(streams); k++) {
            vrp_devptr ptr = take_on(&t, sizes[i], streams[k]);
            VRPT_OK(vrp_sim_launch(t.sim, streams[k], ptr, sizes[i], 100000000 * (k + 1)));
            VRPT_OK(vrp_free(t.pool, ptr, streams[k]));
        }
        const uint64_t held = reserved(&t);
        vrp_trim_result result = trim(&t, 0, 0);
        assert_int_equal(result.released_bytes, 0);
        assert_true(result.pending_bytes > 0 && result.pending_bytes <= held);
        assert_int_equal(vrpt_stats(&t).host_waits, 0);
        result = trim(&t, 0, VRP_TRIM_WAIT);
        assert_int_equal(result.reserved_bytes, 0);
        assert_int_equal(result.pending_bytes, 0);
        assert_true(vrpt_stats(&t).host_waits > 0);
        for (size_t k = 0; k < VRPT_COUNT(streams); k++) {
            VRPT_OK(vrp_stream_forget(t.pool, streams[k]));
            vrpt_stream_destroy(&t, streams[k]);
        }
        close_pool(&t);
    }
}

/* What was pending at a trim goes by itself, by the helper thread or with the
 * next call. */
static void pending_trim_ends_with_a_later_call(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_MANUAL,
                                  .pool.gap_rule = VRP_GAP_RULE_OFF,
                                  .pool.flags = VRP_NO_RECLAIMER};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    vrp_devptr ptr = take(&t, 100 * VRPT_MIB);
    VRPT_OK(vrp_sim_launch(t.sim, VRP_STREAM_LEGACY, ptr, 100 * VRPT_MIB, 0));
    give(&t, ptr);
    assert_int_equal(trim(&t, 0, 0).pending_bytes, 100 * VRPT_MIB);
    VRPT_OK(vrp_pool_poll(t.pool));
    assert_int_equal(reserved(&t), 100 * VRPT_MIB);
    vrp_sim_drain(t.sim);
    VRPT_OK(vrp_pool_poll(t.pool));
    assert_int_equal(reserved(&t), 0);
    close_pool(&t);
}

static void memory_taken_again_is_not_trimmed_later(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_MANUAL,
                                  .pool.gap_rule = VRP_GAP_RULE_OFF,
                                  .pool.flags = VRP_NO_RECLAIMER};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    vrp_devptr ptr = take(&t, 100 * VRPT_MIB);
    VRPT_OK(vrp_sim_launch(t.sim, VRP_STREAM_LEGACY, ptr, 100 * VRPT_MIB, 0));
    give(&t, ptr);
    (void)trim(&t, 0, 0);
    ptr = take(&t, 100 * VRPT_MIB); /* the same stream may */
    VRPT_OK(vrp_sim_launch(t.sim, VRP_STREAM_LEGACY, ptr, 100 * VRPT_MIB, 0));
    vrp_sim_drain(t.sim);
    VRPT_OK(vrp_pool_poll(t.pool));
    assert_int_equal(allocated(&t), 100 * VRPT_MIB);
    assert_true(reserved(&t) >= 100 * VRPT_MIB);
    VRPT_OK(vrp_sim_launch(t.sim, VRP_STREAM_LEGACY, ptr, 100 * VRPT_MIB, 0));
    give(&t, ptr);
    close_pool(&t);
}

static void results_follow_the_struct_rule(void **state) {
    struct {
        vrp_trim_result result;
        unsigned char after[64];
    } given;
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    VRPT_OK(vrp_trim(t.pool, 0, 0, NULL));
    VRPT_OK(vrp_empty_cache(t.pool, NULL));
    memset(&given, 0, sizeof given);
    VRPT_STATUS(vrp_trim(t.pool, 0, 0, &given.result), VRP_INVALID_ARGUMENT);
    for (uint32_t size = 4; size <= sizeof given; size += 4) {
        const uint32_t written = size < sizeof given.result ? size : (uint32_t)sizeof given.result;
        memset(&given, 0xa5, sizeof given);
        given.result.struct_size = size;
        VRPT_OK(vrp_empty_cache(t.pool, &given.result));
        assert_int_equal(given.result.struct_size, written);
        for (size_t i = written; i < sizeof given; i++)
            assert_int_equal(((unsigned char *)&given)[i], 0xa5);
    }
    close_pool(&t);
}

/* With the malloc backing giving back waits for the device: the result says
 * how long. */
static void stall_of_the_malloc_backing_is_reported(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    give(&t, take(&t, 512 * VRPT_MIB));
    const vrp_trim_result result = trim(&t, 0, 0);
    assert_int_equal(result.released_bytes, 512 * VRPT_MIB);
    if (t.backing == VRP_BACKING_VMM)
        assert_int_equal(result.stalled_ns, 0);
    close_pool(&t);
}

/* ---- gap rule -------------------------------------------------------------------------- */

static void rule_off_keeps_idle_memory(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    give(&t, take(&t, 256 * VRPT_MIB));
    (void)take(&t, 300 * VRPT_MIB);
    (void)take(&t, 512);
    assert_true(reserved(&t) >= 300 * VRPT_MIB);
    assert_int_equal(vrpt_stats(&t).trimmed_bytes, 0);
    close_pool(&t);
}

static void high_water_sets_no_new_maximum_while_memory_is_idle(void **state) {
    static const uint64_t sizes_mib[] = {200, 210, 33, 7, 1, 220, 230, 5, 64, 240, 9, 250};
    const vrpt_options options = {.pool.gap_rule = VRP_GAP_RULE_HIGH_WATER};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    vrp_devptr kept = take(&t, 100 * VRPT_MIB);
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < VRPT_COUNT(sizes_mib); i++)
            give(&t, take(&t, sizes_mib[i] * VRPT_MIB));
    const vrp_stats stats = vrpt_stats(&t);
    assert_true(stats.reserved_bytes.peak <=
                stats.allocated_bytes.peak + piece(&t) + stats.gap_limit_missed_bytes);
    if (t.backing == VRP_BACKING_VMM)
        assert_int_equal(stats.gap_limit_missed_bytes, 0);
    /* resetting peaks does not reset the rule's own maximum */
    give(&t, take(&t, 250 * VRPT_MIB));
    VRPT_OK(vrp_pool_peaks_reset(t.pool));
    const uint64_t calls = vrpt_driver_calls(&t);
    give(&t, take(&t, 250 * VRPT_MIB));
    assert_int_equal(vrpt_driver_calls(&t), calls);
    give(&t, kept);
    close_pool(&t);
}

/* What a request held before it failed is no maximum that others may use. */
static void refused_request_does_not_raise_the_high_water(void **state) {
    const vrpt_options options = {.pool.gap_rule = VRP_GAP_RULE_HIGH_WATER};
    uint64_t peaks[2];
    (void)state;
    for (int refuse = 0; refuse < 2; refuse++) {
        vrp_devptr ptrs[40], more = 0;
        vrpt t;
        open_pool(&t, &options);
        (void)take(&t, 100 * VRPT_MIB);
        if (refuse)
            VRPT_STATUS(vrp_alloc(t.pool, 1000 * VRPT_MIB, VRP_STREAM_LEGACY, &more),
                        VRP_OUT_OF_DEVICE_MEMORY);
        VRPT_OK(vrp_pool_peaks_reset(t.pool));
        for (size_t i = 0; i < 8; i++)
            ptrs[i] = take(&t, 40 * VRPT_MIB);
        for (size_t i = 0; i < 8; i++)
            give(&t, ptrs[i]);
        for (size_t i = 0; i < VRPT_COUNT(ptrs); i++)
            ptrs[i] = take(&t, 7 * VRPT_MIB);
        peaks[refuse] = vrpt_stats(&t).reserved_bytes.peak;
        close_pool(&t);
    }
    assert_int_equal(peaks[1], peaks[0]);
}

static void limit_bounds_idle_memory_at_every_growth(void **state) {
    static const uint64_t limits_mib[] = {0, 32, 64, 128};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(limits_mib); i++) {
        const vrpt_options options = {
            .pool = {.gap_rule = VRP_GAP_RULE_LIMIT, .gap_limit_bytes = limits_mib[i] * VRPT_MIB}};
        vrpt t;
        open_pool(&t, &options);
        uint64_t created = 0;
        for (uint64_t mib = 1; mib <= 200; mib += 13) {
            vrp_gap gap = {.struct_size = sizeof gap};
            vrp_devptr ptr = take(&t, mib * VRPT_MIB);
            VRPT_OK(vrp_pool_gap_compute(t.pool, &gap));
            const vrp_stats stats = vrpt_stats(&t);
            if (stats.extents_created > created)
                assert_true(gap.idle_bytes <=
                            limits_mib[i] * VRPT_MIB + stats.gap_limit_missed_bytes);
            if (t.backing == VRP_BACKING_VMM)
                assert_int_equal(stats.gap_limit_missed_bytes, 0);
            created = stats.extents_created;
            give(&t, ptr);
        }
        close_pool(&t);
    }
}

/* Where the bound cannot be held without waiting, growth goes on and says by
 * how much. */
static void missed_limit_is_counted_and_does_not_stop_growth(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_MANUAL,
                                  .pool = {.gap_rule = VRP_GAP_RULE_LIMIT,
                                           .gap_limit_bytes = 16 * VRPT_MIB,
                                           .flags = VRP_NO_DEVICE_WAITS}};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    vrp_stream side = vrpt_stream_create(&t);
    vrp_devptr ptr = take_on(&t, 100 * VRPT_MIB, side);
    VRPT_OK(vrp_sim_launch(t.sim, side, ptr, 100 * VRPT_MIB, 0));
    VRPT_OK(vrp_free(t.pool, ptr, side));
    vrp_devptr more = take(&t, 200 * VRPT_MIB);
    assert_int_equal(vrpt_stats(&t).host_waits, 0);
    assert_true(vrpt_stats(&t).gap_limit_missed_bytes >= 84 * VRPT_MIB);
    assert_true(vrpt_stats(&t).gap_limit_missed_bytes <= 100 * VRPT_MIB);
    vrp_sim_drain(t.sim);
    give(&t, more);
    VRPT_OK(vrp_stream_forget(t.pool, side));
    vrpt_stream_destroy(&t, side);
    close_pool(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(target_is_reached_and_not_overshot_by_more_than_an_extent),
        cmocka_unit_test(live_memory_stays_and_is_said_to_pin),
        cmocka_unit_test(holes_between_live_blocks_are_pinned),
        cmocka_unit_test(second_trim_finds_nothing_and_calls_nothing),
        cmocka_unit_test(caches_are_flushed_unless_they_are_to_be_kept),
        cmocka_unit_test(waiting_is_a_flag),
        cmocka_unit_test(pending_trim_ends_with_a_later_call),
        cmocka_unit_test(memory_taken_again_is_not_trimmed_later),
        cmocka_unit_test(results_follow_the_struct_rule),
        cmocka_unit_test(stall_of_the_malloc_backing_is_reported),
        cmocka_unit_test(rule_off_keeps_idle_memory),
        cmocka_unit_test(high_water_sets_no_new_maximum_while_memory_is_idle),
        cmocka_unit_test(refused_request_does_not_raise_the_high_water),
        cmocka_unit_test(limit_bounds_idle_memory_at_every_growth),
        cmocka_unit_test(missed_limit_is_counted_and_does_not_stop_growth),
    };
    return vrpt_main("trim", tests, VRPT_COUNT(tests), argc, argv);
}
