/* SPDX-License-Identifier: MIT */
/* The operations between the products against double, for every instruction set; a
 * row's result, bit for bit, whatever the rows around it and the threads are. */

#include "kernels/matrix.h"
#include "kernels/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "vrp_test.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

static const double pi = 3.14159265358979323846;

static void set_threads(int count) {
#if defined(_OPENMP)
    omp_set_num_threads(count);
#else
    (void)count;
#endif
}

static float *floats(size_t count) {
    float *p = malloc((count + 1) * sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i <= count; i++)
        p[i] = NAN;
    return p;
}

static float *random_floats(size_t count, uint64_t seed, float most) {
    float *p = floats(count);
    vrpt_rng rng = {seed};
    for (size_t i = 0; i < count; i++)
        p[i] = ((float)vrpt_rng_below(&rng, 2000001) / 1000000.0f - 1.0f) * most;
    return p;
}

static void near(float got, double expected, double tolerance, const char *what, size_t i) {
    if (!(fabs((double)got - expected) <= tolerance))
        fail_msg("%s[%zu], %s: %.9g, not %.9g", what, i, g3_isa_name(g3_isa_current()), (double)got,
                 expected);
}

static void same(const float *a, const float *b, size_t count, const char *what) {
    for (size_t i = 0; i < count; i++)
        if (memcmp(a + i, b + i, sizeof *a))
            fail_msg("%s[%zu], %s: %.9g and %.9g", what, i, g3_isa_name(g3_isa_current()),
                     (double)a[i], (double)b[i]);
}

static void each_isa(void (*test)(void)) {
    for (int isa = 0; isa <= (int)g3_isa_best(); isa++) {
        assert_int_equal(g3_isa_set((g3_isa)isa), 0);
        test();
    }
    assert_int_equal(g3_isa_set(g3_isa_best()), 0);
}

static const uint32_t widths[] = {1, 3, 4, 15, 16, 17, 64, 72, 100, 640, 1152};

/* ---- Norms ------------------------------------------------------------------------------ */

static void rms_reference(const float *x, uint32_t width, const float *weight, double *out) {
    double sum = 0;
    for (uint32_t i = 0; i < width; i++)
        sum += (double)x[i] * (double)x[i];
    for (uint32_t i = 0; i < width; i++)
        out[i] = (double)x[i] / sqrt(sum / width + 1e-6) * (double)weight[i];
}

static void rms_norms(void) {
    enum { N = 3 };
    for (size_t w = 0; w < VRPT_COUNT(widths); w++) {
        const uint32_t width = widths[w];
        const size_t in = width + 5, out = width + 2;
        float *x = random_floats(N * in, w + 1, 100.0f), *weight = random_floats(width, 99, 2.0f);
        float *y = floats(N * out), *dense = floats(N * width),
              *sum = random_floats(N * width, 5, 9);
        float *before = floats(N * width);
        memcpy(before, sum, N * width * sizeof *sum);
        g3_rms_norm(x, in, N, width, weight, 1e-6f, y, out);
        for (size_t i = 0; i < N; i++)
            memcpy(dense + i * width, x + i * in, width * sizeof *x);
        g3_rms_norm_add(dense, N, width, weight, 1e-6f, sum);
        for (size_t i = 0; i < N; i++) {
            double expected[1152];
            rms_reference(x + i * in, width, weight, expected);
            for (uint32_t j = 0; j < width; j++) {
                double slack = 4e-7 * fabs(expected[j]) + 1e-30;
                near(y[i * out + j], expected[j], slack, "rms_norm", j);
                double total = (double)before[i * width + j] + expected[j];
                near(sum[i * width + j], total, slack + 1e-6, "rms_norm_add", j);
            }
            assert_true(isnan(y[i * out + width])); /* nothing beside the rows */
        }
        g3_rms_norm(dense, width, N, width, weight, 1e-6f, dense, width); /* in place */
        for (size_t i = 0; i < N; i++)
            same(dense + i * width, y + i * out, width, "rms_norm in place");
        free(x), free(weight), free(y), free(dense), free(sum), free(before);
    }
}

static void rms_norm_matches_double(void **state) {
    (void)state;
    each_isa(rms_norms);
}

static void rms_norm_of_zeros_is_zeros(void **state) {
    (void)state;
    float x[8] = {0}, weight[8] = {1, 1, 1, 1, 1, 1, 1, 1}, out[8], zero[8] = {0};
    g3_rms_norm(x, 8, 1, 8, weight, 1e-6f, out, 8);
    same(out, zero, 8, "zeros");
}

/* A mean far from 0 is where one pass over the squares would fail. */
static void layer_norms(void) {
    for (size_t w = 3; w < VRPT_COUNT(widths); w++) {
        const uint32_t width = widths[w];
        float *x = random_floats(2 * (size_t)width, w, 1.0f), *weight = random_floats(width, 98, 2);
        float *bias = random_floats(width, 97, 1.0f), *y = floats(2 * (size_t)width);
        for (uint32_t i = 0; i < width; i++)
            x[width + i] += 1000.0f;
        g3_layer_norm(x, 2, width, weight, bias, 1e-6f, y);
        for (uint32_t row = 0; row < 2; row++) {
            double mean = 0, variance = 0;
            const float *r = x + (size_t)row * width;
            for (uint32_t i = 0; i < width; i++)
                mean += (double)r[i] / width;
            for (uint32_t i = 0; i < width; i++)
                variance += ((double)r[i] - mean) * ((double)r[i] - mean) / width;
            for (uint32_t i = 0; i < width; i++) {
                double expected = ((double)r[i] - mean) / sqrt(variance + 1e-6) * (double)weight[i];
                near(y[row * width + i], expected + (double)bias[i], row ? 5e-4 : 2e-6,
                     "layer_norm", i);
            }
        }
        free(x), free(weight), free(bias), free(y);
    }
}

static void layer_norm_matches_double(void **state) {
    (void)state;
    each_isa(layer_norms);
}

/* ---- GELU -------------------------------------------------------------------------------- */

static double gelu_of(double x) {
    return x / (1 + exp(-2 * sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
}

static void gelus(void) {
    enum { COUNT = 400001 };
    float *x = floats(COUNT), *y = floats(COUNT), *up = random_floats(COUNT, 3, 2.0f);
    for (size_t i = 0; i < COUNT; i++)
        y[i] = x[i] = (float)i / 20000.0f - 10.0f; /* [-10, 10] */
    g3_gelu(y, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        double expected = gelu_of((double)x[i]);
        near(y[i], expected, 3e-7 * fabs(expected) + 1e-44, "gelu", i);
    }
    g3_gelu_mul(x, up, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        y[i] *= up[i];
    same(x, y, COUNT, "gelu_mul");
    free(x), free(y), free(up);

    float end[] = {-12.0f, -100.0f, -3e38f, 20.0f,  3e38f,   INFINITY,
                   NAN,    0.0f,    1e-20f, 1e-40f, -1e-40f, -1e-10f};
    g3_gelu(end, VRPT_COUNT(end));
    for (size_t i = 0; i < 3; i++)
        near(end[i], 0, 1e-44, "gelu of large negative", i);
    assert_true(end[3] == 20.0f && end[4] == 3e38f && end[5] == INFINITY);
    assert_true(isnan(end[6]) && end[7] == 0.0f);
    near(end[8], 0.5e-20, 1e-27, "gelu", 8);
    near(end[9], 0.5e-40, 2e-45, "gelu", 9);
    near(end[10], -0.5e-40, 2e-45, "gelu", 10);
    near(end[11], -0.5e-10, 1e-17, "gelu", 11);
}

static void gelu_matches_double(void **state) {
    (void)state;
    each_isa(gelus);
}

/* Near 2 the tanh form and the exact one are furthest apart. */
static void gelu_is_the_tanh_form(void **state) {
    (void)state;
    float x = 2.2f;
    const double exact = (double)x * 0.5 * (1 + erf((double)x / sqrt(2)));
    const double tanh_form =
        0.5 * (double)x * (1 + tanh(sqrt(2 / pi) * ((double)x + 0.044715 * pow((double)x, 3))));
    g3_gelu(&x, 1);
    assert_true(fabs((double)x - exact) > 1e-4);
    near(x, tanh_form, 3e-7, "gelu", 0);
}

/* ---- Rotation ------------------------------------------------------------------------------ */

/* In float32 where the reference is; trigonometry in long double. */
static void rope_tables(uint32_t dim, double base, double factor, size_t first, size_t n) {
    float *table = floats(n * dim);
    g3_rope_table(dim, base, factor, first, n, table);
    for (size_t p = 0; p < n; p++)
        for (uint32_t i = 0; i < dim / 2; i++) {
            float inverse = 1.0f / (float)pow(base, (double)((float)(2 * i) / (float)dim));
            inverse /= (float)factor;
            const long double angle = (long double)((float)(first + p) * inverse);
            const float *row = table + p * dim;
            near(row[i], (double)cosl(angle), 6.1e-8, "cosine", i);
            near(row[dim / 2 + i], (double)sinl(angle), 6.1e-8, "sine", i);
            /* And the angle itself is what the formula says, within float32. */
            const double exact = (double)(first + p) / factor * pow(base, -2.0 * i / dim);
            assert_true(fabs((double)angle - exact) <= 4e-7 * exact);
        }
    free(table);
}

static void rope_table_follows_float32(void **state) {
    (void)state;
    rope_tables(256, 1e6, 1.0, 0, 300);
    rope_tables(256, 1e6, 8.0, 130000, 1073);
    rope_tables(256, 1e4, 1.0, 131000, 73);
    rope_tables(128, 1e4, 1.0, 5, 3);
    rope_tables(72, 1e4, 1.0, 0, 9);
    float table[8];
    g3_rope_table(8, 1e4, 1.0, 131072, 1, table); /* 131072 radians: 20860 turns and a bit */
    near(table[0], cos(131072.0), 6e-8, "cosine", 0);
    near(table[4], sin(131072.0), 6e-8, "sine", 0);
}

/* The same rows from one call and from many. */
static void rope_table_does_not_depend_on_the_call(void **state) {
    (void)state;
    float *all = floats(200 * 64), one[64];
    g3_rope_table(64, 1e6, 8.0, 1000, 200, all);
    for (size_t p = 0; p < 200; p++) {
        g3_rope_table(64, 1e6, 8.0, 1000 + p, 1, one);
        same(one, all + p * 64, 64, "rope_table");
    }
    free(all);
}

static void heads(void) {
    static const uint32_t dims[] = {2, 8, 34, 72, 128, 256};
    enum { N = 3, HEADS = 2 };
    for (size_t d = 0; d < VRPT_COUNT(dims) * 2; d++) {
        const uint32_t dim = dims[d / 2], half = dim / 2;
        const size_t stride = HEADS * dim + 3;
        float *x = random_floats(N * stride, d, 10.0f), *y = floats(N * stride);
        float *weight = d % 2 ? random_floats(dim, 44, 2.0f) : NULL, *table = floats(N * dim);
        memcpy(y, x, N * stride * sizeof *x);
        g3_rope_table(dim, 1e4, 1.0, 77, N, table);
        g3_head_norm_rope(y, stride, N, HEADS, dim, weight, 1e-6f, table);
        for (size_t i = 0; i < N * HEADS; i++) {
            const size_t place = i / HEADS * stride + i % HEADS * dim;
            const float *cosine = table + i / HEADS * dim, *sine = cosine + half;
            double normed[256];
            for (uint32_t j = 0; j < dim; j++)
                normed[j] = (double)x[place + j];
            if (weight)
                rms_reference(x + place, dim, weight, normed);
            for (uint32_t j = 0; j < half; j++) {
                double c = (double)cosine[j], s = (double)sine[j];
                double a = normed[j], b = normed[j + half];
                near(y[place + j], a * c - b * s, 5e-6, "rope", j);
                near(y[place + half + j], b * c + a * s, 5e-6, "rope", j + half);
            }
        }
        same(y + HEADS * dim, x + HEADS * dim, 3, "beside the heads");
        free(x), free(y), free(weight), free(table);
    }
}

static void head_norm_rope_matches_double(void **state) {
    (void)state;
    each_isa(heads);
}

/* ---- The cache's elements, the small ones --------------------------------------------------- */

static void stores(void) {
    assert_int_equal(g3_kv_element_bytes(G3_KV_F32), 4);
    assert_int_equal(g3_kv_element_bytes(G3_KV_F16), 2);
    for (size_t w = 0; w < VRPT_COUNT(widths); w++) {
        const uint32_t width = widths[w];
        float *x = random_floats(2 * ((size_t)width + 1), w, 70000.0f);
        x[0] = 1e-7f; /* a subnormal half */
        const size_t stride = width * 4 + 8;
        uint8_t *out = malloc(2 * stride);
        assert_non_null(out);
        memset(out, 0x55, 2 * stride);
        g3_kv_store(G3_KV_F16, x, width + 1, 2, width, out, stride);
        for (size_t i = 0; i < 2 * (size_t)width; i++) {
            uint16_t half, expected = g3_float_to_half(x[i / width * (width + 1) + i % width]);
            memcpy(&half, out + i / width * stride + i % width * 2, 2);
            assert_int_equal(half, expected);
        }
        assert_int_equal(out[width * 2], 0x55);
        g3_kv_store(G3_KV_F32, x, width + 1, 2, width, out, stride);
        assert_memory_equal(out + stride, x + width + 1, width * 4);
        assert_int_equal(out[width * 4], 0x55);
        free(x), free(out);
    }
}

static void kv_store_rounds_to_nearest_even(void **state) {
    (void)state;
    each_isa(stores);
}

static void elementwise(void) {
    enum { N = 5, WIDTH = 67, COUNT = N * WIDTH };
    float *x = random_floats(COUNT, 1, 5), *y = random_floats(COUNT, 2, 5), *z = floats(COUNT);
    memcpy(z, x, COUNT * sizeof *x);
    g3_scale(z, COUNT, 25.298221f);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(z[i] == x[i] * 25.298221f);
    g3_add(z, y, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(z[i] == x[i] * 25.298221f + y[i]);
    memcpy(z, x, COUNT * sizeof *x);
    g3_add_bias(z, N, WIDTH, y);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(z[i] == x[i] + y[i % WIDTH]);
    assert_true(isnan(z[COUNT]));
    free(x), free(y), free(z);
}

static void scale_add_and_bias_are_exact(void **state) {
    (void)state;
    each_isa(elementwise);
}

static void grids(void) {
    enum { SIDE = 12, K = 4, WIDTH = 37, OUT = SIDE / K };
    float *x = random_floats(SIDE * SIDE * WIDTH, 8, 3.0f), *y = floats(OUT * OUT * WIDTH);
    g3_pool_grid(x, SIDE, K, WIDTH, y);
    for (size_t i = 0; i < OUT * OUT * WIDTH; i++) {
        const size_t cell = i / WIDTH, top = cell / OUT * K, left = cell % OUT * K;
        double sum = 0;
        for (size_t j = 0; j < K * K; j++)
            sum += (double)x[((top + j / K) * SIDE + left + j % K) * WIDTH + i % WIDTH];
        near(y[i], sum / (K * K), 1e-6, "pool_grid", i);
    }
    assert_true(isnan(y[OUT * OUT * WIDTH]));
    free(x), free(y);
}

static void pool_grid_is_the_mean_of_cells(void **state) {
    (void)state;
    each_isa(grids);
}

static void patches_are_channel_then_row_then_column(void **state) {
    (void)state;
    enum { SIDE = 6, PATCH = 3, CELLS = PATCH * PATCH };
    float pixels[3 * SIDE * SIDE], out[4 * 3 * CELLS];
    for (size_t i = 0; i < VRPT_COUNT(pixels); i++)
        pixels[i] = (float)i;
    g3_patches(pixels, SIDE, PATCH, out);
    for (size_t i = 0; i < VRPT_COUNT(out); i++) {
        const size_t patch = i / (3 * CELLS), c = i / CELLS % 3, y = i / PATCH % PATCH;
        const size_t row = patch / 2 * PATCH + y, column = patch % 2 * PATCH + i % PATCH;
        assert_true(out[i] == (float)((c * SIDE + row) * SIDE + column));
    }
}

static void maxima(void) {
    float *x = random_floats(1000, 12, 5.0f);
    x[37] = 7.0f;
    for (size_t count = 38; count < 80; count++)
        assert_int_equal(g3_argmax(x, count), 37);
    x[500] = 7.0f;
    x[20] = NAN;
    x[999] = NAN;
    assert_int_equal(g3_argmax(x, 1000), 37); /* the lowest of equals; NaN loses */
    x[998] = INFINITY;
    assert_int_equal(g3_argmax(x, 1000), 998);
    const float low[] = {NAN, -INFINITY, -INFINITY}, none[] = {NAN, NAN}, zeros[] = {-0.0f, 0.0f};
    const float minus[] = {-5, -3, -4, -3, -9};
    assert_int_equal(g3_argmax(low, 3), 1);
    assert_int_equal(g3_argmax(none, 2), 0);
    assert_int_equal(g3_argmax(zeros, 2), 0);
    assert_int_equal(g3_argmax(minus, 5), 1); /* lanes beyond the end are no zeros */
    free(x);
}

static void argmax_takes_the_first_largest(void **state) {
    (void)state;
    each_isa(maxima);
}

/* ---- Rows alone, rows together ------------------------------------------------------------- */

enum { ROWS = 301, WIDE = 712 };

/* Every operation on rows [first, first + n) of the same input. */
static void run_rows(const float *x, const float *weight, size_t first, size_t n, float *out) {
    float *a = floats(n * WIDE), *table = floats(n * 178);
    const float *in = x + first * WIDE;
    g3_rms_norm(in, WIDE, n, WIDE, weight, 1e-6f, out, WIDE);
    g3_rms_norm_add(in, n, WIDE, weight, 1e-6f, out);
    g3_layer_norm(in, n, WIDE, weight, weight, 1e-6f, a);
    g3_add(out, a, n * WIDE);
    g3_add_bias(out, n, WIDE, weight);
    g3_rope_table(178, 1e4, 1.0, first, n, table);
    g3_head_norm_rope(out, WIDE, n, 4, 178, weight, 1e-6f, table);
    g3_scale(out, n * WIDE, 1.1f);
    memcpy(a, out, n * WIDE * sizeof *a);
    g3_gelu(out, n * WIDE);
    g3_gelu_mul(out, a, n * WIDE);
    free(a), free(table);
}

static void rows_alone(void) {
    float *x = random_floats(ROWS * WIDE, 6, 3.0f), *weight = random_floats(WIDE, 7, 1.5f);
    float *all = floats(ROWS * WIDE), *again = floats(ROWS * WIDE);
    set_threads(1);
    run_rows(x, weight, 0, ROWS, all);
    for (int threads = 1; threads <= 5; threads++) {
        set_threads(threads);
        for (size_t chunk = 1; chunk <= ROWS; chunk = chunk * 5 + 2) {
            for (size_t i = 0; i < ROWS; i += chunk)
                run_rows(x, weight, i, ROWS - i < chunk ? ROWS - i : chunk, again + i * WIDE);
            same(again, all, ROWS * WIDE, "rows");
        }
        run_rows(x, weight, 0, ROWS, again);
        same(again, all, ROWS * WIDE, "all rows");
    }
    free(x), free(weight), free(all), free(again);
}

static void row_does_not_depend_on_the_others(void **state) {
    (void)state;
    each_isa(rows_alone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rms_norm_matches_double),
        cmocka_unit_test(rms_norm_of_zeros_is_zeros),
        cmocka_unit_test(layer_norm_matches_double),
        cmocka_unit_test(gelu_matches_double),
        cmocka_unit_test(gelu_is_the_tanh_form),
        cmocka_unit_test(rope_table_follows_float32),
        cmocka_unit_test(rope_table_does_not_depend_on_the_call),
        cmocka_unit_test(head_norm_rope_matches_double),
        cmocka_unit_test(kv_store_rounds_to_nearest_even),
        cmocka_unit_test(scale_add_and_bias_are_exact),
        cmocka_unit_test(pool_grid_is_the_mean_of_cells),
        cmocka_unit_test(patches_are_channel_then_row_then_column),
        cmocka_unit_test(argmax_takes_the_first_largest),
        cmocka_unit_test(row_does_not_depend_on_the_others),
    };
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
