/* SPDX-License-Identifier: MIT */
#ifndef VRPI_TRACE_SOURCE_H
#define VRPI_TRACE_SOURCE_H

/* The bytes of a trace file, plain or gzip-compressed, through one window of
 * fixed size: however large a file grows when it is unpacked, the memory does
 * not. Unpacking is timed apart from everything else. */

#include <stdio.h>
#include <zlib.h>

#include "vrampool/trace.h"

typedef struct vrpi_source {
    FILE *file;
    unsigned char *packed; /* gzip only: bytes as they are in the file */
    char *window;          /* bytes to be read, window[begin .. end) */
    size_t begin;
    size_t end;
    int is_gzip;
    int in_member; /* inside a gzip member, which must end before the file */
    int at_end;    /* window holds the last bytes */
    z_stream zlib;
    uint64_t file_bytes;   /* 0 if unknown (a pipe) */
    uint64_t fetched;      /* bytes read from the file */
    uint64_t dropped;      /* bytes that have left the window, unpacked */
    uint64_t unpacking_ns; /* wall time */
    const char *reason;    /* why the last call failed */
} vrpi_source;

/* Opens the file and fills the window for the first time. On failure nothing
 * is kept. Errors: INVALID_ARGUMENT, OUT_OF_HOST_MEMORY, CORRUPTED (gzip). */
vrp_status vrpi_source_open(vrpi_source *source, const char *path);
void vrpi_source_close(vrpi_source *source);

/* Moves what is left to the front and reads on until the window is full or
 * the file ends. Errors: CORRUPTED (gzip), INVALID_ARGUMENT (unreadable). */
vrp_status vrpi_source_fill(vrpi_source *source);

/* Copies exactly `count` bytes out. *out_got says how many there were. */
vrp_status vrpi_source_take(vrpi_source *source, void *to, size_t count, size_t *out_got);

/* How much of the file has been consumed, 0 to 1. */
double vrpi_source_progress(const vrpi_source *source);

uint64_t vrpi_wall_ns(void);

#endif
