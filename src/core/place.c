/* SPDX-License-Identifier: MIT */
/* Placing a request.
 *
 * Placement: among the smallest holes that fit, the one that needs the fewest
 * newly backed bytes, then the smallest, then the lowest address. A block goes
 * to the start or the end of its hole, next to a neighbour: a hole of odd size
 * in the middle would split every later one. */

#include "core/core.h"

enum { CANDIDATES_MAX = 256 };

typedef struct place {
    vrpi_arena *arena;
    vrpi_block *block; /* NULL: the untouched tail of the arena */
    uint64_t addr;
    uint64_t unbacked; /* bytes of granules to back */
    int found;
} place;

/* Bytes to back for a block there; 0 if a driver call is changing it now. */
static int measure(const vrpi_pool *core, const vrpi_arena *arena, uint64_t addr, uint64_t size,
                   uint64_t *out_unbacked) {
    uint64_t g = core->granularity, unbacked = 0;
    uint64_t i = vrpi_granule_of(core, arena, addr);
    uint64_t last = vrpi_granule_of(core, arena, addr + size - 1);
    while (i <= last) {
        const vrpi_extent *e = i < arena->granule_count ? arena->granules[i] : NULL;
        if (e == NULL) {
            unbacked += g;
            i++;
            continue;
        }
        if (e->state == VRPI_EXTENT_TRANSIT)
            return 0;
        i = vrpi_granule_of(core, arena, e->addr + VRPI_BYTES(e) - 1) + 1;
    }
    *out_unbacked = unbacked;
    return 1;
}

static void consider(const vrpi_pool *core, vrpi_block *hole, uint64_t addr, uint64_t size,
                     place *best) {
    uint64_t unbacked;
    if (addr < hole->addr || addr + size > hole->addr + VRPI_BYTES(hole))
        return;
    if (!measure(core, vrpi_arena_of(core, hole), addr, size, &unbacked))
        return;
    if (best->found && unbacked >= best->unbacked)
        return; /* holes come in order of size and address */
    best->found = 1;
    best->arena = vrpi_arena_of(core, hole);
    best->block = hole;
    best->addr = addr;
    best->unbacked = unbacked;
}

static uint64_t align_up(uint64_t x, uint64_t alignment) {
    return (x + alignment - 1) & ~(alignment - 1);
}

/* The untouched end of the space's newest arena. */
static void consider_tail(const vrpi_pool *core, vrpi_space *space, uint64_t size,
                          uint64_t alignment, place *best) {
    vrpi_arena *arena = space->arenas;
    const vrpi_block *last;
    uint64_t start, limit, unbacked;
    if (arena == NULL || core->backing == VRP_BACKING_MALLOC)
        return;
    limit = arena->base + (arena->bytes < VRPI_RANGE_MAX ? arena->bytes : VRPI_RANGE_MAX);
    start = arena->end;
    last = vrpi_last(core, arena);
    if (last != NULL && last->state == VRPI_FREE)
        start = last->addr;
    start = align_up(start, alignment);
    if (start + size > limit)
        return;
    if (!measure(core, arena, start, size, &unbacked)) {
        start = align_up(arena->end, alignment); /* the last granule is being changed */
        if (start + size > limit || !measure(core, arena, start, size, &unbacked))
            return;
    }
    if (best->found && unbacked >= best->unbacked)
        return;
    best->found = 1;
    best->arena = arena;
    best->block = NULL;
    best->addr = start;
    best->unbacked = unbacked;
}

/* Knob SPLIT_LIMIT_BYTES: a large segment is not cut up for a small request. */
static int may_split(const vrpi_pool *core, uint64_t hole_bytes, uint64_t size) {
    uint64_t limit = vrpi_knob(core, VRP_KNOB_SPLIT_LIMIT_BYTES);
    return limit == 0 || core->backing != VRP_BACKING_MALLOC || hole_bytes <= limit ||
           size >= hole_bytes / 2;
}

static void find_place(const vrpi_pool *core, vrpi_space *space, uint64_t size, uint64_t alignment,
                       place *best) {
    int left = CANDIDATES_MAX;
    best->found = 0;
    for (vrpi_node *n = vrpi_treap_at_least(&space->free, size, 0); n != NULL && left-- > 0;
         n = vrpi_treap_next(&space->free, n)) {
        vrpi_block *hole = (vrpi_block *)(void *)n;
        uint64_t end = (hole->addr + VRPI_BYTES(hole) - size) & ~(alignment - 1);
        if (!may_split(core, VRPI_BYTES(hole), size))
            break;
        consider(core, hole, align_up(hole->addr, alignment), size, best);
        if (best->found && best->unbacked == 0)
            return;
        if (VRPI_BYTES(hole) > size)
            consider(core, hole, end, size, best);
        if (best->found && best->unbacked == 0)
            return;
    }
    consider_tail(core, space, size, alignment, best);
}

/* Bytes of idle extents that a block there would take into use. */
static uint64_t idle_taken(const vrpi_pool *core, const place *at, uint64_t size) {
    uint64_t bytes = 0;
    for (uint64_t addr = at->addr; addr < at->addr + size;) {
        const vrpi_extent *e = at->arena->granules[vrpi_granule_of(core, at->arena, addr)];
        if (e->live == 0)
            bytes += VRPI_BYTES(e);
        addr = e->addr + VRPI_BYTES(e);
    }
    return bytes;
}

/* A hole of the classes [first, last] but `skip` that has its memory already and takes
 * the block. Of several, the one that leaves most idle extents idle, then the smallest. */
static int find_backed(const vrpi_pool *core, vrpi_stream *stream, int first, int last, int skip,
                       uint64_t size, uint64_t alignment, place *best) {
    enum { LOOKS = 64 };
    uint64_t best_idle = UINT64_MAX, best_bytes = UINT64_MAX;
    for (int k = first; k <= last; k++) {
        int left = LOOKS;
        vrpi_node *n = k == skip ? NULL : vrpi_treap_at_least(&stream->space[k].free, size, 0);
        for (; n != NULL && left-- > 0; n = vrpi_treap_next(&stream->space[k].free, n))
            for (int side = 0; side < 2; side++) {
                vrpi_block *hole = (vrpi_block *)(void *)n;
                uint64_t end = (hole->addr + VRPI_BYTES(hole) - size) & ~(alignment - 1);
                place here = {0};
                uint64_t idle;
                if (!may_split(core, VRPI_BYTES(hole), size))
                    continue;
                consider(core, hole, side ? end : align_up(hole->addr, alignment), size, &here);
                if (!here.found || here.unbacked > 0)
                    continue;
                idle = idle_taken(core, &here, size);
                if (idle > best_idle || (idle == best_idle && VRPI_BYTES(hole) >= best_bytes))
                    continue;
                best_idle = idle;
                best_bytes = VRPI_BYTES(hole);
                *best = here;
            }
    }
    return best_idle != UINT64_MAX;
}

/* A short-lived block may sit in a hole of another class of its stream that
 * has its memory already: it will be gone before it can do harm there, and
 * nothing has to be moved. */
static int borrow(const vrpi_pool *core, vrpi_stream *stream, uint8_t klass, uint64_t size,
                  uint64_t alignment, place *best) {
    enum { SHORT_LIFE = 1024 };
    uint32_t life = stream->life[vrpi_life_bucket(size)];
    if (life == 0 || life > SHORT_LIFE || klass == VRPI_CLASS_SLAB || klass == VRPI_CLASS_WEIGHTS)
        return 0;
    /* weights too: what was backed ahead of them and is not used yet */
    return find_backed(core, stream, VRPI_CLASS_SMALL, VRPI_CLASS_WEIGHTS, klass, size, alignment,
                       best);
}

/* When the device has no more, classes no longer matter: any hole of the stream. */
static int find_spare(const vrpi_pool *core, vrpi_stream *stream, uint64_t size, uint64_t alignment,
                      place *best) {
    return find_backed(core, stream, VRPI_CLASS_SLAB, VRPI_CLASS_WEIGHTS, -1, size, alignment,
                       best);
}

/* Whether idle extents of at most that size, room below the maximum and what
 * could be released add up to the need. If not, larger ones have to serve. */
static int can_meet(const vrpi_pool *core, uint64_t bytes) {
    uint64_t reserved = vrpi_reserved(core);
    uint64_t have = core->high_water > reserved ? core->high_water - reserved : 0;
    for (const vrpi_node *n = core->idle.count > 0 ? vrpi_treap_at_least(&core->idle, 0, 0) : NULL;
         n != NULL && have < bytes; n = vrpi_treap_next(&core->idle, n)) {
        const vrpi_extent *e = (const vrpi_extent *)(const void *)n;
        if (VRPI_BYTES(e) <= bytes || vrpi_done(e->stream, e->stamp))
            have += VRPI_BYTES(e);
    }
    return have >= bytes || core->idle.count == 0;
}

/* Marks the unbacked granules of a block as ours, or as nobody's. */
static void claim(vrpi_pool *core, vrpi_arena *arena, const vrpi_block *block, int ours) {
    uint64_t i = vrpi_granule_of(core, arena, block->addr);
    uint64_t last = vrpi_granule_of(core, arena, block->addr + VRPI_BYTES(block) - 1);
    for (; i <= last; i++) {
        if (ours && arena->granules[i] == NULL)
            arena->granules[i] = &core->claimed;
        else if (!ours && arena->granules[i] == &core->claimed)
            arena->granules[i] = NULL;
    }
}

static vrp_status take(vrpi_pool *core, vrpi_request *request, vrpi_stream *stream, place *at,
                       uint64_t size, vrpi_block **out) {
    vrpi_arena *arena = at->arena;
    vrpi_block *block = at->block;
    vrp_status status = VRP_OK;
    if (block == NULL) {
        uint64_t end = arena->base + align_up(at->addr + size - arena->base, core->granularity);
        VRPI_TRY(vrpi_arena_granules(core, arena, end));
        if (end > arena->end)
            vrpi_arena_extend(core, arena, end);
        block = vrpi_last(core, arena);
    }
    block = vrpi_block_carve(core, block, at->addr, size);
    vrpi_set_state(block, VRPI_PLACING);
    block->tag = request->is_slab ? VRPI_TAG_SLAB : request->tag;
    vrpi_map_put(core, block); /* now: what it may need was reserved */
    arena->used_blocks++;
    vrpi_extent_use(core, arena, block->addr, size);
    if (at->unbacked > 0) {
        claim(core, arena, block, 1);
        status = vrpi_back(core, request, arena, stream, block->addr, size);
        claim(core, arena, block, 0);
    }
    if (status != VRP_OK) {
        vrpi_extent_unuse(core, arena, block->addr, size, NULL, 0);
        vrpi_map_take(core, block);
        arena->used_blocks--;
        vrpi_block_merge(core, block);
        vrpi_arena_shrink(core, arena);
        return status;
    }
    arena->space->taken_bytes += size;
    block->born = (uint32_t)core->ticks;
    *out = block;
    return VRP_OK;
}

/* malloc backing: an idle segment of another class or stream that fits changes
 * hands: one whose work is done or, with `wait`, one in flight elsewhere, for
 * which the stream is made to wait on the device. */
static int adopt(vrpi_pool *core, vrpi_request *request, vrpi_stream *stream, uint8_t klass,
                 uint64_t size, uint64_t alignment, int wait) {
    uint64_t need = size + (alignment > VRPI_UNIT ? alignment : 0);
    vrpi_node *n = vrpi_treap_at_least(&core->idle, need, 0);
    for (int left = 64; n != NULL && left > 0; n = vrpi_treap_next(&core->idle, n), left--) {
        vrpi_extent *e = (vrpi_extent *)(void *)n;
        vrpi_stream *other = e->stream;
        uint64_t stamp = e->stamp;
        int ours = vrpi_done(other, stamp) || other == stream;
        if (e->arena->space == &stream->space[klass] || !may_split(core, VRPI_BYTES(e), size) ||
            (!ours && !wait))
            continue;
        if (!ours) {
            if (vrpi_device_wait(core, request->thread, stream, other, stamp) != VRP_OK)
                return 0; /* the lock may have been dropped: the list is not what it was */
            if (!vrpi_is_idle(e) || e->stream != other || e->stamp != stamp)
                return 1; /* taken meanwhile: look again */
            e->stream = stream;
            e->stamp = vrpi_stamp(stream);
        }
        if (e->arena->space != NULL)
            vrpi_arena_detach(core, e->arena);
        vrpi_arena_attach(core, e->arena, stream, klass);
        return 1;
    }
    return 0;
}

/* Segments are the smallest multiple of the request that is large enough: what
 * is left over then fits another of its kind. */
static uint64_t segment_bytes(const vrpi_pool *core, const vrpi_space *space, uint64_t exact) {
    uint64_t least = vrpi_knob(core, VRP_KNOB_SEGMENT_BYTES);
    uint64_t split = vrpi_knob(core, VRP_KNOB_SPLIT_LIMIT_BYTES);
    /* What is only filled leaves no holes: few, large ones. But never more at
     * once than a sixteenth of what is there. */
    int loading = space->freed_bytes * 32 <= space->taken_bytes;
    uint64_t most = least * (loading ? 32 : 4);
    uint64_t want = vrpi_reserved(core) / 16;
    if (want > most)
        want = most;
    if (want < least)
        want = least;
    if (split != 0 && want > split)
        want = split; /* or the request itself could not have it */
    if (split != 0)
        return want > exact ? want / exact * exact : exact;
    return (want + exact - 1) / exact * exact;
}

static vrp_status new_segment(vrpi_pool *core, vrpi_request *request, vrpi_stream *stream,
                              uint8_t klass, uint64_t size, uint64_t alignment) {
    uint64_t exact = align_up(size + (alignment > VRPI_UNIT ? alignment : 0), core->granularity);
    uint64_t want = align_up(segment_bytes(core, &stream->space[klass], size), core->granularity);
    vrpi_arena *arena;
    vrp_status status;
    for (;;) {
        if (want < exact)
            want = exact;
        vrpi_make_room(core, request->thread, want);
        vrpi_gap_missed(core, want);
        status = vrpi_limit_exceeded(core, want) ? VRP_OUT_OF_DEVICE_MEMORY
                                                 : vrpi_segment_create(core, want, &arena);
        if (status == VRP_OK) {
            vrpi_arena_attach(core, arena, stream, klass);
            return VRP_OK;
        }
        if (status != VRP_OUT_OF_DEVICE_MEMORY)
            return status;
        if (want > exact) {
            /* a large step no longer fits: smaller ones, to exactly what is needed */
            want = align_up(want / 2, core->granularity);
            if (want < exact)
                want = exact;
            continue;
        }
        if (adopt(core, request, stream, klass, size, alignment, 1))
            return VRP_OK;
        return vrpi_oom(core, request, want); /* OK: the caller searches again */
    }
}

/* What threads hold back and could make room for a block: for a slab slots, for a
 * small block others of half its size or more. Smaller ones seldom do, and to get
 * them again would cost more than they are. */
static uint64_t flush_for(vrpi_pool *core, uint8_t klass, uint64_t size) {
    return klass == VRPI_CLASS_SLAB    ? vrpi_fronts_flush(core, UINT64_MAX, 1)
           : klass == VRPI_CLASS_SMALL ? vrpi_fronts_flush(core, size / 2, 0)
                                       : vrpi_fronts_flush_all(core);
}

/* By the rules of placement alone. */
static vrp_status place_by_class(vrpi_pool *core, vrpi_request *request, vrpi_stream *stream,
                                 uint8_t klass, uint64_t size, uint64_t alignment,
                                 vrpi_block **out) {
    vrpi_space *space = &stream->space[klass];
    int flushed = 0, fenced = 0;
    for (;;) {
        place at = {0};
        VRPI_TRY(vrpi_nodes_reserve(core, 4, 1, 1));
        find_place(core, space, size, alignment, &at);
        if ((!at.found || at.unbacked > 0) && !fenced) {
            fenced = 1;
            if (vrpi_fence(core, request->thread, size))
                continue; /* what was found may be gone */
        }
        if ((!at.found || at.unbacked > 0) && !flushed) {
            /* What threads hold back may fit or make extents idle. */
            flushed = 1;
            int wanted = at.found ? vrpi_growth_is_barred(core, at.unbacked)
                         : core->backing == VRP_BACKING_MALLOC ? 1
                                                               : vrpi_growth_is_barred(core, size);
            /* Under a limit on what is idle, nobody holds larger blocks back. */
            wanted |= vrpi_knob(core, VRP_KNOB_GAP_RULE) == VRP_GAP_RULE_LIMIT &&
                      vrpi_anybody_holds(core);
            if (wanted && flush_for(core, klass, size) > 0)
                continue;
        }
        if (at.found && at.unbacked > 0 && core->backing == VRP_BACKING_VMM &&
            vrpi_growth_is_barred(core, at.unbacked) &&
            !borrow(core, stream, klass, size, alignment, &at) && klass != VRPI_CLASS_SLAB &&
            klass != VRPI_CLASS_SMALL && !can_meet(core, at.unbacked)) {
            place tail = {0};
            consider_tail(core, space, size, alignment, &tail);
            if (tail.found) {
                at = tail;
                request->at_tail = 1;
            }
        }
        if (at.found)
            return take(core, request, stream, &at, size, out);
        if (core->backing == VRP_BACKING_MALLOC) {
            vrpi_poll(core, request->thread);
            if (!adopt(core, request, stream, klass, size, alignment,
                       vrpi_growth_is_barred(core, size)))
                VRPI_TRY(new_segment(core, request, stream, klass, size, alignment));
        } else {
            vrpi_arena *arena;
            VRPI_TRY(vrpi_arena_grow_space(core, stream, klass, size + alignment, &arena));
        }
    }
}

int vrpi_has_spare(const vrpi_pool *core, vrpi_request *request) {
    place spare = {0};
    request->has_spare = request->place_stream != NULL && !request->no_spare &&
                         find_spare(core, request->place_stream, request->place_bytes,
                                    request->place_alignment, &spare);
    return request->has_spare;
}

vrp_status vrpi_block_alloc(vrpi_pool *core, vrpi_request *request, vrpi_stream *stream,
                            uint8_t klass, uint64_t size, uint64_t alignment, vrpi_block **out) {
    request->place_stream = stream;
    request->place_bytes = size;
    request->place_alignment = alignment;
    for (;;) {
        place spare = {0};
        vrp_status status = place_by_class(core, request, stream, klass, size, alignment, out);
        int short_of = status == VRP_OUT_OF_DEVICE_MEMORY || status == VRP_LIMIT_REACHED;
        if (!short_of)
            return status;
        VRPI_TRY(vrpi_nodes_reserve(core, 4, 1, 1));
        if (find_spare(core, stream, size, alignment, &spare))
            return take(core, request, stream, &spare, size, out);
        if (!request->has_spare)
            return status;
        request->has_spare = 0; /* gone meanwhile: the whole chain, then */
        request->no_spare = 1;
    }
}
