/* SPDX-License-Identifier: MIT */
/* Gemma 3's own vocabulary, from the GGUF file and written in the two other
 * formats: the same ids as the reference everywhere. */

#include "support_real.h"
#include "support_tokenizer.h"
#include "text/template.h"
#include "text/vocabulary.h"

#include <jansson.h>

static char folder[64];
static g3_gguf *gguf;
static g3_tokenizer *from[3]; /* GGUF, tokenizer.json, tokenizer.model */
enum { GGUF, JSON, MODEL };

/* ---- The other formats --------------------------------------------------------------- */

static void put_text(t_bytes *out, const char *text) { t_put(out, text, strlen(text)); }

static void put_quoted(t_bytes *out, const char *text, size_t count) {
    t_put(out, "\"", 1);
    for (size_t i = 0; i < count; i++) {
        char escaped[8];
        if ((uint8_t)text[i] < 0x20 || text[i] == '"' || text[i] == '\\') {
            (void)snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)(uint8_t)text[i]);
            put_text(out, escaped);
        } else {
            t_put(out, &text[i], 1);
        }
    }
    t_put(out, "\"", 1);
}

/* All ways to put a token together from two, best token first and of one token's
 * the one with the longest left side: how transformers makes a list of merges from
 * a SentencePiece model. */
typedef struct split {
    uint32_t rank, left;
    int32_t id;
} split;

static int compare_splits(const void *a, const void *b) {
    const split *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->left > y->left ? -1 : 1;
}

static void put_merges(t_bytes *out, const g3_tokenizer *t) {
    t_bytes splits = {0};
    for (size_t id = 0; id < t->count; id++) {
        const g3_token *token = &t->tokens[id];
        const char *key = t->bytes + token->key;
        for (uint32_t left = 1; token->kind == G3_TOKEN_NORMAL && left < token->key_count; left++) {
            const split one = {token->rank, left, (int32_t)id};
            if (g3_vocabulary_find(t, key, left) != G3_NO_ID &&
                g3_vocabulary_find(t, key + left, token->key_count - left) != G3_NO_ID)
                t_put(&splits, &one, sizeof one);
        }
    }
    const size_t count = splits.count / sizeof(split);
    split *sorted = (split *)(void *)splits.data;
    assert_true(count > 500000);
    qsort(sorted, count, sizeof sorted[0], compare_splits);
    for (size_t i = 0; i < count; i++) {
        const g3_token *token = &t->tokens[sorted[i].id];
        const char *key = t->bytes + token->key;
        put_text(out, i == 0 ? "[" : ",[");
        put_quoted(out, key, sorted[i].left);
        put_text(out, ",");
        put_quoted(out, key + sorted[i].left, token->key_count - sorted[i].left);
        put_text(out, "]");
    }
    t_free(&splits);
}

static void write_json(const g3_tokenizer *t, char path[256]) {
    t_bytes out = {0};
    char text[64];
    put_text(&out, "{\"added_tokens\":[");
    for (size_t id = 0; id < t->count; id++) {
        const g3_token *token = &t->tokens[id];
        if (token->kind != G3_TOKEN_USER && !g3_token_is_control(token))
            continue;
        (void)snprintf(text, sizeof text, "{\"id\":%zu,\"special\":%s,\"content\":", id,
                       token->kind == G3_TOKEN_USER ? "false" : "true");
        put_text(&out, text);
        put_quoted(&out, t->bytes + token->key, token->key_count);
        put_text(&out, "},");
    }
    put_text(&out, "{\"id\":262144,\"content\":\"<image_soft_token>\",\"special\":true}],"
                   "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                   "\"content\":\"\xE2\x96\x81\"},\"model\":{\"type\":\"BPE\","
                   "\"unk_token\":\"<unk>\",\"byte_fallback\":true,\"vocab\":{");
    for (size_t id = 0; id < t->count; id++) {
        const g3_token *token = &t->tokens[id];
        put_quoted(&out, t->bytes + token->key, token->key_count);
        (void)snprintf(text, sizeof text, ":%zu%s", id, id + 1 < t->count ? "," : "},");
        put_text(&out, text);
    }
    put_text(&out, "\"merges\":[");
    put_merges(&out, t);
    put_text(&out, "]}}");
    t_file_write(folder, "tokenizer.json", out.data, out.count, path);
    t_free(&out);
}

static void write_model(char path[256]) {
    g3_array tokens, scores, types;
    g3_text text;
    g3_error error = {{0}};
    bool found = false;
    uint64_t cursor = 0;
    t_bytes out = {0};
    assert_int_equal(g3_gguf_array(gguf, "tokenizer.ggml.tokens", &tokens, &found, &error), 0);
    assert_int_equal(g3_gguf_array(gguf, "tokenizer.ggml.scores", &scores, &found, &error), 0);
    assert_int_equal(g3_gguf_array(gguf, "tokenizer.ggml.token_type", &types, &found, &error), 0);
    for (uint64_t i = 0; g3_array_next_string(&tokens, &cursor, &text); i++) {
        char piece[256];
        (void)snprintf(piece, sizeof piece, "%.*s", (int)text.count, text.bytes);
        t_put_piece(&out, piece, (float)g3_array_number(&scores, i),
                    (uint32_t)g3_array_number(&types, i));
    }
    t_file_write(folder, "tokenizer.model", out.data, out.count, path);
    t_text_write(folder, "added_tokens.json", "{\"<image_soft_token>\":262144}");
    t_free(&out);
}

/* ---- The reference ------------------------------------------------------------------------ */

/* Every text of a file of cases, with every form of the vocabulary. */
static size_t check_cases(const char *name, bool special) {
    char path[512];
    json_error_t where;
    (void)snprintf(path, sizeof path, VRPT_SOURCE_DIR "/tests/golden/%s", name);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &where);
    const json_t *cases = json_object_get(root, "cases");
    const size_t count = json_array_size(cases);
    for (size_t i = 0; i < count; i++) {
        const json_t *text = json_object_get(json_array_get(cases, i), "text");
        const json_t *ids = json_object_get(json_array_get(cases, i), "ids");
        int32_t expected[256];
        assert_true(json_array_size(ids) <= VRPT_COUNT(expected));
        for (size_t k = 0; k < json_array_size(ids); k++)
            expected[k] = (int32_t)json_integer_value(json_array_get(ids, k));
        for (size_t k = 0; k < VRPT_COUNT(from); k++) {
            g3_ids got =
                t_encode_bytes(from[k], json_string_value(text), json_string_length(text), special);
            t_same_ids(json_string_value(text), &got, expected, json_array_size(ids));
            g3_ids_free(&got);
        }
        if (strstr(json_string_value(text), "\xE2\x96\x81") == NULL)
            t_round_trip(from[GGUF], json_string_value(text), json_string_length(text));
    }
    json_decref(root);
    return count;
}

static void ids_of_the_reference(void **state) {
    (void)state;
    assert_int_equal(check_cases("tokenizer_cases.json", true), 84);
    assert_int_equal(check_cases("tokenizer_cases_more.json", true), 59);
    assert_int_equal(check_cases("tokenizer_cases_more.json", false), 59);
}

static void what_the_vocabulary_holds(void **state) {
    (void)state;
    static const size_t sizes[] = {262144, 262145, 262145};
    for (size_t i = 0; i < VRPT_COUNT(from); i++) {
        const g3_special *special = g3_tokenizer_special(from[i]);
        assert_int_equal(g3_tokenizer_size(from[i]), sizes[i]);
        assert_int_equal(special->pad, 0);
        assert_int_equal(special->eos, 1);
        assert_int_equal(special->bos, 2);
        assert_int_equal(special->unknown, 3);
        assert_int_equal(special->turn_begin, 105);
        assert_int_equal(special->turn_end, 106);
        assert_int_equal(special->image_begin, 255999);
        assert_int_equal(special->image_end, 256000);
        assert_int_equal(special->image, i == GGUF ? G3_NO_ID : 262144);
    }
    for (int32_t id = 0; id < 262144; id++) {
        size_t counts[3];
        const char *pieces[3];
        for (size_t i = 0; i < VRPT_COUNT(from); i++)
            pieces[i] = g3_tokenizer_piece(from[i], id, &counts[i]);
        assert_int_equal(counts[JSON], counts[GGUF]);
        assert_int_equal(counts[MODEL], counts[GGUF]);
        assert_memory_equal(pieces[JSON], pieces[GGUF], counts[GGUF]);
        assert_memory_equal(pieces[MODEL], pieces[GGUF], counts[GGUF]);
    }
}

/* ---- There and back ---------------------------------------------------------------------------
 */

static void runs_and_random_bytes_come_back(void **state) {
    (void)state;
    vrpt_rng rng = {vrpt_env_number("VRAMPOOL_TEST_SEED", 15)};
    for (size_t count = 1; count <= 70; count++) {
        char text[80];
        for (size_t kind = 0; kind < 3; kind++) {
            memset(text, "\n \t"[kind], count);
            g3_ids ids = t_encode_bytes(from[GGUF], text, count, true);
            /* One token up to 31, but for a single space. */
            assert_int_equal(ids.count, (count + 30) / 31);
            g3_ids_free(&ids);
            memcpy(text + count, "x y", 4);
            t_round_trip(from[GGUF], text, count + 3);
        }
    }
    for (int round = 0; round < 3000; round++) {
        char text[200];
        const size_t count = t_random_text(&rng, text, sizeof text);
        t_round_trip(from[GGUF], text, count);
        g3_ids ids = t_encode_bytes(from[GGUF], text, count, false);
        for (size_t i = JSON; i < VRPT_COUNT(from); i++) {
            g3_ids other = t_encode_bytes(from[i], text, count, false);
            t_same_ids("random", &other, ids.ids, ids.count);
            g3_ids_free(&other);
        }
        g3_ids_free(&ids);
    }
}

/* Characters that are spread over several tokens come out whole. */
static void streams_come_back_as_text(void **state) {
    (void)state;
    static const char *const texts[] = {
        "\xEC\x95\x88\xEB\x85\x95\xED\x95\x98\xEC\x84\xB8\xEC\x9A\x94, \xEB\xB7\x81!",
        "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 \xF0\x9F\xAB\xA0",
        "\xF0\xA0\x80\x80\xF0\xA0\x80\x81 \xEA\x99\xAE", "\tif (x)\n\t\treturn  0;\n", "  a    b "};
    for (size_t i = 0; i < VRPT_COUNT(texts); i++)
        for (size_t k = 0; k < VRPT_COUNT(from); k++) {
            g3_ids ids = t_encode_bytes(from[k], texts[i], strlen(texts[i]), true);
            g3_string out = t_decode(from[k], ids.ids, ids.count);
            assert_string_equal(out.bytes, texts[i]);
            g3_string_free(&out);
            g3_ids_free(&ids);
        }
}

static void a_million_letters(void **state) {
    (void)state;
    enum { COUNT = 1 << 20 };
    char *text = malloc(COUNT);
    assert_non_null(text);
    for (size_t k = 0; k < 2; k++) {
        memset(text, 'x', COUNT);
        g3_ids ids = t_encode_bytes(from[k], text, COUNT, true);
        assert_int_equal(ids.count, COUNT / 8);
        assert_int_equal(ids.ids[ids.count - 1], 130987);
        g3_ids_free(&ids);
    }
    free(text);
}

/* ---- The format of a conversation ---------------------------------------------------------------
 */

static void expect_prompt(const g3_template *format, const g3_message *messages, size_t count,
                          const int32_t *ids, size_t id_count) {
    g3_prompt prompt = {0};
    g3_error error = {{0}};
    t_expect(g3_template_messages(format, messages, count, true, &prompt, &error), G3_OK, &error,
             NULL, NULL);
    t_same_ids("prompt", &prompt.ids, ids, id_count);
    g3_prompt_free(&prompt);
}

static void turns_as_the_reference_writes_them(void **state) {
    (void)state;
    static const int32_t plain[] = {2, 105, 2364, 107, 3694, 106, 107, 105, 4368, 107};
    /* A newline of the format and the two of the picture are one token. */
    static const int32_t picture[] = {2,   105,  2364, 109, 255999, 262144, 262144, 256000,
                                      108, 3694, 106,  107, 105,    4368,   107};
    static const int32_t system[] = {2,    105, 2364, 107, 3694, 108, 3694, 106,
                                     107,  105, 4368, 107, 3694, 106, 107,  105,
                                     2364, 107, 3694, 106, 107,  105, 4368, 107};
    const g3_message user = {G3_ROLE_USER, " Test\n", 6, 0};
    const g3_message with_picture = {G3_ROLE_USER, "Test", 4, 1};
    const g3_message list[] = {
        {G3_ROLE_SYSTEM, "Test", 4, 0}, user, {G3_ROLE_MODEL, "Test", 4, 0}, user};
    for (size_t i = 0; i < VRPT_COUNT(from); i++) {
        const g3_template format = {.tokenizer = from[i],
                                    .image_tokens = 2,
                                    .image_begin = 255999,
                                    .image_end = 256000,
                                    .image = 262144};
        expect_prompt(&format, &user, 1, plain, VRPT_COUNT(plain));
        expect_prompt(&format, &with_picture, 1, picture, VRPT_COUNT(picture));
        expect_prompt(&format, list, VRPT_COUNT(list), system, VRPT_COUNT(system));
    }
}

static void typed_control_tokens_stay_text(void **state) {
    (void)state;
    static const char *const typed[] = {"<end_of_turn>",
                                        "<start_of_turn>model",
                                        "<bos>",
                                        "<eos>",
                                        "<pad>",
                                        "<unk>",
                                        "<start_of_image>",
                                        "<end_of_image>",
                                        "<image_soft_token>",
                                        "<mask>",
                                        "<unused7>"};
    for (size_t i = 0; i < VRPT_COUNT(typed); i++)
        for (size_t k = 0; k < VRPT_COUNT(from); k++)
            t_round_trip(from[k], typed[i], strlen(typed[i])); /* no control token in it */
}

/* ---- The program
 * --------------------------------------------------------------------------------- */

static int open_all(void **state) {
    (void)state;
    char path[256];
    g3_error error = {{0}};
    t_folder_make(folder);
    t_expect(g3_tokenizer_from_gguf(gguf, &from[GGUF], &error), G3_OK, &error, NULL, NULL);
    write_json(from[GGUF], path);
    t_expect(g3_tokenizer_from_json(path, &from[JSON], &error), G3_OK, &error, NULL, NULL);
    write_model(path);
    t_expect(g3_tokenizer_from_model(path, &from[MODEL], &error), G3_OK, &error, NULL, NULL);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(from); i++)
        g3_tokenizer_close(from[i]);
    t_folder_remove(folder);
    return 0;
}

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    const char *path = real_model_path();
    g3_error error = {{0}};
    if (path == NULL)
        return VRPT_SKIP;
    if (g3_gguf_open(path, &gguf, &error) != G3_OK) {
        (void)fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_vocabulary_holds),
        cmocka_unit_test(ids_of_the_reference),
        cmocka_unit_test(runs_and_random_bytes_come_back),
        cmocka_unit_test(streams_come_back_as_text),
        cmocka_unit_test(a_million_letters),
        cmocka_unit_test(turns_as_the_reference_writes_them),
        cmocka_unit_test(typed_control_tokens_stay_text),
    };
    const int failed =
        cmocka_run_group_tests_name("tokenizer of the model", tests, open_all, close_all);
    g3_gguf_close(gguf);
    return failed != 0;
}
