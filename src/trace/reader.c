/* SPDX-License-Identifier: MIT */
/* Opening of traces, the telling of their format, and what is common to the
 * line-based ones. */

#include "trace/reader.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char csv_head[] = "# vram trace v2";
static const char csv_family[] = "# vram trace";
static const char rmm_head[] = "Thread,Time,Action,Pointer,Size,Stream";

vrp_status vrpi_reader_fail(vrp_trace_reader *reader, vrp_status status, const char *format, ...) {
    unsigned long long line = reader->line + 1;
    size_t room = sizeof reader->message;
    int used = snprintf(reader->message, room, "%s:%llu: ", reader->path, line);
    /* A path that leaves no room is worth less than the reason. */
    if (used < 0 || (size_t)used > room / 2)
        used = snprintf(reader->message, room, "%llu: ", line);
    size_t at = used < 0 ? 0 : (size_t)used;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->message + at, room - at, format, arguments);
    va_end(arguments);
    reader->failed = status;
    return status;
}

vrp_status vrpi_lines_ready(vrp_trace_reader *reader) {
    vrpi_source *source = &reader->source;
    vrp_status status = vrpi_source_fill(source);
    const char *last = memrchr(source->window, '\n', source->end);
    reader->lines_end = last ? (size_t)(last - source->window) + 1 : 0;
    if (last)
        return VRP_OK; /* what is wrong behind these lines comes up after them */
    if (status != VRP_OK)
        return vrpi_reader_fail(reader, status, "%s", source->reason);
    if (source->end == 0)
        return VRP_OK;
    return vrpi_reader_fail(reader, VRP_CORRUPTED, "%s",
                            source->at_end ? "cut last line (no newline at the end)"
                                           : "a line is too long");
}

int vrpi_line_at_hand(vrp_trace_reader *reader, size_t count, vrp_status *out_status) {
    vrp_status status = VRP_OK;
    if (reader->source.begin == reader->lines_end)
        status = vrpi_lines_ready(reader);
    *out_status = count == 0 ? status : VRP_OK;
    return status == VRP_OK && reader->source.begin != reader->lines_end;
}

static int begins_with(const vrpi_source *source, const char *text) {
    size_t length = strlen(text);
    return source->end >= length && memcmp(source->window, text, length) == 0;
}

/* A byte of the window, or 0 behind its end. */
static char byte_at(const vrpi_source *source, size_t at) {
    return at < source->end ? source->window[at] : '\0';
}

static vrp_status tell_format(vrp_trace_reader *reader) {
    const vrpi_source *source = &reader->source;
    if (begins_with(source, VRPI_COMPACT_MAGIC)) {
        reader->format = VRPI_FORMAT_COMPACT;
        return VRP_OK;
    }
    if (begins_with(source, rmm_head)) {
        char behind = byte_at(source, strlen(rmm_head));
        reader->format = VRPI_FORMAT_RMM;
        if (behind == '\n' || behind == '\r')
            return VRP_OK;
        return vrpi_reader_fail(reader, VRP_INVALID_ARGUMENT, "unknown columns in an RMM log");
    }
    reader->format = VRPI_FORMAT_CSV;
    if (begins_with(source, csv_family)) {
        char behind = byte_at(source, strlen(csv_head));
        if (begins_with(source, csv_head) && (behind < '0' || behind > '9'))
            return VRP_OK;
        return vrpi_reader_fail(reader, VRP_INVALID_ARGUMENT, "unknown version of vram trace");
    }
    /* Rows without their heading. */
    char first = byte_at(source, 0);
    if (byte_at(source, 1) == ',' && first != '\0' && strchr("afcm", first))
        return VRP_OK;
    return vrpi_reader_fail(reader, VRP_INVALID_ARGUMENT, "unknown format");
}

static vrp_status begin_format(vrp_trace_reader *reader) {
    VRPI_TRY(tell_format(reader));
    switch (reader->format) {
    case VRPI_FORMAT_COMPACT:
        return vrpi_compact_begin(reader);
    case VRPI_FORMAT_RMM:
        vrpi_rmm_begin(reader);
        return VRP_OK;
    case VRPI_FORMAT_CSV:
        break;
    }
    return VRP_OK;
}

static void say(char *message, size_t message_bytes, const char *path, const char *reason) {
    if (message && message_bytes > 0)
        snprintf(message, message_bytes, "%s: %s", path ? path : "(no path)", reason);
}

vrp_status vrp_trace_open(const char *path, char *message, size_t message_bytes,
                          vrp_trace_reader **out_reader) {
    if (message && message_bytes > 0)
        message[0] = '\0';
    if (!path || !out_reader) {
        say(message, message_bytes, path, "an argument is NULL");
        return VRP_INVALID_ARGUMENT;
    }
    vrp_trace_reader *reader = calloc(1, sizeof *reader);
    if (!reader) {
        say(message, message_bytes, path, "out of host memory");
        return VRP_OUT_OF_HOST_MEMORY;
    }
    vrp_status status = vrpi_source_open(&reader->source, path);
    if (status != VRP_OK) {
        say(message, message_bytes, path, reader->source.reason);
        free(reader);
        return status;
    }
    reader->path = strdup(path);
    if (!reader->path) {
        say(message, message_bytes, path, "out of host memory");
        vrp_trace_close(reader);
        return VRP_OUT_OF_HOST_MEMORY;
    }
    status = begin_format(reader);
    if (status != VRP_OK) {
        if (message && message_bytes > 0)
            snprintf(message, message_bytes, "%s", reader->message);
        vrp_trace_close(reader);
        return status;
    }
    *out_reader = reader;
    return VRP_OK;
}

vrp_status vrp_trace_read(vrp_trace_reader *reader, vrp_trace_event *events, size_t capacity,
                          size_t *out_count) {
    if (!reader || !out_count || (!events && capacity > 0))
        return VRP_INVALID_ARGUMENT;
    *out_count = 0;
    if (reader->failed != VRP_OK)
        return reader->failed;
    switch (reader->format) {
    case VRPI_FORMAT_RMM:
        return vrpi_rmm_read(reader, events, capacity, out_count);
    case VRPI_FORMAT_COMPACT:
        return vrpi_compact_read(reader, events, capacity, out_count);
    case VRPI_FORMAT_CSV:
        break;
    }
    return vrpi_csv_read(reader, events, capacity, out_count);
}

const char *vrp_trace_message(const vrp_trace_reader *reader) {
    return reader ? reader->message : "no reader";
}

uint64_t vrp_trace_line(const vrp_trace_reader *reader) { return reader ? reader->event_line : 0; }

double vrp_trace_progress(const vrp_trace_reader *reader) {
    return reader ? vrpi_source_progress(&reader->source) : 0.0;
}

uint64_t vrp_trace_decompress_wall_ns(const vrp_trace_reader *reader) {
    return reader ? reader->source.unpacking_ns : 0;
}

void vrp_trace_close(vrp_trace_reader *reader) {
    if (!reader)
        return;
    vrpi_source_close(&reader->source);
    vrpi_rmm_end(reader);
    vrpi_compact_end(reader);
    free(reader->path);
    free(reader);
}
