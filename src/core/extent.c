/* SPDX-License-Identifier: MIT */
/* Physical memory: creating, moving and releasing extents, counting who uses
 * them, and the mappings that stay behind when one moves early.
 *
 * Moving is cheaper than releasing and creating, needs no new memory, and
 * works while the old stream still runs: a handle may be mapped twice, so the
 * new mapping is made now and the old one taken away when its work is done. */

#include "core/core.h"

void vrpi_reserved_add(vrpi_pool *core, uint64_t bytes) {
    uint64_t now = vrpi_reserved(core) + bytes; /* lock held */
    atomic_store_explicit(&core->reserved, now, memory_order_relaxed);
    atomic_store_explicit(&core->handle->reserved, now, memory_order_relaxed);
}

/* A request that fails after all must leave no trace: peaks move when it is sure. */
void vrpi_reserved_commit(vrpi_pool *core, uint64_t bytes, uint64_t extents) {
    uint64_t now = vrpi_reserved(core);
    core->reserved_total += bytes;
    core->extents_total += extents;
    if (core->extent_count > core->extents_peak)
        core->extents_peak = core->extent_count;
    if (now > core->reserved_peak)
        core->reserved_peak = now;
    if (now > core->high_water)
        core->high_water = now;
    if (now >= core->high_water - core->high_water / 32)
        core->refilling = 0;
}

void vrpi_reserved_sub(vrpi_pool *core, uint64_t bytes) {
    uint64_t now = vrpi_reserved(core) - bytes;
    if (now <= core->high_water / 2)
        core->refilling = 1;
    atomic_store_explicit(&core->reserved, now, memory_order_relaxed);
    atomic_store_explicit(&core->handle->reserved, now, memory_order_relaxed);
}

void vrpi_idle_add(vrpi_pool *core, vrpi_extent *extent) {
    if (!vrpi_is_shared(extent->arena))
        return;
    vrpi_treap_insert(&core->idle, extent->number);
    core->idle_bytes += VRPI_BYTES(extent);
    extent->idle_since = (uint32_t)core->ticks;
}

void vrpi_idle_remove(vrpi_pool *core, vrpi_extent *extent) {
    if (!vrpi_is_idle(extent))
        return; /* a graph pool's */
    vrpi_treap_remove(&core->idle, &extent->node);
    core->idle_bytes -= VRPI_BYTES(extent);
    core->marked_count -= extent->marked;
    extent->marked = 0;
}

static void granules_set(vrpi_pool *core, vrpi_arena *arena, uint64_t addr, uint64_t bytes,
                         vrpi_extent *extent) {
    uint64_t g = vrpi_granule_of(core, arena, addr);
    uint64_t last = vrpi_granule_of(core, arena, addr + bytes - 1);
    for (; g <= last; g++)
        arena->granules[g] = extent;
}

void vrpi_extent_link(vrpi_pool *core, vrpi_extent *extent) {
    core->extent_count++;
    extent->arena->backed_bytes += VRPI_BYTES(extent);
    granules_set(core, extent->arena, extent->addr, VRPI_BYTES(extent), extent);
    if (extent->live == 0)
        vrpi_idle_add(core, extent);
}

void vrpi_extent_unlink(vrpi_pool *core, vrpi_extent *extent) {
    core->extent_count--;
    extent->arena->backed_bytes -= VRPI_BYTES(extent);
    granules_set(core, extent->arena, extent->addr, VRPI_BYTES(extent), NULL);
    if (vrpi_is_idle(extent))
        vrpi_idle_remove(core, extent);
}

void vrpi_extent_use(vrpi_pool *core, vrpi_arena *arena, uint64_t addr, uint64_t bytes) {
    for (uint64_t at = addr; at < addr + bytes;) {
        vrpi_extent *e = arena->granules[vrpi_granule_of(core, arena, at)];
        if (e == NULL || e == &core->claimed) {
            at = arena->base + (vrpi_granule_of(core, arena, at) + 1) * core->granularity;
            continue;
        }
        if (e->live++ == 0 && vrpi_is_idle(e))
            vrpi_idle_remove(core, e);
        at = e->addr + VRPI_BYTES(e);
    }
}

void vrpi_extent_unuse(vrpi_pool *core, vrpi_arena *arena, uint64_t addr, uint64_t bytes,
                       vrpi_stream *stream, uint64_t stamp) {
    for (uint64_t at = addr; at < addr + bytes;) {
        vrpi_extent *e = arena->granules[vrpi_granule_of(core, arena, at)];
        if (e == NULL || e == &core->claimed) {
            at = arena->base + (vrpi_granule_of(core, arena, at) + 1) * core->granularity;
            continue;
        }
        if (stream != NULL) {
            e->stream = stream;
            e->stamp = stamp;
        }
        if (--e->live == 0)
            vrpi_idle_add(core, e);
        at = e->addr + VRPI_BYTES(e);
    }
}

/* Maps a handle at addr and makes it accessible; undone on failure. If even
 * that fails, *out_mapped is addr. No lock. */
static vrp_status map_at(vrpi_pool *core, uint64_t addr, uint64_t bytes, vrp_handle handle,
                         uint64_t *out_mapped) {
    vrp_status status = core->ops->map(core->ctx, addr, bytes, handle);
    *out_mapped = 0;
    if (status != VRP_OK)
        return status;
    status = core->ops->set_access(core->ctx, addr, bytes);
    if (status != VRP_OK && status != VRP_DEVICE_LOST &&
        core->ops->unmap(core->ctx, addr, bytes) != VRP_OK)
        *out_mapped = addr;
    return status;
}

/* Memory that the driver would not take back is kept, still counted as
 * reserved, and tried again: losing it would lose the memory. */
void vrpi_orphan_keep(vrpi_pool *core, vrpi_orphan orphan) {
    if (core->orphan_count == core->orphan_capacity) {
        uint32_t capacity = core->orphan_capacity + 64;
        vrpi_orphan *grown = vrpi_host_alloc(core, capacity * sizeof *grown);
        if (grown == NULL)
            return; /* the memory stays counted; only the device's end frees it */
        for (uint32_t i = 0; i < core->orphan_count; i++)
            grown[i] = core->orphans[i];
        vrpi_host_free(core, core->orphans, core->orphan_capacity * sizeof *grown);
        core->orphans = grown;
        core->orphan_capacity = capacity;
    }
    core->orphans[core->orphan_count++] = orphan;
}

/* A mapping that could not be undone counts as an old one of the extent: its
 * memory is not the device's again while that stands. */
static void stray_keep(vrpi_pool *core, vrpi_extent *extent, uint64_t mapped) {
    uint32_t before = core->orphan_count;
    vrpi_orphan_keep(core,
                     (vrpi_orphan){.bytes = VRPI_BYTES(extent), .addr = mapped, .extent = extent});
    if (core->orphan_count > before)
        extent->ghosts++;
}

void vrpi_orphans_retry(vrpi_pool *core) {
    while (core->orphan_count > 0 && vrpi_lost(core) == VRP_OK) {
        vrpi_orphan o = core->orphans[--core->orphan_count];
        vrp_status status = VRP_OK;
        vrpi_mutex_unlock(&core->lock);
        if (o.addr != 0 && (status = core->ops->unmap(core->ctx, o.addr, o.bytes)) == VRP_OK)
            o.addr = 0;
        if (status == VRP_OK && o.handle != 0)
            status = core->ops->handle_release(core->ctx, o.handle);
        vrpi_mutex_lock(&core->lock);
        if (status != VRP_OK) {
            vrpi_driver_failed(core, status);
            vrpi_orphan_keep(core, o);
            return;
        }
        if (o.extent != NULL)
            o.extent->ghosts--;
        if (o.handle != 0) {
            vrpi_reserved_sub(core, o.bytes);
            core->trimmed_bytes += o.bytes;
        }
    }
}

uint64_t vrpi_orphan_bytes(const vrpi_pool *core) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < core->orphan_count; i++)
        if (core->orphans[i].handle != 0)
            bytes += core->orphans[i].bytes;
    return bytes;
}

/* The granules are claimed by the caller; the new extent is in use by one block. */
vrp_status vrpi_extent_create(vrpi_pool *core, vrpi_arena *arena, uint64_t addr, uint64_t bytes) {
    vrp_handle handle = 0;
    vrp_status status;
    vrpi_extent *extent;
    uint64_t mapped = 0;
    VRPI_TRY(vrpi_nodes_reserve(core, 0, 1, 0));
    extent = vrpi_extent_node(core); /* taken now: the lock is dropped below */
    vrpi_reserved_add(core, bytes);  /* at once, so that no other thread overshoots */
    vrpi_mutex_unlock(&core->lock);
    status = core->ops->handle_create(core->ctx, bytes, &handle);
    if (status == VRP_OK) {
        status = map_at(core, addr, bytes, handle, &mapped);
        if (status != VRP_OK && status != VRP_DEVICE_LOST && mapped == 0 &&
            core->ops->handle_release(core->ctx, handle) == VRP_OK)
            handle = 0;
    }
    vrpi_mutex_lock(&core->lock);
    if (status != VRP_OK) {
        vrpi_driver_failed(core, status);
        if (handle != 0) {
            vrpi_orphan_keep(core, (vrpi_orphan){.handle = handle, .bytes = bytes, .addr = mapped});
            vrpi_reserved_commit(core, 0, 0); /* it stays reserved: the peak follows */
        } else {
            vrpi_reserved_sub(core, bytes);
        }
        vrpi_extent_node_free(core, extent);
        return status;
    }
    core->extents_created++;
    extent->addr = addr;
    extent->units = VRPI_UNITS(bytes);
    extent->handle = handle;
    extent->arena = arena;
    extent->live = 1;
    vrpi_extent_link(core, extent);
    return VRP_OK;
}

vrp_status vrpi_extent_release(vrpi_pool *core, vrpi_extent *extent) {
    uint64_t addr = extent->addr, bytes = VRPI_BYTES(extent);
    vrpi_arena *arena = extent->arena;
    vrp_status status, released = VRP_OK;
    if (core->backing == VRP_BACKING_MALLOC)
        return vrpi_segment_release(core, extent);
    vrpi_idle_remove(core, extent);
    extent->state = VRPI_EXTENT_TRANSIT;
    vrpi_mutex_unlock(&core->lock);
    status = core->ops->unmap(core->ctx, addr, bytes);
    if (status == VRP_OK)
        released = core->ops->handle_release(core->ctx, extent->handle);
    vrpi_mutex_lock(&core->lock);
    extent->state = VRPI_EXTENT_BACKED;
    if (status != VRP_OK) {
        vrpi_driver_failed(core, status);
        vrpi_idle_add(core, extent);
        return status;
    }
    core->extents_unmapped++;
    vrpi_extent_unlink(core, extent);
    if (released == VRP_OK) {
        vrpi_reserved_sub(core, bytes);
        core->trimmed_bytes += bytes;
    } else {
        vrpi_driver_failed(core, released);
        vrpi_orphan_keep(core, (vrpi_orphan){.handle = extent->handle, .bytes = bytes, .addr = 0});
    }
    vrpi_extent_node_free(core, extent);
    vrpi_arena_shrink(core, arena);
    return released;
}

/* What is left of a move: the extent stands at its new place. */
static void settle_at(vrpi_pool *core, vrpi_extent *extent, vrpi_arena *arena, uint64_t addr) {
    vrpi_arena *old = extent->arena;
    granules_set(core, old, extent->addr, VRPI_BYTES(extent), NULL);
    old->backed_bytes -= VRPI_BYTES(extent);
    arena->backed_bytes += VRPI_BYTES(extent);
    extent->arena = arena;
    extent->addr = addr;
    extent->live = 1;
    extent->state = VRPI_EXTENT_BACKED;
    granules_set(core, arena, addr, VRPI_BYTES(extent), extent);
}

static vrp_status move_done(vrpi_pool *core, vrpi_extent *extent, vrpi_arena *arena,
                            uint64_t addr) {
    uint64_t old_addr = extent->addr, bytes = VRPI_BYTES(extent);
    vrpi_arena *old = extent->arena;
    vrp_status status, unmapped;
    uint64_t mapped = 0;
    vrpi_mutex_unlock(&core->lock);
    unmapped = core->ops->unmap(core->ctx, old_addr, bytes);
    status = unmapped == VRP_OK ? map_at(core, addr, bytes, extent->handle, &mapped) : unmapped;
    vrpi_mutex_lock(&core->lock);
    if (unmapped == VRP_OK)
        core->extents_unmapped++;
    if (status == VRP_OK) {
        settle_at(core, extent, arena, addr);
        extent->stream = NULL;
        extent->stamp = 0;
        vrpi_arena_shrink(core, old);
        return VRP_OK;
    }
    vrpi_driver_failed(core, status);
    if (unmapped != VRP_OK) {
        extent->state = VRPI_EXTENT_BACKED;
        vrpi_idle_add(core, extent);
        return status;
    }
    /* It is mapped nowhere now: what is left is the handle. */
    extent->state = VRPI_EXTENT_BACKED;
    vrpi_extent_unlink(core, extent);
    vrpi_orphan_keep(core, (vrpi_orphan){.handle = extent->handle, .bytes = bytes, .addr = mapped});
    vrpi_extent_node_free(core, extent);
    vrpi_arena_shrink(core, old);
    vrpi_orphans_retry(core);
    return status;
}

static vrp_status move_early(vrpi_pool *core, vrpi_extent *extent, vrpi_arena *arena, uint64_t addr,
                             vrpi_stream *stream) {
    uint64_t old_addr = extent->addr, bytes = VRPI_BYTES(extent);
    vrpi_arena *old = extent->arena;
    vrpi_ghost *ghost = vrpi_ghost_node(core);
    uint32_t spare[2] = {vrpi_block_node(core), vrpi_block_node(core)};
    vrp_status status;
    uint64_t mapped = 0;
    if (extent->stream != NULL)
        extent->stream->busy++;
    vrpi_mutex_unlock(&core->lock);
    status = map_at(core, addr, bytes, extent->handle, &mapped);
    vrpi_mutex_lock(&core->lock);
    if (extent->stream != NULL)
        extent->stream->busy--;
    vrpi_block_node_free(core, spare[0]); /* taken above so that the carve finds two */
    vrpi_block_node_free(core, spare[1]);
    if (status != VRP_OK) {
        vrpi_driver_failed(core, status);
        if (mapped != 0)
            stray_keep(core, extent, mapped);
        vrpi_ghost_node_free(core, ghost);
        extent->state = VRPI_EXTENT_BACKED;
        vrpi_idle_add(core, extent);
        return status;
    }
    ghost->extent = extent;
    ghost->stream = extent->stream;
    ghost->stamp = extent->stamp;
    ghost->block = vrpi_block_carve(core, vrpi_block_at(core, old, old_addr), old_addr, bytes);
    vrpi_set_state(ghost->block, VRPI_GHOST);
    old->used_blocks++;
    if (ghost->stream != NULL)
        ghost->stream->refs++;
    extent->ghosts++;
    *core->ghosts_tail = ghost;
    core->ghosts_tail = &ghost->next;
    core->ghost_count++;
    if (extent->stream != NULL && extent->stream != stream) {
        /* `stream` waits for the old one, so that its own stamps cover both */
        extent->stream = stream;
        extent->stamp = vrpi_stamp(stream);
    }
    settle_at(core, extent, arena, addr);
    return VRP_OK;
}

vrp_status vrpi_extent_move(vrpi_pool *core, vrpi_extent *extent, vrpi_arena *arena, uint64_t addr,
                            vrpi_stream *stream) {
    /* With an older mapping still standing, the memory must never be mapped
     * nowhere: a failure could not be undone. */
    int done = vrpi_done(extent->stream, extent->stamp) && extent->ghosts == 0;
    VRPI_TRY(vrpi_nodes_reserve(core, 2, 0, 1));
    vrpi_idle_remove(core, extent);
    extent->state = VRPI_EXTENT_TRANSIT;
    return done ? move_done(core, extent, arena, addr)
                : move_early(core, extent, arena, addr, stream);
}

void vrpi_ghosts_poll(vrpi_pool *core) {
    vrpi_ghost **link = &core->ghosts;
    while (*link != NULL && vrpi_lost(core) == VRP_OK) {
        vrpi_ghost *ghost = *link;
        vrpi_block *block = ghost->block;
        vrpi_arena *arena = vrpi_arena_of(core, block);
        vrp_status status;
        if (!vrpi_done(ghost->stream, ghost->stamp)) {
            link = &ghost->next;
            continue;
        }
        *link = ghost->next;
        if (*link == NULL)
            core->ghosts_tail = link;
        vrpi_mutex_unlock(&core->lock);
        status = core->ops->unmap(core->ctx, block->addr, VRPI_BYTES(block));
        vrpi_mutex_lock(&core->lock);
        if (status != VRP_OK) {
            vrpi_driver_failed(core, status);
            ghost->next = NULL;
            *core->ghosts_tail = ghost;
            core->ghosts_tail = &ghost->next;
            return;
        }
        core->extents_unmapped++;
        core->ghost_count--;
        ghost->extent->ghosts--;
        if (ghost->stream != NULL)
            ghost->stream->refs--;
        arena->used_blocks--;
        vrpi_block_merge(core, block);
        vrpi_arena_shrink(core, arena);
        vrpi_ghost_node_free(core, ghost);
        link = &core->ghosts; /* the list may have changed */
    }
}
