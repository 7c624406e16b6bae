/* SPDX-License-Identifier: MIT */
/* The operations: how the work is divided. Threads take whole rows, or pieces of
 * fixed size of what has no rows, so results do not depend on their number. A
 * parallel region costs some microseconds: small work, as in decoding, stays on
 * the calling thread. */

#include "ops.h"

#include <math.h>
#include <string.h>

#include "matrix.h"
#include "ops_kernels.h"

enum {
    PARALLEL_FLOATS = 1 << 16,       /* of simple arithmetic: about 10 us */
    PARALLEL_EXPONENTIALS = 1 << 14, /* of gelu */
    PIECE = 1 << 13
};

static const g3_ops_kernels *kernels(void) {
#if defined(__x86_64__)
    switch (g3_isa_current()) {
    case G3_ISA_AVX512:
        return &g3_ops_avx512;
    case G3_ISA_AVX2:
        return &g3_ops_avx2;
    case G3_ISA_SCALAR:
        break;
    }
#endif
    return &g3_ops_scalar;
}

void g3_rms_norm(const float *x, size_t x_stride, size_t n, uint32_t width, const float *weight,
                 float eps, float *out, size_t out_stride) {
    const g3_ops_kernels *k = kernels();
#pragma omp parallel for if (n > 1 && n * width >= PARALLEL_FLOATS)
    for (size_t i = 0; i < n; i++)
        k->rms_norm(x + i * x_stride, width, weight, eps, false, out + i * out_stride);
}

void g3_rms_norm_add(const float *x, size_t n, uint32_t width, const float *weight, float eps,
                     float *residual) {
    const g3_ops_kernels *k = kernels();
#pragma omp parallel for if (n > 1 && n * width >= PARALLEL_FLOATS)
    for (size_t i = 0; i < n; i++)
        k->rms_norm(x + i * width, width, weight, eps, true, residual + i * width);
}

void g3_layer_norm(const float *x, size_t n, uint32_t width, const float *weight, const float *bias,
                   float eps, float *out) {
    const g3_ops_kernels *k = kernels();
#pragma omp parallel for if (n > 1 && n * width >= PARALLEL_FLOATS)
    for (size_t i = 0; i < n; i++)
        k->layer_norm(x + i * width, width, weight, bias, eps, out + i * width);
}

static size_t piece_length(size_t begin, size_t count) {
    return count - begin < PIECE ? count - begin : PIECE;
}

void g3_scale(float *x, size_t count, float factor) {
    const g3_ops_kernels *k = kernels();
#pragma omp parallel for if (count >= PARALLEL_FLOATS)
    for (size_t i = 0; i < count; i += PIECE)
        k->scale(x + i, piece_length(i, count), factor);
}

void g3_add(float *x, const float *y, size_t count) {
    const g3_ops_kernels *k = kernels();
#pragma omp parallel for if (count >= PARALLEL_FLOATS)
    for (size_t i = 0; i < count; i += PIECE)
        k->add(x + i, y + i, piece_length(i, count));
}

void g3_add_bias(float *x, size_t n, uint32_t width, const float *bias) {
    const g3_ops_kernels *k = kernels();
#pragma omp parallel for if (n > 1 && n * width >= PARALLEL_FLOATS)
    for (size_t i = 0; i < n; i++)
        k->add(x + i * width, bias, width);
}

void g3_gelu(float *x, size_t count) {
    const g3_ops_kernels *k = kernels();
#pragma omp parallel for if (count >= PARALLEL_EXPONENTIALS)
    for (size_t i = 0; i < count; i += PIECE)
        k->gelu(x + i, NULL, piece_length(i, count));
}

void g3_gelu_mul(float *gate, const float *up, size_t count) {
    const g3_ops_kernels *k = kernels();
#pragma omp parallel for if (count >= PARALLEL_EXPONENTIALS)
    for (size_t i = 0; i < count; i += PIECE)
        k->gelu(gate + i, up + i, piece_length(i, count));
}

/* The reference's tensors are float32 at every step; its own float32 pow is within
 * one unit of the one here, which rounds a double. The angle is a float32 too (of
 * up to 131072 radians); its cosine is that of the rounded angle, taken in double,
 * whose range reduction is exact enough for any float. */
void g3_rope_table(uint32_t head_dim, double base, double factor, size_t first, size_t n,
                   float *out) {
    enum { MOST = 256 };
    float frequency[MOST];
    const size_t half = head_dim / 2;
    for (size_t begin = 0; begin < half; begin += MOST) {
        const size_t count = half - begin < MOST ? half - begin : MOST;
        for (size_t i = 0; i < count; i++) {
            float exponent = (float)(2 * (begin + i)) / (float)head_dim;
            frequency[i] = 1.0f / (float)pow(base, (double)exponent) / (float)factor;
        }
#pragma omp parallel for if (n * count >= 1024)
        for (size_t p = 0; p < n; p++) {
            float *row = out + p * head_dim + begin;
            for (size_t i = 0; i < count; i++) {
                double angle = (double)((float)(first + p) * frequency[i]);
                row[i] = (float)cos(angle);
                row[half + i] = (float)sin(angle);
            }
        }
    }
}

void g3_head_norm_rope(float *x, size_t x_stride, size_t n, uint32_t heads, uint32_t head_dim,
                       const float *weight, float eps, const float *table) {
    const g3_ops_kernels *k = kernels();
#pragma omp parallel for if (n > 1 && n * heads * head_dim >= PARALLEL_FLOATS)
    for (size_t i = 0; i < n; i++)
        for (size_t h = 0; h < heads; h++)
            k->head_norm_rope(x + i * x_stride + h * head_dim, head_dim, weight, eps,
                              table + i * head_dim);
}

size_t g3_kv_element_bytes(g3_kv_type type) { return type == G3_KV_F16 ? 2 : 4; }

void g3_kv_store(g3_kv_type type, const float *src, size_t src_stride, size_t n, uint32_t width,
                 void *dst, size_t dst_stride) {
    const g3_ops_kernels *k = kernels();
#pragma omp parallel for if (n > 1 && n * width >= PARALLEL_FLOATS)
    for (size_t i = 0; i < n; i++) {
        char *row = (char *)dst + i * dst_stride;
        if (type == G3_KV_F16)
            k->store_half(src + i * src_stride, width, (uint16_t *)(void *)row);
        else
            memcpy(row, src + i * src_stride, width * sizeof(float));
    }
}

void g3_patches(const float *pixels, uint32_t side, uint32_t patch, float *out) {
    const size_t across = side / patch, cells = (size_t)patch * patch;
#pragma omp parallel for if ((size_t)side * side >= PARALLEL_FLOATS)
    for (size_t i = 0; i < across * across; i++) {
        const size_t top = i / across * patch, left = i % across * patch;
        for (size_t c = 0; c < 3; c++)
            for (size_t y = 0; y < patch; y++)
                memcpy(out + (i * 3 + c) * cells + y * patch,
                       pixels + (c * side + top + y) * side + left, patch * sizeof(float));
    }
}

void g3_pool_grid(const float *x, uint32_t side, uint32_t k, uint32_t width, float *out) {
    const g3_ops_kernels *kernel = kernels();
    const size_t across = side / k;
#pragma omp parallel for if ((size_t)side * side * width >= PARALLEL_FLOATS)
    for (size_t i = 0; i < across * across; i++) {
        const size_t top = i / across * k, left = i % across * k;
        kernel->pool_cell(x + (top * side + left) * width, side, k, width, out + i * width);
    }
}

size_t g3_argmax(const float *x, size_t count) {
    const float best = kernels()->largest(x, count);
    for (size_t i = 0; i < count; i++)
        if (x[i] == best)
            return i;
    return 0;
}
