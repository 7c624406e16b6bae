/* SPDX-License-Identifier: MIT */
/* Products in plain C: the same integer sums and the same order of float additions
 * as the vector versions, but multiplication and addition round one by one. */

#include "matrix_layout.h"

enum { ROWS = G3_GROUP_ROWS, BLOCK = G3_BLOCK };

/* 32 columns of a row group; w is signed and without a middle. Value = scale[i /
 * 16] * w + minimum. */
typedef struct unpacked {
    int8_t w[BLOCK][ROWS];
    float scale[2][ROWS];
    float minimum[ROWS];
} unpacked;

static float half_at(const uint8_t *p, int row) {
    return g3_half_to_float((uint16_t)(p[2 * row] | (unsigned)p[2 * row + 1] << 8));
}

/* Byte of column-in-piece c and row r, in pieces of four. */
static uint8_t byte_of(const uint8_t *p, int c, int r) { return p[c / 4 * 64 + r * 4 + c % 4]; }

static void unpack_q8_0(const uint8_t *p, unpacked *u) {
    for (int r = 0; r < ROWS; r++) {
        u->scale[0][r] = u->scale[1][r] = half_at(p, r);
        u->minimum[r] = 0.0f;
        for (int i = 0; i < BLOCK; i++)
            u->w[i][r] = (int8_t)byte_of(p + 32, i, r);
    }
}

static void unpack_nibbles(g3_type type, const uint8_t *p, unpacked *u) {
    const int minimum = g3_has_minimum(type), five = type == G3_Q5_0 || type == G3_Q5_1;
    const uint8_t *qh = p + (minimum ? 64 : 32);
    const uint8_t *qs = qh + (five ? 64 : 0);
    const int middle = minimum ? 0 : five ? 16 : 8;
    for (int r = 0; r < ROWS; r++) {
        u->scale[0][r] = u->scale[1][r] = half_at(p, r);
        u->minimum[r] = minimum ? half_at(p + 32, r) : 0.0f;
        for (int i = 0; i < BLOCK; i++) {
            int n = byte_of(qs, i % 16, r) >> 4 * (i / 16) & 15;
            if (five)
                n |= (qh[r * 4 + i % 4] >> i / 4 & 1) << 4;
            u->w[i][r] = (int8_t)(n - middle);
        }
    }
}

static void unpack_q45_k(g3_type type, const uint8_t *p, int j, unpacked *u) {
    const uint8_t *s = p + 64;
    const uint8_t *qh = s + 192;
    const uint8_t *qs = (type == G3_Q5_K ? qh + 512 : qh) + 512 * (j / 2);
    for (int r = 0; r < ROWS; r++) {
        int scale, minimum;
        if (j < 4) {
            scale = s[16 * j + r] & 63;
            minimum = s[16 * (j + 4) + r] & 63;
        } else {
            scale = (s[16 * (j + 4) + r] & 15) | (s[16 * (j - 4) + r] >> 6) << 4;
            minimum = (s[16 * (j + 4) + r] >> 4) | (s[16 * j + r] >> 6) << 4;
        }
        u->scale[0][r] = u->scale[1][r] = half_at(p, r) * (float)scale;
        u->minimum[r] = -(half_at(p + 32, r) * (float)minimum);
        for (int i = 0; i < BLOCK; i++) {
            int n = byte_of(qs, i, r) >> 4 * (j % 2) & 15;
            if (type == G3_Q5_K)
                n |= (byte_of(qh, i, r) >> j & 1) << 4;
            u->w[i][r] = (int8_t)n;
        }
    }
}

static void unpack_q6_k(const uint8_t *p, int j, unpacked *u) {
    const int half = j / 4, t = j % 4;
    const uint8_t *ql = p + 288 + 512 * (2 * half + t % 2);
    const uint8_t *qh = p + 288 + 2048 + 512 * half;
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < 2; i++)
            u->scale[i][r] = half_at(p, r) * (float)(int8_t)p[32 + 16 * (2 * j + i) + r];
        u->minimum[r] = 0.0f;
        for (int i = 0; i < BLOCK; i++) {
            const int low = byte_of(ql, i, r) >> 4 * (t / 2) & 15;
            const int high = byte_of(qh, i, r) >> 2 * t & 3;
            u->w[i][r] = (int8_t)((low | high << 4) - 32);
        }
    }
}

/* 32 columns from `block` on, a block of 32 columns of the group. */
static void unpack(g3_type type, const uint8_t *group, uint32_t block, unpacked *u) {
    const g3_layout *layout = g3_layout_of(type);
    const uint32_t per_unit = layout->block_elements / BLOCK;
    const uint8_t *p = group + (size_t)(block / per_unit) * layout->block_bytes * ROWS;
    const int j = (int)(block % per_unit);
    if (type == G3_Q8_0)
        unpack_q8_0(p, u);
    else if (type == G3_Q6_K)
        unpack_q6_k(p, j, u);
    else if (type == G3_Q4_K || type == G3_Q5_K)
        unpack_q45_k(type, p, j, u);
    else
        unpack_nibbles(type, p, u);
}

static void quantise(const float *x, uint32_t columns, uint32_t count, g3_act_block *tile) {
    for (uint32_t b = 0; b < columns / BLOCK; b++) {
        g3_act_block *block = tile + b;
        memset(block, 0, sizeof *block);
        for (uint32_t r = 0; r < count; r++) {
            const float *from = x + (size_t)r * columns + (size_t)b * BLOCK;
            uint32_t largest = 0;
            for (int i = 0; i < BLOCK; i++) {
                uint32_t bits;
                memcpy(&bits, from + i, sizeof bits);
                bits &= 0x7fffffffu;
                largest = bits > largest ? bits : largest;
            }
            const g3_act_scale s = g3_act_scale_from_bits(largest);
            int32_t sums[2] = {0, 0};
            for (int i = 0; s.inverse != 0.0f && i < BLOCK; i++) {
                const int32_t q = (int32_t)lrintf(from[i] * s.inverse);
                block->q[r][i] = (int8_t)q;
                sums[i / 16] += q;
            }
            block->scale[r] = s.scale;
            block->scaled_sum[r] = s.scale * (float)(sums[0] + sums[1]);
            block->bias[r] = -128 * (sums[0] + sums[1]);
            block->half_bias[0][r] = -128 * sums[0];
            block->half_bias[1][r] = -128 * sums[1];
        }
    }
}

static void add_int8(const g3_task *task, const unpacked *u, const g3_act_block *act, size_t a,
                     float *y) {
    const int halves = task->type == G3_Q6_K;
    for (int half = 0; half <= halves; half++) {
        int32_t sum[ROWS] = {0};
        const int end = halves ? 16 * half + 16 : BLOCK;
        for (int i = 16 * half; i < end; i++)
            for (int r = 0; r < ROWS; r++)
                sum[r] += u->w[i][r] * act->q[a][i];
        for (int r = 0; r < ROWS; r++)
            y[r] += (float)sum[r] * (u->scale[half][r] * act->scale[a]);
    }
    if (g3_has_minimum(task->type))
        for (int r = 0; r < ROWS; r++)
            y[r] += u->minimum[r] * act->scaled_sum[a];
}

static void add_float(float w[BLOCK][ROWS], const float *x, uint32_t columns, float *y) {
    for (uint32_t k = 0; k < columns; k++)
        for (int r = 0; r < ROWS; r++)
            y[r] += w[k][r] * x[k];
}

/* y += the share of 32 columns or fewer for one activation; a group's valid rows. */
typedef struct share {
    const g3_task *task;
    uint32_t group, first_column, columns;
    unpacked u;
    float w[BLOCK][ROWS];
} share;

static void add_share(share *s, size_t n, int int8) {
    const g3_task *task = s->task;
    const uint32_t left = task->row_count - s->group * ROWS;
    const size_t bytes = (left < ROWS ? left : ROWS) * sizeof(float);
    float y[ROWS] = {0};
    float *out = task->y + n * task->y_stride + (size_t)s->group * ROWS;
    if (s->first_column)
        memcpy(y, out, bytes);
    if (int8)
        add_int8(task, &s->u,
                 task->acts + n / G3_TILE * (task->columns / BLOCK) + s->first_column / BLOCK,
                 n % G3_TILE, y);
    else
        add_float(s->w, task->x + n * task->columns + s->first_column, s->columns, y);
    memcpy(out, y, bytes);
}

static void dense_columns(share *s, const uint8_t *group) {
    const size_t width = s->task->type == G3_F32 ? 4 : 2;
    for (uint32_t k = 0; k < s->columns; k++)
        for (size_t r = 0; r < ROWS; r++)
            g3_dequantise(s->task->type, group + ((s->first_column + k) * (size_t)ROWS + r) * width,
                          1, &s->w[k][r]);
}

static void run(const g3_task *task, int int8) {
    share s = {.task = task};
    for (s.group = 0; s.group < task->group_count; s.group++) {
        const uint8_t *group = task->groups + s.group * task->group_bytes;
        for (s.first_column = 0; s.first_column < task->columns; s.first_column += BLOCK) {
            const uint32_t left = task->columns - s.first_column;
            s.columns = left < BLOCK ? left : BLOCK;
            if (g3_is_dense(task->type)) {
                dense_columns(&s, group);
            } else {
                unpack(task->type, group, s.first_column / BLOCK, &s.u);
                for (int i = 0; !int8 && i < BLOCK; i++)
                    for (int r = 0; r < ROWS; r++)
                        s.w[i][r] = (float)s.u.w[i][r] * s.u.scale[i / 16][r] + s.u.minimum[r];
            }
            for (size_t n = 0; n < task->n; n++)
                add_share(&s, n, int8);
        }
    }
}

static void run_int8(const g3_task *task) { run(task, 1); }
static void run_float(const g3_task *task) { run(task, 0); }

const g3_kernels g3_kernels_scalar = {quantise, run_int8, run_int8, run_float, run_float};
