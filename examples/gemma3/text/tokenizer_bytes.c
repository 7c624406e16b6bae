/* SPDX-License-Identifier: MIT */
/* A vocabulary for a checkpoint that brings none, as small random ones do: a token is a
 * byte. The ids that the configuration names keep their meaning if they are
 * rows; the turn tokens and
 * the bytes take the lowest ids that are left. */
#include "vocabulary.h"

#include <stdio.h>
#include <string.h>

typedef struct made {
    g3_tokenizer *vocabulary;
    const g3_config *config;
    g3_error *error;
    int32_t next;
} made;

static g3_status put(made *m, int32_t id, const char *text, g3_token_kind kind) {
    if (id < 0 || (uint32_t)id >= m->config->text.vocab)
        return G3_OK;
    return g3_vocabulary_set(m->vocabulary, id, text, strlen(text), kind, 0.0f, m->error);
}

static bool named(const g3_token_config *ids, int32_t id) {
    for (uint32_t i = 0; i < ids->stop_count; i++)
        if (ids->stop[i] == id)
            return true;
    return id == ids->bos || id == ids->pad || id == ids->unknown || id == ids->image_begin ||
           id == ids->image_end || id == ids->image;
}

static g3_status put_next(made *m, const char *text, g3_token_kind kind) {
    while (named(&m->config->tokens, m->next))
        m->next++;
    if ((uint32_t)m->next >= m->config->text.vocab)
        return g3_fail(m->error, G3_INVALID,
                       "neither tokenizer.json nor tokenizer.model, and %u ids are too few for "
                       "a vocabulary of bytes",
                       m->config->text.vocab);
    return put(m, m->next++, text, kind);
}

static g3_status fill(made *m) {
    const g3_token_config *ids = &m->config->tokens;
    g3_status status = put(m, ids->bos, "<bos>", G3_TOKEN_CONTROL);
    if (status == G3_OK)
        status = put(m, ids->pad, "<pad>", G3_TOKEN_CONTROL);
    if (status == G3_OK && ids->stop_count > 0)
        status = put(m, ids->stop[0], "<eos>", G3_TOKEN_CONTROL);
    if (status == G3_OK)
        status = put(m, ids->image, "<image_soft_token>", G3_TOKEN_CONTROL);
    if (status == G3_OK)
        status = put(m, ids->image_begin, "<start_of_image>", G3_TOKEN_CONTROL);
    if (status == G3_OK)
        status = put(m, ids->image_end, "<end_of_image>", G3_TOKEN_CONTROL);
    if (status == G3_OK)
        status = put_next(m, "<start_of_turn>", G3_TOKEN_CONTROL);
    if (status == G3_OK)
        status = put_next(m, "<end_of_turn>", G3_TOKEN_CONTROL);
    if (status == G3_OK) /* a space is matched as U+2581 */
        status = put_next(m, "\xE2\x96\x81", G3_TOKEN_NORMAL);
    for (unsigned byte = 0; byte < 256 && status == G3_OK; byte++) {
        char text[8];
        (void)snprintf(text, sizeof text, "<0x%02X>", byte);
        status = put_next(m, text, G3_TOKEN_BYTE);
    }
    return status;
}

g3_status g3_tokenizer_of_bytes(const g3_config *config, g3_tokenizer **out_tokenizer,
                                g3_error *error) {
    made m = {.config = config, .error = error};
    *out_tokenizer = NULL;
    g3_status status = g3_vocabulary_create(&m.vocabulary, error);
    if (status == G3_OK)
        status = fill(&m);
    if (status == G3_OK)
        status = g3_vocabulary_finish(m.vocabulary, error);
    if (status != G3_OK) {
        g3_tokenizer_close(m.vocabulary);
        return status;
    }
    m.vocabulary->made_up = true;
    *out_tokenizer = m.vocabulary;
    return G3_OK;
}
