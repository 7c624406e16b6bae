/* SPDX-License-Identifier: MIT */
/* Ranges of device addresses: reserving them, the tables of their granules,
 * who owns them, giving them up. */

#include "core/core.h"

#include <string.h>

/* Addresses cost nothing, and blocks merge only within a range: the ranges of
 * large blocks are large. But every stream takes some for each class, so no
 * range takes more than a sixteenth of what there is. */
static uint64_t range_bytes(const vrpi_pool *core, uint8_t klass, uint64_t bytes) {
    uint64_t g = core->granularity, total = core->device.total_bytes;
    uint64_t range = core->arena_bytes;
    if (range == 0) {
        range = klass == VRPI_CLASS_HUGE || klass == VRPI_CLASS_WEIGHTS ? total * 2
                : klass == VRPI_CLASS_LARGE                             ? total
                : klass == VRPI_CLASS_MEDIUM                            ? total / 4
                                                                        : total / 8;
        if (range > core->device.address_bytes / 16)
            range = core->device.address_bytes / 16;
        if (range < g * 64)
            range = g * 64;
    }
    if (bytes > range - g)
        range = bytes + g; /* a range of its own, with room to align */
    if (range > VRPI_BLOCK_MAX && range > bytes + g)
        range = bytes + g > VRPI_BLOCK_MAX ? bytes + g : VRPI_BLOCK_MAX;
    return (range + g - 1) / g * g;
}

vrp_status vrpi_arena_granules(vrpi_pool *core, vrpi_arena *arena, uint64_t end) {
    uint64_t want = (end - arena->base + core->granularity - 1) / core->granularity;
    /* The address table follows too, but for a buffer, which starts one block. */
    if (arena->base != 0 && arena->klass != VRPI_CLASS_GROWABLE && end > arena->end)
        VRPI_TRY(vrpi_map_prepare(core, arena->end, end - arena->end));
    uint64_t have = arena->granule_count;
    uint64_t most = arena->bytes / core->granularity;
    uint64_t count = have < 64 ? 64 : have;
    void **grown;
    if (want <= have)
        return VRP_OK;
    while (count < want)
        count += count / 2;
    if (count > most)
        count = most;
    /* both tables in one piece: extents first, then blocks */
    grown = vrpi_host_alloc(core, 2 * count * sizeof(void *));
    if (grown == NULL)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for %llu granules",
                         (unsigned long long)count);
    if (have > 0) {
        memcpy(grown, arena->granules, have * sizeof(void *));
        memcpy(grown + count, arena->starts, have * sizeof(void *));
        vrpi_host_free(core, arena->granules, 2 * have * sizeof(void *));
    }
    arena->granules = (vrpi_extent **)(void *)grown;
    arena->starts = (vrpi_block **)(void *)(grown + count);
    arena->granule_count = count;
    return VRP_OK;
}

vrpi_arena *vrpi_arena_new(vrpi_pool *core) {
    uint32_t index = 1; /* 0: no block's */
    vrpi_arena *arena;
    while (index < core->arena_capacity && core->arena_at[index] != NULL)
        index++;
    if (index >= core->arena_capacity) {
        uint32_t capacity = core->arena_capacity == 0 ? 16 : core->arena_capacity * 2;
        vrpi_arena **old = core->arena_at, **grown;
        grown = vrpi_host_alloc(core, capacity * sizeof(vrpi_arena *));
        if (grown == NULL)
            return NULL;
        if (old != NULL)
            memcpy(grown, old, core->arena_capacity * sizeof(vrpi_arena *));
        vrpi_close_all(core); /* hits look up the arena of the block they free */
        core->arena_at = grown;
        vrpi_open_all(core);
        vrpi_host_free(core, old, core->arena_capacity * sizeof(vrpi_arena *));
        core->arena_capacity = capacity;
    }
    arena = vrpi_host_alloc(core, sizeof *arena);
    if (arena != NULL) {
        arena->index = index;
        core->arena_at[index] = arena;
    }
    return arena;
}

void vrpi_arena_delete(vrpi_pool *core, vrpi_arena *arena) {
    core->arena_at[arena->index] = NULL;
    vrpi_host_free(core, arena->granules, 2 * arena->granule_count * sizeof(void *));
    vrpi_host_free(core, arena, sizeof *arena);
}

void vrpi_arena_link(vrpi_pool *core, vrpi_arena *arena) {
    vrpi_arena **link = &core->arenas;
    while (*link != NULL)
        link = &(*link)->next;
    arena->link = link;
    *link = arena;
    arena->number = core->arena_numbers++;
}

vrp_status vrpi_arena_create(vrpi_pool *core, uint64_t bytes, vrpi_arena **out) {
    vrpi_arena *arena = vrpi_arena_new(core);
    vrp_devptr base = 0;
    vrp_status status;
    if (arena == NULL)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for an arena");
    vrpi_mutex_unlock(&core->lock);
    status = core->ops->address_reserve(core->ctx, bytes, &base);
    vrpi_mutex_lock(&core->lock);
    if (status != VRP_OK) {
        vrpi_driver_failed(core, status);
        vrpi_arena_delete(core, arena);
        return status;
    }
    if ((base + bytes - 1) >> VRPI_ADDRESS_BITS != 0)
        status = vrpi_fail(VRP_NOT_SUPPORTED, "the driver gave an address above 2^%d",
                           VRPI_ADDRESS_BITS);
    else
        status = vrpi_map_prepare(core, base, core->granularity);
    if (status != VRP_OK) {
        vrpi_mutex_unlock(&core->lock);
        (void)core->ops->address_free(core->ctx, base, bytes);
        vrpi_mutex_lock(&core->lock);
        vrpi_arena_delete(core, arena);
        return status;
    }
    arena->base = arena->end = base;
    arena->bytes = bytes;
    vrpi_arena_link(core, arena);
    *out = arena;
    return VRP_OK;
}

void vrpi_arena_attach(vrpi_pool *core, vrpi_arena *arena, vrpi_stream *stream, uint8_t klass) {
    vrpi_space *space = &stream->space[klass];
    arena->space_next = space->arenas;
    space->arenas = arena;
    arena->space = space;
    arena->stream = stream;
    arena->klass = klass;
    for (uint32_t number = arena->first; number != 0; number = vrpi_block_of(core, number)->next)
        if (vrpi_block_of(core, number)->state == VRPI_FREE)
            vrpi_treap_insert(&space->free, number);
    if (vrpi_is_shared(arena))
        return;
    uint64_t granule = 0; /* what is idle is so for nobody else now */
    for (vrpi_extent *e; (e = vrpi_extent_next(core, arena, &granule)) != NULL;)
        vrpi_idle_remove(core, e);
}

void vrpi_arena_detach(vrpi_pool *core, vrpi_arena *arena) {
    vrpi_arena **link = &arena->space->arenas;
    while (*link != arena)
        link = &(*link)->space_next;
    *link = arena->space_next;
    for (vrpi_block *b = vrpi_first(core, arena); b != NULL; b = vrpi_next(core, b))
        if (vrpi_in_tree(b))
            vrpi_treap_remove(&arena->space->free, &b->node);
    arena->space = NULL;
    arena->stream = NULL;
    arena->space_next = NULL;
}

/* A spare range (its stream is gone) serves the next stream that needs one. */
static vrpi_arena *spare_find(const vrpi_pool *core, uint8_t klass, uint64_t bytes) {
    for (vrpi_arena *a = core->arenas; a != NULL; a = a->next)
        if (a->space == NULL && a->stream == NULL && !a->closing &&
            a->klass != VRPI_CLASS_GROWABLE && a->bytes >= bytes &&
            (a->bytes >= range_bytes(core, klass, 0) || a->backed_bytes > 0))
            return a;
    return NULL;
}

vrp_status vrpi_arena_grow_space(vrpi_pool *core, vrpi_stream *stream, uint8_t klass,
                                 uint64_t bytes, vrpi_arena **out) {
    uint64_t range = range_bytes(core, klass, bytes);
    vrpi_arena *arena = spare_find(core, klass, bytes + core->granularity);
    if (arena == NULL) {
        uint64_t least =
            (bytes + 2 * core->granularity - 1) / core->granularity * core->granularity;
        vrp_status status = vrpi_arena_create(core, range, &arena);
        /* Address space can run out where much of it is taken: smaller ranges,
         * then what nobody uses any more. */
        while (status != VRP_OK && status != VRP_OUT_OF_HOST_MEMORY && range / 2 >= least) {
            range = range / 2 / core->granularity * core->granularity;
            status = vrpi_arena_create(core, range, &arena);
        }
        if (status != VRP_OK && vrpi_arena_reclaim(core))
            status = vrpi_arena_create(core, least, &arena);
        if (status != VRP_OK)
            return status;
    }
    vrpi_arena_attach(core, arena, stream, klass);
    *out = arena;
    return VRP_OK;
}

void vrpi_arena_cover(vrpi_pool *core, vrpi_arena *arena, vrpi_block *block, uint64_t from,
                      uint64_t to) {
    uint64_t g = (from - arena->base + core->granularity - 1) / core->granularity;
    uint64_t last = (to - arena->base + core->granularity - 1) / core->granularity;
    for (; g < last; g++)
        arena->starts[g] = block;
}

void vrpi_arena_extend(vrpi_pool *core, vrpi_arena *arena, uint64_t end) {
    vrpi_block *last = vrpi_last(core, arena);
    uint64_t from = arena->end;
    if (last != NULL && last->state == VRPI_FREE) {
        if (vrpi_in_tree(last))
            vrpi_treap_remove(&arena->space->free, &last->node);
    } else {
        uint32_t number = vrpi_block_node(core);
        vrpi_block *block = vrpi_block_of(core, number);
        block->addr = from;
        block->arena = arena->index;
        block->prev = arena->last;
        *(last != NULL ? &last->next : &arena->first) = number;
        arena->last = number;
        last = block;
    }
    last->units = VRPI_UNITS(end - last->addr);
    if (arena->space != NULL)
        vrpi_treap_insert(&arena->space->free, arena->last);
    arena->end = end;
    vrpi_arena_cover(core, arena, last, from, end);
}

void vrpi_arena_shrink(vrpi_pool *core, vrpi_arena *arena) {
    vrpi_block *last = vrpi_last(core, arena);
    uint64_t g = core->granularity;
    uint64_t low, end = arena->end;
    if (last == NULL || last->state != VRPI_FREE || arena->space == NULL)
        return;
    low = arena->base + (last->addr - arena->base + g - 1) / g * g;
    while (end > low && arena->granules[(end - g - arena->base) / g] == NULL)
        end -= g;
    if (end >= arena->end)
        return;
    vrpi_treap_remove(&arena->space->free, &last->node);
    arena->end = end;
    if (end <= last->addr) {
        uint32_t number = arena->last;
        arena->last = last->prev;
        *(last->prev != 0 ? &vrpi_prev(core, last)->next : &arena->first) = 0;
        vrpi_block_node_free(core, number);
        return;
    }
    last->units = VRPI_UNITS(end - last->addr);
    vrpi_treap_insert(&arena->space->free, arena->last);
}

void vrpi_arena_forget(vrpi_pool *core, vrpi_arena *arena) {
    while (arena->first != 0) {
        uint32_t number = arena->first;
        vrpi_block *block = vrpi_block_of(core, number);
        if (vrpi_in_tree(block))
            vrpi_treap_remove(&arena->space->free, &block->node);
        arena->first = block->next;
        vrpi_block_node_free(core, number);
    }
    if (arena->space != NULL)
        vrpi_arena_detach(core, arena);
    *arena->link = arena->next;
    if (arena->next != NULL)
        arena->next->link = arena->link;
    vrpi_arena_delete(core, arena);
}

vrp_status vrpi_arena_release(vrpi_pool *core, vrpi_arena *arena) {
    vrp_status status = VRP_OK;
    for (uint32_t i = 0; i < core->orphan_count; i++)
        if (core->orphans[i].addr - arena->base < arena->bytes)
            return vrpi_fail(VRP_INTERNAL, "a mapping could not be undone");
    arena->closing = 1;
    if (arena->space != NULL)
        vrpi_arena_detach(core, arena);
    if (vrpi_lost(core) == VRP_OK) {
        vrpi_mutex_unlock(&core->lock);
        status = core->ops->address_free(core->ctx, arena->base, arena->bytes);
        vrpi_mutex_lock(&core->lock);
    }
    if (status != VRP_OK) {
        vrpi_driver_failed(core, status);
        arena->closing = 0; /* stays as a spare one */
        return status;
    }
    vrpi_arena_forget(core, arena);
    return VRP_OK;
}

int vrpi_arena_reclaim(vrpi_pool *core) {
    int any = 0;
    for (vrpi_arena *a = core->arenas; a != NULL;) {
        vrpi_arena *next = a->next;
        if (core->backing == VRP_BACKING_VMM && a->klass != VRPI_CLASS_GROWABLE && !a->closing &&
            a->used_blocks == 0 && a->backed_bytes == 0) {
            if (vrpi_arena_release(core, a) != VRP_OK)
                return any;
            any = 1;
            next = core->arenas; /* the lock was dropped */
        }
        a = next;
    }
    return any;
}
