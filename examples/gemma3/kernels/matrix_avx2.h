/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_MATRIX_AVX2_H
#define GEMMA3_MATRIX_AVX2_H

/* What the AVX2 files share. */

#include <immintrin.h>

#include "matrix_layout.h"

#define G3_INLINE static inline __attribute__((always_inline))

/* 32 columns of a row group. w: as the packed pieces, unsigned (Q8_0: signed).
 * other: the second half's scale (Q6_K) or the minimum. */
typedef struct g3_panel2_block {
    _Alignas(32) uint8_t w[8][2][32];
    float scale[16];
    float other[16];
} g3_panel2_block;

void g3_quantise_avx2(const float *x, uint32_t columns, uint32_t count, g3_act_block *tile);
void g3_int8_avx2(const g3_task *task);
void g3_float_avx2(const g3_task *task);

/* Blocks of 32 columns [first, first + count); first is a multiple of 8. */
void g3_panel_avx2(g3_type type, const uint8_t *group, uint32_t first, uint32_t count,
                   g3_panel2_block *out);

G3_INLINE __m256i g3_load256(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
G3_INLINE __m256 g3_eight_halves(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

#endif
