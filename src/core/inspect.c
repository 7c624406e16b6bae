/* SPDX-License-Identifier: MIT */
/* Queries about an address, and the walk over extents and blocks. */

#include "core/core.h"

#include <string.h>

static vrp_stream handle_of(const vrpi_stream *stream) {
    return stream == NULL ? VRP_STREAM_LEGACY : stream->handle;
}

static vrp_scope scope_handle(const vrpi_pool *core, uint32_t index) {
    const vrpi_scope *s = index == 0 ? NULL : vrpi_scope_at(core, index);
    return s == NULL
               ? 0
               : (uint64_t)atomic_load_explicit(&s->generation, memory_order_relaxed) << 32 | index;
}

static void block_info(const vrpi_pool *core, const vrpi_block *b, vrp_block_info *out) {
    int live = vrpi_is_live(b) || b->state == VRPI_GROWABLE;
    *out = (vrp_block_info){.struct_size = sizeof *out,
                            .base = b->addr,
                            .bytes = VRPI_BYTES(b),
                            .stream = handle_of(vrpi_arena_of(core, b)->stream),
                            .tag = live ? b->tag : 0,
                            .scope = live ? scope_handle(core, b->scope) : 0,
                            .requested_bytes = live ? vrpi_requested(b) : 0};
    out->state = live                                     ? VRP_BLOCK_LIVE
                 : b->state == VRPI_CACHED                ? VRP_BLOCK_CACHED
                 : b->state == VRPI_DEFERRED              ? VRP_BLOCK_PENDING
                 : b->state == VRPI_SLAB                  ? VRP_BLOCK_SLAB
                 : vrpi_arena_of(core, b)->stream == NULL ? VRP_BLOCK_FREE
                                                          : VRP_BLOCK_STREAM;
}

static void slot_info(const vrpi_pool *core, const vrpi_slab *s, uint32_t i, vrp_block_info *out) {
    const vrpi_slot *slot = &s->slot[i];
    uint8_t state = atomic_load_explicit(&slot->state, memory_order_relaxed);
    int live = state == VRPI_LIVE || state == VRPI_SHARED;
    *out = (vrp_block_info){.struct_size = sizeof *out,
                            .base = s->addr + (uint64_t)i * s->slot_bytes,
                            .bytes = s->slot_bytes,
                            .stream = handle_of(s->stream),
                            .tag = live ? slot->tag : 0,
                            .scope = live ? scope_handle(core, slot->scope) : 0,
                            .requested_bytes = live ? s->slot_bytes - (uint64_t)slot->waste : 0,
                            .is_slot = 1};
    out->state = live                     ? VRP_BLOCK_LIVE
                 : state == VRPI_CACHED   ? VRP_BLOCK_CACHED
                 : state == VRPI_DEFERRED ? VRP_BLOCK_PENDING
                                          : VRP_BLOCK_STREAM;
}

/* Hits change blocks without the lock: none while somebody looks. */
static void quiet(vrpi_pool *core, int begin) {
    if (begin)
        vrpi_close_all(core);
    else
        vrpi_open_all(core);
}

static vrp_status find_live(vrpi_pool *core, vrp_devptr ptr, vrp_block_info *out) {
    const vrpi_arena *arena = vrpi_arena_at(core, ptr);
    const vrpi_block *block;
    if (arena == NULL)
        return vrpi_fail(VRP_NOT_OWNED, "0x%llx is not this pool's", (unsigned long long)ptr);
    block = vrpi_block_at(core, arena, ptr);
    if (block != NULL && block->state == VRPI_SLAB) {
        uint32_t index = vrpi_slot_index(block->slab, ptr);
        if (index < block->slab->slot_count) {
            slot_info(core, block->slab, index, out);
            if (out->state == VRP_BLOCK_LIVE)
                return VRP_OK;
        }
    } else if (block != NULL) {
        block_info(core, block, out);
        if (out->state == VRP_BLOCK_LIVE)
            return VRP_OK;
    }
    return vrpi_fail(VRP_ALREADY_FREED, "0x%llx is in free memory", (unsigned long long)ptr);
}

vrp_status vrp_block_info_get(vrp_pool *pool, vrp_devptr ptr, vrp_block_info *out_info) {
    vrp_block_info info;
    vrp_status status;
    VRPI_TRY(vrpi_enter(pool));
    vrpi_mutex_lock(&pool->core->lock);
    quiet(pool->core, 1);
    status = find_live(pool->core, ptr, &info);
    quiet(pool->core, 0);
    vrpi_mutex_unlock(&pool->core->lock);
    vrpi_exit(pool);
    return status == VRP_OK ? vrpi_struct_out(out_info, &info, sizeof info, "vrp_block_info")
                            : status;
}

/* Bytes of the extent that blocks in use cover. */
static uint64_t live_bytes(const vrpi_pool *core, const vrpi_extent *e) {
    uint64_t bytes = 0;
    for (const vrpi_block *b = vrpi_block_at(core, e->arena, e->addr);
         b != NULL && b->addr < e->addr + VRPI_BYTES(e); b = vrpi_next(core, b)) {
        uint64_t from = b->addr > e->addr ? b->addr : e->addr;
        uint64_t to = b->addr + VRPI_BYTES(b) < e->addr + VRPI_BYTES(e) ? b->addr + VRPI_BYTES(b)
                                                                        : e->addr + VRPI_BYTES(e);
        if (b->state != VRPI_FREE && b->state != VRPI_GHOST)
            bytes += to - from;
    }
    return bytes;
}

static int walk_extents(const vrpi_pool *core, const vrpi_arena *a, const vrp_walk_fns *fns,
                        void *user) {
    for (uint64_t i = 0; fns->extent != NULL && i < a->granule_count;) {
        const vrpi_extent *e = a->granules[i];
        vrp_extent_info info = {.struct_size = sizeof info, .arena = a->number};
        if (e == NULL || e == &core->claimed) {
            i++;
            continue;
        }
        info.base = e->addr;
        info.bytes = VRPI_BYTES(e);
        info.live_bytes = live_bytes(core, e);
        info.pending = (uint32_t)(!vrpi_done(e->stream, e->stamp) || e->ghosts > 0);
        info.in_transit = e->state == VRPI_EXTENT_TRANSIT;
        if (fns->extent(user, &info) != 0)
            return 1;
        i = vrpi_granule_of(core, a, e->addr + VRPI_BYTES(e) - 1) + 1;
    }
    return 0;
}

/* A free block, a piece for each run of it that has memory. */
static int walk_free(const vrpi_pool *core, const vrpi_arena *a, const vrpi_block *b,
                     const vrp_walk_fns *fns, void *user) {
    uint64_t at = b->addr, end = b->addr + VRPI_BYTES(b), from = 0, run = 0;
    vrp_block_info info;
    block_info(core, b, &info);
    while (at < end || run > 0) {
        const vrpi_extent *e = at < end ? a->granules[vrpi_granule_of(core, a, at)] : NULL;
        if (e != NULL && e != &core->claimed) {
            uint64_t next = e->addr + VRPI_BYTES(e) < end ? e->addr + VRPI_BYTES(e) : end;
            if (run == 0)
                from = at;
            run += next - at;
            at = next;
            continue;
        }
        if (run > 0) {
            info.base = from;
            info.bytes = run;
            if (fns->block(user, &info) != 0)
                return 1;
            run = 0;
        }
        if (at < end)
            at = a->base + (vrpi_granule_of(core, a, at) + 1) * core->granularity;
    }
    return 0;
}

static int walk_blocks(const vrpi_pool *core, const vrpi_arena *a, const vrp_walk_fns *fns,
                       void *user) {
    for (const vrpi_block *b = vrpi_first(core, a); fns->block != NULL && b != NULL;
         b = vrpi_next(core, b)) {
        vrp_block_info info;
        if (b->state == VRPI_GHOST)
            continue;
        if (b->state == VRPI_FREE) {
            if (walk_free(core, a, b, fns, user))
                return 1;
            continue;
        }
        block_info(core, b, &info);
        if (fns->block(user, &info) != 0)
            return 1;
        for (uint32_t i = 0; b->state == VRPI_SLAB && i < b->slab->slot_count; i++) {
            slot_info(core, b->slab, i, &info);
            if (fns->block(user, &info) != 0)
                return 1;
        }
    }
    return 0;
}

vrp_status vrp_pool_walk(vrp_pool *pool, const vrp_walk_fns *fns, void *user) {
    vrp_walk_fns in;
    vrpi_pool *core;
    VRPI_TRY(vrpi_struct_in(&in, sizeof in, fns, "vrp_walk_fns"));
    VRPI_TRY(vrpi_enter(pool));
    core = pool->core;
    vrpi_mutex_lock(&core->lock);
    quiet(core, 1);
    for (const vrpi_arena *a = core->arenas; a != NULL; a = a->next)
        if (walk_extents(core, a, &in, user) || walk_blocks(core, a, &in, user))
            break;
    quiet(core, 0);
    vrpi_mutex_unlock(&core->lock);
    vrpi_exit(pool);
    return VRP_OK;
}

vrp_status vrp_pool_backing_reason_get(vrp_pool *pool, char *out_text, size_t text_bytes) {
    size_t length;
    if (out_text == NULL || text_bytes == 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_pool_backing_reason_get: no room for a text");
    VRPI_TRY(vrpi_enter(pool));
    length = strlen(pool->core->backing_reason); /* settled when the pool was made */
    if (length >= text_bytes)
        length = text_bytes - 1;
    memcpy(out_text, pool->core->backing_reason, length);
    out_text[length] = '\0';
    vrpi_exit(pool);
    return VRP_OK;
}
