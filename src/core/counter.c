/* SPDX-License-Identifier: MIT */
/* Counters in shards, a shard per thread: a hit writes only its own lines. A
 * shard goes to its group when it has grown by VRPI_LEASE_BYTES and at every
 * slow path. Budgets are leased to threads in pieces of the same size. */

#include "core/core.h"

static int64_t get(const _Atomic int64_t *x) {
    return atomic_load_explicit(x, memory_order_relaxed);
}

static void set(_Atomic int64_t *x, int64_t value) {
    atomic_store_explicit(x, value, memory_order_relaxed);
}

static void tally_add(vrpi_tally *tally, int64_t delta, int64_t max, int64_t total) {
    int64_t old = atomic_fetch_add_explicit(&tally->current, delta, memory_order_relaxed);
    int64_t peak = get(&tally->peak);
    while (old + max > peak &&
           !atomic_compare_exchange_weak_explicit(&tally->peak, &peak, old + max,
                                                  memory_order_relaxed, memory_order_relaxed))
        continue;
    (void)atomic_fetch_add_explicit(&tally->total, total, memory_order_relaxed);
}

static void shard_flush(vrpi_shard *s, vrpi_group *group) {
    tally_add(&group->requested, get(&s->requested), get(&s->requested_max),
              get(&s->requested_total));
    tally_add(&group->allocated, get(&s->allocated), get(&s->allocated_max),
              get(&s->allocated_total));
    tally_add(&group->blocks, get(&s->blocks), get(&s->blocks_max), get(&s->blocks_total));
    set(&s->requested, 0);
    set(&s->requested_max, 0);
    set(&s->requested_total, 0);
    set(&s->allocated, 0);
    set(&s->allocated_max, 0);
    set(&s->allocated_total, 0);
    set(&s->blocks, 0);
    set(&s->blocks_max, 0);
    set(&s->blocks_total, 0);
}

static void lease_return(vrpi_shard *s, vrpi_group *group) {
    int64_t lease = get(&s->lease);
    if (lease != 0)
        (void)atomic_fetch_sub_explicit(&group->leased, lease, memory_order_relaxed);
    set(&s->lease, 0);
}

static void up(_Atomic int64_t *current, _Atomic int64_t *max, _Atomic int64_t *total, int64_t by) {
    int64_t now = get(current) + by;
    set(current, now);
    set(total, get(total) + by);
    if (now > get(max))
        set(max, now);
}

static void shard_up(vrpi_shard *s, vrpi_group *group, uint64_t requested, uint64_t allocated) {
    up(&s->requested, &s->requested_max, &s->requested_total, (int64_t)requested);
    up(&s->allocated, &s->allocated_max, &s->allocated_total, (int64_t)allocated);
    up(&s->blocks, &s->blocks_max, &s->blocks_total, 1);
    if (get(&s->allocated) > VRPI_LEASE_BYTES)
        shard_flush(s, group);
}

static void shard_down(vrpi_shard *s, vrpi_group *group, uint64_t requested, uint64_t allocated) {
    set(&s->requested, get(&s->requested) - (int64_t)requested);
    set(&s->allocated, get(&s->allocated) - (int64_t)allocated);
    set(&s->blocks, get(&s->blocks) - 1);
    if (get(&s->allocated) < -VRPI_LEASE_BYTES)
        shard_flush(s, group);
}

static uint64_t budget_of(const vrpi_group *group) {
    return atomic_load_explicit(&group->budget, memory_order_relaxed);
}

/* Takes `bytes` from the thread's lease, extending it; 0: the budget is used up. */
static int lease_take(vrpi_shard *s, vrpi_group *group, uint64_t bytes) {
    int64_t budget = (int64_t)budget_of(group), missing, leased;
    if (budget == 0)
        return 1;
    if (get(&group->leased) > budget)
        lease_return(s, group); /* the budget was set below what was live */
    missing = (int64_t)bytes - get(&s->lease);
    leased = get(&group->leased);
    while (missing > 0) {
        int64_t piece = missing + VRPI_LEASE_BYTES;
        if (budget - leased < piece)
            piece = missing;
        if (budget - leased < piece)
            return 0;
        if (atomic_compare_exchange_weak_explicit(&group->leased, &leased, leased + piece,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            set(&s->lease, get(&s->lease) + piece);
            break;
        }
    }
    set(&s->lease, get(&s->lease) - (int64_t)bytes);
    return 1;
}

static void lease_give(vrpi_shard *s, vrpi_group *group, uint64_t bytes) {
    if (budget_of(group) == 0)
        return;
    set(&s->lease, get(&s->lease) + (int64_t)bytes);
    if (get(&s->lease) > 4 * VRPI_LEASE_BYTES)
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

void vrpi_count_up(vrpi_thread *t, uint8_t tag, uint32_t scope, uint64_t requested,
                   uint64_t allocated) {
    if (scope != 0)
        shard_up(scope_shard(t, scope), &vrpi_scope_at(t->core, scope)->group, requested,
                 allocated);
    shard_up(&t->tag[tag], &t->core->tag[tag], requested, allocated);
    shard_up(&t->all, &t->core->all, requested, allocated);
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
    shard_down(&t->tag[tag], &t->core->tag[tag], requested, allocated);
    shard_down(&t->all, &t->core->all, requested, allocated);
}

static void shift(_Atomic int64_t *current, _Atomic int64_t *max, _Atomic int64_t *total,
                  int64_t by) {
    if (by > 0)
        up(current, max, total, by);
    else
        set(current, get(current) + by);
}

static void shard_shift(vrpi_shard *s, vrpi_group *group, int64_t blocks, int64_t requested,
                        int64_t allocated) {
    shift(&s->requested, &s->requested_max, &s->requested_total, requested);
    shift(&s->allocated, &s->allocated_max, &s->allocated_total, allocated);
    shift(&s->blocks, &s->blocks_max, &s->blocks_total, blocks);
    shard_flush(s, group);
}

void vrpi_count_shift(vrpi_thread *t, uint8_t tag, uint32_t scope, int64_t blocks,
                      int64_t requested, int64_t allocated) {
    if (scope != 0)
        shard_shift(scope_shard(t, scope), &vrpi_scope_at(t->core, scope)->group, blocks, requested,
                    allocated);
    shard_shift(&t->tag[tag], &t->core->tag[tag], blocks, requested, allocated);
    shard_shift(&t->all, &t->core->all, blocks, requested, allocated);
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
    shard_flush(&t->all, &t->core->all);
    for (int i = 0; i < VRP_TAG_COUNT; i++)
        shard_flush(&t->tag[i], &t->core->tag[i]);
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
        sum += get(&t->tag[i].lease);
        lease_return(&t->tag[i], &t->core->tag[i]);
    }
    for (int i = 0; i < VRPI_THREAD_SCOPES; i++)
        if (t->scope[i].scope != 0) {
            sum += get(&t->scope[i].shard.lease);
            lease_return(&t->scope[i].shard, &vrpi_scope_at(t->core, t->scope[i].scope)->group);
        }
    return sum;
}

void vrpi_budget_collect_one(vrpi_thread *t) { (void)leases_return(t); }

int vrpi_budget_collect(vrpi_pool *core) {
    int64_t sum = 0;
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next) {
        vrpi_seize(t);
        sum += leases_return(t);
        vrpi_leave(t);
    }
    return sum > 0;
}

void vrpi_shards_flush_all(vrpi_pool *core) {
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next) {
        vrpi_seize(t);
        vrpi_shards_flush(t);
        vrpi_leave(t);
    }
}

void vrpi_group_budget_set(vrpi_pool *core, vrpi_group *group, uint64_t budget) {
    /* With every thread's lease returned, what is leased is what is in use. */
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next)
        vrpi_seize(t);
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next) {
        (void)leases_return(t);
        vrpi_shards_flush(t);
    }
    atomic_store_explicit(&group->leased, get(&group->allocated.current), memory_order_relaxed);
    if (budget > (uint64_t)INT64_MAX)
        budget = (uint64_t)INT64_MAX;
    atomic_store_explicit(&group->budget, budget, memory_order_relaxed);
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next)
        vrpi_leave(t);
}

void vrpi_group_reset_peaks(vrpi_group *group) {
    set(&group->requested.peak, get(&group->requested.current));
    set(&group->allocated.peak, get(&group->allocated.current));
    set(&group->blocks.peak, get(&group->blocks.current));
}

static vrpi_shard *shard_of(vrpi_thread *t, int32_t tag, uint32_t scope) {
    if (scope != 0) {
        for (int i = 0; i < VRPI_THREAD_SCOPES; i++)
            if (t->scope[i].scope == scope)
                return &t->scope[i].shard;
        return NULL;
    }
    return tag < 0 ? &t->all : &t->tag[tag];
}

typedef struct sums {
    int64_t current, rise, total; /* rise: most that one thread's maximum is above its current */
} sums;

static void sum_up(sums *s, int64_t current, int64_t max, int64_t total) {
    s->current += current;
    s->total += total;
    if (max - current > s->rise)
        s->rise = max - current;
}

static void counter_of(const vrpi_tally *tally, const sums *s, vrp_counter *out) {
    int64_t current = get(&tally->current) + s->current;
    int64_t peak = get(&tally->peak);
    if (current + s->rise > peak)
        peak = current + s->rise;
    out->current = current > 0 ? (uint64_t)current : 0;
    out->peak = peak > 0 ? (uint64_t)peak : 0;
    out->total = (uint64_t)(get(&tally->total) + s->total);
}

/* tag -1 and scope 0: the whole pool. Takes threads_lock. */
void vrpi_group_read(vrpi_pool *core, int32_t tag, uint32_t scope, vrp_group_stats *out) {
    sums requested = {0}, allocated = {0}, blocks = {0};
    vrp_counter count;
    const vrpi_group *group = scope != 0 ? &vrpi_scope_at(core, scope)->group
                              : tag < 0  ? &core->all
                                         : &core->tag[tag];
    vrpi_mutex_lock(&core->threads_lock);
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next) {
        vrpi_shard *s = shard_of(t, tag, scope);
        if (s == NULL)
            continue;
        sum_up(&requested, get(&s->requested), get(&s->requested_max), get(&s->requested_total));
        sum_up(&allocated, get(&s->allocated), get(&s->allocated_max), get(&s->allocated_total));
        sum_up(&blocks, get(&s->blocks), get(&s->blocks_max), get(&s->blocks_total));
    }
    counter_of(&group->requested, &requested, &out->requested_bytes);
    counter_of(&group->allocated, &allocated, &out->allocated_bytes);
    counter_of(&group->blocks, &blocks, &count);
    vrpi_mutex_unlock(&core->threads_lock);
    out->struct_size = sizeof *out;
    out->reserved = 0;
    out->blocks = count.current;
    out->budget_bytes = budget_of(group);
}

void vrpi_blocks_read(vrpi_pool *core, vrp_counter *out) {
    sums blocks = {0};
    vrpi_mutex_lock(&core->threads_lock);
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next)
        sum_up(&blocks, get(&t->all.blocks), get(&t->all.blocks_max), get(&t->all.blocks_total));
    counter_of(&core->all.blocks, &blocks, out);
    vrpi_mutex_unlock(&core->threads_lock);
}
