/* SPDX-License-Identifier: MIT */
/* Giving idle extents back: on request, and later what was still in use by the
 * device when it was asked for, or beyond what one call may spend. */

#include "core/core.h"

#include <string.h>

enum { WAITS_MOST = 1024 };

/* The idle extent whose work is done and that has been idle for longest; of
 * those the largest, which is cheapest by the byte. */
static vrpi_extent *oldest_done(const vrpi_pool *core) {
    vrpi_extent *best = NULL;
    for (vrpi_node *n = vrpi_treap_last(&core->idle); n != NULL;
         n = vrpi_treap_prev(&core->idle, n)) {
        vrpi_extent *e = (vrpi_extent *)(void *)n;
        if (vrpi_may_release(e) &&
            (best == NULL || vrpi_idle_for(core, e) > vrpi_idle_for(core, best)))
            best = e;
    }
    return best;
}

/* The largest of those: most bytes for the price. */
static vrpi_extent *largest_done(const vrpi_pool *core, int marked_only) {
    for (vrpi_node *n = vrpi_treap_last(&core->idle); n != NULL;
         n = vrpi_treap_prev(&core->idle, n)) {
        vrpi_extent *e = (vrpi_extent *)(void *)n;
        if ((e->marked || !marked_only) && vrpi_may_release(e))
            return e;
    }
    return NULL;
}

/* What the calling thread may spend on a trim. Without a reclaimer, and with
 * the malloc backing, where what it costs depends on the device: everything. */
static uint64_t budget_of(const vrpi_pool *core) {
    return vrpi_reclaimer_wanted(core) && core->backing == VRP_BACKING_VMM
               ? vrpi_knob(core, VRP_KNOB_TRIM_BUDGET_NS)
               : UINT64_MAX;
}

/* Takes the extent and its neighbours, or it alone, into the run for what is
 * left of the budget. Where no thread could be had one extent is always paid for. */
static int collect(const vrpi_pool *core, vrpi_extent *e, int alone, int marked_only, int first,
                   uint64_t left, vrpi_run *run) {
    uint64_t price = vrpi_release_price(VRPI_BYTES(e));
    if (vrpi_run_collect(core, e, marked_only, alone && price < left ? price : left, run))
        return 1;
    return first && core->reclaimer.failed && vrpi_run_collect(core, e, marked_only, price, run);
}

static void spend(uint64_t *left, uint64_t price) {
    if (*left != UINT64_MAX)
        *left -= price < *left ? price : *left;
}

/* Releases until at most `target` bytes are reserved or the budget is used up.
 * To 0, order is no matter. */
static vrp_status release_to(vrpi_pool *core, uint64_t target, uint64_t budget) {
    uint64_t left = budget;
    for (int first = 1; vrpi_reserved(core) > target; first = 0) {
        vrpi_extent *e = target == 0 ? largest_done(core, 0) : oldest_done(core);
        vrpi_run run;
        if (e == NULL || vrpi_lost(core) != VRP_OK ||
            !collect(core, e, target != 0, 0, first, left, &run))
            return VRP_OK;
        VRPI_TRY(vrpi_run_release(core, &run));
        spend(&left, run.price_ns);
    }
    return VRP_OK;
}

uint64_t vrpi_marked_release(vrpi_pool *core, uint64_t budget_ns) {
    uint64_t left = budget_ns, bytes = 0;
    int first = 1;
    while (core->marked_count > 0 && vrpi_lost(core) == VRP_OK && !core->reclaimer.stop) {
        vrpi_extent *e = largest_done(core, 1);
        vrpi_run run;
        if (e == NULL || !collect(core, e, 0, 1, first, left, &run) ||
            vrpi_run_release(core, &run) != VRP_OK)
            break;
        spend(&left, run.price_ns);
        bytes += run.bytes;
        first = 0;
    }
    return bytes;
}

/* While a reclaimer runs this is its business, and no call waits for it. */
void vrpi_trim_marked(vrpi_pool *core) {
    if (core->marked_count > 0 && !vrpi_reclaimer_runs(core))
        (void)vrpi_marked_release(core, budget_of(core));
}

/* What is idle and was not released goes when it is done, by whoever is first. */
static uint64_t mark_pending(vrpi_pool *core, uint64_t target) {
    uint64_t pending = core->releasing_bytes, left = vrpi_reserved(core) - pending;
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
        if (u->exports > 0)
            continue; /* not before the others have closed it */
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

/* Waits for releases of other threads that are under way. 1: there were some. */
static int others_released(vrpi_pool *core) {
    int any = core->releasing_bytes > 0;
    while (core->releasing_bytes > 0) {
        vrpi_mutex_unlock(&core->lock);
        vrpi_pause();
        vrpi_mutex_lock(&core->lock);
    }
    return any;
}

static vrp_status trim_to(vrpi_pool *core, vrpi_thread *t, uint64_t target, uint32_t flags,
                          int want_gap, vrp_trim_result *result) {
    uint64_t before = core->trimmed_bytes, stalled = core->stalled_ns;
    uint64_t extents = core->extent_count;
    uint64_t budget = (flags & VRP_TRIM_WAIT) != 0 ? UINT64_MAX : budget_of(core);
    vrp_gap gap;
    vrp_status status, waited = VRP_OK;
    core->trims++;
    if ((flags & VRP_TRIM_KEEP_CACHES) == 0)
        (void)vrpi_fronts_flush_all(core);
    vrpi_settle_all(core, t);
    vrpi_orphans_retry(core);
    status = release_to(core, target, budget);
    /* Bounded: other threads may keep the device busy for ever. */
    for (int round = 0; status == VRP_OK && (flags & VRP_TRIM_WAIT) != 0 && round < WAITS_MOST;
         round++) {
        int others = others_released(core);
        if (vrpi_reserved(core) <= target || (!vrpi_wait_oldest(core, t, &waited) && !others))
            break;
        status = release_to(core, target, budget);
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
    if (want_gap) { /* a walk over all blocks, for who looks at the result */
        vrpi_gap_walk(core, &gap, NULL);
        result->pinned_bytes = gap.pinned_bytes;
    }
    result->reserved_bytes = vrpi_reserved(core);
    vrpi_reclaimer_wake(core); /* with what is left */
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
        status = trim_to(core, t, target_bytes, flags, out_result != NULL, &result);
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
    if (vrpi_reclaimer_runs(pool->core)) /* else the settling did it */
        (void)vrpi_marked_release(pool->core, budget_of(pool->core));
    vrpi_mutex_unlock(&pool->core->lock);
    vrpi_exit(pool);
    return VRP_OK;
}
