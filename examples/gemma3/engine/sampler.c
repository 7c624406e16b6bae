/* SPDX-License-Identifier: MIT */
#include "sampler.h"

#include <math.h>
#include <stdlib.h>

#include "../kernels/ops.h"

/* splitmix64 (Steele, Lea, Flood 2014): the whole state is one word. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Larger values first, lower ids among equals: one order on every machine. */
static int by_value(const void *left, const void *right) {
    const g3_candidate *a = left, *b = right;
    if (a->value != b->value)
        return a->value > b->value ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Moves the `keep` largest to the front, unordered: quickselect on the middle. */
static void select_top(g3_candidate *list, size_t count, size_t keep) {
    size_t low = 0, high = count;
    while (high - low > 1) {
        /* Never the last of the range: each part then ends up smaller than the whole. */
        const g3_candidate pivot = list[low + (high - low - 1) / 2];
        size_t i = low, j = high - 1;
        for (;;) {
            while (by_value(&list[i], &pivot) < 0)
                i++;
            while (by_value(&pivot, &list[j]) < 0)
                j--;
            if (i >= j)
                break;
            const g3_candidate swap = list[i];
            list[i++] = list[j];
            list[j--] = swap;
        }
        /* list[low .. j] comes before list[j + 1 .. high) */
        if (keep <= j + 1)
            high = j + 1;
        else
            low = j + 1;
        if (keep == low || keep == high)
            return;
    }
}

/* Probabilities of an ordered list, the largest first; returns their sum. */
static double weigh(g3_candidate *list, size_t count, float temperature) {
    const float top = list[0].value;
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        const double weight = exp(((double)list[i].value - (double)top) / (double)temperature);
        list[i].value = (float)weight;
        sum += weight;
    }
    return sum;
}

/* How many of the ordered list make up top_p of the sum: at least one. */
static size_t nucleus(const g3_candidate *list, size_t count, double sum, float top_p,
                      double *out_sum) {
    double part = 0;
    size_t kept = 0;
    while (kept < count && (kept == 0 || part < (double)top_p * sum))
        part += (double)list[kept++].value;
    *out_sum = part;
    return kept;
}

static size_t collect(const float *logits, size_t count, g3_candidate *list) {
    size_t filled = 0;
    for (size_t i = 0; i < count; i++)
        if (!isnan(logits[i]) && logits[i] != -INFINITY)
            list[filled++] = (g3_candidate){logits[i], (int32_t)i};
    return filled;
}

g3_status g3_sample(g3_sampler *sampler, const float *logits, size_t count, g3_candidate *scratch,
                    int32_t *out_id, g3_error *error) {
    if (count == 0)
        return g3_fail(error, G3_INVALID, "sampling from an empty vocabulary");
    if (sampler->temperature <= 0 || sampler->top_k == 1) {
        const size_t best = g3_argmax(logits, count);
        /* Ids that must not be chosen have -infinity: one that wins has no rival. */
        if (isnan(logits[best]) || logits[best] == -INFINITY)
            return g3_fail(error, G3_INVALID, "the logits are not numbers");
        if (logits[best] == INFINITY)
            return g3_fail(error, G3_INVALID, "a logit is infinite");
        *out_id = (int32_t)best;
        return G3_OK;
    }
    size_t kept = collect(logits, count, scratch);
    if (kept == 0)
        return g3_fail(error, G3_INVALID, "the logits are not numbers");
    if (sampler->top_k > 0 && sampler->top_k < kept) {
        select_top(scratch, kept, sampler->top_k);
        kept = sampler->top_k;
    }
    qsort(scratch, kept, sizeof *scratch, by_value);
    if (scratch[0].value == INFINITY)
        return g3_fail(error, G3_INVALID, "a logit is infinite");
    double sum = weigh(scratch, kept, sampler->temperature);
    if (sampler->top_p < 1.0f)
        kept = nucleus(scratch, kept, sum, sampler->top_p, &sum);
    /* 53 random bits: a number in [0, 1). */
    double left = (double)(next_random(&sampler->seed) >> 11) * 0x1.0p-53 * sum;
    size_t chosen = 0;
    while (chosen + 1 < kept && left >= (double)scratch[chosen].value)
        left -= (double)scratch[chosen++].value;
    *out_id = scratch[chosen].id;
    return G3_OK;
}
