/* SPDX-License-Identifier: MIT */
/* A tokenizer.json of the Hugging Face tokenizers library, and the two files that
 * add tokens beside a tokenizer.model. */

#include "../files/json.h"
#include "../files/map.h"
#include "vocabulary.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MOST_BYTES ((size_t)256 << 20) /* of one of these files */

static g3_status load(const char *path, json_t **out_root, g3_error *error) {
    g3_status status = g3_json_load(path, MOST_BYTES, JSON_ALLOW_NUL, out_root, error);
    if (status == G3_OK && !json_is_object(*out_root)) {
        json_decref(*out_root);
        *out_root = NULL;
        return g3_fail(error, G3_INVALID, "%.300s: not a JSON object", path);
    }
    return status;
}

/* Text of the file for a message. */
typedef struct shown {
    char text[64];
} shown;

static const char *show(const char *text, shown *out) {
    return g3_printable(text, strlen(text), out->text, sizeof out->text);
}

/* The text of a JSON string that is there, "" otherwise. */
static const char *text_of(const json_t *value) {
    const char *text = json_string_value(value);
    return text == NULL ? "" : text;
}

/* ---- What this engine does not do is refused ------------------------------------------ */

/* Only the replacement of spaces by U+2581 is done to text. */
static g3_status check_normalizer(const json_t *normalizer, bool *out_marks, g3_error *error) {
    const char *type = text_of(json_object_get(normalizer, "type"));
    if (strcmp(type, "Sequence") == 0) {
        const json_t *parts = json_object_get(normalizer, "normalizers");
        for (size_t i = 0; i < json_array_size(parts); i++) {
            const json_t *part = json_array_get(parts, i);
            if (strcmp(text_of(json_object_get(part, "type")), "Sequence") == 0)
                return g3_fail(error, G3_UNSUPPORTED, "normalizer: a sequence in a sequence");
            g3_status status = check_normalizer(part, out_marks, error);
            if (status != G3_OK)
                return status;
        }
        return G3_OK;
    }
    const json_t *pattern = json_object_get(json_object_get(normalizer, "pattern"), "String");
    if (strcmp(type, "Replace") != 0 || strcmp(text_of(pattern), " ") != 0 ||
        strcmp(text_of(json_object_get(normalizer, "content")), "\xE2\x96\x81") != 0)
        return g3_fail(error, G3_UNSUPPORTED,
                       "normalizer \"%s\": only the replacement of spaces by U+2581 is done",
                       show(type, &(shown){{0}}));
    *out_marks = true;
    return G3_OK;
}

static g3_status check_kind(const json_t *root, g3_error *error) {
    const json_t *model = json_object_get(root, "model");
    const json_t *splitter = json_object_get(root, "pre_tokenizer");
    bool marks = false;
    if (strcmp(text_of(json_object_get(model, "type")), "BPE") != 0)
        return g3_fail(error, G3_UNSUPPORTED, "model.type is \"%s\"; only BPE is read",
                       show(text_of(json_object_get(model, "type")), &(shown){{0}}));
    /* A split at spaces finds none once they are replaced. */
    const json_t *pattern = json_object_get(json_object_get(splitter, "pattern"), "String");
    if (splitter != NULL && !json_is_null(splitter) &&
        (strcmp(text_of(json_object_get(splitter, "type")), "Split") != 0 ||
         strcmp(text_of(pattern), " ") != 0))
        return g3_fail(error, G3_UNSUPPORTED, "pre_tokenizer \"%s\" is not done",
                       show(text_of(json_object_get(splitter, "type")), &(shown){{0}}));
    g3_status status = check_normalizer(json_object_get(root, "normalizer"), &marks, error);
    if (status == G3_OK && !marks)
        status = g3_fail(error, G3_UNSUPPORTED, "normalizer: spaces are not replaced by U+2581");
    return status;
}

/* What gives other ids than plain merging by the list. */
static g3_status check_options(const json_t *model, g3_error *error) {
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (text_of(json_object_get(model, texts[i]))[0] != '\0')
            return g3_fail(error, G3_UNSUPPORTED, "model.%s is not done", texts[i]);
    if (json_is_true(json_object_get(model, "ignore_merges")))
        return g3_fail(error, G3_UNSUPPORTED, "model.ignore_merges is not done");
    const double dropout = json_number_value(json_object_get(model, "dropout"));
    if (dropout > 0 || dropout < 0)
        return g3_fail(error, G3_UNSUPPORTED, "model.dropout is not done");
    return G3_OK;
}

/* An added token is cut out where it stands, with nothing around it. */
static g3_status check_added(const json_t *token, json_int_t id, g3_error *error) {
    static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (json_is_true(json_object_get(token, flags[i])))
            return g3_fail(error, G3_UNSUPPORTED, "added token %lld: %s is not done", (long long)id,
                           flags[i]);
    return G3_OK;
}

/* ---- Vocabulary and merges ----------------------------------------------------------------- */

static g3_status read_vocabulary(json_t *entries, g3_tokenizer *v, g3_error *error) {
    const char *text;
    json_t *id;
    if (!json_is_object(entries) || json_object_size(entries) == 0)
        return g3_fail(error, G3_INVALID, "model.vocab is not an object of tokens");
    json_object_foreach(entries, text, id) {
        if (!json_is_integer(id))
            return g3_fail(error, G3_INVALID, "model.vocab: the id of \"%s\" is no integer",
                           show(text, &(shown){{0}}));
        json_int_t number = json_integer_value(id);
        if (number >= 0 && (uint64_t)number < v->count && v->tokens[number].kind != G3_TOKEN_NONE)
            return g3_fail(error, G3_INVALID, "model.vocab: id %lld is given twice",
                           (long long)number);
        g3_status status =
            g3_vocabulary_set(v, number, text, strlen(text), G3_TOKEN_NORMAL, 0, error);
        if (status != G3_OK)
            return status;
    }
    return G3_OK;
}

/* An added token takes its place from whatever the vocabulary has there. What is
 * not special is found in any text. */
static g3_status add_token(g3_tokenizer *v, json_int_t id, const json_t *content, bool special,
                           g3_error *error) {
    if (!json_is_string(content))
        return g3_fail(error, G3_INVALID, "added token %lld has no text", (long long)id);
    return g3_vocabulary_set(v, id, json_string_value(content), json_string_length(content),
                             special ? G3_TOKEN_CONTROL : G3_TOKEN_USER, 0, error);
}

static g3_status read_added(const json_t *added, g3_tokenizer *v, g3_error *error) {
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        const json_t *id = json_object_get(token, "id");
        if (!json_is_integer(id))
            return g3_fail(error, G3_INVALID, "added_tokens: element %zu has no id", i);
        g3_status status = check_added(token, json_integer_value(id), error);
        if (status == G3_OK)
            status = add_token(v, json_integer_value(id), json_object_get(token, "content"),
                               json_is_true(json_object_get(token, "special")), error);
        if (status != G3_OK)
            return status;
    }
    return G3_OK;
}

/* The two sides of a merge: ["a","b"] or "a b". */
static bool merge_sides(const json_t *merge, const char **out_left, size_t *out_left_count,
                        const char **out_right, size_t *out_right_count) {
    if (json_is_array(merge)) {
        const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
        if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right))
            return false;
        *out_left = json_string_value(left);
        *out_left_count = json_string_length(left);
        *out_right = json_string_value(right);
        *out_right_count = json_string_length(right);
        return true;
    }
    if (!json_is_string(merge))
        return false;
    const char *text = json_string_value(merge);
    const char *space = memchr(text, ' ', json_string_length(merge));
    if (space == NULL)
        return false;
    *out_left = text;
    *out_left_count = (size_t)(space - text);
    *out_right = space + 1;
    *out_right_count = json_string_length(merge) - *out_left_count - 1;
    return true;
}

/* The id of a text in the vocabulary, G3_NO_ID if it is not there. */
static int32_t id_of(const json_t *entries, const char *text) {
    const json_t *id = json_object_get(entries, text);
    return id == NULL ? G3_NO_ID : (int32_t)json_integer_value(id);
}

static g3_status read_merge(const json_t *entries, const json_t *merge, size_t index,
                            g3_tokenizer *v, g3_error *error) {
    char text[2 * G3_TOKEN_BYTES + 1];
    const char *left, *right;
    size_t left_count, right_count;
    if (!merge_sides(merge, &left, &left_count, &right, &right_count) ||
        left_count > G3_TOKEN_BYTES || right_count > G3_TOKEN_BYTES)
        return g3_fail(error, G3_INVALID, "model.merges: element %zu is no pair", index);
    memcpy(text, left, left_count);
    text[left_count] = '\0';
    int32_t left_id = id_of(entries, text);
    memcpy(text, right, right_count);
    text[right_count] = '\0';
    int32_t right_id = id_of(entries, text);
    memcpy(text, left, left_count);
    memcpy(text + left_count, right, right_count);
    text[left_count + right_count] = '\0';
    int32_t result = id_of(entries, text);
    if (left_id == G3_NO_ID || right_id == G3_NO_ID || result == G3_NO_ID)
        return g3_fail(error, G3_INVALID,
                       "model.merges: element %zu (\"%s\") is not made of tokens", index,
                       show(text, &(shown){{0}}));
    return g3_vocabulary_add_merge(v, left_id, right_id, result, error);
}

static g3_status read_root(const json_t *root, g3_tokenizer *v, g3_error *error) {
    const json_t *model = json_object_get(root, "model");
    json_t *entries = json_object_get(model, "vocab");
    const json_t *merges = json_object_get(model, "merges");
    g3_status status = check_kind(root, error);
    if (status == G3_OK)
        status = check_options(model, error);
    if (status == G3_OK)
        status = read_vocabulary(entries, v, error);
    if (status == G3_OK && !json_is_array(merges))
        status = g3_fail(error, G3_INVALID, "model.merges is not an array");
    for (size_t i = 0; status == G3_OK && i < json_array_size(merges); i++)
        status = read_merge(entries, json_array_get(merges, i), i, v, error);
    if (status == G3_OK)
        status = read_added(json_object_get(root, "added_tokens"), v, error);
    v->by_list = true;
    v->no_bytes = !json_is_true(json_object_get(model, "byte_fallback"));
    const char *unknown = json_string_value(json_object_get(model, "unk_token"));
    if (unknown != NULL)
        v->special.unknown = id_of(entries, unknown);
    return status;
}

g3_status g3_tokenizer_from_json(const char *path, g3_tokenizer **out_tokenizer, g3_error *error) {
    g3_tokenizer *vocabulary = NULL;
    json_t *root = NULL;
    *out_tokenizer = NULL;
    g3_status status = load(path, &root, error);
    if (status != G3_OK)
        return status;
    status = g3_vocabulary_create(&vocabulary, error);
    if (status == G3_OK)
        status = read_root(root, vocabulary, error);
    json_decref(root);
    if (status == G3_OK)
        status = g3_vocabulary_finish(vocabulary, error);
    if (status != G3_OK) {
        g3_tokenizer_close(vocabulary);
        return g3_fail_in(error, status, path);
    }
    *out_tokenizer = vocabulary;
    return G3_OK;
}

/* ---- Beside a tokenizer.model ------------------------------------------------------------------
 */

/* A token of the model file keeps its type, except that one can become special. */
static g3_status add_beside(g3_tokenizer *v, json_int_t id, const json_t *content, bool special,
                            g3_error *error) {
    bool there = id >= 0 && (uint64_t)id < v->count && v->tokens[id].kind != G3_TOKEN_NONE;
    if (!there)
        return add_token(v, id, content, special, error);
    const g3_token *token = &v->tokens[id];
    if (special && json_is_string(content) && json_string_length(content) == token->text_count &&
        memcmp(json_string_value(content), v->bytes + token->text, token->text_count) == 0)
        v->tokens[id].kind = G3_TOKEN_CONTROL;
    return G3_OK;
}

/* {"<image_soft_token>": 262144} */
static g3_status read_added_file(json_t *root, g3_tokenizer *v, g3_error *error) {
    const char *text;
    json_t *id;
    json_object_foreach(root, text, id) {
        json_t *content = json_string(text);
        g3_status status = json_is_integer(id)
                               ? add_beside(v, json_integer_value(id), content, true, error)
                               : g3_fail(error, G3_INVALID, "the id of \"%s\" is no integer",
                                         show(text, &(shown){{0}}));
        json_decref(content);
        if (status != G3_OK)
            return status;
    }
    return G3_OK;
}

/* {"added_tokens_decoder": {"262144": {"content": "<image_soft_token>", ...}}} */
static g3_status read_config_file(json_t *root, g3_tokenizer *v, g3_error *error) {
    const char *key;
    json_t *token;
    json_object_foreach(json_object_get(root, "added_tokens_decoder"), key, token) {
        json_int_t id = 0;
        size_t digits = strspn(key, "0123456789");
        if (digits == 0 || digits > 9 || key[digits] != '\0')
            return g3_fail(error, G3_INVALID, "added_tokens_decoder: \"%s\" is no id",
                           show(key, &(shown){{0}}));
        for (size_t i = 0; i < digits; i++)
            id = id * 10 + (key[i] - '0');
        g3_status status = check_added(token, id, error);
        if (status == G3_OK)
            status = add_beside(v, id, json_object_get(token, "content"),
                                json_is_true(json_object_get(token, "special")), error);
        if (status != G3_OK)
            return status;
    }
    return G3_OK;
}

static g3_status add_from(g3_tokenizer *v, const char *folder, const char *name,
                          g3_status (*read)(json_t *, g3_tokenizer *, g3_error *),
                          g3_error *error) {
    char path[4096];
    json_t *root;
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof path)
        return g3_fail(error, G3_INVALID, "the path of the vocabulary is too long");
    if (access(path, F_OK) != 0)
        return G3_OK;
    g3_status status = load(path, &root, error);
    if (status != G3_OK)
        return status;
    status = read(root, v, error);
    json_decref(root);
    return status == G3_OK ? G3_OK : g3_fail_in(error, status, path);
}

g3_status g3_vocabulary_add_from_folder(g3_tokenizer *vocabulary, const char *folder,
                                        g3_error *error) {
    g3_status status = add_from(vocabulary, folder, "added_tokens.json", read_added_file, error);
    if (status == G3_OK)
        status = add_from(vocabulary, folder, "tokenizer_config.json", read_config_file, error);
    return status;
}
