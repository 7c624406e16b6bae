/* SPDX-License-Identifier: MIT */
/* Open addressing with linear probing; removal shifts back what follows. */

#include "table.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ENTRIES = 4096 };

static inline uint64_t home_of(const bench_table *table, uint64_t key) {
    key ^= key >> 32;
    key *= UINT64_C(0x9e3779b97f4a7c15);
    return (key >> 29) & table->mask;
}

int bench_table_init(bench_table *table) {
    memset(table, 0, sizeof *table);
    table->entries = calloc(FIRST_ENTRIES, sizeof *table->entries);
    table->mask = FIRST_ENTRIES - 1;
    return table->entries != NULL;
}

void bench_table_free(bench_table *table) {
    free(table->entries);
    memset(table, 0, sizeof *table);
}

bench_entry *bench_table_find(const bench_table *table, uint64_t key) {
    for (uint64_t at = home_of(table, key); table->entries[at].used; at = (at + 1) & table->mask)
        if (table->entries[at].key == key)
            return &table->entries[at];
    return NULL;
}

static int grow(bench_table *table) {
    bench_table larger = {.mask = table->mask * 2 + 1, .count = table->count};
    larger.entries = calloc(larger.mask + 1, sizeof *larger.entries);
    if (larger.entries == NULL)
        return 0;
    for (uint64_t i = 0; i <= table->mask; i++) {
        if (!table->entries[i].used)
            continue;
        uint64_t at = home_of(&larger, table->entries[i].key);
        while (larger.entries[at].used)
            at = (at + 1) & larger.mask;
        larger.entries[at] = table->entries[i];
    }
    free(table->entries);
    *table = larger;
    return 1;
}

bench_entry *bench_table_add(bench_table *table, uint64_t key, int *out_there) {
    *out_there = 0;
    if (table->count * 2 > table->mask && !grow(table))
        return NULL;
    uint64_t at = home_of(table, key);
    for (; table->entries[at].used; at = (at + 1) & table->mask) {
        if (table->entries[at].key == key) {
            *out_there = 1;
            return NULL;
        }
    }
    table->count++;
    table->entries[at] = (bench_entry){.key = key, .used = 1};
    return &table->entries[at];
}

void bench_table_remove(bench_table *table, bench_entry *entry) {
    uint64_t hole = (uint64_t)(entry - table->entries);
    uint64_t at = (hole + 1) & table->mask;
    /* An entry may fill the hole if that lies between its home and its place. */
    for (; table->entries[at].used; at = (at + 1) & table->mask) {
        uint64_t home = home_of(table, table->entries[at].key);
        if (((at - home) & table->mask) >= ((at - hole) & table->mask)) {
            table->entries[hole] = table->entries[at];
            hole = at;
        }
    }
    table->entries[hole].used = 0;
    table->count--;
}
