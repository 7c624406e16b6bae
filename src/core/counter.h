/* SPDX-License-Identifier: MIT */
#ifndef VRPI_CORE_COUNTER_H
#define VRPI_CORE_COUNTER_H

/* What a hit counts: three parts of the active tag's shard, in its own thread's
 * memory. Everything else about counters is in counter.c. */

#include "core/core.h"

#define VRPI_LIKELY(x) (__builtin_expect(!!(x), 1) != 0)
#define VRPI_UNLIKELY(x) (__builtin_expect(!!(x), 0) != 0)

static inline int64_t vrpi_get(const _Atomic int64_t *x) {
    return atomic_load_explicit(x, memory_order_relaxed);
}

static inline void vrpi_set(_Atomic int64_t *x, int64_t value) {
    atomic_store_explicit(x, value, memory_order_relaxed);
}

static inline int64_t vrpi_part_now(const vrpi_part *part) {
    return vrpi_get(&part->max) - vrpi_get(&part->room);
}

/* 1: it is a new maximum. */
static inline int vrpi_part_up(vrpi_part *part, int64_t by) {
    int64_t room = vrpi_get(&part->room) - by;
    vrpi_set(&part->in, vrpi_get(&part->in) + by);
    if (VRPI_UNLIKELY(room < 0)) {
        vrpi_set(&part->max, vrpi_get(&part->max) - room);
        vrpi_set(&part->room, 0);
        return 1;
    }
    vrpi_set(&part->room, room);
    return 0;
}

static inline void vrpi_part_down(vrpi_part *part, int64_t by) {
    vrpi_set(&part->room, vrpi_get(&part->room) + by);
}

/* In the active tag's shard. 1: vrpi_shards_due may be due, or is. The thread's own
 * call, or its gate is closed. Budgets are the caller's affair. */
static inline int vrpi_active_up(vrpi_part *part, uint64_t requested, uint64_t allocated) {
    (void)vrpi_part_up(&part[VRPI_REQUESTED], (int64_t)requested);
    (void)vrpi_part_up(&part[VRPI_BLOCKS], 1);
    /* what is due is above every maximum before */
    return VRPI_UNLIKELY(vrpi_part_up(&part[VRPI_ALLOCATED], (int64_t)allocated));
}

static inline int vrpi_active_down(const vrpi_thread *t, vrpi_part *part, uint64_t requested,
                                   uint64_t allocated) {
    vrpi_part_down(&part[VRPI_REQUESTED], (int64_t)requested);
    vrpi_part_down(&part[VRPI_BLOCKS], 1);
    vrpi_part_down(&part[VRPI_ALLOCATED], (int64_t)allocated);
    return VRPI_UNLIKELY(vrpi_part_now(&part[VRPI_ALLOCATED]) < t->low);
}

static inline void vrpi_tag_up(vrpi_thread *t, uint8_t tag, uint64_t requested,
                               uint64_t allocated) {
    if (VRPI_UNLIKELY(atomic_load_explicit(&t->active, memory_order_relaxed) != tag))
        vrpi_tag_activate(t, tag);
    if (vrpi_active_up(t->tag[tag].part, requested, allocated))
        vrpi_shards_check(t);
}

static inline void vrpi_tag_down(vrpi_thread *t, uint8_t tag, uint64_t requested,
                                 uint64_t allocated) {
    if (VRPI_UNLIKELY(atomic_load_explicit(&t->active, memory_order_relaxed) != tag))
        vrpi_tag_activate(t, tag);
    if (vrpi_active_down(t, t->tag[tag].part, requested, allocated))
        vrpi_shards_due(t);
}

#endif
