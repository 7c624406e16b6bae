/* SPDX-License-Identifier: MIT */
/* Who used which physical bytes last.
 *
 * Two maps per device, over places in its physical memory, so that aliases of
 * a handle are the same memory. `regions` holds, per run of bytes, the last
 * uses that no later use is known to follow: mostly one. `open` holds the
 * uses between use_begin and use_end. A use is a stream's clock component and
 * its epoch there; it happened before an operation if that operation's clock
 * has reached the epoch. */

#include "driver/sim_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct use {
    uint32_t component;
    uint64_t epoch;
    uint64_t bias; /* address - physical: through which mapping */
} use;

enum { INLINE_USES = 2 };

typedef struct region {
    vrpi_tree_node node; /* first: the tree's node is the region */
    use *uses;           /* inline_uses, or allocated */
    uint32_t count;
    uint32_t capacity;
    use inline_uses[INLINE_USES];
} region;

typedef struct open_use {
    vrpi_tree_node node; /* first */
    uint64_t bias;
    uint32_t depth; /* streams that have it open */
} open_use;

void vrpi_sim_misuse(vrp_sim *sim, const char *format, ...) {
    va_list args;
    if (!vrpi_sim_detects(sim))
        return;
    sim->misuses++;
    va_start(args, format);
    (void)vsnprintf(sim->misuse_text, sizeof sim->misuse_text, format, args);
    va_end(args);
}

/* ---- Regions -------------------------------------------------------------------------- */

static region *as_region(vrpi_tree_node *node) { return (region *)node; }

static vrp_status no_memory(void) {
    return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no memory for the misuse detector");
}

static region *region_new(uint64_t physical, uint64_t bytes) {
    region *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    made->node.key = physical;
    made->node.length = bytes;
    made->uses = made->inline_uses;
    made->capacity = INLINE_USES;
    return made;
}

static void region_free(region *gone) {
    if (gone->uses != gone->inline_uses)
        free(gone->uses);
    free(gone);
}

static vrp_status region_add(region *into, use added) {
    if (into->count == into->capacity) {
        use *grown = malloc(2 * (size_t)into->capacity * sizeof *grown);
        if (grown == NULL)
            return no_memory();
        memcpy(grown, into->uses, into->count * sizeof *grown);
        if (into->uses != into->inline_uses)
            free(into->uses);
        into->uses = grown;
        into->capacity *= 2;
    }
    into->uses[into->count++] = added;
    return VRP_OK;
}

static vrp_status insert_used(vrpi_sim_device *device, uint64_t start, uint64_t end, use last) {
    region *made = region_new(start, end - start);
    if (made == NULL)
        return no_memory();
    made->uses[made->count++] = last;
    vrpi_tree_insert(&device->regions, &made->node);
    return VRP_OK;
}

/* Makes `at` a border between regions. */
static vrp_status cut(vrpi_sim_device *device, uint64_t at) {
    region *low = as_region(vrpi_tree_holding(&device->regions, at));
    region *high;
    vrp_status status = VRP_OK;
    if (low == NULL || low->node.key == at)
        return VRP_OK;
    high = region_new(at, low->node.key + low->node.length - at);
    if (high == NULL)
        return no_memory();
    for (uint32_t i = 0; i < low->count && status == VRP_OK; i++)
        status = region_add(high, low->uses[i]);
    if (status != VRP_OK) {
        region_free(high);
        return status;
    }
    vrpi_tree_remove(&device->regions, &low->node);
    low->node.length = at - low->node.key;
    vrpi_tree_insert(&device->regions, &low->node);
    vrpi_tree_insert(&device->regions, &high->node);
    return VRP_OK;
}

/* Takes out the uses that a new one by `stream` follows. Those that it does
 * not follow are the misuse that `check` asks for. A use through another
 * mapping stays until the host knows of its end: unmapping must find it. */
static void supersede(vrpi_sim_device *device, region *old, const vrpi_sim_stream *stream,
                      uint64_t bias, int check) {
    vrp_sim *sim = device->sim;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < old->count; i++) {
        use last = old->uses[i];
        int before = last.component == stream->component ||
                     vrpi_sim_clock_get(&stream->clock, last.component) >= last.epoch;
        int host = vrpi_sim_clock_get(&sim->host, last.component) >= last.epoch;
        if (!before && check)
            vrpi_sim_misuse(
                sim, "stream %#llx uses %#llx without a wait for its last use elsewhere",
                (unsigned long long)stream->handle, (unsigned long long)(old->node.key + bias));
        if (before ? last.bias != bias && !host : !check)
            old->uses[kept++] = last;
    }
    old->count = kept;
}

static vrp_status note_use(vrpi_sim_device *device, const vrpi_sim_stream *stream,
                           const vrpi_sim_piece *piece, int check) {
    uint64_t end = piece->physical + piece->bytes;
    uint64_t covered = piece->physical; /* up to here regions are in place */
    use last = {stream->component, vrpi_sim_clock_get(&stream->clock, stream->component),
                piece->address - piece->physical};
    vrpi_tree_node *node = vrpi_tree_holding(&device->regions, piece->physical);
    if (node != NULL && node->key == piece->physical && node->length == piece->bytes) {
        /* The same run as before, by far the most frequent case. */
        supersede(device, as_region(node), stream, last.bias, check);
        return region_add(as_region(node), last);
    }
    VRPI_TRY(cut(device, piece->physical));
    VRPI_TRY(cut(device, end));
    node = vrpi_tree_overlapping(&device->regions, piece->physical, piece->bytes);
    while (node != NULL && node->key < end) {
        region *old = as_region(node);
        uint64_t key = node->key;
        supersede(device, old, stream, last.bias, check);
        if (old->count == 0) {
            vrpi_tree_remove(&device->regions, node);
            region_free(old);
        } else {
            if (covered < key)
                VRPI_TRY(insert_used(device, covered, key, last));
            VRPI_TRY(region_add(old, last));
            covered = key + node->length;
        }
        node = vrpi_tree_above(&device->regions, key);
    }
    return covered < end ? insert_used(device, covered, end, last) : VRP_OK;
}

/* ---- Open uses ------------------------------------------------------------------------- */

static open_use *as_open(vrpi_tree_node *node) { return (open_use *)node; }

/* A use may lie within one open use; two blocks may not overlap. */
static vrp_status note_open(vrpi_sim_device *device, const vrpi_sim_piece *piece,
                            vrpi_sim_use_kind kind) {
    vrpi_tree_node *node = vrpi_tree_overlapping(&device->open, piece->physical, piece->bytes);
    int same = node != NULL && node->key == piece->physical && node->length == piece->bytes;
    int inside = node != NULL && node->key <= piece->physical &&
                 node->length - (piece->physical - node->key) >= piece->bytes;
    if (kind == VRPI_SIM_USE_END) {
        if (!same) {
            vrpi_sim_misuse(device->sim, "a use of %#llx ends that has not begun",
                            (unsigned long long)piece->address);
        } else if (--as_open(node)->depth == 0) {
            vrpi_tree_remove(&device->open, node);
            free(as_open(node));
        }
        return VRP_OK;
    }
    if (node != NULL && !(kind == VRPI_SIM_USE_ONCE ? inside : same))
        vrpi_sim_misuse(device->sim, "a use of %#llx overlaps a block in use at %#llx",
                        (unsigned long long)piece->address,
                        (unsigned long long)(node->key + as_open(node)->bias));
    if (kind == VRPI_SIM_USE_BEGIN && same) {
        as_open(node)->depth++;
    } else if (kind == VRPI_SIM_USE_BEGIN && node == NULL) {
        open_use *begun = calloc(1, sizeof *begun);
        if (begun == NULL)
            return no_memory();
        begun->node.key = piece->physical;
        begun->node.length = piece->bytes;
        begun->bias = piece->address - piece->physical;
        begun->depth = 1;
        vrpi_tree_insert(&device->open, &begun->node);
    }
    return VRP_OK;
}

vrp_status vrpi_sim_use(vrp_sim *sim, vrpi_sim_stream *stream, vrp_devptr ptr, uint64_t bytes,
                        vrpi_sim_use_kind kind) {
    vrpi_sim_device *device = vrpi_sim_device_of(sim, ptr);
    uint64_t end = ptr + bytes;
    vrpi_sim_piece piece;
    if (!vrpi_sim_detects(sim) || bytes == 0)
        return VRP_OK;
    if (device == NULL || end < ptr) {
        vrpi_sim_misuse(sim, "a use of %#llx, which is no device memory", (unsigned long long)ptr);
        return VRP_OK;
    }
    for (; ptr < end; ptr += piece.bytes) {
        if (!vrpi_sim_piece_at(device, ptr, end, &piece)) {
            vrpi_sim_misuse(sim, "a use of %#llx, which is not backed", (unsigned long long)ptr);
            return VRP_OK;
        }
        VRPI_TRY(note_open(device, &piece, kind));
        VRPI_TRY(note_use(device, stream, &piece, kind != VRPI_SIM_USE_END));
    }
    return VRP_OK;
}

/* ---- Memory that goes -------------------------------------------------------------------- */

/* Ends the open uses of a run; every mapping's, or one's. */
static void end_open(vrpi_sim_device *device, uint64_t physical, uint64_t bytes, int any_mapping,
                     uint64_t bias, const char *call) {
    vrpi_tree_node *node = vrpi_tree_overlapping(&device->open, physical, bytes);
    while (node != NULL && node->key < physical + bytes) {
        uint64_t key = node->key;
        if (any_mapping || as_open(node)->bias == bias) {
            vrpi_sim_misuse(device->sim, "%s of %#llx, which is in use", call,
                            (unsigned long long)(key + as_open(node)->bias));
            vrpi_tree_remove(&device->open, node);
            free(as_open(node));
        }
        node = vrpi_tree_above(&device->open, key);
    }
}

/* Takes uses out of the regions of a run, with a misuse if the host does not
 * know of the end of one. */
static vrp_status end_uses(vrpi_sim_device *device, uint64_t physical, uint64_t bytes,
                           int any_mapping, uint64_t bias, const char *call) {
    vrp_sim *sim = device->sim;
    uint64_t end = physical + bytes;
    int pending = 0;
    vrpi_tree_node *node;
    VRPI_TRY(cut(device, physical));
    VRPI_TRY(cut(device, end));
    node = vrpi_tree_overlapping(&device->regions, physical, bytes);
    while (node != NULL && node->key < end) {
        region *old = as_region(node);
        uint64_t key = node->key;
        uint32_t kept = 0;
        for (uint32_t i = 0; i < old->count; i++) {
            use last = old->uses[i];
            if (!any_mapping && last.bias != bias)
                old->uses[kept++] = last;
            else if (vrpi_sim_clock_get(&sim->host, last.component) < last.epoch)
                pending = 1;
        }
        old->count = kept;
        if (kept == 0) {
            vrpi_tree_remove(&device->regions, node);
            region_free(old);
        }
        node = vrpi_tree_above(&device->regions, key);
    }
    if (pending)
        vrpi_sim_misuse(sim, "%s of memory at %#llx that unfinished work may use", call,
                        (unsigned long long)(physical + bias));
    return VRP_OK;
}

vrp_status vrpi_sim_regions_unmapped(vrpi_sim_device *device, const vrpi_sim_piece *piece,
                                     const char *call) {
    uint64_t bias = piece->address - piece->physical;
    if (!vrpi_sim_detects(device->sim))
        return VRP_OK;
    end_open(device, piece->physical, piece->bytes, 0, bias, call);
    return end_uses(device, piece->physical, piece->bytes, 0, bias, call);
}

vrp_status vrpi_sim_regions_freed(vrpi_sim_device *device, uint64_t physical, uint64_t bytes,
                                  const char *call) {
    if (!vrpi_sim_detects(device->sim))
        return VRP_OK;
    end_open(device, physical, bytes, 1, 0, call);
    return end_uses(device, physical, bytes, 1, 0, call);
}

void vrpi_sim_regions_clear(vrpi_sim_device *device) {
    vrpi_tree_node *node;
    while ((node = device->regions.root) != NULL) {
        vrpi_tree_remove(&device->regions, node);
        region_free(as_region(node));
    }
    while ((node = device->open.root) != NULL) {
        vrpi_tree_remove(&device->open, node);
        free(as_open(node));
    }
}
