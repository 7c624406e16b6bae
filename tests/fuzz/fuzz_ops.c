/* SPDX-License-Identifier: MIT */
/* Fuzz target: bytes become operations on a pool (support/ops.h), compared
 * with the plain model after each. What fails is a failing property test too:
 * prop_pool FILE replays it. */

#include "fuzz.h"

#include "ops.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static vrpt_run run;
    if (size > 64 * 1024 || vrpt_run_bytes(&run, data, size, 0))
        return 0;
    (void)fprintf(stderr, "operation %zu: %s\n", run.op, run.t.why);
    abort();
}
