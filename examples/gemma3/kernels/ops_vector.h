/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_OPS_VECTOR_H
#define GEMMA3_OPS_VECTOR_H

/* Vectors of float32 under one set of names, so that each kernel is written once
 * and compiled for AVX-512, AVX2 and plain C. The compiler's flags choose: a file
 * *_avx512.c sees 16 lanes, *_avx2.c 8, any other 4 (the compiler's own vectors:
 * SSE2, NEON or whatever the machine has).
 *
 * Arithmetic operators work on vec as they are. Of vec_max(a, b) and vec_min(a, b)
 * the second is the result where either is NaN. vec_fma rounds once where the
 * machine can and twice in plain C. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "matrix.h"
#include "ops.h"

#define VEC_INLINE static inline __attribute__((always_inline))

/* Loops over registers must vanish: an array that is indexed at run time lives in
 * memory. */
#if defined(__clang__)
#define VEC_UNROLL _Pragma("clang loop unroll(full)")
#else
#define VEC_UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include "ops_vector_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "ops_vector_avx2.h"
#else
#include "ops_vector_plain.h"
#endif

/* Element `index` of a cache row, as vectors and as the end of a row (lanes from
 * `count` on are 0). */
VEC_INLINE vec vec_load_kv(g3_kv_type type, const void *row, size_t index) {
    if (type == G3_KV_F16)
        return vec_load_half((const uint16_t *)row + index);
    return vec_load((const float *)row + index);
}

VEC_INLINE vec vec_load_kv_part(g3_kv_type type, const void *row, size_t index, size_t count) {
    if (type == G3_KV_F16) {
        uint16_t halves[VEC_LANES] = {0};
        memcpy(halves, (const uint16_t *)row + index, count * sizeof *halves);
        return vec_load_half(halves);
    }
    return vec_load_part((const float *)row + index, count);
}

VEC_INLINE float vec_first(vec x) { return x[0]; }

/* exp(high + low) within 1.5e-7 of its value; low is a small correction. 0 below
 * -104, infinite above 88.73, subnormal results in between are rounded; NaN stays.
 *
 * n = round(x / ln 2); ln 2 is split so that n times its first part is exact; the
 * polynomial of the rest is a minimax fit to 4e-9 made for this file. */
VEC_INLINE vec vec_exp_sum(vec high, vec low) {
    vec x = vec_max(vec_set1(-110.0f), vec_min(vec_set1(90.0f), high));
    vec n = vec_round(x * vec_set1(0x1.715476p+0f));
    vec r = vec_fma(n, vec_set1(-0.693359375f), x);
    r = vec_fma(n, vec_set1(0x1.bd0106p-13f), r) + low;
    vec q = vec_fma(r, vec_set1(0x1.6a23ccp-10f), vec_set1(0x1.123a20p-7f));
    q = vec_fma(q, r, vec_set1(0x1.5558f2p-5f));
    q = vec_fma(q, r, vec_set1(0x1.555492p-3f));
    q = vec_fma(q, r, vec_set1(0x1.fffffcp-2f));
    vec p = vec_fma(r * r, q, r) + vec_set1(1.0f);
    return vec_scale_power(p, n);
}

VEC_INLINE vec vec_exp(vec x) { return vec_exp_sum(x, vec_set1(0.0f)); }

/* The tanh form of GELU: x / (1 + exp(-2 u)), u = sqrt(2/pi) (x + 0.044715 x^3).
 * The exponent is formed in two floats: rounded to one, an exponent of 20 would be
 * off by 1e-6, and so would the result. */
VEC_INLINE vec vec_gelu(vec x) {
    const vec c1 = vec_set1(0x1.988454p+0f), c1_low = vec_set1(-0x1.857936p-25f);
    const vec c3 = vec_set1(0x1.2444f2p-4f), c3_low = vec_set1(0x1.49b16ap-29f);
    vec t = vec_max(vec_set1(-12.0f), vec_min(vec_set1(12.0f), x));
    vec square = t * t;
    vec square_low = vec_mul_error(t, t, square);
    vec cubic = c3 * square;
    vec cubic_low = vec_mul_error(c3, square, cubic) + c3 * square_low + c3_low * square;
    vec w = c1 + cubic;
    vec back = w - c1;
    vec w_low = (c1 - (w - back)) + (cubic - back) + cubic_low + c1_low;
    vec u = t * w;
    vec u_low = vec_mul_error(t, w, u) + t * w_low;
    vec zero = vec_set1(0.0f);
    return x / (vec_set1(1.0f) + vec_exp_sum(zero - u, zero - u_low));
}

#endif
