/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_OPS_H
#define GEMMA3_OPS_H

/* The operations between the matrix products, on the CPU, float32, row-major.
 * Each row of a result depends on its own input row only, bit for bit, whatever
 * n and the number of threads are. in and out may be the same where not said
 * otherwise. Run-time choice of AVX-512, AVX2 or scalar as in matrix.h. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* out[i] = x[i] * rsqrt(mean(x[i]^2) + eps) * weight, rows of `width`; weight
 * already holds the 1. x_stride and out_stride in floats. */
void g3_rms_norm(const float *x, size_t x_stride, size_t n, uint32_t width, const float *weight,
                 float eps, float *out, size_t out_stride);

/* residual[i] += rms_norm(x[i]): the norm after attention and feed-forward. */
void g3_rms_norm_add(const float *x, size_t n, uint32_t width, const float *weight, float eps,
                     float *residual);

/* (x - mean) / sqrt(variance + eps) * weight + bias. */
void g3_layer_norm(const float *x, size_t n, uint32_t width, const float *weight, const float *bias,
                   float eps, float *out);

void g3_scale(float *x, size_t count, float factor);
void g3_add(float *x, const float *y, size_t count);                     /* x += y */
void g3_add_bias(float *x, size_t n, uint32_t width, const float *bias); /* every row */

/* tanh form. g3_gelu: x = gelu(x). g3_gelu_mul: gate = gelu(gate) * up. */
void g3_gelu(float *x, size_t count);
void g3_gelu_mul(float *gate, const float *up, size_t count);

/* Rotation tables for positions [first, first + n): out is [n][head_dim], the
 * cosines of head_dim / 2 angles, then the sines. The angle of pair i is
 * position / factor * base^(-2 i / head_dim); the frequency is formed as the
 * reference does in float32 arithmetic: inv = 1 / base^(2 i / head_dim) in
 * float32, divided by factor, times the position in float32. */
void g3_rope_table(uint32_t head_dim, double base, double factor, size_t first, size_t n,
                   float *out);

/* Norm over each head and rotation, in place: x is [n][heads][head_dim] with
 * x_stride floats between rows; half-split pairs (i, i + head_dim / 2). weight
 * may be NULL: no norm. */
void g3_head_norm_rope(float *x, size_t x_stride, size_t n, uint32_t heads, uint32_t head_dim,
                       const float *weight, float eps, const float *table);

typedef enum g3_kv_type { G3_KV_F32 = 0, G3_KV_F16 = 1 } g3_kv_type;
size_t g3_kv_element_bytes(g3_kv_type type);
/* Stores rows of float32 as cache elements; dst_stride in bytes. */
void g3_kv_store(g3_kv_type type, const float *src, size_t src_stride, size_t n, uint32_t width,
                 void *dst, size_t dst_stride);

/* Keys and values by position. Position p below `split` lies in the old part at
 * slot p % old_slots, others in the fresh part at slot p - split. Both hold
 * kv_heads * head_dim elements a row; strides in bytes. */
typedef struct g3_kv_view {
    g3_kv_type type;
    uint32_t kv_heads;
    uint32_t head_dim;
    const void *old_keys, *old_values;
    size_t old_stride;
    size_t old_slots; /* a ring of the window, or more than any position */
    const void *new_keys, *new_values;
    size_t new_stride;
    size_t split;
} g3_kv_view;

/* Attention of n queries: out[i][h] = sum_p softmax_p(q[i][h] . k[p] * scale) v[p]
 * over the positions low[i] <= p < high[i] (never empty). q and out are
 * [n][heads][head_dim] and may not overlap; query head h reads kv head
 * h / (heads / kv_heads). Softmax in float32 with the maximum taken out. The
 * result of a query does not depend on n. scratch: g3_attention_bytes, 64-byte
 * aligned. */
size_t g3_attention_bytes(size_t n, uint32_t heads, uint32_t head_dim, size_t longest);
void g3_attention(const float *q, size_t n, uint32_t heads, float scale, const g3_kv_view *kv,
                  const size_t *low, const size_t *high, float *out, void *scratch);

/* Patches of a picture [3][side][side] as rows of 3 * patch * patch (channel, then
 * y, then x): what a convolution with stride = kernel multiplies. */
void g3_patches(const float *pixels, uint32_t side, uint32_t patch, float *out);

/* Mean over k x k cells of a grid [side][side][width] -> [side/k][side/k][width]. */
void g3_pool_grid(const float *x, uint32_t side, uint32_t k, uint32_t width, float *out);

/* Index of the largest of the first `count` values; the lowest of equals. NaN
 * loses. */
size_t g3_argmax(const float *x, size_t count);

#endif
