/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_FRAME_H
#define GEMMA3_FRAME_H

/* The activations of one piece of work: allocated and freed one by one as the
 * operations come and go, and all at once when the work ends early. The first
 * failure is kept; what is asked for after it is NULL. */

#include "../kernels/matrix.h"
#include "memory.h"

#define G3_FRAME_BLOCKS 24

typedef struct g3_frame {
    g3_memory *memory;
    vrp_scope scope;
    vrp_tag tag;
    g3_status status;
    g3_error *error;
    uint32_t count;
    vrp_devptr blocks[G3_FRAME_BLOCKS];
} g3_frame;

/* Room for `count` floats. NULL after a failure of this or an earlier request. */
float *g3_frame_floats(g3_frame *frame, size_t count);
void *g3_frame_bytes(g3_frame *frame, size_t bytes, vrp_tag tag);
void g3_frame_free(g3_frame *frame, void *pointer); /* NULL is allowed */
void g3_frame_end(g3_frame *frame);                 /* frees what is left */

/* y[n][rows] = x . matrix^T with scratch of its own for the rounded activations. */
void g3_frame_matmul(g3_frame *frame, const g3_matrix *matrix, g3_precision precision,
                     const float *x, size_t n, float *y);
/* Several matrices of the same columns over one x: rounded once. */
void g3_frame_matmuls(g3_frame *frame, const g3_matrix *const *matrices, float *const *results,
                      uint32_t count, g3_precision precision, const float *x, size_t n);

#endif
