/* SPDX-License-Identifier: MIT */
/* Vocabularies made to do harm: texts that fall into one place of a table, files that
 * are no files, options that would give other ids, types that do not fit. */

#include <time.h>

#include "files/hash.h"
#include "image/image.h"
#include "support_tokenizer.h"

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    t_folder_make(folder);
    (void)alarm(300); /* a pipe that somebody waits for ends the program */
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    t_folder_remove(folder);
    return 0;
}

/* ---- Hashes --------------------------------------------------------------------------- */

/* SipHash-1-3 with a key of zeros, as Python computes it with PYTHONHASHSEED=0. */
static void hashes_are_siphash(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t hash;
    } known[] = {
        {"a", UINT64_C(0x407448d2b89b1813)},
        {"abcdefg", UINT64_C(0x6db12aae9070f506)},
        {"abcdefgh", UINT64_C(0x3f7b849c0b8e35ea)},
        {"abcdefghiabcdefghiabcdefghi", UINT64_C(0x03df0f60e8cfc8eb)},
    };
    const g3_hash_key zero = {{0, 0}};
    const g3_hash_key one = g3_hash_key_make(), two = g3_hash_key_make();
    for (size_t i = 0; i < VRPT_COUNT(known); i++) {
        const size_t count = strlen(known[i].text);
        assert_true(g3_hash(&zero, known[i].text, count) == known[i].hash);
        assert_true(g3_hash(&one, known[i].text, count) != g3_hash(&two, known[i].text, count));
    }
}

/* A hash that anybody can compute: FNV-1a as it is in many programs. */
static uint64_t open_hash(const char *bytes, size_t count) {
    uint64_t hash = UINT64_C(0xCBF29CE484222325) ^ count;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ (uint8_t)bytes[i]) * UINT64_C(0x100000001B3);
    return hash ^ hash >> 29;
}

/* All in a 256th of the table: with a hash without a key, seconds. */
static void texts_of_one_place_cost_nothing(void **state) {
    (void)state;
    enum { TOKENS = 60000, SLOTS = 1 << 17 };
    t_vocabulary v = {0};
    (void)t_token(&v, "<unk>", 0, 2);
    for (uint32_t i = 0; v.count <= TOKENS; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "%08x", i);
        if ((open_hash(text, 8) & (SLOTS - 1)) < SLOTS / 256)
            (void)t_token(&v, text, 0, 1);
    }
    t_gguf g = {0};
    t_put_vocabulary(&g, &v);
    g3_tokenizer *tokenizer = NULL;
    g3_error error = {{0}};
    const clock_t begin = clock();
    t_expect(t_read_vocabulary(&g, &tokenizer, &error), G3_OK, &error, NULL, NULL);
    const double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    assert_int_equal(g3_tokenizer_size(tokenizer), TOKENS + 1);
    g3_tokenizer_close(tokenizer);
    if (seconds > 2)
        fail_msg("%.1f s", seconds);
}

/* ---- Files that are none ---------------------------------------------------------------- */

typedef g3_status (*reader)(const char *path, g3_error *error);

static g3_status read_json(const char *path, g3_error *error) {
    g3_tokenizer *tokenizer = NULL;
    const g3_status status = g3_tokenizer_from_json(path, &tokenizer, error);
    g3_tokenizer_close(tokenizer);
    return status;
}

static g3_status read_model(const char *path, g3_error *error) {
    g3_tokenizer *tokenizer = NULL;
    const g3_status status = g3_tokenizer_from_model(path, &tokenizer, error);
    g3_tokenizer_close(tokenizer);
    return status;
}

/* The file is one that is beside a good model. */
static g3_status read_beside(const char *path, g3_error *error) {
    t_bytes model = {0};
    char other[256];
    (void)path;
    t_put_piece(&model, "<unk>", 0, 2);
    t_file_write(folder, "good.model", model.data, model.count, other);
    t_free(&model);
    return read_model(other, error);
}

static g3_status read_picture(const char *path, g3_error *error) {
    g3_image image = {0};
    const g3_status status = g3_image_read(path, &image, error);
    g3_image_free(&image);
    return status;
}

static void pipes_folders_and_giants(void **state) {
    (void)state;
    static const struct {
        const char *name;
        reader read;
        off_t giant;
    } files[] = {
        {"tokenizer.json", read_json, (off_t)257 << 20},
        {"tokenizer.model", read_model, (off_t)257 << 20},
        {"added_tokens.json", read_beside, (off_t)257 << 20},
        {"tokenizer_config.json", read_beside, (off_t)257 << 20},
        {"picture.png", read_picture, (off_t)1025 << 20},
    };
    for (size_t i = 0; i < VRPT_COUNT(files); i++) {
        char path[256];
        g3_error error = {{0}};
        (void)snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        assert_int_equal(mkfifo(path, 0600), 0);
        t_expect(files[i].read(path, &error), G3_INVALID, &error, files[i].name, "regular file");
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkdir(path, 0700), 0);
        t_expect(files[i].read(path, &error), G3_INVALID, &error, files[i].name, "is a folder");
        assert_int_equal(rmdir(path), 0);
        t_file_write(folder, files[i].name, "{", 1, path);
        assert_int_equal(truncate(path, files[i].giant), 0); /* a hole */
        t_expect(files[i].read(path, &error), G3_INVALID, &error, files[i].name, "bytes");
        assert_int_equal(unlink(path), 0);
    }
}

/* ---- Options that would give other ids -------------------------------------------------- */

#define JSON(options, vocab, added)                                                     \
    "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":" \
    "\"\xE2\x96\x81\"},\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\"," options    \
    "\"byte_fallback\":true,\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"ab\":3" vocab "}," \
    "\"merges\":[[\"a\",\"b\"]]},\"added_tokens\":[" added "]}"

static void expect_json(const char *text, g3_status expected, const char *part) {
    char path[256];
    g3_error error = {{0}};
    t_file_write(folder, "made.json", text, strlen(text), path);
    t_expect(read_json(path, &error), expected, &error,
             expected == G3_OK ? NULL : "made.json: ", part);
}

static void json_options(void **state) {
    (void)state;
    expect_json(JSON("\"dropout\":null,\"continuing_subword_prefix\":null,"
                     "\"end_of_word_suffix\":\"\",\"ignore_merges\":false,",
                     "", "{\"id\":4,\"content\":\"x\",\"lstrip\":false}"),
                G3_OK, NULL);
    expect_json(JSON("\"dropout\":0.1,", "", ""), G3_UNSUPPORTED, "dropout");
    expect_json(JSON("\"continuing_subword_prefix\":\"##\",", "", ""), G3_UNSUPPORTED,
                "continuing_subword_prefix");
    expect_json(JSON("\"end_of_word_suffix\":\"</w>\",", "", ""), G3_UNSUPPORTED,
                "end_of_word_suffix");
    expect_json(JSON("\"ignore_merges\":true,", "", ""), G3_UNSUPPORTED, "ignore_merges");
    static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    for (size_t i = 0; i < VRPT_COUNT(flags); i++) {
        char text[1024];
        (void)snprintf(text, sizeof text, JSON("", "", "{\"id\":4,\"content\":\"x\",\"%s\":true}"),
                       flags[i]);
        expect_json(text, G3_UNSUPPORTED, flags[i]);
    }
    expect_json(JSON("", ",\"a\":4", ""), G3_INVALID, "twice");
    expect_json(JSON("", ",\"\\u001b[31m\\u0007\":\"x\"", ""), G3_INVALID, "\"?[31m?\"");
}

/* A token that an added one has renamed is not what its pair makes any more. */
static void a_renamed_token_is_not_merged(void **state) {
    (void)state;
    static const char text[] = JSON("", "", "{\"id\":3,\"content\":\"xy\",\"special\":false}");
    char path[256];
    g3_tokenizer *t = NULL;
    g3_error error = {{0}};
    t_file_write(folder, "made.json", text, strlen(text), path);
    t_expect(g3_tokenizer_from_json(path, &t, &error), G3_OK, &error, NULL, NULL);
    t_expect_ids(t, "ab", false, T_IDS(1, 2));
    t_expect_ids(t, "xy", false, T_IDS(3));
    g3_tokenizer_close(t);
}

/* ---- GGUF --------------------------------------------------------------------------------- */

static void put_tokens(t_gguf *g) {
    t_vocabulary v = {0};
    (void)t_token(&v, "<unk>", 0, 2);
    (void)t_token(&v, "a", 0, 1);
    t_put_vocabulary(g, &v);
}

static void expect_gguf(t_gguf *g, g3_status expected, const char *part, const char *other) {
    g3_tokenizer *tokenizer = NULL;
    g3_error error = {{0}};
    const g3_status got = t_read_vocabulary(g, &tokenizer, &error);
    t_expect(got, expected, &error, part, other);
    t_expect(got, expected, &error, expected == G3_OK ? NULL : "made.gguf: key '", NULL);
    g3_tokenizer_close(tokenizer);
}

static void gguf_types_that_do_not_fit(void **state) {
    (void)state;
    static const uint8_t bools[2] = {0, 1};
    static const int32_t whole[2] = {2, 1};
    static const float floats[2] = {2, 1};
    static const double wide[2] = {-1, -2};
    static const char scores[] = "tokenizer.ggml.scores", types[] = "tokenizer.ggml.token_type";
    const struct {
        const char *key;
        uint32_t element;
        const void *data;
        size_t bytes;
        g3_status expected;
    } arrays[] = {
        {scores, 7, bools, 2, G3_INVALID}, {scores, 5, whole, 8, G3_INVALID},
        {scores, 12, wide, 16, G3_OK},     {types, 7, bools, 2, G3_INVALID},
        {types, 6, floats, 8, G3_INVALID}, {types, 0, bools, 2, G3_OK},
    };
    for (size_t i = 0; i < VRPT_COUNT(arrays); i++) {
        t_gguf g = {.skip = arrays[i].key};
        put_tokens(&g);
        g.skip = NULL;
        t_array(&g, arrays[i].key, arrays[i].element, 2, arrays[i].data, arrays[i].bytes);
        if (arrays[i].expected == G3_OK)
            expect_gguf(&g, G3_OK, NULL, NULL);
        else
            expect_gguf(&g, G3_INVALID, arrays[i].key, "at offset ");
    }
}

static void gguf_errors_name_key_and_offset(void **state) {
    (void)state;
    t_gguf escaped = {.skip = "tokenizer.ggml.model"};
    put_tokens(&escaped);
    escaped.skip = NULL;
    t_string(&escaped, "tokenizer.ggml.model", "\033[31mbad\a");
    expect_gguf(&escaped, G3_UNSUPPORTED, "'tokenizer.ggml.model' at offset", "\"?[31mbad?\"");
    t_gguf spaced = {0};
    put_tokens(&spaced);
    t_bool(&spaced, "tokenizer.ggml.add_space_prefix", 1);
    expect_gguf(&spaced, G3_UNSUPPORTED, "add_space_prefix' at offset", "space");
    t_gguf plain = {0};
    put_tokens(&plain);
    t_bool(&plain, "tokenizer.ggml.add_space_prefix", 0);
    expect_gguf(&plain, G3_OK, NULL, NULL);
    t_gguf outside = {0};
    put_tokens(&outside);
    t_u32(&outside, "tokenizer.ggml.eos_token_id", 2);
    expect_gguf(&outside, G3_INVALID, "eos_token_id' at offset", "2 is outside");
}

/* What is looked for at every place of a text is short. */
static void texts_that_are_cut_out_are_short(void **state) {
    (void)state;
    for (size_t count = 256; count <= 257; count++) {
        t_gguf g = {0};
        t_vocabulary v = {0};
        char text[258];
        memset(text, 'a', count);
        text[count] = '\0';
        (void)t_token(&v, "<unk>", 0, 2);
        (void)t_token(&v, text, 0, 4);
        t_put_vocabulary(&g, &v);
        if (count == 256)
            expect_gguf(&g, G3_OK, NULL, NULL);
        else
            expect_gguf(&g, G3_INVALID, "token 1 is cut out", "'tokenizer.ggml.tokens' at offset");
    }
}

#define T_IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_are_siphash),
        cmocka_unit_test(texts_of_one_place_cost_nothing),
        T_IN_FOLDER(pipes_folders_and_giants),
        T_IN_FOLDER(json_options),
        T_IN_FOLDER(a_renamed_token_is_not_merged),
        cmocka_unit_test(gguf_types_that_do_not_fit),
        cmocka_unit_test(gguf_errors_name_key_and_offset),
        cmocka_unit_test(texts_that_are_cut_out_are_short),
    };
    return cmocka_run_group_tests_name("tokenizer, hostile", tests, NULL, NULL);
}
