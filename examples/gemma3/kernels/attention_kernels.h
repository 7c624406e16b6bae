/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_ATTENTION_KERNELS_H
#define GEMMA3_ATTENTION_KERNELS_H

/* Attention of some rows (a query head at a position is one) to one tile of keys,
 * in one version for each instruction set. attention.c has the loops around it.
 *
 * Tiles begin at multiples of G3_TILE positions. A tile's keys and values are made
 * float32 and laid out for the products, once for all rows that share them:
 *   keys    [panel][head_dim][2 vectors]: a panel is as many keys as two vectors
 *           have lanes, so a lane computes one score and adds up its head_dim
 *           products in order;
 *   values  [panel][G3_TILE][2 vectors]: a panel is two vectors of dimensions;
 *   queries blocks of rows, each [head_dim][rows of the block].
 *
 * A row sees columns [begin, end) of the tile. Its weights are exponentials below
 * the row's largest score in this tile; tiles are joined in the order of positions
 * by the larger of the two maxima. So everything about a row depends on its own
 * range and on positions only: not on the rows next to it, nor on who computes
 * which tile. Columns outside of the range take no part, not even multiplied by 0. */

#include "ops.h"

enum {
    G3_TILE = 128,          /* keys */
    G3_TILE_MAX_ROWS = 192, /* that a call takes */
    G3_TILE_DIRECT_ROWS = 4 /* up to which packing values does not pay */
};

typedef struct g3_attention_tile {
    uint32_t rows;
    uint32_t head_dim;
    float scale;
    bool joined;           /* false: max, sum and out are of this tile alone */
    const uint32_t *begin; /* [rows]; begin = end: the row is left out */
    const uint32_t *end;
    const float *queries, *keys;
    const float *values;           /* packed; or NULL and the cache's own rows: */
    const void *const *value_rows; /* [G3_TILE] */
    g3_kv_type value_type;
    float *scores;     /* [rows][G3_TILE], scratch */
    float *const *out; /* [rows], each [head_dim]: sum of weight * value */
    float *max, *sum;  /* [rows]: largest score, sum of weights */
} g3_attention_tile;

typedef struct g3_attention_kernels {
    void (*pack_queries)(const float *const *rows, uint32_t count, uint32_t head_dim, float *out);
    /* rows[G3_TILE]: of the keys (values) in columns [begin, end). Keys of other
     * columns of the same panels become zeros. */
    void (*pack_keys)(g3_kv_type type, const void *const *rows, uint32_t begin, uint32_t end,
                      uint32_t head_dim, float *out);
    void (*pack_values)(g3_kv_type type, const void *const *rows, uint32_t begin, uint32_t end,
                        uint32_t head_dim, float *out);
    void (*tile)(const g3_attention_tile *tile);
    /* Joins the result of a later tile into (max, sum, out). */
    void (*join)(float *max, float *sum, float *out, float tile_max, float tile_sum,
                 const float *tile_out, uint32_t head_dim);
    void (*divide)(float *x, size_t count, float by);
    /* The tile takes value_rows for widths that are a multiple of this. */
    uint32_t direct_multiple;
} g3_attention_kernels;

extern const g3_attention_kernels g3_attention_scalar;
#if defined(__x86_64__)
extern const g3_attention_kernels g3_attention_avx2;
extern const g3_attention_kernels g3_attention_avx512;
#endif

#endif
