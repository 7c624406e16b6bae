/* SPDX-License-Identifier: MIT */
#include "utf8.h"
#include "vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Where the vocabulary is ------------------------------------------------------ */

g3_status g3_tokenizer_open(const g3_checkpoint *checkpoint, g3_tokenizer **out_tokenizer,
                            g3_error *error) {
    char path[4096];
    const char *folder = g3_checkpoint_path(checkpoint);
    *out_tokenizer = NULL;
    if (g3_checkpoint_gguf(checkpoint) != NULL)
        return g3_tokenizer_from_gguf(g3_checkpoint_gguf(checkpoint), out_tokenizer, error);
    int length = snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    if (length < 0 || (size_t)length >= sizeof path)
        return g3_fail(error, G3_INVALID, "the path of the model is too long");
    if (access(path, F_OK) == 0)
        return g3_tokenizer_from_json(path, out_tokenizer, error);
    (void)snprintf(path, sizeof path, "%s/tokenizer.model", folder);
    if (access(path, F_OK) == 0)
        return g3_tokenizer_from_model(path, out_tokenizer, error);
    const g3_status status =
        g3_tokenizer_of_bytes(g3_checkpoint_config(checkpoint), out_tokenizer, error);
    return status == G3_OK ? G3_OK : g3_fail_in(error, status, folder);
}

/* ---- Tokens ---------------------------------------------------------------------- */

bool g3_tokenizer_made_up(const g3_tokenizer *tokenizer) { return tokenizer->made_up; }

size_t g3_tokenizer_size(const g3_tokenizer *tokenizer) { return tokenizer->count; }

const g3_special *g3_tokenizer_special(const g3_tokenizer *tokenizer) {
    return &tokenizer->special;
}

static const g3_token *token_at(const g3_tokenizer *tokenizer, int32_t id) {
    return id >= 0 && (size_t)id < tokenizer->count ? &tokenizer->tokens[id] : NULL;
}

const char *g3_tokenizer_piece(const g3_tokenizer *tokenizer, int32_t id, size_t *out_count) {
    const g3_token *token = token_at(tokenizer, id);
    *out_count = token == NULL ? 0 : token->piece_count;
    return *out_count == 0 ? "" : tokenizer->bytes + token->piece;
}

const char *g3_tokenizer_text(const g3_tokenizer *tokenizer, int32_t id, size_t *out_count) {
    const g3_token *token = token_at(tokenizer, id);
    *out_count = token == NULL ? 0 : token->text_count;
    return *out_count == 0 ? "" : tokenizer->bytes + token->text;
}

bool g3_tokenizer_is_control(const g3_tokenizer *tokenizer, int32_t id) {
    const g3_token *token = token_at(tokenizer, id);
    return token != NULL && g3_token_is_control(token);
}

/* ---- Growing arrays ---------------------------------------------------------------- */

void g3_ids_free(g3_ids *ids) {
    free(ids->ids);
    *ids = (g3_ids){0};
}

g3_status g3_ids_append(g3_ids *ids, int32_t id, g3_error *error) {
    g3_status status = g3_grow(&ids->ids, &ids->capacity, ids->count, sizeof ids->ids[0], error);
    if (status == G3_OK)
        ids->ids[ids->count++] = id;
    return status;
}

void g3_string_free(g3_string *string) {
    free(string->bytes);
    *string = (g3_string){0};
}

g3_status g3_string_append(g3_string *string, const char *bytes, size_t count, g3_error *error) {
    if (count >= SIZE_MAX - string->count)
        return g3_fail(error, G3_HOST_MEMORY, "out of memory for text");
    g3_status status = g3_grow(&string->bytes, &string->capacity, string->count + count, 1, error);
    if (status != G3_OK)
        return status;
    if (count > 0)
        memcpy(string->bytes + string->count, bytes, count);
    string->count += count;
    string->bytes[string->count] = '\0';
    return G3_OK;
}

/* ---- Streaming ----------------------------------------------------------------------- */

#define REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

/* Gives out what `held` decides: whole characters and parts that are none. */
static g3_status settle(g3_stream_decoder *decoder, g3_string *out, g3_error *error) {
    while (decoder->held_count > 0) {
        uint32_t length;
        g3_utf8 what = g3_utf8_next(decoder->held, decoder->held_count, &length);
        g3_status status;
        if (what == G3_UTF8_CUT)
            break;
        status = what == G3_UTF8_WHOLE
                     ? g3_string_append(out, (const char *)decoder->held, length, error)
                     : g3_string_append(out, REPLACEMENT, 3, error);
        if (status != G3_OK)
            return status;
        decoder->held_count -= length;
        memmove(decoder->held, decoder->held + length, decoder->held_count);
    }
    return G3_OK;
}

g3_status g3_stream_decode(g3_stream_decoder *decoder, const g3_tokenizer *tokenizer, int32_t id,
                           g3_string *out, g3_error *error) {
    g3_stream_decoder next = *decoder;
    size_t old_count = out->count, count;
    const char *piece = g3_tokenizer_piece(tokenizer, id, &count);
    g3_status status = g3_string_append(out, "", 0, error);
    for (size_t i = 0; status == G3_OK && i < count; i++) {
        next.held[next.held_count++] = (uint8_t)piece[i];
        status = settle(&next, out, error);
    }
    if (status == G3_OK)
        *decoder = next;
    else if (out->bytes != NULL)
        out->bytes[out->count = old_count] = '\0';
    return status;
}

g3_status g3_stream_finish(g3_stream_decoder *decoder, g3_string *out, g3_error *error) {
    /* Never more than the beginning of one character is held. */
    g3_status status = g3_string_append(out, REPLACEMENT, decoder->held_count > 0 ? 3 : 0, error);
    if (status == G3_OK)
        decoder->held_count = 0;
    return status;
}
