/* SPDX-License-Identifier: MIT */
/* Running out, in order and only as far as needed: what has completed, idle
 * extents, memory in flight elsewhere (backing.c has tried that), a hole of
 * another class (place.c takes it), the user's callback, waiting for pending
 * work, and at last a failure with a report.
 * A request that cannot succeed costs nobody his cache. */

#include "core/core.h"

#include <string.h>

enum { ROUNDS_MAX = 4096 };

static _Thread_local vrp_oom_report last_report;
static _Thread_local const vrp_pool *last_pool;

/* Whose free bytes these are: the causes in their order. */
static void attribute(const vrpi_extent *e, uint64_t bytes, vrp_gap *out) {
    if (!vrpi_is_shared(e->arena))
        out->pinned_bytes += bytes; /* by a graph */
    else if (!vrpi_done(e->stream, e->stamp) || e->ghosts > 0)
        out->pending_bytes += bytes;
    else if (e->live == 0)
        out->idle_bytes += bytes;
    else
        out->pinned_bytes += bytes;
}

static void gap_of_free(const vrpi_pool *core, const vrpi_block *b, vrp_gap *out) {
    const vrpi_arena *a = vrpi_arena_of(core, b);
    uint64_t at = b->addr, end = b->addr + VRPI_BYTES(b);
    while (at < end) {
        const vrpi_extent *e = a->granules[vrpi_granule_of(core, a, at)];
        int backed = e != NULL && e != &core->claimed;
        uint64_t next = backed ? e->addr + VRPI_BYTES(e)
                               : a->base + (vrpi_granule_of(core, a, at) + 1) * core->granularity;
        if (next > end)
            next = end;
        if (backed)
            attribute(e, next - at, out);
        at = next;
    }
}

/* Growable buffers: what lies behind the end of the block is no block. */
static void gap_of_growable(const vrpi_pool *core, const vrpi_arena *a, vrp_gap *out) {
    for (uint64_t i = 0; i < a->granule_count;) {
        const vrpi_extent *e = a->granules[i];
        uint64_t covered;
        if (e == NULL || e == &core->claimed) {
            i++;
            continue;
        }
        i = vrpi_granule_of(core, a, e->addr + VRPI_BYTES(e) - 1) + 1;
        covered = a->end <= e->addr ? 0 : a->end - e->addr;
        if (covered >= VRPI_BYTES(e))
            continue;
        if (e->live > 0)
            out->slack_bytes += VRPI_BYTES(e) - covered;
        else
            attribute(e, VRPI_BYTES(e), out);
    }
}

/* Returns the bytes of live slots. */
static uint64_t gap_of_slab(const vrpi_slab *s, vrp_gap *out) {
    uint64_t live = 0, cached = 0, deferred = 0;
    for (uint32_t i = 0; i < s->slot_count; i++) {
        switch (atomic_load_explicit(&s->slot[i].state, memory_order_relaxed)) {
        case VRPI_CACHED:
            cached += s->slot_bytes;
            break;
        case VRPI_DEFERRED:
            deferred += s->slot_bytes;
            break;
        case VRPI_LIVE:
        case VRPI_SHARED:
            live += s->slot_bytes;
            break;
        default:
            break;
        }
    }
    out->cached_bytes += cached;
    out->pending_bytes += deferred;
    /* free slots and the slab's uneven end: like any free bytes beside live ones */
    out->pinned_bytes += VRPI_BYTES(s->block) - live - cached - deferred;
    return live;
}

static int is_free(const vrpi_block *b) { return b != NULL && b->state == VRPI_FREE; }

static int pins(const vrpi_pool *core, const vrpi_block *b) {
    return (vrpi_is_live(b) || b->state == VRPI_SLAB) &&
           (is_free(vrpi_prev(core, b)) || is_free(vrpi_next(core, b)));
}

/* Free bytes by cause, and how many blocks pin some. Lock held. */
void vrpi_gap_walk(vrpi_pool *core, vrp_gap *out, uint64_t *out_pinning_blocks) {
    uint64_t live = 0, pinning = 0, accounted;
    uint64_t reserved = vrpi_reserved(core);
    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    for (const vrpi_arena *a = core->arenas; a != NULL; a = a->next) {
        if (a->klass == VRPI_CLASS_GROWABLE)
            gap_of_growable(core, a, out);
        for (const vrpi_block *b = vrpi_first(core, a); b != NULL; b = vrpi_next(core, b)) {
            uint8_t state = b->state;
            pinning += (uint64_t)pins(core, b);
            if (vrpi_is_live(b) || state == VRPI_GROWABLE)
                live += VRPI_BYTES(b);
            else if (state == VRPI_CACHED)
                out->cached_bytes += VRPI_BYTES(b);
            else if (state == VRPI_DEFERRED)
                out->pending_bytes += VRPI_BYTES(b);
            else if (state == VRPI_FREE)
                gap_of_free(core, b, out);
            /* ghosts hold no memory; slabs come below */
        }
    }
    for (const vrpi_slab *s = core->slabs; s != NULL; s = s->all_next)
        live += gap_of_slab(s, out);
    out->pending_bytes += vrpi_orphan_bytes(core);
    accounted = live + out->cached_bytes + out->pending_bytes + out->idle_bytes +
                out->pinned_bytes + out->slack_bytes;
    /* Extents whose driver calls other threads are making just now. */
    if (reserved > accounted)
        out->pending_bytes += reserved - accounted;
    if (out_pinning_blocks != NULL)
        *out_pinning_blocks = pinning;
}

static void report_fill(vrpi_pool *core, const vrpi_request *request, uint64_t device_free,
                        vrp_oom_report *out) {
    vrp_gap gap;
    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    out->attempts = request->attempts;
    out->requested_bytes = request->size;
    out->device_free_bytes = device_free;
    out->device_total_bytes = core->device.total_bytes;
    out->reserved_bytes = vrpi_reserved(core);
    out->limit_bytes = vrpi_knob(core, VRP_KNOB_LIMIT_BYTES);
    vrpi_gap_walk(core, &gap, &out->pinning_blocks);
    out->largest_free_bytes = vrpi_largest_free(core);
    out->idle_bytes = gap.idle_bytes;
    out->cached_bytes = gap.cached_bytes;
    out->pinned_bytes = gap.pinned_bytes;
    out->pending_bytes = gap.pending_bytes;
    out->slack_bytes = gap.slack_bytes;
    out->allocated_bytes = out->reserved_bytes - gap.idle_bytes - gap.cached_bytes -
                           gap.pinned_bytes - gap.pending_bytes - gap.slack_bytes;
}

static uint64_t device_free(vrpi_pool *core) {
    uint64_t free_bytes = 0, total = 0;
    vrp_status status;
    vrpi_mutex_unlock(&core->lock);
    status = core->ops->mem_info(core->ctx, &free_bytes, &total);
    vrpi_mutex_lock(&core->lock);
    if (status != VRP_OK) {
        vrpi_driver_failed(core, status);
        return UINT64_MAX; /* not known: nothing is ruled out */
    }
    return free_bytes;
}

/* Whether the rest of the request could be met if all that is idle, cached or
 * pending were given up. */
static int feasible(vrpi_pool *core, uint64_t bytes, uint64_t free_bytes) {
    uint64_t reserved = vrpi_reserved(core);
    uint64_t limit = vrpi_knob(core, VRP_KNOB_LIMIT_BYTES);
    uint64_t reclaimable = core->idle_bytes + vrpi_cached_bytes(core);
    for (const vrpi_uses *u = core->deferred; u != NULL; u = u->next) {
        const vrpi_block *b = vrpi_map_get(core, u->ptr);
        if (b != NULL)
            reclaimable += VRPI_BYTES(b);
    }
    reclaimable += vrpi_orphan_bytes(core);
    if (limit != 0 &&
        (bytes > limit ||
         reserved - (reclaimable < reserved ? reclaimable : reserved) > limit - bytes))
        return 0;
    return free_bytes > UINT64_MAX - reclaimable || bytes <= free_bytes + reclaimable;
}

static int ask_user(vrpi_pool *core, vrpi_request *request, uint64_t free_bytes) {
    vrp_oom_report report;
    int again;
    if (core->config.oom_fn == NULL || request->attempts >= VRP_OOM_ATTEMPTS ||
        request->thread->in_oom_call || (request->flags & VRP_ALLOC_NO_OOM_CALL) != 0)
        return 0;
    request->attempts++;
    report_fill(core, request, free_bytes, &report);
    request->thread->in_oom_call = 1;
    vrpi_mutex_unlock(&core->lock);
    again = core->config.oom_fn(core->config.oom_user, &report);
    vrpi_mutex_lock(&core->lock);
    request->thread->in_oom_call = 0;
    if (again)
        vrpi_settle_all(core, request->thread);
    return again;
}

void vrpi_oom_explain(vrpi_pool *core, const vrpi_request *request, vrp_status status) {
    if ((status != VRP_OUT_OF_DEVICE_MEMORY && status != VRP_LIMIT_REACHED) || request->rounds == 0)
        return;
    report_fill(core, request, device_free(core), &last_report);
    last_pool = core->handle;
    (void)vrpi_fail(status,
                    "%llu bytes asked; device free %llu of %llu, reserved %llu, allocated %llu, "
                    "largest free run %llu, pinned %llu",
                    (unsigned long long)request->bytes,
                    (unsigned long long)last_report.device_free_bytes,
                    (unsigned long long)last_report.device_total_bytes,
                    (unsigned long long)last_report.reserved_bytes,
                    (unsigned long long)last_report.allocated_bytes,
                    (unsigned long long)last_report.largest_free_bytes,
                    (unsigned long long)last_report.pinned_bytes);
    vrpi_fail_request(request->bytes);
}

/* What is pending goes to the device for a while, if anything is. */
static int anything_pending(const vrpi_pool *core) {
    if (core->deferred != NULL || core->ghosts != NULL)
        return 1;
    for (const vrpi_node *n = vrpi_treap_last(&core->idle); n != NULL;
         n = vrpi_treap_prev(&core->idle, n)) {
        const vrpi_extent *e = (const vrpi_extent *)(const void *)n;
        if (!vrpi_done(e->stream, e->stamp))
            return 1;
    }
    return 0;
}

vrp_status vrpi_oom(vrpi_pool *core, vrpi_request *request, uint64_t bytes) {
    uint64_t free_bytes;
    vrp_status waited;
    vrp_status lost = vrpi_lost(core);
    if (lost != VRP_OK)
        return vrpi_fail(lost, "the device is gone");
    vrpi_settle_all(core, request->thread); /* what is complete counts as such */
    vrpi_orphans_retry(core);
    free_bytes = device_free(core);
    if (request->rounds++ < ROUNDS_MAX && feasible(core, bytes, free_bytes)) {
        uint64_t limit = vrpi_knob(core, VRP_KNOB_LIMIT_BYTES);
        if (bytes <= free_bytes && !vrpi_limit_exceeded(core, bytes) && limit == 0 &&
            request->rounds < 3)
            return VRP_OK; /* polling was enough, or another thread gave memory back */
        if (vrpi_release_one(core, bytes))
            return VRP_OK;
        if (vrpi_fronts_flush_all(core) > 0)
            return VRP_OK;
        if (vrpi_has_spare(core, request))
            return VRP_OUT_OF_DEVICE_MEMORY; /* the caller takes it */
        if (ask_user(core, request, free_bytes))
            return VRP_OK;
        if ((request->flags & VRP_ALLOC_NO_WAIT) == 0 && anything_pending(core) &&
            vrpi_wait_oldest(core, request->thread, &waited))
            return VRP_OK;
    } else if (!vrpi_has_spare(core, request) && ask_user(core, request, free_bytes)) {
        return VRP_OK;
    }
    return vrpi_limit_exceeded(core, bytes) ? VRP_LIMIT_REACHED : VRP_OUT_OF_DEVICE_MEMORY;
}

vrp_status vrp_oom_report_get(vrp_pool *pool, vrp_oom_report *out_report) {
    VRPI_TRY(vrpi_pool_usable(pool));
    if (last_pool != pool || last_report.struct_size == 0)
        return vrpi_fail(VRP_NOT_SUPPORTED, "no request of this thread was refused for memory");
    return vrpi_struct_out(out_report, &last_report, sizeof last_report, "vrp_oom_report");
}
