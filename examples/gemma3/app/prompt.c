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

/* What has to stand between the conversation so far and the next message. A token
 * that ends an answer is never fed, so the template always closes the answer. */
static g3_status lead_in(const g3_chat *chat, bool first, g3_prompt *prompt, g3_error *error) {
    if (first)
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
    if (chat->system_text == NULL && chat->format.style == G3_STYLE_DIALOGUE)
        return G3_DIALOGUE_INTRODUCTION;
    return chat->system_text;
}

g3_status g3_chat_prompt(const g3_chat *chat, bool first, const char *text, size_t count,
                         size_t images, g3_prompt *out_prompt, g3_error *error) {
    const g3_message message = {
        .role = G3_ROLE_USER, .text = text, .count = count, .images = images};
    g3_prompt prompt = {0};
    g3_status status = lead_in(chat, first, &prompt, error);
    if (status == G3_OK)
        status =
            g3_template_turn(&chat->format, first ? opening(chat) : NULL, &message, &prompt, error);
    if (status != G3_OK)
        g3_prompt_free(&prompt);
    else
        *out_prompt = prompt;
    return status;
}
