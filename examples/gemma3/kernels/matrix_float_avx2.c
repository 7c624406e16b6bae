/* SPDX-License-Identifier: MIT */
/* Products in float32 for AVX2: each output is one chain of fused multiply-adds over
 * the columns, a row group is two vectors of 8 rows. */

#include "matrix_avx2.h"

enum { PANEL_COLUMNS = 256 };

/* ---- Weights as floats: panel[k][16] ----------------------------------------------------- */

static void dense_panel(g3_type type, const uint8_t *group, size_t first, size_t count,
                        float *panel) {
    for (size_t i = 2 * first; i < 2 * (first + count); i++, panel += 8) {
        if (type == G3_F32) {
            _mm256_store_ps(panel, _mm256_loadu_ps((const float *)(const void *)(group + 32 * i)));
        } else if (type == G3_F16) {
            _mm256_store_ps(panel, g3_eight_halves(group + 16 * i));
        } else {
            const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(group + 16 * i));
            const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16);
            _mm256_store_ps(panel, _mm256_castsi256_ps(bits));
        }
    }
}

/* One block of 32 columns. */
static void float_block(g3_type type, const g3_panel2_block *block, float *panel) {
    const int middle = type == G3_Q8_0 || g3_has_minimum(type) ? 0 : 128 >> g3_bias_shift(type);
    const __m256i minus = _mm256_set1_epi32(-middle);
    for (int i = 0; i < 16; i++) {
        const int g = i / 2, h = i % 2;
        const float *s = type == G3_Q6_K && g >= 4 ? block->other : block->scale;
        const __m256 scale = _mm256_load_ps(s + 8 * h);
        const __m256 add =
            g3_has_minimum(type) ? _mm256_load_ps(block->other + 8 * h) : _mm256_set1_ps(-0.0f);
        const __m256i w = g3_load256(block->w[g][h]);
        for (int c = 0; c < 4; c++) {
            __m256i n = _mm256_sll_epi32(w, _mm_cvtsi32_si128(24 - 8 * c));
            n = _mm256_add_epi32(_mm256_srai_epi32(n, 24), minus);
            _mm256_store_ps(panel + 16 * (4 * g + c) + 8 * h,
                            _mm256_fmadd_ps(_mm256_cvtepi32_ps(n), scale, add));
        }
    }
}

static void panel_of(g3_type type, const uint8_t *group, uint32_t first, uint32_t count,
                     float *panel) {
    if (g3_is_dense(type)) {
        dense_panel(type, group, first, count, panel);
        return;
    }
    g3_panel2_block blocks[PANEL_COLUMNS / G3_BLOCK];
    g3_panel_avx2(type, group, first / G3_BLOCK, count / G3_BLOCK, blocks);
    for (uint32_t b = 0; b < count / G3_BLOCK; b++)
        float_block(type, blocks + b, panel + (size_t)b * G3_BLOCK * 16);
}

/* ---- Products ------------------------------------------------------------------------------- */

/* A activations over `count` columns; the group has `rows` valid rows. */
G3_INLINE void tile_of(int A, const float *panel, const float *x, size_t x_stride, size_t count,
                       int from_zero, uint32_t rows, float *out, size_t y_stride) {
    __m256 sum[6][2];
    _Alignas(32) float y[16] = {0};
#pragma GCC unroll 6
    for (int a = 0; a < A; a++) {
        if (!from_zero)
            memcpy(y, out + (size_t)a * y_stride, rows * sizeof *y);
        sum[a][0] = _mm256_load_ps(y);
        sum[a][1] = _mm256_load_ps(y + 8);
    }
    for (size_t k = 0; k < count; k++) {
        const __m256 lower = _mm256_load_ps(panel + 16 * k);
        const __m256 upper = _mm256_load_ps(panel + 16 * k + 8);
#pragma GCC unroll 6
        for (int a = 0; a < A; a++) {
            const __m256 v = _mm256_set1_ps(x[(size_t)a * x_stride + k]);
            sum[a][0] = _mm256_fmadd_ps(lower, v, sum[a][0]);
            sum[a][1] = _mm256_fmadd_ps(upper, v, sum[a][1]);
        }
    }
#pragma GCC unroll 6
    for (int a = 0; a < A; a++) {
        _mm256_store_ps(y, sum[a][0]);
        _mm256_store_ps(y + 8, sum[a][1]);
        memcpy(out + (size_t)a * y_stride, y, rows * sizeof *y);
    }
}

static void rows_of(const g3_task *task, const float *panel, uint32_t first, uint32_t count,
                    uint32_t rows, float *y) {
    const size_t columns = task->columns, stride = task->y_stride;
    const float *x = task->x + first;
    size_t n = task->n;
    for (; n >= 6; n -= 6, x += 6 * columns, y += 6 * stride)
        tile_of(6, panel, x, columns, count, !first, rows, y, stride);
    for (; n >= 2; n -= 2, x += 2 * columns, y += 2 * stride)
        tile_of(2, panel, x, columns, count, !first, rows, y, stride);
    if (n)
        tile_of(1, panel, x, columns, count, !first, rows, y, stride);
}

void g3_float_avx2(const g3_task *task) {
    _Alignas(64) float panel[PANEL_COLUMNS * 16];
    for (uint32_t g = 0; g < task->group_count; g++) {
        const uint8_t *group = task->groups + g * task->group_bytes;
        const uint32_t left = task->row_count - g * G3_GROUP_ROWS;
        const uint32_t rows = left < G3_GROUP_ROWS ? left : G3_GROUP_ROWS;
        for (uint32_t first = 0; first < task->columns; first += PANEL_COLUMNS) {
            const uint32_t rest = task->columns - first;
            const uint32_t count = rest < PANEL_COLUMNS ? rest : PANEL_COLUMNS;
            panel_of(task->type, group, first, count, panel);
            rows_of(task, panel, first, count, rows, task->y + (size_t)g * G3_GROUP_ROWS);
        }
    }
}
