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
vrpi_uses **vrpi_uses_place(vrpi_pool *core, vrpi_block *block, vrp_devptr ptr) {
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

/* Where the driver has no context-wide record: every stream that is known. */
static int add_known(vrpi_pool *core, vrpi_uses **place, vrp_devptr ptr) {
    for (vrpi_stream *s = core->streams; s != NULL; s = s->next)
        if (!s->whole && s->graph == NULL && s->after == NULL &&
            !vrpi_uses_add(core, place, ptr, s))
            return 0;
    return 1;
}

int vrpi_uses_add(vrpi_pool *core, vrpi_uses **place, vrp_devptr ptr, vrpi_stream *stream) {
    vrpi_uses *uses = *place;
    for (uint32_t i = 0; uses != NULL && i < uses->count; i++)
        if (uses->use[i].stream == stream)
            return 1;
    if (uses != NULL && stream == NULL)
        return 1;
    if (stream != NULL && stream->whole && core->ops->context_record == NULL)
        return add_known(core, place, ptr);
    if (uses == NULL || uses->count == uses->capacity) {
        uint32_t capacity = uses == NULL ? 2 : uses->capacity * 2;
        vrpi_uses *grown = vrpi_host_alloc(core, bytes_of(capacity));
        if (grown == NULL)
            return 0;
        if (uses != NULL) {
            memcpy(grown, uses, bytes_of(uses->count)); /* exports and marks too */
            vrpi_host_free(core, uses, bytes_of(uses->capacity));
        }
        grown->capacity = capacity;
        grown->ptr = ptr;
        *place = uses = grown;
    }
    if (stream == NULL)
        return 1;
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

/* A live block gets one more user (NULL: an entry for nobody yet), and is one that
 * hits leave alone. 0: no host memory. */
int vrpi_uses_announce(vrpi_pool *core, vrpi_block *block, vrp_devptr ptr, vrpi_stream *stream) {
    int plain = block->state == VRPI_LIVE; /* a block that no other stream uses yet */
    uint64_t requested = vrpi_requested(block);
    vrpi_uses **place = vrpi_uses_place(core, block, ptr);
    if (place == NULL || !vrpi_uses_add(core, place, ptr, stream)) {
        if (plain)
            block->requested = requested;
        return 0;
    }
    if (plain)
        block->uses->requested = requested;
    set_state(block, ptr, VRPI_SHARED);
    return 1;
}

/* The last user of a live block is one no more: it is like others again. */
void vrpi_uses_unannounce(vrpi_pool *core, vrpi_block *block, vrpi_uses **place) {
    vrpi_uses *uses = *place;
    uint64_t requested = uses->requested;
    vrp_devptr ptr = uses->ptr;
    *place = NULL;
    if (vrpi_slab_of(block) == NULL)
        block->requested = requested;
    set_state(block, ptr, VRPI_LIVE);
    vrpi_uses_free(core, uses);
}

void vrpi_uses_stamp(vrpi_uses *uses) {
    for (uint32_t i = 0; i < uses->count; i++)
        uses->use[i].stamp = vrpi_stamp(uses->use[i].stream);
}

static void defer_now(vrpi_pool *core, vrpi_block *block, vrp_devptr ptr, vrpi_uses **place) {
    vrpi_uses *uses = *place;
    *place = NULL;
    vrpi_uses_stamp(uses);
    set_state(block, ptr, VRPI_DEFERRED);
    uses->next = core->deferred;
    core->deferred = uses;
}

/* Puts a freed block on the list of those that wait for others. 0: there is
 * nothing to wait for any more. */
int vrpi_defer(vrpi_pool *core, vrpi_block *block, vrp_devptr ptr, vrpi_stream *by) {
    vrpi_uses **place = vrpi_uses_place(core, block, ptr);
    if (place == NULL || (by != NULL && by != vrpi_arena_of(core, block)->stream &&
                          !vrpi_uses_add(core, place, ptr, by))) {
        /* No host memory to remember whom to wait for: wait now. If that fails
         * too, the block stays out of use. */
        vrp_status status;
        set_state(block, ptr, VRPI_DEFERRED);
        vrpi_mutex_unlock(&core->lock);
        status = core->ops->synchronize(core->ctx);
        vrpi_mutex_lock(&core->lock);
        if (status != VRP_OK)
            return 1;
        if (place != NULL && *place != NULL && (*place)->exports > 0) {
            defer_now(core, block, ptr, place); /* what it waits for is the others' close */
            return 1;
        }
        if (place != NULL && *place != NULL) {
            vrpi_uses_free(core, *place);
            *place = NULL;
        }
        return 0;
    }
    if (*place == NULL)
        return 0; /* no known stream but its own */
    defer_now(core, block, ptr, place);
    return 1;
}

int vrpi_uses_done(const vrpi_uses *uses) {
    if (uses->exports > 0)
        return 0; /* other processes have it */
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
        if (!vrpi_uses_done(uses)) {
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
    VRPI_TRY(vrpi_free_check(core, ptr, &block));
    VRPI_TRY(vrpi_stream_get(core, t, handle, key, &stream));
    if (stream == vrpi_arena_of(core, block)->stream)
        return VRP_OK;
    return vrpi_uses_announce(core, block, ptr, stream)
               ? VRP_OK
               : vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory to remember the stream");
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

/* Frees that name no stream have one fence for many, and are asked after. */
static int fence_due(const vrpi_pool *core) {
    return core->whole != NULL && core->whole->completed < core->whole->seq;
}

/* One fence for some frees, or for as many bytes: sooner, a loop of pairs would pay for
 * one each time, later, it would grow. 1: the lock was dropped meanwhile. */
int vrpi_fence(vrpi_pool *core, vrpi_thread *t, uint64_t bytes) {
    enum { BATCH = 8 };
    const uint64_t large = UINT64_C(16) << 20;
    int due;
    if (!fence_due(core))
        return 0;
    due = core->whole->seq - core->whole->covered >= BATCH || bytes >= large;
    if (due)
        (void)vrpi_record(core, t, core->whole);
    if (core->whole->ring_count == 0)
        return due;
    vrpi_poll(core, t);
    return 1;
}

void vrpi_tend(vrpi_pool *core, vrpi_thread *t) {
    enum { GHOSTS_MANY = 16, OFTEN = 16 };
    if (core->ticks % OFTEN == 0)
        (void)vrpi_fence(core, t, 0);
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
