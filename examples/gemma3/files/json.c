/* SPDX-License-Identifier: MIT */
#include "json.h"

#include "map.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

g3_status g3_json_parse(const char *bytes, size_t count, size_t at, size_t flags, json_t **out_json,
                        g3_error *error) {
    json_error_t problem;
    *out_json = json_loadb(bytes, count, JSON_REJECT_DUPLICATES | flags, &problem);
    if (*out_json != NULL)
        return G3_OK;
    char text[sizeof problem.text];
    (void)g3_printable(problem.text, strlen(problem.text), text, sizeof text);
    if (text[0] == '\0' || /* the library says nothing where memory is short */
        (int)json_error_code(&problem) == json_error_out_of_memory)
        return g3_fail(error, G3_HOST_MEMORY, "no memory for JSON of %zu bytes", count);
    const bool twice = (int)json_error_code(&problem) == json_error_duplicate_key;
    return g3_fail(error, G3_INVALID, "line %d of the JSON, before offset %zu: %s%s%s",
                   problem.line, at + (size_t)(problem.position > 0 ? problem.position : 0),
                   twice ? "a key is there twice (" : "", text, twice ? ")" : "");
}

g3_status g3_json_load(const char *path, size_t max_bytes, size_t flags, json_t **out_json,
                       g3_error *error) {
    *out_json = NULL;
    g3_map map;
    g3_status status = g3_map_open(path, &map, error);
    if (status != G3_OK)
        return status;
    if (map.count > max_bytes)
        status =
            g3_fail(error, G3_INVALID, "%zu bytes; at most %zu are read", map.count, max_bytes);
    else
        status = g3_json_parse((const char *)map.bytes, map.count, 0, flags, out_json, error);
    g3_map_close(&map);
    return status == G3_OK ? G3_OK : g3_fail_in(error, status, path);
}

void g3_fields_fail(const g3_fields *fields, g3_status status, const char *key, const char *what) {
    if (*fields->status == G3_OK)
        *fields->status = g3_fail(fields->error, status, "%s%.96s: %s", fields->where, key, what);
}

/* Absent: NULL. */
static const json_t *raw(const g3_fields *fields, const char *key) {
    return fields->object == NULL ? NULL : json_object_get(fields->object, key);
}

const json_t *g3_fields_get(const g3_fields *fields, const char *key) {
    const json_t *value = raw(fields, key);
    return value == NULL || json_is_null(value) ? NULL : value;
}

uint32_t g3_fields_u32(const g3_fields *fields, const char *key, uint32_t preset) {
    const json_t *value = raw(fields, key);
    if (value == NULL)
        return preset;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > UINT32_MAX) {
        g3_fields_fail(fields, G3_INVALID, key, "an integer from 0 to 2^32-1 is needed");
        return preset;
    }
    return (uint32_t)json_integer_value(value);
}

double g3_fields_number(const g3_fields *fields, const char *key, double preset) {
    const json_t *value = raw(fields, key);
    if (value == NULL)
        return preset;
    if (!json_is_number(value)) {
        g3_fields_fail(fields, G3_INVALID, key, "a number is needed");
        return preset;
    }
    return json_number_value(value);
}

bool g3_fields_bool(const g3_fields *fields, const char *key, bool preset) {
    const json_t *value = raw(fields, key);
    if (value == NULL)
        return preset;
    if (!json_is_boolean(value)) {
        g3_fields_fail(fields, G3_INVALID, key, "true or false is needed");
        return preset;
    }
    return json_is_true(value);
}

const char *g3_fields_string(const g3_fields *fields, const char *key) {
    const json_t *value = g3_fields_get(fields, key);
    if (value == NULL)
        return NULL;
    if (!json_is_string(value))
        g3_fields_fail(fields, G3_INVALID, key, "a string is needed");
    return json_string_value(value);
}

bool g3_json_id(const json_t *value, int32_t *out_id) {
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > INT32_MAX)
        return false;
    *out_id = (int32_t)json_integer_value(value);
    return true;
}

int32_t g3_fields_id(const g3_fields *fields, const char *key, int32_t preset) {
    const json_t *value = raw(fields, key);
    int32_t id = -1;
    if (value == NULL)
        return preset;
    if (!json_is_null(value) && !(json_is_integer(value) && json_integer_value(value) == -1) &&
        !g3_json_id(value, &id))
        g3_fields_fail(fields, G3_INVALID, key, "a token id from 0 to 2^31-1 is needed");
    return id;
}

g3_fields g3_fields_object(const g3_fields *fields, const char *key) {
    g3_fields inner = *fields;
    inner.object = g3_fields_get(fields, key);
    (void)snprintf(inner.where, sizeof inner.where, "%.100s%.80s.", fields->where, key);
    if (inner.object != NULL && !json_is_object(inner.object)) {
        g3_fields_fail(fields, G3_INVALID, key, "an object is needed");
        inner.object = NULL;
    }
    return inner;
}
