/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_CONFIG_H
#define GEMMA3_CONFIG_H

/* The shape of a model, from GGUF metadata or a config.json, checked: every
 * field is within the bounds below and they agree with each other. */

#include <stdbool.h>
#include <stdint.h>

#define G3_MAX_LAYERS 256
#define G3_MAX_HEADS 256
#define G3_MAX_HEAD_DIM 512
#define G3_MAX_WIDTH 65536 /* hidden and feed-forward size */
#define G3_MAX_VOCAB 1048576
#define G3_MAX_CONTEXT 1048576
#define G3_MAX_STOP_IDS 8
#define G3_NO_ID (-1)

typedef struct g3_text_config {
    uint32_t layers;
    uint32_t hidden;
    uint32_t heads;
    uint32_t kv_heads; /* divides heads */
    uint32_t head_dim; /* even */
    uint32_t feed_forward;
    uint32_t vocab;   /* rows of the embedding; the tokenizer may have fewer */
    uint32_t context; /* most positions the model was made for */
    uint32_t window;  /* keys a local layer sees, itself included; > 0 */
    bool global[G3_MAX_LAYERS];
    double rope_base_global;   /* > 0 */
    double rope_base_local;    /* > 0 */
    double rope_factor_global; /* positions are divided by it; 1: no scaling. Local layers: never */
    double attention_scale;    /* query_pre_attn_scalar ^ -1/2 */
    float norm_eps;
} g3_text_config;

typedef struct g3_vision_config {
    bool present;
    uint32_t layers;
    uint32_t hidden;
    uint32_t heads; /* divides hidden */
    uint32_t feed_forward;
    uint32_t image_size; /* a multiple of patch_size */
    uint32_t patch_size;
    uint32_t tokens; /* per image after pooling: a square; its root divides image_size/patch_size */
    float norm_eps;
    float mean[3];
    float std[3];
} g3_vision_config;

/* Ids that the files themselves name; G3_NO_ID where they do not. The
 * tokenizer knows more by their texts. */
typedef struct g3_token_config {
    int32_t bos, pad, unknown;
    int32_t image_begin, image_end, image; /* <start_of_image>, <end_of_image>, soft token */
    int32_t stop[G3_MAX_STOP_IDS];         /* end the answer */
    uint32_t stop_count;
} g3_token_config;

typedef struct g3_config {
    char name[64]; /* general.name or the folder's, for people */
    g3_text_config text;
    g3_vision_config vision;
    g3_token_config tokens;
} g3_config;

#endif
