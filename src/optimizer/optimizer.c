/* SPDX-License-Identifier: MIT */
/* The optimizer: counts steps, reads the gap when a look is due, and empties
 * the cache by the classic rule or by one of the options. The arithmetic of
 * the options is in policy.c; everything here goes through public calls. */

#include "optimizer/policy.h"
#include "platform/error.h"
#include "platform/sync.h"
#include "vrampool/optimizer.h"

#include <stdlib.h>
#include <string.h>

#define ALL_OPTIONS \
    (VRP_OPTIMIZER_IDLE | VRP_OPTIMIZER_KEEP | VRP_OPTIMIZER_HYSTERESIS | VRP_OPTIMIZER_PRESSURE)

enum { KEEP_TURNS = 4, COOLDOWN_INTERVALS = 4, PRESSURE_SHARE = 16 };

struct vrp_optimizer {
    vrp_pool *pool; /* borrowed */
    vrp_optimizer_config config;
    vrp_optimizer_stats stats;
    vrpi_keep keep;
    vrpi_rearm rearm;
    int inside; /* a call is running: one that comes from within only counts */
};

void vrp_optimizer_config_init(vrp_optimizer_config *out_config) {
    if (out_config == NULL)
        return;
    memset(out_config, 0, sizeof *out_config);
    out_config->struct_size = sizeof *out_config;
    out_config->threshold_bytes = VRP_OPTIMIZER_THRESHOLD_BYTES;
    out_config->interval = VRP_OPTIMIZER_INTERVAL;
}

const char *vrp_optimizer_reason_text(int32_t reason) {
    static const char *const texts[] = {
        [VRP_REASON_NOT_DUE] = "not due",
        [VRP_REASON_BELOW_THRESHOLD] = "below threshold",
        [VRP_REASON_ABOVE_THRESHOLD] = "above threshold",
        [VRP_REASON_IDLE] = "idle",
        [VRP_REASON_PRESSURE] = "pressure",
        [VRP_REASON_KEPT] = "kept",
        [VRP_REASON_NOT_REARMED] = "not rearmed",
        [VRP_REASON_NOTHING_IDLE] = "nothing idle",
    };
    if (reason < 0 || (size_t)reason >= sizeof texts / sizeof *texts)
        return "unknown reason";
    return texts[reason];
}

static vrp_status read_pool(vrp_pool *pool, vrpi_reading *out_reading) {
    vrp_stats stats = {.struct_size = sizeof stats};
    VRPI_TRY(vrp_pool_stats_get(pool, &stats));
    out_reading->allocated = stats.allocated_bytes.current;
    out_reading->reserved = stats.reserved_bytes.current;
    out_reading->reserved_peak = stats.reserved_bytes.peak;
    out_reading->reserved_total = stats.reserved_bytes.total;
    return VRP_OK;
}

/* The two counters are not read at one moment: while other threads allocate,
 * allocated may be seen ahead of reserved. */
static uint64_t gap_of(const vrpi_reading *reading) {
    return reading->reserved > reading->allocated ? reading->reserved - reading->allocated : 0;
}

static vrp_status check_config(const vrp_optimizer_config *config) {
    if (config->interval == 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "the interval is 0 steps");
    if ((config->options & ~ALL_OPTIONS) != 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "unknown option bits 0x%x",
                         (unsigned)(config->options & ~ALL_OPTIONS));
    if (config->reserved != 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "the reserved member is not 0");
    return VRP_OK;
}

static vrp_status fill_defaults(vrp_optimizer *optimizer) {
    vrp_optimizer_config *config = &optimizer->config;
    vrpi_reading now;
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    VRPI_TRY(read_pool(optimizer->pool, &now));
    if (config->keep_turns == 0)
        config->keep_turns = KEEP_TURNS;
    vrpi_keep_init(&optimizer->keep, config->keep_turns, &now);
    optimizer->rearm.bytes =
        config->rearm_bytes != 0 ? config->rearm_bytes : config->threshold_bytes / 2;
    optimizer->rearm.cooldown = config->cooldown_steps != 0
                                    ? config->cooldown_steps
                                    : (uint64_t)config->interval * COOLDOWN_INTERVALS;
    if ((config->options & VRP_OPTIMIZER_PRESSURE) != 0 && config->pressure_free_bytes == 0) {
        VRPI_TRY(vrp_pool_device_memory_get(optimizer->pool, &free_bytes, &total_bytes));
        config->pressure_free_bytes = total_bytes / PRESSURE_SHARE;
    }
    return VRP_OK;
}

vrp_status vrp_optimizer_create(vrp_pool *pool, const vrp_optimizer_config *config,
                                vrp_optimizer **out_optimizer) {
    vrp_optimizer_config known;
    vrp_optimizer *optimizer;
    vrp_status status;
    if (pool == NULL || out_optimizer == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "%s is NULL",
                         pool == NULL ? "pool" : "out_optimizer");
    if (config == NULL)
        vrp_optimizer_config_init(&known);
    else
        VRPI_TRY(vrpi_struct_in(&known, sizeof known, config, "vrp_optimizer_config"));
    VRPI_TRY(check_config(&known));
    optimizer = calloc(1, sizeof *optimizer);
    if (optimizer == NULL)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for an optimizer");
    optimizer->pool = pool;
    optimizer->config = known;
    status = fill_defaults(optimizer);
    if (status != VRP_OK) {
        free(optimizer);
        return status;
    }
    *out_optimizer = optimizer;
    return VRP_OK;
}

void vrp_optimizer_destroy(vrp_optimizer *optimizer) { free(optimizer); }

static int has(const vrp_optimizer *optimizer, uint32_t option) {
    return (optimizer->config.options & option) != 0;
}

/* Trims to `target` and writes down what came of it. */
static vrp_status act(vrp_optimizer *optimizer, uint64_t target, vrp_optimizer_report *report,
                      vrpi_reading *after) {
    vrp_trim_result result = {.struct_size = sizeof result};
    if (target == 0)
        VRPI_TRY(vrp_empty_cache(optimizer->pool, &result));
    else
        VRPI_TRY(vrp_trim(optimizer->pool, target, 0, &result));
    report->acted = 1;
    report->keep_bytes = target;
    report->released_bytes = result.released_bytes;
    report->pending_bytes = result.pending_bytes;
    optimizer->stats.released_bytes += result.released_bytes;
    VRPI_TRY(read_pool(optimizer->pool, after));
    report->gap_after_bytes = gap_of(after);
    return VRP_OK;
}

/* Whether the device is short of memory; lowers the threshold if it is. */
static vrp_status feel_pressure(vrp_optimizer *optimizer, vrp_optimizer_report *report,
                                int *out_pressed) {
    uint64_t total_bytes = 0;
    *out_pressed = 0;
    if (!has(optimizer, VRP_OPTIMIZER_PRESSURE))
        return VRP_OK;
    VRPI_TRY(vrp_pool_device_memory_get(optimizer->pool, &report->device_free_bytes, &total_bytes));
    *out_pressed = report->device_free_bytes < optimizer->config.pressure_free_bytes;
    report->threshold_bytes = vrpi_pressure_threshold(
        report->threshold_bytes, report->device_free_bytes, optimizer->config.pressure_free_bytes);
    return VRP_OK;
}

/* The gap is above the threshold: acts unless an option speaks against it. */
static vrp_status decide(vrp_optimizer *optimizer, int pressed, vrp_optimizer_report *report,
                         const vrpi_reading *now, vrpi_reading *after) {
    const int keeps = has(optimizer, VRP_OPTIMIZER_KEEP) && !pressed;
    const uint64_t target = keeps ? vrpi_keep_target(&optimizer->keep, now) : 0;
    if (keeps && now->reserved <= target) {
        report->reason = VRP_REASON_KEPT;
        report->keep_bytes = now->reserved;
        return VRP_OK;
    }
    VRPI_TRY(act(optimizer, target, report, after));
    report->reason = pressed ? VRP_REASON_PRESSURE : VRP_REASON_ABOVE_THRESHOLD;
    vrpi_rearm_acted(&optimizer->rearm, report->step, report->gap_after_bytes);
    return VRP_OK;
}

static vrp_status look(vrp_optimizer *optimizer, vrp_optimizer_report *report) {
    vrpi_reading now;
    vrpi_reading after;
    int pressed = 0;
    vrp_status status;
    VRPI_TRY(read_pool(optimizer->pool, &now));
    after = now;
    report->looked = 1;
    report->gap_bytes = report->gap_after_bytes = gap_of(&now);
    report->threshold_bytes = optimizer->config.threshold_bytes;
    optimizer->stats.looks++;
    vrpi_keep_look(&optimizer->keep, &now);
    status = feel_pressure(optimizer, report, &pressed);
    if (status == VRP_OK) {
        /* Asked at every look, so that a gap that has fallen arms again. */
        const int armed = !has(optimizer, VRP_OPTIMIZER_HYSTERESIS) ||
                          vrpi_rearm_ready(&optimizer->rearm, report->step, report->gap_bytes);
        if (report->gap_bytes <= report->threshold_bytes)
            report->reason = VRP_REASON_BELOW_THRESHOLD;
        else if (!armed)
            report->reason = VRP_REASON_NOT_REARMED;
        else
            status = decide(optimizer, pressed, report, &now, &after);
    }
    vrpi_keep_turn_begin(&optimizer->keep, &after);
    if (report->gap_after_bytes > optimizer->stats.largest_gap_after_look_bytes)
        optimizer->stats.largest_gap_after_look_bytes = report->gap_after_bytes;
    return status;
}

static vrp_status look_idle(vrp_optimizer *optimizer, vrp_optimizer_report *report) {
    vrpi_reading now;
    vrpi_reading after;
    int pressed = 0;
    uint64_t target = 0;
    VRPI_TRY(read_pool(optimizer->pool, &now));
    report->looked = 1;
    report->gap_bytes = report->gap_after_bytes = gap_of(&now);
    VRPI_TRY(feel_pressure(optimizer, report, &pressed));
    if (report->gap_bytes == 0) {
        report->reason = VRP_REASON_NOTHING_IDLE;
        return VRP_OK;
    }
    if (has(optimizer, VRP_OPTIMIZER_KEEP) && !pressed) {
        target = vrpi_keep_target(&optimizer->keep, &now);
        if (now.reserved <= target) {
            report->reason = VRP_REASON_KEPT;
            report->keep_bytes = now.reserved;
            return VRP_OK;
        }
    }
    VRPI_TRY(act(optimizer, target, report, &after));
    if (report->released_bytes == 0 && report->pending_bytes == 0) {
        report->acted = 0;
        report->reason = VRP_REASON_NOTHING_IDLE;
    } else {
        report->reason = pressed ? VRP_REASON_PRESSURE : VRP_REASON_IDLE;
    }
    return VRP_OK;
}

/* What both entry points share: arguments, cost, statistics, results. */
static vrp_status run(vrp_optimizer *optimizer, int is_step, int *out_acted,
                      vrp_optimizer_report *out_report) {
    vrp_optimizer_report report = {.struct_size = sizeof report, .reason = VRP_REASON_NOT_DUE};
    vrp_status status = VRP_OK;
    uint64_t begun;
    if (optimizer == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "optimizer is NULL");
    if (out_report != NULL && out_report->struct_size < sizeof out_report->struct_size)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_optimizer_report.struct_size is %u",
                         (unsigned)out_report->struct_size);
    begun = vrpi_now_ns();
    optimizer->stats.steps += is_step != 0;
    report.step = optimizer->stats.steps;
    if (!optimizer->inside) {
        optimizer->inside = 1;
        if (is_step && report.step % optimizer->config.interval == 0)
            status = look(optimizer, &report);
        else if (!is_step && has(optimizer, VRP_OPTIMIZER_IDLE))
            status = look_idle(optimizer, &report);
        optimizer->inside = 0;
    }
    report.cost_ns = vrpi_now_ns() - begun;
    optimizer->stats.cost_ns += report.cost_ns;
    if (status != VRP_OK)
        return status;
    optimizer->stats.acts += report.acted;
    if (out_acted != NULL)
        *out_acted = (int)report.acted;
    if (out_report != NULL)
        VRPI_TRY(vrpi_struct_out(out_report, &report, sizeof report, "vrp_optimizer_report"));
    return VRP_OK;
}

vrp_status vrp_optimizer_step(vrp_optimizer *optimizer, int *out_acted,
                              vrp_optimizer_report *out_report) {
    return run(optimizer, 1, out_acted, out_report);
}

vrp_status vrp_optimizer_idle(vrp_optimizer *optimizer, int *out_acted,
                              vrp_optimizer_report *out_report) {
    return run(optimizer, 0, out_acted, out_report);
}

vrp_status vrp_optimizer_stats_get(const vrp_optimizer *optimizer, vrp_optimizer_stats *out_stats) {
    vrp_optimizer_stats stats;
    if (optimizer == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "optimizer is NULL");
    stats = optimizer->stats;
    stats.struct_size = sizeof stats;
    return vrpi_struct_out(out_stats, &stats, sizeof stats, "vrp_optimizer_stats");
}
