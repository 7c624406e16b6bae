/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_MODEL_H
#define GEMMA3_MODEL_H

/* The weights of a model in the pool. */

#include "../files/checkpoint.h"
#include "../kernels/matrix.h"
#include "memory.h"

typedef struct g3_layer {
    g3_matrix q, k, v, o, gate, up, down;
    const float *attention_norm, *q_norm, *k_norm, *post_attention_norm;
    const float *feed_forward_norm, *post_feed_forward_norm;
} g3_layer;

typedef struct g3_vision_layer {
    g3_matrix q, k, v, o, up, down;
    const float *q_bias, *k_bias, *v_bias, *o_bias, *up_bias, *down_bias;
    const float *norm1, *norm1_bias, *norm2, *norm2_bias;
} g3_vision_layer;

typedef struct g3_vision {
    g3_matrix patch; /* [hidden][3 * patch * patch] */
    const float *patch_bias;
    const float *position; /* [patches][hidden] */
    g3_vision_layer *layers;
    const float *post_norm, *post_norm_bias;
    const float *soft_norm; /* the 1 is in it */
    g3_matrix projection;   /* [text hidden][vision hidden]: transposed when loaded */
} g3_vision;

/* Deviations that tests ask for, to see that `verify` finds them. 0: none. */
typedef enum g3_fault {
    G3_FAULT_NONE = 0,
    G3_FAULT_WEIGHT = 1,       /* one weight is off */
    G3_FAULT_NO_SCALE = 2,     /* the embedding is not scaled by sqrt(hidden) */
    G3_FAULT_WINDOW = 3,       /* local layers see one key more */
    G3_FAULT_LOCAL_SCALING = 4 /* the factor of global layers on local ones too */
} g3_fault;

typedef struct g3_model {
    g3_memory *memory;
    g3_config config;
    vrp_scope scope; /* holds every block of the model */
    float embedding_scale;
    g3_matrix embedding; /* [vocab][hidden]; also the output unless `output` is set */
    g3_matrix output;    /* the matrix of the logits */
    const float *output_norm;
    g3_layer *layers;
    g3_vision vision; /* layers NULL without */
    g3_precision precision;
    g3_fault fault;
    uint64_t weight_bytes;       /* in the pool */
    uint64_t read_bytes_a_token; /* what a decode step reads of them */
} g3_model;

/* Called while weights stream in; done and total in bytes. May be NULL. */
typedef void (*g3_progress_fn)(void *user, uint64_t done, uint64_t total);

/* Streams every tensor of the checkpoint into the pool, in its own type, under tag
 * weights and in a scope of the model. On failure nothing stays. The memory must
 * outlive the model; the checkpoint may be closed afterwards.
 * Errors: DEVICE_MEMORY, HOST_MEMORY, INVALID. */
g3_status g3_model_load(g3_memory *memory, const g3_checkpoint *checkpoint, g3_precision precision,
                        g3_fault fault, g3_progress_fn progress, void *user, g3_model **out_model,
                        g3_error *error);
void g3_model_free(g3_model *model); /* its scope is released; NULL is allowed */

#endif
