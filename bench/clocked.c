/* SPDX-License-Identifier: MIT */
/* Measures the calls of a driver. */

#include "clocked.h"
#include "options.h"
#include "stage.h"

#include <stddef.h>
#include <string.h>

/* An operation that is added to the table wants a line below. */
_Static_assert(offsetof(vrp_driver_ops, ipc_export) + sizeof(void *) == sizeof(vrp_driver_ops),
               "a driver has more operations than are measured here");

static void add(bench_clocked *c, bench_clocked_call call, uint64_t began) {
    (void)atomic_fetch_add_explicit(&c->ns[call], bench_clock_ns() - began, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&c->calls[call], 1, memory_order_relaxed);
}

/* An operation that goes straight through: its name, its arguments. */
#define BODY(name, ...)                            \
    bench_clocked *c = ctx;                        \
    uint64_t began = bench_clock_ns();             \
    vrp_status status = c->ops->name(__VA_ARGS__); \
    add(c, BENCH_CLOCKED_##name, began);           \
    return status

static vrp_status on_device_info(void *ctx, vrp_device_info *out) {
    BODY(device_info, c->ctx, out);
}
static vrp_status on_mem_info(void *ctx, uint64_t *out_free, uint64_t *out_total) {
    BODY(mem_info, c->ctx, out_free, out_total);
}
static vrp_status on_event_create(void *ctx, vrp_event *out) { BODY(event_create, c->ctx, out); }
static vrp_status on_event_destroy(void *ctx, vrp_event event) {
    BODY(event_destroy, c->ctx, event);
}
static vrp_status on_event_query(void *ctx, vrp_event event, int *out_done) {
    BODY(event_query, c->ctx, event, out_done);
}
static vrp_status on_event_synchronize(void *ctx, vrp_event event) {
    BODY(event_synchronize, c->ctx, event);
}
static vrp_status on_synchronize(void *ctx) { BODY(synchronize, c->ctx); }
static vrp_status on_mem_alloc(void *ctx, uint64_t bytes, vrp_devptr *out) {
    BODY(mem_alloc, c->ctx, bytes, out);
}
static vrp_status on_mem_free(void *ctx, vrp_devptr ptr) { BODY(mem_free, c->ctx, ptr); }
static vrp_status on_address_reserve(void *ctx, uint64_t bytes, vrp_devptr *out) {
    BODY(address_reserve, c->ctx, bytes, out);
}
static vrp_status on_address_free(void *ctx, vrp_devptr base, uint64_t bytes) {
    BODY(address_free, c->ctx, base, bytes);
}
static vrp_status on_handle_create(void *ctx, uint64_t bytes, vrp_handle *out) {
    BODY(handle_create, c->ctx, bytes, out);
}
static vrp_status on_handle_release(void *ctx, vrp_handle handle) {
    BODY(handle_release, c->ctx, handle);
}
static vrp_status on_map(void *ctx, vrp_devptr ptr, uint64_t bytes, vrp_handle handle) {
    BODY(map, c->ctx, ptr, bytes, handle);
}
static vrp_status on_set_access(void *ctx, vrp_devptr ptr, uint64_t bytes) {
    BODY(set_access, c->ctx, ptr, bytes);
}
static vrp_status on_unmap(void *ctx, vrp_devptr ptr, uint64_t bytes) {
    BODY(unmap, c->ctx, ptr, bytes);
}
static vrp_status on_stream_wait_event(void *ctx, vrp_stream stream, vrp_event event) {
    BODY(stream_wait_event, c->ctx, stream, event);
}
static vrp_status on_stream_id(void *ctx, vrp_stream stream, uint64_t *out) {
    BODY(stream_id, c->ctx, stream, out);
}
static vrp_status on_stream_is_capturing(void *ctx, vrp_stream stream, int *out) {
    BODY(stream_is_capturing, c->ctx, stream, out);
}
static vrp_status on_copy_async(void *ctx, vrp_devptr dst, vrp_devptr src, uint64_t bytes,
                                vrp_stream stream) {
    BODY(copy_async, c->ctx, dst, src, bytes, stream);
}
static vrp_status on_handle_export(void *ctx, vrp_handle handle, int64_t *out) {
    BODY(handle_export, c->ctx, handle, out);
}
static vrp_status on_range_export(void *ctx, vrp_devptr ptr, uint64_t bytes, int64_t *out) {
    BODY(range_export, c->ctx, ptr, bytes, out);
}
static vrp_status on_ipc_export(void *ctx, vrp_devptr ptr, unsigned char out[64]) {
    BODY(ipc_export, c->ctx, ptr, out);
}

static vrp_status settle(bench_clocked *c, vrp_status status, vrp_event event) {
    return status == VRP_OK && c->record_waits ? c->ops->event_synchronize(c->ctx, event) : status;
}

static vrp_status on_event_record(void *ctx, vrp_event event, vrp_stream stream) {
    bench_clocked *c = ctx;
    uint64_t began = bench_clock_ns();
    vrp_status status = c->ops->event_record(c->ctx, event, stream);
    add(c, BENCH_CLOCKED_event_record, began);
    return settle(c, status, event);
}

static vrp_status on_context_record(void *ctx, vrp_event event) {
    bench_clocked *c = ctx;
    uint64_t began = bench_clock_ns();
    vrp_status status = c->ops->context_record(c->ctx, event);
    add(c, BENCH_CLOCKED_context_record, began);
    return settle(c, status, event);
}

static int64_t on_last_native_error(void *ctx) {
    bench_clocked *c = ctx;
    return c->ops->last_native_error(c->ctx);
}

vrp_driver *bench_clocked_driver(bench_clocked *clocked, const vrp_driver *behind) {
    vrp_driver *driver = NULL;
    vrp_driver_ops ops = {.struct_size = sizeof ops};
    clocked->ops = vrp_driver_ops_get(behind, &clocked->ctx);
    /* What the driver behind has not, this one has not either. */
#define CLOCKED_SET(name) ops.name = clocked->ops->name != NULL ? on_##name : NULL;
    BENCH_CLOCKED_MAP(CLOCKED_SET)
#undef CLOCKED_SET
    ops.last_native_error = clocked->ops->last_native_error != NULL ? on_last_native_error : NULL;
    if (vrp_driver_create(&ops, clocked, &driver) == VRP_OK)
        return driver;
    (void)bench_fail("a driver that measures: %s", bench_detail());
    return NULL;
}

void bench_clocked_read(const bench_clocked *clocked, bench_call_times *out_times) {
    memset(out_times, 0, sizeof *out_times);
    for (size_t i = 0; i < BENCH_CLOCKED_COUNT; i++) {
        out_times->ns[i] = atomic_load(&clocked->ns[i]);
        out_times->calls[i] = atomic_load(&clocked->calls[i]);
        out_times->all_ns += out_times->ns[i];
        out_times->all_calls += out_times->calls[i];
    }
}

void bench_call_times_json(bench_json *json, const char *name, const bench_call_times *times) {
    static const char *const names[] = {
#define CLOCKED_NAME(member) #member,
        BENCH_CLOCKED_MAP(CLOCKED_NAME)
#undef CLOCKED_NAME
    };
    bench_json_open(json, name, '{');
    for (size_t i = 0; i < BENCH_CLOCKED_COUNT; i++) {
        if (times->calls[i] == 0)
            continue;
        bench_json_open(json, names[i], '{');
        bench_json_count(json, "calls", times->calls[i]);
        bench_json_number(json, "us", (double)times->ns[i] / 1e3);
        bench_json_close(json, '}');
    }
    bench_json_close(json, '}');
}
