/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_TENSOR_H
#define GEMMA3_TENSOR_H

/* Element types and tensors as they lie in a file. */

#include <stdint.h>

/* Numbers as in GGUF (ggml type ids); the types that this engine reads. */
typedef enum g3_type {
    G3_F32 = 0,
    G3_F16 = 1,
    G3_Q4_0 = 2,
    G3_Q4_1 = 3,
    G3_Q5_0 = 6,
    G3_Q5_1 = 7,
    G3_Q8_0 = 8,
    G3_Q4_K = 12,
    G3_Q5_K = 13,
    G3_Q6_K = 14,
    G3_BF16 = 30
} g3_type;

/* Elements of one block along a row, and its bytes in the file. */
typedef struct g3_type_info {
    const char *name; /* "Q4_K" */
    uint32_t block_elements;
    uint32_t block_bytes;
} g3_type_info;

/* NULL for a type this engine does not read. */
const g3_type_info *g3_type_info_get(uint32_t type);

/* The same, also for types that are only stepped over; NULL for an unknown number. */
const g3_type_info *g3_type_layout(uint32_t type);

#define G3_MAX_DIMS 4

/* A tensor in a mapped file. dims[0] is the row length (fastest), unused ones
 * are 1. data and name belong to the file and live as long as it is open;
 * data may be unaligned. */
typedef struct g3_tensor {
    const char *name;
    g3_type type; /* another number for a type that is not read; a checkpoint has none */
    uint32_t dim_count;
    uint64_t dims[G3_MAX_DIMS];
    const uint8_t *data;
    uint64_t bytes;
    uint64_t offset;  /* of data from the beginning of the file, for messages */
    const char *path; /* of the file, for messages */
} g3_tensor;

#endif
