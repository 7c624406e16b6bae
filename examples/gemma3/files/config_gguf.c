/* SPDX-License-Identifier: MIT */
/* The configuration in GGUF metadata. Rules for what files leave out follow
 * llama.cpp, which most of them were made for. */

#include "config_read.h"
#include "gguf_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LAYERS_OF_27B 62u
#define CONTEXT_OF_SCALED_MODELS 131072u

/* Typed reading; the first failure stays and later reads do nothing. */
typedef struct reader {
    const g3_gguf *gguf;
    g3_status status;
    g3_error *error;
} reader;

static void fail(reader *r, g3_status status, const char *key, const char *what) {
    if (r->status == G3_OK)
        r->status = g3_gguf_key_fail(r->gguf, key, status, r->error, what);
}

/* false: absent, the value is left alone. */
static bool get_u32(reader *r, const char *key, uint32_t *out_value) {
    bool found = false;
    if (r->status == G3_OK)
        r->status = g3_gguf_u32(r->gguf, key, out_value, &found, r->error);
    return found;
}

static uint32_t need_u32(reader *r, const char *key) {
    uint32_t value = 0;
    if (!get_u32(r, key, &value))
        fail(r, G3_INVALID, key, "is missing");
    return value;
}

static bool get_f64(reader *r, const char *key, double *out_value) {
    bool found = false;
    if (r->status == G3_OK)
        r->status = g3_gguf_f64(r->gguf, key, out_value, &found, r->error);
    return found;
}

static bool get_bool(reader *r, const char *key, bool *out_value) {
    bool found = false;
    if (r->status == G3_OK)
        r->status = g3_gguf_bool(r->gguf, key, out_value, &found, r->error);
    return found;
}

static bool get_text(reader *r, const char *key, g3_text *out_value) {
    bool found = false;
    if (r->status == G3_OK)
        r->status = g3_gguf_string(r->gguf, key, out_value, &found, r->error);
    return found;
}

static bool text_is(g3_text text, const char *word) {
    return text.count == strlen(word) && memcmp(text.bytes, word, text.count) == 0;
}

static void need_architecture(reader *r, const char *wanted) {
    g3_text text = {0};
    if (!get_text(r, "general.architecture", &text))
        fail(r, G3_INVALID, "general.architecture", "is missing");
    else if (!text_is(text, wanted)) {
        char found[64];
        char what[160];
        (void)g3_printable(text.bytes, text.count, found, sizeof found);
        (void)snprintf(what, sizeof what, "'%s'; %s is needed here", found,
                       wanted[0] == 'c' ? "'clip' (an mmproj file)" : "'gemma3' (a text model)");
        fail(r, G3_UNSUPPORTED, "general.architecture", what);
    }
}

/* ---- Text ---------------------------------------------------------------------- */

static void read_factor(reader *r, g3_text_config *text) {
    g3_text type = {0};
    const bool typed = get_text(r, "gemma3.rope.scaling.type", &type);
    const bool linear = typed && text_is(type, "linear");
    text->rope_factor_global = 1;
    if (typed && text_is(type, "none"))
        return;
    if (typed && !linear)
        fail(r, G3_UNSUPPORTED, "gemma3.rope.scaling.type", "only 'linear' and 'none' are read");
    if (get_f64(r, "gemma3.rope.scaling.factor", &text->rope_factor_global) ||
        get_f64(r, "gemma3.rope.scale_linear", &text->rope_factor_global))
        return;
    /* Files for large contexts that leave the scaling out were made from models
     * that have it. */
    if (text->context >= CONTEXT_OF_SCALED_MODELS)
        text->rope_factor_global = 8;
    else if (linear)
        fail(r, G3_INVALID, "gemma3.rope.scaling.factor", "is missing");
}

/* A period, or one bool per layer that is true for local ones. */
static void read_pattern(reader *r, g3_text_config *text) {
    static const char key[] = "gemma3.attention.sliding_window_pattern";
    const g3_gguf_pair *pair = g3_gguf_pair_find(r->gguf, key);
    if (pair != NULL && pair->type == G3_GGUF_ARRAY) {
        const g3_array *array = &pair->array;
        if (array->element_type != G3_GGUF_BOOL || array->count != text->layers)
            fail(r, G3_INVALID, key, "an array must have one bool per layer");
        for (uint32_t i = 0; r->status == G3_OK && i < text->layers && i < G3_MAX_LAYERS; i++)
            text->global[i] = array->data[i] == 0;
        return;
    }
    uint32_t period = 6;
    if (get_u32(r, key, &period) && period == 0)
        fail(r, G3_INVALID, key, "is 0");
    if (r->status == G3_OK)
        g3_config_pattern(text, period);
}

static void refuse_softcap(reader *r, const char *key) {
    double cap = 0;
    if (get_f64(r, key, &cap) && !(cap == 0))
        fail(r, G3_UNSUPPORTED, key, "soft-capping is not part of Gemma 3");
}

static void read_attention(reader *r, g3_text_config *text) {
    text->heads = need_u32(r, "gemma3.attention.head_count");
    text->kv_heads = text->heads;
    (void)get_u32(r, "gemma3.attention.head_count_kv", &text->kv_heads);
    text->head_dim = text->heads == 0 ? 0 : text->hidden / text->heads;
    (void)get_u32(r, "gemma3.attention.key_length", &text->head_dim);
    uint32_t same = text->head_dim;
    if (get_u32(r, "gemma3.attention.value_length", &same) && same != text->head_dim)
        fail(r, G3_UNSUPPORTED, "gemma3.attention.value_length", "differs from key_length");
    if (get_u32(r, "gemma3.rope.dimension_count", &same) && same != text->head_dim)
        fail(r, G3_UNSUPPORTED, "gemma3.rope.dimension_count", "differs from key_length");
    text->window = need_u32(r, "gemma3.attention.sliding_window");
    bool causal = true;
    if (get_bool(r, "gemma3.attention.causal", &causal) && !causal)
        fail(r, G3_UNSUPPORTED, "gemma3.attention.causal", "attention that is not causal");
    refuse_softcap(r, "gemma3.attn_logit_softcapping");
    refuse_softcap(r, "gemma3.final_logit_softcapping");
    /* query_pre_attn_scalar is not in the file. Only the 27B model has one that is
     * not the head size, and its number of layers tells it. */
    const double scalar = text->layers == LAYERS_OF_27B && text->heads != 0
                              ? (double)text->hidden / text->heads
                              : (double)text->head_dim;
    text->attention_scale = 1 / sqrt(scalar);
}

/* The rows of the embedding. */
static void read_vocab(reader *r, g3_text_config *text) {
    const g3_tensor *embedding = g3_gguf_find(r->gguf, "token_embd.weight");
    if (embedding == NULL && r->status == G3_OK)
        r->status = g3_fail(r->error, G3_INVALID, "%.200s: tensor 'token_embd.weight' is missing",
                            r->gguf->name);
    if (embedding != NULL)
        text->vocab = embedding->dims[1] <= UINT32_MAX ? (uint32_t)embedding->dims[1] : 0;
}

/* rows: of the embedding; without any the bounds fail later. */
static int32_t get_id(reader *r, const char *key, uint32_t rows) {
    uint32_t id = 0;
    if (!get_u32(r, key, &id))
        return G3_NO_ID;
    if (id > INT32_MAX || (rows > 0 && id >= rows)) {
        char what[96];
        (void)snprintf(what, sizeof what,
                       "%" PRIu32 " is outside the vocabulary of %" PRIu32 " rows", id, rows);
        fail(r, G3_INVALID, key, what);
        return G3_NO_ID;
    }
    return (int32_t)id;
}

static void read_tokens(reader *r, uint32_t rows, g3_token_config *tokens) {
    *tokens = (g3_token_config){
        .bos = get_id(r, "tokenizer.ggml.bos_token_id", rows),
        .pad = get_id(r, "tokenizer.ggml.padding_token_id", rows),
        .unknown = get_id(r, "tokenizer.ggml.unknown_token_id", rows),
        .image_begin = G3_NO_ID,
        .image_end = G3_NO_ID,
        .image = G3_NO_ID,
    };
    const int32_t ends[] = {
        get_id(r, "tokenizer.ggml.eos_token_id", rows),
        get_id(r, "tokenizer.ggml.eot_token_id", rows),
    };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (ends[i] != G3_NO_ID)
            (void)g3_config_add_stop(tokens, ends[i]);
}

/* The bounds, with the key and offset of what is outside of them. */
static g3_status check(const g3_gguf *gguf, const g3_config *config, g3_error *error) {
    g3_config_fault fault = {0};
    g3_error found = {{0}};
    g3_status status = g3_config_check(config, &fault, &found);
    return status == G3_OK ? G3_OK : g3_gguf_key_fail(gguf, fault.gguf, status, error, found.text);
}

g3_status g3_config_from_gguf(const g3_gguf *gguf, g3_config *out_config, g3_error *error) {
    reader r = {.gguf = gguf, .status = G3_OK, .error = error};
    g3_text_config *text = &out_config->text;
    *out_config = (g3_config){0};
    need_architecture(&r, "gemma3");
    text->layers = need_u32(&r, "gemma3.block_count");
    text->hidden = need_u32(&r, "gemma3.embedding_length");
    text->feed_forward = need_u32(&r, "gemma3.feed_forward_length");
    text->context = need_u32(&r, "gemma3.context_length");
    read_attention(&r, text);
    read_pattern(&r, text);
    text->rope_base_global = 1e6;
    text->rope_base_local = 1e4;
    (void)get_f64(&r, "gemma3.rope.freq_base", &text->rope_base_global);
    (void)get_f64(&r, "gemma3.rope.freq_base_swa", &text->rope_base_local);
    read_factor(&r, text);
    double eps = 1e-6;
    (void)get_f64(&r, "gemma3.attention.layer_norm_rms_epsilon", &eps);
    text->norm_eps = (float)eps;
    read_vocab(&r, text);
    read_tokens(&r, text->vocab, &out_config->tokens);
    g3_text name = {0};
    if (get_text(&r, "general.name", &name))
        g3_config_name(out_config, name.bytes, name.count);
    if (r.status != G3_OK)
        return r.status;
    return check(gguf, out_config, error);
}

/* ---- Vision -------------------------------------------------------------------- */

static void read_channels(reader *r, const char *key, float preset, float out_values[3]) {
    g3_array array = {0};
    bool found = false;
    if (r->status == G3_OK)
        r->status = g3_gguf_array(r->gguf, key, &array, &found, r->error);
    if (found && (array.count != 3 ||
                  (array.element_type != G3_GGUF_F32 && array.element_type != G3_GGUF_F64))) {
        fail(r, G3_INVALID, key, "3 floats are needed");
        found = false;
    }
    for (uint64_t i = 0; i < 3; i++)
        out_values[i] = found ? (float)g3_array_number(&array, i) : preset;
}

static void need_projector(reader *r) {
    g3_text type = {0};
    bool has_vision = false;
    bool flag = false;
    if (!get_bool(r, "clip.has_vision_encoder", &has_vision) || !has_vision)
        fail(r, G3_UNSUPPORTED, "clip.has_vision_encoder", "a vision encoder is needed");
    if (!get_text(r, "clip.projector_type", &type) &&
        !get_text(r, "clip.vision.projector_type", &type))
        fail(r, G3_INVALID, "clip.projector_type", "is missing");
    else if (!text_is(type, "gemma3"))
        fail(r, G3_UNSUPPORTED, "clip.projector_type", "only 'gemma3' is read");
    if (get_bool(r, "clip.use_gelu", &flag) && !flag)
        fail(r, G3_UNSUPPORTED, "clip.use_gelu", "an activation other than tanh-GELU");
    if (get_bool(r, "clip.use_silu", &flag) && flag)
        fail(r, G3_UNSUPPORTED, "clip.use_silu", "an activation other than tanh-GELU");
}

g3_status g3_config_from_mmproj(const g3_gguf *gguf, g3_config *config, g3_error *error) {
    reader r = {.gguf = gguf, .status = G3_OK, .error = error};
    g3_vision_config *vision = &config->vision;
    *vision = (g3_vision_config){.present = true};
    need_architecture(&r, "clip");
    need_projector(&r);
    vision->layers = need_u32(&r, "clip.vision.block_count");
    vision->hidden = need_u32(&r, "clip.vision.embedding_length");
    vision->heads = need_u32(&r, "clip.vision.attention.head_count");
    vision->feed_forward = need_u32(&r, "clip.vision.feed_forward_length");
    vision->image_size = need_u32(&r, "clip.vision.image_size");
    vision->patch_size = need_u32(&r, "clip.vision.patch_size");
    double eps = 1e-6;
    (void)get_f64(&r, "clip.vision.attention.layer_norm_epsilon", &eps);
    vision->norm_eps = (float)eps;
    read_channels(&r, "clip.vision.image_mean", 0.5f, vision->mean);
    read_channels(&r, "clip.vision.image_std", 0.5f, vision->std);
    uint32_t width = config->text.hidden;
    if (get_u32(&r, "clip.vision.projection_dim", &width) && width != config->text.hidden)
        fail(&r, G3_INVALID, "clip.vision.projection_dim",
             "differs from the text model's embedding_length");
    uint32_t pool = 4;
    if (get_u32(&r, "clip.vision.projector.scale_factor", &pool) && pool == 0)
        fail(&r, G3_INVALID, "clip.vision.projector.scale_factor", "is 0");
    if (r.status != G3_OK)
        return r.status;
    const uint32_t grid = vision->patch_size == 0 ? 0 : vision->image_size / vision->patch_size;
    const uint32_t side = pool == 0 ? 0 : grid / pool;
    if (side * pool != grid || side > UINT16_MAX)
        fail(&r, G3_INVALID, "clip.vision.projector.scale_factor",
             "does not divide the grid of patches");
    if (r.status != G3_OK)
        return r.status;
    vision->tokens = side * side;
    return check(gguf, config, error);
}
