/* SPDX-License-Identifier: MIT */
/* Growable buffers. With the vmm backing each is an arena of its own whose
 * first block grows in place; with the malloc backing a block that is copied
 * into a new one. */

#include "core/core.h"

#include <stdlib.h>

struct vrp_growable {
    vrp_growable *next, **link; /* core->growables */
    vrp_pool *pool;
    vrpi_arena *arena;   /* vmm */
    vrpi_block *block;   /* vmm, while size > 0 */
    vrpi_stream *stream; /* vmm: counted in its refs */
    vrp_stream handle;
    uint64_t max, size; /* as asked */
    vrp_devptr base;
    vrp_scope scope;
    uint8_t tag;
    uint8_t ended; /* its scope was released, or its pool destroyed */
    uint8_t busy;  /* a resize is inside a driver call */
};

static uint64_t unit_up(uint64_t bytes) { return (bytes + VRPI_UNIT - 1) & ~(VRPI_UNIT - 1); }

static uint64_t granule_up(const vrpi_pool *core, uint64_t bytes) {
    return (bytes + core->granularity - 1) / core->granularity * core->granularity;
}

static void link_buffer(vrpi_pool *core, vrp_growable *b) {
    b->next = core->growables;
    b->link = &core->growables;
    if (b->next != NULL)
        b->next->link = &b->next;
    core->growables = b;
}

static void unlink_buffer(vrp_growable *b) {
    *b->link = b->next;
    if (b->next != NULL)
        b->next->link = b->link;
}

static vrp_status create_vmm(vrpi_pool *core, vrp_growable *b) {
    vrp_status status = vrpi_arena_create(core, granule_up(core, b->max), &b->arena);
    if (status != VRP_OK && vrpi_arena_reclaim(core))
        status = vrpi_arena_create(core, granule_up(core, b->max), &b->arena);
    if (status == VRP_OK) {
        b->arena->klass = VRPI_CLASS_GROWABLE;
        b->arena->stream = b->stream;
        b->base = b->arena->base;
        status = vrpi_arena_granules(core, b->arena, b->arena->base + b->arena->bytes);
        if (status != VRP_OK)
            (void)vrpi_arena_release(core, b->arena);
    }
    return status;
}

vrp_status vrp_growable_create(vrp_pool *pool, const vrp_growable_info *info,
                               vrp_growable **out_buffer) {
    vrp_growable_info in;
    vrp_growable *b = NULL;
    vrpi_pool *core;
    vrpi_thread *t;
    uint64_t key = 0;
    vrp_status status = VRP_OK;
    if (out_buffer == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_growable_create: out_buffer is NULL");
    VRPI_TRY(vrpi_struct_in(&in, sizeof in, info, "vrp_growable_info"));
    if (in.tag < 0 || in.tag >= VRP_TAG_COUNT || in.stream == VRP_STREAM_OF_ALLOC)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_growable_info: tag %d or the stream is none",
                         in.tag);
    if (in.max_bytes == 0 || in.max_bytes >= UINT64_C(1) << 47)
        return vrpi_fail(VRP_INVALID_SIZE, "vrp_growable_info.max_bytes is %llu",
                         (unsigned long long)in.max_bytes);
    VRPI_TRY(vrpi_enter(pool));
    core = pool->core;
    t = vrpi_thread_get(pool);
    if (t == NULL)
        status = vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for a thread");
    else
        status = vrpi_stream_key(core, in.stream, &key);
    if (status == VRP_OK) {
        vrpi_mutex_lock(&core->lock);
        if (in.scope != 0 && !vrpi_scope_is(core, in.scope, 1, 1))
            status = vrpi_fail(VRP_INVALID_ARGUMENT, "scope 0x%llx is not open",
                               (unsigned long long)in.scope);
        else if ((b = calloc(1, sizeof *b)) == NULL) /* may outlive the pool */
            status = vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for a buffer");
        if (status == VRP_OK) {
            b->pool = pool;
            b->handle = in.stream;
            b->max = in.max_bytes;
            b->scope = in.scope;
            b->tag = (uint8_t)in.tag;
            status = vrpi_stream_get(core, t, b->handle, key, &b->stream);
            if (status == VRP_OK)
                b->stream->refs++;
            if (status == VRP_OK && core->backing == VRP_BACKING_VMM)
                status = create_vmm(core, b);
            if (status != VRP_OK && b->stream != NULL)
                b->stream->refs--;
            if (status == VRP_OK)
                link_buffer(core, b);
            else
                free(b);
        }
        vrpi_mutex_unlock(&core->lock);
    }
    vrpi_exit(pool);
    if (status == VRP_OK)
        *out_buffer = b;
    return status;
}

/* The block of a buffer gets a new size; the rest of the arena is no block. */
static void block_resize(vrpi_pool *core, vrp_growable *b, uint64_t bytes) {
    vrpi_arena *arena = b->arena;
    if (b->block == NULL && bytes > 0) {
        arena->first = arena->last = vrpi_block_node(core);
        b->block = vrpi_first(core, arena);
        b->block->addr = arena->base;
        b->block->arena = arena->index;
        vrpi_set_state(b->block, VRPI_GROWABLE);
        arena->used_blocks = 1;
        vrpi_map_put(core, b->block);
    }
    if (b->block == NULL)
        return;
    b->block->units = VRPI_UNITS(unit_up(bytes));
    b->block->requested = bytes;
    b->block->tag = b->tag;
    b->block->scope = (uint16_t)vrpi_scope_index(b->scope);
    arena->end = arena->base + VRPI_BYTES(b->block);
    vrpi_arena_cover(core, arena, b->block, arena->base, arena->end);
    if (bytes == 0) {
        vrpi_map_take(core, b->block);
        vrpi_block_node_free(core, arena->first);
        b->block = NULL;
        arena->first = arena->last = 0;
        arena->used_blocks = 0;
    }
}

/* Granules [from, to) of the arena come into use or go out of it. */
static void granules_use(vrpi_pool *core, vrp_growable *b, uint64_t from, uint64_t to, int use) {
    vrpi_arena *arena = b->arena;
    uint64_t stamp = use ? 0 : vrpi_stamp(b->stream);
    for (uint64_t i = from; i < to; i++) {
        vrpi_extent *e = arena->granules[i];
        if (e == NULL || e == &core->claimed) {
            if (use)
                arena->granules[i] = &core->claimed;
            else
                arena->granules[i] = NULL;
            continue;
        }
        if (use && e->live == 0) {
            vrpi_idle_remove(core, e);
            e->live = 1;
        } else if (!use && e->live != 0 && e->addr >= arena->base + from * core->granularity) {
            e->live = 0;
            e->stream = b->stream;
            e->stamp = stamp;
            vrpi_idle_add(core, e);
        }
    }
}

/* No extent of the range is in a driver call of another thread. */
static int settled(const vrpi_pool *core, const vrp_growable *b, uint64_t from, uint64_t to) {
    for (uint64_t i = from; i < to; i++) {
        const vrpi_extent *e = b->arena->granules[i];
        if (e != NULL && e != &core->claimed && e->state == VRPI_EXTENT_TRANSIT)
            return 0;
    }
    return 1;
}

static vrp_status grow_vmm(vrpi_pool *core, vrpi_thread *t, vrp_growable *b, uint64_t bytes) {
    uint64_t g = core->granularity;
    uint64_t from = granule_up(core, b->size) / g, to = granule_up(core, bytes) / g;
    vrpi_request r = {.bytes = bytes, .size = unit_up(bytes) - unit_up(b->size), .thread = t};
    vrp_status status = VRP_OK;
    VRPI_TRY(vrpi_nodes_reserve(core, 4, 1, 1));
    while (!settled(core, b, from, to)) {
        vrpi_mutex_unlock(&core->lock); /* another thread is taking our idle end away */
        vrpi_pause();
        vrpi_mutex_lock(&core->lock);
    }
    if (to > from) {
        granules_use(core, b, from, to, 1);
        status =
            vrpi_back(core, &r, b->arena, b->stream, b->arena->base + from * g, (to - from) * g);
        if (status != VRP_OK)
            granules_use(core, b, from, to, 0);
    }
    if (status == VRP_OK) {
        status = vrpi_nodes_reserve(core, 1, 0, 0); /* for the block itself */
        if (status != VRP_OK && to > from)
            granules_use(core, b, from, to, 0);
    } else {
        vrpi_oom_explain(core, &r, status);
    }
    return status;
}

static int budget_take(vrpi_pool *core, vrpi_thread *t, uint8_t tag, uint32_t scope,
                       uint64_t bytes) {
    int taken = 0;
    for (int tries = 0; tries < 2 && !taken; tries++) {
        if (tries == 1 && !vrpi_budget_collect(core)) /* what others hold and do not use */
            return 0;
        taken = vrpi_budget_take(t, tag, scope, bytes);
    }
    return taken;
}

static vrp_status resize_vmm(vrpi_pool *core, vrpi_thread *t, vrp_growable *b, uint64_t bytes) {
    uint64_t g = core->granularity;
    uint64_t old = unit_up(b->size), now = unit_up(bytes);
    uint32_t scope = vrpi_scope_index(b->scope);
    int64_t blocks = (bytes > 0) - (b->size > 0);
    vrp_status status = VRP_OK;
    if (now > old) {
        if (!budget_take(core, t, b->tag, scope, now - old))
            return vrpi_fail(VRP_LIMIT_REACHED, "the buffer would exceed a budget");
        status = grow_vmm(core, t, b, bytes);
    } else {
        granules_use(core, b, granule_up(core, bytes) / g, granule_up(core, b->size) / g, 0);
    }
    if (status == VRP_OK && now < old)
        vrpi_budget_give(t, b->tag, scope, old - now);
    if (status == VRP_OK)
        vrpi_count_shift(t, b->tag, scope, blocks, (int64_t)bytes - (int64_t)b->size,
                         (int64_t)now - (int64_t)old);
    else
        vrpi_budget_give(t, b->tag, scope, now - old);
    if (status == VRP_OK) {
        block_resize(core, b, bytes);
        b->size = bytes;
    }
    return status;
}

/* malloc backing: a block that a buffer moves to. Lock held. */
static vrp_status block_new(vrpi_pool *core, vrpi_request *r, vrpi_stream *stream, vrp_growable *b,
                            uint64_t bytes, vrpi_block **out) {
    vrpi_block *block;
    vrp_status status;
    stream->busy++;
    status = vrpi_block_alloc(core, r, stream, vrpi_class_of(core, r->size, b->tag), r->size,
                              VRPI_UNIT, &block);
    stream->busy--;
    if (status != VRP_OK) {
        vrpi_oom_explain(core, r, status);
        return status;
    }
    block->requested = bytes;
    block->tag = b->tag;
    block->scope = (uint16_t)vrpi_scope_index(b->scope);
    *out = block; /* state PLACING: it is the buffer's when all has worked */
    return VRP_OK;
}

static uint64_t block_bytes(uint64_t bytes) {
    return bytes == 0 ? 0 : bytes < VRPI_CELL ? VRPI_CELL : unit_up(bytes);
}

/* malloc backing: the end of the block becomes free. */
static vrp_status resize_in_place(vrpi_pool *core, vrpi_thread *t, vrp_growable *b, uint64_t bytes,
                                  uint64_t size) {
    uint64_t old = VRPI_BYTES(b->block);
    VRPI_TRY(vrpi_nodes_reserve(core, 1, 0, 0));
    if (size < old)
        vrpi_block_cut(core, b->block, size, vrpi_stamp(b->stream));
    b->block->requested = bytes;
    vrpi_budget_give(t, b->tag, vrpi_scope_index(b->scope), old - size);
    vrpi_count_shift(t, b->tag, vrpi_scope_index(b->scope), 0, (int64_t)bytes - (int64_t)b->size,
                     (int64_t)size - (int64_t)old);
    b->size = bytes;
    return VRP_OK;
}

/* A new block, a copy on the stream, the old block freed. Counters move only
 * when all of it has worked. Lock held, dropped for the copy. */
static vrp_status resize_copy(vrpi_pool *core, vrpi_thread *t, vrp_growable *b, uint64_t bytes) {
    vrpi_request r = {.bytes = bytes,
                      .size = block_bytes(bytes),
                      .thread = t,
                      .handle = b->handle,
                      .tag = b->tag};
    uint32_t scope = vrpi_scope_index(b->scope);
    uint64_t old = block_bytes(b->size);
    vrpi_block *fresh = NULL;
    vrp_status status = VRP_OK;
    if (b->size > 0 && bytes > 0 && r.size <= old)
        return resize_in_place(core, t, b, bytes, r.size);
    if (bytes > 0 && b->size > 0 && core->ops->copy_async == NULL)
        return vrpi_fail(VRP_NOT_SUPPORTED, "the driver cannot copy");
    if (bytes > 0 && b->size > 0 && b->stream->per_thread && b->stream->owner != t)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "only its own thread can copy on that stream");
    if (!budget_take(core, t, b->tag, scope, r.size))
        return vrpi_fail(VRP_LIMIT_REACHED, "the buffer would exceed a budget");
    if (bytes > 0)
        status = block_new(core, &r, b->stream, b, bytes, &fresh);
    if (status == VRP_OK && bytes > 0 && b->size > 0) {
        uint64_t both = bytes < b->size ? bytes : b->size;
        vrpi_mutex_unlock(&core->lock);
        status = core->ops->copy_async(core->ctx, fresh->addr, b->base, both, b->handle);
        vrpi_mutex_lock(&core->lock);
        if (status != VRP_OK)
            vrpi_block_free(core, fresh, vrpi_stamp(b->stream));
    }
    if (status != VRP_OK) {
        vrpi_budget_give(t, b->tag, scope, r.size);
    } else {
        vrpi_budget_give(t, b->tag, scope, old);
        vrpi_count_shift(t, b->tag, scope, (bytes > 0) - (b->size > 0),
                         (int64_t)bytes - (int64_t)b->size, (int64_t)r.size - (int64_t)old);
    }
    if (status != VRP_OK)
        return status;
    if (b->block != NULL)
        vrpi_block_free(core, b->block, vrpi_stamp(b->stream));
    if (fresh != NULL)
        vrpi_set_state(fresh, VRPI_GROWABLE);
    b->block = fresh;
    b->base = fresh == NULL ? 0 : fresh->addr;
    b->size = bytes;
    return VRP_OK;
}

static vrp_status resize(vrp_growable *b, uint64_t bytes) {
    vrpi_pool *core = b->pool->core;
    vrpi_thread *t = vrpi_thread_get(b->pool);
    vrp_status status;
    if (t == NULL)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for a thread");
    if (bytes > VRPI_BLOCK_MAX)
        return vrpi_fail(VRP_OUT_OF_DEVICE_MEMORY, "no block is larger than 1 TiB");
    vrpi_mutex_lock(&core->lock);
    if (b->busy || b->ended) {
        status = vrpi_fail(VRP_INVALID_ARGUMENT, "the buffer %s",
                           b->ended ? "has ended" : "is being resized");
        vrpi_mutex_unlock(&core->lock);
        return status;
    }
    b->busy = 1;
    if (bytes == b->size)
        status = VRP_OK;
    else if (core->backing == VRP_BACKING_MALLOC)
        status = resize_copy(core, t, b, bytes);
    else
        status = resize_vmm(core, t, b, bytes);
    b->busy = 0;
    vrpi_tend(core, t);
    vrpi_mutex_unlock(&core->lock);
    if (status == VRP_OUT_OF_DEVICE_MEMORY || status == VRP_LIMIT_REACHED)
        (void)atomic_fetch_add_explicit(&core->failures, 1, memory_order_relaxed);
    return status;
}

vrp_status vrp_growable_resize(vrp_growable *buffer, uint64_t bytes) {
    vrp_status status;
    if (buffer == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_growable_resize: buffer is NULL");
    VRPI_TRY(vrpi_enter(buffer->pool));
    if (bytes > buffer->max) {
        status = vrpi_fail(VRP_INVALID_SIZE, "%llu bytes; the buffer's maximum is %llu",
                           (unsigned long long)bytes, (unsigned long long)buffer->max);
        vrpi_fail_request(bytes);
    } else {
        status = resize(buffer, bytes);
    }
    vrpi_exit(buffer->pool);
    return status;
}

vrp_devptr vrp_growable_base(const vrp_growable *buffer) {
    return buffer == NULL ? 0 : buffer->base;
}

uint64_t vrp_growable_size(const vrp_growable *buffer) { return buffer == NULL ? 0 : buffer->size; }

/* The arena of an ended buffer: its addresses go back, or, while memory is
 * still mapped there, it serves its stream like any other. */
static void arena_end(vrpi_pool *core, vrp_growable *b) {
    vrpi_arena *arena = b->arena, *head;
    vrpi_space *space = &b->stream->space[VRPI_CLASS_HUGE];
    if (arena->backed_bytes == 0) {
        arena->klass = VRPI_CLASS_HUGE; /* a spare one, if the driver refuses */
        arena->stream = NULL;
        (void)vrpi_arena_release(core, arena);
        return;
    }
    head = space->arenas;
    if (vrpi_nodes_reserve(core, 1, 0, 0) != VRP_OK ||
        vrpi_map_prepare(core, arena->base, arena->bytes) != VRP_OK)
        return; /* no host memory: its idle memory serves others, its addresses nobody */
    /* as one free block, behind the arena whose tail is in use */
    arena->space = NULL;
    vrpi_arena_extend(
        core, arena, arena->base + (arena->bytes < VRPI_BLOCK_MAX ? arena->bytes : VRPI_BLOCK_MAX));
    vrpi_arena_attach(core, arena, b->stream, VRPI_CLASS_HUGE);
    if (head != NULL) {
        space->arenas = head;
        arena->space_next = head->space_next;
        head->space_next = arena;
    }
    vrpi_arena_shrink(core, arena);
}

static int has_ended(vrpi_pool *core, const vrp_growable *b) {
    int ended;
    vrpi_mutex_lock(&core->lock);
    ended = b->ended;
    vrpi_mutex_unlock(&core->lock);
    return ended;
}

vrp_status vrp_growable_destroy(vrp_growable *buffer) {
    vrpi_pool *core;
    vrp_pool *pool;
    vrp_status status;
    if (buffer == NULL)
        return VRP_OK;
    pool = buffer->pool;
    status = vrpi_enter(pool);
    if (status == VRP_SHUT_DOWN && buffer->ended && buffer->stream == NULL) {
        free(buffer); /* its pool was destroyed by force and took the memory */
        return VRP_OK;
    }
    if (status != VRP_OK)
        return status;
    core = pool->core;
    status = has_ended(core, buffer) ? VRP_OK : resize(buffer, 0);
    if (status != VRP_OK && has_ended(core, buffer))
        status = VRP_OK; /* its scope was released meanwhile */
    if (status == VRP_OK) {
        vrpi_mutex_lock(&core->lock);
        unlink_buffer(buffer);
        if (buffer->arena != NULL)
            arena_end(core, buffer);
        buffer->stream->refs--;
        vrpi_stream_settle(core, buffer->stream);
        vrpi_mutex_unlock(&core->lock);
        free(buffer);
    }
    vrpi_exit(pool);
    return status;
}

void vrpi_growables_release(vrpi_pool *core, vrpi_thread *t, uint32_t scope) {
    for (vrp_growable *b = core->growables; b != NULL;) {
        if (b->ended || (scope != 0 && vrpi_scope_index(b->scope) != scope)) {
            b = b->next;
            continue;
        }
        if (b->busy) { /* the thread that resizes it comes to an end first */
            vrpi_mutex_unlock(&core->lock);
            vrpi_pause();
            vrpi_mutex_lock(&core->lock);
            b = core->growables;
            continue;
        }
        b->busy = 1;
        /* giving all up cannot fail */
        if (core->backing == VRP_BACKING_VMM)
            (void)resize_vmm(core, t, b, 0);
        else if (b->size > 0)
            (void)resize_copy(core, t, b, 0);
        b->busy = 0;
        b->ended = 1;
        b->scope = 0;
        b = b->next;
    }
}

uint64_t vrpi_growables_empty(const vrpi_pool *core) {
    uint64_t count = 0;
    for (const vrp_growable *b = core->growables; b != NULL; b = b->next)
        count += b->size == 0;
    return count;
}

void vrpi_growables_drop(vrpi_pool *core) {
    for (vrp_growable *b = core->growables; b != NULL; b = b->next) {
        uint64_t allocated = b->block != NULL ? VRPI_BYTES(b->block) : 0;
        if (b->size > 0)
            vrpi_count_many(core, b->tag, vrpi_scope_index(b->scope), -1, -(int64_t)b->size,
                            -(int64_t)allocated);
        if (b->arena != NULL) {
            if (b->size > 0)
                granules_use(core, b, 0, granule_up(core, b->size) / core->granularity, 0);
            block_resize(core, b, 0);
            b->arena->klass = VRPI_CLASS_HUGE; /* a spare arena from here on */
            b->arena->stream = NULL;
            b->arena = NULL;
        } else if (b->block != NULL) {
            vrpi_block_free(core, b->block, vrpi_stamp(b->stream));
            b->block = NULL;
        }
        b->size = 0;
        b->ended = 1;
    }
}

/* What the user still holds is his until he ends it. */
void vrpi_growables_end(vrpi_pool *core) {
    while (core->growables != NULL) {
        vrp_growable *b = core->growables;
        unlink_buffer(b);
        if (b->stream != NULL)
            b->stream->refs--;
        b->stream = NULL;
    }
}
