/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_GGUF_INTERNAL_H
#define GEMMA3_GGUF_INTERNAL_H

/* What the parts of the GGUF reader share: gguf.c (file, header, metadata),
 * gguf_tensors.c (tensor table), gguf_values.c (answers to callers). */

#include "gguf.h"
#include "index.h"
#include "map.h"

#define G3_GGUF_MAX_NAME 64u
#define G3_GGUF_MAX_KEY 65535u
#define G3_GGUF_MAX_ALIGNMENT (1u << 20)
#define G3_GGUF_DEFAULT_ALIGNMENT 32u

typedef enum g3_gguf_type {
    G3_GGUF_U8 = 0,
    G3_GGUF_I8 = 1,
    G3_GGUF_U16 = 2,
    G3_GGUF_I16 = 3,
    G3_GGUF_U32 = 4,
    G3_GGUF_I32 = 5,
    G3_GGUF_F32 = 6,
    G3_GGUF_BOOL = 7,
    G3_GGUF_STRING = 8,
    G3_GGUF_ARRAY = 9,
    G3_GGUF_U64 = 10,
    G3_GGUF_I64 = 11,
    G3_GGUF_F64 = 12,
    G3_GGUF_TYPES = 13
} g3_gguf_type;

/* Bytes of a value; 0 for string and array, whose length is in the file. */
uint32_t g3_gguf_type_bytes(uint32_t type);
const char *g3_gguf_type_name(uint32_t type);

/* One pair of the metadata. Which of value, text and array holds something is
 * said by type; all of it was compared with the file's end. */
typedef struct g3_gguf_pair {
    g3_text key;
    uint64_t offset; /* of the pair in the file */
    uint32_t type;
    const uint8_t *value; /* a number or bool, unaligned */
    g3_text text;
    g3_array array;
    uint32_t depth; /* of arrays around the one that is read */
} g3_gguf_pair;

struct g3_gguf {
    g3_map map; /* empty when the bytes are the caller's */
    const uint8_t *bytes;
    uint64_t count;
    char *name; /* path, for messages */
    g3_gguf_pair *pairs;
    size_t pair_count;
    g3_index pair_index;
    g3_tensor *tensors;
    char *tensor_names; /* G3_GGUF_MAX_NAME + 1 bytes each, ended by NUL */
    size_t tensor_count;
    g3_index tensor_index;
};

/* A place in the file. The take functions copy and move on, or answer false and
 * stay where they are. */
typedef struct g3_cursor {
    const uint8_t *bytes;
    uint64_t count;
    uint64_t at; /* <= count */
} g3_cursor;
bool g3_take_u32(g3_cursor *cursor, uint32_t *out_value);
bool g3_take_u64(g3_cursor *cursor, uint64_t *out_value);
bool g3_take_bytes(g3_cursor *cursor, uint64_t count, const uint8_t **out_bytes);
bool g3_take_text(g3_cursor *cursor, g3_text *out_text); /* u64 length, bytes */

/* The pair of a key, NULL if absent. */
const g3_gguf_pair *g3_gguf_pair_find(const g3_gguf *gguf, const char *key);

/* Reads the tensor table, which begins at the cursor, and places every tensor
 * in the file. Texts do not name the file. */
g3_status g3_gguf_read_tensors(g3_gguf *gguf, g3_cursor *cursor, uint64_t tensor_count,
                               g3_error *error);

#endif
