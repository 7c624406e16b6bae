/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_CLOCK_H
#define GEMMA3_CLOCK_H

#include <time.h>

/* Seconds of a clock that never goes back, from some beginning. */
static inline double g3_now(void) {
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

#endif
