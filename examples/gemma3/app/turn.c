/* SPDX-License-Identifier: MIT */
/* One turn: a message goes in, an answer comes out, the memory is looked at. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "clock.h"

#define ANSWER_AHEAD 512u /* tokens of an answer whose cache is backed beforehand */

const char *g3_end_text(g3_end end) {
    switch (end) {
    case G3_END_TURN:
        return "end of turn";
    case G3_END_MAX_TOKENS:
        return "max tokens";
    case G3_END_INTERRUPTED:
        return "interrupted";
    case G3_END_CONTEXT:
        return "context full";
    case G3_END_MEMORY:
        return "out of memory";
    case G3_END_FAILED:
        return "failed";
    }
    return "unknown";
}

static g3_end end_of(g3_status status) {
    if (status == G3_STOPPED)
        return G3_END_INTERRUPTED;
    if (status == G3_CONTEXT_FULL)
        return G3_END_CONTEXT;
    return status == G3_DEVICE_MEMORY ? G3_END_MEMORY : G3_END_FAILED;
}

/* ---- What happens inside a turn ------------------------------------------------ */

typedef struct marks {
    uint64_t trims, trimmed_bytes, retries;
} marks;

static marks take_marks(g3_chat *chat) {
    vrp_stats stats = {.struct_size = sizeof stats};
    if (vrp_pool_stats_get(chat->memory.pool, &stats) != VRP_OK)
        memset(&stats, 0, sizeof stats);
    return (marks){stats.trims, stats.trimmed_bytes, chat->memory.retries};
}

static uint64_t tag_peak(g3_chat *chat, vrp_tag tag) {
    vrp_group_stats stats = {.struct_size = sizeof stats};
    if (vrp_tag_stats_get(chat->memory.pool, (int32_t)tag, &stats) != VRP_OK)
        return 0;
    return stats.allocated_bytes.peak;
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void measure(g3_chat *chat, g3_turn *turn, const marks *before) {
    const marks after = take_marks(chat);
    turn->trims_inside = after.trims - before->trims;
    turn->released_inside_bytes = after.trimmed_bytes - before->trimmed_bytes;
    turn->retries = after.retries - before->retries;
    turn->peak_activation_bytes = tag_peak(chat, VRP_TAG_ACTIVATION);
    turn->peak_vision_bytes = tag_peak(chat, VRP_TAG_VISION);
    /* What the device has done by now is idle, not pending. */
    if (vrp_pool_poll(chat->memory.pool) != VRP_OK)
        g3_chat_mistake(chat, "the pool could not be asked");
    turn->length = g3_session_length(chat->session);
    (void)g3_memory_report_get(&chat->memory, &turn->memory, NULL);
    chat->peak_allocated_bytes =
        larger(chat->peak_allocated_bytes, turn->memory.peak_allocated_bytes);
    chat->peak_reserved_bytes = larger(chat->peak_reserved_bytes, turn->memory.peak_reserved_bytes);
}

/* ---- The answer ------------------------------------------------------------------- */

/* The blank after a speaker's name belongs to the format. */
static size_t leading_blanks(const g3_chat *chat, const g3_string *out) {
    size_t count = 0;
    while (chat->format.style == G3_STYLE_DIALOGUE && count < out->count &&
           out->bytes[count] == ' ')
        count++;
    return count;
}

static void print_new(const g3_chat *chat, const g3_string *out, size_t *printed) {
    const size_t blanks = leading_blanks(chat, out);
    if (*printed < blanks)
        *printed = blanks;
    (void)fwrite(out->bytes + *printed, 1, out->count - *printed, stdout);
    (void)fflush(stdout);
    *printed = out->count;
}

static g3_status choose(g3_chat *chat, int32_t *out_id, g3_error *error) {
    size_t count = g3_tokenizer_size(chat->tokenizer);
    if (count > chat->model->config.text.vocab)
        count = chat->model->config.text.vocab;
    /* A placeholder stands for a picture, and a model has none to give. */
    if (chat->format.image >= 0 && (size_t)chat->format.image < count)
        chat->logits[chat->format.image] = -INFINITY;
    return g3_sample(&chat->sampler, chat->logits, count, chat->candidates, out_id, error);
}

/* In a dialogue an answer is one paragraph: a newline gives the floor back. */
static bool ends_answer(const g3_chat *chat, int32_t id) {
    if (g3_stops_has(&chat->stops, id))
        return true;
    size_t count = 0;
    const char *piece = g3_tokenizer_piece(chat->tokenizer, id, &count);
    return chat->format.style == G3_STYLE_DIALOGUE && count > 0 && piece[0] == '\n';
}

/* Tokens until something ends the answer; every one is printed as soon as its
 * characters are whole. */
static g3_status speak(g3_chat *chat, g3_turn *turn, g3_stream_decoder *decoder, g3_string *out) {
    size_t printed = 0;
    turn->end = G3_END_FAILED;
    for (;;) {
        int32_t id = G3_NO_ID;
        g3_status status = choose(chat, &id, &turn->error);
        if (status != G3_OK)
            return status;
        if (ends_answer(chat, id)) {
            turn->end = G3_END_TURN;
            turn->stop_id = id;
            return G3_OK;
        }
        status = g3_stream_decode(decoder, chat->tokenizer, id, out, &turn->error);
        if (status != G3_OK)
            return status;
        turn->new_tokens++;
        chat->unfed = id;
        if (out->count > printed)
            print_new(chat, out, &printed);
        if (turn->new_tokens >= chat->options.max_tokens) {
            turn->end = G3_END_MAX_TOKENS;
            return G3_OK;
        }
        if (g3_interrupt_count() > 0) {
            turn->end = G3_END_INTERRUPTED;
            return G3_OK;
        }
        status = g3_session_decode(chat->session, id, chat->logits, &turn->error);
        if (status != G3_OK) {
            turn->end = end_of(status);
            /* An id that cannot be taken would be refused with every message to come. */
            if (status == G3_INVALID)
                chat->unfed = G3_NO_ID;
            return status;
        }
        chat->unfed = G3_NO_ID;
    }
}

static void answer(g3_chat *chat, g3_turn *turn) {
    g3_stream_decoder decoder = {0};
    g3_string out = {0};
    const double begin = g3_now();
    (void)speak(chat, turn, &decoder, &out);
    turn->answer_seconds = g3_now() - begin;
    size_t printed = out.count;
    if (g3_stream_finish(&decoder, &out, NULL) == G3_OK && out.count > printed)
        print_new(chat, &out, &printed);
    (void)putchar('\n');
    const size_t blanks = leading_blanks(chat, &out);
    if (blanks > 0) {
        memmove(out.bytes, out.bytes + blanks, out.count - blanks);
        out.count -= blanks;
        out.bytes[out.count] = '\0';
    }
    turn->answer = out.bytes;
    turn->answer_count = out.count;
}

/* ---- The message ---------------------------------------------------------------- */

/* The cache of the answer is backed before its first token: no token waits for the
 * driver. An answer that may become very long grows it again; one that would not fit
 * begins all the same. */
static void back_answer(g3_chat *chat) {
    const size_t answer =
        chat->options.max_tokens < ANSWER_AHEAD ? (size_t)chat->options.max_tokens : ANSWER_AHEAD;
    const size_t most = g3_session_context(chat->session);
    const size_t wanted = g3_session_length(chat->session) + answer;
    (void)g3_session_reserve(chat->session, (uint32_t)(wanted < most ? wanted : most), NULL);
}

/* The message into the conversation; on failure the conversation is as before. */
static g3_status ask(g3_chat *chat, g3_turn *turn) {
    g3_prompt prompt = {0};
    g3_status status = g3_chat_prompt(chat, !chat->begun, turn->user, turn->user_count,
                                      turn->images, &prompt, &turn->error);
    if (status != G3_OK)
        return status;
    g3_image images[G3_MAX_TEXTS];
    for (size_t i = 0; i < turn->images; i++)
        images[i] = chat->pictures[i].image;
    const uint32_t length = g3_session_length(chat->session);
    const double begin = g3_now();
    status = g3_session_prefill(chat->session, &prompt, images, chat->logits, &turn->error);
    if (status == G3_OK)
        back_answer(chat);
    turn->prompt_seconds = g3_now() - begin;
    turn->prompt_tokens = prompt.ids.count;
    turn->prompt_begin = length;
    turn->prompt_end = length + (uint32_t)prompt.ids.count;
    g3_prompt_free(&prompt);
    if (status != G3_OK)
        return status;
    turn->added = true;
    chat->begun = true;
    chat->unfed = G3_NO_ID;
    return G3_OK;
}

static g3_turn *new_turn(g3_chat *chat, const char *text, size_t count) {
    if (chat->turn_count == chat->turn_room) {
        const size_t room = chat->turn_room == 0 ? 16 : chat->turn_room * 2;
        g3_turn *turns = (g3_turn *)realloc(chat->turns, room * sizeof *turns);
        if (turns == NULL)
            return NULL;
        chat->turns = turns;
        chat->turn_room = room;
    }
    char *user = (char *)malloc(count + 1);
    if (user == NULL)
        return NULL;
    memcpy(user, text, count);
    g3_turn *turn = &chat->turns[chat->turn_count];
    memset(turn, 0, sizeof *turn);
    turn->index = ++chat->turn_count;
    turn->conversation = chat->conversation;
    turn->stop_id = G3_NO_ID;
    turn->user_count = g3_template_clean(user, count);
    user[turn->user_count] = '\0';
    turn->user = user;
    turn->images = chat->picture_count;
    return turn;
}

/* ---- What is said about it ------------------------------------------------------- */

/* Where nothing is in the conversation, nothing in it can make room. */
static const char *advice_for_empty(g3_chat *chat, const g3_turn *turn) {
    if (turn->end == G3_END_CONTEXT)
        return "Go on with a shorter message, or begin again with a larger --ctx.";
    /* If that does not fit, a shorter message does not either. */
    if (!g3_session_has_room(chat->session))
        return "No message fits beside the weights. Begin again with a smaller --ctx or a larger "
               "device.";
    return "Go on with a shorter message, or begin again with a smaller --ctx or --chunk, or a "
           "larger device.";
}

static void tell_failure(g3_chat *chat, const g3_turn *turn) {
    (void)fflush(stdout);
    if (turn->end == G3_END_FAILED) {
        g3_chat_mistake(chat, "%s", turn->error.text);
        return;
    }
    (void)fprintf(stderr, "gemma3: %s\n", turn->error.text);
    chat->refused++;
    if (turn->end == G3_END_MEMORY)
        g3_report_layers(&turn->memory);
    (void)fflush(stdout);
    if (turn->length == 0) {
        (void)fprintf(stderr, "The conversation is still empty. %s\n",
                      advice_for_empty(chat, turn));
        return;
    }
    (void)fprintf(stderr,
                  "The conversation is whole with %u positions%s. Go on with a shorter message, "
                  "/shorten the conversation, or /clear it.\n",
                  turn->length,
                  turn->added        ? "; the answer stops here"
                  : turn->images > 0 ? "; the last message and its pictures are not in it"
                                     : "; the last message is not in it");
}

static void tell(g3_chat *chat, const g3_turn *turn) {
    if (turn->end == G3_END_MEMORY || turn->end == G3_END_CONTEXT || turn->end == G3_END_FAILED)
        tell_failure(chat, turn);
    else if (chat->options.quiet)
        return;
    else if (turn->end == G3_END_INTERRUPTED)
        (void)printf("[stopped%s]\n", turn->added        ? ""
                                      : turn->images > 0 ? ": the message and its pictures were "
                                                           "not added"
                                                         : ": the message was not added");
    else if (turn->end == G3_END_MAX_TOKENS)
        (void)printf("[cut after %zu tokens]\n", turn->new_tokens);
}

void g3_chat_turn(g3_chat *chat, const char *text, size_t count) {
    g3_turn *turn = new_turn(chat, text, count);
    if (turn == NULL) {
        g3_chat_mistake(chat, "no host memory for a turn");
        return;
    }
    g3_interrupt_reset();
    if (vrp_pool_peaks_reset(chat->memory.pool) != VRP_OK)
        g3_chat_mistake(chat, "the pool's peaks could not be reset");
    const marks before = take_marks(chat);
    const g3_status status = ask(chat, turn);
    if (status == G3_OK)
        answer(chat, turn);
    else
        turn->end = end_of(status);
    g3_chat_pictures_drop(chat);
    g3_session_shrink(chat->session);
    measure(chat, turn, &before);
    g3_recorder_mark(chat->recorder, VRP_MARKER_TURN);
    g3_chat_boundary(chat, turn);
    (void)g3_memory_report_get(&chat->memory, &turn->after, NULL);
    tell(chat, turn);
    if (chat->options.stats)
        g3_report_turn(chat, turn);
    (void)fflush(stdout);
}
