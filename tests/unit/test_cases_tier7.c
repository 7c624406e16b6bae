/* SPDX-License-Identifier: MIT */
/* Cases of others, seventh tier: numbers shown to people. 125 (a bounded
 * history of events) waits for the event ring, which is not built yet; 127 and
 * 128 are the replay's. */

#include "unit_support.h"

static void case_121_reset_of_peaks_keeps_live_totals(void **state) {
    const vrpt_options options = {.device_bytes = 64 * VRPT_GIB};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    vrp_devptr first = take(&t, 40 * VRPT_GIB);
    give(&t, first);
    first = take(&t, 30 * VRPT_GIB);
    const vrp_stats before = vrpt_stats(&t);
    assert_int_equal(before.allocated_bytes.peak, 40 * VRPT_GIB);
    VRPT_OK(vrp_pool_peaks_reset(t.pool));
    vrp_stats now = vrpt_stats(&t);
    const vrp_counter *counters[][2] = {{&now.requested_bytes, &before.requested_bytes},
                                        {&now.allocated_bytes, &before.allocated_bytes},
                                        {&now.reserved_bytes, &before.reserved_bytes},
                                        {&now.blocks, &before.blocks},
                                        {&now.extents, &before.extents}};
    for (size_t i = 0; i < VRPT_COUNT(counters); i++) {
        assert_int_equal(counters[i][0]->current, counters[i][1]->current);
        assert_int_equal(counters[i][0]->total, counters[i][1]->total);
        assert_int_equal(counters[i][0]->peak, counters[i][0]->current);
    }
    give(&t, take(&t, 6 * VRPT_GIB));
    now = vrpt_stats(&t);
    assert_int_equal(now.allocated_bytes.current, 30 * VRPT_GIB);
    assert_int_equal(now.allocated_bytes.peak, 36 * VRPT_GIB);
    assert_int_equal(now.requested_bytes.current, 30 * VRPT_GIB);
    assert_int_equal(now.requested_bytes.peak, 36 * VRPT_GIB);
    assert_int_equal(now.blocks.peak, 2);
    assert_int_equal(now.allocated_bytes.total, 76 * VRPT_GIB);
    give(&t, first);
    close_pool(&t);
}

/* The tags' peaks are among them. */
static void case_121_reset_of_peaks_covers_tags_and_scopes(void **state) {
    vrpt t;
    vrp_scope scope = 0;
    (void)state;
    open_pool(&t, NULL);
    VRPT_OK(vrp_scope_open(t.pool, 0, &scope));
    for (int32_t tag = 0; tag < VRP_TAG_COUNT; tag++) {
        vrp_group_stats stats = {.struct_size = sizeof stats};
        vrp_devptr kept = 0, brief = 0;
        VRPT_OK(ask(&t, VRPT_MIB, 0, tag, scope, &kept));
        VRPT_OK(ask(&t, 8 * VRPT_MIB, 0, tag, scope, &brief));
        give(&t, brief);
        VRPT_OK(vrp_pool_peaks_reset(t.pool));
        VRPT_OK(vrp_tag_stats_get(t.pool, tag, &stats));
        assert_int_equal(stats.allocated_bytes.current, VRPT_MIB);
        assert_int_equal(stats.allocated_bytes.peak, VRPT_MIB);
        assert_int_equal(stats.allocated_bytes.total, 9 * VRPT_MIB);
        give(&t, kept);
    }
    VRPT_OK(vrp_scope_close(t.pool, scope));
    close_pool(&t);
}

static void case_122_counts_are_zero_after_a_flush(void **state) {
    (void)state;
    for (uint64_t bytes = 128; bytes <= 512 * VRPT_MIB; bytes *= 4) {
        vrpt t;
        vrp_trim_result result = {.struct_size = sizeof result};
        open_pool(&t, NULL);
        give(&t, take(&t, bytes));
        const uint64_t held = reserved(&t);
        VRPT_OK(vrp_empty_cache(t.pool, &result));
        assert_int_equal(result.released_bytes, held);
        assert_int_equal(result.reserved_bytes, 0);
        assert_int_equal(result.pending_bytes, 0);
        assert_int_equal(result.pinned_bytes, 0);
        assert_true(result.extents_released > 0);
        vrp_stats now = vrpt_stats(&t);
        assert_int_equal(now.blocks.current, 0);
        assert_int_equal(now.requested_bytes.current, 0);
        assert_int_equal(now.allocated_bytes.current, 0);
        assert_int_equal(now.reserved_bytes.current, 0);
        assert_int_equal(now.extents.current, 0);
        assert_int_equal(now.cached_bytes, 0);
        assert_int_equal(now.trimmed_bytes, held);
        assert_int_equal(now.trims, 1);
        close_pool(&t);
    }
}

static void case_124_requested_allocated_and_reserved_are_three_numbers(void **state) {
    static const uint64_t sizes[] = {1, 513, 4097, 32769, VRPT_MIB + 1, 8 * VRPT_MIB + 1};
    const vrpt_options options = {.device_bytes = 32 * VRPT_GIB};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrpt t;
        uint64_t usable = 0;
        open_pool(&t, &options);
        for (int k = 0; k < 1000; k++)
            usable += vrpt_usable(&t, take(&t, sizes[i]));
        vrp_stats now = vrpt_stats(&t);
        assert_int_equal(now.requested_bytes.current, 1000 * sizes[i]);
        assert_int_equal(now.allocated_bytes.current, usable);
        assert_true(now.allocated_bytes.current > now.requested_bytes.current);
        assert_int_equal(now.allocated_bytes.current % 512, 0);
        assert_true(now.reserved_bytes.current >= now.allocated_bytes.current);
        assert_int_equal(now.reserved_bytes.current, used_on_device(&t));
        assert_int_equal(vrp_pool_requested_bytes(t.pool), now.requested_bytes.current);
        assert_int_equal(vrp_pool_allocated_bytes(t.pool), now.allocated_bytes.current);
        assert_int_equal(vrp_pool_reserved_bytes(t.pool), now.reserved_bytes.current);
        close_pool(&t);
    }
}

static void case_124_reset_covers_all_three(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    vrp_devptr ptr = take(&t, 8 * VRPT_MIB + 1);
    give(&t, ptr);
    VRPT_OK(vrp_empty_cache(t.pool, NULL));
    vrp_stats now = vrpt_stats(&t);
    assert_true(now.requested_bytes.peak > 0 && now.allocated_bytes.peak > 0 &&
                now.reserved_bytes.peak > 0);
    VRPT_OK(vrp_pool_peaks_reset(t.pool));
    now = vrpt_stats(&t);
    assert_int_equal(now.requested_bytes.peak, 0);
    assert_int_equal(now.allocated_bytes.peak, 0);
    assert_int_equal(now.reserved_bytes.peak, 0);
    close_pool(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_121_reset_of_peaks_keeps_live_totals),
        cmocka_unit_test(case_121_reset_of_peaks_covers_tags_and_scopes),
        cmocka_unit_test(case_122_counts_are_zero_after_a_flush),
        cmocka_unit_test(case_124_requested_allocated_and_reserved_are_three_numbers),
        cmocka_unit_test(case_124_reset_covers_all_three),
    };
    return vrpt_main("cases tier 7", tests, VRPT_COUNT(tests), argc, argv);
}
