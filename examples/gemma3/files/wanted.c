/* SPDX-License-Identifier: MIT */
#include "wanted.h"

#include <inttypes.h>
#include <stdio.h>

/* Sizes that shapes are made of. */
typedef enum size {
    ONE,
    HIDDEN,
    QUERY, /* heads * head size */
    KEY,   /* key/value heads * head size */
    HEAD,
    FEED_FORWARD,
    VOCAB,
    V_HIDDEN,
    V_FEED_FORWARD,
    V_PATCH,
    V_CHANNELS,
    V_PATCHES
} size;

typedef struct row {
    const char *gguf;
    const char *hf;
    size dims[G3_MAX_DIMS]; /* fastest first */
    bool dense;
} row;

static const row text_rows[] = {
    {"token_embd.weight", "embed_tokens.weight", {HIDDEN, VOCAB}, false},
    {"output_norm.weight", "norm.weight", {HIDDEN}, true},
};

static const row output_row = {"output.weight", "lm_head.weight", {HIDDEN, VOCAB}, false};

/* Behind "blk.N." and "layers.N.". */
static const row layer_rows[] = {
    {"attn_norm.weight", "input_layernorm.weight", {HIDDEN}, true},
    {"attn_q.weight", "self_attn.q_proj.weight", {HIDDEN, QUERY}, false},
    {"attn_k.weight", "self_attn.k_proj.weight", {HIDDEN, KEY}, false},
    {"attn_v.weight", "self_attn.v_proj.weight", {HIDDEN, KEY}, false},
    {"attn_output.weight", "self_attn.o_proj.weight", {QUERY, HIDDEN}, false},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", {HEAD}, true},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", {HEAD}, true},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", {HIDDEN}, true},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight", {HIDDEN}, true},
    {"ffn_gate.weight", "mlp.gate_proj.weight", {HIDDEN, FEED_FORWARD}, false},
    {"ffn_up.weight", "mlp.up_proj.weight", {HIDDEN, FEED_FORWARD}, false},
    {"ffn_down.weight", "mlp.down_proj.weight", {FEED_FORWARD, HIDDEN}, false},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", {HIDDEN}, true},
};

/* Behind "v." and nothing. The names of a tower differ between the formats. */
static const row vision_rows[] = {
    {"v.patch_embd.weight",
     "embeddings.patch_embedding.weight",
     {V_PATCH, V_PATCH, V_CHANNELS, V_HIDDEN},
     true},
    {"v.patch_embd.bias", "embeddings.patch_embedding.bias", {V_HIDDEN}, true},
    {"v.position_embd.weight", "embeddings.position_embedding.weight", {V_HIDDEN, V_PATCHES}, true},
    {"v.post_ln.weight", "post_layernorm.weight", {V_HIDDEN}, true},
    {"v.post_ln.bias", "post_layernorm.bias", {V_HIDDEN}, true},
};

/* Behind "v.blk.N." and "encoder.layers.N.". */
static const row vision_layer_rows[] = {
    {"ln1.weight", "layer_norm1.weight", {V_HIDDEN}, true},
    {"ln1.bias", "layer_norm1.bias", {V_HIDDEN}, true},
    {"attn_q.weight", "self_attn.q_proj.weight", {V_HIDDEN, V_HIDDEN}, false},
    {"attn_q.bias", "self_attn.q_proj.bias", {V_HIDDEN}, true},
    {"attn_k.weight", "self_attn.k_proj.weight", {V_HIDDEN, V_HIDDEN}, false},
    {"attn_k.bias", "self_attn.k_proj.bias", {V_HIDDEN}, true},
    {"attn_v.weight", "self_attn.v_proj.weight", {V_HIDDEN, V_HIDDEN}, false},
    {"attn_v.bias", "self_attn.v_proj.bias", {V_HIDDEN}, true},
    {"attn_out.weight", "self_attn.out_proj.weight", {V_HIDDEN, V_HIDDEN}, false},
    {"attn_out.bias", "self_attn.out_proj.bias", {V_HIDDEN}, true},
    {"ln2.weight", "layer_norm2.weight", {V_HIDDEN}, true},
    {"ln2.bias", "layer_norm2.bias", {V_HIDDEN}, true},
    {"ffn_up.weight", "mlp.fc1.weight", {V_HIDDEN, V_FEED_FORWARD}, false},
    {"ffn_up.bias", "mlp.fc1.bias", {V_FEED_FORWARD}, true},
    {"ffn_down.weight", "mlp.fc2.weight", {V_FEED_FORWARD, V_HIDDEN}, false},
    {"ffn_down.bias", "mlp.fc2.bias", {V_HIDDEN}, true},
};

static const row projector_rows[] = {
    {"mm.soft_emb_norm.weight", "mm_soft_emb_norm.weight", {V_HIDDEN}, true},
    {"mm.input_projection.weight", "mm_input_projection_weight", {HIDDEN, V_HIDDEN}, false},
};

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))

static uint64_t value_of(size which, const g3_config *config) {
    const g3_text_config *text = &config->text;
    const g3_vision_config *vision = &config->vision;
    switch (which) {
    case HIDDEN:
        return text->hidden;
    case QUERY:
        return (uint64_t)text->heads * text->head_dim;
    case KEY:
        return (uint64_t)text->kv_heads * text->head_dim;
    case HEAD:
        return text->head_dim;
    case FEED_FORWARD:
        return text->feed_forward;
    case VOCAB:
        return text->vocab;
    case V_HIDDEN:
        return vision->hidden;
    case V_FEED_FORWARD:
        return vision->feed_forward;
    case V_PATCH:
        return vision->patch_size;
    case V_CHANNELS:
        return 3;
    case V_PATCHES: {
        const uint64_t side = vision->image_size / vision->patch_size;
        return side * side;
    }
    case ONE:
    default:
        return 1;
    }
}

static void fill(const row *from, g3_part part, const g3_config *config, g3_wanted *out) {
    out->part = part;
    out->dense = from->dense;
    for (size_t i = 0; i < G3_MAX_DIMS; i++)
        out->dims[i] = value_of(from->dims[i], config);
}

static void fill_plain(const row *from, g3_part part, const g3_config *config, g3_wanted *out) {
    fill(from, part, config, out);
    (void)snprintf(out->gguf, sizeof out->gguf, "%s", from->gguf);
    (void)snprintf(out->hf, sizeof out->hf, "%s", from->hf);
}

size_t g3_wanted_count(const g3_config *config, bool output) {
    size_t count = ROWS(text_rows) + (output ? 1 : 0) + config->text.layers * ROWS(layer_rows);
    if (config->vision.present)
        count += ROWS(vision_rows) + config->vision.layers * ROWS(vision_layer_rows) +
                 ROWS(projector_rows);
    return count;
}

void g3_wanted_get(const g3_config *config, bool output, size_t index, g3_wanted *out_wanted) {
    const size_t layers = config->text.layers * ROWS(layer_rows);
    const size_t vision_layers = config->vision.layers * ROWS(vision_layer_rows);
    size_t i = index;
    if (i < ROWS(text_rows)) {
        fill_plain(&text_rows[i], G3_PART_TEXT, config, out_wanted);
        return;
    }
    i -= ROWS(text_rows);
    if (output && i-- == 0) {
        fill_plain(&output_row, G3_PART_OUTPUT, config, out_wanted);
        return;
    }
    if (i < layers) {
        const row *from = &layer_rows[i % ROWS(layer_rows)];
        const size_t layer = i / ROWS(layer_rows);
        fill(from, G3_PART_TEXT, config, out_wanted);
        (void)snprintf(out_wanted->gguf, G3_WANTED_NAME, "blk.%zu.%s", layer, from->gguf);
        (void)snprintf(out_wanted->hf, G3_WANTED_NAME, "layers.%zu.%s", layer, from->hf);
        return;
    }
    i -= layers;
    if (i < ROWS(vision_rows)) {
        fill_plain(&vision_rows[i], G3_PART_VISION, config, out_wanted);
        return;
    }
    i -= ROWS(vision_rows);
    if (i < vision_layers) {
        const row *from = &vision_layer_rows[i % ROWS(vision_layer_rows)];
        const size_t layer = i / ROWS(vision_layer_rows);
        fill(from, G3_PART_VISION, config, out_wanted);
        (void)snprintf(out_wanted->gguf, G3_WANTED_NAME, "v.blk.%zu.%s", layer, from->gguf);
        (void)snprintf(out_wanted->hf, G3_WANTED_NAME, "encoder.layers.%zu.%s", layer, from->hf);
        return;
    }
    fill_plain(&projector_rows[(i - vision_layers) % ROWS(projector_rows)], G3_PART_PROJECTOR,
               config, out_wanted);
}
