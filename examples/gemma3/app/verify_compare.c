/* SPDX-License-Identifier: MIT */
/* The largest difference of outputs from what is expected, as a table. */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "verify.h"

void g3_difference_add(g3_difference *difference, const float *values, uint64_t count,
                       const g3_st_tensor *expected, uint64_t first) {
    for (uint64_t i = 0; i < count; i++) {
        const double delta = fabs((double)values[i] - (double)g3_st_float(expected, first + i));
        /* A NaN stays: no later difference is larger than it, and none smaller. */
        if (isnan(difference->largest) || delta <= difference->largest)
            continue;
        difference->largest = delta;
        difference->at = difference->count + i;
    }
    difference->count += count;
}

void g3_comparison_header(void) {
    (void)printf("%-24s %10s %14s %10s  %-16s\n", "output", "values", "largest error", "tolerance",
                 "at [row, column]");
}

void g3_comparison_add(g3_comparison *comparison, g3_compared kind, const char *name,
                       const g3_difference *difference, uint64_t width) {
    const bool passed = difference->count > 0 && difference->largest <= comparison->tolerance[kind];
    double *worst = &comparison->worst[kind];
    if (!isnan(*worst) && !(difference->largest <= *worst))
        *worst = difference->largest;
    comparison->values[kind] += difference->count;
    comparison->outputs++;
    comparison->failed += passed ? 0 : 1;
    char place[48] = "";
    if (width > 0 && difference->largest != 0.0)
        (void)snprintf(place, sizeof place, "[%" PRIu64 ", %" PRIu64 "]", difference->at / width,
                       difference->at % width);
    (void)printf("%-24s %10" PRIu64 " %14.3e %10.1e  %-16s %s\n", name, difference->count,
                 difference->largest, comparison->tolerance[kind], place, passed ? "ok" : "FAILED");
}

bool g3_comparison_finish(const g3_comparison *comparison) {
    const bool passed = comparison->failed == 0 && comparison->values[G3_COMPARED_LOGITS] > 0;
    if (passed)
        (void)printf("ok: %" PRIu32 " outputs", comparison->outputs);
    else
        (void)printf("FAILED: %" PRIu32 " of %" PRIu32 " outputs", comparison->failed,
                     comparison->outputs);
    (void)printf("; logits off by at most %.3e (%.1e passes)",
                 comparison->worst[G3_COMPARED_LOGITS], comparison->tolerance[G3_COMPARED_LOGITS]);
    if (comparison->values[G3_COMPARED_FEATURES] > 0)
        (void)printf(", image features by %.3e (%.1e)", comparison->worst[G3_COMPARED_FEATURES],
                     comparison->tolerance[G3_COMPARED_FEATURES]);
    if (comparison->values[G3_COMPARED_IDS] > 0)
        (void)printf(", %" PRIu64 " greedy ids %s", comparison->values[G3_COMPARED_IDS],
                     comparison->worst[G3_COMPARED_IDS] > 0.0 ? "not all equal" : "equal");
    (void)printf("\n");
    return passed;
}
