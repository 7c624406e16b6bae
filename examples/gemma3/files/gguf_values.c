/* SPDX-License-Identifier: MIT */
/* GGUF: answers to callers. */

#include "gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

size_t g3_gguf_tensor_count(const g3_gguf *gguf) { return gguf->tensor_count; }

const g3_tensor *g3_gguf_tensor(const g3_gguf *gguf, size_t index) {
    return index < gguf->tensor_count ? &gguf->tensors[index] : NULL;
}

const g3_tensor *g3_gguf_find(const g3_gguf *gguf, const char *name) {
    size_t position = 0;
    if (!g3_index_find(&gguf->tensor_index, name, strlen(name), &position))
        return NULL;
    return &gguf->tensors[position];
}

const g3_gguf_pair *g3_gguf_pair_find(const g3_gguf *gguf, const char *key) {
    size_t position = 0;
    if (!g3_index_find(&gguf->pair_index, key, strlen(key), &position))
        return NULL;
    return &gguf->pairs[position];
}

g3_status g3_gguf_key_fail(const g3_gguf *gguf, const char *key, g3_status status, g3_error *error,
                           const char *what) {
    const g3_gguf_pair *pair = g3_gguf_pair_find(gguf, key);
    if (pair == NULL)
        (void)g3_fail(error, status, "key '%.96s': %.300s", key, what);
    else
        (void)g3_fail(error, status, "key '%.96s' at offset %" PRIu64 ": %.300s", key, pair->offset,
                      what);
    return g3_fail_in(error, status, gguf->name);
}

static g3_status wrong(const g3_gguf *gguf, const g3_gguf_pair *pair, const char *key,
                       g3_error *error, const char *wanted) {
    char what[96];
    (void)snprintf(what, sizeof what, "%s is needed, it is of type %s", wanted,
                   g3_gguf_type_name(pair->type));
    return g3_gguf_key_fail(gguf, key, G3_INVALID, error, what);
}

/* An integer as sign and magnitude: i64 and u64 do not fit one type. */
typedef struct integer {
    bool negative;
    uint64_t magnitude;
} integer;

static integer from_signed(int64_t value) {
    if (value < 0)
        return (integer){true, (uint64_t)0 - (uint64_t)value};
    return (integer){false, (uint64_t)value};
}

#define G3_LOAD(type, value, data) \
    type value;                    \
    memcpy(&(value), data, sizeof(value))

/* false for a type that is no integer. */
static bool load_integer(uint32_t type, const uint8_t *data, integer *out_value) {
    switch (type) {
    case G3_GGUF_U8:
        *out_value = (integer){false, data[0]};
        return true;
    case G3_GGUF_I8: {
        G3_LOAD(int8_t, value, data);
        *out_value = from_signed(value);
        return true;
    }
    case G3_GGUF_U16: {
        G3_LOAD(uint16_t, value, data);
        *out_value = (integer){false, value};
        return true;
    }
    case G3_GGUF_I16: {
        G3_LOAD(int16_t, value, data);
        *out_value = from_signed(value);
        return true;
    }
    case G3_GGUF_U32: {
        G3_LOAD(uint32_t, value, data);
        *out_value = (integer){false, value};
        return true;
    }
    case G3_GGUF_I32: {
        G3_LOAD(int32_t, value, data);
        *out_value = from_signed(value);
        return true;
    }
    case G3_GGUF_U64: {
        G3_LOAD(uint64_t, value, data);
        *out_value = (integer){false, value};
        return true;
    }
    case G3_GGUF_I64: {
        G3_LOAD(int64_t, value, data);
        *out_value = from_signed(value);
        return true;
    }
    default:
        return false;
    }
}

static bool load_float(uint32_t type, const uint8_t *data, double *out_value) {
    if (type == G3_GGUF_F32) {
        G3_LOAD(float, value, data);
        *out_value = (double)value;
        return true;
    }
    if (type == G3_GGUF_F64) {
        memcpy(out_value, data, sizeof *out_value);
        return true;
    }
    return false;
}

g3_status g3_gguf_u32(const g3_gguf *gguf, const char *key, uint32_t *out_value, bool *out_found,
                      g3_error *error) {
    const g3_gguf_pair *pair = g3_gguf_pair_find(gguf, key);
    *out_found = false;
    if (pair == NULL)
        return G3_OK;
    integer value;
    if (!load_integer(pair->type, pair->value, &value))
        return wrong(gguf, pair, key, error, "an integer");
    if (value.negative || value.magnitude > UINT32_MAX) {
        char what[64];
        (void)snprintf(what, sizeof what, "%s%" PRIu64 " is outside 0 to 2^32-1",
                       value.negative ? "-" : "", value.magnitude);
        return g3_gguf_key_fail(gguf, key, G3_INVALID, error, what);
    }
    *out_value = (uint32_t)value.magnitude;
    *out_found = true;
    return G3_OK;
}

g3_status g3_gguf_f64(const g3_gguf *gguf, const char *key, double *out_value, bool *out_found,
                      g3_error *error) {
    const g3_gguf_pair *pair = g3_gguf_pair_find(gguf, key);
    *out_found = false;
    if (pair == NULL)
        return G3_OK;
    double value = 0;
    if (!load_float(pair->type, pair->value, &value))
        return wrong(gguf, pair, key, error, "a float");
    *out_value = value;
    *out_found = true;
    return G3_OK;
}

g3_status g3_gguf_bool(const g3_gguf *gguf, const char *key, bool *out_value, bool *out_found,
                       g3_error *error) {
    const g3_gguf_pair *pair = g3_gguf_pair_find(gguf, key);
    *out_found = false;
    if (pair == NULL)
        return G3_OK;
    if (pair->type != G3_GGUF_BOOL)
        return wrong(gguf, pair, key, error, "a bool");
    *out_value = pair->value[0] == 1;
    *out_found = true;
    return G3_OK;
}

g3_status g3_gguf_string(const g3_gguf *gguf, const char *key, g3_text *out_value, bool *out_found,
                         g3_error *error) {
    const g3_gguf_pair *pair = g3_gguf_pair_find(gguf, key);
    *out_found = false;
    if (pair == NULL)
        return G3_OK;
    if (pair->type != G3_GGUF_STRING)
        return wrong(gguf, pair, key, error, "a string");
    *out_value = pair->text;
    *out_found = true;
    return G3_OK;
}

g3_status g3_gguf_array(const g3_gguf *gguf, const char *key, g3_array *out_value, bool *out_found,
                        g3_error *error) {
    const g3_gguf_pair *pair = g3_gguf_pair_find(gguf, key);
    *out_found = false;
    if (pair == NULL)
        return G3_OK;
    if (pair->type != G3_GGUF_ARRAY)
        return wrong(gguf, pair, key, error, "an array");
    *out_value = pair->array;
    *out_found = true;
    return G3_OK;
}

bool g3_array_next_string(const g3_array *array, uint64_t *cursor, g3_text *out_value) {
    if (array->element_type != G3_GGUF_STRING || *cursor >= array->bytes)
        return false;
    g3_cursor place = {.bytes = array->data, .count = array->bytes, .at = *cursor};
    if (!g3_take_text(&place, out_value))
        return false;
    *cursor = place.at;
    return true;
}

double g3_array_number(const g3_array *array, uint64_t index) {
    const uint32_t bytes = g3_gguf_type_bytes(array->element_type);
    if (bytes == 0 || index >= array->count)
        return 0;
    const uint8_t *data = array->data + index * bytes;
    integer whole;
    double value = 0;
    if (load_integer(array->element_type, data, &whole))
        return whole.negative ? -(double)whole.magnitude : (double)whole.magnitude;
    return load_float(array->element_type, data, &value) ? value : 0;
}
