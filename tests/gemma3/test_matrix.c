/* SPDX-License-Identifier: MIT */
/* Packed matrices and their products: against double precision, against an exact
 * 8-bit reference, and against themselves over every way to run them. */

#include "vrp_test.h"

#include "kernels/matrix_layout.h"
#include "matrix_support.h"

#if defined(_OPENMP)
#include <omp.h>
static void threads(int count) { omp_set_num_threads(count); }
#else
static void threads(int count) { (void)count; }
#endif

/* ---- Ways to run ------------------------------------------------------------------------- */

typedef struct way {
    g3_isa isa;
    int amx;
} way;

/* What this machine can do; how many. */
static size_t all_ways(way ways[4]) {
    size_t count = 0;
    for (int isa = 0; isa <= (int)g3_isa_best(); isa++)
        ways[count++] = (way){(g3_isa)isa, 0};
    if (g3_isa_best() == G3_ISA_AVX512 && g3_amx_allow(1))
        ways[count++] = (way){G3_ISA_AVX512, 1};
    return count;
}

static void take(way w) {
    assert_int_equal(g3_isa_set(w.isa), 0);
    assert_int_equal(g3_isa_current(), w.isa);
    (void)g3_amx_allow(w.amx);
}

/* ---- Cases -------------------------------------------------------------------------------- */

typedef struct sample {
    g3_type type;
    uint32_t rows, columns;
    size_t n;
    uint8_t *file; /* rows as in the file */
    size_t row_bytes;
    g3_matrix matrix;
    float *x;
} sample;

static void *aligned(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    assert_non_null(p);
    return p;
}

static sample sample_open(g3_type type, uint32_t rows, uint32_t columns, size_t n) {
    const g3t_format f = g3t_format_of(type);
    uint64_t seed = (uint64_t)type * 131 + rows * 7 + columns;
    sample s = {.type = type, .rows = rows, .columns = columns, .n = n};
    s.row_bytes = columns / f.elements * f.bytes;
    s.file = g3t_random_rows(type, (size_t)rows * columns, seed);
    const size_t bytes = g3_matrix_bytes(type, rows, columns);
    assert_int_equal(bytes, (rows + 15) / 16 * 16 * s.row_bytes);
    void *data = aligned(bytes);
    memset(data, 0xee, bytes);
    g3_matrix_pack(type, columns, 0, rows, s.file, data);
    s.matrix = (g3_matrix){type, rows, columns, data};
    s.x = aligned(n * columns * sizeof(float));
    for (size_t i = 0; i < n * columns; i++) {
        s.x[i] = g3t_uniform(&seed) * (i / 32 % 3 == 0 ? 0.01f : 3.0f);
        if (i / 32 % 11 == 10)
            s.x[i] = 0.0f;
    }
    return s;
}

static void sample_close(sample *s) {
    free(s->file);
    free(s->x);
    union {
        const void *in;
        void *out;
    } data = {.in = s->matrix.data};
    free(data.out);
}

/* y of rows [first, first + n) of x; a canary fills what is not written. */
enum { CANARY = 3 };
static float *product_of(const sample *s, size_t first, size_t n, g3_precision precision) {
    const size_t stride = s->rows + CANARY;
    float *y = aligned(n * stride * sizeof(float));
    for (size_t i = 0; i < n * stride; i++)
        y[i] = -77.0f;
    g3_rows rows = {.x = s->x + first * s->columns, .n = n, .columns = s->columns};
    const size_t bytes = g3_rows_bytes(s->columns, n, precision);
    assert_true(precision == G3_INT8 ? bytes > 0 : bytes == 0);
    rows.packed = bytes ? aligned(bytes) : NULL;
    if (bytes)
        memset(rows.packed, 0x5a, bytes);
    g3_rows_prepare(&rows, precision);
    g3_matmul(&s->matrix, &rows, precision, y, stride);
    free(rows.packed);
    for (size_t j = 0; j < n; j++)
        for (size_t i = s->rows; i < stride; i++)
            assert_true(y[j * stride + i] == -77.0f);
    return y;
}

/* ---- Packing ------------------------------------------------------------------------------ */

static void rows_come_back_from_the_packed_form(void **state) {
    (void)state;
    static const uint32_t counts[] = {1, 15, 16, 17, 33, 50};
    for (size_t t = 0; t < G3T_TYPES; t++)
        for (size_t c = 0; c < VRPT_COUNT(counts); c++) {
            const uint32_t columns = 512;
            sample s = sample_open(g3t_types[t], counts[c], columns, 1);
            float got[512], want[512];
            for (uint32_t row = 0; row < s.rows; row++) {
                g3_matrix_row(&s.matrix, row, got);
                g3_dequantise(s.type, s.file + row * s.row_bytes, columns, want);
                assert_memory_equal(got, want, sizeof got);
            }
            /* In parts, from an odd address, it is the same. */
            const size_t bytes = g3_matrix_bytes(s.type, s.rows, columns);
            uint8_t *again = aligned(bytes), *odd = malloc(s.rows * s.row_bytes + 1);
            assert_non_null(odd);
            memset(again, 0x33, bytes);
            memcpy(odd + 1, s.file, s.rows * s.row_bytes);
            for (uint32_t first = 0; first < s.rows; first += 32) {
                const uint32_t left = s.rows - first;
                g3_matrix_pack(s.type, columns, first, left < 32 ? left : 32,
                               odd + 1 + first * s.row_bytes, again);
            }
            assert_memory_equal(again, s.matrix.data, bytes);
            free(again);
            free(odd);
            sample_close(&s);
        }
}

static void sizes_that_do_not_fit_have_no_bytes(void **state) {
    (void)state;
    assert_int_equal(g3_matrix_bytes(G3_Q8_0, 16, 48), 0);
    assert_int_equal(g3_matrix_bytes(G3_Q4_K, 16, 128), 0);
    assert_int_equal(g3_matrix_bytes((g3_type)10, 16, 256), 0);
    assert_int_equal(g3_matrix_bytes(G3_Q8_0, 0, 64), 0);
    assert_int_equal(g3_matrix_bytes(G3_BF16, 17, 3), 32 * 3 * 2);
    assert_int_equal(g3_matrix_bytes(G3_Q6_K, 640, 2048), 640 * 8 * 210);
    assert_int_equal(g3_rows_bytes(640, 5, G3_FLOAT32), 0);
    assert_true(g3_rows_bytes(640, 17, G3_INT8) >= 17 * 640);
}

static void fifth_bits_move_to_their_column(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t moved = g3_permute_bits(UINT32_C(1) << i);
        assert_int_equal(moved, UINT32_C(1) << (i % 4 * 8 + i / 4));
        assert_int_equal(g3_unpermute_bits(moved), UINT32_C(1) << i);
    }
}

/* ---- Values --------------------------------------------------------------------------------- */

typedef struct shape {
    uint32_t rows, columns;
    size_t n;
} shape;

/* Shapes that every type can have (columns of 256) and others: parts of a group, more
 * groups than are read at once, more columns than are unpacked at once. */
static const shape shapes[] = {{1, 256, 1},   {16, 256, 3},   {33, 768, 14}, {48, 1024, 2},
                               {40, 32, 5},   {17, 640, 18},  {64, 640, 1},  {20, 1152, 33},
                               {80, 544, 7},  {100, 1280, 1}, {96, 2048, 1}, {35, 512, 29},
                               {150, 256, 1}, {18, 2560, 9}};

static int fits(g3_type type, const shape *s) {
    return s->columns % g3t_format_of(type).elements == 0;
}

/* Weights by the reference, [rows][columns]. */
static double *weights_of(const sample *s) {
    double *w = aligned((size_t)s->rows * s->columns * sizeof(double));
    for (uint32_t r = 0; r < s->rows; r++)
        for (uint32_t i = 0; i < s->columns; i++)
            w[(size_t)r * s->columns + i] = g3t_value(s->type, s->file + r * s->row_bytes, i);
    return w;
}

/* What an output must be, [n][rows]: within `bound` of `value`, which itself may be
 * `loss` away from `truth`, the product without rounded activations. */
typedef struct expected {
    double value, bound, truth, loss;
} expected;

static expected expect_float(const sample *s, const double *w, const float *x) {
    expected e = {0};
    double size = 0.0;
    for (uint32_t i = 0; i < s->columns; i++) {
        const double term = w[i] * (double)x[i];
        e.value += term;
        size += fabs(term);
    }
    /* A chain of rounded additions, and one rounding of each weight. */
    e.bound = size * (s->columns + 2) * 0x1p-24 + 1e-30;
    e.truth = e.value;
    return e;
}

static expected expect_int8(const sample *s, const double *w, const float *x, const int *q,
                            const float *scales) {
    expected e = {0};
    double size = 0.0, largest = 0.0;
    for (uint32_t i = 0; i < s->columns; i++) {
        const double scale = (double)scales[i / 32];
        const double term = w[i] * scale * q[i];
        e.value += term;
        e.truth += w[i] * (double)x[i];
        e.loss += fabs(w[i]) * scale * 0.5001;
        size += fabs(term);
        largest = fmax(largest, fabs(w[i]));
    }
    /* A minimum is added apart from what it is taken from: terms as large as those of
     * the largest weight. */
    if (g3_has_minimum(s->type))
        size += largest * 3.0 * s->columns;
    e.bound = size * (s->columns / 16 + 6) * 0x1p-24 + 1e-30;
    return e;
}

static expected *expect(const sample *s, g3_precision precision) {
    double *w = weights_of(s);
    int *q = aligned(s->columns * sizeof *q);
    float *scales = aligned(s->columns / 32 * sizeof *scales);
    expected *all = aligned(s->n * s->rows * sizeof *all);
    for (size_t j = 0; j < s->n; j++) {
        const float *x = s->x + j * s->columns;
        for (uint32_t b = 0; b < s->columns / 32; b++)
            scales[b] = g3t_quantise(x + (size_t)b * 32, q + (size_t)b * 32);
        for (uint32_t r = 0; r < s->rows; r++) {
            const double *row = w + (size_t)r * s->columns;
            all[j * s->rows + r] =
                precision == G3_INT8 ? expect_int8(s, row, x, q, scales) : expect_float(s, row, x);
        }
    }
    free(w);
    free(q);
    free(scales);
    return all;
}

/* Every way to run on this machine gives what is expected. */
static void check(const sample *s, g3_precision precision) {
    way ways[4];
    const size_t count = all_ways(ways);
    expected *all = expect(s, precision);
    for (size_t k = 0; k < count; k++) {
        take(ways[k]);
        float *y = product_of(s, 0, s->n, precision);
        for (size_t j = 0; j < s->n; j++)
            for (uint32_t r = 0; r < s->rows; r++) {
                const expected e = all[j * s->rows + r];
                const double got = (double)y[j * (s->rows + CANARY) + r];
                if (!(fabs(got - e.value) <= e.bound && fabs(got - e.truth) <= e.loss + e.bound))
                    fail_msg("way %zu type %d %ux%u row %u of %zu: %.9g, not %.9g", k, (int)s->type,
                             s->rows, s->columns, r, j, got, e.value);
            }
        free(y);
    }
    free(all);
}

static void products_are_those_of_the_reference(void **state) {
    (void)state;
    for (size_t t = 0; t < G3T_TYPES; t++)
        for (size_t c = 0; c < VRPT_COUNT(shapes); c++) {
            if (!fits(g3t_types[t], &shapes[c]))
                continue;
            sample s = sample_open(g3t_types[t], shapes[c].rows, shapes[c].columns, shapes[c].n);
            check(&s, G3_FLOAT32);
            if (!g3_is_dense(s.type))
                check(&s, G3_INT8);
            sample_close(&s);
        }
}

/* The bounds are tight: a single step of a single weight is seen. */
static void one_wrong_weight_would_be_seen(void **state) {
    (void)state;
    sample s = sample_open(G3_Q8_0, 16, 640, 1);
    for (uint32_t i = 0; i < s.columns; i++)
        s.x[i] = fabsf(s.x[i]) + 1.0f;
    for (size_t at = 0; at < 16 * s.row_bytes; at += 34)
        memcpy(s.file + at, "\x00\x3c", 2);
    expected *right = expect(&s, G3_INT8);
    s.file[2 + 77 % 32 + 77 / 32 * 34] ^= 1;
    expected *wrong = expect(&s, G3_INT8);
    assert_true(fabs(wrong[0].value - right[0].value) > 4 * right[0].bound);
    free(right);
    free(wrong);
    sample_close(&s);
}

/* ---- The same whatever way ------------------------------------------------------------------- */

static void same_bits_for_any_n(const sample *s, g3_precision precision) {
    static const size_t counts[] = {1, 2, 3, 5, 8, 17, 64};
    const size_t stride = s->rows + CANARY;
    float *all = product_of(s, 0, s->n, precision);
    for (size_t c = 0; c < VRPT_COUNT(counts); c++)
        for (size_t first = 0; first + counts[c] <= s->n; first += counts[c]) {
            float *y = product_of(s, first, counts[c], precision);
            for (size_t j = 0; j < counts[c]; j++)
                if (memcmp(y + j * stride, all + (first + j) * stride, s->rows * sizeof *y))
                    fail_msg("type %d precision %d n %zu row %zu", (int)s->type, (int)precision,
                             counts[c], first + j);
            free(y);
        }
    free(all);
}

static void a_row_does_not_depend_on_its_company(void **state) {
    (void)state;
    way ways[4];
    const size_t count = all_ways(ways);
    for (size_t t = 0; t < G3T_TYPES; t++)
        for (uint32_t columns = 640; columns <= 768; columns += 128) {
            const shape wanted = {50, columns, 64};
            if (!fits(g3t_types[t], &wanted))
                continue;
            sample s = sample_open(g3t_types[t], 50, columns, 64);
            for (size_t k = 0; k < count; k++) {
                take(ways[k]);
                same_bits_for_any_n(&s, G3_FLOAT32);
                same_bits_for_any_n(&s, G3_INT8);
            }
            sample_close(&s);
        }
}

static void threads_do_not_matter(void **state) {
    (void)state;
    way ways[4];
    const size_t count = all_ways(ways);
    for (size_t t = 0; t < G3T_TYPES; t++)
        for (size_t n = 1; n <= 40; n += 39)
            for (size_t k = 0; k < count; k++) {
                sample s = sample_open(g3t_types[t], 100, 512, n);
                take(ways[k]);
                for (int precision = 0; precision < 2; precision++) {
                    threads(1);
                    float *one = product_of(&s, 0, n, (g3_precision)precision);
                    for (int more = 2; more <= 3; more++) {
                        threads(more);
                        float *y = product_of(&s, 0, n, (g3_precision)precision);
                        assert_memory_equal(one, y, n * (s.rows + CANARY) * sizeof *y);
                        free(y);
                    }
                    free(one);
                }
                threads(1);
                sample_close(&s);
            }
}

/* AVX-512 with and without tiles: the same bits. */
static void tiles_do_not_matter(void **state) {
    (void)state;
    if (g3_isa_best() != G3_ISA_AVX512 || !g3_amx_allow(1))
        skip();
    for (size_t t = 0; t < G3T_TYPES; t++) {
        if (g3_is_dense(g3t_types[t]))
            continue;
        for (size_t c = 0; c < VRPT_COUNT(shapes); c++) {
            if (!fits(g3t_types[t], &shapes[c]))
                continue;
            sample s = sample_open(g3t_types[t], shapes[c].rows, shapes[c].columns, 45);
            take((way){G3_ISA_AVX512, 0});
            float *without = product_of(&s, 0, s.n, G3_INT8);
            take((way){G3_ISA_AVX512, 1});
            float *with = product_of(&s, 0, s.n, G3_INT8);
            assert_memory_equal(without, with, s.n * (s.rows + CANARY) * sizeof *with);
            free(without);
            free(with);
            sample_close(&s);
        }
    }
}

/* ---- Extremes -----------------------------------------------------------------------------------
 */

/* Largest magnitudes everywhere: sums of 8-bit products must not overflow. */
static void largest_numbers_do_not_overflow(void **state) {
    (void)state;
    static const uint8_t fills[] = {0x00, 0x7f, 0x80, 0xff};
    for (size_t f = 0; f < VRPT_COUNT(fills); f++)
        for (size_t t = 0; t < G3T_TYPES; t++) {
            const g3_type type = g3t_types[t];
            if (g3_is_dense(type))
                continue;
            sample s = sample_open(type, 18, 512, 4);
            const g3t_format format = g3t_format_of(type);
            for (size_t at = 0; at < s.rows * s.row_bytes; at += format.bytes) {
                memset(s.file + at, fills[f], format.bytes);
                memcpy(s.file + at + format.first_half, "\x00\x3c", 2);
                if (format.second_half >= 0)
                    memcpy(s.file + at + format.second_half, "\x00\x38", 2);
            }
            union {
                const void *in;
                void *out;
            } data = {.in = s.matrix.data};
            g3_matrix_pack(type, s.columns, 0, s.rows, s.file, data.out);
            for (size_t i = 0; i < s.n * s.columns; i++)
                s.x[i] = i / s.columns % 2 ? 3.0f : -3.0f;
            check(&s, G3_INT8);
            sample_close(&s);
        }
}

/* Tiny numbers become zeros, NaN and infinity stay visible, each in its row only. */
static void odd_activations_stay_in_their_row(void **state) {
    (void)state;
    way ways[4];
    const size_t count = all_ways(ways);
    sample s = sample_open(G3_Q8_0, 20, 640, 5);
    for (size_t i = 0; i < s.columns; i++) {
        s.x[i] = 1e-39f;
        s.x[s.columns + i] = 0.0f;
    }
    s.x[2 * s.columns + 333] = NAN;
    s.x[3 * s.columns + 7] = INFINITY;
    for (size_t k = 0; k < count; k++) {
        take(ways[k]);
        float *y = product_of(&s, 0, 5, G3_INT8);
        for (uint32_t r = 0; r < s.rows; r++) {
            assert_true(y[r] == 0.0f);
            assert_true(y[s.rows + CANARY + r] == 0.0f);
            assert_true(isnan(y[2 * (s.rows + CANARY) + r]));
            assert_true(isnan(y[3 * (s.rows + CANARY) + r]));
            assert_true(isfinite(y[4 * (s.rows + CANARY) + r]));
        }
        free(y);
    }
    sample_close(&s);
}

static void nothing_to_do_writes_nothing(void **state) {
    (void)state;
    sample s = sample_open(G3_Q5_0, 16, 64, 1);
    float y[16] = {1.0f};
    g3_rows rows = {.x = s.x, .n = 0, .columns = 64, .packed = y};
    g3_rows_prepare(&rows, G3_INT8);
    g3_matmul(&s.matrix, &rows, G3_INT8, y, 16);
    g3_matrix none = s.matrix;
    none.rows = 0;
    rows.n = 1;
    g3_matmul(&none, &rows, G3_FLOAT32, y, 16);
    assert_true(y[0] == 1.0f);
    sample_close(&s);
}

static void kernels_have_names_and_limits(void **state) {
    (void)state;
    assert_string_equal(g3_isa_name(G3_ISA_SCALAR), "scalar");
    assert_string_equal(g3_isa_name(G3_ISA_AVX2), "avx2");
    assert_string_equal(g3_isa_name(G3_ISA_AVX512), "avx512");
    assert_int_equal(g3_isa_set(G3_ISA_SCALAR), 0);
    assert_int_equal(g3_isa_set((g3_isa)7), -1);
    assert_int_equal(g3_isa_current(), G3_ISA_SCALAR);
    assert_int_equal(g3_isa_set(g3_isa_best()), 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back_from_the_packed_form),
        cmocka_unit_test(sizes_that_do_not_fit_have_no_bytes),
        cmocka_unit_test(fifth_bits_move_to_their_column),
        cmocka_unit_test(products_are_those_of_the_reference),
        cmocka_unit_test(one_wrong_weight_would_be_seen),
        cmocka_unit_test(a_row_does_not_depend_on_its_company),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(tiles_do_not_matter),
        cmocka_unit_test(largest_numbers_do_not_overflow),
        cmocka_unit_test(odd_activations_stay_in_their_row),
        cmocka_unit_test(nothing_to_do_writes_nothing),
        cmocka_unit_test(kernels_have_names_and_limits),
    };
    (void)argc;
    (void)argv;
    threads(1); /* more than one only where that is the subject */
    return cmocka_run_group_tests_name("matrix", tests, NULL, NULL);
}
