/* SPDX-License-Identifier: MIT */
/* Attention: which rows meet which tiles of keys, on which thread. A row is a query
 * head at a position; the rows of one kv head share its keys.
 *
 * Many rows: a thread takes a block of them through all tiles, in order. Few rows,
 * as in decoding: threads take tiles, and their results are joined in order
 * afterwards. Both do the same arithmetic (attention_kernels.h). */

#include "attention_kernels.h"
#include "matrix.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#if defined(_OPENMP)
#include <omp.h>
#endif

enum {
    ROWS_MULTIPLE = 12, /* a whole number of the tallest blocks */
    SPLIT_ROWS = 64,    /* up to as many rows of all heads, tiles may be divided */
    SPLIT_TILES = 16,   /* that are computed before they are joined */
    LINE = 16           /* floats of a cache line */
};
/* Multiply-adds below which a parallel region costs more than it saves. */
#define PARALLEL_WORK ((size_t)1 << 20)

static const g3_attention_kernels *kernels(void) {
#if defined(__x86_64__)
    switch (g3_isa_current()) {
    case G3_ISA_AVX512:
        return &g3_attention_avx512;
    case G3_ISA_AVX2:
        return &g3_attention_avx2;
    case G3_ISA_SCALAR:
        break;
    }
#endif
    return &g3_attention_scalar;
}

/* Threads that scratch is made for: as many as at the first question, for good, so
 * that a scratch of g3_attention_bytes is large enough whatever is set later. */
static int slot_count(void) {
    static _Atomic int slots;
    int count = atomic_load(&slots);
    if (count == 0) {
        int most = 1;
#if defined(_OPENMP)
        most = omp_get_max_threads();
#endif
        if (most > 256)
            most = 256;
        if (!atomic_compare_exchange_strong(&slots, &count, most))
            return count;
        count = most;
    }
    return count;
}

static int thread_count(void) {
    int count = slot_count();
#if defined(_OPENMP)
    if (omp_get_max_threads() < count)
        count = omp_get_max_threads();
#endif
    return count;
}

static size_t slot_now(void) {
#if defined(_OPENMP)
    return (size_t)omp_get_thread_num();
#else
    return 0;
#endif
}

static size_t round_up(size_t value, size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

/* Wide heads: fewer rows, so that a block stays in the second cache. */
static size_t most_rows(uint32_t head_dim) {
    return head_dim <= 128 ? G3_TILE_MAX_ROWS : G3_TILE_MAX_ROWS / 2;
}

/* Floats of one thread's scratch, in this order. */
typedef struct slot_layout {
    size_t queries, keys, values, scores, all;
} slot_layout;

static slot_layout layout_of(size_t rows, uint32_t head_dim) {
    slot_layout layout;
    layout.queries = round_up(rows * head_dim, LINE);
    layout.keys = (size_t)G3_TILE * head_dim;
    layout.values = (size_t)G3_TILE * round_up(head_dim, 32);
    layout.scores = rows * G3_TILE;
    layout.all = layout.queries + layout.keys + layout.values + layout.scores;
    return layout;
}

static size_t slot_rows(size_t rows, uint32_t head_dim) {
    return rows < most_rows(head_dim) ? rows : most_rows(head_dim);
}

size_t g3_attention_bytes(size_t n, uint32_t heads, uint32_t head_dim, size_t longest) {
    (void)longest; /* scores of a tile are all that is kept at a time */
    const size_t rows = n * heads;
    const size_t split = rows < SPLIT_ROWS ? rows : SPLIT_ROWS;
    const size_t apart = round_up(split * SPLIT_TILES * ((size_t)head_dim + 2), LINE);
    const size_t slot = layout_of(slot_rows(rows, head_dim), head_dim).all;
    return ((size_t)slot_count() * slot + apart) * sizeof(float);
}

/* One call of g3_attention. */
typedef struct attention {
    const g3_attention_kernels *kernels;
    const g3_kv_view *kv;
    const float *q;
    const size_t *low, *high;
    float *out;
    size_t n;
    uint32_t heads, group; /* query heads, and those of one kv head */
    float scale;
    slot_layout layout;
    float *slots;       /* scratch of the threads */
    float *apart;       /* results of tiles before they are joined */
    size_t first, last; /* positions that anyone sees */
} attention;

/* Rows [begin, begin + count) of a kv head: position-major, then query heads. */
typedef struct block {
    size_t kv_head, begin;
    uint32_t count;
} block;

static size_t row_query(const attention *a, const block *b, uint32_t r) {
    return (b->begin + r) / a->group;
}

static size_t row_offset(const attention *a, const block *b, uint32_t r) {
    const size_t head = b->kv_head * a->group + (b->begin + r) % a->group;
    return (row_query(a, b, r) * a->heads + head) * a->kv->head_dim;
}

static void slot_queries(const attention *a, const block *b, float *slot) {
    const float *rows[G3_TILE_MAX_ROWS] = {NULL};
    for (uint32_t r = 0; r < b->count; r++)
        rows[r] = a->q + row_offset(a, b, r);
    a->kernels->pack_queries(rows, b->count, a->kv->head_dim, slot);
}

/* The cache's rows of columns [begin, end) of the tile at `base`. */
static void cache_rows(const attention *a, const block *b, size_t base, uint32_t begin,
                       uint32_t end, const void **keys, const void **values) {
    const g3_kv_view *kv = a->kv;
    const size_t head = b->kv_head * kv->head_dim * g3_kv_element_bytes(kv->type);
    for (uint32_t k = begin; k < end; k++) {
        const size_t position = base + k;
        if (position < kv->split) {
            const size_t place = position % kv->old_slots * kv->old_stride + head;
            keys[k] = (const char *)kv->old_keys + place;
            values[k] = (const char *)kv->old_values + place;
        } else {
            const size_t place = (position - kv->split) * kv->new_stride + head;
            keys[k] = (const char *)kv->new_keys + place;
            values[k] = (const char *)kv->new_values + place;
        }
    }
}

/* The columns of the tile at `base` that each row sees; false if none sees any. */
static bool row_ranges(const attention *a, const block *b, size_t base, uint32_t *begin,
                       uint32_t *end, uint32_t *out_first, uint32_t *out_last) {
    uint32_t first = G3_TILE, last = 0;
    for (uint32_t r = 0; r < b->count; r++) {
        const size_t i = row_query(a, b, r);
        const size_t low = a->low[i] > base ? a->low[i] - base : 0;
        const size_t high = a->high[i] > base ? a->high[i] - base : 0;
        begin[r] = (uint32_t)(low < G3_TILE ? low : G3_TILE);
        end[r] = (uint32_t)(high < G3_TILE ? high : G3_TILE);
        if (begin[r] >= end[r]) {
            begin[r] = end[r] = 0;
            continue;
        }
        first = begin[r] < first ? begin[r] : first;
        last = end[r] > last ? end[r] : last;
    }
    *out_first = first;
    *out_last = last;
    return first < last;
}

/* What the rows of a block have added up. */
typedef struct sums {
    float *max, *sum;
    float *const *out;
    bool joined;
} sums;

/* The block's rows and the tile at `base`; the queries are in the slot already. */
static void block_tile(const attention *a, const block *b, size_t base, float *slot, sums to) {
    uint32_t begin[G3_TILE_MAX_ROWS], end[G3_TILE_MAX_ROWS], first = 0, last = 0;
    if (!row_ranges(a, b, base, begin, end, &first, &last))
        return;
    const void *key_rows[G3_TILE], *value_rows[G3_TILE];
    cache_rows(a, b, base, first, last, key_rows, value_rows);
    const uint32_t width = a->kv->head_dim;
    const bool direct = b->count <= G3_TILE_DIRECT_ROWS && width % a->kernels->direct_multiple == 0;
    float *keys = slot + a->layout.queries, *values = keys + a->layout.keys;
    a->kernels->pack_keys(a->kv->type, key_rows, first, last, width, keys);
    if (!direct)
        a->kernels->pack_values(a->kv->type, value_rows, first, last, width, values);
    const g3_attention_tile tile = {
        .rows = b->count,
        .head_dim = width,
        .scale = a->scale,
        .joined = to.joined,
        .begin = begin,
        .end = end,
        .queries = slot,
        .keys = keys,
        .values = direct ? NULL : values,
        .value_rows = direct ? value_rows : NULL,
        .value_type = a->kv->type,
        .scores = values + a->layout.values,
        .out = to.out,
        .max = to.max,
        .sum = to.sum,
    };
    a->kernels->tile(&tile);
}

/* A block of rows through all its tiles. */
static void block_attention(const attention *a, const block *b, float *slot) {
    float max[G3_TILE_MAX_ROWS], sum[G3_TILE_MAX_ROWS], *out[G3_TILE_MAX_ROWS];
    size_t first = SIZE_MAX, last = 0;
    for (uint32_t r = 0; r < b->count; r++) {
        const size_t i = row_query(a, b, r);
        first = a->low[i] < first ? a->low[i] : first;
        last = a->high[i] > last ? a->high[i] : last;
        out[r] = a->out + row_offset(a, b, r);
        memset(out[r], 0, a->kv->head_dim * sizeof(float));
        max[r] = -INFINITY;
        sum[r] = 0.0f;
    }
    slot_queries(a, b, slot);
    const sums to = {max, sum, out, true};
    for (size_t base = first / G3_TILE * G3_TILE; base < last; base += G3_TILE)
        block_tile(a, b, base, slot, to);
    for (uint32_t r = 0; r < b->count; r++)
        a->kernels->divide(out[r], a->kv->head_dim, sum[r]);
}

/* Blocks of rows are the threads' work. The later ones see more keys: they are
 * begun first. */
static void by_rows(const attention *a, int threads) {
    const size_t rows = a->n * a->group, most = most_rows(a->kv->head_dim);
    size_t height = round_up(rows * a->kv->kv_heads / ((size_t)threads * 2) + 1, ROWS_MULTIPLE);
    height = threads == 1 || height > most ? most : height;
    const size_t blocks = (rows + height - 1) / height, items = blocks * a->kv->kv_heads;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
    for (size_t item = 0; item < items; item++) {
        const size_t begin = (blocks - 1 - item / a->kv->kv_heads) * height;
        const block b = {item % a->kv->kv_heads, begin,
                         (uint32_t)(rows - begin < height ? rows - begin : height)};
        block_attention(a, &b, a->slots + slot_now() * a->layout.all);
    }
}

/* Results of up to SPLIT_TILES tiles: [tile][row of all heads][head_dim], then
 * [tile][row] largest scores, then sums. */
static void tiles_apart(const attention *a, size_t first_tile, size_t tiles, int threads) {
    const size_t rows = a->n * a->heads, kv_rows = a->n * a->group;
    float *max = a->apart + SPLIT_TILES * rows * a->kv->head_dim;
    float *sum = max + SPLIT_TILES * rows;
    (void)threads; /* in a build without OpenMP */
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (size_t item = 0; item < tiles * a->kv->kv_heads; item++) {
        float *slot = a->slots + slot_now() * a->layout.all;
        const size_t tile = item / a->kv->kv_heads;
        const block b = {item % a->kv->kv_heads, 0, (uint32_t)kv_rows};
        const size_t place = tile * rows + b.kv_head * kv_rows;
        float *out[G3_TILE_MAX_ROWS];
        for (uint32_t r = 0; r < b.count; r++)
            out[r] = a->apart + (place + r) * a->kv->head_dim;
        slot_queries(a, &b, slot);
        const sums to = {max + place, sum + place, out, false};
        block_tile(a, &b, (first_tile + tile) * G3_TILE, slot, to);
    }
}

/* Tiles are the threads' work. */
static void by_tiles(const attention *a, int threads) {
    const size_t rows = a->n * a->heads, kv_rows = a->n * a->group;
    const uint32_t width = a->kv->head_dim;
    const float *tile_max = a->apart + SPLIT_TILES * rows * width;
    const float *tile_sum = tile_max + SPLIT_TILES * rows;
    float max[SPLIT_ROWS], sum[SPLIT_ROWS];
    for (size_t r = 0; r < rows; r++) {
        max[r] = -INFINITY;
        sum[r] = 0.0f;
    }
    memset(a->out, 0, rows * width * sizeof(float));
    const size_t last = (a->last + G3_TILE - 1) / G3_TILE;
    for (size_t tile = a->first / G3_TILE, count; tile < last; tile += count) {
        count = last - tile < SPLIT_TILES ? last - tile : SPLIT_TILES;
        tiles_apart(a, tile, count, threads);
        for (size_t r = 0; r < rows; r++) {
            const block b = {r / kv_rows, r % kv_rows, 1};
            const size_t i = row_query(a, &b, 0);
            for (size_t t = 0; t < count; t++) {
                const size_t base = (tile + t) * G3_TILE, place = t * rows + r;
                if (a->low[i] < base + G3_TILE && a->high[i] > base)
                    a->kernels->join(max + r, sum + r, a->out + row_offset(a, &b, 0),
                                     tile_max[place], tile_sum[place], a->apart + place * width,
                                     width);
            }
        }
    }
    for (size_t r = 0; r < rows; r++) {
        const block b = {r / kv_rows, r % kv_rows, 1};
        a->kernels->divide(a->out + row_offset(a, &b, 0), width, sum[r]);
    }
}

void g3_attention(const float *q, size_t n, uint32_t heads, float scale, const g3_kv_view *kv,
                  const size_t *low, const size_t *high, float *out, void *scratch) {
    const size_t rows = n * heads;
    attention a = {.kernels = kernels(),
                   .kv = kv,
                   .q = q,
                   .low = low,
                   .high = high,
                   .out = out,
                   .n = n,
                   .heads = heads,
                   .group = heads / kv->kv_heads,
                   .scale = scale,
                   .layout = layout_of(slot_rows(rows, kv->head_dim), kv->head_dim),
                   .slots = scratch,
                   .first = SIZE_MAX};
    a.apart = a.slots + (size_t)slot_count() * a.layout.all;
    size_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        a.first = low[i] < a.first ? low[i] : a.first;
        a.last = high[i] > a.last ? high[i] : a.last;
        seen += high[i] - low[i];
    }
    const int threads = seen * heads * kv->head_dim < PARALLEL_WORK ? 1 : thread_count();
    if (threads > 1 && rows <= SPLIT_ROWS)
        by_tiles(&a, threads);
    else
        by_rows(&a, threads);
}
