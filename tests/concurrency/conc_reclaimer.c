/* SPDX-License-Identifier: MIT */
/* The reclaimer beside threads that allocate, free, trim, poll and forget
 * streams: nothing is taken away that is in use, nothing is lost, and no thread
 * waits for it. */

#include "support/threads.h"

#include <string.h>
#include <time.h>

typedef struct worker {
    vrpt *t;
    uint64_t seed;
    vrpt_trouble trouble;
} worker;

enum { KEPT = 24 };

static int one_step(worker *w, vrpt_rng *rng, vrp_stream stream, vrp_devptr kept[KEPT],
                    uint64_t bytes[KEPT]) {
    const size_t i = (size_t)vrpt_rng_below(rng, KEPT);
    vrp_status status = VRP_OK;
    if (kept[i] != 0) {
        status = vrp_free(w->t->pool, kept[i], stream);
        kept[i] = 0;
        return vrpt_worker_ok(&w->trouble, "vrp_free", status);
    }
    bytes[i] = (1 + vrpt_rng_below(rng, 24)) * VRPT_MIB;
    status = vrp_alloc(w->t->pool, bytes[i], stream, &kept[i]);
    if (status == VRP_OUT_OF_DEVICE_MEMORY)
        return 1;
    return vrpt_worker_ok(&w->trouble, "vrp_alloc", status) &&
           vrpt_worker_ok(&w->trouble, "vrp_sim_launch",
                          vrp_sim_launch(w->t->sim, stream, kept[i], bytes[i], 0));
}

static void *work(void *argument) {
    worker *w = argument;
    vrpt_rng rng = {w->seed};
    vrp_devptr kept[KEPT] = {0};
    uint64_t bytes[KEPT] = {0};
    vrp_stream stream = vrpt_stream_create(w->t);
    const int steps = 300 * VRPT_SCALE;
    int good = stream != 0;
    for (int i = 0; i < steps && good; i++) {
        good = one_step(w, &rng, stream, kept, bytes);
        vrp_sim_tick(w->t->sim);
        if (good && vrpt_rng_below(&rng, 16) == 0)
            good = vrpt_worker_ok(
                &w->trouble, "vrp_trim",
                vrp_trim(w->t->pool, vrpt_rng_below(&rng, 2) * 256 * VRPT_MIB, 0, NULL));
        if (good && vrpt_rng_below(&rng, 64) == 0)
            good = vrpt_worker_ok(&w->trouble, "vrp_pool_poll", vrp_pool_poll(w->t->pool));
        if (good && vrpt_rng_below(&rng, 64) == 0)
            good = vrpt_worker_ok(&w->trouble, "vrp_pool_check", vrp_pool_check(w->t->pool));
    }
    for (size_t i = 0; i < KEPT; i++)
        if (kept[i] != 0)
            (void)vrpt_worker_ok(&w->trouble, "vrp_free", vrp_free(w->t->pool, kept[i], stream));
    if (stream != 0) {
        (void)vrpt_worker_ok(&w->trouble, "vrp_stream_forget",
                             vrp_stream_forget(w->t->pool, stream));
        vrpt_stream_destroy(w->t, stream);
    }
    return NULL;
}

static void run(uint64_t budget_ns, uint32_t flags) {
    const vrpt_options options = {.completion = VRP_SIM_LAG,
                                  .lag_ticks = 50,
                                  .device_bytes = 2 * VRPT_GIB,
                                  .pool.flags = flags};
    worker workers[VRPT_THREADS];
    vrpt t;
    VRPT_REQUIRE(&t, vrpt_open(&t, &options));
    VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_RECLAIMER, 1));
    VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_TRIM_BUDGET_NS, budget_ns));
    memset(workers, 0, sizeof workers);
    for (size_t i = 0; i < VRPT_COUNT(workers); i++) {
        workers[i].t = &t;
        workers[i].seed = 1 + i;
    }
    vrpt_threads_run(VRPT_COUNT(workers), work, workers, sizeof workers[0]);
    for (size_t i = 0; i < VRPT_COUNT(workers); i++)
        if (atomic_load(&workers[i].trouble.noted))
            fail_msg("%s", workers[i].trouble.why);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void threads_work_while_memory_is_reclaimed(void **state) {
    (void)state;
    run(500000, 0);
}

static void threads_work_while_all_of_it_is_left_to_the_reclaimer(void **state) {
    (void)state;
    run(0, 0);
}

static void untracked_streams_are_reclaimed_too(void **state) {
    (void)state;
    run(50000, VRP_STREAMS_UNTRACKED);
}

/* ---- nobody waits for it ----------------------------------------------------------------- */

static vrpt_gate inside = VRPT_GATE_INITIALIZER, go_on = VRPT_GATE_INITIALIZER;
static pthread_t main_thread;

static void stop_reclaimer(void *user, int32_t call, uint64_t argument) {
    (void)user;
    (void)argument;
    if (pthread_equal(pthread_self(), main_thread) ||
        (call != VRP_SIM_CALL_UNMAP && call != VRP_SIM_CALL_MEM_FREE))
        return;
    vrpt_gate_open(&inside);
    (void)vrpt_gate_wait(&go_on);
}

/* The thread is stopped in the middle of an unmap: everything else goes on. */
static void calls_pass_a_reclaimer_inside_the_driver(void **state) {
    vrpt t;
    vrp_devptr ptr = 0, small = 0;
    (void)state;
    VRPT_REQUIRE(&t, vrpt_open(&t, NULL));
    VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_RECLAIMER, 1));
    VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_TRIM_BUDGET_NS, 0));
    if (t.backing == VRP_BACKING_VMM) {
        main_thread = pthread_self();
        vrpt_gate_reset(&inside);
        vrpt_gate_reset(&go_on);
        VRPT_OK(vrp_alloc(t.pool, 256 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr));
        VRPT_OK(vrp_free(t.pool, ptr, VRP_STREAM_LEGACY));
        vrp_sim_call_hook_set(t.sim, stop_reclaimer, NULL);
        VRPT_OK(vrp_empty_cache(t.pool, NULL));
        assert_true(vrpt_gate_wait(&inside));
        VRPT_OK(vrp_alloc(t.pool, 100 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr));
        VRPT_OK(vrp_alloc(t.pool, 5000, VRP_STREAM_LEGACY, &small));
        VRPT_OK(vrp_free(t.pool, small, VRP_STREAM_LEGACY));
        VRPT_OK(vrp_free(t.pool, ptr, VRP_STREAM_LEGACY));
        VRPT_OK(vrp_empty_cache(t.pool, NULL));
        VRPT_OK(vrp_pool_poll(t.pool));
        VRPT_OK(vrp_pool_check(t.pool));
        assert_true(vrp_pool_reserved_bytes(t.pool) > 0);
        vrpt_gate_open(&go_on);
        VRPT_OK(vrp_trim(t.pool, 0, VRP_TRIM_WAIT, NULL));
        assert_int_equal(vrp_pool_reserved_bytes(t.pool), 0);
        vrp_sim_call_hook_set(t.sim, NULL, NULL);
    }
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_work_while_memory_is_reclaimed),
        cmocka_unit_test(threads_work_while_all_of_it_is_left_to_the_reclaimer),
        cmocka_unit_test(untracked_streams_are_reclaimed_too),
        cmocka_unit_test(calls_pass_a_reclaimer_inside_the_driver),
    };
    return vrpt_main("concurrency, reclaimer", tests, VRPT_COUNT(tests), argc, argv);
}
