/* SPDX-License-Identifier: MIT */
/* The calls of later.h: arguments are checked, the answer is NOT_SUPPORTED. */

#include "core/core.h"

static vrp_status unsupported(const char *what) {
    return vrpi_fail(VRP_NOT_SUPPORTED, "%s is not supported by this version", what);
}

static vrp_status null_argument(const char *what) {
    return vrpi_fail(VRP_INVALID_ARGUMENT, "%s is NULL", what);
}

vrp_status vrp_graph_pool_create(struct vrp_pool *pool, vrp_graph_pool **out_graph_pool) {
    VRPI_TRY(vrpi_pool_usable(pool));
    return out_graph_pool == NULL ? null_argument("out_graph_pool") : unsupported("a graph pool");
}

vrp_status vrp_graph_pool_begin(vrp_graph_pool *graph_pool, vrp_stream stream) {
    (void)stream;
    return graph_pool == NULL ? null_argument("graph_pool") : unsupported("a graph pool");
}

vrp_status vrp_graph_pool_end(vrp_graph_pool *graph_pool, vrp_stream stream) {
    (void)stream;
    return graph_pool == NULL ? null_argument("graph_pool") : unsupported("a graph pool");
}

vrp_status vrp_graph_pool_release(vrp_graph_pool *graph_pool, const vrp_stream *streams,
                                  size_t stream_count) {
    if (graph_pool == NULL || (streams == NULL && stream_count > 0))
        return null_argument(graph_pool == NULL ? "graph_pool" : "streams");
    return unsupported("a graph pool");
}

static vrp_status target_check(struct vrp_pool *pool, int32_t target) {
    VRPI_TRY(vrpi_pool_usable(pool));
    if (target < VRP_SUSPEND_POOL || target > VRP_SUSPEND_SCOPE)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "no suspend target %d", target);
    return VRP_OK;
}

vrp_status vrp_suspend(struct vrp_pool *pool, int32_t target, uint64_t which, uint32_t flags) {
    (void)which;
    VRPI_TRY(target_check(pool, target));
    if ((flags & ~VRP_SUSPEND_DROP) != 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_suspend: unknown flags 0x%x", flags);
    return unsupported("suspend");
}

vrp_status vrp_resume(struct vrp_pool *pool, int32_t target, uint64_t which) {
    (void)which;
    VRPI_TRY(target_check(pool, target));
    return unsupported("resume");
}

vrp_status vrp_block_export(struct vrp_pool *pool, vrp_devptr ptr, int32_t kind,
                            vrp_export_info *out_info) {
    (void)ptr;
    VRPI_TRY(vrpi_pool_usable(pool));
    if (kind < VRP_EXPORT_POSIX_FD || kind > VRP_EXPORT_DMA_BUF)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "no kind of export %d", kind);
    return out_info == NULL ? null_argument("out_info") : unsupported("export");
}

vrp_status vrp_block_export_close(struct vrp_pool *pool, vrp_devptr ptr) {
    (void)ptr;
    VRPI_TRY(vrpi_pool_usable(pool));
    return unsupported("export");
}
