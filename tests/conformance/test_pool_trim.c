/* SPDX-License-Identifier: MIT */
/* Conformance, giving memory back and running out: trims and their results,
 * the gap rules, limits, the callback and the report. Runs as
 * test_pool_blocks.c says. */

#include "vrp_test.h"

static vrp_devptr take(vrpt *t, uint64_t bytes) {
    vrp_devptr ptr = 0;
    VRPT_OK(vrp_alloc(t->pool, bytes, VRP_STREAM_LEGACY, &ptr));
    return ptr;
}

static void give(vrpt *t, vrp_devptr ptr) { VRPT_OK(vrp_free(t->pool, ptr, VRP_STREAM_LEGACY)); }

static void open_with(vrpt *t, uint64_t device_bytes, int32_t rule, uint64_t limit) {
    vrpt_options options = {.device_bytes = device_bytes,
                            .pool.flags = VRP_NO_RECLAIMER,
                            .pool.gap_rule = rule,
                            .pool.gap_limit_bytes = limit};
    VRPT_REQUIRE(t, vrpt_open(t, &options));
}

static vrp_gap gap_of(vrpt *t) {
    vrp_gap gap = {.struct_size = sizeof gap};
    VRPT_OK(vrp_pool_gap_compute(t->pool, &gap));
    return gap;
}

/* ---- Trim ----------------------------------------------------------------------- */

static void empty_cache_gives_back_what_is_idle(void **state) {
    (void)state;
    vrpt t;
    vrp_devptr ptr[8], small[40];
    vrp_trim_result result = {.struct_size = sizeof result};
    open_with(&t, VRPT_GIB, VRP_GAP_RULE_DEFAULT, 0);
    for (size_t i = 0; i < VRPT_COUNT(ptr); i++)
        ptr[i] = take(&t, 40 * VRPT_MIB);
    for (size_t i = 0; i < VRPT_COUNT(small); i++)
        small[i] = take(&t, 20000);
    for (size_t i = 0; i < VRPT_COUNT(ptr); i += 2)
        give(&t, ptr[i]);
    for (size_t i = 0; i < VRPT_COUNT(small); i += 2)
        give(&t, small[i]);
    vrpt_drain(&t);
    vrp_stats before = vrpt_stats(&t);
    VRPT_OK(vrp_empty_cache(t.pool, &result));
    vrp_stats after = vrpt_stats(&t);
    assert_int_equal(result.released_bytes,
                     before.reserved_bytes.current - after.reserved_bytes.current);
    assert_int_equal(result.reserved_bytes, after.reserved_bytes.current);
    assert_true(result.released_bytes >= 40 * VRPT_MIB);
    assert_true(result.extents_released > 0);
    assert_int_equal(after.trims, before.trims + 1);
    assert_int_equal(after.trimmed_bytes, before.trimmed_bytes + result.released_bytes);
    assert_int_equal(after.cached_bytes, 0);
    vrp_gap gap = gap_of(&t);
    assert_int_equal(gap.idle_bytes, 0);
    assert_int_equal(gap.cached_bytes, 0);
    assert_int_equal(gap.pinned_bytes, result.pinned_bytes);
    VRPT_REQUIRE(&t, vrpt_recount(&t));
    VRPT_OK(vrp_empty_cache(t.pool, &result)); /* nothing is left to give */
    assert_int_equal(result.released_bytes, 0);
    give(&t, take(&t, 40 * VRPT_MIB));
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void trim_stops_at_its_target(void **state) {
    (void)state;
    vrpt t;
    vrp_devptr ptr[10];
    vrp_trim_result result = {.struct_size = sizeof result};
    open_with(&t, VRPT_GIB, VRP_GAP_RULE_DEFAULT, 0);
    for (size_t i = 0; i < VRPT_COUNT(ptr); i++)
        ptr[i] = take(&t, 48 * VRPT_MIB);
    for (size_t i = 0; i < VRPT_COUNT(ptr); i++)
        give(&t, ptr[i]);
    vrpt_drain(&t);
    VRPT_OK(vrp_trim(t.pool, 200 * VRPT_MIB, 0, &result));
    uint64_t reserved = vrpt_stats(&t).reserved_bytes.current;
    assert_true(reserved <= 200 * VRPT_MIB);
    assert_true(reserved >= 100 * VRPT_MIB); /* and no further than it must */
    VRPT_OK(vrp_trim(t.pool, 300 * VRPT_MIB, 0, &result));
    assert_int_equal(vrpt_stats(&t).reserved_bytes.current, reserved);
    VRPT_OK(vrp_trim(t.pool, 0, VRP_TRIM_WAIT, NULL));
    assert_int_equal(vrpt_stats(&t).reserved_bytes.current, 0);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void trim_can_leave_the_caches(void **state) {
    (void)state;
    vrpt t;
    open_with(&t, VRPT_GIB, VRP_GAP_RULE_DEFAULT, 0);
    for (int i = 0; i < 4; i++)
        give(&t, take(&t, 3000));
    uint64_t cached = vrpt_stats(&t).cached_bytes;
    VRPT_OK(vrp_trim(t.pool, 0, VRP_TRIM_KEEP_CACHES, NULL));
    assert_int_equal(vrpt_stats(&t).cached_bytes, cached);
    VRPT_OK(vrp_empty_cache(t.pool, NULL));
    assert_int_equal(vrpt_stats(&t).cached_bytes, 0);
    assert_int_equal(vrpt_stats(&t).reserved_bytes.current, 0);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void unfinished_work_is_left_pending(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    vrpt t;
    vrp_trim_result result = {.struct_size = sizeof result};
    vrpt_options options = {.completion = VRP_SIM_MANUAL, .pool.flags = VRP_NO_RECLAIMER};
    VRPT_REQUIRE(&t, vrpt_open(&t, &options));
    vrp_stream stream = vrpt_stream_create(&t);
    vrp_devptr ptr = 0;
    VRPT_OK(vrp_alloc(t.pool, 64 * VRPT_MIB, stream, &ptr));
    VRPT_OK(vrp_sim_launch(t.sim, stream, ptr, 64 * VRPT_MIB, 1000));
    VRPT_OK(vrp_free(t.pool, ptr, stream));
    VRPT_OK(vrp_empty_cache(t.pool, &result));
    assert_int_equal(result.released_bytes, 0);
    assert_true(result.pending_bytes >= 64 * VRPT_MIB);
    assert_true(gap_of(&t).pending_bytes >= 64 * VRPT_MIB);
    assert_int_equal(vrpt_sim_stats(&t, 0).host_blocks, 0);
    vrp_sim_complete(t.sim, stream, UINT64_MAX);
    VRPT_OK(vrp_pool_poll(t.pool)); /* the pending trim ends here */
    assert_int_equal(vrpt_stats(&t).reserved_bytes.current, 0);
    VRPT_OK(vrp_alloc(t.pool, 64 * VRPT_MIB, stream, &ptr));
    VRPT_OK(vrp_sim_launch(t.sim, stream, ptr, 64 * VRPT_MIB, 1000));
    VRPT_OK(vrp_free(t.pool, ptr, stream));
    VRPT_OK(vrp_trim(t.pool, 0, VRP_TRIM_WAIT, &result));
    assert_int_equal(vrpt_stats(&t).reserved_bytes.current, 0);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void reclaimer_ends_a_pending_trim(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    vrpt t;
    vrp_devptr ptr = 0;
    vrpt_options options = {.completion = VRP_SIM_MANUAL};
    VRPT_REQUIRE(&t, vrpt_open(&t, &options));
    vrp_stream stream = vrpt_stream_create(&t);
    VRPT_OK(vrp_alloc(t.pool, 64 * VRPT_MIB, stream, &ptr));
    VRPT_OK(vrp_sim_launch(t.sim, stream, ptr, 64 * VRPT_MIB, 1000));
    VRPT_OK(vrp_free(t.pool, ptr, stream));
    VRPT_OK(vrp_empty_cache(t.pool, NULL));
    vrp_sim_complete(t.sim, stream, UINT64_MAX);
    VRPT_REQUIRE(&t, vrpt_close(&t)); /* the next call or the thread, whichever is first */
}

/* ---- Gap rules --------------------------------------------------------------------- */

/* Sizes that change all the time: what is free never fits by itself. */
static void shifting_sizes(vrpt *t, uint64_t *out_worst_idle) {
    vrpt_rng rng = {99};
    vrp_devptr held[6] = {0};
    uint64_t top = 0;
    for (int i = 0; i < 300; i++) {
        size_t slot = vrpt_rng_below(&rng, VRPT_COUNT(held));
        give(t, held[slot]);
        held[slot] = take(t, VRPT_MIB + vrpt_rng_below(&rng, 60 * VRPT_MIB));
        uint64_t reserved = vrpt_stats(t).reserved_bytes.current;
        uint64_t idle = gap_of(t).idle_bytes;
        if (reserved > top) {
            top = reserved;
            if (idle > *out_worst_idle)
                *out_worst_idle = idle;
        }
    }
    for (size_t i = 0; i < VRPT_COUNT(held); i++)
        give(t, held[i]);
}

static void high_water_gives_up_idle_memory_first(void **state) {
    (void)state;
    vrpt t;
    uint64_t idle = 0;
    open_with(&t, VRPT_GIB, VRP_GAP_RULE_HIGH_WATER, 0);
    shifting_sizes(&t, &idle);
    assert_int_equal(idle, 0); /* at no new maximum was anything idle */
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void resetting_peaks_keeps_the_high_water(void **state) {
    (void)state;
    vrpt t;
    open_with(&t, VRPT_GIB, VRP_GAP_RULE_HIGH_WATER, 0);
    vrp_devptr a = take(&t, 300 * VRPT_MIB);
    give(&t, a);
    vrpt_drain(&t);
    VRPT_OK(vrp_trim(t.pool, 100 * VRPT_MIB, 0, NULL));
    VRPT_OK(vrp_pool_peaks_reset(t.pool));
    VRPT_OK(vrp_pool_peaks_reset(t.pool));
    uint64_t trimmed = vrpt_stats(&t).trimmed_bytes;
    vrp_devptr b = take(&t, 90 * VRPT_MIB); /* far below the maximum: nothing need go */
    assert_int_equal(vrpt_stats(&t).trimmed_bytes, trimmed);
    give(&t, b);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void gap_limit_bounds_idle_memory_at_growth(void **state) {
    (void)state;
    vrpt t;
    vrpt_rng rng = {5};
    vrp_devptr held[6] = {0};
    open_with(&t, VRPT_GIB, VRP_GAP_RULE_LIMIT, 16 * VRPT_MIB);
    for (int i = 0; i < 300; i++) {
        size_t slot = vrpt_rng_below(&rng, VRPT_COUNT(held));
        give(&t, held[slot]);
        uint64_t before = vrpt_stats(&t).reserved_bytes.total;
        held[slot] = take(&t, VRPT_MIB + vrpt_rng_below(&rng, 60 * VRPT_MIB));
        if (vrpt_stats(&t).reserved_bytes.total > before)
            assert_true(gap_of(&t).idle_bytes <=
                        16 * VRPT_MIB + vrpt_stats(&t).gap_limit_missed_bytes);
    }
    if (t.sim != NULL) /* its work is done at once: the limit can always be kept */
        assert_int_equal(vrpt_stats(&t).gap_limit_missed_bytes, 0);
    for (size_t i = 0; i < VRPT_COUNT(held); i++)
        give(&t, held[i]);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void rule_off_keeps_memory_until_a_trim(void **state) {
    (void)state;
    vrpt t;
    open_with(&t, VRPT_GIB, VRP_GAP_RULE_OFF, 0);
    give(&t, take(&t, 100 * VRPT_MIB));
    vrp_devptr small = take(&t, 1000), big = take(&t, 200 * VRPT_MIB);
    vrp_stats stats = vrpt_stats(&t);
    if (t.sim != NULL)
        assert_int_equal(stats.trimmed_bytes, 0);
    assert_true(stats.reserved_bytes.current >= 200 * VRPT_MIB);
    give(&t, small);
    give(&t, big);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

/* ---- Limits and running out ------------------------------------------------------------ */

static void limit_is_never_exceeded(void **state) {
    (void)state;
    vrpt t;
    vrp_devptr ptr = 77;
    vrpt_options options = {.pool.flags = VRP_NO_RECLAIMER, .pool.limit_bytes = 100 * VRPT_MIB};
    VRPT_REQUIRE(&t, vrpt_open(&t, &options));
    vrp_devptr a = take(&t, 60 * VRPT_MIB);
    vrp_stats before = vrpt_stats(&t);
    VRPT_STATUS(vrp_alloc(t.pool, 60 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr), VRP_LIMIT_REACHED);
    assert_int_equal(ptr, 77);
    vrp_stats after = vrpt_stats(&t);
    assert_true(vrpt_same_counters(&before, &after));
    assert_int_equal(after.failures, before.failures + 1);
    give(&t, a);
    give(&t, take(&t, 90 * VRPT_MIB)); /* idle memory is given up to stay within it */
    assert_true(vrpt_stats(&t).reserved_bytes.peak <= 100 * VRPT_MIB);
    VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_LIMIT_BYTES, 0));
    give(&t, take(&t, 160 * VRPT_MIB));
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

typedef struct oom_user {
    vrpt *t;
    vrp_devptr victim;
    uint32_t asked;
    vrp_oom_report report;
    vrp_status inner;
} oom_user;

static int on_oom(void *user, const vrp_oom_report *report) {
    oom_user *u = user;
    vrp_devptr inner = 0;
    u->asked++;
    u->report = *report;
    u->inner = vrp_alloc(u->t->pool, 5000 * VRPT_MIB, VRP_STREAM_LEGACY, &inner);
    if (u->victim == 0)
        return 0;
    int freed = vrp_free(u->t->pool, u->victim, VRP_STREAM_LEGACY) == VRP_OK;
    u->victim = 0;
    return freed;
}

static void callback_may_free_and_is_asked_again(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    vrpt t;
    oom_user user = {.t = &t};
    vrpt_options options = {.pool.flags = VRP_NO_RECLAIMER};
    options.pool.oom_fn = on_oom;
    options.pool.oom_user = &user;
    VRPT_REQUIRE(&t, vrpt_open(&t, &options));
    user.victim = take(&t, 700 * VRPT_MIB);
    vrp_devptr ptr = take(&t, 800 * VRPT_MIB);
    assert_int_equal(user.asked, 1); /* not by the request inside the callback */
    assert_int_equal(user.inner, VRP_OUT_OF_DEVICE_MEMORY);
    assert_true(user.report.requested_bytes >= 800 * VRPT_MIB);
    assert_int_equal(user.report.device_total_bytes, VRPT_GIB);
    give(&t, ptr);
    VRPT_STATUS(vrp_alloc(t.pool, 2000 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr),
                VRP_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(user.asked, 2); /* it had nothing to give: no second time */
    vrp_alloc_info info = {
        .struct_size = sizeof info, .flags = VRP_ALLOC_NO_OOM_CALL, .bytes = 2000 * VRPT_MIB};
    VRPT_STATUS(vrp_alloc_ex(t.pool, &info, &ptr), VRP_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(user.asked, 2);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static int always_again(void *user, const vrp_oom_report *report) {
    (void)report;
    ++*(uint32_t *)user;
    return 1;
}

static void callback_is_asked_a_bounded_number_of_times(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    vrpt t;
    uint32_t asked = 0;
    vrp_devptr ptr = 0;
    vrp_oom_report report = {.struct_size = sizeof report};
    vrpt_options options = {.pool.flags = VRP_NO_RECLAIMER};
    options.pool.oom_fn = always_again;
    options.pool.oom_user = &asked;
    VRPT_REQUIRE(&t, vrpt_open(&t, &options));
    (void)take(&t, 300 * VRPT_MIB);
    VRPT_STATUS(vrp_alloc(t.pool, 900 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr),
                VRP_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(asked, VRP_OOM_ATTEMPTS);
    VRPT_OK(vrp_oom_report_get(t.pool, &report));
    assert_int_equal(report.attempts, VRP_OOM_ATTEMPTS);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void report_says_what_is_in_the_way(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    vrpt t;
    vrp_devptr ptr = 0, a[20];
    vrp_oom_report report = {.struct_size = sizeof report};
    open_with(&t, 256 * VRPT_MIB, VRP_GAP_RULE_DEFAULT, 0);
    VRPT_STATUS(vrp_oom_report_get(t.pool, &report), VRP_NOT_SUPPORTED);
    for (size_t i = 0; i < VRPT_COUNT(a); i++)
        a[i] = take(&t, 9 * VRPT_MIB);
    for (size_t i = 1; i < VRPT_COUNT(a); i += 2)
        give(&t, a[i]);
    VRPT_STATUS(vrp_alloc(t.pool, 200 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr),
                VRP_OUT_OF_DEVICE_MEMORY);
    VRPT_OK(vrp_oom_report_get(t.pool, &report));
    vrp_stats stats = vrpt_stats(&t);
    assert_true(report.requested_bytes >= 200 * VRPT_MIB);
    assert_int_equal(report.device_total_bytes, 256 * VRPT_MIB);
    assert_int_equal(report.reserved_bytes, stats.reserved_bytes.current);
    assert_int_equal(report.allocated_bytes, stats.allocated_bytes.current);
    assert_int_equal(report.device_free_bytes + report.reserved_bytes, 256 * VRPT_MIB);
    assert_int_equal(report.idle_bytes + report.cached_bytes + report.pinned_bytes +
                         report.pending_bytes + report.slack_bytes,
                     report.reserved_bytes - report.allocated_bytes);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void idle_memory_makes_room(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    vrpt t;
    open_with(&t, VRPT_GIB, VRP_GAP_RULE_OFF, 0);
    vrp_devptr a = take(&t, 307 * VRPT_MIB), b = take(&t, 307 * VRPT_MIB);
    give(&t, b);
    vrp_devptr c = take(&t, 614 * VRPT_MIB); /* 30 % are live, 30 % idle: 60 % fit */
    give(&t, a);
    give(&t, c);
    give(&t, take(&t, 1000 * VRPT_MIB));
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void memory_of_others_is_respected(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    vrpt t;
    vrp_devptr ptr = 0;
    open_with(&t, VRPT_GIB, VRP_GAP_RULE_DEFAULT, 0);
    VRPT_OK(vrp_sim_other_bytes_set(t.sim, 0, 512 * VRPT_MIB));
    vrp_devptr a = take(&t, 300 * VRPT_MIB), b = take(&t, 200 * VRPT_MIB);
    VRPT_STATUS(vrp_alloc(t.pool, 100 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr),
                VRP_OUT_OF_DEVICE_MEMORY);
    VRPT_OK(vrp_sim_other_bytes_set(t.sim, 0, 0));
    ptr = take(&t, 100 * VRPT_MIB);
    give(&t, a);
    give(&t, b);
    give(&t, ptr);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void initial_memory_is_given_up_when_in_the_way(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    vrpt t;
    vrp_pool *none = NULL;
    vrpt_options options = {.device_bytes = 256 * VRPT_MIB,
                            .pool.flags = VRP_NO_RECLAIMER,
                            .pool.initial_bytes = 64 * VRPT_MIB};
    VRPT_REQUIRE(&t, vrpt_open(&t, &options));
    assert_true(vrpt_stats(&t).reserved_bytes.current >= 64 * VRPT_MIB);
    give(&t, take(&t, 256 * VRPT_MIB));
    options.pool.initial_bytes = 512 * VRPT_MIB;
    VRPT_STATUS(vrpt_pool_create(&t, &options, &none), VRP_OUT_OF_DEVICE_MEMORY);
    assert_null(none);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_cache_gives_back_what_is_idle),
        cmocka_unit_test(trim_stops_at_its_target),
        cmocka_unit_test(trim_can_leave_the_caches),
        cmocka_unit_test(unfinished_work_is_left_pending),
        cmocka_unit_test(reclaimer_ends_a_pending_trim),
        cmocka_unit_test(high_water_gives_up_idle_memory_first),
        cmocka_unit_test(resetting_peaks_keeps_the_high_water),
        cmocka_unit_test(gap_limit_bounds_idle_memory_at_growth),
        cmocka_unit_test(rule_off_keeps_memory_until_a_trim),
        cmocka_unit_test(limit_is_never_exceeded),
        cmocka_unit_test(callback_may_free_and_is_asked_again),
        cmocka_unit_test(callback_is_asked_a_bounded_number_of_times),
        cmocka_unit_test(report_says_what_is_in_the_way),
        cmocka_unit_test(idle_memory_makes_room),
        cmocka_unit_test(memory_of_others_is_respected),
        cmocka_unit_test(initial_memory_is_given_up_when_in_the_way),
    };
    return vrpt_main("pool_trim", tests, VRPT_COUNT(tests), argc, argv);
}
