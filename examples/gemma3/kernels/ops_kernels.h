/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_OPS_KERNELS_H
#define GEMMA3_OPS_KERNELS_H

/* One thread's work of each operation, in one version for each instruction set;
 * ops.c divides the work and calls them. Shapes are those of ops.h. */

#include "ops.h"

typedef struct g3_ops_kernels {
    /* One row; add: out += the normed row. */
    void (*rms_norm)(const float *x, uint32_t width, const float *weight, float eps, bool add,
                     float *out);
    void (*layer_norm)(const float *x, uint32_t width, const float *weight, const float *bias,
                       float eps, float *out);
    void (*scale)(float *x, size_t count, float factor);
    void (*add)(float *x, const float *y, size_t count);
    /* up may be NULL. */
    void (*gelu)(float *x, const float *up, size_t count);
    /* One head, weight may be NULL; table: the cosines, then the sines. */
    void (*head_norm_rope)(float *x, uint32_t head_dim, const float *weight, float eps,
                           const float *table);
    void (*store_half)(const float *src, size_t count, uint16_t *dst);
    void (*pool_cell)(const float *x, uint32_t side, uint32_t k, uint32_t width, float *out);
    float (*largest)(const float *x, size_t count); /* NaN is left out; -inf of none */
} g3_ops_kernels;

extern const g3_ops_kernels g3_ops_scalar;
#if defined(__x86_64__)
extern const g3_ops_kernels g3_ops_avx2;
extern const g3_ops_kernels g3_ops_avx512;
#endif

#endif
