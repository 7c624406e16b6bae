/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_OPS_VECTOR_PLAIN_H
#define GEMMA3_OPS_VECTOR_PLAIN_H

/* The part of ops_vector.h for any machine: four lanes of the compiler's own vector
 * type; only ops_vector.h includes it. Comments on what the functions do are in
 * ops_vector_avx512.h. */

#define VEC_LANES 4
typedef float vec __attribute__((vector_size(16)));
typedef uint32_t vec_bits __attribute__((vector_size(16)));

VEC_INLINE vec vec_set1(float x) { return (vec){x, x, x, x}; }
VEC_INLINE vec vec_load(const float *p) {
    vec x;
    memcpy(&x, p, sizeof x);
    return x;
}
VEC_INLINE void vec_store(float *p, vec x) { memcpy(p, &x, sizeof x); }
VEC_INLINE vec vec_load_part(const float *p, size_t count) {
    vec x = vec_set1(0.0f);
    for (size_t i = 0; i < VEC_LANES && i < count; i++)
        x[i] = p[i];
    return x;
}
VEC_INLINE void vec_store_part(float *p, vec x, size_t count) {
    for (size_t i = 0; i < VEC_LANES && i < count; i++)
        p[i] = x[i];
}

VEC_INLINE vec vec_choose(vec_bits mask, vec yes, vec no) {
    return (vec)(((vec_bits)yes & mask) | ((vec_bits)no & ~mask));
}
VEC_INLINE vec vec_keep(vec x, vec other, size_t begin, size_t end) {
    const vec_bits lane = {0, 1, 2, 3};
    const uint32_t b = (uint32_t)begin, e = (uint32_t)end;
    vec_bits inside =
        (vec_bits)(lane >= (vec_bits){b, b, b, b}) & (vec_bits)(lane < (vec_bits){e, e, e, e});
    return vec_choose(inside, x, other);
}

VEC_INLINE vec vec_fma(vec a, vec b, vec c) { return a * b + c; }
/* The product of two floats is exact in double. */
VEC_INLINE vec vec_mul_error(vec a, vec b, vec product) {
    vec error;
    for (int i = 0; i < VEC_LANES; i++)
        error[i] = (float)((double)a[i] * (double)b[i] - (double)product[i]);
    return error;
}
VEC_INLINE vec vec_max(vec a, vec b) { return vec_choose((vec_bits)(a > b), a, b); }
VEC_INLINE vec vec_min(vec a, vec b) { return vec_choose((vec_bits)(a < b), a, b); }
/* |x| below 2^22: the sum with 1.5 * 2^23 has no bits for a fraction. */
VEC_INLINE vec vec_round(vec x) {
    const vec magic = vec_set1(0x1.8p23f);
    return (x + magic) - magic;
}
/* n as an integer is in the low bits of the same sum, which a NaN only makes wrong. */
VEC_INLINE vec vec_scale_power(vec x, vec n) {
    const vec magic = vec_set1(0x1.8p23f);
    vec_bits whole = (vec_bits)(n + magic) - (vec_bits)magic + 512u; /* above 0 */
    vec_bits half = whole >> 1;
    vec_bits rest = whole - half;
    vec a = (vec)((half - 256u + 127u) << 23);
    vec b = (vec)((rest - 256u + 127u) << 23);
    return x * a * b;
}

VEC_INLINE float vec_sum(vec x) { return (x[0] + x[2]) + (x[1] + x[3]); }
VEC_INLINE float vec_largest(vec x) {
    float a = x[0] > x[1] ? x[0] : x[1];
    float b = x[2] > x[3] ? x[2] : x[3];
    return a > b ? a : b;
}

VEC_INLINE vec vec_load_half(const uint16_t *p) {
    vec x;
    for (int i = 0; i < VEC_LANES; i++)
        x[i] = g3_half_to_float(p[i]);
    return x;
}
VEC_INLINE void vec_store_half(uint16_t *p, vec x) {
    for (int i = 0; i < VEC_LANES; i++)
        p[i] = g3_float_to_half(x[i]);
}

VEC_INLINE void vec_transpose(vec rows[VEC_LANES]) {
    for (int i = 0; i < VEC_LANES; i++)
        for (int j = 0; j < i; j++) {
            float x = rows[i][j];
            rows[i][j] = rows[j][i];
            rows[j][i] = x;
        }
}

#endif
