/* SPDX-License-Identifier: MIT */
#ifndef VRPT_UNIT_SUPPORT_H
#define VRPT_UNIT_SUPPORT_H

/* Shorthands of the unit tests over support/vrp_test.h: calls that must
 * succeed, and figures read in one line. They assert, so they belong to the
 * main thread. */

#include "support/vrp_test.h"

static inline void open_pool(vrpt *t, const vrpt_options *options) {
    VRPT_REQUIRE(t, vrpt_open(t, options));
}

static inline void close_pool(vrpt *t) { VRPT_REQUIRE(t, vrpt_close(t)); }

/* A block that must be had. */
static inline vrp_devptr take_on(vrpt *t, uint64_t bytes, vrp_stream stream) {
    vrp_devptr ptr = 0;
    vrp_status status = vrp_alloc(t->pool, bytes, stream, &ptr);
    if (status != VRP_OK)
        fail_msg("%llu bytes: %s (%s)", (unsigned long long)bytes, vrp_status_name(status),
                 vrpt_detail());
    return ptr;
}

static inline vrp_devptr take(vrpt *t, uint64_t bytes) {
    return take_on(t, bytes, VRP_STREAM_LEGACY);
}

static inline void give(vrpt *t, vrp_devptr ptr) {
    VRPT_OK(vrp_free(t->pool, ptr, VRP_STREAM_OF_ALLOC));
}

/* vrp_alloc_ex with what the tests vary. */
static inline vrp_status ask(vrpt *t, uint64_t bytes, uint64_t alignment, int32_t tag,
                             vrp_scope scope, vrp_devptr *out_ptr) {
    vrp_alloc_info info = {.struct_size = sizeof info,
                           .bytes = bytes,
                           .alignment = alignment,
                           .tag = tag,
                           .scope = scope};
    return vrp_alloc_ex(t->pool, &info, out_ptr);
}

static inline uint64_t reserved(vrpt *t) { return vrpt_stats(t).reserved_bytes.current; }
static inline uint64_t allocated(vrpt *t) { return vrpt_stats(t).allocated_bytes.current; }
static inline uint64_t requested(vrpt *t) { return vrpt_stats(t).requested_bytes.current; }

static inline uint64_t used_on_device(vrpt *t) { return vrpt_sim_stats(t, 0).used_bytes; }

static inline uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* The smallest piece that a pool takes from the driver. */
static inline uint64_t piece(const vrpt *t) {
    return t->backing == VRP_BACKING_MALLOC ? 32 * VRPT_MIB : 2 * VRPT_MIB;
}

/* The most that a first small request makes a pool hold: a segment has room
 * for several blocks of one size. */
static inline uint64_t first_piece(const vrpt *t) {
    return t->backing == VRP_BACKING_MALLOC ? 2 * piece(t) : piece(t);
}

/* Nothing but the failure counters may differ from `before`. The peak of
 * reserved is no part of it: what a request held before it failed was held. */
static inline void assert_unchanged(vrpt *t, const vrp_stats *before) {
    vrp_stats now = vrpt_stats(t);
    assert_true(vrpt_same_counters(&now, before));
    assert_int_equal(now.reserved_bytes.current, before->reserved_bytes.current);
}

#endif
