/* SPDX-License-Identifier: MIT */
/* A trace of the run. */

#include "recorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef G3_HAVE_TRACE
#define G3_HAVE_TRACE 0
#endif

#if G3_HAVE_TRACE

#define BATCH 1024

/* One live block of the trace: a block of the pool, or a piece of a buffer. */
typedef struct piece {
    uint64_t id;
    uint64_t bytes;
    vrp_devptr ptr; /* blocks */
    vrp_scope scope;
    const void *buffer; /* pieces of a buffer, else NULL */
} piece;

struct g3_recorder {
    g3_memory *memory;
    vrp_trace_writer *writer;
    vrp_trace_event events[BATCH];
    size_t event_count;
    uint64_t next_id;
    struct timespec began;
    piece *pieces; /* a chat has some hundred; the latest is the likeliest to go */
    size_t piece_count;
    size_t piece_room;
    g3_status status; /* the first thing that went wrong */
};

static void flush(g3_recorder *recorder) {
    if (recorder->event_count == 0)
        return;
    const vrp_status status =
        vrp_trace_write(recorder->writer, recorder->events, recorder->event_count);
    if (status != VRP_OK && recorder->status == G3_OK)
        recorder->status = status == VRP_OUT_OF_HOST_MEMORY ? G3_HOST_MEMORY : G3_IO;
    recorder->event_count = 0;
}

static void put(g3_recorder *recorder, vrp_trace_event event) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t us = (int64_t)(now.tv_sec - recorder->began.tv_sec) * 1000000 +
                       (now.tv_nsec - recorder->began.tv_nsec) / 1000;
    event.time_us = us > 0 ? (uint64_t)us : 0;
    if (recorder->event_count == BATCH)
        flush(recorder);
    recorder->events[recorder->event_count++] = event;
}

static void begin_piece(g3_recorder *recorder, const g3_memory_event *event, uint64_t bytes) {
    if (recorder->piece_count == recorder->piece_room) {
        const size_t room = recorder->piece_room == 0 ? 256 : recorder->piece_room * 2;
        piece *larger = (piece *)realloc(recorder->pieces, room * sizeof *larger);
        if (larger == NULL) {
            recorder->status = G3_HOST_MEMORY;
            return;
        }
        recorder->pieces = larger;
        recorder->piece_room = room;
    }
    const uint64_t id = recorder->next_id++;
    recorder->pieces[recorder->piece_count++] = (piece){.id = id,
                                                        .bytes = bytes,
                                                        .ptr = event->ptr,
                                                        .scope = event->scope,
                                                        .buffer = event->buffer};
    put(recorder, (vrp_trace_event){.kind = VRP_TRACE_ALLOC, .id = id, .bytes = bytes});
}

/* Frees the piece and keeps the order of the others, on which buffers rely. */
static void end_piece(g3_recorder *recorder, size_t at) {
    put(recorder, (vrp_trace_event){.kind = VRP_TRACE_FREE, .id = recorder->pieces[at].id});
    recorder->piece_count--;
    memmove(&recorder->pieces[at], &recorder->pieces[at + 1],
            (recorder->piece_count - at) * sizeof *recorder->pieces);
}

static void end_block(g3_recorder *recorder, vrp_devptr ptr) {
    for (size_t i = recorder->piece_count; i-- > 0;)
        if (recorder->pieces[i].buffer == NULL && recorder->pieces[i].ptr == ptr) {
            end_piece(recorder, i);
            return;
        }
}

static void resize(g3_recorder *recorder, const g3_memory_event *event) {
    uint64_t now = 0;
    for (size_t i = 0; i < recorder->piece_count; i++)
        if (recorder->pieces[i].buffer == event->buffer)
            now += recorder->pieces[i].bytes;
    for (size_t i = recorder->piece_count; now > event->bytes && i-- > 0;)
        if (recorder->pieces[i].buffer == event->buffer) {
            now -= recorder->pieces[i].bytes;
            end_piece(recorder, i);
        }
    if (now < event->bytes)
        begin_piece(recorder, event, event->bytes - now);
}

static void observe(void *user, const g3_memory_event *event) {
    g3_recorder *recorder = (g3_recorder *)user;
    switch (event->action) {
    case G3_MEMORY_ALLOC:
        begin_piece(recorder, event, event->bytes);
        break;
    case G3_MEMORY_FREE:
        end_block(recorder, event->ptr);
        break;
    case G3_MEMORY_RESIZE:
        resize(recorder, event);
        break;
    case G3_MEMORY_RELEASE:
        for (size_t i = recorder->piece_count; i-- > 0;)
            if (recorder->pieces[i].scope == event->scope && event->scope != 0)
                end_piece(recorder, i);
        break;
    }
}

g3_status g3_recorder_open(const char *path, g3_memory *memory, g3_recorder **out_recorder,
                           g3_error *error) {
    g3_recorder *recorder = (g3_recorder *)calloc(1, sizeof *recorder);
    if (recorder == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "no host memory for a trace");
    errno = 0;
    const vrp_status status = vrp_trace_writer_open(path, &recorder->writer);
    if (status != VRP_OK) {
        const int why = errno;
        free(recorder);
        return g3_fail(error, G3_IO, "%s: the trace cannot be written: %s", path,
                       why != 0 ? strerror(why) : vrp_status_name(status));
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &recorder->began);
    recorder->memory = memory;
    memory->observer_user = recorder;
    memory->observer = observe;
    *out_recorder = recorder;
    return G3_OK;
}

void g3_recorder_mark(g3_recorder *recorder, vrp_trace_marker marker) {
    if (recorder != NULL)
        put(recorder, (vrp_trace_event){.kind = VRP_TRACE_MARKER, .marker = (uint8_t)marker});
}

g3_status g3_recorder_close(g3_recorder *recorder, g3_error *error) {
    if (recorder == NULL)
        return G3_OK;
    recorder->memory->observer = NULL;
    recorder->memory->observer_user = NULL;
    flush(recorder);
    const vrp_status status = vrp_trace_writer_close(recorder->writer);
    g3_status result = recorder->status;
    if (status != VRP_OK && result == G3_OK)
        result = G3_IO;
    free(recorder->pieces);
    free(recorder);
    if (result != G3_OK)
        return g3_fail(error, result, "the trace is not whole: %s",
                       result == G3_HOST_MEMORY ? "no host memory" : "it cannot be written");
    return G3_OK;
}

#else

g3_status g3_recorder_open(const char *path, g3_memory *memory, g3_recorder **out_recorder,
                           g3_error *error) {
    (void)memory;
    (void)out_recorder;
    return g3_fail(error, G3_UNSUPPORTED, "%s: this build has no trace library", path);
}

void g3_recorder_mark(g3_recorder *recorder, vrp_trace_marker marker) {
    (void)recorder;
    (void)marker;
}

g3_status g3_recorder_close(g3_recorder *recorder, g3_error *error) {
    (void)recorder;
    (void)error;
    return G3_OK;
}

#endif
