/* SPDX-License-Identifier: MIT */
/* The streams that a pool has seen: found by handle (or by the driver's id),
 * forgotten on request, freed once nothing refers to them. */

#include "core/core.h"

#define STREAM_LEGACY_EXPLICIT ((vrp_stream)1) /* the driver's other name for the legacy stream */

vrp_status vrpi_stream_key(vrpi_pool *core, vrp_stream handle, uint64_t *out_key) {
    if (handle == STREAM_LEGACY_EXPLICIT)
        handle = VRP_STREAM_LEGACY;
    *out_key = handle;
    if (handle == VRP_STREAM_ANY)
        return VRP_OK;
    if ((core->config.flags & VRP_STREAMS_UNTRACKED) != 0 && handle > VRP_STREAM_PER_THREAD) {
        vrp_status status = core->ops->stream_id(core->ctx, handle, out_key);
        if (status != VRP_OK)
            return vrpi_fail(status, "the driver gave no id for stream 0x%llx",
                             (unsigned long long)handle);
    }
    return VRP_OK;
}

vrp_status vrpi_enter_stream(vrp_pool *pool, vrp_stream handle, vrpi_thread **out_thread,
                             uint64_t *out_key) {
    vrp_status status;
    *out_thread = NULL;
    VRPI_TRY(vrpi_enter(pool));
    if (handle == VRP_STREAM_ANY) {
        vrpi_exit(pool);
        return vrpi_fail(VRP_INVALID_ARGUMENT, "VRP_STREAM_ANY is for frees only");
    }
    *out_thread = vrpi_thread_get(pool);
    status = *out_thread == NULL ? vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for a thread")
                                 : vrpi_stream_key(pool->core, handle, out_key);
    if (status != VRP_OK)
        vrpi_exit(pool);
    return status;
}

vrpi_stream *vrpi_stream_find(vrpi_pool *core, vrpi_thread *t, vrp_stream handle, uint64_t key) {
    int per_thread = handle == VRP_STREAM_PER_THREAD;
    for (vrpi_stream *s = core->streams; s != NULL; s = s->next) {
        if (s->forgotten || s->key != key || s->per_thread != per_thread || s->graph != NULL)
            continue;
        if (!per_thread || s->owner == t)
            return s;
    }
    return NULL;
}

/* VRP_STREAMS_UNTRACKED: a handle with a new id was another stream's before. */
static void reused(vrpi_pool *core, vrp_stream handle) {
    if ((core->config.flags & VRP_STREAMS_UNTRACKED) == 0 || handle <= VRP_STREAM_PER_THREAD)
        return;
    for (vrpi_stream *s = core->streams, *next; s != NULL; s = next) {
        next = s->next;
        if (s->handle != handle || s->forgotten)
            continue;
        s->seq++; /* blocks that are still live may have been used since the last record */
        core->capturing_count -= s->capturing;
        s->capturing = 0;
        s->forgotten = 1;
        vrpi_stream_settle(core, s);
    }
}

vrpi_stream *vrpi_stream_new(vrpi_pool *core) {
    vrpi_stream *s = vrpi_host_alloc(core, sizeof *s);
    if (s == NULL)
        return NULL;
    s->serial = ++core->stream_serials;
    for (int k = 0; k < VRPI_CLASS_COUNT; k++)
        s->space[k].free.nodes = &core->block_nodes;
    s->next = core->streams;
    s->link = &core->streams;
    if (s->next != NULL)
        s->next->link = &s->next;
    core->streams = s;
    return s;
}

vrp_status vrpi_stream_get(vrpi_pool *core, vrpi_thread *t, vrp_stream handle, uint64_t key,
                           vrpi_stream **out) {
    vrpi_stream *s = vrpi_stream_find(core, t, handle, key);
    if (s == NULL) {
        reused(core, handle);
        s = vrpi_stream_new(core);
        if (s == NULL)
            return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for a stream");
        s->handle = handle == STREAM_LEGACY_EXPLICIT ? VRP_STREAM_LEGACY : handle;
        s->key = key;
        if (handle == VRP_STREAM_PER_THREAD) {
            s->per_thread = 1;
            s->owner = t;
        }
        if (handle == VRP_STREAM_ANY) {
            s->whole = 1;
            core->whole = s;
        }
    }
    *out = s;
    return VRP_OK;
}

/* Nothing queued on the stream is unfinished as far as the pool is concerned. */
static int quiet(const vrpi_stream *s) {
    return s->completed >= s->seq && s->ring_count == 0 && !s->recording && !s->polling &&
           s->busy == 0 && s->waiting == 0 && !s->wanted && !s->useful && !s->capturing &&
           s->refs == 0 && s->after == NULL && s->route == NULL;
}

void vrpi_stream_settle(vrpi_pool *core, vrpi_stream *stream) {
    int arenas_left = 0;
    if (!stream->forgotten || !quiet(stream))
        return;
    for (int k = 0; k < VRPI_CLASS_COUNT; k++) {
        vrpi_arena *arena = stream->space[k].arenas;
        while (arena != NULL) {
            vrpi_arena *next = arena->space_next;
            if (arena->used_blocks == 0)
                vrpi_arena_detach(core, arena);
            else
                arenas_left = 1;
            arena = next;
        }
    }
    for (vrpi_arena *arena = core->arenas; arena != NULL; arena = arena->next)
        if (arena->stream == stream)
            arenas_left = 1; /* a growable buffer's */
    if (arenas_left)
        return;
    for (const vrpi_arena *arena = core->arenas; arena != NULL; arena = arena->next) {
        uint64_t at = 0;
        for (vrpi_extent *e; (e = vrpi_extent_next(core, arena, &at)) != NULL;)
            if (e->stream == stream) {
                if (e->state == VRPI_EXTENT_TRANSIT)
                    return;       /* another thread is moving it and looks at the stream */
                e->stream = NULL; /* done: completed >= every stamp */
            }
    }
    *stream->link = stream->next;
    if (stream->next != NULL)
        stream->next->link = stream->link;
    vrpi_host_free(core, stream, sizeof *stream);
}

void vrpi_stream_quiet(vrpi_pool *core, vrpi_stream *stream) {
    while (stream->recording || stream->polling || stream->waiting > 0) {
        vrpi_mutex_unlock(&core->lock);
        vrpi_pause();
        vrpi_mutex_lock(&core->lock);
    }
}

/* Flushes, records and takes the stream out of what can be found by handle.
 * The record is made even if every free is covered: blocks that are still live
 * may have been used since, and nothing can be recorded later. */
static vrp_status forget(vrpi_pool *core, vrpi_thread *t, vrpi_stream *s) {
    int recorded;
    if (s->capturing)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "stream 0x%llx is capturing",
                         (unsigned long long)s->handle);
    s->busy++; /* keeps it alive while the lock is dropped */
    s->forgetting = 1;
    vrpi_stream_quiet(core, s); /* another thread may be recording on the handle */
    vrpi_fronts_drop(core, s);
    s->seq++;
    recorded = vrpi_record(core, t, s);
    s->busy--;
    if (!recorded && core->ops->context_record == NULL && vrpi_lost(core) == VRP_OK) {
        s->forgetting = 0;
        return vrpi_fail(VRP_INTERNAL, "no event could be recorded on stream 0x%llx",
                         (unsigned long long)s->handle);
    }
    s->forgotten = 1;
    s->owner = NULL;
    vrpi_stream_settle(core, s);
    return VRP_OK;
}

vrp_status vrp_stream_forget(vrp_pool *pool, vrp_stream stream) {
    vrpi_pool *core;
    vrpi_thread *t;
    vrpi_stream *s;
    uint64_t key;
    vrp_status status = VRP_OK;
    VRPI_TRY(vrpi_enter_stream(pool, stream, &t, &key));
    core = pool->core;
    vrpi_mutex_lock(&core->lock);
    s = vrpi_stream_find(core, t, stream, key);
    if (s != NULL)
        status = forget(core, t, s);
    vrpi_mutex_unlock(&core->lock);
    vrpi_exit(pool);
    return status;
}

/* Records on the legacy stream, or on the whole context for a forgotten one,
 * that are on their way: no new ones begin while a stream captures. */
static void shared_records_end(vrpi_pool *core) {
    for (vrpi_stream *s = core->streams; s != NULL;) {
        if (s->recording && (s->forgotten || s->whole || s->handle == VRP_STREAM_LEGACY)) {
            vrpi_mutex_unlock(&core->lock);
            vrpi_pause();
            vrpi_mutex_lock(&core->lock);
            s = core->streams;
        } else {
            s = s->next;
        }
    }
}

/* Lock held. */
vrp_status vrpi_capture_mark(vrpi_pool *core, vrpi_thread *t, vrpi_stream *s, int begin) {
    if (s->capturing == begin)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "stream 0x%llx is %s capturing",
                         (unsigned long long)s->handle, begin ? "already" : "not");
    s->capturing = (uint8_t)begin;
    core->capturing_count += begin ? 1 : UINT32_MAX;
    s->busy++;
    if (begin) {
        vrpi_stream_quiet(core, s); /* a record on its way would end the capture */
        shared_records_end(core);
    } else if ((core->config.flags & VRP_STREAMS_UNTRACKED) != 0) {
        (void)vrpi_record(core, t, s); /* it may be destroyed without a word */
    }
    s->busy--;
    return VRP_OK;
}

static vrp_status capture(vrp_pool *pool, vrp_stream stream, int begin) {
    vrpi_pool *core;
    vrpi_thread *t;
    vrpi_stream *s = NULL;
    uint64_t key;
    vrp_status status;
    VRPI_TRY(vrpi_enter_stream(pool, stream, &t, &key));
    core = pool->core;
    vrpi_mutex_lock(&core->lock);
    status = vrpi_stream_get(core, t, stream, key, &s);
    if (status == VRP_OK && s->route != NULL)
        status = vrpi_fail(VRP_INVALID_ARGUMENT, "stream 0x%llx captures for a graph pool",
                           (unsigned long long)s->handle);
    if (status == VRP_OK)
        status = vrpi_capture_mark(core, t, s, begin);
    vrpi_mutex_unlock(&core->lock);
    vrpi_exit(pool);
    return status;
}

vrp_status vrp_capture_begin(vrp_pool *pool, vrp_stream stream) { return capture(pool, stream, 1); }

vrp_status vrp_capture_end(vrp_pool *pool, vrp_stream stream) { return capture(pool, stream, 0); }
