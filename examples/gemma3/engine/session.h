/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_SESSION_H
#define GEMMA3_SESSION_H

/* One conversation: its inference cache and the tokens that are in it.
 *
 * Global layers share one growable buffer, token-major: position p holds, for
 * every global layer in order, its keys and then its values. Local layers have a
 * ring of `window` positions each. A chunk of a prefill, or a decode step, is a
 * transaction: its keys and values reach rings and length only when all layers
 * are through, so a step that fails for memory can be retried or dropped and the
 * conversation is as it was.
 *
 * A session is used by one thread at a time. */

#include "../image/image.h"
#include "../kernels/ops.h"
#include "../text/template.h"
#include "model.h"

typedef struct g3_session g3_session;

typedef struct g3_session_options {
    uint32_t context; /* most positions; 0: the model's, at most 8192 */
    uint32_t chunk;   /* positions a prefill step takes; 0: 512. Images stay whole */
    g3_kv_type kv_type;
    /* Asked between chunks and between the layers of a picture's encoding; non-zero stops
     * with G3_STOPPED. */
    int (*stop)(void *user);
    void *user;
} g3_session_options;

/* Opens a scope for the session; allocates nothing yet.
 * Errors: INVALID (context above the model's), HOST_MEMORY, DEVICE. */
g3_status g3_session_create(g3_model *model, const g3_session_options *options,
                            g3_session **out_session, g3_error *error);
/* Releases its scope: cache, images, everything. NULL is allowed. */
void g3_session_destroy(g3_session *session);

/* Forgets the conversation and gives its memory back to the pool: the scope is
 * released and a new one opened. */
g3_status g3_session_clear(g3_session *session, g3_error *error);

uint32_t g3_session_length(const g3_session *session);  /* positions in the conversation */
uint32_t g3_session_context(const g3_session *session); /* most of them */
/* The ids so far; image placeholders stand for pictures. Until the next call that
 * changes the conversation. */
const int32_t *g3_session_ids(const g3_session *session);

/* The session keeps a copy of every picture of the conversation on the host, resized
 * to what the vision tower takes, for a cache that has to be made anew. */

/* Backs the cache for `positions` in all, so that what follows up to there needs no
 * memory for it: called before an answer. Only from what the device has free: nothing
 * is trimmed, and a refusal (DEVICE_MEMORY) is not counted as one. Never shrinks.
 * Errors: DEVICE_MEMORY, CONTEXT_FULL. */
g3_status g3_session_reserve(g3_session *session, uint32_t positions, g3_error *error);

/* Whether there is memory for the cache of one more position: tried, then given back. */
bool g3_session_has_room(g3_session *session);

/* Gives up what g3_session_reserve backed beyond the conversation; all of the cache
 * where the conversation is empty. */
void g3_session_shrink(g3_session *session);

/* Adds the prompt's tokens and pictures, in chunks, and computes the logits of the
 * last position. Pictures are encoded first, their embeddings (tag vision) freed
 * when the prefill is through. out_logits: host memory of vocab floats, may be NULL.
 * On failure the conversation is exactly as before the call (a cache that cannot be
 * cut back is made anew at the next call).
 * Errors: DEVICE_MEMORY (smaller chunks were tried), CONTEXT_FULL, STOPPED, INVALID
 * (ids outside the vocabulary; spans and pictures do not agree). */
g3_status g3_session_prefill(g3_session *session, const g3_prompt *prompt, const g3_image *images,
                             float *out_logits, g3_error *error);

/* Adds one token and computes the logits after it. Errors: as prefill. */
g3_status g3_session_decode(g3_session *session, int32_t id, float *out_logits, g3_error *error);

/* For `verify` and `perplexity`: as prefill, but with pixels given as floats
 * ([image][3][side][side], may be NULL) and a callback for the logits of every
 * added position, in order; features, if not NULL, gets the projector's output of
 * every picture [image][tokens][hidden]. A non-zero answer stops with STOPPED. */
typedef int (*g3_logits_fn)(void *user, size_t index, const float *logits);
g3_status g3_session_evaluate(g3_session *session, const g3_prompt *prompt, const float *pixels,
                              float *features, g3_logits_fn fn, void *user, g3_error *error);

/* Puts `count` ids in the place of positions [begin, end) of the conversation (neither
 * inside a picture, and no placeholders among the ids); the rest moves and is computed
 * anew at the next call. On failure the conversation is as before. Errors: INVALID,
 * CONTEXT_FULL, HOST_MEMORY. */
g3_status g3_session_replace(g3_session *session, uint32_t begin, uint32_t end, const int32_t *ids,
                             size_t count, g3_error *error);
/* The same with nothing in the place. */
g3_status g3_session_drop(g3_session *session, uint32_t begin, uint32_t end, g3_error *error);

/* What a query at `position` may see of the positions so far, [*out_low, *out_high):
 * image_end is the end of the picture it belongs to, 0 outside pictures. The rule of
 * the masks: (earlier or in the same picture) and, in a local layer, less than
 * `window` back. Source: transformers 5.17, models/gemma3, create_masks_for_vision_model. */
void g3_visible(bool global, uint32_t window, size_t position, size_t image_end, size_t *out_low,
                size_t *out_high);

#endif
