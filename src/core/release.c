/* SPDX-License-Identifier: MIT */
/* Giving several extents back at once: what lies side by side is unmapped by
 * one call, and what a release costs is estimated, so that a call can be held
 * to a budget without a clock. */

#include "core/core.h"

/* Host time of unmap and release by the size of the handle, fitted to what was
 * measured (docs/design/core.md): within a tenth from 2 MiB to 2 GiB. */
uint64_t vrpi_release_price(uint64_t bytes) {
    uint64_t calls = bytes <= UINT64_C(8) << 20 ? 21000 : 28500;
    return calls + (bytes >> 20) * 242;
}

int vrpi_may_release(const vrpi_extent *e) {
    return vrpi_done(e->stream, e->stamp) && e->ghosts == 0;
}

static int joins(const vrpi_pool *core, const vrpi_extent *e, int marked_only) {
    return e != NULL && e != &core->claimed && vrpi_is_idle(e) && (e->marked || !marked_only) &&
           vrpi_may_release(e);
}

static int add(vrpi_run *run, vrpi_extent *e, uint64_t most_ns) {
    uint64_t price = vrpi_release_price(VRPI_BYTES(e));
    if (run->count == VRPI_RUN_MOST || run->price_ns + price > most_ns)
        return 0;
    run->extent[run->count++] = e;
    run->price_ns += price;
    run->bytes += VRPI_BYTES(e);
    return 1;
}

int vrpi_run_collect(const vrpi_pool *core, vrpi_extent *seed, int marked_only, uint64_t most_ns,
                     vrpi_run *run) {
    const vrpi_arena *arena = seed->arena;
    uint64_t at = vrpi_granule_of(core, arena, seed->addr);
    uint64_t end = vrpi_granule_of(core, arena, seed->addr + VRPI_BYTES(seed) - 1) + 1;
    run->count = 0;
    run->price_ns = run->bytes = 0;
    if (!add(run, seed, most_ns))
        return 0;
    run->addr = seed->addr;
    for (vrpi_extent *e; end < arena->granule_count; end += VRPI_BYTES(e) / core->granularity) {
        e = arena->granules[end];
        if (!joins(core, e, marked_only) || !add(run, e, most_ns))
            break;
    }
    while (at > 0) {
        vrpi_extent *e = arena->granules[at - 1];
        if (!joins(core, e, marked_only) || !add(run, e, most_ns))
            break;
        run->addr = e->addr;
        at -= VRPI_BYTES(e) / core->granularity;
    }
    return 1;
}

/* The extents are idle no more, but still theirs: nobody else touches them. */
static vrp_status unmap_and_release(const vrpi_pool *core, const vrpi_run *run,
                                    vrp_status released[VRPI_RUN_MOST]) {
    vrp_status status = core->ops->unmap(core->ctx, run->addr, run->bytes);
    for (uint32_t i = 0; status == VRP_OK && i < run->count; i++)
        released[i] = core->ops->handle_release(core->ctx, run->extent[i]->handle);
    return status;
}

static vrp_status release_several(vrpi_pool *core, const vrpi_run *run) {
    vrpi_arena *arena = run->extent[0]->arena;
    vrp_status released[VRPI_RUN_MOST];
    vrp_status status, first = VRP_OK;
    for (uint32_t i = 0; i < run->count; i++) {
        vrpi_idle_remove(core, run->extent[i]);
        run->extent[i]->state = VRPI_EXTENT_TRANSIT;
    }
    vrpi_mutex_unlock(&core->lock);
    status = unmap_and_release(core, run, released);
    vrpi_mutex_lock(&core->lock);
    if (status != VRP_OK)
        vrpi_driver_failed(core, status);
    for (uint32_t i = 0; i < run->count; i++) {
        vrpi_extent *e = run->extent[i];
        e->state = VRPI_EXTENT_BACKED;
        if (status != VRP_OK) {
            vrpi_idle_add(core, e);
            continue;
        }
        core->extents_unmapped++;
        vrpi_extent_unlink(core, e);
        if (released[i] == VRP_OK) {
            vrpi_reserved_sub(core, VRPI_BYTES(e));
            core->trimmed_bytes += VRPI_BYTES(e);
        } else {
            vrpi_driver_failed(core, released[i]);
            vrpi_orphan_keep(core, (vrpi_orphan){.handle = e->handle, .bytes = VRPI_BYTES(e)});
            first = released[i];
        }
        vrpi_extent_node_free(core, e);
    }
    if (status != VRP_OK)
        return status;
    vrpi_arena_shrink(core, arena);
    return first;
}

vrp_status vrpi_run_release(vrpi_pool *core, const vrpi_run *run) {
    vrp_status status;
    core->releasing_bytes += run->bytes;
    status =
        run->count == 1 ? vrpi_extent_release(core, run->extent[0]) : release_several(core, run);
    core->releasing_bytes -= run->bytes;
    return status;
}
