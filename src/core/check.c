/* SPDX-License-Identifier: MIT */
/* vrp_pool_check: every structure against every other. */

#include "core/core.h"

#include <string.h>

typedef struct recount {
    uint64_t allocated, requested, blocks, reserved, extents, idle, idle_bytes, cached, free_blocks;
    uint64_t ghosts, slabs, marked;
    uint64_t tag_allocated[VRP_TAG_COUNT];
} recount;

static vrp_status broken(const char *what, uint64_t where) {
    vrp_status status = vrpi_fail(VRP_CORRUPTED, "%s at 0x%llx", what, (unsigned long long)where);
    vrpi_fail_address(where);
    return status;
}

#define HOLDS(condition, what, where) \
    if (!(condition))                 \
        return broken(what, where);

static vrp_status check_slab(vrpi_pool *core, const vrpi_block *b, recount *r) {
    const vrpi_slab *s = vrpi_slab_of(b);
    uint32_t free_slots = 0, listed = 0;
    HOLDS(s != NULL && s->block == b && s->addr == b->addr, "a slab and its block disagree",
          b->addr)
    HOLDS(s->stream == vrpi_arena_of(core, b)->stream, "a slab of another stream", b->addr)
    for (uint32_t i = 0; i < s->slot_count; i++) {
        const vrpi_slot *slot = &s->slot[i];
        switch (atomic_load_explicit(&slot->state, memory_order_relaxed)) {
        case VRPI_FREE:
            free_slots++;
            break;
        case VRPI_CACHED:
            r->cached += s->slot_bytes;
            break;
        case VRPI_LIVE:
        case VRPI_SHARED:
            r->allocated += s->slot_bytes;
            r->requested += s->slot_bytes - (uint64_t)slot->waste;
            r->tag_allocated[slot->tag] += s->slot_bytes;
            r->blocks++;
            break;
        default:
            break;
        }
    }
    HOLDS(free_slots == s->free_count, "a slab's count of free slots is wrong", b->addr)
    for (uint32_t i = s->first_free; i != 0 && listed <= s->slot_count; i = s->next_free[i - 1]) {
        HOLDS(i <= s->slot_count && s->slot[i - 1].state == VRPI_FREE,
              "a slot in use is in the free list", b->addr)
        listed++;
    }
    HOLDS(listed == free_slots, "a slab's free list is broken", b->addr)
    HOLDS(s->free_count < s->slot_count, "an empty slab is kept", b->addr)
    HOLDS((s->free_count > 0) == (s->link != NULL), "a slab is in the wrong list", b->addr)
    for (uint64_t at = b->addr; at < b->addr + VRPI_BYTES(b); at += VRPI_CELL)
        HOLDS(vrpi_map_get(core, at) == b, "the address table misses a slab", at)
    r->slabs++;
    return VRP_OK;
}

static vrp_status check_block(vrpi_pool *core, const vrpi_block *b, recount *r) {
    uint8_t state = b->state;
    uint64_t at = b->addr;
    HOLDS(b->units > 0, "a block has no size", at)
    HOLDS(state == VRPI_FREE || state == VRPI_GHOST || at % VRPI_UNIT == 0, "misaligned block", at)
    if (state == VRPI_FREE) {
        const vrpi_arena *a = vrpi_arena_of(core, b);
        const vrpi_block *next = vrpi_next(core, b);
        HOLDS(vrpi_in_tree(b) == (a->space != NULL),
              "a block is or is not in the tree of free ones", at)
        HOLDS(next == NULL || next->state != VRPI_FREE, "free neighbours are not merged", at)
        if (a->space != NULL) {
            HOLDS(vrpi_treap_at_least(&a->space->free, VRPI_BYTES(b), at) == &b->node,
                  "a free block is not where its size belongs", at)
            r->free_blocks++;
        }
        return VRP_OK;
    }
    if (state == VRPI_GHOST) {
        r->ghosts++;
        return VRP_OK;
    }
    if (state == VRPI_PLACING)
        return VRP_OK; /* its request is inside a driver call */
    if (state == VRPI_SLAB)
        return check_slab(core, b, r);
    HOLDS(vrpi_map_get(core, at) == b, "the address table misses a block", at)
    if (state == VRPI_CACHED)
        r->cached += VRPI_BYTES(b);
    if (vrpi_is_live(b) || state == VRPI_GROWABLE) {
        HOLDS(vrpi_requested(b) <= VRPI_BYTES(b), "more requested than there is", at)
        HOLDS(b->tag < VRP_TAG_COUNT, "a block has no such tag", at)
        r->allocated += VRPI_BYTES(b);
        r->requested += vrpi_requested(b);
        r->tag_allocated[b->tag] += VRPI_BYTES(b);
        r->blocks++;
    }
    return VRP_OK;
}

/* How many blocks in use touch the extent, and that those in use are backed. */
static vrp_status check_extent(vrpi_pool *core, const vrpi_extent *e, recount *r) {
    uint64_t first = vrpi_granule_of(core, e->arena, e->addr);
    uint64_t last = vrpi_granule_of(core, e->arena, e->addr + VRPI_BYTES(e) - 1);
    uint32_t live = 0;
    for (uint64_t i = first; i <= last; i++)
        HOLDS(i < e->arena->granule_count && e->arena->granules[i] == e,
              "a granule does not know its extent", e->addr)
    for (const vrpi_block *b = vrpi_block_at(core, e->arena, e->addr);
         b != NULL && b->addr < e->addr + VRPI_BYTES(e); b = vrpi_next(core, b))
        live += b->state != VRPI_FREE && b->state != VRPI_GHOST;
    r->extents++;
    r->reserved += VRPI_BYTES(e);
    r->marked += e->marked;
    if (e->state == VRPI_EXTENT_TRANSIT)
        return VRP_OK;
    HOLDS(live == e->live || (e->arena->klass == VRPI_CLASS_GROWABLE && core->threads_busy),
          "an extent's count of blocks is wrong", e->addr)
    HOLDS(vrpi_is_idle(e) == (e->live == 0 && vrpi_is_shared(e->arena)),
          "an extent is or is not among the idle ones", e->addr)
    if (e->live == 0 && vrpi_is_shared(e->arena)) {
        r->idle++;
        r->idle_bytes += VRPI_BYTES(e);
    }
    return VRP_OK;
}

static vrp_status check_arena(vrpi_pool *core, const vrpi_arena *a, recount *r) {
    uint64_t at = a->base, used = 0, backed = 0;
    const vrpi_block *last = NULL;
    for (const vrpi_block *b = vrpi_first(core, a); b != NULL; b = vrpi_next(core, b)) {
        HOLDS(b->addr == at && vrpi_prev(core, b) == last && vrpi_arena_of(core, b) == a,
              "blocks do not tile the arena", at)
        VRPI_TRY(check_block(core, b, r));
        used += b->state != VRPI_FREE;
        at += VRPI_BYTES(b);
        last = b;
    }
    HOLDS(at == a->end && last == vrpi_last(core, a), "the arena ends elsewhere", at)
    HOLDS(used == a->used_blocks, "an arena's count of blocks is wrong", a->base)
    for (uint64_t i = 0; i < a->granule_count; i++) {
        uint64_t addr = a->base + i * core->granularity;
        const vrpi_block *b = addr < a->end ? a->starts[i] : NULL;
        if (a->granules[i] != NULL)
            backed += core->granularity;
        HOLDS(b == NULL || (vrpi_arena_of(core, b) == a && b->addr <= addr &&
                            b->addr + VRPI_BYTES(b) > addr),
              "a granule names the wrong block", addr)
        HOLDS(addr >= a->end || b != NULL, "a granule names no block", addr)
        for (; b != NULL && b->addr < addr + core->granularity; b = vrpi_next(core, b))
            HOLDS(b->state == VRPI_FREE || b->state == VRPI_GHOST || b->state == VRPI_PLACING ||
                      a->granules[i] != NULL,
                  "a block in use has no memory", addr)
    }
    HOLDS(backed == a->backed_bytes || core->backing == VRP_BACKING_MALLOC || core->threads_busy,
          "an arena's backed bytes are wrong", a->base)
    return VRP_OK;
}

static vrp_status check_trees(vrpi_pool *core, recount *r) {
    uint64_t in_trees = 0, ghosts = 0;
    for (const vrpi_stream *s = core->streams; s != NULL; s = s->next) {
        HOLDS(s->completed <= s->seq && s->covered <= s->seq, "a stream is ahead of itself",
              s->handle)
        for (int k = 0; k < VRPI_CLASS_COUNT; k++) {
            HOLDS(vrpi_treap_valid(&s->space[k].free), "a tree of free blocks is broken", s->handle)
            in_trees += s->space[k].free.count;
        }
    }
    HOLDS(in_trees == r->free_blocks, "free blocks are missing from the trees", in_trees)
    HOLDS(vrpi_treap_valid(&core->idle), "the tree of idle extents is broken", 0)
    HOLDS(core->idle.count == r->idle && core->idle_bytes == r->idle_bytes,
          "idle extents are counted wrong", core->idle_bytes)
    HOLDS(core->marked_count == r->marked, "marked extents are counted wrong", r->marked)
    for (const vrpi_ghost *g = core->ghosts; g != NULL; g = g->next)
        ghosts++;
    HOLDS((ghosts == core->ghost_count && ghosts == r->ghosts) || core->threads_busy,
          "old mappings are counted wrong", ghosts)
    HOLDS(r->reserved + vrpi_orphan_bytes(core) == vrpi_reserved(core) || core->threads_busy,
          "reserved is not the sum of the extents", r->reserved)
    HOLDS(r->extents == core->extent_count, "extents are counted wrong", r->extents)
    return VRP_OK;
}

static vrp_status check_counters(vrpi_pool *core, const recount *r) {
    uint64_t cached = vrpi_cached_bytes(core);
    HOLDS((int64_t)r->allocated == core->all.allocated.current,
          "allocated is not the sum of the blocks", r->allocated)
    HOLDS((int64_t)r->requested == core->all.requested.current,
          "requested is not the sum of the requests", r->requested)
    HOLDS((int64_t)r->blocks == core->all.blocks.current, "live blocks are counted wrong",
          r->blocks)
    for (int i = 0; i < VRP_TAG_COUNT; i++)
        HOLDS((int64_t)r->tag_allocated[i] == core->tag[i].allocated.current,
              "a tag's bytes are wrong", (uint64_t)i)
    HOLDS(cached == r->cached, "cached bytes are counted wrong", cached)
    return VRP_OK;
}

static vrp_status check_all(vrpi_pool *core) {
    recount r;
    vrp_status status = VRP_OK;
    memset(&r, 0, sizeof r);
    for (const vrpi_arena *a = core->arenas; a != NULL; a = a->next)
        VRPI_TRY(check_arena(core, a, &r));
    for (const vrpi_arena *a = core->arenas; a != NULL; a = a->next) {
        uint64_t granule = 0, before = 0;
        for (const vrpi_extent *e; (e = vrpi_extent_next(core, a, &granule)) != NULL;) {
            HOLDS(e->arena == a && e->addr >= a->base + before * core->granularity,
                  "an extent is in a granule that it does not back", e->addr)
            before = granule;
            VRPI_TRY(check_extent(core, e, &r));
        }
    }
    VRPI_TRY(check_trees(core, &r));
    status = check_counters(core, &r);
    return status;
}

vrp_status vrp_pool_check(vrp_pool *pool) {
    vrpi_pool *core;
    vrp_status status;
    VRPI_TRY(vrpi_enter(pool));
    core = pool->core;
    vrpi_mutex_lock(&core->lock);
    /* Hits change blocks and counters without the lock: nobody hits meanwhile. */
    vrpi_close_all(core);
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next)
        vrpi_shards_flush(t);
    core->threads_busy = atomic_load(&pool->users) > 1;
    status = check_all(core);
    vrpi_open_all(core);
    vrpi_mutex_unlock(&core->lock);
    vrpi_exit(pool);
    return status;
}
