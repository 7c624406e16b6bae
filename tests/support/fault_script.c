/* SPDX-License-Identifier: MIT */
/* The sequence of calls of the fault sweep. */

#include "fault_script.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Host memory that fails by plan -------------------------------------------- */

static void *host_alloc(void *user, size_t bytes) {
    script *s = user;
    s->host_calls++;
    if (!s->host_calm && s->plan.host_nth != 0 &&
        (s->host_calls == s->plan.host_nth ||
         (s->plan.host_for_ever && s->host_calls > s->plan.host_nth)))
        return NULL;
    void *memory = malloc(bytes);
    if (memory != NULL)
        s->host_live += bytes;
    return memory;
}

static void host_free(void *user, void *memory, size_t bytes) {
    script *s = user;
    if (memory != NULL)
        s->host_live -= bytes;
    free(memory);
}

/* ---- Steps ------------------------------------------------------------------------ */

static int documented(const script *s, vrp_status status) {
    static const vrp_status always[] = {VRP_OUT_OF_DEVICE_MEMORY, VRP_OUT_OF_HOST_MEMORY,
                                        VRP_LIMIT_REACHED, VRP_UNAVAILABLE, VRP_NOT_SUPPORTED};
    for (size_t i = 0; i < VRPT_COUNT(always); i++)
        if (status == always[i])
            return 1;
    return s->plan.nth != 0 && status == s->plan.status;
}

/* What must hold after a call that was refused (I6). */
static void refused(script *s, const char *what, vrp_status status) {
    s->refused++;
    if (s->broken)
        return;
    vrp_stats after = vrpt_stats(&s->t);
    if (!documented(s, status))
        s->broken = !vrpt_fail(&s->t, "%s: undocumented %s (%s)", what, vrp_status_name(status),
                               vrpt_detail());
    else if (!vrpt_same_counters(&s->before, &after))
        s->broken = !vrpt_fail(&s->t,
                               "I6: %s answered %s; allocated went from %" PRIu64 " to %" PRIu64
                               ", its peak from %" PRIu64 " to %" PRIu64,
                               what, vrp_status_name(status), s->before.allocated_bytes.current,
                               after.allocated_bytes.current, s->before.allocated_bytes.peak,
                               after.allocated_bytes.peak);
    else if (after.reserved_bytes.current != vrpt_sim_stats(&s->t, 0).used_bytes)
        s->broken =
            !vrpt_fail(&s->t, "I2: after %s: reserved %" PRIu64 ", on the device %" PRIu64, what,
                       after.reserved_bytes.current, vrpt_sim_stats(&s->t, 0).used_bytes);
    else if ((status = vrp_pool_check(s->t.pool)) != VRP_OK)
        s->broken = !vrpt_fail(&s->t, "check after %s: %s (%s)", what, vrp_status_name(status),
                               vrpt_detail());
}

static int for_ever(const script *s) {
    return s->plan.count == UINT64_MAX || s->plan.host_for_ever;
}

/* Makes a call; refused once, the same call must work the next time. */
#define STEP(s, out_status, call)                                                     \
    do {                                                                              \
        (s)->before = vrpt_stats(&(s)->t);                                            \
        (out_status) = (call);                                                        \
        if ((out_status) != VRP_OK) {                                                 \
            refused((s), #call, (out_status));                                        \
            if (!for_ever(s) && ((out_status) = (call)) != VRP_OK && !(s)->broken)    \
                (s)->broken = !vrpt_fail(&(s)->t, "%s once more: %s (%s)", #call,     \
                                         vrp_status_name(out_status), vrpt_detail()); \
        }                                                                             \
    } while (0)

/* A call that may not be refused at all. */
static void must(script *s, const char *what, vrp_status status) {
    if (status != VRP_OK && !s->broken)
        s->broken = !vrpt_fail(&s->t, "%s: %s (%s)", what, vrp_status_name(status), vrpt_detail());
}
#define MUST(s, call) must((s), #call, (call))

static void take(script *s, int slot, uint64_t bytes, int stream, int32_t tag, vrp_scope scope) {
    vrp_alloc_info info = {.struct_size = sizeof info,
                           .bytes = bytes,
                           .stream = s->streams[stream],
                           .tag = tag,
                           .scope = scope};
    vrp_status status;
    STEP(s, status, vrp_alloc_ex(s->t.pool, &info, &s->blocks[slot]));
    s->sizes[slot] = status == VRP_OK ? bytes : 0;
    if (status != VRP_OK)
        s->blocks[slot] = 0;
    else
        MUST(s, vrp_sim_launch(s->t.sim, s->streams[stream], s->blocks[slot], bytes, 1000));
}

static void give(script *s, int slot, int stream) {
    if (s->blocks[slot] == 0)
        return;
    MUST(s, vrp_free(s->t.pool, s->blocks[slot],
                     stream < 0 ? VRP_STREAM_OF_ALLOC : s->streams[stream]));
    s->blocks[slot] = 0;
}

/* ---- The parts of the script ---------------------------------------------------------- */

static void small_and_large(script *s) {
    for (int i = 0; i < 12; i++)
        take(s, i, (uint64_t)300 << i, 0, VRP_TAG_OTHER, 0);
    take(s, 12, 20 * VRPT_MIB, 0, VRP_TAG_ACTIVATION, 0);
    take(s, 13, 5 * VRPT_MIB + 1, 1, VRP_TAG_KV, 0);
    take(s, 14, 40 * VRPT_MIB, 1, VRP_TAG_WEIGHTS, 0);
    for (int i = 0; i < 12; i += 2)
        give(s, i, 0);
    for (int i = 0; i < 12; i += 2)
        take(s, i, (uint64_t)290 << i, 0, VRP_TAG_WORKSPACE, 0);
}

/* Memory of one stream is wanted on another, with and without room. */
static void across_streams(script *s) {
    vrp_status status;
    if (s->blocks[13] != 0) {
        STEP(s, status, vrp_record_stream(s->t.pool, s->blocks[13], s->streams[0]));
        if (status == VRP_OK)
            MUST(s, vrp_sim_stream_wait_stream(s->t.sim, s->streams[0], s->streams[1]));
        if (status == VRP_OK)
            MUST(s, vrp_sim_launch(s->t.sim, s->streams[0], s->blocks[13], VRPT_MIB, 1000));
    }
    give(s, 12, 0);
    give(s, 13, 1);
    take(s, 15, 120 * VRPT_MIB, 0, VRP_TAG_OTHER, 0);
    give(s, 15, 0);
    take(s, 16, 150 * VRPT_MIB, 1, VRP_TAG_OTHER, 0); /* only in flight memory can serve it */
    give(s, 16, -1);
    vrp_sim_complete(s->t.sim, s->streams[0], 3);
    STEP(s, status, vrp_pool_poll(s->t.pool));
    take(s, 17, 3 * VRPT_MIB, 0, VRP_TAG_OTHER, 0);
    take(s, 18, 100 * VRPT_MIB, 2, VRP_TAG_OTHER, 0);
    give(s, 18, 2);
}

static void scopes(script *s) {
    vrp_status status;
    uint64_t blocks = 0;
    STEP(s, status, vrp_scope_open(s->t.pool, 0, &s->scope));
    if (status != VRP_OK)
        return;
    for (int i = 20; i < 30; i++)
        take(s, i, (uint64_t)(i - 19) * 70000, 0, VRP_TAG_KV, s->scope);
    give(s, 22, 0);
    STEP(s, status, vrp_scope_release(s->t.pool, s->scope, &blocks));
    for (int i = 20; i < 30 && status == VRP_OK; i++)
        s->blocks[i] = 0;
    s->scope = status == VRP_OK ? 0 : s->scope;
}

static void growing(script *s) {
    vrp_growable_info info = {.struct_size = sizeof info,
                              .tag = VRP_TAG_KV,
                              .max_bytes = 64 * VRPT_MIB,
                              .stream = s->streams[0]};
    static const uint64_t sizes[] = {3 * VRPT_MIB, 9 * VRPT_MIB, 40 * VRPT_MIB, 5, 0, VRPT_MIB};
    vrp_status status;
    STEP(s, status, vrp_growable_create(s->t.pool, &info, &s->buffer));
    for (size_t i = 0; status == VRP_OK && i < VRPT_COUNT(sizes); i++) {
        uint64_t size = vrp_growable_size(s->buffer);
        vrp_devptr base = vrp_growable_base(s->buffer);
        vrp_status resized;
        STEP(s, resized, vrp_growable_resize(s->buffer, sizes[i]));
        if (resized != VRP_OK && !s->broken &&
            (vrp_growable_size(s->buffer) != size || vrp_growable_base(s->buffer) != base))
            s->broken = !vrpt_fail(&s->t, "I6: a refused resize changed the buffer");
        if (vrp_growable_size(s->buffer) > 0)
            MUST(s, vrp_sim_launch(s->t.sim, s->streams[0], vrp_growable_base(s->buffer),
                                   vrp_growable_size(s->buffer), 1000));
    }
}

static void capturing(script *s) {
    vrp_status status;
    int intact = 0;
    STEP(s, status, vrp_capture_begin(s->t.pool, s->streams[1]));
    if (status != VRP_OK)
        return;
    s->capturing = 1;
    MUST(s, vrp_sim_capture_begin(s->t.sim, s->streams[1], VRP_SIM_CAPTURE_GLOBAL));
    vrp_devptr inside = 0;
    STEP(s, status, vrp_alloc(s->t.pool, 100000, s->streams[1], &inside));
    take(s, 31, 7 * VRPT_MIB, 0, VRP_TAG_OTHER, 0);
    if (inside != 0)
        MUST(s, vrp_free(s->t.pool, inside, s->streams[1]));
    give(s, 31, 0);
    STEP(s, status, vrp_pool_poll(s->t.pool));
    MUST(s, vrp_sim_capture_end(s->t.sim, s->streams[1], &intact));
    if (!intact && !s->broken)
        s->broken = !vrpt_fail(&s->t, "the capture was broken");
    STEP(s, status, vrp_capture_end(s->t.pool, s->streams[1]));
    s->capturing = status != VRP_OK;
}

static void trims(script *s) {
    vrp_status status;
    vrp_trim_result result = {.struct_size = sizeof result};
    STEP(s, status, vrp_trim(s->t.pool, 64 * VRPT_MIB, VRP_TRIM_KEEP_CACHES, &result));
    STEP(s, status, vrp_empty_cache(s->t.pool, &result));
    take(s, 32, 30 * VRPT_MIB, 1, VRP_TAG_OTHER, 0);
    give(s, 32, 1);
    STEP(s, status, vrp_trim(s->t.pool, 0, VRP_TRIM_WAIT, &result));
    take(s, 33, 600, 1, VRP_TAG_OTHER, 0);
    take(s, 34, 9 * VRPT_MIB, 1, VRP_TAG_OTHER, 0);
    MUST(s, vrp_pool_knob_set(s->t.pool, VRP_KNOB_GAP_RULE, VRP_GAP_RULE_LIMIT));
    MUST(s, vrp_pool_knob_set(s->t.pool, VRP_KNOB_GAP_LIMIT_BYTES, VRPT_MIB));
    give(s, 34, 1);
    vrp_sim_drain(s->t.sim);
    take(s, 35, 60 * VRPT_MIB, 0, VRP_TAG_OTHER, 0);
    give(s, 35, 0);
}

/* A stream is forgotten while blocks of it live, and its handle comes back. */
static void forgetting(script *s) {
    vrp_status status;
    take(s, 36, 2 * VRPT_MIB, 2, VRP_TAG_OTHER, 0);
    take(s, 37, 900, 2, VRP_TAG_OTHER, 0);
    take(s, 38, 4 * VRPT_MIB, 2, VRP_TAG_OTHER, 0);
    give(s, 38, 2);
    STEP(s, status, vrp_stream_forget(s->t.pool, s->streams[2]));
    if (status == VRP_OK) {
        MUST(s, vrp_sim_stream_destroy(s->t.sim, s->streams[2]));
        MUST(s, vrp_sim_stream_create(s->t.sim, 0, &s->streams[2]));
    }
    give(s, 36, -1);
    give(s, 37, -1);
    take(s, 39, 6 * VRPT_MIB, 2, VRP_TAG_OTHER, 0);
}

/* Too much is refused whatever else fails. */
static void running_out(script *s) {
    vrp_devptr ptr = 0;
    s->before = vrpt_stats(&s->t);
    vrp_status status = vrp_alloc(s->t.pool, 300 * VRPT_MIB, s->streams[0], &ptr);
    if (status == VRP_OK)
        s->broken = !vrpt_fail(&s->t, "more than the device has was served");
    else
        refused(s, "a request above the device", status);
}

/* ---- The whole ------------------------------------------------------------------------------ */

static int open_pool(script *s) {
    vrpt_options options = {.backing = s->plan.backing,
                            .completion = VRP_SIM_MANUAL,
                            .device_bytes = 256 * VRPT_MIB,
                            .sim_only = 1};
    options.pool.flags = VRP_NO_RECLAIMER;
    options.pool.initial_bytes = 8 * VRPT_MIB;
    options.pool.host_alloc = host_alloc;
    options.pool.host_free = host_free;
    options.pool.host_user = s;
    if (!vrpt_open_device(&s->t, &options))
        return 0;
    s->t.faulted = s->plan.nth != 0;
    for (int i = 0; i < 3; i++)
        MUST(s, vrp_sim_stream_create(s->t.sim, i == 1 ? VRP_SIM_STREAM_NON_BLOCKING : 0,
                                      &s->streams[i]));
    vrp_sim_fault_set(s->t.sim, s->plan.call, s->plan.nth, s->plan.count, s->plan.status);
    vrp_status status = vrpt_pool_create(&s->t, &options, &s->t.pool);
    if (status == VRP_OK)
        return 1;
    s->refused++;
    vrp_sim_stats left = vrpt_sim_stats(&s->t, 0);
    if (s->host_live != 0 && s->plan.call != VRP_SIM_CALL_HANDLE_RELEASE)
        return vrpt_fail(&s->t, "a refused create left %" PRIu64 " bytes of host memory",
                         s->host_live);
    if (left.used_bytes + left.ranges + left.handles + left.events != 0 && !for_ever(s))
        return vrpt_fail(&s->t, "a refused create left memory on the device");
    if (s->plan.call == -1) { /* no call could take anything back */
        s->over = 1;
        vrp_driver_destroy(s->t.driver);
        s->t.driver = NULL;
        (void)vrp_sim_destroy(s->t.sim);
        return 1;
    }
    s->host_calm = 1;
    vrp_sim_faults_clear(s->t.sim);
    status = vrpt_pool_create(&s->t, &options, &s->t.pool);
    return status == VRP_OK ||
           vrpt_fail(&s->t, "create once more: %s (%s)", vrp_status_name(status), vrpt_detail());
}

static void calm(script *s) {
    vrp_sim_faults_clear(s->t.sim);
    s->host_calm = 1;
    if (s->capturing)
        MUST(s, vrp_capture_end(s->t.pool, s->streams[1]));
    if (s->buffer != NULL)
        MUST(s, vrp_growable_destroy(s->buffer));
}

int script_run(script *s, const script_plan *plan) {
    memset(s, 0, sizeof *s);
    s->plan = *plan;
    if (!open_pool(s)) {
        if (s->t.driver != NULL && s->t.pool == NULL) {
            char why[sizeof s->t.why];
            memcpy(why, s->t.why, sizeof why);
            (void)vrpt_close_device(&s->t);
            memcpy(s->t.why, why, sizeof why);
        }
        return 0;
    }
    if (s->over)
        return 1;
    void (*const parts[])(script *) = {small_and_large, across_streams, scopes,     growing,
                                       capturing,       trims,          forgetting, running_out};
    for (size_t i = 0; i < VRPT_COUNT(parts) && !s->broken; i++)
        parts[i](s);
    for (int32_t call = 0; call < VRP_SIM_CALL_COUNT; call++)
        s->calls[call] = vrp_sim_call_count(s->t.sim, call);
    calm(s);
    char why[sizeof s->t.why];
    memcpy(why, s->t.why, sizeof why);
    int whole = vrpt_close(&s->t);
    if (s->broken)
        memcpy(s->t.why, why, sizeof why);
    return whole && !s->broken;
}
