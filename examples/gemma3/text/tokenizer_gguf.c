/* SPDX-License-Identifier: MIT */
/* The vocabulary of a GGUF file. Keys: docs/gguf.md of the ggml project. */

#include "../files/gguf.h"
#include "../files/map.h"
#include "vocabulary.h"

#include <stdio.h>
#include <string.h>

enum { I32 = 5, F32 = 6, STRING = 8, U64 = 10, I64 = 11, F64 = 12 }; /* GGUF value types */

static bool is_float(uint32_t type) { return type == F32 || type == F64; }
static bool is_integer(uint32_t type) { return type <= I32 || type == U64 || type == I64; }

static g3_status check_model(const g3_gguf *gguf, g3_error *error) {
    static const char key[] = "tokenizer.ggml.model", prefix[] = "tokenizer.ggml.add_space_prefix";
    g3_text model;
    char name[40], what[128];
    bool found = false, spaced = false;
    g3_status status = g3_gguf_string(gguf, key, &model, &found, error);
    if (status != G3_OK)
        return status;
    if (!found)
        return g3_gguf_key_fail(gguf, key, G3_INVALID, error, "no vocabulary: it is missing");
    if (model.count != 5 || memcmp(model.bytes, "llama", 5) != 0) {
        (void)snprintf(what, sizeof what, "\"%s\"; only \"llama\" (SentencePiece) is read",
                       g3_printable(model.bytes, model.count, name, sizeof name));
        return g3_gguf_key_fail(gguf, key, G3_UNSUPPORTED, error, what);
    }
    status = g3_gguf_bool(gguf, prefix, &spaced, &found, error);
    if (status == G3_OK && found && spaced)
        status = g3_gguf_key_fail(gguf, prefix, G3_UNSUPPORTED, error,
                                  "a space in front of every text is not done");
    return status;
}

/* An array that goes with the tokens, one element each. */
static g3_status side_array(const g3_gguf *gguf, const char *key, uint64_t count, bool needed,
                            bool (*fits)(uint32_t), g3_array *out, bool *out_found,
                            g3_error *error) {
    char what[96];
    g3_status status = g3_gguf_array(gguf, key, out, out_found, error);
    if (status != G3_OK)
        return status;
    if (!*out_found)
        return needed ? g3_gguf_key_fail(gguf, key, G3_INVALID, error, "is missing") : G3_OK;
    if (!fits(out->element_type))
        return g3_gguf_key_fail(gguf, key, G3_INVALID, error,
                                "its elements are of another type than is needed");
    if (out->count == count)
        return G3_OK;
    (void)snprintf(what, sizeof what, "%llu elements for %llu tokens",
                   (unsigned long long)out->count, (unsigned long long)count);
    return g3_gguf_key_fail(gguf, key, G3_INVALID, error, what);
}

static g3_status read_tokens(const g3_gguf *gguf, g3_tokenizer *v, g3_error *error) {
    static const char key[] = "tokenizer.ggml.tokens";
    g3_array tokens, scores, types;
    bool found = false, typed = false;
    uint64_t cursor = 0;
    g3_text text;
    g3_status status = g3_gguf_array(gguf, key, &tokens, &found, error);
    if (status != G3_OK)
        return status;
    if (!found || tokens.element_type != STRING)
        return g3_gguf_key_fail(gguf, key, G3_INVALID, error, "an array of strings is needed");
    status = side_array(gguf, "tokenizer.ggml.scores", tokens.count, true, is_float, &scores,
                        &found, error);
    if (status == G3_OK)
        status = side_array(gguf, "tokenizer.ggml.token_type", tokens.count, false, is_integer,
                            &types, &typed, error);
    if (status != G3_OK)
        return status;
    for (uint64_t i = 0; status == G3_OK && g3_array_next_string(&tokens, &cursor, &text); i++) {
        double type = typed ? g3_array_number(&types, i) : 0;
        /* Anything that is no type counts as normal. */
        int64_t kind = type >= G3_TOKEN_NORMAL && type <= G3_TOKEN_BYTE ? (int64_t)type : 0;
        g3_error why = {{0}};
        status = g3_vocabulary_set(v, (int64_t)i, text.bytes, text.count, kind,
                                   (float)g3_array_number(&scores, i), &why);
        if (status != G3_OK)
            (void)g3_gguf_key_fail(gguf, key, status, error, why.text);
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
        if (found && id >= v->count) {
            char what[96];
            (void)snprintf(what, sizeof what, "%lu is outside the vocabulary of %zu tokens",
                           (unsigned long)id, v->count);
            return g3_gguf_key_fail(gguf, keys[i].key, G3_INVALID, error, what);
        }
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
    if (status == G3_OK) {
        g3_error why = {{0}};
        status = g3_vocabulary_finish(vocabulary, &why);
        if (status != G3_OK)
            (void)g3_gguf_key_fail(gguf, "tokenizer.ggml.tokens", status, error, why.text);
    }
    if (status != G3_OK) {
        g3_tokenizer_close(vocabulary);
        return status;
    }
    *out_tokenizer = vocabulary;
    return G3_OK;
}
