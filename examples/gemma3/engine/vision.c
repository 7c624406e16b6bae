/* SPDX-License-Identifier: MIT */
#include "vision.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/ops.h"
#include "frame.h"

typedef struct tower {
    g3_model *model;
    g3_frame frame;
    size_t patches;
    uint32_t width;     /* hidden size */
    size_t *low, *high; /* every patch sees every patch */
} tower;

static void product(tower *t, const g3_matrix *matrix, const float *bias, const float *x,
                    float *y) {
    g3_frame_matmul(&t->frame, matrix, t->model->precision, x, t->patches, y);
    if (t->frame.status == G3_OK)
        g3_add_bias(y, t->patches, matrix->rows, bias);
}

/* x += out_proj(attention(norm1(x))) */
static void attend(tower *t, const g3_vision_layer *layer, float *x) {
    const g3_vision_config *config = &t->model->config.vision;
    const size_t count = t->patches * t->width;
    float *a = g3_frame_floats(&t->frame, count);
    float *q = g3_frame_floats(&t->frame, count);
    float *k = g3_frame_floats(&t->frame, count);
    float *v = g3_frame_floats(&t->frame, count);
    const uint32_t head_dim = t->width / config->heads;
    if (t->frame.status != G3_OK)
        return;
    g3_layer_norm(x, t->patches, t->width, layer->norm1, layer->norm1_bias, config->norm_eps, a);
    const g3_matrix *const matrices[] = {&layer->q, &layer->k, &layer->v};
    float *const results[] = {q, k, v};
    g3_frame_matmuls(&t->frame, matrices, results, 3, t->model->precision, a, t->patches);
    void *scratch = g3_frame_bytes(
        &t->frame, g3_attention_bytes(t->patches, config->heads, head_dim, t->patches),
        VRP_TAG_WORKSPACE);
    if (t->frame.status != G3_OK)
        return;
    g3_add_bias(q, t->patches, t->width, layer->q_bias);
    g3_add_bias(k, t->patches, t->width, layer->k_bias);
    g3_add_bias(v, t->patches, t->width, layer->v_bias);
    const g3_kv_view view = {.type = G3_KV_F32,
                             .kv_heads = config->heads,
                             .head_dim = head_dim,
                             .old_slots = 1,
                             .new_keys = k,
                             .new_values = v,
                             .new_stride = t->width * sizeof(float)};
    g3_attention(q, t->patches, config->heads, 1.0f / sqrtf((float)head_dim), &view, t->low,
                 t->high, a, scratch);
    g3_frame_free(&t->frame, scratch);
    g3_frame_free(&t->frame, v);
    g3_frame_free(&t->frame, k);
    product(t, &layer->o, layer->o_bias, a, q);
    if (t->frame.status == G3_OK)
        g3_add(x, q, count);
    g3_frame_free(&t->frame, q);
    g3_frame_free(&t->frame, a);
}

/* x += down(gelu(up(norm2(x)))) */
static void feed_forward(tower *t, const g3_vision_layer *layer, float *x) {
    const g3_vision_config *config = &t->model->config.vision;
    float *a = g3_frame_floats(&t->frame, t->patches * t->width);
    float *wide = g3_frame_floats(&t->frame, t->patches * config->feed_forward);
    if (t->frame.status != G3_OK)
        return;
    g3_layer_norm(x, t->patches, t->width, layer->norm2, layer->norm2_bias, config->norm_eps, a);
    product(t, &layer->up, layer->up_bias, a, wide);
    if (t->frame.status != G3_OK)
        return;
    g3_gelu(wide, t->patches * config->feed_forward);
    product(t, &layer->down, layer->down_bias, wide, a);
    if (t->frame.status == G3_OK)
        g3_add(x, a, t->patches * t->width);
    g3_frame_free(&t->frame, wide);
    g3_frame_free(&t->frame, a);
}

/* Pixels to patches with their positions: [patches][width]. */
static float *embed(tower *t, const float *pixels) {
    const g3_vision_config *config = &t->model->config.vision;
    const size_t columns = (size_t)3 * config->patch_size * config->patch_size;
    float *x = g3_frame_floats(&t->frame, t->patches * t->width);
    float *rows = g3_frame_floats(&t->frame, t->patches * columns);
    if (t->frame.status != G3_OK)
        return NULL;
    g3_patches(pixels, config->image_size, config->patch_size, rows);
    product(t, &t->model->vision.patch, t->model->vision.patch_bias, rows, x);
    if (t->frame.status == G3_OK)
        g3_add(x, t->model->vision.position, t->patches * t->width);
    g3_frame_free(&t->frame, rows);
    return t->frame.status == G3_OK ? x : NULL;
}

/* Last norm, pooling to the tokens, norm and projection. */
static void project(tower *t, float *x, float *out) {
    const g3_vision_config *config = &t->model->config.vision;
    const g3_vision *vision = &t->model->vision;
    const uint32_t side = config->image_size / config->patch_size;
    const uint32_t token_side = (uint32_t)lround(sqrt((double)config->tokens));
    float *pooled = g3_frame_floats(&t->frame, (size_t)config->tokens * t->width);
    if (t->frame.status != G3_OK)
        return;
    g3_layer_norm(x, t->patches, t->width, vision->post_norm, vision->post_norm_bias,
                  config->norm_eps, x);
    g3_pool_grid(x, side, side / token_side, t->width, pooled);
    g3_rms_norm(pooled, t->width, config->tokens, t->width, vision->soft_norm, config->norm_eps,
                pooled, t->width);
    g3_frame_matmul(&t->frame, &vision->projection, t->model->precision, pooled, config->tokens,
                    out);
}

static g3_status run(tower *t, const float *pixels, int (*stop)(void *user), void *user,
                     float *out) {
    const g3_vision_config *config = &t->model->config.vision;
    float *x = embed(t, pixels);
    for (uint32_t i = 0; i < config->layers && t->frame.status == G3_OK; i++) {
        if (stop != NULL && stop(user) != 0)
            return g3_fail(t->frame.error, G3_STOPPED, "stopped");
        attend(t, &t->model->vision.layers[i], x);
        if (t->frame.status == G3_OK)
            feed_forward(t, &t->model->vision.layers[i], x);
    }
    if (t->frame.status == G3_OK)
        project(t, x, out);
    return t->frame.status;
}

g3_status g3_vision_encode(g3_model *model, vrp_scope scope, const float *pixels,
                           int (*stop)(void *user), void *user, vrp_devptr *out_embedding,
                           g3_error *error) {
    const g3_vision_config *config = &model->config.vision;
    if (!config->present)
        return g3_fail(error, G3_INVALID, "%.60s takes no pictures", model->config.name);
    const size_t side = config->image_size / config->patch_size;
    tower t = {.model = model,
               .frame = {model->memory, scope, VRP_TAG_VISION, G3_OK, error, 0, {0}},
               .patches = side * side,
               .width = config->hidden};
    t.low = calloc(t.patches, 2 * sizeof *t.low);
    if (t.low == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "no host memory for %zu patches", t.patches);
    t.high = t.low + t.patches;
    for (size_t i = 0; i < t.patches; i++)
        t.high[i] = t.patches;
    vrp_devptr embedding = 0;
    g3_status status = g3_memory_alloc(
        model->memory, (size_t)config->tokens * model->config.text.hidden * sizeof(float),
        VRP_TAG_VISION, scope, &embedding, error);
    if (status == G3_OK)
        status = run(&t, pixels, stop, user, g3_host(embedding));
    g3_frame_end(&t.frame);
    free(t.low);
    if (status != G3_OK) {
        g3_memory_free(model->memory, embedding);
        return g3_fail_in(error, status, "encoding a picture");
    }
    *out_embedding = embedding;
    return G3_OK;
}
