/* SPDX-License-Identifier: MIT */
/* The malloc backing: a segment is one driver allocation, an arena with one
 * extent that always backs it whole. Giving one back waits for the device. */

#include "core/core.h"

vrp_status vrpi_segment_create(vrpi_pool *core, uint64_t bytes, vrpi_arena **out) {
    vrpi_arena *arena = vrpi_arena_new(core);
    vrpi_extent *extent;
    vrpi_block *block;
    uint32_t number;
    vrp_devptr base = 0;
    vrp_status status;
    if (arena == NULL)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for a segment");
    arena->bytes = bytes;
    status = vrpi_nodes_reserve(core, 4, 1, 0);
    if (status == VRP_OK)
        status = vrpi_arena_granules(core, arena, bytes);
    if (status != VRP_OK) {
        vrpi_arena_delete(core, arena);
        return status;
    }
    extent = vrpi_extent_node(core);
    number = vrpi_block_node(core);
    block = vrpi_block_of(core, number);
    vrpi_reserved_add(core, bytes);
    vrpi_mutex_unlock(&core->lock);
    status = core->ops->mem_alloc(core->ctx, bytes, &base);
    vrpi_mutex_lock(&core->lock);
    if (status == VRP_OK) {
        status = vrpi_map_prepare(core, base, bytes);
        if (status != VRP_OK) {
            vrpi_mutex_unlock(&core->lock);
            (void)core->ops->mem_free(core->ctx, base);
            vrpi_mutex_lock(&core->lock);
        }
    }
    if (status != VRP_OK) {
        vrpi_driver_failed(core, status);
        vrpi_reserved_sub(core, bytes);
        vrpi_extent_node_free(core, extent);
        vrpi_block_node_free(core, number);
        vrpi_arena_delete(core, arena);
        return status;
    }
    core->extents_created++;
    arena->base = base;
    arena->end = base + bytes;
    vrpi_arena_link(core, arena);
    extent->addr = block->addr = base;
    extent->units = block->units = VRPI_UNITS(bytes);
    extent->arena = arena;
    block->arena = arena->index;
    arena->first = arena->last = number;
    vrpi_arena_cover(core, arena, block, base, base + bytes);
    vrpi_extent_link(core, extent);
    vrpi_reserved_commit(core, bytes, 1);
    *out = arena;
    return VRP_OK;
}

vrp_status vrpi_segment_release(vrpi_pool *core, vrpi_extent *extent) {
    vrpi_arena *arena = extent->arena;
    uint64_t began, took;
    vrp_status status;
    vrpi_idle_remove(core, extent);
    extent->state = VRPI_EXTENT_TRANSIT;
    if (arena->space != NULL)
        vrpi_arena_detach(core, arena);
    arena->closing = 1;
    vrpi_mutex_unlock(&core->lock);
    began = vrpi_now_ns();
    status = core->ops->mem_free(core->ctx, extent->addr);
    took = vrpi_now_ns() - began;
    vrpi_mutex_lock(&core->lock);
    core->stalled_ns += took;
    extent->state = VRPI_EXTENT_BACKED;
    arena->closing = 0;
    if (status != VRP_OK) {
        vrpi_driver_failed(core, status);
        vrpi_idle_add(core, extent); /* a spare segment now */
        return status;
    }
    vrpi_reserved_sub(core, VRPI_BYTES(extent));
    core->trimmed_bytes += VRPI_BYTES(extent);
    vrpi_extent_unlink(core, extent);
    vrpi_extent_node_free(core, extent);
    vrpi_arena_forget(core, arena);
    return VRP_OK;
}
