/* SPDX-License-Identifier: MIT */
#ifndef VRPT_VRP_TEST_H
#define VRPT_VRP_TEST_H

/* What the tests of the pool share: a fixture (machine, driver, pool) for one
 * device and backing, the ending that every allocator test has, an independent
 * recount of a pool, seeds, and the runner that repeats a suite over backings.
 *
 * Nothing in here asserts: functions answer 1 for success and leave a reason
 * in the fixture, so that property tests, fuzzers and threads can use them.
 * The VRPT_ macros turn a failure into one of cmocka's.
 *
 * Environment:
 *   VRAMPOOL_TEST_DEVICE   "sim" (default) or "cuda:N"; a suite's first argument wins
 *   VRAMPOOL_TEST_BACKING  "vmm" or "malloc"; default: one after the other
 *   VRAMPOOL_TEST_SEED     a number for the random tests, default fixed
 *   VRAMPOOL_TEST_OPS      operations per run of the property tests */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "vrampool/inspect.h"
#include "vrampool/knobs.h"
#include "vrampool/sim.h"
#include "vrampool/vrampool.h"

#define VRPT_KIB ((uint64_t)1 << 10)
#define VRPT_MIB ((uint64_t)1 << 20)
#define VRPT_GIB ((uint64_t)1 << 30)

enum { VRPT_SKIP = 77 }; /* exit status of a test program that could not run here */

/* What a suite runs on now; set by vrpt_main. */
typedef struct vrpt_target {
    const char *device; /* "sim" or "cuda:N" */
    int32_t backing;    /* vrp_backing */
} vrpt_target;
extern vrpt_target vrpt_now;

typedef struct vrpt_options {
    int32_t backing;       /* vrp_backing; 0: that of vrpt_now */
    int32_t completion;    /* vrp_sim_completion */
    uint64_t device_bytes; /* 0: 1 GiB */
    uint64_t lag_ticks;
    uint32_t sim_flags;
    uint32_t device_count;
    uint32_t host_memory; /* 1: addresses can be computed on */
    uint32_t sim_only;    /* 1: on the simulated device whatever vrpt_now says */
    vrp_pool_config pool; /* struct_size may be 0 */
} vrpt_options;

typedef struct vrpt {
    vrp_sim *sim; /* NULL on a real device */
    vrp_driver *driver;
    vrp_pool *pool;
    int32_t backing;
    uint32_t pool_flags;
    uint64_t device_bytes;
    int lagging;   /* 1: an event is not complete at once, even on an idle stream */
    int faulted;   /* 1: releases were made to fail, so that memory may wait for another try */
    int shared;    /* 1: other pools hold memory of the device too */
    char why[512]; /* why something answered 0 */
} vrpt;

int vrpt_open(vrpt *t, const vrpt_options *options); /* options may be NULL */

/* As vrpt_open, and leaves the pool to the caller. */
int vrpt_open_device(vrpt *t, const vrpt_options *options);
vrp_status vrpt_pool_create(vrpt *t, const vrpt_options *options, vrp_pool **out_pool);

/* The ending of every allocator test: check, recount, free what is live,
 * finish all work, empty the cache: nothing reserved; one allocation of the
 * whole pool; destroy; the machine has nothing left and saw no misuse.
 * Closes everything either way. */
int vrpt_close(vrpt *t);

/* vrpt_close up to and without the destruction of the pool. */
int vrpt_whole_again(vrpt *t);

/* Ends the machine after the pool has gone. */
int vrpt_close_device(vrpt *t);

/* Completes all work of the device. */
void vrpt_drain(vrpt *t);

/* Says why and answers 0. */
int vrpt_fail(vrpt *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- Recount ----------------------------------------------------------------- */

typedef struct vrpt_block {
    vrp_devptr base;
    uint64_t bytes;
    uint64_t requested;
    vrp_stream stream;
    vrp_scope scope;
    int32_t tag;
    int32_t state;
    uint32_t is_slot;
} vrpt_block;

typedef struct vrpt_extent {
    vrp_devptr base;
    uint64_t bytes;
    uint64_t live_bytes; /* as the pool says */
    uint64_t used;       /* as the blocks say: live, slabs, cached */
    uint64_t covered;    /* by any block */
    uint32_t arena;
    uint32_t pending;
    uint32_t in_transit;
} vrpt_extent;

typedef struct vrpt_view {
    vrpt_block *blocks;
    vrpt_extent *extents;
    size_t block_count, block_room;
    size_t extent_count, extent_room;
    int out_of_memory;
    uint64_t live_blocks, requested, allocated, reserved;
    vrp_gap gap;
} vrpt_view;

/* Walks the pool and adds everything up by itself. The caller releases the
 * view. 0 when the walk failed or is not consistent in itself (overlaps, live
 * blocks without memory, free neighbours that were not merged). */
int vrpt_view_take(vrpt *t, vrpt_view *view);
void vrpt_view_release(vrpt_view *view);

/* Takes a view and compares it with vrp_pool_stats_get, vrp_pool_gap_compute
 * and the bytes that the machine says are used. */
int vrpt_recount(vrpt *t);

/* ---- Shorthands ---------------------------------------------------------------- */

vrp_stats vrpt_stats(vrpt *t);
vrp_sim_stats vrpt_sim_stats(vrpt *t, uint32_t ordinal);
uint64_t vrpt_usable(vrpt *t, vrp_devptr ptr); /* 0 for no live block */
uint64_t vrpt_driver_calls(vrpt *t);           /* memory calls of the simulated driver */
const char *vrpt_detail(void);                 /* message of this thread's last failure */

/* Counters that a refused request must leave alone: 1 if they are the same. */
int vrpt_same_counters(const vrp_stats *a, const vrp_stats *b);

/* A stream of the device, simulated or real; non-blocking. 0: none to be had. */
vrp_stream vrpt_stream_create(vrpt *t);
void vrpt_stream_destroy(vrpt *t, vrp_stream stream);

/* A small generator: the same everywhere. */
typedef struct vrpt_rng {
    uint64_t state;
} vrpt_rng;
uint64_t vrpt_rng_next(vrpt_rng *rng);
uint64_t vrpt_rng_below(vrpt_rng *rng, uint64_t bound);

uint64_t vrpt_env_number(const char *name, uint64_t preset);

/* 1 where this build runs under a sanitizer that makes threads slow. */
#if defined(__SANITIZE_THREAD__)
#define VRPT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VRPT_TSAN 1
#endif
#endif
#ifndef VRPT_TSAN
#define VRPT_TSAN 0
#endif

/* Runs a group over the device's backings. The exit status of the program. */
int vrpt_main(const char *name, const struct CMUnitTest *tests, size_t count, int argc,
              char **argv);

#define VRPT_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define VRPT_REQUIRE(t, expression)   \
    do {                              \
        if (!(expression))            \
            fail_msg("%s", (t)->why); \
    } while (0)

#define VRPT_STATUS(expression, expected)                                           \
    do {                                                                            \
        vrp_status vrpt_got = (expression);                                         \
        if (vrpt_got != (expected))                                                 \
            fail_msg("%s: %s, not %s (%s)", #expression, vrp_status_name(vrpt_got), \
                     vrp_status_name(expected), vrpt_detail());                     \
    } while (0)

#define VRPT_OK(expression) VRPT_STATUS(expression, VRP_OK)

/* Leaves a test that needs the simulated device. */
#define VRPT_NEED_SIM()                \
    do {                               \
        if (vrpt_now.device[0] != 's') \
            skip();                    \
    } while (0)

#endif
