/* SPDX-License-Identifier: MIT */
#ifndef BENCH_CLOCKED_H
#define BENCH_CLOCKED_H

/* A driver in front of another one: it measures how long each call takes, and
 * can make every recorded event complete at once. */

#include "json.h"
#include "vrampool/driver.h"

#include <stdatomic.h>

/* One for each operation that a pool calls. */
/* clang-format off */
#define BENCH_CLOCKED_MAP(X) \
    X(device_info) X(mem_info) X(event_create) X(event_destroy) X(event_record) X(event_query) \
    X(event_synchronize) X(synchronize) X(mem_alloc) X(mem_free) X(address_reserve) \
    X(address_free) X(handle_create) X(handle_release) X(map) X(set_access) X(unmap) \
    X(stream_wait_event) X(context_record) X(stream_id) X(stream_is_capturing) X(copy_async) \
    X(handle_export) X(range_export) X(ipc_export)
/* clang-format on */

typedef enum bench_clocked_call {
#define BENCH_CLOCKED_ENUM(name) BENCH_CLOCKED_##name,
    BENCH_CLOCKED_MAP(BENCH_CLOCKED_ENUM)
#undef BENCH_CLOCKED_ENUM
        BENCH_CLOCKED_COUNT
} bench_clocked_call;

typedef struct bench_clocked {
    const vrp_driver_ops *ops; /* of the driver behind */
    void *ctx;
    int record_waits; /* an event is complete when its recording returns */
    atomic_uint_least64_t ns[BENCH_CLOCKED_COUNT], calls[BENCH_CLOCKED_COUNT];
} bench_clocked;

/* The new driver borrows both; NULL after a message. */
vrp_driver *bench_clocked_driver(bench_clocked *clocked, const vrp_driver *behind);

/* How often each was called until now, and how long that took. */
typedef struct bench_call_times {
    uint64_t ns[BENCH_CLOCKED_COUNT], calls[BENCH_CLOCKED_COUNT];
    uint64_t all_ns, all_calls;
} bench_call_times;
void bench_clocked_read(const bench_clocked *clocked, bench_call_times *out_times);
/* {"map": {"calls": n, "us": t}, ...}, those that were made. */
void bench_call_times_json(bench_json *json, const char *name, const bench_call_times *times);

#endif
