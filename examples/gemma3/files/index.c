/* SPDX-License-Identifier: MIT */
#include "index.h"

#include <stdlib.h>
#include <string.h>

bool g3_index_create(g3_index *index, size_t names) {
    size_t slots = 16;
    while (slots / 2 <= names) {
        if (slots > SIZE_MAX / 2 / sizeof(g3_index_slot))
            return false;
        slots *= 2;
    }
    index->slots = calloc(slots, sizeof *index->slots);
    index->mask = slots - 1;
    index->key = g3_hash_key_make();
    return index->slots != NULL;
}

void g3_index_free(g3_index *index) {
    free(index->slots);
    *index = (g3_index){0};
}

/* The slot of the name, or the free one where it would go. */
static g3_index_slot *slot_of(const g3_index *index, const char *name, size_t count) {
    size_t at = (size_t)g3_hash(&index->key, name, count) & index->mask;
    for (;; at = (at + 1) & index->mask) {
        g3_index_slot *slot = &index->slots[at];
        if (slot->name == NULL ||
            (slot->count == count && (count == 0 || memcmp(slot->name, name, count) == 0)))
            return slot;
    }
}

bool g3_index_add(g3_index *index, const char *name, size_t count, size_t position) {
    g3_index_slot *slot = slot_of(index, name, count);
    if (slot->name != NULL)
        return false;
    *slot = (g3_index_slot){.name = name, .count = count, .position = position};
    return true;
}

bool g3_index_find(const g3_index *index, const char *name, size_t count, size_t *out_position) {
    if (index->slots == NULL)
        return false;
    const g3_index_slot *slot = slot_of(index, name, count);
    if (slot->name == NULL)
        return false;
    *out_position = slot->position;
    return true;
}
