/* SPDX-License-Identifier: MIT */
/* The ordered map of the simulated machine: a treap, which needs no parent
 * links and no rebalancing cases. */

#include "driver/sim_tree.h"

#include <stddef.h>

static uint64_t longest_of(const vrpi_tree_node *node) { return node == NULL ? 0 : node->longest; }

static void refresh(vrpi_tree_node *node) {
    uint64_t left = longest_of(node->left);
    uint64_t right = longest_of(node->right);
    node->longest = node->length;
    if (left > node->longest)
        node->longest = left;
    if (right > node->longest)
        node->longest = right;
}

/* Keys below `key` go left, the others right. */
static void split(vrpi_tree_node *node, uint64_t key, vrpi_tree_node **left,
                  vrpi_tree_node **right) {
    if (node == NULL) {
        *left = NULL;
        *right = NULL;
        return;
    }
    if (node->key < key) {
        split(node->right, key, &node->right, right);
        *left = node;
    } else {
        split(node->left, key, left, &node->left);
        *right = node;
    }
    refresh(node);
}

static vrpi_tree_node *merge(vrpi_tree_node *left, vrpi_tree_node *right) {
    if (left == NULL)
        return right;
    if (right == NULL)
        return left;
    if (left->priority > right->priority) {
        left->right = merge(left->right, right);
        refresh(left);
        return left;
    }
    right->left = merge(left, right->left);
    refresh(right);
    return right;
}

static vrpi_tree_node *insert_below(vrpi_tree_node *root, vrpi_tree_node *node) {
    if (root == NULL || node->priority > root->priority) {
        split(root, node->key, &node->left, &node->right);
        refresh(node);
        return node;
    }
    if (node->key < root->key)
        root->left = insert_below(root->left, node);
    else
        root->right = insert_below(root->right, node);
    refresh(root);
    return root;
}

static vrpi_tree_node *remove_below(vrpi_tree_node *root, const vrpi_tree_node *node) {
    if (root == NULL)
        return NULL;
    if (root == node)
        return merge(root->left, root->right);
    if (node->key < root->key)
        root->left = remove_below(root->left, node);
    else
        root->right = remove_below(root->right, node);
    refresh(root);
    return root;
}

void vrpi_tree_insert(vrpi_tree *tree, vrpi_tree_node *node) {
    /* A fixed sequence (xorshift): the shape is the same in every run. */
    uint32_t x = tree->random == 0 ? 0x9e3779b9u : tree->random;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    tree->random = x;
    node->priority = x;
    node->left = NULL;
    node->right = NULL;
    tree->root = insert_below(tree->root, node);
    tree->count++;
}

void vrpi_tree_remove(vrpi_tree *tree, vrpi_tree_node *node) {
    tree->root = remove_below(tree->root, node);
    tree->count--;
}

vrpi_tree_node *vrpi_tree_at_or_below(const vrpi_tree *tree, uint64_t key) {
    vrpi_tree_node *best = NULL;
    vrpi_tree_node *node = tree->root;
    while (node != NULL) {
        if (node->key <= key) {
            best = node;
            node = node->right;
        } else {
            node = node->left;
        }
    }
    return best;
}

vrpi_tree_node *vrpi_tree_above(const vrpi_tree *tree, uint64_t key) {
    vrpi_tree_node *best = NULL;
    vrpi_tree_node *node = tree->root;
    while (node != NULL) {
        if (node->key > key) {
            best = node;
            node = node->left;
        } else {
            node = node->right;
        }
    }
    return best;
}

vrpi_tree_node *vrpi_tree_holding(const vrpi_tree *tree, uint64_t key) {
    vrpi_tree_node *node = vrpi_tree_at_or_below(tree, key);
    return node != NULL && key - node->key < node->length ? node : NULL;
}

vrpi_tree_node *vrpi_tree_overlapping(const vrpi_tree *tree, uint64_t key, uint64_t length) {
    vrpi_tree_node *node = vrpi_tree_holding(tree, key);
    if (node != NULL)
        return node;
    node = vrpi_tree_above(tree, key);
    return node != NULL && node->key - key < length ? node : NULL;
}

vrpi_tree_node *vrpi_tree_first_fit(const vrpi_tree *tree, uint64_t length) {
    vrpi_tree_node *node = tree->root;
    if (longest_of(node) < length)
        return NULL;
    for (;;) {
        if (longest_of(node->left) >= length)
            node = node->left;
        else if (node->length >= length)
            return node;
        else
            node = node->right;
    }
}
