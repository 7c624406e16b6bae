/* SPDX-License-Identifier: MIT */
/* From an address to the block that starts in its 32 KiB cell (or the slab that
 * covers it).
 *
 * A leaf per GiB has one entry per granule of 2 MiB: the block, where there is
 * one alone, or a table of the granule's cells. Tables come in seven sizes. The
 * six smaller ones name the cell of each entry in a byte, eight of which are
 * compared at once; the largest has an entry for each cell. So a granule with a
 * few large blocks costs 8 to 72 bytes, one that is full of the smallest 8 bytes
 * a block.
 *
 * Readers take no lock. While a block is live its cell changes in no table: others
 * come and go beside it, and a table that has become too small is copied before
 * the larger one is published. A reader that was under way in the old one finds
 * the same there, because a table is used again only after every gate has been
 * closed since (readers without the lock are inside theirs). */

#include "core/core.h"

enum {
    LEAF_GRANULES = 1 << (VRPI_LEAF_SHIFT - VRPI_MAP_SHIFT),
    MID_LEAVES = 1 << (VRPI_MID_SHIFT - VRPI_LEAF_SHIFT),
    CELLS = 1 << (VRPI_MAP_SHIFT - VRPI_CELL_SHIFT),
    KINDS = VRPI_CELLS_DIRECT,
    RESERVE = 2,    /* most tables that one block can need: its cells lie in two granules */
    KEPT_EMPTY = 2, /* tables up to this kind stay where they are when empty */
};

#define NO_ENTRY 0xfeu /* keys of entries behind the last */
#define UNUSED 0xffu

typedef _Atomic(char *) link;

static const size_t mid_bytes = MID_LEAVES * sizeof(link);
static const size_t leaf_bytes = LEAF_GRANULES * sizeof(link);
/* by kind */
static const uint32_t capacity_of[KINDS + 1] = {0, 2, 4, 8, 16, 24, 32, CELLS};

static size_t bytes_of(uint32_t kind) {
    size_t bytes = vrpi_cells_words(kind) * sizeof(uint64_t) + capacity_of[kind] * sizeof(link);
    return kind == KINDS ? bytes + sizeof(uint64_t) : bytes; /* its count */
}

static uint32_t kind_of(const char *entry) { return (uint32_t)((uintptr_t)entry & 7); }

static char *load(const link *at) { return atomic_load_explicit(at, memory_order_relaxed); }

/* release: who finds it finds it filled in */
static void publish(link *at, char *value) {
    atomic_store_explicit(at, value, memory_order_release);
}

/* ---- leaves ------------------------------------------------------------------------ */

static link *child_of(vrpi_pool *core, link *at, size_t bytes) {
    char *child = load(at);
    if (child == NULL && (child = vrpi_host_alloc(core, bytes)) != NULL)
        publish(at, child);
    return (link *)(void *)child;
}

static link *leaf_at(const vrpi_pool *core, uint64_t addr) {
    const link *mid = (const link *)(void *)load(&core->map[addr >> VRPI_MID_SHIFT]);
    return (link *)(void *)load(&mid[addr >> VRPI_LEAF_SHIFT & (MID_LEAVES - 1)]);
}

vrp_status vrpi_map_prepare(vrpi_pool *core, uint64_t addr, uint64_t bytes) {
    if ((addr + bytes - 1) >> VRPI_ADDRESS_BITS != 0)
        return vrpi_fail(VRP_NOT_SUPPORTED, "the driver gave an address above 2^%d",
                         VRPI_ADDRESS_BITS);
    for (uint64_t i = addr >> VRPI_LEAF_SHIFT; i <= (addr + bytes - 1) >> VRPI_LEAF_SHIFT; i++) {
        uint64_t root = i >> (VRPI_MID_SHIFT - VRPI_LEAF_SHIFT);
        link *mid = child_of(core, &core->map[root], mid_bytes);
        if (mid == NULL || child_of(core, &mid[i & (MID_LEAVES - 1)], leaf_bytes) == NULL)
            return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for the address map");
    }
    return VRP_OK;
}

void vrpi_map_end(vrpi_pool *core) {
    for (size_t i = 0; i < sizeof core->map / sizeof core->map[0]; i++) {
        link *mid = (link *)(void *)load(&core->map[i]);
        for (size_t k = 0; mid != NULL && k < MID_LEAVES; k++)
            vrpi_host_free(core, load(&mid[k]), leaf_bytes);
        vrpi_host_free(core, mid, mid_bytes);
        publish(&core->map[i], NULL);
    }
}

/* ---- memory of tables ---------------------------------------------------------------- */

/* The first word of a free table is the next one. */
static void table_free(vrpi_pool *core, char *table, uint32_t kind) {
    *(char **)(void *)table = core->cells_free[kind];
    core->cells_free[kind] = table;
    core->cells_spare += kind == KINDS;
}

static char *table_pop(vrpi_pool *core, uint32_t kind) {
    char *table = core->cells_free[kind];
    if (table != NULL) {
        core->cells_free[kind] = *(char **)(void *)table;
        core->cells_spare -= kind == KINDS;
    }
    return table;
}

/* What is left to cut from becomes tables, the largest first. */
static void rest_cut(vrpi_pool *core) {
    for (uint32_t kind = KINDS; kind > 0; kind--)
        while (core->cells_left >= bytes_of(kind)) {
            char *table = core->cells_at;
            core->cells_at += bytes_of(kind);
            core->cells_left -= bytes_of(kind);
            table_free(core, table, kind);
        }
}

vrp_status vrpi_map_reserve(vrpi_pool *core) {
    while (core->cells_spare < RESERVE) {
        size_t bytes;
        char *memory = vrpi_chunk_new(core, &bytes);
        if (memory == NULL)
            return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for the address map");
        rest_cut(core);
        for (int i = 0; i < RESERVE; i++, bytes -= bytes_of(KINDS), memory += bytes_of(KINDS))
            table_free(core, memory, KINDS);
        core->cells_at = memory;
        core->cells_left = bytes;
    }
    return VRP_OK;
}

/* An empty one. There is always one: of a spare large one smaller ones are cut. */
static char *table_new(vrpi_pool *core, uint32_t kind) {
    size_t bytes = bytes_of(kind);
    uint32_t words = vrpi_cells_words(kind);
    char *table = kind == KINDS && core->cells_left >= bytes ? NULL : table_pop(core, kind);
    if (table == NULL) {
        if (core->cells_left < bytes) {
            rest_cut(core);
            core->cells_at = table_pop(core, KINDS);
            core->cells_left = bytes_of(KINDS);
        }
        table = core->cells_at;
        core->cells_at += bytes;
        core->cells_left -= bytes;
    }
    for (uint32_t w = 0; w < words; w++) {
        uint64_t keys = UINT64_MAX;
        for (uint32_t i = 0; i < 8; i++)
            if (w * 8 + i >= capacity_of[kind])
                keys ^= (uint64_t)(UNUSED ^ NO_ENTRY) << (i * 8);
        atomic_store_explicit(vrpi_cells_key(table, w), keys, memory_order_relaxed);
    }
    for (uint32_t i = 0; i < capacity_of[kind]; i++)
        atomic_store_explicit(vrpi_cells_entry(table, words, i), NULL, memory_order_relaxed);
    if (kind == KINDS)
        *vrpi_cells_count(table) = 0;
    return table;
}

/* It may still be read: it can be used again when all gates have been closed. */
static void table_retire(vrpi_pool *core, char *entry) {
    enum { LIMBO = sizeof core->limbo / sizeof core->limbo[0] };
    core->limbo[core->limbo_count++] = entry;
    if (core->limbo_count < LIMBO)
        return;
    vrpi_close_all(core);
    vrpi_open_all(core);
    while (core->limbo_count > 0) {
        char *old = core->limbo[--core->limbo_count];
        table_free(core, old - kind_of(old), kind_of(old));
    }
}

/* ---- entries ---------------------------------------------------------------------------- */

static uint64_t keys_at(const char *table, uint32_t word) {
    return atomic_load_explicit(vrpi_cells_key(table, word), memory_order_relaxed);
}

static uint32_t used_in(const char *table, uint32_t kind) {
    uint32_t used = 0;
    if (kind == KINDS)
        return (uint32_t)*vrpi_cells_count(table);
    for (uint32_t w = 0; w < vrpi_cells_words(kind); w++)
        used += 8 - (uint32_t)__builtin_popcountll(keys_at(table, w) & VRPI_CELLS_TOPS);
    return used;
}

static void key_set(char *table, uint32_t i, uint64_t key) {
    uint32_t shift = i % 8 * 8;
    uint64_t keys = (keys_at(table, i / 8) & ~(UINT64_C(0xff) << shift)) | key << shift;
    atomic_store_explicit(vrpi_cells_key(table, i / 8), keys, memory_order_release);
}

/* The first unused entry; there is one. */
static uint32_t unused_in(const char *table) {
    uint64_t unused;
    uint32_t w = 0;
    /* UNUSED alone has its highest and its lowest bit set */
    while ((unused = keys_at(table, w) & keys_at(table, w) << 7 & VRPI_CELLS_TOPS) == 0)
        w++;
    return w * 8 + (uint32_t)__builtin_ctzll(unused) / 8;
}

static void table_put(char *table, uint32_t kind, uint32_t cell, vrpi_block *block) {
    uint32_t words = vrpi_cells_words(kind), i = cell;
    if (kind == KINDS)
        ++*vrpi_cells_count(table);
    else
        i = unused_in(table);
    atomic_store_explicit(vrpi_cells_entry(table, words, i), block, memory_order_release);
    if (kind != KINDS)
        key_set(table, i, cell);
}

static void table_take(char *table, uint32_t kind, uint32_t cell) {
    uint32_t words = vrpi_cells_words(kind), i = cell;
    if (kind == KINDS) {
        if (atomic_load_explicit(vrpi_cells_entry(table, words, i), memory_order_relaxed) == NULL)
            return;
        --*vrpi_cells_count(table);
    } else {
        i = vrpi_cells_find(table, words, cell);
        if (i == UINT32_MAX)
            return;
        key_set(table, i, UNUSED);
    }
    atomic_store_explicit(vrpi_cells_entry(table, words, i), NULL, memory_order_release);
}

static uint32_t cell_of(uint64_t addr) { return (uint32_t)(addr >> VRPI_CELL_SHIFT) & (CELLS - 1); }

/* The cells of a granule that a block which is alone there has. */
static void cells_of(const vrpi_block *block, uint64_t granule, uint32_t *first, uint32_t *last) {
    uint64_t from = block->addr, to = block->addr;
    if (vrpi_covers(block))
        to += VRPI_BYTES(block) - 1;
    *first = from >> VRPI_MAP_SHIFT == granule ? cell_of(from) : 0;
    *last = to >> VRPI_MAP_SHIFT == granule ? cell_of(to) : CELLS - 1;
}

/* A table with room for `more` beside what the entry names. */
static char *table_grow(vrpi_pool *core, char *old, uint64_t granule, uint32_t more) {
    uint32_t old_kind = kind_of(old), kind = 1, need = more, first = 0, last = 0;
    vrpi_block *alone = (vrpi_block *)(void *)old;
    char *table;
    if (old_kind != 0) {
        need += used_in(old - old_kind, old_kind);
    } else {
        cells_of(alone, granule, &first, &last);
        need += last - first + 1;
    }
    while (capacity_of[kind] < need)
        kind++;
    table = table_new(core, kind);
    if (old_kind == 0) {
        for (uint32_t cell = first; cell <= last; cell++)
            table_put(table, kind, cell, alone);
        return table + kind;
    }
    old -= old_kind;
    for (uint32_t i = 0; i < capacity_of[old_kind]; i++) {
        uint64_t cell = keys_at(old, i / 8) >> (i % 8 * 8) & 0xff;
        if (cell < CELLS)
            table_put(table, kind, (uint32_t)cell,
                      atomic_load_explicit(vrpi_cells_entry(old, vrpi_cells_words(old_kind), i),
                                           memory_order_relaxed));
    }
    return table + kind;
}

static void entry_put(vrpi_pool *core, link *at, uint64_t granule, uint32_t first, uint32_t last,
                      vrpi_block *block) {
    char *entry = load(at);
    uint32_t kind = kind_of(entry), more = last - first + 1;
    if (entry == NULL) {
        publish(at, (char *)block);
        return;
    }
    if (kind == 0 || used_in(entry - kind, kind) + more > capacity_of[kind]) {
        char *grown = table_grow(core, entry, granule, more);
        for (uint32_t cell = first; cell <= last; cell++)
            table_put(grown - kind_of(grown), kind_of(grown), cell, block);
        publish(at, grown);
        if (kind != 0)
            table_retire(core, entry);
        return;
    }
    for (uint32_t cell = first; cell <= last; cell++)
        table_put(entry - kind, kind, cell, block);
}

static void entry_take(vrpi_pool *core, link *at, uint32_t first, uint32_t last,
                       const vrpi_block *block) {
    char *entry = load(at);
    uint32_t kind = kind_of(entry);
    if (entry == (const char *)block)
        publish(at, NULL);
    if (kind == 0)
        return;
    for (uint32_t cell = first; cell <= last; cell++)
        table_take(entry - kind, kind, cell);
    if (kind > KEPT_EMPTY && used_in(entry - kind, kind) == 0) {
        publish(at, NULL);
        table_retire(core, entry);
    }
}

static void change(vrpi_pool *core, vrpi_block *block, int put) {
    uint64_t first = block->addr >> VRPI_CELL_SHIFT;
    uint64_t end =
        vrpi_covers(block) ? (block->addr + VRPI_BYTES(block)) >> VRPI_CELL_SHIFT : first + 1;
    while (first < end) {
        uint64_t granule = first / CELLS, stop = (granule + 1) * CELLS;
        link *at = &leaf_at(core, first << VRPI_CELL_SHIFT)[granule & (LEAF_GRANULES - 1)];
        uint32_t low = (uint32_t)(first % CELLS), high;
        if (stop > end)
            stop = end;
        high = low + (uint32_t)(stop - first) - 1;
        if (put)
            entry_put(core, at, granule, low, high, block);
        else
            entry_take(core, at, low, high, block);
        first = stop;
    }
}

void vrpi_map_put(vrpi_pool *core, vrpi_block *block) { change(core, block, 1); }

void vrpi_map_take(vrpi_pool *core, vrpi_block *block) { change(core, block, 0); }
