/* SPDX-License-Identifier: MIT */
/* The intrusive treap of tree.h. */

#include "core/tree.h"

static inline vrpi_node *at(const vrpi_treap *tree, uint32_t number) {
    return vrpi_node_at(tree->nodes, number);
}

static inline vrpi_node *at_or_null(const vrpi_treap *tree, uint32_t number) {
    return number == 0 ? NULL : at(tree, number);
}

static inline int is_less(uint64_t units_a, uint64_t addr_a, uint64_t units_b, uint64_t addr_b) {
    return units_a != units_b ? units_a < units_b : addr_a < addr_b;
}

static inline int before(const vrpi_node *a, const vrpi_node *b) {
    return is_less(a->units, a->addr, b->units, b->addr);
}

/* Rounded up: what has that many bytes has that many units. */
static uint64_t units_of(uint64_t bytes) { return bytes / VRPI_UNIT + (bytes % VRPI_UNIT != 0); }

static uint32_t priority(uint32_t number) {
    uint32_t x = number * UINT32_C(0x9e3779b1);
    return (x ^ x >> 15) * UINT32_C(0x85ebca6b);
}

/* By the highest bit and the one below it. */
static inline uint32_t bin_of(uint64_t units) {
    uint32_t high = 63 - (uint32_t)__builtin_clzll(units | 1);
    return high > 31 ? VRPI_TREAP_BINS - 1 : high * 2 + (uint32_t)(units << 1 >> high & 1);
}

/* Nodes below `top` go to both sides of the new node, whose key lies between. */
static void split(const vrpi_treap *tree, uint32_t top, vrpi_node *node, uint32_t number) {
    uint32_t *end[2] = {&node->child[0], &node->child[1]};
    uint32_t parent[2] = {number, number};
    while (top != 0) {
        vrpi_node *next = at(tree, top);
        int side = before(node, next); /* where `next` goes */
        *end[side] = top;
        next->parent = parent[side];
        parent[side] = top;
        end[side] = &next->child[!side];
        top = next->child[!side];
    }
    *end[0] = *end[1] = 0;
}

void vrpi_treap_insert(vrpi_treap *tree, uint32_t number) {
    vrpi_node *node = at(tree, number);
    uint32_t parent = 0, below = 0, own = priority(number);
    const uint64_t units = node->units, addr = node->addr;
    const uint32_t bin = bin_of(units);
    int more = 0; /* which child of `parent` */
    for (uint32_t next = tree->root[bin]; next != 0;) {
        const vrpi_node *above = at(tree, next);
        parent = next;
        more = !is_less(units, addr, above->units, above->addr);
        next = above->child[more];
    }
    for (; parent != 0 && priority(parent) < own; parent = at(tree, parent)->parent)
        below = parent;
    node->parent = parent;
    if (parent == 0)
        tree->root[bin] = number;
    else if (below == 0)
        at(tree, parent)->child[more] = number;
    else
        at(tree, parent)->child[at(tree, parent)->child[0] != below] = number;
    split(tree, below, node, number);
    tree->filled |= UINT64_C(1) << bin;
    tree->count++;
}

void vrpi_treap_remove(vrpi_treap *tree, vrpi_node *node) {
    uint32_t parent = node->parent, left = node->child[0], right = node->child[1];
    const uint32_t bin = bin_of(node->units);
    uint32_t *slot = &tree->root[bin];
    if (parent != 0) {
        vrpi_node *above = at(tree, parent);
        slot = &above->child[!before(node, above)];
    }
    while (left != 0 && right != 0) {
        int side = priority(left) > priority(right);
        uint32_t number = side ? left : right;
        vrpi_node *upper = at(tree, number);
        *slot = number;
        upper->parent = parent;
        parent = number;
        slot = &upper->child[side];
        *(side ? &left : &right) = *slot;
    }
    left |= right; /* one of them is 0 */
    *slot = left;
    if (left != 0)
        at(tree, left)->parent = parent;
    if (tree->root[bin] == 0)
        tree->filled &= ~(UINT64_C(1) << bin);
    node->parent = VRPI_UNLINKED;
    tree->count--;
}

/* The end of the tree of a bin: 0 the least, 1 the greatest. */
static vrpi_node *end_of(const vrpi_treap *tree, uint32_t bin, int side) {
    vrpi_node *node = at(tree, tree->root[bin]);
    while (node->child[side] != 0)
        node = at(tree, node->child[side]);
    return node;
}

/* The least node of the bins above, the greatest of those below; NULL: none. */
static vrpi_node *first_above(const vrpi_treap *tree, uint32_t bin) {
    uint64_t above = tree->filled & ~(UINT64_MAX >> (VRPI_TREAP_BINS - 1 - bin));
    return above == 0 ? NULL : end_of(tree, (uint32_t)__builtin_ctzll(above), 0);
}
static vrpi_node *last_below(const vrpi_treap *tree, uint32_t bin) {
    uint64_t below = tree->filled & ((UINT64_C(1) << bin) - 1);
    return below == 0 ? NULL : end_of(tree, 63 - (uint32_t)__builtin_clzll(below), 1);
}

vrpi_node *vrpi_treap_at_least(const vrpi_treap *tree, uint64_t bytes, uint64_t addr) {
    vrpi_node *best = NULL;
    const uint64_t units = units_of(bytes);
    const uint32_t bin = bin_of(units);
    for (uint32_t number = tree->root[bin]; number != 0;) {
        vrpi_node *node = at(tree, number);
        int less = is_less(node->units, node->addr, units, addr);
        best = less ? best : node;
        number = node->child[less];
    }
    return best != NULL ? best : first_above(tree, bin);
}

vrpi_node *vrpi_treap_below(const vrpi_treap *tree, uint64_t bytes, uint64_t addr) {
    vrpi_node *best = NULL;
    const uint64_t units = units_of(bytes);
    const uint32_t bin = bin_of(units);
    for (uint32_t number = tree->root[bin]; number != 0;) {
        vrpi_node *node = at(tree, number);
        int less = is_less(node->units, node->addr, units, addr);
        best = less ? node : best;
        number = node->child[less];
    }
    return best != NULL ? best : last_below(tree, bin);
}

/* Whether the number is that node's. */
static int is(const vrpi_treap *tree, uint32_t number, const vrpi_node *node) {
    return number != 0 && at(tree, number) == node;
}

vrpi_node *vrpi_treap_next(const vrpi_treap *tree, const vrpi_node *node) {
    vrpi_node *next = at_or_null(tree, node->child[1]);
    if (next != NULL) {
        while (next->child[0] != 0)
            next = at(tree, next->child[0]);
        return next;
    }
    for (next = at_or_null(tree, node->parent); next != NULL && is(tree, next->child[1], node);
         next = at_or_null(tree, node->parent))
        node = next;
    return next != NULL ? next : first_above(tree, bin_of(node->units));
}

vrpi_node *vrpi_treap_prev(const vrpi_treap *tree, const vrpi_node *node) {
    vrpi_node *prev = at_or_null(tree, node->child[0]);
    if (prev != NULL) {
        while (prev->child[1] != 0)
            prev = at(tree, prev->child[1]);
        return prev;
    }
    for (prev = at_or_null(tree, node->parent); prev != NULL && is(tree, prev->child[0], node);
         prev = at_or_null(tree, node->parent))
        node = prev;
    return prev != NULL ? prev : last_below(tree, bin_of(node->units));
}

vrpi_node *vrpi_treap_last(const vrpi_treap *tree) {
    return tree->filled == 0 ? NULL : end_of(tree, 63 - (uint32_t)__builtin_clzll(tree->filled), 1);
}

/* What a child says of its parent, and its place in the heap. */
static int child_valid(const vrpi_treap *tree, uint32_t child, uint32_t parent) {
    return child == 0 || (at(tree, child)->parent == parent && priority(child) < priority(parent));
}

int vrpi_treap_valid(const vrpi_treap *tree) {
    uint64_t count = 0;
    const vrpi_node *last = NULL;
    vrpi_node *node =
        tree->filled == 0 ? NULL : end_of(tree, (uint32_t)__builtin_ctzll(tree->filled), 0);
    for (uint32_t bin = 0; bin < VRPI_TREAP_BINS; bin++)
        if ((tree->root[bin] != 0) != (tree->filled >> bin & 1))
            return 0;
    for (; node != NULL; node = vrpi_treap_next(tree, node)) {
        const vrpi_node *parent;
        uint32_t number = tree->root[bin_of(node->units)];
        if (node->parent == VRPI_UNLINKED)
            return 0;
        if ((parent = at_or_null(tree, node->parent)) != NULL)
            number = is(tree, parent->child[0], node) ? parent->child[0] : parent->child[1];
        if (!is(tree, number, node) || !child_valid(tree, node->child[0], number) ||
            !child_valid(tree, node->child[1], number) || (last != NULL && !before(last, node)))
            return 0;
        last = node;
        count++;
    }
    return count == tree->count;
}
