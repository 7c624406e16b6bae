/* SPDX-License-Identifier: MIT */
/* Changing what is in a conversation already. */
#include <stdlib.h>
#include <string.h>

#include "session_internal.h"

/* The cache keeps no position at or beyond `length`. A ring that has wrapped no longer
 * holds what the positions before would have to see: then all is made anew. */
void g3_session_cut_cache(g3_session *session, uint32_t length) {
    if (session->cached <= length)
        return;
    const bool wrapped = session->cache.local_layers > 0 && session->cached > session->cache.slots;
    session->cached = wrapped ? 0 : length;
}

/* An id that has a row of its own in the embedding, and is not the placeholder of a
 * picture that nobody gave. */
g3_status g3_session_check_id(const g3_session *session, int32_t id, size_t at, g3_error *error) {
    const g3_config *config = &session->model->config;
    if (id == config->tokens.image && config->vision.present)
        return g3_fail(error, G3_INVALID,
                       "position %zu of the prompt is a picture's, but no picture is there", at);
    if (id < 0 || (uint32_t)id >= config->text.vocab)
        return g3_fail(error, G3_INVALID, "id %d at position %zu: the vocabulary has %u", id, at,
                       config->text.vocab);
    return G3_OK;
}

g3_status g3_session_check_room(const g3_session *session, uint64_t positions, g3_error *error) {
    if (positions <= session->options.context)
        return G3_OK;
    return g3_fail(error, G3_CONTEXT_FULL,
                   "the conversation would have %llu positions, the context has %u",
                   (unsigned long long)positions, session->options.context);
}

static bool inside_picture(const g3_session *session, uint32_t position) {
    for (size_t i = 0; i < session->picture_count; i++) {
        const g3_picture *picture = &session->pictures[i];
        if (position > picture->begin && position < picture->begin + picture->tokens)
            return true;
    }
    return false;
}

static g3_status check_replace(const g3_session *session, uint32_t begin, uint32_t end,
                               const int32_t *ids, size_t count, g3_error *error) {
    if (begin > end || end > session->ids.count)
        return g3_fail(error, G3_INVALID, "positions %u to %u of a conversation of %zu", begin, end,
                       session->ids.count);
    if (inside_picture(session, begin) || inside_picture(session, end))
        return g3_fail(error, G3_INVALID, "positions %u to %u would cut a picture", begin, end);
    g3_status status =
        g3_session_check_room(session, (uint64_t)session->ids.count - (end - begin) + count, error);
    for (size_t i = 0; i < count && status == G3_OK; i++)
        status = g3_session_check_id(session, ids[i], i, error);
    return status;
}

/* The pictures of [begin, end) are gone, those behind move to where `count` positions
 * more would be. */
static void move_pictures(g3_session *session, uint32_t begin, uint32_t end, uint32_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < session->picture_count; i++) {
        g3_picture picture = session->pictures[i];
        if (picture.begin >= begin && picture.begin < end) {
            free(picture.rgb);
            free(picture.pixels);
            continue;
        }
        if (picture.begin >= end)
            picture.begin = picture.begin - end + begin + count;
        session->pictures[kept++] = picture;
    }
    session->picture_count = kept;
}

g3_status g3_session_replace(g3_session *session, uint32_t begin, uint32_t end, const int32_t *ids,
                             size_t count, g3_error *error) {
    g3_status status = check_replace(session, begin, end, ids, count, error);
    const size_t old = session->ids.count, behind = old - end;
    while (status == G3_OK && session->ids.count < begin + count + behind)
        status = g3_ids_append(&session->ids, 0, error);
    if (status != G3_OK) {
        session->ids.count = old;
        return status;
    }
    if (begin == end && count == 0)
        return G3_OK;
    move_pictures(session, begin, end, (uint32_t)count);
    memmove(session->ids.ids + begin + count, session->ids.ids + end,
            behind * sizeof *session->ids.ids);
    if (count > 0)
        memcpy(session->ids.ids + begin, ids, count * sizeof *ids);
    session->ids.count = begin + count + behind;
    g3_session_cut_cache(session, begin);
    g3_session_shrink(session);
    return G3_OK;
}

g3_status g3_session_drop(g3_session *session, uint32_t begin, uint32_t end, g3_error *error) {
    return g3_session_replace(session, begin, end, NULL, 0, error);
}
