/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_VISION_H
#define GEMMA3_VISION_H

/* The vision tower, pooling and projector: pixels to the vectors that stand for a
 * picture among the tokens. */

#include "model.h"

/* pixels: [3][side][side] on the host, normalised. *out_embedding: a block
 * [vision.tokens][text.hidden] float32 under tag vision in the scope, to be freed by
 * the caller. Everything in between is freed. stop (may be NULL): asked before every
 * layer, non-zero ends the work. Errors: DEVICE_MEMORY, STOPPED. */
g3_status g3_vision_encode(g3_model *model, vrp_scope scope, const float *pixels,
                           int (*stop)(void *user), void *user, vrp_devptr *out_embedding,
                           g3_error *error);

#endif
