/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_SUPPORT_CONFIG_H
#define GEMMA3_SUPPORT_CONFIG_H

/* Configurations from JSON texts and from GGUF files made here. */

#include "files/config_read.h"
#include "support_gguf.h"

/* generation may be NULL. */
static inline g3_status t_hf(const char *config, const char *generation, g3_hf_config *out_config,
                             g3_error *error) {
    json_t *first = json_loads(config, JSON_REJECT_DUPLICATES, NULL);
    json_t *second = generation == NULL ? NULL : json_loads(generation, 0, NULL);
    assert_non_null(first);
    g3_status status = g3_config_from_hf(first, second, NULL, out_config, error);
    json_decref(first);
    json_decref(second);
    return status;
}

static inline g3_hf_config t_hf_ok(const char *config, const char *generation) {
    g3_hf_config read;
    g3_error error = {{0}};
    if (t_hf(config, generation, &read, &error) != G3_OK)
        fail_msg("%s", error.text);
    return read;
}

static inline void t_hf_fails(const char *config, g3_status expected, const char *part,
                              const char *other) {
    g3_hf_config read;
    g3_error error = {{0}};
    t_expect(t_hf(config, NULL, &read, &error), expected, &error, part, other);
}

/* What a text GGUF file must have; the writer's skips leave things out. */
typedef struct t_size {
    uint32_t layers, hidden, heads, kv_heads, head_dim, feed_forward, context, window;
} t_size;

static inline void t_put_text_keys(t_gguf *g, const t_size *size) {
    t_string(g, "general.architecture", "gemma3");
    t_string(g, "general.name", "Made");
    t_u32(g, "gemma3.context_length", size->context);
    t_u32(g, "gemma3.embedding_length", size->hidden);
    t_u32(g, "gemma3.block_count", size->layers);
    t_u32(g, "gemma3.feed_forward_length", size->feed_forward);
    t_u32(g, "gemma3.attention.head_count", size->heads);
    t_u32(g, "gemma3.attention.head_count_kv", size->kv_heads);
    t_u32(g, "gemma3.attention.key_length", size->head_dim);
    t_u32(g, "gemma3.attention.value_length", size->head_dim);
    t_f32(g, "gemma3.attention.layer_norm_rms_epsilon", 1e-6f);
    t_u32(g, "gemma3.attention.sliding_window", size->window);
    t_f32(g, "gemma3.rope.freq_base", 1e6f);
    t_u32(g, "tokenizer.ggml.bos_token_id", 2);
    t_u32(g, "tokenizer.ggml.eos_token_id", 1);
    t_u32(g, "tokenizer.ggml.unknown_token_id", 3);
    t_u32(g, "tokenizer.ggml.padding_token_id", 0);
}

/* Finishes and reads the text configuration. */
static inline g3_status t_config(t_gguf *g, g3_config *out_config, g3_error *error) {
    t_bytes file = t_finish(g);
    g3_gguf *gguf = NULL;
    if (g3_gguf_parse(file.data, file.count, "made.gguf", &gguf, error) != G3_OK)
        fail_msg("%s", error->text);
    g3_status status = g3_config_from_gguf(gguf, out_config, error);
    g3_gguf_close(gguf);
    t_free(&file);
    return status;
}

static inline g3_config t_config_ok(t_gguf *g) {
    g3_config config;
    g3_error error = {{0}};
    if (t_config(g, &config, &error) != G3_OK)
        fail_msg("%s", error.text);
    return config;
}

static inline void t_config_fails(t_gguf *g, g3_status expected, const char *part,
                                  const char *other) {
    g3_config config;
    g3_error error = {{0}};
    const g3_status got = t_config(g, &config, &error);
    t_expect(got, expected, &error, "made.gguf", NULL);
    t_expect(got, expected, &error, part, other);
}

/* ---- What a layer turns by --------------------------------------------------- */

static inline double t_rope_base(const g3_config *config, uint32_t layer) {
    return config->text.global[layer] ? config->text.rope_base_global
                                      : config->text.rope_base_local;
}
static inline double t_rope_factor(const g3_config *config, uint32_t layer) {
    return config->text.global[layer] ? config->text.rope_factor_global : 1;
}

/* Every sixth layer is global with this factor, the others local without. */
static inline void t_check_layers(const g3_config *config, double factor) {
    for (uint32_t i = 0; i < config->text.layers; i++) {
        const int global = i % 6 == 5;
        assert_int_equal(config->text.global[i], global);
        assert_true(t_rope_base(config, i) == (global ? 1e6 : 1e4));
        assert_true(t_rope_factor(config, i) == (global ? factor : 1));
    }
}

#endif
