/* SPDX-License-Identifier: MIT */
/* Requests: checks, the hit path, then the slow path. */

#include "core/front.h"

#define SIZE_LIMIT (UINT64_C(1) << 48) /* no device and no address range is larger */

/* A request of up to 32 KiB takes a slot: the rest of a slab's gains. */
static int is_small(const vrpi_request *r) {
    return r->bytes <= VRPI_SMALL_MAX && r->alignment <= VRPI_UNIT &&
           (r->flags & VRP_ALLOC_EXPORTABLE) == 0;
}

static vrp_status limit_reached(const vrpi_request *r) {
    vrp_status status = vrpi_fail(
        VRP_LIMIT_REACHED, "%llu bytes would exceed the budget of tag %u%s",
        (unsigned long long)r->bytes, (unsigned)r->tag, r->scope != 0 ? " or of the scope" : "");
    vrpi_fail_request(r->bytes);
    return status;
}

/* A slot from what other threads have freed on the stream, and more for the magazine. */
static int depot_alloc(vrpi_pool *core, vrpi_request *r, vrpi_front *front, vrp_devptr *out) {
    uint32_t klass = vrpi_small_class(r->bytes);
    vrpi_entry entry;
    vrpi_slab *slab;
    if (!vrpi_depot_take(core, front, klass))
        return 0;
    entry = vrpi_mag_pop(&front->mag[klass]);
    slab = vrpi_map_get(core, entry.addr)->slab;
    vrpi_slot_fill(slab, vrpi_slot_index(slab, entry.addr), r);
    *out = entry.addr;
    return 1;
}

/* A first slot for the caller and a few more for the thread's magazine. Lock held. */
static vrp_status small_alloc(vrpi_pool *core, vrpi_request *r, vrpi_stream *stream,
                              vrp_devptr *out) {
    uint32_t klass = vrpi_small_class(r->bytes);
    uint32_t more = (uint32_t)(VRPI_MAG_BYTES / 2 / r->size);
    vrpi_slab *slab;
    vrpi_front *front = NULL;
    uint32_t index;
    if ((core->config.flags & VRP_STREAMS_UNTRACKED) == 0)
        front = vrpi_front_get(core, r->thread, stream, stream->handle);
    if (front != NULL && depot_alloc(core, r, front, out))
        return VRP_OK;
    VRPI_TRY(vrpi_slab_refill(core, r, stream, klass, &slab));
    index = vrpi_slab_take(slab);
    vrpi_slot_fill(slab, index, r);
    *out = slab->addr + (uint64_t)index * slab->slot_bytes;
    if ((core->config.flags & VRP_STREAMS_UNTRACKED) != 0)
        return VRP_OK;
    front = vrpi_front_get(core, r->thread, stream, stream->handle); /* the lock was dropped */
    if (front == NULL)
        return VRP_OK; /* a graph pool's, or no host memory: goes without */
    for (; more > 0 && slab->free_count > 0; more--) {
        index = vrpi_slab_take(slab);
        if (!vrpi_front_put_slot(front, slab, index)) {
            vrpi_slab_put(core, slab, index);
            break;
        }
    }
    return VRP_OK;
}

static vrp_status large_alloc(vrpi_pool *core, vrpi_request *r, vrpi_stream *stream,
                              vrp_devptr *out) {
    uint64_t alignment = r->alignment > VRPI_UNIT ? r->alignment : VRPI_UNIT;
    vrpi_block *block;
    vrpi_stream *keep = stream;
    vrp_status status;
    keep->busy++;
    status = (r->flags & VRP_ALLOC_EXPORTABLE) != 0 && core->backing == VRP_BACKING_VMM
                 ? vrpi_export_place(core, r, stream, &block)
                 : vrpi_block_alloc(core, r, stream, vrpi_class_of(core, r->size, r->tag), r->size,
                                    alignment, &block);
    keep->busy--;
    if (status != VRP_OK)
        return status;
    block->requested = r->bytes;
    block->tag = r->tag;
    block->scope = (uint16_t)r->scope;
    vrpi_set_state(block, VRPI_LIVE);
    *out = block->addr;
    if ((core->config.flags & VRP_STREAMS_UNTRACKED) == 0)
        (void)vrpi_front_get(core, r->thread, stream, stream->handle);
    return VRP_OK;
}

static vrp_status budget_take(vrpi_pool *core, const vrpi_request *r) {
    int taken;
    taken = vrpi_budget_take(r->thread, r->tag, r->scope, r->size);
    if (taken)
        return VRP_OK;
    (void)vrpi_budget_collect(core); /* what other threads hold and do not use */
    taken = vrpi_budget_take(r->thread, r->tag, r->scope, r->size);
    return taken ? VRP_OK : limit_reached(r);
}

/* More than the device could have beside what is live: nothing is mapped in
 * vain for it. Counters of other threads may be late, hence the margin. */
static int hopeless(vrpi_pool *core, uint64_t size) {
    const int64_t margin = INT64_C(64) << 20;
    uint64_t total = core->device.total_bytes;
    if (size > VRPI_BLOCK_MAX)
        return 1;
    for (int exact = 0; size <= total; exact = 1) {
        int64_t live =
            atomic_load_explicit(&core->all.allocated.current, memory_order_relaxed) - margin;
        if (live <= 0 || size <= total - (uint64_t)live)
            return 0;
        if (exact)
            return 1;
        vrpi_shards_flush_all(core); /* what lies in fronts may still be counted as live */
    }
    return 1;
}

/* Undoes a placement that has not been counted yet. */
static void take_back(vrpi_pool *core, vrp_devptr ptr) {
    vrpi_block *block = vrpi_map_get(core, ptr);
    vrpi_slab *slab = vrpi_slab_of(block);
    if (slab != NULL)
        vrpi_slab_put(core, slab, vrpi_slot_index(slab, ptr));
    else
        vrpi_block_free(core, block, vrpi_stamp(vrpi_arena_of(core, block)->stream));
}

static vrp_status locked_alloc(vrpi_pool *core, vrpi_request *r, uint64_t key, vrp_devptr *out) {
    vrpi_stream *stream;
    vrp_status status;
    vrp_status lost = vrpi_lost(core);
    if (lost != VRP_OK)
        return vrpi_fail(lost, "the device is gone");
    VRPI_TRY(vrpi_stream_get(core, r->thread, r->handle, key, &stream));
    if (stream->route != NULL)
        stream = stream->route; /* it captures: memory of the graph pool */
    if ((r->flags & VRP_ALLOC_EXPORTABLE) != 0 && core->backing == VRP_BACKING_VMM)
        r->size = (r->size + core->granularity - 1) & ~(core->granularity - 1);
    VRPI_TRY(budget_take(core, r));
    core->ticks++;
    vrpi_held_flush(core, r->thread); /* they were kept for a request of just their size */
    status = VRP_OK;
    while (status == VRP_OK && hopeless(core, r->size))
        status = vrpi_oom(core, r, r->size);
    if (status == VRP_OK) {
        stream->busy++;
        status =
            is_small(r) ? small_alloc(core, r, stream, out) : large_alloc(core, r, stream, out);
        stream->busy--;
    }
    if (status == VRP_OK && r->scope != 0 && !vrpi_scope_is(core, r->scope_handle, 1, 1)) {
        take_back(core, *out); /* released while a driver call was made */
        status = vrpi_fail(VRP_INVALID_ARGUMENT, "the scope was closed meanwhile");
    }
    if (status == VRP_OK)
        vrpi_count_up(r->thread, r->tag, r->scope, r->bytes, r->size);
    else
        vrpi_budget_give(r->thread, r->tag, r->scope, r->size);
    vrpi_oom_explain(core, r, status);
    vrpi_tend(core, r->thread);
    return status;
}

static vrp_status slow(vrp_pool *pool, vrpi_request *r, vrp_scope scope, vrp_devptr *out) {
    vrpi_pool *core;
    uint64_t key = 0;
    vrp_status status;
    VRPI_TRY(vrpi_enter(pool));
    core = pool->core;
    r->thread = vrpi_thread_get(pool);
    if (r->thread == NULL)
        status = vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for a thread");
    else if (scope != 0 && !vrpi_scope_is(core, scope, 1, 1))
        status =
            vrpi_fail(VRP_INVALID_ARGUMENT, "scope 0x%llx is not open", (unsigned long long)scope);
    else
        status = vrpi_stream_key(core, r->handle, &key);
    if (status == VRP_OK) {
        vrpi_mutex_lock(&core->lock);
        /* again: it may have been closed or released meanwhile */
        if (scope != 0 && !vrpi_scope_is(core, scope, 1, 1))
            status = vrpi_fail(VRP_INVALID_ARGUMENT, "scope 0x%llx is not open",
                               (unsigned long long)scope);
        else
            status = locked_alloc(core, r, key, out);
        vrpi_mutex_unlock(&core->lock);
    }
    if (status == VRP_OUT_OF_DEVICE_MEMORY || status == VRP_LIMIT_REACHED ||
        status == VRP_OUT_OF_HOST_MEMORY)
        (void)atomic_fetch_add_explicit(&core->failures, 1, memory_order_relaxed);
    vrpi_exit(pool);
    return status;
}

/* Fills in what follows from the size. */
static vrp_status round_up(vrpi_request *r) {
    if (r->bytes >= SIZE_LIMIT) {
        vrp_status status = vrpi_fail(VRP_INVALID_SIZE, "%llu bytes cannot be represented",
                                      (unsigned long long)r->bytes);
        vrpi_fail_request(r->bytes);
        return status;
    }
    r->size = is_small(r) ? vrpi_small_class_bytes(vrpi_small_class(r->bytes))
                          : (r->bytes + VRPI_UNIT - 1) & ~(VRPI_UNIT - 1);
    if (!is_small(r) && r->size < VRPI_CELL)
        r->size = VRPI_CELL; /* a block is at least one cell */
    return VRP_OK;
}

static vrp_status alloc_request(vrp_pool *pool, vrpi_request *r, vrp_scope scope, vrp_devptr *out) {
    vrp_status status = round_up(r);
    if (status != VRP_OK) {
        VRPI_TRY(vrpi_enter(pool));
        (void)atomic_fetch_add_explicit(&pool->core->failures, 1, memory_order_relaxed);
        vrpi_exit(pool);
        return status;
    }
    r->scope = vrpi_scope_index(scope);
    r->scope_handle = scope;
    return slow(pool, r, scope, out);
}

static __attribute__((noinline)) int hit(vrp_pool *pool, uint64_t bytes, uint8_t tag,
                                         vrp_stream stream, vrp_scope scope, vrp_devptr *out) {
    vrpi_thread *t = vrpi_thread_peek(pool);
    int found;
    if (t == NULL || !vrpi_gate_pass(&t->gate))
        return 0;
    found = vrpi_hit_alloc(t, bytes, tag, stream, scope, out);
    vrpi_gate_leave(&t->gate);
    return found;
}

/* Everything that is no quick hit. */
static __attribute__((noinline)) vrp_status alloc_checked(vrp_pool *pool, size_t bytes,
                                                          vrp_stream stream, vrp_devptr *out_ptr) {
    vrpi_request r = {.bytes = bytes, .handle = stream};
    if (pool == NULL || out_ptr == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_alloc: %s is NULL",
                         pool == NULL ? "pool" : "out_ptr");
    if (hit(pool, bytes, VRP_TAG_OTHER, stream, 0, out_ptr))
        return VRP_OK;
    if (bytes == 0 || stream >= VRP_STREAM_ANY) {
        VRPI_TRY(vrpi_pool_usable(pool));
        if (bytes != 0)
            return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_alloc: the stream is one for frees only");
        *out_ptr = 0;
        return VRP_OK;
    }
    return alloc_request(pool, &r, 0, out_ptr);
}

/* Inside the gate. */
static __attribute__((noinline)) vrp_status
alloc_found(vrp_pool *pool, size_t bytes, vrp_stream stream, vrp_devptr *out_ptr, vrpi_thread *t) {
    int found = vrpi_hit_alloc(t, bytes, VRP_TAG_OTHER, stream, 0, out_ptr);
    vrpi_gate_leave(&t->gate);
    return found ? VRP_OK : alloc_checked(pool, bytes, stream, out_ptr);
}

/* A hit needs no further check: a thread's part belongs to a pool that is open,
 * no front has the stream of frees, and 0 bytes are no size of a slot or block. */
vrp_status vrp_alloc(vrp_pool *pool, size_t bytes, vrp_stream stream, vrp_devptr *out_ptr) {
    vrpi_thread *t = vrpi_current;
    if (!VRPI_LIKELY(vrpi_thread_is_of(t, pool) && out_ptr != NULL &&
                     vrpi_gate_pass_cheap(&t->gate)))
        return alloc_checked(pool, bytes, stream, out_ptr);
    if (bytes - 1 < VRPI_SMALL_MAX ? vrpi_quick_slot(t, bytes, stream, out_ptr)
                                   : vrpi_quick_block(t, bytes, stream, out_ptr))
        return VRP_OK;
    return alloc_found(pool, bytes, stream, out_ptr, t);
}

vrp_status vrp_alloc_ex(vrp_pool *pool, const vrp_alloc_info *info, vrp_devptr *out_ptr) {
    vrp_alloc_info in;
    vrpi_request r = {0};
    VRPI_TRY(vrpi_pool_usable(pool));
    if (out_ptr == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_alloc_ex: out_ptr is NULL");
    VRPI_TRY(vrpi_struct_in(&in, sizeof in, info, "vrp_alloc_info"));
    if ((in.flags & ~(VRP_ALLOC_NO_WAIT | VRP_ALLOC_NO_OOM_CALL | VRP_ALLOC_EXPORTABLE)) != 0 ||
        in.reserved != 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_alloc_info: unknown flags 0x%x", in.flags);
    if (in.tag < 0 || in.tag >= VRP_TAG_COUNT)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_alloc_info.tag is %d", in.tag);
    if (in.stream >= VRP_STREAM_ANY)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_alloc_info.stream is for frees only");
    if ((in.alignment & (in.alignment - 1)) != 0 || in.alignment > VRP_ALIGNMENT_MAX)
        return vrpi_fail(VRP_INVALID_ALIGNMENT, "alignment %zu is no power of two up to %u",
                         in.alignment, VRP_ALIGNMENT_MAX);
    r.bytes = in.bytes;
    r.alignment = in.alignment;
    r.handle = in.stream;
    r.tag = (uint8_t)in.tag;
    r.flags = in.flags;
    if (in.bytes == 0) {
        *out_ptr = 0;
        return VRP_OK;
    }
    if (in.alignment <= VRPI_UNIT && (in.flags & VRP_ALLOC_EXPORTABLE) == 0 &&
        hit(pool, in.bytes, r.tag, in.stream, in.scope, out_ptr))
        return VRP_OK;
    return alloc_request(pool, &r, in.scope, out_ptr);
}
