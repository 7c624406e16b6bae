/* SPDX-License-Identifier: MIT */
/* Loading weights: extents reach ahead of the block, so that a model costs
 * fewer driver calls than one allocation a tensor, and what is not used of
 * that is bounded, serves others and goes with its block. */

#include "unit_support.h"

static const vrpt_options large = {.device_bytes = 64 * VRPT_GIB};

static vrp_devptr weights(vrpt *t, uint64_t bytes) {
    vrp_devptr ptr = 0;
    VRPT_OK(ask(t, bytes, 0, VRP_TAG_WEIGHTS, 0, &ptr));
    return ptr;
}

static void loading_costs_less_than_an_allocation_each(void **state) {
    static const struct {
        uint64_t bytes;
        uint64_t count;
    } models[] = {
        {118 * VRPT_MIB, 203},
        {UINT64_C(117964800), 203}, /* no multiple of the granularity */
        {30 * VRPT_MIB, 400},
        {UINT64_C(9437184), 1000},
    };
    (void)state;
    for (size_t m = 0; m < VRPT_COUNT(models); m++) {
        vrpt t;
        open_pool(&t, &large);
        const uint64_t before = vrp_sim_driver_time_ns(t.sim);
        for (uint64_t i = 0; i < models[m].count; i++)
            (void)weights(&t, models[m].bytes);
        const uint64_t spent = vrp_sim_driver_time_ns(t.sim) - before;
        const uint64_t plain =
            models[m].count * vrp_sim_price_ns(VRP_SIM_CALL_MEM_ALLOC, models[m].bytes);
        print_message("%llu x %llu bytes: %llu us, %llu us by plain allocations\n",
                      (unsigned long long)models[m].count, (unsigned long long)models[m].bytes,
                      (unsigned long long)spent / 1000, (unsigned long long)plain / 1000);
        assert_true(spent <= plain);
        close_pool(&t);
    }
}

/* At every moment, with pieces of all sizes. */
static void memory_ahead_is_bounded(void **state) {
    vrpt_rng rng = {.state = 7};
    vrpt t;
    (void)state;
    open_pool(&t, &large);
    if (t.backing == VRP_BACKING_VMM)
        for (int i = 0; i < 400; i++) {
            (void)weights(&t, (1 + vrpt_rng_below(&rng, 120)) * VRPT_MIB -
                                  vrpt_rng_below(&rng, 4) * 4096);
            const uint64_t gap = reserved(&t) - allocated(&t);
            const uint64_t share = allocated(&t) / 16;
            assert_true(gap <= (share < 128 * VRPT_MIB ? share : 128 * VRPT_MIB) + 4 * VRPT_MIB);
        }
    close_pool(&t);
}

static void knob_takes_it_away(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, &large);
    VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_EXTENT_AHEAD_BYTES, 0));
    if (t.backing == VRP_BACKING_VMM)
        for (int i = 0; i < 100; i++) {
            (void)weights(&t, 100 * VRPT_MIB);
            assert_int_equal(reserved(&t), allocated(&t));
        }
    close_pool(&t);
}

/* Nothing is taken ahead that a limit or the device does not have. */
static void limit_and_full_device_are_no_obstacle(void **state) {
    (void)state;
    for (int limited = 0; limited < 2; limited++) {
        vrpt_options options = {.device_bytes = limited ? 8 * VRPT_GIB : 4 * VRPT_GIB,
                                .pool.limit_bytes = limited ? 4 * VRPT_GIB : 0};
        vrpt t;
        open_pool(&t, &options);
        for (int i = 0; i < 40; i++)
            (void)weights(&t, 100 * VRPT_MIB);
        assert_int_equal(allocated(&t), 4000 * VRPT_MIB);
        close_pool(&t);
    }
}

/* What lies ahead serves short-lived blocks instead of new memory. */
static void memory_ahead_serves_others(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, &large);
    if (t.backing == VRP_BACKING_VMM) {
        give(&t, take(&t, 48 * VRPT_MIB)); /* its life is known now */
        VRPT_OK(vrp_empty_cache(t.pool, NULL));
        for (int i = 0; i < 400 && reserved(&t) - allocated(&t) < 64 * VRPT_MIB; i++)
            (void)weights(&t, 100 * VRPT_MIB);
        assert_true(reserved(&t) - allocated(&t) >= 64 * VRPT_MIB);
        const uint64_t before = reserved(&t);
        vrp_devptr ptr = take(&t, 48 * VRPT_MIB);
        assert_int_equal(reserved(&t), before);
        give(&t, ptr);
    }
    close_pool(&t);
}

static void memory_ahead_goes_with_its_block(void **state) {
    vrp_devptr ptrs[64];
    vrpt t;
    (void)state;
    open_pool(&t, &large);
    for (size_t i = 0; i < VRPT_COUNT(ptrs); i++)
        ptrs[i] = weights(&t, 118 * VRPT_MIB);
    for (size_t i = VRPT_COUNT(ptrs); i-- > 32;)
        give(&t, ptrs[i]);
    VRPT_OK(vrp_empty_cache(t.pool, NULL));
    if (t.backing == VRP_BACKING_VMM)
        assert_true(reserved(&t) <= 32 * 118 * VRPT_MIB + 128 * VRPT_MIB);
    for (size_t i = 0; i < 32; i++)
        give(&t, ptrs[i]);
    VRPT_OK(vrp_empty_cache(t.pool, NULL));
    assert_int_equal(reserved(&t), 0);
    close_pool(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loading_costs_less_than_an_allocation_each),
        cmocka_unit_test(memory_ahead_is_bounded),
        cmocka_unit_test(knob_takes_it_away),
        cmocka_unit_test(limit_and_full_device_are_no_obstacle),
        cmocka_unit_test(memory_ahead_serves_others),
        cmocka_unit_test(memory_ahead_goes_with_its_block),
    };
    return vrpt_main("loading", tests, VRPT_COUNT(tests), argc, argv);
}
