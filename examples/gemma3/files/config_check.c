/* SPDX-License-Identifier: MIT */
#include "config_read.h"
#include "map.h"

#include <inttypes.h>
#include <math.h>

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
    uint32_t value;
    uint32_t most; /* at least 1 in every case */
} bound;

static g3_status check_bounds(const bound *bounds, size_t count, g3_error *error) {
    for (size_t i = 0; i < count; i++)
        if (bounds[i].value == 0 || bounds[i].value > bounds[i].most)
            return g3_fail(error, G3_INVALID, "%s is %" PRIu32 "; 1 to %" PRIu32 " is allowed",
                           bounds[i].what, bounds[i].value, bounds[i].most);
    return G3_OK;
}

typedef struct positive {
    const char *what;
    double value;
} positive;

static g3_status check_positive(const positive *values, size_t count, g3_error *error) {
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i].value) || values[i].value <= 0)
            return g3_fail(error, G3_INVALID, "%s is %g; it must be finite and above 0",
                           values[i].what, values[i].value);
    return G3_OK;
}

static g3_status check_text(const g3_text_config *text, g3_error *error) {
    const bound bounds[] = {
        {"number of layers", text->layers, G3_MAX_LAYERS},
        {"hidden size", text->hidden, G3_MAX_WIDTH},
        {"number of heads", text->heads, G3_MAX_HEADS},
        {"number of key/value heads", text->kv_heads, text->heads},
        {"head size", text->head_dim, G3_MAX_HEAD_DIM},
        {"feed-forward size", text->feed_forward, G3_MAX_WIDTH},
        {"vocabulary", text->vocab, G3_MAX_VOCAB},
        {"context length", text->context, G3_MAX_CONTEXT},
        {"sliding window", text->window, INT32_MAX},
    };
    g3_status status = check_bounds(bounds, sizeof bounds / sizeof bounds[0], error);
    if (status != G3_OK)
        return status;
    if (text->heads % text->kv_heads != 0)
        return g3_fail(error, G3_INVALID,
                       "%" PRIu32 " heads are no multiple of %" PRIu32 " key/value heads",
                       text->heads, text->kv_heads);
    if (text->head_dim % 2 != 0)
        return g3_fail(error, G3_INVALID, "head size %" PRIu32 " is odd", text->head_dim);
    const positive values[] = {
        {"RoPE base of global layers", text->rope_base_global},
        {"RoPE base of local layers", text->rope_base_local},
        {"RoPE scaling factor", text->rope_factor_global},
        {"attention scale", text->attention_scale},
        {"epsilon of the norms", (double)text->norm_eps},
    };
    return check_positive(values, sizeof values / sizeof values[0], error);
}

static uint32_t root_of(uint32_t square) {
    uint32_t root = 0;
    while ((uint64_t)(root + 1) * (root + 1) <= square)
        root++;
    return root;
}

static g3_status check_vision(const g3_vision_config *vision, g3_error *error) {
    const bound bounds[] = {
        {"number of vision layers", vision->layers, G3_MAX_LAYERS},
        {"vision hidden size", vision->hidden, G3_MAX_WIDTH},
        {"number of vision heads", vision->heads, G3_MAX_HEADS},
        {"vision feed-forward size", vision->feed_forward, G3_MAX_WIDTH},
        {"image size", vision->image_size, MAX_IMAGE_SIZE},
        {"patch size", vision->patch_size, vision->image_size},
        {"tokens of an image", vision->tokens, MAX_IMAGE_SIZE * MAX_IMAGE_SIZE},
    };
    g3_status status = check_bounds(bounds, sizeof bounds / sizeof bounds[0], error);
    if (status != G3_OK)
        return status;
    if (vision->hidden % vision->heads != 0 || vision->hidden / vision->heads > G3_MAX_HEAD_DIM)
        return g3_fail(error, G3_INVALID,
                       "vision hidden size %" PRIu32 " does not divide into %" PRIu32
                       " heads of at most %d",
                       vision->hidden, vision->heads, G3_MAX_HEAD_DIM);
    if (vision->image_size % vision->patch_size != 0)
        return g3_fail(error, G3_INVALID,
                       "image size %" PRIu32 " is no multiple of the patch size %" PRIu32,
                       vision->image_size, vision->patch_size);
    const uint32_t grid = vision->image_size / vision->patch_size;
    const uint32_t root = root_of(vision->tokens);
    if (root == 0 || root * root != vision->tokens || grid % root != 0)
        return g3_fail(error, G3_INVALID,
                       "%" PRIu32 " tokens of an image are not a square that divides a grid of "
                       "%" PRIu32 " x %" PRIu32 " patches",
                       vision->tokens, grid, grid);
    const positive values[] = {
        {"epsilon of the vision norms", (double)vision->norm_eps},
        {"deviation of pixels", (double)vision->std[0]},
        {"deviation of pixels", (double)vision->std[1]},
        {"deviation of pixels", (double)vision->std[2]},
    };
    status = check_positive(values, sizeof values / sizeof values[0], error);
    for (size_t i = 0; status == G3_OK && i < 3; i++)
        if (!isfinite(vision->mean[i]))
            status = g3_fail(error, G3_INVALID, "mean of pixels is not finite");
    return status;
}

g3_status g3_config_check(const g3_config *config, g3_error *error) {
    g3_status status = check_text(&config->text, error);
    if (status == G3_OK && config->vision.present)
        status = check_vision(&config->vision, error);
    return status;
}
