/* SPDX-License-Identifier: MIT */
/* The intrusive treap of tree.h. */

#include "core/tree.h"

#include <stddef.h>

static int before(uint64_t bytes_a, uint64_t addr_a, const vrpi_node *b) {
    return bytes_a != b->bytes ? bytes_a < b->bytes : addr_a < b->addr;
}

static uint32_t hash_of(uint64_t bytes, uint64_t addr) {
    uint64_t x = addr * UINT64_C(0x9e3779b97f4a7c15) ^ bytes * UINT64_C(0xc2b2ae3d27d4eb4f);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return (uint32_t)(x >> 32);
}

static vrpi_node **slot_of(vrpi_treap *tree, vrpi_node *node) {
    if (node->parent == NULL)
        return &tree->root;
    return node->parent->left == node ? &node->parent->left : &node->parent->right;
}

/* Lifts `node` above its parent. */
static void rotate_up(vrpi_treap *tree, vrpi_node *node) {
    vrpi_node *parent = node->parent;
    vrpi_node **slot = slot_of(tree, parent);
    vrpi_node *middle;
    if (parent->left == node) {
        middle = node->right;
        parent->left = middle;
        node->right = parent;
    } else {
        middle = node->left;
        parent->right = middle;
        node->left = parent;
    }
    if (middle != NULL)
        middle->parent = parent;
    node->parent = parent->parent;
    parent->parent = node;
    *slot = node;
}

void vrpi_treap_insert(vrpi_treap *tree, vrpi_node *node, uint64_t bytes, uint64_t addr) {
    vrpi_node **slot = &tree->root;
    vrpi_node *parent = NULL;
    while (*slot != NULL) {
        parent = *slot;
        slot = before(bytes, addr, parent) ? &parent->left : &parent->right;
    }
    node->left = node->right = NULL;
    node->parent = parent;
    node->bytes = bytes;
    node->addr = addr;
    node->priority = hash_of(bytes, addr);
    node->linked = 1;
    *slot = node;
    tree->count++;
    while (node->parent != NULL && node->parent->priority < node->priority)
        rotate_up(tree, node);
}

void vrpi_treap_remove(vrpi_treap *tree, vrpi_node *node) {
    vrpi_node **slot;
    vrpi_node *child;
    while (node->left != NULL && node->right != NULL)
        rotate_up(tree, node->left->priority > node->right->priority ? node->left : node->right);
    child = node->left != NULL ? node->left : node->right;
    slot = slot_of(tree, node);
    if (child != NULL)
        child->parent = node->parent;
    *slot = child;
    node->linked = 0;
    tree->count--;
}

vrpi_node *vrpi_treap_at_least(const vrpi_treap *tree, uint64_t bytes, uint64_t addr) {
    vrpi_node *node = tree->root;
    vrpi_node *best = NULL;
    while (node != NULL) {
        int node_is_less = node->bytes != bytes ? node->bytes < bytes : node->addr < addr;
        if (node_is_less) {
            node = node->right;
        } else {
            best = node;
            node = node->left;
        }
    }
    return best;
}

vrpi_node *vrpi_treap_below(const vrpi_treap *tree, uint64_t bytes, uint64_t addr) {
    vrpi_node *node = tree->root;
    vrpi_node *best = NULL;
    while (node != NULL) {
        int node_is_less = node->bytes != bytes ? node->bytes < bytes : node->addr < addr;
        if (node_is_less) {
            best = node;
            node = node->right;
        } else {
            node = node->left;
        }
    }
    return best;
}

vrpi_node *vrpi_treap_next(const vrpi_node *node) {
    if (node->right != NULL) {
        vrpi_node *next = node->right;
        while (next->left != NULL)
            next = next->left;
        return next;
    }
    while (node->parent != NULL && node->parent->right == node)
        node = node->parent;
    return node->parent;
}

vrpi_node *vrpi_treap_prev(const vrpi_node *node) {
    if (node->left != NULL) {
        vrpi_node *prev = node->left;
        while (prev->right != NULL)
            prev = prev->right;
        return prev;
    }
    while (node->parent != NULL && node->parent->left == node)
        node = node->parent;
    return node->parent;
}

vrpi_node *vrpi_treap_last(const vrpi_treap *tree) {
    vrpi_node *node = tree->root;
    while (node != NULL && node->right != NULL)
        node = node->right;
    return node;
}

int vrpi_treap_valid(const vrpi_treap *tree) {
    uint64_t count = 0;
    vrpi_node *node = tree->root;
    const vrpi_node *last = NULL;
    while (node != NULL && node->left != NULL)
        node = node->left;
    for (; node != NULL; node = vrpi_treap_next(node)) {
        if (!node->linked || (last != NULL && !before(last->bytes, last->addr, node)))
            return 0;
        if (node->parent != NULL && node->parent->priority < node->priority)
            return 0;
        if ((node->left != NULL && node->left->parent != node) ||
            (node->right != NULL && node->right->parent != node))
            return 0;
        last = node;
        count++;
    }
    return count == tree->count;
}
