/* SPDX-License-Identifier: MIT */
/* Reads a trace into steps. */

#include "script.h"

#include "run.h"

#include <stdlib.h>
#include <string.h>

typedef struct reading {
    bench_script *script;
    bench_table blocks, streams; /* the number of each id */
    uint64_t room;
} reading;

static bench_step *new_step(reading *r) {
    bench_script *s = r->script;
    if (s->count == r->room) {
        uint64_t room = r->room == 0 ? 1 << 16 : r->room * 2;
        bench_step *more = realloc(s->steps, room * sizeof *more);
        if (more == NULL)
            return NULL;
        s->steps = more;
        r->room = room;
    }
    bench_step *step = &s->steps[s->count];
    memset(step, 0, sizeof *step);
    return step;
}

static int add_alloc(reading *r, const vrp_trace_event *event, bench_step *step) {
    int there = 0;
    bench_entry *stream = bench_table_find(&r->streams, event->stream);
    if (stream == NULL) {
        stream = bench_table_add(&r->streams, event->stream, &there);
        if (stream == NULL)
            return bench_fail("no host memory for streams");
        stream->value = r->script->streams++;
    }
    step->kind = BENCH_STEP_ALLOC;
    step->stream = (uint32_t)stream->value;
    step->bytes = event->bytes;
    step->block = r->script->blocks;
    bench_entry *block = bench_table_add(&r->blocks, event->id, &there);
    if (block == NULL)
        return there ? bench_fail("%s: id %llu is allocated twice", r->script->trace,
                                  (unsigned long long)event->id)
                     : bench_fail("no host memory for blocks");
    block->value = r->script->blocks++;
    block->bytes = event->bytes;
    block->stream = step->stream;
    return BENCH_OK;
}

static int add_free(reading *r, const vrp_trace_event *event, bench_step *step) {
    bench_entry *block = bench_table_find(&r->blocks, event->id);
    if (block == NULL)
        return bench_fail("%s: id %llu is freed but not allocated", r->script->trace,
                          (unsigned long long)event->id);
    step->kind = BENCH_STEP_FREE;
    step->stream = (uint32_t)block->stream;
    step->bytes = block->bytes;
    step->block = block->value;
    bench_table_remove(&r->blocks, block);
    return BENCH_OK;
}

/* Where the recorder had synchronised. */
static int synchronises(const vrp_trace_event *event) {
    return event->marker < 32 &&
           ((BENCH_AT_TURN | BENCH_AT_STEP | 1u << VRP_MARKER_LOAD) >> event->marker & 1u) != 0;
}

static int add(reading *r, const vrp_trace_event *event) {
    int code = BENCH_OK;
    bench_step *step = new_step(r);
    if (step == NULL)
        return bench_fail("no host memory for a trace");
    r->script->recorded_us = event->time_us;
    if (event->kind == VRP_TRACE_ALLOC && !event->failed)
        code = add_alloc(r, event, step);
    else if (event->kind == VRP_TRACE_FREE)
        code = add_free(r, event, step);
    else if (event->kind == VRP_TRACE_MARKER && synchronises(event))
        step->kind = BENCH_STEP_SYNCHRONISE;
    else
        return BENCH_OK;
    r->script->count++;
    r->script->events += step->kind != BENCH_STEP_SYNCHRONISE && step->bytes > 0;
    return code;
}

static int read_all(reading *r, vrp_trace_reader *reader) {
    static vrp_trace_event batch[1024];
    size_t count = 0;
    do {
        if (vrp_trace_read(reader, batch, sizeof batch / sizeof *batch, &count) != VRP_OK)
            return bench_fail("%s", vrp_trace_message(reader));
        for (size_t i = 0; i < count; i++) {
            int code = add(r, &batch[i]);
            if (code != BENCH_OK)
                return code;
        }
    } while (count > 0);
    return BENCH_OK;
}

int bench_script_read(bench_script *script, const char *trace) {
    reading r = {.script = script};
    vrp_trace_reader *reader;
    memset(script, 0, sizeof *script);
    script->trace = trace;
    int code = bench_trace_open(trace, &reader);
    if (code != BENCH_OK)
        return code;
    code = bench_table_init(&r.blocks) && bench_table_init(&r.streams)
               ? read_all(&r, reader)
               : bench_fail("no host memory for tables");
    vrp_trace_close(reader);
    bench_table_free(&r.blocks);
    bench_table_free(&r.streams);
    if (code == BENCH_OK && script->events == 0)
        code = bench_fail("%s: it holds no allocation", trace);
    if (code != BENCH_OK)
        bench_script_free(script);
    return code;
}

void bench_script_free(bench_script *script) {
    free(script->steps);
    script->steps = NULL;
}

int bench_script_dump(const bench_script *script, const char *path) {
    FILE *out = fopen(path, "wb");
    if (out == NULL)
        return bench_usage("\"%s\" cannot be written", path);
    int good = fwrite(script->steps, sizeof *script->steps, script->count, out) == script->count;
    good = fclose(out) == 0 && good;
    return good ? BENCH_OK : bench_fail("\"%s\" could not be written whole", path);
}
