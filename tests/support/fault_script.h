/* SPDX-License-Identifier: MIT */
#ifndef VRPT_FAULT_SCRIPT_H
#define VRPT_FAULT_SCRIPT_H

/* A fixed sequence of calls that exercises everything a pool does, made so
 * that any call of it may be refused. */

#include "vrp_test.h"

enum { SCRIPT_BLOCKS = 48 };

typedef struct script_plan {
    int32_t backing;
    int32_t call;      /* driver calls of this kind fail; -1: of every kind */
    uint64_t nth;      /* the n-th of them; 0: none */
    uint64_t count;    /* that many, UINT64_MAX: for ever */
    vrp_status status; /* with this */
    uint64_t host_nth; /* the n-th host allocation fails; 0: none */
    int host_for_ever;
} script_plan;

typedef struct script {
    vrpt t;
    script_plan plan;
    vrp_stream streams[3];
    vrp_devptr blocks[SCRIPT_BLOCKS];
    uint64_t sizes[SCRIPT_BLOCKS];
    vrp_growable *buffer;
    vrp_scope scope;
    int capturing;
    uint64_t refused; /* calls that answered anything but OK */
    vrp_stats before;
    uint64_t host_calls;                /* host allocations asked for so far */
    uint64_t host_live;                 /* bytes */
    int host_calm;                      /* 1: no more host failures */
    uint64_t calls[VRP_SIM_CALL_COUNT]; /* driver calls before the ending */
    int over;                           /* the pool could not be created and the machine is gone */
    int broken;                         /* t.why says what does not hold */
} script;

/* Runs the whole script under a plan and ends it as every allocator test ends.
 * 1: everything held. */
int script_run(script *s, const script_plan *plan);

#endif
