/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_OPS_VECTOR_AVX2_H
#define GEMMA3_OPS_VECTOR_AVX2_H

/* The part of ops_vector.h for AVX2 with FMA and F16C; only ops_vector.h includes
 * it. Comments on what the functions do are in ops_vector_avx512.h. */

#include <immintrin.h>

#define VEC_LANES 8
typedef __m256 vec;

VEC_INLINE vec vec_set1(float x) { return _mm256_set1_ps(x); }
VEC_INLINE vec vec_load(const float *p) { return _mm256_loadu_ps(p); }
VEC_INLINE void vec_store(float *p, vec x) { _mm256_storeu_ps(p, x); }

/* All bits in the first `count` lanes. */
VEC_INLINE __m256i vec_mask(size_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
VEC_INLINE vec vec_load_part(const float *p, size_t count) {
    return _mm256_maskload_ps(p, vec_mask(count));
}
VEC_INLINE void vec_store_part(float *p, vec x, size_t count) {
    _mm256_maskstore_ps(p, vec_mask(count), x);
}

VEC_INLINE vec vec_keep(vec x, vec other, size_t begin, size_t end) {
    __m256i inside = _mm256_andnot_si256(vec_mask(begin), vec_mask(end));
    return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(inside));
}

VEC_INLINE vec vec_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
VEC_INLINE vec vec_mul_error(vec a, vec b, vec product) { return _mm256_fmsub_ps(a, b, product); }
VEC_INLINE vec vec_max(vec a, vec b) { return _mm256_max_ps(a, b); }
VEC_INLINE vec vec_min(vec a, vec b) { return _mm256_min_ps(a, b); }
VEC_INLINE vec vec_round(vec x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* In two steps: 2^n itself may be too large or too small for a float. */
VEC_INLINE vec vec_scale_power(vec x, vec n) {
    __m256i whole = _mm256_cvtps_epi32(n);
    __m256i half = _mm256_srai_epi32(whole, 1);
    __m256i rest = _mm256_sub_epi32(whole, half);
    const __m256i bias = _mm256_set1_epi32(127);
    vec a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    vec b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return x * a * b;
}

VEC_INLINE float vec_sum(vec x) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
VEC_INLINE float vec_largest(vec x) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

VEC_INLINE vec vec_load_half(const uint16_t *p) {
    __m128i halves;
    memcpy(&halves, p, sizeof halves);
    return _mm256_cvtph_ps(halves);
}
VEC_INLINE void vec_store_half(uint16_t *p, vec x) {
    __m128i halves = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    memcpy(p, &halves, sizeof halves);
}

VEC_INLINE void vec_transpose(vec rows[VEC_LANES]) {
    vec a[VEC_LANES], b[VEC_LANES];
    VEC_UNROLL
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    VEC_UNROLL
    for (int i = 0; i < 8; i += 4) {
        b[i] = (vec)_mm256_unpacklo_pd((__m256d)a[i], (__m256d)a[i + 2]);
        b[i + 1] = (vec)_mm256_unpackhi_pd((__m256d)a[i], (__m256d)a[i + 2]);
        b[i + 2] = (vec)_mm256_unpacklo_pd((__m256d)a[i + 1], (__m256d)a[i + 3]);
        b[i + 3] = (vec)_mm256_unpackhi_pd((__m256d)a[i + 1], (__m256d)a[i + 3]);
    }
    VEC_UNROLL
    for (int c = 0; c < 4; c++) {
        rows[c] = _mm256_permute2f128_ps(b[c], b[c + 4], 0x20);
        rows[c + 4] = _mm256_permute2f128_ps(b[c], b[c + 4], 0x31);
    }
}

#endif
