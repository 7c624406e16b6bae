/* SPDX-License-Identifier: MIT */
/* GGUF: the file, its header and its metadata. */

#include "gguf_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 8 }; /* of arrays in arrays */

static const struct {
    const char *name;
    uint32_t bytes;
} value_types[G3_GGUF_TYPES] = {
    {"u8", 1},   {"i8", 1},     {"u16", 2},   {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
    {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8},
};

uint32_t g3_gguf_type_bytes(uint32_t type) {
    return type < G3_GGUF_TYPES ? value_types[type].bytes : 0;
}

const char *g3_gguf_type_name(uint32_t type) {
    return type < G3_GGUF_TYPES ? value_types[type].name : "unknown";
}

bool g3_take_bytes(g3_cursor *cursor, uint64_t count, const uint8_t **out_bytes) {
    if (count > cursor->count - cursor->at)
        return false;
    *out_bytes = cursor->bytes + cursor->at;
    cursor->at += count;
    return true;
}

bool g3_take_u32(g3_cursor *cursor, uint32_t *out_value) {
    const uint8_t *bytes = NULL;
    if (!g3_take_bytes(cursor, sizeof *out_value, &bytes))
        return false;
    memcpy(out_value, bytes, sizeof *out_value);
    return true;
}

bool g3_take_u64(g3_cursor *cursor, uint64_t *out_value) {
    const uint8_t *bytes = NULL;
    if (!g3_take_bytes(cursor, sizeof *out_value, &bytes))
        return false;
    memcpy(out_value, bytes, sizeof *out_value);
    return true;
}

bool g3_take_text(g3_cursor *cursor, g3_text *out_text) {
    const uint64_t before = cursor->at;
    uint64_t count = 0;
    const uint8_t *bytes = NULL;
    if (!g3_take_u64(cursor, &count) || !g3_take_bytes(cursor, count, &bytes)) {
        cursor->at = before;
        return false;
    }
    *out_text = (g3_text){.bytes = (const char *)bytes, .count = (size_t)count};
    return true;
}

/* ---- Metadata ------------------------------------------------------------------ */

static g3_status pair_fail(const g3_gguf_pair *pair, g3_error *error, g3_status status,
                           const char *what) {
    char key[96];
    return g3_fail(error, status, "key '%s' at offset %" PRIu64 ": %s",
                   g3_printable(pair->key.bytes, pair->key.count, key, sizeof key), pair->offset,
                   what);
}

static bool bools_are_0_or_1(const uint8_t *bytes, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        if (bytes[i] > 1)
            return false;
    return true;
}

static g3_status read_array(g3_cursor *cursor, g3_gguf_pair *pair, g3_error *error);

/* Arrays in an array; nobody asks for them, so they are only stepped over. pair: a copy,
 * for messages. */
static g3_status read_arrays(g3_cursor *cursor, const g3_array *array, g3_gguf_pair pair,
                             g3_error *error) {
    if (++pair.depth > MAX_DEPTH)
        return pair_fail(&pair, error, G3_UNSUPPORTED, "arrays in arrays, too deep");
    for (uint64_t i = 0; i < array->count; i++) {
        g3_status status = read_array(cursor, &pair, error);
        if (status != G3_OK)
            return status;
    }
    return G3_OK;
}

/* Elements of a fixed size. */
static g3_status read_numbers(g3_cursor *cursor, const g3_gguf_pair *pair, uint32_t element,
                              g3_error *error) {
    const g3_array *array = &pair->array;
    const uint8_t *data = NULL;
    if (array->count > (cursor->count - cursor->at) / element ||
        !g3_take_bytes(cursor, array->count * element, &data))
        return pair_fail(pair, error, G3_INVALID, "the file ends in the array");
    if (array->element_type == G3_GGUF_BOOL && !bools_are_0_or_1(data, array->count))
        return pair_fail(pair, error, G3_INVALID, "a bool that is neither 0 nor 1");
    return G3_OK;
}

static g3_status read_array(g3_cursor *cursor, g3_gguf_pair *pair, g3_error *error) {
    g3_array *array = &pair->array;
    if (!g3_take_u32(cursor, &array->element_type) || !g3_take_u64(cursor, &array->count))
        return pair_fail(pair, error, G3_INVALID, "the file ends in the array's header");
    if (array->element_type >= G3_GGUF_TYPES)
        return pair_fail(pair, error, G3_INVALID, "array of an unknown type");
    array->data = cursor->bytes + cursor->at;
    const uint64_t begin = cursor->at;
    const uint32_t element = g3_gguf_type_bytes(array->element_type);
    g3_status status = G3_OK;
    if (array->element_type == G3_GGUF_ARRAY) {
        status = read_arrays(cursor, array, *pair, error);
    } else if (element != 0) {
        status = read_numbers(cursor, pair, element, error);
    } else {
        g3_text text;
        for (uint64_t i = 0; status == G3_OK && i < array->count; i++)
            if (!g3_take_text(cursor, &text))
                status = pair_fail(pair, error, G3_INVALID, "the file ends in an array of strings");
    }
    array->bytes = cursor->at - begin;
    return status;
}

static g3_status read_value(g3_cursor *cursor, g3_gguf_pair *pair, g3_error *error) {
    if (pair->type == G3_GGUF_ARRAY)
        return read_array(cursor, pair, error);
    if (pair->type == G3_GGUF_STRING)
        return g3_take_text(cursor, &pair->text)
                   ? G3_OK
                   : pair_fail(pair, error, G3_INVALID, "the file ends in its string");
    if (pair->type >= G3_GGUF_TYPES)
        return pair_fail(pair, error, G3_INVALID, "unknown value type");
    if (!g3_take_bytes(cursor, g3_gguf_type_bytes(pair->type), &pair->value))
        return pair_fail(pair, error, G3_INVALID, "the file ends in its value");
    if (pair->type == G3_GGUF_BOOL && !bools_are_0_or_1(pair->value, 1))
        return pair_fail(pair, error, G3_INVALID, "a bool that is neither 0 nor 1");
    return G3_OK;
}

static g3_status read_pair(g3_gguf *gguf, g3_cursor *cursor, size_t position, g3_error *error) {
    g3_gguf_pair *pair = &gguf->pairs[position];
    pair->offset = cursor->at;
    if (!g3_take_text(cursor, &pair->key))
        return g3_fail(error, G3_INVALID, "key %zu at offset %" PRIu64 ": the file ends in it",
                       position, pair->offset);
    if (pair->key.count == 0 || pair->key.count > G3_GGUF_MAX_KEY)
        return g3_fail(error, G3_INVALID, "key %zu at offset %" PRIu64 ": %s", position,
                       pair->offset, pair->key.count == 0 ? "is empty" : "is too long");
    if (memchr(pair->key.bytes, 0, pair->key.count) != NULL)
        return pair_fail(pair, error, G3_INVALID, "a zero byte in the key");
    if (!g3_take_u32(cursor, &pair->type))
        return pair_fail(pair, error, G3_INVALID, "the file ends before its value type");
    if (!g3_index_add(&gguf->pair_index, pair->key.bytes, pair->key.count, position))
        return pair_fail(pair, error, G3_INVALID, "the key is there twice");
    return read_value(cursor, pair, error);
}

static g3_status read_pairs(g3_gguf *gguf, g3_cursor *cursor, uint64_t pair_count,
                            g3_error *error) {
    const uint64_t smallest = 8 + 4 + 1; /* length of the key, type, one byte of value */
    if (pair_count > (cursor->count - cursor->at) / smallest)
        return g3_fail(error, G3_INVALID,
                       "header at offset 16: %" PRIu64 " keys do not fit into the file",
                       pair_count);
    gguf->pair_count = (size_t)pair_count;
    gguf->pairs = calloc(gguf->pair_count + 1, sizeof *gguf->pairs);
    if (gguf->pairs == NULL || !g3_index_create(&gguf->pair_index, gguf->pair_count))
        return g3_fail(error, G3_HOST_MEMORY, "no memory for %" PRIu64 " keys", pair_count);
    for (size_t i = 0; i < gguf->pair_count; i++) {
        g3_status status = read_pair(gguf, cursor, i, error);
        if (status != G3_OK)
            return status;
    }
    return G3_OK;
}

/* ---- The file ------------------------------------------------------------------ */

static g3_status read_header(g3_cursor *cursor, uint64_t *out_tensors, uint64_t *out_pairs,
                             g3_error *error) {
    const uint8_t *magic = NULL;
    uint32_t version = 0;
    if (!g3_take_bytes(cursor, 4, &magic) || memcmp(magic, "GGUF", 4) != 0)
        return g3_fail(error, G3_INVALID, "not a GGUF file: it does not begin with 'GGUF'");
    if (!g3_take_u32(cursor, &version))
        return g3_fail(error, G3_INVALID, "the file ends in its header, at offset 4");
    if (version != 0 && (version & 0xffffu) == 0)
        return g3_fail(error, G3_UNSUPPORTED, "a big-endian GGUF file");
    if (version != 2 && version != 3)
        return g3_fail(error, G3_UNSUPPORTED, "GGUF version %" PRIu32 " (2 and 3 are read)",
                       version);
    if (!g3_take_u64(cursor, out_tensors) || !g3_take_u64(cursor, out_pairs))
        return g3_fail(error, G3_INVALID, "the file ends in its header, at offset %" PRIu64,
                       cursor->at);
    return G3_OK;
}

static g3_status parse(g3_gguf *gguf, g3_error *error) {
    g3_cursor cursor = {.bytes = gguf->bytes, .count = gguf->count};
    uint64_t tensors = 0;
    uint64_t pairs = 0;
    g3_status status = read_header(&cursor, &tensors, &pairs, error);
    if (status == G3_OK)
        status = read_pairs(gguf, &cursor, pairs, error);
    if (status == G3_OK)
        status = g3_gguf_read_tensors(gguf, &cursor, tensors, error);
    return status;
}

/* Takes the map over, whatever comes out. */
static g3_status parse_new(const uint8_t *bytes, size_t count, g3_map map, const char *name,
                           g3_gguf **out_gguf, g3_error *error) {
    *out_gguf = NULL;
    g3_gguf *gguf = calloc(1, sizeof *gguf);
    if (gguf == NULL) {
        g3_map_close(&map);
        return g3_fail(error, G3_HOST_MEMORY, "%s: no memory", name);
    }
    gguf->map = map;
    gguf->bytes = bytes;
    gguf->count = count;
    gguf->name = strdup(name);
    g3_status status =
        gguf->name == NULL ? g3_fail(error, G3_HOST_MEMORY, "no memory") : parse(gguf, error);
    if (status != G3_OK) {
        g3_gguf_close(gguf);
        return g3_fail_in(error, status, name);
    }
    *out_gguf = gguf;
    return G3_OK;
}

g3_status g3_gguf_open(const char *path, g3_gguf **out_gguf, g3_error *error) {
    *out_gguf = NULL;
    g3_map map;
    g3_status status = g3_map_open(path, &map, error);
    if (status != G3_OK)
        return status;
    return parse_new(map.bytes, map.count, map, path, out_gguf, error);
}

g3_status g3_gguf_parse(const uint8_t *bytes, size_t count, const char *name, g3_gguf **out_gguf,
                        g3_error *error) {
    return parse_new(bytes, count, (g3_map){0}, name, out_gguf, error);
}

void g3_gguf_close(g3_gguf *gguf) {
    if (gguf == NULL)
        return;
    g3_index_free(&gguf->pair_index);
    g3_index_free(&gguf->tensor_index);
    free(gguf->pairs);
    free(gguf->tensors);
    free(gguf->tensor_names);
    free(gguf->name);
    g3_map_close(&gguf->map);
    free(gguf);
}
