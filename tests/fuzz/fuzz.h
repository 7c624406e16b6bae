/* SPDX-License-Identifier: MIT */
#ifndef VRPT_FUZZ_H
#define VRPT_FUZZ_H

/* What a fuzz target defines, libFuzzer's entry point, and how it says that something
 * does not hold. */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define REQUIRE(condition)                             \
    do {                                               \
        if (!(condition)) {                            \
            (void)fprintf(stderr, "%s\n", #condition); \
            abort();                                   \
        }                                              \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
