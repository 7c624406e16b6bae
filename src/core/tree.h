/* SPDX-License-Identifier: MIT */
#ifndef VRPI_CORE_TREE_H
#define VRPI_CORE_TREE_H

/* An ordered set of pieces of memory, by (bytes, address): a treap whose nodes
 * live at the beginning of what they order. No allocation, O(log n) expected.
 * Nodes lie in chunks that never move and name each other by number, which takes
 * half of what pointers do; number 0 is none. Sizes are parted into bins, two a
 * doubling, each with a tree of its own: what is looked for is nearly always in
 * its own bin or at the end of the next one, and the trees are half as deep. A node's priority is a
 * hash of its number, so that the same calls build the same tree. */

#include <stddef.h>
#include <stdint.h>

#define VRPI_UNIT UINT64_C(512) /* grid of blocks */
#define VRPI_UNLINKED UINT32_MAX

typedef struct vrpi_node {
    uint64_t addr;
    uint32_t child[2]; /* less, more */
    uint32_t parent;   /* VRPI_UNLINKED: in no tree */
    uint32_t units;
} vrpi_node;

#define VRPI_UNITS(bytes) ((uint32_t)((bytes) / VRPI_UNIT))
/* of a node, block or extent */
#define VRPI_BYTES(piece) ((uint64_t)(piece)->units * VRPI_UNIT)

/* Where nodes of one kind lie: a number is that of its chunk and, in its low bits,
 * how many times eight bytes from the chunk's beginning. */
#define VRPI_CHUNK_SHIFT 11
#define VRPI_CHUNK_BYTES ((size_t)8 << VRPI_CHUNK_SHIFT) /* at most */

typedef struct vrpi_nodes {
    char **chunk;
    size_t chunk_bytes; /* of each */
    uint32_t chunk_count, chunk_capacity;
    uint32_t unused; /* the first one; its node's child[0] is the next */
    uint32_t unused_count;
} vrpi_nodes;

/* Not of number 0. */
static inline void *vrpi_node_at(const vrpi_nodes *nodes, uint32_t number) {
    return nodes->chunk[number >> VRPI_CHUNK_SHIFT] +
           (size_t)(number & ((1u << VRPI_CHUNK_SHIFT) - 1)) * 8;
}

enum { VRPI_TREAP_BINS = 64 };

typedef struct vrpi_treap {
    const vrpi_nodes *nodes;
    uint64_t filled; /* bins with a tree */
    uint32_t root[VRPI_TREAP_BINS];
    uint32_t count;
} vrpi_treap;

/* The node of that number, which has its address and units. */
void vrpi_treap_insert(vrpi_treap *tree, uint32_t number);
void vrpi_treap_remove(vrpi_treap *tree, vrpi_node *node);
/* First node at or after (bytes, addr); last node before it; neighbours. */
vrpi_node *vrpi_treap_at_least(const vrpi_treap *tree, uint64_t bytes, uint64_t addr);
vrpi_node *vrpi_treap_below(const vrpi_treap *tree, uint64_t bytes, uint64_t addr);
vrpi_node *vrpi_treap_next(const vrpi_treap *tree, const vrpi_node *node);
vrpi_node *vrpi_treap_prev(const vrpi_treap *tree, const vrpi_node *node);
vrpi_node *vrpi_treap_last(const vrpi_treap *tree);
/* 1 if order, heap property, links and count hold. */
int vrpi_treap_valid(const vrpi_treap *tree);

#endif
