/* SPDX-License-Identifier: MIT */
/* The rows of "vram trace v2". */

#include <string.h>

#include "trace/reader.h"

static const char no_number[] = "is no number";
static const char too_large[] = "is too large";

/* More digits than surely fit: leading zeros, or a number near 2^64. */
static const char *digits_checked(const char *from, const char *to, uint64_t *out_value) {
    uint64_t value = 0;
    for (; from < to; from++) {
        unsigned digit = (unsigned)(*from - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return too_large;
        value = value * 10 + digit;
    }
    *out_value = value;
    return NULL;
}

static inline const char *digits(const char **cursor, uint64_t *out_value) {
    const char *at = *cursor;
    uint64_t value = 0;
    unsigned digit;
    while ((digit = (unsigned)(unsigned char)*at - '0') <= 9) {
        value = value * 10 + digit;
        at++;
    }
    const char *from = *cursor;
    *cursor = at;
    *out_value = value;
    if (at - from > 19)
        return digits_checked(from, at, out_value);
    return at == from ? no_number : NULL;
}

const char *vrpi_digits(const char **cursor, uint64_t *out_value) {
    return digits(cursor, out_value);
}

/* A number that another field must follow. 0: the fault says what is wrong. */
static inline int take_inner(const char **cursor, const char *field, uint64_t *out_value,
                             vrpi_fault *fault) {
    const char *problem = digits(cursor, out_value);
    if (!problem && **cursor == ',') {
        (*cursor)++;
        return 1;
    }
    fault->field = field;
    fault->problem = problem ? problem : "has no comma after it";
    return 0;
}

/* The row's last number and its end. */
static inline int take_last(const char **cursor, const char *field, uint64_t *out_value,
                            vrpi_fault *fault) {
    const char *problem = digits(cursor, out_value);
    *cursor += **cursor == '\r';
    if (!problem && **cursor == '\n') {
        (*cursor)++;
        return 1;
    }
    fault->field = field;
    fault->problem = problem ? problem : "is not the end of the row";
    return 0;
}

static int take_label(const char **cursor, uint8_t *out_marker, vrpi_fault *fault) {
    static const struct {
        const char *name;
        vrp_trace_marker marker;
    } known[] = {{"load", VRP_MARKER_LOAD},
                 {"turn", VRP_MARKER_TURN},
                 {"clear", VRP_MARKER_CLEAR},
                 {"step", VRP_MARKER_STEP},
                 {"request", VRP_MARKER_REQUEST}};
    const char *from = *cursor;
    size_t length = strcspn(from, ",\r\n");
    if (length == 0 || from[length] != ',') {
        fault->field = "label";
        fault->problem = length == 0 ? "is empty" : "has no comma after it";
        return 0;
    }
    *out_marker = VRP_MARKER_OTHER;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].name) == length && memcmp(known[i].name, from, length) == 0)
            *out_marker = (uint8_t)known[i].marker;
    *cursor = from + length + 1;
    return 1;
}

static inline int take_alloc(const char **cursor, vrp_trace_event *event, uint64_t *out_dt,
                             vrpi_fault *fault) {
    uint64_t stream = 0;
    if (!take_inner(cursor, "id", &event->id, fault) ||
        !take_inner(cursor, "bytes", &event->bytes, fault) ||
        !take_inner(cursor, "stream", &stream, fault))
        return 0;
    if (stream > UINT32_MAX) {
        fault->field = "stream";
        fault->problem = too_large;
        return 0;
    }
    event->kind = VRP_TRACE_ALLOC;
    event->stream = (uint32_t)stream;
    return take_last(cursor, "dt", out_dt, fault);
}

static inline int take_row(const char **cursor, vrp_trace_event *event, uint64_t *out_dt,
                           vrpi_fault *fault) {
    const char *row = *cursor;
    *event = (vrp_trace_event){0};
    if (*row == '\n' || row[1] != ',') {
        fault->field = "kind";
        fault->problem = "is none of a, f, c, m";
        return 0;
    }
    *cursor = row + 2;
    switch (*row) {
    case 'a':
        return take_alloc(cursor, event, out_dt, fault);
    case 'f':
    case 'c':
        event->kind = *row == 'f' ? VRP_TRACE_FREE : VRP_TRACE_SAFE;
        return take_inner(cursor, "id", &event->id, fault) &&
               take_last(cursor, "dt", out_dt, fault);
    case 'm':
        event->kind = VRP_TRACE_MARKER;
        return take_label(cursor, &event->marker, fault) && take_last(cursor, "dt", out_dt, fault);
    default:
        fault->field = "kind";
        fault->problem = "is none of a, f, c, m";
        return 0;
    }
}

/* The rows that are in the window. 0: one of them is malformed. Stops before a
 * comment if there are events already. */
static int take_rows(vrp_trace_reader *reader, vrp_trace_event *events, size_t capacity,
                     size_t *count, vrpi_fault *fault) {
    const char *cursor = reader->source.window + reader->source.begin;
    const char *end = reader->source.window + reader->lines_end;
    size_t n = *count;
    int good = 1;
    while (n < capacity && cursor < end) {
        const char *row = cursor;
        uint64_t dt = 0;
        if (*row == '#') {
            if (n > 0)
                break;
            cursor = (const char *)memchr(row, '\n', (size_t)(end - row)) + 1;
            reader->line++;
            continue;
        }
        good = take_row(&cursor, &events[n], &dt, fault);
        if (good && dt > UINT64_MAX - reader->time_us) {
            fault->field = "dt";
            fault->problem = "makes the time too large";
            good = 0;
        }
        if (!good) {
            cursor = row;
            break;
        }
        reader->time_us += dt;
        events[n++].time_us = reader->time_us;
        reader->event_line = ++reader->line;
    }
    reader->source.begin = (size_t)(cursor - reader->source.window);
    *count = n;
    return good;
}

vrp_status vrpi_csv_read(vrp_trace_reader *reader, vrp_trace_event *events, size_t capacity,
                         size_t *out_count) {
    size_t count = 0;
    while (count < capacity) {
        vrp_status ready;
        if (!vrpi_line_at_hand(reader, count, &ready)) {
            VRPI_TRY(ready);
            break;
        }
        vrpi_fault fault = {NULL, NULL};
        int good = take_rows(reader, events, capacity, &count, &fault);
        if (!good && count == 0)
            return vrpi_reader_fail(reader, VRP_CORRUPTED, "%s %s", fault.field, fault.problem);
        if (!good || (count < capacity && reader->source.begin < reader->lines_end))
            break;
    }
    *out_count = count;
    return VRP_OK;
}
