/* SPDX-License-Identifier: MIT */
/* From an address to the block that starts in its 32 KiB cell (or the slab
 * that covers it): a table of leaves, a leaf per GiB, two dependent loads. */

#include "core/core.h"

enum {
    LEAF_CELLS = 1 << (VRPI_LEAF_SHIFT - VRPI_CELL_SHIFT),
    LEAVES = 1 << (VRPI_ADDRESS_BITS - VRPI_LEAF_SHIFT),
};

static const size_t leaf_bytes = LEAF_CELLS * sizeof(_Atomic(void *));
static const size_t table_bytes = LEAVES * sizeof(_Atomic(_Atomic(void *) *));

vrp_status vrpi_map_init(vrpi_pool *core) {
    core->leaves = vrpi_host_alloc(core, table_bytes);
    if (core->leaves == NULL)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for the address table");
    return VRP_OK;
}

void vrpi_map_end(vrpi_pool *core) {
    if (core->leaves == NULL)
        return;
    for (uint64_t i = core->leaf_low; i < core->leaf_high; i++)
        vrpi_host_free(core, (void *)(uintptr_t)core->leaves[i], leaf_bytes);
    vrpi_host_free(core, core->leaves, table_bytes);
    core->leaves = NULL;
}

vrp_status vrpi_map_prepare(vrpi_pool *core, uint64_t addr, uint64_t bytes) {
    if ((addr + bytes - 1) >> VRPI_ADDRESS_BITS != 0)
        return vrpi_fail(VRP_NOT_SUPPORTED, "the driver gave an address above 2^%d",
                         VRPI_ADDRESS_BITS);
    for (uint64_t i = addr >> VRPI_LEAF_SHIFT; i <= (addr + bytes - 1) >> VRPI_LEAF_SHIFT; i++) {
        _Atomic(void *) *leaf;
        if (atomic_load_explicit(&core->leaves[i], memory_order_relaxed) != NULL)
            continue;
        leaf = vrpi_host_alloc(core, leaf_bytes);
        if (leaf == NULL)
            return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for an address leaf");
        atomic_store_explicit(&core->leaves[i], leaf, memory_order_release);
        if (core->leaf_low == core->leaf_high)
            core->leaf_low = core->leaf_high = i;
        if (i < core->leaf_low)
            core->leaf_low = i;
        if (i >= core->leaf_high)
            core->leaf_high = i + 1;
    }
    return VRP_OK;
}

/* bytes up to one cell: the cell where the block starts; more: all that a slab covers. */
void vrpi_map_set(vrpi_pool *core, uint64_t addr, uint64_t bytes, void *block) {
    for (uint64_t at = addr; at < addr + bytes; at += VRPI_CELL) {
        _Atomic(void *) *leaf = core->leaves[at >> VRPI_LEAF_SHIFT];
        /* release: who finds the block finds it filled in */
        atomic_store_explicit(
            &leaf[(at & ((UINT64_C(1) << VRPI_LEAF_SHIFT) - 1)) >> VRPI_CELL_SHIFT], block,
            memory_order_release);
    }
}
