/* SPDX-License-Identifier: MIT */
/* Cases of others that concern the optimizer: 53 (nothing to do), 61 (one long
 * request), 62 (an optimizer that never ticks). */

#include "optimizer_support.h"

#include <pthread.h>

/* ---- 53: nothing to do ----------------------------------------------------------------------- */

static void case_053_empty_pool_costs_no_driver_call(void **state) {
    static const uint64_t thresholds[] = {0, 1, 99, 100, 101, UINT64_MAX};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(thresholds); i++) {
        vrpt t;
        open_pool(&t, &hoarding);
        vrp_optimizer *optimizer = make_classic(&t, thresholds[i], 1, VRP_OPTIMIZER_IDLE);
        const uint64_t calls = vrpt_driver_calls(&t);
        for (int k = 0; k < 10; k++) {
            assert_int_equal(step(optimizer).acted, 0);
            VRPT_OK(vrp_optimizer_idle(optimizer, NULL, NULL));
        }
        assert_int_equal(vrpt_driver_calls(&t), calls);
        vrp_optimizer_destroy(optimizer);
        close_pool(&t);
    }
}

static void case_053_thresholds_around_one_free_segment(void **state) {
    static const uint64_t percents[] = {0, 1, 99, 100, 101};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(percents); i++) {
        vrpt t;
        open_pool(&t, &hoarding);
        give(&t, take(&t, 100 * VRPT_MIB));
        vrp_optimizer *optimizer = make_classic(&t, gap(&t) / 100 * percents[i], 1, 0);
        assert_int_equal(step(optimizer).acted, percents[i] < 100);
        assert_int_equal(reserved(&t) == 0, percents[i] < 100);
        const uint64_t calls = vrpt_driver_calls(&t);
        assert_int_equal(step(optimizer).acted, 0);
        assert_int_equal(vrpt_driver_calls(&t), calls);
        vrp_optimizer_destroy(optimizer);
        close_pool(&t);
    }
}

static void case_053_pinned_memory_costs_no_driver_call(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    (void)take(&t, 512);
    vrp_optimizer *optimizer = make_classic(&t, 0, 1, VRP_OPTIMIZER_IDLE);
    (void)step(optimizer);
    const uint64_t calls = vrpt_driver_calls(&t);
    for (int i = 0; i < 10; i++)
        assert_int_equal(step(optimizer).released_bytes, 0);
    assert_int_equal(vrpt_driver_calls(&t), calls);
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

typedef struct nested {
    vrp_optimizer *optimizer;
    uint64_t calls, acted, failed;
} nested;

static void step_inside(void *user, int32_t call, uint64_t argument) {
    nested *n = user;
    int acted = -1;
    (void)argument;
    if (call != VRP_SIM_CALL_UNMAP && call != VRP_SIM_CALL_MEM_FREE)
        return;
    n->calls++;
    n->failed += vrp_optimizer_step(n->optimizer, &acted, NULL) != VRP_OK;
    n->acted += acted != 0;
}

static void case_053_step_inside_a_step_only_counts(void **state) {
    const vrpt_options options = {.pool.gap_rule = VRP_GAP_RULE_OFF,
                                  .pool.flags = VRP_NO_RECLAIMER};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    nested n = {.optimizer = make_classic(&t, 0, 1, 0)};
    give(&t, take(&t, 100 * VRPT_MIB));
    give(&t, take(&t, 200 * VRPT_MIB));
    vrp_sim_call_hook_set(t.sim, step_inside, &n);
    assert_int_equal(step(n.optimizer).acted, 1);
    vrp_sim_call_hook_set(t.sim, NULL, NULL);
    assert_true(n.calls > 0);
    assert_int_equal(n.failed, 0);
    assert_int_equal(n.acted, 0);
    assert_int_equal(stats_of(n.optimizer).steps, 1 + n.calls);
    assert_int_equal(stats_of(n.optimizer).looks, 1);
    assert_int_equal(stats_of(n.optimizer).acts, 1);
    assert_int_equal(reserved(&t), 0);
    vrp_optimizer_destroy(n.optimizer);
    close_pool(&t);
}

/* ---- 61, 62 ------------------------------------------------------------------------------------
 */

static void run_of(vrpt *t, uint64_t scale) {
    vrp_devptr ptrs[8];
    for (uint64_t i = 0; i < VRPT_COUNT(ptrs); i++)
        ptrs[i] = take(t, (i + 1) * scale * 256 * VRPT_KIB);
    for (uint64_t i = 0; i < VRPT_COUNT(ptrs); i++)
        give(t, ptrs[i]);
}

static void case_061_one_long_request_is_forgotten_within_an_interval(void **state) {
    const uint64_t threshold = 64 * VRPT_MIB;
    /* between two looks a run may take a segment of its own */
    const uint64_t segment = vrpt_now.backing == VRP_BACKING_MALLOC ? 160 * VRPT_MIB : 0;
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    vrp_optimizer *optimizer = make_classic(&t, threshold, VRP_OPTIMIZER_INTERVAL, 0);
    (void)take(&t, 32 * VRPT_MIB);
    for (int i = 0; i < 100; i++) {
        run_of(&t, 2);
        (void)step(optimizer);
    }
    const uint64_t small = reserved(&t);
    run_of(&t, 60);
    assert_true(reserved(&t) >= small + 400 * VRPT_MIB);
    for (int i = 0; i < 100; i++) {
        (void)step(optimizer);
        run_of(&t, 2);
        if (i >= 5)
            assert_true(reserved(&t) <= small + threshold + segment);
    }
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

typedef struct freer {
    vrp_pool *pool;
    vrp_devptr ptrs[200];
    vrp_status status;
} freer;

static void *only_free(void *user) {
    freer *f = user;
    for (size_t i = 0; i < VRPT_COUNT(f->ptrs) && f->status == VRP_OK; i++)
        f->status = vrp_free(f->pool, f->ptrs[i], VRP_STREAM_LEGACY);
    return NULL;
}

/* The optimizer has no clock and no thread: memory goes when a step or an idle
 * call says that it may. What is given up then includes the frees of a thread
 * that has never allocated. */
static void case_062_one_idle_call_after_a_silence_is_enough(void **state) {
    static const uint64_t sizes[] = {VRPT_KIB, 100 * VRPT_KIB, 4 * VRPT_MIB};
    (void)state;
    for (size_t s = 0; s < VRPT_COUNT(sizes); s++) {
        vrpt t;
        freer f = {0};
        pthread_t thread;
        vrp_optimizer_report report = {.struct_size = sizeof report};
        open_pool(&t, &hoarding);
        vrp_optimizer *optimizer = make_classic(&t, VRPT_GIB, 5, VRP_OPTIMIZER_IDLE);
        f.pool = t.pool;
        for (size_t i = 0; i < VRPT_COUNT(f.ptrs); i++)
            f.ptrs[i] = take(&t, sizes[s]);
        assert_int_equal(pthread_create(&thread, NULL, only_free, &f), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        VRPT_OK(f.status);
        assert_true(reserved(&t) > 0);
        VRPT_OK(vrp_optimizer_idle(optimizer, NULL, &report));
        assert_int_equal(report.reason, VRP_REASON_IDLE);
        assert_int_equal(reserved(&t), 0);
        vrp_optimizer_destroy(optimizer);
        close_pool(&t);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_053_empty_pool_costs_no_driver_call),
        cmocka_unit_test(case_053_thresholds_around_one_free_segment),
        cmocka_unit_test(case_053_pinned_memory_costs_no_driver_call),
        cmocka_unit_test(case_053_step_inside_a_step_only_counts),
        cmocka_unit_test(case_061_one_long_request_is_forgotten_within_an_interval),
        cmocka_unit_test(case_062_one_idle_call_after_a_silence_is_enough),
    };
    return vrpt_main("cases, optimizer", tests, VRPT_COUNT(tests), argc, argv);
}
