/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_FORWARD_H
#define GEMMA3_FORWARD_H

/* One chunk of positions through all layers. */

#include "cache.h"

/* A picture among the positions of a conversation. */
typedef struct g3_picture {
    uint32_t begin, tokens;
    uint8_t *rgb;         /* [side][side][3] on the host, or NULL where pixels are floats */
    float *pixels;        /* [3][side][side], or NULL */
    vrp_devptr embedding; /* [tokens][hidden] float32; 0 when it is not needed now */
} g3_picture;

typedef struct g3_chunk {
    size_t first, n;            /* positions [first, first + n) */
    const int32_t *ids;         /* of the whole conversation, by position */
    const g3_picture *pictures; /* of the whole conversation, in order */
    size_t picture_count;
    size_t logits; /* for the last so many positions of the chunk */
    /* Called in order with the index among them; logits are vocab floats on the host,
     * good during the call. Non-zero stops: G3_STOPPED. */
    int (*fn)(void *user, size_t index, const float *logits);
    void *user;
} g3_chunk;

/* Computes the chunk against the cache and commits it. On failure (but for STOPPED,
 * which comes after the commit) the cache is as before and nothing was called.
 * Errors: DEVICE_MEMORY, HOST_MEMORY, STOPPED. */
g3_status g3_forward(g3_model *model, g3_cache *cache, const g3_chunk *chunk, g3_error *error);

#endif
