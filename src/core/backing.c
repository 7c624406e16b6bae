/* SPDX-License-Identifier: MIT */
/* Backs the granules of a new block: with idle extents where the gap rule
 * bars growth, with new memory otherwise. docs/design/core.md has the policy
 * and the measurements it comes from. */

#include "core/core.h"

enum { IDLE_LOOKS_MAX = 400 };
#define VRPI_OVERHANG_MAX (UINT64_C(512) << 20)
#define SHORT_AHEAD_MAX (UINT64_C(16) << 20) /* of what is no weights */
#define SMALL_MODEL_MAX (UINT64_C(2) << 30)

int vrpi_growth_is_barred(const vrpi_pool *core, uint64_t bytes) {
    uint64_t reserved = vrpi_reserved(core);
    switch (vrpi_knob(core, VRP_KNOB_GAP_RULE)) {
    case VRP_GAP_RULE_HIGH_WATER:
        return reserved + bytes > core->high_water;
    case VRP_GAP_RULE_LIMIT: /* and no new maximum while idle memory can be had */
        return core->idle_bytes > vrpi_knob(core, VRP_KNOB_GAP_LIMIT_BYTES) ||
               (reserved + bytes > core->high_water && core->idle_bytes > 0);
    default:
        return 0;
    }
}

int vrpi_limit_exceeded(const vrpi_pool *core, uint64_t bytes) {
    uint64_t limit = vrpi_knob(core, VRP_KNOB_LIMIT_BYTES);
    uint64_t reserved = vrpi_reserved(core);
    return limit != 0 && (bytes > limit || reserved > limit - bytes);
}

void vrpi_gap_missed(vrpi_pool *core, uint64_t bytes) {
    uint64_t missed = 0;
    uint64_t reserved = vrpi_reserved(core);
    if (!vrpi_growth_is_barred(core, bytes))
        return;
    if (vrpi_knob(core, VRP_KNOB_GAP_RULE) == VRP_GAP_RULE_LIMIT) {
        if (core->idle_bytes > vrpi_knob(core, VRP_KNOB_GAP_LIMIT_BYTES))
            missed = core->idle_bytes - vrpi_knob(core, VRP_KNOB_GAP_LIMIT_BYTES);
    } else {
        missed = reserved + bytes - core->high_water;
        if (missed > core->idle_bytes)
            missed = core->idle_bytes;
    }
    if (missed > core->gap_missed)
        core->gap_missed = missed;
}

/* Gives up one idle extent whose work is done: the smallest that is enough,
 * else the largest. */
int vrpi_release_one(vrpi_pool *core, uint64_t bytes) {
    vrpi_node *n = vrpi_treap_at_least(&core->idle, bytes, 0);
    if (vrpi_lost(core) != VRP_OK)
        return 0;
    for (; n != NULL; n = vrpi_treap_next(&core->idle, n)) {
        vrpi_extent *e = (vrpi_extent *)(void *)n;
        if (vrpi_done(e->stream, e->stamp) && e->ghosts == 0)
            return vrpi_extent_release(core, e) == VRP_OK;
    }
    for (n = vrpi_treap_below(&core->idle, bytes, 0); n != NULL;
         n = vrpi_treap_prev(&core->idle, n)) {
        vrpi_extent *e = (vrpi_extent *)(void *)n;
        if (vrpi_done(e->stream, e->stamp) && e->ghosts == 0)
            return vrpi_extent_release(core, e) == VRP_OK;
    }
    return 0;
}

/* Bytes of idle memory to give up before that much more may be backed. */
static uint64_t excess(const vrpi_pool *core, uint64_t bytes) {
    uint64_t reserved = vrpi_reserved(core);
    uint64_t limit = vrpi_knob(core, VRP_KNOB_GAP_LIMIT_BYTES);
    uint64_t over = reserved + bytes > core->high_water ? reserved + bytes - core->high_water : 0;
    if (vrpi_knob(core, VRP_KNOB_GAP_RULE) == VRP_GAP_RULE_LIMIT && core->idle_bytes > limit &&
        core->idle_bytes - limit > over)
        over = core->idle_bytes - limit;
    return over;
}

void vrpi_make_room(vrpi_pool *core, vrpi_thread *t, uint64_t bytes) {
    if (core->idle.count > 0 && vrpi_growth_is_barred(core, bytes)) {
        (void)vrpi_record_idle(core, t);
        vrpi_poll(core, t);
    }
    while (core->idle.count > 0 && vrpi_growth_is_barred(core, bytes))
        if (!vrpi_release_one(core, excess(core, bytes)))
            return;
}

/* GAP_RULE_LIMIT: growth is rare while a model decodes, so what has been idle
 * for long goes without one, oldest first, down to the limit. */
void vrpi_idle_age(vrpi_pool *core, vrpi_thread *t) {
    enum { OFTEN = 64 };
    uint64_t age = vrpi_knob(core, VRP_KNOB_IDLE_AGE),
             limit = vrpi_knob(core, VRP_KNOB_GAP_LIMIT_BYTES);
    if (age == 0 || core->ticks % OFTEN != 0 || core->idle_bytes <= limit ||
        vrpi_knob(core, VRP_KNOB_GAP_RULE) != VRP_GAP_RULE_LIMIT)
        return;
    for (int polled = 0; core->idle_bytes > limit;) {
        vrpi_extent *oldest = NULL, *waiting = NULL;
        for (vrpi_node *n = vrpi_treap_last(&core->idle); n != NULL;
             n = vrpi_treap_prev(&core->idle, n)) {
            vrpi_extent *e = (vrpi_extent *)(void *)n;
            if (vrpi_idle_for(core, e) < age)
                continue;
            if (!vrpi_done(e->stream, e->stamp) || e->ghosts > 0)
                waiting = e;
            else if (oldest == NULL || vrpi_idle_for(core, e) > vrpi_idle_for(core, oldest))
                oldest = e;
        }
        if (waiting != NULL && !polled) {
            polled = 1;
            (void)vrpi_record_idle(core, t);
            vrpi_poll(core, t);
        } else if (oldest == NULL || vrpi_extent_release(core, oldest) != VRP_OK) {
            return;
        }
    }
}

/* Whether a space only fills: little was ever freed in it, or most of the memory
 * that there once was has been given back, as after a trim at a pause. */
static int is_filling(const vrpi_pool *core, const vrpi_arena *arena) {
    const vrpi_space *space = arena->space;
    return space != NULL && (space->freed_bytes * 32 <= space->taken_bytes || core->refilling);
}

/* Largest extent for a block. Handles are paid by the piece, but free bytes in
 * an extent that is partly in use are lost: so a fraction of the block. More
 * while a space is only being filled (loading), when little is freed and little
 * can be pinned; and more while reserved is well below its maximum, since only
 * what is pinned at the maximum sets a new one. */
static uint64_t extent_cap(const vrpi_pool *core, const vrpi_arena *arena, uint64_t size) {
    uint64_t large = vrpi_knob(core, VRP_KNOB_EXTENT_LARGE_BYTES);
    uint64_t reserved = vrpi_reserved(core);
    uint64_t cap = size / 16;
    if (arena->klass == VRPI_CLASS_WEIGHTS)
        return vrpi_knob(core, VRP_KNOB_EXTENT_WEIGHTS_BYTES);
    if (arena->klass == VRPI_CLASS_SLAB || arena->klass == VRPI_CLASS_SMALL)
        return vrpi_knob(core, VRP_KNOB_EXTENT_SMALL_BYTES);
    if (is_filling(core, arena))
        return vrpi_knob(core, VRP_KNOB_EXTENT_LOADING_BYTES);
    if (reserved + size + (core->high_water >> 8) <= core->high_water)
        cap = size;
    return cap < large ? cap : large;
}

/* Bytes beyond the block that its last extent is to have too, while a space is
 * only being filled: what comes next most likely fits there. Whole blocks of
 * that size, no more than a sixteenth of what was loaded before, since what is
 * not used pins memory for as long as the block lives; of a small model still less,
 * which is loaded in few calls anyway, and beside which the rest would show. */
static uint64_t ahead_of(const vrpi_pool *core, const vrpi_arena *arena, uint64_t size) {
    const vrpi_space *space = arena->space;
    uint64_t most = vrpi_knob(core, VRP_KNOB_EXTENT_AHEAD_BYTES), bound = UINT64_MAX;
    uint64_t share;
    if (!is_filling(core, arena))
        return 0;
    if (vrpi_knob(core, VRP_KNOB_GAP_RULE) == VRP_GAP_RULE_LIMIT)
        bound = arena->klass == VRPI_CLASS_WEIGHTS ? vrpi_knob(core, VRP_KNOB_GAP_LIMIT_BYTES) : 0;
    else if (arena->klass >= VRPI_CLASS_SMALL && arena->klass <= VRPI_CLASS_LARGE)
        bound = size > SHORT_AHEAD_MAX ? 2 * SHORT_AHEAD_MAX : SHORT_AHEAD_MAX;
    else if (arena->klass != VRPI_CLASS_WEIGHTS)
        return 0;
    if (most > bound)
        most = bound;
    share = space->taken_bytes / 16;
    if (arena->klass == VRPI_CLASS_WEIGHTS && space->taken_bytes < SMALL_MODEL_MAX)
        share = share * (space->taken_bytes >> 20) / (SMALL_MODEL_MAX >> 20);
    if (most > share)
        most = share;
    return most / size * size;
}

/* 0: its work is done. 1: only `stream` may still use it. 2: another stream
 * may, `stream` would have to wait. 3: not to be had early. */
static int closeness(const vrpi_extent *e, const vrpi_stream *stream) {
    if (e->arena->klass == VRPI_CLASS_GROWABLE && e->ghosts > 0)
        return 3; /* its old mapping could not be kept as a block there */
    if (vrpi_done(e->stream, e->stamp))
        return 0;
    if (e->arena->klass == VRPI_CLASS_GROWABLE)
        return 3;
    return e->stream == stream ? 1 : 2;
}

/* The largest idle extent of at most `bytes` that close; of equal ones the one
 * idle for longest. */
static vrpi_extent *pick(const vrpi_pool *core, const vrpi_stream *stream, uint64_t bytes,
                         int level) {
    vrpi_extent *best = NULL;
    int looks = IDLE_LOOKS_MAX;
    for (vrpi_node *n = vrpi_treap_below(&core->idle, bytes + 1, 0); n != NULL && looks-- > 0;
         n = vrpi_treap_prev(&core->idle, n)) {
        vrpi_extent *e = (vrpi_extent *)(void *)n;
        if (best != NULL && VRPI_BYTES(e) < VRPI_BYTES(best))
            break;
        if (closeness(e, stream) <= level &&
            (best == NULL || vrpi_idle_for(core, e) > vrpi_idle_for(core, best)))
            best = e;
    }
    return best;
}

/* The smallest idle extent above `bytes` that may hang over by `room`. */
static vrpi_extent *pick_over(const vrpi_pool *core, const vrpi_stream *stream, uint64_t bytes,
                              uint64_t most, int level) {
    int looks = 64;
    for (vrpi_node *n = vrpi_treap_at_least(&core->idle, bytes + 1, 0);
         n != NULL && VRPI_BYTES(n) <= most && looks-- > 0; n = vrpi_treap_next(&core->idle, n)) {
        vrpi_extent *e = (vrpi_extent *)(void *)n;
        if (closeness(e, stream) <= level)
            return e;
    }
    return NULL;
}

/* One stretch of granules to back, in bytes from the arena's base. */
typedef struct stretch {
    vrpi_arena *arena;
    uint64_t first, count; /* granules */
    uint64_t most;         /* granules that the next extent may take */
    uint64_t size;         /* of the block */
    int at_end;            /* the stretch ends with the block */
} stretch;

/* Looks from granule `from` of the block on: what lies before is backed. */
static int next_stretch(const vrpi_pool *core, vrpi_arena *arena, uint64_t addr, uint64_t bytes,
                        uint64_t from, stretch *out) {
    enum { COUNT_MOST = 1024 }; /* no extent is larger; counting on would be in vain */
    uint64_t g = core->granularity;
    uint64_t first = vrpi_granule_of(core, arena, addr);
    uint64_t last = vrpi_granule_of(core, arena, addr + bytes - 1);
    uint64_t i = from > first ? from : first;
    for (; i <= last && arena->granules[i] != &core->claimed; i++)
        continue;
    if (i > last)
        return 0;
    out->arena = arena;
    out->first = i;
    out->count = 0;
    while (i <= last && out->count < COUNT_MOST && arena->granules[i] == &core->claimed) {
        out->count++;
        i++;
    }
    out->at_end = i > last;
    out->size = bytes;
    out->most = out->count;
    /* A granule that the block shares with a neighbour gets an extent of its
     * own, so that what the neighbour pins is one granule. */
    if (out->first == first && (addr - arena->base) % g != 0)
        out->most = 1;
    else if (out->at_end && (addr + bytes - arena->base) % g != 0 && out->count > 1)
        out->most = out->count - 1;
    return 1;
}

/* Granules behind the block that are untouched and free. */
static uint64_t room_behind(const vrpi_pool *core, vrpi_arena *arena, uint64_t addr, uint64_t bytes,
                            uint64_t most) {
    const vrpi_block *next;
    uint64_t g = vrpi_granule_of(core, arena, addr + bytes - 1) + 1;
    uint64_t limit, room = 0;
    if (arena->klass == VRPI_CLASS_GROWABLE)
        return 0;
    next = vrpi_next(core, vrpi_block_at(core, arena, addr));
    if (next != NULL && next->state != VRPI_FREE)
        return 0;
    limit = next == NULL || next->next == 0
                ? arena->bytes / core->granularity
                : (next->addr + VRPI_BYTES(next) - arena->base) / core->granularity;
    while (room < most && g < limit && (g >= arena->granule_count || arena->granules[g] == NULL)) {
        g++;
        room++;
    }
    return room;
}

static vrp_status move_here(vrpi_pool *core, vrpi_request *request, vrpi_extent *e,
                            vrpi_stream *stream, const stretch *s) {
    if (closeness(e, stream) == 2) {
        uint64_t stamp = e->stamp;
        vrpi_stream *other = e->stream;
        vrp_status status = vrpi_device_wait(core, request->thread, stream, other, stamp);
        if (status != VRP_OK)
            return status;
        if (!vrpi_is_idle(e) || e->stream != other || e->stamp != stamp)
            return VRP_OK; /* taken meanwhile: look again */
    }
    return vrpi_extent_move(core, e, s->arena, s->arena->base + s->first * core->granularity,
                            stream);
}

/* Claims granules behind the stretch, which ends with the block, for an extent
 * that hangs over. Takes up to four nodes. */
static vrp_status claim_over(vrpi_pool *core, const stretch *s, uint64_t over) {
    uint64_t from = s->first + s->count;
    uint64_t end = s->arena->base + (from + over) * core->granularity;
    VRPI_TRY(vrpi_nodes_reserve(core, 4, 1, 1));
    VRPI_TRY(vrpi_arena_granules(core, s->arena, end));
    if (end > s->arena->end)
        vrpi_arena_extend(core, s->arena, end);
    for (uint64_t i = 0; i < over; i++)
        s->arena->granules[from + i] = &core->claimed;
    return VRP_OK;
}

/* What was claimed and is not backed now is untouched space again. */
static void unclaim_over(vrpi_pool *core, const stretch *s, uint64_t over, vrp_status status) {
    uint64_t from = s->first + s->count;
    for (uint64_t i = 0; i < over; i++)
        if (s->arena->granules[from + i] == &core->claimed)
            s->arena->granules[from + i] = NULL;
    if (status != VRP_OK)
        vrpi_arena_shrink(core, s->arena);
}

/* Moves a larger extent to the end of the block, over untouched space. */
static vrp_status move_over(vrpi_pool *core, vrpi_request *request, vrpi_extent *e,
                            vrpi_stream *stream, const stretch *s) {
    uint64_t over = VRPI_BYTES(e) / core->granularity - s->count;
    vrp_status status;
    VRPI_TRY(claim_over(core, s, over));
    status = move_here(core, request, e, stream, s);
    unclaim_over(core, s, over, status);
    return status;
}

/* New memory for the end of the block and what will come behind it. Not if the
 * pool has anything idle: that comes first. 0: as if nothing had been tried. */
static int create_ahead(vrpi_pool *core, uint64_t addr, const stretch *s, uint64_t cap) {
    uint64_t g = core->granularity, bytes = s->count * g;
    uint64_t ahead = s->at_end && core->idle.count == 0 ? ahead_of(core, s->arena, s->size) : 0;
    uint64_t over;
    vrp_status status;
    if (ahead == 0)
        return 0;
    /* from the end of the block, which may lie within its last granule */
    ahead = (addr + s->size + ahead - s->arena->base + g - 1) / g - (s->first + s->count);
    over = room_behind(core, s->arena, addr, s->size, ahead);
    if (over == 0 || bytes + over * g > cap || vrpi_limit_exceeded(core, bytes + over * g) ||
        claim_over(core, s, over) != VRP_OK)
        return 0;
    status = vrpi_extent_create(core, s->arena, s->arena->base + s->first * g, bytes + over * g);
    unclaim_over(core, s, over, status);
    if (status != VRP_OK)
        return 0;
    s->arena->granules[s->first]->fresh = 1;
    return 1;
}

/* Tries idle memory for the stretch. 1: something changed, look again. */
static int reuse_idle(vrpi_pool *core, vrpi_request *request, vrpi_arena *arena,
                      vrpi_stream *stream, uint64_t addr, const stretch *s, uint64_t cap) {
    uint64_t g = core->granularity;
    uint64_t want = s->most * g < cap ? s->most * g : cap;
    vrpi_extent *e = pick(core, stream, s->most * g, 0);
    if (e == NULL || VRPI_BYTES(e) * 2 < want) {
        /* one that is in flight on this very stream may fit better */
        vrpi_extent *other = pick(core, stream, s->most * g, 1);
        if (e == NULL || (other != NULL && VRPI_BYTES(other) > VRPI_BYTES(e)))
            e = other;
    }
    if (e != NULL)
        return move_here(core, request, e, stream, s) == VRP_OK;
    e = pick(core, stream, s->most * g, 2);
    if (e != NULL && move_here(core, request, e, stream, s) == VRP_OK)
        return 1;
    if (s->at_end) {
        uint64_t bytes = s->count * g;
        uint64_t most = request->at_tail          ? VRPI_OVERHANG_MAX
                        : cap > bytes + bytes / 2 ? cap
                                                  : bytes + bytes / 2;
        uint64_t room = room_behind(core, arena, addr, s->size, most / g);
        if (most > bytes + room * g)
            most = bytes + room * g;
        for (int level = 0; level < 3; level++) {
            e = pick_over(core, stream, bytes, most, level);
            if (e != NULL && move_over(core, request, e, stream, s) == VRP_OK)
                return 1;
        }
    }
    return vrpi_release_one(core, g);
}

/* Ends a request: the peaks move now that it is sure, or what was created for
 * it is given back. */
static void conclude(vrpi_pool *core, vrpi_arena *arena, uint64_t addr, uint64_t bytes, int keep) {
    uint64_t i = vrpi_granule_of(core, arena, addr);
    uint64_t last = vrpi_granule_of(core, arena, addr + bytes - 1);
    uint64_t created = 0, count = 0;
    for (; i <= last; i++) {
        vrpi_extent *e = arena->granules[i];
        if (e == NULL || !e->fresh)
            continue;
        e->fresh = 0;
        if (keep || vrpi_lost(core) != VRP_OK) {
            created += VRPI_BYTES(e);
            count++;
            continue;
        }
        e->live = 0;
        vrpi_idle_add(core, e);
        if (vrpi_extent_release(core, e) != VRP_OK && arena->granules[i] == e) {
            vrpi_idle_remove(core, e); /* stays; the block's end makes it idle */
            e->live = 1;
        }
    }
    vrpi_reserved_commit(core, created, count); /* also what the driver would not take back */
}

/* GAP_RULE_LIMIT, at a growth: down to the limit, with room for what the block
 * itself will take of it. */
static void limit_keep(vrpi_pool *core, uint64_t bytes) {
    uint64_t keep = vrpi_knob(core, VRP_KNOB_GAP_LIMIT_BYTES) + bytes;
    while (core->idle_bytes > keep && vrpi_release_one(core, core->idle_bytes - keep))
        continue;
}

static uint64_t growth_allowed(const vrpi_pool *core, uint64_t want) {
    uint64_t reserved = vrpi_reserved(core);
    uint64_t below;
    if (!vrpi_growth_is_barred(core, want))
        return want;
    if (reserved >= core->high_water ||
        (vrpi_knob(core, VRP_KNOB_GAP_RULE) == VRP_GAP_RULE_LIMIT &&
         core->idle_bytes > vrpi_knob(core, VRP_KNOB_GAP_LIMIT_BYTES)))
        return 0;
    below = (core->high_water - reserved) / core->granularity * core->granularity;
    return below >= want / 4 ? below : 0; /* a part of it, if that is worth a handle */
}

vrp_status vrpi_back(vrpi_pool *core, vrpi_request *request, vrpi_arena *arena, vrpi_stream *stream,
                     uint64_t addr, uint64_t bytes) {
    uint64_t cap = extent_cap(core, arena, bytes) & ~(core->granularity - 1);
    uint64_t ahead_cap = vrpi_knob(core, VRP_KNOB_EXTENT_WEIGHTS_BYTES);
    stretch s = {0};
    vrp_status status = VRP_OK;
    int settled = 0;
    if (cap < core->granularity)
        cap = core->granularity;
    vrpi_orphans_retry(core); /* what still stands there may be in the way */
    if (vrpi_knob(core, VRP_KNOB_GAP_RULE) == VRP_GAP_RULE_LIMIT &&
        core->idle_bytes > vrpi_knob(core, VRP_KNOB_GAP_LIMIT_BYTES)) {
        (void)vrpi_record_idle(core, request->thread);
        vrpi_poll(core, request->thread);
        limit_keep(core, bytes);
    } else {
        vrpi_poll(core, request->thread);
    }
    while (next_stretch(core, arena, addr, bytes, s.first, &s)) {
        uint64_t at = arena->base + s.first * core->granularity;
        uint64_t want = s.most * core->granularity < cap ? s.most * core->granularity : cap;
        uint64_t grow = growth_allowed(core, want);
        if (grow == 0 && core->idle.count > 0) {
            if (reuse_idle(core, request, arena, stream, addr, &s, cap))
                continue;
            if (!settled) { /* what is done but nobody asked about may do */
                settled = 1;
                (void)vrpi_record_idle(core, request->thread);
                vrpi_poll(core, request->thread);
                continue;
            }
        }
        if (create_ahead(core, addr, &s, ahead_cap))
            continue;
        want = grow == 0 ? want : grow;
        vrpi_gap_missed(core, want);
        status = vrpi_limit_exceeded(core, want) ? VRP_OUT_OF_DEVICE_MEMORY
                                                 : vrpi_extent_create(core, arena, at, want);
        if (status == VRP_OK) {
            arena->granules[s.first]->fresh = 1;
            continue;
        }
        if (status == VRP_OUT_OF_DEVICE_MEMORY) {
            if (core->idle.count > 0 && reuse_idle(core, request, arena, stream, addr, &s, cap)) {
                status = VRP_OK;
                continue;
            }
            status = vrpi_oom(core, request, want);
            if (status == VRP_OK)
                continue;
        }
        break;
    }
    conclude(core, arena, addr, bytes, status == VRP_OK);
    return status;
}
