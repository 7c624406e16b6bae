/* SPDX-License-Identifier: MIT */
#ifndef BENCH_REPLAY_H
#define BENCH_REPLAY_H

/* Plays a trace through a pool and takes the figures. */

#include "options.h"
#include "vrampool/sim.h"
#include "vrampool/trace.h"

enum { BENCH_MARKERS = VRP_MARKER_REQUEST + 1 };

typedef struct bench_figures {
    uint64_t events; /* allocations and frees */
    uint64_t failures;
    uint64_t recorded_failures; /* requests that had failed when recorded */
    uint64_t peak_requested_bytes, peak_allocated_bytes, peak_reserved_bytes;
    uint64_t peak_gap_bytes, mean_gap_bytes;
    uint64_t at_peak_bytes, at_end_bytes; /* reserved - allocated */
    vrp_gap at_peak, at_end;
    uint64_t gap_limit_missed_bytes;
    uint64_t host_bytes_peak; /* of the pool's bookkeeping, while the lines were played */
    uint64_t cross_stream_waits;
    uint64_t calls[VRP_SIM_CALL_COUNT];
    uint64_t driver_calls, driver_allocations, driver_time_ns;
    uint64_t steps, steps_acted, max_gap_after_step_bytes, released_bytes;
    uint64_t markers[BENCH_MARKERS];
    uint64_t streams;
    uint64_t live_blocks; /* after the last line */
    uint64_t misuses;
    uint64_t points; /* at which the recount agreed */
    uint64_t on_gpu; /* 1: prices and counts of driver calls are not known */
    /* From clocks: */
    uint64_t wall_ns, decompress_ns;
} bench_figures;

/* One replay on a device and pool of its own. BENCH_OK, BENCH_REFUSED (some
 * allocations were), or BENCH_FAILED after a message; the figures are whole
 * but for BENCH_FAILED. */
int bench_replay_run(const bench_options *options, bench_figures *out_figures);

/* The replay command: repeats, table, JSON. Returns the exit status. */
int bench_replay_command(int count, char **words);

/* --compare-policies. */
int bench_policies_command(const bench_options *options);

/* The convert and frontier commands. */
int bench_convert_command(int count, char **words);
int bench_frontier_command(int count, char **words);

#endif
