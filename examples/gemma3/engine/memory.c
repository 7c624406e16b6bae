/* SPDX-License-Identifier: MIT */
#include "memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The pool's failure as the engine's, with the pool's own text. */
static g3_status fail_with(vrp_status status, const char *what, g3_error *error) {
    vrp_error_detail detail = {.struct_size = sizeof detail};
    if (vrp_error_detail_get(&detail) != VRP_OK)
        detail.message[0] = '\0';
    g3_status code = G3_DEVICE;
    if (status == VRP_OUT_OF_DEVICE_MEMORY || status == VRP_LIMIT_REACHED)
        code = G3_DEVICE_MEMORY;
    else if (status == VRP_OUT_OF_HOST_MEMORY)
        code = G3_HOST_MEMORY;
    return g3_fail(error, code, "%s: %s (%s)", what, vrp_status_name(status), detail.message);
}

static void observe(g3_memory *memory, const g3_memory_event *event) {
    if (memory->observer != NULL)
        memory->observer(memory->observer_user, event);
}

g3_status g3_memory_open(const char *device, int32_t backing, g3_memory *out_memory,
                         g3_error *error) {
    g3_memory memory = {.stream = VRP_STREAM_LEGACY};
    vrp_status status = vrp_driver_open(device, &memory.driver);
    if (status != VRP_OK) {
        (void)fail_with(status, device, error);
        return G3_INVALID;
    }
    vrp_pool_config config = {.struct_size = sizeof config, .backing = backing};
    status = vrp_pool_create(memory.driver, &config, &memory.pool);
    if (status != VRP_OK) {
        g3_status code = fail_with(status, device, error);
        vrp_driver_destroy(memory.driver);
        return code;
    }
    *out_memory = memory;
    return G3_OK;
}

g3_status g3_memory_close(g3_memory *memory, uint64_t *out_left, g3_error *error) {
    g3_status result = G3_OK;
    vrp_status status = vrp_pool_destroy(memory->pool, 0);
    if (status == VRP_BUSY) {
        (void)fail_with(status, "closing the pool", error);
        result = G3_INVALID;
        status = vrp_pool_destroy(memory->pool, VRP_DESTROY_FORCE);
    }
    if (status != VRP_OK && result == G3_OK)
        result = fail_with(status, "closing the pool", error);
    uint64_t left = 0;
    vrp_sim *sim = vrp_sim_of_driver(memory->driver);
    vrp_sim_stats stats = {.struct_size = sizeof stats};
    if (sim != NULL && vrp_sim_stats_get(sim, 0, &stats) == VRP_OK)
        left = stats.used_bytes;
    if (out_left != NULL)
        *out_left = left;
    vrp_driver_destroy(memory->driver);
    *memory = (g3_memory){0};
    return result;
}

/* What stood in the way of a request, in one line. */
static g3_status fail_for_memory(g3_memory *memory, size_t bytes, vrp_status status,
                                 g3_error *error) {
    memory->failures += !memory->tentative;
    if (status != VRP_OUT_OF_DEVICE_MEMORY)
        return fail_with(status, "device memory", error);
    const double mib = 1048576.0;
    char asked[32];
    if (bytes < 1048576)
        (void)snprintf(asked, sizeof asked, "%.1f KiB", (double)bytes / 1024.0);
    else
        (void)snprintf(asked, sizeof asked, "%.1f MiB", (double)bytes / mib);
    vrp_oom_report report = {.struct_size = sizeof report};
    if (vrp_oom_report_get(memory->pool, &report) != VRP_OK)
        return g3_fail(error, G3_DEVICE_MEMORY, "out of device memory: %s asked for", asked);
    return g3_fail(error, G3_DEVICE_MEMORY,
                   "out of device memory: %s asked for; device %.1f of %.1f MiB free, pool "
                   "%.1f MiB reserved and %.1f MiB in use, largest free run %.1f MiB, %" PRIu64
                   " blocks pin %.1f MiB",
                   asked, (double)report.device_free_bytes / mib,
                   (double)report.device_total_bytes / mib, (double)report.reserved_bytes / mib,
                   (double)report.allocated_bytes / mib, (double)report.largest_free_bytes / mib,
                   report.pinning_blocks, (double)report.pinned_bytes / mib);
}

static bool worth_a_retry(g3_memory *memory, vrp_status status) {
    return status == VRP_OUT_OF_DEVICE_MEMORY && !memory->tentative &&
           vrp_trim(memory->pool, 0, VRP_TRIM_WAIT, NULL) == VRP_OK;
}

g3_status g3_memory_alloc(g3_memory *memory, size_t bytes, vrp_tag tag, vrp_scope scope,
                          vrp_devptr *out_ptr, g3_error *error) {
    vrp_alloc_info info = {.struct_size = sizeof info,
                           .bytes = bytes,
                           .stream = memory->stream,
                           .tag = (int32_t)tag,
                           .scope = scope};
    vrp_devptr ptr = 0;
    vrp_status status = vrp_alloc_ex(memory->pool, &info, &ptr);
    if (status != VRP_OK && worth_a_retry(memory, status)) {
        status = vrp_alloc_ex(memory->pool, &info, &ptr);
        memory->retries += status == VRP_OK;
    }
    if (status != VRP_OK)
        return fail_for_memory(memory, bytes, status, error);
    if (ptr != 0)
        observe(memory, &(g3_memory_event){.action = G3_MEMORY_ALLOC,
                                           .tag = (uint32_t)tag,
                                           .ptr = ptr,
                                           .bytes = bytes,
                                           .scope = scope});
    *out_ptr = ptr;
    return G3_OK;
}

void g3_memory_free(g3_memory *memory, vrp_devptr ptr) {
    if (ptr == 0 || vrp_free(memory->pool, ptr, memory->stream) != VRP_OK)
        return;
    observe(memory, &(g3_memory_event){.action = G3_MEMORY_FREE, .ptr = ptr});
}

g3_status g3_memory_scope_open(g3_memory *memory, vrp_scope *out_scope, g3_error *error) {
    vrp_status status = vrp_scope_open(memory->pool, 0, out_scope);
    return status == VRP_OK ? G3_OK : fail_with(status, "opening a scope", error);
}

void g3_memory_scope_release(g3_memory *memory, vrp_scope scope) {
    if (scope != 0 && vrp_scope_release(memory->pool, scope, NULL) == VRP_OK)
        observe(memory, &(g3_memory_event){.action = G3_MEMORY_RELEASE, .scope = scope});
}

g3_status g3_memory_buffer_create(g3_memory *memory, uint64_t max_bytes, vrp_tag tag,
                                  vrp_scope scope, vrp_growable **out_buffer, g3_error *error) {
    vrp_growable_info info = {.struct_size = sizeof info,
                              .tag = (int32_t)tag,
                              .max_bytes = max_bytes,
                              .stream = memory->stream,
                              .scope = scope};
    vrp_status status = vrp_growable_create(memory->pool, &info, out_buffer);
    if (status == VRP_OK)
        return G3_OK;
    return status == VRP_OUT_OF_DEVICE_MEMORY ? fail_for_memory(memory, 0, status, error)
                                              : fail_with(status, "a growable buffer", error);
}

g3_status g3_memory_buffer_resize(g3_memory *memory, vrp_growable *buffer, uint64_t bytes,
                                  g3_error *error) {
    const uint64_t size = vrp_growable_size(buffer);
    vrp_status status = vrp_growable_resize(buffer, bytes);
    if (status != VRP_OK && worth_a_retry(memory, status)) {
        status = vrp_growable_resize(buffer, bytes);
        memory->retries += status == VRP_OK;
    }
    if (status != VRP_OK)
        return fail_for_memory(memory, bytes - size, status, error);
    observe(memory, &(g3_memory_event){.action = G3_MEMORY_RESIZE,
                                       .tag = VRP_TAG_KV,
                                       .ptr = vrp_growable_base(buffer),
                                       .bytes = bytes,
                                       .buffer = buffer});
    return G3_OK;
}

void g3_memory_buffer_destroy(g3_memory *memory, vrp_growable *buffer) {
    if (buffer == NULL)
        return;
    const g3_memory_event event = {.action = G3_MEMORY_RESIZE,
                                   .tag = VRP_TAG_KV,
                                   .ptr = vrp_growable_base(buffer),
                                   .buffer = buffer};
    if (vrp_growable_destroy(buffer) == VRP_OK)
        observe(memory, &event);
}

/* Live bytes of one tag; 0 where the pool does not answer. */
static uint64_t tag_bytes(vrp_pool *pool, vrp_tag tag) {
    vrp_group_stats stats = {.struct_size = sizeof stats};
    if (vrp_tag_stats_get(pool, (int32_t)tag, &stats) != VRP_OK)
        return 0;
    return stats.allocated_bytes.current;
}

g3_status g3_memory_report_get(g3_memory *memory, g3_memory_report *out_report, g3_error *error) {
    vrp_stats stats = {.struct_size = sizeof stats};
    vrp_gap gap = {.struct_size = sizeof gap};
    g3_memory_report report = {0};
    vrp_status status = vrp_pool_stats_get(memory->pool, &stats);
    if (status == VRP_OK)
        status = vrp_pool_gap_compute(memory->pool, &gap);
    if (status == VRP_OK)
        status = vrp_pool_device_memory_get(memory->pool, &report.device_free_bytes,
                                            &report.device_total_bytes);
    if (status != VRP_OK)
        return fail_with(status, "reading the pool's figures", error);
    report.weights_bytes = tag_bytes(memory->pool, VRP_TAG_WEIGHTS);
    report.kv_bytes = tag_bytes(memory->pool, VRP_TAG_KV);
    report.activation_bytes = tag_bytes(memory->pool, VRP_TAG_ACTIVATION);
    report.vision_bytes = tag_bytes(memory->pool, VRP_TAG_VISION);
    report.workspace_bytes = tag_bytes(memory->pool, VRP_TAG_WORKSPACE);
    report.other_bytes = tag_bytes(memory->pool, VRP_TAG_OTHER);
    report.temporary_bytes =
        report.activation_bytes + report.vision_bytes + report.workspace_bytes + report.other_bytes;
    report.requested_bytes = stats.requested_bytes.current;
    report.allocated_bytes = stats.allocated_bytes.current;
    report.reserved_bytes = stats.reserved_bytes.current;
    report.gap_bytes = report.reserved_bytes - report.allocated_bytes;
    report.gap = gap;
    report.peak_allocated_bytes = stats.allocated_bytes.peak;
    report.peak_reserved_bytes = stats.reserved_bytes.peak;
    report.trimmed_bytes = stats.trimmed_bytes;
    *out_report = report;
    return G3_OK;
}
