/* SPDX-License-Identifier: MIT */
#ifndef BENCH_CONTEST_H
#define BENCH_CONTEST_H

/* A trace through any allocator, against the clock: each block is touched by a
 * kernel on its stream, the device is waited for where the recorder did. With
 * several streams each has a host thread of its own. */

#include "adaptor.h"
#include "clocked.h"
#include "script.h"
#include "stage.h"

typedef struct bench_contest {
    const bench_stage *stage;
    const bench_adaptor *adaptor;
    void *self;
    const bench_script *script;
    const bench_clocked *clocked; /* vrampool's driver; NULL */
    uint64_t most_ns;             /* stop after so long; 0: never */
} bench_contest;

typedef struct bench_outcome {
    uint64_t events, threads, failures;
    uint64_t wall_ns, inside_ns; /* inside: the sum of all calls of the allocator */
    bench_call_times driver;     /* through the last line; zero where it is not clocked */
    uint64_t peak_requested_bytes, peak_reserved_bytes, mean_gap_bytes;
    int peak_is_own; /* the allocator's figure, not one sampled from the device */
    int complete;
    int reserved_known;
    uint64_t live_bytes_at_end, reserved_at_end_bytes; /* after the last line */
    uint64_t empty_cache_ns, reserved_after_empty_bytes;
    int has_empty_cache;
    uint64_t host_bytes; /* for bookkeeping, the most that was seen; 0: unknown */
} bench_outcome;

/* BENCH_OK or BENCH_FAILED after a message. Everything is freed afterwards. */
int bench_contest_run(const bench_contest *contest, bench_outcome *out_outcome);

void bench_outcome_json(bench_json *json, const bench_contest *contest,
                        const bench_outcome *outcome);

#endif
