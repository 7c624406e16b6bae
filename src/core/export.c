/* SPDX-License-Identifier: MIT */
/* Blocks shared with other processes. An exportable block fills a range and an
 * extent of its own. What is exported hangs on the block's uses: a block that
 * is freed while other processes have it waits, like one that other streams use. */

#include "core/core.h"

#include <string.h>

vrp_status vrpi_export_place(vrpi_pool *core, vrpi_request *r, vrpi_stream *stream,
                             vrpi_block **out) {
    uint64_t bytes = r->size; /* whole granules */
    vrpi_arena *arena;
    vrpi_block *block;
    vrp_status status;
    VRPI_TRY(vrpi_arena_create(core, bytes, &arena));
    vrpi_arena_attach(core, arena, stream, VRPI_CLASS_HUGE);
    status = vrpi_nodes_reserve(core, 4, 1, 0);
    if (status == VRP_OK)
        status = vrpi_arena_granules(core, arena, arena->base + bytes);
    if (status != VRP_OK)
        return status; /* an empty range is reclaimed in time */
    vrpi_arena_extend(core, arena, arena->base + bytes);
    block = vrpi_block_carve(core, vrpi_last(core, arena), arena->base, bytes);
    vrpi_set_state(block, VRPI_PLACING);
    vrpi_map_put(core, block);
    arena->used_blocks++;
    while (vrpi_growth_is_barred(core, bytes) && vrpi_release_one(core, bytes))
        continue;
    do
        status = vrpi_limit_exceeded(core, bytes)
                     ? VRP_OUT_OF_DEVICE_MEMORY
                     : vrpi_extent_create(core, arena, block->addr, bytes);
    while (status == VRP_OUT_OF_DEVICE_MEMORY && (status = vrpi_oom(core, r, bytes)) == VRP_OK);
    if (status != VRP_OK) {
        vrpi_map_take(core, block);
        arena->used_blocks--;
        vrpi_block_merge(core, block);
        vrpi_arena_shrink(core, arena);
        return status;
    }
    vrpi_reserved_commit(core, bytes, 1);
    arena->space->taken_bytes += bytes;
    block->born = (uint32_t)core->ticks;
    *out = block;
    return VRP_OK;
}

/* The one extent that a block fills, or NULL. */
static vrpi_extent *extent_of(const vrpi_pool *core, const vrpi_block *block) {
    const vrpi_arena *arena = vrpi_arena_of(core, block);
    vrpi_extent *e = arena->granules[vrpi_granule_of(core, arena, block->addr)];
    return e != NULL && e != &core->claimed && e->addr == block->addr &&
                   VRPI_BYTES(e) == VRPI_BYTES(block)
               ? e
               : NULL;
}

static vrp_status kind_check(const vrpi_pool *core, const vrpi_block *block, int32_t kind,
                             vrpi_extent **out) {
    const vrp_driver_ops *o = core->ops;
    *out = NULL;
    if (kind == VRP_EXPORT_IPC) {
        if (core->backing != VRP_BACKING_MALLOC || o->ipc_export == NULL)
            return vrpi_fail(VRP_NOT_SUPPORTED, "IPC handles need the malloc backing%s",
                             o->ipc_export == NULL ? " and a driver that has them" : "");
        return VRP_OK;
    }
    if (kind == VRP_EXPORT_POSIX_FD ? o->handle_export == NULL || core->backing != VRP_BACKING_VMM
                                    : o->range_export == NULL)
        return vrpi_fail(VRP_NOT_SUPPORTED, "the driver or the backing cannot export %s",
                         kind == VRP_EXPORT_POSIX_FD ? "handles as descriptors" : "DMA-BUFs");
    *out = vrpi_slab_of(block) == NULL ? extent_of(core, block) : NULL;
    if (*out == NULL && core->backing == VRP_BACKING_VMM)
        return vrpi_fail(VRP_INVALID_ARGUMENT,
                         "0x%llx shares its memory with other blocks: it was not allocated with "
                         "VRP_ALLOC_EXPORTABLE",
                         (unsigned long long)block->addr);
    return VRP_OK;
}

/* Lock held, dropped for the driver call: the block is counted as exported before. */
static vrp_status call_driver(vrpi_pool *core, vrp_devptr ptr, uint64_t bytes,
                              const vrpi_extent *extent, vrp_export_info *info) {
    vrp_handle handle = extent != NULL ? extent->handle : 0;
    vrp_status status;
    vrpi_mutex_unlock(&core->lock);
    if (info->kind == VRP_EXPORT_POSIX_FD)
        status = core->ops->handle_export(core->ctx, handle, &info->fd);
    else if (info->kind == VRP_EXPORT_DMA_BUF)
        status = core->ops->range_export(core->ctx, ptr, bytes, &info->fd);
    else
        status = core->ops->ipc_export(core->ctx, ptr, info->ipc_handle);
    vrpi_mutex_lock(&core->lock);
    if (status != VRP_OK)
        vrpi_driver_failed(core, status);
    return status;
}

static vrpi_uses *find_exported(vrpi_pool *core, vrp_devptr ptr, vrpi_uses ***out_place) {
    vrpi_block *block = vrpi_map_get(core, ptr);
    vrpi_uses **place;
    *out_place = NULL;
    for (vrpi_uses *u = core->deferred; u != NULL; u = u->next)
        if (u->ptr == ptr && u->exports > 0)
            return u;
    if (block == NULL ||
        (vrpi_slab_of(block) == NULL && (block->addr != ptr || block->state != VRPI_SHARED)))
        return NULL;
    place = vrpi_uses_place(core, block, ptr);
    if (place == NULL || *place == NULL || (*place)->exports == 0)
        return NULL;
    *out_place = place;
    return *place;
}

static uint64_t bytes_of(const vrpi_block *block) {
    const vrpi_slab *slab = vrpi_slab_of(block);
    return slab != NULL ? slab->slot_bytes : VRPI_BYTES(block);
}

static void close_one(vrpi_pool *core, vrpi_uses *uses, vrpi_uses **place) {
    if (--uses->exports > 0)
        return;
    core->exported_bytes -= bytes_of(vrpi_map_get(core, uses->ptr));
    if (place != NULL && uses->count == 0) /* live, and nobody else uses it */
        vrpi_uses_unannounce(core, vrpi_map_get(core, uses->ptr), place);
}

static vrp_status export_block(vrpi_pool *core, vrp_devptr ptr, vrp_export_info *info) {
    vrpi_block *block;
    vrpi_extent *extent;
    vrpi_uses **place, *uses;
    vrp_status status;
    VRPI_TRY(vrpi_free_check(core, ptr, &block));
    VRPI_TRY(kind_check(core, block, info->kind, &extent));
    if (!vrpi_uses_announce(core, block, ptr, NULL))
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory to remember an export");
    place = vrpi_uses_place(core, block, ptr);
    uses = *place;
    if (uses->exports++ == 0)
        core->exported_bytes += bytes_of(block);
    info->bytes = bytes_of(block);
    status = call_driver(core, ptr, info->bytes, extent, info);
    if (status != VRP_OK) {
        uses = find_exported(core, ptr, &place); /* it may have been freed meanwhile */
        close_one(core, uses, place);
        (void)vrpi_deferred_poll(core);
    } else if (info->kind == VRP_EXPORT_IPC) {
        info->offset_bytes = ptr - vrpi_arena_of(core, block)->base;
    }
    return status;
}

vrp_status vrp_block_export(struct vrp_pool *pool, vrp_devptr ptr, int32_t kind,
                            vrp_export_info *out_info) {
    vrp_export_info info = {.struct_size = sizeof info, .kind = kind, .fd = -1};
    vrp_status status;
    if (out_info == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_block_export: out_info is NULL");
    if (kind < VRP_EXPORT_POSIX_FD || kind > VRP_EXPORT_DMA_BUF)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "no kind of export %d", kind);
    if (out_info->struct_size == 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_export_info.struct_size is 0");
    VRPI_TRY(vrpi_enter(pool));
    vrpi_mutex_lock(&pool->core->lock);
    status = export_block(pool->core, ptr, &info);
    vrpi_mutex_unlock(&pool->core->lock);
    vrpi_exit(pool);
    return status != VRP_OK ? status
                            : vrpi_struct_out(out_info, &info, sizeof info, "vrp_export_info");
}

vrp_status vrp_block_export_close(struct vrp_pool *pool, vrp_devptr ptr) {
    vrpi_uses *uses, **place;
    VRPI_TRY(vrpi_enter(pool));
    vrpi_mutex_lock(&pool->core->lock);
    uses = find_exported(pool->core, ptr, &place);
    if (uses != NULL) {
        close_one(pool->core, uses, place);
        (void)vrpi_deferred_poll(pool->core);
    }
    vrpi_mutex_unlock(&pool->core->lock);
    vrpi_exit(pool);
    return uses != NULL
               ? VRP_OK
               : vrpi_fail(VRP_INVALID_ARGUMENT, "0x%llx is not exported", (unsigned long long)ptr);
}

/* A pool that is destroyed by force forgets its exports. Lock held. */
uint64_t vrpi_exports_end(vrpi_pool *core, int force) {
    uint64_t count = 0;
    for (vrpi_uses *u = core->deferred; u != NULL; u = u->next)
        if (u->exports > 0) {
            count++;
            if (force)
                u->exports = 0;
        }
    if (force)
        core->exported_bytes = 0;
    return count;
}
