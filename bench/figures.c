/* SPDX-License-Identifier: MIT */
/* Markers, the figures behind the last line, and the end of a replay. */

#include "run.h"

#include <inttypes.h>

/* ---- Markers ---------------------------------------------------------------------- */

static void note_gap(bench_run *run) {
    uint64_t gap = vrp_pool_reserved_bytes(run->pool) - run->requested;
    if (gap > run->figures->max_gap_after_step_bytes)
        run->figures->max_gap_after_step_bytes = gap;
}

static int ask_optimizer(bench_run *run) {
    vrp_optimizer_report report = {.struct_size = sizeof report};
    if (vrp_optimizer_step(run->optimizer, NULL, &report) != VRP_OK)
        return bench_fail_here(run, "optimizer: %s", bench_detail());
    /* The engine waits for its user after every step. */
    if ((run->options->optimizer.options & VRP_OPTIMIZER_IDLE) != 0 &&
        vrp_optimizer_idle(run->optimizer, NULL, NULL) != VRP_OK)
        return bench_fail_here(run, "optimizer: %s", bench_detail());
    if (report.looked)
        note_gap(run);
    return BENCH_OK;
}

int bench_marker(bench_run *run, vrp_trace_marker marker) {
    uint32_t bit = (unsigned)marker < BENCH_MARKERS ? 1u << marker : 0;
    if (bit != 0)
        run->figures->markers[marker]++;
    if ((bit & (BENCH_AT_TURN | BENCH_AT_STEP | 1u << VRP_MARKER_LOAD)) != 0 &&
        bench_device_drain(&run->device) != VRP_OK)
        return bench_fail_here(run, "drain: %s", bench_detail());
    if (run->optimizer != NULL && (bit & run->options->at) != 0)
        return ask_optimizer(run);
    return BENCH_OK;
}

/* ---- The figures ------------------------------------------------------------------- */

static void count_calls(bench_run *run) {
    bench_figures *figures = run->figures;
    for (int32_t call = 0; call < (int32_t)VRP_SIM_CALL_COUNT; call++) {
        figures->calls[call] = vrp_sim_call_count(run->device.sim, call);
        figures->driver_calls += figures->calls[call];
    }
    figures->driver_allocations =
        figures->calls[VRP_SIM_CALL_MEM_ALLOC] + figures->calls[VRP_SIM_CALL_HANDLE_CREATE];
    figures->driver_time_ns = vrp_sim_driver_time_ns(run->device.sim);
}

static uint64_t sum_of(const vrp_gap *gap) {
    return gap->cached_bytes + gap->pending_bytes + gap->idle_bytes + gap->pinned_bytes +
           gap->slack_bytes;
}

int bench_take_figures(bench_run *run) {
    bench_figures *figures = run->figures;
    vrp_stats stats = {.struct_size = sizeof stats};
    vrp_optimizer_stats optimizer = {.struct_size = sizeof optimizer};
    if (vrp_pool_gap_compute(run->pool, &figures->at_end) != VRP_OK ||
        vrp_pool_stats_get(run->pool, &stats) != VRP_OK)
        return bench_fail("figures: %s", bench_detail());
    figures->events = run->events;
    figures->peak_requested_bytes = run->peak_requested;
    figures->peak_allocated_bytes = stats.allocated_bytes.peak;
    figures->peak_reserved_bytes = stats.reserved_bytes.peak;
    figures->peak_gap_bytes = stats.reserved_bytes.peak - run->peak_requested;
    if (run->events > 0)
        figures->mean_gap_bytes = (uint64_t)(run->gap_sum / (bench_wide)run->events);
    figures->at_end_bytes = stats.reserved_bytes.current - stats.allocated_bytes.current;
    figures->host_bytes_peak = atomic_load(&run->host_bytes_peak);
    figures->gap_limit_missed_bytes = stats.gap_limit_missed_bytes;
    figures->cross_stream_waits = stats.cross_stream_waits;
    figures->live_blocks = stats.blocks.current;
    figures->driver_allocations = stats.extents_created;
    figures->on_gpu = run->device.sim == NULL;
    if (run->device.sim != NULL)
        count_calls(run);
    if (run->optimizer != NULL) {
        if (vrp_optimizer_stats_get(run->optimizer, &optimizer) != VRP_OK)
            return bench_fail("figures: %s", bench_detail());
        figures->steps = optimizer.steps;
        figures->steps_acted = optimizer.acts;
        figures->released_bytes = optimizer.released_bytes;
    }
    if (stats.requested_bytes.current != run->requested)
        return bench_fail("the pool counts %" PRIu64 " requested bytes, the trace has %" PRIu64,
                          stats.requested_bytes.current, run->requested);
    if (sum_of(&figures->at_peak) != figures->at_peak_bytes ||
        sum_of(&figures->at_end) != figures->at_end_bytes)
        return bench_fail("the causes of the gap do not add up to it");
    return BENCH_OK;
}

/* ---- The end ------------------------------------------------------------------------- */

static int free_all(bench_run *run) {
    for (uint64_t i = 0; i <= run->blocks.mask; i++) {
        const bench_entry *entry = &run->blocks.entries[i];
        if (!entry->used || entry->refused)
            continue;
        if (run->device.uses && entry->value != 0 &&
            vrp_sim_use_end(run->device.sim, entry->stream, entry->value, entry->bytes) != VRP_OK)
            return bench_fail("closing use: %s", bench_detail());
        if (vrp_free(run->pool, entry->value, entry->stream) != VRP_OK)
            return bench_fail("closing free: %s", bench_detail());
    }
    return BENCH_OK;
}

static int forget_streams(bench_run *run) {
    for (uint64_t i = 0; i <= run->streams.mask; i++)
        if (run->streams.entries[i].used &&
            vrp_stream_forget(run->pool, run->streams.entries[i].value) != VRP_OK)
            return bench_fail("a stream cannot be forgotten: %s", bench_detail());
    return BENCH_OK;
}

static int look_for_misuse(bench_run *run) {
    char text[256] = "";
    vrp_sim_stats stats = {.struct_size = sizeof stats};
    if (!run->device.uses)
        return BENCH_OK;
    if (vrp_sim_stats_get(run->device.sim, 0, &stats) != VRP_OK)
        return bench_fail("figures: %s", bench_detail());
    run->figures->misuses = stats.misuses;
    if (stats.misuses == 0)
        return BENCH_OK;
    vrp_sim_misuse_text(run->device.sim, text, sizeof text);
    return bench_fail("%" PRIu64 " misuses of memory, the last: %s", stats.misuses, text);
}

int bench_close_pool(bench_run *run) {
    int code = free_all(run);
    if (code != BENCH_OK)
        return code;
    if (bench_device_drain(&run->device) != VRP_OK || vrp_empty_cache(run->pool, NULL) != VRP_OK)
        return bench_fail("closing: %s", bench_detail());
    uint64_t reserved = vrp_pool_reserved_bytes(run->pool);
    if (reserved != 0)
        return bench_fail("%" PRIu64 " bytes are still reserved when everything is freed",
                          reserved);
    code = forget_streams(run);
    if (code != BENCH_OK)
        return code;
    vrp_optimizer_destroy(run->optimizer);
    run->optimizer = NULL;
    vrp_pool *pool = run->pool;
    run->pool = NULL;
    if (vrp_pool_destroy(pool, 0) != VRP_OK)
        return bench_fail("the pool does not end: %s", bench_detail());
    return look_for_misuse(run);
}
