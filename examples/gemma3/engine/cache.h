/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_CACHE_H
#define GEMMA3_CACHE_H

/* The inference cache of a session: keys and values of past positions.
 *
 * Global layers: one growable buffer, token-major. Position p begins at
 * p * token_bytes; there every global layer in order has its keys and then its
 * values, kv_heads * head_dim elements each.
 *
 * Local layers: a block each of `slots` rows, keys then values in a row; position p
 * lies in slot p % slots, slots = the window (or the context where that is less).
 *
 * The fresh positions of a chunk stand in a pending block of the same row form, one
 * part per local layer, until g3_cache_commit moves the last `slots` of them into the
 * rings. Global layers are written in place, beyond the conversation's length. */

#include "../kernels/ops.h"
#include "model.h"

typedef struct g3_cache {
    const g3_model *model;
    vrp_scope scope;
    g3_kv_type type;
    uint32_t context; /* most positions */
    uint32_t slots;   /* of a ring */
    uint32_t global_layers, local_layers;
    uint32_t ordinal[G3_MAX_LAYERS]; /* of a layer among those of its kind */
    size_t row_bytes;                /* keys of one position of one layer */
    size_t token_bytes;              /* of the global buffer */
    vrp_growable *global;            /* NULL until needed */
    vrp_devptr rings[G3_MAX_LAYERS]; /* by ordinal; 0 until needed */
} g3_cache;

/* Describes the cache; allocates nothing. */
void g3_cache_init(g3_cache *cache, const g3_model *model, vrp_scope scope, uint32_t context,
                   g3_kv_type type);

/* Makes room for positions below `positions`, all or nothing of the growable
 * buffer; never shrinks. Errors: DEVICE_MEMORY. */
g3_status g3_cache_ensure(g3_cache *cache, uint32_t positions, g3_error *error);
/* Bytes that the global buffer would grow by for that. */
uint64_t g3_cache_growth(const g3_cache *cache, uint32_t positions);
/* Gives up the global buffer's end beyond `positions`; failure is harmless. */
void g3_cache_shrink(g3_cache *cache, uint32_t positions);

/* Gives everything back; the scope itself is the caller's. */
void g3_cache_drop(g3_cache *cache);

/* Bytes of a pending block for n positions. */
size_t g3_cache_pending_bytes(const g3_cache *cache, size_t n);

/* Writes keys and values ([n][kv width] float32) of positions [first, first + n). */
void g3_cache_store(const g3_cache *cache, uint32_t layer, size_t first, size_t n,
                    const float *keys, const float *values, void *pending);
g3_kv_view g3_cache_view(const g3_cache *cache, uint32_t layer, size_t first, size_t n,
                         const void *pending);
/* The chunk is part of the conversation from here on. */
void g3_cache_commit(g3_cache *cache, size_t first, size_t n, const void *pending);

#endif
