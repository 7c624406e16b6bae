/* SPDX-License-Identifier: MIT */
#ifndef VRPI_TRACE_MAP_H
#define VRPI_TRACE_MAP_H

/* A hash map from 64-bit keys to numbers below 2^64 - 1: addresses, stream
 * handles and sizes of a trace to the order in which they came up. */

#include <stddef.h>
#include <stdint.h>

typedef struct vrpi_trace_map_slot {
    uint64_t key;
    uint64_t value; /* plus 1; 0: free */
} vrpi_trace_map_slot;

typedef struct vrpi_trace_map {
    vrpi_trace_map_slot *slots; /* a power of two of them, at most half in use */
    size_t slot_count;
    size_t count;
    size_t limit; /* refuses to hold more */
} vrpi_trace_map;

/* Holds at most `limit` keys; no memory yet. */
void vrpi_trace_map_init(vrpi_trace_map *map, size_t limit);
void vrpi_trace_map_free(vrpi_trace_map *map);

/* 1 and *out_value, or 0 where the key is not in. */
int vrpi_trace_map_find(const vrpi_trace_map *map, uint64_t key, uint64_t *out_value);

/* Adds a key that is not in. 0: no memory, or the limit. */
int vrpi_trace_map_add(vrpi_trace_map *map, uint64_t key, uint64_t value);

/* Takes a key out that is in. */
void vrpi_trace_map_remove(vrpi_trace_map *map, uint64_t key);

/* Forgets all keys and keeps the memory. */
void vrpi_trace_map_clear(vrpi_trace_map *map);

#endif
