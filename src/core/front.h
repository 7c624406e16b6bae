/* SPDX-License-Identifier: MIT */
#ifndef VRPI_CORE_FRONT_H
#define VRPI_CORE_FRONT_H

/* The hit paths: a thread allocates from and frees into its own front. No lock,
 * no atomic exchange, no line that others write. Inlined into the public calls,
 * where the tag and the scope are often constants. Each returns 0 if it is no
 * hit, and has changed nothing then. */

#include "core/counter.h"
#include "core/sizeclass.h"

#define VRPI_LIKELY(x) __builtin_expect(!!(x), 1)

/* ---- front.c ---- */
vrpi_front *vrpi_front_find(vrpi_thread *t, vrp_stream handle); /* makes it the hot one */
vrpi_front *vrpi_front_of(vrpi_thread *t, const vrpi_stream *owner, vrp_stream handle);
vrpi_block *vrpi_near_take(vrpi_thread *t, vrpi_front *front, uint64_t want);
int vrpi_recent_demote(vrpi_thread *t, vrpi_front *front);
int vrpi_hit_count(vrpi_thread *t, vrp_devptr addr, uint32_t scope, uint8_t tag, uint64_t requested,
                   uint64_t allocated); /* with a scope or budgets */
/* Lock held; the gate is closed, or the thread is the caller's. Bytes flushed. */
/* Kept blocks of at least `least` bytes, what is held, and slots too or not. */
uint64_t vrpi_front_flush(vrpi_pool *core, vrpi_front *front, uint64_t least, int slots);
uint64_t vrpi_front_flush_held(vrpi_pool *core, vrpi_front *front);
void vrpi_slot_drop(vrpi_pool *core, vrpi_magazine *mag); /* one to its slab */
void vrpi_front_limits(const vrpi_pool *core, vrpi_front *front);
void vrpi_front_reset(const vrpi_pool *core, vrpi_front *front);
uint64_t vrpi_front_cached(const vrpi_front *front); /* but what is held */

/* Whether all that there is to count is the pool and the tag. */
static inline int vrpi_is_plain(const vrpi_thread *t, uint32_t scope) {
    return scope == 0 && atomic_load_explicit(&t->core->budgets, memory_order_relaxed) == 0;
}

/* ---- slots ----------------------------------------------------------------------- */

static inline void vrpi_slot_set(vrpi_slot *slot, uint64_t waste, uint8_t tag, uint32_t scope) {
    slot->scope = scope;
    slot->waste = (uint16_t)waste;
    slot->tag = tag;
    atomic_store_explicit(&slot->state, VRPI_LIVE, memory_order_relaxed);
}

static inline uint32_t vrpi_mag_count(const vrpi_magazine *mag) {
    return atomic_load_explicit(&mag->count, memory_order_relaxed);
}
static inline void vrpi_mag_set(vrpi_magazine *mag, uint32_t count) {
    atomic_store_explicit(&mag->count, count, memory_order_relaxed);
}

static inline int vrpi_hit_slot(vrpi_thread *t, vrpi_front *front, uint64_t bytes, uint8_t tag,
                                uint32_t scope, vrp_devptr *out) {
    vrpi_magazine *mag = &front->mag[vrpi_small_class(bytes)];
    uint32_t count = vrpi_mag_count(mag), last = count - 1;
    vrpi_slot *slot;
    uint64_t addr;
    if (!VRPI_LIKELY(count != 0))
        return 0;
    slot = mag->entry[last].slot;
    addr = mag->entry[last].addr;
    if (VRPI_LIKELY(vrpi_is_plain(t, scope)))
        vrpi_tag_up(t, tag, bytes, mag->slot_bytes);
    else if (!vrpi_hit_count(t, addr, scope, tag, bytes, mag->slot_bytes))
        return 0;
    vrpi_mag_set(mag, last);
    vrpi_slot_set(slot, mag->slot_bytes - bytes, tag, scope);
    *out = addr;
    return 1;
}

static inline int vrpi_mag_put(vrpi_front *front, const vrpi_slab *slab, vrpi_slot *slot,
                               uint64_t addr) {
    vrpi_magazine *mag = &front->mag[slab->klass];
    uint32_t count = vrpi_mag_count(mag);
    if (!VRPI_LIKELY(count < mag->capacity))
        return 0;
    mag->entry[count].addr = addr;
    mag->entry[count].slot = slot;
    vrpi_mag_set(mag, count + 1);
    atomic_store_explicit(&slot->state, VRPI_CACHED, memory_order_relaxed);
    return 1;
}

/* The front that a block of `owner` goes to, freed on `handle`; NULL: none. */
static inline vrpi_front *vrpi_front_for(vrpi_thread *t, const vrpi_stream *owner,
                                         vrp_stream handle) {
    vrpi_front *front = t->hot;
    if (VRPI_LIKELY(front != NULL && front->stream == owner &&
                    (front->handle == handle || handle == VRP_STREAM_OF_ALLOC)))
        return front;
    return vrpi_front_of(t, owner, handle);
}

static inline int vrpi_hit_free_slot(vrpi_thread *t, vrpi_slab *slab, vrp_devptr ptr,
                                     vrp_stream handle) {
    uint32_t index = vrpi_slot_index(slab, ptr);
    vrpi_slot *slot = &slab->slot[index];
    vrpi_front *front;
    if (!VRPI_LIKELY(index < slab->slot_count &&
                     slab->addr + (uint64_t)index * slab->slot_bytes == ptr &&
                     atomic_load_explicit(&slot->state, memory_order_relaxed) == VRPI_LIVE))
        return 0;
    front = vrpi_front_for(t, slab->stream, handle);
    if (!VRPI_LIKELY(front != NULL) || !vrpi_mag_put(front, slab, slot, ptr))
        return 0;
    if (VRPI_LIKELY(vrpi_is_plain(t, slot->scope)))
        vrpi_tag_down(t, slot->tag, slab->slot_bytes - (uint64_t)slot->waste, slab->slot_bytes);
    else
        vrpi_count_free(t, slot->tag, slot->scope, slab->slot_bytes - (uint64_t)slot->waste,
                        slab->slot_bytes);
    return 1;
}

/* ---- larger blocks ----------------------------------------------------------------- */

/* What lies in a front as held or kept has changed by that much. A thread that
 * holds large blocks may fall further behind its group: they will be back. */
static inline void vrpi_front_account(vrpi_thread *t, vrpi_front *front, int held, uint64_t by) {
    _Atomic uint64_t *bytes = held ? &t->held_bytes : &front->kept_bytes;
    atomic_store_explicit(bytes, atomic_load_explicit(bytes, memory_order_relaxed) + by,
                          memory_order_relaxed);
    if (held)
        t->low -= (int64_t)by;
}

static inline int vrpi_hit_block(vrpi_thread *t, vrpi_front *front, uint64_t bytes, uint8_t tag,
                                 uint32_t scope, vrp_devptr *out) {
    uint64_t want = (bytes + VRPI_UNIT - 1) & ~(VRPI_UNIT - 1);
    vrpi_block *block = front->recent;
    uint64_t size;
    if (tag == VRP_TAG_WEIGHTS)
        return 0; /* they live long, apart from what comes and goes */
    if (!VRPI_LIKELY(block != NULL && front->recent_bytes == want && vrpi_is_plain(t, scope)))
        block = vrpi_near_take(t, front, want);
    if (block == NULL)
        return 0;
    size = VRPI_BYTES(block);
    if (!VRPI_LIKELY(vrpi_is_plain(t, scope)) && !vrpi_budget_take(t, tag, scope, size))
        return 0; /* it is `recent` still */
    front->recent = NULL;
    vrpi_front_account(t, front, front->recent_held, -size);
    if (VRPI_LIKELY(scope == 0))
        vrpi_tag_up(t, tag, bytes, size);
    else
        vrpi_count_up(t, tag, scope, bytes, size);
    block->requested = bytes;
    block->tag = tag;
    block->scope = (uint16_t)scope;
    atomic_store_explicit(&block->state, VRPI_LIVE, memory_order_relaxed);
    *out = block->addr;
    return 1;
}

static inline int vrpi_hit_free_block(vrpi_thread *t, vrpi_block *block, vrp_stream handle) {
    const vrpi_arena *arena;
    uint64_t bytes = VRPI_BYTES(block);
    vrpi_front *front;
    int held;
    arena = vrpi_arena_of(t->core, block);
    if (!VRPI_LIKELY(arena != NULL && arena->klass != VRPI_CLASS_WEIGHTS))
        return 0;
    front = vrpi_front_for(t, arena->stream, handle);
    if (front == NULL || (front->recent != NULL && !vrpi_recent_demote(t, front)))
        return 0;
    held = bytes > vrpi_knob(t->core, VRP_KNOB_CACHE_BLOCK_BYTES) || bytes >= VRPI_KEPT_END;
    if (held ? atomic_load_explicit(&t->held_bytes, memory_order_relaxed) + bytes >
                   vrpi_knob(t->core, VRP_KNOB_CACHE_HELD_BYTES)
             : atomic_load_explicit(&front->kept_bytes, memory_order_relaxed) + bytes >
                   front->kept_limit)
        return 0;
    vrpi_front_account(t, front, held, bytes);
    if (VRPI_LIKELY(vrpi_is_plain(t, block->scope)))
        vrpi_tag_down(t, block->tag, block->requested, bytes);
    else
        vrpi_count_free(t, block->tag, block->scope, block->requested, bytes);
    front->recent = block;
    front->recent_bytes = bytes;
    front->recent_held = (uint8_t)held;
    atomic_store_explicit(&block->state, VRPI_CACHED, memory_order_relaxed);
    return 1;
}

/* ---- hits ------------------------------------------------------------------------------ */

/* The alignment is the minimum. */
static inline __attribute__((always_inline)) int vrpi_hit_alloc(vrpi_thread *t, uint64_t bytes,
                                                                uint8_t tag, vrp_stream handle,
                                                                vrp_scope scope, vrp_devptr *out) {
    uint32_t index = vrpi_scope_index(scope);
    vrpi_front *front;
    int hit = 0;
    if (!vrpi_gate_pass(&t->gate))
        return 0;
    front = t->hot;
    if (!VRPI_LIKELY(front != NULL && front->handle == handle))
        front = vrpi_front_find(t, handle);
    /* the scope is looked at in here: a release closes every gate first */
    if (VRPI_LIKELY(front != NULL && (scope == 0 || vrpi_scope_is(t->core, scope, 1, 1)))) {
        if (VRPI_LIKELY(bytes - 1 < VRPI_SMALL_MAX))
            hit = vrpi_hit_slot(t, front, bytes, tag, index, out);
        else if (VRPI_LIKELY(bytes - 1 < UINT64_C(1) << 47)) /* nor 0 */
            hit = vrpi_hit_block(t, front, bytes, tag, index, out);
    }
    vrpi_gate_leave(&t->gate);
    return hit;
}

static inline __attribute__((always_inline)) int vrpi_hit_free(vrpi_thread *t, vrp_devptr ptr,
                                                               vrp_stream handle) {
    vrpi_block *block;
    int hit = 0;
    if (!vrpi_gate_pass(&t->gate))
        return 0;
    block = vrpi_map_get(t->core, ptr);
    if (VRPI_LIKELY(block != NULL)) {
        uint8_t state = atomic_load_explicit(&block->state, memory_order_relaxed);
        if (VRPI_LIKELY(state == VRPI_SLAB))
            hit = vrpi_hit_free_slot(t, block->slab, ptr, handle);
        else if (VRPI_LIKELY(state == VRPI_LIVE && block->addr == ptr))
            hit = vrpi_hit_free_block(t, block, handle);
    }
    vrpi_gate_leave(&t->gate);
    return hit;
}

#endif
