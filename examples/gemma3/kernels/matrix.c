/* SPDX-License-Identifier: MIT */
/* Products: how the work is cut up for the threads. What a thread does is in the
 * kernels; no cut changes the order in which one output is added up. */

#include "matrix_layout.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

static size_t at_least_one(size_t value) { return value ? value : 1; }

size_t g3_rows_bytes(uint32_t columns, size_t n, g3_precision precision) {
    if (precision != G3_INT8)
        return 0;
    const size_t blocks = ((size_t)columns + G3_BLOCK - 1) / G3_BLOCK;
    const size_t tiles = n / G3_TILE + (n % G3_TILE != 0);
    const size_t tile_bytes = blocks * sizeof(g3_act_block);
    return tile_bytes && tiles > SIZE_MAX / tile_bytes ? 0 : tiles * tile_bytes;
}

void g3_rows_prepare(g3_rows *rows, g3_precision precision) {
    if (precision != G3_INT8 || !rows->packed || rows->columns % G3_BLOCK)
        return;
    const g3_kernels *kernels = g3_kernels_current();
    const size_t blocks = rows->columns / G3_BLOCK;
    const long tiles = (long)((rows->n + G3_TILE - 1) / G3_TILE);
    g3_act_block *const packed = rows->packed;
#pragma omp parallel for schedule(static) if (tiles > 1)
    for (long t = 0; t < tiles; t++) {
        const size_t first = (size_t)t * G3_TILE;
        const size_t left = rows->n - first;
        kernels->quantise(rows->x + first * rows->columns, rows->columns,
                          left < G3_TILE ? (uint32_t)left : G3_TILE, packed + (size_t)t * blocks);
    }
}

typedef struct cut {
    size_t n_block;  /* activations of a task */
    size_t n_blocks; /* of all activations */
    size_t sets;     /* of G3_TASK_GROUPS row groups */
} cut;

/* Activations are cut so that those of a task stay in a core's second-level cache
 * while the thread goes through its row groups, and finer if there would be too few
 * tasks for the threads. */
static cut cut_up(size_t n, size_t groups, size_t row_bytes, size_t unit, size_t threads) {
    enum { CACHE_BYTES = 1 << 20 };
    cut c = {.sets = (groups + G3_TASK_GROUPS - 1) / G3_TASK_GROUPS};
    size_t units = at_least_one(CACHE_BYTES / at_least_one(row_bytes) / unit);
    const size_t all_units = (n + unit - 1) / unit;
    if (units > all_units)
        units = all_units;
    while (units > 1 && c.sets * ((all_units + units - 1) / units) < 4 * threads && threads > 1)
        units = (units + 1) / 2;
    c.n_block = units * unit;
    c.n_blocks = (n + c.n_block - 1) / c.n_block;
    return c;
}

typedef struct product {
    const g3_matrix *matrix;
    const g3_rows *rows;
    const g3_kernels *kernels;
    int int8;
    float *y;
    size_t y_stride;
    size_t groups;
    size_t group_bytes;
} product;

/* Row groups [first, first + count) with activations [n_first, n_first + n). */
static g3_task task_of(const product *p, size_t first, size_t count, size_t n_first, size_t n) {
    const size_t row = first * G3_GROUP_ROWS;
    const size_t left = p->matrix->rows - row;
    const size_t rows = count * G3_GROUP_ROWS < left ? count * G3_GROUP_ROWS : left;
    g3_task task = {.type = p->matrix->type,
                    .columns = p->matrix->columns,
                    .groups = (const uint8_t *)p->matrix->data + first * p->group_bytes,
                    .group_bytes = p->group_bytes,
                    .group_count = (uint32_t)count,
                    .row_count = (uint32_t)rows,
                    .n = n,
                    .x = p->rows->x + n_first * p->matrix->columns,
                    .y = p->y + n_first * p->y_stride + row,
                    .y_stride = p->y_stride};
    if (p->int8)
        task.acts = (const g3_act_block *)p->rows->packed +
                    n_first / G3_TILE * (p->matrix->columns / G3_BLOCK);
    return task;
}

/* Part `part` of `parts` of the row groups, for one activation. */
static void one_part(const product *p, size_t part, size_t parts) {
    const size_t first = p->groups * part / parts;
    const size_t end = p->groups * (part + 1) / parts;
    if (first == end)
        return;
    const g3_task task = task_of(p, first, end - first, 0, 1);
    if (p->int8)
        p->kernels->int8_one(&task);
    else
        p->kernels->float_one(&task);
}

/* A part for each thread, or more of a large matrix, so that a thread that the system
 * holds up does not hold up the others for long. */
static size_t part_count(size_t groups, size_t threads) {
    enum { PART_GROUPS = 256 };
    const size_t parts = groups / PART_GROUPS;
    return parts > threads ? parts : threads;
}

static cut cut_of(const product *p, size_t threads) {
    enum { INT8_UNIT = 16, FLOAT_UNIT = 8 };
    const size_t columns = p->matrix->columns;
    if (p->int8)
        return cut_up(p->rows->n, p->groups, columns / G3_BLOCK * sizeof(g3_act_block) / G3_TILE,
                      INT8_UNIT, threads);
    return cut_up(p->rows->n, p->groups, columns * sizeof(float), FLOAT_UNIT, threads);
}

/* Task t of the c.n_blocks * c.sets; neighbours share their activations. */
static void many_part(const product *p, const cut *c, size_t t) {
    const size_t n_first = t / c->sets * c->n_block;
    const size_t n_left = p->rows->n - n_first;
    const size_t group = t % c->sets * G3_TASK_GROUPS;
    const size_t groups_left = p->groups - group;
    const g3_task task =
        task_of(p, group, groups_left < G3_TASK_GROUPS ? groups_left : G3_TASK_GROUPS, n_first,
                n_left < c->n_block ? n_left : c->n_block);
    if (p->int8)
        p->kernels->int8_many(&task);
    else
        p->kernels->float_many(&task);
}

/* `work` in columns of row groups: less than a few microseconds of it is not worth
 * waking threads for. */
static size_t threads_for(size_t work) {
#if defined(_OPENMP)
    if (work >= 4096)
        return (size_t)omp_get_max_threads();
#endif
    (void)work;
    return 1;
}

void g3_matmul(const g3_matrix *matrix, const g3_rows *rows, g3_precision precision, float *y,
               size_t y_stride) {
    const int dense = g3_is_dense(matrix->type);
    product p = {.matrix = matrix,
                 .rows = rows,
                 .kernels = g3_kernels_current(),
                 .int8 = precision == G3_INT8 && !dense,
                 .y = y,
                 .y_stride = y_stride,
                 .groups = ((size_t)matrix->rows + G3_GROUP_ROWS - 1) / G3_GROUP_ROWS,
                 .group_bytes = g3_matrix_bytes(matrix->type, G3_GROUP_ROWS, matrix->columns)};
    if (!p.group_bytes || !rows->n || !matrix->rows)
        return;
    const int one = rows->n == 1 && (p.int8 || dense);
    const size_t threads = threads_for(p.groups * matrix->columns * rows->n);
    const cut c = one ? (cut){0} : cut_of(&p, threads);
    const size_t parts = one ? part_count(p.groups, threads) : c.n_blocks * c.sets;
#pragma omp parallel for schedule(dynamic) if (threads > 1)
    for (size_t i = 0; i < parts; i++) {
        if (one)
            one_part(&p, i, parts);
        else
            many_part(&p, &c, i);
    }
}
