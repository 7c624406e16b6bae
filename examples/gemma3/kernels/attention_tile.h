/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_ATTENTION_TILE_H
#define GEMMA3_ATTENTION_TILE_H

/* The kernels of attention_kernels.h in terms of ops_vector.h. Included once by each
 * file that gives them to an instruction set. */

#include <math.h>

#include "attention_kernels.h"
#include "ops_vector.h"

enum { PANEL = 2 * VEC_LANES };

/* Rows that are multiplied at a time: as many as accumulators fit the registers, two
 * vectors each. What is left is done by fours, twos and ones. */
#if VEC_LANES == 16
#define ROWS_MOST 12u
#define ROWS_MORE 8u
#else
#define ROWS_MOST 6u
#define ROWS_MORE 4u
#endif

static uint32_t block_rows(uint32_t left) {
    if (left >= ROWS_MOST)
        return ROWS_MOST;
    if (left >= ROWS_MORE)
        return ROWS_MORE;
    return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* ---- Packing ------------------------------------------------------------------- */

static void pack_queries(const float *const *rows, uint32_t count, uint32_t head_dim, float *out) {
    for (uint32_t first = 0, block; first < count; first += block) {
        block = block_rows(count - first);
        for (uint32_t r = 0; r < block; r++)
            for (size_t j = 0; j < head_dim; j++)
                out[j * block + r] = rows[first + r][j];
        out += (size_t)block * head_dim;
    }
}

/* VEC_LANES keys become lanes; out has a stride of PANEL. */
VEC_INLINE void pack_lanes(g3_kv_type type, const void *const *rows, uint32_t begin, uint32_t end,
                           bool more, uint32_t head_dim, float *out) {
    for (size_t j = 0; j < head_dim; j += VEC_LANES) {
        if (more && j * (type == G3_KV_F16 ? 2 : 4) % 64 == 0) { /* the next keys' line */
            for (uint32_t i = 0; i < VEC_LANES; i++)
                __builtin_prefetch((const char *)rows[VEC_LANES + i] +
                                   j * (type == G3_KV_F16 ? 2 : 4));
        }
        const size_t left = head_dim - j < VEC_LANES ? head_dim - j : VEC_LANES;
        vec block[VEC_LANES];
        if (begin == 0 && end == VEC_LANES && left == VEC_LANES) {
            VEC_UNROLL
            for (uint32_t i = 0; i < VEC_LANES; i++)
                block[i] = vec_load_kv(type, rows[i], j);
            vec_transpose(block);
            VEC_UNROLL
            for (uint32_t i = 0; i < VEC_LANES; i++)
                vec_store(out + (j + i) * PANEL, block[i]);
            continue;
        }
        for (uint32_t i = 0; i < VEC_LANES; i++)
            block[i] =
                i >= begin && i < end ? vec_load_kv_part(type, rows[i], j, left) : vec_set1(0.0f);
        vec_transpose(block);
        for (uint32_t i = 0; i < left; i++)
            vec_store(out + (j + i) * PANEL, block[i]);
    }
}

VEC_INLINE void pack_keys_of(g3_kv_type type, const void *const *rows, uint32_t begin, uint32_t end,
                             uint32_t head_dim, float *out) {
    const uint32_t last = (end + PANEL - 1) / PANEL * PANEL;
    for (uint32_t k = begin / PANEL * PANEL; k < last; k += VEC_LANES) {
        const uint32_t from = begin <= k ? 0 : begin - k < VEC_LANES ? begin - k : VEC_LANES;
        const uint32_t to = end <= k ? 0 : end - k < VEC_LANES ? end - k : VEC_LANES;
        /* Rows outside [begin, end) are not set: only whole sets are looked ahead to. */
        const bool more = begin <= k + VEC_LANES && k + 2 * VEC_LANES <= end;
        pack_lanes(type, rows + k, from, to, more, head_dim,
                   out + (size_t)(k / PANEL) * head_dim * PANEL + k % PANEL);
    }
}

static void pack_keys(g3_kv_type type, const void *const *rows, uint32_t begin, uint32_t end,
                      uint32_t head_dim, float *out) {
    if (type == G3_KV_F16)
        pack_keys_of(G3_KV_F16, rows, begin, end, head_dim, out);
    else
        pack_keys_of(G3_KV_F32, rows, begin, end, head_dim, out);
}

/* Where vector `v` of column `k` stands among packed values. */
VEC_INLINE size_t value_place(size_t v, size_t k) {
    return (v / 2 * G3_TILE + k) * PANEL + v % 2 * VEC_LANES;
}

/* Some keys at a time, so that a panel is written in longer stretches. */
VEC_INLINE void pack_values_of(g3_kv_type type, const void *const *rows, uint32_t begin,
                               uint32_t end, uint32_t head_dim, float *out) {
    const size_t whole = head_dim / VEC_LANES, rest = head_dim % VEC_LANES;
    for (uint32_t first = begin, last; first < end; first = last) {
        last = end - first < 8 ? end : first + 8;
        for (size_t v = 0; v < whole; v++)
            for (uint32_t k = first; k < last; k++)
                vec_store(out + value_place(v, k), vec_load_kv(type, rows[k], v * VEC_LANES));
        for (uint32_t k = first; rest && k < last; k++)
            vec_store(out + value_place(whole, k),
                      vec_load_kv_part(type, rows[k], whole * VEC_LANES, rest));
    }
}

static void pack_values(g3_kv_type type, const void *const *rows, uint32_t begin, uint32_t end,
                        uint32_t head_dim, float *out) {
    if (type == G3_KV_F16)
        pack_values_of(G3_KV_F16, rows, begin, end, head_dim, out);
    else
        pack_values_of(G3_KV_F32, rows, begin, end, head_dim, out);
}

/* ---- Scores: queries . keys ------------------------------------------------------ */

/* `rows` and `panels` are constants where this is expanded. */
VEC_INLINE void scores_of(const uint32_t rows, const uint32_t panels, const float *queries,
                          const float *keys, uint32_t head_dim, float *scores) {
    vec sum[ROWS_MOST][4];
    VEC_UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        VEC_UNROLL
        for (uint32_t v = 0; v < 2 * panels; v++)
            sum[r][v] = vec_set1(0.0f);
    }
    for (size_t j = 0; j < head_dim; j++) {
        vec key[4];
        VEC_UNROLL
        for (uint32_t v = 0; v < 2 * panels; v++)
            key[v] = vec_load(keys + ((size_t)(v / 2) * head_dim + j) * PANEL + v % 2 * VEC_LANES);
        VEC_UNROLL
        for (uint32_t r = 0; r < rows; r++) {
            const vec query = vec_set1(queries[j * rows + r]);
            VEC_UNROLL
            for (uint32_t v = 0; v < 2 * panels; v++)
                sum[r][v] = vec_fma(query, key[v], sum[r][v]);
        }
    }
    VEC_UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        VEC_UNROLL
        for (uint32_t v = 0; v < 2 * panels; v++)
            vec_store(scores + r * G3_TILE + v * VEC_LANES, sum[r][v]);
    }
}

/* The shapes: tall blocks take one panel, short ones two, to have enough sums in
 * flight. */
#define SCORES_FUNCTION(rows, panels)                                                \
    static __attribute__((noinline)) void scores_##rows##_##panels(                  \
        const float *queries, const float *keys, uint32_t head_dim, float *scores) { \
        scores_of(rows, panels, queries, keys, head_dim, scores);                    \
    }
#if VEC_LANES == 16
SCORES_FUNCTION(12, 1)
SCORES_FUNCTION(8, 1)
#else
SCORES_FUNCTION(6, 1)
#endif
SCORES_FUNCTION(4, 1)
SCORES_FUNCTION(2, 1)
SCORES_FUNCTION(1, 1)
SCORES_FUNCTION(2, 2)
SCORES_FUNCTION(1, 2)

static void scores_panel(uint32_t rows, const float *queries, const float *keys, uint32_t head_dim,
                         float *scores) {
    switch (rows) {
#if VEC_LANES == 16
    case 12:
        scores_12_1(queries, keys, head_dim, scores);
        break;
    case 8:
        scores_8_1(queries, keys, head_dim, scores);
        break;
#else
    case 6:
        scores_6_1(queries, keys, head_dim, scores);
        break;
#endif
    case 4:
        scores_4_1(queries, keys, head_dim, scores);
        break;
    case 2:
        scores_2_1(queries, keys, head_dim, scores);
        break;
    default:
        scores_1_1(queries, keys, head_dim, scores);
        break;
    }
}

/* The union of the ranges of rows [first, first + count). */
static void range_of(const g3_attention_tile *t, uint32_t first, uint32_t count,
                     uint32_t *out_begin, uint32_t *out_end) {
    uint32_t begin = G3_TILE, end = 0;
    for (uint32_t r = first; r < first + count; r++) {
        if (t->begin[r] == t->end[r])
            continue;
        begin = t->begin[r] < begin ? t->begin[r] : begin;
        end = t->end[r] > end ? t->end[r] : end;
    }
    *out_begin = begin;
    *out_end = end;
}

/* All scores of the rows' panels; those outside of a row's range are not looked at.
 * Rows are the inner loop: a panel stays in the nearest cache. */
static void tile_scores(const g3_attention_tile *t) {
    const size_t panel_floats = (size_t)t->head_dim * PANEL;
    uint32_t begin = 0, end = 0;
    range_of(t, 0, t->rows, &begin, &end);
    for (uint32_t panel = begin / PANEL; panel * PANEL < end; panel++) {
        const float *keys = t->keys + panel * panel_floats;
        for (uint32_t first = 0, block; first < t->rows; first += block) {
            block = block_rows(t->rows - first);
            uint32_t from = 0, to = 0;
            range_of(t, first, block, &from, &to);
            if (from >= (panel + 1) * PANEL || to <= panel * PANEL)
                continue;
            const float *queries = t->queries + (size_t)first * t->head_dim;
            float *scores = t->scores + (size_t)first * G3_TILE + panel * PANEL;
            if (t->rows > 2) {
                scores_panel(block, queries, keys, t->head_dim, scores);
            } else if (panel % 2 == 0 && (panel + 1) * PANEL < end) {
                (t->rows == 2 ? scores_2_2 : scores_1_2)(queries, keys, t->head_dim, scores);
                panel++;
            } else {
                scores_panel(block, queries, keys, t->head_dim, scores);
            }
        }
    }
}

/* ---- Weights: exp(score - largest) ------------------------------------------------- */

static void row_weights(float *scores, uint32_t begin, uint32_t end, float scale, float *out_max,
                        float *out_sum) {
    const vec lowest = vec_set1(-INFINITY), factor = vec_set1(scale);
    const uint32_t first = begin / VEC_LANES * VEC_LANES;
    vec most = lowest;
    for (uint32_t k = first; k < end; k += VEC_LANES) {
        vec x = vec_load(scores + k) * factor;
        if (k < begin || k + VEC_LANES > end)
            x = vec_keep(x, lowest, k < begin ? begin - k : 0,
                         end - k < VEC_LANES ? end - k : VEC_LANES);
        vec_store(scores + k, x);
        most = vec_max(x, most);
    }
    *out_max = vec_largest(most);
    const vec max = vec_set1(*out_max);
    vec sum = vec_set1(0.0f);
    for (uint32_t k = first; k < end; k += VEC_LANES) {
        vec weight = vec_exp(vec_load(scores + k) - max);
        if (k < begin || k + VEC_LANES > end)
            weight = vec_keep(weight, vec_set1(0.0f), k < begin ? begin - k : 0,
                              end - k < VEC_LANES ? end - k : VEC_LANES);
        vec_store(scores + k, weight);
        sum += weight;
    }
    *out_sum = vec_sum(sum);
}

/* What the sums so far and those of the next tile are multiplied by; max and sum
 * become those of both. */
VEC_INLINE void join_factors(float *max, float *sum, float tile_max, float tile_sum, float *out_old,
                             float *out_new) {
    const float both = tile_max > *max ? tile_max : *max;
    *out_old = vec_first(vec_exp(vec_set1(*max - both)));
    *out_new = vec_first(vec_exp(vec_set1(tile_max - both)));
    *max = both;
    *sum = *sum * *out_old + tile_sum * *out_new;
}

VEC_INLINE vec join_values(vec old, vec old_factor, vec fresh, vec fresh_factor) {
    return vec_fma(old, old_factor, fresh * fresh_factor);
}

/* ---- Values: weights . values ------------------------------------------------------- */

/* Factors of the rows of a block; old NULL: the result stands alone. */
typedef struct value_rows {
    float *const *out;
    const float *old, *fresh;
} value_rows;

/* Where the values of a tile are: packed, or the cache's own rows. */
typedef struct value_source {
    const float *packed; /* at the first vector asked for */
    const void *const *rows;
    g3_kv_type type;
} value_source;

/* `rows` and `vectors` are constants where this is expanded, and so is what is in
 * `from`, but for pointers. Column by column in order; `count`: dimensions that are
 * really there. */
VEC_INLINE void values_of(const uint32_t rows, const uint32_t vectors, const float *weights,
                          value_source from, uint32_t begin, uint32_t end, value_rows target,
                          size_t dimension, size_t count) {
    vec sum[ROWS_MOST][4];
    VEC_UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        VEC_UNROLL
        for (uint32_t v = 0; v < vectors; v++)
            sum[r][v] = vec_set1(0.0f);
    }
    for (size_t k = begin; k < end; k++) {
        vec value[4];
        if (from.rows) { /* a few columns ahead: rows may be far apart */
            const size_t bytes = from.type == G3_KV_F16 ? 2 : 4;
            const char *ahead = (const char *)from.rows[end - k > 8 ? k + 8 : k];
            for (size_t line = 0; line < vectors * VEC_LANES * bytes; line += 64)
                __builtin_prefetch(ahead + dimension * bytes + line);
        }
        VEC_UNROLL
        for (uint32_t v = 0; v < vectors; v++)
            value[v] = from.rows ? vec_load_kv(from.type, from.rows[k], dimension + v * VEC_LANES)
                                 : vec_load(from.packed + value_place(v, k));
        VEC_UNROLL
        for (uint32_t r = 0; r < rows; r++) {
            const vec weight = vec_set1(weights[r * G3_TILE + k]);
            VEC_UNROLL
            for (uint32_t v = 0; v < vectors; v++)
                sum[r][v] = vec_fma(weight, value[v], sum[r][v]);
        }
    }
    VEC_UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        VEC_UNROLL
        for (uint32_t v = 0; v < vectors; v++) {
            const size_t place = v * VEC_LANES;
            const size_t left = count - place < VEC_LANES ? count - place : VEC_LANES;
            float *out = target.out[r] + dimension + place;
            vec x = sum[r][v];
            if (target.old)
                x = join_values(vec_load_part(out, left), vec_set1(target.old[r]), x,
                                vec_set1(target.fresh[r]));
            vec_store_part(out, x, left);
        }
    }
}

#define VALUES_FUNCTION(rows, vectors)                                                 \
    static __attribute__((noinline)) void values_##rows##_##vectors(                   \
        const float *weights, const float *values, uint32_t begin, uint32_t end,       \
        value_rows target, size_t dimension, size_t count) {                           \
        const value_source from = {values, NULL, G3_KV_F32};                           \
        values_of(rows, vectors, weights, from, begin, end, target, dimension, count); \
    }
typedef void (*values_function)(const float *weights, const float *values, uint32_t begin,
                                uint32_t end, value_rows target, size_t dimension, size_t count);
#if VEC_LANES == 16
VALUES_FUNCTION(12, 1)
VALUES_FUNCTION(12, 2)
VALUES_FUNCTION(8, 1)
VALUES_FUNCTION(8, 2)
#else
VALUES_FUNCTION(6, 1)
VALUES_FUNCTION(6, 2)
#endif
VALUES_FUNCTION(4, 1)
VALUES_FUNCTION(4, 2)
VALUES_FUNCTION(2, 1)
VALUES_FUNCTION(2, 2)
VALUES_FUNCTION(2, 4)
VALUES_FUNCTION(1, 1)
VALUES_FUNCTION(1, 2)
VALUES_FUNCTION(1, 4)

static values_function values_for(uint32_t rows, size_t vectors) {
    switch (rows) {
#if VEC_LANES == 16
    case 12:
        return vectors == 1 ? values_12_1 : values_12_2;
    case 8:
        return vectors == 1 ? values_8_1 : values_8_2;
#else
    case 6:
        return vectors == 1 ? values_6_1 : values_6_2;
#endif
    case 4:
        return vectors == 1 ? values_4_1 : values_4_2;
    case 2:
        return vectors == 1 ? values_2_1 : vectors < 4 ? values_2_2 : values_2_4;
    default:
        return vectors == 1 ? values_1_1 : vectors < 4 ? values_1_2 : values_1_4;
    }
}

/* Few rows: converting a value each time it is used costs less than packing it. */
#define DIRECT_VECTORS (VEC_LANES == 16 ? 4u : 2u)
#define DIRECT_FUNCTION(rows)                                                                     \
    static __attribute__((noinline)) void direct_##rows(const g3_attention_tile *t, uint32_t row, \
                                                        value_rows target, size_t dimension) {    \
        const float *weights = t->scores + (size_t)row * G3_TILE;                                 \
        const value_source half = {NULL, t->value_rows, G3_KV_F16};                               \
        const value_source full = {NULL, t->value_rows, G3_KV_F32};                               \
        const size_t count = t->head_dim - dimension;                                             \
        if (t->value_type == G3_KV_F16)                                                           \
            values_of(rows, DIRECT_VECTORS, weights, half, t->begin[row], t->end[row], target,    \
                      dimension, count);                                                          \
        else                                                                                      \
            values_of(rows, DIRECT_VECTORS, weights, full, t->begin[row], t->end[row], target,    \
                      dimension, count);                                                          \
    }
DIRECT_FUNCTION(4)
DIRECT_FUNCTION(2)
DIRECT_FUNCTION(1)

static void group_direct(const g3_attention_tile *t, uint32_t first, uint32_t count,
                         const float *old, const float *fresh) {
    for (size_t j = 0; j < t->head_dim; j += (size_t)DIRECT_VECTORS * VEC_LANES)
        for (uint32_t r = 0, block; r < count; r += block) {
            const uint32_t row = first + r;
            const value_rows target = {t->out + row, old ? old + row : NULL, fresh + row};
            block = count - r >= 4 ? 4 : count - r >= 2 ? 2 : 1;
            (block == 4 ? direct_4 : block == 2 ? direct_2 : direct_1)(t, row, target, j);
        }
}

/* Rows [first, first + count), which all see columns [begin, end). */
static void group_values(const g3_attention_tile *t, uint32_t first, uint32_t count,
                         const float *old, const float *fresh) {
    const size_t vectors = (t->head_dim + VEC_LANES - 1) / VEC_LANES;
    const size_t step = count <= 2 && vectors >= 4 ? 4 : 2;
    for (size_t v = 0, width; v < vectors; v += width) {
        width = vectors - v < step ? (vectors - v >= 2 ? 2 : 1) : step;
        const size_t dimension = v * VEC_LANES;
        for (uint32_t r = 0, block; r < count; r += block) {
            block = block_rows(count - r);
            const uint32_t row = first + r;
            value_rows target = {t->out + row, old ? old + row : NULL, fresh + row};
            values_for(block, width)(t->scores + (size_t)row * G3_TILE,
                                     t->values + value_place(v, 0), t->begin[first], t->end[first],
                                     target, dimension, t->head_dim - dimension);
        }
    }
}

/* ---- A tile ---------------------------------------------------------------------------- */

static void tile(const g3_attention_tile *t) {
    float old[G3_TILE_MAX_ROWS], fresh[G3_TILE_MAX_ROWS];
    tile_scores(t);
    for (uint32_t r = 0; r < t->rows; r++) {
        if (t->begin[r] == t->end[r])
            continue;
        float max = 0.0f, sum = 0.0f;
        row_weights(t->scores + (size_t)r * G3_TILE, t->begin[r], t->end[r], t->scale, &max, &sum);
        if (t->joined) {
            join_factors(t->max + r, t->sum + r, max, sum, old + r, fresh + r);
        } else {
            t->max[r] = max;
            t->sum[r] = sum;
        }
    }
    for (uint32_t first = 0, count; first < t->rows; first += count) {
        for (count = 1; first + count < t->rows && t->begin[first + count] == t->begin[first] &&
                        t->end[first + count] == t->end[first];
             count++) {
        }
        if (t->begin[first] == t->end[first])
            continue;
        if (t->value_rows)
            group_direct(t, first, count, t->joined ? old : NULL, fresh);
        else
            group_values(t, first, count, t->joined ? old : NULL, fresh);
    }
}

static void join(float *max, float *sum, float *out, float tile_max, float tile_sum,
                 const float *tile_out, uint32_t head_dim) {
    float old = 0.0f, fresh = 0.0f;
    join_factors(max, sum, tile_max, tile_sum, &old, &fresh);
    for (size_t i = 0; i < head_dim; i += VEC_LANES) {
        const size_t left = head_dim - i < VEC_LANES ? head_dim - i : VEC_LANES;
        vec x = join_values(vec_load_part(out + i, left), vec_set1(old),
                            vec_load_part(tile_out + i, left), vec_set1(fresh));
        vec_store_part(out + i, x, left);
    }
}

static void divide(float *x, size_t count, float by) {
    for (size_t i = 0; i < count; i++)
        x[i] /= by;
}

#define G3_ATTENTION_KERNELS_TABLE \
    { pack_queries, pack_keys, pack_values, tile, join, divide, DIRECT_VECTORS *VEC_LANES }

#endif
