/* SPDX-License-Identifier: MIT */
#ifndef VRPI_CORE_FRONT_H
#define VRPI_CORE_FRONT_H

/* The hit paths: a thread allocates from and frees into its own front. No lock,
 * no atomic exchange, no line that others write. Each returns 0 if it is no hit,
 * and has changed nothing then. */

#include "core/counter.h"
#include "core/sizeclass.h"

/* ---- front.c ---- */
vrpi_front *vrpi_front_find(vrpi_thread *t, vrp_stream handle); /* makes it the hot one */
vrpi_front *vrpi_front_of(vrpi_thread *t, const vrpi_stream *owner, vrp_stream handle);
/* A block for that size leaves the front: its bytes, and whether it counted as held.
 * NULL: there is none. */
vrpi_block *vrpi_near_take(vrpi_front *front, uint64_t want, uint64_t *out_bytes, int *out_held);
void vrpi_near_return(vrpi_front *front, vrpi_block *block, uint64_t bytes, int held);
void vrpi_near_put(vrpi_front *front, vrpi_block *block, uint64_t bytes, int held); /* it fits */
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
void vrpi_quick_high(vrpi_thread *t); /* at a new maximum, or low enough: the gate is left */
void vrpi_quick_low(vrpi_thread *t);

/* Whether all that there is to count is the pool and the tag. */
static inline int vrpi_is_plain(const vrpi_thread *t, uint32_t scope) {
    return scope == 0 && atomic_load_explicit(&t->core->budgets, memory_order_relaxed) == 0;
}

/* ---- slots ----------------------------------------------------------------------- */

static inline void vrpi_slot_set(vrpi_slot *slot, uint64_t word) {
    atomic_store_explicit(&slot->word, word, memory_order_relaxed);
}
static inline uint64_t vrpi_slot_get(const vrpi_slot *slot) {
    return atomic_load_explicit(&slot->word, memory_order_relaxed);
}

static inline vrpi_entry *vrpi_mag_top(const vrpi_magazine *mag) {
    return atomic_load_explicit(&mag->top, memory_order_relaxed);
}
static inline uint32_t vrpi_mag_count(const vrpi_magazine *mag) {
    return (uint32_t)(vrpi_mag_top(mag) - mag->first);
}
static inline uint32_t vrpi_mag_capacity(const vrpi_magazine *mag) {
    return (uint32_t)(mag->end - mag->first);
}
static inline void vrpi_mag_set(vrpi_magazine *mag, uint32_t count) {
    atomic_store_explicit(&mag->top, mag->first + count, memory_order_relaxed);
}
static inline vrpi_entry vrpi_mag_pop(vrpi_magazine *mag) { /* it is not empty */
    vrpi_entry *last = vrpi_mag_top(mag) - 1;
    atomic_store_explicit(&mag->top, last, memory_order_relaxed);
    return *last;
}
static inline void vrpi_mag_push(vrpi_magazine *mag, vrpi_slot *slot, uint64_t addr) {
    vrpi_entry *top = vrpi_mag_top(mag); /* there is room */
    top->addr = addr;
    top->slot = slot;
    atomic_store_explicit(&mag->top, top + 1, memory_order_relaxed);
    atomic_store_explicit(&slot->state, VRPI_CACHED, memory_order_relaxed);
}

static inline int vrpi_hit_slot(vrpi_thread *t, vrpi_front *front, uint64_t bytes, uint8_t tag,
                                uint32_t scope, vrp_devptr *out) {
    vrpi_magazine *mag = &front->mag[vrpi_small_class(bytes)];
    vrpi_entry entry;
    if (vrpi_mag_top(mag) == mag->first)
        return 0;
    if (!vrpi_is_plain(t, scope) &&
        !vrpi_hit_count(t, vrpi_mag_top(mag)[-1].addr, scope, tag, bytes, mag->slot_bytes))
        return 0;
    entry = vrpi_mag_pop(mag);
    vrpi_slot_set(entry.slot, vrpi_slot_word(tag, mag->slot_bytes - bytes, scope));
    if (vrpi_is_plain(t, scope))
        vrpi_tag_up(t, tag, bytes, mag->slot_bytes);
    *out = entry.addr;
    return 1;
}

static inline int vrpi_mag_put(vrpi_front *front, const vrpi_slab *slab, vrpi_slot *slot,
                               uint64_t addr) {
    vrpi_magazine *mag = &front->mag[slab->klass];
    if (vrpi_mag_top(mag) >= mag->end)
        return 0;
    vrpi_mag_push(mag, slot, addr);
    return 1;
}

static inline int vrpi_is_front_for(const vrpi_front *front, const vrpi_stream *owner,
                                    vrp_stream handle) {
    return VRPI_LIKELY(front != NULL && front->stream == owner &&
                       (front->handle == handle || handle == VRP_STREAM_OF_ALLOC));
}

/* The front that a block of `owner` goes to, freed on `handle`; NULL: none. */
static inline vrpi_front *vrpi_front_for(vrpi_thread *t, const vrpi_stream *owner,
                                         vrp_stream handle) {
    return vrpi_is_front_for(t->hot, owner, handle) ? t->hot : vrpi_front_of(t, owner, handle);
}

/* The slot that starts at an address near the slab; NULL: none does. */
static inline vrpi_slot *vrpi_slot_at(vrpi_slab *slab, vrp_devptr ptr) {
    uint32_t index = vrpi_slot_index(slab, ptr);
    return VRPI_LIKELY(index < slab->slot_count &&
                       slab->addr + (uint64_t)index * slab->slot_bytes == ptr)
               ? &slab->slot[index]
               : NULL;
}

static inline int vrpi_hit_free_slot(vrpi_thread *t, vrpi_slab *slab, vrp_devptr ptr,
                                     vrp_stream handle) {
    vrpi_slot *slot = vrpi_slot_at(slab, ptr);
    vrpi_front *front;
    uint64_t requested;
    if (slot == NULL || slot->state != VRPI_LIVE)
        return 0;
    front = vrpi_front_for(t, slab->stream, handle);
    if (front == NULL || !vrpi_mag_put(front, slab, slot, ptr))
        return 0;
    requested = slab->slot_bytes - (uint64_t)slot->waste;
    if (vrpi_is_plain(t, slot->scope))
        vrpi_tag_down(t, slot->tag, requested, slab->slot_bytes);
    else
        vrpi_count_free(t, slot->tag, slot->scope, requested, slab->slot_bytes);
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

/* `recent` can move on. */
static inline int vrpi_near_fits(const vrpi_front *front) {
    return front->recent_held ? front->held_count < VRPI_HELD : front->kept_unused != 0;
}

static inline void vrpi_block_fill(vrpi_block *block, uint64_t bytes, uint8_t tag, uint32_t scope) {
    block->requested = bytes;
    block->tag = tag;
    block->scope = (uint16_t)scope;
    atomic_store_explicit(&block->state, VRPI_LIVE, memory_order_relaxed);
}

static inline int vrpi_hit_block(vrpi_thread *t, vrpi_front *front, uint64_t bytes, uint8_t tag,
                                 uint32_t scope, vrp_devptr *out) {
    uint64_t want = (bytes + VRPI_UNIT - 1) & ~(VRPI_UNIT - 1), size = want;
    vrpi_block *block;
    int held;
    if (tag == VRP_TAG_WEIGHTS)
        return 0; /* they live long, apart from what comes and goes */
    block = vrpi_near_take(front, want, &size, &held);
    if (block == NULL)
        return 0;
    if (!vrpi_is_plain(t, scope) && !vrpi_budget_take(t, tag, scope, size)) {
        vrpi_near_return(front, block, size, held);
        return 0;
    }
    vrpi_front_account(t, front, held, -size);
    if (VRPI_LIKELY(scope == 0))
        vrpi_tag_up(t, tag, bytes, size);
    else
        vrpi_count_up(t, tag, scope, bytes, size);
    vrpi_block_fill(block, bytes, tag, scope);
    *out = block->addr;
    return 1;
}

static inline int vrpi_hit_free_block(vrpi_thread *t, vrpi_block *block, vrp_stream handle) {
    const vrpi_pool *core = t->core;
    const vrpi_arena *arena = vrpi_arena_of(core, block);
    uint64_t bytes = VRPI_BYTES(block);
    vrpi_front *front;
    int held;
    if (!VRPI_LIKELY(arena != NULL && arena->klass != VRPI_CLASS_WEIGHTS))
        return 0;
    front = vrpi_front_for(t, arena->stream, handle);
    if (front == NULL)
        return 0;
    held = bytes > vrpi_knob(core, VRP_KNOB_CACHE_BLOCK_BYTES) || bytes >= VRPI_KEPT_END;
    if (held ? atomic_load_explicit(&t->held_bytes, memory_order_relaxed) + bytes >
                   vrpi_knob(core, VRP_KNOB_CACHE_HELD_BYTES)
             : atomic_load_explicit(&front->kept_bytes, memory_order_relaxed) + bytes >
                   front->kept_limit)
        return 0;
    if (front->recent != NULL) {
        if (!vrpi_near_fits(front))
            return 0;
        vrpi_near_put(front, front->recent, front->recent_bytes, front->recent_held);
    }
    front->recent = block;
    front->recent_bytes = bytes;
    front->recent_held = (uint8_t)held;
    atomic_store_explicit(&block->state, VRPI_CACHED, memory_order_relaxed);
    vrpi_front_account(t, front, held, bytes);
    if (VRPI_LIKELY(vrpi_is_plain(t, block->scope)))
        vrpi_tag_down(t, block->tag, block->requested, bytes);
    else
        vrpi_count_free(t, block->tag, block->scope, block->requested, bytes);
    return 1;
}

/* ---- hits ------------------------------------------------------------------------------ */

/* Whatever there is in the thread's fronts, inside the gate. The alignment is the minimum. */
static inline int vrpi_hit_alloc(vrpi_thread *t, uint64_t bytes, uint8_t tag, vrp_stream handle,
                                 vrp_scope scope, vrp_devptr *out) {
    uint32_t index = vrpi_scope_index(scope);
    vrpi_front *front = t->hot;
    if (!VRPI_LIKELY(front != NULL && front->handle == handle))
        front = vrpi_front_find(t, handle);
    /* the scope is looked at in here: a release closes every gate first */
    if (front == NULL || (scope != 0 && !vrpi_scope_is(t->core, scope, 1, 1)))
        return 0;
    if (bytes - 1 < VRPI_SMALL_MAX)
        return vrpi_hit_slot(t, front, bytes, tag, index, out);
    return bytes - 1 < UINT64_C(1) << 47 /* nor 0 */ &&
           vrpi_hit_block(t, front, bytes, tag, index, out);
}

/* Of what vrpi_map_find has found, inside the gate. */
static inline int vrpi_hit_free_found(vrpi_thread *t, vrpi_found found, vrp_devptr ptr,
                                      vrp_stream handle) {
    vrpi_block *block = (vrpi_block *)found;
    uint8_t state;
    if (found & VRPI_MAP_SLAB)
        return vrpi_hit_free_slot(t, vrpi_found_slab(found), ptr, handle);
    if (block == NULL)
        return 0;
    state = atomic_load_explicit(&block->state, memory_order_relaxed);
    if (state == VRPI_SLAB)
        return vrpi_hit_free_slot(t, block->slab, ptr, handle);
    return state == VRPI_LIVE && block->addr == ptr && vrpi_hit_free_block(t, block, handle);
}

/* The commonest hits, without a call and with no more than they need: the front
 * used last, the tag counted last, no scope, no budget. Inside the gate, which is
 * left where the answer is 1. 0: it may be a hit of the other kind. */

static inline int vrpi_quick_end(vrpi_thread *t, int due, void (*call)(vrpi_thread *)) {
    if (VRPI_UNLIKELY(due))
        call(t);
    else
        vrpi_gate_leave(&t->gate);
    return 1;
}

static inline __attribute__((always_inline)) int
vrpi_quick_slot(vrpi_thread *t, uint64_t bytes, vrp_stream handle, vrp_devptr *out) {
    vrpi_front *front = t->hot;
    vrpi_magazine *mag;
    vrpi_entry *last;
    if (!VRPI_LIKELY(front != NULL && front->handle == handle &&
                     t->plain == vrpi_slot_word(VRP_TAG_OTHER, 0, 0)))
        return 0;
    mag = &front->mag[vrpi_small_class(bytes)];
    last = vrpi_mag_top(mag) - 1;
    if (!VRPI_LIKELY(last >= mag->first))
        return 0;
    *out = last->addr;
    vrpi_slot_set(last->slot, vrpi_slot_word(VRP_TAG_OTHER, mag->slot_bytes - bytes, 0));
    atomic_store_explicit(&mag->top, last, memory_order_relaxed);
    return vrpi_quick_end(t, vrpi_active_up(t->tag[VRP_TAG_OTHER].part, bytes, mag->slot_bytes),
                          vrpi_quick_high);
}

static inline __attribute__((always_inline)) int
vrpi_quick_free_slot(vrpi_thread *t, vrpi_slab *slab, vrp_devptr ptr, vrp_stream handle) {
    vrpi_slot *slot = vrpi_slot_at(slab, ptr);
    vrpi_front *front = t->hot;
    vrpi_magazine *mag;
    uint64_t word;
    if (!VRPI_LIKELY(slot != NULL && vrpi_is_front_for(front, slab->stream, handle)))
        return 0;
    word = vrpi_slot_get(slot);
    mag = &front->mag[slab->klass];
    if (!VRPI_LIKELY((word & ~VRPI_WORD_WASTE) == t->plain && vrpi_mag_top(mag) < mag->end))
        return 0;
    vrpi_mag_push(mag, slot, ptr);
    return vrpi_quick_end(
        t,
        vrpi_active_down(t, t->part, slab->slot_bytes - (uint16_t)(word >> 32), slab->slot_bytes),
        vrpi_quick_low);
}

/* The block that was freed last. */
static inline __attribute__((always_inline)) int
vrpi_quick_block(vrpi_thread *t, uint64_t bytes, vrp_stream handle, vrp_devptr *out) {
    vrpi_front *front = t->hot;
    uint64_t size = (bytes + VRPI_UNIT - 1) & ~(VRPI_UNIT - 1);
    vrpi_block *block;
    if (!VRPI_LIKELY(front != NULL && front->handle == handle &&
                     t->plain == vrpi_slot_word(VRP_TAG_OTHER, 0, 0)))
        return 0;
    block = front->recent;
    if (!VRPI_LIKELY(block != NULL && front->recent_bytes == size))
        return 0;
    front->recent = NULL;
    vrpi_front_account(t, front, front->recent_held, -size);
    vrpi_block_fill(block, bytes, VRP_TAG_OTHER, 0);
    *out = block->addr;
    return vrpi_quick_end(t, vrpi_active_up(t->tag[VRP_TAG_OTHER].part, bytes, size),
                          vrpi_quick_high);
}

#endif
