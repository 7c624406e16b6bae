/* SPDX-License-Identifier: MIT */
/* Resizing as Pillow does it with BILINEAR: a triangle of the width of one output
 * pixel (of one input pixel when enlarging), weights in fixed point of 22 bits, a
 * pass along the rows and then one along the columns, each rounded to 8 bits. A pass
 * that would not change the size is left out. */
#include "image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF /* gcc contracts nothing in -std=c11 */
#endif

enum { WEIGHT_BITS = 32 - 8 - 2 }; /* a sum of weights times 255 fits 31 bits, with room */

/* Output pixel i is made of inputs [first[i], first[i] + count[i]). */
typedef struct filter {
    uint32_t *first, *count;
    int32_t *weights; /* [out][most] */
    size_t most;
} filter;

static void filter_free(filter *f) {
    free(f->first);
    free(f->count);
    free(f->weights);
}

static double triangle(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

/* The weights of one output pixel; `real` is scratch for them. */
static void filter_pixel(filter *f, uint32_t i, uint32_t in, double scale, double *real) {
    const double wide = scale < 1.0 ? 1.0 : scale; /* half the triangle's base */
    const double centre = (i + 0.5) * scale, inverse = 1.0 / wide;
    const double left = centre - wide + 0.5, right = centre + wide + 0.5;
    const uint32_t first = left < 0.0 ? 0 : (uint32_t)left;
    const uint32_t end = right > in ? in : (uint32_t)right;
    double sum = 0.0;
    for (uint32_t x = first; x < end; x++) {
        real[x - first] = triangle(((double)x - centre + 0.5) * inverse);
        sum += real[x - first];
    }
    for (uint32_t x = 0; x < end - first; x++) {
        const double weight = sum != 0.0 ? real[x] / sum : real[x];
        f->weights[i * f->most + x] = (int32_t)(0.5 + weight * (1 << WEIGHT_BITS));
    }
    f->first[i] = first;
    f->count[i] = end - first;
}

static int filter_make(filter *f, uint32_t in, uint32_t out) {
    const double scale = (double)in / out;
    f->most = (size_t)ceil(scale < 1.0 ? 1.0 : scale) * 2 + 1;
    f->first = malloc(out * sizeof *f->first);
    f->count = malloc(out * sizeof *f->count);
    f->weights = malloc(out * f->most * sizeof *f->weights);
    double *real = malloc(f->most * sizeof *real);
    const int made = f->first && f->count && f->weights && real;
    for (uint32_t i = 0; made && i < out; i++)
        filter_pixel(f, i, in, scale, real);
    free(real);
    return made;
}

static uint8_t rounded(int32_t sum) {
    const int32_t value = sum >> WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* in [height][width][3] -> out [height][side][3]. */
static void pass_rows(const filter *f, const uint8_t *in, uint32_t width, uint32_t height,
                      uint32_t side, uint8_t *out) {
#pragma omp parallel for if (height > 64)
    for (uint32_t y = 0; y < height; y++) {
        const uint8_t *row = in + (size_t)y * width * 3;
        uint8_t *to = out + (size_t)y * side * 3;
        for (uint32_t x = 0; x < side; x++) {
            const int32_t *weights = f->weights + x * f->most;
            const uint8_t *from = row + (size_t)f->first[x] * 3;
            int32_t sum[3] = {1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1),
                              1 << (WEIGHT_BITS - 1)};
            for (uint32_t k = 0; k < f->count[x]; k++, from += 3)
                for (int c = 0; c < 3; c++)
                    sum[c] += from[c] * weights[k];
            for (int c = 0; c < 3; c++)
                to[x * 3 + c] = rounded(sum[c]);
        }
    }
}

/* in [height][side][3] -> out [side][side][3]; sums of a stretch of a row at a time. */
static void pass_columns(const filter *f, const uint8_t *in, uint32_t side, uint8_t *out) {
    enum { STRETCH = 1024 };
    const size_t width = (size_t)side * 3;
#pragma omp parallel for if (side > 64)
    for (uint32_t y = 0; y < side; y++) {
        const int32_t *weights = f->weights + y * f->most;
        for (size_t begin = 0; begin < width; begin += STRETCH) {
            const size_t count = width - begin < STRETCH ? width - begin : STRETCH;
            int32_t sum[STRETCH];
            for (size_t x = 0; x < count; x++)
                sum[x] = 1 << (WEIGHT_BITS - 1);
            for (uint32_t k = 0; k < f->count[y]; k++) {
                const uint8_t *from = in + (f->first[y] + (size_t)k) * width + begin;
                for (size_t x = 0; x < count; x++)
                    sum[x] += from[x] * weights[k];
            }
            for (size_t x = 0; x < count; x++)
                out[y * width + begin + x] = rounded(sum[x]);
        }
    }
}

/* One pass, or a copy of what there is: NULL for want of memory. */
static uint8_t *narrowed(const g3_image *image, uint32_t side) {
    const size_t bytes = (size_t)side * image->height * 3;
    uint8_t *out = malloc(bytes);
    filter f = {0};
    if (out && image->width == side) {
        memcpy(out, image->rgb, bytes);
    } else if (out && filter_make(&f, image->width, side)) {
        pass_rows(&f, image->rgb, image->width, image->height, side, out);
    } else {
        free(out);
        out = NULL;
    }
    filter_free(&f);
    return out;
}

g3_status g3_image_resize(const g3_image *image, uint32_t side, g3_image *out_image,
                          g3_error *error) {
    if (side == 0 || side > G3_IMAGE_MAX_SIDE || image->width == 0 || image->height == 0)
        return g3_fail(error, G3_INVALID, "a picture of %u x %u cannot be resized to %u",
                       image->width, image->height, side);
    uint8_t *wide = narrowed(image, side), *out = NULL;
    filter f = {0};
    if (wide && image->height == side) {
        out = wide;
        wide = NULL;
    } else if (wide && filter_make(&f, image->height, side)) {
        out = malloc((size_t)side * side * 3);
        if (out)
            pass_columns(&f, wide, side, out);
    }
    filter_free(&f);
    free(wide);
    if (out == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "no memory to resize a picture to %u", side);
    *out_image = (g3_image){side, side, out};
    return G3_OK;
}
