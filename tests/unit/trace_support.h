/* SPDX-License-Identifier: MIT */
#ifndef VRPT_TRACE_SUPPORT_H
#define VRPT_TRACE_SUPPORT_H

/* Trace files for the tests: written from text or bytes, read whole. They
 * assert, so they belong to the main thread. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "support/vrp_test.h"
#include "vrampool/trace.h"

#define TRACE_HEAD "# vram trace v2. a comment\n"
#define RMM_HEAD "Thread,Time,Action,Pointer,Size,Stream\n"

typedef struct trace_file {
    char path[64];
} trace_file;

static inline void trace_file_make(trace_file *file) {
    (void)snprintf(file->path, sizeof file->path, "/tmp/vrampool_trace_XXXXXX");
    int descriptor = mkstemp(file->path);
    assert_true(descriptor >= 0);
    assert_int_equal(close(descriptor), 0);
}

static inline void trace_file_put(const trace_file *file, const void *bytes, size_t count) {
    FILE *out = fopen(file->path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, count, out), count);
    assert_int_equal(fclose(out), 0);
}

/* `mode` "wb": a file of one gzip member; "ab": one member more. */
static inline void trace_file_put_gzip(const trace_file *file, const void *bytes, size_t count,
                                       const char *mode) {
    gzFile out = gzopen(file->path, mode);
    assert_non_null(out);
    if (count > 0)
        assert_int_equal(gzwrite(out, bytes, (unsigned)count), (int)count);
    assert_int_equal(gzclose(out), Z_OK);
}

/* All bytes of a file; the caller frees them. */
static inline unsigned char *trace_file_get(const char *path, size_t *out_count) {
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    assert_int_equal(fseek(in, 0, SEEK_END), 0);
    size_t count = (size_t)ftell(in);
    rewind(in);
    unsigned char *bytes = malloc(count + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, count, in), count);
    assert_int_equal(fclose(in), 0);
    *out_count = count;
    return bytes;
}

/* What came of reading a whole file. */
typedef struct trace_all {
    vrp_status status;
    vrp_trace_event *events;
    size_t count;
    uint64_t line; /* of the last event */
    char message[512];
} trace_all;

static inline void trace_all_free(trace_all *all) {
    free(all->events);
    all->events = NULL;
}

static inline void trace_all_read(trace_all *all, vrp_trace_reader *reader, size_t batch) {
    size_t room = 0;
    for (;;) {
        if (room - all->count < batch) {
            room = room * 2 + batch;
            all->events = realloc(all->events, room * sizeof *all->events);
            assert_non_null(all->events);
        }
        size_t got = 0;
        all->status = vrp_trace_read(reader, all->events + all->count, batch, &got);
        assert_true(got <= batch);
        all->count += got;
        if (all->status != VRP_OK || got == 0)
            break;
    }
}

/* Opens, reads in batches of `batch`, closes. */
static inline void trace_read(trace_all *all, const char *path, size_t batch) {
    memset(all, 0, sizeof *all);
    vrp_trace_reader *reader = NULL;
    all->status = vrp_trace_open(path, all->message, sizeof all->message, &reader);
    if (all->status != VRP_OK)
        return;
    trace_all_read(all, reader, batch);
    all->line = vrp_trace_line(reader);
    (void)snprintf(all->message, sizeof all->message, "%s", vrp_trace_message(reader));
    if (all->status == VRP_OK) {
        assert_true(vrp_trace_progress(reader) >= 1.0);
    } else { /* an error stays */
        vrp_trace_event event;
        size_t got = 1;
        assert_int_equal(vrp_trace_read(reader, &event, 1, &got), all->status);
        assert_int_equal(got, 0);
        assert_string_equal(vrp_trace_message(reader), all->message);
    }
    vrp_trace_close(reader);
}

static inline void trace_read_text(trace_all *all, const trace_file *file, const char *text) {
    trace_file_put(file, text, strlen(text));
    trace_read(all, file->path, 64);
}

static inline void assert_same_events(const trace_all *one, const trace_all *other) {
    assert_int_equal(one->status, VRP_OK);
    assert_int_equal(other->status, VRP_OK);
    assert_int_equal(one->count, other->count);
    if (one->count > 0)
        assert_memory_equal(one->events, other->events, one->count * sizeof *one->events);
}

/* The file is refused at `line` for a reason with these words in it. */
static inline void assert_refused(const trace_all *all, const trace_file *file, unsigned line,
                                  const char *words) {
    char where[128];
    (void)snprintf(where, sizeof where, "%s:%u: ", file->path, line);
    if (all->status != VRP_CORRUPTED || strncmp(all->message, where, strlen(where)) != 0 ||
        !strstr(all->message, words))
        fail_msg("%s, \"%s\", not \"%s\" with \"%s\"", vrp_status_name(all->status), all->message,
                 where, words);
}

/* A small generator, the same on every machine. */
static inline uint64_t trace_random(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15u;
    uint64_t x = *state;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

#endif
