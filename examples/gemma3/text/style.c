/* SPDX-License-Identifier: MIT */
/* Whether a checkpoint was taught Gemma's turns. */
#include <stdio.h>
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
    g3_status status = g3_json_load(path, CONFIG_BYTES_MAX, &config, error);
    if (status != G3_OK)
        return status;
    if (json_object_get(config, "chat_template") == NULL)
        *out_style = G3_STYLE_DIALOGUE;
    json_decref(config);
    return G3_OK;
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
    g3_text text;
    bool found = false;
    g3_status status = g3_gguf_string(gguf, "tokenizer.chat_template", &text, &found, error);
    if (status == G3_OK)
        *out_style = found ? G3_STYLE_TURNS : G3_STYLE_DIALOGUE;
    return status;
}
