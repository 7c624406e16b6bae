/* SPDX-License-Identifier: MIT */
/* What the lines with a slash do. */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"

void g3_chat_mistake(g3_chat *chat, const char *format, ...) {
    va_list list;
    va_start(list, format);
    (void)fflush(stdout);
    (void)fputs("gemma3: ", stderr);
    (void)vfprintf(stderr, format, list);
    (void)fputc('\n', stderr);
    va_end(list);
    chat->mistakes++;
}

static void say(const g3_chat *chat, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(const g3_chat *chat, const char *format, ...) {
    if (chat->options.quiet)
        return;
    va_list list;
    va_start(list, format);
    (void)vprintf(format, list);
    va_end(list);
    (void)fflush(stdout);
}

/* ---- Pictures ------------------------------------------------------------------- */

static g3_status read_picture(g3_chat *chat, const char *path, g3_attachment *out_picture,
                              g3_error *error) {
    g3_image whole = {0};
    g3_attachment picture = {0};
    g3_status status = g3_image_read(path, &whole, error);
    if (status == G3_OK)
        status =
            g3_image_resize(&whole, chat->model->config.vision.image_size, &picture.image, error);
    g3_image_free(&whole);
    if (status != G3_OK)
        return status;
    picture.path = strdup(path);
    if (picture.path == NULL) {
        g3_image_free(&picture.image);
        return g3_fail(error, G3_HOST_MEMORY, "no host memory for a picture");
    }
    *out_picture = picture;
    return G3_OK;
}

bool g3_chat_image(g3_chat *chat, const char *path) {
    g3_error error;
    if (!chat->model->config.vision.present) {
        g3_chat_mistake(chat, "%s: this model takes no pictures%s", path,
                        chat->options.mmproj == NULL ? " (a GGUF model needs --mmproj)" : "");
        return false;
    }
    if (chat->picture_count == G3_MAX_TEXTS) {
        g3_chat_mistake(chat, "%s: a message takes at most %d pictures", path, G3_MAX_TEXTS);
        return false;
    }
    if (read_picture(chat, path, &chat->pictures[chat->picture_count], &error) != G3_OK) {
        g3_chat_mistake(chat, "%s", error.text);
        return false;
    }
    chat->picture_count++;
    return true;
}

void g3_chat_pictures_drop(g3_chat *chat) {
    for (size_t i = 0; i < chat->picture_count; i++) {
        g3_image_free(&chat->pictures[i].image);
        free(chat->pictures[i].path);
    }
    memset(chat->pictures, 0, sizeof chat->pictures);
    chat->picture_count = 0;
}

/* ---- Memory ----------------------------------------------------------------------- */

static void forget_texts(g3_chat *chat) {
    for (size_t i = 0; i < chat->turn_count; i++) {
        free(chat->turns[i].user);
        free(chat->turns[i].answer);
        chat->turns[i].user = NULL;
        chat->turns[i].answer = NULL;
    }
}

/* Nothing is in the cache any more: the next message begins with <bos> again. */
static g3_status begin_anew(g3_chat *chat, g3_error *error) {
    chat->begun = false;
    chat->unfed = G3_NO_ID;
    return g3_session_clear(chat->session, error);
}

static void remember_clear(g3_chat *chat, const g3_clear *clear) {
    g3_clear *clears =
        (g3_clear *)realloc(chat->clears, (chat->clear_count + 1) * sizeof *chat->clears);
    if (clears == NULL)
        return;
    chat->clears = clears;
    chat->clears[chat->clear_count++] = *clear;
}

void g3_chat_clear(g3_chat *chat) {
    g3_error error;
    g3_memory_report report = {0};
    (void)g3_memory_report_get(&chat->memory, &report, NULL);
    g3_clear clear = {.after_turn = chat->turn_count,
                      .reserved_before_bytes = report.reserved_bytes};
    g3_chat_pictures_drop(chat);
    forget_texts(chat);
    chat->conversation++;
    if (begin_anew(chat, &error) != G3_OK)
        g3_chat_mistake(chat, "%s", error.text);
    if (vrp_empty_cache(chat->memory.pool, NULL) != VRP_OK)
        g3_chat_mistake(chat, "/clear: the cache could not be emptied");
    g3_recorder_mark(chat->recorder, VRP_MARKER_CLEAR);
    (void)g3_memory_report_get(&chat->memory, &report, NULL);
    clear.reserved_after_bytes = report.reserved_bytes;
    clear.allocated_after_bytes = report.allocated_bytes;
    clear.weights_bytes = report.weights_bytes;
    remember_clear(chat, &clear);
    say(chat, "[cleared: reserved %.1f MiB, was %.1f; weights %.1f MiB]\n",
        g3_mib(clear.reserved_after_bytes), g3_mib(clear.reserved_before_bytes),
        g3_mib(clear.weights_bytes));
}

void g3_chat_empty(g3_chat *chat) {
    vrp_trim_result result = {.struct_size = sizeof result};
    if (vrp_empty_cache(chat->memory.pool, &result) != VRP_OK) {
        g3_chat_mistake(chat, "/empty: the cache could not be emptied");
        return;
    }
    say(chat, "[gave back %.1f MiB; reserved %.1f MiB, %.1f MiB free but pinned]\n",
        g3_mib(result.released_bytes), g3_mib(result.reserved_bytes), g3_mib(result.pinned_bytes));
}

/* ---- Shortening --------------------------------------------------------------------- */

static bool is_in_conversation(const g3_chat *chat, const g3_turn *turn) {
    return turn->added && !turn->dropped && turn->conversation == chat->conversation;
}

/* The conversation as it would be with a turn as its first one: the turn's prompt is
 * written anew, because what stands in front of a first message may share a token with
 * its beginning. */
typedef struct plan {
    size_t first; /* index of the turn */
    bool changes; /* it is not the first one already */
    g3_prompt prompt;
    size_t dropped;
} plan;

/* The oldest turn with which at most `most` positions remain; p->first is the
 * number of turns where none can stay. */
static g3_status choose_first(const g3_chat *chat, uint64_t most, plan *p, g3_error *error) {
    const uint32_t length = g3_session_length(chat->session);
    for (size_t i = 0; i < chat->turn_count; i++) {
        const g3_turn *turn = &chat->turns[i];
        p->first = i;
        if (!is_in_conversation(chat, turn))
            continue;
        p->changes = p->dropped > 0;
        if (!p->changes && length <= most)
            return G3_OK;
        if (p->changes) {
            const g3_status status = g3_chat_prompt(chat, true, turn->user, turn->user_count,
                                                    turn->images, &p->prompt, error);
            if (status != G3_OK)
                return status;
            if (p->prompt.ids.count + (length - turn->prompt_end) <= most)
                return G3_OK;
            g3_prompt_free(&p->prompt);
        }
        p->dropped++;
    }
    p->first = chat->turn_count;
    return G3_OK;
}

/* Replaces what differs: from where the conversation stops being as it shall be, to
 * where the turn's prompt begins to be as it was. */
static g3_status put_first(g3_chat *chat, const plan *p, g3_error *error) {
    const g3_turn *first = &chat->turns[p->first];
    const int32_t *old = g3_session_ids(chat->session);
    const g3_ids *wanted = &p->prompt.ids;
    const uint32_t most = first->prompt_end - first->prompt_begin;
    uint32_t tail = 0;
    while (tail < most && tail < wanted->count &&
           old[first->prompt_end - 1 - tail] == wanted->ids[wanted->count - 1 - tail])
        tail++;
    const uint32_t old_end = first->prompt_end - tail;
    const uint32_t new_end = (uint32_t)wanted->count - tail;
    uint32_t head = 0;
    /* Pictures look alike as ids, so none of them counts as the same. */
    while (head < old_end && head < new_end && old[head] == wanted->ids[head] &&
           old[head] != chat->format.image)
        head++;
    return g3_session_replace(chat->session, head, old_end, wanted->ids + head, new_end - head,
                              error);
}

/* Takes out what lies in front of the plan's first turn. */
static g3_status drop_before(g3_chat *chat, const plan *p, g3_error *error) {
    if (!p->changes)
        return G3_OK;
    const g3_status status = put_first(chat, p, error);
    if (status != G3_OK)
        return status;
    const uint32_t old_end = chat->turns[p->first].prompt_end;
    const uint32_t new_end = (uint32_t)p->prompt.ids.count;
    for (size_t i = 0; i < chat->turn_count; i++) {
        g3_turn *turn = &chat->turns[i];
        if (!is_in_conversation(chat, turn))
            continue;
        if (i < p->first) {
            turn->dropped = true;
            continue;
        }
        turn->prompt_begin = i == p->first ? 0 : turn->prompt_begin - old_end + new_end;
        turn->prompt_end = turn->prompt_end - old_end + new_end;
    }
    return G3_OK;
}

static g3_status drop_all(g3_chat *chat, g3_error *error) {
    for (size_t i = 0; i < chat->turn_count; i++)
        if (is_in_conversation(chat, &chat->turns[i]))
            chat->turns[i].dropped = true;
    return begin_anew(chat, error);
}

void g3_chat_shorten(g3_chat *chat, uint64_t most) {
    if (most == 0)
        most = g3_session_context(chat->session) / 2;
    g3_error error;
    plan p = {0};
    g3_shortening note = {.after_turn = chat->turn_count,
                          .length_before = g3_session_length(chat->session)};
    g3_status status = choose_first(chat, most, &p, &error);
    if (status == G3_OK)
        status =
            p.first < chat->turn_count ? drop_before(chat, &p, &error) : drop_all(chat, &error);
    g3_prompt_free(&p.prompt);
    if (status != G3_OK) {
        g3_chat_mistake(chat, "/shorten: %s", error.text);
        return;
    }
    note.turns_dropped = p.dropped;
    note.length_after = g3_session_length(chat->session);
    g3_shortening *notes = (g3_shortening *)realloc(
        chat->shortenings, (chat->shortening_count + 1) * sizeof *chat->shortenings);
    if (notes != NULL) {
        chat->shortenings = notes;
        chat->shortenings[chat->shortening_count++] = note;
    }
    say(chat, "[%zu of the oldest turns dropped: %u positions, were %u]\n", note.turns_dropped,
        note.length_after, note.length_before);
}
