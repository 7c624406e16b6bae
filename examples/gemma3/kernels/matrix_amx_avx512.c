/* SPDX-License-Identifier: MIT */
/* Products of many 8-bit activations with the tiles of AMX, where the system hands
 * them out. A tile product gives the integer sums of 32 columns for 16 activations
 * and 16 rows; they are exact, and what follows in float takes the same steps as
 * the other AVX-512 code: the results are the same bits. */

#include "matrix_avx512.h"

#if defined(__linux__)

#define G3_INLINE static inline __attribute__((always_inline))
#define USES_TILES __attribute__((target("amx-tile,amx-int8")))

enum { PANEL_BLOCKS = 64 };

/* What LDTILECFG reads. */
typedef struct tile_config {
    _Alignas(64) uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* Sums; activations and weights of 32 columns; the same of 16 columns. Macros: the
 * number of a tile is part of the instruction. */
#define SUMS 0
#define ACTS 1
#define WEIGHTS 2
#define HALF_ACTS 3
#define HALF_WEIGHTS 4

static const tile_config config = {
    .palette = 1, .row_bytes = {64, 32, 64, 16, 64}, .rows = {16, 16, 8, 16, 4}};

typedef enum kind { PLAIN, MINIMUM, HALVES } kind;

typedef struct sums {
    _Alignas(64) int32_t of[G3_TILE][16];
} sums;

/* Integer sums of a block of 32 columns (k is HALVES: of its 16 columns). */
G3_INLINE USES_TILES void multiply(kind k, const g3_act_block *act, const g3_panel_block *w,
                                   int half, sums *out) {
    _tile_zero(SUMS);
    if (k == HALVES) {
        _tile_loadd(HALF_ACTS, act->q[0] + 16 * half, G3_BLOCK);
        _tile_loadd(HALF_WEIGHTS, w->w[4 * half], 64);
        _tile_dpbssd(SUMS, HALF_ACTS, HALF_WEIGHTS);
    } else {
        _tile_loadd(ACTS, act->q[0], G3_BLOCK);
        _tile_loadd(WEIGHTS, w->w[0], 64);
        _tile_dpbssd(SUMS, ACTS, WEIGHTS);
    }
    _tile_stored(SUMS, out->of[0], 64);
}

G3_INLINE void add(kind k, const sums *s, const g3_act_block *act, const g3_panel_block *w,
                   int half, __m512 y[G3_TILE]) {
    const __m512 scale = _mm512_load_ps(half ? w->other : w->scale);
    const __m512 minimum = k == MINIMUM ? _mm512_load_ps(w->other) : _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int a = 0; a < (int)G3_TILE; a++) {
        const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512((const void *)s->of[a]));
        const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(act->scale[a]));
        y[a] = _mm512_fmadd_ps(sum, both, y[a]);
        if (k == MINIMUM)
            y[a] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(act->scaled_sum[a]), y[a]);
    }
}

/* One row group and one tile of activations over a panel. The sums are made AHEAD
 * steps before they are added: the time that they need to reach memory. */
G3_INLINE USES_TILES void tile_of(kind k, const g3_act_block *acts, const g3_panel_block *panel,
                                  uint32_t blocks, __m512 y[G3_TILE]) {
    enum { AHEAD = 2, ROOM = 4 };
    const uint32_t per_block = k == HALVES ? 2 : 1, steps = blocks * per_block;
    sums s[ROOM];
    for (uint32_t i = 0; i < AHEAD && i < steps; i++)
        multiply(k, acts + i / per_block, panel + i / per_block, (int)(i % per_block), &s[i]);
    for (uint32_t i = 0; i < steps; i++) {
        const uint32_t next = i + AHEAD;
        if (next < steps)
            multiply(k, acts + next / per_block, panel + next / per_block, (int)(next % per_block),
                     &s[next % ROOM]);
        add(k, &s[i % ROOM], acts + i / per_block, panel + i / per_block, (int)(i % per_block), y);
    }
}

G3_INLINE USES_TILES void rows_of(kind k, const g3_task *task, uint32_t group,
                                  const g3_panel_block *panel, uint32_t first_block,
                                  uint32_t blocks) {
    const size_t tile_blocks = task->columns / G3_BLOCK;
    const __mmask16 mask = g3_row_mask(task->row_count - group * G3_GROUP_ROWS);
    for (size_t n = 0; n < task->n; n += G3_TILE) {
        const g3_act_block *acts = task->acts + n / G3_TILE * tile_blocks + first_block;
        const size_t left = task->n - n;
        const size_t count = left < G3_TILE ? left : G3_TILE;
        float *out = task->y + n * task->y_stride + (size_t)group * G3_GROUP_ROWS;
        for (size_t a = 0; a < count; a++)
            __builtin_prefetch(out + a * task->y_stride, 1);
        __m512 y[G3_TILE];
#pragma GCC unroll 16
        for (size_t a = 0; a < G3_TILE; a++)
            y[a] = first_block && a < count ? _mm512_maskz_loadu_ps(mask, out + a * task->y_stride)
                                            : _mm512_setzero_ps();
        tile_of(k, acts, panel, blocks, y);
#pragma GCC unroll 16
        for (size_t a = 0; a < G3_TILE; a++)
            if (a < count)
                _mm512_mask_storeu_ps(out + a * task->y_stride, mask, y[a]);
    }
}

static USES_TILES void with_tiles(const g3_task *task) {
    g3_panel_block panel[PANEL_BLOCKS];
    const uint32_t all = task->columns / G3_BLOCK;
    _tile_loadconfig(&config);
    for (uint32_t g = 0; g < task->group_count; g++)
        for (uint32_t first = 0; first < all; first += PANEL_BLOCKS) {
            const uint32_t blocks = all - first < PANEL_BLOCKS ? all - first : PANEL_BLOCKS;
            g3_panel_avx512(task->type, task->groups + g * task->group_bytes, first, blocks, 0,
                            panel);
            if (g3_has_minimum(task->type))
                rows_of(MINIMUM, task, g, panel, first, blocks);
            else if (task->type == G3_Q6_K)
                rows_of(HALVES, task, g, panel, first, blocks);
            else
                rows_of(PLAIN, task, g, panel, first, blocks);
        }
    _tile_release();
}

/* A tile costs the same however few of its activations there are. */
void g3_int8_many_amx(const g3_task *task) {
    enum { WORTH_A_TILE = 8 };
    if (task->n < WORTH_A_TILE)
        g3_int8_many_avx512(task);
    else
        with_tiles(task);
}

#else

void g3_int8_many_amx(const g3_task *task) { g3_int8_many_avx512(task); }

#endif

const g3_kernels g3_kernels_amx = {g3_quantise_avx512, g3_int8_one_avx512, g3_int8_many_amx,
                                   g3_float_one_avx512, g3_float_many_avx512};
