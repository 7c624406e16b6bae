/* SPDX-License-Identifier: MIT */
/* A recount of the pool in mid-replay: what its walk shows, added up here
 * without the pool's own sums, against what the pool says of itself. */

#include "run.h"
#include "vrampool/inspect.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct piece {
    vrp_devptr base;
    uint64_t bytes;
    uint64_t in_use;  /* by the blocks that the walk shows */
    uint64_t covered; /* by any block */
    vrp_extent_info info;
} piece;

typedef struct recount {
    piece *extents;
    size_t extent_count, extent_room;
    vrp_block_info *blocks;
    size_t block_count, block_room;
    int no_memory;
    uint64_t reserved, allocated, requested;
    vrp_gap gap;
} recount;

static void *grown(void *items, size_t *room, size_t item_bytes) {
    *room = *room == 0 ? 256 : *room * 2;
    return realloc(items, *room * item_bytes);
}

static int on_extent(void *user, const vrp_extent_info *info) {
    recount *r = user;
    if (r->extent_count == r->extent_room) {
        piece *more = grown(r->extents, &r->extent_room, sizeof *more);
        if (more == NULL)
            return r->no_memory = 1;
        r->extents = more;
    }
    r->extents[r->extent_count++] =
        (piece){.base = info->base, .bytes = info->bytes, .info = *info};
    return 0;
}

static int on_block(void *user, const vrp_block_info *info) {
    recount *r = user;
    if (r->block_count == r->block_room) {
        vrp_block_info *more = grown(r->blocks, &r->block_room, sizeof *more);
        if (more == NULL)
            return r->no_memory = 1;
        r->blocks = more;
    }
    r->blocks[r->block_count++] = *info;
    return 0;
}

static int by_base(const void *a, const void *b) {
    const piece *x = a;
    const piece *y = b;
    return x->base < y->base ? -1 : x->base > y->base;
}

/* The first extent that ends behind the address. */
static piece *extent_at(const recount *r, vrp_devptr ptr) {
    size_t low = 0;
    size_t high = r->extent_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->extents[middle].base + r->extents[middle].bytes <= ptr)
            low = middle + 1;
        else
            high = middle;
    }
    return r->extents + low;
}

static uint64_t overlap(const piece *extent, const vrp_block_info *block) {
    vrp_devptr from = extent->base > block->base ? extent->base : block->base;
    vrp_devptr extent_end = extent->base + extent->bytes;
    vrp_devptr block_end = block->base + block->bytes;
    return (extent_end < block_end ? extent_end : block_end) - from;
}

static int is_free(const vrp_block_info *block) {
    return block->state == VRP_BLOCK_FREE || block->state == VRP_BLOCK_STREAM;
}

/* How much of each extent its blocks cover and use; slots lie in their slab. */
static void cover(recount *r) {
    const piece *end = r->extents + r->extent_count;
    for (size_t i = 0; i < r->block_count; i++) {
        const vrp_block_info *block = &r->blocks[i];
        if (block->is_slot)
            continue;
        for (piece *e = extent_at(r, block->base); e < end && e->base < block->base + block->bytes;
             e++) {
            uint64_t bytes = overlap(e, block);
            e->covered += bytes;
            e->in_use += is_free(block) ? 0 : bytes;
        }
    }
}

/* Where a byte counts that no block in use holds, by its extent. */
static uint64_t *cause_of(recount *r, const piece *extent) {
    if (extent->info.pending)
        return &r->gap.pending_bytes;
    return extent->in_use == 0 ? &r->gap.idle_bytes : &r->gap.pinned_bytes;
}

static void add_block(recount *r, const vrp_block_info *block) {
    const piece *end = r->extents + r->extent_count;
    /* A slab counts as pinned whole; what its slots are otherwise comes off. */
    if (block->is_slot && is_free(block))
        return;
    if (block->is_slot)
        r->gap.pinned_bytes -= block->bytes;
    if (block->state == VRP_BLOCK_LIVE) {
        r->allocated += block->bytes;
        r->requested += block->requested_bytes;
    } else if (block->state == VRP_BLOCK_CACHED) {
        r->gap.cached_bytes += block->bytes;
    } else if (block->state == VRP_BLOCK_PENDING) {
        r->gap.pending_bytes += block->bytes;
    } else if (block->state == VRP_BLOCK_SLAB) {
        r->gap.pinned_bytes += block->bytes;
    } else {
        for (const piece *e = extent_at(r, block->base);
             e < end && e->base < block->base + block->bytes; e++)
            *cause_of(r, e) += overlap(e, block);
    }
}

static void add_up(recount *r) {
    if (r->extent_count > 0)
        qsort(r->extents, r->extent_count, sizeof *r->extents, by_base);
    cover(r);
    for (size_t i = 0; i < r->block_count; i++)
        add_block(r, &r->blocks[i]);
    for (size_t i = 0; i < r->extent_count; i++) {
        const piece *extent = &r->extents[i];
        uint64_t bare = extent->bytes - extent->covered;
        r->reserved += extent->bytes;
        if (extent->in_use > 0)
            r->gap.slack_bytes += bare;
        else
            *cause_of(r, extent) += bare;
    }
}

static int differ(const bench_run *run, const char *what, uint64_t pool, uint64_t walk) {
    if (pool == walk)
        return 0;
    (void)bench_fail_here(
        run, "after empty_cache: %s: the pool says %" PRIu64 ", the walk adds up to %" PRIu64, what,
        pool, walk);
    return 1;
}

static int compare(const bench_run *run, const recount *r) {
    vrp_gap gap = {.struct_size = sizeof gap};
    if (vrp_pool_gap_compute(run->pool, &gap) != VRP_OK)
        return bench_fail_here(run, "gap: %s", bench_detail());
    if (differ(run, "reserved", vrp_pool_reserved_bytes(run->pool), r->reserved) ||
        differ(run, "allocated", vrp_pool_allocated_bytes(run->pool), r->allocated) ||
        differ(run, "requested", run->requested, r->requested) ||
        differ(run, "cached", gap.cached_bytes, r->gap.cached_bytes) ||
        differ(run, "pending", gap.pending_bytes, r->gap.pending_bytes) ||
        differ(run, "idle", gap.idle_bytes, r->gap.idle_bytes) ||
        differ(run, "pinned", gap.pinned_bytes, r->gap.pinned_bytes) ||
        differ(run, "slack", gap.slack_bytes, r->gap.slack_bytes) ||
        differ(run, "reserved - allocated", r->reserved - r->allocated,
               gap.cached_bytes + gap.pending_bytes + gap.idle_bytes + gap.pinned_bytes +
                   gap.slack_bytes))
        return BENCH_FAILED;
    for (size_t i = 0; i < r->extent_count; i++) {
        const piece *extent = &r->extents[i];
        if (differ(run, "bytes in use of an extent", extent->info.live_bytes, extent->in_use))
            return BENCH_FAILED;
        if (extent->in_use == 0 && !extent->info.pending)
            return bench_fail_here(run,
                                   "after empty_cache: an extent of %" PRIu64
                                   " bytes is wholly free with no work outstanding",
                                   extent->bytes);
    }
    return BENCH_OK;
}

static void plan_next(bench_run *run) {
    uint64_t shares = run->options->check_points + 1;
    run->figures->points++;
    run->checks_done++;
    run->next_check = run->checks_done == run->options->check_points
                          ? UINT64_MAX
                          : (uint64_t)((bench_wide)run->check_events *
                                       (bench_wide)(run->checks_done + 1) / (bench_wide)shares);
    if (run->next_check <= run->events)
        run->next_check = run->events + 1;
}

int bench_check_point(bench_run *run) {
    static const vrp_walk_fns fns = {
        .struct_size = sizeof fns, .extent = on_extent, .block = on_block};
    recount r;
    memset(&r, 0, sizeof r);
    if (vrp_empty_cache(run->pool, NULL) != VRP_OK)
        return bench_fail_here(run, "empty_cache: %s", bench_detail());
    if (vrp_pool_check(run->pool) != VRP_OK)
        return bench_fail_here(run, "after empty_cache: %s", bench_detail());
    int code = BENCH_OK;
    if (vrp_pool_walk(run->pool, &fns, &r) != VRP_OK || r.no_memory)
        code = bench_fail_here(run, "the pool cannot be walked: %s", bench_detail());
    if (code == BENCH_OK) {
        add_up(&r);
        code = compare(run, &r);
    }
    free(r.extents);
    free(r.blocks);
    plan_next(run);
    return code;
}
