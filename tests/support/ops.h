/* SPDX-License-Identifier: MIT */
#ifndef VRPT_OPS_H
#define VRPT_OPS_H

/* Operation sequences decoded from bytes. A run holds a pool and the plain
 * model in lockstep: each operation takes VRPT_OP_BYTES bytes, does something
 * to both, and is followed by the comparison of the two. Any bytes are a legal
 * sequence, so property tests feed random ones and a fuzzer feeds its own.
 *
 * Work is put on the simulated streams as an app would: a stream waits for the
 * others that used a block, or the use is announced by vrp_record_stream. So
 * whatever the machine's detector finds is the pool's fault. */

#include "model.h"

enum {
    VRPT_OP_BYTES = 8,
    VRPT_STREAMS = 6, /* the legacy one, the per-thread one, four made ones */
    VRPT_GROWABLES = 2,
    VRPT_CHECK_EVERY = 61 /* operations between full checks */
};

typedef struct vrpt_run_options {
    int32_t backing;
    int32_t completion;
    uint32_t pool_flags;
    uint64_t lag_ticks;
    int trace; /* 1: says every operation on stderr */
} vrpt_run_options;

typedef struct vrpt_growth {
    vrp_growable *buffer; /* NULL: none */
    uint64_t max_bytes;
    int stream;
} vrpt_growth;

typedef struct vrpt_run {
    vrpt t;
    vrpt_model model;
    vrpt_run_options options;
    vrp_stream streams[VRPT_STREAMS];
    uint32_t blocking; /* streams that order with the legacy one */
    int capturing;     /* index, -1 for none */
    vrpt_growth growth[VRPT_GROWABLES];
    vrp_devptr last_freed;
    uint64_t limit_bytes; /* the pool's, 0 for none */
    struct {
        int armed;
        uint64_t nth;
        int32_t call;
        vrp_status status;
    } fault;
    size_t op; /* number of the operation under way */
    uint64_t refused, tried_faults;
    vrp_stats before;
} vrpt_run;

/* Runs a whole sequence on a fresh machine, then ends it as every allocator
 * test ends. 1: all held. 0: t.why says what did not, `op` after which. */
int vrpt_run_ops(vrpt_run *run, const vrpt_run_options *options, const uint8_t *bytes,
                 size_t byte_count);

/* A run as one string of bytes, what a fuzzer and a saved failure hold: first
 * VRPT_OP_BYTES bytes that choose the options, then the operations. */
int vrpt_run_bytes(vrpt_run *run, const uint8_t *bytes, size_t byte_count, int trace);

#endif
