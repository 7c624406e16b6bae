/* SPDX-License-Identifier: MIT */
#include "forward.h"

#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "session.h"

/* Positions whose logits are computed in one product: bounds their memory. */
#define LOGITS_BATCH 16u

typedef struct pass {
    g3_model *model;
    const g3_text_config *text;
    g3_cache *cache;
    const g3_chunk *chunk;
    g3_frame frame;
    size_t n;
    float *x;                 /* residual stream [n][hidden] */
    float *ropes[2];          /* tables of local and global layers */
    size_t *low[2], *high[2]; /* what every position sees in local and global layers */
    size_t longest;           /* most keys that one position sees */
    void *pending;
} pass;

void g3_visible(bool global, uint32_t window, size_t position, size_t image_end, size_t *out_low,
                size_t *out_high) {
    *out_low = global || position + 1 < window ? 0 : position + 1 - window;
    *out_high = image_end > position ? image_end : position + 1;
}

static const g3_picture *picture_at(const g3_chunk *chunk, size_t position) {
    for (size_t i = 0; i < chunk->picture_count; i++) {
        const g3_picture *picture = &chunk->pictures[i];
        if (position >= picture->begin && position - picture->begin < picture->tokens)
            return picture;
    }
    return NULL;
}

static g3_status find_visible(pass *p) {
    size_t *room = calloc(4 * p->n, sizeof *room);
    if (room == NULL)
        return g3_fail(p->frame.error, G3_HOST_MEMORY, "no host memory for %zu positions", p->n);
    for (size_t kind = 0; kind < 2; kind++) {
        p->low[kind] = room + kind * 2 * p->n;
        p->high[kind] = p->low[kind] + p->n;
    }
    for (size_t i = 0; i < p->n; i++) {
        const size_t position = p->chunk->first + i;
        const g3_picture *picture = picture_at(p->chunk, position);
        const size_t end = picture == NULL ? 0 : (size_t)picture->begin + picture->tokens;
        for (size_t kind = 0; kind < 2; kind++) {
            g3_visible(kind == 1, p->text->window, position, end, &p->low[kind][i],
                       &p->high[kind][i]);
            if (p->high[kind][i] - p->low[kind][i] > p->longest)
                p->longest = p->high[kind][i] - p->low[kind][i];
        }
    }
    return G3_OK;
}

/* Token embeddings, scaled; pictures bring theirs, unscaled. */
static void embed(pass *p) {
    const uint32_t hidden = p->text->hidden;
    for (size_t i = 0; i < p->n; i++) {
        const size_t position = p->chunk->first + i;
        const g3_picture *picture = picture_at(p->chunk, position);
        float *row = p->x + i * hidden;
        if (picture != NULL) {
            const float *source = g3_host(picture->embedding);
            memcpy(row, source + (position - picture->begin) * hidden, hidden * sizeof *row);
            continue;
        }
        g3_matrix_row(&p->model->embedding, (uint32_t)p->chunk->ids[position], row);
        g3_scale(row, hidden, p->model->embedding_scale);
    }
}

static void fill_ropes(pass *p) {
    const g3_text_config *text = p->text;
    const double local_factor =
        p->model->fault == G3_FAULT_LOCAL_SCALING ? text->rope_factor_global : 1.0;
    for (size_t kind = 0; kind < 2; kind++)
        p->ropes[kind] = g3_frame_floats(&p->frame, p->n * text->head_dim);
    if (p->frame.status != G3_OK)
        return;
    g3_rope_table(text->head_dim, text->rope_base_local, local_factor, p->chunk->first, p->n,
                  p->ropes[0]);
    g3_rope_table(text->head_dim, text->rope_base_global, text->rope_factor_global, p->chunk->first,
                  p->n, p->ropes[1]);
}

/* Queries of the chunk; keys and values go to the cache. */
static float *project(pass *p, uint32_t index) {
    const g3_layer *layer = &p->model->layers[index];
    const g3_text_config *text = p->text;
    const uint32_t kv_width = text->kv_heads * text->head_dim;
    const float *rope = p->ropes[text->global[index]];
    float *a = g3_frame_floats(&p->frame, p->n * text->hidden);
    float *q = g3_frame_floats(&p->frame, p->n * layer->q.rows);
    float *k = g3_frame_floats(&p->frame, p->n * kv_width);
    float *v = g3_frame_floats(&p->frame, p->n * kv_width);
    if (p->frame.status != G3_OK)
        return NULL;
    g3_rms_norm(p->x, text->hidden, p->n, text->hidden, layer->attention_norm, text->norm_eps, a,
                text->hidden);
    const g3_matrix *const matrices[] = {&layer->q, &layer->k, &layer->v};
    float *const results[] = {q, k, v};
    g3_frame_matmuls(&p->frame, matrices, results, 3, p->model->precision, a, p->n);
    g3_frame_free(&p->frame, a);
    if (p->frame.status != G3_OK)
        return NULL;
    g3_head_norm_rope(q, layer->q.rows, p->n, text->heads, text->head_dim, layer->q_norm,
                      text->norm_eps, rope);
    g3_head_norm_rope(k, kv_width, p->n, text->kv_heads, text->head_dim, layer->k_norm,
                      text->norm_eps, rope);
    g3_cache_store(p->cache, index, p->chunk->first, p->n, k, v, p->pending);
    g3_frame_free(&p->frame, v);
    g3_frame_free(&p->frame, k);
    return q;
}

/* x += post_norm(out_proj(attention(norm(x)))) */
static void attend(pass *p, uint32_t index) {
    const g3_layer *layer = &p->model->layers[index];
    const g3_text_config *text = p->text;
    const bool global = text->global[index];
    float *q = project(p, index);
    float *heads = g3_frame_floats(&p->frame, p->n * layer->q.rows);
    void *scratch =
        g3_frame_bytes(&p->frame, g3_attention_bytes(p->n, text->heads, text->head_dim, p->longest),
                       VRP_TAG_WORKSPACE);
    if (p->frame.status != G3_OK)
        return;
    const g3_kv_view view = g3_cache_view(p->cache, index, p->chunk->first, p->n, p->pending);
    g3_attention(q, p->n, text->heads, (float)text->attention_scale, &view, p->low[global],
                 p->high[global], heads, scratch);
    g3_frame_free(&p->frame, scratch);
    g3_frame_free(&p->frame, q);
    float *o = g3_frame_floats(&p->frame, p->n * text->hidden);
    g3_frame_matmul(&p->frame, &layer->o, p->model->precision, heads, p->n, o);
    if (p->frame.status == G3_OK)
        g3_rms_norm_add(o, p->n, text->hidden, layer->post_attention_norm, text->norm_eps, p->x);
    g3_frame_free(&p->frame, o);
    g3_frame_free(&p->frame, heads);
}

/* x += post_norm(down(gelu(gate(norm(x))) * up(norm(x)))) */
static void feed_forward(pass *p, uint32_t index) {
    const g3_layer *layer = &p->model->layers[index];
    const g3_text_config *text = p->text;
    const size_t wide = p->n * text->feed_forward;
    float *b = g3_frame_floats(&p->frame, p->n * text->hidden);
    float *gate = g3_frame_floats(&p->frame, wide);
    float *up = g3_frame_floats(&p->frame, wide);
    if (p->frame.status != G3_OK)
        return;
    g3_rms_norm(p->x, text->hidden, p->n, text->hidden, layer->feed_forward_norm, text->norm_eps, b,
                text->hidden);
    const g3_matrix *const matrices[] = {&layer->gate, &layer->up};
    float *const results[] = {gate, up};
    g3_frame_matmuls(&p->frame, matrices, results, 2, p->model->precision, b, p->n);
    if (p->frame.status != G3_OK)
        return;
    g3_gelu_mul(gate, up, wide);
    g3_frame_free(&p->frame, up);
    g3_frame_matmul(&p->frame, &layer->down, p->model->precision, gate, p->n, b);
    if (p->frame.status == G3_OK)
        g3_rms_norm_add(b, p->n, text->hidden, layer->post_feed_forward_norm, text->norm_eps, p->x);
    g3_frame_free(&p->frame, gate);
    g3_frame_free(&p->frame, b);
}

/* Norm and output matrix for the last positions. The first batch takes all the memory
 * that the others use again, so that a chunk that fails for it has called nobody. */
static bool give_logits(pass *p) {
    const g3_text_config *text = p->text;
    const size_t wanted = p->chunk->logits, batch = wanted < LOGITS_BATCH ? wanted : LOGITS_BATCH;
    const uint32_t vocab = p->model->output.rows;
    bool stopped = false;
    float *y = g3_frame_floats(&p->frame, batch * text->hidden);
    float *logits = g3_frame_floats(&p->frame, batch * vocab);
    for (size_t done = 0; done < wanted && p->frame.status == G3_OK && !stopped; done += batch) {
        const size_t count = wanted - done < batch ? wanted - done : batch;
        g3_rms_norm(p->x + (p->n - wanted + done) * text->hidden, text->hidden, count, text->hidden,
                    p->model->output_norm, text->norm_eps, y, text->hidden);
        g3_frame_matmul(&p->frame, &p->model->output, p->model->precision, y, count, logits);
        for (size_t i = 0; i < count && p->frame.status == G3_OK && !stopped; i++)
            stopped = p->chunk->fn(p->chunk->user, done + i, logits + i * vocab) != 0;
    }
    g3_frame_free(&p->frame, logits);
    g3_frame_free(&p->frame, y);
    return stopped;
}

static g3_status run(pass *p) {
    g3_status status = find_visible(p);
    if (status != G3_OK)
        return status;
    p->x = g3_frame_floats(&p->frame, p->n * p->text->hidden);
    p->pending = g3_frame_bytes(&p->frame, g3_cache_pending_bytes(p->cache, p->n), p->frame.tag);
    fill_ropes(p);
    if (p->frame.status != G3_OK)
        return p->frame.status;
    embed(p);
    for (uint32_t i = 0; i < p->text->layers && p->frame.status == G3_OK; i++) {
        attend(p, i);
        feed_forward(p, i);
    }
    const bool stopped = p->chunk->logits > 0 && give_logits(p);
    if (p->frame.status != G3_OK)
        return p->frame.status;
    g3_cache_commit(p->cache, p->chunk->first, p->n, p->pending);
    return stopped ? g3_fail(p->frame.error, G3_STOPPED, "stopped") : G3_OK;
}

g3_status g3_forward(g3_model *model, g3_cache *cache, const g3_chunk *chunk, g3_error *error) {
    g3_status status = g3_cache_ensure(cache, (uint32_t)(chunk->first + chunk->n), error);
    if (status != G3_OK)
        return status;
    pass p = {.model = model,
              .text = &model->config.text,
              .cache = cache,
              .chunk = chunk,
              .frame = {model->memory, cache->scope, VRP_TAG_ACTIVATION, G3_OK, error, 0, {0}},
              .n = chunk->n};
    status = run(&p);
    g3_frame_end(&p.frame);
    free(p.low[0]);
    return status;
}
