/* SPDX-License-Identifier: MIT */
/* GGUF: the table of tensors and where their data lie. */

#include "gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Text for a message about a tensor; at is the offset of its entry. */
static g3_status tensor_fail(const g3_tensor *tensor, uint64_t at, g3_error *error,
                             g3_status status, const char *what) {
    char name[G3_GGUF_MAX_NAME + 1];
    return g3_fail(error, status, "tensor '%s' at offset %" PRIu64 ": %s",
                   g3_printable(tensor->name, strlen(tensor->name), name, sizeof name), at, what);
}

/* Bytes of the data from dims and type. A dimension of 0 is a tensor of 0 bytes. */
static g3_status size_tensor(g3_tensor *tensor, uint64_t at, g3_error *error) {
    const g3_type_info *type = g3_type_layout(tensor->type);
    if (tensor->dims[0] % type->block_elements != 0) {
        char what[128];
        (void)snprintf(what, sizeof what,
                       "rows of %" PRIu64 " elements are not whole blocks of %s (%" PRIu32 ")",
                       tensor->dims[0], type->name, type->block_elements);
        return tensor_fail(tensor, at, error, G3_INVALID, what);
    }
    tensor->bytes = 0;
    for (uint32_t i = 0; i < G3_MAX_DIMS; i++)
        if (tensor->dims[i] == 0)
            return G3_OK;
    uint64_t bytes = tensor->dims[0] / type->block_elements;
    if (__builtin_mul_overflow(bytes, type->block_bytes, &bytes))
        return tensor_fail(tensor, at, error, G3_INVALID, "its size overflows 64 bits");
    for (uint32_t i = 1; i < G3_MAX_DIMS; i++)
        if (__builtin_mul_overflow(bytes, tensor->dims[i], &bytes))
            return tensor_fail(tensor, at, error, G3_INVALID, "its size overflows 64 bits");
    tensor->bytes = bytes;
    return G3_OK;
}

static g3_status read_name(g3_gguf *gguf, g3_cursor *cursor, size_t position, g3_error *error) {
    const uint64_t at = cursor->at;
    g3_text text;
    if (!g3_take_text(cursor, &text))
        return g3_fail(error, G3_INVALID,
                       "name of tensor %zu at offset %" PRIu64 ": the file ends in it", position,
                       at);
    if (text.count == 0 || text.count > G3_GGUF_MAX_NAME ||
        memchr(text.bytes, 0, text.count) != NULL)
        return g3_fail(error, G3_INVALID,
                       "name of tensor %zu at offset %" PRIu64 ": %zu bytes; 1 to %u without a "
                       "zero byte are allowed",
                       position, at, text.count, G3_GGUF_MAX_NAME);
    char *name = gguf->tensor_names + position * (G3_GGUF_MAX_NAME + 1);
    memcpy(name, text.bytes, text.count);
    gguf->tensors[position].name = name;
    if (!g3_index_add(&gguf->tensor_index, name, text.count, position))
        return tensor_fail(&gguf->tensors[position], at, error, G3_INVALID,
                           "the name is there twice");
    return G3_OK;
}

/* One entry; tensor->offset is still relative to the data section. */
static g3_status read_entry(g3_gguf *gguf, g3_cursor *cursor, size_t position, g3_error *error) {
    const uint64_t at = cursor->at;
    g3_status status = read_name(gguf, cursor, position, error);
    if (status != G3_OK)
        return status;
    g3_tensor *tensor = &gguf->tensors[position];
    tensor->path = gguf->name;
    uint32_t type = 0;
    if (!g3_take_u32(cursor, &tensor->dim_count))
        return tensor_fail(tensor, at, error, G3_INVALID, "the file ends in its entry");
    if (tensor->dim_count == 0 || tensor->dim_count > G3_MAX_DIMS) {
        char what[64];
        (void)snprintf(what, sizeof what, "%" PRIu32 " dimensions; 1 to %d are allowed",
                       tensor->dim_count, G3_MAX_DIMS);
        return tensor_fail(tensor, at, error, G3_INVALID, what);
    }
    for (uint32_t i = 0; i < G3_MAX_DIMS; i++)
        tensor->dims[i] = 1;
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        if (!g3_take_u64(cursor, &tensor->dims[i]))
            return tensor_fail(tensor, at, error, G3_INVALID, "the file ends in its entry");
    if (!g3_take_u32(cursor, &type) || !g3_take_u64(cursor, &tensor->offset))
        return tensor_fail(tensor, at, error, G3_INVALID, "the file ends in its entry");
    if (g3_type_layout(type) == NULL) {
        char what[64];
        (void)snprintf(what, sizeof what, "unknown type %" PRIu32, type);
        return tensor_fail(tensor, at, error, G3_UNSUPPORTED, what);
    }
    tensor->type = (g3_type)type;
    return size_tensor(tensor, at, error);
}

static g3_status read_alignment(const g3_gguf *gguf, uint64_t *out_alignment, g3_error *error) {
    *out_alignment = G3_GGUF_DEFAULT_ALIGNMENT;
    const g3_gguf_pair *pair = g3_gguf_pair_find(gguf, "general.alignment");
    if (pair == NULL)
        return G3_OK;
    if (pair->type != G3_GGUF_U32)
        return g3_fail(error, G3_INVALID,
                       "key 'general.alignment' at offset %" PRIu64 ": type %s, u32 is needed",
                       pair->offset, g3_gguf_type_name(pair->type));
    uint32_t value = 0;
    memcpy(&value, pair->value, sizeof value);
    if (value == 0 || value > G3_GGUF_MAX_ALIGNMENT || (value & (value - 1)) != 0)
        return g3_fail(error, G3_INVALID,
                       "key 'general.alignment' at offset %" PRIu64 ": %" PRIu32
                       " is not a power of two from 1 to %u",
                       pair->offset, value, G3_GGUF_MAX_ALIGNMENT);
    *out_alignment = value;
    return G3_OK;
}

static uint64_t align_up(uint64_t value, uint64_t alignment) {
    return (value + alignment - 1) & ~(alignment - 1);
}

/* Turns relative offsets into places. Tensors follow each other without gaps but
 * for padding, as every writer lays them out: nothing can overlap. */
static g3_status place_tensors(g3_gguf *gguf, uint64_t end_of_table, g3_error *error) {
    uint64_t alignment = 0;
    g3_status status = read_alignment(gguf, &alignment, error);
    if (status != G3_OK)
        return status;
    const uint64_t data = align_up(end_of_table, alignment);
    uint64_t next = 0; /* relative to data; data + next < 2^63: both come from the file's size */
    for (size_t i = 0; i < gguf->tensor_count; i++) {
        g3_tensor *tensor = &gguf->tensors[i];
        char what[160];
        if (tensor->offset % alignment != 0)
            (void)snprintf(what, sizeof what,
                           "data offset %" PRIu64 " is not a multiple of the alignment %" PRIu64,
                           tensor->offset, alignment);
        else if (tensor->offset != next)
            (void)snprintf(what, sizeof what,
                           "data offset %" PRIu64 ", but the tensor before it ends at %" PRIu64,
                           tensor->offset, next);
        else if (tensor->bytes > 0 &&
                 (data + next > gguf->count || tensor->bytes > gguf->count - (data + next)))
            (void)snprintf(what, sizeof what,
                           "%" PRIu64 " bytes of data do not fit: the file ends at %" PRIu64,
                           tensor->bytes, gguf->count);
        else
            what[0] = '\0';
        if (what[0] != '\0')
            return tensor_fail(tensor, data + next, error, G3_INVALID, what);
        tensor->offset = data + next;
        tensor->data = gguf->bytes + (tensor->offset < gguf->count ? tensor->offset : gguf->count);
        next = align_up(next + tensor->bytes, alignment);
    }
    return G3_OK;
}

g3_status g3_gguf_read_tensors(g3_gguf *gguf, g3_cursor *cursor, uint64_t tensor_count,
                               g3_error *error) {
    const uint64_t smallest = 8 + 4 + 4 + 8; /* length of the name, dimensions, type, offset */
    if (tensor_count > (cursor->count - cursor->at) / smallest)
        return g3_fail(error, G3_INVALID,
                       "header at offset 8: %" PRIu64 " tensors do not fit into the file",
                       tensor_count);
    gguf->tensor_count = (size_t)tensor_count;
    gguf->tensors = calloc(gguf->tensor_count + 1, sizeof *gguf->tensors);
    gguf->tensor_names = calloc(gguf->tensor_count + 1, G3_GGUF_MAX_NAME + 1);
    if (gguf->tensors == NULL || gguf->tensor_names == NULL ||
        !g3_index_create(&gguf->tensor_index, gguf->tensor_count))
        return g3_fail(error, G3_HOST_MEMORY, "no memory for %" PRIu64 " tensors", tensor_count);
    for (size_t i = 0; i < gguf->tensor_count; i++) {
        g3_status status = read_entry(gguf, cursor, i, error);
        if (status != G3_OK)
            return status;
    }
    return place_tensors(gguf, cursor->at, error);
}
