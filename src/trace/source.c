/* SPDX-License-Identifier: MIT */
/* Reading of plain and gzip files through a window of fixed size. */

#include "trace/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Small enough for a core's own cache, large enough that moving the rest of a
 * line to the front costs nothing. */
#define WINDOW_BYTES ((size_t)256 * 1024)
#define PACKED_BYTES ((size_t)64 * 1024)

uint64_t vrpi_wall_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* fread that tells an error from the end of the file. */
static vrp_status fetch(vrpi_source *source, void *to, size_t room, size_t *out_got) {
    size_t got = fread(to, 1, room, source->file);
    if (got == 0 && ferror(source->file)) {
        source->reason = strerror(errno);
        return VRP_INVALID_ARGUMENT;
    }
    source->fetched += got;
    *out_got = got;
    return VRP_OK;
}

static vrp_status fill_plain(vrpi_source *source) {
    while (source->end < WINDOW_BYTES) {
        size_t got = 0;
        vrp_status status =
            fetch(source, source->window + source->end, WINDOW_BYTES - source->end, &got);
        if (status != VRP_OK)
            return status;
        if (got == 0) {
            source->at_end = 1;
            break;
        }
        source->end += got;
    }
    return VRP_OK;
}

/* One inflate call, which may end a gzip member; another may follow it. */
static vrp_status inflate_some(vrpi_source *source) {
    z_stream *zlib = &source->zlib;
    zlib->next_out = (Bytef *)source->window + source->end;
    zlib->avail_out = (uInt)(WINDOW_BYTES - source->end);
    uint64_t from = vrpi_wall_ns();
    if (!source->in_member)
        inflateReset(zlib);
    source->in_member = 1;
    int code = inflate(zlib, Z_NO_FLUSH);
    source->unpacking_ns += vrpi_wall_ns() - from;
    source->end = WINDOW_BYTES - zlib->avail_out;
    if (code == Z_STREAM_END) {
        source->in_member = 0;
        return VRP_OK;
    }
    if (code == Z_OK || code == Z_BUF_ERROR)
        return VRP_OK;
    if (code == Z_MEM_ERROR) {
        source->reason = "out of host memory";
        return VRP_OUT_OF_HOST_MEMORY;
    }
    source->reason = zlib->msg ? zlib->msg : "the gzip data is damaged";
    return VRP_CORRUPTED;
}

static vrp_status fill_gzip(vrpi_source *source) {
    while (source->end < WINDOW_BYTES) {
        if (source->zlib.avail_in == 0) {
            size_t got = 0;
            vrp_status status = fetch(source, source->packed, PACKED_BYTES, &got);
            if (status != VRP_OK)
                return status;
            source->zlib.next_in = source->packed;
            source->zlib.avail_in = (uInt)got;
            if (got == 0 && source->in_member) {
                source->reason = "the gzip data ends early";
                return VRP_CORRUPTED;
            }
            if (got == 0) {
                source->at_end = 1;
                return VRP_OK;
            }
        }
        vrp_status status = inflate_some(source);
        if (status != VRP_OK)
            return status;
    }
    return VRP_OK;
}

vrp_status vrpi_source_fill(vrpi_source *source) {
    size_t left = source->end - source->begin;
    if (source->begin > 0)
        memmove(source->window, source->window + source->begin, left);
    source->dropped += source->begin;
    source->begin = 0;
    source->end = left;
    if (source->at_end)
        return VRP_OK;
    return source->is_gzip ? fill_gzip(source) : fill_plain(source);
}

vrp_status vrpi_source_take(vrpi_source *source, void *to, size_t count, size_t *out_got) {
    size_t got = 0;
    while (got < count) {
        if (source->begin == source->end) {
            if (source->at_end)
                break;
            vrp_status status = vrpi_source_fill(source);
            if (status != VRP_OK)
                return status;
            continue;
        }
        size_t part = source->end - source->begin;
        if (part > count - got)
            part = count - got;
        memcpy((char *)to + got, source->window + source->begin, part);
        source->begin += part;
        got += part;
    }
    *out_got = got;
    return VRP_OK;
}

/* Plain bytes that were read to tell the kind of the file go on as gzip. */
static vrp_status begin_gzip(vrpi_source *source) {
    source->packed = malloc(PACKED_BYTES);
    if (!source->packed || inflateInit2(&source->zlib, 15 + 16) != Z_OK) {
        source->reason = "out of host memory";
        return VRP_OUT_OF_HOST_MEMORY;
    }
    source->is_gzip = 1;
    memcpy(source->packed, source->window, source->end);
    source->zlib.next_in = source->packed;
    source->zlib.avail_in = (uInt)source->end;
    source->end = 0;
    return vrpi_source_fill(source);
}

static vrp_status open_file(vrpi_source *source, const char *path) {
    struct stat facts;
    source->file = fopen(path, "rb");
    if (!source->file || fstat(fileno(source->file), &facts) != 0) {
        source->reason = strerror(errno);
        return VRP_INVALID_ARGUMENT;
    }
    if (S_ISREG(facts.st_mode))
        source->file_bytes = (uint64_t)facts.st_size;
    source->window = malloc(WINDOW_BYTES);
    if (!source->window) {
        source->reason = "out of host memory";
        return VRP_OUT_OF_HOST_MEMORY;
    }
    size_t got = 0;
    vrp_status status = fetch(source, source->window, PACKED_BYTES, &got);
    if (status != VRP_OK)
        return status;
    source->end = got;
    const unsigned char *head = (const unsigned char *)source->window;
    if (got >= 2 && head[0] == 0x1f && head[1] == 0x8b)
        return begin_gzip(source);
    return vrpi_source_fill(source);
}

vrp_status vrpi_source_open(vrpi_source *source, const char *path) {
    memset(source, 0, sizeof *source);
    vrp_status status = open_file(source, path);
    if (status != VRP_OK)
        vrpi_source_close(source);
    return status;
}

void vrpi_source_close(vrpi_source *source) {
    if (source->is_gzip)
        inflateEnd(&source->zlib);
    source->is_gzip = 0;
    free(source->packed);
    free(source->window);
    source->packed = NULL;
    source->window = NULL;
    if (source->file)
        fclose(source->file);
    source->file = NULL;
}

double vrpi_source_progress(const vrpi_source *source) {
    uint64_t left = source->end - source->begin;
    if (source->at_end && left == 0)
        return 1.0;
    if (source->file_bytes == 0)
        return 0.0;
    uint64_t waiting = source->is_gzip ? source->zlib.avail_in : left;
    double part = (double)(source->fetched - waiting) / (double)source->file_bytes;
    return part > 1.0 ? 1.0 : part;
}
