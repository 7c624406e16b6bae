/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_SAMPLER_H
#define GEMMA3_SAMPLER_H

/* Choosing the next token. */

#include <stddef.h>
#include <stdint.h>

#include "../files/error.h"

typedef struct g3_sampler {
    float temperature; /* 0: greedy */
    uint32_t top_k;    /* 0: all */
    float top_p;       /* 1: all */
    uint64_t seed;     /* state of the generator afterwards */
} g3_sampler;

/* An id below `count` (the tokenizer's size: rows that only fill up the embedding
 * are never chosen). scratch: room for `count` floats and ids, kept by the caller.
 * Greedy takes the lowest id of equals; logits that are all NaN are INVALID.
 * Order as in llama.cpp and transformers: temperature, top-k, top-p. The same seed
 * gives the same ids on every machine. */
typedef struct g3_candidate {
    float value;
    int32_t id;
} g3_candidate;
g3_status g3_sample(g3_sampler *sampler, const float *logits, size_t count, g3_candidate *scratch,
                    int32_t *out_id, g3_error *error);

#endif
