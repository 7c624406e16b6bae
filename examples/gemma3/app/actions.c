/* SPDX-License-Identifier: MIT */
/* What the lines with a slash do. */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"

static double mib(uint64_t bytes) { return (double)bytes / 1048576.0; }

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
        mib(clear.reserved_after_bytes), mib(clear.reserved_before_bytes),
        mib(clear.weights_bytes));
}

void g3_chat_empty(g3_chat *chat) {
    vrp_trim_result result = {.struct_size = sizeof result};
    if (vrp_empty_cache(chat->memory.pool, &result) != VRP_OK) {
        g3_chat_mistake(chat, "/empty: the cache could not be emptied");
        return;
    }
    say(chat, "[gave back %.1f MiB; reserved %.1f MiB, %.1f MiB free but pinned]\n",
        mib(result.released_bytes), mib(result.reserved_bytes), mib(result.pinned_bytes));
}

/* ---- Shortening --------------------------------------------------------------------- */

static bool is_in_conversation(const g3_chat *chat, const g3_turn *turn) {
    return turn->added && !turn->dropped && turn->conversation == chat->conversation;
}

/* The turn that shall be the oldest for at most `most` positions; NULL: none can stay.
 * *out_from: where the oldest one's own text begins now. */
static g3_turn *oldest_to_stay(g3_chat *chat, uint64_t most, uint32_t *out_from,
                               size_t *out_dropped) {
    const uint32_t length = g3_session_length(chat->session);
    bool any = false;
    *out_dropped = 0;
    for (size_t i = 0; i < chat->turn_count; i++) {
        g3_turn *turn = &chat->turns[i];
        if (!is_in_conversation(chat, turn))
            continue;
        if (!any)
            *out_from = turn->lead;
        const uint32_t gone = any ? turn->content - *out_from : 0;
        any = true;
        if (length - gone <= most)
            return turn;
        *out_dropped += 1;
    }
    return NULL;
}

/* Takes out what lies in front of a turn's own text, from `from` on. */
static g3_status drop_before(g3_chat *chat, const g3_turn *first, uint32_t from, g3_error *error) {
    const uint32_t end = first->content;
    if (end < from)
        return G3_OK; /* it is the oldest one already */
    const g3_status status = g3_session_drop(chat->session, from, end, error);
    if (status != G3_OK)
        return status;
    for (size_t i = 0; i < chat->turn_count; i++) {
        g3_turn *turn = &chat->turns[i];
        if (!is_in_conversation(chat, turn))
            continue;
        if (turn->content < end) {
            turn->dropped = true;
            continue;
        }
        turn->lead = turn == first ? from : turn->lead - (end - from);
        turn->content -= end - from;
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
    uint32_t from = 0;
    g3_shortening note = {.after_turn = chat->turn_count,
                          .length_before = g3_session_length(chat->session)};
    const g3_turn *first = oldest_to_stay(chat, most, &from, &note.turns_dropped);
    const g3_status status =
        first != NULL ? drop_before(chat, first, from, &error) : drop_all(chat, &error);
    if (status != G3_OK) {
        g3_chat_mistake(chat, "/shorten: %s", error.text);
        return;
    }
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
