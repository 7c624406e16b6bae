/* SPDX-License-Identifier: MIT */
/* Host memory of a pool: the user's or libc's allocator, and reserves of the
 * small structures so that no operation fails half-way. */

#include "core/core.h"

#include <stdlib.h>
#include <string.h>

typedef struct vrpi_chunk {
    struct vrpi_chunk *next;
    size_t bytes;
} vrpi_chunk;

enum { CHUNK_BYTES = 16384 };

void *vrpi_host_alloc(vrpi_pool *core, size_t bytes) {
    void *ptr;
    if (core->config.host_alloc != NULL) {
        ptr = core->config.host_alloc(core->config.host_user, bytes);
        if (ptr != NULL)
            memset(ptr, 0, bytes);
    } else {
        ptr = calloc(1, bytes);
    }
    if (ptr != NULL)
        (void)atomic_fetch_add_explicit(&core->host_bytes, bytes, memory_order_relaxed);
    return ptr;
}

void vrpi_host_free(vrpi_pool *core, void *ptr, size_t bytes) {
    if (ptr == NULL)
        return;
    (void)atomic_fetch_sub_explicit(&core->host_bytes, bytes, memory_order_relaxed);
    if (core->config.host_free != NULL)
        core->config.host_free(core->config.host_user, ptr, bytes);
    else
        free(ptr);
}

char *vrpi_chunk_new(vrpi_pool *core, size_t *out_bytes) {
    vrpi_chunk *chunk = vrpi_host_alloc(core, CHUNK_BYTES);
    if (chunk == NULL)
        return NULL;
    chunk->bytes = CHUNK_BYTES;
    chunk->next = core->chunks;
    core->chunks = chunk;
    *out_bytes = CHUNK_BYTES - sizeof *chunk;
    return (char *)chunk + sizeof *chunk;
}

/* A chunk of equal nodes; returns the first, *out_count how many. */
static char *chunk_new(vrpi_pool *core, size_t node_bytes, uint32_t *out_count) {
    size_t bytes;
    char *nodes = vrpi_chunk_new(core, &bytes);
    if (nodes != NULL)
        *out_count = (uint32_t)(bytes / node_bytes);
    return nodes;
}

vrp_status vrpi_nodes_reserve(vrpi_pool *core, uint32_t blocks, uint32_t extents, uint32_t ghosts) {
    uint32_t count;
    char *nodes;
    while (core->free_block_count < blocks) {
        if ((nodes = chunk_new(core, sizeof(vrpi_block), &count)) == NULL)
            return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for %zu bytes of blocks",
                             (size_t)CHUNK_BYTES);
        for (uint32_t i = count; i-- > 0;)
            vrpi_block_node_free(core, (vrpi_block *)(void *)(nodes + i * sizeof(vrpi_block)));
    }
    while (core->free_extent_count < extents) {
        if ((nodes = chunk_new(core, sizeof(vrpi_extent), &count)) == NULL)
            return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for %zu bytes of extents",
                             (size_t)CHUNK_BYTES);
        for (uint32_t i = count; i-- > 0;)
            vrpi_extent_node_free(core, (vrpi_extent *)(void *)(nodes + i * sizeof(vrpi_extent)));
    }
    while (core->free_ghost_count < ghosts) {
        if ((nodes = chunk_new(core, sizeof(vrpi_ghost), &count)) == NULL)
            return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for %zu bytes of mappings",
                             (size_t)CHUNK_BYTES);
        for (uint32_t i = count; i-- > 0;)
            vrpi_ghost_node_free(core, (vrpi_ghost *)(void *)(nodes + i * sizeof(vrpi_ghost)));
    }
    return vrpi_map_reserve(core);
}

vrpi_block *vrpi_block_node(vrpi_pool *core) {
    vrpi_block *block = core->free_blocks;
    core->free_blocks = block->next;
    core->free_block_count--;
    memset(block, 0, sizeof *block);
    return block;
}

void vrpi_block_node_free(vrpi_pool *core, vrpi_block *block) {
    block->arena = NULL; /* a stale pointer to it finds nothing */
    atomic_store_explicit(&block->state, VRPI_FREE, memory_order_relaxed);
    block->next = core->free_blocks;
    core->free_blocks = block;
    core->free_block_count++;
}

vrpi_extent *vrpi_extent_node(vrpi_pool *core) {
    vrpi_extent *extent = core->free_extents;
    core->free_extents = extent->next;
    core->free_extent_count--;
    memset(extent, 0, sizeof *extent);
    return extent;
}

void vrpi_extent_node_free(vrpi_pool *core, vrpi_extent *extent) {
    extent->next = core->free_extents;
    core->free_extents = extent;
    core->free_extent_count++;
}

vrpi_ghost *vrpi_ghost_node(vrpi_pool *core) {
    vrpi_ghost *ghost = core->free_ghosts;
    core->free_ghosts = ghost->next;
    core->free_ghost_count--;
    memset(ghost, 0, sizeof *ghost);
    return ghost;
}

void vrpi_ghost_node_free(vrpi_pool *core, vrpi_ghost *ghost) {
    ghost->next = core->free_ghosts;
    core->free_ghosts = ghost;
    core->free_ghost_count++;
}

void vrpi_host_end(vrpi_pool *core) {
    while (core->chunks != NULL) {
        vrpi_chunk *chunk = core->chunks;
        core->chunks = chunk->next;
        vrpi_host_free(core, chunk, chunk->bytes);
    }
}
