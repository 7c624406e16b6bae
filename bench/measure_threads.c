/* SPDX-License-Identifier: MIT */
/* Several threads: a stream each, and one that allocates what another frees. */

#include "measure.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { MOST_THREADS = 16, BLOCK = 4096, WARM = 1000, MOST_PAIRS = 200000 };

/* ---- A stream each --------------------------------------------------------------------- */

enum { WAIT = 0, GO = 1, GO_HOME = 2 };

typedef struct crew {
    const bench_measure *m;
    uint64_t warm, count;
    atomic_uint ready; /* threads that are warm */
    atomic_int order;  /* WAIT ... */
    atomic_int failed;
} crew;

typedef struct worker {
    crew *crew;
    pthread_t thread;
    uint64_t stream;
    uint64_t began, ended;
} worker;

static int pairs(const bench_measure *m, uint64_t stream, uint64_t count) {
    uint64_t ptr = 1;
    for (uint64_t i = 0; i < count && ptr != 0; i++) {
        ptr = m->adaptor->alloc(m->self, BLOCK, stream);
        m->adaptor->free(m->self, ptr, BLOCK, stream);
    }
    return ptr != 0;
}

static void *work(void *user) {
    worker *w = user;
    crew *c = w->crew;
    int good = bench_stage_thread(c->m->stage);
    good = good && pairs(c->m, w->stream, c->warm);
    (void)atomic_fetch_add(&c->ready, 1);
    while (atomic_load(&c->order) == WAIT)
        __builtin_ia32_pause();
    w->began = bench_clock_ns();
    good = good && atomic_load(&c->order) == GO && pairs(c->m, w->stream, c->count);
    w->ended = bench_clock_ns();
    if (!good)
        atomic_store(&c->failed, 1);
    return NULL;
}

/* Nanoseconds a pair of the slowest thread, by its own clock; negative: it failed. */
static double round_of(const bench_measure *m, worker *workers, uint32_t threads, uint64_t count) {
    crew c = {.m = m, .count = count, .warm = count < WARM ? count : WARM};
    uint64_t longest = 0;
    uint32_t made = 0;
    for (; made < threads; made++) {
        workers[made].crew = &c;
        if (pthread_create(&workers[made].thread, NULL, work, &workers[made]) != 0)
            break;
    }
    while (atomic_load(&c.ready) < made)
        (void)sched_yield();
    atomic_store(&c.order, made == threads ? GO : GO_HOME);
    for (uint32_t i = 0; i < made; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        uint64_t took = workers[i].ended - workers[i].began;
        longest = took > longest ? took : longest;
    }
    if (made < threads || atomic_load(&c.failed)) {
        (void)bench_fail("%u of %u threads: one failed", made, threads);
        return -1;
    }
    return (double)longest / (double)count;
}

static int threads_of(bench_measure *m, worker *workers, uint32_t threads) {
    double each = round_of(m, workers, threads, 100);
    if (each < 0)
        return 0;
    uint64_t count = bench_measure_count(m, each, 100, MOST_PAIRS);
    each = round_of(m, workers, threads, count); /* the first hundred were cold */
    if (each < 0)
        return 0;
    count = bench_measure_count(m, each, 100, MOST_PAIRS);
    bench_row *row = bench_sheet_add(m->sheet, "ns", "threads/%u", threads);
    for (uint64_t i = 0; i < m->repeat; i++) {
        each = round_of(m, workers, threads, count);
        if (each < 0)
            return 0;
        bench_row_put(row, each);
    }
    return bench_stage_synchronise(m->stage);
}

int bench_measure_threads(bench_measure *m) {
    worker workers[MOST_THREADS];
    uint32_t streams = 0;
    memset(workers, 0, sizeof workers);
    while (streams < MOST_THREADS && bench_stage_stream(m->stage, &workers[streams].stream))
        streams++;
    int good = streams == MOST_THREADS;
    for (uint32_t threads = 1; good && threads <= MOST_THREADS; threads *= 2)
        good = threads_of(m, workers, threads);
    for (uint32_t i = 0; i < streams; i++) {
        if (m->adaptor->stream_forget != NULL)
            m->adaptor->stream_forget(m->self, workers[i].stream);
        bench_stage_stream_end(m->stage, workers[i].stream);
    }
    return good;
}

/* ---- Allocated on one thread, freed on another ------------------------------------------- */

/* One writer, one reader; each keeps to its own line and looks at the other's
 * only when it has to. */
enum { SLOTS = 1024, LINE = 64, PATIENCE = 2000 };
typedef struct ring {
    _Alignas(LINE) _Atomic uint64_t head; /* written by the producer */
    uint64_t tail_seen;
    _Alignas(LINE) _Atomic uint64_t tail; /* written by the consumer */
    uint64_t head_seen;
    _Alignas(LINE) uint64_t slots[SLOTS];
} ring;

typedef struct belt {
    const bench_measure *m;
    int with_blocks; /* 0: numbers, to see what the ring costs by itself */
    uint64_t count, stream;
    pthread_barrier_t start;
    ring ring;
    atomic_int failed;
    uint64_t began, ended;
} belt;

static void wait_a_little(uint32_t *turns) {
    if (++*turns < PATIENCE)
        __builtin_ia32_pause();
    else
        (void)sched_yield();
}

static void push(ring *r, uint64_t value) {
    uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    uint32_t turns = 0;
    while (head - r->tail_seen == SLOTS) {
        r->tail_seen = atomic_load_explicit(&r->tail, memory_order_acquire);
        if (head - r->tail_seen == SLOTS)
            wait_a_little(&turns);
    }
    r->slots[head % SLOTS] = value;
    atomic_store_explicit(&r->head, head + 1, memory_order_release);
}

static uint64_t pop(ring *r) {
    uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    uint32_t turns = 0;
    while (r->head_seen == tail) {
        r->head_seen = atomic_load_explicit(&r->head, memory_order_acquire);
        if (r->head_seen == tail)
            wait_a_little(&turns);
    }
    uint64_t value = r->slots[tail % SLOTS];
    atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
    return value;
}

static void *consume(void *user) {
    belt *b = user;
    const bench_measure *m = b->m;
    if (!bench_stage_thread(m->stage))
        atomic_store(&b->failed, 1);
    (void)pthread_barrier_wait(&b->start);
    for (uint64_t i = 0; i < b->count; i++) {
        uint64_t value = pop(&b->ring);
        if (b->with_blocks && value != 0)
            m->adaptor->free(m->self, value, BLOCK, b->stream);
    }
    b->ended = bench_clock_ns();
    return NULL;
}

static void produce(belt *b) {
    const bench_measure *m = b->m;
    (void)pthread_barrier_wait(&b->start);
    b->began = bench_clock_ns();
    for (uint64_t i = 0; i < b->count; i++) {
        uint64_t value = i + 1;
        if (b->with_blocks) {
            value = m->adaptor->alloc(m->self, BLOCK, b->stream);
            if (value == 0)
                atomic_store(&b->failed, 1);
        }
        push(&b->ring, value);
    }
}

/* Nanoseconds a block; negative: it failed. */
static double hand_over(const bench_measure *m, int with_blocks, uint64_t stream, uint64_t count) {
    static belt b;
    pthread_t consumer;
    memset(&b, 0, sizeof b);
    b.m = m;
    b.with_blocks = with_blocks;
    b.count = count;
    b.stream = stream;
    if (pthread_barrier_init(&b.start, NULL, 2) != 0)
        return -1;
    if (pthread_create(&consumer, NULL, consume, &b) != 0) {
        (void)pthread_barrier_destroy(&b.start);
        (void)bench_fail("a thread could not be made");
        return -1;
    }
    produce(&b);
    (void)pthread_join(consumer, NULL);
    (void)pthread_barrier_destroy(&b.start);
    return atomic_load(&b.failed) ? -1 : (double)(b.ended - b.began) / (double)count;
}

int bench_measure_handoff(bench_measure *m) {
    enum { TRY = 2000 };
    uint64_t stream = 0;
    int good = bench_stage_stream(m->stage, &stream);
    for (int with_blocks = 0; good && with_blocks <= 1; with_blocks++) {
        double each = hand_over(m, with_blocks, stream, TRY);
        bench_row *row =
            bench_sheet_add(m->sheet, "ns", with_blocks ? "handoff/4096" : "handoff/ring_alone");
        uint64_t count = bench_measure_count(m, each, TRY, 1000000);
        for (uint64_t i = 0; good && each >= 0 && i < m->repeat; i++) {
            each = hand_over(m, with_blocks, stream, count);
            bench_row_put(row, each);
        }
        good = each >= 0 && bench_stage_synchronise(m->stage);
    }
    if (m->adaptor->stream_forget != NULL)
        m->adaptor->stream_forget(m->self, stream);
    bench_stage_stream_end(m->stage, stream);
    return good;
}
