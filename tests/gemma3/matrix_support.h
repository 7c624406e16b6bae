/* SPDX-License-Identifier: MIT */
#ifndef G3T_MATRIX_SUPPORT_H
#define G3T_MATRIX_SUPPORT_H

/* Random weights in the file's form, and what they mean: written from the formats'
 * definitions, element by element and in double, not from the engine's code. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/matrix.h"

static const g3_type g3t_types[] = {G3_F32,  G3_F16,  G3_BF16, G3_Q4_0, G3_Q4_1, G3_Q5_0,
                                    G3_Q5_1, G3_Q8_0, G3_Q4_K, G3_Q5_K, G3_Q6_K};
enum { G3T_TYPES = sizeof g3t_types / sizeof g3t_types[0] };

/* Elements and bytes of a block, positions of its half scales (-1: none). */
typedef struct g3t_format {
    size_t elements, bytes;
    int first_half, second_half;
} g3t_format;

static inline g3t_format g3t_format_of(g3_type type) {
    switch (type) {
    case G3_F32:
        return (g3t_format){1, 4, -1, -1};
    case G3_F16:
        return (g3t_format){1, 2, 0, -1};
    case G3_BF16:
        return (g3t_format){1, 2, -1, -1};
    case G3_Q4_0:
        return (g3t_format){32, 18, 0, -1};
    case G3_Q4_1:
        return (g3t_format){32, 20, 0, 2};
    case G3_Q5_0:
        return (g3t_format){32, 22, 0, -1};
    case G3_Q5_1:
        return (g3t_format){32, 24, 0, 2};
    case G3_Q8_0:
        return (g3t_format){32, 34, 0, -1};
    case G3_Q4_K:
        return (g3t_format){256, 144, 0, 2};
    case G3_Q5_K:
        return (g3t_format){256, 176, 0, 2};
    case G3_Q6_K:
        return (g3t_format){256, 210, 208, -1};
    }
    return (g3t_format){0, 0, -1, -1};
}

static inline uint32_t g3t_random(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) ^ (uint32_t)(*state >> 20);
}

static inline float g3t_uniform(uint64_t *state) {
    return (float)(g3t_random(state) % 20001u) / 10000.0f - 1.0f;
}

/* A half by its definition. */
static inline double g3t_half(const uint8_t *p) {
    const unsigned h = p[0] + 256u * p[1];
    const int exponent = (int)(h >> 10 & 31u);
    const double mantissa = (double)(h & 1023u);
    const double v = exponent ? ldexp(1024.0 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return h >> 15 ? -v : v;
}

/* Every half finite: small ones, now and then zero or subnormal. */
static inline void g3t_random_half(uint64_t *state, uint8_t *p) {
    const uint32_t r = g3t_random(state);
    uint32_t exponent = 6 + r % 8;
    if (r / 8 % 16 == 0)
        exponent = 0;
    const uint32_t mantissa = r / 128 % 8 == 0 ? 0 : g3t_random(state) & 1023u;
    const uint32_t bits = (g3t_random(state) & 1u) << 15 | exponent << 10 | mantissa;
    p[0] = (uint8_t)bits;
    p[1] = (uint8_t)(bits >> 8);
}

/* `count` elements of a row; the caller frees. */
static inline uint8_t *g3t_random_rows(g3_type type, size_t count, uint64_t seed) {
    const g3t_format f = g3t_format_of(type);
    const size_t bytes = count / f.elements * f.bytes;
    uint8_t *rows = malloc(bytes);
    if (!rows)
        abort();
    for (size_t i = 0; i < bytes; i++)
        rows[i] = (uint8_t)g3t_random(&seed);
    for (size_t at = 0; at < bytes; at += f.bytes) {
        if (f.first_half >= 0)
            g3t_random_half(&seed, rows + at + f.first_half);
        if (f.second_half >= 0)
            g3t_random_half(&seed, rows + at + f.second_half);
        if (type == G3_F32 || type == G3_BF16) {
            const float v = g3t_uniform(&seed);
            uint8_t bytes_of[4];
            memcpy(bytes_of, &v, 4);
            memcpy(rows + at, bytes_of + 4 - f.bytes, f.bytes); /* little endian: the upper end */
        }
    }
    return rows;
}

/* Bits [first, first + count) of bytes. */
static inline int g3t_bits(const uint8_t *p, size_t first, int count) {
    int v = 0;
    for (int i = 0; i < count; i++, first++)
        v |= (p[first / 8] >> first % 8 & 1) << i;
    return v;
}

/* Six-bit scale (which = 0) or minimum (1) of sub-block j in the 12 bytes of a
 * K block: 6 whole bits for the first four, 4 low and 2 high ones for the others. */
static inline int g3t_six(const uint8_t *s, int j, int which) {
    if (j < 4)
        return g3t_bits(s + 4 * which + j, 0, 6);
    return g3t_bits(s + 4 + j, (size_t)(4 * which), 4) + 16 * g3t_bits(s + 4 * which + j - 4, 6, 2);
}

/* Element i of one block. */
static inline double g3t_element(g3_type type, const uint8_t *p, size_t i) {
    const size_t nibble = i % 16 * 8 + i / 16 * 4; /* its first bit in qs of the small blocks */
    const int j = (int)(i / 32);
    const size_t l = i % 32;
    const size_t k_nibble = (i / 64 * 32 + l) * 8 + (size_t)(j % 2) * 4;
    switch (type) {
    case G3_F32: {
        float v;
        memcpy(&v, p, 4);
        return (double)v;
    }
    case G3_F16:
        return g3t_half(p);
    case G3_BF16: {
        const uint8_t wide[4] = {0, 0, p[0], p[1]};
        float v;
        memcpy(&v, wide, 4);
        return (double)v;
    }
    case G3_Q8_0:
        return g3t_half(p) * (p[2 + i] < 128 ? p[2 + i] : p[2 + i] - 256);
    case G3_Q4_0:
        return g3t_half(p) * (g3t_bits(p + 2, nibble, 4) - 8);
    case G3_Q4_1:
        return g3t_half(p) * g3t_bits(p + 4, nibble, 4) + g3t_half(p + 2);
    case G3_Q5_0:
        return g3t_half(p) * (g3t_bits(p + 6, nibble, 4) + 16 * g3t_bits(p + 2, i, 1) - 16);
    case G3_Q5_1:
        return g3t_half(p) * (g3t_bits(p + 8, nibble, 4) + 16 * g3t_bits(p + 4, i, 1)) +
               g3t_half(p + 2);
    case G3_Q4_K:
        return g3t_half(p) * g3t_six(p + 4, j, 0) * g3t_bits(p + 16, k_nibble, 4) -
               g3t_half(p + 2) * g3t_six(p + 4, j, 1);
    case G3_Q5_K:
        return g3t_half(p) * g3t_six(p + 4, j, 0) *
                   (g3t_bits(p + 48, k_nibble, 4) + 16 * g3t_bits(p + 16 + l, (size_t)j, 1)) -
               g3t_half(p + 2) * g3t_six(p + 4, j, 1);
    case G3_Q6_K: {
        const size_t t = i % 128 / 32; /* quarter of a half */
        const size_t low = (i / 128 * 64 + t % 2 * 32 + l) * 8 + t / 2 * 4;
        const size_t high = (i / 128 * 32 + l) * 8 + 2 * t;
        const int q = g3t_bits(p, low, 4) + 16 * g3t_bits(p + 128, high, 2) - 32;
        const int scale = p[192 + i / 16] < 128 ? p[192 + i / 16] : p[192 + i / 16] - 256;
        return g3t_half(p + 208) * scale * q;
    }
    }
    return 0.0;
}

/* Element i of a row. */
static inline double g3t_value(g3_type type, const uint8_t *row, size_t i) {
    const g3t_format f = g3t_format_of(type);
    return g3t_element(type, row + i / f.elements * f.bytes, i % f.elements);
}

/* 8 bits of x by the description in matrix.h; the scale of block b. */
static inline float g3t_quantise(const float *x, int q[32]) {
    float amax = 0.0f;
    for (int i = 0; i < 32; i++)
        amax = fmaxf(amax, fabsf(x[i]));
    for (int i = 0; i < 32; i++)
        q[i] = amax > 0.0f ? (int)nearbyintf(x[i] * (127.0f / amax)) : 0;
    return amax / 127.0f;
}

#endif
