/* SPDX-License-Identifier: MIT */
/* Blocks: splitting, merging, freeing. Free blocks of a space lie in one tree by
 * (bytes, address). */

#include "core/core.h"

uint64_t vrpi_stamp(vrpi_stream *stream) {
    /* Of a forgotten stream nothing new can be recorded: its last event covers
     * whatever was queued before it was destroyed. */
    return stream->forgotten ? stream->seq : ++stream->seq;
}

uint8_t vrpi_class_of(const vrpi_pool *core, uint64_t size, uint8_t tag) {
    if (tag == VRP_TAG_WEIGHTS && size > VRPI_SMALL_MAX)
        return VRPI_CLASS_WEIGHTS;
    /* Segments of the malloc backing are dear and never move: all sizes share them. */
    if (core->backing == VRP_BACKING_MALLOC)
        return VRPI_CLASS_HUGE;
    return size <= UINT64_C(1) << 20    ? VRPI_CLASS_SMALL
           : size <= UINT64_C(4) << 20  ? VRPI_CLASS_MEDIUM
           : size <= UINT64_C(32) << 20 ? VRPI_CLASS_LARGE
                                        : VRPI_CLASS_HUGE;
}

/* Eight buckets a doubling, from one cell. */
uint32_t vrpi_life_bucket(uint64_t size) {
    uint64_t units = size >> 12; /* at least 8 */
    uint32_t exponent = 63 - (uint32_t)__builtin_clzll(units | 8);
    uint32_t bucket = (exponent - 3) * 8 + (uint32_t)((units >> (exponent - 3)) & 7);
    return bucket < VRPI_LIVES ? bucket : VRPI_LIVES - 1;
}

/* The longest recent life of a size, forgotten slowly. */
static void life_learn(const vrpi_pool *core, const vrpi_arena *arena, const vrpi_block *block) {
    uint32_t *life = &arena->stream->life[vrpi_life_bucket(VRPI_BYTES(block))];
    uint64_t lived = (uint64_t)((uint32_t)core->ticks - block->born) + 1;
    uint64_t old = *life - *life / 10;
    *life = (uint32_t)(lived > old ? (lived > UINT32_MAX ? UINT32_MAX : lived) : old);
}

/* Puts a new node into the address list before or behind block number `at`. */
static vrpi_block *link_new(vrpi_pool *core, vrpi_arena *arena, uint32_t at, int behind) {
    uint32_t number = vrpi_block_node(core);
    vrpi_block *block = vrpi_block_of(core, number), *beside = vrpi_block_of(core, at);
    block->arena = arena->index;
    block->prev = behind ? at : beside->prev;
    block->next = behind ? beside->next : at;
    *(block->prev != 0 ? &vrpi_prev(core, block)->next : &arena->first) = number;
    *(block->next != 0 ? &vrpi_next(core, block)->prev : &arena->last) = number;
    return block;
}

/* Out of the address list, and no block any more. */
static void drop(vrpi_pool *core, vrpi_arena *arena, const vrpi_block *block) {
    uint32_t number = vrpi_number_of(core, block);
    *(block->prev != 0 ? &vrpi_prev(core, block)->next : &arena->first) = block->next;
    *(block->next != 0 ? &vrpi_next(core, block)->prev : &arena->last) = block->prev;
    vrpi_block_node_free(core, number);
}

static void tree_add(const vrpi_pool *core, vrpi_arena *arena, const vrpi_block *block) {
    if (arena->space != NULL)
        vrpi_treap_insert(&arena->space->free, vrpi_number_of(core, block));
}

static void tree_take(vrpi_arena *arena, vrpi_block *block) {
    if (block->node.parent != VRPI_UNLINKED)
        vrpi_treap_remove(&arena->space->free, &block->node);
}

static void set_range(vrpi_block *block, uint64_t addr, uint64_t end) {
    block->addr = addr;
    block->units = VRPI_UNITS(end - addr);
}

vrpi_block *vrpi_block_carve(vrpi_pool *core, vrpi_block *block, uint64_t addr, uint64_t bytes) {
    vrpi_arena *arena = vrpi_arena_of(core, block);
    uint32_t number = vrpi_number_of(core, block);
    uint64_t start = block->addr, end = block->addr + VRPI_BYTES(block);
    uint64_t behind = end - (addr + bytes);
    vrpi_block *taken = block;
    tree_take(arena, block);
    /* The larger remainder keeps the node, so that few granules change hands. */
    if (addr == start && behind >= bytes && behind > 0) {
        taken = link_new(core, arena, number, 0);
        vrpi_arena_cover(core, arena, taken, addr, addr + bytes);
        set_range(block, addr + bytes, end);
        tree_add(core, arena, block);
    } else if (behind > 0) {
        vrpi_block *rest = link_new(core, arena, number, 1);
        set_range(rest, addr + bytes, end);
        vrpi_arena_cover(core, arena, rest, rest->addr, end);
        tree_add(core, arena, rest);
    }
    if (addr > start) {
        taken = link_new(core, arena, number, 1);
        vrpi_arena_cover(core, arena, taken, addr, addr + bytes);
        set_range(block, start, addr);
        tree_add(core, arena, block);
    }
    set_range(taken, addr, addr + bytes);
    vrpi_set_state(taken, VRPI_LIVE);
    return taken;
}

void vrpi_block_merge(vrpi_pool *core, vrpi_block *block) {
    vrpi_arena *arena = vrpi_arena_of(core, block);
    block->node.parent = VRPI_UNLINKED;
    block->tag = 0;
    vrpi_set_state(block, VRPI_FREE);
    for (int behind = 0; behind < 2; behind++) {
        vrpi_block *other = behind ? vrpi_next(core, block) : vrpi_prev(core, block);
        uint64_t from = block->addr, end = block->addr + VRPI_BYTES(block);
        if (other == NULL || other->state != VRPI_FREE)
            continue;
        tree_take(arena, other);
        if (behind)
            end += VRPI_BYTES(other);
        else
            from = other->addr;
        if (other->units > block->units) { /* the larger keeps its node */
            vrpi_block *swap = block;
            block = other;
            other = swap;
        }
        vrpi_arena_cover(core, arena, block, other->addr, other->addr + VRPI_BYTES(other));
        set_range(block, from, end);
        drop(core, arena, other);
    }
    tree_add(core, arena, block);
}

vrpi_block *vrpi_block_at(const vrpi_pool *core, const vrpi_arena *arena, uint64_t addr) {
    vrpi_block *block;
    if (addr < arena->base || addr >= arena->end)
        return NULL;
    block = arena->starts[vrpi_granule_of(core, arena, addr)];
    while (block != NULL && block->addr + VRPI_BYTES(block) <= addr)
        block = vrpi_next(core, block);
    return block;
}

vrpi_arena *vrpi_arena_at(const vrpi_pool *core, uint64_t addr) {
    for (vrpi_arena *a = core->arenas; a != NULL; a = a->next)
        if (addr >= a->base && addr - a->base < a->bytes)
            return a;
    return NULL;
}

/* One block in use goes out of use; what is left of it is a node in the list. */
static void retire_block(vrpi_pool *core, vrpi_arena *arena, vrpi_block *block, uint64_t stamp) {
    if (arena->space != NULL) {
        arena->space->freed_bytes += VRPI_BYTES(block);
        life_learn(core, arena, block);
    }
    vrpi_extent_unuse(core, arena, block->addr, VRPI_BYTES(block), arena->stream, stamp);
    vrpi_map_take(core, block);
    arena->used_blocks--;
}

void vrpi_block_free_run(vrpi_pool *core, vrpi_block *first, const vrpi_block *last,
                         uint64_t stamp) {
    vrpi_arena *arena = vrpi_arena_of(core, first);
    uint64_t end = last->addr + VRPI_BYTES(last);
    retire_block(core, arena, first, stamp);
    if (first != last) {
        vrpi_block *b;
        do {
            b = vrpi_next(core, first);
            retire_block(core, arena, b, stamp);
            drop(core, arena, b);
        } while (b != last);
        vrpi_arena_cover(core, arena, first, first->addr, end);
        set_range(first, first->addr, end);
    }
    vrpi_block_merge(core, first);
    vrpi_arena_shrink(core, arena);
}

void vrpi_block_free(vrpi_pool *core, vrpi_block *block, uint64_t stamp) {
    vrpi_block_free_run(core, block, block, stamp);
}

void vrpi_block_cut(vrpi_pool *core, vrpi_block *block, uint64_t bytes, uint64_t stamp) {
    vrpi_arena *arena = vrpi_arena_of(core, block);
    uint64_t end = block->addr + VRPI_BYTES(block);
    vrpi_block *rest = link_new(core, arena, vrpi_number_of(core, block), 1);
    set_range(rest, block->addr + bytes, end);
    vrpi_set_state(rest, VRPI_PLACING);
    set_range(block, block->addr, rest->addr);
    vrpi_arena_cover(core, arena, rest, rest->addr, end);
    /* the rest is a block of its own for a moment: it uses its extents too */
    vrpi_extent_use(core, arena, rest->addr, end - rest->addr);
    vrpi_extent_unuse(core, arena, rest->addr, end - rest->addr, arena->stream, stamp);
    vrpi_block_merge(core, rest);
}

uint64_t vrpi_largest_free(vrpi_pool *core) {
    uint64_t largest = 0;
    for (const vrpi_arena *a = core->arenas; a != NULL; a = a->next)
        for (const vrpi_block *b = vrpi_first(core, a); b != NULL; b = vrpi_next(core, b)) {
            uint64_t run = 0, at = b->addr;
            if (b->state != VRPI_FREE)
                continue;
            while (at < b->addr + VRPI_BYTES(b)) { /* backed runs within the block */
                const vrpi_extent *e = a->granules[vrpi_granule_of(core, a, at)];
                uint64_t next = a->base + (vrpi_granule_of(core, a, at) + 1) * core->granularity;
                if (next > b->addr + VRPI_BYTES(b))
                    next = b->addr + VRPI_BYTES(b);
                run = e != NULL && e->state == VRPI_EXTENT_BACKED ? run + (next - at) : 0;
                if (run > largest)
                    largest = run;
                at = next;
            }
        }
    return largest;
}
