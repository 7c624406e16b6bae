/* SPDX-License-Identifier: MIT */
#include "frame.h"

void *g3_frame_bytes(g3_frame *frame, size_t bytes, vrp_tag tag) {
    if (frame->status != G3_OK)
        return NULL;
    if (frame->count == G3_FRAME_BLOCKS) {
        frame->status = g3_fail(frame->error, G3_DEVICE, "more than %d activations live at once",
                                G3_FRAME_BLOCKS);
        return NULL;
    }
    vrp_devptr ptr = 0;
    frame->status = g3_memory_alloc(frame->memory, bytes == 0 ? 1 : bytes, tag, frame->scope, &ptr,
                                    frame->error);
    if (frame->status != G3_OK)
        return NULL;
    frame->blocks[frame->count++] = ptr;
    return g3_host(ptr);
}

float *g3_frame_floats(g3_frame *frame, size_t count) {
    return g3_frame_bytes(frame, count * sizeof(float), frame->tag);
}

void g3_frame_free(g3_frame *frame, void *pointer) {
    const vrp_devptr ptr = (vrp_devptr)(uintptr_t)pointer;
    /* The youngest first: blocks mostly end in the order opposite to their beginning. */
    for (uint32_t i = frame->count; ptr != 0 && i-- > 0;) {
        if (frame->blocks[i] != ptr)
            continue;
        g3_memory_free(frame->memory, ptr);
        frame->blocks[i] = frame->blocks[--frame->count];
        return;
    }
}

void g3_frame_end(g3_frame *frame) {
    while (frame->count > 0)
        g3_memory_free(frame->memory, frame->blocks[--frame->count]);
}

void g3_frame_matmuls(g3_frame *frame, const g3_matrix *const *matrices, float *const *results,
                      uint32_t count, g3_precision precision, const float *x, size_t n) {
    if (frame->status != G3_OK)
        return;
    g3_rows rows = {.x = x, .n = n, .columns = matrices[0]->columns};
    bool rounded = false;
    for (uint32_t i = 0; i < count; i++)
        rounded |= precision == G3_INT8 && g3_type_info_get(matrices[i]->type)->block_elements > 1;
    if (rounded) {
        rows.packed =
            g3_frame_bytes(frame, g3_rows_bytes(rows.columns, n, precision), VRP_TAG_WORKSPACE);
        if (rows.packed == NULL)
            return;
        g3_rows_prepare(&rows, precision);
    }
    for (uint32_t i = 0; i < count; i++)
        g3_matmul(matrices[i], &rows, precision, results[i], matrices[i]->rows);
    g3_frame_free(frame, rows.packed);
}

void g3_frame_matmul(g3_frame *frame, const g3_matrix *matrix, g3_precision precision,
                     const float *x, size_t n, float *y) {
    g3_frame_matmuls(frame, &matrix, &y, 1, precision, x, n);
}
