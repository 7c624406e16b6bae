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

static void nodes_put(vrpi_nodes *nodes, uint32_t number) {
    ((vrpi_node *)vrpi_node_at(nodes, number))->child[0] = nodes->unused;
    nodes->unused = number;
    nodes->unused_count++;
}

static uint32_t nodes_take(vrpi_nodes *nodes) {
    uint32_t number = nodes->unused;
    nodes->unused = ((const vrpi_node *)vrpi_node_at(nodes, number))->child[0];
    nodes->unused_count--;
    return number;
}

/* As many nodes more as a chunk of so many bytes has. */
static int nodes_add(vrpi_pool *core, vrpi_nodes *nodes, size_t node_bytes, size_t chunk_bytes) {
    uint32_t first = nodes->chunk_count << VRPI_CHUNK_SHIFT;
    char *chunk;
    if (nodes->chunk_count == nodes->chunk_capacity) {
        uint32_t capacity = nodes->chunk_capacity == 0 ? 8 : nodes->chunk_capacity * 2;
        char **grown = vrpi_host_alloc(core, capacity * sizeof *grown);
        if (grown == NULL)
            return 0;
        if (nodes->chunk_count > 0)
            memcpy(grown, nodes->chunk, nodes->chunk_count * sizeof *grown);
        vrpi_host_free(core, nodes->chunk, nodes->chunk_capacity * sizeof *grown);
        nodes->chunk = grown;
        nodes->chunk_capacity = capacity;
    }
    nodes->chunk_bytes = chunk_bytes;
    chunk = vrpi_host_alloc(core, chunk_bytes);
    if (chunk == NULL)
        return 0;
    nodes->chunk[nodes->chunk_count++] = chunk;
    /* the lowest is used first; number 0 is none */
    for (size_t i = chunk_bytes / node_bytes; i-- > (first == 0);)
        nodes_put(nodes, first + (uint32_t)(i * node_bytes / 8));
    return 1;
}

static void nodes_end(vrpi_pool *core, vrpi_nodes *nodes) {
    for (uint32_t i = 0; i < nodes->chunk_count; i++)
        vrpi_host_free(core, nodes->chunk[i], nodes->chunk_bytes);
    vrpi_host_free(core, nodes->chunk, nodes->chunk_capacity * sizeof *nodes->chunk);
    memset(nodes, 0, sizeof *nodes);
}

static vrp_status no_memory(const char *what) {
    return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for %s", what);
}

vrp_status vrpi_nodes_reserve(vrpi_pool *core, uint32_t blocks, uint32_t extents, uint32_t ghosts) {
    while (core->block_nodes.unused_count < blocks)
        if (!nodes_add(core, &core->block_nodes, sizeof(vrpi_block), VRPI_CHUNK_BYTES))
            return no_memory("blocks");
    while (core->extent_nodes.unused_count < extents)
        if (!nodes_add(core, &core->extent_nodes, sizeof(vrpi_extent), VRPI_CHUNK_BYTES / 4))
            return no_memory("extents");
    while (core->free_ghost_count < ghosts) {
        size_t bytes;
        char *nodes = vrpi_chunk_new(core, &bytes);
        if (nodes == NULL)
            return no_memory("mappings");
        for (; bytes >= sizeof(vrpi_ghost);
             bytes -= sizeof(vrpi_ghost), nodes += sizeof(vrpi_ghost))
            vrpi_ghost_node_free(core, (vrpi_ghost *)(void *)nodes);
    }
    return vrpi_map_reserve(core);
}

uint32_t vrpi_block_node(vrpi_pool *core) {
    uint32_t number = nodes_take(&core->block_nodes);
    vrpi_block *block = vrpi_block_of(core, number);
    memset(block, 0, sizeof *block);
    block->node.parent = VRPI_UNLINKED;
    return number;
}

void vrpi_block_node_free(vrpi_pool *core, uint32_t number) {
    vrpi_block *block = vrpi_block_of(core, number);
    block->arena = 0; /* a stale pointer to it finds nothing */
    vrpi_set_state(block, VRPI_FREE);
    nodes_put(&core->block_nodes, number);
}

vrpi_extent *vrpi_extent_node(vrpi_pool *core) {
    uint32_t number = nodes_take(&core->extent_nodes);
    vrpi_extent *extent = vrpi_node_at(&core->extent_nodes, number);
    memset(extent, 0, sizeof *extent);
    extent->number = number;
    extent->node.parent = VRPI_UNLINKED;
    return extent;
}

void vrpi_extent_node_free(vrpi_pool *core, vrpi_extent *extent) {
    nodes_put(&core->extent_nodes, extent->number);
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
    nodes_end(core, &core->block_nodes);
    nodes_end(core, &core->extent_nodes);
    while (core->chunks != NULL) {
        vrpi_chunk *chunk = core->chunks;
        core->chunks = chunk->next;
        vrpi_host_free(core, chunk, chunk->bytes);
    }
}
