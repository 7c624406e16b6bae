/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_GGUF_H
#define GEMMA3_GGUF_H

/* The GGUF container (versions 2 and 3, little endian), mapped and checked.
 * Source of the format: docs/gguf.md of the ggml project. Every length is
 * compared with the file before it is used; an error names the key or tensor
 * and the offset. Limits: name 64 bytes, 1 to 4 dimensions, alignment a power
 * of two from 1 to 1 MiB. */

#include <stdbool.h>
#include <stddef.h>

#include "error.h"
#include "tensor.h"

typedef struct g3_gguf g3_gguf;

/* Maps a file. Tensors of types that are not read are there, with their sizes. Errors:
 * IO, INVALID, UNSUPPORTED (version, a tensor type of unknown size), HOST_MEMORY. */
g3_status g3_gguf_open(const char *path, g3_gguf **out_gguf, g3_error *error);

/* The same over bytes that the caller keeps (tests, fuzzing); name is for
 * messages. */
g3_status g3_gguf_parse(const uint8_t *bytes, size_t count, const char *name, g3_gguf **out_gguf,
                        g3_error *error);
void g3_gguf_close(g3_gguf *gguf); /* NULL is allowed */

size_t g3_gguf_tensor_count(const g3_gguf *gguf);
const g3_tensor *g3_gguf_tensor(const g3_gguf *gguf, size_t index);
const g3_tensor *g3_gguf_find(const g3_gguf *gguf, const char *name); /* NULL if absent */

/* Metadata. Each answers G3_OK and false in out_found where the key is absent,
 * INVALID where its type does not fit. Integers of any width that fit are
 * taken; floats take f32 and f64. */
g3_status g3_gguf_u32(const g3_gguf *gguf, const char *key, uint32_t *out_value, bool *out_found,
                      g3_error *error);
g3_status g3_gguf_f64(const g3_gguf *gguf, const char *key, double *out_value, bool *out_found,
                      g3_error *error);
g3_status g3_gguf_bool(const g3_gguf *gguf, const char *key, bool *out_value, bool *out_found,
                       g3_error *error);

/* A failure whose text names the file, the key and, where it is there, its offset. */
g3_status g3_gguf_key_fail(const g3_gguf *gguf, const char *key, g3_status status, g3_error *error,
                           const char *what);

/* A string or element of an array of strings: bytes in the file, no NUL. */
typedef struct g3_text {
    const char *bytes;
    size_t count;
} g3_text;
g3_status g3_gguf_string(const g3_gguf *gguf, const char *key, g3_text *out_value, bool *out_found,
                         g3_error *error);

/* Arrays. Strings are walked in order: start with cursor 0, which afterwards
 * stands at the next; the data may be unaligned, so elements are copied. */
typedef struct g3_array {
    uint32_t element_type; /* GGUF value type */
    uint64_t count;
    const uint8_t *data;
    uint64_t bytes;
} g3_array;
g3_status g3_gguf_array(const g3_gguf *gguf, const char *key, g3_array *out_value, bool *out_found,
                        g3_error *error);
/* The next string; false at the end. The array was checked when it was opened. */
bool g3_array_next_string(const g3_array *array, uint64_t *cursor, g3_text *out_value);
/* Element index of a float or integer array as a double; 0 for other types. */
double g3_array_number(const g3_array *array, uint64_t index);

#endif
