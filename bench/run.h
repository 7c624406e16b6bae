/* SPDX-License-Identifier: MIT */
#ifndef BENCH_RUN_H
#define BENCH_RUN_H

/* A replay while it goes on: shared by the files that make one up. */

#include "device.h"
#include "replay.h"
#include "seen.h"
#include "table.h"

#include <stdatomic.h>

__extension__ typedef __int128 bench_wide;

typedef struct bench_run {
    const bench_options *options;
    bench_figures *figures;
    bench_device device;
    vrp_pool *pool;
    vrp_optimizer *optimizer; /* NULL: off */
    vrp_trace_reader *reader;
    bench_table blocks;  /* live, by id */
    bench_seen ids;      /* of all allocations so far */
    bench_table streams; /* handles, by number */
    uint32_t last_stream;
    vrp_stream last_handle;
    uint64_t index;     /* events taken from the reader, of every kind */
    uint64_t events;    /* allocations and frees */
    uint64_t requested; /* bytes live now */
    uint64_t peak_requested;
    uint64_t peak_reserved;                       /* after a line */
    _Atomic uint64_t host_bytes, host_bytes_peak; /* of the pool's bookkeeping */
    bench_wide gap_sum;
    uint64_t next_check, checks_done, check_events;
    uint64_t first_refused, first_recorded; /* index of the event + 1; 0: none */
    int shows_bar;                          /* standard error is a terminal */
    uint64_t shown_ns;                      /* when the progress bar was drawn last; 0: never */
} bench_run;

uint64_t bench_clock_ns(void);

/* Opens the trace. BENCH_OK, BENCH_USAGE (no such file) or BENCH_FAILED. */
int bench_trace_open(const char *path, vrp_trace_reader **out_reader);

/* The line of event number `index` (from 0), by reading the trace again: a
 * replay does not pay for line numbers that it never prints. 0: unknown. */
uint64_t bench_line_of(const char *path, uint64_t index);

/* Prints "FILE:LINE: ..." for the event that is being applied. */
int bench_fail_here(const bench_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* At a marker: drains, and asks the optimizer where it is a step. */
int bench_marker(bench_run *run, vrp_trace_marker marker);

/* Empties the cache, recounts the pool by a walk of its own, and compares. */
int bench_check_point(bench_run *run);

/* The figures after the last line; then frees what is alive and looks whether
 * everything has gone back. */
int bench_take_figures(bench_run *run);
int bench_close_pool(bench_run *run);

#endif
