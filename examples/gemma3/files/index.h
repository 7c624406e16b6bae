/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_INDEX_H
#define GEMMA3_INDEX_H

/* Positions by name: a hash table of fixed room. Names are bytes that the
 * caller keeps alive. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hash.h"

typedef struct g3_index_slot {
    const char *name; /* NULL: free */
    size_t count;
    size_t position;
} g3_index_slot;

typedef struct g3_index {
    g3_index_slot *slots; /* a power of two of them, at least twice the names */
    size_t mask;
    g3_hash_key key;
} g3_index;

/* Room for `names` names. false: no memory. */
bool g3_index_create(g3_index *index, size_t names);
void g3_index_free(g3_index *index); /* an all-zero one is allowed */

/* false if the name is there already. At most as many as there is room for. */
bool g3_index_add(g3_index *index, const char *name, size_t count, size_t position);
bool g3_index_find(const g3_index *index, const char *name, size_t count, size_t *out_position);

#endif
