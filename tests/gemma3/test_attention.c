/* SPDX-License-Identifier: MIT */
/* Attention against sums in double; one query's result, bit for bit, whatever else is
 * asked for with it; windows, rings and the fresh part; every instruction set. */

#include "kernels/matrix.h"
#include "kernels/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "vrp_test.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

static void set_threads(int count) {
#if defined(_OPENMP)
    omp_set_num_threads(count);
#else
    (void)count;
#endif
}

enum { THREADS = 4 };

typedef struct problem {
    size_t n, positions;
    uint32_t heads, kv_heads, head_dim;
    g3_kv_type type;
    float scale;
    size_t *low, *high;
    float *q;
    float *keys, *values;      /* float32 as stored: rounded to half where type says so */
    void *kv_keys, *kv_values; /* [positions][kv_heads][head_dim] of type */
    g3_kv_view view;
} problem;

static void *make(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    memset(p, 0xee, (bytes + 127) / 64 * 64); /* NaN wherever nothing was written */
    return p;
}

static float random_float(vrpt_rng *rng, float most) {
    return ((float)vrpt_rng_below(rng, 2000001) / 1000000.0f - 1.0f) * most;
}

static void fill_kv(problem *p, vrpt_rng *rng, float **out_floats, void **out_stored, float most) {
    const size_t width = (size_t)p->kv_heads * p->head_dim;
    const size_t element = g3_kv_element_bytes(p->type);
    *out_floats = make(p->positions * width * sizeof(float));
    *out_stored = make(p->positions * width * element);
    for (size_t i = 0; i < p->positions * width; i++) {
        float x = random_float(rng, most);
        (*out_floats)[i] = p->type == G3_KV_F16 ? g3_half_to_float(g3_float_to_half(x)) : x;
    }
    g3_kv_store(p->type, *out_floats, width, p->positions, (uint32_t)width, *out_stored,
                width * element);
}

/* All positions in the old part, causal, unless the test changes that. */
static problem problem_make(size_t n, size_t before, uint32_t heads, uint32_t kv_heads,
                            uint32_t head_dim, g3_kv_type type) {
    problem p = {.n = n,
                 .positions = before + n,
                 .heads = heads,
                 .kv_heads = kv_heads,
                 .head_dim = head_dim,
                 .type = type,
                 .scale = 1.0f / sqrtf((float)head_dim)};
    vrpt_rng rng = {n * 1000003 + before * 101 + head_dim};
    p.q = make(n * heads * head_dim * sizeof(float));
    for (size_t i = 0; i < n * heads * head_dim; i++)
        p.q[i] = random_float(&rng, 3.0f);
    fill_kv(&p, &rng, &p.keys, &p.kv_keys, 3.0f);
    fill_kv(&p, &rng, &p.values, &p.kv_values, 1.0f);
    p.low = make(n * sizeof(size_t));
    p.high = make(n * sizeof(size_t));
    for (size_t i = 0; i < n; i++) {
        p.low[i] = 0;
        p.high[i] = before + i + 1;
    }
    const size_t stride = (size_t)kv_heads * head_dim * g3_kv_element_bytes(type);
    p.view = (g3_kv_view){.type = type,
                          .kv_heads = kv_heads,
                          .head_dim = head_dim,
                          .old_keys = p.kv_keys,
                          .old_values = p.kv_values,
                          .old_stride = stride,
                          .old_slots = p.positions + 1,
                          .new_stride = stride,
                          .split = p.positions};
    return p;
}

static void problem_free(problem *p) {
    free(p->q);
    free(p->keys);
    free(p->values);
    free(p->kv_keys);
    free(p->kv_values);
    free(p->low);
    free(p->high);
}

/* Queries [first, first + n) of the problem; the caller frees. */
static float *run_part(const problem *p, const g3_kv_view *view, size_t first, size_t n) {
    const size_t row = (size_t)p->heads * p->head_dim;
    float *out = make(n * row * sizeof(float));
    void *scratch = make(g3_attention_bytes(n, p->heads, p->head_dim, p->positions));
    g3_attention(p->q + first * row, n, p->heads, p->scale, view, p->low + first, p->high + first,
                 out, scratch);
    free(scratch);
    return out;
}

static float *run_all(const problem *p) { return run_part(p, &p->view, 0, p->n); }

static double score(const problem *p, size_t i, uint32_t h, size_t position) {
    const uint32_t kv = h / (p->heads / p->kv_heads);
    const float *q = p->q + (i * p->heads + h) * p->head_dim;
    const float *k = p->keys + (position * p->kv_heads + kv) * p->head_dim;
    double sum = 0;
    for (uint32_t j = 0; j < p->head_dim; j++)
        sum += (double)q[j] * (double)k[j];
    return sum * (double)p->scale;
}

static void reference(const problem *p, size_t i, uint32_t h, double *out) {
    const uint32_t kv = h / (p->heads / p->kv_heads);
    double most = -HUGE_VAL, total = 0;
    for (size_t k = p->low[i]; k < p->high[i]; k++)
        most = fmax(most, score(p, i, h, k));
    for (uint32_t j = 0; j < p->head_dim; j++)
        out[j] = 0;
    for (size_t k = p->low[i]; k < p->high[i]; k++) {
        const double weight = exp(score(p, i, h, k) - most);
        total += weight;
        for (uint32_t j = 0; j < p->head_dim; j++)
            out[j] += weight * (double)p->values[(k * p->kv_heads + kv) * p->head_dim + j];
    }
    for (uint32_t j = 0; j < p->head_dim; j++)
        out[j] /= total;
}

/* Some queries of each problem: all would take minutes in double. */
static void compare(const problem *p, const float *out) {
    double expected[512], worst = 0;
    const size_t step = p->n > 12 ? p->n / 12 : 1;
    for (size_t i = 0; i < p->n; i += step)
        for (uint32_t h = 0; h < p->heads; h++) {
            reference(p, i, h, expected);
            const float *row = out + (i * p->heads + h) * p->head_dim;
            for (uint32_t j = 0; j < p->head_dim; j++) {
                double error = fabs((double)row[j] - expected[j]);
                if (!(error <= worst))
                    worst = error;
            }
        }
    if (!(worst < 4e-6))
        fail_msg("n %zu, heads %u/%u, width %u, %s: off by %g", p->n, p->heads, p->kv_heads,
                 p->head_dim, g3_isa_name(g3_isa_current()), worst);
}

static void check(problem *p) {
    float *out = run_all(p);
    compare(p, out);
    free(out);
    problem_free(p);
}

/* ---- Values --------------------------------------------------------------------- */

static void each_isa(void (*test)(void)) {
    for (int isa = 0; isa <= (int)g3_isa_best(); isa++) {
        assert_int_equal(g3_isa_set((g3_isa)isa), 0);
        test();
    }
    assert_int_equal(g3_isa_set(g3_isa_best()), 0);
}

static void shapes(void) {
    static const uint32_t shape[][3] = {{4, 1, 256}, {8, 4, 256}, {4, 4, 72}, {3, 1, 64},
                                        {16, 2, 34}, {1, 1, 2},   {2, 1, 512}};
    for (size_t s = 0; s < VRPT_COUNT(shape); s++)
        for (int type = G3_KV_F32; type <= G3_KV_F16; type++) {
            problem few =
                problem_make(1, 300, shape[s][0], shape[s][1], shape[s][2], (g3_kv_type)type);
            check(&few);
            problem many =
                problem_make(70, 95, shape[s][0], shape[s][1], shape[s][2], (g3_kv_type)type);
            check(&many);
        }
}

static void attention_matches_double(void **state) {
    (void)state;
    each_isa(shapes);
}

static void attention_sees_all_keys_of_a_picture(void **state) {
    (void)state;
    problem p = problem_make(400, 0, 2, 2, 72, G3_KV_F32);
    for (size_t i = 0; i < p.n; i++)
        p.high[i] = p.n;
    check(&p);
}

/* Scores far apart, rising and falling along the keys: the maximum moves at every
 * tile, weights below the smallest float are zero. */
static void attention_takes_the_maximum_out(void **state) {
    (void)state;
    for (int rising = 0; rising < 2; rising++) {
        problem p = problem_make(3, 700, 2, 1, 32, G3_KV_F32);
        p.scale = 1.0f;
        for (size_t i = 0; i < p.n * p.heads * p.head_dim; i++)
            p.q[i] = i % p.head_dim == 0 ? 1.0f : 0.0f;
        for (size_t k = 0; k < p.positions; k++) {
            float x = (float)(rising ? k : p.positions - k) * 0.4f - 900.0f;
            p.keys[k * p.head_dim] = x;
            memcpy((float *)p.kv_keys + k * p.head_dim, &x, sizeof x);
        }
        check(&p);
    }
}

/* ---- A query alone and among others, on any number of threads ----------------------- */

static void assert_same(const problem *p, const float *whole, const float *part, size_t first,
                        size_t n) {
    const size_t row = (size_t)p->heads * p->head_dim;
    for (size_t i = 0; i < n; i++)
        if (memcmp(whole + (first + i) * row, part + i * row, row * sizeof(float)))
            fail_msg("query %zu of %zu differs in a call of %zu, %s", first + i, p->n, n,
                     g3_isa_name(g3_isa_current()));
}

static void same_bits(problem *p) {
    static const size_t chunk[] = {1, 3, 16, 17};
    set_threads(1);
    float *whole = run_all(p);
    for (int threads = 1; threads <= THREADS; threads += 3) {
        set_threads(threads);
        float *again = run_all(p);
        assert_same(p, whole, again, 0, p->n);
        free(again);
        for (size_t c = 0; c < VRPT_COUNT(chunk); c++)
            for (size_t first = 0; first < p->n; first += chunk[c]) {
                size_t n = p->n - first < chunk[c] ? p->n - first : chunk[c];
                float *part = run_part(p, &p->view, first, n);
                assert_same(p, whole, part, first, n);
                free(part);
            }
    }
    free(whole);
}

static void bits(void) {
    static const uint32_t shape[][3] = {{4, 1, 256}, {4, 2, 128}, {2, 2, 72}, {5, 1, 40}};
    for (size_t s = 0; s < VRPT_COUNT(shape); s++) {
        problem p = problem_make(34, 2100, shape[s][0], shape[s][1], shape[s][2],
                                 s % 2 ? G3_KV_F32 : G3_KV_F16);
        for (size_t i = 0; i < p.n; i++)
            if (s == 1)
                p.low[i] = p.high[i] - 512;
        same_bits(&p);
        problem_free(&p);
    }
}

static void query_does_not_depend_on_the_others(void **state) {
    (void)state;
    each_isa(bits);
}

/* A key that only some may see must not reach the others, whatever is in it. */
static void hidden_keys_take_no_part(void **state) {
    (void)state;
    problem p = problem_make(64, 64, 1, 1, 64, G3_KV_F32);
    for (size_t i = 0; i < p.n; i++)
        p.low[i] = i < 32 ? 0 : 20;
    float *clean = run_all(&p);
    for (size_t j = 0; j < p.head_dim; j++) {
        ((float *)p.kv_keys)[10 * p.head_dim + j] = NAN;
        ((float *)p.kv_values)[10 * p.head_dim + j] = INFINITY;
        ((float *)p.kv_values)[127 * p.head_dim + j] = NAN;
    }
    float *dirty = run_all(&p);
    const size_t row = (size_t)p.heads * p.head_dim * sizeof(float);
    assert_memory_equal((char *)clean + 32 * row, (char *)dirty + 32 * row, 31 * row);
    assert_true(isnan(dirty[0]));
    assert_true(isnan(dirty[63 * p.head_dim]));
    free(clean);
    free(dirty);
    problem_free(&p);
}

/* ---- Where keys lie ------------------------------------------------------------------- */

/* The positions of [split - slots, split) in a ring and those from split on apart. */
static void ring_equals_contiguous(size_t before, size_t n, size_t window, size_t split,
                                   g3_kv_type type) {
    problem p = problem_make(n, before, 4, 2, 48, type);
    for (size_t i = 0; i < n; i++)
        p.low[i] = p.high[i] > window ? p.high[i] - window : 0;
    const size_t stride = p.view.old_stride;
    char *keys = make(window * stride), *values = make(window * stride);
    for (size_t k = split > window ? split - window : 0; k < split; k++) {
        memcpy(keys + k % window * stride, (char *)p.kv_keys + k * stride, stride);
        memcpy(values + k % window * stride, (char *)p.kv_values + k * stride, stride);
    }
    g3_kv_view view = p.view;
    view.old_keys = keys;
    view.old_values = values;
    view.old_slots = window;
    view.split = split;
    view.new_keys = (char *)p.kv_keys + split * stride;
    view.new_values = (char *)p.kv_values + split * stride;
    float *whole = run_all(&p), *ring = run_part(&p, &view, 0, n);
    assert_same(&p, whole, ring, 0, n);
    compare(&p, ring);
    free(whole);
    free(ring);
    free(keys);
    free(values);
    problem_free(&p);
}

static void rings(void) {
    static const size_t split[] = {0, 1, 100, 127, 128, 129, 333, 640};
    for (size_t s = 0; s < VRPT_COUNT(split); s++) {
        ring_equals_contiguous(split[s], 60, 100, split[s], G3_KV_F16);
        ring_equals_contiguous(split[s], 1, 128, split[s], G3_KV_F32);
        ring_equals_contiguous(split[s], 300, 17, split[s], G3_KV_F32);
    }
}

static void ring_and_fresh_part_equal_a_contiguous_cache(void **state) {
    (void)state;
    each_isa(rings);
}

/* Window 4, query 6: keys 3, 4, 5, 6 and no other. Values say which were seen. */
static void window_counts_the_query_itself(void **state) {
    (void)state;
    problem p = problem_make(8, 0, 1, 1, 8, G3_KV_F32);
    memset(p.q, 0, p.n * p.head_dim * sizeof(float)); /* equal weights */
    for (size_t k = 0; k < 8; k++)
        for (size_t j = 0; j < 8; j++)
            ((float *)p.kv_values)[k * 8 + j] = j == k ? 1.0f : 0.0f;
    for (size_t i = 0; i < 8; i++)
        p.low[i] = i >= 3 ? i - 3 : 0;
    float *out = run_all(&p);
    static const float expected[8] = {0, 0, 0, 0.25f, 0.25f, 0.25f, 0.25f, 0};
    assert_memory_equal(out + 6 * 8, expected, sizeof expected);
    free(out);
    problem_free(&p);
}

/* Neither the scratch of g3_attention_bytes nor its limit grows with the keys, and a
 * scratch for many queries serves fewer. */
static void scratch_is_bounded(void **state) {
    (void)state;
    assert_int_equal(g3_attention_bytes(4096, 16, 72, 4096), g3_attention_bytes(4096, 16, 72, 1));
    assert_true(g3_attention_bytes(4096, 16, 72, 4096) < (size_t)THREADS << 20);
    size_t before = 0;
    for (size_t n = 1; n < 600; n++) {
        size_t bytes = g3_attention_bytes(n, 4, 256, 32768);
        assert_true(bytes >= before);
        before = bytes;
    }
}

int main(void) {
    set_threads(THREADS); /* before the first question: scratch is for so many */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_matches_double),
        cmocka_unit_test(attention_sees_all_keys_of_a_picture),
        cmocka_unit_test(attention_takes_the_maximum_out),
        cmocka_unit_test(query_does_not_depend_on_the_others),
        cmocka_unit_test(hidden_keys_take_no_part),
        cmocka_unit_test(ring_and_fresh_part_equal_a_contiguous_cache),
        cmocka_unit_test(window_counts_the_query_itself),
        cmocka_unit_test(scratch_is_bounded),
    };
    (void)g3_attention_bytes(1, 1, 2, 1);
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
