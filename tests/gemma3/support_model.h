/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_SUPPORT_MODEL_H
#define GEMMA3_SUPPORT_MODEL_H

/* Whole small models on disk, with bytes that mean nothing: a text GGUF file, an
 * mmproj file and the safetensors of a folder. */

#include "files/checkpoint.h"
#include "support_config.h"
#include "support_safetensors.h"

#define T_VOCAB 40u
static const t_size t_model_size = {.layers = 2,
                                    .hidden = 64,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .head_dim = 32,
                                    .feed_forward = 96,
                                    .context = 4096,
                                    .window = 4};

/* The writer's skips leave a key or tensor out. */
static inline void t_put_text_model(t_gguf *g, uint32_t vocab) {
    static const struct {
        const char *name;
        uint64_t columns, rows;
    } tensors[] = {
        {"attn_norm", 64, 0},     {"attn_q", 64, 128},
        {"attn_k", 64, 64},       {"attn_v", 64, 64},
        {"attn_output", 128, 64}, {"attn_q_norm", 32, 0},
        {"attn_k_norm", 32, 0},   {"post_attention_norm", 64, 0},
        {"ffn_norm", 64, 0},      {"ffn_gate", 64, 96},
        {"ffn_up", 64, 96},       {"ffn_down", 96, 64},
        {"post_ffw_norm", 64, 0},
    };
    t_put_text_keys(g, &t_model_size);
    t_tensor(g, "token_embd.weight", G3_Q8_0, 64, vocab, 0, 0);
    t_tensor(g, "output_norm.weight", G3_F32, 64, 0, 0, 0);
    for (unsigned layer = 0; layer < t_model_size.layers; layer++)
        for (size_t i = 0; i < VRPT_COUNT(tensors); i++) {
            char name[64];
            (void)snprintf(name, sizeof name, "blk.%u.%s.weight", layer, tensors[i].name);
            t_tensor(g, name, tensors[i].rows == 0 ? G3_F32 : G3_Q4_0, tensors[i].columns,
                     tensors[i].rows, 0, 0);
        }
}

/* Two layers of 32 with feed-forward 48 over 28-pixel images in patches of 7,
 * pooled 2 x 2 into 4 tokens. */
static inline void t_put_mmproj_keys(t_gguf *g) {
    static const float half[3] = {0.5f, 0.5f, 0.25f};
    t_string(g, "general.architecture", "clip");
    t_bool(g, "clip.has_vision_encoder", 1);
    t_string(g, "clip.projector_type", "gemma3");
    t_bool(g, "clip.use_gelu", 1);
    t_u32(g, "clip.vision.image_size", 28);
    t_u32(g, "clip.vision.patch_size", 7);
    t_u32(g, "clip.vision.embedding_length", 32);
    t_u32(g, "clip.vision.feed_forward_length", 48);
    t_u32(g, "clip.vision.block_count", 2);
    t_u32(g, "clip.vision.attention.head_count", 2);
    t_f32(g, "clip.vision.attention.layer_norm_epsilon", 1e-6f);
    t_u32(g, "clip.vision.projection_dim", 64);
    t_u32(g, "clip.vision.projector.scale_factor", 2);
    t_array(g, "clip.vision.image_mean", 6, 3, half, sizeof half);
    t_array(g, "clip.vision.image_std", 6, 3, half, sizeof half);
}

/* swapped: as in old files, ffn_down is the first matrix of the two. */
static inline void t_put_mmproj_of(t_gguf *g, int swapped, g3_type projection) {
    static const char *const parts[] = {"ln1", "attn_q", "attn_k", "attn_v", "attn_out", "ln2"};
    t_put_mmproj_keys(g);
    t_tensor(g, "v.patch_embd.weight", G3_F16, 7, 7, 3, 32);
    t_tensor(g, "v.patch_embd.bias", G3_F32, 32, 0, 0, 0);
    t_tensor(g, "v.position_embd.weight", G3_F32, 32, 16, 0, 0);
    t_tensor(g, "v.post_ln.weight", G3_F32, 32, 0, 0, 0);
    t_tensor(g, "v.post_ln.bias", G3_F32, 32, 0, 0, 0);
    t_tensor(g, "mm.soft_emb_norm.weight", G3_F32, 32, 0, 0, 0);
    t_tensor(g, "mm.input_projection.weight", projection, 64, 32, 0, 0);
    for (unsigned layer = 0; layer < 2; layer++) {
        char name[64];
        for (size_t i = 0; i < VRPT_COUNT(parts); i++) {
            (void)snprintf(name, sizeof name, "v.blk.%u.%s.weight", layer, parts[i]);
            t_tensor(g, name, parts[i][0] == 'l' ? G3_F32 : G3_F16, 32, parts[i][0] == 'l' ? 0 : 32,
                     0, 0);
            (void)snprintf(name, sizeof name, "v.blk.%u.%s.bias", layer, parts[i]);
            t_tensor(g, name, G3_F32, 32, 0, 0, 0);
        }
        (void)snprintf(name, sizeof name, "v.blk.%u.ffn_%s.weight", layer, swapped ? "down" : "up");
        t_tensor(g, name, G3_F16, 32, 48, 0, 0);
        (void)snprintf(name, sizeof name, "v.blk.%u.ffn_%s.bias", layer, swapped ? "down" : "up");
        t_tensor(g, name, G3_F32, 48, 0, 0, 0);
        (void)snprintf(name, sizeof name, "v.blk.%u.ffn_%s.weight", layer, swapped ? "up" : "down");
        t_tensor(g, name, G3_F16, 48, 32, 0, 0);
        (void)snprintf(name, sizeof name, "v.blk.%u.ffn_%s.bias", layer, swapped ? "up" : "down");
        t_tensor(g, name, G3_F32, 32, 0, 0, 0);
    }
}

static inline void t_put_mmproj(t_gguf *g, int swapped) { t_put_mmproj_of(g, swapped, G3_F16); }

/* ---- Folders ------------------------------------------------------------------- */

#define T_TEXT_FIELDS                                                       \
    "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4," \
    "\"num_key_value_heads\":2,\"head_dim\":32,\"intermediate_size\":96,"   \
    "\"max_position_embeddings\":4096,\"sliding_window\":4"
#define T_VISION_CONFIG                                                    \
    "\"vision_config\":{\"hidden_size\":32,\"intermediate_size\":48,"      \
    "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"image_size\":28," \
    "\"patch_size\":7},\"mm_tokens_per_image\":4"
#define T_CONFIG_TEXT "{\"model_type\":\"gemma3_text\",\"vocab_size\":40," T_TEXT_FIELDS "}"
#define T_CONFIG_VISION                                                            \
    "{\"model_type\":\"gemma3\",\"text_config\":{\"vocab_size\":40," T_TEXT_FIELDS \
    "}," T_VISION_CONFIG "}"

static inline void t_st_named(t_st *s, const char *prefix, const char *name, uint64_t rows,
                              uint64_t columns) {
    char whole[128];
    char shape[64];
    (void)snprintf(whole, sizeof whole, "%s%s", prefix, name);
    if (rows == 0)
        (void)snprintf(shape, sizeof shape, "[%" PRIu64 "]", columns);
    else
        (void)snprintf(shape, sizeof shape, "[%" PRIu64 ",%" PRIu64 "]", rows, columns);
    t_st_tensor(s, whole, "BF16", shape, (size_t)((rows == 0 ? 1 : rows) * columns * 2));
}

static inline void t_put_text_tensors(t_st *s, const char *prefix, uint32_t vocab) {
    static const struct {
        const char *name;
        uint64_t rows, columns;
    } tensors[] = {
        {"input_layernorm", 0, 64},
        {"self_attn.q_proj", 128, 64},
        {"self_attn.k_proj", 64, 64},
        {"self_attn.v_proj", 64, 64},
        {"self_attn.o_proj", 64, 128},
        {"self_attn.q_norm", 0, 32},
        {"self_attn.k_norm", 0, 32},
        {"post_attention_layernorm", 0, 64},
        {"pre_feedforward_layernorm", 0, 64},
        {"mlp.gate_proj", 96, 64},
        {"mlp.up_proj", 96, 64},
        {"mlp.down_proj", 64, 96},
        {"post_feedforward_layernorm", 0, 64},
    };
    t_st_named(s, prefix, "embed_tokens.weight", vocab, 64);
    t_st_named(s, prefix, "norm.weight", 0, 64);
    for (unsigned layer = 0; layer < 2; layer++)
        for (size_t i = 0; i < VRPT_COUNT(tensors); i++) {
            char name[96];
            (void)snprintf(name, sizeof name, "layers.%u.%s.weight", layer, tensors[i].name);
            t_st_named(s, prefix, name, tensors[i].rows, tensors[i].columns);
        }
}

static inline void t_put_vision_tensors(t_st *s, const char *tower, const char *projector) {
    static const struct {
        const char *name;
        uint64_t rows, columns;
    } tensors[] = {
        {"layer_norm1", 0, 32},       {"layer_norm2", 0, 32},       {"self_attn.q_proj", 32, 32},
        {"self_attn.k_proj", 32, 32}, {"self_attn.v_proj", 32, 32}, {"self_attn.out_proj", 32, 32},
        {"mlp.fc1", 48, 32},          {"mlp.fc2", 32, 48},
    };
    char name[96];
    (void)snprintf(name, sizeof name, "%sembeddings.patch_embedding.weight", tower);
    t_st_tensor(s, name, "BF16", "[32,3,7,7]", 32 * 3 * 7 * 7 * 2);
    t_st_named(s, tower, "embeddings.patch_embedding.bias", 0, 32);
    t_st_named(s, tower, "embeddings.position_embedding.weight", 16, 32);
    t_st_named(s, tower, "post_layernorm.weight", 0, 32);
    t_st_named(s, tower, "post_layernorm.bias", 0, 32);
    t_st_named(s, projector, "mm_soft_emb_norm.weight", 0, 32);
    t_st_named(s, projector, "mm_input_projection_weight", 32, 64);
    for (unsigned layer = 0; layer < 2; layer++)
        for (size_t i = 0; i < VRPT_COUNT(tensors); i++) {
            const uint64_t rows = tensors[i].rows;
            (void)snprintf(name, sizeof name, "encoder.layers.%u.%s.weight", layer,
                           tensors[i].name);
            t_st_named(s, tower, name, rows, tensors[i].columns);
            (void)snprintf(name, sizeof name, "encoder.layers.%u.%s.bias", layer, tensors[i].name);
            t_st_named(s, tower, name, 0, rows == 0 ? 32 : rows);
        }
}

#endif
