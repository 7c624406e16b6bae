/* SPDX-License-Identifier: MIT */
/* The conversation and how it gets into the cache. `ids` and `pictures` are the truth;
 * the cache holds the first `cached` positions of it and is brought up to date by the
 * next call that computes. */
#include "session.h"

#include <stdlib.h>
#include <string.h>

#include "session_internal.h"
#include "vision.h"

#define DEFAULT_CONTEXT 8192u
#define DEFAULT_CHUNK 512u
#define SPARE_BYTES (UINT64_C(2) << 20) /* what a buffer may take beyond what it grows by */
#define SMALLEST_CHUNK 16u              /* no further halving for want of memory */

/* ---- Life -------------------------------------------------------------------- */

g3_status g3_session_create(g3_model *model, const g3_session_options *options,
                            g3_session **out_session, g3_error *error) {
    const uint32_t most = model->config.text.context;
    if (options->context > most)
        return g3_fail(error, G3_INVALID, "a context of %u positions: the model was made for %u",
                       options->context, most);
    g3_session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "no host memory for a session");
    session->model = model;
    session->options = *options;
    if (session->options.context == 0)
        session->options.context = most < DEFAULT_CONTEXT ? most : DEFAULT_CONTEXT;
    if (session->options.chunk == 0)
        session->options.chunk = DEFAULT_CHUNK;
    g3_status status = g3_memory_scope_open(model->memory, &session->scope, error);
    if (status != G3_OK) {
        free(session);
        return status;
    }
    g3_cache_init(&session->cache, model, session->scope, session->options.context,
                  options->kv_type);
    *out_session = session;
    return G3_OK;
}

static void forget_pictures(g3_session *session, size_t from) {
    while (session->picture_count > from) {
        g3_picture *picture = &session->pictures[--session->picture_count];
        g3_memory_free(session->model->memory, picture->embedding);
        free(picture->rgb);
        free(picture->pixels);
    }
}

static void forget_everything(g3_session *session) {
    forget_pictures(session, 0);
    session->ids.count = 0;
    session->cached = 0;
    g3_cache_drop(&session->cache);
    g3_memory_scope_release(session->model->memory, session->scope);
    session->scope = 0;
}

void g3_session_destroy(g3_session *session) {
    if (session == NULL)
        return;
    forget_everything(session);
    free(session->pictures);
    g3_ids_free(&session->ids);
    free(session);
}

g3_status g3_session_clear(g3_session *session, g3_error *error) {
    forget_everything(session);
    g3_status status = g3_memory_scope_open(session->model->memory, &session->scope, error);
    g3_cache_init(&session->cache, session->model, session->scope, session->options.context,
                  session->options.kv_type);
    return status;
}

uint32_t g3_session_length(const g3_session *session) { return (uint32_t)session->ids.count; }

uint32_t g3_session_context(const g3_session *session) { return session->options.context; }

const int32_t *g3_session_ids(const g3_session *session) { return session->ids.ids; }

/* ---- Cutting back -------------------------------------------------------------- */

void g3_session_shrink(g3_session *session) {
    if (session->ids.count == 0)
        g3_cache_drop(&session->cache);
    else
        g3_cache_shrink(&session->cache, (uint32_t)session->ids.count);
}

/* Back to a conversation of so many positions and pictures; what the cache grew by for
 * more goes back too, so that a shorter message finds room. */
static void restore(g3_session *session, size_t ids, size_t pictures) {
    forget_pictures(session, pictures);
    session->ids.count = ids;
    g3_session_cut_cache(session, (uint32_t)ids);
    g3_session_shrink(session);
}

static g3_status ensure_tentatively(g3_session *session, uint32_t positions, g3_error *error) {
    g3_memory *memory = session->model->memory;
    memory->tentative = true;
    const g3_status status = g3_cache_ensure(&session->cache, positions, error);
    memory->tentative = false;
    return status;
}

g3_status g3_session_reserve(g3_session *session, uint32_t positions, g3_error *error) {
    g3_memory *memory = session->model->memory;
    g3_status status = g3_session_check_room(session, positions, error);
    uint64_t free_bytes = 0, total = 0;
    if (status != G3_OK)
        return status;
    /* What the device has free is taken; nothing idle is given up for it. */
    if (vrp_pool_device_memory_get(memory->pool, &free_bytes, &total) != VRP_OK ||
        free_bytes < g3_cache_growth(&session->cache, positions) + SPARE_BYTES)
        return g3_fail(error, G3_DEVICE_MEMORY, "no free device memory for %u positions",
                       positions);
    return ensure_tentatively(session, positions, error);
}

bool g3_session_has_room(g3_session *session) {
    const uint32_t length = (uint32_t)session->ids.count;
    const bool has =
        length < session->options.context && ensure_tentatively(session, length + 1, NULL) == G3_OK;
    g3_session_shrink(session);
    return has;
}

/* ---- Taking a prompt in ---------------------------------------------------------- */

static g3_status check_spans(const g3_session *session, const g3_prompt *prompt, g3_error *error) {
    const uint32_t tokens = session->model->config.vision.tokens;
    size_t end = 0;
    for (size_t i = 0; i < prompt->image_count; i++) {
        const g3_image_span *span = &prompt->images[i];
        if (!session->model->config.vision.present)
            return g3_fail(error, G3_INVALID, "the model takes no pictures");
        if (span->tokens != tokens)
            return g3_fail(error, G3_INVALID, "picture %zu has %zu positions, the model gives %u",
                           i + 1, span->tokens, tokens);
        if (span->begin < end || span->begin > prompt->ids.count ||
            prompt->ids.count - span->begin < tokens || span->image >= prompt->image_count)
            return g3_fail(error, G3_INVALID, "the place of picture %zu is not in the prompt",
                           i + 1);
        end = span->begin + tokens;
    }
    return G3_OK;
}

static g3_status check_ids(const g3_session *session, const g3_prompt *prompt, g3_error *error) {
    size_t next = 0;
    for (size_t i = 0; i < prompt->ids.count; i++) {
        if (next < prompt->image_count && i == prompt->images[next].begin) {
            i += prompt->images[next++].tokens - 1;
            continue;
        }
        g3_status status = g3_session_check_id(session, prompt->ids.ids[i], i, error);
        if (status != G3_OK)
            return status;
    }
    return G3_OK;
}

static g3_status keep_picture(g3_session *session, g3_picture picture, g3_error *error) {
    if (session->picture_count == session->picture_capacity) {
        const size_t capacity = session->picture_capacity * 2 + 4;
        g3_picture *grown = realloc(session->pictures, capacity * sizeof *grown);
        if (grown == NULL)
            return g3_fail(error, G3_HOST_MEMORY, "no host memory for a picture");
        session->pictures = grown;
        session->picture_capacity = capacity;
    }
    session->pictures[session->picture_count++] = picture;
    return G3_OK;
}

/* A picture's copy: resized bytes, or the floats as they are. */
static g3_status copy_picture(g3_session *session, const g3_image *image, const float *pixels,
                              g3_picture *picture, g3_error *error) {
    const uint32_t side = session->model->config.vision.image_size;
    if (image != NULL) {
        g3_image resized = {0};
        g3_status status = g3_image_resize(image, side, &resized, error);
        picture->rgb = resized.rgb;
        return status;
    }
    const size_t bytes = (size_t)3 * side * side * sizeof(float);
    picture->pixels = malloc(bytes);
    if (picture->pixels == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "no host memory for a picture");
    memcpy(picture->pixels, pixels, bytes);
    return G3_OK;
}

static g3_status take_pictures(g3_session *session, const g3_prompt *prompt, const g3_image *images,
                               const float *pixels, g3_error *error) {
    const size_t side = session->model->config.vision.image_size;
    for (size_t i = 0; i < prompt->image_count; i++) {
        const g3_image_span *span = &prompt->images[i];
        g3_picture picture = {.begin = (uint32_t)(session->ids.count + span->begin),
                              .tokens = (uint32_t)span->tokens};
        if (images == NULL && pixels == NULL)
            return g3_fail(error, G3_INVALID, "the prompt has pictures, but none were given");
        g3_status status = copy_picture(
            session, images == NULL ? NULL : &images[span->image],
            pixels == NULL ? NULL : pixels + span->image * 3 * side * side, &picture, error);
        if (status == G3_OK)
            status = keep_picture(session, picture, error);
        if (status != G3_OK) {
            free(picture.rgb);
            free(picture.pixels);
            return status;
        }
    }
    return G3_OK;
}

/* Appends a prompt to the conversation, computing nothing. The caller restores. */
static g3_status take(g3_session *session, const g3_prompt *prompt, const g3_image *images,
                      const float *pixels, g3_error *error) {
    if (prompt->ids.count == 0)
        return g3_fail(error, G3_INVALID, "an empty prompt");
    g3_status status =
        g3_session_check_room(session, (uint64_t)session->ids.count + prompt->ids.count, error);
    if (status == G3_OK)
        status = check_spans(session, prompt, error);
    if (status == G3_OK)
        status = check_ids(session, prompt, error);
    if (status == G3_OK)
        status = take_pictures(session, prompt, images, pixels, error);
    for (size_t i = 0; i < prompt->ids.count && status == G3_OK; i++)
        status = g3_ids_append(&session->ids, prompt->ids.ids[i], error);
    return status;
}

/* ---- Computing -------------------------------------------------------------------- */

/* Whose logits are wanted: positions from `from` on. */
typedef struct wish {
    size_t from;
    g3_logits_fn fn;
    void *user;
    float *features; /* of the pictures in [first_picture, ...) */
    size_t first_picture;
    size_t base; /* index of the first wanted position of the chunk at work */
} wish;

static int pass_on(void *user, size_t index, const float *logits) {
    wish *wanted = user;
    return wanted->fn(wanted->user, wanted->base + index, logits);
}

/* The end of the chunk that begins at `first`: at most `limit` positions, but pictures
 * stay whole. */
static size_t chunk_end(const g3_session *session, size_t first, size_t limit) {
    size_t end = session->ids.count - first < limit ? session->ids.count : first + limit;
    for (size_t i = 0; i < session->picture_count; i++) {
        const size_t begin = session->pictures[i].begin;
        const size_t last = begin + session->pictures[i].tokens;
        if (end > begin && end < last)
            return begin > first ? begin : last;
    }
    return end;
}

static g3_status encode_picture(g3_session *session, g3_picture *picture, g3_error *error) {
    const g3_vision_config *config = &session->model->config.vision;
    const size_t count = (size_t)3 * config->image_size * config->image_size;
    vrp_devptr pixels = 0;
    g3_status status = g3_memory_alloc(session->model->memory, count * sizeof(float),
                                       VRP_TAG_VISION, session->scope, &pixels, error);
    if (status != G3_OK)
        return g3_fail_in(error, status, "the pixels of a picture");
    if (picture->pixels != NULL) {
        memcpy(g3_host(pixels), picture->pixels, count * sizeof(float));
    } else {
        const g3_image image = {config->image_size, config->image_size, picture->rgb};
        g3_image_normalise(&image, config->mean, config->std, g3_host(pixels));
    }
    status =
        g3_vision_encode(session->model, session->scope, g3_host(pixels), session->options.stop,
                         session->options.user, &picture->embedding, error);
    g3_memory_free(session->model->memory, pixels);
    return status;
}

static g3_status encode_pictures(g3_session *session, size_t first, size_t end, wish *wanted,
                                 g3_error *error) {
    const size_t count =
        (size_t)session->model->config.vision.tokens * session->model->config.text.hidden;
    for (size_t i = 0; i < session->picture_count; i++) {
        g3_picture *picture = &session->pictures[i];
        if (picture->begin < first || picture->begin >= end || picture->embedding != 0)
            continue;
        g3_status status = encode_picture(session, picture, error);
        if (status != G3_OK)
            return status;
        if (wanted->features != NULL && i >= wanted->first_picture)
            memcpy(wanted->features + (i - wanted->first_picture) * count,
                   g3_host(picture->embedding), count * sizeof(float));
    }
    return G3_OK;
}

/* Pictures that are in the cache no longer need their embeddings. */
static void free_embeddings(g3_session *session, size_t end) {
    for (size_t i = 0; i < session->picture_count; i++) {
        g3_picture *picture = &session->pictures[i];
        if (picture->begin >= end)
            continue;
        g3_memory_free(session->model->memory, picture->embedding);
        picture->embedding = 0;
    }
}

static g3_status run_chunk(g3_session *session, size_t end, wish *wanted, g3_error *error) {
    const size_t first = session->cached;
    g3_status status = encode_pictures(session, first, end, wanted, error);
    if (status != G3_OK)
        return status;
    const size_t from = wanted->from > first ? wanted->from : first;
    g3_chunk chunk = {.first = first,
                      .n = end - first,
                      .ids = session->ids.ids,
                      .pictures = session->pictures,
                      .picture_count = session->picture_count,
                      .logits = wanted->fn != NULL && end > from ? end - from : 0,
                      .fn = pass_on,
                      .user = wanted};
    wanted->base = from - wanted->from;
    status = g3_forward(session->model, &session->cache, &chunk, error);
    if (status == G3_OK || status == G3_STOPPED)
        session->cached = (uint32_t)end;
    return status;
}

/* Brings the cache up to the conversation. A chunk that finds no memory is tried in
 * smaller ones; what was computed before it stays. */
static g3_status compute(g3_session *session, wish *wanted, g3_error *error) {
    size_t limit = session->options.chunk;
    g3_status status = g3_cache_ensure(&session->cache, (uint32_t)session->ids.count, error);
    while (status == G3_OK && session->cached < session->ids.count) {
        if (session->options.stop != NULL && session->options.stop(session->options.user) != 0)
            return g3_fail(error, G3_STOPPED, "stopped");
        const size_t end = chunk_end(session, session->cached, limit);
        status = run_chunk(session, end, wanted, error);
        if (status == G3_OK)
            free_embeddings(session, end);
        while (status == G3_DEVICE_MEMORY && limit > SMALLEST_CHUNK) {
            limit = limit / 2 > SMALLEST_CHUNK ? limit / 2 : SMALLEST_CHUNK;
            if (chunk_end(session, session->cached, limit) < end) {
                status = G3_OK;
                session->model->memory->retries++;
            }
        }
    }
    free_embeddings(session, SIZE_MAX);
    if (status == G3_OK && error != NULL)
        error->text[0] = '\0'; /* of a step that went through in smaller ones */
    return status;
}

static int copy_logits(void *user, size_t index, const float *logits) {
    const struct {
        float *out;
        size_t count;
    } *target = user;
    (void)index;
    memcpy(target->out, logits, target->count * sizeof *logits);
    return 0;
}

g3_status g3_session_prefill(g3_session *session, const g3_prompt *prompt, const g3_image *images,
                             float *out_logits, g3_error *error) {
    const size_t ids = session->ids.count, pictures = session->picture_count;
    struct {
        float *out;
        size_t count;
    } target = {out_logits, session->model->output.rows};
    g3_status status = take(session, prompt, images, NULL, error);
    if (status == G3_OK) {
        wish wanted = {.from = session->ids.count - 1,
                       .fn = out_logits == NULL ? NULL : copy_logits,
                       .user = &target};
        status = compute(session, &wanted, error);
    }
    if (status != G3_OK)
        restore(session, ids, pictures);
    return status;
}

g3_status g3_session_decode(g3_session *session, int32_t id, float *out_logits, g3_error *error) {
    const g3_prompt prompt = {.ids = {.ids = &id, .count = 1, .capacity = 1}};
    return g3_session_prefill(session, &prompt, NULL, out_logits, error);
}

g3_status g3_session_evaluate(g3_session *session, const g3_prompt *prompt, const float *pixels,
                              float *features, g3_logits_fn fn, void *user, g3_error *error) {
    const size_t ids = session->ids.count, pictures = session->picture_count;
    g3_status status = take(session, prompt, NULL, pixels, error);
    if (status == G3_OK) {
        wish wanted = {
            .from = ids, .fn = fn, .user = user, .features = features, .first_picture = pictures};
        status = compute(session, &wanted, error);
    }
    if (status != G3_OK)
        restore(session, ids, pictures);
    return status;
}
