/* SPDX-License-Identifier: MIT */
#ifndef VRPI_TRACE_READER_H
#define VRPI_TRACE_READER_H

/* What the readers of all formats share. */

#include "platform/error.h"
#include "trace/compact.h"
#include "trace/map.h"
#include "trace/source.h"

typedef enum vrpi_format { VRPI_FORMAT_CSV, VRPI_FORMAT_RMM, VRPI_FORMAT_COMPACT } vrpi_format;

/* The state of an RMM log: addresses come again, ids must not. */
typedef struct vrpi_rmm {
    vrpi_trace_map blocks;  /* live address -> id */
    vrpi_trace_map streams; /* handle -> number in order of appearance */
    uint64_t next_id;
    uint64_t clock_us; /* the last time of day that was read */
    int clock_set;
} vrpi_rmm;

struct vrp_trace_reader {
    vrpi_source source;
    vrpi_format format;
    size_t lines_end; /* offset in the window behind the last whole line */
    uint64_t line;    /* lines (records, compact) taken so far */
    uint64_t event_line;
    uint64_t time_us;
    vrp_status failed; /* every later read returns it again */
    vrpi_rmm rmm;
    vrpi_unpacker unpacker;
    char *path;
    char message[512];
};

/* What is wrong with a row: "FIELD: PROBLEM". */
typedef struct vrpi_fault {
    const char *field;
    const char *problem;
} vrpi_fault;

/* Sets the message to "path:line: reason" for the line after `line`, keeps
 * `status` for later reads and returns it. */
vrp_status vrpi_reader_fail(vrp_trace_reader *reader, vrp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Makes whole lines available at window[begin .. lines_end); none at the end
 * of the file. Errors: CORRUPTED (also a last line without its newline),
 * INVALID_ARGUMENT, OUT_OF_HOST_MEMORY. */
vrp_status vrpi_lines_ready(vrp_trace_reader *reader);

/* Whether there is a line to take for a reading that has `count` events so
 * far. If not, *out_status is what the reading answers should it have none: a
 * fault behind events that were read is for the next reading to tell. */
int vrpi_line_at_hand(vrp_trace_reader *reader, size_t count, vrp_status *out_status);

/* Decimal digits at *cursor, which must be followed by a byte that is none.
 * Returns NULL and moves the cursor, or says what is wrong. */
const char *vrpi_digits(const char **cursor, uint64_t *out_value);

/* One batch of events each; the caller has checked the arguments. They stop
 * before a line that carries no event, so that a batch is of consecutive
 * lines, and return what they have before they report what is wrong. */
vrp_status vrpi_csv_read(vrp_trace_reader *reader, vrp_trace_event *events, size_t capacity,
                         size_t *out_count);
void vrpi_rmm_begin(vrp_trace_reader *reader);
void vrpi_rmm_end(vrp_trace_reader *reader);
vrp_status vrpi_rmm_read(vrp_trace_reader *reader, vrp_trace_event *events, size_t capacity,
                         size_t *out_count);

/* Reads and checks the head. Errors: CORRUPTED, INVALID_ARGUMENT (a version
 * that is not known), OUT_OF_HOST_MEMORY. */
vrp_status vrpi_compact_begin(vrp_trace_reader *reader);
void vrpi_compact_end(vrp_trace_reader *reader);
vrp_status vrpi_compact_read(vrp_trace_reader *reader, vrp_trace_event *events, size_t capacity,
                             size_t *out_count);

#endif
