/* SPDX-License-Identifier: MIT */
/* Counters in shards, a shard per thread and tag: a hit writes only its own lines.
 * Shards go to their groups when the thread has grown by VRPI_LATE_BYTES.
 * Budgets are leased to threads in pieces of VRPI_LEASE_BYTES. */

#include "core/counter.h"

static void tally_add(vrpi_tally *tally, int64_t delta, int64_t max, int64_t total) {
    int64_t old = atomic_fetch_add_explicit(&tally->current, delta, memory_order_relaxed);
    int64_t peak = vrpi_get(&tally->peak);
    while (old + max > peak &&
           !atomic_compare_exchange_weak_explicit(&tally->peak, &peak, old + max,
                                                  memory_order_relaxed, memory_order_relaxed))
        continue;
    if (total != 0)
        (void)atomic_fetch_add_explicit(&tally->total, total, memory_order_relaxed);
}

static vrpi_tally *tally_of(vrpi_group *group, int which) {
    return which == VRPI_REQUESTED   ? &group->requested
           : which == VRPI_ALLOCATED ? &group->allocated
                                     : &group->blocks;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void part_set(vrpi_part *part, int64_t in, int64_t now, int64_t max) {
    vrpi_set(&part->in, in);
    vrpi_set(&part->max, max);
    vrpi_set(&part->room, max - now);
}

static void shard_flush(vrpi_shard *s, vrpi_group *group) {
    for (int i = 0; i < VRPI_PARTS; i++) {
        vrpi_part *part = &s->part[i];
        if (vrpi_get(&part->in) == 0 && vrpi_part_now(part) == 0)
            continue;
        tally_add(tally_of(group, i), vrpi_part_now(part), vrpi_get(&part->max),
                  vrpi_get(&part->in));
        part_set(part, 0, 0, 0);
    }
}

/* ---- the active tag ------------------------------------------------------------- */

static vrpi_shard *active_of(vrpi_thread *t) {
    return &t->tag[atomic_load_explicit(&t->active, memory_order_relaxed)];
}

/* The pool's part as it stands: what is folded, and what the active tag counted since. */
static void all_of(const vrpi_thread *t, int which, int64_t *out_in, int64_t *out_now,
                   int64_t *out_max) {
    const vrpi_part *tag =
        &t->tag[atomic_load_explicit(&t->active, memory_order_relaxed)].part[which];
    const vrpi_part *mark = &t->mark[which], *all = &t->all.part[which];
    int64_t before = vrpi_part_now(all) - vrpi_part_now(mark); /* without the active tag's */
    *out_in = vrpi_get(&all->in) + vrpi_get(&tag->in) - vrpi_get(&mark->in);
    *out_now = before + vrpi_part_now(tag);
    *out_max = larger(vrpi_get(&all->max), before + vrpi_get(&tag->max));
}

/* Every shard is complete, until unpark. */
static void park(vrpi_thread *t) {
    vrpi_shard *s = active_of(t);
    for (int i = 0; i < VRPI_PARTS; i++) {
        vrpi_part *part = &s->part[i];
        int64_t in, now, max;
        all_of(t, i, &in, &now, &max);
        part_set(&t->all.part[i], in, now, max);
        part_set(part, vrpi_get(&part->in), vrpi_part_now(part),
                 larger(vrpi_get(&part->max), vrpi_get(&t->mark[i].max)));
    }
}

/* Hits count by themselves only what has this word. */
static void plain_set(vrpi_thread *t) {
    uint8_t tag = (uint8_t)atomic_load_explicit(&t->active, memory_order_relaxed);
    t->part = t->tag[tag].part;
    t->plain = atomic_load_explicit(&t->core->budgets, memory_order_relaxed) == 0
                   ? vrpi_slot_word(tag, 0, 0)
                   : VRPI_NO_WORD;
}

static void unpark(vrpi_thread *t) {
    const int64_t late = VRPI_LATE_BYTES;
    /* what is held back will be used again: not worth a visit at the group */
    int64_t floor = -late - (int64_t)atomic_load_explicit(&t->held_bytes, memory_order_relaxed);
    vrpi_shard *s = active_of(t);
    int64_t before;
    for (int i = 0; i < VRPI_PARTS; i++) {
        vrpi_part *part = &s->part[i];
        part_set(&t->mark[i], vrpi_get(&part->in), vrpi_part_now(part), vrpi_get(&part->max));
        part_set(part, vrpi_get(&part->in), vrpi_part_now(part), vrpi_part_now(part));
    }
    before = vrpi_part_now(&t->all.part[VRPI_ALLOCATED]) - vrpi_part_now(&t->mark[VRPI_ALLOCATED]);
    t->high = before > 0 ? late - before : late;
    t->low = before < 0 ? floor - before : floor;
    plain_set(t);
}

void vrpi_tag_activate(vrpi_thread *t, uint8_t tag) {
    park(t);
    atomic_store_explicit(&t->active, tag, memory_order_relaxed);
    unpark(t);
}

void vrpi_shards_init(vrpi_thread *t) { unpark(t); }

void vrpi_shards_limits(vrpi_thread *t) {
    park(t);
    unpark(t);
}

void vrpi_shards_due(vrpi_thread *t) {
    park(t);
    shard_flush(active_of(t), &t->core->tag[atomic_load(&t->active)]);
    shard_flush(&t->all, &t->core->all);
    unpark(t);
}

void vrpi_shards_check(vrpi_thread *t) {
    if (vrpi_part_now(&active_of(t)->part[VRPI_ALLOCATED]) > t->high)
        vrpi_shards_due(t);
}

static uint64_t budget_of(const vrpi_group *group) {
    return atomic_load_explicit(&group->budget, memory_order_relaxed);
}

static void lease_return(vrpi_shard *s, vrpi_group *group) {
    int64_t lease = vrpi_get(&s->lease);
    if (lease == 0)
        return;
    (void)atomic_fetch_sub_explicit(&group->leased, lease, memory_order_relaxed);
    vrpi_set(&s->lease, 0);
}

/* Takes `bytes` from the thread's lease, extending it; 0: the budget is used up. */
static int lease_take(vrpi_shard *s, vrpi_group *group, uint64_t bytes) {
    int64_t budget = (int64_t)budget_of(group), missing, leased;
    if (budget == 0)
        return 1;
    if (vrpi_get(&group->leased) > budget)
        lease_return(s, group); /* the budget was set below what was live */
    missing = (int64_t)bytes - vrpi_get(&s->lease);
    leased = vrpi_get(&group->leased);
    while (missing > 0) {
        int64_t piece = missing + VRPI_LEASE_BYTES;
        if (budget - leased < piece)
            piece = missing;
        if (budget - leased < piece)
            return 0;
        if (atomic_compare_exchange_weak_explicit(&group->leased, &leased, leased + piece,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            vrpi_set(&s->lease, vrpi_get(&s->lease) + piece);
            break;
        }
    }
    vrpi_set(&s->lease, vrpi_get(&s->lease) - (int64_t)bytes);
    return 1;
}

static void lease_give(vrpi_shard *s, vrpi_group *group, uint64_t bytes) {
    if (budget_of(group) == 0)
        return;
    vrpi_set(&s->lease, vrpi_get(&s->lease) + (int64_t)bytes);
    if (vrpi_get(&s->lease) > 4 * VRPI_LEASE_BYTES)
        lease_return(s, group);
}

/* The thread's shard of a scope; a few are kept, round robin. */
static vrpi_shard *scope_shard(vrpi_thread *t, uint32_t scope) {
    uint32_t i;
    vrpi_scope *old;
    for (i = 0; i < VRPI_THREAD_SCOPES; i++)
        if (t->scope[i].scope == scope)
            return &t->scope[i].shard;
    i = t->scope_turn++ % VRPI_THREAD_SCOPES;
    old = vrpi_scope_at(t->core, t->scope[i].scope);
    if (t->scope[i].scope != 0 && old != NULL) {
        shard_flush(&t->scope[i].shard, &old->group);
        lease_return(&t->scope[i].shard, &old->group);
    }
    t->scope[i].scope = scope;
    return &t->scope[i].shard;
}

int vrpi_budget_take(vrpi_thread *t, uint8_t tag, uint32_t scope, uint64_t allocated) {
    if (!lease_take(&t->tag[tag], &t->core->tag[tag], allocated))
        return 0;
    vrpi_scope *s = scope != 0 ? vrpi_scope_at(t->core, scope) : NULL;
    if (s != NULL && budget_of(&s->group) != 0 &&
        !lease_take(scope_shard(t, scope), &s->group, allocated)) {
        lease_give(&t->tag[tag], &t->core->tag[tag], allocated);
        return 0;
    }
    return 1;
}

void vrpi_budget_give(vrpi_thread *t, uint8_t tag, uint32_t scope, uint64_t allocated) {
    lease_give(&t->tag[tag], &t->core->tag[tag], allocated);
    if (scope != 0)
        lease_give(scope_shard(t, scope), &vrpi_scope_at(t->core, scope)->group, allocated);
}

static void shard_up(vrpi_shard *s, vrpi_group *group, uint64_t requested, uint64_t allocated) {
    (void)vrpi_part_up(&s->part[VRPI_REQUESTED], (int64_t)requested);
    (void)vrpi_part_up(&s->part[VRPI_BLOCKS], 1);
    (void)vrpi_part_up(&s->part[VRPI_ALLOCATED], (int64_t)allocated);
    if (vrpi_part_now(&s->part[VRPI_ALLOCATED]) > VRPI_LATE_BYTES)
        shard_flush(s, group);
}

static void shard_down(vrpi_shard *s, vrpi_group *group, uint64_t requested, uint64_t allocated) {
    vrpi_part_down(&s->part[VRPI_REQUESTED], (int64_t)requested);
    vrpi_part_down(&s->part[VRPI_BLOCKS], 1);
    vrpi_part_down(&s->part[VRPI_ALLOCATED], (int64_t)allocated);
    if (vrpi_part_now(&s->part[VRPI_ALLOCATED]) < -VRPI_LATE_BYTES)
        shard_flush(s, group);
}

void vrpi_count_up(vrpi_thread *t, uint8_t tag, uint32_t scope, uint64_t requested,
                   uint64_t allocated) {
    if (scope != 0)
        shard_up(scope_shard(t, scope), &vrpi_scope_at(t->core, scope)->group, requested,
                 allocated);
    vrpi_tag_up(t, tag, requested, allocated);
}

vrp_status vrpi_count_alloc(vrpi_thread *t, uint8_t tag, uint32_t scope, uint64_t requested,
                            uint64_t allocated) {
    if (!vrpi_budget_take(t, tag, scope, allocated))
        return VRP_LIMIT_REACHED;
    vrpi_count_up(t, tag, scope, requested, allocated);
    return VRP_OK;
}

void vrpi_count_free(vrpi_thread *t, uint8_t tag, uint32_t scope, uint64_t requested,
                     uint64_t allocated) {
    if (scope != 0) {
        vrpi_group *group = &vrpi_scope_at(t->core, scope)->group;
        vrpi_shard *shard = scope_shard(t, scope);
        lease_give(shard, group, allocated);
        shard_down(shard, group, requested, allocated);
    }
    lease_give(&t->tag[tag], &t->core->tag[tag], allocated);
    vrpi_tag_down(t, tag, requested, allocated);
}

static void shift(vrpi_part *part, int64_t by) {
    if (by > 0)
        (void)vrpi_part_up(part, by);
    else
        vrpi_part_down(part, -by);
}

static void shard_shift(vrpi_shard *s, int64_t blocks, int64_t requested, int64_t allocated) {
    shift(&s->part[VRPI_REQUESTED], requested);
    shift(&s->part[VRPI_ALLOCATED], allocated);
    shift(&s->part[VRPI_BLOCKS], blocks);
}

void vrpi_count_shift(vrpi_thread *t, uint8_t tag, uint32_t scope, int64_t blocks,
                      int64_t requested, int64_t allocated) {
    if (scope != 0) {
        shard_shift(scope_shard(t, scope), blocks, requested, allocated);
        shard_flush(scope_shard(t, scope), &vrpi_scope_at(t->core, scope)->group);
    }
    vrpi_tag_activate(t, tag);
    shard_shift(&t->tag[tag], blocks, requested, allocated);
    vrpi_shards_due(t);
}

static void group_add(vrpi_group *group, int64_t blocks, int64_t requested, int64_t allocated) {
    tally_add(&group->requested, requested, requested > 0 ? requested : 0,
              requested > 0 ? requested : 0);
    tally_add(&group->allocated, allocated, allocated > 0 ? allocated : 0,
              allocated > 0 ? allocated : 0);
    tally_add(&group->blocks, blocks, blocks > 0 ? blocks : 0, blocks > 0 ? blocks : 0);
    if (budget_of(group) != 0)
        (void)atomic_fetch_add_explicit(&group->leased, allocated, memory_order_relaxed);
}

void vrpi_count_many(vrpi_pool *core, uint8_t tag, uint32_t scope, int64_t blocks,
                     int64_t requested, int64_t allocated) {
    if (scope != 0)
        group_add(&vrpi_scope_at(core, scope)->group, blocks, requested, allocated);
    group_add(&core->tag[tag], blocks, requested, allocated);
    group_add(&core->all, blocks, requested, allocated);
}

void vrpi_shards_flush(vrpi_thread *t) {
    park(t);
    shard_flush(&t->all, &t->core->all);
    for (int i = 0; i < VRP_TAG_COUNT; i++)
        shard_flush(&t->tag[i], &t->core->tag[i]);
    unpark(t);
    for (int i = 0; i < VRPI_THREAD_SCOPES; i++)
        if (t->scope[i].scope != 0) {
            vrpi_group *group = &vrpi_scope_at(t->core, t->scope[i].scope)->group;
            shard_flush(&t->scope[i].shard, group);
            lease_return(&t->scope[i].shard, group);
            t->scope[i].scope = 0;
        }
}

/* Gives the thread's leases back; returns how much that was. */
static int64_t leases_return(vrpi_thread *t) {
    int64_t sum = 0;
    for (int i = 0; i < VRP_TAG_COUNT; i++) {
        sum += vrpi_get(&t->tag[i].lease);
        lease_return(&t->tag[i], &t->core->tag[i]);
    }
    for (int i = 0; i < VRPI_THREAD_SCOPES; i++)
        if (t->scope[i].scope != 0) {
            sum += vrpi_get(&t->scope[i].shard.lease);
            lease_return(&t->scope[i].shard, &vrpi_scope_at(t->core, t->scope[i].scope)->group);
        }
    return sum;
}

void vrpi_budget_collect_one(vrpi_thread *t) { (void)leases_return(t); }

int vrpi_budget_collect(vrpi_pool *core) {
    int64_t sum = 0;
    vrpi_close_all(core);
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next)
        sum += leases_return(t);
    vrpi_open_all(core);
    return sum > 0;
}

void vrpi_shards_flush_all(vrpi_pool *core) {
    vrpi_close_all(core);
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next)
        vrpi_shards_flush(t);
    vrpi_open_all(core);
}

/* Hits of a scope look at its budget in any case. */
static int is_tag(const vrpi_pool *core, const vrpi_group *group) {
    return group >= core->tag && group < core->tag + VRP_TAG_COUNT;
}

void vrpi_group_budget_set(vrpi_pool *core, vrpi_group *group, uint64_t budget) {
    /* With every thread's lease returned, what is leased is what is in use. */
    vrpi_close_all(core);
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next) {
        (void)leases_return(t);
        vrpi_shards_flush(t);
    }
    atomic_store_explicit(&group->leased, vrpi_get(&group->allocated.current),
                          memory_order_relaxed);
    if (budget > (uint64_t)INT64_MAX)
        budget = (uint64_t)INT64_MAX;
    /* before the gates open: a hit that sees no budget has begun before there was one */
    if (is_tag(core, group) && (budget_of(group) == 0) != (budget == 0))
        (void)atomic_fetch_add_explicit(&core->budgets, budget == 0 ? UINT32_MAX : 1,
                                        memory_order_relaxed);
    atomic_store_explicit(&group->budget, budget, memory_order_relaxed);
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next)
        plain_set(t);
    vrpi_open_all(core);
}

void vrpi_group_reset_peaks(vrpi_group *group) {
    vrpi_set(&group->requested.peak, vrpi_get(&group->requested.current));
    vrpi_set(&group->allocated.peak, vrpi_get(&group->allocated.current));
    vrpi_set(&group->blocks.peak, vrpi_get(&group->blocks.current));
}

typedef struct sums {
    int64_t current, rise, total; /* rise: most that one thread's maximum is above its current */
} sums;

/* One thread's part of a group: a scope (tag -1), a tag, or the pool (both none). */
static void sum_up(const vrpi_thread *t, int32_t tag, uint32_t scope, int which, sums *s) {
    const vrpi_shard *shard = NULL;
    int64_t in = 0, now = 0, max = 0;
    if (scope == 0 && tag < 0) {
        all_of(t, which, &in, &now, &max);
    } else {
        for (int i = 0; scope != 0 && i < VRPI_THREAD_SCOPES; i++)
            if (t->scope[i].scope == scope)
                shard = &t->scope[i].shard;
        if (scope == 0)
            shard = &t->tag[tag];
        if (shard == NULL)
            return;
        in = vrpi_get(&shard->part[which].in);
        now = vrpi_part_now(&shard->part[which]);
        max = vrpi_get(&shard->part[which].max);
        if (scope == 0 && atomic_load_explicit(&t->active, memory_order_relaxed) == (uint32_t)tag)
            max = larger(max, vrpi_get(&t->mark[which].max));
    }
    s->current += now;
    s->total += in;
    s->rise = larger(s->rise, max - now);
}

static void counter_of(const vrpi_tally *tally, const sums *s, vrp_counter *out) {
    int64_t current = vrpi_get(&tally->current) + s->current;
    int64_t peak = vrpi_get(&tally->peak);
    if (current + s->rise > peak)
        peak = current + s->rise;
    out->current = current > 0 ? (uint64_t)current : 0;
    out->peak = peak > 0 ? (uint64_t)peak : 0;
    out->total = (uint64_t)(vrpi_get(&tally->total) + s->total);
}

/* tag -1 and scope 0: the whole pool. Takes threads_lock. */
void vrpi_group_read(vrpi_pool *core, int32_t tag, uint32_t scope, vrp_group_stats *out) {
    vrp_counter *counters[] = {&out->requested_bytes, &out->allocated_bytes, NULL};
    vrp_counter blocks;
    vrpi_group *group = scope != 0 ? &vrpi_scope_at(core, scope)->group
                        : tag < 0  ? &core->all
                                   : &core->tag[tag];
    counters[VRPI_BLOCKS] = &blocks;
    vrpi_mutex_lock(&core->threads_lock);
    for (int i = 0; i < VRPI_PARTS; i++) {
        sums s = {0};
        for (const vrpi_thread *t = core->threads; t != NULL; t = t->next)
            sum_up(t, tag, scope, i, &s);
        counter_of(tally_of(group, i), &s, counters[i]);
    }
    vrpi_mutex_unlock(&core->threads_lock);
    out->struct_size = sizeof *out;
    out->reserved = 0;
    out->blocks = blocks.current;
    out->budget_bytes = budget_of(group);
}

void vrpi_blocks_read(vrpi_pool *core, vrp_counter *out) {
    sums s = {0};
    vrpi_mutex_lock(&core->threads_lock);
    for (const vrpi_thread *t = core->threads; t != NULL; t = t->next)
        sum_up(t, -1, 0, VRPI_BLOCKS, &s);
    counter_of(&core->all.blocks, &s, out);
    vrpi_mutex_unlock(&core->threads_lock);
}

int64_t vrpi_all_late(const vrpi_thread *t, int which) {
    int64_t in, now, max;
    all_of(t, which, &in, &now, &max);
    return now;
}
