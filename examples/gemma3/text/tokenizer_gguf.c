/* SPDX-License-Identifier: MIT */
/* The vocabulary of a GGUF file. Keys: docs/gguf.md of the ggml project. */

#include "../files/gguf.h"
#include "vocabulary.h"

#include <string.h>

static g3_status check_model(const g3_gguf *gguf, g3_error *error) {
    g3_text model;
    bool found = false;
    g3_status status = g3_gguf_string(gguf, "tokenizer.ggml.model", &model, &found, error);
    if (status != G3_OK)
        return status;
    if (!found)
        return g3_fail(error, G3_INVALID, "no vocabulary: tokenizer.ggml.model is not there");
    if (model.count != 5 || memcmp(model.bytes, "llama", 5) != 0)
        return g3_fail(error, G3_UNSUPPORTED,
                       "tokenizer.ggml.model is \"%.*s\"; only \"llama\" (SentencePiece) is read",
                       model.count > 40 ? 40 : (int)model.count, model.bytes);
    return G3_OK;
}

/* An array that goes with the tokens, one element each. */
static g3_status side_array(const g3_gguf *gguf, const char *key, uint64_t count, bool needed,
                            g3_array *out, bool *out_found, g3_error *error) {
    g3_status status = g3_gguf_array(gguf, key, out, out_found, error);
    if (status != G3_OK)
        return status;
    if (!*out_found)
        return needed ? g3_fail(error, G3_INVALID, "%s is not there", key) : G3_OK;
    if (out->count != count)
        return g3_fail(error, G3_INVALID, "%s has %llu elements for %llu tokens", key,
                       (unsigned long long)out->count, (unsigned long long)count);
    return G3_OK;
}

static g3_status read_tokens(const g3_gguf *gguf, g3_tokenizer *v, g3_error *error) {
    enum { STRING = 8, ARRAY = 9 }; /* GGUF value types */
    g3_array tokens, scores, types;
    bool found = false, typed = false;
    uint64_t cursor = 0;
    g3_text text;
    g3_status status = g3_gguf_array(gguf, "tokenizer.ggml.tokens", &tokens, &found, error);
    if (status != G3_OK)
        return status;
    if (!found || tokens.element_type != STRING)
        return g3_fail(error, G3_INVALID, "tokenizer.ggml.tokens is not an array of strings");
    status = side_array(gguf, "tokenizer.ggml.scores", tokens.count, true, &scores, &found, error);
    if (status == G3_OK)
        status = side_array(gguf, "tokenizer.ggml.token_type", tokens.count, false, &types, &typed,
                            error);
    if (status == G3_OK && (scores.element_type == STRING || scores.element_type == ARRAY))
        status = g3_fail(error, G3_INVALID, "tokenizer.ggml.scores are not numbers");
    for (uint64_t i = 0; status == G3_OK && g3_array_next_string(&tokens, &cursor, &text); i++) {
        double type = typed ? g3_array_number(&types, i) : 0;
        /* Anything that is no type counts as normal. */
        int64_t kind = type >= G3_TOKEN_NORMAL && type <= G3_TOKEN_BYTE ? (int64_t)type : 0;
        status = g3_vocabulary_set(v, (int64_t)i, text.bytes, text.count, kind,
                                   (float)g3_array_number(&scores, i), error);
    }
    return status;
}

/* Every id that the file names has to be in the vocabulary, also those that are
 * not used. */
static g3_status read_special(const g3_gguf *gguf, g3_tokenizer *v, g3_error *error) {
    int32_t unused;
    const struct {
        const char *key;
        int32_t *id;
    } keys[] = {
        {"tokenizer.ggml.bos_token_id", &v->special.bos},
        {"tokenizer.ggml.eos_token_id", &v->special.eos},
        {"tokenizer.ggml.padding_token_id", &v->special.pad},
        {"tokenizer.ggml.unknown_token_id", &v->special.unknown},
        {"tokenizer.ggml.eot_token_id", &unused},
        {"tokenizer.ggml.eom_token_id", &unused},
        {"tokenizer.ggml.mask_token_id", &unused},
        {"tokenizer.ggml.seperator_token_id", &unused}, /* spelt so in the format */
        {"tokenizer.ggml.separator_token_id", &unused},
        {"tokenizer.ggml.cls_token_id", &unused},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        uint32_t id = 0;
        bool found = false;
        g3_status status = g3_gguf_u32(gguf, keys[i].key, &id, &found, error);
        if (status != G3_OK)
            return status;
        if (found && id >= v->count)
            return g3_fail(error, G3_INVALID, "%s is %lu, outside the vocabulary of %zu tokens",
                           keys[i].key, (unsigned long)id, v->count);
        if (found)
            *keys[i].id = (int32_t)id;
    }
    return G3_OK;
}

g3_status g3_tokenizer_from_gguf(const struct g3_gguf *gguf, g3_tokenizer **out_tokenizer,
                                 g3_error *error) {
    g3_tokenizer *vocabulary = NULL;
    g3_status status;
    *out_tokenizer = NULL;
    status = check_model(gguf, error);
    if (status == G3_OK)
        status = g3_vocabulary_create(&vocabulary, error);
    if (status == G3_OK)
        status = read_tokens(gguf, vocabulary, error);
    if (status == G3_OK)
        status = read_special(gguf, vocabulary, error);
    if (status == G3_OK)
        status = g3_vocabulary_finish(vocabulary, error);
    if (status != G3_OK) {
        g3_tokenizer_close(vocabulary);
        return status;
    }
    *out_tokenizer = vocabulary;
    return G3_OK;
}
