/* SPDX-License-Identifier: MIT */
#ifndef VRAMPOOL_KNOBS_H
#define VRAMPOOL_KNOBS_H

/* Settings of a pool that can change while it runs. Each is an unsigned
 * number with bounds that can be asked for, so that a tuner can enumerate
 * them. */

#include "vrampool.h"

#ifdef __cplusplus
extern "C" {
#endif

/* name, frozen value, smallest, largest, default, unit and meaning */
#define VRP_KNOB_MAP(X)                                                                           \
    X(GAP_RULE, 0, 1, 3, 2, "a vrp_gap_rule")                                                     \
    X(GAP_LIMIT_BYTES, 1, 0, UINT64_MAX, 67108864, "bytes of idle memory under GAP_RULE_LIMIT")   \
    X(LIMIT_BYTES, 2, 0, UINT64_MAX, 0, "most bytes the pool reserves; 0: no limit")              \
    X(CACHE_BYTES, 3, 0, 1073741824, 67108864, "most bytes in one thread's cache for one stream") \
    X(CACHE_BLOCK_BYTES, 4, 0, 1073741824, 1048576, "largest block kept in a thread's cache")     \
    X(DEVICE_WAITS, 5, 0, 1, 1, "whether a stream may be made to wait for another")               \
    X(SPLIT_LIMIT_BYTES, 6, 0, UINT64_MAX, 0,                                                     \
      "malloc backing: larger free blocks serve only requests "                                   \
      "of at least half their size; 0: off")                                                      \
    X(SEGMENT_BYTES, 7, 2097152, 1073741824, 33554432, "smallest segment of the malloc backing")  \
    X(EXTENT_SMALL_BYTES, 8, 2097152, 536870912, 2097152, "largest extent for blocks to 1 MiB")   \
    X(EXTENT_LARGE_BYTES, 9, 2097152, 536870912, 8388608, "largest extent for larger blocks")     \
    X(EXTENT_WEIGHTS_BYTES, 10, 2097152, 536870912, 536870912, "largest extent for weights")      \
    X(EXTENT_LOADING_BYTES, 11, 2097152, 536870912, 67108864,                                     \
      "largest extent while a stream has freed next to nothing")                                  \
    X(IDLE_AGE, 12, 0, UINT64_MAX, 2000,                                                          \
      "GAP_RULE_LIMIT gives up extents idle for that many operations that are no hits; 0: none")  \
    X(CACHE_HELD_BYTES, 13, 0, UINT64_MAX, 4294967296,                                            \
      "most bytes of larger blocks that a thread holds until its next operation that is no hit")  \
    X(RECLAIMER, 14, 0, 1, 0,                                                                     \
      "whether a helper thread ends what trims leave; a pool on a real device begins with 1")     \
    X(TRIM_BUDGET_NS, 15, 0, UINT64_MAX, 250000,                                                  \
      "with the reclaimer: most driver time that one trim may spend itself, by estimate")         \
    X(EXTENT_AHEAD_BYTES, 16, 0, 536870912, 134217728,                                            \
      "most bytes that an extent reaches beyond its block while memory is only filled; 0: none")

typedef enum vrp_knob {
#define VRP_KNOB_ENUM(name, value, low, high, preset, meaning) VRP_KNOB_##name = value,
    VRP_KNOB_MAP(VRP_KNOB_ENUM)
#undef VRP_KNOB_ENUM
        VRP_KNOB_COUNT,
    VRP_KNOB_FORCE_INT32 = 0x7fffffff
} vrp_knob;

typedef struct vrp_knob_bounds {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t low;    /* inclusive */
    uint64_t high;   /* inclusive */
    uint64_t preset; /* the value when nothing is set */
} vrp_knob_bounds;

/* "GAP_RULE" and so on, and what the number means; NULL for no knob. Static. */
VRP_API const char *vrp_knob_name(int32_t knob);
VRP_API const char *vrp_knob_meaning(int32_t knob);

/* Errors: INVALID_ARGUMENT (no such knob). Any thread. */
VRP_API VRP_NODISCARD vrp_status vrp_knob_bounds_get(int32_t knob, vrp_knob_bounds *out_bounds);

/* Errors: INVALID_ARGUMENT (no such knob; value out of bounds, the detail
 * names both). Setting CACHE_BYTES empties every cache; another value of
 * CACHE_BLOCK_BYTES and CACHE_HELD_BYTES holds from each thread's next free on.
 * Any thread. */
VRP_API VRP_NODISCARD vrp_status vrp_pool_knob_get(vrp_pool *pool, int32_t knob,
                                                   uint64_t *out_value);
VRP_API VRP_NODISCARD vrp_status vrp_pool_knob_set(vrp_pool *pool, int32_t knob, uint64_t value);

#ifdef __cplusplus
}
#endif
#endif
