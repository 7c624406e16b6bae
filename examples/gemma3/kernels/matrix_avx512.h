/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_MATRIX_AVX512_H
#define GEMMA3_MATRIX_AVX512_H

/* What the AVX-512 files share. */

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "matrix_layout.h"

/* 32 unpacked columns of a row group. other: the second half's scale (Q6_K) or the
 * minimum. */
typedef struct g3_panel_block {
    _Alignas(64) uint8_t w[8][64];
    float scale[16];
    float other[16];
} g3_panel_block;

void g3_quantise_avx512(const float *x, uint32_t columns, uint32_t count, g3_act_block *tile);
void g3_int8_one_avx512(const g3_task *task);
void g3_int8_many_avx512(const g3_task *task);
void g3_int8_many_amx(const g3_task *task);
void g3_float_one_avx512(const g3_task *task);
void g3_float_many_avx512(const g3_task *task);

/* first_block is a multiple of 8. */
void g3_panel_avx512(g3_type type, const uint8_t *group, uint32_t first_block, uint32_t blocks,
                     int zero, g3_panel_block *out);

/* One bit for each of `rows` rows, 16 at most. */
static inline __mmask16 g3_row_mask(uint32_t rows) {
    return rows >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << rows) - 1u);
}

#endif
