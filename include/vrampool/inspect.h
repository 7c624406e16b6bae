/* SPDX-License-Identifier: MIT */
#ifndef VRAMPOOL_INSPECT_H
#define VRAMPOOL_INSPECT_H

/* Looking into a pool: queries about one address, a walk over everything, and
 * a check of every invariant. */

#include "vrampool.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum vrp_block_state {
    VRP_BLOCK_LIVE = 0,
    VRP_BLOCK_FREE = 1,    /* of no stream: serves the next that needs a range */
    VRP_BLOCK_STREAM = 2,  /* free, serves `stream`; extents that are free whole may go elsewhere */
    VRP_BLOCK_PENDING = 3, /* freed, usable by nobody until other streams or processes are done */
    VRP_BLOCK_CACHED = 4,  /* in a thread's cache, or on the way between two */
    VRP_BLOCK_SLAB = 5,    /* cut into slots, which follow in the walk */
    VRP_BLOCK_STATE_FORCE_INT32 = 0x7fffffff
} vrp_block_state;

typedef struct vrp_block_info {
    uint32_t struct_size;
    int32_t state; /* vrp_block_state */
    vrp_devptr base;
    uint64_t bytes;           /* usable */
    uint64_t requested_bytes; /* live blocks, else 0 */
    vrp_stream stream;        /* the one whose memory it is; VRP_STREAM_LEGACY for none */
    vrp_scope scope;
    int32_t tag;
    uint32_t is_slot; /* 1: a slot of a slab */
} vrp_block_info;

/* The live block that contains an address (its start or any byte of it).
 * Errors: NOT_OWNED, ALREADY_FREED. Any thread. */
VRP_API VRP_NODISCARD vrp_status vrp_block_info_get(vrp_pool *pool, vrp_devptr ptr,
                                                    vrp_block_info *out_info);

typedef struct vrp_extent_info {
    uint32_t struct_size;
    uint32_t arena; /* number of the arena, in order of creation */
    vrp_devptr base;
    uint64_t bytes;
    uint64_t live_bytes; /* bytes of blocks in use in it (slabs count whole) */
    uint32_t pending;    /* 1: unfinished work may touch it */
    uint32_t in_transit; /* 1: being mapped or unmapped now */
} vrp_extent_info;

typedef struct vrp_walk_fns {
    uint32_t struct_size;
    uint32_t reserved;
    /* Each may be NULL; a non-zero return ends the walk. The callbacks run
     * under the pool's lock: they must not call the pool. */
    int (*extent)(void *user, const vrp_extent_info *info); /* by address within an arena */
    int (*block)(void *user, const vrp_block_info *info);   /* after the arena's extents */
} vrp_walk_fns;

/* Visits every extent and block, arena by arena, addresses ascending; slots
 * follow their slab. Free address space without memory is not visited, and a
 * free block that is partly backed is clipped to one piece per backed run.
 * Stops the other threads' allocations meanwhile. */
VRP_API VRP_NODISCARD vrp_status vrp_pool_walk(vrp_pool *pool, const vrp_walk_fns *fns, void *user);

/* Which backing the pool has and why, in one line: "vmm: the device supports
 * it", "malloc: asked for by the configuration", "malloc: no address range could
 * be reserved: ..." and so on. Copied into out_text, cut to text_bytes with the
 * 0 at its end. vrp_stats.backing is the same as a number. Any thread.
 * Errors: INVALID_ARGUMENT (no room for even the 0). */
VRP_API VRP_NODISCARD vrp_status vrp_pool_backing_reason_get(vrp_pool *pool, char *out_text,
                                                             size_t text_bytes);

/* Checks every invariant of the pool: blocks tile their arenas, no two
 * overlap, neighbours are merged, trees and lists agree with the blocks,
 * counters agree with a recount, reserved agrees with the extents. The detail
 * names the first that does not hold. Errors: CORRUPTED. */
VRP_API VRP_NODISCARD vrp_status vrp_pool_check(vrp_pool *pool);

#ifdef __cplusplus
}
#endif
#endif
