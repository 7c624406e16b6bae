/* SPDX-License-Identifier: MIT */
#ifndef BENCH_SEEN_H
#define BENCH_SEEN_H

/* The ids that a trace has used: one that comes again is a fault, also when its
 * first block is long gone. A bit each where ids count up, as recorders write
 * them; other ids take a hash table, so that memory grows with their number
 * and never with their values. */

#include "table.h"

typedef struct bench_seen {
    uint64_t *bits;
    uint64_t words;
    uint64_t count; /* ids added */
    bench_table sparse;
} bench_seen;

/* 1: added; 0: the id was there (*out_there 1), or there is no memory. */
int bench_seen_add(bench_seen *seen, uint64_t id, int *out_there);
void bench_seen_free(bench_seen *seen);

#endif
