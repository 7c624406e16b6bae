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

typedef struct vrpi_tree {
    vrpi_node *root;
    uint64_t count;
} vrpi_tree;

void vrpi_tree_insert(vrpi_tree *tree, vrpi_node *node, uint64_t bytes, uint64_t addr);
void vrpi_tree_remove(vrpi_tree *tree, vrpi_node *node);
/* First node at or after (bytes, addr); last node before it; neighbours. */
vrpi_node *vrpi_tree_at_least(const vrpi_tree *tree, uint64_t bytes, uint64_t addr);
vrpi_node *vrpi_tree_below(const vrpi_tree *tree, uint64_t bytes, uint64_t addr);
vrpi_node *vrpi_tree_next(const vrpi_node *node);
vrpi_node *vrpi_tree_prev(const vrpi_node *node);
vrpi_node *vrpi_tree_last(const vrpi_tree *tree);
/* 1 if order, heap property, links and count hold. */
int vrpi_tree_valid(const vrpi_tree *tree);

#endif
