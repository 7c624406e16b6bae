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
static void life_learn(const vrpi_pool *core, const vrpi_block *block) {
    uint32_t *life = &block->arena->stream->life[vrpi_life_bucket(block->bytes)];
    uint64_t lived = core->ticks - block->born + 1;
    uint64_t old = *life - *life / 10;
    *life = (uint32_t)(lived > old ? (lived > UINT32_MAX ? UINT32_MAX : lived) : old);
}

/* Puts `block` into the address list before or behind `at`. */
static void link_block(vrpi_block *at, vrpi_block *block, int behind) {
    vrpi_arena *arena = at->arena;
    block->arena = arena;
    block->prev = behind ? at : at->prev;
    block->next = behind ? at->next : at;
    if (block->prev != NULL)
        block->prev->next = block;
    else
        arena->first = block;
    if (block->next != NULL)
        block->next->prev = block;
    else
        arena->last = block;
}

static void unlink_block(vrpi_block *block) {
    vrpi_arena *arena = block->arena;
    if (block->prev != NULL)
        block->prev->next = block->next;
    else
        arena->first = block->next;
    if (block->next != NULL)
        block->next->prev = block->prev;
    else
        arena->last = block->prev;
}

static void tree_add(vrpi_block *block) {
    if (block->arena->space != NULL)
        vrpi_treap_insert(&block->arena->space->free, &block->node, block->bytes, block->addr);
}

static void tree_take(vrpi_block *block) {
    if (block->node.linked)
        vrpi_treap_remove(&block->arena->space->free, &block->node);
}

vrpi_block *vrpi_block_carve(vrpi_pool *core, vrpi_block *block, uint64_t addr, uint64_t bytes) {
    vrpi_arena *arena = block->arena;
    uint64_t start = block->addr, end = block->addr + block->bytes;
    tree_take(block);
    /* The larger remainder keeps the node, so that few granules change hands. */
    if (end - (addr + bytes) > 0 && (addr > start || end - (addr + bytes) >= bytes)) {
        vrpi_block *rest = block;
        if (addr > start) {
            rest = vrpi_block_node(core);
            link_block(block, rest, 1);
            vrpi_arena_cover(core, arena, rest, addr + bytes, end);
        } else {
            vrpi_block *taken = vrpi_block_node(core);
            link_block(block, taken, 0);
            vrpi_arena_cover(core, arena, taken, addr, addr + bytes);
            block = taken;
            block->addr = start;
        }
        rest->addr = addr + bytes;
        rest->bytes = end - rest->addr;
        rest->state = VRPI_FREE;
        tree_add(rest);
    } else if (end > addr + bytes) {
        vrpi_block *rest = vrpi_block_node(core);
        link_block(block, rest, 1);
        rest->addr = addr + bytes;
        rest->bytes = end - rest->addr;
        vrpi_arena_cover(core, arena, rest, rest->addr, end);
        tree_add(rest);
    }
    if (addr > start) {
        vrpi_block *taken = vrpi_block_node(core);
        link_block(block, taken, 1);
        vrpi_arena_cover(core, arena, taken, addr, addr + bytes);
        block->bytes = addr - start;
        tree_add(block);
        block = taken;
    }
    block->addr = addr;
    block->bytes = bytes;
    block->state = VRPI_LIVE;
    return block;
}

void vrpi_block_merge(vrpi_pool *core, vrpi_block *block) {
    vrpi_arena *arena = block->arena;
    vrpi_block *other;
    block->state = VRPI_FREE;
    block->slab = NULL;
    block->tag = 0;
    for (int behind = 0; behind < 2; behind++) {
        other = behind ? block->next : block->prev;
        if (other == NULL || other->state != VRPI_FREE)
            continue;
        tree_take(other);
        tree_take(block);
        if (other->bytes > block->bytes) { /* the larger keeps its node */
            vrpi_block *swap = block;
            block = other;
            other = swap;
        }
        vrpi_arena_cover(core, arena, block, other->addr, other->addr + other->bytes);
        if (other->addr < block->addr)
            block->addr = other->addr;
        block->bytes += other->bytes;
        unlink_block(other);
        vrpi_block_node_free(core, other);
    }
    tree_add(block);
}

vrpi_block *vrpi_block_at(const vrpi_pool *core, const vrpi_arena *arena, uint64_t addr) {
    vrpi_block *block;
    if (addr < arena->base || addr >= arena->end)
        return NULL;
    block = arena->starts[vrpi_granule_of(core, arena, addr)];
    while (block != NULL && block->addr + block->bytes <= addr)
        block = block->next;
    return block;
}

vrpi_arena *vrpi_arena_at(const vrpi_pool *core, uint64_t addr) {
    for (vrpi_arena *a = core->arenas; a != NULL; a = a->next)
        if (addr >= a->base && addr - a->base < a->bytes)
            return a;
    return NULL;
}

/* One block in use goes out of use; what is left of it is a node in the list. */
static void retire_block(vrpi_pool *core, vrpi_block *block, uint64_t stamp) {
    vrpi_arena *arena = block->arena;
    if (arena->space != NULL) {
        arena->space->freed_bytes += block->bytes;
        life_learn(core, block);
    }
    vrpi_extent_unuse(core, arena, block->addr, block->bytes, arena->stream, stamp);
    vrpi_map_take(core, block);
    arena->used_blocks--;
}

void vrpi_block_free_run(vrpi_pool *core, vrpi_block *first, const vrpi_block *last,
                         uint64_t stamp) {
    vrpi_arena *arena = first->arena;
    uint64_t bytes = 0;
    for (vrpi_block *b = first, *next;; b = next) {
        int ends = b == last;
        next = b->next;
        bytes += b->bytes;
        retire_block(core, b, stamp);
        if (b != first) {
            unlink_block(b);
            vrpi_block_node_free(core, b);
        }
        if (ends)
            break;
    }
    if (bytes != first->bytes)
        vrpi_arena_cover(core, arena, first, first->addr, first->addr + bytes);
    first->bytes = bytes;
    vrpi_block_merge(core, first);
    vrpi_arena_shrink(core, arena);
}

void vrpi_block_free(vrpi_pool *core, vrpi_block *block, uint64_t stamp) {
    vrpi_block_free_run(core, block, block, stamp);
}

void vrpi_block_cut(vrpi_pool *core, vrpi_block *block, uint64_t bytes, uint64_t stamp) {
    vrpi_arena *arena = block->arena;
    vrpi_block *rest = vrpi_block_node(core);
    link_block(block, rest, 1);
    rest->addr = block->addr + bytes;
    rest->bytes = block->bytes - bytes;
    rest->state = VRPI_PLACING;
    block->bytes = bytes;
    vrpi_arena_cover(core, arena, rest, rest->addr, rest->addr + rest->bytes);
    /* the rest is a block of its own for a moment: it uses its extents too */
    vrpi_extent_use(core, arena, rest->addr, rest->bytes);
    vrpi_extent_unuse(core, arena, rest->addr, rest->bytes, arena->stream, stamp);
    vrpi_block_merge(core, rest);
}

uint64_t vrpi_largest_free(vrpi_pool *core) {
    uint64_t largest = 0;
    for (const vrpi_arena *a = core->arenas; a != NULL; a = a->next)
        for (const vrpi_block *b = a->first; b != NULL; b = b->next) {
            uint64_t run = 0, at = b->addr;
            if (b->state != VRPI_FREE)
                continue;
            while (at < b->addr + b->bytes) { /* backed runs within the block */
                const vrpi_extent *e = a->granules[vrpi_granule_of(core, a, at)];
                uint64_t next = a->base + (vrpi_granule_of(core, a, at) + 1) * core->granularity;
                if (next > b->addr + b->bytes)
                    next = b->addr + b->bytes;
                run = e != NULL && e->state == VRPI_EXTENT_BACKED ? run + (next - at) : 0;
                if (run > largest)
                    largest = run;
                at = next;
            }
        }
    return largest;
}
