/* SPDX-License-Identifier: MIT */
/* Slots on their way from threads that free to threads that allocate on the same
 * stream: half a magazine at a time, without a visit at their slabs. Lock held. */

#include "core/front.h"

enum { BATCHES_MOST = 4 }; /* of a class and stream */

static uint64_t bytes_of(const vrpi_batch *batch, uint32_t klass) {
    return (uint64_t)batch->count * vrpi_small_class_bytes(klass);
}

int vrpi_depot_put(vrpi_pool *core, vrpi_front *front, uint32_t klass) {
    vrpi_magazine *mag = &front->mag[klass];
    vrpi_stream *stream = front->stream;
    uint32_t count = vrpi_mag_count(mag), n = count / 2 < VRPI_BATCH ? count / 2 : VRPI_BATCH;
    vrpi_batch *batch = core->batches;
    if (n == 0 || vrpi_mag_capacity(mag) < VRPI_BATCH || stream->depot_count[klass] == BATCHES_MOST)
        return 0;
    if (batch != NULL)
        core->batches = batch->next;
    else if ((batch = vrpi_host_alloc(core, sizeof *batch)) == NULL)
        return 0;
    batch->count = n;
    for (uint32_t i = 0; i < n; i++)
        batch->entry[i] = mag->first[count - n + i];
    vrpi_mag_set(mag, count - n);
    batch->next = stream->depot[klass];
    stream->depot[klass] = batch;
    stream->depot_count[klass]++;
    core->depot_bytes += bytes_of(batch, klass);
    return 1;
}

static vrpi_batch *pop(vrpi_pool *core, vrpi_stream *stream, uint32_t klass) {
    vrpi_batch *batch = stream->depot[klass];
    if (batch == NULL)
        return NULL;
    stream->depot[klass] = batch->next;
    stream->depot_count[klass]--;
    core->depot_bytes -= bytes_of(batch, klass);
    batch->next = core->batches;
    core->batches = batch; /* its entries stay readable until the next put */
    return batch;
}

int vrpi_depot_take(vrpi_pool *core, vrpi_front *front, uint32_t klass) {
    vrpi_magazine *mag = &front->mag[klass];
    const vrpi_batch *batch;
    if (vrpi_mag_count(mag) != 0 || vrpi_mag_capacity(mag) < VRPI_BATCH)
        return 0;
    batch = pop(core, front->stream, klass);
    if (batch == NULL)
        return 0;
    for (uint32_t i = 0; i < batch->count; i++)
        mag->first[i] = batch->entry[i];
    vrpi_mag_set(mag, batch->count);
    return 1;
}

uint64_t vrpi_depot_flush(vrpi_pool *core, vrpi_stream *stream) {
    uint64_t before = core->depot_bytes;
    const vrpi_batch *batch;
    for (uint32_t k = 0; before > 0 && k < VRPI_SMALL_CLASSES; k++)
        while ((batch = pop(core, stream, k)) != NULL)
            for (uint32_t i = 0; i < batch->count; i++) {
                vrpi_slab *slab = vrpi_map_get(core, batch->entry[i].addr)->slab;
                vrpi_slab_put(core, slab, vrpi_slot_index(slab, batch->entry[i].addr));
            }
    return before - core->depot_bytes;
}

void vrpi_depots_end(vrpi_pool *core) {
    for (vrpi_stream *s = core->streams; s != NULL; s = s->next)
        for (uint32_t k = 0; k < VRPI_SMALL_CLASSES; k++)
            while (pop(core, s, k) != NULL)
                continue;
    while (core->batches != NULL) {
        vrpi_batch *batch = core->batches;
        core->batches = batch->next;
        vrpi_host_free(core, batch, sizeof *batch);
    }
}
