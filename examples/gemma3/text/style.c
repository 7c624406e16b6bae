/* SPDX-License-Identifier: MIT */
/* Whether a checkpoint was taught Gemma's turns. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "../files/gguf.h"
#include "../files/json.h"
#include "template.h"

#define CONFIG_BYTES_MAX ((size_t)64 << 20)

static bool exists(const char *folder, const char *name) {
    char path[4096];
    struct stat info;
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && (size_t)length < sizeof path && stat(path, &info) == 0;
}

/* A folder brings its template in a file of its own or in tokenizer_config.json. */
static g3_status style_of_folder(const char *folder, g3_style *out_style, g3_error *error) {
    *out_style = G3_STYLE_TURNS;
    if (exists(folder, "chat_template.jinja") || exists(folder, "chat_template.json") ||
        !exists(folder, "tokenizer_config.json"))
        return G3_OK;
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    json_t *config = NULL;
    g3_status status = g3_json_load(path, CONFIG_BYTES_MAX, 0, &config, error);
    if (status != G3_OK)
        return status;
    /* One template, or a list of named ones. */
    const json_t *templates = json_object_get(config, "chat_template");
    if (!json_is_string(templates) && json_array_size(templates) == 0)
        *out_style = G3_STYLE_DIALOGUE;
    json_decref(config);
    return G3_OK;
}

/* Whether "it" or another word of its kind stands in a text like "Gemma 3 1b It Qat". */
static bool names_tuning(g3_text text) {
    static const char *const words[] = {"it", "instruct", "chat"};
    for (size_t begin = 0, end; begin < text.count; begin = end + 1) {
        for (end = begin; end < text.count && isalnum((unsigned char)text.bytes[end]);)
            end++;
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            if (strlen(words[i]) == end - begin &&
                strncasecmp(text.bytes + begin, words[i], end - begin) == 0)
                return true;
    }
    return false;
}

/* Conversions may leave the template out: a tuned model still ends its answers with
 * <end_of_turn>, or says what it is. */
static g3_status style_of_gguf(const g3_gguf *gguf, const g3_token_config *tokens, int32_t turn_end,
                               g3_style *out_style, g3_error *error) {
    static const char *const names[] = {"general.finetune", "general.name"};
    g3_text text;
    bool tuned = false;
    g3_status status = g3_gguf_string(gguf, "tokenizer.chat_template", &text, &tuned, error);
    for (uint32_t i = 0; i < tokens->stop_count; i++)
        tuned = tuned || tokens->stop[i] == turn_end;
    for (size_t i = 0; !tuned && i < sizeof names / sizeof names[0]; i++) {
        bool found = false; /* one of another type says nothing */
        if (g3_gguf_string(gguf, names[i], &text, &found, NULL) == G3_OK && found)
            tuned = names_tuning(text);
    }
    *out_style = tuned ? G3_STYLE_TURNS : G3_STYLE_DIALOGUE;
    return status;
}

g3_status g3_style_of(const g3_checkpoint *checkpoint, const g3_tokenizer *tokenizer,
                      g3_style *out_style, g3_error *error) {
    const g3_special *special = g3_tokenizer_special(tokenizer);
    if (special->turn_begin == G3_NO_ID || special->turn_end == G3_NO_ID) {
        *out_style = G3_STYLE_DIALOGUE;
        return G3_OK;
    }
    const g3_gguf *gguf = g3_checkpoint_gguf(checkpoint);
    if (gguf == NULL)
        return style_of_folder(g3_checkpoint_path(checkpoint), out_style, error);
    return style_of_gguf(gguf, &g3_checkpoint_config(checkpoint)->tokens, special->turn_end,
                         out_style, error);
}
