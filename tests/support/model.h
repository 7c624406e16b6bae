/* SPDX-License-Identifier: MIT */
#ifndef VRPT_MODEL_H
#define VRPT_MODEL_H

/* The plain model that a pool is compared with: a list of the live blocks and
 * the sums over them. It knows nothing of extents, caches or streams' order. */

#include "vrp_test.h"

enum { VRPT_LIVE_MAX = 384, VRPT_SCOPE_SLOTS = 4 };

typedef struct vrpt_live {
    vrp_devptr ptr;
    uint64_t usable;
    uint64_t requested;
    int32_t tag;
    int scope;         /* slot of a scope, -1 for none */
    int stream;        /* index of the stream it was allocated on, -1: forgotten since */
    uint32_t used;     /* streams that may have touched it, one bit each */
    uint32_t recorded; /* of these, announced by vrp_record_stream */
    int stale;         /* a stream that used it is gone: no further work on it */
} vrpt_live;

typedef struct vrpt_sums {
    uint64_t requested, allocated, blocks;
} vrpt_sums;

typedef struct vrpt_model {
    vrpt_live live[VRPT_LIVE_MAX];
    size_t count;
    vrpt_sums now, peak, total;
    vrpt_sums tags[VRP_TAG_COUNT];
    uint64_t tag_budgets[VRP_TAG_COUNT];
    struct {
        vrp_scope scope; /* 0: slot is empty */
        int closed;
        uint64_t budget;
        vrpt_sums sums;
    } scopes[VRPT_SCOPE_SLOTS];
    int loose; /* 1: peaks and totals are taken from the pool at the next comparison */
} vrpt_model;

void vrpt_model_clear(vrpt_model *model);

/* Enters a block, after checking that it overlaps no other and is aligned.
 * 0 with a reason in the fixture. */
int vrpt_model_add(vrpt_model *model, vrpt *t, const vrpt_live *block, uint64_t alignment);
void vrpt_model_remove(vrpt_model *model, size_t index);

/* The live block that contains an address, count for none. */
size_t vrpt_model_find(const vrpt_model *model, vrp_devptr ptr);

/* I2 and I3 against vrp_pool_stats_get. */
int vrpt_model_compare(vrpt_model *model, vrpt *t, const vrp_stats *stats);

/* The same for every tag and scope. */
int vrpt_model_compare_groups(vrpt_model *model, vrpt *t);

void vrpt_model_peaks_reset(vrpt_model *model);

#endif
