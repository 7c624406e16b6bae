/* SPDX-License-Identifier: MIT */
/* Many threads in one pool: blocks that carry cookies and migrate, threads
 * that end, producers and a consumer, counters that are sampled, trims and
 * destruction under the feet of others. */

#include "threads.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static vrpt_trouble trouble;

static void begin(vrpt *t, const vrpt_options *options) {
    memset(&trouble, 0, sizeof trouble);
    VRPT_REQUIRE(t, vrpt_open(t, options));
}

static void end(vrpt *t) {
    if (atomic_load(&trouble.noted))
        fail_msg("%s", trouble.why);
    VRPT_REQUIRE(t, vrpt_close(t));
}

/* ---- Cookies and migration ---------------------------------------------------- */

typedef struct parcel {
    vrp_devptr ptr;
    uint64_t bytes;
    uint64_t cookie;
} parcel;

enum { SHELVES = 256 };
static _Atomic(parcel *) shelves[SHELVES];

typedef struct worker {
    vrpt *t;
    uint64_t seed;
    uint64_t rounds;
    vrp_stream stream;
} worker;

/* First and last eight bytes of a block carry its cookie. */
static uint64_t *ends(vrpt *t, const parcel *p, int last) {
    void *memory = NULL;
    vrp_status status = vrp_sim_host_pointer(t->sim, p->ptr, p->bytes, &memory);
    if (!vrpt_worker_ok(&trouble, "host_pointer", status))
        return NULL;
    return (uint64_t *)memory + (last ? p->bytes / 8 - 1 : 0);
}

static parcel *parcel_make(const worker *w, vrpt_rng *rng) {
    parcel *p = malloc(sizeof *p);
    if (p == NULL)
        return NULL;
    uint64_t scale = vrpt_rng_below(rng, 100);
    uint64_t top = scale < 70 ? 8 * VRPT_KIB : scale < 95 ? 256 * VRPT_KIB : 3 * VRPT_MIB;
    p->bytes = (1 + vrpt_rng_below(rng, top / 8)) * 8;
    p->cookie = vrpt_rng_next(rng);
    vrp_status status = vrp_alloc(w->t->pool, p->bytes, w->stream, &p->ptr);
    uint64_t *first = status == VRP_OK ? ends(w->t, p, 0) : NULL;
    if (!vrpt_worker_ok(&trouble, "alloc", status) || first == NULL) {
        free(p);
        return NULL;
    }
    *first = p->cookie;
    *ends(w->t, p, 1) = p->cookie;
    return p;
}

static void parcel_end(vrpt *t, parcel *p) {
    if (p == NULL)
        return;
    uint64_t *first = ends(t, p, 0), *last = ends(t, p, 1);
    if (first == NULL || *first != p->cookie || *last != p->cookie)
        vrpt_note(&trouble, "the cookie of block %" PRIx64 " is gone", p->ptr);
    (void)vrpt_worker_ok(&trouble, "free", vrp_free(t->pool, p->ptr, VRP_STREAM_OF_ALLOC));
    free(p);
}

static void *migrate(void *argument) {
    const worker *w = argument;
    vrpt_rng rng = {w->seed};
    for (uint64_t i = 0; i < w->rounds && !atomic_load(&trouble.noted); i++) {
        parcel *p = vrpt_rng_below(&rng, 3) == 0 ? NULL : parcel_make(w, &rng);
        parcel_end(w->t, atomic_exchange(&shelves[vrpt_rng_below(&rng, SHELVES)], p));
    }
    return NULL;
}

/* Threads that end with full caches, and threads that begin anew. */
static void *generations(void *argument) {
    worker *w = argument;
    for (uint64_t i = 0; i < 6; i++) {
        worker child = *w;
        child.seed = w->seed * 977 + i;
        vrpt_threads_run(1, migrate, &child, sizeof child);
    }
    return NULL;
}

static void run_migration(void *(*fn)(void *), uint64_t rounds, int own_streams) {
    vrpt t;
    vrpt_options options = {.sim_only = 1, .host_memory = 1, .device_bytes = 512 * VRPT_MIB};
    worker workers[VRPT_THREADS];
    begin(&t, &options);
    for (size_t i = 0; i < VRPT_THREADS; i++)
        workers[i] = (worker){&t, 71 + i, rounds, own_streams ? vrpt_stream_create(&t) : 0};
    vrpt_threads_run(VRPT_THREADS, fn, workers, sizeof *workers);
    for (size_t i = 0; i < SHELVES; i++)
        parcel_end(&t, atomic_exchange(&shelves[i], NULL));
    end(&t);
}

static void blocks_migrate_between_threads(void **state) {
    (void)state;
    run_migration(migrate, (uint64_t)2500 * VRPT_SCALE, 0);
}

static void blocks_migrate_between_threads_and_streams(void **state) {
    (void)state;
    run_migration(migrate, (uint64_t)2500 * VRPT_SCALE, 1);
}

static void threads_end_and_begin(void **state) {
    (void)state;
    run_migration(generations, (uint64_t)300 * VRPT_SCALE, 1);
}

/* ---- Eight threads that split and merge one block --------------------------------- */

static void *eight_kilobytes(void *argument) {
    const worker *w = argument;
    for (uint64_t i = 0; i < w->rounds; i++) {
        vrp_devptr p[8] = {0};
        for (int k = 0; k < 8; k++)
            if (!vrpt_worker_ok(&trouble, "alloc", vrp_alloc(w->t->pool, 1024, 0, &p[k])))
                return NULL;
        for (int k = 0; k < 8; k++)
            if (!vrpt_worker_ok(&trouble, "free", vrp_free(w->t->pool, p[k], 0)))
                return NULL;
    }
    return NULL;
}

static void split_and_merge_leave_nothing_behind(void **state) {
    (void)state;
    vrpt t;
    vrp_devptr first = 0;
    worker workers[VRPT_THREADS];
    begin(&t, NULL);
    VRPT_OK(vrp_alloc(t.pool, 64 * VRPT_KIB, 0, &first));
    VRPT_OK(vrp_free(t.pool, first, 0));
    for (size_t i = 0; i < VRPT_THREADS; i++)
        workers[i] = (worker){.t = &t, .rounds = 400};
    vrpt_threads_run(VRPT_THREADS, eight_kilobytes, workers, sizeof *workers);
    vrp_stats stats = vrpt_stats(&t);
    assert_int_equal(stats.blocks.current, 0);
    assert_int_equal(stats.blocks.total, 1 + VRPT_THREADS * 400 * 8);
    end(&t);
}

/* ---- One thread allocates, another frees ------------------------------------------------ */

typedef struct hand_over {
    vrpt *t;
    vrp_devptr blocks[1000];
} hand_over;

static void *allocate_all(void *argument) {
    hand_over *h = argument;
    for (size_t i = 0; i < VRPT_COUNT(h->blocks); i++)
        if (!vrpt_worker_ok(&trouble, "alloc", vrp_alloc(h->t->pool, VRPT_MIB, 0, &h->blocks[i])))
            break;
    return NULL;
}

static void *free_all(void *argument) {
    hand_over *h = argument;
    for (size_t i = 0; i < VRPT_COUNT(h->blocks); i++)
        if (!vrpt_worker_ok(&trouble, "free", vrp_free(h->t->pool, h->blocks[i], 0)))
            break;
    return NULL;
}

static void blocks_of_an_ended_thread_are_used_again(void **state) {
    (void)state;
    static hand_over h;
    vrpt t;
    vrpt_options options = {.device_bytes = 1200 * VRPT_MIB, .sim_only = 1};
    vrp_devptr big = 0;
    begin(&t, &options);
    h.t = &t;
    vrpt_threads_run(1, allocate_all, &h, sizeof h);
    vrpt_threads_run(1, free_all, &h, sizeof h);
    vrp_stats before = vrpt_stats(&t);
    VRPT_OK(vrp_alloc(t.pool, 512 * VRPT_MIB, 0, &big));
    if (t.backing == VRP_BACKING_VMM) /* segments are no larger together than each is */
        assert_true(vrpt_stats(&t).reserved_bytes.peak <= before.reserved_bytes.peak);
    VRPT_OK(vrp_free(t.pool, big, 0));
    end(&t);
}

/* ---- Producers and one consumer ------------------------------------------------------------ */

enum { QUEUE = 64, PRODUCERS = VRPT_TSAN ? 4 : 16 };
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t room, filled;
    parcel items[QUEUE];
    size_t count;
    int producing;
} queue = {.mutex = PTHREAD_MUTEX_INITIALIZER,
           .room = PTHREAD_COND_INITIALIZER,
           .filled = PTHREAD_COND_INITIALIZER};

static void *produce(void *argument) {
    const worker *w = argument;
    vrpt_rng rng = {w->seed};
    for (uint64_t i = 0; i < w->rounds; i++) {
        parcel p = {.bytes = 1 + vrpt_rng_below(&rng, 64 * VRPT_KIB)};
        if (!vrpt_worker_ok(&trouble, "alloc", vrp_alloc(w->t->pool, p.bytes, w->stream, &p.ptr)))
            break;
        (void)pthread_mutex_lock(&queue.mutex);
        while (queue.count == QUEUE)
            (void)pthread_cond_wait(&queue.room, &queue.mutex);
        queue.items[queue.count++] = p;
        (void)pthread_cond_signal(&queue.filled);
        (void)pthread_mutex_unlock(&queue.mutex);
    }
    (void)pthread_mutex_lock(&queue.mutex);
    queue.producing--;
    (void)pthread_cond_broadcast(&queue.filled);
    (void)pthread_mutex_unlock(&queue.mutex);
    return NULL;
}

static void *consume(void *argument) {
    vrpt *t = argument;
    for (;;) {
        (void)pthread_mutex_lock(&queue.mutex);
        while (queue.count == 0 && queue.producing > 0)
            (void)pthread_cond_wait(&queue.filled, &queue.mutex);
        if (queue.count == 0) {
            (void)pthread_mutex_unlock(&queue.mutex);
            return NULL;
        }
        parcel p = queue.items[--queue.count];
        (void)pthread_cond_signal(&queue.room);
        (void)pthread_mutex_unlock(&queue.mutex);
        (void)vrpt_worker_ok(&trouble, "free", vrp_free(t->pool, p.ptr, VRP_STREAM_OF_ALLOC));
    }
}

static void consumer_that_only_frees_bounds_the_pool(void **state) {
    (void)state;
    vrpt t;
    worker workers[PRODUCERS];
    pthread_t consumer;
    begin(&t, NULL);
    queue.producing = PRODUCERS;
    for (size_t i = 0; i < PRODUCERS; i++)
        workers[i] = (worker){&t, 5 + i, (uint64_t)250 * VRPT_SCALE, 0};
    assert_int_equal(pthread_create(&consumer, NULL, consume, &t), 0);
    vrpt_threads_run(PRODUCERS, produce, workers, sizeof *workers);
    (void)pthread_join(consumer, NULL);
    vrp_stats stats = vrpt_stats(&t);
    assert_int_equal(stats.blocks.current, 0);
    /* live at most 64 + 17 blocks of 64 KiB, caches of 4 MiB, and slabs of every class */
    assert_true(stats.reserved_bytes.peak <= (PRODUCERS + 1) * (4 + 4) * VRPT_MIB + 64 * VRPT_MIB);
    end(&t);
}

/* ---- Counters ------------------------------------------------------------------------------- */

static pthread_barrier_t barrier;
static _Atomic uint64_t live_requested, live_blocks;

static void *sampled(void *argument) {
    const worker *w = argument;
    vrpt_rng rng = {w->seed};
    for (uint64_t phase = 0; phase < w->rounds; phase++) {
        for (int i = 0; i < 1000; i++) {
            parcel *p = vrpt_rng_below(&rng, 2) ? malloc(sizeof *p) : NULL;
            if (p != NULL) {
                p->bytes = 1 + vrpt_rng_below(&rng, 40000);
                if (!vrpt_worker_ok(&trouble, "alloc",
                                    vrp_alloc(w->t->pool, p->bytes, w->stream, &p->ptr)))
                    break;
                (void)atomic_fetch_add(&live_requested, p->bytes);
                (void)atomic_fetch_add(&live_blocks, 1);
            }
            p = atomic_exchange(&shelves[vrpt_rng_below(&rng, SHELVES)], p);
            if (p == NULL)
                continue;
            (void)atomic_fetch_sub(&live_requested, p->bytes);
            (void)atomic_fetch_sub(&live_blocks, 1);
            (void)vrpt_worker_ok(&trouble, "free",
                                 vrp_free(w->t->pool, p->ptr, VRP_STREAM_OF_ALLOC));
            free(p);
        }
        (void)pthread_barrier_wait(&barrier); /* quiet: the main thread compares */
        (void)pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void counters_equal_the_live_sum_when_quiet(void **state) {
    (void)state;
    vrpt t;
    worker workers[VRPT_THREADS];
    pthread_t threads[VRPT_THREADS];
    uint64_t phases = VRPT_SCALE * 2;
    begin(&t, NULL);
    (void)pthread_barrier_init(&barrier, NULL, VRPT_THREADS + 1);
    for (size_t i = 0; i < VRPT_THREADS; i++) {
        workers[i] = (worker){&t, 900 + i, phases, vrpt_stream_create(&t)};
        assert_int_equal(pthread_create(&threads[i], NULL, sampled, &workers[i]), 0);
    }
    for (uint64_t phase = 0; phase < phases; phase++) {
        (void)pthread_barrier_wait(&barrier);
        vrp_stats stats = vrpt_stats(&t);
        if (stats.requested_bytes.current != live_requested || stats.blocks.current != live_blocks)
            vrpt_note(&trouble, "phase %" PRIu64 ": %" PRIu64 " requested, live %" PRIu64, phase,
                      stats.requested_bytes.current, (uint64_t)live_requested);
        if (vrp_pool_check(t.pool) != VRP_OK)
            vrpt_note(&trouble, "check: %s", vrpt_detail());
        (void)pthread_barrier_wait(&barrier);
    }
    for (size_t i = 0; i < VRPT_THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    for (size_t i = 0; i < SHELVES; i++) {
        parcel *p = atomic_exchange(&shelves[i], NULL);
        if (p != NULL)
            VRPT_OK(vrp_free(t.pool, p->ptr, VRP_STREAM_OF_ALLOC));
        free(p);
    }
    live_requested = live_blocks = 0;
    (void)pthread_barrier_destroy(&barrier);
    end(&t);
}

static void *hold(void *argument) {
    const worker *w = argument;
    vrp_devptr p[64] = {0};
    for (size_t i = 0; i < VRPT_COUNT(p); i++)
        (void)vrpt_worker_ok(&trouble, "alloc", vrp_alloc(w->t->pool, 1000000, 0, &p[i]));
    (void)pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < VRPT_COUNT(p); i++)
        (void)vrpt_worker_ok(&trouble, "free", vrp_free(w->t->pool, p[i], 0));
    return NULL;
}

static void peaks_are_low_by_at_most_16_mib_a_thread(void **state) {
    (void)state;
    vrpt t;
    worker workers[VRPT_THREADS];
    begin(&t, NULL);
    (void)pthread_barrier_init(&barrier, NULL, VRPT_THREADS);
    for (size_t i = 0; i < VRPT_THREADS; i++)
        workers[i] = (worker){.t = &t};
    vrpt_threads_run(VRPT_THREADS, hold, workers, sizeof *workers);
    (void)pthread_barrier_destroy(&barrier);
    uint64_t truth = (uint64_t)VRPT_THREADS * 64 * 1000000;
    uint64_t peak = vrpt_stats(&t).requested_bytes.peak;
    assert_true(peak <= truth);
    assert_true(peak + VRPT_THREADS * 16 * VRPT_MIB >= truth);
    end(&t);
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_migrate_between_threads),
        cmocka_unit_test(blocks_migrate_between_threads_and_streams),
        cmocka_unit_test(threads_end_and_begin),
        cmocka_unit_test(split_and_merge_leave_nothing_behind),
        cmocka_unit_test(blocks_of_an_ended_thread_are_used_again),
        cmocka_unit_test(consumer_that_only_frees_bounds_the_pool),
        cmocka_unit_test(counters_equal_the_live_sum_when_quiet),
        cmocka_unit_test(peaks_are_low_by_at_most_16_mib_a_thread),
    };
    (void)argc;
    static char sim[] = "sim";
    char *sim_only[] = {argv[0], sim};
    return vrpt_main("conc_threads", tests, VRPT_COUNT(tests), 2, sim_only);
}
