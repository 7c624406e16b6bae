/* SPDX-License-Identifier: MIT */
/* The formulas of the block formats, in plain C. Products of a scale with a small
 * number are exact in float32 (but for Q6_K's last one), so each value is rounded
 * at most once, and vector code that follows the same steps finds the same bits. */

#include "matrix_layout.h"

#include <string.h>

static uint16_t load16(const uint8_t *p) { return (uint16_t)(p[0] | (unsigned)p[1] << 8); }

static uint32_t load32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static float half_at(const uint8_t *p) { return g3_half_to_float(load16(p)); }

static void block_q8_0(const uint8_t *p, float *out) {
    const float d = half_at(p);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)(int8_t)p[2 + i];
}

/* Q4_0, Q4_1, Q5_0, Q5_1 have the same nibbles; with or without m and qh. */
static void block_nibbles(const uint8_t *p, int with_minimum, int with_fifth, float *out) {
    const float d = half_at(p);
    p += 2;
    float m = 0.0f;
    if (with_minimum) {
        m = half_at(p);
        p += 2;
    }
    uint32_t qh = 0;
    if (with_fifth) {
        qh = load32(p);
        p += 4;
    }
    const int middle = with_minimum ? 0 : with_fifth ? 16 : 8;
    for (int i = 0; i < 16; i++) {
        const int low = (p[i] & 15) | (int)((qh >> i & 1u) << 4);
        const int high = (p[i] >> 4) | (int)((qh >> (i + 16) & 1u) << 4);
        out[i] = d * (float)(low - middle) + m;
        out[i + 16] = d * (float)(high - middle) + m;
    }
}

static void block_q45_k(const uint8_t *p, int with_fifth, float *out) {
    const float d = half_at(p);
    const float dmin = half_at(p + 2);
    const uint8_t *s = p + 4;
    const uint8_t *qh = p + 16;
    const uint8_t *qs = p + (with_fifth ? 48 : 16);
    for (int j = 0; j < 8; j++) {
        int scale, minimum;
        if (j < 4) {
            scale = s[j] & 63;
            minimum = s[j + 4] & 63;
        } else {
            scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
            minimum = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
        }
        const float step = d * (float)scale;
        const float offset = dmin * (float)minimum;
        for (int l = 0; l < 32; l++) {
            int n = qs[32 * (j / 2) + l] >> 4 * (j % 2) & 15;
            if (with_fifth)
                n |= (qh[l] >> j & 1) << 4;
            out[32 * j + l] = step * (float)n - offset;
        }
    }
}

static void block_q6_k(const uint8_t *p, float *out) {
    const uint8_t *ql = p;
    const uint8_t *qh = p + 128;
    const uint8_t *scales = p + 192;
    const float d = half_at(p + 208);
    for (int half = 0; half < 2; half++)
        for (int t = 0; t < 4; t++)
            for (int l = 0; l < 32; l++) {
                const int i = 128 * half + 32 * t + l;
                const int low = ql[64 * half + 32 * (t % 2) + l] >> 4 * (t / 2) & 15;
                const int high = qh[32 * half + l] >> 2 * t & 3;
                const float step = d * (float)(int8_t)scales[i / 16];
                out[i] = step * (float)((low | high << 4) - 32);
            }
}

static void block_of(g3_type type, const uint8_t *p, float *out) {
    switch (type) {
    case G3_F32: {
        const uint32_t bits = load32(p);
        memcpy(out, &bits, sizeof bits);
        return;
    }
    case G3_F16:
        *out = half_at(p);
        return;
    case G3_BF16:
        *out = g3_bf16_to_float(load16(p));
        return;
    case G3_Q4_0:
        block_nibbles(p, 0, 0, out);
        return;
    case G3_Q4_1:
        block_nibbles(p, 1, 0, out);
        return;
    case G3_Q5_0:
        block_nibbles(p, 0, 1, out);
        return;
    case G3_Q5_1:
        block_nibbles(p, 1, 1, out);
        return;
    case G3_Q8_0:
        block_q8_0(p, out);
        return;
    case G3_Q4_K:
        block_q45_k(p, 0, out);
        return;
    case G3_Q5_K:
        block_q45_k(p, 1, out);
        return;
    case G3_Q6_K:
        block_q6_k(p, out);
        return;
    }
}

void g3_dequantise(g3_type type, const uint8_t *src, size_t count, float *out) {
    const g3_layout *layout = g3_layout_of(type);
    if (!layout)
        return;
    for (size_t i = 0; i < count; i += layout->block_elements, src += layout->block_bytes)
        block_of(type, src, out + i);
}
