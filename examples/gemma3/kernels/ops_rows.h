/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_OPS_ROWS_H
#define GEMMA3_OPS_ROWS_H

/* The kernels of ops_kernels.h in terms of ops_vector.h. Included once by each file
 * that gives them to an instruction set. An element's result does not depend on its
 * place in a vector: ends of rows go through the same arithmetic. */

#include <math.h>

#include "ops_kernels.h"
#include "ops_vector.h"

static float sum_of_squares(const float *x, uint32_t width, float mean) {
    const vec middle = vec_set1(mean);
    vec sum[4] = {vec_set1(0.0f), vec_set1(0.0f), vec_set1(0.0f), vec_set1(0.0f)};
    size_t i = 0;
    for (; i + 4 * VEC_LANES <= width; i += 4 * VEC_LANES) {
        VEC_UNROLL
        for (int j = 0; j < 4; j++) {
            vec d = vec_load(x + i + j * VEC_LANES) - middle;
            sum[j] = vec_fma(d, d, sum[j]);
        }
    }
    for (; i < width; i += VEC_LANES) {
        size_t left = width - i < VEC_LANES ? width - i : VEC_LANES;
        vec d = vec_keep(vec_load_part(x + i, left) - middle, vec_set1(0.0f), 0, left);
        sum[0] = vec_fma(d, d, sum[0]);
    }
    return vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static float sum_of(const float *x, uint32_t width) {
    vec sum[2] = {vec_set1(0.0f), vec_set1(0.0f)};
    size_t i = 0;
    for (; i + 2 * VEC_LANES <= width; i += 2 * VEC_LANES) {
        sum[0] += vec_load(x + i);
        sum[1] += vec_load(x + i + VEC_LANES);
    }
    for (; i < width; i += VEC_LANES)
        sum[0] += vec_load_part(x + i, width - i < VEC_LANES ? width - i : VEC_LANES);
    return vec_sum(sum[0] + sum[1]);
}

static void rms_norm(const float *x, uint32_t width, const float *weight, float eps, bool add,
                     float *out) {
    float mean = sum_of_squares(x, width, 0.0f) / (float)width;
    const vec factor = vec_set1(1.0f / sqrtf(mean + eps));
    size_t i = 0;
    for (; i + VEC_LANES <= width; i += VEC_LANES) {
        vec y = vec_load(x + i) * factor * vec_load(weight + i);
        if (add)
            y = vec_load(out + i) + y;
        vec_store(out + i, y);
    }
    if (i < width) {
        size_t left = width - i;
        vec y = vec_load_part(x + i, left) * factor * vec_load_part(weight + i, left);
        if (add)
            y = vec_load_part(out + i, left) + y;
        vec_store_part(out + i, y, left);
    }
}

static void layer_norm(const float *x, uint32_t width, const float *weight, const float *bias,
                       float eps, float *out) {
    const float mean = sum_of(x, width) / (float)width;
    const float variance = sum_of_squares(x, width, mean) / (float)width;
    const vec factor = vec_set1(1.0f / sqrtf(variance + eps)), middle = vec_set1(mean);
    size_t i = 0;
    for (; i + VEC_LANES <= width; i += VEC_LANES) {
        vec y = (vec_load(x + i) - middle) * factor;
        vec_store(out + i, y * vec_load(weight + i) + vec_load(bias + i));
    }
    if (i < width) {
        size_t left = width - i;
        vec y = (vec_load_part(x + i, left) - middle) * factor;
        vec z = y * vec_load_part(weight + i, left) + vec_load_part(bias + i, left);
        vec_store_part(out + i, z, left);
    }
}

static void scale(float *x, size_t count, float factor) {
    for (size_t i = 0; i < count; i++)
        x[i] *= factor;
}

static void add(float *x, const float *y, size_t count) {
    for (size_t i = 0; i < count; i++)
        x[i] += y[i];
}

static void gelu(float *x, const float *up, size_t count) {
    size_t i = 0;
    for (; i + VEC_LANES <= count; i += VEC_LANES) {
        vec y = vec_gelu(vec_load(x + i));
        if (up)
            y = y * vec_load(up + i);
        vec_store(x + i, y);
    }
    if (i < count) {
        vec y = vec_gelu(vec_load_part(x + i, count - i));
        if (up)
            y = y * vec_load_part(up + i, count - i);
        vec_store_part(x + i, y, count - i);
    }
}

/* Halves a and b of a head, normed and turned. */
VEC_INLINE void turn(vec a, vec b, vec cosine, vec sine, vec *out_a, vec *out_b) {
    *out_a = a * cosine - b * sine;
    *out_b = b * cosine + a * sine;
}

static void head_norm_rope(float *x, uint32_t head_dim, const float *weight, float eps,
                           const float *table) {
    const size_t half = head_dim / 2;
    vec factor = vec_set1(1.0f);
    if (weight) {
        float mean = sum_of_squares(x, head_dim, 0.0f) / (float)head_dim;
        factor = vec_set1(1.0f / sqrtf(mean + eps));
    }
    for (size_t i = 0; i < half; i += VEC_LANES) {
        size_t left = half - i < VEC_LANES ? half - i : VEC_LANES;
        vec a = vec_load_part(x + i, left), b = vec_load_part(x + half + i, left);
        if (weight) {
            a = a * factor * vec_load_part(weight + i, left);
            b = b * factor * vec_load_part(weight + half + i, left);
        }
        turn(a, b, vec_load_part(table + i, left), vec_load_part(table + half + i, left), &a, &b);
        vec_store_part(x + i, a, left);
        vec_store_part(x + half + i, b, left);
    }
}

static void store_half(const float *src, size_t count, uint16_t *dst) {
    size_t i = 0;
    for (; i + VEC_LANES <= count; i += VEC_LANES)
        vec_store_half(dst + i, vec_load(src + i));
    if (i < count) {
        uint16_t halves[VEC_LANES];
        vec_store_half(halves, vec_load_part(src + i, count - i));
        memcpy(dst + i, halves, (count - i) * sizeof *halves);
    }
}

static void pool_cell(const float *x, uint32_t side, uint32_t k, uint32_t width, float *out) {
    const vec cells = vec_set1((float)k * (float)k);
    for (size_t i = 0; i < width; i += VEC_LANES) {
        size_t left = width - i < VEC_LANES ? width - i : VEC_LANES;
        vec sum = vec_set1(0.0f);
        for (size_t row = 0; row < k; row++)
            for (size_t column = 0; column < k; column++)
                sum += vec_load_part(x + (row * side + column) * width + i, left);
        vec_store_part(out + i, sum / cells, left);
    }
}

static float largest(const float *x, size_t count) {
    vec best = vec_set1(-INFINITY);
    size_t i = 0;
    for (; i + VEC_LANES <= count; i += VEC_LANES)
        best = vec_max(vec_load(x + i), best);
    if (i < count) {
        vec y = vec_keep(vec_load_part(x + i, count - i), best, 0, count - i);
        best = vec_max(y, best);
    }
    return vec_largest(best);
}

#define G3_OPS_KERNELS_TABLE \
    { rms_norm, layer_norm, scale, add, gelu, head_norm_rope, store_half, pool_cell, largest }

#endif
