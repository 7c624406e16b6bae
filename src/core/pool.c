/* SPDX-License-Identifier: MIT */
/* Creating and ending pools, and the door that every call goes through. */

#include "core/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEAD_KEPT = 4096 };

/* Handles of pools that are gone: late callers may still hold them. */
static pthread_mutex_t dead_lock = PTHREAD_MUTEX_INITIALIZER;
static vrp_pool *dead_first, **dead_last = &dead_first;
static unsigned dead_count;

vrp_status vrpi_pool_usable(const vrp_pool *pool) {
    if (pool == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "the pool is NULL");
    if (pool->fork_count != atomic_load_explicit(&vrpi_fork_count, memory_order_relaxed))
        return vrpi_fail(VRP_AFTER_FORK, "the pool was made before this process forked");
    if (atomic_load_explicit(&pool->state, memory_order_relaxed) != VRPI_OPEN)
        return vrpi_fail(VRP_SHUT_DOWN, "the pool is gone or going");
    return VRP_OK;
}

vrp_status vrpi_enter(vrp_pool *pool) {
    VRPI_TRY(vrpi_pool_usable(pool));
    /* seq_cst, as in vrp_pool_destroy: either it sees this user, or the user
     * sees that the pool is closing */
    (void)atomic_fetch_add(&pool->users, 1);
    if (atomic_load(&pool->state) != VRPI_OPEN) {
        (void)atomic_fetch_sub(&pool->users, 1);
        return vrpi_fail(VRP_SHUT_DOWN, "the pool is gone or going");
    }
    return VRP_OK;
}

void vrpi_exit(vrp_pool *pool) { (void)atomic_fetch_sub(&pool->users, 1); }

static vrp_pool *handle_take(void) {
    vrp_pool *pool = NULL;
    (void)pthread_mutex_lock(&dead_lock);
    if (dead_count > DEAD_KEPT) {
        pool = dead_first;
        dead_first = pool->next;
        if (dead_first == NULL)
            dead_last = &dead_first;
        dead_count--;
        memset(pool, 0, sizeof *pool);
    }
    (void)pthread_mutex_unlock(&dead_lock);
    return pool != NULL ? pool : calloc(1, sizeof *pool);
}

static void handle_bury(vrp_pool *pool) {
    (void)pthread_mutex_lock(&dead_lock);
    pool->core = NULL;
    pool->next = NULL;
    *dead_last = pool;
    dead_last = &pool->next;
    dead_count++;
    (void)pthread_mutex_unlock(&dead_lock);
}

static vrp_status config_check(const vrp_pool_config *c) {
    const uint32_t known = VRP_STREAMS_UNTRACKED | VRP_NO_DEVICE_WAITS | VRP_NO_RECLAIMER;
    if ((c->flags & ~known) != 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_pool_config: unknown flags 0x%x", c->flags);
    if (c->backing < 0 || c->backing > VRP_BACKING_MALLOC)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_pool_config.backing is %d", c->backing);
    if (c->gap_rule < 0 || c->gap_rule > VRP_GAP_RULE_LIMIT)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_pool_config.gap_rule is %d", c->gap_rule);
    if ((c->host_alloc == NULL) != (c->host_free == NULL))
        return vrpi_fail(VRP_INVALID_ARGUMENT,
                         "vrp_pool_config: host_alloc and host_free come together");
    return VRP_OK;
}

static void knobs_init(vrpi_pool *core) {
#define PRESET(name, value, low, high, preset, meaning) core->knob[value] = preset;
    VRP_KNOB_MAP(PRESET)
#undef PRESET
    if (core->config.gap_rule != VRP_GAP_RULE_DEFAULT)
        core->knob[VRP_KNOB_GAP_RULE] = (uint64_t)core->config.gap_rule;
    else if (core->backing == VRP_BACKING_MALLOC)
        core->knob[VRP_KNOB_GAP_RULE] = VRP_GAP_RULE_OFF;
    if (core->config.gap_rule == VRP_GAP_RULE_LIMIT)
        core->knob[VRP_KNOB_GAP_LIMIT_BYTES] = core->config.gap_limit_bytes;
    core->knob[VRP_KNOB_LIMIT_BYTES] = core->config.limit_bytes;
    if ((core->config.flags & VRP_NO_DEVICE_WAITS) != 0)
        core->knob[VRP_KNOB_DEVICE_WAITS] = 0;
    if ((core->device.caps & VRP_CAP_ASYNC_DEVICE) != 0 &&
        (core->config.flags & VRP_NO_RECLAIMER) == 0)
        core->knob[VRP_KNOB_RECLAIMER] = 1;
}

static void because(vrpi_pool *core, const char *backing, const char *why, const char *detail) {
    (void)snprintf(core->backing_reason, sizeof core->backing_reason, "%s: %s%s%s", backing, why,
                   detail[0] != '\0' ? ": " : "", detail);
}

static vrp_status backing_choose(vrpi_pool *core) {
    uint32_t caps = core->device.caps;
    int32_t asked = core->config.backing;
    vrp_error_detail detail = {.struct_size = sizeof detail};
    core->backing = asked != VRP_BACKING_AUTO   ? asked
                    : (caps & VRP_CAP_VMM) != 0 ? VRP_BACKING_VMM
                                                : VRP_BACKING_MALLOC;
    if ((core->backing == VRP_BACKING_VMM && (caps & VRP_CAP_VMM) == 0) ||
        (core->backing == VRP_BACKING_MALLOC && (caps & VRP_CAP_MALLOC) == 0))
        return vrpi_fail(VRP_NOT_SUPPORTED, "the driver has no calls for the %s backing",
                         core->backing == VRP_BACKING_VMM ? "vmm" : "malloc");
    because(core, core->backing == VRP_BACKING_VMM ? "vmm" : "malloc",
            asked != VRP_BACKING_AUTO             ? "asked for by the configuration"
            : core->backing == VRP_BACKING_MALLOC ? "the driver has no calls for virtual memory"
                                                  : "the device supports it",
            "");
    if (core->backing == VRP_BACKING_MALLOC)
        return VRP_OK;
    vrpi_arena *arena; /* the first range, which also shows that ranges can be had */
    vrp_status status = vrpi_arena_create(core, core->granularity * 64, &arena);
    if (status != VRP_OK && asked == VRP_BACKING_AUTO && (caps & VRP_CAP_MALLOC) != 0) {
        because(core, "malloc", "no address range could be reserved",
                vrp_error_detail_get(&detail) == VRP_OK ? detail.message : "");
        core->backing = VRP_BACKING_MALLOC;
        status = VRP_OK;
    }
    return status;
}

/* initial_bytes: idle memory to begin with. */
static vrp_status initial_back(vrpi_pool *core) {
    uint64_t g = core->granularity, bytes = (core->config.initial_bytes + g - 1) / g * g;
    vrpi_arena *arena = core->arenas;
    uint64_t at = 0;
    if (core->config.initial_bytes == 0)
        return VRP_OK;
    if (bytes > VRPI_BLOCK_MAX)
        return vrpi_fail(VRP_OUT_OF_DEVICE_MEMORY, "initial_bytes is more than one block can have");
    if (core->config.initial_bytes > core->device.total_bytes)
        return vrpi_fail(VRP_OUT_OF_DEVICE_MEMORY, "initial_bytes is more than the device has");
    if (vrpi_limit_exceeded(core, bytes))
        return vrpi_fail(VRP_LIMIT_REACHED, "initial_bytes is above limit_bytes");
    if (core->backing == VRP_BACKING_MALLOC)
        return vrpi_segment_create(core, bytes, &arena);
    if (bytes > arena->bytes)
        VRPI_TRY(vrpi_arena_create(core, bytes + g, &arena));
    VRPI_TRY(vrpi_nodes_reserve(core, 1, 1, 0));
    VRPI_TRY(vrpi_arena_granules(core, arena, arena->base + bytes));
    vrpi_arena_extend(core, arena, arena->base + bytes);
    while (at < bytes) {
        uint64_t piece = core->knob[VRP_KNOB_EXTENT_LARGE_BYTES];
        if (piece > bytes - at)
            piece = bytes - at;
        VRPI_TRY(vrpi_extent_create(core, arena, arena->base + at, piece));
        vrpi_extent_unuse(core, arena, arena->base + at, piece, NULL, 0);
        at += piece;
    }
    vrpi_reserved_commit(core, bytes, core->extent_count);
    return VRP_OK;
}

static void host_end(vrpi_pool *core) {
    while (core->slabs != NULL) {
        vrpi_slab *slab = core->slabs;
        core->slabs = slab->all_next;
        for (uint32_t i = 0; slab->uses != NULL && i < slab->slot_count; i++)
            if (slab->uses[i] != NULL)
                vrpi_uses_free(core, slab->uses[i]);
        vrpi_slab_forget(core, slab);
    }
    while (core->deferred != NULL) {
        vrpi_uses *uses = core->deferred;
        core->deferred = uses->next;
        vrpi_uses_free(core, uses);
    }
    vrpi_growables_end(core);
    for (vrpi_arena *a = core->arenas; a != NULL; a = a->next)
        for (const vrpi_block *b = vrpi_first(core, a); b != NULL; b = vrpi_next(core, b))
            if (b->state == VRPI_SHARED)
                vrpi_uses_free(core, b->uses);
    vrpi_map_end(core);
    while (core->arenas != NULL)
        vrpi_arena_forget(core, core->arenas);
    vrpi_depots_end(core);
    while (core->streams != NULL) {
        vrpi_stream *s = core->streams;
        core->streams = s->next;
        vrpi_host_free(core, s, sizeof *s);
    }
    vrpi_host_free(core, core->events, core->event_capacity * sizeof(vrp_event));
    vrpi_host_free(core, core->orphans, core->orphan_capacity * sizeof *core->orphans);
    vrpi_scopes_end(core);
    vrpi_host_free(core, core->arena_at, core->arena_capacity * sizeof(vrpi_arena *));
    vrpi_host_end(core);
    vrpi_cond_destroy(&core->reclaimer.cond);
    vrpi_mutex_destroy(&core->lock);
    vrpi_mutex_destroy(&core->threads_lock);
}

/* Memory of the core itself comes before its hooks are known to work. */
static vrpi_pool *core_new(const vrp_pool_config *config) {
    vrpi_pool scratch = {.config = *config};
    vrpi_pool *core = vrpi_host_alloc(&scratch, sizeof *core);
    if (core == NULL)
        return NULL;
    core->config = *config;
    core->host_bytes = sizeof *core;
    core->ghosts_tail = &core->ghosts;
    core->claimed.state = VRPI_EXTENT_TRANSIT;
    core->idle.nodes = &core->extent_nodes;
    (void)vrpi_mutex_init(&core->lock, VRPI_RANK_POOL);
    (void)vrpi_mutex_init(&core->threads_lock, VRPI_RANK_SHARD);
    (void)vrpi_cond_init(&core->reclaimer.cond);
    return core;
}

static void core_free(vrpi_pool *core) {
    vrpi_pool scratch = {.config = core->config};
    vrpi_host_free(&scratch, core, sizeof *core);
}

static int unfinished(const vrpi_pool *core) {
    for (const vrpi_stream *s = core->streams; s != NULL; s = s->next)
        if (s->completed < s->seq)
            return 1;
    return core->deferred != NULL;
}

/* Gives everything that is idle and every address range and event back. Lock
 * held. On failure what is left stays as it is. */
static vrp_status device_end(vrpi_pool *core) {
    if (vrpi_lost(core) != VRP_OK)
        return VRP_OK; /* the device took its memory along */
    for (vrpi_stream *s = core->streams; s != NULL; s = s->next)
        s->capturing = 0;
    core->capturing_count = 0;
    /* A deferred block that is done becomes memory of its own stream, with a
     * stamp that the next round covers. */
    for (int round = 0; round < 4 && (round == 0 || unfinished(core)); round++)
        vrpi_wait_all(core);
    while (core->idle.count > 0 || core->orphan_count > 0 || core->ghost_count > 0) {
        uint64_t before = core->idle.count + core->orphan_count + core->ghost_count;
        vrpi_ghosts_poll(core);
        vrpi_orphans_retry(core);
        (void)vrpi_release_one(core, 0);
        if (core->idle.count + core->orphan_count + core->ghost_count >= before)
            return vrpi_lost(core) != VRP_OK
                       ? VRP_OK
                       : vrpi_fail(VRP_INTERNAL, "the driver does not take memory back");
    }
    for (vrpi_arena *a = core->arenas; core->backing == VRP_BACKING_VMM && a != NULL;) {
        if (a->used_blocks == 0 && a->backed_bytes == 0) {
            vrp_status status = vrpi_arena_release(core, a);
            if (status != VRP_OK)
                return vrpi_lost(core) != VRP_OK ? VRP_OK : status;
            a = core->arenas;
        } else {
            a = a->next;
        }
    }
    while (core->event_count > 0) {
        vrp_status status =
            core->ops->event_destroy(core->ctx, core->events[core->event_count - 1]);
        if (status != VRP_OK) {
            vrpi_driver_failed(core, status);
            return vrpi_lost(core) != VRP_OK ? VRP_OK : status;
        }
        core->event_count--;
        core->event_total--;
    }
    return VRP_OK;
}

vrp_status vrp_pool_create(vrp_driver *driver, const vrp_pool_config *config, vrp_pool **out_pool) {
    vrp_pool_config in = {.struct_size = sizeof in};
    vrp_pool *pool;
    vrpi_pool *core;
    vrp_status status;
    if (driver == NULL || out_pool == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_pool_create: %s is NULL",
                         driver == NULL ? "driver" : "out_pool");
    if (config != NULL)
        VRPI_TRY(vrpi_struct_in(&in, sizeof in, config, "vrp_pool_config"));
    VRPI_TRY(config_check(&in));
    vrpi_fork_watch();
    vrpi_gates_init();
    pool = handle_take();
    core = pool != NULL ? core_new(&in) : NULL;
    if (core == NULL) {
        free(pool);
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for a pool");
    }
    core->handle = pool;
    core->driver = driver;
    core->ops = vrp_driver_ops_get(driver, &core->ctx);
    core->device.struct_size = sizeof core->device;
    status = core->ops->device_info(core->ctx, &core->device);
    core->granularity =
        core->device.granularity_bytes != 0 ? core->device.granularity_bytes : UINT64_C(2097152);
    if (status == VRP_OK && (core->granularity & (core->granularity - 1)) != 0)
        status = vrpi_fail(VRP_NOT_SUPPORTED, "the driver's granularity is no power of two");
    core->arena_bytes = (in.arena_bytes + core->granularity - 1) & ~(core->granularity - 1);
    if (status == VRP_OK && (in.flags & VRP_STREAMS_UNTRACKED) != 0 && core->ops->stream_id == NULL)
        status = vrpi_fail(VRP_NOT_SUPPORTED, "the driver has no stream ids to tell streams by");
    vrpi_mutex_lock(&core->lock);
    if (status == VRP_OK)
        status = backing_choose(core);
    knobs_init(core);
    if (status == VRP_OK)
        status = initial_back(core);
    if (status != VRP_OK)
        (void)device_end(core);
    vrpi_mutex_unlock(&core->lock);
    if (status != VRP_OK) {
        host_end(core);
        core_free(core);
        free(pool);
        return status;
    }
    pool->core = core;
    pool->fork_count = atomic_load_explicit(&vrpi_fork_count, memory_order_relaxed);
    atomic_store(&pool->state, VRPI_OPEN);
    *out_pool = pool;
    return VRP_OK;
}

/* All is quiet: nobody is in a slow path, and no hit is under way. */
static void quiesce(vrp_pool *pool) {
    while (atomic_load(&pool->users) != 0)
        vrpi_pause();
    vrpi_mutex_lock(&pool->core->lock);
    vrpi_close_all(pool->core); /* to the end, or until it is clear that the pool goes on */
    for (vrpi_thread *t = pool->core->threads; t != NULL; t = t->next)
        vrpi_shards_flush(t);
    vrpi_mutex_unlock(&pool->core->lock);
}

static vrp_status end_core(vrp_pool *pool, uint32_t flags) {
    vrpi_pool *core = pool->core;
    vrp_status status = VRP_OK;
    int64_t live;
    quiesce(pool);
    live = atomic_load_explicit(&core->all.blocks.current, memory_order_relaxed) +
           (int64_t)vrpi_growables_empty(core) + (int64_t)vrpi_graphs_count(core) +
           (int64_t)vrpi_exports_end(core, 0);
    if (live > 0 && (flags & VRP_DESTROY_FORCE) == 0) {
        status = vrpi_fail(VRP_BUSY, "%lld blocks are live", (long long)live);
        vrpi_fail_live((uint64_t)live);
        return status;
    }
    vrpi_reclaimer_stop(core);
    vrpi_mutex_lock(&core->lock);
    if (live > 0)
        (void)vrpi_free_where(core, NULL, 0);
    (void)vrpi_fronts_flush_all(core);
    (void)vrpi_exports_end(core, 1);
    vrpi_graphs_drop(core);
    vrpi_growables_drop(core);
    status = device_end(core);
    vrpi_mutex_unlock(&core->lock);
    if (status != VRP_OK)
        return status;
    vrpi_threads_end(core);
    host_end(core);
    core_free(core);
    return VRP_OK;
}

vrp_status vrp_pool_destroy(vrp_pool *pool, uint32_t flags) {
    int open = VRPI_OPEN;
    vrp_status status;
    if (pool == NULL)
        return VRP_OK;
    if ((flags & ~VRP_DESTROY_FORCE) != 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_pool_destroy: unknown flags 0x%x", flags);
    VRPI_TRY(vrpi_pool_usable(pool));
    if (!atomic_compare_exchange_strong(&pool->state, &open, VRPI_CLOSING))
        return vrpi_fail(VRP_SHUT_DOWN, "the pool is gone or going");
    status = end_core(pool, flags);
    if (status != VRP_OK) { /* it goes on as before */
        vrpi_mutex_lock(&pool->core->lock);
        vrpi_open_all(pool->core);
        vrpi_mutex_unlock(&pool->core->lock);
        atomic_store(&pool->state, VRPI_OPEN);
        return status;
    }
    atomic_store(&pool->state, VRPI_CLOSED);
    handle_bury(pool);
    return VRP_OK;
}
