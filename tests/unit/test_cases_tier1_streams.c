/* SPDX-License-Identifier: MIT */
/* Cases of others, first tier, where threads and streams are the trigger:
 * 8 (split and merge across threads), 10 (per-thread default streams that
 * share one handle), 11 (streams destroyed while the pool keys on them). */

#include "unit_support.h"

#include <pthread.h>

/* ---- 8 ------------------------------------------------------------------------------ */

enum { THREADS = 8, ROUNDS = VRPT_TSAN ? 40 : 400, BATCH = 8 };

typedef struct worker {
    vrp_pool *pool;
    uint64_t bytes;
    int failed;
} worker;

static void *split_and_merge(void *user) {
    worker *w = user;
    for (int round = 0; round < ROUNDS; round++) {
        vrp_devptr ptrs[BATCH];
        for (int i = 0; i < BATCH; i++)
            if (vrp_alloc(w->pool, w->bytes, VRP_STREAM_LEGACY, &ptrs[i]) != VRP_OK) {
                w->failed = 1;
                return NULL;
            }
        for (int i = 0; i < BATCH; i++)
            if (vrp_free(w->pool, ptrs[i], VRP_STREAM_LEGACY) != VRP_OK)
                w->failed = 1;
    }
    return NULL;
}

static void case_008_threads_split_and_merge_without_splinters(void **state) {
    /* slots of slabs, blocks that a thread caches, blocks that it does not */
    static const uint64_t sizes[] = {VRPT_KIB, 48 * VRPT_KIB, 3 * VRPT_MIB};
    const vrpt_options options = {.device_bytes = 4 * VRPT_GIB, .pool.flags = VRP_NO_RECLAIMER};
    (void)state;
    for (size_t s = 0; s < VRPT_COUNT(sizes); s++) {
        vrpt t;
        pthread_t threads[THREADS];
        worker workers[THREADS];
        open_pool(&t, &options);
        give(&t, take(&t, sizes[s] * 64));
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (worker){.pool = t.pool, .bytes = sizes[s]};
            assert_int_equal(pthread_create(&threads[i], NULL, split_and_merge, &workers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_int_equal(workers[i].failed, 0);
        }
        assert_int_equal(allocated(&t), 0);
        /* the threads have ended and took their caches with them */
        assert_true(vrpt_stats(&t).cached_bytes <= sizes[s] * 64);
        /* the recount fails on two free neighbours that are not merged */
        VRPT_REQUIRE(&t, vrpt_recount(&t));
        close_pool(&t);
    }
}

/* ---- 10 ----------------------------------------------------------------------------- */

typedef struct first_thread {
    vrpt *t;
    uint64_t bytes;
    vrp_devptr ptr;
    pthread_barrier_t barrier;
    vrp_status status;
} first_thread;

static void *work_and_free(void *user) {
    first_thread *a = user;
    a->status = vrp_alloc(a->t->pool, a->bytes, VRP_STREAM_PER_THREAD, &a->ptr);
    if (a->status == VRP_OK)
        a->status = vrp_sim_launch(a->t->sim, VRP_STREAM_PER_THREAD, a->ptr, a->bytes, 0);
    if (a->status == VRP_OK)
        a->status = vrp_free(a->t->pool, a->ptr, VRP_STREAM_PER_THREAD);
    (void)pthread_barrier_wait(&a->barrier); /* 1: freed, the work is not done */
    (void)pthread_barrier_wait(&a->barrier); /* 2: the other thread has its block */
    vrp_sim_complete(a->t->sim, VRP_STREAM_PER_THREAD, UINT64_MAX);
    return NULL;
}

static void case_010_per_thread_streams_do_not_alias(void **state) {
    static const uint64_t sizes[] = {512, 32 * VRPT_KIB, VRPT_MIB, 64 * VRPT_MIB};
    const vrpt_options options = {.completion = VRP_SIM_MANUAL};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrpt t;
        pthread_t thread;
        open_pool(&t, &options);
        first_thread a = {.t = &t, .bytes = sizes[i]};
        assert_int_equal(pthread_barrier_init(&a.barrier, NULL, 2), 0);
        assert_int_equal(pthread_create(&thread, NULL, work_and_free, &a), 0);
        (void)pthread_barrier_wait(&a.barrier);
        vrp_devptr b = 0;
        vrp_status status = vrp_alloc(t.pool, sizes[i], VRP_STREAM_PER_THREAD, &b);
        vrp_status launched = vrp_sim_launch(t.sim, VRP_STREAM_PER_THREAD, b, sizes[i], 0);
        (void)pthread_barrier_wait(&a.barrier);
        assert_int_equal(pthread_join(thread, NULL), 0);
        (void)pthread_barrier_destroy(&a.barrier);
        VRPT_OK(a.status);
        VRPT_OK(status);
        VRPT_OK(launched);
        assert_true(b != a.ptr);
        VRPT_OK(vrp_free(t.pool, b, VRP_STREAM_PER_THREAD));
        close_pool(&t); /* the detector saw no use of the block by both */
    }
}

/* Only the owner can record on its stream, and it has ended: its memory is not
 * lost to the others. */
static void case_010_memory_of_an_ended_thread_comes_back(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_MANUAL};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        first_thread a = {.t = &t, .bytes = 600 * VRPT_MIB}; /* two do not fit */
        assert_int_equal(pthread_barrier_init(&a.barrier, NULL, 1), 0);
        assert_int_equal(pthread_create(&thread, NULL, work_and_free, &a), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        (void)pthread_barrier_destroy(&a.barrier);
        VRPT_OK(a.status);
        vrp_sim_drain(t.sim);
    }
    give(&t, take(&t, 600 * VRPT_MIB));
    close_pool(&t);
}

/* ---- 11 ----------------------------------------------------------------------------- */

enum { STREAMS = 8 };

/* Streams used and destroyed, their work done before or after the destroy. */
static void use_and_destroy(vrpt *t, int forget, int done_before) {
    vrp_stream streams[STREAMS];
    vrp_devptr ptrs[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = vrpt_stream_create(t);
        ptrs[i] = take_on(t, VRPT_MIB, streams[i]);
        VRPT_OK(vrp_sim_launch(t->sim, streams[i], ptrs[i], VRPT_MIB, 0));
    }
    for (int i = 0; i < STREAMS; i++)
        VRPT_OK(vrp_free(t->pool, ptrs[i], streams[i]));
    if (done_before)
        vrp_sim_drain(t->sim);
    for (int i = 0; i < STREAMS; i++) {
        if (forget)
            VRPT_OK(vrp_stream_forget(t->pool, streams[i]));
        vrpt_stream_destroy(t, streams[i]);
    }
}

static void memory_of_destroyed_streams_is_used(int forget, uint32_t flags) {
    const vrpt_options options = {.completion = VRP_SIM_MANUAL, .pool.flags = flags};
    for (int done_before = 0; done_before < 2; done_before++) {
        vrpt t;
        open_pool(&t, &options);
        use_and_destroy(&t, forget, done_before);
        vrp_sim_drain(t.sim);
        VRPT_OK(vrp_pool_poll(t.pool));
        /* no new memory: what the streams had must serve */
        const uint64_t held = reserved(&t);
        VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_LIMIT_BYTES, held));
        vrp_devptr ptr = take(&t, 8 * VRPT_MIB);
        VRPT_OK(vrp_sim_launch(t.sim, VRP_STREAM_LEGACY, ptr, 8 * VRPT_MIB, 0));
        assert_true(reserved(&t) <= held);
        give(&t, ptr);
        VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_LIMIT_BYTES, 0));
        close_pool(&t);
    }
}

static void case_011_memory_of_destroyed_streams_is_used(void **state) {
    (void)state;
    memory_of_destroyed_streams_is_used(1, 0);
    memory_of_destroyed_streams_is_used(0, VRP_STREAMS_UNTRACKED);
}

/* The new stream has the handle of one whose work still runs: its blocks are
 * no blocks of "the same stream". */
static void recycled_handle_is_another_stream(int forget, uint32_t flags) {
    static const uint64_t sizes[] = {512, VRPT_MIB, 20 * VRPT_MIB};
    const vrpt_options options = {.completion = VRP_SIM_MANUAL, .pool.flags = flags};
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrpt t;
        open_pool(&t, &options);
        vrp_stream old = vrpt_stream_create(&t);
        vrp_devptr ptr = take_on(&t, sizes[i], old);
        VRPT_OK(vrp_sim_launch(t.sim, old, ptr, sizes[i], 0));
        VRPT_OK(vrp_free(t.pool, ptr, old));
        if (forget)
            VRPT_OK(vrp_stream_forget(t.pool, old));
        vrpt_stream_destroy(&t, old);
        vrp_stream young = vrpt_stream_create(&t);
        assert_int_equal(young, old); /* as the real driver does */
        vrp_devptr again = take_on(&t, sizes[i], young);
        VRPT_OK(vrp_sim_launch(t.sim, young, again, sizes[i], 0));
        VRPT_OK(vrp_free(t.pool, again, young));
        assert_int_equal(vrpt_sim_stats(&t, 0).misuses, 0);
        VRPT_OK(vrp_stream_forget(t.pool, young));
        vrpt_stream_destroy(&t, young);
        close_pool(&t);
    }
}

static void case_011_recycled_handle_is_another_stream(void **state) {
    (void)state;
    recycled_handle_is_another_stream(1, 0);
    recycled_handle_is_another_stream(0, VRP_STREAMS_UNTRACKED);
}

/* A block outlives its stream, and is freed without error. */
static void case_011_block_of_a_forgotten_stream_can_be_freed(void **state) {
    static const uint64_t sizes[] = {512, VRPT_MIB, 20 * VRPT_MIB};
    const vrpt_options options = {.completion = VRP_SIM_MANUAL};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++)
        for (int named = 0; named < 2; named++) {
            vrpt t;
            open_pool(&t, &options);
            vrp_stream stream = vrpt_stream_create(&t);
            vrp_devptr ptr = take_on(&t, sizes[i], stream);
            VRPT_OK(vrp_sim_launch(t.sim, stream, ptr, sizes[i], 0));
            VRPT_OK(vrp_stream_forget(t.pool, stream));
            vrpt_stream_destroy(&t, stream);
            VRPT_OK(vrp_free(t.pool, ptr, named ? stream : VRP_STREAM_OF_ALLOC));
            vrp_devptr other = take(&t, sizes[i]);
            VRPT_OK(vrp_sim_launch(t.sim, VRP_STREAM_LEGACY, other, sizes[i], 0));
            assert_int_equal(vrpt_sim_stats(&t, 0).misuses, 0);
            give(&t, other);
            close_pool(&t);
        }
}

static void case_011_table_of_streams_does_not_grow(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_IMMEDIATE};
    vrpt t;
    uint64_t settled = 0;
    (void)state;
    open_pool(&t, &options);
    for (int round = 0; round < 2000; round++) {
        vrp_stream streams[3];
        for (size_t i = 0; i < VRPT_COUNT(streams); i++) {
            streams[i] = vrpt_stream_create(&t);
            VRPT_OK(vrp_free(t.pool, take_on(&t, VRPT_KIB, streams[i]), streams[i]));
            VRPT_OK(vrp_free(t.pool, take_on(&t, VRPT_MIB, streams[i]), streams[i]));
        }
        for (size_t i = 0; i < VRPT_COUNT(streams); i++) {
            VRPT_OK(vrp_stream_forget(t.pool, streams[i]));
            vrpt_stream_destroy(&t, streams[i]);
        }
        if (round == 200)
            settled = vrpt_stats(&t).host_bytes;
    }
    assert_true(vrpt_stats(&t).host_bytes <= settled + 64 * VRPT_KIB);
    assert_true(reserved(&t) <= 6 * piece(&t) + 8 * VRPT_MIB);
    /* streams that the pool has never seen, or not any more */
    VRPT_OK(vrp_stream_forget(t.pool, 12345));
    VRPT_OK(vrp_stream_forget(t.pool, 12345));
    close_pool(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_008_threads_split_and_merge_without_splinters),
        cmocka_unit_test(case_010_per_thread_streams_do_not_alias),
        cmocka_unit_test(case_010_memory_of_an_ended_thread_comes_back),
        cmocka_unit_test(case_011_memory_of_destroyed_streams_is_used),
        cmocka_unit_test(case_011_recycled_handle_is_another_stream),
        cmocka_unit_test(case_011_block_of_a_forgotten_stream_can_be_freed),
        cmocka_unit_test(case_011_table_of_streams_does_not_grow),
    };
    return vrpt_main("cases tier 1, streams", tests, VRPT_COUNT(tests), argc, argv);
}
