/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_SAFETENSORS_H
#define GEMMA3_SAFETENSORS_H

/* One safetensors file, mapped and checked. Source of the format: the README
 * of the safetensors project. The header is at most 100 MiB; types F32, F16,
 * BF16 (weights) and I32, I64 (ids in reference files) are read, tensors of others are
 * stepped over; tensors tile
 * the data without gap, overlap or rest. */

#include <stddef.h>

#include "error.h"
#include "tensor.h"

typedef struct g3_safetensors g3_safetensors;

typedef enum g3_st_type {
    G3_ST_F32,
    G3_ST_F16,
    G3_ST_BF16,
    G3_ST_I32,
    G3_ST_I64,
    G3_ST_OTHER /* a type of the format that is only stepped over */
} g3_st_type;

/* shape is as written in the file (slowest first); a scalar has 0 dimensions. */
typedef struct g3_st_tensor {
    const char *name;
    const char *dtype; /* the type as the file writes it */
    g3_st_type type;
    uint32_t dim_count;
    uint64_t shape[G3_MAX_DIMS + 1];
    const uint8_t *data; /* may be unaligned */
    uint64_t bytes;
    uint64_t offset; /* from the beginning of the file */
} g3_st_tensor;

/* Errors: IO, INVALID, UNSUPPORTED, HOST_MEMORY. */
g3_status g3_safetensors_open(const char *path, g3_safetensors **out_file, g3_error *error);
g3_status g3_safetensors_parse(const uint8_t *bytes, size_t count, const char *name,
                               g3_safetensors **out_file, g3_error *error);
void g3_safetensors_close(g3_safetensors *file); /* NULL is allowed */

size_t g3_safetensors_count(const g3_safetensors *file);
const g3_st_tensor *g3_safetensors_at(const g3_safetensors *file, size_t index);
const g3_st_tensor *g3_safetensors_find(const g3_safetensors *file, const char *name);
const char *g3_safetensors_path(const g3_safetensors *file);
uint64_t g3_safetensors_header_bytes(const g3_safetensors *file); /* in front of the data */

/* Element index as a float (F32, F16, BF16) or an integer (I32, I64; 0 for the
 * others). index is below the number of elements. */
float g3_st_float(const g3_st_tensor *tensor, uint64_t index);
int64_t g3_st_int(const g3_st_tensor *tensor, uint64_t index);

#endif
