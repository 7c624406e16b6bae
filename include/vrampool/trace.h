/* SPDX-License-Identifier: MIT */
#ifndef VRAMPOOL_TRACE_H
#define VRAMPOOL_TRACE_H

/* Reading and writing of recorded allocation workloads: a library target of
 * its own (vrampool::trace), which the pool does not need.
 *
 * Formats that are read: "vram trace v2" CSV, RMM's CSV log
 * (Thread,Time,Action,Pointer,Size,Stream), each plain or gzip-compressed, and
 * vrampool's compact binary format (docs/trace-format.md). The format is told
 * by content, never by the file's name. */

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum vrp_trace_kind {
    VRP_TRACE_ALLOC = 0,
    VRP_TRACE_FREE = 1,
    VRP_TRACE_SAFE = 2, /* the recorder saw the free as safe for others */
    VRP_TRACE_MARKER = 3,
    VRP_TRACE_KIND_FORCE_INT32 = 0x7fffffff
} vrp_trace_kind;

typedef enum vrp_trace_marker {
    VRP_MARKER_OTHER = 0,
    VRP_MARKER_LOAD = 1,
    VRP_MARKER_TURN = 2,
    VRP_MARKER_CLEAR = 3,
    VRP_MARKER_STEP = 4,
    VRP_MARKER_REQUEST = 5,
    VRP_MARKER_FORCE_INT32 = 0x7fffffff
} vrp_trace_marker;

typedef struct vrp_trace_event {
    uint8_t kind;     /* vrp_trace_kind */
    uint8_t marker;   /* vrp_trace_marker, markers only */
    uint16_t failed;  /* 1: the recorded request had failed there (RMM) */
    uint32_t stream;  /* number of the stream, allocations only */
    uint64_t id;      /* of the block */
    uint64_t bytes;   /* requested, allocations only */
    uint64_t time_us; /* since the beginning of the trace */
} vrp_trace_event;

typedef struct vrp_trace_reader vrp_trace_reader;

/* Opens a file and reads its head. The detail (vrp_error_detail_get is not
 * used here) is in `message`: file, line or offset, and reason.
 * Errors: INVALID_ARGUMENT (no such file, unknown format or version),
 * CORRUPTED (a damaged or cut head), OUT_OF_HOST_MEMORY. */
VRP_API VRP_NODISCARD vrp_status vrp_trace_open(const char *path, char *message,
                                                size_t message_bytes,
                                                vrp_trace_reader **out_reader);

/* The next events, up to `capacity`; out_count 0 at the end. A malformed row,
 * a truncated file: CORRUPTED, and vrp_trace_message says where and what. The
 * events in front of a fault come first, with VRP_OK; the fault then stays.
 * The events of one call stand on consecutive lines, which end with
 * vrp_trace_line. */
VRP_API VRP_NODISCARD vrp_status vrp_trace_read(vrp_trace_reader *reader, vrp_trace_event *events,
                                                size_t capacity, size_t *out_count);
VRP_API const char *vrp_trace_message(const vrp_trace_reader *reader);

/* Line (CSV) or record number (binary) of the last event that was read, and
 * how far into the file that is, 0 to 1. */
VRP_API uint64_t vrp_trace_line(const vrp_trace_reader *reader);
VRP_API double vrp_trace_progress(const vrp_trace_reader *reader);
/* Nanoseconds of wall time spent decompressing so far. */
VRP_API uint64_t vrp_trace_decompress_wall_ns(const vrp_trace_reader *reader);
VRP_API void vrp_trace_close(vrp_trace_reader *reader);

typedef struct vrp_trace_writer vrp_trace_writer;

/* Writes the compact binary format. Errors: INVALID_ARGUMENT (the file cannot
 * be made; an event is out of range or earlier than the one before: then
 * nothing of the call is written), OUT_OF_HOST_MEMORY, INTERNAL (the disk is
 * full; vrp_trace_writer_close still has to be called). */
VRP_API VRP_NODISCARD vrp_status vrp_trace_writer_open(const char *path,
                                                       vrp_trace_writer **out_writer);
VRP_API VRP_NODISCARD vrp_status vrp_trace_write(vrp_trace_writer *writer,
                                                 const vrp_trace_event *events, size_t count);
/* Ends the file and the writer. Errors: INTERNAL (the disk is full). */
VRP_API VRP_NODISCARD vrp_status vrp_trace_writer_close(vrp_trace_writer *writer);

#ifdef __cplusplus
}
#endif
#endif
