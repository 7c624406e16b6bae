/* SPDX-License-Identifier: MIT */
/* Scopes and tags: budgets, counters, and freeing a whole scope in one call. */

#include "core/core.h"

#include <string.h>

enum { UNUSED = 0, OPEN = 1, CLOSED = 2, RELEASING = 3 };

static vrp_status no_such(vrp_scope scope) {
    return vrpi_fail(VRP_INVALID_ARGUMENT, "no scope 0x%llx", (unsigned long long)scope);
}

static vrp_status scope_open(vrpi_pool *core, uint64_t budget, vrp_scope *out) {
    for (uint32_t n = 1; n < VRPI_SCOPES_MAX; n++) {
        uint32_t index = 1 + (core->scope_hint + n - 1) % (VRPI_SCOPES_MAX - 1);
        vrpi_scope *s = vrpi_scope_at(core, index);
        uint32_t generation;
        if (s == NULL) {
            vrpi_scope *chunk = vrpi_host_alloc(core, VRPI_SCOPE_CHUNK * sizeof *chunk);
            if (chunk == NULL)
                return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for scopes");
            atomic_store_explicit(&core->scope_chunk[index / VRPI_SCOPE_CHUNK], chunk,
                                  memory_order_release);
            s = &chunk[index % VRPI_SCOPE_CHUNK];
        }
        if (atomic_load_explicit(&s->state, memory_order_relaxed) != UNUSED)
            continue;
        generation = atomic_load_explicit(&s->generation, memory_order_relaxed) + 1;
        memset(&s->group, 0, sizeof s->group);
        if (budget > (uint64_t)INT64_MAX)
            budget = (uint64_t)INT64_MAX;
        atomic_store_explicit(&s->group.budget, budget, memory_order_relaxed);
        atomic_store_explicit(&s->generation, generation, memory_order_relaxed);
        atomic_store_explicit(&s->state, OPEN, memory_order_relaxed);
        core->scope_hint = index;
        *out = (uint64_t)generation << 32 | index;
        return VRP_OK;
    }
    return vrpi_fail(VRP_LIMIT_REACHED, "%u scopes are open", VRPI_SCOPES_MAX - 1);
}

vrp_status vrp_scope_open(vrp_pool *pool, uint64_t budget_bytes, vrp_scope *out_scope) {
    vrp_status status;
    if (out_scope == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_scope_open: out_scope is NULL");
    VRPI_TRY(vrpi_enter(pool));
    vrpi_mutex_lock(&pool->core->lock);
    status = scope_open(pool->core, budget_bytes, out_scope);
    vrpi_mutex_unlock(&pool->core->lock);
    vrpi_exit(pool);
    return status;
}

vrp_status vrp_scope_close(vrp_pool *pool, vrp_scope scope) {
    vrp_status status = VRP_OK;
    vrpi_pool *core;
    VRPI_TRY(vrpi_enter(pool));
    core = pool->core;
    vrpi_mutex_lock(&core->lock);
    if (scope == 0 || !vrpi_scope_is(core, scope, OPEN, CLOSED))
        status = no_such(scope);
    else
        atomic_store_explicit(&vrpi_scope_at(core, vrpi_scope_index(scope))->state, CLOSED,
                              memory_order_relaxed);
    vrpi_mutex_unlock(&core->lock);
    vrpi_exit(pool);
    return status;
}

/* What one pass frees, by tag. */
typedef struct freed {
    int64_t blocks[VRP_TAG_COUNT], requested[VRP_TAG_COUNT], allocated[VRP_TAG_COUNT];
    uint32_t scope;
} freed;

static void note(freed *f, uint8_t tag, uint64_t requested, uint64_t allocated) {
    f->blocks[tag]++;
    f->requested[tag] += (int64_t)requested;
    f->allocated[tag] += (int64_t)allocated;
}

/* One slot after the other; the last may take the slab with it. */
static void free_slots(vrpi_pool *core, vrpi_slab *slab, uint32_t scope, freed *f) {
    uint32_t matches = 0;
    vrpi_block *block = slab->block;
    for (uint32_t i = 0; i < slab->slot_count; i++) {
        uint8_t state = slab->slot[i].state;
        matches += (state == VRPI_LIVE || state == VRPI_SHARED) &&
                   (scope == 0 || slab->slot[i].scope == scope);
    }
    for (uint32_t i = 0; matches > 0 && i < slab->slot_count; i++) {
        vrpi_slot *slot = &slab->slot[i];
        uint8_t state = slot->state;
        if ((state != VRPI_LIVE && state != VRPI_SHARED) || (scope != 0 && slot->scope != scope))
            continue;
        matches--;
        note(f, slot->tag, slab->slot_bytes - (uint64_t)slot->waste, slab->slot_bytes);
        if (state == VRPI_SHARED)
            vrpi_free_live(core, NULL, block, slab->addr + (uint64_t)i * slab->slot_bytes, NULL, 0);
        else
            vrpi_slab_put(core, slab, i);
    }
}

/* Live, of the scope, and of no other stream's concern. */
static int plain_match(const vrpi_block *b, uint32_t scope) {
    return b != NULL && b->state == VRPI_LIVE && (scope == 0 || b->scope == scope);
}

static void free_blocks(vrpi_pool *core, vrpi_arena *arena, uint32_t scope, freed *f) {
    for (vrpi_block *b = vrpi_first(core, arena); b != NULL;) {
        uint64_t addr = b->addr;
        vrpi_block *last = b;
        if (!vrpi_is_live(b) || (scope != 0 && b->scope != scope)) {
            b = vrpi_next(core, b);
            continue;
        }
        note(f, b->tag, vrpi_requested(b), VRPI_BYTES(b));
        if (b->state == VRPI_SHARED) {
            vrpi_free_live(core, NULL, b, addr, NULL, 0);
        } else {
            for (vrpi_block *next; plain_match(next = vrpi_next(core, last), scope);) {
                last = next; /* neighbours go in one piece */
                note(f, last->tag, last->requested, VRPI_BYTES(last));
            }
            vrpi_block_free_run(core, b, last, vrpi_stamp(arena->stream));
        }
        b = vrpi_block_at(core, arena, addr); /* it may have merged or gone with the tail */
        if (b != NULL)
            b = vrpi_next(core, b);
    }
}

uint64_t vrpi_free_where(vrpi_pool *core, vrpi_thread *t, uint32_t scope) {
    freed f = {.scope = scope};
    uint64_t blocks = 0;
    uint64_t bit = UINT64_C(1) << (scope % 64);
    /* Hits move blocks between live and cached without the lock: none meanwhile. */
    vrpi_close_all(core);
    for (vrpi_slab *s = core->slabs, *next; s != NULL; s = next) {
        next = s->all_next;
        if (scope == 0 || (atomic_load_explicit(&s->scope_mask, memory_order_relaxed) & bit) != 0)
            free_slots(core, s, scope, &f);
    }
    for (vrpi_arena *a = core->arenas; a != NULL; a = a->next)
        free_blocks(core, a, scope, &f);
    vrpi_open_all(core);
    for (int tag = 0; tag < VRP_TAG_COUNT; tag++) {
        blocks += (uint64_t)f.blocks[tag];
        if (f.blocks[tag] > 0)
            vrpi_count_many(core, (uint8_t)tag, scope, -f.blocks[tag], -f.requested[tag],
                            -f.allocated[tag]);
    }
    if ((core->config.flags & VRP_STREAMS_UNTRACKED) != 0)
        for (vrpi_stream *st = core->streams; st != NULL; st = st->next)
            (void)vrpi_record(core, t, st);
    return blocks;
}

vrp_status vrp_scope_release(vrp_pool *pool, vrp_scope scope, uint64_t *out_blocks) {
    vrpi_pool *core;
    vrpi_thread *t;
    vrpi_scope *s;
    uint64_t blocks = 0;
    vrp_status status = VRP_OK;
    VRPI_TRY(vrpi_enter(pool));
    core = pool->core;
    t = vrpi_thread_get(pool);
    vrpi_mutex_lock(&core->lock);
    if (t == NULL) {
        status = vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for a thread");
    } else if (scope == 0 || !vrpi_scope_is(core, scope, OPEN, CLOSED)) {
        status = no_such(scope);
    } else {
        s = vrpi_scope_at(core, vrpi_scope_index(scope));
        atomic_store_explicit(&s->state, RELEASING, memory_order_relaxed);
        vrpi_shards_flush_all(core); /* and every hit that saw it open has ended */
        blocks = vrpi_free_where(core, t, vrpi_scope_index(scope));
        vrpi_growables_release(core, t, vrpi_scope_index(scope));
        vrpi_shards_flush_all(core);
        atomic_store_explicit(&s->state, UNUSED, memory_order_relaxed);
    }
    vrpi_mutex_unlock(&core->lock);
    vrpi_exit(pool);
    if (status == VRP_OK && out_blocks != NULL)
        *out_blocks = blocks;
    return status;
}

static vrp_status group_stats(vrp_pool *pool, int32_t tag, vrp_scope scope,
                              vrp_group_stats *out_stats) {
    vrp_group_stats stats;
    vrp_status status = VRP_OK;
    VRPI_TRY(vrpi_enter(pool));
    if (tag < 0 && (scope == 0 || !vrpi_scope_is(pool->core, scope, OPEN, CLOSED)))
        status = no_such(scope);
    else
        vrpi_group_read(pool->core, tag, tag < 0 ? vrpi_scope_index(scope) : 0, &stats);
    vrpi_exit(pool);
    return status == VRP_OK ? vrpi_struct_out(out_stats, &stats, sizeof stats, "vrp_group_stats")
                            : status;
}

vrp_status vrp_scope_stats_get(vrp_pool *pool, vrp_scope scope, vrp_group_stats *out_stats) {
    return group_stats(pool, -1, scope, out_stats);
}

vrp_status vrp_tag_stats_get(vrp_pool *pool, int32_t tag, vrp_group_stats *out_stats) {
    if (tag < 0 || tag >= VRP_TAG_COUNT)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "no tag %d", tag);
    return group_stats(pool, tag, 0, out_stats);
}

vrp_status vrp_tag_budget_set(vrp_pool *pool, int32_t tag, uint64_t bytes) {
    if (tag < 0 || tag >= VRP_TAG_COUNT)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "no tag %d", tag);
    VRPI_TRY(vrpi_enter(pool));
    vrpi_mutex_lock(&pool->core->lock);
    vrpi_group_budget_set(pool->core, &pool->core->tag[tag], bytes);
    vrpi_mutex_unlock(&pool->core->lock);
    vrpi_exit(pool);
    return VRP_OK;
}

void vrpi_scopes_end(vrpi_pool *core) {
    for (uint32_t i = 0; i < VRPI_SCOPES_MAX / VRPI_SCOPE_CHUNK; i++)
        vrpi_host_free(core, core->scope_chunk[i], VRPI_SCOPE_CHUNK * sizeof(vrpi_scope));
}
