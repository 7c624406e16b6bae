/* SPDX-License-Identifier: MIT */
/* Products in float32, AVX-512. Each output is one chain of fused multiply-adds
 * over the columns; what hides their latency is that many outputs are in progress. */

#include "matrix_unpack_avx512.h"
#include "matrix_avx512.h"

/* Column k of a dense group. */
G3_INLINE __m512 dense_column(g3_type type, const uint8_t *group, size_t k) {
    if (type == G3_F32)
        return _mm512_loadu_ps((const float *)(const void *)(group + 64 * k));
    if (type == G3_F16)
        return g3_halves(group + 32 * k);
    const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(group + 32 * k));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

/* ---- One activation, dense ---------------------------------------------------------- */

enum { STREAMS = 4, PREFETCH_BYTES = 2048 };

G3_INLINE void streams_of(g3_type type, int count, const g3_task *task, uint32_t first) {
    const uint8_t *p[STREAMS];
    __m512 y[STREAMS];
    const size_t step = type == G3_F32 ? 64 : 32;
#pragma GCC unroll 4
    for (int s = 0; s < count; s++) {
        p[s] = task->groups + (first + (uint32_t)s) * task->group_bytes;
        y[s] = _mm512_setzero_ps();
    }
    for (size_t k = 0; k < task->columns; k++) {
        const __m512 x = _mm512_set1_ps(task->x[k]);
#pragma GCC unroll 4
        for (int s = 0; s < count; s++) {
            _mm_prefetch((const char *)p[s] + k * step + PREFETCH_BYTES, _MM_HINT_T0);
            y[s] = _mm512_fmadd_ps(dense_column(type, p[s], k), x, y[s]);
        }
    }
#pragma GCC unroll 4
    for (int s = 0; s < count; s++) {
        const uint32_t row = (first + (uint32_t)s) * G3_GROUP_ROWS;
        _mm512_mask_storeu_ps(task->y + row, g3_row_mask(task->row_count - row), y[s]);
    }
}

G3_INLINE void float_one_of(g3_type type, const g3_task *task) {
    uint32_t g = 0;
    for (; g + STREAMS <= task->group_count; g += STREAMS)
        streams_of(type, STREAMS, task, g);
    for (; g < task->group_count; g++)
        streams_of(type, 1, task, g);
}

void g3_float_one_avx512(const g3_task *task) {
    if (task->type == G3_F32)
        float_one_of(G3_F32, task);
    else if (task->type == G3_F16)
        float_one_of(G3_F16, task);
    else
        float_one_of(G3_BF16, task);
}

/* ---- Weights as floats: panel[k][16] ------------------------------------------------- */

G3_INLINE void dense_panel(g3_type type, const uint8_t *group, size_t first, size_t count,
                           float *panel) {
    for (size_t k = 0; k < count; k++)
        _mm512_store_ps(panel + 16 * k, dense_column(type, group, first + k));
}

/* From the 8-bit panel, whose bytes are signed here. */
static void quantised_panel(g3_type type, const uint8_t *group, uint32_t first, uint32_t count,
                            float *panel) {
    enum { AT_ONCE = 8 };
    g3_panel_block blocks[AT_ONCE];
    const __m512 minus_zero = _mm512_set1_ps(-0.0f);
    for (uint32_t done = 0; done < count; done += AT_ONCE * G3_BLOCK) {
        const uint32_t left = (count - done) / G3_BLOCK;
        const uint32_t n = left < AT_ONCE ? left : AT_ONCE;
        g3_panel_avx512(type, group, (first + done) / G3_BLOCK, n, 0, blocks);
        for (uint32_t b = 0; b < n; b++)
            for (uint32_t g = 0; g < 8; g++) {
                const __m512 scale =
                    _mm512_load_ps(type == G3_Q6_K && g >= 4 ? blocks[b].other : blocks[b].scale);
                const __m512 add =
                    g3_has_minimum(type) ? _mm512_load_ps(blocks[b].other) : minus_zero;
                const __m512i w = _mm512_load_si512((const void *)blocks[b].w[g]);
                float *to = panel + 16 * (done + b * G3_BLOCK + 4 * g);
#pragma GCC unroll 4
                for (unsigned c = 0; c < 4; c++) {
                    const __m512i byte = _mm512_slli_epi32(w, 24 - 8 * c);
                    const __m512 v = _mm512_cvtepi32_ps(_mm512_srai_epi32(byte, 24));
                    _mm512_store_ps(to + 16 * c, _mm512_fmadd_ps(v, scale, add));
                }
            }
    }
}

/* ---- Many activations ----------------------------------------------------------------- */

/* R row groups x A activations over `count` columns. */
G3_INLINE void tile_of(int R, int A, const float *const panels[2], const float *x, size_t x_stride,
                       size_t count, int from_zero, const __mmask16 masks[2], float *y,
                       size_t y_stride) {
    __m512 sum[2][8];
#pragma GCC unroll 2
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int a = 0; a < A; a++)
            sum[r][a] = from_zero
                            ? _mm512_setzero_ps()
                            : _mm512_maskz_loadu_ps(masks[r], y + (size_t)a * y_stride + 16 * r);
    for (size_t k = 0; k < count; k++) {
        __m512 w[2];
#pragma GCC unroll 2
        for (int r = 0; r < R; r++)
            w[r] = _mm512_loadu_ps(panels[r] + 16 * k);
#pragma GCC unroll 8
        for (int a = 0; a < A; a++) {
            const __m512 v = _mm512_set1_ps(x[(size_t)a * x_stride + k]);
#pragma GCC unroll 2
            for (int r = 0; r < R; r++)
                sum[r][a] = _mm512_fmadd_ps(w[r], v, sum[r][a]);
        }
    }
#pragma GCC unroll 2
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int a = 0; a < A; a++)
            _mm512_mask_storeu_ps(y + (size_t)a * y_stride + 16 * r, masks[r], sum[r][a]);
}

G3_INLINE void rows_of(int R, const g3_task *task, const float *const panels[2], size_t first,
                       size_t count) {
    const __mmask16 masks[2] = {
        g3_row_mask(task->row_count),
        g3_row_mask(task->row_count > 16 ? task->row_count - G3_GROUP_ROWS : 0)};
    const size_t columns = task->columns, stride = task->y_stride;
    const float *x = task->x + first;
    float *y = task->y;
    size_t n = task->n;
    for (; n >= 8; n -= 8, x += 8 * columns, y += 8 * stride)
        tile_of(R, 8, panels, x, columns, count, !first, masks, y, stride);
    for (; n >= 4; n -= 4, x += 4 * columns, y += 4 * stride)
        tile_of(R, 4, panels, x, columns, count, !first, masks, y, stride);
    for (; n; n--, x += columns, y += stride)
        tile_of(R, 1, panels, x, columns, count, !first, masks, y, stride);
}

void g3_float_many_avx512(const g3_task *task) {
    enum { PANEL_COLUMNS = 512 };
    _Alignas(64) float room[G3_TASK_GROUPS][PANEL_COLUMNS * 16];
    for (uint32_t first = 0; first < task->columns; first += PANEL_COLUMNS) {
        const uint32_t left = task->columns - first;
        const uint32_t count = left < PANEL_COLUMNS ? left : PANEL_COLUMNS;
        const float *panels[2] = {room[0], room[1]};
        for (uint32_t r = 0; r < task->group_count; r++) {
            const uint8_t *group = task->groups + r * task->group_bytes;
            if (task->type == G3_F32)
                panels[r] = (const float *)(const void *)group + (size_t)first * 16;
            else if (task->type == G3_F16)
                dense_panel(G3_F16, group, first, count, room[r]);
            else if (task->type == G3_BF16)
                dense_panel(G3_BF16, group, first, count, room[r]);
            else
                quantised_panel(task->type, group, first, count, room[r]);
        }
        if (task->group_count == 2)
            rows_of(2, task, panels, first, count);
        else
            rows_of(1, task, panels, first, count);
    }
}

const g3_kernels g3_kernels_avx512 = {g3_quantise_avx512, g3_int8_one_avx512, g3_int8_many_avx512,
                                      g3_float_one_avx512, g3_float_many_avx512};
