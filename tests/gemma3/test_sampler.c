/* SPDX-License-Identifier: MIT */
/* Choosing the next token: greedy, temperature, top-k, top-p, seeds. */
#include <math.h>

#include "vrp_test.h"

#include "engine/sampler.h"

enum { COUNT = 64 };

static int32_t draw(g3_sampler *sampler, const float *logits, size_t count) {
    g3_candidate scratch[COUNT];
    g3_error error = {{0}};
    int32_t id = -1;
    if (g3_sample(sampler, logits, count, scratch, &id, &error) != G3_OK)
        fail_msg("%s", error.text);
    return id;
}

static void greedy_takes_the_lowest_of_the_largest(void **state) {
    (void)state;
    const float logits[] = {1, 5, -2, 5, NAN, 4};
    g3_sampler sampler = {.temperature = 0};
    assert_int_equal(draw(&sampler, logits, 6), 1);
    assert_int_equal(draw(&sampler, logits, 1), 0);
    sampler = (g3_sampler){.temperature = 1, .top_k = 1, .top_p = 1};
    assert_int_equal(draw(&sampler, logits, 6), 1);
}

/* Rows that only fill up the embedding lie beyond the count. */
static void ids_beyond_the_vocabulary_are_never_chosen(void **state) {
    (void)state;
    float logits[COUNT] = {0};
    logits[40] = 100;
    g3_sampler greedy = {.temperature = 0}, warm = {.temperature = 1, .top_p = 1, .seed = 3};
    assert_int_equal(draw(&greedy, logits, 40), 0);
    for (int i = 0; i < 200; i++)
        assert_in_range(draw(&warm, logits, 40), 0, 39);
}

static void what_is_no_number_is_an_error(void **state) {
    (void)state;
    const float nans[] = {NAN, NAN}, infinite[] = {1, INFINITY}, low[] = {-INFINITY, -INFINITY};
    /* An id that must not be chosen among logits that are none. */
    const float hidden[] = {NAN, -INFINITY, NAN};
    g3_sampler greedy = {.temperature = 0}, warm = {.temperature = 1, .top_p = 1};
    g3_candidate scratch[3];
    g3_error error = {{0}};
    int32_t id = 7;
    assert_int_equal(g3_sample(&greedy, nans, 2, scratch, &id, &error), G3_INVALID);
    assert_int_equal(g3_sample(&greedy, low, 2, scratch, &id, &error), G3_INVALID);
    assert_int_equal(g3_sample(&greedy, hidden, 3, scratch, &id, &error), G3_INVALID);
    assert_int_equal(g3_sample(&greedy, infinite, 2, scratch, &id, &error), G3_INVALID);
    assert_int_equal(g3_sample(&warm, hidden, 3, scratch, &id, &error), G3_INVALID);
    assert_int_equal(g3_sample(&warm, nans, 2, scratch, &id, &error), G3_INVALID);
    assert_int_equal(g3_sample(&warm, infinite, 2, scratch, &id, &error), G3_INVALID);
    assert_int_equal(g3_sample(&warm, low, 2, scratch, &id, &error), G3_INVALID);
    assert_int_equal(g3_sample(&warm, low, 0, scratch, &id, &error), G3_INVALID);
    assert_int_equal(id, 7);
}

static void a_seed_repeats_itself_and_another_differs(void **state) {
    (void)state;
    float logits[COUNT];
    for (int i = 0; i < COUNT; i++)
        logits[i] = (float)(i % 7);
    g3_sampler a = {.temperature = 1, .top_p = 1, .seed = 11}, b = a, c = a;
    c.seed = 12;
    int differs = 0;
    for (int i = 0; i < 50; i++) {
        const int32_t id = draw(&a, logits, COUNT);
        assert_int_equal(draw(&b, logits, COUNT), id);
        differs += draw(&c, logits, COUNT) != id;
    }
    assert_true(differs > 10);
}

/* Shares of 20,000 draws against the softmax, within five standard deviations. */
static void shares_follow_the_softmax(float temperature, uint32_t top_k, float top_p) {
    float logits[8] = {0.5f, 2.0f, -1.0f, 1.5f, 1.0f, -3.0f, 0.0f, 1.9f};
    /* Order of the values: 1 7 3 4 0 6 2 5. */
    const int order[8] = {1, 7, 3, 4, 0, 6, 2, 5};
    double weight[8] = {0}, all = 0, kept_sum = 0;
    uint32_t kept = top_k == 0 || top_k > 8 ? 8 : top_k;
    for (uint32_t i = 0; i < kept; i++)
        all += weight[order[i]] = exp((double)logits[order[i]] / (double)temperature);
    double part = 0;
    for (uint32_t i = 0; i < 8; i++) {
        if (i >= kept || (i > 0 && part >= (double)top_p * all))
            weight[order[i]] = 0;
        part += weight[order[i]];
        kept_sum += weight[order[i]];
    }
    enum { DRAWS = 20000 };
    g3_sampler sampler = {temperature, top_k, top_p, 99};
    int counts[8] = {0};
    for (int i = 0; i < DRAWS; i++)
        counts[draw(&sampler, logits, 8)]++;
    for (int i = 0; i < 8; i++) {
        const double share = weight[i] / kept_sum;
        const double sigma = sqrt(DRAWS * share * (1 - share));
        assert_true(fabs(counts[i] - DRAWS * share) <= 5 * sigma);
    }
}

static void draws_have_the_shares_of_the_softmax(void **state) {
    (void)state;
    shares_follow_the_softmax(1.0f, 0, 1.0f);
    shares_follow_the_softmax(0.5f, 0, 1.0f);
    shares_follow_the_softmax(2.0f, 3, 1.0f);
    shares_follow_the_softmax(1.0f, 0, 0.6f);
    shares_follow_the_softmax(1.3f, 5, 0.8f);
    shares_follow_the_softmax(1.0f, 100, 0.0f);
}

/* The selection of the largest against a full sort, with many equals. */
static void top_k_keeps_the_largest(void **state) {
    (void)state;
    uint32_t random = 5;
    for (int round = 0; round < 300; round++) {
        float logits[COUNT];
        for (int i = 0; i < COUNT; i++) {
            random = random * 1664525u + 1013904223u;
            logits[i] = (float)((random >> 16) % (round % 2 == 0 ? 8u : 1000u));
        }
        const uint32_t keep = 1 + (uint32_t)round % COUNT;
        g3_sampler sampler = {100.0f, keep, 1.0f, (uint64_t)round};
        const int32_t id = draw(&sampler, logits, COUNT);
        uint32_t before = 0;
        for (int i = 0; i < COUNT; i++)
            before += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
        assert_true(before < keep);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_lowest_of_the_largest),
        cmocka_unit_test(ids_beyond_the_vocabulary_are_never_chosen),
        cmocka_unit_test(what_is_no_number_is_an_error),
        cmocka_unit_test(a_seed_repeats_itself_and_another_differs),
        cmocka_unit_test(draws_have_the_shares_of_the_softmax),
        cmocka_unit_test(top_k_keeps_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
