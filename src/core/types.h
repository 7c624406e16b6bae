/* SPDX-License-Identifier: MIT */
#ifndef VRPI_CORE_TYPES_H
#define VRPI_CORE_TYPES_H

/* The structures of a pool. docs/design/core.md explains the whole.
 *
 *   pool -> streams -> spaces (one a class) -> arenas (address ranges)
 *                                                |-> blocks tile [base, end)
 *                                                `-> extents back granules of it
 *   pool -> threads -> fronts (one a stream): magazines of slots, a few blocks
 *
 * All of an arena's free memory belongs to its stream, so freed neighbours
 * always merge and no block is ever handed to another stream. Between streams
 * memory moves as extents: a wholly free extent is mapped into the arena where
 * it is wanted, after its stream's work (known done, or waited for by the
 * device). `lock` guards everything that is not marked otherwise; no driver
 * call is made under it. What a driver call is changing meanwhile is marked
 * VRPI_EXTENT_TRANSIT and used by nobody.
 */

#include "core/tree.h"
#include "platform/error.h"
#include "platform/sync.h"
#include "platform/worker.h"
#include "vrampool/inspect.h"
#include "vrampool/knobs.h"
#include "vrampool/vrampool.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Units are kept in 32 bits: what is asked for is at most half of what they can
 * count, and no free block reaches beyond that. */
#define VRPI_BLOCK_MAX (UINT64_C(1) << 40)
#define VRPI_RANGE_MAX (UINT64_C(4095) << 29)
#define VRPI_CELL_SHIFT 15             /* a live block is at least one cell long, so at most */
#define VRPI_CELL (UINT64_C(1) << 15)  /* one starts in any cell of 32 KiB */
#define VRPI_SMALL_MAX UINT64_C(32768) /* largest request that a slab serves */
#define VRPI_SMALL_CLASSES 32
#define VRPI_ADDRESS_BITS 49
#define VRPI_MAP_SHIFT 21    /* an entry of a leaf of the address map covers 2 MiB, */
#define VRPI_LEAF_SHIFT 30   /* a leaf 1 GiB */
#define VRPI_MID_SHIFT 39    /* a table of leaves 512 GiB */
#define VRPI_CELLS_DIRECT 7  /* the largest kind of table of cells */
#define VRPI_CELLS_RESERVE 2 /* most tables that a block can need: it lies in two granules */
#define VRPI_CELLS_TOPS UINT64_C(0x8080808080808080)
#define VRPI_MAG_SLOTS 32
#define VRPI_BATCH 16u                  /* slots that go from thread to thread at once, at most */
#define VRPI_MAG_BYTES UINT64_C(524288) /* of slots of one class in a front */
#define VRPI_KEPT 200                   /* blocks of near sizes in a front */
#define VRPI_KEPT_END UINT64_C(2097152) /* smaller than this they are kept by near size */
#define VRPI_BINS 192                   /* 32 a doubling, from one cell to VRPI_KEPT_END */
#define VRPI_HELD 4                     /* larger blocks in a front */
#define VRPI_THREAD_SCOPES 4
#define VRPI_LEASE_BYTES (INT64_C(1) << 20) /* of a budget that a thread takes at once */
#define VRPI_LATE_BYTES (INT64_C(8) << 20)  /* a thread's counters are late by at most this */
#define VRPI_RING 16                        /* events in flight per stream */
#define VRPI_SCOPES_MAX 65536u              /* a block keeps the index in 16 bits */
#define VRPI_SCOPE_CHUNK 256u
#define VRPI_FRONTS_MAX 16u
#define VRPI_LIVES 256u /* size buckets, eight a doubling, whose lifetimes are learned */
#define VRPI_WAITED 8u  /* waits that a stream remembers */

typedef struct vrpi_pool vrpi_pool;
typedef struct vrpi_stream vrpi_stream;
typedef struct vrpi_space vrpi_space;
typedef struct vrpi_arena vrpi_arena;
typedef struct vrpi_extent vrpi_extent;
typedef struct vrpi_block vrpi_block;
typedef struct vrpi_slab vrpi_slab;
typedef struct vrpi_thread vrpi_thread;

/* Classes of blocks that do not share extents: by size, so that small blocks
 * pin little, and weights apart from what is short-lived. */
enum {
    VRPI_CLASS_SLAB = 0,
    VRPI_CLASS_SMALL = 1,  /* to 1 MiB */
    VRPI_CLASS_MEDIUM = 2, /* to 4 MiB */
    VRPI_CLASS_LARGE = 3,  /* to 32 MiB */
    VRPI_CLASS_HUGE = 4,
    VRPI_CLASS_WEIGHTS = 5,
    VRPI_CLASS_COUNT = 6,
    VRPI_CLASS_GROWABLE = 6, /* arenas of growable buffers: in no space */
};

/* ---- counters ---------------------------------------------------------------
 * A group is what is counted together: the pool, a tag, a scope. Its truth is
 * the sum of `current` and every thread's shard. */
typedef struct vrpi_tally {
    _Atomic int64_t current, peak, total;
} vrpi_tally;

typedef struct vrpi_group {
    vrpi_tally requested, allocated, blocks;
    _Atomic uint64_t budget; /* allocated bytes; 0: none */
    _Atomic int64_t leased;  /* of the budget: in use or held by threads */
} vrpi_group;

/* A thread's part of a group since it last went there: what came, the largest
 * difference of what came and what went, and how far below that the difference
 * is now. Written by its thread only, or with its gate closed; read by anybody. */
typedef struct vrpi_part {
    _Atomic int64_t in, max, room;
} vrpi_part;

enum { VRPI_REQUESTED, VRPI_ALLOCATED, VRPI_BLOCKS, VRPI_PARTS };

typedef struct vrpi_shard {
    vrpi_part part[VRPI_PARTS];
    _Atomic int64_t lease; /* budget bytes held and not in use */
} vrpi_shard;

/* ---- memory ----------------------------------------------------------------- */

enum { VRPI_EXTENT_BACKED = 0, VRPI_EXTENT_TRANSIT = 1 };

struct vrpi_extent {
    union {
        vrpi_node node; /* in pool->idle while backed and live == 0 */
        struct {
            uint64_t addr;
            uint32_t links[3];
            uint32_t units;
        };
    };
    vrp_handle handle; /* vmm */
    vrpi_arena *arena;
    vrpi_stream *stream; /* may still use it up to `stamp`; NULL: nobody */
    uint64_t stamp;
    uint32_t number;
    uint32_t idle_since; /* pool->ticks when it became idle, of which the low half */
    uint32_t live;       /* blocks in use that touch it */
    uint16_t ghosts;     /* older mappings of its handle that still stand */
    uint8_t state;       /* VRPI_EXTENT_* */
    uint8_t marked : 1;  /* to be trimmed as soon as its work is done */
    uint8_t fresh : 1;   /* created for a request that may still fail */
};

/* A mapping whose memory went elsewhere while work on it was unfinished. Its
 * addresses are covered by a block of state GHOST until it is unmapped. */
typedef struct vrpi_ghost {
    struct vrpi_ghost *next;
    vrpi_block *block;
    vrpi_extent *extent; /* whose handle it is */
    vrpi_stream *stream;
    uint64_t stamp;
} vrpi_ghost;

struct vrpi_arena {
    vrpi_arena *next, **link; /* pool->arenas, in order of creation */
    vrpi_arena *space_next;   /* same space */
    vrpi_space *space;        /* NULL: spare, or a growable buffer's */
    vrpi_stream *stream;      /* whose free memory this is; NULL: spare */
    uint64_t base, bytes;     /* reserved addresses */
    uint64_t end;             /* blocks tile [base, end); beyond: untouched */
    uint32_t first, last;     /* blocks, by number */
    vrpi_extent **granules;   /* by (address - base) / granularity, up to granule_count */
    vrpi_block **starts;      /* the block that holds the granule's first byte */
    uint64_t granule_count;
    uint64_t used_blocks; /* blocks that are not free (ghosts included) */
    uint64_t backed_bytes;
    uint32_t number; /* in order of creation */
    uint32_t index;  /* in pool->arena_at */
    uint8_t klass;
    uint8_t closing; /* its addresses are being given up */
};

struct vrpi_space {
    vrpi_treap free; /* blocks of all its arenas */
    vrpi_arena *arenas;
    uint64_t taken_bytes, freed_bytes;      /* by blocks, since the beginning */
    vrpi_slab *partial[VRPI_SMALL_CLASSES]; /* CLASS_SLAB only: slabs with free slots */
};

enum {
    VRPI_FREE = 0,
    VRPI_LIVE = 1,
    VRPI_CACHED = 2,   /* in a thread's front */
    VRPI_DEFERRED = 3, /* freed; waits for other streams */
    VRPI_SLAB = 4,
    VRPI_GHOST = 5,
    VRPI_GROWABLE = 6,
    VRPI_PLACING = 8, /* being backed: in use, not handed out yet */
    VRPI_SHARED = 7,  /* live, and vrp_record_stream has announced other streams */
};

typedef struct vrpi_uses vrpi_uses;

#define VRPI_TAG_SLAB 255 /* a block that is a slab, or is to be one: it fills its cells */

/* Prev and next are numbers, as the links of the node are. */
struct vrpi_block {
    union {
        vrpi_node node; /* while FREE; in space->free if the arena has a space */
        struct {
            uint64_t addr;
            union {
                uint64_t requested;
                vrpi_slab *slab; /* state SLAB */
                vrpi_uses *uses; /* state SHARED: other streams announced for it */
            };
            uint32_t born; /* pool->ticks when it was placed, of which the low half */
            uint32_t units;
        };
    };
    uint32_t prev, next; /* by address in the arena */
    uint32_t arena;      /* pool->arena_at; 0: no block */
    uint16_t scope;
    uint8_t tag;
    _Atomic uint8_t state;
};

_Static_assert(sizeof(vrpi_block) == 40, "every live block has one");
_Static_assert(sizeof(vrpi_extent) == 72, "every 2 MiB can have one");

/* Hits read and write all of it at once, as a word (front.h). */
typedef union vrpi_slot {
    struct {
        uint32_t scope;
        uint16_t waste; /* slot bytes - requested bytes */
        uint8_t tag;
        _Atomic uint8_t state; /* VRPI_FREE, LIVE, CACHED, DEFERRED */
    };
    _Atomic uint64_t word;
} vrpi_slot;

struct vrpi_slab {
    uint64_t addr;
    uint32_t slot_bytes, slot_count;
    uint32_t free_count; /* slots in the free list below */
    uint32_t first_free; /* index + 1; 0: none */
    uint32_t klass;
    uint64_t magic; /* 2^32 / slot units, rounded up: for the division by slot size */
    vrpi_block *block;
    vrpi_stream *stream;
    vrpi_slab *next, **link;         /* space->partial */
    vrpi_slab *all_next, **all_link; /* pool->slabs */
    _Atomic uint64_t scope_mask;     /* bit scope % 64: may hold a slot of that scope */
    vrpi_uses **uses;                /* per slot, for state SHARED; NULL until one is */
    uint32_t *next_free;             /* per slot: index + 1 of the next free one */
    vrpi_slot slot[];
};

/* Streams that use one live block besides its own, and after its free the
 * stamps to wait for. */
struct vrpi_uses {
    vrpi_uses *next; /* pool->deferred, once freed */
    vrp_devptr ptr;
    uint32_t count, capacity;
    uint32_t marked;    /* its extents are to be trimmed when it is free */
    uint32_t exports;   /* how often it is shared with other processes: not done meanwhile */
    uint64_t requested; /* of the block, while it is live */
    struct vrpi_use {
        vrpi_stream *stream;
        uint64_t stamp;
    } use[];
};

/* ---- streams ------------------------------------------------------------------
 * Every free gets the stream's next stamp. An event recorded while `seq` was n
 * covers all stamps up to n: a free that comes in between the reading of n and
 * the record has a larger stamp and is not covered. */
struct vrpi_stream {
    vrpi_stream *next, **link; /* pool->streams */
    vrp_stream handle;
    uint64_t key;       /* what it is looked up by: handle, or the driver's id */
    vrpi_thread *owner; /* per-thread default stream: the only one to record on it */
    uint64_t seq, covered, completed;
    struct {
        vrp_event event;
        uint64_t seq;
        uint64_t order; /* of the records of all streams */
    } ring[VRPI_RING];
    uint32_t ring_first, ring_count;
    uint32_t refs;   /* uses and ghosts that name it */
    uint32_t busy;   /* threads that look at it with the lock dropped */
    uint64_t serial; /* never used twice */
    struct {
        uint64_t serial, seq;
    } waited[VRPI_WAITED]; /* streams that this one already waits for, up to seq */
    uint32_t waited_turn;
    uint32_t life[VRPI_LIVES]; /* by size: how long blocks lived at most, recently; 0: unknown */
    uint32_t waiting;          /* waits that are being put on it just now */
    uint64_t snapshot;         /* while `syncing`: seq when the device-wide wait began */
    uint8_t capturing, forgotten, recording, polling, per_thread;
    uint8_t wanted; /* a record of its idle memory is due */
    uint8_t syncing;
    uint8_t forgetting; /* no front is made for it any more */
    uint8_t useful;     /* somebody waits for memory that it holds */
    uint8_t whole;      /* no stream, but all of the context: its records are context records */
    vrp_graph_pool
        *graph;         /* no stream, but the memory of one in a graph pool: not idle for anybody */
    vrpi_stream *route; /* while it captures for a graph pool: allocations go there */
    vrpi_uses *after;   /* of a released graph pool: done when these are */
    struct vrpi_batch *depot[VRPI_SMALL_CLASSES]; /* slots that wait for any thread's magazine */
    uint8_t depot_count[VRPI_SMALL_CLASSES];
    vrpi_space space[VRPI_CLASS_COUNT];
};

/* ---- threads -------------------------------------------------------------------- */

typedef struct vrpi_entry {
    uint64_t addr;
    vrpi_slot *slot;
} vrpi_entry;

/* Its entries are [first, top). */
typedef struct vrpi_magazine {
    _Atomic(vrpi_entry *) top; /* written as a shard is */
    vrpi_entry *first, *end;
    uint64_t slot_bytes;
} vrpi_magazine;

/* Part of a magazine that its thread had too much of. */
typedef struct vrpi_batch {
    struct vrpi_batch *next;
    uint32_t count;
    vrpi_entry entry[VRPI_BATCH];
} vrpi_batch;

/* The block freed last is `recent`, for a request of exactly its size; the next
 * one moves it on. Blocks below VRPI_KEPT_END go to bins by size and serve
 * requests that are up to an eighth smaller. Larger ones are held, for exactly
 * their size, until their thread's next slow operation. */
typedef struct vrpi_front {
    struct vrpi_front *next;
    vrpi_thread *thread;
    vrp_stream handle;
    vrpi_stream *stream;
    vrpi_block *recent; /* NULL: none */
    uint64_t recent_bytes;
    _Atomic uint64_t kept_bytes; /* in bins, and `recent` if it will go there */
    uint64_t kept_limit;
    vrpi_magazine mag[VRPI_SMALL_CLASSES];
    uint32_t held_count;
    uint8_t recent_held;    /* 1: it counts as held */
    uint8_t kept_unused;    /* first unused entry + 1; 0: all are in use */
    uint8_t bin[VRPI_BINS]; /* first entry + 1; 0: empty */
    uint64_t bin_mask[(VRPI_BINS + 63) / 64];
    struct {
        vrpi_block *block;
        uint64_t bytes;
    } held[VRPI_HELD];
    struct {
        vrpi_block *block;
        uint32_t bytes;
        uint8_t next; /* entry + 1 */
    } kept[VRPI_KEPT];
    vrpi_entry entry[VRPI_SMALL_CLASSES][VRPI_MAG_SLOTS]; /* of the magazines */
} vrpi_front;

struct vrpi_thread {
    vrpi_gate gate;                  /* closed by whoever else works on it */
    _Atomic(struct vrp_pool *) pool; /* NULL once the pool is gone */
    vrpi_pool *core;
    vrpi_front *hot; /* the front used last; NULL: none */
    /* Hits count in the shard of one tag, the active one. What it has counted
     * since it became active (`mark`) is not in `all` yet. */
    _Atomic uint32_t active;
    /* A slot's word that hits count by themselves: the active tag, no scope. No slot's
     * while there are budgets. */
    uint64_t plain;
    vrpi_part *part;   /* of the active tag */
    int64_t high, low; /* the active tag's allocated bytes at which shards go to their groups */
    vrpi_shard tag[VRP_TAG_COUNT];
    vrpi_shard all;
    vrpi_part mark[VRPI_PARTS];  /* max: the tag's, before it became active */
    _Atomic uint64_t held_bytes; /* in all its fronts, not in kept_bytes */
    vrpi_front *fronts;          /* changed by the thread itself, under core->lock */
    vrpi_thread *thread_next;    /* this thread's list; its own */
    vrpi_thread *next, **link;   /* core->threads */
    const void *self;            /* an address that only its thread has */
    struct {
        uint32_t scope; /* 0: unused */
        vrpi_shard shard;
    } scope[VRPI_THREAD_SCOPES];
    uint32_t scope_turn;
    uint32_t front_count;
    uint8_t in_oom_call;
    uint8_t orphan; /* its thread has ended: whoever ends the pool frees it */
};

typedef struct vrpi_scope {
    vrpi_group group;
    _Atomic uint32_t generation;
    _Atomic uint8_t state; /* 0 unused, 1 open, 2 closed, 3 being released */
} vrpi_scope;

/* ---- the pool ---------------------------------------------------------------------- */

enum { VRPI_OPEN = 1, VRPI_CLOSING = 2, VRPI_CLOSED = 3 };

/* A handle that could not be released (0: none, only a mapping is left), still
 * mapped at addr unless that is 0. `bytes` are reserved if there is a handle. */
typedef struct vrpi_orphan {
    vrp_handle handle;
    uint64_t bytes, addr;
    vrpi_extent *extent; /* without a handle: whose memory the mapping still holds */
} vrpi_orphan;

/* What the user holds. Never given back to the host while a late caller may
 * still hold it: dead ones are kept, the oldest of many is used again. */
struct vrp_pool {
    _Atomic int state;
    _Atomic uint32_t users;    /* threads inside a slow path */
    unsigned fork_count;       /* vrpi_fork_count at creation */
    _Atomic uint64_t reserved; /* a copy of the core's, readable at any time */
    vrpi_pool *core;
    struct vrp_pool *next;
};

struct vrpi_pool {
    vrpi_mutex lock;
    vrp_pool *handle;
    const vrp_driver_ops *ops;
    void *ctx;
    vrp_driver *driver;
    vrp_pool_config config;
    vrp_device_info device;
    int32_t backing;
    uint64_t granularity;
    uint64_t arena_bytes; /* as configured; 0: by class */
    _Atomic uint64_t knob[VRP_KNOB_COUNT];
    _Atomic uint32_t budgets; /* groups that have one: with none a hit need not look */
    /* map from addresses to blocks: written under lock, read by anybody */
    _Atomic(char *) *leaves; /* those of GiB first_leaf and up; replaced with all gates closed */
    uint64_t first_leaf, leaf_count;
    char *cells_free[VRPI_CELLS_DIRECT + 1]; /* unused tables of cells, by kind */
    uint32_t cells_spare;                    /* of the largest kind */
    uint32_t limbo_count;
    char *limbo[64]; /* tables that hits may still be reading */
    char *cells_at;  /* memory for more of them */
    size_t cells_left;

    vrpi_stream *streams;
    uint64_t stream_serials;
    uint32_t capturing_count; /* streams that capture now */
    vrpi_mutex threads_lock;  /* the list alone: changed under both locks, read under either */
    vrpi_thread *threads;
    vrpi_arena *arenas;
    vrpi_arena **arena_at; /* read by hits; replaced with all gates closed */
    uint32_t arena_capacity;
    uint32_t arena_numbers;
    uint64_t extent_count;
    vrpi_extent claimed; /* stands in granules that are about to be backed */
    vrpi_treap idle;     /* extents with no block in use */
    uint64_t idle_bytes;
    uint64_t marked_count; /* idle extents to be trimmed when they are done */
    vrpi_ghost *ghosts;    /* oldest first */
    vrpi_ghost **ghosts_tail;
    uint64_t ghost_count;
    vrpi_slab *slabs;
    struct vrp_growable *growables;
    vrp_graph_pool *graphs;
    struct vrpi_batch *batches; /* unused ones */
    uint64_t depot_bytes;       /* slots in all depots */
    vrpi_stream *whole;         /* the context as a user of blocks; NULL: none yet */
    uint64_t exported_bytes;
    vrpi_uses *deferred;
    uint64_t ticks;           /* slow-path operations so far */
    uint64_t releasing_bytes; /* being given back by a call under way */
    uint64_t reclaimed_bytes; /* given back by the reclaimer */
    struct {
        vrpi_worker worker; /* in every state but 0 */
        vrpi_cond cond;
        uint8_t state; /* see reclaim.c */
        uint8_t stop, woken, failed;
    } reclaimer;
    char backing_reason[320];

    _Atomic uint64_t reserved; /* written under lock */
    uint64_t high_water;       /* largest reserved ever; the gap rule's own */
    int refilling;             /* most of that was given back, and is not taken again yet */
    uint64_t reserved_peak, reserved_total;
    uint64_t extents_peak, extents_total;
    vrpi_group all, tag[VRP_TAG_COUNT];
    _Atomic(vrpi_scope *) scope_chunk[VRPI_SCOPES_MAX / VRPI_SCOPE_CHUNK]; /* index 0: unused */
    uint32_t scope_hint;
    _Atomic uint64_t failures, bad_frees;
    uint64_t trims, trimmed_bytes, cross_stream_waits, host_waits, gap_missed, stalled_ns;
    uint64_t extents_created, extents_unmapped, events_recorded;
    _Atomic uint64_t host_bytes;
    _Atomic int lost; /* the device is: no driver call any more */
    int threads_busy; /* during a check: others are inside driver calls */

    vrp_event *events;                    /* unused ones */
    uint32_t event_count, event_capacity; /* the array has room for every event there is */
    uint32_t event_total;
    struct vrpi_orphan *orphans; /* memory that the driver would not take back */
    uint32_t orphan_count, orphan_capacity;
    struct vrpi_chunk *chunks; /* host memory of the nodes below */
    vrpi_nodes block_nodes, extent_nodes;
    vrpi_ghost *free_ghosts;
    uint32_t free_ghost_count;
};

/* A request on its way through the slow path. */
typedef struct vrpi_request {
    uint64_t bytes; /* as asked */
    uint64_t size;  /* rounded */
    uint64_t alignment;
    vrp_stream handle;
    vrpi_thread *thread;
    uint32_t flags, scope;
    vrp_scope scope_handle;
    uint8_t tag;
    uint8_t at_tail;   /* placed at the tail so that a larger idle extent may hang over */
    uint8_t has_spare; /* a hole of another class does: the chain was cut short */
    uint8_t is_slab;   /* what is being placed */
    uint8_t no_spare;  /* such a hole was taken by somebody else: do not count on one again */
    uint32_t attempts; /* of the callback */
    uint32_t rounds;   /* of the running-out chain */
    /* The block that is being placed for it; stream NULL: none (growable buffers). */
    vrpi_stream *place_stream;
    uint64_t place_bytes, place_alignment;
} vrpi_request;

#endif
