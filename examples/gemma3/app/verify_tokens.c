/* SPDX-License-Identifier: MIT */
/* `gemma3 verify --tokenizer`: texts and the ids that they must become. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../text/tokenizer.h"
#include "commands.h"
#include "verify.h"

static g3_status case_ids(json_t *item, size_t number, g3_ids *out_ids, const char **out_text,
                          size_t *out_count, g3_error *error) {
    json_t *text = json_object_get(item, "text");
    json_t *ids = json_object_get(item, "ids");
    if (!json_is_string(text) || !json_is_array(ids))
        return g3_fail(error, G3_INVALID, "case %zu needs \"text\" and \"ids\"", number);
    *out_text = json_string_value(text);
    *out_count = json_string_length(text);
    g3_status status = G3_OK;
    for (size_t i = 0; status == G3_OK && i < json_array_size(ids); i++) {
        json_t *id = json_array_get(ids, i);
        const json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > INT32_MAX)
            return g3_fail(error, G3_INVALID, "case %zu: ids[%zu] is no id", number, i);
        status = g3_ids_append(out_ids, (int32_t)value, error);
    }
    return status;
}

static void print_text(const char *text, size_t count) {
    (void)putchar('"');
    for (size_t i = 0; i < count; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '\n')
            (void)fputs("\\n", stdout);
        else if (c == '"' || c == '\\')
            (void)printf("\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            (void)printf("\\x%02x", c);
        else
            (void)putchar(c);
    }
    (void)putchar('"');
}

static void print_ids(const char *what, const g3_ids *ids) {
    (void)printf("  %s", what);
    for (size_t i = 0; i < ids->count; i++)
        (void)printf(" %" PRId32, ids->ids[i]);
    (void)printf("\n");
}

static bool same_ids(const g3_ids *a, const g3_ids *b) {
    return a->count == b->count &&
           (a->count == 0 || memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0);
}

/* Whether two texts are the same where U+2581 counts as a space: the vocabulary
 * writes it for spaces, so one that a text holds itself comes back as a space. */
static bool same_but_marks(const char *text, size_t count, const char *back, size_t back_count) {
    size_t at = 0;
    size_t i = 0;
    for (; i < count && at < back_count; i++, at++) {
        const bool mark = count - i >= 3 && memcmp(text + i, "\xe2\x96\x81", 3) == 0;
        if (back[at] != (mark ? ' ' : text[i]))
            return false;
        i += mark ? 2 : 0;
    }
    return i == count && at == back_count;
}

/* Whether the ids give the text back. A control token has no text, so ids with one
 * cannot: they are left out. */
static g3_status same_text(const g3_tokenizer *tokenizer, const g3_ids *ids, const char *text,
                           size_t count, bool *out_same, g3_error *error) {
    g3_string out = {0};
    g3_stream_decoder decoder = {{0}, 0};
    g3_status status = G3_OK;
    *out_same = true;
    for (size_t i = 0; i < ids->count; i++)
        if (g3_tokenizer_is_control(tokenizer, ids->ids[i]))
            return G3_OK;
    for (size_t i = 0; status == G3_OK && i < ids->count; i++)
        status = g3_stream_decode(&decoder, tokenizer, ids->ids[i], &out, error);
    if (status == G3_OK)
        status = g3_stream_finish(&decoder, &out, error);
    *out_same = same_but_marks(text, count, out.bytes, out.count);
    if (status == G3_OK && !*out_same) {
        (void)printf("ids of ");
        print_text(text, count);
        (void)printf(" give back ");
        print_text(out.bytes != NULL ? out.bytes : "", out.count);
        (void)printf("\n");
    }
    g3_string_free(&out);
    return status;
}

static g3_status check_case(const g3_tokenizer *tokenizer, json_t *item, size_t number,
                            bool *out_passed, g3_error *error) {
    g3_ids expected = {0};
    g3_ids got = {0};
    const char *text = NULL;
    size_t count = 0;
    bool same = false;
    g3_status status = case_ids(item, number, &expected, &text, &count, error);
    if (status == G3_OK)
        status = g3_tokenizer_encode(tokenizer, text, count, true, &got, error);
    if (status == G3_OK)
        status = same_text(tokenizer, &expected, text, count, &same, error);
    if (status == G3_OK && !same_ids(&expected, &got)) {
        same = false;
        (void)printf("case %zu: ", number);
        print_text(text, count);
        (void)printf("\n");
        print_ids("expected", &expected);
        print_ids("got     ", &got);
    }
    *out_passed = same;
    g3_ids_free(&expected);
    g3_ids_free(&got);
    return status;
}

static g3_status check_cases(const g3_tokenizer *tokenizer, json_t *root, const char *path,
                             bool *out_passed, g3_error *error) {
    json_t *cases = json_object_get(root, "cases");
    const size_t count = json_array_size(cases);
    if (count == 0)
        return g3_fail(error, G3_INVALID, "%s has no \"cases\"", path);
    size_t passed = 0;
    for (size_t i = 0; i < count; i++) {
        bool good = false;
        const g3_status status = check_case(tokenizer, json_array_get(cases, i), i, &good, error);
        if (status != G3_OK)
            return g3_fail_in(error, status, path);
        passed += good ? 1 : 0;
    }
    *out_passed = passed == count;
    (void)printf("%s: %zu of %zu cases\n", *out_passed ? "ok" : "FAILED", passed, count);
    return G3_OK;
}

int g3_verify_tokenizer(const char *model, const char *path) {
    g3_error error = {{0}};
    g3_checkpoint *checkpoint = NULL;
    g3_tokenizer *tokenizer = NULL;
    json_error_t place;
    bool passed = false;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &place);
    g3_status status = G3_OK;
    if (root == NULL)
        status = g3_fail(&error, G3_INVALID, "%s:%d: %s", path, place.line, place.text);
    if (status == G3_OK)
        status = g3_checkpoint_open(model, NULL, &checkpoint, &error);
    if (status == G3_OK)
        status = g3_tokenizer_open(checkpoint, &tokenizer, &error);
    if (status == G3_OK)
        status = check_cases(tokenizer, root, path, &passed, &error);
    json_decref(root);
    g3_tokenizer_close(tokenizer);
    g3_checkpoint_close(checkpoint);
    if (status != G3_OK)
        return g3_setup_failed("verify", &error);
    return passed ? G3_EXIT_OK : G3_EXIT_FAILED;
}
