/* SPDX-License-Identifier: MIT */
#include "config_read.h"
#include "map.h"

#include <inttypes.h>

#define MAX_IMAGE_SIZE 4096

bool g3_config_add_stop(g3_token_config *tokens, int32_t id) {
    for (uint32_t i = 0; i < tokens->stop_count; i++)
        if (tokens->stop[i] == id)
            return true;
    if (tokens->stop_count == G3_MAX_STOP_IDS)
        return false;
    tokens->stop[tokens->stop_count++] = id;
    return true;
}

void g3_config_pattern(g3_text_config *text, uint32_t period) {
    for (uint32_t i = 0; i < text->layers && i < G3_MAX_LAYERS; i++)
        text->global[i] = (i + 1) % period == 0;
}

void g3_config_name(g3_config *config, const char *bytes, size_t count) {
    (void)g3_printable(bytes, count, config->name, sizeof config->name);
}

typedef struct bound {
    const char *what;
    g3_config_fault keys;
    uint32_t value;
    uint32_t most; /* at least 1 in every case */
} bound;

static g3_status check_bounds(const bound *bounds, size_t count, g3_config_fault *out_fault,
                              g3_error *error) {
    for (size_t i = 0; i < count; i++)
        if (bounds[i].value == 0 || bounds[i].value > bounds[i].most) {
            *out_fault = bounds[i].keys;
            return g3_fail(error, G3_INVALID, "%s is %" PRIu32 "; 1 to %" PRIu32 " is allowed",
                           bounds[i].what, bounds[i].value, bounds[i].most);
        }
    return G3_OK;
}

/* Far outside of what any model has, positions, scores or norms leave the range of
 * floats and every answer is noise. */
typedef struct range {
    const char *what;
    g3_config_fault keys;
    double value;
    double least, most;
} range;

static g3_status check_ranges(const range *ranges, size_t count, g3_config_fault *out_fault,
                              g3_error *error) {
    for (size_t i = 0; i < count; i++)
        if (!(ranges[i].value >= ranges[i].least && ranges[i].value <= ranges[i].most)) {
            *out_fault = ranges[i].keys;
            return g3_fail(error, G3_INVALID, "%s is %g; %g to %g is allowed", ranges[i].what,
                           ranges[i].value, ranges[i].least, ranges[i].most);
        }
    return G3_OK;
}

#define TEXT(gguf, hf) \
    { "gemma3." gguf, hf, G3_FAULT_TEXT }
#define VISION(gguf, hf) \
    { "clip.vision." gguf, hf, G3_FAULT_VISION }
#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static g3_status check_text(const g3_text_config *text, g3_config_fault *out_fault,
                            g3_error *error) {
    const bound bounds[] = {
        {"number of layers", TEXT("block_count", "num_hidden_layers"), text->layers, G3_MAX_LAYERS},
        {"hidden size", TEXT("embedding_length", "hidden_size"), text->hidden, G3_MAX_WIDTH},
        {"number of heads", TEXT("attention.head_count", "num_attention_heads"), text->heads,
         G3_MAX_HEADS},
        {"number of key/value heads", TEXT("attention.head_count_kv", "num_key_value_heads"),
         text->kv_heads, text->heads},
        {"head size", TEXT("attention.key_length", "head_dim"), text->head_dim, G3_MAX_HEAD_DIM},
        {"feed-forward size", TEXT("feed_forward_length", "intermediate_size"), text->feed_forward,
         G3_MAX_WIDTH},
        {"vocabulary", TEXT("vocab_size", "vocab_size"), text->vocab, G3_MAX_VOCAB},
        {"context length", TEXT("context_length", "max_position_embeddings"), text->context,
         G3_MAX_CONTEXT},
        {"sliding window", TEXT("attention.sliding_window", "sliding_window"), text->window,
         INT32_MAX},
    };
    g3_status status = check_bounds(bounds, COUNT(bounds), out_fault, error);
    if (status != G3_OK)
        return status;
    *out_fault = bounds[3].keys;
    if (text->heads % text->kv_heads != 0)
        return g3_fail(error, G3_INVALID,
                       "%" PRIu32 " heads are no multiple of %" PRIu32 " key/value heads",
                       text->heads, text->kv_heads);
    *out_fault = bounds[4].keys;
    if (text->head_dim % 2 != 0)
        return g3_fail(error, G3_INVALID, "head size %" PRIu32 " is odd", text->head_dim);
    const range ranges[] = {
        {"RoPE base of global layers", TEXT("rope.freq_base", "rope_theta of full_attention"),
         text->rope_base_global, 1, 1e12},
        {"RoPE base of local layers", TEXT("rope.freq_base_swa", "rope_theta of sliding_attention"),
         text->rope_base_local, 1, 1e12},
        {"RoPE scaling factor", TEXT("rope.scaling.factor", "factor of rope scaling"),
         text->rope_factor_global, 1e-3, 1e6},
        {"attention scale", TEXT("attention.key_length", "query_pre_attn_scalar"),
         text->attention_scale, 1e-6, 1e6},
        {"epsilon of the norms", TEXT("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
         (double)text->norm_eps, 1e-30, 1},
    };
    return check_ranges(ranges, COUNT(ranges), out_fault, error);
}

static uint32_t root_of(uint32_t square) {
    uint32_t root = 0;
    while ((uint64_t)(root + 1) * (root + 1) <= square)
        root++;
    return root;
}

/* How sizes go with each other. */
static g3_status check_vision_sizes(const g3_vision_config *vision, g3_config_fault *out_fault,
                                    g3_error *error) {
    *out_fault = (g3_config_fault)VISION("attention.head_count", "num_attention_heads");
    if (vision->hidden % vision->heads != 0 || vision->hidden / vision->heads > G3_MAX_HEAD_DIM)
        return g3_fail(error, G3_INVALID,
                       "vision hidden size %" PRIu32 " does not divide into %" PRIu32
                       " heads of at most %d",
                       vision->hidden, vision->heads, G3_MAX_HEAD_DIM);
    *out_fault = (g3_config_fault)VISION("image_size", "image_size");
    if (vision->image_size % vision->patch_size != 0)
        return g3_fail(error, G3_INVALID,
                       "image size %" PRIu32 " is no multiple of the patch size %" PRIu32,
                       vision->image_size, vision->patch_size);
    const uint32_t grid = vision->image_size / vision->patch_size;
    const uint32_t root = root_of(vision->tokens);
    *out_fault = (g3_config_fault){"clip.vision.projector.scale_factor", "mm_tokens_per_image",
                                   G3_FAULT_TOP};
    if (root == 0 || root * root != vision->tokens || grid % root != 0)
        return g3_fail(error, G3_INVALID,
                       "%" PRIu32 " tokens of an image are not a square that divides a grid of "
                       "%" PRIu32 " x %" PRIu32 " patches",
                       vision->tokens, grid, grid);
    return G3_OK;
}

static g3_status check_vision(const g3_vision_config *vision, g3_config_fault *out_fault,
                              g3_error *error) {
    static const g3_config_fault mean = {"clip.vision.image_mean", "image_mean", G3_FAULT_PIXELS};
    static const g3_config_fault deviation = {"clip.vision.image_std", "image_std",
                                              G3_FAULT_PIXELS};
    const bound bounds[] = {
        {"number of vision layers", VISION("block_count", "num_hidden_layers"), vision->layers,
         G3_MAX_LAYERS},
        {"vision hidden size", VISION("embedding_length", "hidden_size"), vision->hidden,
         G3_MAX_WIDTH},
        {"number of vision heads", VISION("attention.head_count", "num_attention_heads"),
         vision->heads, G3_MAX_HEADS},
        {"vision feed-forward size", VISION("feed_forward_length", "intermediate_size"),
         vision->feed_forward, G3_MAX_WIDTH},
        {"image size", VISION("image_size", "image_size"), vision->image_size, MAX_IMAGE_SIZE},
        {"patch size", VISION("patch_size", "patch_size"), vision->patch_size, vision->image_size},
        {"tokens of an image",
         {"clip.vision.projector.scale_factor", "mm_tokens_per_image", G3_FAULT_TOP},
         vision->tokens,
         MAX_IMAGE_SIZE * MAX_IMAGE_SIZE},
    };
    const range ranges[] = {
        {"epsilon of the vision norms", VISION("attention.layer_norm_epsilon", "layer_norm_eps"),
         (double)vision->norm_eps, 1e-30, 1},
        {"deviation of pixels", deviation, (double)vision->std[0], 1e-6, 1e6},
        {"deviation of pixels", deviation, (double)vision->std[1], 1e-6, 1e6},
        {"deviation of pixels", deviation, (double)vision->std[2], 1e-6, 1e6},
        {"mean of pixels", mean, (double)vision->mean[0], -1e6, 1e6},
        {"mean of pixels", mean, (double)vision->mean[1], -1e6, 1e6},
        {"mean of pixels", mean, (double)vision->mean[2], -1e6, 1e6},
    };
    g3_status status = check_bounds(bounds, COUNT(bounds), out_fault, error);
    if (status == G3_OK)
        status = check_vision_sizes(vision, out_fault, error);
    return status == G3_OK ? check_ranges(ranges, COUNT(ranges), out_fault, error) : status;
}

g3_status g3_config_check(const g3_config *config, g3_config_fault *out_fault, g3_error *error) {
    g3_status status = check_text(&config->text, out_fault, error);
    if (status == G3_OK && config->vision.present)
        status = check_vision(&config->vision, out_fault, error);
    return status;
}
