/* SPDX-License-Identifier: MIT */
#ifndef BENCH_PEERS_H
#define BENCH_PEERS_H

/* The commands that measure: micro (the library alone), peers (every allocator
 * that is found, each in a process of its own), and the command of such a
 * process, which people do not call. */

#include "measure.h"

typedef struct bench_plan {
    bench_options device; /* only what it says of the device */
    const char *only, *csv, *json, *replays_json, *adaptors, *allocators, *dump;
    const char *traces[8];
    uint32_t trace_count;
    uint64_t pairs, repeat, sample_ms, most_seconds, resident_replays;
    /* Of a child. */
    const char *allocator;
} bench_plan;

/* BENCH_OK, or BENCH_USAGE after a message; *out_help 1 where help is wanted. */
int bench_plan_parse(bench_plan *plan, int count, char **words, int *out_help);

int bench_micro_command(int count, char **words);
int bench_peers_command(int count, char **words);
int bench_child_command(int count, char **words);

/* A file to write to, standard output for "-"; NULL after a message. */
FILE *bench_open_out(const char *path);
int bench_close_out(FILE *out); /* BENCH_OK or BENCH_FAILED */

#endif
