/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_MATRIX_UNPACK_AVX512_H
#define GEMMA3_MATRIX_UNPACK_AVX512_H

/* 32 columns of a row group as vectors, for every block type. Everything here is
 * inlined with a constant type and sub-block, so that no choice is left at run
 * time. */

#include <immintrin.h>

#include "matrix_layout.h"

#define G3_INLINE static inline __attribute__((always_inline))

/* w[g]: row r's 32-bit lane holds columns 4g .. 4g + 3, as unsigned numbers. Value
 * = scale[0] * (w - middle) or, for types with a minimum, scale[0] * w + minimum.
 * Q6_K: scale[0] for w[0..3], scale[1] for w[4..7]. */
typedef struct g3_unpacked {
    __m512i w[8];
    __m512 scale[2];
    __m512 minimum;
} g3_unpacked;

/* The number that stands for 0. */
G3_INLINE int g3_middle(g3_type type) { return 128 >> g3_bias_shift(type); }

G3_INLINE __m512i g3_load512(const uint8_t *p) { return _mm512_loadu_si512((const void *)p); }
G3_INLINE __m128i g3_load128(const uint8_t *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}
G3_INLINE __m512 g3_halves(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* a | (b & mask) */
G3_INLINE __m512i g3_or_masked(__m512i a, __m512i b, __m512i mask) {
    return _mm512_ternarylogic_epi32(a, b, mask, 0xf8);
}

G3_INLINE void g3_unpack_q8_0(const uint8_t *p, g3_unpacked *u) {
    u->scale[0] = g3_halves(p);
    for (int g = 0; g < 8; g++)
        u->w[g] = _mm512_xor_si512(g3_load512(p + 32 + 64 * g), _mm512_set1_epi8(-128));
}

/* Q4_0, Q4_1, Q5_0, Q5_1. */
G3_INLINE void g3_unpack_nibbles(g3_type type, const uint8_t *p, g3_unpacked *u) {
    const __m512i low_bits = _mm512_set1_epi8(15), fifth = _mm512_set1_epi8(16);
    u->scale[0] = g3_halves(p);
    p += 32;
    if (g3_has_minimum(type)) {
        u->minimum = g3_halves(p);
        p += 32;
    }
    const int five = type == G3_Q5_0 || type == G3_Q5_1;
    __m512i qh = _mm512_setzero_si512();
    if (five) {
        qh = g3_load512(p);
        p += 64;
    }
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        const __m512i v = g3_load512(p + 64 * g);
        u->w[g] = _mm512_and_si512(v, low_bits);
        u->w[g + 4] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low_bits);
        if (five) {
            u->w[g] = g3_or_masked(u->w[g], _mm512_slli_epi16(qh, 4 - g), fifth);
            u->w[g + 4] = g3_or_masked(u->w[g + 4], _mm512_srli_epi16(qh, g), fifth);
        }
    }
}

G3_INLINE __m512 g3_bytes_as_floats(__m128i bytes) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

/* Sub-block j of Q4_K or Q5_K. */
G3_INLINE void g3_unpack_q45_k(g3_type type, const uint8_t *p, int j, g3_unpacked *u) {
    const uint8_t *s = p + 64;
    const __m128i six = _mm_set1_epi8(63), four = _mm_set1_epi8(15), top = _mm_set1_epi8(48);
    __m128i scale, minimum;
    if (j < 4) {
        scale = _mm_and_si128(g3_load128(s + 16 * j), six);
        minimum = _mm_and_si128(g3_load128(s + 16 * (j + 4)), six);
    } else {
        const __m128i both = g3_load128(s + 16 * (j + 4));
        const __m128i of_scale = _mm_srli_epi16(g3_load128(s + 16 * (j - 4)), 2);
        const __m128i of_minimum = _mm_srli_epi16(g3_load128(s + 16 * j), 2);
        scale = _mm_or_si128(_mm_and_si128(both, four), _mm_and_si128(of_scale, top));
        minimum = _mm_or_si128(_mm_and_si128(_mm_srli_epi16(both, 4), four),
                               _mm_and_si128(of_minimum, top));
    }
    u->scale[0] = _mm512_mul_ps(g3_halves(p), g3_bytes_as_floats(scale));
    const __m512 dmin = _mm512_mul_ps(g3_halves(p + 32), g3_bytes_as_floats(minimum));
    u->minimum = _mm512_xor_ps(dmin, _mm512_set1_ps(-0.0f));
    const int five = type == G3_Q5_K;
    const uint8_t *qh = p + 64 + 192;
    const uint8_t *qs = (five ? qh + 512 : qh) + 512 * (j / 2);
    const __m512i low_bits = _mm512_set1_epi8(15), fifth = _mm512_set1_epi8(16);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        __m512i v = g3_load512(qs + 64 * g);
        if (j % 2)
            v = _mm512_srli_epi16(v, 4);
        v = _mm512_and_si512(v, low_bits);
        if (five) {
            const __m512i h = g3_load512(qh + 64 * g);
            v = g3_or_masked(v,
                             j < 4 ? _mm512_slli_epi16(h, (unsigned)(4 - j) & 7u)
                                   : _mm512_srli_epi16(h, (unsigned)(j - 4) & 7u),
                             fifth);
        }
        u->w[g] = v;
    }
}

/* Columns 32 j .. 32 j + 31 of Q6_K. */
G3_INLINE void g3_unpack_q6_k(const uint8_t *p, int j, g3_unpacked *u) {
    const int half = j / 4, t = j % 4;
    const __m512 d = g3_halves(p);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const __m128i sc = g3_load128(p + 32 + 16 * (2 * j + i));
        u->scale[i] = _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sc)));
    }
    const uint8_t *ql = p + 288 + 512 * (2 * half + t % 2);
    const uint8_t *qh = p + 288 + 2048 + 512 * half;
    const __m512i low_bits = _mm512_set1_epi8(15), high_bits = _mm512_set1_epi8(48);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        __m512i v = g3_load512(ql + 64 * g);
        if (t >= 2)
            v = _mm512_srli_epi16(v, 4);
        v = _mm512_and_si512(v, low_bits);
        const __m512i h = g3_load512(qh + 64 * g);
        u->w[g] = g3_or_masked(v,
                               t < 2 ? _mm512_slli_epi16(h, (unsigned)(4 - 2 * t) & 7u)
                                     : _mm512_srli_epi16(h, (unsigned)(2 * t - 4) & 7u),
                               high_bits);
    }
}

/* Columns 32 j of the block at p. */
G3_INLINE void g3_unpack(g3_type type, const uint8_t *p, int j, g3_unpacked *u) {
    if (type == G3_Q8_0)
        g3_unpack_q8_0(p, u);
    else if (type == G3_Q4_K || type == G3_Q5_K)
        g3_unpack_q45_k(type, p, j, u);
    else if (type == G3_Q6_K)
        g3_unpack_q6_k(p, j, u);
    else
        g3_unpack_nibbles(type, p, u);
}

#endif
