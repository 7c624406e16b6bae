/* SPDX-License-Identifier: MIT */
/* The configuration of a Hugging Face folder. Both spellings of RoPE and of the
 * layer pattern are read; defaults are those of Gemma3TextConfig, Gemma3Config
 * and SiglipVisionConfig, which published files rely on. */

#include "config_read.h"
#include "json.h"
#include "map.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- RoPE ---------------------------------------------------------------------- */

/* The factor of one set of RoPE parameters; 1 where there is no scaling. */
static double rope_factor(const g3_fields *rope) {
    if (rope->object == NULL)
        return 1;
    const char *type = g3_fields_string(rope, "rope_type");
    if (type == NULL)
        type = g3_fields_string(rope, "type");
    if (type == NULL && g3_fields_get(rope, "factor") == NULL)
        return 1;
    if (type == NULL) {
        g3_fields_fail(rope, G3_INVALID, "rope_type", "is missing, but there is a factor");
        return 1;
    }
    if (strcmp(type, "default") == 0)
        return 1;
    if (strcmp(type, "linear") != 0) {
        g3_fields_fail(rope, G3_UNSUPPORTED, "rope_type", "only 'default' and 'linear' are read");
        return 1;
    }
    if (g3_fields_get(rope, "factor") == NULL)
        g3_fields_fail(rope, G3_INVALID, "factor", "is missing");
    return g3_fields_number(rope, "factor", 1);
}

static void read_rope(const g3_fields *fields, g3_text_config *text) {
    const g3_fields both = g3_fields_object(fields, "rope_parameters");
    const g3_fields global = g3_fields_object(&both, "full_attention");
    const g3_fields local = g3_fields_object(&both, "sliding_attention");
    const g3_fields scaling = g3_fields_object(fields, "rope_scaling");
    if (both.object != NULL && json_object_size(both.object) != 0 && global.object == NULL &&
        local.object == NULL)
        g3_fields_fail(fields, G3_INVALID, "rope_parameters",
                       "full_attention and sliding_attention are needed");
    text->rope_base_global =
        g3_fields_number(&global, "rope_theta", g3_fields_number(fields, "rope_theta", 1e6));
    text->rope_base_local = g3_fields_number(&local, "rope_theta",
                                             g3_fields_number(fields, "rope_local_base_freq", 1e4));
    text->rope_factor_global = rope_factor(scaling.object != NULL ? &scaling : &global);
    if (rope_factor(&local) != 1)
        g3_fields_fail(&local, G3_UNSUPPORTED, "factor", "local layers are never scaled");
}

/* ---- Layers -------------------------------------------------------------------- */

static void read_layer_types(const g3_fields *fields, const json_t *types, g3_text_config *text) {
    if (!json_is_array(types) || json_array_size(types) != text->layers) {
        g3_fields_fail(fields, G3_INVALID, "layer_types", "one type per layer is needed");
        return;
    }
    for (uint32_t i = 0; i < text->layers && i < G3_MAX_LAYERS; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        text->global[i] = type != NULL && strcmp(type, "full_attention") == 0;
        if (type == NULL || (!text->global[i] && strcmp(type, "sliding_attention") != 0))
            g3_fields_fail(fields, G3_UNSUPPORTED, "layer_types",
                           "only full_attention and sliding_attention are read");
    }
}

static void read_layers(const g3_fields *fields, g3_text_config *text) {
    const json_t *types = g3_fields_get(fields, "layer_types");
    if (types != NULL) {
        read_layer_types(fields, types, text);
        return;
    }
    const uint32_t period = g3_fields_u32(fields, "sliding_window_pattern",
                                          g3_fields_u32(fields, "_sliding_window_pattern", 6));
    if (period == 0)
        g3_fields_fail(fields, G3_INVALID, "sliding_window_pattern", "is 0");
    else
        g3_config_pattern(text, period);
}

/* ---- Text ---------------------------------------------------------------------- */

static void refuse(const g3_fields *fields, const char *key, const char *what) {
    const json_t *value = g3_fields_get(fields, key);
    if (value != NULL && !json_is_false(value))
        g3_fields_fail(fields, G3_UNSUPPORTED, key, what);
}

static void need_gelu(const g3_fields *fields, const char *key) {
    const char *name = g3_fields_string(fields, key);
    if (name != NULL && strcmp(name, "gelu_pytorch_tanh") != 0)
        g3_fields_fail(fields, G3_UNSUPPORTED, key, "only 'gelu_pytorch_tanh' is read");
}

static void refuse_variants(const g3_fields *fields) {
    refuse(fields, "attn_logit_softcapping", "soft-capping is not part of Gemma 3");
    refuse(fields, "final_logit_softcapping", "soft-capping is not part of Gemma 3");
    refuse(fields, "use_bidirectional_attention", "attention that is not causal is not supported");
    refuse(fields, "attention_bias", "biases in attention are not supported");
    refuse(fields, "quantization_config", "quantised folders are not supported; use GGUF");
    need_gelu(fields, "hidden_activation");
    const char *type = g3_fields_string(fields, "model_type");
    if (type != NULL && strcmp(type, "gemma3_text") != 0)
        g3_fields_fail(fields, G3_UNSUPPORTED, "model_type", "only 'gemma3_text' is read");
}

static void read_text(const g3_fields *fields, g3_text_config *text) {
    text->layers = g3_fields_u32(fields, "num_hidden_layers", 26);
    text->hidden = g3_fields_u32(fields, "hidden_size", 2304);
    text->heads = g3_fields_u32(fields, "num_attention_heads", 8);
    text->kv_heads = g3_fields_u32(fields, "num_key_value_heads", 4);
    text->head_dim = g3_fields_u32(fields, "head_dim", 256);
    text->feed_forward = g3_fields_u32(fields, "intermediate_size", 9216);
    text->vocab = g3_fields_u32(fields, "vocab_size", 262208);
    text->context = g3_fields_u32(fields, "max_position_embeddings", 131072);
    text->window = g3_fields_u32(fields, "sliding_window", 4096);
    text->norm_eps = (float)g3_fields_number(fields, "rms_norm_eps", 1e-6);
    const double scalar = g3_fields_number(fields, "query_pre_attn_scalar", 256);
    if (!(scalar > 0))
        g3_fields_fail(fields, G3_INVALID, "query_pre_attn_scalar", "must be above 0");
    text->attention_scale = scalar > 0 ? 1 / sqrt(scalar) : 0;
    read_rope(fields, text);
    read_layers(fields, text);
    refuse_variants(fields);
}

/* ---- Vision -------------------------------------------------------------------- */

static void read_channels(const g3_fields *fields, const char *key, float out_values[3]) {
    const json_t *list = g3_fields_get(fields, key);
    for (size_t i = 0; i < 3; i++)
        out_values[i] = 0.5f;
    if (list == NULL)
        return;
    for (size_t i = 0; i < 3; i++) {
        const json_t *value = json_array_get(list, i);
        if (json_array_size(list) != 3 || !json_is_number(value))
            g3_fields_fail(fields, G3_INVALID, key, "3 numbers are needed");
        else
            out_values[i] = (float)json_number_value(value);
    }
}

static void read_vision(const g3_fields *top, const g3_fields *fields,
                        const g3_fields *preprocessor, g3_vision_config *vision) {
    vision->present = true;
    vision->layers = g3_fields_u32(fields, "num_hidden_layers", 12);
    vision->hidden = g3_fields_u32(fields, "hidden_size", 768);
    vision->heads = g3_fields_u32(fields, "num_attention_heads", 12);
    vision->feed_forward = g3_fields_u32(fields, "intermediate_size", 3072);
    vision->image_size = g3_fields_u32(fields, "image_size", 224);
    vision->patch_size = g3_fields_u32(fields, "patch_size", 16);
    vision->norm_eps = (float)g3_fields_number(fields, "layer_norm_eps", 1e-6);
    vision->tokens = g3_fields_u32(top, "mm_tokens_per_image", 256);
    read_channels(preprocessor, "image_mean", vision->mean);
    read_channels(preprocessor, "image_std", vision->std);
    need_gelu(fields, "hidden_act");
    if (g3_fields_u32(fields, "num_channels", 3) != 3)
        g3_fields_fail(fields, G3_UNSUPPORTED, "num_channels", "only 3 channels are read");
    const char *type = g3_fields_string(fields, "model_type");
    if (type != NULL && strcmp(type, "siglip_vision_model") != 0)
        g3_fields_fail(fields, G3_UNSUPPORTED, "model_type", "only 'siglip_vision_model' is read");
}

/* ---- Tokens -------------------------------------------------------------------- */

/* Ids of the published models. A folder may name them although its vocabulary is too
 * small for them, because writers fill in what the classes start with. */
enum {
    PAD = 0,
    EOS = 1,
    BOS = 2,
    TURN_END = 106,
    IMAGE_BEGIN = 255999,
    IMAGE_END = 256000,
    IMAGE = 262144
};

/* An id that is neither a row nor one of the published models' in this place. */
static void check_id(const g3_fields *fields, const char *key, int32_t id, int32_t usual,
                     uint32_t rows) {
    char what[96];
    if (id == G3_NO_ID || (uint32_t)id < rows || id == usual)
        return;
    (void)snprintf(what, sizeof what, "%" PRId32 " is outside the vocabulary of %" PRIu32 " rows",
                   id, rows);
    g3_fields_fail(fields, G3_INVALID, key, what);
}

static void add_stop(const g3_fields *fields, const json_t *value, uint32_t rows,
                     g3_token_config *tokens) {
    int32_t id = G3_NO_ID;
    if (json_is_integer(value) && json_integer_value(value) == G3_NO_ID)
        return;
    if (!g3_json_id(value, &id))
        g3_fields_fail(fields, G3_INVALID, "eos_token_id", "token ids are needed");
    else if (!g3_config_add_stop(tokens, id))
        g3_fields_fail(fields, G3_UNSUPPORTED, "eos_token_id", "more than 8 different ids");
    check_id(fields, "eos_token_id", id, id == TURN_END ? TURN_END : EOS, rows);
}

/* One id or a list of them. */
static void add_stops(const g3_fields *fields, uint32_t rows, g3_token_config *tokens) {
    const json_t *value = g3_fields_get(fields, "eos_token_id");
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++)
            add_stop(fields, json_array_get(value, i), rows, tokens);
    } else if (value != NULL) {
        add_stop(fields, value, rows, tokens);
    }
}

static int32_t read_id(const g3_fields *fields, const char *key, int32_t preset, int32_t usual,
                       uint32_t rows) {
    const int32_t id = g3_fields_id(fields, key, preset);
    if (g3_fields_get(fields, key) != NULL)
        check_id(fields, key, id, usual, rows);
    return id;
}

static int32_t image_id(const g3_fields *top, const char *key, const char *new_key, int32_t preset,
                        uint32_t rows) {
    return read_id(top, key, read_id(top, new_key, preset, preset, rows), preset, rows);
}

static void read_tokens(const g3_fields *top, const g3_fields *text, const g3_fields *generation,
                        bool multimodal, uint32_t rows, g3_token_config *tokens) {
    *tokens = (g3_token_config){
        .unknown = G3_NO_ID, .image_begin = G3_NO_ID, .image_end = G3_NO_ID, .image = G3_NO_ID};
    tokens->bos =
        read_id(text, "bos_token_id", read_id(top, "bos_token_id", BOS, BOS, rows), BOS, rows);
    tokens->pad =
        read_id(text, "pad_token_id", read_id(top, "pad_token_id", PAD, PAD, rows), PAD, rows);
    add_stops(generation, rows, tokens);
    add_stops(top, rows, tokens);
    if (text->object != top->object)
        add_stops(text, rows, tokens);
    if (tokens->stop_count == 0)
        (void)g3_config_add_stop(tokens, EOS);
    if (multimodal) {
        tokens->image_begin = image_id(top, "boi_token_index", "boi_token_id", IMAGE_BEGIN, rows);
        tokens->image_end = image_id(top, "eoi_token_index", "eoi_token_id", IMAGE_END, rows);
        /* Only a placeholder: it needs no row. */
        tokens->image =
            image_id(top, "image_token_index", "image_token_id", IMAGE, G3_MAX_VOCAB + 1);
    }
}

/* ---- The whole ----------------------------------------------------------------- */

/* Which class: true for the one with a text_config inside. */
static bool is_multimodal(const g3_fields *top) {
    const char *type = g3_fields_string(top, "model_type");
    const json_t *classes = g3_fields_get(top, "architectures");
    const char *class = json_string_value(json_array_get(classes, 0));
    if (type == NULL && class == NULL) {
        g3_fields_fail(top, G3_INVALID, "model_type", "neither it nor architectures is there");
        return false;
    }
    char what[128];
    if (type != NULL && strcmp(type, "gemma3") != 0 && strcmp(type, "gemma3_text") != 0) {
        char name[48];
        (void)snprintf(what, sizeof what, "'%s'; only gemma3 and gemma3_text are read",
                       g3_printable(type, strlen(type), name, sizeof name));
        g3_fields_fail(top, G3_UNSUPPORTED, "model_type", what);
    }
    if (class == NULL)
        return type != NULL && strcmp(type, "gemma3") == 0;
    const bool multimodal = strcmp(class, "Gemma3ForConditionalGeneration") == 0;
    if (!multimodal && strcmp(class, "Gemma3ForCausalLM") != 0) {
        char name[48];
        (void)snprintf(what, sizeof what,
                       "'%s'; only Gemma3ForCausalLM and Gemma3ForConditionalGeneration are read",
                       g3_printable(class, strlen(class), name, sizeof name));
        g3_fields_fail(top, G3_UNSUPPORTED, "architectures", what);
    }
    return multimodal;
}

/* The bounds, with the key of what is outside of them. */
static g3_status check(const g3_fields *top, const g3_fields *text, const g3_fields *vision,
                       const g3_fields *pixels, const g3_config *config) {
    const g3_fields *const parts[] = {[G3_FAULT_TOP] = top,
                                      [G3_FAULT_TEXT] = text,
                                      [G3_FAULT_VISION] = vision,
                                      [G3_FAULT_PIXELS] = pixels};
    g3_config_fault fault = {0};
    g3_status status = g3_config_check(config, &fault, top->error);
    char where[256];
    if (status == G3_OK)
        return G3_OK;
    (void)snprintf(where, sizeof where, "%s%s", parts[fault.part]->where, fault.hf);
    return g3_fail_in(top->error, status, where);
}

g3_status g3_config_from_hf(const json_t *config, const json_t *generation,
                            const json_t *preprocessor, g3_hf_config *out_config, g3_error *error) {
    g3_status status = G3_OK;
    const g3_fields top = {
        .object = config, .where = "config.json: ", .status = &status, .error = error};
    g3_fields started = top;
    started.object = generation;
    (void)snprintf(started.where, sizeof started.where, "generation_config.json: ");
    g3_fields pixels = top;
    pixels.object = preprocessor;
    (void)snprintf(pixels.where, sizeof pixels.where, "preprocessor_config.json: ");
    *out_config = (g3_hf_config){.tied = true};
    const g3_fields *files[] = {&top, &started, &pixels};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if ((i == 0 || files[i]->object != NULL) && !json_is_object(files[i]->object))
            return g3_fail(error, G3_INVALID, "%sthe JSON is not an object", files[i]->where);
    const bool multimodal = is_multimodal(&top);
    const g3_fields text = multimodal ? g3_fields_object(&top, "text_config") : top;
    const g3_fields vision = g3_fields_object(&top, "vision_config");
    read_text(&text, &out_config->config.text);
    out_config->rows_named = g3_fields_get(&text, "vocab_size") != NULL;
    if (multimodal) {
        refuse(&top, "quantization_config", "quantised folders are not supported; use GGUF");
        if (vision.object != NULL)
            read_vision(&top, &vision, &pixels, &out_config->config.vision);
    }
    read_tokens(&top, &text, &started, multimodal, out_config->config.text.vocab,
                &out_config->config.tokens);
    out_config->tied = g3_fields_bool(&text, "tie_word_embeddings",
                                      g3_fields_bool(&top, "tie_word_embeddings", true));
    if (status == G3_OK)
        status = check(&top, &text, &vision, &pixels, &out_config->config);
    return status;
}
