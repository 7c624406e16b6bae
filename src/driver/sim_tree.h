/* SPDX-License-Identifier: MIT */
#ifndef VRPI_SIM_TREE_H
#define VRPI_SIM_TREE_H

/* An ordered map from 64-bit keys to nodes that their owner embeds. Each node
 * stands for the run [key, key + length); the tree also finds the first run of
 * at least a length. All operations take logarithmic time. */

#include <stdint.h>

typedef struct vrpi_tree_node {
    struct vrpi_tree_node *left;
    struct vrpi_tree_node *right;
    uint64_t key;
    uint64_t length;
    uint64_t longest; /* length in this subtree */
    uint32_t priority;
} vrpi_tree_node;

typedef struct vrpi_tree {
    vrpi_tree_node *root;
    uint64_t count;
    uint32_t random;
} vrpi_tree;

/* The node's key and length are set; no other node has that key. */
void vrpi_tree_insert(vrpi_tree *tree, vrpi_tree_node *node);
void vrpi_tree_remove(vrpi_tree *tree, vrpi_tree_node *node);
/* The node with the largest key that is not above `key`; NULL for none. */
vrpi_tree_node *vrpi_tree_at_or_below(const vrpi_tree *tree, uint64_t key);
/* The node with the smallest key above `key`; NULL for none. */
vrpi_tree_node *vrpi_tree_above(const vrpi_tree *tree, uint64_t key);
/* The node whose run holds `key`; NULL for none. */
vrpi_tree_node *vrpi_tree_holding(const vrpi_tree *tree, uint64_t key);
/* The first node whose run overlaps [key, key + length); NULL for none. */
vrpi_tree_node *vrpi_tree_overlapping(const vrpi_tree *tree, uint64_t key, uint64_t length);
/* The node with the smallest key whose run has `length` or more. */
vrpi_tree_node *vrpi_tree_first_fit(const vrpi_tree *tree, uint64_t length);

#endif
