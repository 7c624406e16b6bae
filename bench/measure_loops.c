/* SPDX-License-Identifier: MIT */
/* One thread: a block again and again, and a set of blocks of which one after
 * the other is replaced. */

#include "measure.h"

#include <stdlib.h>
#include <string.h>

enum { WARM = 1000, LEAST = 20, MOST = 1000000, SIZES = 1 << 16 };

static const uint64_t pair_sizes[] = {512, 4096, 65536, 1 << 20, 2 << 20, 32 << 20, 256 << 20};

/* Nanoseconds a pair. */
static double run_pairs(const bench_measure *m, uint64_t bytes, uint64_t stream, uint64_t count) {
    uint64_t (*alloc)(void *, size_t, uint64_t) = m->adaptor->alloc;
    void (*release)(void *, uint64_t, size_t, uint64_t) = m->adaptor->free;
    void *self = m->self;
    uint64_t began = bench_clock_ns();
    for (uint64_t i = 0; i < count; i++) {
        uint64_t ptr = alloc(self, bytes, stream);
        release(self, ptr, bytes, stream);
    }
    return (double)(bench_clock_ns() - began) / (double)count;
}

static int pair(bench_measure *m, uint64_t bytes, uint64_t stream) {
    uint64_t first = bench_measure_alloc(m, bytes, stream);
    if (first == 0)
        return 0;
    m->adaptor->free(m->self, first, bytes, stream);
    bench_row *row = bench_sheet_add(m->sheet, "ns", "pair/%llu", (unsigned long long)bytes);
    if (m->pairs > 0) {
        bench_row_put(row, run_pairs(m, bytes, stream, m->pairs));
        return 1;
    }
    double each = run_pairs(m, bytes, stream, LEAST);
    each = run_pairs(m, bytes, stream, bench_measure_count(m, each, LEAST, WARM));
    uint64_t count = bench_measure_count(m, each, LEAST, MOST);
    for (uint64_t i = 0; i < m->repeat; i++)
        bench_row_put(row, run_pairs(m, bytes, stream, count));
    return 1;
}

int bench_measure_pairs(bench_measure *m) {
    uint64_t stream = 0;
    uint64_t one = 0;
    int good = bench_stage_stream(m->stage, &stream);
    /* "pair-4096" asks for that size alone. */
    if (m->only != NULL && strncmp(m->only, "pair-", 5) == 0 &&
        !bench_count_parse(m->only + 5, &one))
        return bench_usage("--only: \"%s\" names no size", m->only) == BENCH_OK;
    for (size_t i = 0; good && i < sizeof pair_sizes / sizeof *pair_sizes; i++)
        if (one == 0 || one == pair_sizes[i])
            good = pair(m, pair_sizes[i], stream) && bench_stage_synchronise(m->stage);
    if (m->adaptor->stream_forget != NULL)
        m->adaptor->stream_forget(m->self, stream);
    bench_stage_stream_end(m->stage, stream);
    return good;
}

/* ---- Random replacement ------------------------------------------------------------ */

typedef struct churn {
    uint64_t live;
    uint64_t *blocks;  /* addresses */
    uint32_t *sizes;   /* of each */
    uint32_t *choices; /* SIZES of them */
    uint32_t *which;   /* the steps to come: which block, and its next size */
    uint32_t *size;
    bench_random random;
} churn;

static void plan(churn *c, uint64_t steps) {
    for (uint64_t i = 0; i < steps; i++) {
        c->which[i] = (uint32_t)(bench_random_next(&c->random) % c->live);
        c->size[i] = c->choices[bench_random_next(&c->random) & (SIZES - 1)];
    }
}

static double run_steps(const bench_measure *m, churn *c, uint64_t stream, uint64_t steps) {
    uint64_t (*alloc)(void *, size_t, uint64_t) = m->adaptor->alloc;
    void (*release)(void *, uint64_t, size_t, uint64_t) = m->adaptor->free;
    void *self = m->self;
    uint64_t began = bench_clock_ns();
    for (uint64_t i = 0; i < steps; i++) {
        uint32_t k = c->which[i];
        release(self, c->blocks[k], c->sizes[k], stream);
        c->sizes[k] = c->size[i];
        c->blocks[k] = alloc(self, c->size[i], stream);
    }
    return (double)(bench_clock_ns() - began) / (double)steps;
}

static int churn_once(bench_measure *m, churn *c, uint32_t top, uint64_t stream) {
    enum { TRY = 200, STEPS = 200000 };
    for (uint32_t i = 0; i < SIZES; i++)
        c->choices[i] = (uint32_t)bench_random_size(&c->random, top);
    for (uint64_t i = 0; i < c->live; i++) {
        c->sizes[i] = c->choices[i & (SIZES - 1)];
        c->blocks[i] = bench_measure_alloc(m, c->sizes[i], stream);
        if (c->blocks[i] == 0)
            return 0;
    }
    plan(c, TRY);
    double each = run_steps(m, c, stream, TRY);
    uint64_t steps = bench_measure_count(m, each, TRY, STEPS / 4);
    plan(c, steps);
    each = run_steps(m, c, stream, steps); /* the first few were cold */
    steps = bench_measure_count(m, each, TRY, STEPS);
    plan(c, steps);
    (void)run_steps(m, c, stream, steps);
    bench_row *row = bench_sheet_add(m->sheet, "ns", "replace/%llu/%uKiB",
                                     (unsigned long long)c->live, 1u << (top - 10));
    for (uint64_t i = 0; i < m->repeat; i++) {
        plan(c, steps);
        bench_row_put(row, run_steps(m, c, stream, steps));
    }
    for (uint64_t i = 0; i < c->live; i++)
        m->adaptor->free(m->self, c->blocks[i], c->sizes[i], stream);
    return bench_stage_synchronise(m->stage);
}

static int churn_of(bench_measure *m, uint64_t live, uint32_t top, uint64_t stream) {
    enum { STEPS = 200000 };
    churn *c = calloc(1, sizeof *c);
    int good = c != NULL;
    if (good) {
        c->live = live;
        c->blocks = calloc(live, sizeof *c->blocks);
        c->sizes = calloc(live, sizeof *c->sizes);
        c->choices = calloc(SIZES, sizeof *c->choices);
        c->which = calloc(STEPS, sizeof *c->which);
        c->size = calloc(STEPS, sizeof *c->size);
        bench_random_begin(&c->random, 1);
        good = c->blocks != NULL && c->sizes != NULL && c->choices != NULL && c->which != NULL &&
               c->size != NULL;
    }
    if (!good)
        (void)bench_fail("no host memory");
    good = good && churn_once(m, c, top, stream);
    if (c != NULL) {
        free(c->blocks);
        free(c->sizes);
        free(c->choices);
        free(c->which);
        free(c->size);
    }
    free(c);
    return good;
}

int bench_measure_replace(bench_measure *m) {
    static const struct {
        uint64_t live;
        uint32_t top;
    } sets[] = {{100, 20}, {1000, 20}, {10000, 20}, {1000, 24}};
    uint64_t stream = 0;
    int good = bench_stage_stream(m->stage, &stream);
    for (size_t i = 0; good && i < sizeof sets / sizeof *sets; i++) {
        good = churn_of(m, sets[i].live, sets[i].top, stream);
        if (good && m->adaptor->empty_cache != NULL)
            m->adaptor->empty_cache(m->self);
    }
    if (m->adaptor->stream_forget != NULL)
        m->adaptor->stream_forget(m->self, stream);
    bench_stage_stream_end(m->stage, stream);
    return good;
}
