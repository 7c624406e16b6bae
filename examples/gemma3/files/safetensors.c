/* SPDX-License-Identifier: MIT */
#include "safetensors.h"

#include "index.h"
#include "json.h"
#include "map.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HEADER ((uint64_t)100 << 20)
#define LENGTH_BYTES 8u

struct g3_safetensors {
    g3_map map; /* empty when the bytes are the caller's */
    char *name;
    json_t *header; /* while it is read */
    char *names;    /* of all tensors, each ended by NUL */
    g3_st_tensor *tensors;
    size_t count;
    g3_index index;
    const uint8_t *data; /* first byte behind the header */
    uint64_t data_bytes;
    uint64_t data_offset;
};

static const struct {
    const char *name;
    g3_st_type type;
    uint32_t bits; /* of an element */
} dtypes[] = {
    {"F32", G3_ST_F32, 32},      {"F16", G3_ST_F16, 16},          {"BF16", G3_ST_BF16, 16},
    {"I32", G3_ST_I32, 32},      {"I64", G3_ST_I64, 64},          {"F64", G3_ST_OTHER, 64},
    {"I16", G3_ST_OTHER, 16},    {"I8", G3_ST_OTHER, 8},          {"U8", G3_ST_OTHER, 8},
    {"U16", G3_ST_OTHER, 16},    {"U32", G3_ST_OTHER, 32},        {"U64", G3_ST_OTHER, 64},
    {"BOOL", G3_ST_OTHER, 8},    {"F8_E4M3", G3_ST_OTHER, 8},     {"F8_E5M2", G3_ST_OTHER, 8},
    {"F8_E8M0", G3_ST_OTHER, 8}, {"F8_E4M3FNUZ", G3_ST_OTHER, 8}, {"F8_E5M2FNUZ", G3_ST_OTHER, 8},
    {"C64", G3_ST_OTHER, 64},    {"F4", G3_ST_OTHER, 4},          {"F6_E2M3", G3_ST_OTHER, 6},
    {"F6_E3M2", G3_ST_OTHER, 6},
};

/* Where the tensor's entry stands in the file: the first place of its name in quotes, the
 * header where that is written with escapes. */
static uint64_t entry_offset(const g3_safetensors *file, const char *name) {
    const uint8_t *header = file->data - (file->data_offset - LENGTH_BYTES);
    const size_t count = name == NULL ? 0 : strlen(name);
    const uint8_t *end = file->data;
    for (const uint8_t *at = header; count > 0 && (size_t)(end - at) > count + 1; at++) {
        at = memchr(at, '"', (size_t)(end - at) - count - 1);
        if (at == NULL)
            break;
        if (at[count + 1] == '"' && memcmp(at + 1, name, count) == 0)
            return LENGTH_BYTES + (uint64_t)(at - header);
    }
    return LENGTH_BYTES;
}

static g3_status tensor_fail(const g3_safetensors *file, const char *name, g3_error *error,
                             g3_status status, const char *what) {
    char text[96];
    return g3_fail(error, status, "tensor '%s' at offset %" PRIu64 ": %s",
                   g3_printable(name, name == NULL ? 0 : strlen(name), text, sizeof text),
                   entry_offset(file, name), what);
}

/* The type's row in dtypes; a failure for others. */
static g3_status read_dtype(const g3_safetensors *file, const char *name, const json_t *entry,
                            size_t *out_row, g3_error *error) {
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (dtype == NULL)
        return tensor_fail(file, name, error, G3_INVALID, "no dtype");
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtype, dtypes[i].name) == 0) {
            *out_row = i;
            return G3_OK;
        }
    char text[32];
    char what[96];
    (void)snprintf(what, sizeof what, "unknown dtype '%s'",
                   g3_printable(dtype, strlen(dtype), text, sizeof text));
    return tensor_fail(file, name, error, G3_INVALID, what);
}

/* Fills in the shape and answers the bytes that it takes. */
static g3_status read_shape(const g3_safetensors *file, g3_st_tensor *tensor, const json_t *entry,
                            uint32_t element_bits, uint64_t *out_bytes, g3_error *error) {
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return tensor_fail(file, tensor->name, error, G3_INVALID, "no shape");
    if (json_array_size(shape) > G3_MAX_DIMS + 1)
        return tensor_fail(file, tensor->name, error, G3_UNSUPPORTED, "more than 5 dimensions");
    tensor->dim_count = (uint32_t)json_array_size(shape);
    bool empty = false;
    for (uint32_t i = 0; i < tensor->dim_count; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return tensor_fail(file, tensor->name, error, G3_INVALID,
                               "a dimension is not an integer of 0 or more");
        tensor->shape[i] = (uint64_t)json_integer_value(dim);
        empty = empty || tensor->shape[i] == 0;
    }
    uint64_t bits = element_bits;
    for (uint32_t i = 0; i < tensor->dim_count && !empty; i++)
        if (__builtin_mul_overflow(bits, tensor->shape[i], &bits))
            return tensor_fail(file, tensor->name, error, G3_INVALID, "its size overflows 64 bits");
    if (bits % 8 != 0 && !empty)
        return tensor_fail(file, tensor->name, error, G3_INVALID, "its size is no whole bytes");
    *out_bytes = empty ? 0 : bits / 8;
    return G3_OK;
}

static g3_status read_offsets(const g3_safetensors *file, g3_st_tensor *tensor, const json_t *entry,
                              uint64_t bytes, g3_error *error) {
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0);
    const json_t *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return tensor_fail(file, tensor->name, error, G3_INVALID,
                           "data_offsets are not a begin and an end behind it");
    const uint64_t from = (uint64_t)json_integer_value(begin);
    const uint64_t to = (uint64_t)json_integer_value(end);
    char what[160];
    if (to > file->data_bytes)
        (void)snprintf(what, sizeof what,
                       "its data end at %" PRIu64 ", behind the %" PRIu64 " bytes of data", to,
                       file->data_bytes);
    else if (to - from != bytes)
        (void)snprintf(what, sizeof what,
                       "%" PRIu64 " bytes of data, but its shape and dtype take %" PRIu64,
                       to - from, bytes);
    else
        what[0] = '\0';
    if (what[0] != '\0')
        return tensor_fail(file, tensor->name, error, G3_INVALID, what);
    tensor->data = file->data + from;
    tensor->bytes = bytes;
    tensor->offset = file->data_offset + from;
    return G3_OK;
}

static g3_status read_entry(const g3_safetensors *file, const char *name, const json_t *entry,
                            g3_st_tensor *out_tensor, g3_error *error) {
    size_t row = 0;
    uint64_t bytes = 0;
    *out_tensor = (g3_st_tensor){.name = name};
    if (!json_is_object(entry))
        return tensor_fail(file, name, error, G3_INVALID, "its entry is not an object");
    g3_status status = read_dtype(file, name, entry, &row, error);
    if (status != G3_OK)
        return status;
    out_tensor->type = dtypes[row].type;
    out_tensor->dtype = dtypes[row].name;
    status = read_shape(file, out_tensor, entry, dtypes[row].bits, &bytes, error);
    if (status != G3_OK)
        return status;
    return read_offsets(file, out_tensor, entry, bytes, error);
}

static g3_status check_metadata(const json_t *metadata, g3_error *error) {
    if (!json_is_object(metadata))
        return g3_fail(error, G3_INVALID, "__metadata__ is not an object");
    for (void *at = json_object_iter((json_t *)(uintptr_t)metadata); at != NULL;
         at = json_object_iter_next((json_t *)(uintptr_t)metadata, at))
        if (!json_is_string(json_object_iter_value(at)))
            return g3_fail(error, G3_INVALID, "__metadata__ has a value that is no string");
    return G3_OK;
}

static g3_status read_entries(g3_safetensors *file, g3_error *error) {
    const size_t entries = json_object_size(file->header);
    file->tensors = calloc(entries + 1, sizeof *file->tensors);
    if (file->tensors == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "no memory for %zu tensors", entries);
    for (void *at = json_object_iter(file->header); at != NULL;
         at = json_object_iter_next(file->header, at)) {
        const char *name = json_object_iter_key(at);
        const json_t *entry = json_object_iter_value(at);
        g3_status status =
            strcmp(name, "__metadata__") == 0
                ? check_metadata(entry, error)
                : read_entry(file, name, entry, &file->tensors[file->count++], error);
        if (status != G3_OK)
            return status;
    }
    return G3_OK;
}

/* ---- Tiling -------------------------------------------------------------------- */

/* By place; an empty tensor stands before one that begins at the same place. */
static int by_offset(const void *a, const void *b) {
    const g3_st_tensor *x = a;
    const g3_st_tensor *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static g3_status check_tiling(g3_safetensors *file, g3_error *error) {
    if (file->count > 1)
        qsort(file->tensors, file->count, sizeof *file->tensors, by_offset);
    uint64_t next = file->data_offset;
    for (size_t i = 0; i < file->count; i++) {
        const g3_st_tensor *tensor = &file->tensors[i];
        char what[160];
        if (tensor->offset < next) {
            (void)snprintf(what, sizeof what,
                           "its data at offset %" PRIu64
                           " overlap the tensor before, which ends at %" PRIu64,
                           tensor->offset, next);
            return tensor_fail(file, tensor->name, error, G3_INVALID, what);
        }
        if (tensor->offset > next) {
            (void)snprintf(what, sizeof what,
                           "a gap of %" PRIu64 " bytes at offset %" PRIu64 " before its data",
                           tensor->offset - next, next);
            return tensor_fail(file, tensor->name, error, G3_INVALID, what);
        }
        next += tensor->bytes;
    }
    const uint64_t end = file->data_offset + file->data_bytes;
    if (next != end)
        return g3_fail(error, G3_INVALID,
                       "%" PRIu64 " trailing bytes at offset %" PRIu64 " behind the last tensor",
                       end - next, next);
    return G3_OK;
}

/* ---- The file ------------------------------------------------------------------ */

/* JSON that cannot be read may be so for a number of more than 63 bits. Read with all
 * numbers as reals, it tells whose it is; else the error stays as it was. */
static g3_status name_entry(g3_safetensors *file, const char *header, size_t length,
                            g3_error *error) {
    json_t *root = NULL;
    size_t row = 0;
    g3_status status = G3_OK;
    if (g3_json_parse(header, length, LENGTH_BYTES, JSON_DECODE_INT_AS_REAL, &root, NULL) != G3_OK)
        return G3_INVALID;
    for (void *at = json_object_iter(root); status == G3_OK && at != NULL;
         at = json_object_iter_next(root, at)) {
        const char *name = json_object_iter_key(at);
        const json_t *entry = json_object_iter_value(at);
        if (strcmp(name, "__metadata__") == 0 || !json_is_object(entry))
            continue;
        const json_t *const lists[] = {json_object_get(entry, "shape"),
                                       json_object_get(entry, "data_offsets")};
        status = read_dtype(file, name, entry, &row, error);
        for (size_t i = 0; i < 2; i++)
            for (size_t j = 0; status == G3_OK && j < json_array_size(lists[i]); j++)
                if (json_real_value(json_array_get(lists[i], j)) >= 0x1p63)
                    status = tensor_fail(file, name, error, G3_INVALID,
                                         i == 0 ? "a dimension is 2^63 or more"
                                                : "data_offsets of 2^63 or more");
    }
    json_decref(root);
    return G3_INVALID;
}

static g3_status read_header(g3_safetensors *file, const uint8_t *bytes, uint64_t count,
                             g3_error *error) {
    uint64_t length = 0;
    if (count < LENGTH_BYTES)
        return g3_fail(error, G3_INVALID, "%" PRIu64 " bytes are shorter than a header's length",
                       count);
    memcpy(&length, bytes, sizeof length);
    if (length == 0)
        return g3_fail(error, G3_INVALID, "the header is empty");
    if (length > MAX_HEADER)
        return g3_fail(error, G3_INVALID,
                       "a header of %" PRIu64 " bytes; at most %" PRIu64 " (100 MiB) are read",
                       length, MAX_HEADER);
    if (length > count - LENGTH_BYTES)
        return g3_fail(error, G3_INVALID,
                       "a header of %" PRIu64 " bytes in a file of %" PRIu64 " bytes", length,
                       count);
    if (bytes[LENGTH_BYTES] != '{')
        return g3_fail(error, G3_INVALID, "the header does not begin with '{'");
    file->data_offset = LENGTH_BYTES + length;
    file->data = bytes + file->data_offset;
    file->data_bytes = count - file->data_offset;
    const char *header = (const char *)bytes + LENGTH_BYTES;
    g3_status status = g3_json_parse(header, (size_t)length, LENGTH_BYTES, 0, &file->header, error);
    if (status == G3_OK)
        return G3_OK;
    (void)g3_fail_in(error, status, "header");
    return status == G3_INVALID ? name_entry(file, header, (size_t)length, error) : status;
}

/* The header takes many times the memory of its names, which are all that is kept. */
static g3_status keep_names(g3_safetensors *file, g3_error *error) {
    size_t bytes = 1;
    for (size_t i = 0; i < file->count; i++)
        bytes += strlen(file->tensors[i].name) + 1;
    file->names = malloc(bytes);
    if (file->names == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "no memory for %zu tensors", file->count);
    char *at = file->names;
    for (size_t i = 0; i < file->count; i++) {
        const size_t count = strlen(file->tensors[i].name) + 1;
        memcpy(at, file->tensors[i].name, count);
        file->tensors[i].name = at;
        at += count;
    }
    json_decref(file->header);
    file->header = NULL;
    return G3_OK;
}

static g3_status parse(g3_safetensors *file, const uint8_t *bytes, size_t count, g3_error *error) {
    g3_status status = read_header(file, bytes, count, error);
    if (status == G3_OK)
        status = read_entries(file, error);
    if (status == G3_OK)
        status = check_tiling(file, error);
    if (status == G3_OK)
        status = keep_names(file, error);
    if (status != G3_OK)
        return status;
    if (!g3_index_create(&file->index, file->count))
        return g3_fail(error, G3_HOST_MEMORY, "no memory for %zu tensors", file->count);
    for (size_t i = 0; i < file->count; i++) /* JSON has made sure that names differ */
        (void)g3_index_add(&file->index, file->tensors[i].name, strlen(file->tensors[i].name), i);
    return G3_OK;
}

/* Takes the map over, whatever comes out. */
static g3_status parse_new(const uint8_t *bytes, size_t count, g3_map map, const char *name,
                           g3_safetensors **out_file, g3_error *error) {
    *out_file = NULL;
    g3_safetensors *file = calloc(1, sizeof *file);
    if (file == NULL) {
        g3_map_close(&map);
        return g3_fail(error, G3_HOST_MEMORY, "%s: no memory", name);
    }
    file->map = map;
    file->name = strdup(name);
    g3_status status = file->name == NULL ? g3_fail(error, G3_HOST_MEMORY, "no memory")
                                          : parse(file, bytes, count, error);
    if (status != G3_OK) {
        g3_safetensors_close(file);
        return g3_fail_in(error, status, name);
    }
    *out_file = file;
    return G3_OK;
}

g3_status g3_safetensors_open(const char *path, g3_safetensors **out_file, g3_error *error) {
    *out_file = NULL;
    g3_map map;
    g3_status status = g3_map_open(path, &map, error);
    if (status != G3_OK)
        return status;
    return parse_new(map.bytes, map.count, map, path, out_file, error);
}

g3_status g3_safetensors_parse(const uint8_t *bytes, size_t count, const char *name,
                               g3_safetensors **out_file, g3_error *error) {
    return parse_new(bytes, count, (g3_map){0}, name, out_file, error);
}

void g3_safetensors_close(g3_safetensors *file) {
    if (file == NULL)
        return;
    json_decref(file->header);
    g3_index_free(&file->index);
    free(file->tensors);
    free(file->names);
    free(file->name);
    g3_map_close(&file->map);
    free(file);
}

size_t g3_safetensors_count(const g3_safetensors *file) { return file->count; }

const g3_st_tensor *g3_safetensors_at(const g3_safetensors *file, size_t index) {
    return index < file->count ? &file->tensors[index] : NULL;
}

const g3_st_tensor *g3_safetensors_find(const g3_safetensors *file, const char *name) {
    size_t position = 0;
    if (!g3_index_find(&file->index, name, strlen(name), &position))
        return NULL;
    return &file->tensors[position];
}

uint64_t g3_safetensors_header_bytes(const g3_safetensors *file) { return file->data_offset; }

const char *g3_safetensors_path(const g3_safetensors *file) { return file->name; }
