/* SPDX-License-Identifier: MIT */
#ifndef VRPT_SIM_SUPPORT_H
#define VRPT_SIM_SUPPORT_H

/* A simulated machine and the table of its first device, for the tests of the
 * machine itself: no pool is involved. */

#include "support/vrp_test.h"

#include <string.h>

#define GRAIN (2 * VRPT_MIB)

typedef struct machine {
    vrp_sim *sim;
    vrp_driver *driver;
    const vrp_driver_ops *ops;
    void *ctx;
} machine;

static inline machine machine_open_with(vrp_sim_config config) {
    machine m;
    config.struct_size = sizeof config;
    VRPT_OK(vrp_sim_create(&config, &m.sim));
    VRPT_OK(vrp_sim_driver_create(m.sim, 0, &m.driver));
    m.ops = vrp_driver_ops_get(m.driver, &m.ctx);
    return m;
}

static inline machine machine_open(int32_t completion) {
    vrp_sim_config config = {.device_bytes = VRPT_GIB, .completion = completion, .lag_ticks = 4};
    return machine_open_with(config);
}

static inline vrp_sim_stats sim_stats(const machine *m) {
    vrp_sim_stats stats = {.struct_size = sizeof stats};
    VRPT_OK(vrp_sim_stats_get(m->sim, 0, &stats));
    return stats;
}

static inline uint64_t misuses(const machine *m) { return sim_stats(m).misuses; }

static inline void machine_close(machine *m) {
    vrp_driver_destroy(m->driver);
    assert_int_equal(vrp_sim_destroy(m->sim), 0);
}

/* One handle, mapped where it can be used. */
typedef struct mapped {
    vrp_devptr ptr;
    uint64_t bytes;
    vrp_handle handle;
} mapped;

static inline mapped map_new(const machine *m, uint64_t bytes) {
    mapped a = {0, bytes, 0};
    VRPT_OK(m->ops->address_reserve(m->ctx, bytes, &a.ptr));
    VRPT_OK(m->ops->handle_create(m->ctx, bytes, &a.handle));
    VRPT_OK(m->ops->map(m->ctx, a.ptr, bytes, a.handle));
    VRPT_OK(m->ops->set_access(m->ctx, a.ptr, bytes));
    return a;
}

static inline void map_end(const machine *m, mapped a) {
    VRPT_OK(m->ops->unmap(m->ctx, a.ptr, a.bytes));
    VRPT_OK(m->ops->handle_release(m->ctx, a.handle));
    VRPT_OK(m->ops->address_free(m->ctx, a.ptr, a.bytes));
}

static inline vrp_stream stream_new(const machine *m, uint32_t flags) {
    vrp_stream stream = 0;
    VRPT_OK(vrp_sim_stream_create(m->sim, flags, &stream));
    return stream;
}

static inline vrp_event event_new(const machine *m) {
    vrp_event event = 0;
    VRPT_OK(m->ops->event_create(m->ctx, &event));
    return event;
}

static inline vrp_event record_new(const machine *m, vrp_stream stream) {
    vrp_event event = event_new(m);
    VRPT_OK(m->ops->event_record(m->ctx, event, stream));
    return event;
}

static inline int done(const machine *m, vrp_event event) {
    int answer = -1;
    VRPT_OK(m->ops->event_query(m->ctx, event, &answer));
    return answer;
}

static inline void event_end(const machine *m, vrp_event event) {
    VRPT_OK(m->ops->event_destroy(m->ctx, event));
}

/* Work that touches no memory. */
static inline void work(const machine *m, vrp_stream stream, uint64_t duration_ns) {
    VRPT_OK(vrp_sim_launch(m->sim, stream, 0, 0, duration_ns));
}

#endif
