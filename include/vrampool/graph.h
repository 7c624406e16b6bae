/* SPDX-License-Identifier: MIT */
#ifndef VRAMPOOL_GRAPH_H
#define VRAMPOOL_GRAPH_H

/* Memory of captured graphs. A graph pool owns what is allocated while its
 * streams capture, so that a launch finds its addresses untouched: that memory
 * serves later allocations of the same capture stream, and nobody else until
 * the graph pool is released. Included by vrampool.h. */

#include "driver.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct vrp_pool;

typedef struct vrp_graph_pool vrp_graph_pool;

/* Makes an empty graph pool of `pool`, to be ended by vrp_graph_pool_release.
 * A pool with graph pools answers BUSY to vrp_pool_destroy.
 * Errors: OUT_OF_HOST_MEMORY. Any thread. */
VRP_API VRP_NODISCARD vrp_status vrp_graph_pool_create(struct vrp_pool *pool,
                                                       vrp_graph_pool **out_graph_pool);

/* To be called right before the capture of `stream` begins, and right after it
 * ended: announces the capture (as vrp_capture_begin and vrp_capture_end do) and
 * has allocations on that stream served from the graph pool meanwhile. Several
 * streams of one capture may use one graph pool, each with memory of its own;
 * so may several captures in turn, if their graphs are launched one after the
 * other in stream order. Errors: INVALID_ARGUMENT (already, or not, capturing;
 * of another graph pool), OUT_OF_HOST_MEMORY (also: more than 64 streams). Any
 * thread. What is freed on any named stream while the graph pool lives serves its
 * captures again; VRP_STREAM_ANY keeps it until the context is done. */
VRP_API VRP_NODISCARD vrp_status vrp_graph_pool_begin(vrp_graph_pool *graph_pool,
                                                      vrp_stream stream);
VRP_API VRP_NODISCARD vrp_status vrp_graph_pool_end(vrp_graph_pool *graph_pool, vrp_stream stream);

/* Ends the graph pool; its graphs are not launched any more. The memory goes
 * back to the pool once the work on the streams that they were launched on is
 * done; stream_count 0: once everything given to the context so far is. Blocks
 * that are still live stay so until they are freed. Never waits.
 * Errors: BUSY (a stream is capturing), INVALID_ARGUMENT (VRP_STREAM_ANY or
 * VRP_STREAM_OF_ALLOC among the streams), OUT_OF_HOST_MEMORY; then the graph pool
 * is as before. Any thread, but none may use the graph pool during or after it. */
VRP_API VRP_NODISCARD vrp_status vrp_graph_pool_release(vrp_graph_pool *graph_pool,
                                                        const vrp_stream *streams,
                                                        size_t stream_count);

#ifdef __cplusplus
}
#endif
#endif
