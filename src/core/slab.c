/* SPDX-License-Identifier: MIT */
/* Slabs: blocks cut into equal slots. A slab belongs to one stream; its free
 * slots serve that stream alone. An empty slab becomes a free block at once. */

#include "core/core.h"
#include "core/sizeclass.h"

#include <string.h>

enum { SLOTS_LEAST = 16, SLAB_LEAST = 32768 };

/* 16 slots, whole cells: larger slabs pin more than they save. */
static uint32_t slab_bytes(uint32_t slot_bytes) {
    uint32_t bytes = slot_bytes * SLOTS_LEAST;
    if (bytes < SLAB_LEAST)
        bytes = SLAB_LEAST;
    return (bytes + (uint32_t)VRPI_CELL - 1) & ~((uint32_t)VRPI_CELL - 1);
}

static size_t host_bytes_of(uint32_t slots) {
    return sizeof(vrpi_slab) + slots * (sizeof(vrpi_slot) + sizeof(uint32_t));
}

static void partial_link(vrpi_slab *slab) {
    vrpi_slab **head = &slab->stream->space[VRPI_CLASS_SLAB].partial[slab->klass];
    slab->next = *head;
    slab->link = head;
    if (slab->next != NULL)
        slab->next->link = &slab->next;
    *head = slab;
}

static void partial_unlink(vrpi_slab *slab) {
    *slab->link = slab->next;
    if (slab->next != NULL)
        slab->next->link = slab->link;
    slab->link = NULL;
}

static void slots_init(vrpi_slab *slab) {
    slab->next_free = (uint32_t *)(void *)&slab->slot[slab->slot_count];
    for (uint32_t i = 0; i < slab->slot_count; i++)
        slab->next_free[i] = i + 1 < slab->slot_count ? i + 2 : 0;
    slab->first_free = 1;
    slab->free_count = slab->slot_count;
    /* offset < 2^20 is < 2^11 units, divided by 1 .. 64 units: with the factor
     * rounded up the error is below 2^11 / 2^32, under one part in 64. */
    uint32_t units = slab->slot_bytes / (uint32_t)VRPI_UNIT;
    slab->magic = ((UINT64_C(1) << 32) + units - 1) / units;
}

static vrp_status slab_create(vrpi_pool *core, vrpi_request *request, vrpi_stream *stream,
                              uint32_t klass, vrpi_slab **out) {
    uint32_t slot = vrpi_small_class_bytes(klass);
    uint32_t bytes = slab_bytes(slot);
    uint32_t count = bytes / slot;
    vrpi_slab *slab = vrpi_host_alloc(core, host_bytes_of(count));
    vrpi_block *block;
    vrp_status status;
    if (slab == NULL)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for a slab of %u slots", count);
    request->is_slab = 1;
    status =
        vrpi_block_alloc(core, request, stream,
                         core->backing == VRP_BACKING_MALLOC ? VRPI_CLASS_HUGE : VRPI_CLASS_SLAB,
                         bytes, VRPI_CELL, &block);
    request->is_slab = 0;
    if (status != VRP_OK) {
        vrpi_host_free(core, slab, host_bytes_of(count));
        return status;
    }
    slab->addr = block->addr;
    slab->slot_bytes = slot;
    slab->slot_count = count;
    slab->klass = klass;
    slab->block = block;
    slab->stream = stream;
    slots_init(slab);
    block->slab = slab;
    vrpi_set_state(block, VRPI_SLAB);
    vrpi_map_slab(core, slab);
    partial_link(slab);
    slab->all_next = core->slabs;
    slab->all_link = &core->slabs;
    if (slab->all_next != NULL)
        slab->all_next->all_link = &slab->all_next;
    core->slabs = slab;
    *out = slab;
    return VRP_OK;
}

vrp_status vrpi_slab_refill(vrpi_pool *core, vrpi_request *request, vrpi_stream *stream,
                            uint32_t klass, vrpi_slab **out) {
    vrpi_slab *slab = stream->space[VRPI_CLASS_SLAB].partial[klass];
    if (slab == NULL)
        return slab_create(core, request, stream, klass, out);
    *out = slab;
    return VRP_OK;
}

uint32_t vrpi_slab_take(vrpi_slab *slab) {
    uint32_t index = slab->first_free - 1;
    slab->first_free = slab->next_free[index];
    if (--slab->free_count == 0)
        partial_unlink(slab);
    return index;
}

void vrpi_slab_put(vrpi_pool *core, vrpi_slab *slab, uint32_t index) {
    atomic_store_explicit(&slab->slot[index].state, VRPI_FREE, memory_order_relaxed);
    slab->next_free[index] = slab->first_free;
    slab->first_free = index + 1;
    if (slab->free_count++ == 0)
        partial_link(slab);
    if (slab->free_count < slab->slot_count)
        return;
    partial_unlink(slab);
    *slab->all_link = slab->all_next;
    if (slab->all_next != NULL)
        slab->all_next->all_link = slab->all_link;
    vrpi_block_free(core, slab->block, vrpi_stamp(slab->stream));
    vrpi_slab_forget(core, slab);
}

void vrpi_slab_forget(vrpi_pool *core, vrpi_slab *slab) {
    vrpi_host_free(core, slab->uses, slab->slot_count * sizeof *slab->uses);
    vrpi_host_free(core, slab, host_bytes_of(slab->slot_count));
}
