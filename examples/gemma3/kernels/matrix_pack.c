/* SPDX-License-Identifier: MIT */
/* From the file's rows to groups of 16 and back. */

#include "matrix_layout.h"

#include <string.h>

enum { ROWS = G3_GROUP_ROWS };

static const g3_layout layout_f32 = {1, 4, 1, {{0, 4, 1, 0}}};
static const g3_layout layout_16 = {1, 2, 1, {{0, 2, 1, 0}}};
static const g3_layout layout_q4_0 = {32, 18, 2, {{0, 2, 1, 0}, {2, 4, 4, 0}}};
static const g3_layout layout_q4_1 = {32, 20, 2, {{0, 2, 2, 0}, {4, 4, 4, 0}}};
static const g3_layout layout_q5_0 = {32, 22, 3, {{0, 2, 1, 0}, {2, 4, 1, 1}, {6, 4, 4, 0}}};
static const g3_layout layout_q5_1 = {32, 24, 3, {{0, 2, 2, 0}, {4, 4, 1, 1}, {8, 4, 4, 0}}};
static const g3_layout layout_q8_0 = {32, 34, 2, {{0, 2, 1, 0}, {2, 4, 8, 0}}};
static const g3_layout layout_q4_k = {256, 144, 3, {{0, 2, 2, 0}, {4, 1, 12, 0}, {16, 4, 32, 0}}};
static const g3_layout layout_q5_k = {256, 176, 3, {{0, 2, 2, 0}, {4, 1, 12, 0}, {16, 4, 40, 0}}};
static const g3_layout layout_q6_k = {
    256, 210, 4, {{208, 2, 1, 0}, {192, 1, 16, 0}, {0, 4, 32, 0}, {128, 4, 16, 0}}};

const g3_layout *g3_layout_of(g3_type type) {
    switch (type) {
    case G3_F32:
        return &layout_f32;
    case G3_F16:
    case G3_BF16:
        return &layout_16;
    case G3_Q4_0:
        return &layout_q4_0;
    case G3_Q4_1:
        return &layout_q4_1;
    case G3_Q5_0:
        return &layout_q5_0;
    case G3_Q5_1:
        return &layout_q5_1;
    case G3_Q8_0:
        return &layout_q8_0;
    case G3_Q4_K:
        return &layout_q4_k;
    case G3_Q5_K:
        return &layout_q5_k;
    case G3_Q6_K:
        return &layout_q6_k;
    }
    return NULL;
}

int g3_is_dense(g3_type type) { return type == G3_F32 || type == G3_F16 || type == G3_BF16; }

/* Even bits to the lower half, odd ones to the upper: bit number b4b3b2b1b0 becomes
 * b0b4b3b2b1. */
static inline uint32_t unshuffle(uint32_t x) {
    uint32_t t = (x ^ x >> 1) & 0x22222222u;
    x ^= t ^ t << 1;
    t = (x ^ x >> 2) & 0x0c0c0c0cu;
    x ^= t ^ t << 2;
    t = (x ^ x >> 4) & 0x00f000f0u;
    x ^= t ^ t << 4;
    t = (x ^ x >> 8) & 0x0000ff00u;
    return x ^ t ^ t << 8;
}

/* 4g + c to 8c + g: the bit's number turned right by two; five turns are a round. */
uint32_t g3_permute_bits(uint32_t qh) { return unshuffle(unshuffle(qh)); }
uint32_t g3_unpermute_bits(uint32_t bits) { return unshuffle(unshuffle(unshuffle(bits))); }

size_t g3_matrix_bytes(g3_type type, uint32_t rows, uint32_t columns) {
    const g3_layout *layout = g3_layout_of(type);
    if (!layout || columns % layout->block_elements)
        return 0;
    const size_t groups = ((size_t)rows + ROWS - 1) / ROWS;
    const size_t group_bytes =
        (size_t)columns / layout->block_elements * layout->block_bytes * ROWS;
    return groups && group_bytes > SIZE_MAX / groups ? 0 : groups * group_bytes;
}

/* The bytes of one kind of piece, of all rows. Constant widths let the compiler
 * turn the copies into single moves. */
static inline uint8_t *place(const uint8_t *src, size_t row_bytes, uint32_t rows, size_t width,
                             uint32_t count, uint8_t *dst) {
    for (uint32_t i = 0; i < count; i++, src += width, dst += ROWS * width)
        for (uint32_t r = 0; r < rows; r++)
            memcpy(dst + r * width, src + r * row_bytes, width);
    return dst;
}

static void permute_vector(uint8_t *p) {
    for (int r = 0; r < ROWS; r++) {
        uint32_t bits;
        memcpy(&bits, p + 4 * r, 4);
        bits = g3_permute_bits(bits);
        memcpy(p + 4 * r, &bits, 4);
    }
}

/* The pieces of one block of up to 16 rows. */
static void pack_block(const g3_layout *layout, const uint8_t *src, size_t row_bytes, uint32_t rows,
                       uint8_t *dst) {
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const g3_piece piece = layout->pieces[i];
        uint8_t *const begin = dst;
        if (piece.width == 4)
            dst = place(src + piece.offset, row_bytes, rows, 4, piece.count, dst);
        else if (piece.width == 2)
            dst = place(src + piece.offset, row_bytes, rows, 2, piece.count, dst);
        else
            dst = place(src + piece.offset, row_bytes, rows, 1, piece.count, dst);
        if (piece.permute_bits)
            permute_vector(begin);
    }
}

void g3_matrix_pack(g3_type type, uint32_t columns, uint32_t first_row, uint32_t count,
                    const uint8_t *src, void *dst) {
    const g3_layout *layout = g3_layout_of(type);
    const size_t group_bytes = g3_matrix_bytes(type, ROWS, columns);
    if (!layout || !group_bytes)
        return;
    const size_t blocks = columns / layout->block_elements;
    const size_t row_bytes = blocks * layout->block_bytes;
    const long groups = (long)(((size_t)count + ROWS - 1) / ROWS);
    uint8_t *const begin = (uint8_t *)dst + first_row / ROWS * group_bytes;
#pragma omp parallel for schedule(static)
    for (long g = 0; g < groups; g++) {
        const uint8_t *from = src + (size_t)g * ROWS * row_bytes;
        uint8_t *to = begin + (size_t)g * group_bytes;
        const size_t left = count - (size_t)g * ROWS;
        const uint32_t rows = left < ROWS ? (uint32_t)left : ROWS;
        if (rows < ROWS)
            memset(to, 0, group_bytes);
        const size_t block_bytes = layout->block_bytes;
        for (size_t b = 0; b < blocks; b++)
            pack_block(layout, from + b * block_bytes, row_bytes, rows,
                       to + b * block_bytes * ROWS);
    }
}

/* One row's block as in the file. */
static void gather_block(const g3_layout *layout, const uint8_t *src, uint32_t row, uint8_t *out) {
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const g3_piece piece = layout->pieces[i];
        uint8_t *to = out + piece.offset;
        for (uint32_t k = 0; k < piece.count; k++, src += (size_t)ROWS * piece.width) {
            memcpy(to + k * piece.width, src + row * piece.width, piece.width);
            if (piece.permute_bits) {
                uint32_t bits;
                memcpy(&bits, to, 4);
                bits = g3_unpermute_bits(bits);
                memcpy(to, &bits, 4);
            }
        }
    }
}

void g3_matrix_row(const g3_matrix *matrix, uint32_t row, float *out) {
    const g3_layout *layout = g3_layout_of(matrix->type);
    const size_t group_bytes = g3_matrix_bytes(matrix->type, ROWS, matrix->columns);
    if (!layout || !group_bytes || row >= matrix->rows)
        return;
    const uint8_t *src = (const uint8_t *)matrix->data + row / ROWS * group_bytes;
    uint8_t block[256];
    for (size_t column = 0; column < matrix->columns; column += layout->block_elements) {
        gather_block(layout, src, row % ROWS, block);
        g3_dequantise(matrix->type, block, layout->block_elements, out + column);
        src += (size_t)layout->block_bytes * ROWS;
    }
}
