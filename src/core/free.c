/* SPDX-License-Identifier: MIT */
/* Frees, and what is wrong with the wrong ones. */

#include "core/front.h"

/* Why an address cannot be freed. Lock held. */
static vrp_status bad_free(vrpi_pool *core, vrp_devptr ptr) {
    const vrpi_arena *arena = vrpi_arena_at(core, ptr);
    vrpi_block *block = arena != NULL ? vrpi_block_at(core, arena, ptr) : NULL;
    vrp_status status = VRP_ALREADY_FREED;
    if (arena == NULL) {
        status = VRP_NOT_OWNED;
    } else if (block != NULL && block->state == VRPI_SLAB) {
        uint32_t index = vrpi_slot_index(block->slab, ptr);
        uint8_t state =
            index < block->slab->slot_count
                ? atomic_load_explicit(&block->slab->slot[index].state, memory_order_relaxed)
                : VRPI_FREE;
        if (state == VRPI_LIVE || state == VRPI_SHARED)
            status = VRP_INTERIOR_POINTER;
    } else if (block != NULL && vrpi_is_live(block)) {
        status = VRP_INTERIOR_POINTER;
    } else if (block != NULL && block->state == VRPI_GROWABLE) {
        status = VRP_INVALID_ARGUMENT;
    }
    (void)vrpi_fail(status, "0x%llx: %s", (unsigned long long)ptr,
                    status == VRP_INVALID_ARGUMENT ? "a growable buffer ends by its own call"
                                                   : vrp_status_message(status));
    vrpi_fail_address(ptr);
    return status;
}

vrp_status vrpi_free_check(vrpi_pool *core, vrp_devptr ptr, vrpi_block **out) {
    vrpi_block *block = vrpi_map_get(core, ptr);
    if (block == NULL)
        return bad_free(core, ptr);
    if (block->state == VRPI_SLAB) {
        const vrpi_slab *slab = block->slab;
        uint32_t index = vrpi_slot_index(slab, ptr);
        uint8_t state;
        if (index >= slab->slot_count || slab->addr + (uint64_t)index * slab->slot_bytes != ptr)
            return bad_free(core, ptr);
        state = atomic_load_explicit(&slab->slot[index].state, memory_order_relaxed);
        if (state != VRPI_LIVE && state != VRPI_SHARED)
            return bad_free(core, ptr);
    } else if (block->addr != ptr || !vrpi_is_live(block)) {
        return bad_free(core, ptr);
    }
    *out = block;
    return VRP_OK;
}

/* A slot goes to the thread's magazine, which makes room by half if it is full. */
static void put_slot(vrpi_pool *core, vrpi_thread *t, vrpi_slab *slab, uint32_t index) {
    vrpi_front *front = NULL;
    if ((core->config.flags & VRP_STREAMS_UNTRACKED) == 0 && !slab->stream->forgotten &&
        t != NULL && (!slab->stream->per_thread || slab->stream->owner == t))
        front = vrpi_front_get(core, t, slab->stream, slab->stream->handle);
    if (front != NULL) {
        vrpi_magazine *mag = &front->mag[slab->klass];
        int put = vrpi_front_put_slot(front, slab, index);
        if (!put && vrpi_mag_count(mag) > 1) {
            if (!vrpi_depot_put(core, front, slab->klass))
                for (uint32_t n = vrpi_mag_count(mag) / 2; n > 0; n--)
                    vrpi_slot_drop(core, mag);
            put = vrpi_front_put_slot(front, slab, index);
        }
        if (put)
            return;
    }
    vrpi_slab_put(core, slab, index);
}

static void count_free(vrpi_pool *core, vrpi_thread *t, uint8_t tag, uint32_t scope,
                       uint64_t requested, uint64_t allocated) {
    if (t == NULL) {
        vrpi_count_many(core, tag, scope, -1, -(int64_t)requested, -(int64_t)allocated);
        return;
    }
    vrpi_count_free(t, tag, scope, requested, allocated);
}

void vrpi_free_live(vrpi_pool *core, vrpi_thread *t, vrpi_block *block, vrp_devptr ptr,
                    vrpi_stream *by, int count) {
    vrpi_slab *slab = vrpi_slab_of(block);
    vrpi_stream *owner = vrpi_arena_of(core, block)->stream;
    int foreign = by != NULL && by != owner;
    core->ticks++;
    if (slab != NULL) {
        uint32_t index = vrpi_slot_index(slab, ptr);
        vrpi_slot *slot = &slab->slot[index];
        int shared = slot->state == VRPI_SHARED;
        if (count)
            count_free(core, t, slot->tag, slot->scope, slab->slot_bytes - (uint64_t)slot->waste,
                       slab->slot_bytes);
        if (!(foreign || shared) || !vrpi_defer(core, block, ptr, by))
            put_slot(core, t, slab, index);
    } else {
        if (count)
            count_free(core, t, block->tag, block->scope, vrpi_requested(block), VRPI_BYTES(block));
        if (!(foreign || block->state == VRPI_SHARED) || !vrpi_defer(core, block, ptr, by))
            vrpi_block_free(core, block, vrpi_stamp(owner));
    }
    if (count && (core->config.flags & VRP_STREAMS_UNTRACKED) != 0) {
        /* The stream may be destroyed without a word: the event is due now. */
        owner->busy++;
        (void)vrpi_record(core, t, owner);
        owner->busy--;
        if (foreign)
            (void)vrpi_record(core, t, by);
    }
}

/* The stream of a free, NULL for the block's own. Lock held. */
static vrp_status stream_of_free(vrpi_pool *core, vrpi_thread *t, const vrpi_block *block,
                                 vrp_stream handle, uint64_t key, vrpi_stream **out) {
    vrpi_stream *owner = vrpi_arena_of(core, block)->stream;
    vrpi_stream *found;
    *out = NULL;
    if (handle == VRP_STREAM_OF_ALLOC)
        return VRP_OK;
    found = vrpi_stream_find(core, t, handle, key);
    if (owner->graph != NULL && found != NULL && !found->whole)
        return VRP_OK; /* ordered by the graphs */
    if (found == owner || (found == NULL && owner->forgotten && owner->key == key))
        return VRP_OK;
    if (found != NULL) {
        *out = found;
        return VRP_OK;
    }
    return vrpi_stream_get(core, t, handle, key, out);
}

static vrp_status slow(vrp_pool *pool, vrp_devptr ptr, vrp_stream handle) {
    vrpi_pool *core;
    vrpi_thread *t;
    vrpi_block *block = NULL;
    vrpi_stream *by = NULL;
    uint64_t key = 0;
    vrp_status status = VRP_OK;
    VRPI_TRY(vrpi_enter(pool));
    core = pool->core;
    t = vrpi_thread_get(pool); /* without host memory: NULL, and no cache */
    if (handle != VRP_STREAM_OF_ALLOC && vrpi_stream_key(core, handle, &key) != VRP_OK)
        handle = VRP_STREAM_OF_ALLOC; /* a stream that the driver does not know any more */
    vrpi_mutex_lock(&core->lock);
    vrpi_held_flush(core, t);
    status = vrpi_free_check(core, ptr, &block);
    if (status == VRP_OK) {
        if (stream_of_free(core, t, block, handle, key, &by) != VRP_OK) {
            /* No host memory to remember that stream: its work is waited for,
             * the one case in which a free may block. */
            vrpi_mutex_unlock(&core->lock);
            status = core->ops->synchronize(core->ctx);
            vrpi_mutex_lock(&core->lock);
            by = NULL;
            if (status == VRP_OK)
                status = vrpi_free_check(core, ptr, &block); /* the lock was dropped */
        }
        if (status == VRP_OK) {
            vrpi_free_live(core, t, block, ptr, by, 1);
            vrpi_tend(core, t);
        }
    }
    vrpi_mutex_unlock(&core->lock);
    if (status != VRP_OK)
        (void)atomic_fetch_add_explicit(&core->bad_frees, 1, memory_order_relaxed);
    vrpi_exit(pool);
    return status;
}

/* Everything that is no quick hit. */
static __attribute__((noinline)) vrp_status free_checked(vrp_pool *pool, vrp_devptr ptr,
                                                         vrp_stream stream) {
    vrpi_thread *t;
    int hit = 0;
    if (pool == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_free: pool is NULL");
    if (ptr == 0)
        return vrpi_pool_usable(pool);
    t = vrpi_thread_peek(pool);
    if (t != NULL && vrpi_gate_pass(&t->gate)) {
        hit = vrpi_hit_free_found(t, vrpi_map_find(t->core, ptr), ptr, stream);
        vrpi_gate_leave(&t->gate);
    }
    return hit ? VRP_OK : slow(pool, ptr, stream);
}

/* Inside the gate. */
static __attribute__((noinline)) vrp_status free_found(vrp_pool *pool, vrp_devptr ptr,
                                                       vrp_stream stream, vrpi_thread *t) {
    int hit = vrpi_hit_free_found(t, vrpi_map_find(t->core, ptr), ptr, stream);
    vrpi_gate_leave(&t->gate);
    return hit ? VRP_OK : free_checked(pool, ptr, stream);
}

vrp_status vrp_free(vrp_pool *pool, vrp_devptr ptr, vrp_stream stream) {
    vrpi_thread *t = vrpi_current;
    vrpi_found found;
    if (!VRPI_LIKELY(vrpi_thread_is_of(t, pool) && vrpi_gate_pass_cheap(&t->gate)))
        return free_checked(pool, ptr, stream);
    found = vrpi_map_peek(t->core, ptr);
    if (VRPI_LIKELY(found & VRPI_MAP_SLAB) &&
        VRPI_LIKELY(vrpi_quick_free_slot(t, vrpi_found_slab(found), ptr, stream)))
        return VRP_OK;
    return free_found(pool, ptr, stream, t);
}
