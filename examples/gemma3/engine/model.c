/* SPDX-License-Identifier: MIT */
/* Loading: every tensor goes from the mapped file into a block of its own, in
 * slices, so that no second copy of it is on the device at any time (the one matrix that
 * has to be turned is turned on the host). */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct loader {
    g3_model *model;
    const g3_checkpoint *checkpoint;
    g3_progress_fn progress;
    void *user;
    uint64_t done, total;
    g3_error *error;
} loader;

static void advance(loader *load, const g3_tensor *tensor, uint64_t bytes, bool last) {
    load->done += bytes;
    if (load->progress != NULL)
        load->progress(load->user, load->done, load->total);
    if (last)
        g3_checkpoint_done(load->checkpoint, tensor);
}

/* The tensor NAME, or PREFIX.INDEX.NAME with a prefix. The checkpoint was checked:
 * a tensor that the configuration asks for is there with its shape. */
static const g3_tensor *find(loader *load, const char *prefix, uint32_t index, const char *name) {
    char full[96];
    if (prefix == NULL)
        (void)snprintf(full, sizeof full, "%s", name);
    else
        (void)snprintf(full, sizeof full, "%s.%u.%s", prefix, index, name);
    const g3_tensor *tensor = g3_checkpoint_tensor(load->checkpoint, full);
    if (tensor == NULL)
        (void)g3_fail(load->error, G3_INVALID, "%s: tensor %s is missing",
                      g3_checkpoint_path(load->checkpoint), full);
    return tensor;
}

static g3_status weight_block(loader *load, size_t bytes, void **out_pointer) {
    vrp_devptr ptr = 0;
    g3_status status = g3_memory_alloc(load->model->memory, bytes, VRP_TAG_WEIGHTS,
                                       load->model->scope, &ptr, load->error);
    if (status != G3_OK)
        return g3_fail_in(load->error, status, "loading weights");
    load->model->weight_bytes += bytes;
    *out_pointer = g3_host(ptr);
    return G3_OK;
}

/* ---- Matrices -------------------------------------------------------------- */

static g3_status load_matrix(loader *load, const g3_tensor *tensor, g3_matrix *out_matrix) {
    const uint32_t columns = (uint32_t)tensor->dims[0];
    uint64_t rows = 1;
    for (uint32_t i = 1; i < G3_MAX_DIMS; i++)
        rows *= tensor->dims[i];
    const size_t bytes = g3_matrix_bytes(tensor->type, (uint32_t)rows, columns);
    void *data = NULL;
    if (bytes == 0)
        return g3_fail(load->error, G3_UNSUPPORTED, "%s: rows of %u elements are no whole blocks",
                       tensor->name, columns);
    g3_status status = weight_block(load, bytes, &data);
    if (status != G3_OK)
        return status;
    /* Slices of about 8 MiB: the progress bar moves, and the page cache's copy of
     * what is done is needed no longer than that. */
    const uint64_t row_bytes = tensor->bytes / rows;
    uint64_t slice = ((UINT64_C(8) << 20) / row_bytes + 1) / G3_GROUP_ROWS * G3_GROUP_ROWS;
    if (slice == 0)
        slice = G3_GROUP_ROWS;
    for (uint64_t row = 0; row < rows; row += slice) {
        const uint64_t count = rows - row < slice ? rows - row : slice;
        g3_matrix_pack(tensor->type, columns, (uint32_t)row, (uint32_t)count,
                       tensor->data + row * row_bytes, data);
        advance(load, tensor, count * row_bytes, row + count == rows);
    }
    *out_matrix = (g3_matrix){tensor->type, (uint32_t)rows, columns, data};
    return G3_OK;
}

/* A matrix that the file holds as [inputs][outputs], turned on the host; `out` is
 * float32. Blocks of a quantised one lie along its outputs and cannot be turned: its
 * values are. */
static void turn(const g3_tensor *tensor, uint32_t rows, uint32_t columns, float *line,
                 float *out) {
    const uint64_t line_bytes = tensor->bytes / columns;
    for (size_t column = 0; column < columns; column++) {
        g3_dequantise(tensor->type, tensor->data + column * line_bytes, rows, line);
        for (size_t row = 0; row < rows; row++)
            out[row * columns + column] = line[row];
    }
}

/* Turned elements in the type that the matrix has in memory: its own, or float32. */
static void to_type(g3_type type, const float *values, size_t count, uint8_t *out) {
    for (size_t i = 0; i < count; i++) {
        const uint16_t half =
            type == G3_F16 ? g3_float_to_half(values[i]) : g3_float_to_bf16(values[i]);
        if (type == G3_F32)
            memcpy(out + i * sizeof *values, &values[i], sizeof *values);
        else
            memcpy(out + i * sizeof half, &half, sizeof half);
    }
}

static g3_status load_transposed(loader *load, const g3_tensor *tensor, g3_matrix *out_matrix) {
    const uint32_t rows = (uint32_t)tensor->dims[0], columns = (uint32_t)tensor->dims[1];
    const size_t count = (size_t)rows * columns;
    const g3_type type =
        g3_type_info_get(tensor->type)->block_elements == 1 ? tensor->type : G3_F32;
    void *data = NULL;
    g3_status status = weight_block(load, g3_matrix_bytes(type, rows, columns), &data);
    if (status != G3_OK)
        return status;
    float *turned = malloc((count + rows) * sizeof *turned);
    uint8_t *typed = malloc(count * g3_type_info_get(type)->block_bytes);
    if (turned == NULL || typed == NULL) {
        free(turned);
        free(typed);
        return g3_fail(load->error, G3_HOST_MEMORY, "%s: no host memory to turn it", tensor->name);
    }
    turn(tensor, rows, columns, turned + count, turned);
    to_type(type, turned, count, typed);
    g3_matrix_pack(type, columns, 0, rows, typed, data);
    free(turned);
    free(typed);
    advance(load, tensor, tensor->bytes, true);
    *out_matrix = (g3_matrix){type, rows, columns, data};
    return G3_OK;
}

/* ---- Vectors ----------------------------------------------------------------- */

/* As float32, with `shift` added. */
static g3_status load_vector(loader *load, const g3_tensor *tensor, float shift,
                             const float **out_vector) {
    const size_t count =
        (size_t)(tensor->dims[0] * tensor->dims[1] * tensor->dims[2] * tensor->dims[3]);
    void *data = NULL;
    g3_status status = weight_block(load, count * sizeof(float), &data);
    if (status != G3_OK)
        return status;
    float *vector = data;
    g3_dequantise(tensor->type, tensor->data, count, vector);
    for (size_t i = 0; shift != 0 && i < count; i++)
        vector[i] += shift;
    advance(load, tensor, tensor->bytes, true);
    *out_vector = vector;
    return G3_OK;
}

/* What a layer's table says of one of its members. */
typedef enum part_kind { PART_MATRIX, PART_NORM, PART_VECTOR } part_kind;
typedef struct part {
    const char *name;
    part_kind kind;
    size_t member; /* its place in the struct */
} part;

static g3_status load_part(loader *load, const part *what, const g3_tensor *tensor, void *base) {
    char *member = (char *)base + what->member;
    const float shift = g3_checkpoint_norms_shifted(load->checkpoint) ? 0.0f : 1.0f;
    const float *vector = NULL;
    g3_matrix matrix = {0};
    g3_status status =
        what->kind == PART_MATRIX
            ? load_matrix(load, tensor, &matrix)
            : load_vector(load, tensor, what->kind == PART_NORM ? shift : 0.0f, &vector);
    if (status != G3_OK)
        return status;
    if (what->kind == PART_MATRIX)
        memcpy(member, &matrix, sizeof matrix);
    else
        memcpy(member, &vector, sizeof vector);
    return G3_OK;
}

static g3_status load_parts(loader *load, const char *prefix, uint32_t index, const part *parts,
                            size_t count, void *base) {
    for (size_t i = 0; i < count; i++) {
        const g3_tensor *tensor = find(load, prefix, index, parts[i].name);
        if (tensor == NULL)
            return G3_INVALID;
        g3_status status = load_part(load, &parts[i], tensor, base);
        if (status != G3_OK)
            return status;
    }
    return G3_OK;
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Text ---------------------------------------------------------------------- */

static const part text_parts[] = {
    {"attn_norm.weight", PART_NORM, offsetof(g3_layer, attention_norm)},
    {"attn_q.weight", PART_MATRIX, offsetof(g3_layer, q)},
    {"attn_k.weight", PART_MATRIX, offsetof(g3_layer, k)},
    {"attn_v.weight", PART_MATRIX, offsetof(g3_layer, v)},
    {"attn_output.weight", PART_MATRIX, offsetof(g3_layer, o)},
    {"attn_q_norm.weight", PART_NORM, offsetof(g3_layer, q_norm)},
    {"attn_k_norm.weight", PART_NORM, offsetof(g3_layer, k_norm)},
    {"post_attention_norm.weight", PART_NORM, offsetof(g3_layer, post_attention_norm)},
    {"ffn_norm.weight", PART_NORM, offsetof(g3_layer, feed_forward_norm)},
    {"ffn_gate.weight", PART_MATRIX, offsetof(g3_layer, gate)},
    {"ffn_up.weight", PART_MATRIX, offsetof(g3_layer, up)},
    {"ffn_down.weight", PART_MATRIX, offsetof(g3_layer, down)},
    {"post_ffw_norm.weight", PART_NORM, offsetof(g3_layer, post_feed_forward_norm)},
};

static g3_status load_text(loader *load) {
    g3_model *model = load->model;
    const g3_text_config *text = &model->config.text;
    const part top[] = {{"token_embd.weight", PART_MATRIX, offsetof(g3_model, embedding)},
                        {"output_norm.weight", PART_NORM, offsetof(g3_model, output_norm)}};
    g3_status status = load_parts(load, NULL, 0, top, COUNT(top), model);
    for (uint32_t i = 0; i < text->layers && status == G3_OK; i++)
        status = load_parts(load, "blk", i, text_parts, COUNT(text_parts), &model->layers[i]);
    if (status != G3_OK)
        return status;
    const g3_tensor *output = g3_checkpoint_tensor(load->checkpoint, "output.weight");
    model->output = model->embedding;
    return output == NULL ? G3_OK : load_matrix(load, output, &model->output);
}

/* ---- Vision --------------------------------------------------------------------- */

static const part vision_parts[] = {
    {"ln1.weight", PART_VECTOR, offsetof(g3_vision_layer, norm1)},
    {"ln1.bias", PART_VECTOR, offsetof(g3_vision_layer, norm1_bias)},
    {"attn_q.weight", PART_MATRIX, offsetof(g3_vision_layer, q)},
    {"attn_q.bias", PART_VECTOR, offsetof(g3_vision_layer, q_bias)},
    {"attn_k.weight", PART_MATRIX, offsetof(g3_vision_layer, k)},
    {"attn_k.bias", PART_VECTOR, offsetof(g3_vision_layer, k_bias)},
    {"attn_v.weight", PART_MATRIX, offsetof(g3_vision_layer, v)},
    {"attn_v.bias", PART_VECTOR, offsetof(g3_vision_layer, v_bias)},
    {"attn_out.weight", PART_MATRIX, offsetof(g3_vision_layer, o)},
    {"attn_out.bias", PART_VECTOR, offsetof(g3_vision_layer, o_bias)},
    {"ln2.weight", PART_VECTOR, offsetof(g3_vision_layer, norm2)},
    {"ln2.bias", PART_VECTOR, offsetof(g3_vision_layer, norm2_bias)},
    {"ffn_up.weight", PART_MATRIX, offsetof(g3_vision_layer, up)},
    {"ffn_up.bias", PART_VECTOR, offsetof(g3_vision_layer, up_bias)},
    {"ffn_down.weight", PART_MATRIX, offsetof(g3_vision_layer, down)},
    {"ffn_down.bias", PART_VECTOR, offsetof(g3_vision_layer, down_bias)},
};

/* The patch convolution as a matrix: each output's kernel is one row. */
static g3_status load_patch(loader *load) {
    const g3_tensor *tensor = find(load, NULL, 0, "v.patch_embd.weight");
    if (tensor == NULL)
        return G3_INVALID;
    const g3_vision_config *vision = &load->model->config.vision;
    g3_tensor flat = *tensor;
    flat.dims[0] = (uint64_t)3 * vision->patch_size * vision->patch_size;
    flat.dims[1] = vision->hidden;
    flat.dims[2] = flat.dims[3] = 1;
    return load_matrix(load, &flat, &load->model->vision.patch);
}

static g3_status load_vision(loader *load) {
    g3_vision *vision = &load->model->vision;
    const part top[] = {
        {"v.patch_embd.bias", PART_VECTOR, offsetof(g3_vision, patch_bias)},
        {"v.position_embd.weight", PART_VECTOR, offsetof(g3_vision, position)},
        {"v.post_ln.weight", PART_VECTOR, offsetof(g3_vision, post_norm)},
        {"v.post_ln.bias", PART_VECTOR, offsetof(g3_vision, post_norm_bias)},
        {"mm.soft_emb_norm.weight", PART_NORM, offsetof(g3_vision, soft_norm)},
    };
    const uint32_t layers = load->model->config.vision.layers;
    vision->layers = calloc(layers, sizeof *vision->layers);
    if (vision->layers == NULL)
        return g3_fail(load->error, G3_HOST_MEMORY, "no host memory for %u layers", layers);
    g3_status status = load_patch(load);
    if (status == G3_OK)
        status = load_parts(load, NULL, 0, top, COUNT(top), vision);
    for (uint32_t i = 0; i < layers && status == G3_OK; i++)
        status =
            load_parts(load, "v.blk", i, vision_parts, COUNT(vision_parts), &vision->layers[i]);
    if (status != G3_OK)
        return status;
    const g3_tensor *projection = find(load, NULL, 0, "mm.input_projection.weight");
    return projection == NULL ? G3_INVALID : load_transposed(load, projection, &vision->projection);
}

/* ---- The whole ------------------------------------------------------------------- */

/* The deviation asked for, so that a check that cannot fail would be seen. */
static void plant(g3_model *model, g3_fault fault) {
    model->fault = fault;
    if (fault == G3_FAULT_NO_SCALE)
        model->embedding_scale = 1.0f;
    if (fault == G3_FAULT_WINDOW)
        model->config.text.window++;
    if (fault == G3_FAULT_WEIGHT) {
        const float *norm = model->layers[model->config.text.layers / 2].feed_forward_norm;
        ((float *)(uintptr_t)norm)[1] += 0.25f;
    }
}

static uint64_t bytes_of(const g3_matrix *matrix) {
    return g3_matrix_bytes(matrix->type, matrix->rows, matrix->columns);
}

static uint64_t read_bytes(const g3_model *model) {
    uint64_t bytes = bytes_of(&model->output);
    for (uint32_t i = 0; i < model->config.text.layers; i++) {
        const g3_layer *layer = &model->layers[i];
        bytes += bytes_of(&layer->q) + bytes_of(&layer->k) + bytes_of(&layer->v) +
                 bytes_of(&layer->o) + bytes_of(&layer->gate) + bytes_of(&layer->up) +
                 bytes_of(&layer->down);
    }
    return bytes;
}

static g3_status load_all(loader *load) {
    g3_model *model = load->model;
    model->layers = calloc(model->config.text.layers, sizeof *model->layers);
    if (model->layers == NULL)
        return g3_fail(load->error, G3_HOST_MEMORY, "no host memory for the layers");
    g3_status status = g3_memory_scope_open(model->memory, &model->scope, load->error);
    if (status == G3_OK)
        status = load_text(load);
    if (status == G3_OK && model->config.vision.present)
        status = load_vision(load);
    return status;
}

g3_status g3_model_load(g3_memory *memory, const g3_checkpoint *checkpoint, g3_precision precision,
                        g3_fault fault, g3_progress_fn progress, void *user, g3_model **out_model,
                        g3_error *error) {
    g3_model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "no host memory for the model");
    model->memory = memory;
    model->config = *g3_checkpoint_config(checkpoint);
    model->precision = precision;
    model->embedding_scale = sqrtf((float)model->config.text.hidden);
    loader load = {.model = model,
                   .checkpoint = checkpoint,
                   .progress = progress,
                   .user = user,
                   .total = g3_checkpoint_tensor_bytes(checkpoint),
                   .error = error};
    g3_status status = load_all(&load);
    if (status != G3_OK) {
        g3_model_free(model);
        return status;
    }
    plant(model, fault);
    model->read_bytes_a_token = read_bytes(model);
    *out_model = model;
    return G3_OK;
}

void g3_model_free(g3_model *model) {
    if (model == NULL)
        return;
    g3_memory_scope_release(model->memory, model->scope);
    free(model->vision.layers);
    free(model->layers);
    free(model);
}
