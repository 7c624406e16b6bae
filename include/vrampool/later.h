/* SPDX-License-Identifier: MIT */
#ifndef VRAMPOOL_LATER_H
#define VRAMPOOL_LATER_H

/* Calls whose shape is settled and whose work is not built yet: each answers
 * NOT_SUPPORTED after checking its arguments. Programs can be written against
 * them and ask at run time. Included by vrampool.h. */

#include "driver.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct vrp_pool;

/* ---- Memory of captured graphs ---------------------------------------------
 * A graph pool owns the blocks that are allocated while its streams capture,
 * so that a replay finds its addresses untouched. */

typedef struct vrp_graph_pool vrp_graph_pool;

/* Errors: NOT_SUPPORTED. */
VRP_API VRP_NODISCARD vrp_status vrp_graph_pool_create(struct vrp_pool *pool,
                                                       vrp_graph_pool **out_graph_pool);

/* Starts and ends serving `stream` from the graph pool, around a capture. */
VRP_API VRP_NODISCARD vrp_status vrp_graph_pool_begin(vrp_graph_pool *graph_pool,
                                                      vrp_stream stream);
VRP_API VRP_NODISCARD vrp_status vrp_graph_pool_end(vrp_graph_pool *graph_pool, vrp_stream stream);

/* Gives the blocks back once the work on the streams that the graph was
 * launched on is done; stream_count 0: once the whole context has. */
VRP_API VRP_NODISCARD vrp_status vrp_graph_pool_release(vrp_graph_pool *graph_pool,
                                                        const vrp_stream *streams,
                                                        size_t stream_count);

/* ---- Suspend and resume -----------------------------------------------------
 * Physical memory is released, addresses stay, contents go to pinned host
 * memory or are dropped. Idempotent. */

typedef enum vrp_suspend_target {
    VRP_SUSPEND_POOL = 0,
    VRP_SUSPEND_TAG = 1,
    VRP_SUSPEND_SCOPE = 2,
    VRP_SUSPEND_TARGET_FORCE_INT32 = 0x7fffffff
} vrp_suspend_target;

#define VRP_SUSPEND_DROP (1u << 0) /* contents need not come back */

/* `which` is a tag or a scope, 0 for the pool. Errors: NOT_SUPPORTED. */
VRP_API VRP_NODISCARD vrp_status vrp_suspend(struct vrp_pool *pool, int32_t target, uint64_t which,
                                             uint32_t flags);
VRP_API VRP_NODISCARD vrp_status vrp_resume(struct vrp_pool *pool, int32_t target, uint64_t which);

/* ---- Sharing with other processes -------------------------------------------- */

typedef enum vrp_export_kind {
    VRP_EXPORT_POSIX_FD = 0,
    VRP_EXPORT_IPC = 1,
    VRP_EXPORT_DMA_BUF = 2,
    VRP_EXPORT_KIND_FORCE_INT32 = 0x7fffffff
} vrp_export_kind;

typedef struct vrp_export_info {
    uint32_t struct_size;
    int32_t kind;          /* vrp_export_kind */
    int64_t fd;            /* POSIX_FD, DMA_BUF: owned by the caller */
    uint64_t offset_bytes; /* of the block inside what is exported */
    uint64_t bytes;
    unsigned char ipc_handle[64];
} vrp_export_info;

/* Shares a block; it stays reserved until every importer has closed it.
 * Errors: NOT_SUPPORTED. */
VRP_API VRP_NODISCARD vrp_status vrp_block_export(struct vrp_pool *pool, vrp_devptr ptr,
                                                  int32_t kind, vrp_export_info *out_info);
VRP_API VRP_NODISCARD vrp_status vrp_block_export_close(struct vrp_pool *pool, vrp_devptr ptr);

#ifdef __cplusplus
}
#endif
#endif
