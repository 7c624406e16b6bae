/* SPDX-License-Identifier: MIT */
/* Giving idle extents back: on request, and later what was still in use by the
 * device when it was asked for. */

#include "core/core.h"

#include <string.h>

enum { WAITS_MOST = 1024 };

static int may_release(const vrpi_extent *e) {
    return vrpi_done(e->stream, e->stamp) && e->ghosts == 0;
}

/* The idle extent whose work is done and that has been idle for longest; of
 * those the largest, which is cheapest by the byte. */
static vrpi_extent *oldest_done(const vrpi_pool *core) {
    vrpi_extent *best = NULL;
    for (vrpi_node *n = vrpi_treap_last(&core->idle); n != NULL;
         n = vrpi_treap_prev(&core->idle, n)) {
        vrpi_extent *e = (vrpi_extent *)(void *)n;
        if (may_release(e) && (best == NULL || vrpi_idle_for(core, e) > vrpi_idle_for(core, best)))
            best = e;
    }
    return best;
}

/* Releases until at most `target` bytes are reserved. To 0, order is no matter. */
static vrp_status release_to(vrpi_pool *core, uint64_t target) {
    while (vrpi_reserved(core) > target) {
        vrpi_extent *e = NULL;
        if (target == 0) {
            vrpi_node *n = vrpi_treap_last(&core->idle);
            while (n != NULL && !may_release((vrpi_extent *)(void *)n))
                n = vrpi_treap_prev(&core->idle, n);
            e = (vrpi_extent *)(void *)n;
        } else {
            e = oldest_done(core);
        }
        if (e == NULL || vrpi_lost(core) != VRP_OK)
            return VRP_OK;
        VRPI_TRY(vrpi_extent_release(core, e));
    }
    return VRP_OK;
}

void vrpi_trim_marked(vrpi_pool *core) {
    vrpi_node *n;
    if (core->marked_count == 0 || vrpi_lost(core) != VRP_OK)
        return;
    n = vrpi_treap_last(&core->idle);
    while (n != NULL) {
        vrpi_extent *e = (vrpi_extent *)(void *)n;
        if (e->marked && may_release(e)) {
            if (vrpi_extent_release(core, e) != VRP_OK)
                return;
            n = vrpi_treap_last(&core->idle); /* the lock was dropped */
        } else {
            n = vrpi_treap_prev(&core->idle, n);
        }
    }
}

/* What is idle and not done yet goes when it is. */
static uint64_t mark_pending(vrpi_pool *core, uint64_t target) {
    uint64_t pending = 0, left = vrpi_reserved(core);
    for (vrpi_node *n = vrpi_treap_last(&core->idle); n != NULL && left > target;
         n = vrpi_treap_prev(&core->idle, n)) {
        vrpi_extent *e = (vrpi_extent *)(void *)n;
        if (!e->marked) {
            e->marked = 1;
            core->marked_count++;
        }
        pending += VRPI_BYTES(e);
        left -= VRPI_BYTES(e);
    }
    for (vrpi_uses *u = core->deferred; u != NULL && left > target; u = u->next) {
        const vrpi_block *b = vrpi_map_get(core, u->ptr);
        uint64_t bytes = b->state == VRPI_SLAB ? b->slab->slot_bytes : VRPI_BYTES(b);
        u->marked = 1;
        pending += bytes;
        left -= bytes < left ? bytes : left;
    }
    return pending;
}

/* A deferred block that a trim met has become free: what it leaves idle goes. */
void vrpi_mark_range(vrpi_pool *core, uint64_t addr, uint64_t bytes) {
    const vrpi_arena *arena = vrpi_arena_at(core, addr);
    for (uint64_t at = addr; arena != NULL && at < addr + bytes;) {
        uint64_t i = vrpi_granule_of(core, arena, at);
        vrpi_extent *e = i < arena->granule_count ? arena->granules[i] : NULL;
        if (e != NULL && e != &core->claimed && vrpi_is_idle(e) && !e->marked) {
            e->marked = 1;
            core->marked_count++;
        }
        at = arena->base + (i + 1) * core->granularity;
    }
}

static vrp_status trim_to(vrpi_pool *core, vrpi_thread *t, uint64_t target, uint32_t flags,
                          vrp_trim_result *result) {
    uint64_t before = core->trimmed_bytes, stalled = core->stalled_ns;
    uint64_t extents = core->extent_count;
    vrp_gap gap;
    vrp_status status, waited = VRP_OK;
    core->trims++;
    if ((flags & VRP_TRIM_KEEP_CACHES) == 0)
        (void)vrpi_fronts_flush_all(core);
    vrpi_settle_all(core, t);
    vrpi_orphans_retry(core);
    status = release_to(core, target);
    /* Bounded: other threads may keep the device busy for ever. */
    for (int round = 0; status == VRP_OK && (flags & VRP_TRIM_WAIT) != 0 && round < WAITS_MOST;
         round++) {
        if (vrpi_reserved(core) <= target || !vrpi_wait_oldest(core, t, &waited))
            break;
        status = release_to(core, target);
    }
    if (status == VRP_OK)
        status = waited;
    memset(result, 0, sizeof *result);
    result->struct_size = sizeof *result;
    result->released_bytes = core->trimmed_bytes - before;
    result->stalled_ns = core->stalled_ns - stalled;
    result->extents_released =
        extents > core->extent_count ? (uint32_t)(extents - core->extent_count) : 0;
    result->pending_bytes = mark_pending(core, target);
    vrpi_gap_walk(core, &gap, NULL);
    result->pinned_bytes = gap.pinned_bytes;
    result->reserved_bytes = vrpi_reserved(core);
    return status;
}

vrp_status vrp_trim(vrp_pool *pool, uint64_t target_bytes, uint32_t flags,
                    vrp_trim_result *out_result) {
    vrp_trim_result result;
    vrpi_pool *core;
    vrpi_thread *t;
    vrp_status status;
    if ((flags & ~(VRP_TRIM_WAIT | VRP_TRIM_KEEP_CACHES)) != 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_trim: unknown flags 0x%x", flags);
    if (out_result != NULL && out_result->struct_size == 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_trim_result.struct_size is 0");
    VRPI_TRY(vrpi_enter(pool));
    core = pool->core;
    t = vrpi_thread_get(pool);
    if (t == NULL) {
        status = vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for a thread");
    } else {
        vrpi_mutex_lock(&core->lock);
        status = trim_to(core, t, target_bytes, flags, &result);
        vrpi_mutex_unlock(&core->lock);
    }
    vrpi_exit(pool);
    if (status == VRP_OK && out_result != NULL)
        status = vrpi_struct_out(out_result, &result, sizeof result, "vrp_trim_result");
    return status;
}

vrp_status vrp_empty_cache(vrp_pool *pool, vrp_trim_result *out_result) {
    return vrp_trim(pool, 0, 0, out_result);
}

vrp_status vrp_pool_poll(vrp_pool *pool) {
    vrpi_thread *t;
    VRPI_TRY(vrpi_enter(pool));
    t = vrpi_thread_get(pool);
    vrpi_mutex_lock(&pool->core->lock);
    vrpi_held_flush_all(pool->core);
    vrpi_settle_all(pool->core, t);
    vrpi_mutex_unlock(&pool->core->lock);
    vrpi_exit(pool);
    return VRP_OK;
}
