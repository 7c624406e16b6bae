/* SPDX-License-Identifier: MIT */
#ifndef VRPI_TRACE_COMPACT_H
#define VRPI_TRACE_COMPACT_H

/* The compact binary format, as docs/trace-format.md lays it down: a head,
 * blocks of events in columns, an end record with totals. */

#include <stddef.h>
#include <stdint.h>

#define VRPI_COMPACT_MAGIC "VRPT\r\n\x1a\n"
#define VRPI_MAGIC_BYTES ((size_t)8)
#define VRPI_COMPACT_VERSION 1u
#define VRPI_HEAD_BYTES ((size_t)16)

#define VRPI_BLOCK_TYPE 0x42u /* 'B' */
#define VRPI_END_TYPE 0x45u   /* 'E' */
#define VRPI_BLOCK_HEAD_BYTES ((size_t)17)
#define VRPI_END_BYTES ((size_t)37)

#define VRPI_BLOCK_EVENTS ((size_t)65536)

/* The byte of an event in the column of kinds. */
#define VRPI_KIND_MASK 0x03u
#define VRPI_MARKER_SHIFT 2
#define VRPI_MARKER_MASK 0x07u
#define VRPI_FAILED_BIT 0x20u
#define VRPI_KIND_UNUSED 0xc0u

typedef enum vrpi_column {
    VRPI_COLUMN_KINDS,
    VRPI_COLUMN_TIMES,
    VRPI_COLUMN_IDS,
    VRPI_COLUMN_DISTANCES,
    VRPI_COLUMN_SIZES,
    VRPI_COLUMN_LENGTHS,
    VRPI_COLUMN_STREAMS
} vrpi_column;
#define VRPI_COLUMNS 7

#define VRPI_VARINT_BYTES 10
/* Each column has at most one number an event, and there are the lengths. */
#define VRPI_RAW_BYTES \
    ((size_t)VRPI_COLUMNS * (VRPI_BLOCK_EVENTS * VRPI_VARINT_BYTES + sizeof(uint32_t)))

/* Totals of the end record. */
typedef struct vrpi_totals {
    uint64_t events;
    uint64_t allocations;
    uint64_t frees;
    uint64_t time_us; /* of the last event */
} vrpi_totals;

/* The reader's side. */
typedef struct vrpi_unpacker {
    unsigned char *packed; /* one block as it is in the file */
    size_t packed_room;
    unsigned char *raw; /* the same, unpacked */
    size_t raw_room;
    void *zstd;
    const unsigned char *at[VRPI_COLUMNS]; /* cursors into raw */
    const unsigned char *end[VRPI_COLUMNS];
    uint64_t *lengths; /* the block's distinct sizes so far */
    uint64_t length_count;
    size_t left;      /* events of the block that are still to come */
    uint64_t next_id; /* one above the id of the last allocation */
    vrpi_totals totals;
    int ended;
} vrpi_unpacker;

static inline void vrpi_put32(unsigned char *to, uint32_t value) {
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> (8 * i));
}

static inline void vrpi_put64(unsigned char *to, uint64_t value) {
    for (int i = 0; i < 8; i++)
        to[i] = (unsigned char)(value >> (8 * i));
}

static inline uint32_t vrpi_get32(const unsigned char *from) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++)
        value |= (uint32_t)from[i] << (8 * i);
    return value;
}

static inline uint64_t vrpi_get64(const unsigned char *from) {
    return vrpi_get32(from) | (uint64_t)vrpi_get32(from + 4) << 32;
}

#endif
