/* SPDX-License-Identifier: MIT */
/* Products for AVX2 with FMA and F16C. A row group is two vectors of 8 rows. Weights
 * are unpacked to a panel in the first-level cache for any number of activations.
 *
 * vpmaddubsw multiplies unsigned with signed bytes and adds pairs in 16 bits: weights
 * up to 63 times 127, two such pairs, stay below 32767. Q8_0 has full bytes: its
 * magnitudes are multiplied with activations that take its signs, and 128 * 127 * 2
 * just fits. */

#include "matrix_avx2.h"

enum { PANEL_BLOCKS = 16 };

G3_INLINE void store256(void *p, __m256i v) { _mm256_store_si256((__m256i *)p, v); }
G3_INLINE __m256i and_byte(__m256i v, int mask) {
    return _mm256_and_si256(v, _mm256_set1_epi8((char)mask));
}

/* ---- Unpacking -------------------------------------------------------------------------- */

static void panel_q8_0(const uint8_t *p, g3_panel2_block *out) {
    for (int h = 0; h < 2; h++)
        _mm256_store_ps(out->scale + 8 * h, g3_eight_halves(p + 16 * h));
    for (int i = 0; i < 16; i++)
        store256(out->w[i / 2][i % 2], g3_load256(p + 32 + 32 * i));
}

static void panel_nibbles(g3_type type, const uint8_t *p, g3_panel2_block *out) {
    const int five = type == G3_Q5_0 || type == G3_Q5_1, minimum = g3_has_minimum(type);
    const uint8_t *qh = p + (minimum ? 64 : 32);
    const uint8_t *qs = qh + (five ? 64 : 0);
    for (int h = 0; h < 2; h++) {
        _mm256_store_ps(out->scale + 8 * h, g3_eight_halves(p + 16 * h));
        if (minimum)
            _mm256_store_ps(out->other + 8 * h, g3_eight_halves(p + 32 + 16 * h));
        const __m256i bits = five ? g3_load256(qh + 32 * h) : _mm256_setzero_si256();
        for (int g = 0; g < 4; g++) {
            const __m256i v = g3_load256(qs + 64 * g + 32 * h);
            const __m256i low = and_byte(_mm256_slli_epi16(bits, 4 - g), 16);
            const __m256i high = and_byte(_mm256_srli_epi16(bits, g), 16);
            store256(out->w[g][h], _mm256_or_si256(and_byte(v, 15), low));
            store256(out->w[g + 4][h],
                     _mm256_or_si256(and_byte(_mm256_srli_epi16(v, 4), 15), high));
        }
    }
}

/* 16 rows' scales or minimums of 6 bits, times their halves. */
static void six_bits(__m128i bytes, const uint8_t *factor, __m256 sign, float *out) {
    for (int h = 0; h < 2; h++) {
        const __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
        const __m256 product = _mm256_mul_ps(g3_eight_halves(factor + 16 * h), v);
        _mm256_store_ps(out + 8 * h, _mm256_xor_ps(product, sign));
        bytes = _mm_srli_si128(bytes, 8);
    }
}

G3_INLINE __m128i load128(const uint8_t *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

static void panel_scales_q45_k(const uint8_t *p, int j, g3_panel2_block *out) {
    const uint8_t *s = p + 64;
    const __m128i six = _mm_set1_epi8(63), four = _mm_set1_epi8(15), top = _mm_set1_epi8(48);
    __m128i scale, minimum;
    if (j < 4) {
        scale = _mm_and_si128(load128(s + 16 * j), six);
        minimum = _mm_and_si128(load128(s + 16 * (j + 4)), six);
    } else {
        const __m128i both = load128(s + 16 * (j + 4));
        const __m128i of_scale = _mm_srli_epi16(load128(s + 16 * (j - 4)), 2);
        const __m128i of_minimum = _mm_srli_epi16(load128(s + 16 * j), 2);
        scale = _mm_or_si128(_mm_and_si128(both, four), _mm_and_si128(of_scale, top));
        minimum = _mm_or_si128(_mm_and_si128(_mm_srli_epi16(both, 4), four),
                               _mm_and_si128(of_minimum, top));
    }
    six_bits(scale, p, _mm256_setzero_ps(), out->scale);
    six_bits(minimum, p + 32, _mm256_set1_ps(-0.0f), out->other);
}

static void panel_q45_k(g3_type type, const uint8_t *p, int j, g3_panel2_block *out) {
    const int five = type == G3_Q5_K;
    const uint8_t *qh = p + 256;
    const uint8_t *qs = (five ? qh + 512 : qh) + 512 * (j / 2);
    const __m128i nibble = _mm_cvtsi32_si128(4 * (j % 2)), bit = _mm_cvtsi32_si128(j);
    panel_scales_q45_k(p, j, out);
    for (int i = 0; i < 16; i++) {
        __m256i v = and_byte(_mm256_srl_epi16(g3_load256(qs + 32 * i), nibble), 15);
        if (five) {
            const __m256i b = and_byte(_mm256_srl_epi16(g3_load256(qh + 32 * i), bit), 1);
            v = _mm256_or_si256(v, _mm256_slli_epi16(b, 4));
        }
        store256(out->w[i / 2][i % 2], v);
    }
}

static void panel_q6_k(const uint8_t *p, int j, g3_panel2_block *out) {
    const int t = j % 4;
    const uint8_t *ql = p + 288 + 512 * (2 * (j / 4) + t % 2);
    const uint8_t *qh = p + 288 + 2048 + 512 * (j / 4);
    const __m128i nibble = _mm_cvtsi32_si128(4 * (t / 2)), pair = _mm_cvtsi32_si128(2 * t);
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < 2; i++) {
            const uint8_t *sc = p + 32 + 16 * (2 * j + i) + 8 * h;
            const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)sc);
            const __m256 scale = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
            _mm256_store_ps((i ? out->other : out->scale) + 8 * h,
                            _mm256_mul_ps(g3_eight_halves(p + 16 * h), scale));
        }
    for (int i = 0; i < 16; i++) {
        const __m256i low = and_byte(_mm256_srl_epi16(g3_load256(ql + 32 * i), nibble), 15);
        const __m256i high = and_byte(_mm256_srl_epi16(g3_load256(qh + 32 * i), pair), 3);
        store256(out->w[i / 2][i % 2], _mm256_or_si256(low, _mm256_slli_epi16(high, 4)));
    }
}

void g3_panel_avx2(g3_type type, const uint8_t *group, uint32_t first, uint32_t count,
                   g3_panel2_block *out) {
    enum { PREFETCH_BYTES = 4096 };
    const g3_layout *layout = g3_layout_of(type);
    const uint32_t per_unit = layout->block_elements / G3_BLOCK;
    const size_t unit_bytes = (size_t)layout->block_bytes * G3_GROUP_ROWS;
    const uint8_t *p = group + first / per_unit * unit_bytes;
    for (uint32_t b = 0; b < count; b++, out++) {
        const int j = (int)(b % per_unit);
        if (type == G3_Q8_0)
            panel_q8_0(p, out);
        else if (type == G3_Q6_K)
            panel_q6_k(p, j, out);
        else if (g3_is_k(type))
            panel_q45_k(type, p, j, out);
        else
            panel_nibbles(type, p, out);
        if ((b + 1) % per_unit == 0) {
            for (size_t line = 0; line < unit_bytes; line += 64)
                _mm_prefetch((const char *)p + PREFETCH_BYTES + line, _MM_HINT_T0);
            p += unit_bytes;
        }
    }
}

/* ---- 8-bit activations -------------------------------------------------------------------- */

typedef enum kind { BYTES, PLAIN, MINIMUM, HALVES } kind;

/* Pairs of products in 16 bits. */
G3_INLINE __m256i multiply(kind k, __m256i w, const g3_act_block *act, size_t a, int g) {
    int32_t four;
    memcpy(&four, act->q[a] + 4 * g, sizeof four);
    const __m256i x = _mm256_set1_epi32(four);
    if (k == BYTES)
        return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_maddubs_epi16(w, x);
}

/* sum + columns 4g .. 4g + 7 of 8 rows. */
G3_INLINE __m256i add_eight(kind k, __m256i sum, const g3_panel2_block *w, int h, int g,
                            const g3_act_block *act, size_t a) {
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i first = multiply(k, g3_load256(w->w[g][h]), act, a, g);
    const __m256i second = multiply(k, g3_load256(w->w[g + 1][h]), act, a, g + 1);
    if (k == BYTES)
        return _mm256_add_epi32(
            sum, _mm256_add_epi32(_mm256_madd_epi16(first, ones), _mm256_madd_epi16(second, ones)));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_add_epi16(first, second), ones));
}

G3_INLINE __m256 add_sum(__m256 y, __m256i sum, const float *scale, float act_scale) {
    const __m256 both = _mm256_mul_ps(_mm256_load_ps(scale), _mm256_set1_ps(act_scale));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), both, y);
}

/* y + the share of 32 columns: 8 rows, activation a of the tile. */
G3_INLINE __m256 add_block(kind k, int shift, const g3_panel2_block *w, int h,
                           const g3_act_block *act, size_t a, __m256 y) {
    if (k == HALVES) {
        for (int half = 0; half < 2; half++) {
            __m256i sum = _mm256_set1_epi32(act->half_bias[half][a] >> shift);
            sum = add_eight(k, sum, w, h, 4 * half, act, a);
            sum = add_eight(k, sum, w, h, 4 * half + 2, act, a);
            y = add_sum(y, sum, (half ? w->other : w->scale) + 8 * h, act->scale[a]);
        }
        return y;
    }
    __m256i sum = k == PLAIN ? _mm256_set1_epi32(act->bias[a] >> shift) : _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int g = 0; g < 8; g += 2)
        sum = add_eight(k, sum, w, h, g, act, a);
    y = add_sum(y, sum, w->scale + 8 * h, act->scale[a]);
    if (k == MINIMUM)
        y = _mm256_fmadd_ps(_mm256_load_ps(w->other + 8 * h), _mm256_set1_ps(act->scaled_sum[a]),
                            y);
    return y;
}

/* A activations from n on, one chunk of columns of one group. */
G3_INLINE void few_acts(kind k, int A, int shift, const g3_task *task, const g3_panel2_block *panel,
                        uint32_t first_block, uint32_t blocks, uint32_t rows, size_t n,
                        float *out) {
    const size_t tile_blocks = task->columns / G3_BLOCK;
    const g3_act_block *acts = task->acts + n / G3_TILE * tile_blocks + first_block;
    _Alignas(32) float y[2][16] = {{0}};
    __m256 sum[2][2];
#pragma GCC unroll 2
    for (int a = 0; a < A; a++) {
        if (first_block)
            memcpy(y[a], out + (size_t)a * task->y_stride, rows * sizeof(float));
        sum[a][0] = _mm256_load_ps(y[a]);
        sum[a][1] = _mm256_load_ps(y[a] + 8);
    }
    for (uint32_t b = 0; b < blocks; b++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
#pragma GCC unroll 2
            for (int a = 0; a < A; a++)
                sum[a][h] =
                    add_block(k, shift, panel + b, h, acts + b, n % G3_TILE + (size_t)a, sum[a][h]);
#pragma GCC unroll 2
    for (int a = 0; a < A; a++) {
        _mm256_store_ps(y[a], sum[a][0]);
        _mm256_store_ps(y[a] + 8, sum[a][1]);
        memcpy(out + (size_t)a * task->y_stride, y[a], rows * sizeof(float));
    }
}

/* All activations; `rows` valid rows at out. */
G3_INLINE void acts_of(kind k, int shift, const g3_task *task, const g3_panel2_block *panel,
                       uint32_t first_block, uint32_t blocks, uint32_t rows, float *out) {
    size_t n = 0;
    for (; n + 2 <= task->n; n += 2, out += 2 * task->y_stride)
        few_acts(k, 2, shift, task, panel, first_block, blocks, rows, n, out);
    if (n < task->n)
        few_acts(k, 1, shift, task, panel, first_block, blocks, rows, n, out);
}

void g3_int8_avx2(const g3_task *task) {
    g3_panel2_block panel[PANEL_BLOCKS];
    const uint32_t all = task->columns / G3_BLOCK;
    const int shift = g3_bias_shift(task->type);
    for (uint32_t g = 0; g < task->group_count; g++) {
        const uint8_t *group = task->groups + g * task->group_bytes;
        const uint32_t left = task->row_count - g * G3_GROUP_ROWS;
        const uint32_t rows = left < G3_GROUP_ROWS ? left : G3_GROUP_ROWS;
        float *y = task->y + (size_t)g * G3_GROUP_ROWS;
        for (uint32_t first = 0; first < all; first += PANEL_BLOCKS) {
            const uint32_t blocks = all - first < PANEL_BLOCKS ? all - first : PANEL_BLOCKS;
            g3_panel_avx2(task->type, group, first, blocks, panel);
            if (task->type == G3_Q8_0)
                acts_of(BYTES, 0, task, panel, first, blocks, rows, y);
            else if (task->type == G3_Q6_K)
                acts_of(HALVES, shift, task, panel, first, blocks, rows, y);
            else if (g3_has_minimum(task->type))
                acts_of(MINIMUM, 0, task, panel, first, blocks, rows, y);
            else
                acts_of(PLAIN, shift, task, panel, first, blocks, rows, y);
        }
    }
}

/* ---- Quantising ------------------------------------------------------------------------------ */

G3_INLINE int32_t sum_of(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

/* As integers NaN is above infinity is above every number. */
static uint32_t largest_magnitude(const __m256 v[4]) {
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i largest = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++)
        largest = _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(v[i]), mask));
    __m128i m =
        _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

static void quantise_row(const float *from, g3_act_block *block, uint32_t r) {
    __m256 v[4];
    __m256i q[4];
    for (int i = 0; i < 4; i++)
        v[i] = _mm256_loadu_ps(from + 8 * i);
    const g3_act_scale s = g3_act_scale_from_bits(largest_magnitude(v));
    for (int i = 0; i < 4; i++) {
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(s.inverse)));
        if (s.inverse == 0.0f) /* the numbers may not be finite */
            q[i] = _mm256_setzero_si256();
    }
    /* Packing works within 128-bit lanes: put the fours in order afterwards. */
    const __m256i words = _mm256_packs_epi32(q[0], q[1]), more = _mm256_packs_epi32(q[2], q[3]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words, more), order);
    _mm256_storeu_si256((__m256i *)(void *)block->q[r], bytes);
    const int32_t first = sum_of(_mm256_add_epi32(q[0], q[1]));
    const int32_t second = sum_of(_mm256_add_epi32(q[2], q[3]));
    block->scale[r] = s.scale;
    block->scaled_sum[r] = s.scale * (float)(first + second);
    block->bias[r] = -128 * (first + second);
    block->half_bias[0][r] = -128 * first;
    block->half_bias[1][r] = -128 * second;
}

void g3_quantise_avx2(const float *x, uint32_t columns, uint32_t count, g3_act_block *tile) {
    for (uint32_t b = 0; b < columns / G3_BLOCK; b++) {
        g3_act_block *block = tile + b;
        if (count < G3_TILE)
            memset(block, 0, sizeof *block);
        for (uint32_t r = 0; r < count; r++)
            quantise_row(x + (size_t)r * columns + (size_t)b * G3_BLOCK, block, r);
    }
}

const g3_kernels g3_kernels_avx2 = {g3_quantise_avx2, g3_int8_avx2, g3_int8_avx2, g3_float_avx2,
                                    g3_float_avx2};
