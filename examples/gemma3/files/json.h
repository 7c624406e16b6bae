/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_JSON_H
#define GEMMA3_JSON_H

/* JSON files of a model folder, and typed fields of their objects. */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

/* Parses a whole text, which begins at offset `at` of its file (for messages); duplicate
 * keys are an error. flags: 0, or JSON_ALLOW_NUL for strings that may hold a zero byte. The
 * caller releases out_json. Errors: INVALID
 * (the text does not name the file), HOST_MEMORY. */
g3_status g3_json_parse(const char *bytes, size_t count, size_t at, size_t flags, json_t **out_json,
                        g3_error *error);

/* The same from a regular file of at most max_bytes; others are INVALID. Texts begin with
 * the path. */
g3_status g3_json_load(const char *path, size_t max_bytes, size_t flags, json_t **out_json,
                       g3_error *error);

/* The fields of one object, read with presets. The first failure stays in
 * *status and its text in error; later reads then answer presets. */
typedef struct g3_fields {
    const json_t *object; /* NULL: an object without fields */
    char where[192];      /* in front of keys in messages: "" or "text_config." */
    g3_status *status;
    g3_error *error;
} g3_fields;

/* Fails unless something failed before. */
void g3_fields_fail(const g3_fields *fields, g3_status status, const char *key, const char *what);

/* The value, or NULL where the key is absent or null. */
const json_t *g3_fields_get(const g3_fields *fields, const char *key);

/* Preset where the key is absent; a failure where it is null or of another
 * type, or for u32 outside 0 to 2^32-1. */
uint32_t g3_fields_u32(const g3_fields *fields, const char *key, uint32_t preset);
double g3_fields_number(const g3_fields *fields, const char *key, double preset);
bool g3_fields_bool(const g3_fields *fields, const char *key, bool preset);
/* NULL where absent or null; the string belongs to the object. */
const char *g3_fields_string(const g3_fields *fields, const char *key);
/* A token id: the preset where the key is absent, -1 where it is null or
 * -1. */
int32_t g3_fields_id(const g3_fields *fields, const char *key, int32_t preset);
/* The object under a key, with fields.object NULL where absent or null; the key and a
 * point are added to where. */
g3_fields g3_fields_object(const g3_fields *fields, const char *key);

/* Whether a JSON integer is an id of a token: 0 to 2^31-1. */
bool g3_json_id(const json_t *value, int32_t *out_id);

#endif
