/* SPDX-License-Identifier: MIT */
/* Vocabularies from GGUF files, SentencePiece models and folders: what they say
 * and files that are wrong. */

#include "files/checkpoint.h"
#include "support_tokenizer.h"

#define GOLDEN VRPT_SOURCE_DIR "/tests/golden/tiny-mm"

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    t_folder_make(folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    t_folder_remove(folder);
    return 0;
}

/* ---- GGUF ----------------------------------------------------------------------------- */

static void put_good(t_gguf *g) {
    t_vocabulary v = {0};
    (void)t_token(&v, "<unk>", 0, 2);
    (void)t_token(&v, "a", 0, 1);
    t_put_vocabulary(g, &v);
}

static void expect_gguf(t_gguf *g, g3_status expected, const char *part) {
    g3_tokenizer *tokenizer = NULL;
    g3_error error = {{0}};
    g3_status got = t_read_vocabulary(g, &tokenizer, &error);
    t_expect(got, expected, &error, part, NULL);
    assert_int_equal(tokenizer != NULL, expected == G3_OK);
    g3_tokenizer_close(tokenizer);
}

static void special_ids_outside_the_vocabulary(void **state) {
    (void)state;
    static const char *const keys[] = {"bos_token_id",     "eos_token_id", "unknown_token_id",
                                       "padding_token_id", "eot_token_id", "mask_token_id"};
    static const uint32_t ids[] = {2, 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
    for (size_t i = 0; i < VRPT_COUNT(keys); i++) {
        char key[64];
        t_gguf g = {0};
        (void)snprintf(key, sizeof key, "tokenizer.ggml.%s", keys[i]);
        for (size_t k = 0; k < VRPT_COUNT(ids); k++) {
            put_good(&g);
            t_u32(&g, key, ids[k]);
            expect_gguf(&g, G3_INVALID, key);
        }
        put_good(&g);
        t_u32(&g, key, 1);
        expect_gguf(&g, G3_OK, NULL);
    }
}

/* A text counts more than a number: files name <end_of_turn> as eos. */
static void special_ids_by_text_and_by_number(void **state) {
    (void)state;
    t_gguf g = {0};
    t_vocabulary v = {0};
    g3_tokenizer *t = NULL;
    g3_error error = {{0}};
    (void)t_token(&v, "<unk>", 0, 2);
    (void)t_token(&v, "<eos>", 0, 3);
    (void)t_token(&v, "<end_of_turn>", 0, 3);
    (void)t_token(&v, "<s>", 0, 3);
    t_put_vocabulary(&g, &v);
    t_u32(&g, "tokenizer.ggml.eos_token_id", 2);
    t_u32(&g, "tokenizer.ggml.bos_token_id", 3);
    assert_int_equal(t_read_vocabulary(&g, &t, &error), G3_OK);
    assert_int_equal(g3_tokenizer_special(t)->eos, 1);
    assert_int_equal(g3_tokenizer_special(t)->turn_end, 2);
    assert_int_equal(g3_tokenizer_special(t)->bos, 3);
    assert_int_equal(g3_tokenizer_special(t)->pad, G3_NO_ID);
    assert_int_equal(g3_tokenizer_special(t)->image, G3_NO_ID);
    g3_tokenizer_close(t);
}

static void gguf_arrays_that_do_not_fit(void **state) {
    (void)state;
    static const float scores[3] = {0};
    static const int32_t types[3] = {1, 1, 1};
    static const float nan_scores[2] = {0, __builtin_nanf("")};
    t_gguf g = {0};
    put_good(&g);
    g.skip = "tokenizer.ggml.scores";
    t_gguf with = {.skip = "tokenizer.ggml.scores"};
    put_good(&with);
    t_free(&g.pairs);
    expect_gguf(&with, G3_INVALID, "tokenizer.ggml.scores");
    for (size_t count = 0; count < 4; count++) {
        with = (t_gguf){.skip = "tokenizer.ggml.scores"};
        put_good(&with);
        with.skip = NULL;
        t_array(&with, "tokenizer.ggml.scores", 6, count, scores, count * 4);
        expect_gguf(&with, count == 2 ? G3_OK : G3_INVALID, count == 2 ? NULL : "2 tokens");
        with = (t_gguf){.skip = "tokenizer.ggml.token_type"};
        put_good(&with);
        with.skip = NULL;
        t_array(&with, "tokenizer.ggml.token_type", 5, count, types, count * 4);
        expect_gguf(&with, count == 2 ? G3_OK : G3_INVALID, count == 2 ? NULL : "2 tokens");
    }
    with = (t_gguf){.skip = "tokenizer.ggml.scores"};
    put_good(&with);
    with.skip = NULL;
    t_array(&with, "tokenizer.ggml.scores", 6, 2, nan_scores, sizeof nan_scores);
    expect_gguf(&with, G3_INVALID, "not a number");
    with = (t_gguf){.skip = "tokenizer.ggml.token_type"};
    put_good(&with);
    expect_gguf(&with, G3_OK, NULL);
    with = (t_gguf){.skip = "tokenizer.ggml.tokens"};
    put_good(&with);
    expect_gguf(&with, G3_INVALID, "tokenizer.ggml.tokens");
    with.skip = NULL;
    t_string(&with, "tokenizer.ggml.model", "llama");
    t_array(&with, "tokenizer.ggml.tokens", 5, 3, types, sizeof types);
    expect_gguf(&with, G3_INVALID, "tokenizer.ggml.tokens");
}

static void gguf_vocabularies_that_are_none(void **state) {
    (void)state;
    t_gguf g = {.skip = "tokenizer.ggml.model"};
    t_vocabulary v = {0};
    put_good(&g);
    expect_gguf(&g, G3_INVALID, "tokenizer.ggml.model");
    t_string(&g, "tokenizer.ggml.model", "gpt2");
    expect_gguf(&g, G3_UNSUPPORTED, "gpt2");
    t_u32(&g, "tokenizer.ggml.model", 1);
    expect_gguf(&g, G3_INVALID, "tokenizer.ggml.model");
    t_put_vocabulary(&g, &v);
    expect_gguf(&g, G3_INVALID, "empty");
    (void)t_token(&v, "a", 0, 1);
    t_put_vocabulary(&g, &v);
    expect_gguf(&g, G3_INVALID, "byte 0x00");
    char *longest = malloc(4098);
    assert_non_null(longest);
    memset(longest, 'x', 4097);
    longest[4097] = '\0';
    (void)t_token(&v, "<unk>", 0, 2);
    (void)t_token(&v, longest, 0, 1);
    t_put_vocabulary(&g, &v);
    expect_gguf(&g, G3_INVALID, "token 1 is longer");
    longest[4096] = '\0';
    (void)t_token(&v, "<unk>", 0, 2);
    (void)t_token(&v, longest, 0, 1);
    (void)t_token(&v, "", 0, 1);
    (void)t_token(&v, "", 0, 4);
    t_put_vocabulary(&g, &v);
    expect_gguf(&g, G3_OK, NULL);
    free(longest);
}

/* ---- tokenizer.model --------------------------------------------------------------------- */

/* A space in front of every text: add_dummy_prefix. */
static uint8_t dummy_prefix;

static t_bytes model_file(uint8_t kind) {
    t_bytes bytes = {0};
    const uint8_t trainer[] = {3 << 3, kind};
    const uint8_t normalizer[] = {1 << 3 | 2, 1, 'n', 3 << 3, dummy_prefix};
    t_put_piece(&bytes, "<unk>", 0, 2);
    t_put_piece(&bytes, "<bos>", 0, 3);
    t_put_piece(&bytes, "<t>", 0, 4);
    t_put_piece(&bytes, "a", -9, 1);
    t_put_piece(&bytes, "aa", -1, 1);
    t_put_piece(&bytes, "\xE2\x96\x81", -9, 1);
    t_put_piece(&bytes, "<0x41>", 0, 6);
    t_put_piece(&bytes, "<start_of_turn>", -3, 1);
    t_put_part(&bytes, 2, trainer, sizeof trainer);
    t_put_part(&bytes, 3, normalizer, sizeof normalizer);
    t_put_part(&bytes, 4, "anything", 8);
    return bytes;
}

static g3_status read_model(const t_bytes *bytes, size_t count, g3_tokenizer **out,
                            g3_error *error) {
    char path[256];
    t_file_write(folder, "made.model", bytes->data, count, path);
    return g3_tokenizer_from_model(path, out, error);
}

static void model_files_give_their_pieces(void **state) {
    (void)state;
    t_bytes file = model_file(2);
    g3_tokenizer *t = NULL;
    g3_error error = {{0}};
    t_expect(read_model(&file, file.count, &t, &error), G3_OK, &error, NULL, NULL);
    assert_int_equal(g3_tokenizer_size(t), 8);
    assert_int_equal(g3_tokenizer_special(t)->turn_begin, 7);
    t_expect_ids(t, "aaa<t> A", false, T_IDS(4, 3, 2, 5, 6));
    t_expect_ids(t, "<bos>a<start_of_turn>", true, T_IDS(1, 3, 7));
    g3_tokenizer_close(t);
    t_free(&file);
}

/* A vocabulary that is taken, however odd, encodes into itself. */
static void expect_ids_inside(const g3_tokenizer *t) {
    g3_ids ids = t_encode_bytes(t, "aaa<t> A<bos>", 13, true);
    assert_true(ids.count > 0);
    for (size_t i = 0; i < ids.count; i++)
        assert_true(ids.ids[i] >= 0 && (size_t)ids.ids[i] < g3_tokenizer_size(t));
    g3_ids_free(&ids);
}

static void model_files_that_are_refused(void **state) {
    (void)state;
    t_bytes file = model_file(1);
    g3_tokenizer *t = NULL;
    g3_error error = {{0}};
    dummy_prefix = 1;
    t_bytes spaced = model_file(2);
    dummy_prefix = 0;
    t_expect(read_model(&spaced, spaced.count, &t, &error), G3_UNSUPPORTED, &error, "made.model",
             "add_dummy_prefix");
    t_free(&spaced);
    t_expect(read_model(&file, file.count, &t, &error), G3_UNSUPPORTED, &error, "made.model",
             "BPE");
    t_free(&file);
    file = model_file(2);
    size_t good = 0;
    for (size_t count = 0; count < file.count; count++) { /* cut off anywhere */
        g3_status status = read_model(&file, count, &t, &error);
        good += status == G3_OK; /* between two pieces it is a shorter file */
        assert_true(status == G3_OK || status == G3_INVALID);
        assert_int_equal(t != NULL, status == G3_OK);
        g3_tokenizer_close(t);
        t = NULL;
    }
    assert_int_equal(good, 10);
    vrpt_rng rng = {5};
    for (int i = 0; i < 2000; i++) {
        t_bytes wrong = {0};
        t_put(&wrong, file.data, file.count);
        for (uint64_t flips = 1 + vrpt_rng_below(&rng, 3); flips > 0; flips--)
            wrong.data[vrpt_rng_below(&rng, wrong.count)] ^=
                (uint8_t)(1u << vrpt_rng_below(&rng, 8));
        if (read_model(&wrong, wrong.count, &t, &error) == G3_OK)
            expect_ids_inside(t);
        g3_tokenizer_close(t);
        t = NULL;
        t_free(&wrong);
    }
    t_free(&file);
}

/* Tokens beyond the model, as Gemma 3's folders have <image_soft_token>. */
static void files_beside_a_model_add_tokens(void **state) {
    (void)state;
    t_bytes file = model_file(2);
    g3_tokenizer *t = NULL;
    g3_error error = {{0}};
    t_text_write(folder, "added_tokens.json", "{\"<image_soft_token>\": 10}");
    t_text_write(folder, "tokenizer_config.json",
                 "{\"added_tokens_decoder\":{"
                 "\"2\":{\"content\":\"<t>\",\"special\":true},"
                 "\"3\":{\"content\":\"other\",\"special\":true},"
                 "\"8\":{\"content\":\"<x>\",\"special\":false},"
                 "\"10\":{\"content\":\"<image_soft_token>\",\"special\":true}}}");
    t_expect(read_model(&file, file.count, &t, &error), G3_OK, &error, NULL, NULL);
    assert_int_equal(g3_tokenizer_size(t), 11);
    assert_int_equal(g3_tokenizer_special(t)->image, 10);
    assert_true(g3_tokenizer_is_control(t, 2));
    assert_false(g3_tokenizer_is_control(t, 3));
    t_expect_ids(t, "a<x>a", false, T_IDS(3, 8, 3));
    t_expect_ids(t, "<t><image_soft_token>", true, T_IDS(2, 10));
    g3_tokenizer_close(t);
    static const char *const wrong[] = {
        "{\"added_tokens_decoder\":{\"x\":{\"content\":\"a\"}}}",
        "{\"added_tokens_decoder\":{\"12345678901\":{\"content\":\"a\"}}}",
        "{\"added_tokens_decoder\":{\"12\":{}}}",
        "{\"added_tokens_decoder\":{\"12\":7}}",
        "[",
        "7"};
    for (size_t i = 0; i < VRPT_COUNT(wrong); i++) {
        t_text_write(folder, "tokenizer_config.json", wrong[i]);
        t = NULL;
        t_expect(read_model(&file, file.count, &t, &error), G3_INVALID, &error,
                 "tokenizer_config.json", NULL);
        assert_null(t);
    }
    t_text_write(folder, "tokenizer_config.json", "{}");
    t_text_write(folder, "added_tokens.json", "{\"<image_soft_token>\": \"10\"}");
    t_expect(read_model(&file, file.count, &t, &error), G3_INVALID, &error, "added_tokens.json",
             "integer");
    t_free(&file);
}

/* ---- A checkpoint -------------------------------------------------------------------------- */

/* tokenizer.json first, then tokenizer.model. The golden folder's other files are
 * taken where they are. */
static void a_folder_has_its_vocabulary(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "generation_config.json",
                                        "model.safetensors"};
    g3_checkpoint *checkpoint = NULL;
    g3_tokenizer *t = NULL;
    g3_error error = {{0}};
    char path[256], to[256];
    for (size_t i = 0; i < VRPT_COUNT(files); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        (void)snprintf(to, sizeof to, GOLDEN "/%s", files[i]);
        assert_int_equal(symlink(to, path), 0);
    }
    t_expect(g3_checkpoint_open(folder, NULL, &checkpoint, &error), G3_OK, &error, NULL, NULL);
    t_expect(g3_tokenizer_open(checkpoint, &t, &error), G3_OK, &error, NULL, NULL);
    assert_true(g3_tokenizer_made_up(t));
    g3_tokenizer_close(t);
    t_bytes file = model_file(2);
    t_file_write(folder, "tokenizer.model", file.data, file.count, path);
    t_free(&file);
    t_expect(g3_tokenizer_open(checkpoint, &t, &error), G3_OK, &error, NULL, NULL);
    assert_int_equal(g3_tokenizer_size(t), 8);
    assert_false(g3_tokenizer_made_up(t));
    g3_tokenizer_close(t);
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    assert_int_equal(symlink(GOLDEN "/tokenizer.json", path), 0);
    t_expect(g3_tokenizer_open(checkpoint, &t, &error), G3_OK, &error, NULL, NULL);
    assert_int_equal(g3_tokenizer_size(t), 512);
    const g3_special *special = g3_tokenizer_special(t);
    const g3_token_config *tokens = &g3_checkpoint_config(checkpoint)->tokens;
    assert_int_equal(special->bos, tokens->bos);
    assert_int_equal(special->eos, 1);
    assert_int_equal(special->pad, 0);
    assert_int_equal(special->image, tokens->image);
    assert_int_equal(special->image_begin, tokens->image_begin);
    assert_int_equal(special->image_end, tokens->image_end);
    assert_int_equal(special->turn_begin, 6);
    assert_int_equal(special->turn_end, 7);
    g3_tokenizer_close(t);
    g3_checkpoint_close(checkpoint);
}

/* Every byte has a token of its own, whatever ids the configuration takes; a vocabulary
 * that is too small for that is an error. */
static void a_vocabulary_of_bytes(void **state) {
    (void)state;
    g3_config config = {.text = {.vocab = 300},
                        .tokens = {.bos = 2,
                                   .pad = 0,
                                   .unknown = G3_NO_ID,
                                   .image_begin = 5,
                                   .image_end = 100,
                                   .image = 300,
                                   .stop = {1, 7},
                                   .stop_count = 2}};
    g3_tokenizer *t = NULL;
    g3_error error = {{0}};
    g3_ids ids = {0};
    char text[256];
    bool seen[300] = {false};
    t_expect(g3_tokenizer_of_bytes(&config, &t, &error), G3_OK, &error, NULL, NULL);
    for (int byte = 0; byte < 256; byte++)
        text[byte] = (char)byte;
    t_expect(g3_tokenizer_encode(t, text, sizeof text, true, &ids, &error), G3_OK, &error, NULL,
             NULL);
    assert_int_equal(ids.count, 256);
    for (size_t i = 0; i < ids.count; i++) {
        size_t count = 0;
        const char *piece = g3_tokenizer_piece(t, ids.ids[i], &count);
        assert_in_range(ids.ids[i], 3, 299);
        assert_false(seen[ids.ids[i]]);
        seen[ids.ids[i]] = true;
        assert_int_equal(count, 1);
        assert_int_equal(piece[0], text[i]);
    }
    assert_false(seen[5] || seen[7] || seen[100]);
    const g3_special *special = g3_tokenizer_special(t);
    assert_int_equal(special->bos, 2);
    assert_int_equal(special->eos, 1);
    assert_int_equal(special->turn_begin, 3);
    assert_int_equal(special->turn_end, 4);
    assert_int_equal(special->image_begin, 5);
    g3_ids_free(&ids);
    g3_tokenizer_close(t);

    config.text.vocab = 263;
    t = NULL;
    t_expect(g3_tokenizer_of_bytes(&config, &t, &error), G3_INVALID, &error, "263 ids", "bytes");
    assert_null(t);
}

#define T_IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_vocabulary_of_bytes),
        cmocka_unit_test(special_ids_outside_the_vocabulary),
        cmocka_unit_test(special_ids_by_text_and_by_number),
        cmocka_unit_test(gguf_arrays_that_do_not_fit),
        cmocka_unit_test(gguf_vocabularies_that_are_none),
        T_IN_FOLDER(model_files_give_their_pieces),
        T_IN_FOLDER(model_files_that_are_refused),
        T_IN_FOLDER(files_beside_a_model_add_tokens),
        T_IN_FOLDER(a_folder_has_its_vocabulary),
    };
    return cmocka_run_group_tests_name("tokenizer files", tests, NULL, NULL);
}
