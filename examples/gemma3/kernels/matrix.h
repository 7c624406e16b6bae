/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_MATRIX_H
#define GEMMA3_MATRIX_H

/* Weight matrices in memory and their products with activations, on the CPU.
 *
 * A matrix of `rows` x `columns` (outputs x inputs) keeps the type it has in its
 * file. In memory its rows stand in groups of 16 (the last one filled up with
 * zeros), and inside a group the same block of all 16 rows lies together, so
 * that one vector lane computes one row: a product streams through memory once,
 * needs no sum across lanes, and every output is added up in the order of its
 * columns whatever the number of activations. The layout of each type is
 * described in matrix_layout.h. Bytes are exactly those of the file, but for
 * rows that fill up a group.
 *
 * Precision. G3_FLOAT32: weights become exact float32 values and are multiplied
 * in float32. G3_INT8 (only for quantised types; dense ones always take float32):
 * activations are rounded to 8 bits in blocks of 32 with a float32 scale, products
 * are summed exactly in int32 per block (per 16 columns for Q6_K) and scaled in
 * float32. In both, row j of the result depends on row j of the input only, bit
 * for bit, whatever n and the number of threads are. Scalar, AVX2 and AVX-512
 * versions agree within rounding of the float32 sums. */

#include <stddef.h>
#include <stdint.h>

#include "../files/tensor.h"

typedef enum g3_precision { G3_FLOAT32 = 0, G3_INT8 = 1 } g3_precision;

typedef struct g3_matrix {
    g3_type type;
    uint32_t rows;
    uint32_t columns; /* a multiple of the type's block */
    const void *data; /* 64-byte aligned, g3_matrix_bytes */
} g3_matrix;

#define G3_GROUP_ROWS 16u

/* Bytes of the packed form; 0 if columns do not fit the type's block. */
size_t g3_matrix_bytes(g3_type type, uint32_t rows, uint32_t columns);

/* Packs rows [first_row, first_row + count) from the file's row-major form (src
 * points at first_row, may be unaligned) into dst, the beginning of the matrix.
 * first_row is a multiple of 16; count too unless the rows end there. Filled-up
 * rows of the last group are written as zeros. */
void g3_matrix_pack(g3_type type, uint32_t columns, uint32_t first_row, uint32_t count,
                    const uint8_t *src, void *dst);

/* One row as float32, out[columns]: the embedding lookup. */
void g3_matrix_row(const g3_matrix *matrix, uint32_t row, float *out);

/* Activations made ready for products: x is [n][columns] float32, row-major;
 * `packed` is scratch of g3_rows_bytes (0 for G3_FLOAT32 and dense types: it may
 * then be NULL). The scratch serves several matrices of the same columns. */
typedef struct g3_rows {
    const float *x;
    size_t n;
    uint32_t columns;
    void *packed; /* 64-byte aligned */
} g3_rows;
size_t g3_rows_bytes(uint32_t columns, size_t n, g3_precision precision);
/* Quantises x into packed (threads); nothing for G3_FLOAT32. */
void g3_rows_prepare(g3_rows *rows, g3_precision precision);

/* y[n][rows] = x . matrix^T, row-major with y_stride floats from row to row. */
void g3_matmul(const g3_matrix *matrix, const g3_rows *rows, g3_precision precision, float *y,
               size_t y_stride);

/* Which kernels run: chosen once from the CPU, or by name for tests and the
 * environment variable GEMMA3_KERNELS: "scalar", "avx2", "avx512". */
typedef enum g3_isa { G3_ISA_SCALAR = 0, G3_ISA_AVX2 = 1, G3_ISA_AVX512 = 2 } g3_isa;
g3_isa g3_isa_best(void);
g3_isa g3_isa_current(void);
/* 0 if this CPU can do it, else -1 and nothing changes. Not while kernels run. */
int g3_isa_set(g3_isa isa);
const char *g3_isa_name(g3_isa isa);

/* float <-> IEEE half and bfloat16 (round to nearest even), any CPU. */
float g3_half_to_float(uint16_t half);
uint16_t g3_float_to_half(float value);
float g3_bf16_to_float(uint16_t value);
uint16_t g3_float_to_bf16(float value);

/* `count` elements of a row in the file's form as float32 (count a multiple of the
 * block; src may be unaligned). The formulas of every type, in plain C. */
void g3_dequantise(g3_type type, const uint8_t *src, size_t count, float *out);

#endif
