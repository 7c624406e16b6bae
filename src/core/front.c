/* SPDX-License-Identifier: MIT */
/* The hit paths: a thread allocates from and frees into its own front. One
 * atomic exchange on its own flag, no lock, no line that others write. */

#include "core/core.h"
#include "core/sizeclass.h"

/* 0 if somebody else is working on this thread's fronts just now. */
static int enter(vrpi_thread *t) {
    /* acquire pairs with the release of whoever seized it before */
    if (atomic_exchange_explicit(&t->busy, 1, memory_order_acquire) != 0)
        return 0;
    if (vrpi_pool_usable(atomic_load_explicit(&t->pool, memory_order_relaxed)) == VRP_OK)
        return 1;
    vrpi_leave(t);
    return 0;
}

static vrpi_front *find(vrpi_thread *t, vrp_stream handle) {
    vrpi_front *front = t->fronts;
    if (handle == 1) /* the driver's explicit name of the legacy stream */
        handle = VRP_STREAM_LEGACY;
    while (front != NULL && front->handle != handle)
        front = front->next;
    return front;
}

static void cached_add(vrpi_thread *t, vrpi_front *front, int64_t by) {
    uint64_t now = atomic_load_explicit(&front->cached_bytes, memory_order_relaxed);
    atomic_store_explicit(&front->cached_bytes, now + (uint64_t)by, memory_order_relaxed);
    now = atomic_load_explicit(&t->cached_bytes, memory_order_relaxed);
    atomic_store_explicit(&t->cached_bytes, now + (uint64_t)by, memory_order_relaxed);
}

static void mask_add(vrpi_slab *slab, uint32_t scope) {
    uint64_t bit = UINT64_C(1) << (scope % 64);
    if (scope != 0 && (atomic_load_explicit(&slab->scope_mask, memory_order_relaxed) & bit) == 0)
        (void)atomic_fetch_or_explicit(&slab->scope_mask, bit, memory_order_relaxed);
}

void vrpi_slot_fill(vrpi_slab *slab, uint32_t index, const vrpi_request *request) {
    vrpi_slot *slot = &slab->slot[index];
    mask_add(slab, request->scope);
    slot->scope = request->scope;
    slot->waste = (uint16_t)(slab->slot_bytes - request->bytes);
    slot->tag = request->tag;
    atomic_store_explicit(&slot->state, VRPI_LIVE, memory_order_relaxed);
}

static int alloc_slot(vrpi_thread *t, vrpi_front *front, const vrpi_request *request,
                      vrp_devptr *out) {
    vrpi_magazine *mag = &front->mag[vrpi_small_class(request->bytes)];
    vrpi_slab *slab;
    uint32_t index;
    if (mag->count == 0)
        return 0;
    slab = mag->slot[mag->count - 1].slab;
    index = mag->slot[mag->count - 1].index;
    if (vrpi_count_alloc(t, request->tag, request->scope, request->bytes, slab->slot_bytes) !=
        VRP_OK)
        return 0;
    mag->count--;
    cached_add(t, front, -(int64_t)slab->slot_bytes);
    vrpi_slot_fill(slab, index, request);
    *out = slab->addr + (uint64_t)index * slab->slot_bytes;
    return 1;
}

static int alloc_block(vrpi_thread *t, vrpi_front *front, const vrpi_request *request,
                       vrp_devptr *out) {
    for (uint32_t i = front->block_count; i-- > 0;) {
        vrpi_block *block = front->block[i];
        if (front->block_bytes[i] != request->size ||
            (block->arena->klass == VRPI_CLASS_WEIGHTS) != (request->tag == VRP_TAG_WEIGHTS))
            continue;
        if (vrpi_count_alloc(t, request->tag, request->scope, request->bytes, block->bytes) !=
            VRP_OK)
            return 0;
        front->block_count--;
        front->block[i] = front->block[front->block_count];
        front->block_bytes[i] = front->block_bytes[front->block_count];
        cached_add(t, front, -(int64_t)block->bytes);
        block->requested = request->bytes;
        block->tag = request->tag;
        block->scope = request->scope;
        atomic_store_explicit(&block->state, VRPI_LIVE, memory_order_relaxed);
        *out = block->addr;
        return 1;
    }
    return 0;
}

int vrpi_cache_alloc(vrpi_thread *t, const vrpi_request *request, vrp_devptr *out) {
    vrpi_front *front;
    int hit = 0;
    if (request->alignment > VRPI_UNIT || !enter(t))
        return 0;
    front = find(t, request->handle);
    /* the scope is looked at in here: a release seizes every thread first */
    if (front != NULL &&
        (request->scope == 0 || vrpi_scope_is(t->core, request->scope_handle, 1, 1)))
        hit = request->bytes <= VRPI_SMALL_MAX ? alloc_slot(t, front, request, out)
                                               : alloc_block(t, front, request, out);
    vrpi_leave(t);
    return hit;
}

int vrpi_front_put_slot(vrpi_thread *t, vrpi_front *front, vrpi_slab *slab, uint32_t index) {
    vrpi_magazine *mag = &front->mag[slab->klass];
    if (mag->capacity == 0) {
        uint32_t fits = 65536 / slab->slot_bytes;
        mag->capacity = fits > VRPI_MAG_SLOTS ? VRPI_MAG_SLOTS : fits;
    }
    if (mag->count >= mag->capacity)
        return 0;
    if (atomic_load_explicit(&front->cached_bytes, memory_order_relaxed) + slab->slot_bytes >
        vrpi_knob(t->core, VRP_KNOB_CACHE_BYTES))
        return 0;
    mag->slot[mag->count].slab = slab;
    mag->slot[mag->count].index = index;
    mag->count++;
    atomic_store_explicit(&slab->slot[index].state, VRPI_CACHED, memory_order_relaxed);
    cached_add(t, front, slab->slot_bytes);
    return 1;
}

static int free_slot(vrpi_thread *t, vrpi_slab *slab, vrp_devptr ptr, vrp_stream handle) {
    uint32_t index = vrpi_slot_index(slab, ptr);
    vrpi_slot *slot;
    vrpi_front *front;
    uint64_t requested;
    if (index >= slab->slot_count || slab->addr + (uint64_t)index * slab->slot_bytes != ptr)
        return 0;
    slot = &slab->slot[index];
    if (atomic_load_explicit(&slot->state, memory_order_relaxed) != VRPI_LIVE)
        return 0;
    front = handle == VRP_STREAM_OF_ALLOC ? t->fronts : find(t, handle);
    while (front != NULL && front->stream != slab->stream)
        front = handle == VRP_STREAM_OF_ALLOC ? front->next : NULL;
    if (front == NULL)
        return 0;
    requested = slab->slot_bytes - (uint64_t)slot->waste;
    if (!vrpi_front_put_slot(t, front, slab, index))
        return 0;
    vrpi_count_free(t, slot->tag, slot->scope, requested, slab->slot_bytes);
    return 1;
}

static int free_block(vrpi_thread *t, vrpi_block *block, vrp_stream handle) {
    const vrpi_arena *arena = block->arena;
    vrpi_front *front;
    if (arena == NULL || block->uses != NULL ||
        block->bytes > vrpi_knob(t->core, VRP_KNOB_CACHE_BLOCK_BYTES) ||
        atomic_load_explicit(&block->state, memory_order_relaxed) != VRPI_LIVE)
        return 0;
    front = handle == VRP_STREAM_OF_ALLOC ? t->fronts : find(t, handle);
    while (front != NULL && front->stream != arena->stream)
        front = handle == VRP_STREAM_OF_ALLOC ? front->next : NULL;
    if (front == NULL || front->block_count == VRPI_FRONT_BLOCKS ||
        atomic_load_explicit(&front->cached_bytes, memory_order_relaxed) + block->bytes >
            vrpi_knob(t->core, VRP_KNOB_CACHE_BYTES))
        return 0;
    vrpi_count_free(t, block->tag, block->scope, block->requested, block->bytes);
    front->block[front->block_count] = block;
    front->block_bytes[front->block_count++] = block->bytes;
    cached_add(t, front, (int64_t)block->bytes);
    atomic_store_explicit(&block->state, VRPI_CACHED, memory_order_relaxed);
    return 1;
}

int vrpi_cache_free(vrpi_thread *t, vrp_devptr ptr, vrp_stream handle) {
    vrpi_block *block;
    int hit = 0;
    if (!enter(t))
        return 0;
    block = vrpi_map_get(t->core, ptr);
    if (block != NULL) {
        vrpi_slab *slab = block->slab;
        if (slab != NULL)
            hit = free_slot(t, slab, ptr, handle);
        else if (block->addr == ptr)
            hit = free_block(t, block, handle);
    }
    vrpi_leave(t);
    return hit;
}
