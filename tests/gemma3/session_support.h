/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_SESSION_SUPPORT_H
#define GEMMA3_SESSION_SUPPORT_H

/* A small checkpoint loaded on a simulated device, and prompts of random ids. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vrp_test.h"

#include "engine/session.h"
#include "vrampool/inspect.h"

typedef struct loaded {
    g3_memory memory;
    g3_model *model;
} loaded;

static inline void load(loaded *l, const char *name, const char *device, g3_fault fault) {
    char path[512];
    g3_error error = {{0}};
    g3_checkpoint *checkpoint = NULL;
    (void)snprintf(path, sizeof path, "%s/tests/golden/%s", VRPT_SOURCE_DIR, name);
    if (g3_checkpoint_open(path, NULL, &checkpoint, &error) != G3_OK)
        fail_msg("%s", error.text);
    if (g3_memory_open(device, VRP_BACKING_AUTO, &l->memory, &error) != G3_OK)
        fail_msg("%s", error.text);
    if (g3_model_load(&l->memory, checkpoint, G3_FLOAT32, fault, NULL, NULL, &l->model, &error) !=
        G3_OK)
        fail_msg("%s", error.text);
    g3_checkpoint_close(checkpoint);
}

/* The ending: the pool is sound, the model's scope gives everything back, and the
 * device has nothing left. */
static inline void unload(loaded *l) {
    g3_error error = {{0}};
    if (vrp_pool_check(l->memory.pool) != VRP_OK)
        fail_msg("the pool is not sound");
    g3_model_free(l->model);
    uint64_t left = 1;
    if (g3_memory_close(&l->memory, &left, &error) != G3_OK)
        fail_msg("%s", error.text);
    assert_int_equal(left, 0);
}

static inline g3_session *open_session(loaded *l, uint32_t context, uint32_t chunk) {
    g3_session *session = NULL;
    g3_error error = {{0}};
    const g3_session_options options = {.context = context, .chunk = chunk, .kv_type = G3_KV_F32};
    if (g3_session_create(l->model, &options, &session, &error) != G3_OK)
        fail_msg("%s", error.text);
    return session;
}

/* The same ids for the same seed; <bos> is not among them. */
static inline void random_prompt(const loaded *l, uint32_t seed, size_t count, g3_prompt *prompt) {
    *prompt = (g3_prompt){0};
    uint32_t state = seed * 2654435761u + 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        const uint32_t range = l->model->config.text.vocab - 6;
        assert_int_equal(g3_ids_append(&prompt->ids, (int32_t)(3 + (state >> 8) % range), NULL),
                         G3_OK);
    }
}

/* Puts a picture of the model's size into the prompt at `at`. */
static inline void insert_picture(const loaded *l, g3_prompt *prompt, size_t at) {
    const uint32_t tokens = l->model->config.vision.tokens;
    for (uint32_t i = 0; i < tokens; i++)
        assert_int_equal(g3_ids_append(&prompt->ids, 0, NULL), G3_OK);
    memmove(prompt->ids.ids + at + tokens, prompt->ids.ids + at,
            (prompt->ids.count - tokens - at) * sizeof *prompt->ids.ids);
    for (uint32_t i = 0; i < tokens; i++)
        prompt->ids.ids[at + i] = l->model->config.tokens.image;
    prompt->images = realloc(prompt->images, (prompt->image_count + 1) * sizeof *prompt->images);
    assert_non_null(prompt->images);
    prompt->images[prompt->image_count] =
        (g3_image_span){.begin = at, .tokens = tokens, .image = prompt->image_count};
    prompt->image_count++;
}

/* A picture of any size with contents of its own. */
static inline g3_image make_image(uint32_t seed, uint32_t width, uint32_t height) {
    g3_image image = {width, height, malloc((size_t)3 * width * height)};
    assert_non_null(image.rgb);
    uint32_t state = seed + 7;
    for (size_t i = 0; i < (size_t)3 * width * height; i++) {
        state = state * 1664525u + 1013904223u;
        image.rgb[i] = (uint8_t)(state >> 24);
    }
    return image;
}

static inline float *new_logits(const loaded *l) {
    float *logits = calloc(l->model->output.rows, sizeof *logits);
    assert_non_null(logits);
    return logits;
}

#define assert_ok(call)                                               \
    do {                                                              \
        g3_error ok_error = {{0}};                                    \
        g3_error *error = &ok_error;                                  \
        if ((call) != G3_OK)                                          \
            fail_msg("%s:%d: %s", __FILE__, __LINE__, ok_error.text); \
    } while (0)

#endif
