/* SPDX-License-Identifier: MIT */
/* Open addressing with linear probing; removal closes the hole, so that a log
 * of millions of short lives leaves no dead slots behind. */

#include "trace/map.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS ((size_t)1024)

/* Every key bit moves every slot bit: addresses are multiples of large powers
 * of two. (The finaliser of MurmurHash3, a bijection.) */
static size_t home(const vrpi_trace_map *map, uint64_t key) {
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdu;
    key ^= key >> 33;
    key *= 0xc4ceb9fe1a85ec53u;
    key ^= key >> 33;
    return (size_t)key & (map->slot_count - 1);
}

void vrpi_trace_map_init(vrpi_trace_map *map, size_t limit) {
    memset(map, 0, sizeof *map);
    map->limit = limit;
}

void vrpi_trace_map_free(vrpi_trace_map *map) {
    free(map->slots);
    vrpi_trace_map_init(map, map->limit);
}

/* The key's slot, or the free one where it would go. */
static vrpi_trace_map_slot *probe(const vrpi_trace_map *map, uint64_t key) {
    size_t at = home(map, key);
    while (map->slots[at].value != 0 && map->slots[at].key != key)
        at = (at + 1) & (map->slot_count - 1);
    return &map->slots[at];
}

static int grow(vrpi_trace_map *map) {
    vrpi_trace_map larger = *map;
    larger.slot_count = map->slot_count ? map->slot_count * 2 : FIRST_SLOTS;
    larger.slots = calloc(larger.slot_count, sizeof *larger.slots);
    if (!larger.slots)
        return 0;
    for (size_t i = 0; i < map->slot_count; i++)
        if (map->slots[i].value != 0)
            *probe(&larger, map->slots[i].key) = map->slots[i];
    free(map->slots);
    *map = larger;
    return 1;
}

int vrpi_trace_map_find(const vrpi_trace_map *map, uint64_t key, uint64_t *out_value) {
    if (map->count == 0)
        return 0;
    const vrpi_trace_map_slot *slot = probe(map, key);
    if (slot->value == 0)
        return 0;
    *out_value = slot->value - 1;
    return 1;
}

int vrpi_trace_map_add(vrpi_trace_map *map, uint64_t key, uint64_t value) {
    if (map->count >= map->limit)
        return 0;
    if (map->count * 2 >= map->slot_count && !grow(map))
        return 0;
    vrpi_trace_map_slot *slot = probe(map, key);
    slot->key = key;
    slot->value = value + 1;
    map->count++;
    return 1;
}

void vrpi_trace_map_remove(vrpi_trace_map *map, uint64_t key) {
    size_t mask = map->slot_count - 1;
    size_t hole = (size_t)(probe(map, key) - map->slots);
    map->count--;
    for (size_t at = (hole + 1) & mask; map->slots[at].value != 0; at = (at + 1) & mask) {
        size_t wanted = home(map, map->slots[at].key);
        /* Moves back only what the hole would otherwise hide from a search. */
        if (((at - wanted) & mask) >= ((at - hole) & mask)) {
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->slots[hole].value = 0;
}

void vrpi_trace_map_clear(vrpi_trace_map *map) {
    if (map->count > 0)
        memset(map->slots, 0, map->slot_count * sizeof *map->slots);
    map->count = 0;
}
