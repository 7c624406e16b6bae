/* SPDX-License-Identifier: MIT */
/* Reading counters, knobs and the device's memory. */

#include "core/core.h"

#include <string.h>

uint64_t vrp_pool_reserved_bytes(const vrp_pool *pool) {
    return pool == NULL || vrpi_pool_usable(pool) != VRP_OK
               ? 0
               : atomic_load_explicit(&pool->reserved, memory_order_relaxed);
}

/* A group's total as this thread knows it: the other threads' shards are late. */
static uint64_t known(const vrp_pool *pool, int requested) {
    vrp_pool *door = (vrp_pool *)(uintptr_t)pool; /* to be counted as a user, no more */
    const vrpi_thread *t;
    const vrpi_group *group;
    int64_t sum;
    if (pool == NULL || vrpi_enter(door) != VRP_OK)
        return 0;
    group = &pool->core->all;
    t = vrpi_thread_peek(pool);
    sum = atomic_load_explicit(requested ? &group->requested.current : &group->allocated.current,
                               memory_order_relaxed);
    if (t != NULL)
        sum += vrpi_all_late(t, requested ? VRPI_REQUESTED : VRPI_ALLOCATED);
    vrpi_exit(door);
    return sum > 0 ? (uint64_t)sum : 0;
}

uint64_t vrp_pool_allocated_bytes(const vrp_pool *pool) { return known(pool, 0); }
uint64_t vrp_pool_requested_bytes(const vrp_pool *pool) { return known(pool, 1); }

static void read_locked(vrpi_pool *core, vrp_stats *s) {
    vrpi_mutex_lock(&core->lock);
    s->backing = core->backing;
    s->reserved_bytes.current = vrpi_reserved(core);
    s->reserved_bytes.peak = core->reserved_peak;
    s->reserved_bytes.total = core->reserved_total;
    s->extents.current = core->extent_count;
    s->extents.peak = core->extents_peak;
    s->extents.total = core->extents_total;
    s->cached_bytes = vrpi_cached_bytes(core);
    s->trims = core->trims;
    s->trimmed_bytes = core->trimmed_bytes;
    s->cross_stream_waits = core->cross_stream_waits;
    s->host_waits = core->host_waits;
    s->gap_limit_missed_bytes = core->gap_missed;
    s->extents_unmapped = core->extents_unmapped;
    s->extents_created = core->extents_created;
    s->events_recorded = core->events_recorded;
    s->exported_bytes = core->exported_bytes;
    s->graph_bytes = vrpi_graph_bytes(core);
    s->reclaimed_bytes = core->reclaimed_bytes;
    vrpi_mutex_unlock(&core->lock);
}

vrp_status vrp_pool_stats_get(vrp_pool *pool, vrp_stats *out_stats) {
    vrp_stats s;
    vrp_group_stats all;
    vrpi_pool *core;
    VRPI_TRY(vrpi_enter(pool));
    core = pool->core;
    memset(&s, 0, sizeof s);
    s.struct_size = sizeof s;
    vrpi_group_read(core, -1, 0, &all);
    s.requested_bytes = all.requested_bytes;
    s.allocated_bytes = all.allocated_bytes;
    vrpi_blocks_read(core, &s.blocks);
    s.failures = atomic_load_explicit(&core->failures, memory_order_relaxed);
    s.bad_frees = atomic_load_explicit(&core->bad_frees, memory_order_relaxed);
    s.host_bytes = atomic_load_explicit(&core->host_bytes, memory_order_relaxed);
    read_locked(core, &s);
    vrpi_exit(pool);
    return vrpi_struct_out(out_stats, &s, sizeof s, "vrp_stats");
}

vrp_status vrp_pool_gap_compute(vrp_pool *pool, vrp_gap *out_gap) {
    vrp_gap gap;
    VRPI_TRY(vrpi_enter(pool));
    vrpi_mutex_lock(&pool->core->lock);
    vrpi_gap_walk(pool->core, &gap, NULL);
    vrpi_mutex_unlock(&pool->core->lock);
    vrpi_exit(pool);
    return vrpi_struct_out(out_gap, &gap, sizeof gap, "vrp_gap");
}

vrp_status vrp_pool_peaks_reset(vrp_pool *pool) {
    vrpi_pool *core;
    VRPI_TRY(vrpi_enter(pool));
    core = pool->core;
    vrpi_mutex_lock(&core->lock);
    vrpi_shards_flush_all(core);
    vrpi_group_reset_peaks(&core->all);
    for (int i = 0; i < VRP_TAG_COUNT; i++)
        vrpi_group_reset_peaks(&core->tag[i]);
    for (uint32_t i = 1; i < VRPI_SCOPES_MAX; i += VRPI_SCOPE_CHUNK)
        if (vrpi_scope_at(core, i) != NULL)
            for (uint32_t j = i - i % VRPI_SCOPE_CHUNK;
                 j < i - i % VRPI_SCOPE_CHUNK + VRPI_SCOPE_CHUNK; j++)
                vrpi_group_reset_peaks(&vrpi_scope_at(core, j)->group);
    core->reserved_peak = vrpi_reserved(core);
    core->extents_peak = core->extent_count;
    vrpi_mutex_unlock(&core->lock);
    vrpi_exit(pool);
    return VRP_OK;
}

vrp_status vrp_pool_device_memory_get(vrp_pool *pool, uint64_t *out_free_bytes,
                                      uint64_t *out_total_bytes) {
    uint64_t free_bytes = 0, total = 0;
    vrp_status status;
    if (out_free_bytes == NULL || out_total_bytes == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_pool_device_memory_get: NULL");
    VRPI_TRY(vrpi_enter(pool));
    status = pool->core->ops->mem_info(pool->core->ctx, &free_bytes, &total);
    vrpi_exit(pool);
    if (status == VRP_OK) {
        *out_free_bytes = free_bytes;
        *out_total_bytes = total;
    }
    return status;
}

/* ---- knobs ---------------------------------------------------------------------- */

typedef struct knob_info {
    const char *name, *meaning;
    uint64_t low, high, preset;
} knob_info;

static const knob_info knobs[VRP_KNOB_COUNT] = {
#define KNOB_ROW(name, value, low, high, preset, meaning) {#name, meaning, low, high, preset},
    VRP_KNOB_MAP(KNOB_ROW)
#undef KNOB_ROW
};

static vrp_status knob_check(int32_t knob) {
    if (knob < 0 || knob >= (int32_t)VRP_KNOB_COUNT)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "no knob %d", knob);
    return VRP_OK;
}

const char *vrp_knob_name(int32_t knob) {
    return knob < 0 || knob >= (int32_t)VRP_KNOB_COUNT ? NULL : knobs[knob].name;
}

const char *vrp_knob_meaning(int32_t knob) {
    return knob < 0 || knob >= (int32_t)VRP_KNOB_COUNT ? NULL : knobs[knob].meaning;
}

vrp_status vrp_knob_bounds_get(int32_t knob, vrp_knob_bounds *out_bounds) {
    vrp_knob_bounds bounds = {.struct_size = sizeof bounds};
    VRPI_TRY(knob_check(knob));
    bounds.low = knobs[knob].low;
    bounds.high = knobs[knob].high;
    bounds.preset = knobs[knob].preset;
    return vrpi_struct_out(out_bounds, &bounds, sizeof bounds, "vrp_knob_bounds");
}

vrp_status vrp_pool_knob_get(vrp_pool *pool, int32_t knob, uint64_t *out_value) {
    VRPI_TRY(vrpi_pool_usable(pool));
    VRPI_TRY(knob_check(knob));
    if (out_value == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_pool_knob_get: out_value is NULL");
    VRPI_TRY(vrpi_enter(pool));
    *out_value = atomic_load_explicit(&pool->core->knob[knob], memory_order_relaxed);
    vrpi_exit(pool);
    return VRP_OK;
}

vrp_status vrp_pool_knob_set(vrp_pool *pool, int32_t knob, uint64_t value) {
    VRPI_TRY(vrpi_pool_usable(pool));
    VRPI_TRY(knob_check(knob));
    if (value < knobs[knob].low || value > knobs[knob].high)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "knob %s is %llu to %llu, not %llu",
                         knobs[knob].name, (unsigned long long)knobs[knob].low,
                         (unsigned long long)knobs[knob].high, (unsigned long long)value);
    VRPI_TRY(vrpi_enter(pool));
    atomic_store_explicit(&pool->core->knob[knob], value, memory_order_relaxed);
    if (knob == VRP_KNOB_CACHE_BYTES) {
        vrpi_mutex_lock(&pool->core->lock);
        vrpi_fronts_limits(pool->core);
        vrpi_mutex_unlock(&pool->core->lock);
    }
    vrpi_exit(pool);
    return VRP_OK;
}
