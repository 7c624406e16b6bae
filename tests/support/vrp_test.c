/* SPDX-License-Identifier: MIT */
/* The fixture of the pool's tests and their common ending. */

#include "vrp_test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

vrpt_target vrpt_now = {"sim", VRP_BACKING_VMM};

int vrpt_fail(vrpt *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(t->why, sizeof t->why, format, arguments);
    va_end(arguments);
    return 0;
}

const char *vrpt_detail(void) {
    static _Thread_local vrp_error_detail detail;
    detail.struct_size = sizeof detail;
    return vrp_error_detail_get(&detail) == VRP_OK ? detail.message : "";
}

uint64_t vrpt_env_number(const char *name, uint64_t preset) {
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : preset;
}

uint64_t vrpt_rng_next(vrpt_rng *rng) { /* splitmix64 */
    uint64_t z = (rng->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t vrpt_rng_below(vrpt_rng *rng, uint64_t bound) { return vrpt_rng_next(rng) % bound; }

/* ---- Opening ------------------------------------------------------------------ */

static int open_sim(vrpt *t, const vrpt_options *options) {
    vrp_sim_config config = {
        .struct_size = sizeof config,
        .flags = options->sim_flags | (options->host_memory ? 0 : VRP_SIM_NO_HOST_MEMORY),
        .device_count = options->device_count,
        .completion = options->completion,
        .device_bytes = t->device_bytes,
        .window_bytes = t->device_bytes * 32,
        .lag_ticks = options->lag_ticks,
    };
    vrp_status status = vrp_sim_create(&config, &t->sim);
    if (status != VRP_OK)
        return vrpt_fail(t, "vrp_sim_create: %s (%s)", vrp_status_name(status), vrpt_detail());
    status = vrp_sim_driver_create(t->sim, 0, &t->driver);
    if (status == VRP_OK)
        return 1;
    (void)vrp_sim_destroy(t->sim);
    t->sim = NULL;
    return vrpt_fail(t, "vrp_sim_driver_create: %s", vrp_status_name(status));
}

int vrpt_open_device(vrpt *t, const vrpt_options *options) {
    static const vrpt_options defaults;
    if (options == NULL)
        options = &defaults;
    memset(t, 0, sizeof *t);
    t->backing = options->backing != 0 ? options->backing : vrpt_now.backing;
    t->device_bytes = options->device_bytes != 0 ? options->device_bytes : VRPT_GIB;
    t->pool_flags = options->pool.flags;
    t->lagging = options->completion == VRP_SIM_LAG || options->completion == VRP_SIM_CLOCK;
    if (options->sim_only || vrpt_now.device[0] == 's')
        return open_sim(t, options);
    vrp_status status = vrp_driver_open(vrpt_now.device, &t->driver);
    if (status != VRP_OK)
        return vrpt_fail(t, "%s: %s (%s)", vrpt_now.device, vrp_status_name(status), vrpt_detail());
    return 1;
}

vrp_status vrpt_pool_create(vrpt *t, const vrpt_options *options, vrp_pool **out_pool) {
    vrp_pool_config config = {0};
    if (options != NULL)
        config = options->pool;
    config.struct_size = sizeof config;
    if (config.backing == VRP_BACKING_AUTO)
        config.backing = t->backing;
    return vrp_pool_create(t->driver, &config, out_pool);
}

int vrpt_open(vrpt *t, const vrpt_options *options) {
    if (!vrpt_open_device(t, options))
        return 0;
    vrp_status status = vrpt_pool_create(t, options, &t->pool);
    if (status == VRP_OK)
        return 1;
    (void)vrpt_close_device(t);
    return vrpt_fail(t, "vrp_pool_create: %s (%s)", vrp_status_name(status), vrpt_detail());
}

/* ---- Closing ------------------------------------------------------------------- */

void vrpt_drain(vrpt *t) {
    if (t->sim != NULL) {
        vrp_sim_drain(t->sim);
        return;
    }
    void *ctx;
    const vrp_driver_ops *ops = vrp_driver_ops_get(t->driver, &ctx);
    if (ops != NULL)
        (void)ops->synchronize(ctx);
}

static int free_live(vrpt *t) {
    vrpt_view view;
    int good = vrpt_view_take(t, &view);
    for (size_t i = 0; good && i < view.block_count; i++) {
        if (view.blocks[i].state != VRP_BLOCK_LIVE)
            continue;
        vrp_status status = vrp_free(t->pool, view.blocks[i].base, VRP_STREAM_OF_ALLOC);
        if (status != VRP_OK)
            good = vrpt_fail(t, "ending: free of %" PRIx64 ": %s (%s)", view.blocks[i].base,
                             vrp_status_name(status), vrpt_detail());
    }
    vrpt_view_release(&view);
    return good;
}

/* The reclaimer thread may be in the middle of giving an extent back. */
static int nothing_reserved(vrpt *t) {
    const struct timespec moment = {.tv_nsec = 1000000};
    vrp_stats stats;
    for (int tries = 0; tries < 5000; tries++) {
        vrp_status status = vrp_empty_cache(t->pool, NULL);
        if (status != VRP_OK)
            return vrpt_fail(t, "ending: empty_cache: %s (%s)", vrp_status_name(status),
                             vrpt_detail());
        stats = vrpt_stats(t);
        if (stats.reserved_bytes.current == 0)
            break;
        if (t->lagging && tries < 2) {
            vrpt_drain(t); /* what empty_cache has recorded */
            continue;
        }
        if (t->pool_flags & VRP_NO_RECLAIMER)
            break;
        (void)nanosleep(&moment, NULL);
    }
    if (stats.requested_bytes.current != 0 || stats.allocated_bytes.current != 0 ||
        stats.blocks.current != 0)
        return vrpt_fail(t, "ending: %" PRIu64 " bytes in %" PRIu64 " blocks still count as live",
                         stats.allocated_bytes.current, stats.blocks.current);
    if (stats.reserved_bytes.current != 0)
        return vrpt_fail(t, "I5: %" PRIu64 " bytes are still reserved",
                         stats.reserved_bytes.current);
    if (t->sim != NULL && !t->shared && vrpt_sim_stats(t, 0).used_bytes != 0)
        return vrpt_fail(t, "I5: the device still has %" PRIu64 " bytes in use",
                         vrpt_sim_stats(t, 0).used_bytes);
    return 1;
}

static int limits_off(vrpt *t) {
    vrp_status status = vrp_pool_knob_set(t->pool, VRP_KNOB_LIMIT_BYTES, 0);
    for (int32_t tag = 0; tag < VRP_TAG_COUNT && status == VRP_OK; tag++)
        status = vrp_tag_budget_set(t->pool, tag, 0);
    return status == VRP_OK || vrpt_fail(t, "ending: limits off: %s", vrp_status_name(status));
}

static int whole_pool_serves(vrpt *t) {
    void *ctx;
    const vrp_driver_ops *ops = vrp_driver_ops_get(t->driver, &ctx);
    uint64_t free_bytes = 0, total_bytes = 0;
    vrp_status status = ops->mem_info(ctx, &free_bytes, &total_bytes);
    if (t->sim == NULL) /* a real device has fragments of its own */
        free_bytes = free_bytes / 4 * 3;
    vrp_devptr ptr = 0;
    if (status == VRP_OK)
        status = vrp_alloc(t->pool, free_bytes, VRP_STREAM_LEGACY, &ptr);
    if (status != VRP_OK)
        return vrpt_fail(t, "ending: one block of all %" PRIu64 " bytes: %s (%s)", free_bytes,
                         vrp_status_name(status), vrpt_detail());
    status = vrp_free(t->pool, ptr, VRP_STREAM_LEGACY);
    return status == VRP_OK || vrpt_fail(t, "ending: free: %s", vrp_status_name(status));
}

int vrpt_whole_again(vrpt *t) {
    vrp_status status = vrp_pool_check(t->pool);
    if (status != VRP_OK)
        return vrpt_fail(t, "check: %s (%s)", vrp_status_name(status), vrpt_detail());
    if (!(t->pool_flags & VRP_NO_RECLAIMER))
        vrpt_drain(t); /* the recount below may not race with the reclaimer */
    if ((t->pool_flags & VRP_NO_RECLAIMER && !vrpt_recount(t)) || !free_live(t))
        return 0;
    vrpt_drain(t);
    if (!nothing_reserved(t) || !limits_off(t) || !whole_pool_serves(t))
        return 0;
    status = vrp_pool_check(t->pool);
    return status == VRP_OK ||
           vrpt_fail(t, "check at the end: %s (%s)", vrp_status_name(status), vrpt_detail());
}

int vrpt_close_device(vrpt *t) {
    int good = 1;
    if (t->sim != NULL) {
        vrp_sim_stats stats = vrpt_sim_stats(t, 0);
        if (stats.used_bytes + stats.allocations + stats.handles + stats.mappings + stats.ranges +
                stats.events !=
            0)
            good =
                vrpt_fail(t,
                          "left on the device: %" PRIu64 " bytes, %" PRIu64 " allocations, %" PRIu64
                          " handles, %" PRIu64 " mappings, %" PRIu64 " ranges, %" PRIu64 " events",
                          stats.used_bytes, stats.allocations, stats.handles, stats.mappings,
                          stats.ranges, stats.events);
        char text[256];
        vrp_sim_misuse_text(t->sim, text, sizeof text);
        if (stats.misuses != 0)
            good = vrpt_fail(t, "I7: %" PRIu64 " misuses, the last: %s", stats.misuses, text);
        if (stats.capture_breaks != 0)
            good = vrpt_fail(t, "%" PRIu64 " captures were broken", stats.capture_breaks);
    }
    vrp_driver_destroy(t->driver);
    t->driver = NULL;
    uint64_t left = t->sim != NULL ? vrp_sim_destroy(t->sim) : 0;
    t->sim = NULL;
    if (good && left != 0)
        good = vrpt_fail(t, "the machine counts %" PRIu64 " things left", left);
    return good;
}

int vrpt_close(vrpt *t) {
    char why[sizeof t->why];
    int good = vrpt_whole_again(t);
    memcpy(why, t->why, sizeof why);
    vrp_status status = vrp_pool_destroy(t->pool, good ? 0 : VRP_DESTROY_FORCE);
    t->pool = NULL;
    if (status != VRP_OK && good) {
        good = vrpt_fail(t, "destroy: %s (%s)", vrp_status_name(status), vrpt_detail());
        memcpy(why, t->why, sizeof why);
    }
    if (good)
        return vrpt_close_device(t);
    (void)vrpt_close_device(t);
    memcpy(t->why, why, sizeof why); /* the first reason is the one to show */
    return 0;
}

/* ---- Shorthands ------------------------------------------------------------------ */

vrp_stats vrpt_stats(vrpt *t) {
    vrp_stats stats = {.struct_size = sizeof stats};
    if (vrp_pool_stats_get(t->pool, &stats) != VRP_OK)
        memset(&stats, 0xff, sizeof stats); /* no comparison holds */
    return stats;
}

vrp_sim_stats vrpt_sim_stats(vrpt *t, uint32_t ordinal) {
    vrp_sim_stats stats = {.struct_size = sizeof stats};
    if (vrp_sim_stats_get(t->sim, ordinal, &stats) != VRP_OK)
        memset(&stats, 0xff, sizeof stats);
    return stats;
}

uint64_t vrpt_usable(vrpt *t, vrp_devptr ptr) {
    vrp_block_info info = {.struct_size = sizeof info};
    if (vrp_block_info_get(t->pool, ptr, &info) != VRP_OK || info.base != ptr)
        return 0;
    return info.bytes;
}

uint64_t vrpt_driver_calls(vrpt *t) {
    static const int32_t calls[] = {
        VRP_SIM_CALL_MEM_ALLOC,    VRP_SIM_CALL_MEM_FREE,      VRP_SIM_CALL_ADDRESS_RESERVE,
        VRP_SIM_CALL_ADDRESS_FREE, VRP_SIM_CALL_HANDLE_CREATE, VRP_SIM_CALL_HANDLE_RELEASE,
        VRP_SIM_CALL_MAP,          VRP_SIM_CALL_SET_ACCESS,    VRP_SIM_CALL_UNMAP,
    };
    uint64_t sum = 0;
    for (size_t i = 0; i < VRPT_COUNT(calls); i++)
        sum += vrp_sim_call_count(t->sim, calls[i]);
    return sum;
}

static int same_counter(const vrp_counter *a, const vrp_counter *b) {
    return a->current == b->current && a->peak == b->peak && a->total == b->total;
}

int vrpt_same_counters(const vrp_stats *a, const vrp_stats *b) {
    return same_counter(&a->requested_bytes, &b->requested_bytes) &&
           same_counter(&a->allocated_bytes, &b->allocated_bytes) &&
           same_counter(&a->blocks, &b->blocks);
}
