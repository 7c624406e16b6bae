/* SPDX-License-Identifier: MIT */
/* Cases of others, third tier: threads (70, 73, 74), frees that disagree with
 * the allocation (76), observers inside driver calls (79). Fork and process
 * exit are in test_cases_tier3_process.c. */

#include "unit_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* ---- 70: reclaim waits for nothing that it does not need ---------------------------- */

static void case_070_reclaim_does_not_wait_for_unrelated_streams(void **state) {
    const vrpt_options options = {.device_bytes = 256 * VRPT_MIB, .completion = VRP_SIM_MANUAL};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    vrp_stream busy = vrpt_stream_create(&t);
    vrp_stream idle = vrpt_stream_create(&t);
    give(&t, take_on(&t, 128 * VRPT_MIB, idle));
    vrp_sim_drain(t.sim);
    VRPT_OK(vrp_pool_poll(t.pool)); /* the segment can be released now */
    vrp_devptr pending = take_on(&t, 64 * VRPT_MIB, busy);
    VRPT_OK(vrp_sim_launch(t.sim, busy, pending, 64 * VRPT_MIB, 0));
    VRPT_OK(vrp_free(t.pool, pending, busy));
    const uint64_t blocked = vrpt_sim_stats(&t, 0).host_blocks;
    /* giving a segment of the malloc backing back waits for the whole device,
     * so there the request may be refused, but not wait */
    vrp_alloc_info info = {.struct_size = sizeof info,
                           .flags = VRP_ALLOC_NO_WAIT,
                           .bytes = 160 * VRPT_MIB,
                           .stream = VRP_STREAM_LEGACY};
    vrp_devptr ptr = 0;
    vrp_status status = vrp_alloc_ex(t.pool, &info, &ptr);
    if (t.backing == VRP_BACKING_VMM)
        VRPT_OK(status);
    assert_true(status == VRP_OK || status == VRP_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(vrpt_sim_stats(&t, 0).host_blocks, blocked);
    assert_int_equal(vrpt_stats(&t).host_waits, 0);
    VRPT_OK(vrp_free(t.pool, ptr, VRP_STREAM_LEGACY));
    vrp_sim_drain(t.sim);
    VRPT_OK(vrp_stream_forget(t.pool, busy));
    VRPT_OK(vrp_stream_forget(t.pool, idle));
    vrpt_stream_destroy(&t, busy);
    vrpt_stream_destroy(&t, idle);
    close_pool(&t);
}

/* ---- 73, 74: blocks that change threads ----------------------------------------------- */

enum { MANY = 1000, PRODUCERS = 16, QUEUE = 64, PIECES = VRPT_TSAN ? 200 : 2000 };

typedef struct batch {
    vrp_pool *pool;
    uint64_t bytes;
    vrp_devptr ptrs[MANY];
    size_t first, count; /* the part that a thread works on */
    vrp_status status;
} batch;

static void *allocate_part(void *user) {
    batch *b = user;
    for (size_t i = b->first; i < b->first + b->count && b->status == VRP_OK; i++)
        b->status = vrp_alloc(b->pool, b->bytes, VRP_STREAM_LEGACY, &b->ptrs[i]);
    return NULL;
}

static void *free_part(void *user) {
    batch *b = user;
    for (size_t i = b->first; i < b->first + b->count && b->status == VRP_OK; i++)
        b->status = vrp_free(b->pool, b->ptrs[i], VRP_STREAM_LEGACY);
    return NULL;
}

static void in_a_thread(batch *b, void *(*work)(void *), size_t first, size_t count) {
    pthread_t thread;
    b->first = first;
    b->count = count;
    assert_int_equal(pthread_create(&thread, NULL, work, b), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    VRPT_OK(b->status);
}

static void case_073_memory_of_an_ended_thread_is_reused(void **state) {
    static const uint64_t sizes[] = {VRPT_KIB, 32 * VRPT_KIB, 256 * VRPT_KIB, VRPT_MIB};
    const vrpt_options options = {.device_bytes = 1280 * VRPT_MIB};
    static batch b;
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrpt t;
        open_pool(&t, &options);
        b = (batch){.pool = t.pool, .bytes = sizes[i]};
        in_a_thread(&b, allocate_part, 0, MANY);
        in_a_thread(&b, free_part, 0, MANY); /* a thread that has never allocated */
        assert_int_equal(allocated(&t), 0);
        give(&t, take(&t, 512 * VRPT_MIB));
        /* the whole device, with no trim asked for */
        give(&t, take(&t, 1280 * VRPT_MIB));
        close_pool(&t);
    }
}

static void case_074_allocated_is_exact_with_frees_from_other_threads(void **state) {
    static const uint64_t sizes[] = {100, 20000, 300 * VRPT_KIB};
    static batch b;
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrpt t;
        open_pool(&t, NULL);
        vrp_devptr one = take(&t, sizes[i]);
        const uint64_t each = vrpt_usable(&t, one);
        give(&t, one);
        b = (batch){.pool = t.pool, .bytes = sizes[i]};
        for (int round = 0; round < 10; round++) {
            in_a_thread(&b, allocate_part, 0, MANY);
            assert_int_equal(allocated(&t), MANY * each);
            assert_int_equal(requested(&t), MANY * sizes[i]);
            assert_int_equal(vrp_pool_allocated_bytes(t.pool), MANY * each);
            in_a_thread(&b, free_part, 0, 300);
            assert_int_equal(allocated(&t), 700 * each);
            in_a_thread(&b, allocate_part, 100, 50);
            in_a_thread(&b, free_part, 100, 50);
            in_a_thread(&b, free_part, 300, 700);
            assert_int_equal(allocated(&t), 0);
            assert_int_equal(requested(&t), 0);
            assert_int_equal(vrpt_stats(&t).blocks.current, 0);
        }
        assert_int_equal(vrpt_stats(&t).blocks.total, 1 + 10 * (MANY + 50));
        close_pool(&t);
    }
}

typedef struct channel {
    vrp_pool *pool;
    uint64_t bytes;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    vrp_devptr items[QUEUE];
    size_t count;
    atomic_int failed;
} channel;

static void *produce(void *user) {
    channel *c = user;
    for (int i = 0; i < PIECES / PRODUCERS; i++) {
        vrp_devptr ptr = 0;
        if (vrp_alloc(c->pool, c->bytes, VRP_STREAM_LEGACY, &ptr) != VRP_OK)
            c->failed = 1;
        (void)pthread_mutex_lock(&c->mutex);
        while (c->count == QUEUE)
            (void)pthread_cond_wait(&c->changed, &c->mutex);
        c->items[c->count++] = ptr;
        (void)pthread_cond_broadcast(&c->changed);
        (void)pthread_mutex_unlock(&c->mutex);
    }
    return NULL;
}

static void *consume(void *user) {
    channel *c = user;
    for (int i = 0; i < PIECES / PRODUCERS * PRODUCERS; i++) {
        (void)pthread_mutex_lock(&c->mutex);
        while (c->count == 0)
            (void)pthread_cond_wait(&c->changed, &c->mutex);
        vrp_devptr ptr = c->items[--c->count];
        (void)pthread_cond_broadcast(&c->changed);
        (void)pthread_mutex_unlock(&c->mutex);
        if (vrp_free(c->pool, ptr, VRP_STREAM_LEGACY) != VRP_OK)
            c->failed = 1;
    }
    return NULL;
}

static void case_073_one_thread_frees_for_many(void **state) {
    static const uint64_t sizes[] = {VRPT_KIB, 32 * VRPT_KIB, 256 * VRPT_KIB, 2 * VRPT_MIB};
    (void)state;
    for (size_t s = 0; s < VRPT_COUNT(sizes); s++) {
        vrpt t;
        pthread_t threads[PRODUCERS + 1];
        open_pool(&t, NULL);
        channel c = {.pool = t.pool, .bytes = sizes[s]};
        assert_int_equal(pthread_mutex_init(&c.mutex, NULL), 0);
        assert_int_equal(pthread_cond_init(&c.changed, NULL), 0);
        for (int i = 0; i <= PRODUCERS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, i == 0 ? consume : produce, &c), 0);
        for (int i = 0; i <= PRODUCERS; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(c.failed, 0);
        assert_int_equal(allocated(&t), 0);
        const uint64_t most_live = (QUEUE + PRODUCERS + 1) * round_up(sizes[s], 512);
        const uint64_t caches = (PRODUCERS + 1) * (4 * VRPT_MIB + 2 * VRPT_MIB);
        assert_true(vrpt_stats(&t).reserved_bytes.peak <= most_live + caches + 2 * piece(&t));
        (void)pthread_mutex_destroy(&c.mutex);
        (void)pthread_cond_destroy(&c.changed);
        close_pool(&t);
    }
}

/* ---- 76: a free that disagrees with the allocation ---------------------------------------- */

static void case_076_free_on_another_stream_counts_what_was_recorded(void **state) {
    static const uint64_t sizes[] = {1, 44, 4096, 40000, 3 * VRPT_MIB};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrpt t;
        open_pool(&t, NULL);
        vrp_stream side = vrpt_stream_create(&t);
        const vrp_stream frees_on[] = {VRP_STREAM_LEGACY, VRP_STREAM_PER_THREAD, side,
                                       VRP_STREAM_OF_ALLOC};
        vrp_devptr kept = take(&t, 777);
        const uint64_t before = allocated(&t);
        for (size_t k = 0; k < VRPT_COUNT(frees_on); k++) {
            vrp_devptr ptr = take(&t, sizes[i]);
            assert_int_equal(requested(&t), 777 + sizes[i]);
            VRPT_OK(vrp_free(t.pool, ptr, frees_on[k]));
            assert_int_equal(requested(&t), 777);
            assert_int_equal(allocated(&t), before);
            assert_int_equal(vrpt_stats(&t).blocks.current, 1);
        }
        give(&t, kept);
        VRPT_OK(vrp_stream_forget(t.pool, side));
        vrpt_stream_destroy(&t, side);
        close_pool(&t);
    }
}

static void case_076_free_on_another_device_is_refused(void **state) {
    const vrpt_options options = {.device_count = 2};
    vrpt t;
    vrp_driver *second = NULL;
    vrp_pool *other = NULL;
    vrp_devptr theirs = 0;
    (void)state;
    open_pool(&t, &options);
    VRPT_OK(vrp_sim_driver_create(t.sim, 1, &second));
    vrp_pool_config config = {.struct_size = sizeof config, .backing = t.backing};
    VRPT_OK(vrp_pool_create(second, &config, &other));
    VRPT_OK(vrp_alloc(other, 44, VRP_STREAM_LEGACY, &theirs));
    vrp_devptr ours = take(&t, 44);
    VRPT_STATUS(vrp_free(t.pool, theirs, VRP_STREAM_LEGACY), VRP_NOT_OWNED);
    VRPT_STATUS(vrp_free(other, ours, VRP_STREAM_LEGACY), VRP_NOT_OWNED);
    VRPT_OK(vrp_free(other, theirs, VRP_STREAM_LEGACY));
    VRPT_OK(vrp_pool_destroy(other, 0));
    vrp_driver_destroy(second);
    assert_int_equal(vrpt_sim_stats(&t, 1).used_bytes, 0);
    close_pool(&t);
}

/* ---- 79: somebody looks at the pool from inside each driver call ---------------------------- */

typedef struct observer {
    vrp_pool *pool;
    uint64_t calls;
    uint64_t wrong;
} observer;

static void observe(void *user, int32_t call, uint64_t argument) {
    observer *o = user;
    vrp_gap gap = {.struct_size = sizeof gap};
    vrp_stats stats = {.struct_size = sizeof stats};
    (void)argument;
    if (vrp_pool_stats_get(o->pool, &stats) != VRP_OK)
        return; /* being destroyed */
    o->calls++;
    if (stats.reserved_bytes.current < stats.allocated_bytes.current &&
        call != VRP_SIM_CALL_MEM_ALLOC) /* the request under way is counted first */
        o->wrong += stats.allocated_bytes.current - stats.reserved_bytes.current > VRPT_GIB;
    if (vrp_pool_gap_compute(o->pool, &gap) != VRP_OK)
        o->wrong++;
    if (gap.cached_bytes + gap.pending_bytes + gap.idle_bytes + gap.pinned_bytes + gap.slack_bytes >
        stats.reserved_bytes.current)
        o->wrong++;
}

static void case_079_observer_in_every_driver_call_sees_a_sound_pool(void **state) {
    const vrpt_options options = {.device_bytes = 256 * VRPT_MIB, .pool.flags = VRP_NO_RECLAIMER};
    observer o = {0};
    vrpt_rng rng = {.state = 79};
    vrp_devptr live[64] = {0};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    o.pool = t.pool;
    vrp_sim_call_hook_set(t.sim, observe, &o);
    for (int i = 0; i < 3000; i++) {
        vrp_devptr *slot = &live[vrpt_rng_below(&rng, VRPT_COUNT(live))];
        VRPT_OK(vrp_free(t.pool, *slot, VRP_STREAM_LEGACY));
        *slot = 0;
        const uint64_t bytes = UINT64_C(1) << vrpt_rng_below(&rng, 26);
        vrp_status status = vrp_alloc(t.pool, bytes, VRP_STREAM_LEGACY, slot);
        assert_true(status == VRP_OK || status == VRP_OUT_OF_DEVICE_MEMORY);
        if (i % 100 == 0)
            VRPT_OK(vrp_empty_cache(t.pool, NULL));
    }
    vrp_sim_call_hook_set(t.sim, NULL, NULL);
    assert_true(o.calls > 0);
    assert_int_equal(o.wrong, 0);
    close_pool(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_070_reclaim_does_not_wait_for_unrelated_streams),
        cmocka_unit_test(case_073_memory_of_an_ended_thread_is_reused),
        cmocka_unit_test(case_073_one_thread_frees_for_many),
        cmocka_unit_test(case_074_allocated_is_exact_with_frees_from_other_threads),
        cmocka_unit_test(case_076_free_on_another_stream_counts_what_was_recorded),
        cmocka_unit_test(case_076_free_on_another_device_is_refused),
        cmocka_unit_test(case_079_observer_in_every_driver_call_sees_a_sound_pool),
    };
    return vrpt_main("cases tier 3", tests, VRPT_COUNT(tests), argc, argv);
}
