/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_OPS_VECTOR_AVX512_H
#define GEMMA3_OPS_VECTOR_AVX512_H

/* The part of ops_vector.h for AVX-512; only ops_vector.h includes it. */

#include <immintrin.h>

#define VEC_LANES 16
typedef __m512 vec;

VEC_INLINE vec vec_set1(float x) { return _mm512_set1_ps(x); }
VEC_INLINE vec vec_load(const float *p) { return _mm512_loadu_ps(p); }
VEC_INLINE void vec_store(float *p, vec x) { _mm512_storeu_ps(p, x); }

/* The first `count` lanes, count <= VEC_LANES; the others are 0 and not touched. */
VEC_INLINE __mmask16 vec_mask(size_t count) { return (__mmask16)((1u << count) - 1u); }
VEC_INLINE vec vec_load_part(const float *p, size_t count) {
    return _mm512_maskz_loadu_ps(vec_mask(count), p);
}
VEC_INLINE void vec_store_part(float *p, vec x, size_t count) {
    _mm512_mask_storeu_ps(p, vec_mask(count), x);
}

/* x in lanes [begin, end), `other` elsewhere. */
VEC_INLINE vec vec_keep(vec x, vec other, size_t begin, size_t end) {
    return _mm512_mask_blend_ps((__mmask16)(vec_mask(end) & ~vec_mask(begin)), other, x);
}

VEC_INLINE vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
/* a * b - product, exact when product is a * b rounded. */
VEC_INLINE vec vec_mul_error(vec a, vec b, vec product) { return _mm512_fmsub_ps(a, b, product); }
VEC_INLINE vec vec_max(vec a, vec b) { return _mm512_max_ps(a, b); }
VEC_INLINE vec vec_min(vec a, vec b) { return _mm512_min_ps(a, b); }
VEC_INLINE vec vec_round(vec x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* x * 2^n, n whole and in [-160, 130]. */
VEC_INLINE vec vec_scale_power(vec x, vec n) { return _mm512_scalef_ps(x, n); }

/* Across lanes, always in the same order. */
VEC_INLINE float vec_sum(vec x) { return _mm512_reduce_add_ps(x); }
VEC_INLINE float vec_largest(vec x) { return _mm512_reduce_max_ps(x); }

VEC_INLINE vec vec_load_half(const uint16_t *p) {
    __m256i halves;
    memcpy(&halves, p, sizeof halves);
    return _mm512_cvtph_ps(halves);
}
VEC_INLINE void vec_store_half(uint16_t *p, vec x) {
    __m256i halves = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    memcpy(p, &halves, sizeof halves);
}

/* rows[i] lane j <-> rows[j] lane i. */
VEC_INLINE void vec_transpose(vec rows[VEC_LANES]) {
    vec a[VEC_LANES], b[VEC_LANES];
    VEC_UNROLL
    for (int i = 0; i < 16; i += 2) { /* pairs of rows */
        a[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    VEC_UNROLL
    for (int i = 0; i < 16; i += 4) { /* fours: b[i + c] has column c of every 128 bits */
        b[i] = (vec)_mm512_unpacklo_pd((__m512d)a[i], (__m512d)a[i + 2]);
        b[i + 1] = (vec)_mm512_unpackhi_pd((__m512d)a[i], (__m512d)a[i + 2]);
        b[i + 2] = (vec)_mm512_unpacklo_pd((__m512d)a[i + 1], (__m512d)a[i + 3]);
        b[i + 3] = (vec)_mm512_unpackhi_pd((__m512d)a[i + 1], (__m512d)a[i + 3]);
    }
    VEC_UNROLL
    for (int c = 0; c < 4; c++) {
        vec low = _mm512_shuffle_f32x4(b[c], b[c + 4], 0x44);
        vec high = _mm512_shuffle_f32x4(b[c], b[c + 4], 0xee);
        vec low2 = _mm512_shuffle_f32x4(b[c + 8], b[c + 12], 0x44);
        vec high2 = _mm512_shuffle_f32x4(b[c + 8], b[c + 12], 0xee);
        rows[c] = _mm512_shuffle_f32x4(low, low2, 0x88);
        rows[c + 4] = _mm512_shuffle_f32x4(low, low2, 0xdd);
        rows[c + 8] = _mm512_shuffle_f32x4(high, high2, 0x88);
        rows[c + 12] = _mm512_shuffle_f32x4(high, high2, 0xdd);
    }
}

#endif
