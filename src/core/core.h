/* SPDX-License-Identifier: MIT */
#ifndef VRPI_CORE_CORE_H
#define VRPI_CORE_CORE_H

/* Every function of the core that crosses files, under the name of the file
 * that owns it. Its structures are in types.h. */

#include "core/types.h"
#include "platform/error.h"

/* ---- reads of what the lock guards for writing ---- */
static inline uint64_t vrpi_knob(const vrpi_pool *core, int which) {
    return atomic_load_explicit(&core->knob[which], memory_order_relaxed);
}
static inline uint64_t vrpi_reserved(const vrpi_pool *core) {
    return atomic_load_explicit(&core->reserved, memory_order_relaxed);
}
/* 0, or the status of a device or driver that is gone: no driver call any more. */
static inline vrp_status vrpi_lost(const vrpi_pool *core) {
    return (vrp_status)atomic_load_explicit(&core->lost, memory_order_relaxed);
}

/* ---- host.c: host memory ---- */
void *vrpi_host_alloc(vrpi_pool *core, size_t bytes); /* zeroed; NULL: none */
void vrpi_host_free(vrpi_pool *core, void *ptr, size_t bytes);
/* Makes sure that that many nodes can be taken without failing. */
vrp_status vrpi_nodes_reserve(vrpi_pool *core, uint32_t blocks, uint32_t extents, uint32_t ghosts);
uint32_t vrpi_block_node(vrpi_pool *core); /* its number */
vrpi_extent *vrpi_extent_node(vrpi_pool *core);
vrpi_ghost *vrpi_ghost_node(vrpi_pool *core);
void vrpi_block_node_free(vrpi_pool *core, uint32_t number);
void vrpi_extent_node_free(vrpi_pool *core, vrpi_extent *extent);
void vrpi_ghost_node_free(vrpi_pool *core, vrpi_ghost *ghost);
char *vrpi_chunk_new(vrpi_pool *core, size_t *out_bytes); /* kept to the pool's end; NULL: none */
void vrpi_host_end(vrpi_pool *core);                      /* frees every chunk */

/* ---- blocks by number ---- */
static inline vrpi_block *vrpi_block_of(const vrpi_pool *core, uint32_t number) {
    return number == 0 ? NULL : (vrpi_block *)vrpi_node_at(&core->block_nodes, number);
}
static inline vrpi_block *vrpi_next(const vrpi_pool *core, const vrpi_block *block) {
    return vrpi_block_of(core, block->next);
}
static inline vrpi_block *vrpi_prev(const vrpi_pool *core, const vrpi_block *block) {
    return vrpi_block_of(core, block->prev);
}
static inline vrpi_block *vrpi_first(const vrpi_pool *core, const vrpi_arena *arena) {
    return vrpi_block_of(core, arena->first);
}
static inline vrpi_block *vrpi_last(const vrpi_pool *core, const vrpi_arena *arena) {
    return vrpi_block_of(core, arena->last);
}
static inline vrpi_arena *vrpi_arena_of(const vrpi_pool *core, const vrpi_block *block) {
    return core->arena_at[block->arena];
}
/* The number of a block that is in its arena's list: its neighbour knows it. */
static inline uint32_t vrpi_number_of(const vrpi_pool *core, const vrpi_block *block) {
    return block->prev != 0 ? vrpi_prev(core, block)->next : vrpi_arena_of(core, block)->first;
}
/* What a live slot holds, as one word. */
#define VRPI_WORD_WASTE (UINT64_C(0xffff) << 32)
#define VRPI_NO_WORD UINT64_MAX /* no slot's */
_Static_assert(sizeof(vrpi_slot) == 8 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the fields of a slot from the lowest byte up");
static inline uint64_t vrpi_slot_word(uint8_t tag, uint64_t waste, uint32_t scope) {
    return (uint64_t)VRPI_LIVE << 56 | (uint64_t)tag << 48 | waste << 32 | scope;
}

static inline vrpi_slab *vrpi_slab_of(const vrpi_block *block) {
    return block->state == VRPI_SLAB ? block->slab : NULL;
}
static inline uint64_t vrpi_requested(const vrpi_block *block) {
    return block->state == VRPI_SHARED ? block->uses->requested : block->requested;
}
/* The lock orders states, but for hits, which change their own blocks alone. */
static inline void vrpi_set_state(vrpi_block *block, uint8_t state) {
    atomic_store_explicit(&block->state, state, memory_order_relaxed);
}
static inline int vrpi_is_live(const vrpi_block *block) {
    return block->state == VRPI_LIVE || block->state == VRPI_SHARED;
}
/* Whether a block is in its space's tree, an extent among the idle ones. */
static inline int vrpi_in_tree(const vrpi_block *block) {
    return block->state == VRPI_FREE && block->node.parent != VRPI_UNLINKED;
}
static inline int vrpi_is_idle(const vrpi_extent *extent) {
    return extent->node.parent != VRPI_UNLINKED;
}
/* For how many operations it has been. */
static inline uint32_t vrpi_idle_for(const vrpi_pool *core, const vrpi_extent *extent) {
    return (uint32_t)core->ticks - extent->idle_since;
}

/* ---- map.c: address to block ---- (lock held but for the reads) */
typedef uintptr_t vrpi_found;      /* 0: nothing */
#define VRPI_MAP_SLAB (uintptr_t)1 /* it is a slab's */
static inline vrpi_slab *vrpi_found_slab(vrpi_found found) {
    return (vrpi_slab *)(found - VRPI_MAP_SLAB);
}
void vrpi_map_slab(vrpi_pool *core,
                   const vrpi_slab *slab); /* its cells name it instead of its block */
void vrpi_map_end(vrpi_pool *core);
vrp_status vrpi_map_prepare(vrpi_pool *core, uint64_t addr, uint64_t bytes); /* leaves exist */
vrp_status vrpi_map_refill(vrpi_pool *core);
/* One vrpi_map_put cannot fail then. */
static inline vrp_status vrpi_map_reserve(vrpi_pool *core) {
    return core->cells_spare >= VRPI_CELLS_RESERVE ? VRP_OK : vrpi_map_refill(core);
}
void vrpi_map_put(vrpi_pool *core, vrpi_block *block);
void vrpi_map_take(vrpi_pool *core, vrpi_block *block);

static inline int vrpi_covers(const vrpi_block *block) { return block->tag == VRPI_TAG_SLAB; }

/* A table of cells: entries, and before them words of keys, a byte each, the first
 * word next to the entries. The largest kind has no keys, but an entry for each
 * cell, and their count behind. */
static inline uint32_t vrpi_cells_words(uint32_t kind) {
    return kind == VRPI_CELLS_DIRECT ? 0 : kind <= 3 ? 1 : kind - 2;
}
static inline _Atomic uint64_t *vrpi_cells_key(const char *table, uint32_t word) {
    return (_Atomic uint64_t *)(uintptr_t)table - 1 - word;
}
static inline _Atomic vrpi_found *vrpi_cells_entry(const char *table, uint32_t i) {
    return (_Atomic vrpi_found *)(uintptr_t)table + i;
}
static inline uint64_t *vrpi_cells_count(const char *table) {
    enum { CELLS = 1 << (VRPI_MAP_SHIFT - VRPI_CELL_SHIFT) };
    return (uint64_t *)(uintptr_t)(table + CELLS * sizeof(vrpi_found));
}
/* The entry of the cell; NULL: there is none. */
static inline _Atomic vrpi_found *vrpi_cells_find(const char *table, uint32_t kind, uint64_t cell) {
    const uint64_t ones = VRPI_CELLS_TOPS >> 7;
    for (uint32_t w = 0;;) {
        /* a byte that is equal becomes 0; of the zero bytes the lowest is found for sure */
        uint64_t x =
            atomic_load_explicit(vrpi_cells_key(table, w), memory_order_acquire) ^ cell * ones;
        uint64_t equal = (x - ones) & ~x & VRPI_CELLS_TOPS;
        if (equal != 0)
            return vrpi_cells_entry(table, w * 8 + (uint32_t)__builtin_ctzll(equal) / 8);
        if (kind <= 3 || ++w == kind - 2)
            return NULL;
    }
}

/* What may start at an address, or be the slab that covers it: whoever asks
 * compares it with the address. A block, or a slab (VRPI_MAP_SLAB). Inside the
 * thread's gate, or with the lock held. */
static inline vrpi_found vrpi_map_find(const vrpi_pool *core, uint64_t addr) {
    const _Atomic(char *) *at;
    char *next;
    uint64_t cell = addr >> VRPI_CELL_SHIFT & ((1 << (VRPI_MAP_SHIFT - VRPI_CELL_SHIFT)) - 1);
    uint64_t gib = (addr >> VRPI_LEAF_SHIFT) - core->first_leaf;
    const _Atomic vrpi_found *entry;
    uint32_t kind;
    if (gib >= core->leaf_count)
        return 0;
    /* acquire pairs with the release in map.c: what is seen is filled in */
    next = atomic_load_explicit(&core->leaves[gib], memory_order_acquire);
    at = (const _Atomic(char *) *)(void *)next + (addr >> VRPI_MAP_SHIFT & 511);
    next = atomic_load_explicit(at, memory_order_acquire);
    kind = (uint32_t)((uintptr_t)next & 7);
    if (kind == 0)
        return (vrpi_found)next;
    next -= kind;
    entry = kind == VRPI_CELLS_DIRECT ? vrpi_cells_entry(next, (uint32_t)cell)
                                      : vrpi_cells_find(next, kind, cell);
    return entry == NULL ? 0 : atomic_load_explicit(entry, memory_order_acquire);
}

/* The same, but only where slabs are: 0 does not mean that there is nothing. */
static inline vrpi_found vrpi_map_peek(const vrpi_pool *core, uint64_t addr) {
    const _Atomic(char *) *at;
    const char *table;
    uint64_t cell = addr >> VRPI_CELL_SHIFT & ((1 << (VRPI_MAP_SHIFT - VRPI_CELL_SHIFT)) - 1);
    uint64_t gib = (addr >> VRPI_LEAF_SHIFT) - core->first_leaf;
    if (gib >= core->leaf_count)
        return 0;
    at = (const _Atomic(char *) *)(void *)atomic_load_explicit(&core->leaves[gib],
                                                               memory_order_acquire);
    table = atomic_load_explicit(&at[addr >> VRPI_MAP_SHIFT & 511], memory_order_acquire);
    if (((uintptr_t)table & 7) != VRPI_CELLS_DIRECT)
        return 0;
    return atomic_load_explicit(vrpi_cells_entry(table - VRPI_CELLS_DIRECT, (uint32_t)cell),
                                memory_order_acquire);
}

static inline vrpi_block *vrpi_map_get(const vrpi_pool *core, uint64_t addr) {
    vrpi_found found = vrpi_map_find(core, addr);
    return found & VRPI_MAP_SLAB ? vrpi_found_slab(found)->block : (vrpi_block *)found;
}

/* ---- sizeclass.h has the classes of small requests ---- */

/* ---- counter.c ---- */
vrp_status vrpi_count_alloc(vrpi_thread *t, uint8_t tag, uint32_t scope, uint64_t requested,
                            uint64_t allocated); /* LIMIT_REACHED; t is entered */
int vrpi_budget_take(vrpi_thread *t, uint8_t tag, uint32_t scope, uint64_t allocated);
void vrpi_budget_give(vrpi_thread *t, uint8_t tag, uint32_t scope, uint64_t allocated);
void vrpi_count_up(vrpi_thread *t, uint8_t tag, uint32_t scope, uint64_t requested,
                   uint64_t allocated);
/* One block that changes its size, or comes (blocks 1) or goes (-1). The budget
 * is the caller's affair. */
void vrpi_count_shift(vrpi_thread *t, uint8_t tag, uint32_t scope, int64_t blocks,
                      int64_t requested, int64_t allocated);
void vrpi_count_free(vrpi_thread *t, uint8_t tag, uint32_t scope, uint64_t requested,
                     uint64_t allocated);
void vrpi_count_many(vrpi_pool *core, uint8_t tag, uint32_t scope, int64_t blocks,
                     int64_t requested, int64_t allocated); /* slow; any thread */
int vrpi_budget_collect(vrpi_pool *core); /* takes back what threads hold; lock held */
void vrpi_budget_collect_one(vrpi_thread *t);
/* The thread's own, or its gate is closed. */
void vrpi_tag_activate(vrpi_thread *t, uint8_t tag);
void vrpi_shards_init(vrpi_thread *t);
void vrpi_shards_limits(vrpi_thread *t); /* after held_bytes has changed */
void vrpi_shards_due(vrpi_thread *t);    /* the active tag's and the pool's go to their groups */
void vrpi_shards_check(vrpi_thread *t);  /* the same if the active tag's are as high as that */
int64_t vrpi_all_late(const vrpi_thread *t, int which); /* VRPI_REQUESTED ...: not in the group */
void vrpi_shards_flush(vrpi_thread *t);                 /* t's own, or its gate is closed */
void vrpi_shards_flush_all(vrpi_pool *core);            /* lock held; closes gates */
void vrpi_group_read(vrpi_pool *core, int32_t tag, uint32_t scope, vrp_group_stats *out);
void vrpi_blocks_read(vrpi_pool *core, vrp_counter *out);
void vrpi_group_reset_peaks(vrpi_group *group);
void vrpi_group_budget_set(vrpi_pool *core, vrpi_group *group, uint64_t budget);

/* ---- thread.c ---- */
vrpi_thread *vrpi_thread_get(vrp_pool *pool);        /* NULL: no host memory; the pool is entered */
vrpi_thread *vrpi_thread_peek(const vrp_pool *pool); /* NULL: none yet */
/* The part that the thread used last; read through it without a function call. */
#define VRPI_TLS __attribute__((tls_model("initial-exec")))
extern _Thread_local vrpi_thread *vrpi_current VRPI_TLS;
extern vrpi_thread vrpi_nobody; /* stands there before: of no pool */
static inline int vrpi_thread_is_of(const vrpi_thread *t, const vrp_pool *pool) {
    return atomic_load_explicit(&t->pool, memory_order_relaxed) == pool;
}
void vrpi_threads_end(vrpi_pool *core); /* at destroy */
/* Keep threads out of their hit paths while somebody else works on their fronts
 * and shards. Lock held, throughout. A thread that holds the lock needs none of
 * this for its own part. */
void vrpi_close(vrpi_thread *t);
static inline void vrpi_open(vrpi_thread *t) { vrpi_gate_open(&t->gate); }
void vrpi_close_all(vrpi_pool *core);
void vrpi_open_all(vrpi_pool *core);
vrpi_front *vrpi_front_get(vrpi_pool *core, vrpi_thread *t, vrpi_stream *stream,
                           vrp_stream handle); /* lock held; NULL: none to be had */
uint64_t vrpi_fronts_flush(vrpi_pool *core, uint64_t least, int slots);
uint64_t vrpi_fronts_flush_all(vrpi_pool *core);       /* lock held; bytes */
void vrpi_held_flush(vrpi_pool *core, vrpi_thread *t); /* lock held; the caller's own */
int vrpi_anybody_holds(const vrpi_pool *core);         /* lock held; larger blocks in fronts */
void vrpi_held_flush_all(vrpi_pool *core);             /* lock held */
void vrpi_fronts_drop(vrpi_pool *core, vrpi_stream *stream); /* lock held; of a forgotten one */
void vrpi_fronts_limits(vrpi_pool *core);    /* lock held; CACHE_BYTES has changed */
uint64_t vrpi_cached_bytes(vrpi_pool *core); /* lock held */
/* ---- front.c, and the hit paths in front.h ---- */
void vrpi_slot_fill(vrpi_slab *slab, uint32_t index, const vrpi_request *request);
int vrpi_front_put_slot(vrpi_front *front, vrpi_slab *slab, uint32_t index); /* 0: full */

/* ---- enter and leave a public call ---- */
vrp_status vrpi_enter(vrp_pool *pool); /* users + 1, or SHUT_DOWN, AFTER_FORK ... */
void vrpi_exit(vrp_pool *pool);
vrp_status vrpi_pool_usable(const vrp_pool *pool); /* the check alone */

/* ---- stream.c ---- (lock held) */
vrpi_stream *vrpi_stream_find(vrpi_pool *core, vrpi_thread *t, vrp_stream handle, uint64_t key);
vrp_status vrpi_stream_get(vrpi_pool *core, vrpi_thread *t, vrp_stream handle, uint64_t key,
                           vrpi_stream **out);
/* Enters a call about a stream: the thread's part of the pool and the stream's
 * key. On failure nothing is entered. No lock. */
vrp_status vrpi_enter_stream(vrp_pool *pool, vrp_stream handle, vrpi_thread **out_thread,
                             uint64_t *out_key);
vrpi_stream *vrpi_stream_new(vrpi_pool *core); /* that no handle leads to; NULL: no memory */
vrp_status vrpi_capture_mark(vrpi_pool *core, vrpi_thread *t, vrpi_stream *s, int begin);
vrp_status vrpi_stream_key(vrpi_pool *core, vrp_stream handle, uint64_t *out_key); /* no lock */
void vrpi_stream_quiet(vrpi_pool *core, vrpi_stream *stream);  /* waits for others' driver calls */
void vrpi_stream_settle(vrpi_pool *core, vrpi_stream *stream); /* frees a forgotten one */
/* Whether free extents of an arena may be taken by others. */
static inline int vrpi_is_shared(const vrpi_arena *arena) {
    return arena->stream == NULL || arena->stream->graph == NULL;
}
static inline int vrpi_done(const vrpi_stream *stream, uint64_t stamp) {
    return stream == NULL || stream->completed >= stamp;
}

/* ---- retire.c ---- (lock held on entry and return, dropped for driver calls) */
int vrpi_record(vrpi_pool *core, vrpi_thread *t, vrpi_stream *stream); /* 1: all is covered */
/* Records on streams with idle or deferred memory that no event covers; 1: did. */
int vrpi_record_idle(vrpi_pool *core, vrpi_thread *t);
void vrpi_settle_all(vrpi_pool *core, vrpi_thread *t);   /* records and takes up all that is done */
int vrpi_record_wanted(vrpi_pool *core, vrpi_thread *t); /* those marked `wanted` */
void vrpi_poll(vrpi_pool *core, vrpi_thread *t);
int vrpi_wait_oldest(vrpi_pool *core, vrpi_thread *t,
                     vrp_status *out_status); /* blocks the host; 0: nothing to wait for */
void vrpi_wait_all(vrpi_pool *core);
vrp_status vrpi_device_wait(vrpi_pool *core, vrpi_thread *t, vrpi_stream *waiter,
                            vrpi_stream *awaited, uint64_t stamp); /* UNAVAILABLE: cannot */
void vrpi_driver_failed(vrpi_pool *core, vrp_status status);

/* ---- arena.c ---- (lock held; dropped for driver calls) */
vrp_status vrpi_arena_grow_space(vrpi_pool *core, vrpi_stream *stream, uint8_t klass,
                                 uint64_t bytes, vrpi_arena **out);
vrp_status vrpi_arena_create(vrpi_pool *core, uint64_t bytes, vrpi_arena **out);
vrp_status vrpi_arena_release(vrpi_pool *core, vrpi_arena *arena); /* empty, nothing mapped */
void vrpi_arena_forget(vrpi_pool *core, vrpi_arena *arena);        /* host memory only */
vrpi_arena *vrpi_arena_new(vrpi_pool *core); /* with an index, in no list; NULL: no memory */
void vrpi_arena_delete(vrpi_pool *core, vrpi_arena *arena); /* one that is in no list */
void vrpi_arena_link(vrpi_pool *core, vrpi_arena *arena);
vrp_status vrpi_arena_granules(vrpi_pool *core, vrpi_arena *arena, uint64_t end);
int vrpi_arena_reclaim(vrpi_pool *core); /* gives up address ranges nobody uses; 1: did */
void vrpi_arena_attach(vrpi_pool *core, vrpi_arena *arena, vrpi_stream *stream, uint8_t klass);
void vrpi_arena_detach(vrpi_pool *core, vrpi_arena *arena); /* space -> spare */
void vrpi_arena_cover(vrpi_pool *core, vrpi_arena *arena, vrpi_block *block, uint64_t from,
                      uint64_t to); /* `block` holds the first byte of these granules */
void vrpi_arena_shrink(vrpi_pool *core, vrpi_arena *arena); /* gives up an unbacked tail */
void vrpi_arena_extend(vrpi_pool *core, vrpi_arena *arena, uint64_t end); /* granules exist */

static inline uint64_t vrpi_granule_of(const vrpi_pool *core, const vrpi_arena *arena,
                                       uint64_t addr) {
    return (addr - arena->base) / core->granularity;
}

/* ---- extent.c ---- (lock held) */
/* The extents of an arena one after the other; *granule begins at 0. */
static inline vrpi_extent *vrpi_extent_next(const vrpi_pool *core, const vrpi_arena *arena,
                                            uint64_t *granule) {
    while (*granule < arena->granule_count) {
        vrpi_extent *e = arena->granules[*granule];
        if (e != NULL && e != &core->claimed) {
            *granule = vrpi_granule_of(core, arena, e->addr + VRPI_BYTES(e) - 1) + 1;
            return e;
        }
        ++*granule;
    }
    return NULL;
}
void vrpi_extent_link(vrpi_pool *core, vrpi_extent *extent); /* into arena, list, idle */
void vrpi_extent_unlink(vrpi_pool *core, vrpi_extent *extent);
void vrpi_extent_use(vrpi_pool *core, vrpi_arena *arena, uint64_t addr, uint64_t bytes);
void vrpi_extent_unuse(vrpi_pool *core, vrpi_arena *arena, uint64_t addr, uint64_t bytes,
                       vrpi_stream *stream, uint64_t stamp);
void vrpi_idle_add(vrpi_pool *core, vrpi_extent *extent);
void vrpi_idle_remove(vrpi_pool *core, vrpi_extent *extent);
void vrpi_reserved_add(vrpi_pool *core, uint64_t bytes);
void vrpi_reserved_commit(vrpi_pool *core, uint64_t bytes, uint64_t extents);
void vrpi_reserved_sub(vrpi_pool *core, uint64_t bytes);
/* Dropped for the driver calls: */
vrp_status vrpi_extent_create(vrpi_pool *core, vrpi_arena *arena, uint64_t addr, uint64_t bytes);
vrp_status vrpi_extent_release(vrpi_pool *core, vrpi_extent *extent); /* idle and done */
vrp_status vrpi_extent_move(vrpi_pool *core, vrpi_extent *extent, vrpi_arena *arena, uint64_t addr,
                            vrpi_stream *stream); /* may only be done, or ordered
                                                     before `stream` */
void vrpi_ghosts_poll(vrpi_pool *core);
void vrpi_orphans_retry(vrpi_pool *core);
void vrpi_orphan_keep(vrpi_pool *core, vrpi_orphan orphan);
uint64_t vrpi_orphan_bytes(const vrpi_pool *core); /* reserved and held by nobody */
/* malloc backing: a new segment is an arena of one extent. */
vrp_status vrpi_segment_create(vrpi_pool *core, uint64_t bytes, vrpi_arena **out);
vrp_status vrpi_segment_release(vrpi_pool *core, vrpi_extent *extent);

/* ---- release.c ---- (lock held) */
#define VRPI_RUN_MOST 16
/* Idle extents side by side that go together. */
typedef struct vrpi_run {
    vrpi_extent *extent[VRPI_RUN_MOST];
    uint32_t count;
    uint64_t addr, bytes, price_ns;
} vrpi_run;
uint64_t vrpi_release_price(uint64_t bytes); /* estimated host time in ns */
int vrpi_may_release(const vrpi_extent *e);  /* an idle one: nothing needs it any more */
/* The extent and what can go with it for at most that much; 0: not even the extent. */
int vrpi_run_collect(const vrpi_pool *core, vrpi_extent *seed, int marked_only, uint64_t most_ns,
                     vrpi_run *run);
vrp_status vrpi_run_release(vrpi_pool *core, const vrpi_run *run); /* lock dropped meanwhile */

/* ---- reclaim.c ---- (lock held but for stop) */
int vrpi_reclaimer_wanted(const vrpi_pool *core);
int vrpi_reclaimer_runs(const vrpi_pool *core);
void vrpi_reclaimer_wake(vrpi_pool *core); /* if there is work; lock dropped to start it */
void vrpi_reclaimer_stop(vrpi_pool *core); /* no lock, nobody in the pool; joins */

/* ---- backing.c ---- */
/* Backs [addr, addr + bytes) of an arena where it is not; on failure the arena
 * and `reserved` are as before. Lock held, dropped meanwhile. */
vrp_status vrpi_back(vrpi_pool *core, vrpi_request *request, vrpi_arena *arena, vrpi_stream *stream,
                     uint64_t addr, uint64_t bytes);
/* Whether backing that much would break the gap rule as things stand; whether
 * it would break the pool's limit; and giving up done idle extents for it. */
int vrpi_growth_is_barred(const vrpi_pool *core, uint64_t bytes);
int vrpi_limit_exceeded(const vrpi_pool *core, uint64_t bytes);
int vrpi_release_one(vrpi_pool *core, uint64_t bytes); /* 1: did */
void vrpi_idle_age(vrpi_pool *core, vrpi_thread *t);   /* GAP_RULE_LIMIT, now and then */
void vrpi_make_room(vrpi_pool *core, vrpi_thread *t, uint64_t bytes);
void vrpi_gap_missed(vrpi_pool *core, uint64_t bytes);

/* ---- oom.c, trim.c ---- (lock held, dropped for driver calls) */
vrp_status vrpi_oom(vrpi_pool *core, vrpi_request *request, uint64_t bytes); /* OK: try again */
/* The report and the detail of a request that the chain has refused. */
void vrpi_oom_explain(vrpi_pool *core, const vrpi_request *request, vrp_status status);
void vrpi_trim_marked(vrpi_pool *core);
uint64_t vrpi_marked_release(vrpi_pool *core, uint64_t budget_ns); /* bytes; lock dropped */
void vrpi_mark_range(vrpi_pool *core, uint64_t addr, uint64_t bytes);
void vrpi_gap_walk(vrpi_pool *core, vrp_gap *out, uint64_t *out_pinning_blocks);

/* ---- place.c ---- (lock held, dropped for driver calls) */
vrp_status vrpi_block_alloc(vrpi_pool *core, vrpi_request *request, vrpi_stream *stream,
                            uint8_t klass, uint64_t size, uint64_t alignment, vrpi_block **out);
/* Whether a hole of another class would do for the block that is being placed; notes it
 * in the request. Lock held. */
int vrpi_has_spare(const vrpi_pool *core, vrpi_request *request);

/* ---- block.c ---- (lock held) */
/* A block in use becomes free for its stream; its last use has that stamp. */
void vrpi_block_free(vrpi_pool *core, vrpi_block *block, uint64_t stamp);
/* The same for neighbours first .. last of one arena, merged once. */
void vrpi_block_free_run(vrpi_pool *core, vrpi_block *first, const vrpi_block *last,
                         uint64_t stamp);
/* Cuts [addr, addr + bytes) out of a free block, as a block in use. Takes up to
 * two nodes. */
vrpi_block *vrpi_block_carve(vrpi_pool *core, vrpi_block *block, uint64_t addr, uint64_t bytes);
/* Gives the end of a block in use up (malloc backing). Takes one node. */
void vrpi_block_cut(vrpi_pool *core, vrpi_block *block, uint64_t bytes, uint64_t stamp);
/* Makes a block free and merges it with both neighbours. */
void vrpi_block_merge(vrpi_pool *core, vrpi_block *block);
vrpi_block *vrpi_block_at(const vrpi_pool *core, const vrpi_arena *arena, uint64_t addr);
vrpi_arena *vrpi_arena_at(const vrpi_pool *core, uint64_t addr);
uint64_t vrpi_stamp(vrpi_stream *stream);
uint8_t vrpi_class_of(const vrpi_pool *core, uint64_t size, uint8_t tag);
uint64_t vrpi_largest_free(vrpi_pool *core);
uint32_t vrpi_life_bucket(uint64_t size); /* for vrpi_stream.life */

/* ---- slab.c ---- (lock held; refill drops it) */
vrp_status vrpi_slab_refill(vrpi_pool *core, vrpi_request *request, vrpi_stream *stream,
                            uint32_t klass, vrpi_slab **out);
uint32_t vrpi_slab_take(vrpi_slab *slab);
void vrpi_slab_forget(vrpi_pool *core, vrpi_slab *slab);              /* host memory only */
void vrpi_slab_put(vrpi_pool *core, vrpi_slab *slab, uint32_t index); /* may free the slab */

static inline uint32_t vrpi_slot_index(const vrpi_slab *slab, uint64_t addr) {
    /* exact for offsets up to 2 MiB: units < 4096, see slab.c */
    return (uint32_t)(((addr - slab->addr) / VRPI_UNIT * slab->magic) >> 32);
}

/* ---- alloc.c, free.c, uses.c ---- */
void vrpi_free_live(vrpi_pool *core, vrpi_thread *t, vrpi_block *block, vrp_devptr ptr,
                    vrpi_stream *by, int count); /* lock held; by NULL: the owner */
vrp_status vrpi_free_check(vrpi_pool *core, vrp_devptr ptr, vrpi_block **out); /* lock held */
int vrpi_deferred_poll(vrpi_pool *core); /* lock held; 1: some were done */
int vrpi_defer(vrpi_pool *core, vrpi_block *block, vrp_devptr ptr, vrpi_stream *by);
void vrpi_uses_free(vrpi_pool *core, vrpi_uses *uses);
vrpi_uses **vrpi_uses_place(vrpi_pool *core, vrpi_block *block,
                            vrp_devptr ptr); /* NULL: no memory */
/* 0: no host memory. stream NULL: an entry for nobody yet. */
int vrpi_uses_add(vrpi_pool *core, vrpi_uses **place, vrp_devptr ptr, vrpi_stream *stream);
int vrpi_uses_announce(vrpi_pool *core, vrpi_block *block, vrp_devptr ptr, vrpi_stream *stream);
void vrpi_uses_unannounce(vrpi_pool *core, vrpi_block *block, vrpi_uses **place);
void vrpi_uses_stamp(vrpi_uses *uses);
int vrpi_uses_done(const vrpi_uses *uses);
/* After frees that name no stream. 1: the lock was dropped meanwhile. */
int vrpi_fence(vrpi_pool *core, vrpi_thread *t, uint64_t bytes);

/* ---- depot.c ---- (lock held) */
int vrpi_depot_put(vrpi_pool *core, vrpi_front *front, uint32_t klass);  /* 0: it is full */
int vrpi_depot_take(vrpi_pool *core, vrpi_front *front, uint32_t klass); /* 0: nothing there */
uint64_t vrpi_depot_flush(vrpi_pool *core, vrpi_stream *stream);         /* bytes */
void vrpi_depots_end(vrpi_pool *core);                                   /* host memory only */

/* ---- graph.c ---- (lock held) */
void vrpi_graphs_poll(vrpi_pool *core);
void vrpi_graphs_drop(vrpi_pool *core); /* at the pool's end */
uint64_t vrpi_graphs_count(const vrpi_pool *core);
uint64_t vrpi_graph_bytes(const vrpi_pool *core);

/* ---- export.c ---- (lock held) */
vrp_status vrpi_export_place(vrpi_pool *core, vrpi_request *r, vrpi_stream *stream,
                             vrpi_block **out);
uint64_t vrpi_exports_end(vrpi_pool *core, int force); /* freed blocks that others have */
void vrpi_tend(vrpi_pool *core, vrpi_thread *t); /* lock held: upkeep after a slow operation */

/* ---- scope.c ---- */
static inline uint32_t vrpi_scope_index(vrp_scope scope) { return (uint32_t)scope; }
static inline vrpi_scope *vrpi_scope_at(const vrpi_pool *core, uint32_t index) {
    /* acquire pairs with the release that publishes a new chunk */
    vrpi_scope *chunk = index < VRPI_SCOPES_MAX
                            ? atomic_load_explicit(&core->scope_chunk[index / VRPI_SCOPE_CHUNK],
                                                   memory_order_acquire)
                            : NULL;
    return chunk == NULL ? NULL : &chunk[index % VRPI_SCOPE_CHUNK];
}
/* Whether a handle names a scope in one of these states (1 open, 2 closed). */
static inline int vrpi_scope_is(const vrpi_pool *core, vrp_scope scope, uint8_t low, uint8_t high) {
    vrpi_scope *s = vrpi_scope_at(core, vrpi_scope_index(scope));
    uint8_t state;
    if (s == NULL)
        return 0;
    state = atomic_load_explicit(&s->state, memory_order_relaxed);
    return state >= low && state <= high &&
           atomic_load_explicit(&s->generation, memory_order_relaxed) == (uint32_t)(scope >> 32);
}

/* ---- scope.c ---- (lock held) */
uint64_t vrpi_free_where(vrpi_pool *core, vrpi_thread *t, uint32_t scope); /* 0: everything */
void vrpi_scopes_end(vrpi_pool *core);

/* ---- growable.c ---- (lock held) */
void vrpi_growables_release(vrpi_pool *core, vrpi_thread *t, uint32_t scope); /* 0: all */
/* At the pool's end: buffers that are still there lose their memory and become
 * plain arenas; then what is left of them. */
uint64_t vrpi_growables_empty(const vrpi_pool *core); /* how many have 0 bytes: no blocks */
void vrpi_growables_drop(vrpi_pool *core);
void vrpi_growables_end(vrpi_pool *core);

#endif
