/* SPDX-License-Identifier: MIT */
/* An independent recount of a pool: what vrp_pool_walk shows is added up here
 * without the pool's own sums, and then compared with them. */

#include "vrp_test.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int grow(void **items, size_t *room, size_t count, size_t item_bytes) {
    if (count < *room)
        return 1;
    size_t more = *room == 0 ? 64 : *room * 2;
    void *bigger = realloc(*items, more * item_bytes);
    if (bigger == NULL)
        return 0;
    *items = bigger;
    *room = more;
    return 1;
}

static int on_extent(void *user, const vrp_extent_info *info) {
    vrpt_view *view = user;
    void *items = view->extents;
    if (!grow(&items, &view->extent_room, view->extent_count, sizeof *view->extents)) {
        view->out_of_memory = 1;
        return 1;
    }
    view->extents = items;
    vrpt_extent *extent = &view->extents[view->extent_count++];
    memset(extent, 0, sizeof *extent);
    extent->base = info->base;
    extent->bytes = info->bytes;
    extent->live_bytes = info->live_bytes;
    extent->arena = info->arena;
    extent->pending = info->pending;
    extent->in_transit = info->in_transit;
    return 0;
}

static int on_block(void *user, const vrp_block_info *info) {
    vrpt_view *view = user;
    void *items = view->blocks;
    if (!grow(&items, &view->block_room, view->block_count, sizeof *view->blocks)) {
        view->out_of_memory = 1;
        return 1;
    }
    view->blocks = items;
    vrpt_block *block = &view->blocks[view->block_count++];
    block->base = info->base;
    block->bytes = info->bytes;
    block->requested = info->requested_bytes;
    block->stream = info->stream;
    block->scope = info->scope;
    block->tag = info->tag;
    block->state = info->state;
    block->is_slot = info->is_slot;
    return 0;
}

static int by_extent_base(const void *a, const void *b) {
    const vrpt_extent *x = a, *y = b;
    return x->base < y->base ? -1 : x->base > y->base;
}

/* Blocks by address, a slab before its slots. */
static int by_block_base(const void *a, const void *b) {
    const vrpt_block *x = a, *y = b;
    if (x->base != y->base)
        return x->base < y->base ? -1 : 1;
    return (int)x->is_slot - (int)y->is_slot;
}

/* The first extent that ends above `ptr`, extent_count if there is none. */
static size_t extent_at(const vrpt_view *view, vrp_devptr ptr) {
    size_t low = 0, high = view->extent_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (view->extents[middle].base + view->extents[middle].bytes <= ptr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

enum { BACKED_ONLY = 0, ADD_USED = 1, ADD_COVERED = 2 };

/* Bytes of [base, base + bytes) that extents back; adds them to the extents. */
static uint64_t backed(vrpt_view *view, vrp_devptr base, uint64_t bytes, int add) {
    uint64_t sum = 0;
    for (size_t i = extent_at(view, base); i < view->extent_count; i++) {
        vrpt_extent *extent = &view->extents[i];
        if (extent->base >= base + bytes)
            break;
        uint64_t from = extent->base > base ? extent->base : base;
        uint64_t to = extent->base + extent->bytes;
        if (to > base + bytes)
            to = base + bytes;
        sum += to - from;
        if (add & ADD_USED)
            extent->used += to - from;
        if (add & ADD_COVERED)
            extent->covered += to - from;
    }
    return sum;
}

/* Whether its extent cannot go: everything but free blocks. */
static int in_use(const vrpt_block *block) {
    return block->state != VRP_BLOCK_FREE && block->state != VRP_BLOCK_STREAM;
}

static int is_free(const vrpt_block *block) { return !in_use(block); }

static int one_block_holds(vrpt *t, const vrpt_view *view, size_t i) {
    const vrpt_block *block = &view->blocks[i];
    if (block->bytes == 0)
        return vrpt_fail(t, "walk: block %" PRIx64 " has no bytes", block->base);
    if (block->state == VRP_BLOCK_LIVE && block->bytes < block->requested)
        return vrpt_fail(t, "I1: block %" PRIx64 " has %" PRIu64 " bytes for a request of %" PRIu64,
                         block->base, block->bytes, block->requested);
    if (block->state == VRP_BLOCK_LIVE && block->base % VRP_ALIGNMENT_MIN != 0)
        return vrpt_fail(t, "I1: block %" PRIx64 " is not aligned", block->base);
    return 1;
}

/* Order and overlap of neighbours; slots lie inside their slab. */
static int tiles(vrpt *t, const vrpt_view *view) {
    const vrpt_block *slab = NULL, *last = NULL, *slot = NULL;
    for (size_t i = 0; i < view->block_count; i++) {
        const vrpt_block *block = &view->blocks[i];
        if (!one_block_holds(t, view, i))
            return 0;
        if (block->is_slot) {
            if (slab == NULL || block->base < slab->base ||
                block->base + block->bytes > slab->base + slab->bytes)
                return vrpt_fail(t, "walk: slot %" PRIx64 " lies in no slab", block->base);
            if (slot != NULL && slot->base + slot->bytes > block->base)
                return vrpt_fail(t, "I1: slots overlap at %" PRIx64, block->base);
            slot = block;
            continue;
        }
        if (last != NULL && last->base + last->bytes > block->base)
            return vrpt_fail(t, "I1: blocks overlap at %" PRIx64, block->base);
        if (last != NULL && last->base + last->bytes == block->base && is_free(last) &&
            is_free(block)) {
            size_t a = extent_at(view, last->base + last->bytes - 1);
            size_t b = extent_at(view, block->base);
            if (a < view->extent_count && b < view->extent_count &&
                view->extents[a].arena == view->extents[b].arena)
                return vrpt_fail(t, "I4: free neighbours at %" PRIx64 " are not merged",
                                 block->base);
        }
        last = block;
        slot = NULL;
        slab = block->state == VRP_BLOCK_SLAB ? block : NULL;
    }
    return 1;
}

static int extents_hold(vrpt *t, vrpt_view *view) {
    for (size_t i = 0; i < view->extent_count; i++) {
        const vrpt_extent *extent = &view->extents[i];
        if (i > 0 && extent[-1].base + extent[-1].bytes > extent->base)
            return vrpt_fail(t, "walk: extents overlap at %" PRIx64, extent->base);
        view->reserved += extent->bytes;
    }
    return 1;
}

/* Free bytes of one free piece, by the state of the extents it lies in. */
static void split_free(vrpt_view *view, const vrpt_block *block) {
    for (size_t i = extent_at(view, block->base); i < view->extent_count; i++) {
        const vrpt_extent *extent = &view->extents[i];
        if (extent->base >= block->base + block->bytes)
            break;
        uint64_t from = extent->base > block->base ? extent->base : block->base;
        uint64_t to = extent->base + extent->bytes;
        if (to > block->base + block->bytes)
            to = block->base + block->bytes;
        if (extent->pending)
            view->gap.pending_bytes += to - from;
        else if (extent->used == 0)
            view->gap.idle_bytes += to - from;
        else
            view->gap.pinned_bytes += to - from;
    }
}

/* Bytes that no block covers: the end of a growable buffer, or an extent that
 * it has given up. */
static void split_uncovered(vrpt_view *view, const vrpt_extent *extent) {
    uint64_t bytes = extent->bytes - extent->covered;
    if (extent->used != 0)
        view->gap.slack_bytes += bytes;
    else if (extent->pending)
        view->gap.pending_bytes += bytes;
    else
        view->gap.idle_bytes += bytes;
}

static int add_up(vrpt *t, vrpt_view *view) {
    uint64_t slab_bytes = 0, slot_bytes = 0;
    for (size_t i = 0; i < view->block_count; i++) {
        const vrpt_block *block = &view->blocks[i];
        int add = block->is_slot ? BACKED_ONLY : ADD_COVERED | (in_use(block) ? ADD_USED : 0);
        uint64_t with_memory = backed(view, block->base, block->bytes, add);
        if (with_memory != block->bytes)
            return vrpt_fail(t,
                             "walk: %" PRIu64 " of the %" PRIu64 " bytes at %" PRIx64
                             " (state %d) have no memory",
                             block->bytes - with_memory, block->bytes, block->base, block->state);
        slab_bytes += block->state == VRP_BLOCK_SLAB ? block->bytes : 0;
        slot_bytes += block->is_slot ? block->bytes : 0;
        if (block->state == VRP_BLOCK_LIVE) {
            view->live_blocks++;
            view->allocated += block->bytes;
            view->requested += block->requested;
        }
    }
    view->gap.pinned_bytes = slab_bytes - slot_bytes; /* what no slot covers */
    for (size_t i = 0; i < view->block_count; i++) {
        const vrpt_block *block = &view->blocks[i];
        if (block->state == VRP_BLOCK_CACHED)
            view->gap.cached_bytes += block->bytes;
        else if (block->state == VRP_BLOCK_PENDING)
            view->gap.pending_bytes += block->bytes;
        else if (is_free(block) && block->is_slot)
            view->gap.pinned_bytes += block->bytes; /* by the slab */
        else if (is_free(block))
            split_free(view, block);
    }
    for (size_t i = 0; i < view->extent_count; i++)
        split_uncovered(view, &view->extents[i]);
    return 1;
}

int vrpt_view_take(vrpt *t, vrpt_view *view) {
    memset(view, 0, sizeof *view);
    vrp_walk_fns fns = {.struct_size = sizeof fns, .extent = on_extent, .block = on_block};
    vrp_status status = vrp_pool_walk(t->pool, &fns, view);
    if (status != VRP_OK || view->out_of_memory)
        return vrpt_fail(t, "walk: %s (%s)", vrp_status_name(status), vrpt_detail());
    if (view->extent_count > 0)
        qsort(view->extents, view->extent_count, sizeof *view->extents, by_extent_base);
    if (view->block_count > 0)
        qsort(view->blocks, view->block_count, sizeof *view->blocks, by_block_base);
    return extents_hold(t, view) && tiles(t, view) && add_up(t, view);
}

void vrpt_view_release(vrpt_view *view) {
    free(view->blocks);
    free(view->extents);
    memset(view, 0, sizeof *view);
}

static int same(vrpt *t, const char *what, uint64_t pool, uint64_t recount) {
    if (pool == recount)
        return 1;
    return vrpt_fail(t, "I2: %s: the pool says %" PRIu64 ", the walk adds up to %" PRIu64, what,
                     pool, recount);
}

/* Memory that the driver would not release has no address any more: it counts
 * as pending until another try succeeds. */
static void add_unreleased(const vrpt *t, vrpt_view *view, uint64_t reserved) {
    if (!t->faulted || reserved <= view->reserved)
        return;
    view->gap.pending_bytes += reserved - view->reserved;
    view->reserved = reserved;
}

static int compare(vrpt *t, vrpt_view *view) {
    vrp_stats stats = vrpt_stats(t);
    vrp_gap gap = {.struct_size = sizeof gap};
    vrp_status status = vrp_pool_gap_compute(t->pool, &gap);
    if (status != VRP_OK)
        return vrpt_fail(t, "gap: %s", vrp_status_name(status));
    add_unreleased(t, view, stats.reserved_bytes.current);
    if (!same(t, "requested", stats.requested_bytes.current, view->requested) ||
        !same(t, "allocated", stats.allocated_bytes.current, view->allocated) ||
        !same(t, "reserved", stats.reserved_bytes.current, view->reserved) ||
        !same(t, "blocks", stats.blocks.current, view->live_blocks) ||
        !same(t, "extents", stats.extents.current, view->extent_count) ||
        !same(t, "gap, cached", gap.cached_bytes, view->gap.cached_bytes) ||
        !same(t, "cached", stats.cached_bytes, view->gap.cached_bytes) ||
        !same(t, "gap, pending", gap.pending_bytes, view->gap.pending_bytes) ||
        !same(t, "gap, idle", gap.idle_bytes, view->gap.idle_bytes) ||
        !same(t, "gap, pinned", gap.pinned_bytes, view->gap.pinned_bytes) ||
        !same(t, "gap, slack", gap.slack_bytes, view->gap.slack_bytes))
        return 0;
    if (stats.reserved_bytes.current < stats.allocated_bytes.current ||
        stats.allocated_bytes.current < stats.requested_bytes.current)
        return vrpt_fail(t, "I3: reserved %" PRIu64 ", allocated %" PRIu64 ", requested %" PRIu64,
                         stats.reserved_bytes.current, stats.allocated_bytes.current,
                         stats.requested_bytes.current);
    return same(
        t, "causes of the gap", stats.reserved_bytes.current - stats.allocated_bytes.current,
        gap.cached_bytes + gap.pending_bytes + gap.idle_bytes + gap.pinned_bytes + gap.slack_bytes);
}

int vrpt_recount(vrpt *t) {
    vrpt_view view;
    int good = vrpt_view_take(t, &view) && compare(t, &view);
    if (good && t->sim != NULL && !t->shared)
        good = same(t, "bytes used on the device", vrpt_sim_stats(t, 0).used_bytes, view.reserved);
    vrpt_view_release(&view);
    return good;
}
