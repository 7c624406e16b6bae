/* SPDX-License-Identifier: MIT */
/* Blocks that several streams use: announced while live, deferred once freed,
 * free for their own stream when the others are done. */

#include "core/core.h"

#include <string.h>

static size_t bytes_of(uint32_t capacity) {
    return sizeof(vrpi_uses) + capacity * sizeof(struct vrpi_use);
}

void vrpi_uses_free(vrpi_pool *core, vrpi_uses *uses) {
    for (uint32_t i = 0; i < uses->count; i++)
        uses->use[i].stream->refs--;
    vrpi_host_free(core, uses, bytes_of(uses->capacity));
}

/* Where the uses of a block or slot hang; NULL: no host memory. A block that had
 * none keeps there what was requested, which the caller has to save. */
static vrpi_uses **place_of(vrpi_pool *core, vrpi_block *block, vrp_devptr ptr) {
    vrpi_slab *slab = vrpi_slab_of(block);
    if (slab == NULL) {
        if (block->state != VRPI_SHARED)
            block->uses = NULL;
        return &block->uses;
    }
    if (slab->uses == NULL) {
        slab->uses = vrpi_host_alloc(core, slab->slot_count * sizeof *slab->uses);
        if (slab->uses == NULL)
            return NULL;
    }
    return &slab->uses[vrpi_slot_index(slab, ptr)];
}

static int add(vrpi_pool *core, vrpi_uses **place, vrp_devptr ptr, vrpi_stream *stream) {
    vrpi_uses *uses = *place;
    if (uses != NULL)
        for (uint32_t i = 0; i < uses->count; i++)
            if (uses->use[i].stream == stream)
                return 1;
    if (uses == NULL || uses->count == uses->capacity) {
        uint32_t capacity = uses == NULL ? 2 : uses->capacity * 2;
        vrpi_uses *grown = vrpi_host_alloc(core, bytes_of(capacity));
        if (grown == NULL)
            return 0;
        if (uses != NULL) {
            memcpy(grown, uses, bytes_of(uses->count));
            vrpi_host_free(core, uses, bytes_of(uses->capacity));
        }
        grown->capacity = capacity;
        grown->ptr = ptr;
        *place = uses = grown;
    }
    uses->use[uses->count].stream = stream;
    uses->use[uses->count++].stamp = 0;
    stream->refs++;
    return 1;
}

static void set_state(vrpi_block *block, vrp_devptr ptr, uint8_t state) {
    vrpi_slab *slab = vrpi_slab_of(block);
    if (slab != NULL)
        atomic_store_explicit(&slab->slot[vrpi_slot_index(slab, ptr)].state, state,
                              memory_order_relaxed);
    else
        vrpi_set_state(block, state);
}

/* Puts a freed block on the list of those that wait for others. 0: there is
 * nothing to wait for any more. */
int vrpi_defer(vrpi_pool *core, vrpi_block *block, vrp_devptr ptr, vrpi_stream *by) {
    vrpi_uses **place = place_of(core, block, ptr);
    vrpi_uses *uses;
    if (place == NULL ||
        (by != NULL && by != vrpi_arena_of(core, block)->stream && !add(core, place, ptr, by))) {
        /* No host memory to remember whom to wait for: wait now. If that fails
         * too, the block stays out of use. */
        vrp_status status;
        set_state(block, ptr, VRPI_DEFERRED);
        vrpi_mutex_unlock(&core->lock);
        status = core->ops->synchronize(core->ctx);
        vrpi_mutex_lock(&core->lock);
        if (status != VRP_OK)
            return 1;
        if (place != NULL && *place != NULL) {
            vrpi_uses_free(core, *place);
            *place = NULL;
        }
        return 0;
    }
    uses = *place;
    *place = NULL;
    for (uint32_t i = 0; i < uses->count; i++)
        uses->use[i].stamp = vrpi_stamp(uses->use[i].stream);
    set_state(block, ptr, VRPI_DEFERRED);
    uses->next = core->deferred;
    core->deferred = uses;
    return 1;
}

static int all_done(const vrpi_uses *uses) {
    for (uint32_t i = 0; i < uses->count; i++)
        if (!vrpi_done(uses->use[i].stream, uses->use[i].stamp))
            return 0;
    return 1;
}

int vrpi_deferred_poll(vrpi_pool *core) {
    int any = 0;
    vrpi_uses **link = &core->deferred;
    while (*link != NULL) {
        vrpi_uses *uses = *link;
        vrpi_block *block;
        vrpi_slab *slab;
        uint64_t addr, bytes;
        if (!all_done(uses)) {
            link = &uses->next;
            continue;
        }
        *link = uses->next;
        block = vrpi_map_get(core, uses->ptr);
        bytes = VRPI_BYTES(block);
        addr = block->addr;
        slab = vrpi_slab_of(block);
        if (slab != NULL)
            vrpi_slab_put(core, slab, vrpi_slot_index(slab, uses->ptr));
        else
            vrpi_block_free(core, block, vrpi_stamp(vrpi_arena_of(core, block)->stream));
        if (uses->marked)
            vrpi_mark_range(core, addr, bytes);
        vrpi_uses_free(core, uses);
        any = 1;
    }
    return any;
}

static vrp_status announce(vrpi_pool *core, vrpi_thread *t, vrp_devptr ptr, vrp_stream handle,
                           uint64_t key) {
    vrpi_block *block;
    vrpi_stream *stream;
    vrpi_uses **place;
    uint64_t requested;
    int plain; /* a block that no other stream uses yet */
    VRPI_TRY(vrpi_free_check(core, ptr, &block));
    VRPI_TRY(vrpi_stream_get(core, t, handle, key, &stream));
    if (stream == vrpi_arena_of(core, block)->stream)
        return VRP_OK;
    plain = block->state == VRPI_LIVE;
    requested = vrpi_requested(block);
    place = place_of(core, block, ptr);
    if (place == NULL || !add(core, place, ptr, stream)) {
        if (plain)
            block->requested = requested;
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory to remember the stream");
    }
    if (plain)
        block->uses->requested = requested;
    set_state(block, ptr, VRPI_SHARED);
    return VRP_OK;
}

vrp_status vrp_record_stream(vrp_pool *pool, vrp_devptr ptr, vrp_stream stream) {
    vrpi_thread *t;
    uint64_t key;
    vrp_status status;
    if (ptr == 0)
        return vrpi_pool_usable(pool);
    if (stream == VRP_STREAM_OF_ALLOC) {
        VRPI_TRY(vrpi_pool_usable(pool));
        return vrpi_fail(VRP_INVALID_ARGUMENT, "no stream is named");
    }
    VRPI_TRY(vrpi_enter_stream(pool, stream, &t, &key));
    vrpi_mutex_lock(&pool->core->lock);
    status = announce(pool->core, t, ptr, stream, key);
    vrpi_mutex_unlock(&pool->core->lock);
    vrpi_exit(pool);
    return status;
}

void vrpi_tend(vrpi_pool *core, vrpi_thread *t) {
    enum { GHOSTS_MANY = 16, OFTEN = 16 };
    if (core->ghost_count >= GHOSTS_MANY && core->ticks % OFTEN == 0) {
        for (vrpi_ghost *ghost = core->ghosts; ghost != NULL; ghost = ghost->next)
            if (ghost->stream != NULL && ghost->stamp > ghost->stream->covered)
                ghost->stream->wanted = 1;
        (void)vrpi_record_wanted(core, t);
        vrpi_poll(core, t);
    }
    if (core->marked_count > 0 && core->ticks % OFTEN == 0) {
        (void)vrpi_record_idle(core, t); /* a trim is pending: it ends here */
        vrpi_poll(core, t);
    }
    vrpi_idle_age(core, t);
}
