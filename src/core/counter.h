/* SPDX-License-Identifier: MIT */
#ifndef VRPI_CORE_COUNTER_H
#define VRPI_CORE_COUNTER_H

/* What a hit counts: three parts of the active tag's shard, in its own thread's
 * memory. Everything else about counters is in counter.c. */

#include "core/core.h"

static inline int64_t vrpi_get(const _Atomic int64_t *x) {
    return atomic_load_explicit(x, memory_order_relaxed);
}

static inline void vrpi_set(_Atomic int64_t *x, int64_t value) {
    atomic_store_explicit(x, value, memory_order_relaxed);
}

static inline int64_t vrpi_part_up(vrpi_part *part, int64_t by) {
    int64_t in = vrpi_get(&part->in) + by;
    int64_t now = in - vrpi_get(&part->out);
    vrpi_set(&part->in, in);
    if (__builtin_expect(now > vrpi_get(&part->max), 0))
        vrpi_set(&part->max, now);
    return now;
}

static inline int64_t vrpi_part_down(vrpi_part *part, int64_t by) {
    int64_t out = vrpi_get(&part->out) + by;
    vrpi_set(&part->out, out);
    return vrpi_get(&part->in) - out;
}

/* The thread's own call, or its gate is closed. Budgets are the caller's affair. */
static inline void vrpi_tag_up(vrpi_thread *t, uint8_t tag, uint64_t requested,
                               uint64_t allocated) {
    vrpi_part *part = t->tag[tag].part;
    if (__builtin_expect(atomic_load_explicit(&t->active, memory_order_relaxed) != tag, 0))
        vrpi_tag_activate(t, tag);
    (void)vrpi_part_up(&part[VRPI_REQUESTED], (int64_t)requested);
    (void)vrpi_part_up(&part[VRPI_BLOCKS], 1);
    if (__builtin_expect(vrpi_part_up(&part[VRPI_ALLOCATED], (int64_t)allocated) > t->high, 0))
        vrpi_shards_due(t);
}

static inline void vrpi_tag_down(vrpi_thread *t, uint8_t tag, uint64_t requested,
                                 uint64_t allocated) {
    vrpi_part *part = t->tag[tag].part;
    if (__builtin_expect(atomic_load_explicit(&t->active, memory_order_relaxed) != tag, 0))
        vrpi_tag_activate(t, tag);
    (void)vrpi_part_down(&part[VRPI_REQUESTED], (int64_t)requested);
    (void)vrpi_part_down(&part[VRPI_BLOCKS], 1);
    if (__builtin_expect(vrpi_part_down(&part[VRPI_ALLOCATED], (int64_t)allocated) < t->low, 0))
        vrpi_shards_due(t);
}

#endif
