/* SPDX-License-Identifier: MIT */
#ifndef VRPI_CORE_TREE_H
#define VRPI_CORE_TREE_H

/* An ordered set of pieces of memory, by (bytes, address): a treap whose nodes
 * live inside what they order. No allocation, O(log n) expected. Priorities
 * come from a hash of the key, so that the same calls build the same tree. */

#include <stdint.h>

typedef struct vrpi_node {
    struct vrpi_node *left, *right, *parent;
    uint64_t bytes;
    uint64_t addr;
    uint32_t priority;
    uint32_t linked; /* 1 while in a tree */
} vrpi_node;

typedef struct vrpi_treap {
    vrpi_node *root;
    uint64_t count;
} vrpi_treap;

void vrpi_treap_insert(vrpi_treap *tree, vrpi_node *node, uint64_t bytes, uint64_t addr);
void vrpi_treap_remove(vrpi_treap *tree, vrpi_node *node);
/* First node at or after (bytes, addr); last node before it; neighbours. */
vrpi_node *vrpi_treap_at_least(const vrpi_treap *tree, uint64_t bytes, uint64_t addr);
vrpi_node *vrpi_treap_below(const vrpi_treap *tree, uint64_t bytes, uint64_t addr);
vrpi_node *vrpi_treap_next(const vrpi_node *node);
vrpi_node *vrpi_treap_prev(const vrpi_node *node);
vrpi_node *vrpi_treap_last(const vrpi_treap *tree);
/* 1 if order, heap property, links and count hold. */
int vrpi_treap_valid(const vrpi_treap *tree);

#endif
