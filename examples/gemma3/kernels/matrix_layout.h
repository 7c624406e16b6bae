/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_MATRIX_LAYOUT_H
#define GEMMA3_MATRIX_LAYOUT_H

/* How matrices and activations lie in memory, and what a set of kernels is.
 * Private to the matrix*.c files and their tests.
 *
 * Matrices. Groups of 16 rows follow each other; in a group, the blocks of the
 * type in the order of the columns; and in a block, pieces: the same few bytes of
 * each of the 16 rows, row after row. A piece of 4 bytes of all rows is one vector
 * of 64 bytes with one row in each 32-bit lane. The pieces by type, in order (d, m,
 * S, qs, qh, ql, sc as in the file's format):
 *
 *   F32, F16, BF16  the element
 *   Q8_0            d; q 8 x 4
 *   Q4_0            d; qs 4 x 4: low nibbles are columns 4g, high ones 16 + 4g
 *   Q4_1            d; m; qs as Q4_0
 *   Q5_0            d; qh 4, bits permuted: bit g of byte c belongs to column 4g + c;
 *                   qs as Q4_0
 *   Q5_1            d; m; qh; qs
 *   Q4_K            d; dmin; S 12 x 1; qs 32 x 4
 *   Q5_K            d; dmin; S 12 x 1; qh 8 x 4; qs 32 x 4
 *   Q6_K            d; sc 16 x 1; ql 32 x 4; qh 16 x 4
 *
 * Activations in 8 bits. Tiles of 16 rows (the last filled up with zeros) follow
 * each other; in a tile there is a record for each 32 columns: g3_act_block. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "matrix.h"

/* `count` pieces of `width` bytes that follow each other in the file's block. */
typedef struct g3_piece {
    uint8_t offset;
    uint8_t width;
    uint8_t count;
    uint8_t permute_bits;
} g3_piece;

typedef struct g3_layout {
    uint16_t block_elements;
    uint16_t block_bytes;
    uint8_t piece_count;
    g3_piece pieces[5];
} g3_layout;

/* NULL for a type that is not known. */
const g3_layout *g3_layout_of(g3_type type);
int g3_is_dense(g3_type type);

/* Bit 4g + c of a Q5 block's qh <-> bit g of byte c. */
uint32_t g3_permute_bits(uint32_t qh);
uint32_t g3_unpermute_bits(uint32_t bits);

#define G3_TILE 16u /* activation rows of a tile */
#define G3_BLOCK 32u

/* 32 columns of 16 activation rows. Value = scale * q. */
typedef struct g3_act_block {
    int8_t q[G3_TILE][G3_BLOCK];
    float scale[G3_TILE];
    float scaled_sum[G3_TILE];     /* scale * sum of q */
    int32_t bias[G3_TILE];         /* -128 * sum of q */
    int32_t half_bias[2][G3_TILE]; /* of columns 0-15 and 16-31 */
} g3_act_block;

/* A product of up to G3_TASK_GROUPS row groups with `n` activations. */
#define G3_TASK_GROUPS 2u
typedef struct g3_task {
    g3_type type;
    uint32_t columns;
    const uint8_t *groups; /* the first group; others follow */
    size_t group_bytes;
    uint32_t group_count;
    uint32_t row_count; /* valid rows of these groups */
    size_t n;
    const g3_act_block *acts; /* a tile's first block (G3_INT8) */
    const float *x;           /* first row, `columns` floats each (G3_FLOAT32) */
    float *y;                 /* first row's output of the first matrix row */
    size_t y_stride;
} g3_task;

typedef struct g3_kernels {
    /* A tile from `count` rows of x, the rest of the tile as zeros. */
    void (*quantise)(const float *x, uint32_t columns, uint32_t count, g3_act_block *tile);
    /* n = 1, any number of groups, straight from memory. */
    void (*int8_one)(const g3_task *task);
    void (*int8_many)(const g3_task *task);
    /* n = 1, dense types, any number of groups. */
    void (*float_one)(const g3_task *task);
    void (*float_many)(const g3_task *task);
} g3_kernels;

extern const g3_kernels g3_kernels_scalar;
#if defined(__x86_64__)
extern const g3_kernels g3_kernels_avx2;
extern const g3_kernels g3_kernels_avx512;
/* Where tiles of AMX may be used besides AVX-512: same results, bit for bit. */
extern const g3_kernels g3_kernels_amx;
#endif
const g3_kernels *g3_kernels_current(void);

/* For tests: 0 keeps AVX-512 from using AMX, 1 allows it. Returns whether this
 * CPU and system can. Not while kernels run. */
int g3_amx_allow(int allow);

/* -log2 of the share of `bias` that makes unsigned weights of a type signed: bias
 * >> shift. For types without a minimum. */
static inline int g3_bias_shift(g3_type type) {
    return type == G3_Q8_0 ? 0 : type == G3_Q6_K ? 2 : type == G3_Q5_0 ? 3 : 4;
}
static inline int g3_has_minimum(g3_type type) {
    return type == G3_Q4_1 || type == G3_Q5_1 || type == G3_Q4_K || type == G3_Q5_K;
}
static inline int g3_is_k(g3_type type) {
    return type == G3_Q4_K || type == G3_Q5_K || type == G3_Q6_K;
}

/* Activations whose largest magnitude is below this become zeros: the reciprocal
 * of their scale would not be finite. */
#define G3_SMALLEST_AMAX 1e-30f

typedef struct g3_act_scale {
    float scale;
    float inverse; /* 0: all q are 0 */
} g3_act_scale;

/* From the bits of the largest magnitude. What is not finite stays visible: the
 * scale is NaN. */
static inline g3_act_scale g3_act_scale_from_bits(uint32_t bits) {
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    if (bits >= 0x7f800000u)
        return (g3_act_scale){NAN, 0.0f};
    if (amax < G3_SMALLEST_AMAX)
        return (g3_act_scale){0.0f, 0.0f};
    return (g3_act_scale){amax / 127.0f, 127.0f / amax};
}

#endif
