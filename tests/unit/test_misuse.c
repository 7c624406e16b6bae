/* SPDX-License-Identifier: MIT */
/* Calls with a NULL, on a pool that is gone, on a pool with live blocks, and
 * calls that are declared for later: each its own status, nothing changed. */

#include "unit_support.h"
#include "vrampool/later.h"

#include <string.h>

enum { CALLS = 24 };

/* Every call on a pool, with good arguments but for the pool. */
static size_t call_all(vrp_pool *pool, vrp_devptr live, vrp_status *got) {
    vrp_devptr ptr = 0;
    vrp_alloc_info info = {.struct_size = sizeof info, .bytes = 100};
    vrp_stats stats = {.struct_size = sizeof stats};
    vrp_gap gap = {.struct_size = sizeof gap};
    vrp_group_stats group = {.struct_size = sizeof group};
    vrp_growable_info growable = {.struct_size = sizeof growable, .max_bytes = 100};
    vrp_growable *buffer = NULL;
    vrp_block_info block = {.struct_size = sizeof block};
    vrp_walk_fns fns = {.struct_size = sizeof fns};
    vrp_oom_report report = {.struct_size = sizeof report};
    vrp_scope scope = 0;
    uint64_t number = 0, other = 0;
    size_t n = 0;
    got[n++] = vrp_alloc(pool, 100, VRP_STREAM_LEGACY, &ptr);
    got[n++] = vrp_alloc_ex(pool, &info, &ptr);
    got[n++] = vrp_free(pool, live, VRP_STREAM_LEGACY);
    got[n++] = vrp_record_stream(pool, live, VRP_STREAM_LEGACY);
    got[n++] = vrp_stream_forget(pool, VRP_STREAM_LEGACY);
    got[n++] = vrp_capture_begin(pool, 12345);
    got[n++] = vrp_capture_end(pool, 12345);
    got[n++] = vrp_pool_poll(pool);
    got[n++] = vrp_trim(pool, 0, 0, NULL);
    got[n++] = vrp_empty_cache(pool, NULL);
    got[n++] = vrp_pool_stats_get(pool, &stats);
    got[n++] = vrp_pool_gap_compute(pool, &gap);
    got[n++] = vrp_pool_peaks_reset(pool);
    got[n++] = vrp_oom_report_get(pool, &report);
    got[n++] = vrp_tag_stats_get(pool, VRP_TAG_KV, &group);
    got[n++] = vrp_tag_budget_set(pool, VRP_TAG_KV, 1);
    got[n++] = vrp_scope_open(pool, 0, &scope);
    got[n++] = vrp_growable_create(pool, &growable, &buffer);
    got[n++] = vrp_block_info_get(pool, live, &block);
    got[n++] = vrp_pool_walk(pool, &fns, NULL);
    got[n++] = vrp_pool_check(pool);
    got[n++] = vrp_pool_knob_get(pool, VRP_KNOB_GAP_RULE, &number);
    got[n++] = vrp_pool_knob_set(pool, VRP_KNOB_GAP_LIMIT_BYTES, 1);
    got[n++] = vrp_pool_device_memory_get(pool, &number, &other);
    return n;
}

static void assert_all(const vrp_status *got, size_t count, vrp_status expected) {
    assert_int_equal(count, CALLS);
    for (size_t i = 0; i < count; i++)
        if (got[i] != expected)
            fail_msg("call %zu: %s, not %s", i, vrp_status_name(got[i]), vrp_status_name(expected));
}

static void null_pool_is_an_invalid_argument(void **state) {
    vrp_status got[CALLS];
    (void)state;
    assert_all(got, call_all(NULL, 12345, got), VRP_INVALID_ARGUMENT);
    VRPT_OK(vrp_pool_destroy(NULL, 0));
    assert_int_equal(vrp_pool_reserved_bytes(NULL), 0);
    assert_int_equal(vrp_pool_allocated_bytes(NULL), 0);
    assert_int_equal(vrp_pool_requested_bytes(NULL), 0);
}

static void null_results_are_invalid_arguments(void **state) {
    vrpt t;
    vrp_growable_info growable = {.struct_size = sizeof growable, .max_bytes = 100};
    (void)state;
    open_pool(&t, NULL);
    vrp_devptr live = take(&t, 100);
    const vrp_stats before = vrpt_stats(&t);
    const vrp_status got[] = {
        vrp_alloc(t.pool, 100, VRP_STREAM_LEGACY, NULL),
        vrp_alloc_ex(t.pool, NULL, NULL),
        vrp_pool_stats_get(t.pool, NULL),
        vrp_pool_gap_compute(t.pool, NULL),
        vrp_tag_stats_get(t.pool, VRP_TAG_KV, NULL),
        vrp_scope_open(t.pool, 0, NULL),
        vrp_growable_create(t.pool, &growable, NULL),
        vrp_growable_create(t.pool, NULL, NULL),
        vrp_growable_resize(NULL, 1),
        vrp_block_info_get(t.pool, live, NULL),
        vrp_pool_walk(t.pool, NULL, NULL),
        vrp_pool_knob_get(t.pool, VRP_KNOB_GAP_RULE, NULL),
        vrp_pool_create(t.driver, NULL, NULL),
        vrp_driver_info_get(t.driver, NULL),
        vrp_driver_info_get(NULL, NULL),
    };
    for (size_t i = 0; i < VRPT_COUNT(got); i++)
        if (got[i] != VRP_INVALID_ARGUMENT)
            fail_msg("call %zu: %s", i, vrp_status_name(got[i]));
    assert_unchanged(&t, &before);
    close_pool(&t);
}

static void pool_that_is_gone_says_shut_down(void **state) {
    vrp_status got[CALLS];
    vrpt t;
    (void)state;
    for (int round = 0; round < 3; round++) {
        open_pool(&t, NULL);
        vrp_devptr live = take(&t, 100);
        vrp_pool *gone = t.pool;
        VRPT_OK(vrp_pool_destroy(gone, VRP_DESTROY_FORCE));
        assert_all(got, call_all(gone, live, got), VRP_SHUT_DOWN);
        VRPT_STATUS(vrp_pool_destroy(gone, 0), VRP_SHUT_DOWN);
        VRPT_STATUS(vrp_pool_destroy(gone, VRP_DESTROY_FORCE), VRP_SHUT_DOWN);
        t.pool = NULL;
        VRPT_REQUIRE(&t, vrpt_close_device(&t));
        assert_all(got, call_all(gone, live, got), VRP_SHUT_DOWN);
    }
}

static void pool_with_live_blocks_is_not_destroyed(void **state) {
    static const uint64_t sizes[] = {1, 513, 40000, 3 * VRPT_MIB, 100 * VRPT_MIB};
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    vrp_devptr ptrs[VRPT_COUNT(sizes)];
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrp_error_detail detail = {.struct_size = sizeof detail};
        ptrs[i] = take(&t, sizes[i]);
        const vrp_stats before = vrpt_stats(&t);
        VRPT_STATUS(vrp_pool_destroy(t.pool, 0), VRP_BUSY);
        VRPT_OK(vrp_error_detail_get(&detail));
        assert_int_equal(detail.live_count, i + 1);
        assert_unchanged(&t, &before);
        give(&t, take(&t, sizes[i])); /* it goes on as before */
    }
    VRPT_OK(vrp_pool_check(t.pool));
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++)
        give(&t, ptrs[i]);
    close_pool(&t);
}

static void growable_buffers_count_as_live(void **state) {
    vrpt t;
    vrp_growable *buffer = NULL;
    vrp_growable_info info = {.struct_size = sizeof info, .max_bytes = 100 * VRPT_MIB};
    (void)state;
    open_pool(&t, NULL);
    VRPT_OK(vrp_growable_create(t.pool, &info, &buffer));
    VRPT_OK(vrp_growable_resize(buffer, 10 * VRPT_MIB));
    VRPT_STATUS(vrp_pool_destroy(t.pool, 0), VRP_BUSY);
    VRPT_OK(vrp_growable_destroy(buffer));
    close_pool(&t);
}

/* Work still runs on what a forced destroy gives up: it waits. */
static void forced_destroy_waits_for_work_and_leaves_nothing(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_CLOCK};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    vrp_stream side = vrpt_stream_create(&t);
    vrp_devptr live = take(&t, 5 * VRPT_MIB);
    vrp_devptr freed = take_on(&t, 50 * VRPT_MIB, side);
    VRPT_OK(vrp_sim_launch(t.sim, VRP_STREAM_LEGACY, live, 5 * VRPT_MIB, 1000000));
    VRPT_OK(vrp_sim_launch(t.sim, side, freed, 50 * VRPT_MIB, 5000000));
    VRPT_OK(vrp_free(t.pool, freed, side));
    VRPT_OK(vrp_pool_destroy(t.pool, VRP_DESTROY_FORCE));
    t.pool = NULL;
    vrpt_stream_destroy(&t, side);
    VRPT_REQUIRE(&t, vrpt_close_device(&t)); /* nothing left, no misuse */
}

/* ---- later.h -------------------------------------------------------------------------- */

static void later_calls_answer_not_supported(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    VRPT_STATUS(vrp_suspend(t.pool, VRP_SUSPEND_POOL, 0, 0), VRP_NOT_SUPPORTED);
    VRPT_STATUS(vrp_resume(t.pool, VRP_SUSPEND_POOL, 0), VRP_NOT_SUPPORTED);
    VRPT_STATUS(vrp_suspend(NULL, VRP_SUSPEND_POOL, 0, 0), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_resume(NULL, VRP_SUSPEND_POOL, 0), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_suspend(t.pool, 99, 0, 0), VRP_INVALID_ARGUMENT);
    close_pool(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_pool_is_an_invalid_argument),
        cmocka_unit_test(null_results_are_invalid_arguments),
        cmocka_unit_test(pool_that_is_gone_says_shut_down),
        cmocka_unit_test(pool_with_live_blocks_is_not_destroyed),
        cmocka_unit_test(growable_buffers_count_as_live),
        cmocka_unit_test(forced_destroy_waits_for_work_and_leaves_nothing),
        cmocka_unit_test(later_calls_answer_not_supported),
    };
    return vrpt_main("misuse", tests, VRPT_COUNT(tests), argc, argv);
}
