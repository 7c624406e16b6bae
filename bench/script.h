/* SPDX-License-Identifier: MIT */
#ifndef BENCH_SCRIPT_H
#define BENCH_SCRIPT_H

/* A trace read whole, with blocks and streams numbered from 0: what a replay
 * with a clock goes through, so that reading costs it nothing. */

#include "json.h"

#include <stdint.h>

enum { BENCH_STEP_ALLOC = 0, BENCH_STEP_FREE = 1, BENCH_STEP_SYNCHRONISE = 2 };

typedef struct bench_step {
    uint32_t kind;   /* BENCH_STEP_* */
    uint32_t stream; /* of the block */
    uint64_t block;
    uint64_t bytes; /* of the block, as requested; 0: it takes no memory, and no call */
} bench_step;

typedef struct bench_script {
    const char *trace;
    bench_step *steps;
    uint64_t count;
    uint64_t events; /* allocations and frees of more than 0 bytes among them */
    uint64_t blocks;
    uint32_t streams;
    uint64_t recorded_us; /* from the first to the last line, when it was recorded */
} bench_script;

/* BENCH_OK, or a status after a message. */
int bench_script_read(bench_script *script, const char *trace);
void bench_script_free(bench_script *script);

/* The steps as they are in memory, for programs in other languages. */
int bench_script_dump(const bench_script *script, const char *path);

#endif
