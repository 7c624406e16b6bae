/* SPDX-License-Identifier: MIT */
#ifndef BENCH_TABLE_H
#define BENCH_TABLE_H

/* Live blocks by their id, streams by their number: a hash table that holds
 * only what is live, so that it stays in the processor's cache and ids of any
 * size cost the same. */

#include <stddef.h>
#include <stdint.h>

typedef struct bench_entry {
    uint64_t key;
    uint64_t value;  /* the block's address; the stream's handle */
    uint64_t bytes;  /* as requested */
    uint64_t stream; /* the handle that it was allocated on */
    uint32_t used;
    uint32_t refused; /* the pool did not serve it: nothing is to be freed */
} bench_entry;

typedef struct bench_table {
    bench_entry *entries; /* mask + 1 of them, at most half in use */
    uint64_t mask;
    uint64_t count;
} bench_table;

/* Empty, with room for a few. 0: no memory. */
int bench_table_init(bench_table *table);
void bench_table_free(bench_table *table);

/* NULL: not there. Good until the next add or remove. */
bench_entry *bench_table_find(const bench_table *table, uint64_t key);

/* Adds a key and returns its entry, all else zero. NULL: it is there already
 * (*out_there 1) or there is no memory. */
bench_entry *bench_table_add(bench_table *table, uint64_t key, int *out_there);
void bench_table_remove(bench_table *table, bench_entry *entry);

#endif
