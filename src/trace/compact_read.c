/* SPDX-License-Identifier: MIT */
/* Reading of the compact format. Nothing that the file says is believed before
 * its checksum holds and its bounds are checked; the buffers grow only with
 * bytes that are really there. */

#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "trace/reader.h"

static vrp_status damaged(vrp_trace_reader *reader, const char *what) {
    return vrpi_reader_fail(reader, VRP_CORRUPTED, "%s", what);
}

static uint32_t checksum(const unsigned char *bytes, size_t count) {
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), bytes, count);
}

/* Exactly `count` bytes of the file. */
static vrp_status take(vrp_trace_reader *reader, void *to, size_t count) {
    size_t got = 0;
    vrp_status status = vrpi_source_take(&reader->source, to, count, &got);
    if (status != VRP_OK)
        return vrpi_reader_fail(reader, status, "%s", reader->source.reason);
    return got == count ? VRP_OK : damaged(reader, "the file ends early");
}

vrp_status vrpi_compact_begin(vrp_trace_reader *reader) {
    unsigned char head[VRPI_HEAD_BYTES];
    vrpi_unpacker *unpacker = &reader->unpacker;
    VRPI_TRY(take(reader, head, sizeof head));
    if (vrpi_get32(head + 12) != checksum(head, 12))
        return damaged(reader, "the head is damaged");
    if (vrpi_get32(head + 8) != VRPI_COMPACT_VERSION)
        return vrpi_reader_fail(reader, VRP_INVALID_ARGUMENT, "version %lu is not known",
                                (unsigned long)vrpi_get32(head + 8));
    unpacker->zstd = ZSTD_createDCtx();
    unpacker->lengths = malloc(VRPI_BLOCK_EVENTS * sizeof *unpacker->lengths);
    if (!unpacker->zstd || !unpacker->lengths)
        return vrpi_reader_fail(reader, VRP_OUT_OF_HOST_MEMORY, "out of host memory");
    return VRP_OK;
}

void vrpi_compact_end(vrp_trace_reader *reader) {
    vrpi_unpacker *unpacker = &reader->unpacker;
    ZSTD_freeDCtx(unpacker->zstd);
    free(unpacker->lengths);
    free(unpacker->packed);
    free(unpacker->raw);
    memset(unpacker, 0, sizeof *unpacker);
}

static int room_for(unsigned char **buffer, size_t *room, size_t bytes) {
    if (bytes <= *room)
        return 1;
    free(*buffer);
    *buffer = malloc(bytes);
    *room = *buffer ? bytes : 0;
    return *buffer != NULL;
}

/* Sets the cursors to the columns, whose lengths stand in front of them. */
static vrp_status split(vrp_trace_reader *reader, size_t raw_bytes, size_t events) {
    vrpi_unpacker *unpacker = &reader->unpacker;
    size_t used = VRPI_COLUMNS * sizeof(uint32_t);
    if (raw_bytes < used)
        return damaged(reader, "a block is too short for its columns");
    for (size_t i = 0; i < VRPI_COLUMNS; i++) {
        size_t length = vrpi_get32(unpacker->raw + i * sizeof(uint32_t));
        if (length > raw_bytes - used)
            return damaged(reader, "a column is longer than its block");
        unpacker->at[i] = unpacker->raw + used;
        used += length;
        unpacker->end[i] = unpacker->raw + used;
    }
    const unsigned char *kinds = unpacker->at[VRPI_COLUMN_KINDS];
    if (used != raw_bytes || (size_t)(unpacker->end[VRPI_COLUMN_KINDS] - kinds) != events)
        return damaged(reader, "the columns do not fill their block");
    unpacker->left = events;
    unpacker->length_count = 0;
    return VRP_OK;
}

static vrp_status take_block(vrp_trace_reader *reader, const unsigned char *head) {
    vrpi_unpacker *unpacker = &reader->unpacker;
    size_t events = vrpi_get32(head + 1);
    size_t raw_bytes = vrpi_get32(head + 5);
    size_t packed_bytes = vrpi_get32(head + 9);
    if (events == 0 || events > VRPI_BLOCK_EVENTS || raw_bytes > VRPI_RAW_BYTES ||
        packed_bytes > ZSTD_compressBound(VRPI_RAW_BYTES))
        return damaged(reader, "a block's head is out of bounds");
    size_t known = VRPI_BLOCK_HEAD_BYTES - sizeof(uint32_t);
    if (!room_for(&unpacker->packed, &unpacker->packed_room, known + packed_bytes) ||
        !room_for(&unpacker->raw, &unpacker->raw_room, raw_bytes))
        return vrpi_reader_fail(reader, VRP_OUT_OF_HOST_MEMORY, "out of host memory");
    memcpy(unpacker->packed, head, known);
    VRPI_TRY(take(reader, unpacker->packed + known, packed_bytes));
    if (vrpi_get32(head + known) != checksum(unpacker->packed, known + packed_bytes))
        return damaged(reader, "a block is damaged");
    uint64_t from = vrpi_wall_ns();
    size_t got = ZSTD_decompressDCtx(unpacker->zstd, unpacker->raw, raw_bytes,
                                     unpacker->packed + known, packed_bytes);
    reader->source.unpacking_ns += vrpi_wall_ns() - from;
    if (ZSTD_isError(got) || got != raw_bytes)
        return damaged(reader, "a block does not unpack");
    return split(reader, raw_bytes, events);
}

/* The end record, whose totals must be those of the events, and nothing
 * behind it. */
static vrp_status take_end(vrp_trace_reader *reader, unsigned char *record) {
    vrpi_unpacker *unpacker = &reader->unpacker;
    const vrpi_totals *totals = &unpacker->totals;
    VRPI_TRY(take(reader, record + 1, VRPI_END_BYTES - 1));
    size_t known = VRPI_END_BYTES - sizeof(uint32_t);
    if (vrpi_get32(record + known) != checksum(record, known))
        return damaged(reader, "the end record is damaged");
    if (vrpi_get64(record + 1) != totals->events || vrpi_get64(record + 9) != totals->allocations ||
        vrpi_get64(record + 17) != totals->frees || vrpi_get64(record + 25) != reader->time_us)
        return damaged(reader, "the end record's totals are not those of the events");
    size_t got = 0;
    unsigned char behind;
    vrp_status status = vrpi_source_take(&reader->source, &behind, 1, &got);
    if (status != VRP_OK)
        return vrpi_reader_fail(reader, status, "%s", reader->source.reason);
    if (got > 0)
        return damaged(reader, "there are bytes behind the end record");
    unpacker->ended = 1;
    return VRP_OK;
}

static vrp_status take_record(vrp_trace_reader *reader) {
    unsigned char record[VRPI_END_BYTES];
    VRPI_TRY(take(reader, record, 1));
    if (record[0] == VRPI_END_TYPE)
        return take_end(reader, record);
    if (record[0] != VRPI_BLOCK_TYPE)
        return damaged(reader, "a record's type is not known");
    VRPI_TRY(take(reader, record + 1, VRPI_BLOCK_HEAD_BYTES - 1));
    return take_block(reader, record);
}

/* 7 bits a byte, low ones first. 0: past the column's end, or above 64 bits. */
static inline int varint(vrpi_unpacker *unpacker, vrpi_column column, uint64_t *out_value) {
    const unsigned char *at = unpacker->at[column];
    const unsigned char *end = unpacker->end[column];
    uint64_t value = 0;
    for (unsigned shift = 0; at < end && shift < 64; shift += 7) {
        unsigned char byte = *at++;
        if (shift == 63 && byte > 1)
            return 0;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            unpacker->at[column] = at;
            *out_value = value;
            return 1;
        }
    }
    return 0;
}

static inline int alloc(vrpi_unpacker *unpacker, vrp_trace_event *event) {
    uint64_t coded = 0;
    uint64_t length = 0;
    uint64_t stream = 0;
    if (!varint(unpacker, VRPI_COLUMN_IDS, &coded) ||
        !varint(unpacker, VRPI_COLUMN_SIZES, &length) ||
        !varint(unpacker, VRPI_COLUMN_STREAMS, &stream) || stream > UINT32_MAX)
        return 0;
    /* The sign is the lowest bit. Unsigned, so that it wraps as written. */
    event->id = unpacker->next_id + ((coded >> 1) ^ (0 - (coded & 1)));
    event->stream = (uint32_t)stream;
    if (length > unpacker->length_count)
        return 0;
    if (length == 0) {
        uint64_t *fresh = &unpacker->lengths[unpacker->length_count++];
        if (!varint(unpacker, VRPI_COLUMN_LENGTHS, fresh))
            return 0;
        event->bytes = *fresh;
    } else {
        event->bytes = unpacker->lengths[length - 1];
    }
    unpacker->next_id = event->id + 1;
    unpacker->totals.allocations++;
    return 1;
}

static inline int next_event(vrp_trace_reader *reader, vrp_trace_event *event) {
    vrpi_unpacker *unpacker = &reader->unpacker;
    unsigned code = *unpacker->at[VRPI_COLUMN_KINDS]++;
    uint64_t dt = 0;
    uint64_t distance = 0;
    if (!varint(unpacker, VRPI_COLUMN_TIMES, &dt) || dt > UINT64_MAX - reader->time_us)
        return 0;
    reader->time_us += dt;
    *event = (vrp_trace_event){.kind = (uint8_t)(code & VRPI_KIND_MASK),
                               .marker = (uint8_t)(code >> VRPI_MARKER_SHIFT & VRPI_MARKER_MASK),
                               .failed = (code & VRPI_FAILED_BIT) != 0,
                               .time_us = reader->time_us};
    unpacker->totals.events++;
    if (code & VRPI_KIND_UNUSED || event->marker > VRP_MARKER_REQUEST)
        return 0;
    if (event->kind == VRP_TRACE_ALLOC)
        return event->marker == 0 && alloc(unpacker, event);
    if (event->failed)
        return 0;
    if (event->kind == VRP_TRACE_MARKER)
        return 1;
    if (event->marker != 0 || !varint(unpacker, VRPI_COLUMN_DISTANCES, &distance))
        return 0;
    event->id = unpacker->next_id - 1 - distance;
    unpacker->totals.frees += event->kind == VRP_TRACE_FREE;
    return 1;
}

/* Every column must end with its block. */
static int is_used_up(const vrpi_unpacker *unpacker) {
    for (size_t i = 0; i < VRPI_COLUMNS; i++)
        if (unpacker->at[i] != unpacker->end[i])
            return 0;
    return 1;
}

vrp_status vrpi_compact_read(vrp_trace_reader *reader, vrp_trace_event *events, size_t capacity,
                             size_t *out_count) {
    vrpi_unpacker *unpacker = &reader->unpacker;
    size_t count = 0;
    while (count < capacity) {
        while (unpacker->left == 0 && !unpacker->ended) {
            vrp_status status = take_record(reader);
            if (status != VRP_OK && count == 0)
                return status;
            if (status != VRP_OK)
                break;
        }
        if (unpacker->left == 0)
            break;
        int good = next_event(reader, &events[count]);
        unpacker->left--;
        if (!good || (unpacker->left == 0 && !is_used_up(unpacker))) {
            unpacker->left = 0;
            damaged(reader, "an event is out of bounds");
            break;
        }
        count++;
        reader->event_line = ++reader->line;
    }
    *out_count = count;
    return count == 0 ? reader->failed : VRP_OK;
}
