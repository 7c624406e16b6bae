/* SPDX-License-Identifier: MIT */
/* The intrusive treap of tree.h. */

#include "core/tree.h"

static inline vrpi_node *at(const vrpi_treap *tree, uint32_t number) {
    return vrpi_node_at(tree->nodes, number);
}

static int before(uint64_t units_a, uint64_t addr_a, const vrpi_node *b) {
    return units_a != b->units ? units_a < b->units : addr_a < b->addr;
}

/* Rounded up: what has that many bytes has that many units. */
static uint64_t units_of(uint64_t bytes) { return bytes / VRPI_UNIT + (bytes % VRPI_UNIT != 0); }

static uint32_t priority(const vrpi_node *node) {
    uint64_t x =
        node->addr * UINT64_C(0x9e3779b97f4a7c15) ^ node->units * UINT64_C(0xc2b2ae3d27d4eb4f);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return (uint32_t)(x >> 32);
}

/* What names the node whose parent is known. */
static uint32_t *slot_of(vrpi_treap *tree, uint32_t number, uint32_t parent) {
    vrpi_node *above = at(tree, parent);
    if (above == NULL)
        return &tree->root;
    return above->left == number ? &above->left : &above->right;
}

static uint32_t number_of(const vrpi_treap *tree, const vrpi_node *node) {
    const vrpi_node *parent = at(tree, node->parent);
    if (parent == NULL)
        return tree->root;
    return at(tree, parent->left) == node ? parent->left : parent->right;
}

/* Lifts a node above its parent. */
static void rotate_up(vrpi_treap *tree, uint32_t number) {
    vrpi_node *node = at(tree, number);
    uint32_t above = node->parent, middle;
    vrpi_node *parent = at(tree, above);
    uint32_t *slot = slot_of(tree, above, parent->parent);
    if (parent->left == number) {
        middle = node->right;
        parent->left = middle;
        node->right = above;
    } else {
        middle = node->left;
        parent->right = middle;
        node->left = above;
    }
    if (middle != 0)
        at(tree, middle)->parent = above;
    node->parent = parent->parent;
    parent->parent = number;
    *slot = number;
}

void vrpi_treap_insert(vrpi_treap *tree, uint32_t number) {
    vrpi_node *node = at(tree, number), *above = NULL;
    uint32_t *slot = &tree->root;
    uint32_t parent = 0, own;
    while (*slot != 0) {
        parent = *slot;
        above = at(tree, parent);
        slot = before(node->units, node->addr, above) ? &above->left : &above->right;
    }
    node->left = node->right = 0;
    node->parent = parent;
    *slot = number;
    tree->count++;
    if (above == NULL)
        return;
    own = priority(node);
    while (node->parent != 0 && priority(at(tree, node->parent)) < own)
        rotate_up(tree, number);
}

void vrpi_treap_remove(vrpi_treap *tree, vrpi_node *node) {
    uint32_t number = number_of(tree, node), child;
    while (node->left != 0 && node->right != 0)
        rotate_up(tree, priority(at(tree, node->left)) > priority(at(tree, node->right))
                            ? node->left
                            : node->right);
    child = node->left != 0 ? node->left : node->right;
    *slot_of(tree, number, node->parent) = child;
    if (child != 0)
        at(tree, child)->parent = node->parent;
    node->parent = VRPI_UNLINKED;
    tree->count--;
}

vrpi_node *vrpi_treap_at_least(const vrpi_treap *tree, uint64_t bytes, uint64_t addr) {
    vrpi_node *node = at(tree, tree->root);
    vrpi_node *best = NULL;
    uint64_t units = units_of(bytes);
    while (node != NULL) {
        int node_is_less = node->units != units ? node->units < units : node->addr < addr;
        if (!node_is_less)
            best = node;
        node = at(tree, node_is_less ? node->right : node->left);
    }
    return best;
}

vrpi_node *vrpi_treap_below(const vrpi_treap *tree, uint64_t bytes, uint64_t addr) {
    vrpi_node *node = at(tree, tree->root);
    vrpi_node *best = NULL;
    uint64_t units = units_of(bytes);
    while (node != NULL) {
        int node_is_less = node->units != units ? node->units < units : node->addr < addr;
        if (node_is_less)
            best = node;
        node = at(tree, node_is_less ? node->right : node->left);
    }
    return best;
}

vrpi_node *vrpi_treap_next(const vrpi_treap *tree, const vrpi_node *node) {
    vrpi_node *next = at(tree, node->right);
    if (next != NULL) {
        while (next->left != 0)
            next = at(tree, next->left);
        return next;
    }
    for (next = at(tree, node->parent); next != NULL && at(tree, next->right) == node;
         next = at(tree, node->parent))
        node = next;
    return next;
}

vrpi_node *vrpi_treap_prev(const vrpi_treap *tree, const vrpi_node *node) {
    vrpi_node *prev = at(tree, node->left);
    if (prev != NULL) {
        while (prev->right != 0)
            prev = at(tree, prev->right);
        return prev;
    }
    for (prev = at(tree, node->parent); prev != NULL && at(tree, prev->left) == node;
         prev = at(tree, node->parent))
        node = prev;
    return prev;
}

vrpi_node *vrpi_treap_last(const vrpi_treap *tree) {
    vrpi_node *node = at(tree, tree->root);
    while (node != NULL && node->right != 0)
        node = at(tree, node->right);
    return node;
}

int vrpi_treap_valid(const vrpi_treap *tree) {
    uint64_t count = 0;
    vrpi_node *node = at(tree, tree->root);
    const vrpi_node *last = NULL;
    while (node != NULL && node->left != 0)
        node = at(tree, node->left);
    for (; node != NULL; node = vrpi_treap_next(tree, node)) {
        uint32_t number = number_of(tree, node);
        if (node->parent == VRPI_UNLINKED || at(tree, number) != node ||
            (last != NULL && !before(last->units, last->addr, node)))
            return 0;
        if (node->parent != 0 && priority(at(tree, node->parent)) < priority(node))
            return 0;
        if ((node->left != 0 && at(tree, node->left)->parent != number) ||
            (node->right != 0 && at(tree, node->right)->parent != number))
            return 0;
        last = node;
        count++;
    }
    return count == tree->count;
}
