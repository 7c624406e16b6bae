/* SPDX-License-Identifier: MIT */
/* Stretches of plain text between control tokens are put together first and then
 * encoded as one: a newline of the format and one of the text beside it are one
 * token, as they are when the whole prompt is one string. */

#include "template.h"

#include "utf8.h"

#include <stdlib.h>
#include <string.h>

#define MARK G3_IMAGE_MARK
enum { MARK_BYTES = sizeof MARK - 1 };

typedef struct writer {
    const g3_template *format;
    g3_prompt *prompt;
    size_t old_ids, old_images; /* what a failure goes back to */
    g3_string text;             /* plain, not encoded yet */
    g3_error *error;
} writer;

void g3_prompt_free(g3_prompt *prompt) {
    g3_ids_free(&prompt->ids);
    free(prompt->images);
    *prompt = (g3_prompt){0};
}

size_t g3_template_clean(char *text, size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (text[i] != MARK[0])
            text[kept++] = text[i];
    return kept;
}

/* ---- Text ----------------------------------------------------------------------------- */

/* What the template language takes away around a text: white space of Unicode
 * as Python's str.strip knows it, but for 0x1D, which begins a mark. */
static bool is_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0D) || c == 0x1C || c == 0x1E || c == 0x1F || c == 0x20 ||
           c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* Bytes of the white space that text[count] begins with, 0 if it does not. */
static size_t space_at(const char *text, size_t count) {
    const uint8_t *b = (const uint8_t *)text;
    uint32_t length;
    if (count == 0 || g3_utf8_next(b, count, &length) != G3_UTF8_WHOLE)
        return 0;
    uint32_t c = b[0];
    if (length == 2)
        c = (uint32_t)(b[0] & 0x1F) << 6 | (b[1] & 0x3F);
    else if (length == 3)
        c = (uint32_t)(b[0] & 0x0F) << 12 | (uint32_t)(b[1] & 0x3F) << 6 | (b[2] & 0x3F);
    return length < 4 && is_space(c) ? length : 0;
}

static void trim(const char **text, size_t *count) {
    size_t length;
    while ((length = space_at(*text, *count)) > 0) {
        *text += length;
        *count -= length;
    }
    while (*count > 0) {
        size_t back = 1;
        while (back < *count && back < 4 && ((uint8_t)(*text)[*count - back] & 0xC0) == 0x80)
            back++;
        if (space_at(*text + *count - back, back) != back)
            break;
        *count -= back;
    }
}

static const char *find_mark(const char *text, size_t count) {
    return count == 0 ? NULL : memmem(text, count, MARK, MARK_BYTES);
}

static size_t count_marks(const char *text, size_t count) {
    size_t marks = 0;
    for (const char *at = text; (at = find_mark(at, count - (size_t)(at - text))) != NULL;) {
        marks++;
        at += MARK_BYTES;
    }
    return marks;
}

/* ---- Writing ---------------------------------------------------------------------------- */

static writer begin(const g3_template *format, g3_prompt *prompt, g3_error *error) {
    return (writer){.format = format,
                    .prompt = prompt,
                    .old_ids = prompt->ids.count,
                    .old_images = prompt->image_count,
                    .error = error};
}

static g3_status plain(writer *w, const char *text, size_t count) {
    return g3_string_append(&w->text, text, count, w->error);
}

static g3_status flush(writer *w) {
    g3_status status = g3_tokenizer_encode(w->format->tokenizer, w->text.bytes, w->text.count,
                                           false, &w->prompt->ids, w->error);
    w->text.count = 0;
    return status;
}

static g3_status control(writer *w, int32_t id, const char *name) {
    g3_status status;
    if (id == G3_NO_ID)
        return g3_fail(w->error, G3_INVALID, "the vocabulary has no %s", name);
    status = flush(w);
    return status == G3_OK ? g3_ids_append(&w->prompt->ids, id, w->error) : status;
}

static bool is_dialogue(const writer *w) { return w->format->style == G3_STYLE_DIALOGUE; }

static g3_status turn_begin(writer *w, const char *role) {
    if (is_dialogue(w)) {
        const char *speaker = strcmp(role, "user") == 0 ? "User: " : "Assistant:";
        return plain(w, speaker, strlen(speaker));
    }
    int32_t id = g3_tokenizer_special(w->format->tokenizer)->turn_begin;
    g3_status status = control(w, id, "<start_of_turn>");
    if (status == G3_OK)
        status = plain(w, role, strlen(role));
    return status == G3_OK ? plain(w, "\n", 1) : status;
}

static g3_status turn_end(writer *w) {
    if (is_dialogue(w))
        return plain(w, "\n", 1);
    int32_t id = g3_tokenizer_special(w->format->tokenizer)->turn_end;
    g3_status status = control(w, id, "<end_of_turn>");
    return status == G3_OK ? plain(w, "\n", 1) : status;
}

static int32_t id_or(int32_t id, int32_t other) { return id != G3_NO_ID ? id : other; }

/* Notes where the placeholders of the next picture will stand. */
static g3_status note_image(writer *w) {
    g3_prompt *prompt = w->prompt;
    g3_image_span *grown =
        realloc(prompt->images, (prompt->image_count + 1) * sizeof prompt->images[0]);
    if (grown == NULL)
        return g3_fail(w->error, G3_HOST_MEMORY, "out of memory for the prompt");
    prompt->images = grown;
    prompt->images[prompt->image_count] = (g3_image_span){
        .begin = prompt->ids.count,
        .tokens = w->format->image_tokens,
        .image = prompt->image_count,
    };
    prompt->image_count++;
    return G3_OK;
}

static g3_status image(writer *w) {
    const g3_special *special = g3_tokenizer_special(w->format->tokenizer);
    int32_t first = id_or(w->format->image_begin, special->image_begin);
    int32_t last = id_or(w->format->image_end, special->image_end);
    int32_t soft = id_or(w->format->image, special->image);
    g3_status status = plain(w, "\n\n", 2);
    if (soft == G3_NO_ID)
        return g3_fail(w->error, G3_INVALID, "the model has no <image_soft_token>");
    if (status == G3_OK)
        status = control(w, first, "<start_of_image>");
    if (status == G3_OK)
        status = note_image(w);
    for (uint32_t i = 0; status == G3_OK && i < w->format->image_tokens; i++)
        status = g3_ids_append(&w->prompt->ids, soft, w->error);
    if (status == G3_OK)
        status = control(w, last, "<end_of_image>");
    return status == G3_OK ? plain(w, "\n\n", 2) : status;
}

/* A message's text, trimmed, and its pictures: the first ones in front as long as
 * there are more of them than marks, then one at each mark. */
static g3_status content(writer *w, const g3_message *message) {
    const char *text = message->text;
    size_t count = message->count;
    size_t marks = count_marks(text, count);
    g3_status status = G3_OK;
    if (message->images > 0 && message->role != G3_ROLE_USER)
        return g3_fail(w->error, G3_INVALID, "only messages of the user have pictures");
    if (message->images > 0 && w->format->image_tokens == 0)
        return g3_fail(w->error, G3_INVALID, "the model takes no pictures");
    if (marks > message->images)
        return g3_fail(w->error, G3_INVALID, "%zu places for pictures and %zu pictures", marks,
                       message->images);
    trim(&text, &count);
    for (size_t i = marks; status == G3_OK && i < message->images; i++)
        status = image(w);
    while (status == G3_OK) {
        const char *mark = find_mark(text, count);
        if (mark == NULL)
            return plain(w, text, count);
        status = plain(w, text, (size_t)(mark - text));
        if (status == G3_OK)
            status = image(w);
        count -= (size_t)(mark - text) + MARK_BYTES;
        text = mark + MARK_BYTES;
    }
    return status;
}

/* Ends what `begin` began: what is still plain is encoded, or everything taken back. */
static g3_status end(writer *w, g3_status status) {
    if (status == G3_OK)
        status = flush(w);
    if (status != G3_OK) {
        w->prompt->ids.count = w->old_ids;
        w->prompt->image_count = w->old_images;
    }
    g3_string_free(&w->text);
    return status;
}

/* ---- The interface ------------------------------------------------------------------------ */

g3_status g3_template_begin(const g3_template *format, g3_prompt *prompt, g3_error *error) {
    writer w = begin(format, prompt, error);
    if (prompt->ids.count > 0)
        return G3_OK;
    return end(&w, control(&w, g3_tokenizer_special(format->tokenizer)->bos, "<bos>"));
}

/* In front of the first message: inside its turn, or before its speaker. more: another
 * system text follows. */
static g3_status system_text(writer *w, const char *text, size_t count, bool more) {
    if (count_marks(text, count) > 0)
        return g3_fail(w->error, G3_INVALID, "the system's text has a place for a picture");
    g3_status status = plain(w, text, count);
    return status == G3_OK ? plain(w, "\n\n", is_dialogue(w) && !more ? 1 : 2) : status;
}

g3_status g3_template_turn(const g3_template *format, const char *system, const g3_message *user,
                           g3_prompt *prompt, g3_error *error) {
    writer w = begin(format, prompt, error);
    g3_status status = G3_OK;
    if (user->role != G3_ROLE_USER)
        return g3_fail(error, G3_INVALID, "a turn begins with a message of the user");
    const bool spoken = system != NULL && system[0] != '\0';
    if (spoken && is_dialogue(&w))
        status = system_text(&w, system, strlen(system), false);
    if (status == G3_OK)
        status = turn_begin(&w, "user");
    if (status == G3_OK && spoken && !is_dialogue(&w))
        status = system_text(&w, system, strlen(system), false);
    if (status == G3_OK)
        status = content(&w, user);
    if (status == G3_OK)
        status = turn_end(&w);
    if (status == G3_OK)
        status = turn_begin(&w, "model");
    return end(&w, status);
}

g3_status g3_template_answer_end(const g3_template *format, bool ended, g3_prompt *prompt,
                                 g3_error *error) {
    writer w = begin(format, prompt, error);
    return end(&w, ended ? plain(&w, "\n", 1) : turn_end(&w));
}

/* Whether a message has anything in it. */
static bool has_content(const g3_message *message) {
    const char *text = message->text;
    size_t count = message->count;
    trim(&text, &count);
    return count > 0 || message->images > 0;
}

/* The messages of one role from `first` on, as one turn; *out_next is the first
 * of another role. Empty ones between others add nothing. */
static g3_status one_turn(writer *w, const g3_message *messages, size_t count, size_t *io_next) {
    size_t at = *io_next;
    g3_role role = messages[at].role;
    g3_status status = G3_OK;
    bool first = true;
    for (; status == G3_OK && at < count && messages[at].role == role; at++) {
        if (!has_content(&messages[at]))
            continue;
        /* A speaker's name ends in ":": the model writes the blank behind it with its first
         * word, and a text that is there already has to bring its own. */
        if (!first)
            status = plain(w, "\n\n", 2);
        else if (is_dialogue(w) && role == G3_ROLE_MODEL)
            status = plain(w, " ", 1);
        if (status == G3_OK)
            status = content(w, &messages[at]);
        first = false;
    }
    *io_next = at;
    return status == G3_OK ? turn_end(w) : status;
}

static g3_status check_roles(const g3_message *messages, size_t count, size_t *out_systems,
                             g3_error *error) {
    size_t systems = 0;
    while (systems < count && messages[systems].role == G3_ROLE_SYSTEM)
        systems++;
    *out_systems = systems;
    if (systems == count)
        return g3_fail(error, G3_INVALID, "there is no message of the user");
    if (messages[systems].role != G3_ROLE_USER)
        return g3_fail(error, G3_INVALID, "the first message is the model's, not the user's");
    for (size_t i = 0; i < count; i++) {
        if (i >= systems && messages[i].role == G3_ROLE_SYSTEM)
            return g3_fail(error, G3_INVALID, "message %zu: the system speaks only at first", i);
        if (i < systems && messages[i].images > 0)
            return g3_fail(error, G3_INVALID, "only messages of the user have pictures");
    }
    return G3_OK;
}

static g3_status all_messages(writer *w, const g3_message *messages, size_t count,
                              bool generation_prompt) {
    size_t systems = 0;
    g3_status status = check_roles(messages, count, &systems, w->error);
    if (status == G3_OK && w->prompt->ids.count == 0)
        status = control(w, g3_tokenizer_special(w->format->tokenizer)->bos, "<bos>");
    if (status == G3_OK && !is_dialogue(w))
        status = turn_begin(w, "user");
    for (size_t i = 0, next; status == G3_OK && i < systems; i = next) {
        for (next = i + 1; next < systems && messages[next].count == 0; next++) /* empty ones */
            continue;
        if (messages[i].count > 0)
            status = system_text(w, messages[i].text, messages[i].count, next < systems);
    }
    if (status == G3_OK && is_dialogue(w))
        status = turn_begin(w, "user");
    for (size_t at = systems; status == G3_OK && at < count;) {
        if (at > systems)
            status = turn_begin(w, messages[at].role == G3_ROLE_USER ? "user" : "model");
        if (status == G3_OK)
            status = one_turn(w, messages, count, &at);
    }
    return status == G3_OK && generation_prompt ? turn_begin(w, "model") : status;
}

g3_status g3_template_messages(const g3_template *format, const g3_message *messages, size_t count,
                               bool generation_prompt, g3_prompt *prompt, g3_error *error) {
    writer w = begin(format, prompt, error);
    return end(&w, all_messages(&w, messages, count, generation_prompt));
}
