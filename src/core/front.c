/* SPDX-License-Identifier: MIT */
/* Fronts, beyond what every hit needs (front.h): finding another front, blocks of
 * near sizes, counting with scopes and budgets, limits, flushing. */

#include "core/front.h"

#include <string.h>

vrpi_front *vrpi_front_find(vrpi_thread *t, vrp_stream handle) {
    vrpi_front *front = t->fronts;
    if (handle == 1) /* the driver's explicit name of the legacy stream */
        handle = VRP_STREAM_LEGACY;
    while (front != NULL && front->handle != handle)
        front = front->next;
    if (front != NULL)
        t->hot = front;
    return front;
}

vrpi_front *vrpi_front_of(vrpi_thread *t, const vrpi_stream *owner, vrp_stream handle) {
    vrpi_front *front;
    if (handle != VRP_STREAM_OF_ALLOC) {
        front = vrpi_front_find(t, handle);
        return front != NULL && front->stream == owner ? front : NULL;
    }
    for (front = t->fronts; front != NULL && front->stream != owner; front = front->next)
        continue;
    return front;
}

void vrpi_quick_high(vrpi_thread *t) {
    vrpi_shards_check(t);
    vrpi_gate_leave(&t->gate);
}

void vrpi_quick_low(vrpi_thread *t) {
    vrpi_shards_due(t);
    vrpi_gate_leave(&t->gate);
}

static void slab_mark(vrpi_slab *slab, uint32_t scope) {
    uint64_t bit = UINT64_C(1) << (scope % 64);
    if (scope != 0 && (atomic_load_explicit(&slab->scope_mask, memory_order_relaxed) & bit) == 0)
        (void)atomic_fetch_or_explicit(&slab->scope_mask, bit, memory_order_relaxed);
}

int vrpi_hit_count(vrpi_thread *t, vrp_devptr addr, uint32_t scope, uint8_t tag, uint64_t requested,
                   uint64_t allocated) {
    if (vrpi_count_alloc(t, tag, scope, requested, allocated) != VRP_OK)
        return 0;
    slab_mark(vrpi_map_get(t->core, addr)->slab, scope);
    return 1;
}

void vrpi_slot_fill(vrpi_slab *slab, uint32_t index, const vrpi_request *request) {
    slab_mark(slab, request->scope);
    vrpi_slot_set(&slab->slot[index],
                  vrpi_slot_word(request->tag, slab->slot_bytes - request->bytes, request->scope));
}

int vrpi_front_put_slot(vrpi_front *front, vrpi_slab *slab, uint32_t index) {
    return vrpi_mag_put(front, slab, &slab->slot[index],
                        slab->addr + (uint64_t)index * slab->slot_bytes);
}

/* ---- blocks of near sizes ------------------------------------------------------------ */

/* Thirty-two bins a doubling. */
static uint32_t bin_of(uint64_t bytes) {
    uint32_t exponent = 63 - (uint32_t)__builtin_clzll(bytes);
    return (exponent - VRPI_CELL_SHIFT) * 32 + (uint32_t)((bytes >> (exponent - 5)) & 31);
}

/* There is an unused entry. */
static void kept_link(vrpi_front *front, vrpi_block *block, uint64_t bytes) {
    uint32_t bin = bin_of(bytes), at = front->kept_unused - 1u;
    front->kept_unused = front->kept[at].next;
    front->kept[at].block = block;
    front->kept[at].bytes = (uint32_t)bytes;
    front->kept[at].next = front->bin[bin];
    front->bin[bin] = (uint8_t)(at + 1);
    front->bin_mask[bin / 64] |= UINT64_C(1) << (bin % 64);
}

static vrpi_block *entry_take(vrpi_front *front, uint32_t bin, uint8_t *link, uint64_t *out_bytes) {
    uint32_t at = *link - 1u;
    *link = front->kept[at].next;
    front->kept[at].next = front->kept_unused;
    front->kept_unused = (uint8_t)(at + 1);
    if (front->bin[bin] == 0)
        front->bin_mask[bin / 64] &= ~(UINT64_C(1) << (bin % 64));
    *out_bytes = front->kept[at].bytes;
    return front->kept[at].block;
}

/* Any block of the next three bins is large enough, and at most an eighth too
 * large; in the bin of the size itself some may be too small. */
static vrpi_block *kept_take(vrpi_front *front, uint64_t want, uint64_t *out_bytes) {
    uint32_t bin = bin_of(want), word = bin / 64, shift = bin % 64;
    uint64_t bins = front->bin_mask[word] >> shift;
    if (shift > 60 && word + 1 < VRPI_BINS / 64)
        bins |= front->bin_mask[word + 1] << (64 - shift);
    bins &= 15;
    for (uint8_t *link = &front->bin[bin]; (bins & 1) != 0 && *link != 0;
         link = &front->kept[*link - 1].next)
        if (front->kept[*link - 1].bytes >= want)
            return entry_take(front, bin, link, out_bytes);
    bins &= ~UINT64_C(1);
    if (bins == 0)
        return NULL;
    bin += (uint32_t)__builtin_ctzll(bins);
    return entry_take(front, bin, &front->bin[bin], out_bytes);
}

static vrpi_block *held_take(vrpi_front *front, uint64_t want) {
    for (uint32_t i = front->held_count; i-- > 0;)
        if (front->held[i].bytes == want) {
            vrpi_block *block = front->held[i].block;
            front->held[i] = front->held[--front->held_count];
            return block;
        }
    return NULL;
}

static void held_link(vrpi_front *front, vrpi_block *block, uint64_t bytes) {
    front->held[front->held_count].block = block;
    front->held[front->held_count++].bytes = bytes;
}

void vrpi_near_put(vrpi_front *front, vrpi_block *block, uint64_t bytes, int held) {
    if (held)
        held_link(front, block, bytes);
    else
        kept_link(front, block, bytes);
}

static int recent_serves(const vrpi_front *front, uint64_t want) {
    return front->recent != NULL && front->recent_bytes >= want &&
           (front->recent_bytes == want ||
            (!front->recent_held && front->recent_bytes - want <= want >> 3));
}

vrpi_block *vrpi_near_take(vrpi_front *front, uint64_t want, uint64_t *out_bytes, int *out_held) {
    vrpi_block *block = NULL;
    if (recent_serves(front, want)) {
        block = front->recent;
        *out_bytes = front->recent_bytes;
        *out_held = front->recent_held;
        front->recent = NULL;
        return block;
    }
    *out_held = 0;
    if (want < VRPI_KEPT_END)
        block = kept_take(front, want, out_bytes);
    if (block == NULL && front->held_count > 0) {
        block = held_take(front, want);
        *out_bytes = want;
        *out_held = 1;
    }
    return block;
}

/* What was taken just now: the place that it had is still there. */
void vrpi_near_return(vrpi_front *front, vrpi_block *block, uint64_t bytes, int held) {
    if (front->recent != NULL) {
        vrpi_near_put(front, block, bytes, held);
        return;
    }
    front->recent = block;
    front->recent_bytes = bytes;
    front->recent_held = (uint8_t)held;
}

/* ---- limits and flushing, under the pool's lock --------------------------------------- */

/* Half of the limit is for slots, each class its share. */
void vrpi_front_limits(const vrpi_pool *core, vrpi_front *front) {
    uint64_t limit = vrpi_knob(core, VRP_KNOB_CACHE_BYTES), slots = 0;
    for (uint32_t k = 0; k < VRPI_SMALL_CLASSES; k++) {
        vrpi_magazine *mag = &front->mag[k];
        uint64_t share = limit / (2 * VRPI_SMALL_CLASSES);
        if (share > VRPI_MAG_BYTES)
            share = VRPI_MAG_BYTES;
        mag->slot_bytes = vrpi_small_class_bytes(k);
        share /= mag->slot_bytes;
        mag->end = mag->first + (share < VRPI_MAG_SLOTS ? share : VRPI_MAG_SLOTS);
        slots += vrpi_mag_capacity(mag) * mag->slot_bytes;
    }
    front->kept_limit = limit - slots;
}

void vrpi_front_reset(const vrpi_pool *core, vrpi_front *front) {
    for (uint32_t i = 0; i < VRPI_KEPT; i++)
        front->kept[i].next = (uint8_t)(i + 1 < VRPI_KEPT ? i + 2 : 0);
    front->kept_unused = 1;
    memset(front->bin, 0, sizeof front->bin);
    memset(front->bin_mask, 0, sizeof front->bin_mask);
    for (uint32_t k = 0; k < VRPI_SMALL_CLASSES; k++) {
        front->mag[k].first = front->entry[k];
        vrpi_mag_set(&front->mag[k], 0);
    }
    vrpi_front_limits(core, front);
}

static uint64_t slots_in(const vrpi_front *front) {
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < VRPI_SMALL_CLASSES; k++)
        bytes += vrpi_mag_count(&front->mag[k]) * front->mag[k].slot_bytes;
    return bytes;
}

uint64_t vrpi_front_cached(const vrpi_front *front) {
    return atomic_load_explicit(&front->kept_bytes, memory_order_relaxed) + slots_in(front);
}

void vrpi_slot_drop(vrpi_pool *core, vrpi_magazine *mag) {
    uint64_t addr = vrpi_mag_pop(mag).addr;
    vrpi_slab *slab = vrpi_map_get(core, addr)->slab;
    vrpi_slab_put(core, slab, vrpi_slot_index(slab, addr));
}

/* `recent` if it is of that kind. Bytes. */
static uint64_t recent_flush(vrpi_pool *core, vrpi_front *front, int held) {
    vrpi_block *block = front->recent;
    if (block == NULL || front->recent_held != held)
        return 0;
    front->recent = NULL;
    vrpi_front_account(front->thread, front, held, -front->recent_bytes);
    vrpi_block_free(core, block, vrpi_stamp(front->stream));
    return front->recent_bytes;
}

uint64_t vrpi_front_flush_held(vrpi_pool *core, vrpi_front *front) {
    uint64_t bytes = recent_flush(core, front, 1);
    while (front->held_count > 0) {
        uint64_t size = front->held[--front->held_count].bytes;
        vrpi_front_account(front->thread, front, 1, -size);
        vrpi_block_free(core, front->held[front->held_count].block, vrpi_stamp(front->stream));
        bytes += size;
    }
    return bytes;
}

static int bin_filled(const vrpi_front *front, uint32_t bin) {
    return (front->bin_mask[bin / 64] >> (bin % 64) & 1) != 0;
}

static uint64_t bin_flush(vrpi_pool *core, vrpi_front *front, uint32_t bin, uint64_t stamp) {
    uint64_t bytes = 0;
    while (front->bin[bin] != 0) {
        uint64_t size;
        vrpi_block *block = entry_take(front, bin, &front->bin[bin], &size);
        vrpi_front_account(front->thread, front, 0, -size);
        vrpi_block_free(core, block, stamp);
        bytes += size;
    }
    return bytes;
}

static uint32_t first_bin(uint64_t least) {
    return least <= VRPI_CELL ? 0 : least < VRPI_KEPT_END ? bin_of(least) : VRPI_BINS;
}

uint64_t vrpi_front_flush(vrpi_pool *core, vrpi_front *front, uint64_t least, int slots) {
    uint64_t bytes = vrpi_front_flush_held(core, front) + recent_flush(core, front, 0);
    uint64_t stamp;
    if (vrpi_front_cached(front) == 0)
        return bytes;
    stamp = vrpi_stamp(front->stream);
    for (uint32_t bin = first_bin(least); bin < VRPI_BINS; bin++)
        if (bin_filled(front, bin))
            bytes += bin_flush(core, front, bin, stamp);
    for (uint32_t k = 0; slots && k < VRPI_SMALL_CLASSES; k++)
        while (vrpi_mag_count(&front->mag[k]) > 0) {
            bytes += front->mag[k].slot_bytes;
            vrpi_slot_drop(core, &front->mag[k]);
        }
    return bytes;
}
