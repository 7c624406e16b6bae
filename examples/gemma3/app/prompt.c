/* SPDX-License-Identifier: MIT */
/* What a message adds to the conversation, and which tokens end an answer. */

#include "chat.h"

static void add_stop(g3_stops *stops, int32_t id) {
    if (id >= 0 && !g3_stops_has(stops, id))
        stops->ids[stops->count++] = id;
}

void g3_stops_collect(const g3_token_config *config, const g3_special *special,
                      g3_stops *out_stops) {
    *out_stops = (g3_stops){0};
    for (uint32_t i = 0; i < config->stop_count && i < G3_MAX_STOP_IDS; i++)
        add_stop(out_stops, config->stop[i]);
    add_stop(out_stops, special->eos);
    add_stop(out_stops, special->turn_end);
}

bool g3_stops_has(const g3_stops *stops, int32_t id) {
    for (size_t i = 0; i < stops->count; i++)
        if (stops->ids[i] == id)
            return true;
    return false;
}

/* Ids that both prompts begin with. */
static size_t common(const g3_prompt *a, const g3_prompt *b) {
    size_t n = 0;
    while (n < a->ids.count && n < b->ids.count && a->ids.ids[n] == b->ids.ids[n])
        n++;
    return n;
}

/* What has to stand between the conversation so far and the next message. A token
 * that ends an answer is never fed, so the template always closes the answer. */
static g3_status lead_in(g3_chat *chat, g3_prompt *prompt, g3_error *error) {
    if (!chat->begun)
        return g3_template_begin(&chat->format, prompt, error);
    if (chat->unfed != G3_NO_ID) {
        const g3_status status = g3_ids_append(&prompt->ids, chat->unfed, error);
        if (status != G3_OK)
            return status;
    }
    return g3_template_answer_end(&chat->format, false, prompt, error);
}

/* What stands in front of the first message. */
static const char *opening(const g3_chat *chat) {
    if (chat->begun)
        return NULL;
    if (chat->system_text == NULL && chat->format.style == G3_STYLE_DIALOGUE)
        return G3_DIALOGUE_INTRODUCTION;
    return chat->system_text;
}

static g3_status whole(g3_chat *chat, const g3_message *message, g3_prompt *out_prompt,
                       g3_error *error) {
    g3_prompt prompt = {0};
    g3_status status = lead_in(chat, &prompt, error);
    if (status == G3_OK)
        status = g3_template_turn(&chat->format, opening(chat), message, &prompt, error);
    if (status != G3_OK)
        g3_prompt_free(&prompt);
    else
        *out_prompt = prompt;
    return status;
}

/* Two other messages show what does not depend on the message. */
static g3_status find_content(g3_chat *chat, const g3_prompt *prompt, size_t *out_content,
                              g3_error *error) {
    static const char *const others[] = {"a", "1"};
    size_t content = prompt->ids.count;
    for (size_t i = 0; i < 2; i++) {
        const g3_message message = {.role = G3_ROLE_USER, .text = others[i], .count = 1};
        g3_prompt other = {0};
        const g3_status status = whole(chat, &message, &other, error);
        if (status != G3_OK)
            return status;
        const size_t same = common(prompt, &other);
        content = same < content ? same : content;
        g3_prompt_free(&other);
    }
    *out_content = content;
    return G3_OK;
}

g3_status g3_chat_prompt(g3_chat *chat, const char *text, size_t count, size_t images,
                         g3_prompt *out_prompt, size_t *out_content, g3_error *error) {
    const g3_message message = {
        .role = G3_ROLE_USER, .text = text, .count = count, .images = images};
    g3_prompt prompt = {0};
    g3_status status = whole(chat, &message, &prompt, error);
    if (status != G3_OK)
        return status;
    status = find_content(chat, &prompt, out_content, error);
    if (status != G3_OK)
        g3_prompt_free(&prompt);
    else
        *out_prompt = prompt;
    return status;
}
