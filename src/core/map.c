/* SPDX-License-Identifier: MIT */
/* From an address to the block that starts in its 32 KiB cell (or the slab that
 * covers it).
 *
 * A leaf per GiB, in a table of those from the lowest to the highest in use, has
 * one entry per granule of 2 MiB: the block, where there is
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
    CELLS = 1 << (VRPI_MAP_SHIFT - VRPI_CELL_SHIFT),
    KINDS = VRPI_CELLS_DIRECT,
    RESERVE = VRPI_CELLS_RESERVE,
    KEPT_EMPTY = 2, /* tables up to this kind stay where they are when empty */
};

#define NO_ENTRY 0xfeu /* keys of entries behind the last */
#define UNUSED 0xffu

typedef _Atomic(char *) link;

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

/* Stands where there is none, so that readers need not ask. Never written. */
static link no_leaf[LEAF_GRANULES];

static char *missing(void) { return (char *)(uintptr_t)no_leaf; }

/* The table of leaves covers GiB [from, to) then, with room to grow upwards. */
static int window_grow(vrpi_pool *core, uint64_t from, uint64_t to) {
    uint64_t first = core->first_leaf, count = core->leaf_count;
    link *old = core->leaves, *grown;
    if (count > 0) {
        from = from < first ? from : first;
        to = to > first + count ? to : first + count;
    }
    if (count > 0 && from == first && to == first + count)
        return 1;
    to += (to - from) / 8;
    grown = vrpi_host_alloc(core, (to - from) * sizeof *grown);
    if (grown == NULL)
        return 0;
    for (uint64_t i = 0; i < to - from; i++)
        publish(&grown[i], missing());
    for (uint64_t i = 0; i < count; i++)
        publish(&grown[first - from + i], load(&old[i]));
    vrpi_close_all(core); /* the three belong together */
    core->leaves = grown;
    core->first_leaf = from;
    core->leaf_count = to - from;
    vrpi_open_all(core);
    vrpi_host_free(core, old, count * sizeof *old);
    return 1;
}

vrp_status vrpi_map_prepare(vrpi_pool *core, uint64_t addr, uint64_t bytes) {
    uint64_t first = addr >> VRPI_LEAF_SHIFT, last = (addr + bytes - 1) >> VRPI_LEAF_SHIFT;
    int done;
    if ((addr + bytes - 1) >> VRPI_ADDRESS_BITS != 0)
        return vrpi_fail(VRP_NOT_SUPPORTED, "the driver gave an address above 2^%d",
                         VRPI_ADDRESS_BITS);
    done = window_grow(core, first, last + 1);
    for (uint64_t i = first; done && i <= last; i++) {
        link *at = &core->leaves[i - core->first_leaf];
        char *leaf = load(at);
        if (leaf != missing())
            continue;
        leaf = vrpi_host_alloc(core, leaf_bytes);
        done = leaf != NULL;
        if (done)
            publish(at, leaf);
    }
    return done ? VRP_OK : vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for the address map");
}

void vrpi_map_end(vrpi_pool *core) {
    for (uint64_t i = 0; i < core->leaf_count; i++)
        if (load(&core->leaves[i]) != missing())
            vrpi_host_free(core, load(&core->leaves[i]), leaf_bytes);
    vrpi_host_free(core, core->leaves, core->leaf_count * sizeof *core->leaves);
    core->leaves = NULL;
    core->leaf_count = 0;
}

/* ---- memory of tables ---------------------------------------------------------------- */

/* The first entry of a free table is the next one. */
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
            table_free(core, core->cells_at + vrpi_cells_words(kind) * sizeof(uint64_t), kind);
            core->cells_at += bytes_of(kind);
            core->cells_left -= bytes_of(kind);
        }
}

vrp_status vrpi_map_refill(vrpi_pool *core) {
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
        table = core->cells_at + words * sizeof(uint64_t);
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
        atomic_store_explicit(vrpi_cells_entry(table, i), 0, memory_order_relaxed);
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
    for (uint32_t i = 0; i < capacity_of[kind]; i++)
        used += (keys_at(table, i / 8) >> (i % 8 * 8) & 0xff) < CELLS;
    return used;
}

static int is_empty(const char *table, uint32_t kind) {
    uint64_t keys = VRPI_CELLS_TOPS;
    if (kind == KINDS)
        return *vrpi_cells_count(table) == 0;
    for (uint32_t w = 0; w < vrpi_cells_words(kind); w++)
        keys &= keys_at(table, w);
    return keys == VRPI_CELLS_TOPS; /* no key is that of a cell */
}

/* One cell, in one word of keys. 0: it has no room. */
static int word_put(char *table, uint32_t word, uint64_t cell, vrpi_block *block) {
    uint64_t keys = keys_at(table, word);
    uint64_t unused =
        keys & keys << 7 & VRPI_CELLS_TOPS; /* its highest and its lowest bit are set */
    uint32_t i;
    if (unused == 0)
        return 0;
    i = (uint32_t)__builtin_ctzll(unused) / 8;
    atomic_store_explicit(vrpi_cells_entry(table, word * 8 + i), (vrpi_found)block,
                          memory_order_release);
    atomic_store_explicit(vrpi_cells_key(table, word), keys ^ (UNUSED ^ cell) << (i * 8),
                          memory_order_release);
    return 1;
}

/* One cell of a table with keys. 1: the word in which it was is empty now. */
static int word_take(char *table, uint32_t kind, uint64_t cell) {
    _Atomic vrpi_found *entry = vrpi_cells_find(table, kind, cell);
    uint64_t i, keys;
    if (entry == NULL)
        return 0;
    i = (uint64_t)(entry - vrpi_cells_entry(table, 0));
    keys = keys_at(table, (uint32_t)(i / 8)) | (uint64_t)UNUSED << (i % 8 * 8);
    atomic_store_explicit(vrpi_cells_key(table, (uint32_t)(i / 8)), keys, memory_order_release);
    atomic_store_explicit(entry, 0, memory_order_release);
    return (keys & VRPI_CELLS_TOPS) == VRPI_CELLS_TOPS;
}

/* There is room. */
static void table_put(char *table, uint32_t kind, uint32_t cell, vrpi_block *block) {
    uint32_t w = 0;
    if (kind == KINDS) {
        ++*vrpi_cells_count(table);
        atomic_store_explicit(vrpi_cells_entry(table, cell), (vrpi_found)block,
                              memory_order_release);
        return;
    }
    while (!word_put(table, w, cell, block))
        w++;
}

static void table_take(char *table, uint32_t kind, uint32_t cell) {
    if (kind != KINDS) {
        (void)word_take(table, kind, cell);
        return;
    }
    --*vrpi_cells_count(table);
    atomic_store_explicit(vrpi_cells_entry(table, cell), 0, memory_order_release);
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

/* A table with room for `more` beside what the entry names, which may be nothing.
 * Where slabs are, it is the largest at once: they are what is looked up most, and
 * fill their granules. */
static char *table_grow(vrpi_pool *core, char *old, uint64_t granule, uint32_t more, int slab) {
    uint32_t old_kind = kind_of(old), kind = 1, need = more, first = 0, last = 0;
    vrpi_block *alone = (vrpi_block *)(void *)old;
    char *table;
    if (old_kind != 0) {
        need += used_in(old - old_kind, old_kind);
    } else if (alone != NULL) {
        cells_of(alone, granule, &first, &last);
        need += last - first + 1;
    }
    while (capacity_of[kind] < need || (slab && kind < KINDS))
        kind++;
    table = table_new(core, kind);
    if (old_kind == 0) {
        for (uint32_t cell = first; alone != NULL && cell <= last; cell++)
            table_put(table, kind, cell, alone);
        return table + kind;
    }
    old -= old_kind;
    for (uint32_t i = 0; i < capacity_of[old_kind]; i++) {
        uint64_t cell = keys_at(old, i / 8) >> (i % 8 * 8) & 0xff;
        if (cell < CELLS)
            table_put(
                table, kind, (uint32_t)cell,
                (vrpi_block *)atomic_load_explicit(vrpi_cells_entry(old, i), memory_order_relaxed));
    }
    return table + kind;
}

static void entry_put(vrpi_pool *core, link *at, uint64_t granule, uint32_t first, uint32_t last,
                      vrpi_block *block) {
    char *entry = load(at), *grown;
    uint32_t kind = kind_of(entry), more = last - first + 1;
    int slab = vrpi_covers(block);
    if (entry == NULL && !slab) {
        publish(at, (char *)block);
        return;
    }
    if (kind == KINDS ||
        (kind != 0 && !slab && used_in(entry - kind, kind) + more <= capacity_of[kind])) {
        for (uint32_t cell = first; cell <= last; cell++)
            table_put(entry - kind, kind, cell, block);
        return;
    }
    grown = table_grow(core, entry, granule, more, slab);
    for (uint32_t cell = first; cell <= last; cell++)
        table_put(grown - kind_of(grown), kind_of(grown), cell, block);
    publish(at, grown);
    if (kind != 0)
        table_retire(core, entry);
}

static void entry_take(vrpi_pool *core, link *at, uint32_t first, uint32_t last,
                       const vrpi_block *block) {
    char *entry = load(at);
    uint32_t kind = kind_of(entry);
    if (kind == 0) {
        if (entry == (const char *)block)
            publish(at, NULL);
        return;
    }
    for (uint32_t cell = first; cell <= last; cell++)
        table_take(entry - kind, kind, cell);
    if (kind > KEPT_EMPTY && is_empty(entry - kind, kind)) {
        publish(at, NULL);
        table_retire(core, entry);
    }
}

static link *entry_at(const vrpi_pool *core, uint64_t addr) {
    link *leaf = (link *)(void *)load(&core->leaves[(addr >> VRPI_LEAF_SHIFT) - core->first_leaf]);
    return &leaf[addr >> VRPI_MAP_SHIFT & (LEAF_GRANULES - 1)];
}

/* A slab: all its cells, in one granule or two. */
static void cover(vrpi_pool *core, vrpi_block *block, int put) {
    uint64_t at = block->addr, end = block->addr + VRPI_BYTES(block);
    while (at < end) {
        uint64_t granule = at >> VRPI_MAP_SHIFT;
        uint64_t stop = (granule + 1) << VRPI_MAP_SHIFT;
        uint32_t first = cell_of(at), last = cell_of((stop < end ? stop : end) - 1);
        if (put)
            entry_put(core, entry_at(core, at), granule, first, last, block);
        else
            entry_take(core, entry_at(core, at), first, last, block);
        at = stop;
    }
}

/* Saves a look at the block with each free. Its granules have the largest tables. */
void vrpi_map_slab(vrpi_pool *core, const vrpi_slab *slab) {
    uint64_t end = slab->addr + VRPI_BYTES(slab->block);
    for (uint64_t at = slab->addr; at < end; at += VRPI_CELL)
        atomic_store_explicit(vrpi_cells_entry(load(entry_at(core, at)) - KINDS, cell_of(at)),
                              (vrpi_found)slab + VRPI_MAP_SLAB, memory_order_release);
}

void vrpi_map_put(vrpi_pool *core, vrpi_block *block) {
    link *at = entry_at(core, block->addr);
    char *entry = load(at);
    uint32_t kind = kind_of(entry), cell = cell_of(block->addr);
    if (vrpi_covers(block)) {
        cover(core, block, 1);
        return;
    }
    if (kind != 0 && kind != KINDS)
        for (uint32_t w = 0; w < vrpi_cells_words(kind); w++)
            if (word_put(entry - kind, w, cell, block))
                return;
    entry_put(core, at, block->addr >> VRPI_MAP_SHIFT, cell, cell, block);
}

void vrpi_map_take(vrpi_pool *core, vrpi_block *block) {
    link *at = entry_at(core, block->addr);
    char *entry = load(at);
    uint32_t kind = kind_of(entry), cell = cell_of(block->addr);
    if (vrpi_covers(block)) {
        cover(core, block, 0);
        return;
    }
    if (kind == 0 || kind == KINDS) {
        entry_take(core, at, cell, cell, block);
        return;
    }
    if (word_take(entry - kind, kind, cell) && kind > KEPT_EMPTY && is_empty(entry - kind, kind)) {
        publish(at, NULL);
        table_retire(core, entry);
    }
}
