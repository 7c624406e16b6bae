/* SPDX-License-Identifier: MIT */
/* Writing of the compact format, a block at a time. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "platform/error.h"
#include "trace/compact.h"
#include "trace/map.h"
#include "vrampool/trace.h"

/* A trace is written once and read often. */
#define LEVEL 19

typedef struct column {
    unsigned char *bytes;
    size_t count;
} column;

struct vrp_trace_writer {
    FILE *file;
    ZSTD_CCtx *zstd;
    column columns[VRPI_COLUMNS];
    unsigned char *raw;     /* the columns of a block, one after the other */
    unsigned char *packed;  /* a whole record */
    vrpi_trace_map lengths; /* size -> its place among the block's sizes */
    size_t block_events;
    uint64_t next_id;
    vrpi_totals totals;
    vrp_status failed;
};

static void put(column *to, uint64_t value) {
    while (value >= 0x80) {
        to->bytes[to->count++] = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    to->bytes[to->count++] = (unsigned char)value;
}

static size_t packed_room(void) {
    return VRPI_BLOCK_HEAD_BYTES + ZSTD_compressBound(VRPI_RAW_BYTES);
}

static uint32_t checksum(uint32_t so_far, const unsigned char *bytes, size_t count) {
    return (uint32_t)crc32_z(so_far, bytes, count);
}

static vrp_status put_bytes(vrp_trace_writer *writer, const unsigned char *bytes, size_t count) {
    return fwrite(bytes, 1, count, writer->file) == count ? VRP_OK : VRP_INTERNAL;
}

static vrp_status put_head(vrp_trace_writer *writer) {
    unsigned char head[VRPI_HEAD_BYTES];
    memcpy(head, VRPI_COMPACT_MAGIC, VRPI_MAGIC_BYTES);
    vrpi_put32(head + 8, VRPI_COMPACT_VERSION);
    vrpi_put32(head + 12, checksum(0, head, 12));
    return put_bytes(writer, head, sizeof head);
}

static size_t join_columns(vrp_trace_writer *writer) {
    size_t used = VRPI_COLUMNS * sizeof(uint32_t);
    for (size_t i = 0; i < VRPI_COLUMNS; i++) {
        column *from = &writer->columns[i];
        vrpi_put32(writer->raw + i * sizeof(uint32_t), (uint32_t)from->count);
        memcpy(writer->raw + used, from->bytes, from->count);
        used += from->count;
        from->count = 0;
    }
    return used;
}

static vrp_status put_block(vrp_trace_writer *writer) {
    unsigned char *record = writer->packed;
    size_t raw_bytes = join_columns(writer);
    size_t packed_bytes =
        ZSTD_compressCCtx(writer->zstd, record + VRPI_BLOCK_HEAD_BYTES,
                          packed_room() - VRPI_BLOCK_HEAD_BYTES, writer->raw, raw_bytes, LEVEL);
    if (ZSTD_isError(packed_bytes))
        return ZSTD_getErrorCode(packed_bytes) == ZSTD_error_memory_allocation
                   ? VRP_OUT_OF_HOST_MEMORY
                   : VRP_INTERNAL;
    size_t known = VRPI_BLOCK_HEAD_BYTES - sizeof(uint32_t);
    record[0] = VRPI_BLOCK_TYPE;
    vrpi_put32(record + 1, (uint32_t)writer->block_events);
    vrpi_put32(record + 5, (uint32_t)raw_bytes);
    vrpi_put32(record + 9, (uint32_t)packed_bytes);
    uint32_t sum = checksum(0, record, known);
    sum = checksum(sum, record + VRPI_BLOCK_HEAD_BYTES, packed_bytes);
    vrpi_put32(record + known, sum);
    writer->block_events = 0;
    vrpi_trace_map_clear(&writer->lengths);
    return put_bytes(writer, record, VRPI_BLOCK_HEAD_BYTES + packed_bytes);
}

static vrp_status put_end(vrp_trace_writer *writer) {
    unsigned char record[VRPI_END_BYTES];
    size_t known = VRPI_END_BYTES - sizeof(uint32_t);
    record[0] = VRPI_END_TYPE;
    vrpi_put64(record + 1, writer->totals.events);
    vrpi_put64(record + 9, writer->totals.allocations);
    vrpi_put64(record + 17, writer->totals.frees);
    vrpi_put64(record + 25, writer->totals.time_us);
    vrpi_put32(record + known, checksum(0, record, known));
    return put_bytes(writer, record, sizeof record);
}

static void drop(vrp_trace_writer *writer) {
    for (size_t i = 0; i < VRPI_COLUMNS; i++)
        free(writer->columns[i].bytes);
    free(writer->raw);
    free(writer->packed);
    vrpi_trace_map_free(&writer->lengths);
    ZSTD_freeCCtx(writer->zstd);
    free(writer);
}

static int make_room(vrp_trace_writer *writer) {
    int good = 1;
    for (size_t i = 0; i < VRPI_COLUMNS; i++) {
        writer->columns[i].bytes = malloc(VRPI_BLOCK_EVENTS * VRPI_VARINT_BYTES);
        good = good && writer->columns[i].bytes;
    }
    writer->raw = malloc(VRPI_RAW_BYTES);
    writer->packed = malloc(packed_room());
    writer->zstd = ZSTD_createCCtx();
    vrpi_trace_map_init(&writer->lengths, VRPI_BLOCK_EVENTS);
    return good && writer->raw && writer->packed && writer->zstd;
}

vrp_status vrp_trace_writer_open(const char *path, vrp_trace_writer **out_writer) {
    if (!path || !out_writer)
        return VRP_INVALID_ARGUMENT;
    vrp_trace_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return VRP_OUT_OF_HOST_MEMORY;
    if (!make_room(writer)) {
        drop(writer);
        return VRP_OUT_OF_HOST_MEMORY;
    }
    writer->file = fopen(path, "wb");
    if (!writer->file) {
        drop(writer);
        return VRP_INVALID_ARGUMENT;
    }
    writer->failed = put_head(writer);
    *out_writer = writer;
    return VRP_OK;
}

static int is_valid(const vrp_trace_event *events, size_t count, uint64_t time_us) {
    for (size_t i = 0; i < count; i++) {
        const vrp_trace_event *event = &events[i];
        int is_alloc = event->kind == VRP_TRACE_ALLOC;
        int is_marker = event->kind == VRP_TRACE_MARKER;
        if (event->kind > VRP_TRACE_MARKER || event->failed > (is_alloc ? 1 : 0) ||
            event->marker > (is_marker ? VRP_MARKER_REQUEST : 0) || event->time_us < time_us)
            return 0;
        time_us = event->time_us;
    }
    return 1;
}

/* 0: no memory for the sizes. */
static int put_alloc(vrp_trace_writer *writer, const vrp_trace_event *event) {
    uint64_t step = event->id - writer->next_id;
    uint64_t place = 0;
    put(&writer->columns[VRPI_COLUMN_IDS], step << 1 ^ (0 - (step >> 63)));
    put(&writer->columns[VRPI_COLUMN_STREAMS], event->stream);
    if (vrpi_trace_map_find(&writer->lengths, event->bytes, &place)) {
        put(&writer->columns[VRPI_COLUMN_SIZES], place + 1);
    } else {
        if (!vrpi_trace_map_add(&writer->lengths, event->bytes, writer->lengths.count))
            return 0;
        put(&writer->columns[VRPI_COLUMN_SIZES], 0);
        put(&writer->columns[VRPI_COLUMN_LENGTHS], event->bytes);
    }
    writer->next_id = event->id + 1;
    writer->totals.allocations++;
    return 1;
}

static int put_event(vrp_trace_writer *writer, const vrp_trace_event *event) {
    uint64_t code = event->kind | (uint64_t)event->marker << VRPI_MARKER_SHIFT;
    column *kinds = &writer->columns[VRPI_COLUMN_KINDS];
    kinds->bytes[kinds->count++] = (unsigned char)(code | (event->failed ? VRPI_FAILED_BIT : 0));
    put(&writer->columns[VRPI_COLUMN_TIMES], event->time_us - writer->totals.time_us);
    writer->totals.time_us = event->time_us;
    writer->totals.events++;
    writer->block_events++;
    if (event->kind == VRP_TRACE_ALLOC)
        return put_alloc(writer, event);
    if (event->kind != VRP_TRACE_MARKER)
        put(&writer->columns[VRPI_COLUMN_DISTANCES], writer->next_id - 1 - event->id);
    writer->totals.frees += event->kind == VRP_TRACE_FREE;
    return 1;
}

vrp_status vrp_trace_write(vrp_trace_writer *writer, const vrp_trace_event *events, size_t count) {
    if (!writer || (!events && count > 0))
        return VRP_INVALID_ARGUMENT;
    if (writer->failed != VRP_OK)
        return writer->failed;
    if (!is_valid(events, count, writer->totals.time_us))
        return VRP_INVALID_ARGUMENT;
    for (size_t i = 0; i < count && writer->failed == VRP_OK; i++) {
        if (!put_event(writer, &events[i]))
            writer->failed = VRP_OUT_OF_HOST_MEMORY;
        else if (writer->block_events == VRPI_BLOCK_EVENTS)
            writer->failed = put_block(writer);
    }
    return writer->failed;
}

vrp_status vrp_trace_writer_close(vrp_trace_writer *writer) {
    if (!writer)
        return VRP_INVALID_ARGUMENT;
    vrp_status status = writer->failed;
    if (status == VRP_OK && writer->block_events > 0)
        status = put_block(writer);
    if (status == VRP_OK)
        status = put_end(writer);
    if (fclose(writer->file) != 0 && status == VRP_OK)
        status = VRP_INTERNAL;
    drop(writer);
    return status;
}
