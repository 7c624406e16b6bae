/* SPDX-License-Identifier: MIT */
/* Products with 8-bit activations, AVX-512 with VNNI.
 *
 * vpdpbusd multiplies unsigned weights with signed activations; what the weights'
 * shift by `middle` adds is taken off beforehand, by starting the sum at -middle *
 * sum(q). All of that is exact, so the many ways to cut the work agree. In float
 * every path takes the same steps: y = fma(sum, scale_w * scale_x, y), then for a
 * minimum y = fma(minimum, scale_x * sum(q), y). */

#include "matrix_unpack_avx512.h"
#include "matrix_avx512.h"

#include <string.h>

void g3_quantise_avx512(const float *x, uint32_t columns, uint32_t count, g3_act_block *tile) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    for (uint32_t b = 0; b < columns / G3_BLOCK; b++) {
        g3_act_block *block = tile + b;
        if (count < G3_TILE)
            memset(block, 0, sizeof *block);
        for (uint32_t r = 0; r < count; r++) {
            const float *from = x + (size_t)r * columns + (size_t)b * G3_BLOCK;
            const __m512 lower = _mm512_loadu_ps(from), upper = _mm512_loadu_ps(from + 16);
            /* As integers NaN is above infinity is above every number. */
            const __m512i a = _mm512_and_si512(_mm512_castps_si512(lower), magnitude);
            const __m512i c = _mm512_and_si512(_mm512_castps_si512(upper), magnitude);
            const g3_act_scale s =
                g3_act_scale_from_bits(_mm512_reduce_max_epu32(_mm512_max_epu32(a, c)));
            const __m512 inverse = _mm512_set1_ps(s.inverse);
            __m512i i = _mm512_cvtps_epi32(_mm512_mul_ps(lower, inverse));
            __m512i j = _mm512_cvtps_epi32(_mm512_mul_ps(upper, inverse));
            if (s.inverse == 0.0f) /* the numbers may not be finite */
                i = j = _mm512_setzero_si512();
            _mm_storeu_si128((__m128i *)(void *)block->q[r], _mm512_cvtepi32_epi8(i));
            _mm_storeu_si128((__m128i *)(void *)(block->q[r] + 16), _mm512_cvtepi32_epi8(j));
            const int32_t first = _mm512_reduce_add_epi32(i), second = _mm512_reduce_add_epi32(j);
            block->scale[r] = s.scale;
            block->scaled_sum[r] = s.scale * (float)(first + second);
            block->bias[r] = -128 * (first + second);
            block->half_bias[0][r] = -128 * first;
            block->half_bias[1][r] = -128 * second;
        }
    }
}

/* ---- One activation: weights from memory ----------------------------------------- */

G3_INLINE __m512i four_columns(const g3_act_block *act, int g) {
    int32_t four;
    memcpy(&four, act->q[0] + 4 * g, sizeof four);
    return _mm512_set1_epi32(four);
}

/* y + the share of 32 columns. */
G3_INLINE __m512 add_block(g3_type type, const g3_unpacked *u, const g3_act_block *act, __m512 y) {
    const int shift = g3_bias_shift(type);
    const __m512 scale = _mm512_set1_ps(act->scale[0]);
    __m512i first = _mm512_setzero_si512(), second = first;
    if (type == G3_Q6_K) {
        first = _mm512_set1_epi32(act->half_bias[0][0] >> shift);
        second = _mm512_set1_epi32(act->half_bias[1][0] >> shift);
    } else if (!g3_has_minimum(type)) {
        first = _mm512_set1_epi32(act->bias[0] >> shift);
    }
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        first = _mm512_dpbusd_epi32(first, u->w[g], four_columns(act, g));
        second = _mm512_dpbusd_epi32(second, u->w[g + 4], four_columns(act, g + 4));
    }
    if (type == G3_Q6_K) {
        y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(first), _mm512_mul_ps(u->scale[0], scale), y);
        return _mm512_fmadd_ps(_mm512_cvtepi32_ps(second), _mm512_mul_ps(u->scale[1], scale), y);
    }
    const __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(first, second));
    y = _mm512_fmadd_ps(sum, _mm512_mul_ps(u->scale[0], scale), y);
    if (g3_has_minimum(type))
        y = _mm512_fmadd_ps(u->minimum, _mm512_set1_ps(act->scaled_sum[0]), y);
    return y;
}

/* A core reads more from memory when it reads in several places at once, and the
 * hardware's own prefetcher ends at every 4 KiB page. */
enum { STREAMS = 8, PREFETCH_BYTES = 2048 };

/* The share of 32 columns in the block at p, and what lies ahead of it. */
G3_INLINE __m512 add_columns(g3_type type, const uint8_t *p, size_t bytes, int j,
                             const g3_act_block *act, __m512 y) {
    const char *ahead = (const char *)p + PREFETCH_BYTES + (size_t)j * bytes;
    for (size_t line = 0; line < bytes; line += 64)
        _mm_prefetch(ahead + line, _MM_HINT_T0);
    g3_unpacked u;
    g3_unpack(type, p, j, &u);
    return add_block(type, &u, act + j, y);
}

/* `streams` row groups that are `apart` groups from each other, in turns. bytes: of
 * 32 columns. */
G3_INLINE void streams_of(g3_type type, const g3_task *task, size_t bytes, uint32_t first,
                          uint32_t streams, uint32_t apart) {
    const uint32_t blocks = task->columns / G3_BLOCK;
    const int per_unit = g3_is_k(type) ? 8 : 1;
    const size_t step = apart * task->group_bytes;
    const uint8_t *p = task->groups + first * task->group_bytes;
    __m512 y[STREAMS];
    for (uint32_t s = 0; s < streams; s++)
        y[s] = _mm512_setzero_ps();
    for (uint32_t b = 0; b < blocks; b += (uint32_t)per_unit, p += (size_t)per_unit * bytes) {
#pragma GCC unroll 8
        for (int j = 0; j < per_unit; j++)
            for (uint32_t s = 0; s < streams; s++)
                y[s] = add_columns(type, p + s * step, bytes, j, task->acts + b, y[s]);
    }
    for (uint32_t s = 0; s < streams; s++) {
        const uint32_t row = (first + s * apart) * G3_GROUP_ROWS;
        _mm512_mask_storeu_ps(task->y + row, g3_row_mask(task->row_count - row), y[s]);
    }
}

G3_INLINE void one_of(g3_type type, const g3_task *task, size_t bytes) {
    const uint32_t apart = task->group_count / STREAMS;
    for (uint32_t g = 0; g < apart; g++)
        streams_of(type, task, bytes, g, STREAMS, apart);
    const uint32_t left = task->group_count % STREAMS;
    if (left)
        streams_of(type, task, bytes, task->group_count - left, left, 1);
}

void g3_int8_one_avx512(const g3_task *task) {
    switch (task->type) {
    case G3_Q4_0:
        one_of(G3_Q4_0, task, 16 * 18);
        return;
    case G3_Q4_1:
        one_of(G3_Q4_1, task, 16 * 20);
        return;
    case G3_Q5_0:
        one_of(G3_Q5_0, task, 16 * 22);
        return;
    case G3_Q5_1:
        one_of(G3_Q5_1, task, 16 * 24);
        return;
    case G3_Q8_0:
        one_of(G3_Q8_0, task, 16 * 34);
        return;
    case G3_Q4_K:
        one_of(G3_Q4_K, task, 2 * 144);
        return;
    case G3_Q5_K:
        one_of(G3_Q5_K, task, 2 * 176);
        return;
    case G3_Q6_K:
        one_of(G3_Q6_K, task, 2 * 210);
        return;
    case G3_F32:
    case G3_F16:
    case G3_BF16:
        return;
    }
}

/* ---- Many activations: weights unpacked once ---------------------------------------- */

G3_INLINE void panel_of(g3_type type, const uint8_t *p, uint32_t unit_blocks, size_t unit_bytes,
                        uint32_t blocks, __m512i shift, g3_panel_block *out) {
    for (uint32_t b = 0; b < blocks; b += unit_blocks, p += unit_bytes) {
#pragma GCC unroll 8
        for (uint32_t j = 0; j < unit_blocks; j++, out++) {
            g3_unpacked u;
            g3_unpack(type, p, (int)j, &u);
#pragma GCC unroll 8
            for (int g = 0; g < 8; g++)
                _mm512_store_si512((void *)out->w[g], _mm512_add_epi8(u.w[g], shift));
            _mm512_store_ps(out->scale, u.scale[0]);
            if (type == G3_Q6_K)
                _mm512_store_ps(out->other, u.scale[1]);
            else if (g3_has_minimum(type))
                _mm512_store_ps(out->other, u.minimum);
        }
    }
}

/* For types without a minimum the bytes are `zero` where a weight is 0. */
void g3_panel_avx512(g3_type type, const uint8_t *group, uint32_t first_block, uint32_t blocks,
                     int zero, g3_panel_block *out) {
    const g3_layout *layout = g3_layout_of(type);
    const uint32_t unit_blocks = layout->block_elements / G3_BLOCK;
    const size_t unit_bytes = (size_t)layout->block_bytes * G3_GROUP_ROWS;
    const uint8_t *p = group + first_block / unit_blocks * unit_bytes;
    const int shift = g3_has_minimum(type) ? 0 : zero - g3_middle(type);
    const __m512i v = _mm512_set1_epi8((char)shift);
    switch (type) {
    case G3_Q4_0:
        panel_of(G3_Q4_0, p, 1, unit_bytes, blocks, v, out);
        return;
    case G3_Q4_1:
        panel_of(G3_Q4_1, p, 1, unit_bytes, blocks, v, out);
        return;
    case G3_Q5_0:
        panel_of(G3_Q5_0, p, 1, unit_bytes, blocks, v, out);
        return;
    case G3_Q5_1:
        panel_of(G3_Q5_1, p, 1, unit_bytes, blocks, v, out);
        return;
    case G3_Q8_0:
        panel_of(G3_Q8_0, p, 1, unit_bytes, blocks, v, out);
        return;
    case G3_Q4_K:
        panel_of(G3_Q4_K, p, 8, unit_bytes, blocks, v, out);
        return;
    case G3_Q5_K:
        panel_of(G3_Q5_K, p, 8, unit_bytes, blocks, v, out);
        return;
    case G3_Q6_K:
        panel_of(G3_Q6_K, p, 8, unit_bytes, blocks, v, out);
        return;
    case G3_F32:
    case G3_F16:
    case G3_BF16:
        return;
    }
}

/* What a block adds to y beyond the integer sums. */
typedef enum kind { PLAIN, MINIMUM, HALVES } kind;

enum { ACTS = 4 };

G3_INLINE __m512i bias_of(kind k, const g3_act_block *act, int a, int half) {
    if (k == MINIMUM)
        return _mm512_setzero_si512();
    return _mm512_set1_epi32(k == HALVES ? act->half_bias[half][a] : act->bias[a]);
}

/* R row groups x ACTS activations over `blocks` blocks; y in registers. act points
 * at the first activation's row of the tile in every array. */
G3_INLINE void tile_of(kind k, int R, const g3_panel_block *const panels[2],
                       const g3_act_block *acts, int a0, uint32_t blocks, __m512 y[2][ACTS]) {
    for (uint32_t b = 0; b < blocks; b++) {
        const g3_act_block *act = acts + b;
        for (int half = 0; half < (k == HALVES ? 2 : 1); half++) {
            const int steps = k == HALVES ? 4 : 8;
            __m512i sum[2][ACTS];
#pragma GCC unroll 2
            for (int r = 0; r < R; r++)
#pragma GCC unroll 4
                for (int a = 0; a < ACTS; a++)
                    sum[r][a] = bias_of(k, act, a0 + a, half);
#pragma GCC unroll 8
            for (int s = 0; s < steps; s++) {
                const int g = half * 4 + s;
                __m512i x[ACTS];
#pragma GCC unroll 4
                for (int a = 0; a < ACTS; a++) {
                    int32_t four;
                    memcpy(&four, act->q[a0 + a] + 4 * g, sizeof four);
                    x[a] = _mm512_set1_epi32(four);
                }
#pragma GCC unroll 2
                for (int r = 0; r < R; r++) {
                    const __m512i w = _mm512_load_si512((const void *)panels[r][b].w[g]);
#pragma GCC unroll 4
                    for (int a = 0; a < ACTS; a++)
                        sum[r][a] = _mm512_dpbusd_epi32(sum[r][a], w, x[a]);
                }
            }
#pragma GCC unroll 2
            for (int r = 0; r < R; r++) {
                const g3_panel_block *w = panels[r] + b;
                const __m512 scale = _mm512_load_ps(half ? w->other : w->scale);
#pragma GCC unroll 4
                for (int a = 0; a < ACTS; a++) {
                    const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(act->scale[a0 + a]));
                    y[r][a] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][a]), both, y[r][a]);
                    if (k == MINIMUM)
                        y[r][a] = _mm512_fmadd_ps(_mm512_load_ps(w->other),
                                                  _mm512_set1_ps(act->scaled_sum[a0 + a]), y[r][a]);
                }
            }
        }
    }
}

/* All activations of a task over the panels' blocks, from first_block on. */
G3_INLINE void rows_of(kind k, int R, const g3_task *task, const g3_panel_block *const panels[2],
                       uint32_t first_block, uint32_t blocks) {
    const size_t tile_blocks = task->columns / G3_BLOCK;
    for (size_t n = 0; n < task->n; n += ACTS) {
        const g3_act_block *acts = task->acts + n / G3_TILE * tile_blocks + first_block;
        const size_t left = task->n - n;
        const int count = left < ACTS ? (int)left : ACTS;
        float *out = task->y + n * task->y_stride;
        __m512 y[2][ACTS];
#pragma GCC unroll 2
        for (int r = 0; r < R; r++) {
            const __mmask16 mask = g3_row_mask(task->row_count - (uint32_t)r * G3_GROUP_ROWS);
#pragma GCC unroll 4
            for (int a = 0; a < ACTS; a++)
                y[r][a] =
                    first_block && a < count
                        ? _mm512_maskz_loadu_ps(mask, out + (size_t)a * task->y_stride + 16 * r)
                        : _mm512_setzero_ps();
        }
        tile_of(k, R, panels, acts, (int)(n % G3_TILE), blocks, y);
#pragma GCC unroll 2
        for (int r = 0; r < R; r++) {
            const __mmask16 mask = g3_row_mask(task->row_count - (uint32_t)r * G3_GROUP_ROWS);
#pragma GCC unroll 4
            for (int a = 0; a < ACTS; a++)
                if (a < count)
                    _mm512_mask_storeu_ps(out + (size_t)a * task->y_stride + 16 * r, mask, y[r][a]);
        }
    }
}

void g3_int8_many_avx512(const g3_task *task) {
    enum { PANEL_BLOCKS = 24 }; /* two panels stay in the first-level cache */
    g3_panel_block panel[G3_TASK_GROUPS][PANEL_BLOCKS];
    const g3_panel_block *const panels[2] = {panel[0], panel[1]};
    const uint32_t all = task->columns / G3_BLOCK;
    for (uint32_t first = 0; first < all; first += PANEL_BLOCKS) {
        const uint32_t blocks = all - first < PANEL_BLOCKS ? all - first : PANEL_BLOCKS;
        for (uint32_t r = 0; r < task->group_count; r++)
            g3_panel_avx512(task->type, task->groups + r * task->group_bytes, first, blocks, 128,
                            panel[r]);
        const int two = task->group_count == 2;
        if (g3_has_minimum(task->type))
            two ? rows_of(MINIMUM, 2, task, panels, first, blocks)
                : rows_of(MINIMUM, 1, task, panels, first, blocks);
        else if (task->type == G3_Q6_K)
            two ? rows_of(HALVES, 2, task, panels, first, blocks)
                : rows_of(HALVES, 1, task, panels, first, blocks);
        else
            two ? rows_of(PLAIN, 2, task, panels, first, blocks)
                : rows_of(PLAIN, 1, task, panels, first, blocks);
    }
}
