/* SPDX-License-Identifier: MIT */
/* Reference files of a conversation: which outputs are there, and their shapes. */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify.h"

static const g3_st_tensor *find(const g3_safetensors *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static const g3_st_tensor *find(const g3_safetensors *file, const char *format, ...) {
    char name[64];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(name, sizeof name, format, list);
    va_end(list);
    return g3_safetensors_find(file, name);
}

static bool is_integer(const g3_st_tensor *tensor) {
    return tensor->type == G3_ST_I32 || tensor->type == G3_ST_I64;
}

/* Room for "[a, b, c]". */
#define SHAPE_TEXT 128

static void shape_text(uint32_t count, const uint64_t *shape, char *text) {
    size_t used = 0;
    text[used++] = '[';
    for (uint32_t i = 0; i < count; i++) {
        const int n =
            snprintf(text + used, SHAPE_TEXT - used, "%s%" PRIu64, i > 0 ? ", " : "", shape[i]);
        if (n < 0 || (size_t)n >= SHAPE_TEXT - used)
            break;
        used += (size_t)n;
    }
    (void)snprintf(text + used, SHAPE_TEXT - used, "]");
}

/* Holds a tensor against the shape that it must have. */
static g3_status check_shape(const g3_expected *expected, const g3_st_tensor *tensor,
                             uint32_t count, const uint64_t *shape, g3_error *error) {
    bool same = tensor->dim_count == count;
    for (uint32_t i = 0; same && i < count; i++)
        same = tensor->shape[i] == shape[i];
    if (same)
        return G3_OK;
    char got[SHAPE_TEXT];
    char want[SHAPE_TEXT];
    shape_text(tensor->dim_count, tensor->shape, got);
    shape_text(count, shape, want);
    return g3_fail(error, G3_INVALID, "%s: %s has the shape %s; the model gives %s",
                   g3_safetensors_path(expected->file), tensor->name, got, want);
}

/* An output of floats that must be there with this shape. */
static g3_status need_floats(const g3_expected *expected, const g3_st_tensor *tensor,
                             const char *what, uint32_t turn, uint32_t count, const uint64_t *shape,
                             g3_error *error) {
    if (tensor == NULL)
        return g3_fail(error, G3_INVALID, "%s: turn%" PRIu32 ".%s is missing",
                       g3_safetensors_path(expected->file), turn, what);
    if (is_integer(tensor))
        return g3_fail(error, G3_INVALID, "%s: %s holds integers, not floats",
                       g3_safetensors_path(expected->file), tensor->name);
    return check_shape(expected, tensor, count, shape, error);
}

/* A list of ids below the vocabulary's size. */
static g3_status need_ids(const g3_expected *expected, const g3_st_tensor *tensor, const char *what,
                          uint32_t turn, const g3_config *config, uint32_t *out_count,
                          g3_error *error) {
    const char *path = g3_safetensors_path(expected->file);
    if (tensor == NULL)
        return g3_fail(error, G3_INVALID, "%s: turn%" PRIu32 ".%s is missing", path, turn, what);
    if (!is_integer(tensor) || tensor->dim_count != 1 || tensor->shape[0] > G3_MAX_CONTEXT)
        return g3_fail(error, G3_INVALID, "%s: %s is no list of at most %d ids", path, tensor->name,
                       G3_MAX_CONTEXT);
    for (uint64_t i = 0; i < tensor->shape[0]; i++) {
        const int64_t id = g3_st_int(tensor, i);
        if (id < 0 || id >= (int64_t)config->text.vocab)
            return g3_fail(error, G3_INVALID,
                           "%s: %s[%" PRIu64 "] is %" PRId64 "; the model has %" PRIu32 " ids",
                           path, tensor->name, i, id, config->text.vocab);
    }
    *out_count = (uint32_t)tensor->shape[0];
    return G3_OK;
}

static g3_status read_pictures(const g3_expected *expected, uint32_t number,
                               const g3_config *config, g3_expected_turn *turn, g3_error *error) {
    const char *path = g3_safetensors_path(expected->file);
    turn->pixels = find(expected->file, "turn%" PRIu32 ".pixel_values", number);
    turn->features = find(expected->file, "turn%" PRIu32 ".image_features", number);
    if (turn->pixels == NULL && turn->features == NULL)
        return G3_OK;
    if (!config->vision.present)
        return g3_fail(error, G3_INVALID,
                       "%s: turn%" PRIu32 " has pictures; the model has no vision", path, number);
    if (turn->pixels != NULL &&
        (turn->pixels->dim_count != 4 || turn->pixels->shape[0] > G3_MAX_CONTEXT))
        return g3_fail(error, G3_INVALID, "%s: %s is not [images, 3, side, side]", path,
                       turn->pixels->name);
    turn->images = turn->pixels != NULL ? (uint32_t)turn->pixels->shape[0] : 0;
    const uint64_t side = config->vision.image_size;
    g3_status status = need_floats(expected, turn->pixels, "pixel_values", number, 4,
                                   (uint64_t[]){turn->images, 3, side, side}, error);
    if (status == G3_OK)
        status = need_floats(expected, turn->features, "image_features", number, 3,
                             (uint64_t[]){turn->images, config->vision.tokens, config->text.hidden},
                             error);
    return status;
}

/* Reads turn `number` and counts its tensors. */
static g3_status read_turn(const g3_expected *expected, uint32_t number, const g3_config *config,
                           g3_expected_turn *turn, size_t *io_tensors, g3_error *error) {
    const uint64_t vocab = config->text.vocab;
    turn->ids = find(expected->file, "turn%" PRIu32 ".input_ids", number);
    turn->logits = find(expected->file, "turn%" PRIu32 ".logits", number);
    turn->decode_ids = find(expected->file, "turn%" PRIu32 ".decode_ids", number);
    g3_status status =
        need_ids(expected, turn->ids, "input_ids", number, config, &turn->added, error);
    if (status == G3_OK)
        status =
            need_ids(expected, turn->decode_ids, "decode_ids", number, config, &turn->steps, error);
    if (status == G3_OK && turn->added == 0)
        status = g3_fail(error, G3_INVALID, "%s: turn%" PRIu32 ".input_ids is empty",
                         g3_safetensors_path(expected->file), number);
    if (status == G3_OK)
        status = need_floats(expected, turn->logits, "logits", number, 2,
                             (uint64_t[]){turn->added, vocab}, error);
    if (status == G3_OK)
        status = read_pictures(expected, number, config, turn, error);
    for (uint32_t i = 0; status == G3_OK && i < turn->steps; i++) {
        char what[32];
        (void)snprintf(what, sizeof what, "decode%" PRIu32 ".logits", i);
        status = need_floats(expected, find(expected->file, "turn%" PRIu32 ".%s", number, what),
                             what, number, 1, &vocab, error);
    }
    *io_tensors += 3 + turn->steps + (turn->pixels != NULL ? 2 : 0);
    return status;
}

static g3_status read_turns(g3_expected *expected, const g3_config *config, g3_error *error) {
    const char *path = g3_safetensors_path(expected->file);
    size_t tensors = 0;
    uint64_t positions = 0;
    expected->turns = calloc(G3_VERIFY_MAX_TURNS, sizeof *expected->turns);
    if (expected->turns == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "out of memory for the turns");
    while (expected->count < G3_VERIFY_MAX_TURNS &&
           find(expected->file, "turn%" PRIu32 ".input_ids", expected->count) != NULL) {
        g3_expected_turn *turn = &expected->turns[expected->count];
        const g3_status status =
            read_turn(expected, expected->count, config, turn, &tensors, error);
        if (status != G3_OK)
            return status;
        positions += (uint64_t)turn->added + turn->steps;
        expected->count++;
    }
    if (expected->count == 0)
        return g3_fail(error, G3_INVALID, "%s: turn0.input_ids is missing", path);
    /* Every tensor counts: one that no turn claims is a check that would not run. */
    if (tensors != g3_safetensors_count(expected->file))
        return g3_fail(error, G3_INVALID,
                       "%s has %zu tensors; its %" PRIu32 " turns account for %zu", path,
                       g3_safetensors_count(expected->file), expected->count, tensors);
    if (positions > config->text.context)
        return g3_fail(error, G3_INVALID,
                       "%s: the conversation has %" PRIu64 " positions; the model takes %" PRIu32,
                       path, positions, config->text.context);
    expected->positions = (uint32_t)positions;
    return G3_OK;
}

g3_status g3_expected_open(const char *path, const g3_config *config, g3_expected *out_expected,
                           g3_error *error) {
    *out_expected = (g3_expected){0};
    g3_status status = g3_safetensors_open(path, &out_expected->file, error);
    if (status == G3_OK)
        status = read_turns(out_expected, config, error);
    if (status != G3_OK)
        g3_expected_close(out_expected);
    return status;
}

void g3_expected_close(g3_expected *expected) {
    free(expected->turns);
    g3_safetensors_close(expected->file);
    *expected = (g3_expected){0};
}

const g3_st_tensor *g3_expected_decode(const g3_expected *expected, uint32_t turn, uint32_t step) {
    return find(expected->file, "turn%" PRIu32 ".decode%" PRIu32 ".logits", turn, step);
}

/* Adds one span for the run of placeholders that begins at `begin`. */
static g3_status add_span(const g3_expected *expected, uint32_t number, uint32_t tokens,
                          size_t begin, size_t length, g3_prompt *prompt, g3_error *error) {
    const g3_expected_turn *turn = &expected->turns[number];
    const char *path = g3_safetensors_path(expected->file);
    if (length != tokens)
        return g3_fail(error, G3_INVALID,
                       "%s: %s has a run of %zu picture tokens at %zu; a picture takes %" PRIu32,
                       path, turn->ids->name, length, begin, tokens);
    if (prompt->image_count == turn->images)
        return g3_fail(error, G3_INVALID,
                       "%s: %s has more runs of picture tokens than the %" PRIu32
                       " pictures of its turn",
                       path, turn->ids->name, turn->images);
    prompt->images[prompt->image_count] =
        (g3_image_span){.begin = begin, .tokens = length, .image = prompt->image_count};
    prompt->image_count++;
    return G3_OK;
}

static g3_status fill_prompt(const g3_expected *expected, uint32_t number, int32_t image,
                             uint32_t tokens, g3_prompt *prompt, g3_error *error) {
    const g3_expected_turn *turn = &expected->turns[number];
    g3_status status = G3_OK;
    for (uint32_t i = 0; status == G3_OK && i < turn->added; i++)
        status = g3_ids_append(&prompt->ids, (int32_t)g3_st_int(turn->ids, i), error);
    if (status != G3_OK || tokens == 0)
        return status;
    prompt->images = calloc((size_t)turn->images + 1, sizeof *prompt->images);
    if (prompt->images == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "out of memory for the pictures' places");
    for (size_t i = 0; status == G3_OK && i < turn->added;) {
        size_t end = i;
        while (end < turn->added && prompt->ids.ids[end] == image)
            end++;
        if (end > i)
            status = add_span(expected, number, tokens, i, end - i, prompt, error);
        i = end + 1;
    }
    if (status == G3_OK && prompt->image_count != turn->images)
        status = g3_fail(error, G3_INVALID,
                         "%s: %s has %zu runs of picture tokens for %" PRIu32 " pictures",
                         g3_safetensors_path(expected->file), turn->ids->name, prompt->image_count,
                         turn->images);
    return status;
}

g3_status g3_expected_prompt(const g3_expected *expected, uint32_t turn, int32_t image,
                             uint32_t tokens, g3_prompt *out_prompt, g3_error *error) {
    *out_prompt = (g3_prompt){0};
    const g3_status status = fill_prompt(expected, turn, image, tokens, out_prompt, error);
    if (status != G3_OK)
        g3_prompt_free(out_prompt);
    return status;
}
