/* SPDX-License-Identifier: MIT */
/* Graph pools. Each stream that captures for one has memory of its own in it: a
 * vrpi_stream that no handle leads to, whose spaces serve the allocations of
 * the capture. While `graph` is set its free extents are idle for nobody else.
 * A release makes it a forgotten stream that is done when the streams of the
 * launches are. */

#include "core/core.h"

#include <stdlib.h>

enum { MEMBERS_MOST = 64 };

struct vrp_graph_pool {
    struct vrp_graph_pool *next, **link; /* core->graphs */
    vrp_pool *pool;
    uint32_t count;
    struct {
        vrpi_stream *memory;
        uint64_t key;         /* of the stream that it was made for */
        vrpi_stream *capture; /* while it captures */
    } member[MEMBERS_MOST];
};

vrp_status vrp_graph_pool_create(struct vrp_pool *pool, vrp_graph_pool **out_graph_pool) {
    vrp_graph_pool *g;
    vrpi_pool *core;
    if (out_graph_pool == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_graph_pool_create: out_graph_pool is NULL");
    VRPI_TRY(vrpi_enter(pool));
    core = pool->core;
    g = calloc(1, sizeof *g);
    if (g != NULL) {
        g->pool = pool;
        vrpi_mutex_lock(&core->lock);
        g->next = core->graphs;
        g->link = &core->graphs;
        if (g->next != NULL)
            g->next->link = &g->next;
        core->graphs = g;
        vrpi_mutex_unlock(&core->lock);
        *out_graph_pool = g;
    }
    vrpi_exit(pool);
    return g != NULL ? VRP_OK
                     : vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for a graph pool");
}

/* The member for a stream's captures, made at the first. -1: none to be had. */
static int member_get(vrpi_pool *core, vrp_graph_pool *g, const vrpi_stream *s) {
    vrpi_stream *memory;
    uint64_t key = s->key;
    for (uint32_t i = 0; i < g->count; i++)
        if (g->member[i].key == key && g->member[i].capture == NULL)
            return (int)i;
    if (g->count == MEMBERS_MOST || (memory = vrpi_stream_new(core)) == NULL)
        return -1;
    memory->graph = g;
    memory->handle = s->handle; /* for those who look at blocks */
    memory->key = UINT64_MAX;
    g->member[g->count].memory = memory;
    g->member[g->count].key = key;
    return (int)g->count++;
}

static vrp_status begin(vrpi_pool *core, vrpi_thread *t, vrp_graph_pool *g, vrpi_stream *s) {
    int i;
    if (s->route != NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "stream 0x%llx already captures",
                         (unsigned long long)s->handle);
    i = member_get(core, g, s);
    if (i < 0)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for a graph pool's stream");
    VRPI_TRY(vrpi_capture_mark(core, t, s, 1));
    s->route = g->member[i].memory;
    g->member[i].capture = s;
    vrpi_fronts_drop(core, s); /* hits would take memory of the pool */
    return VRP_OK;
}

static vrp_status end(vrpi_pool *core, vrpi_thread *t, vrp_graph_pool *g, vrpi_stream *s) {
    uint32_t i = 0;
    while (i < g->count && g->member[i].capture != s)
        i++;
    if (i == g->count)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "stream 0x%llx does not capture for this graph pool",
                         (unsigned long long)s->handle);
    VRPI_TRY(vrpi_capture_mark(core, t, s, 0));
    s->route = NULL;
    g->member[i].capture = NULL;
    return VRP_OK;
}

static vrp_status mark(vrp_graph_pool *g, vrp_stream stream, int begins) {
    vrpi_pool *core;
    vrpi_thread *t;
    vrpi_stream *s = NULL;
    uint64_t key;
    vrp_status status;
    if (g == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "the graph pool is NULL");
    VRPI_TRY(vrpi_enter_stream(g->pool, stream, &t, &key));
    core = g->pool->core;
    vrpi_mutex_lock(&core->lock);
    status = vrpi_stream_get(core, t, stream, key, &s);
    if (status == VRP_OK)
        status = begins ? begin(core, t, g, s) : end(core, t, g, s);
    vrpi_mutex_unlock(&core->lock);
    vrpi_exit(g->pool);
    return status;
}

vrp_status vrp_graph_pool_begin(vrp_graph_pool *graph_pool, vrp_stream stream) {
    return mark(graph_pool, stream, 1);
}

vrp_status vrp_graph_pool_end(vrp_graph_pool *graph_pool, vrp_stream stream) {
    return mark(graph_pool, stream, 0);
}

/* ---- release -------------------------------------------------------------------------- */

/* From here on its free extents are idle, behind what is in `after`. */
static void memory_release(vrpi_pool *core, vrpi_stream *memory, vrpi_uses *after) {
    memory->graph = NULL;
    memory->seq++;
    memory->covered = memory->seq; /* `after` has its events */
    memory->forgotten = 1;
    memory->after = after;
    for (vrpi_arena *a = core->arenas; a != NULL; a = a->next) {
        uint64_t granule = 0;
        if (a->stream != memory)
            continue;
        for (vrpi_extent *e; (e = vrpi_extent_next(core, a, &granule)) != NULL;)
            if (e->live == 0 && e->state == VRPI_EXTENT_BACKED && !vrpi_is_idle(e)) {
                e->stream = memory;
                e->stamp = memory->seq;
                vrpi_idle_add(core, e);
            }
    }
    if (after == NULL)
        memory->completed = memory->seq;
}

void vrpi_graphs_poll(vrpi_pool *core) {
    for (vrpi_stream *s = core->streams; s != NULL; s = s->next)
        if (s->after != NULL && vrpi_uses_done(s->after)) {
            vrpi_uses_free(core, s->after);
            s->after = NULL;
            s->completed = s->seq;
        }
}

/* Who the launches' streams are, each with a stamp of now; for every member one. */
static vrp_status awaited(vrpi_pool *core, vrpi_thread *t, const vrp_stream *streams, size_t count,
                          vrpi_uses **out) {
    *out = NULL;
    for (size_t i = 0; i < count || (count == 0 && i == 0); i++) {
        vrp_stream handle = count == 0 ? VRP_STREAM_ANY : streams[i];
        vrpi_stream *s;
        uint64_t key = 0;
        vrp_status status = vrpi_stream_key(core, handle, &key);
        if (status == VRP_OK)
            status = vrpi_stream_get(core, t, handle, key, &s);
        if (status == VRP_OK && !vrpi_uses_add(core, out, 0, s))
            status = vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory to remember the streams");
        if (status != VRP_OK) {
            if (*out != NULL)
                vrpi_uses_free(core, *out);
            return status;
        }
    }
    vrpi_uses_stamp(*out);
    return VRP_OK;
}

static vrp_status release(vrpi_pool *core, vrpi_thread *t, vrp_graph_pool *g,
                          const vrp_stream *streams, size_t count) {
    vrpi_uses *after[MEMBERS_MOST] = {NULL};
    vrp_status status = VRP_OK;
    for (uint32_t i = 0; i < g->count; i++)
        if (g->member[i].capture != NULL)
            return vrpi_fail(VRP_BUSY, "stream 0x%llx captures for the graph pool",
                             (unsigned long long)g->member[i].capture->handle);
    for (uint32_t i = 0; i < g->count && status == VRP_OK; i++)
        status = awaited(core, t, streams, count, &after[i]);
    if (status != VRP_OK) {
        for (uint32_t i = 0; i < g->count; i++)
            if (after[i] != NULL)
                vrpi_uses_free(core, after[i]);
        return status;
    }
    for (uint32_t i = 0; i < g->count; i++)
        memory_release(core, g->member[i].memory, after[i]);
    *g->link = g->next;
    if (g->next != NULL)
        g->next->link = g->link;
    vrpi_settle_all(core, t); /* the events are recorded now */
    return VRP_OK;
}

vrp_status vrp_graph_pool_release(vrp_graph_pool *graph_pool, const vrp_stream *streams,
                                  size_t stream_count) {
    vrpi_thread *t;
    vrp_pool *pool;
    vrp_status status;
    if (graph_pool == NULL || (streams == NULL && stream_count > 0))
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_graph_pool_release: %s is NULL",
                         graph_pool == NULL ? "graph_pool" : "streams");
    for (size_t i = 0; i < stream_count; i++)
        if (streams[i] >= VRP_STREAM_ANY)
            return vrpi_fail(VRP_INVALID_ARGUMENT, "streams[%zu] is no stream", i);
    pool = graph_pool->pool;
    VRPI_TRY(vrpi_enter(pool));
    t = vrpi_thread_get(pool);
    vrpi_mutex_lock(&pool->core->lock);
    status = t == NULL ? vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for a thread")
                       : release(pool->core, t, graph_pool, streams, stream_count);
    vrpi_mutex_unlock(&pool->core->lock);
    vrpi_exit(pool);
    if (status == VRP_OK)
        free(graph_pool);
    return status;
}

/* ---- figures, and the pool's end -------------------------------------------------------- */

uint64_t vrpi_graph_bytes(const vrpi_pool *core) {
    uint64_t bytes = 0;
    for (const vrpi_arena *a = core->graphs != NULL ? core->arenas : NULL; a != NULL; a = a->next)
        if (a->stream != NULL && a->stream->graph != NULL)
            bytes += a->backed_bytes;
    return bytes;
}

uint64_t vrpi_graphs_count(const vrpi_pool *core) {
    uint64_t count = 0;
    for (const vrp_graph_pool *g = core->graphs; g != NULL; g = g->next)
        count++;
    return count;
}

void vrpi_graphs_drop(vrpi_pool *core) {
    for (vrp_graph_pool *g = core->graphs; g != NULL; g = g->next)
        for (uint32_t i = 0; i < g->count; i++) {
            if (g->member[i].capture != NULL)
                g->member[i].capture->route = NULL;
            memory_release(core, g->member[i].memory, NULL);
        }
    for (vrpi_stream *s = core->streams; s != NULL; s = s->next)
        if (s->after != NULL) {
            vrpi_uses_free(core, s->after);
            s->after = NULL;
        }
    while (core->graphs != NULL) {
        vrp_graph_pool *g = core->graphs;
        core->graphs = g->next;
        free(g);
    }
}
