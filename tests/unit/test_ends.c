/* SPDX-License-Identifier: MIT */
/* The ends of things and the ends of ranges: pools destroyed with blocks and
 * buffers still on their way, and values at the border of their type. */

#include "unit_support.h"

/* ---- Destruction ------------------------------------------------------------------ */

/* Two blocks that another stream has used and that its work is not done with. */
static void take_announced(vrpt *t, vrp_stream owner, vrp_stream user, vrp_devptr blocks[2]) {
    blocks[0] = take_on(t, 8 * VRPT_MIB, owner);
    blocks[1] = take_on(t, 1000, owner);
    for (int i = 0; i < 2; i++) {
        VRPT_OK(vrp_sim_launch(t->sim, user, blocks[i], 100, 10));
        VRPT_OK(vrp_record_stream(t->pool, blocks[i], user));
    }
}

static void destroy_ends_blocks_that_wait_for_streams(void **state) {
    static const int32_t completions[] = {VRP_SIM_IMMEDIATE, VRP_SIM_MANUAL};
    (void)state;
    VRPT_NEED_SIM();
    for (int k = 0; k < 4; k++) {
        const vrpt_options options = {.completion = completions[k / 2]};
        const int forced = k % 2;
        vrpt t;
        vrp_devptr blocks[2];
        open_pool(&t, &options);
        vrp_stream owner = vrpt_stream_create(&t), user = vrpt_stream_create(&t);
        take_announced(&t, owner, user, blocks);
        for (int i = 0; i < 2 && !forced; i++)
            VRPT_OK(vrp_free(t.pool, blocks[i], owner));
        VRPT_OK(vrp_pool_destroy(t.pool, forced ? VRP_DESTROY_FORCE : 0));
        t.pool = NULL;
        VRPT_REQUIRE(&t, vrpt_close_device(&t));
    }
}

static void growable_outlives_a_forced_destroy(void **state) {
    (void)state;
    for (int size = 0; size < 2; size++) {
        vrpt t;
        vrp_growable_info info = {.struct_size = sizeof info, .max_bytes = 64 * VRPT_MIB};
        vrp_growable *buffer = NULL;
        open_pool(&t, NULL);
        VRPT_OK(vrp_growable_create(t.pool, &info, &buffer));
        VRPT_OK(vrp_growable_resize(buffer, size ? 3 * VRPT_MIB : 0));
        VRPT_OK(vrp_pool_destroy(t.pool, VRP_DESTROY_FORCE));
        t.pool = NULL;
        VRPT_STATUS(vrp_growable_resize(buffer, 100), VRP_SHUT_DOWN);
        assert_int_equal(vrp_growable_size(buffer), 0);
        VRPT_OK(vrp_growable_destroy(buffer));
        VRPT_REQUIRE(&t, vrpt_close_device(&t));
    }
}

/* ---- Creation ---------------------------------------------------------------------- */

static void untracked_streams_need_stream_ids(void **state) {
    vrpt t;
    void *context = NULL;
    vrp_driver *driver = NULL;
    vrp_pool *pool = NULL;
    const vrp_pool_config config = {.struct_size = sizeof config, .flags = VRP_STREAMS_UNTRACKED};
    (void)state;
    open_pool(&t, NULL);
    vrp_driver_ops ops = *vrp_driver_ops_get(t.driver, &context);
    ops.stream_id = NULL;
    ops.destroy = NULL;
    VRPT_OK(vrp_driver_create(&ops, context, &driver));
    VRPT_STATUS(vrp_pool_create(driver, &config, &pool), VRP_NOT_SUPPORTED);
    assert_null(pool);
    vrp_driver_destroy(driver);
    close_pool(&t);
}

static void initial_bytes_do_not_wrap(void **state) {
    static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - VRPT_MIB, (uint64_t)1 << 63};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        const vrpt_options options = {.pool.initial_bytes = sizes[i]};
        vrpt t;
        vrp_pool *pool = NULL;
        VRPT_REQUIRE(&t, vrpt_open_device(&t, &options));
        VRPT_STATUS(vrpt_pool_create(&t, &options, &pool), VRP_OUT_OF_DEVICE_MEMORY);
        assert_null(pool);
        VRPT_REQUIRE(&t, vrpt_close_device(&t));
    }
}

/* ---- Ends of ranges ---------------------------------------------------------------- */

static void largest_budget_is_as_good_as_none(void **state) {
    static const uint64_t budgets[] = {UINT64_MAX, (uint64_t)1 << 63, INT64_MAX};
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    for (size_t i = 0; i < VRPT_COUNT(budgets); i++) {
        static const uint64_t sizes[] = {512, 4096, 3 * VRPT_MIB};
        vrp_scope scope = 0;
        VRPT_OK(vrp_tag_budget_set(t.pool, VRP_TAG_KV, budgets[i]));
        VRPT_OK(vrp_scope_open(t.pool, budgets[i], &scope));
        for (size_t k = 0; k < VRPT_COUNT(sizes); k++) {
            vrp_devptr p = 0;
            VRPT_OK(ask(&t, sizes[k], 0, VRP_TAG_KV, scope, &p));
            give(&t, p);
        }
        VRPT_OK(vrp_scope_release(t.pool, scope, NULL));
        VRPT_OK(vrp_tag_budget_set(t.pool, VRP_TAG_KV, 0));
    }
    close_pool(&t);
}

static void largest_idle_age_releases_nothing(void **state) {
    vrpt t;
    vrp_devptr blocks[8];
    (void)state;
    open_pool(&t, NULL);
    vrp_devptr p = take(&t, 2 * VRPT_MIB);
    for (size_t i = 0; i < VRPT_COUNT(blocks); i++)
        blocks[i] = take(&t, 8 * VRPT_MIB);
    for (size_t i = 0; i < VRPT_COUNT(blocks); i++)
        give(&t, blocks[i]);
    VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_GAP_RULE, VRP_GAP_RULE_LIMIT));
    VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_GAP_LIMIT_BYTES, 1));
    VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_IDLE_AGE, UINT64_MAX));
    const uint64_t before = reserved(&t);
    for (int i = 0; i < 200; i++) {
        give(&t, p);
        p = take(&t, 2 * VRPT_MIB);
    }
    assert_int_equal(reserved(&t), before);
    give(&t, p);
    close_pool(&t);
}

/* ---- Waiting ------------------------------------------------------------------------- */

/* Memory that is in flight on another stream is taken over behind a wait of
 * the device, with either backing: the host does not wait. */
static void memory_in_flight_is_taken_over_on_the_device(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_CLOCK};
    vrpt t;
    (void)state;
    VRPT_NEED_SIM();
    open_pool(&t, &options);
    vrp_stream one = vrpt_stream_create(&t), two = vrpt_stream_create(&t);
    vrp_devptr a = take_on(&t, 700 * VRPT_MIB, one);
    VRPT_OK(vrp_sim_launch(t.sim, one, a, 700 * VRPT_MIB, 1000000));
    VRPT_OK(vrp_free(t.pool, a, one));
    vrp_devptr b = take_on(&t, 700 * VRPT_MIB, two);
    VRPT_OK(vrp_sim_launch(t.sim, two, b, 700 * VRPT_MIB, 1000));
    assert_int_equal(vrpt_stats(&t).host_waits, 0);
    assert_int_equal(vrpt_sim_stats(&t, 0).host_blocks, 0);
    assert_true(vrpt_stats(&t).cross_stream_waits > 0);
    VRPT_OK(vrp_free(t.pool, b, two));
    close_pool(&t);
}

static void trim_to_a_target_that_is_met_waits_for_nothing(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_MANUAL};
    vrpt t;
    vrp_trim_result result = {.struct_size = sizeof result};
    (void)state;
    VRPT_NEED_SIM();
    open_pool(&t, &options);
    vrp_devptr p = take(&t, 32 * VRPT_MIB);
    VRPT_OK(vrp_sim_launch(t.sim, VRP_STREAM_LEGACY, p, 32 * VRPT_MIB, 5));
    give(&t, p);
    const uint64_t before = reserved(&t);
    VRPT_OK(vrp_trim(t.pool, (uint64_t)1 << 40, VRP_TRIM_WAIT, &result));
    VRPT_OK(vrp_trim(t.pool, before, VRP_TRIM_WAIT, &result));
    assert_int_equal(reserved(&t), before);
    assert_int_equal(vrpt_stats(&t).host_waits, 0);
    assert_int_equal(vrpt_sim_stats(&t, 0).host_blocks, 0);
    close_pool(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(destroy_ends_blocks_that_wait_for_streams),
        cmocka_unit_test(growable_outlives_a_forced_destroy),
        cmocka_unit_test(untracked_streams_need_stream_ids),
        cmocka_unit_test(initial_bytes_do_not_wrap),
        cmocka_unit_test(largest_budget_is_as_good_as_none),
        cmocka_unit_test(largest_idle_age_releases_nothing),
        cmocka_unit_test(memory_in_flight_is_taken_over_on_the_device),
        cmocka_unit_test(trim_to_a_target_that_is_met_waits_for_nothing),
    };
    return vrpt_main("ends", tests, VRPT_COUNT(tests), argc, argv);
}
