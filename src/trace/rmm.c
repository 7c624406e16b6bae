/* SPDX-License-Identifier: MIT */
/* RMM's CSV log. Its rows name blocks by address; an address that comes again
 * after a free is another block, with an id of its own. */

#include <string.h>

#include "trace/reader.h"

/* Bounds on what a log can make the reader hold: 256 MiB and 2 MiB. */
#define LIVE_BLOCKS ((size_t)1 << 23)
#define STREAMS ((size_t)1 << 16)
#define HALF_DAY_US ((uint64_t)12 * 3600 * 1000000)

typedef enum action { ALLOCATE, FREE, FAILURE } action;

typedef struct row {
    action what;
    uint64_t pointer;
    uint64_t bytes;
    uint64_t stream;
    uint64_t time_us;
    int has_time;
    int of_day; /* the time is one of day, which wraps */
} row;

void vrpi_rmm_begin(vrp_trace_reader *reader) {
    vrpi_trace_map_init(&reader->rmm.blocks, LIVE_BLOCKS);
    vrpi_trace_map_init(&reader->rmm.streams, STREAMS);
}

void vrpi_rmm_end(vrp_trace_reader *reader) {
    vrpi_trace_map_free(&reader->rmm.blocks);
    vrpi_trace_map_free(&reader->rmm.streams);
}

static const char *hexadecimal(const char **cursor, uint64_t *out_value) {
    const char *at = *cursor;
    uint64_t value = 0;
    for (;; at++) {
        unsigned digit = (unsigned)(unsigned char)*at - '0';
        unsigned letter = ((unsigned)(unsigned char)*at | 32u) - 'a';
        if (digit > 9 && letter > 5)
            break;
        if (value >> 60)
            return "is too large";
        value = value << 4 | (digit <= 9 ? digit : letter + 10);
    }
    if (at == *cursor)
        return "is no number";
    *cursor = at;
    *out_value = value;
    return NULL;
}

/* Decimal, 0x..., or the null pointer as glibc's printf writes it. */
static const char *number(const char **cursor, uint64_t *out_value) {
    const char *at = *cursor;
    if (at[0] == '0' && (at[1] | 32) == 'x') {
        *cursor += 2;
        return hexadecimal(cursor, out_value);
    }
    if (*at == '(' && strncmp(at, "(nil)", 5) == 0) {
        *cursor += 5;
        *out_value = 0;
        return NULL;
    }
    return vrpi_digits(cursor, out_value);
}

/* Two digits below `limit`. */
static int two_digits(const char **cursor, unsigned limit, uint64_t *out_value) {
    const char *at = *cursor;
    unsigned tens = (unsigned)(unsigned char)at[0] - '0';
    if (tens > 9)
        return 0;
    unsigned ones = (unsigned)(unsigned char)at[1] - '0';
    if (ones > 9 || tens * 10 + ones >= limit)
        return 0;
    *cursor += 2;
    *out_value = tens * 10 + ones;
    return 1;
}

/* Digits behind the seconds, as microseconds; further ones are cut off. */
static int fraction(const char **cursor, uint64_t *out_us) {
    const char *at = *cursor;
    uint64_t value = 0;
    uint64_t unit = 100000;
    while ((unsigned)(unsigned char)*at - '0' <= 9) {
        value += (uint64_t)(*at - '0') * unit;
        unit /= 10;
        at++;
    }
    if (at == *cursor)
        return 0;
    *cursor = at;
    *out_us = value;
    return 1;
}

/* [date and a space or T] HH:MM:SS[:.fraction], up to the comma at `end`. */
static int time_of_day(const char *at, const char *end, uint64_t *out_us) {
    for (const char *c = at; c < end; c++)
        if (*c == ' ' || *c == 'T')
            at = c + 1;
    uint64_t hours = 0;
    uint64_t minutes = 0;
    uint64_t seconds = 0;
    uint64_t micros = 0;
    if (!two_digits(&at, 24, &hours) || *at++ != ':' || !two_digits(&at, 60, &minutes) ||
        *at++ != ':' || !two_digits(&at, 61, &seconds))
        return 0;
    if (*at == ':' || *at == '.') {
        at++;
        if (!fraction(&at, &micros))
            return 0;
    }
    *out_us = ((hours * 60 + minutes) * 60 + seconds) * 1000000 + micros;
    return at == end;
}

/* Where the comma of the text field at `at` is; NULL: the row ends first. */
static const char *comma_behind(const char *at) {
    at += strcspn(at, ",\n");
    return *at == ',' ? at : NULL;
}

static const char *take_time(const char **cursor, row *out_row) {
    const char *end = comma_behind(*cursor);
    if (!end)
        return "is missing";
    const char *from = *cursor;
    *cursor = end + 1;
    if (from == end)
        return NULL;
    out_row->has_time = 1;
    out_row->of_day = time_of_day(from, end, &out_row->time_us);
    if (out_row->of_day)
        return NULL;
    /* A bare number is microseconds. */
    const char *problem = vrpi_digits(&from, &out_row->time_us);
    return !problem && from == end ? NULL : "is neither HH:MM:SS:fraction nor a number";
}

static const char *take_action(const char **cursor, row *out_row) {
    static const struct {
        const char *name;
        action what;
    } known[] = {{"allocate", ALLOCATE}, {"free", FREE}, {"allocate failure", FAILURE}};
    const char *end = comma_behind(*cursor);
    if (!end)
        return "is missing";
    size_t length = (size_t)(end - *cursor);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) != length || memcmp(known[i].name, *cursor, length) != 0)
            continue;
        out_row->what = known[i].what;
        *cursor = end + 1;
        return NULL;
    }
    return "is none of allocate, free, allocate failure";
}

static const char *take_number(const char **cursor, char behind, uint64_t *out_value) {
    const char *problem = number(cursor, out_value);
    if (problem)
        return problem;
    *cursor += behind == '\n' && **cursor == '\r';
    if (**cursor != behind)
        return behind == ',' ? "has no comma after it" : "is not the end of the row";
    (*cursor)++;
    return NULL;
}

static int take_row(const char **cursor, row *out_row, vrpi_fault *fault) {
    memset(out_row, 0, sizeof *out_row);
    fault->field = "Thread";
    const char *thread_end = comma_behind(*cursor);
    fault->problem = thread_end ? NULL : "is missing";
    if (fault->problem)
        return 0;
    *cursor = thread_end + 1;
    fault->field = "Time";
    if ((fault->problem = take_time(cursor, out_row)) != NULL)
        return 0;
    fault->field = "Action";
    if ((fault->problem = take_action(cursor, out_row)) != NULL)
        return 0;
    fault->field = "Pointer";
    if ((fault->problem = take_number(cursor, ',', &out_row->pointer)) != NULL)
        return 0;
    fault->field = "Size";
    if ((fault->problem = take_number(cursor, ',', &out_row->bytes)) != NULL)
        return 0;
    fault->field = "Stream";
    fault->problem = take_number(cursor, '\n', &out_row->stream);
    return fault->problem == NULL;
}

/* Time never runs backwards: threads may log out of order by a little, and a
 * jump back by more than half a day is midnight. */
static void advance(vrp_trace_reader *reader, const row *now) {
    vrpi_rmm *rmm = &reader->rmm;
    if (!now->has_time)
        return;
    uint64_t day = 2 * HALF_DAY_US;
    if (rmm->clock_set && !now->of_day) {
        if (now->time_us <= rmm->clock_us)
            return;
        if (now->time_us - rmm->clock_us > UINT64_MAX - reader->time_us)
            return; /* the two kinds of time are mixed */
        reader->time_us += now->time_us - rmm->clock_us;
    } else if (rmm->clock_set) {
        uint64_t later = (now->time_us + day - rmm->clock_us % day) % day;
        if (later >= HALF_DAY_US)
            return;
        if (later > UINT64_MAX - reader->time_us)
            return;
        reader->time_us += later;
    }
    rmm->clock_set = 1;
    rmm->clock_us = now->time_us;
}

static int number_stream(vrpi_rmm *rmm, uint64_t handle, uint32_t *out_stream) {
    uint64_t stream = rmm->streams.count;
    if (!vrpi_trace_map_find(&rmm->streams, handle, &stream) &&
        !vrpi_trace_map_add(&rmm->streams, handle, stream))
        return 0;
    *out_stream = (uint32_t)stream;
    return 1;
}

static int full(const vrpi_trace_map *map, vrpi_fault *fault) {
    int reached = map->count >= map->limit;
    fault->problem = reached ? "is one more than the reader can hold" : "needs more host memory";
    return reached;
}

/* Errors: CORRUPTED, OUT_OF_HOST_MEMORY, with the fault set. */
static vrp_status to_event(vrpi_rmm *rmm, const row *now, vrp_trace_event *event,
                           vrpi_fault *fault) {
    uint64_t id = 0;
    int is_live = vrpi_trace_map_find(&rmm->blocks, now->pointer, &id);
    *event = (vrp_trace_event){0};
    fault->field = "Pointer";
    if (now->what == FREE) {
        event->kind = VRP_TRACE_FREE;
        event->id = id;
        fault->problem = "is freed but not allocated";
        if (!is_live)
            return VRP_CORRUPTED;
        vrpi_trace_map_remove(&rmm->blocks, now->pointer);
        return VRP_OK;
    }
    event->kind = VRP_TRACE_ALLOC;
    event->failed = now->what == FAILURE;
    event->bytes = now->bytes;
    event->id = rmm->next_id;
    if (now->what == ALLOCATE) {
        fault->problem = is_live ? "is allocated twice" : "is null";
        if (is_live || now->pointer == 0)
            return VRP_CORRUPTED;
    }
    fault->field = "Stream";
    if (!number_stream(rmm, now->stream, &event->stream))
        return full(&rmm->streams, fault) ? VRP_CORRUPTED : VRP_OUT_OF_HOST_MEMORY;
    fault->field = "Pointer";
    if (now->what == ALLOCATE && !vrpi_trace_map_add(&rmm->blocks, now->pointer, event->id))
        return full(&rmm->blocks, fault) ? VRP_CORRUPTED : VRP_OUT_OF_HOST_MEMORY;
    rmm->next_id++;
    return VRP_OK;
}

/* One row from the window. *out_used 0: it carries no event. The row is taken
 * only if the result is OK. */
static vrp_status next_row(vrp_trace_reader *reader, vrp_trace_event *event, size_t *out_used,
                           vrpi_fault *fault) {
    const char *cursor = reader->source.window + reader->source.begin;
    row now;
    *out_used = 0;
    if (reader->line == 0) { /* the heading, which told the format */
        cursor += strcspn(cursor, "\n") + 1;
    } else {
        if (!take_row(&cursor, &now, fault))
            return VRP_CORRUPTED;
        /* A request of nothing got the null pointer: no block came or went. */
        if (now.pointer != 0 || now.bytes != 0 || now.what == FAILURE) {
            vrp_status status = to_event(&reader->rmm, &now, event, fault);
            if (status != VRP_OK)
                return status;
            *out_used = 1;
        }
        advance(reader, &now);
    }
    reader->line++;
    reader->source.begin = (size_t)(cursor - reader->source.window);
    return VRP_OK;
}

vrp_status vrpi_rmm_read(vrp_trace_reader *reader, vrp_trace_event *events, size_t capacity,
                         size_t *out_count) {
    size_t count = 0;
    while (count < capacity) {
        vrp_status ready;
        if (!vrpi_line_at_hand(reader, count, &ready)) {
            VRPI_TRY(ready);
            break;
        }
        vrpi_fault fault = {NULL, NULL};
        size_t used = 0;
        vrp_status status = next_row(reader, &events[count], &used, &fault);
        if (status != VRP_OK && count == 0)
            return vrpi_reader_fail(reader, status, "%s %s", fault.field, fault.problem);
        if (status != VRP_OK || (used == 0 && count > 0))
            break;
        if (used == 0)
            continue;
        events[count++].time_us = reader->time_us;
        reader->event_line = reader->line;
    }
    *out_count = count;
    return VRP_OK;
}
