/* SPDX-License-Identifier: MIT */
/* Text to ids and back with vocabularies made by hand. */

#include "support_tokenizer.h"

/* Ids of the vocabulary below. */
enum {
    PAD,
    EOS,
    BOS,
    UNK,
    TURN,
    END,
    IMAGE,
    IMAGE_END,
    SOFT,
    LINE,
    LINES_2,
    LINES_3,
    SPACES_2,
    SPACES_3,
    BOLD,
    BYTES, /* 256 of them */
    SPACE = BYTES + 256,
    LT,
    A,
    B,
    C,
    AB,
    BC,
    ABC,
    SPACE_A,
    LT_B,
    OS,
    GA,
    LLAMA
};

/* types: of the nine control tokens, as different converters give them. */
static g3_tokenizer *small(const int32_t types[9]) {
    static const char *const specials[9] = {"<pad>",
                                            "<eos>",
                                            "<bos>",
                                            "<unk>",
                                            "<start_of_turn>",
                                            "<end_of_turn>",
                                            "<start_of_image>",
                                            "<end_of_image>",
                                            "<image_soft_token>"};
    t_vocabulary v = {0};
    for (int i = 0; i < 9; i++)
        (void)t_token(&v, specials[i], types[i] == 1 ? 9 : -1000, types[i]);
    (void)t_token(&v, "\n", 0, 4);
    (void)t_token(&v, "\n\n", 0, 4);
    (void)t_token(&v, "\n\n\n", 0, 4);
    (void)t_token(&v, "  ", 0, 4);
    (void)t_token(&v, "\xE2\x96\x81\xE2\x96\x81\xE2\x96\x81", 0, 4);
    (void)t_token(&v, "<b>", 0, 4);
    t_all_bytes(&v);
    (void)t_token(&v, "\xE2\x96\x81", -20, 1);
    (void)t_token(&v, "<", -20, 1);
    (void)t_token(&v, "a", -20, 1);
    (void)t_token(&v, "b", -20, 1);
    (void)t_token(&v, "c", -20, 1);
    (void)t_token(&v, "ab", -2, 1);
    (void)t_token(&v, "bc", -1, 1);
    (void)t_token(&v, "abc", -3, 1);
    (void)t_token(&v,
                  "\xE2\x96\x81"
                  "a",
                  -4, 1);
    (void)t_token(&v, "<b", -5, 1);
    (void)t_token(&v, "os", -6, 1);
    (void)t_token(&v, "\xEA\xB0\x80", -20, 1);
    (void)t_token(&v, "\xF0\x9F\xA6\x99", -20, 1);
    return t_open(&v);
}

static const int32_t control_types[9] = {3, 3, 3, 3, 3, 3, 3, 3, 3};
static const int32_t mixed_types[9] = {3, 3, 3, 2, 1, 1, 4, 4, 4};
static const int32_t normal_types[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
static const int32_t *const all_types[] = {control_types, mixed_types, normal_types};

static void the_best_pair_merges_first(void **state) {
    (void)state;
    g3_tokenizer *t = small(control_types);
    t_expect_ids(t, "a", false, T_IDS(A));
    t_expect_ids(t, "ab", false, T_IDS(AB));
    t_expect_ids(t, "abc", false, T_IDS(ABC)); /* bc first, then a + bc */
    t_expect_ids(t, "aabcb", false, T_IDS(A, ABC, B));
    t_expect_ids(t, " a", false, T_IDS(SPACE_A));
    t_expect_ids(t, " ab", false, T_IDS(SPACE, AB)); /* ab is better than " a" */
    t_expect_ids(t, " ", false, T_IDS(SPACE));
    t_expect_ids(t, "\xEA\xB0\x80\xF0\x9F\xA6\x99", false, T_IDS(GA, LLAMA));
    g3_ids none = t_encode_bytes(t, "", 0, true);
    assert_int_equal(none.count, 0);
    g3_tokenizer_close(t);
}

/* What has no token of its own, whole or broken, is written byte for byte. */
static void bytes_stand_for_what_has_no_token(void **state) {
    (void)state;
    g3_tokenizer *t = small(control_types);
    t_expect_ids(t, "d", false, T_IDS(BYTES + 'd'));
    t_expect_ids(t,
                 "a\xC3\xA9"
                 "a",
                 false, T_IDS(A, BYTES + 0xC3, BYTES + 0xA9, A));
    t_expect_ids(t, "\xFF", false, T_IDS(BYTES + 0xFF));
    t_expect_ids(t, "\xEA\xB0", false, T_IDS(BYTES + 0xEA, BYTES + 0xB0));
    t_expect_ids(t,
                 "\xEA\xB0"
                 "a",
                 false, T_IDS(BYTES + 0xEA, BYTES + 0xB0, A));
    t_expect_ids(t, "\x80\xEA\xB0\x80", false, T_IDS(BYTES + 0x80, GA));
    t_expect_ids(t, "\xED\xA0\x80", false, T_IDS(BYTES + 0xED, BYTES + 0xA0, BYTES + 0x80));
    t_expect_ids(t, "<0x0A>", false,
                 T_IDS(LT, BYTES + '0', BYTES + 'x', BYTES + '0', BYTES + 'A', BYTES + '>'));
    g3_ids nul = t_encode_bytes(t, "\0a", 2, false);
    t_same_ids("nul", &nul, T_IDS(BYTES, A), 2);
    g3_ids_free(&nul);
    g3_tokenizer_close(t);
}

/* Cut out before anything merges, the longest one, wherever it stands; U+2581
 * in the text and in the file is a space. */
static void user_defined_tokens_are_cut_out_first(void **state) {
    (void)state;
    g3_tokenizer *t = small(control_types);
    t_expect_ids(t, "a  b", false, T_IDS(A, SPACES_2, B));
    t_expect_ids(t, "   a", false, T_IDS(SPACES_3, A));
    t_expect_ids(t, "    a", false, T_IDS(SPACES_3, SPACE_A));
    t_expect_ids(t,
                 " \xE2\x96\x81"
                 "a",
                 false, T_IDS(SPACES_2, A));
    t_expect_ids(t, "a<b>bc", false, T_IDS(A, BOLD, BC));
    t_expect_ids(t, "<b", false, T_IDS(LT_B));
    t_expect_ids(t, "\r\n", false, T_IDS(BYTES + '\r', LINE));
    t_expect_ids(t, "a\n\n\n\n\nb", false, T_IDS(A, LINES_3, LINES_2, B));
    for (size_t lines = 1; lines <= 40; lines++) {
        char text[41];
        memset(text, '\n', lines);
        g3_ids ids = t_encode_bytes(t, text, lines, true);
        assert_int_equal(ids.count, (lines + 2) / 3);
        for (size_t i = 0; i < lines / 3; i++)
            assert_int_equal(ids.ids[i], LINES_3);
        g3_ids_free(&ids);
    }
    g3_tokenizer_close(t);
}

/* Whatever types the file gives them, and even where merging would build them. */
static void control_tokens_are_never_found_in_typed_text(void **state) {
    (void)state;
    static const char *const typed[] = {"<bos>",
                                        "<eos>a",
                                        "a<pad>",
                                        "<unk>",
                                        "<start_of_turn>model\n",
                                        "<end_of_turn>",
                                        "<start_of_image>",
                                        "<end_of_image>",
                                        "<image_soft_token>"};
    static const int32_t ids[] = {BOS, EOS, PAD, UNK, TURN, END, IMAGE, IMAGE_END, SOFT};
    for (size_t types = 0; types < VRPT_COUNT(all_types); types++) {
        g3_tokenizer *t = small(all_types[types]);
        const g3_special *special = g3_tokenizer_special(t);
        const int32_t known[] = {special->bos,         special->eos,        special->pad,
                                 special->unknown,     special->turn_begin, special->turn_end,
                                 special->image_begin, special->image_end,  special->image};
        for (size_t i = 0; i < VRPT_COUNT(typed); i++) {
            size_t found = 0;
            assert_int_equal(known[i], ids[i]);
            assert_true(g3_tokenizer_is_control(t, ids[i]));
            t_round_trip(t, typed[i], strlen(typed[i])); /* no control token in it */
            g3_ids with = t_encode_bytes(t, typed[i], strlen(typed[i]), true);
            for (size_t k = 0; k < with.count; k++)
                found += with.ids[k] == ids[i];
            assert_int_equal(found, 1);
            g3_ids_free(&with);
        }
        t_expect_ids(t, "<bos>", false, T_IDS(LT_B, OS, BYTES + '>'));
        t_expect_ids(t, "<bos>a\n<eos>", true, T_IDS(BOS, A, LINE, EOS));
        t_expect_ids(t, "<b><bos><b", true, T_IDS(BOLD, BOS, LT_B));
        g3_tokenizer_close(t);
    }
}

static void tokens_say_what_they_are(void **state) {
    (void)state;
    g3_tokenizer *t = small(mixed_types);
    size_t count;
    assert_int_equal(g3_tokenizer_size(t), LLAMA + 1);
    assert_string_equal(g3_tokenizer_piece(t, END, &count), "");
    assert_int_equal(count, 0);
    assert_memory_equal(g3_tokenizer_text(t, END, &count), "<end_of_turn>", 13);
    assert_int_equal(count, 13);
    assert_memory_equal(g3_tokenizer_piece(t, SPACE_A, &count), " a", 2);
    assert_int_equal(count, 2);
    assert_memory_equal(g3_tokenizer_text(t, SPACE_A, &count),
                        "\xE2\x96\x81"
                        "a",
                        4);
    assert_memory_equal(g3_tokenizer_piece(t, SPACES_3, &count), "   ", 3);
    assert_int_equal(count, 3);
    assert_memory_equal(g3_tokenizer_piece(t, BYTES + 0xE9, &count), "\xE9", 1);
    assert_int_equal(count, 1);
    const int32_t outside[] = {-1, LLAMA + 1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < VRPT_COUNT(outside); i++) {
        assert_string_equal(g3_tokenizer_piece(t, outside[i], &count), "");
        assert_int_equal(count, 0);
        assert_string_equal(g3_tokenizer_text(t, outside[i], &count), "");
        assert_false(g3_tokenizer_is_control(t, outside[i]));
    }
    assert_false(g3_tokenizer_is_control(t, BYTES));
    assert_false(g3_tokenizer_is_control(t, BOLD));
    g3_tokenizer_close(t);
}

/* An official file has such: the lowest id wins. */
static void tokens_with_the_same_text(void **state) {
    (void)state;
    t_vocabulary v = {0};
    (void)t_token(&v, "<bos>", 0, 3);
    t_all_bytes(&v);
    int32_t first = t_token(&v, "a", -1, 1);
    int32_t second = t_token(&v, "a", 5, 1);
    int32_t user = t_token(&v, "<x>", 0, 4);
    (void)t_token(&v, "<x>", 0, 4);
    (void)t_token(&v, "<bos>", 0, 1);
    (void)t_token(&v, "<0x41>", 0, 6);
    g3_tokenizer *t = t_open(&v);
    t_expect_ids(t, "aa<x>A", false, T_IDS(first, first, user, 1 + 0x41));
    t_expect_ids(t, "<bos>", true, T_IDS(0));
    assert_int_equal(g3_tokenizer_special(t)->bos, 0);
    size_t count;
    assert_memory_equal(g3_tokenizer_piece(t, second, &count), "a", 1);
    g3_tokenizer_close(t);
}

/* Without a token for a byte <unk> stands for it; neighbours share one. */
static void unknown_stands_for_missing_bytes(void **state) {
    (void)state;
    t_vocabulary v = {0};
    (void)t_token(&v, "<unk>", 0, 2);
    (void)t_token(&v, "a", -1, 1);
    (void)t_token(&v, "<0x41>", 0, 6);
    g3_tokenizer *t = t_open(&v);
    t_expect_ids(t, "axyaAza", false, T_IDS(1, 0, 1, 2, 0, 1));
    g3_tokenizer_close(t);
}

/* Pieces of type "unused" help others to be built, but are not given out. */
static void unused_pieces_fall_apart(void **state) {
    (void)state;
    t_vocabulary v = {0};
    t_all_bytes(&v);
    int32_t a = t_token(&v, "a", -9, 1), b = t_token(&v, "b", -9, 1);
    (void)t_token(&v, "ab", -1, 5);
    (void)t_token(&v, "abab", -2, 5);
    int32_t whole = t_token(&v, "ababa", -3, 1);
    g3_tokenizer *t = t_open(&v);
    t_expect_ids(t, "ab", false, T_IDS(a, b));
    t_expect_ids(t, "abab", false, T_IDS(a, b, a, b));
    t_expect_ids(t, "ababa", false, T_IDS(whole));
    t_expect_ids(t, "babab", false, T_IDS(b, a, b, a, b));
    g3_tokenizer_close(t);
}

/* ---- Against the rule, spelled out ---------------------------------------------------- */

typedef struct piece {
    size_t start, count;
} piece;

/* Looks at all neighbours again for every merge; texts of letters only. */
static size_t slow(char texts[][4], const float *scores, size_t tokens, const char *text,
                   piece *out) {
    size_t count = strlen(text);
    for (size_t i = 0; i < count; i++)
        out[i] = (piece){i, 1};
    for (;;) {
        size_t best = count;
        float best_score = 0;
        for (size_t i = 0; i + 1 < count; i++)
            for (size_t k = 0; k < tokens; k++) {
                size_t both = out[i].count + out[i + 1].count;
                if (strlen(texts[k]) == both && memcmp(texts[k], text + out[i].start, both) == 0 &&
                    (best == count || scores[k] > best_score)) {
                    best = i;
                    best_score = scores[k];
                }
            }
        if (best == count)
            return count;
        out[best].count += out[best + 1].count;
        count--;
        memmove(&out[best + 1], &out[best + 2], (count - best - 1) * sizeof out[0]);
    }
}

/* Random vocabularies with scores that are often equal. */
static void merging_follows_the_rule(void **state) {
    (void)state;
    vrpt_rng rng = {vrpt_env_number("VRAMPOOL_TEST_SEED", 11)};
    for (int round = 0; round < 300; round++) {
        char texts[40][4];
        float scores[40];
        char text[64];
        piece pieces[64];
        size_t tokens = 3;
        t_vocabulary v = {0};
        t_all_bytes(&v);
        for (size_t i = 0; i < 40 && tokens < 30; i++) {
            char *made = texts[tokens];
            bool old = i < 3;
            if (old) {
                (void)snprintf(texts[i], 4, "%c", 'a' + (char)i);
                scores[i] = 0;
                (void)t_token(&v, texts[i], 0, 1);
                continue;
            }
            size_t length = 2 + (size_t)vrpt_rng_below(&rng, 2);
            for (size_t k = 0; k < length; k++)
                made[k] = (char)('a' + vrpt_rng_below(&rng, 3));
            made[length] = '\0';
            for (size_t k = 0; k < tokens; k++)
                old = old || strcmp(texts[k], made) == 0;
            scores[tokens] = (float)vrpt_rng_below(&rng, 6) - 3;
            if (!old)
                (void)t_token(&v, made, scores[tokens++], 1);
        }
        g3_tokenizer *t = t_open(&v);
        for (int k = 0; k < 20; k++) {
            size_t length = (size_t)vrpt_rng_below(&rng, 60);
            for (size_t i = 0; i < length; i++)
                text[i] = (char)('a' + vrpt_rng_below(&rng, 3));
            text[length] = '\0';
            size_t count = slow(texts, scores, tokens, text, pieces);
            g3_ids got = t_encode_bytes(t, text, length, false);
            assert_int_equal(got.count, count);
            for (size_t i = 0; i < count; i++) {
                size_t bytes;
                const char *got_text = g3_tokenizer_piece(t, got.ids[i], &bytes);
                assert_int_equal(bytes, pieces[i].count);
                assert_memory_equal(got_text, text + pieces[i].start, bytes);
            }
            g3_ids_free(&got);
        }
        g3_tokenizer_close(t);
    }
}

/* A million letters: no recursion, no steps that grow with the square. */
static void a_long_run_of_one_letter(void **state) {
    (void)state;
    enum { COUNT = 1 << 20 };
    t_vocabulary v = {0};
    char *text = malloc(COUNT);
    char token[65];
    int32_t ids[7];
    t_all_bytes(&v);
    for (int i = 0; i < 7; i++) {
        memset(token, 'x', 64);
        token[1 << i] = '\0';
        ids[i] = t_token(&v, token, -(float)i, 1);
    }
    g3_tokenizer *t = t_open(&v);
    assert_non_null(text);
    memset(text, 'x', COUNT);
    g3_ids got = t_encode_bytes(t, text, COUNT - 1, false);
    assert_int_equal(got.count, COUNT / 64 - 1 + 6);
    assert_int_equal(got.ids[0], ids[6]);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(got.ids[COUNT / 64 - 1 + i], ids[5 - i]);
    g3_ids_free(&got);
    memset(text, 0xFF, COUNT);
    got = t_encode_bytes(t, text, COUNT, false);
    assert_int_equal(got.count, COUNT);
    assert_int_equal(got.ids[COUNT - 1], 0xFF);
    g3_ids_free(&got);
    free(text);
    g3_tokenizer_close(t);
}

static void any_bytes_come_back(void **state) {
    (void)state;
    vrpt_rng rng = {vrpt_env_number("VRAMPOOL_TEST_SEED", 12)};
    for (size_t types = 0; types < VRPT_COUNT(all_types); types++) {
        g3_tokenizer *t = small(all_types[types]);
        for (int round = 0; round < 2000; round++) {
            char text[128];
            t_round_trip(t, text, t_random_text(&rng, text, sizeof text));
        }
        g3_tokenizer_close(t);
    }
}

static void ids_are_appended(void **state) {
    (void)state;
    g3_tokenizer *t = small(control_types);
    g3_ids ids = {0};
    g3_error error = {{0}};
    assert_int_equal(g3_ids_append(&ids, 7, &error), G3_OK);
    assert_int_equal(g3_tokenizer_encode(t, "ab", 2, false, &ids, &error), G3_OK);
    assert_int_equal(g3_tokenizer_encode(t, "", 0, false, &ids, &error), G3_OK);
    assert_int_equal(g3_tokenizer_encode(t, "c", 1, false, &ids, &error), G3_OK);
    t_same_ids("appended", &ids, T_IDS(7, AB, C), 3);
    g3_ids_free(&ids);
    assert_null(ids.ids);
    g3_tokenizer_close(t);
    g3_tokenizer_close(NULL);
}

/* ---- Streaming ------------------------------------------------------------------------- */

/* Gives out whole characters only, one U+FFFD for every maximal part of none. */
static void streams_of_bytes(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"abc", "abc"},
        {"\xF0\x9F\xA6\x99", "\xF0\x9F\xA6\x99"},
        {"\xFF", "\xEF\xBF\xBD"},
        {"\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF0\x9F\xA6", "\xEF\xBF\xBD"},   /* cut off at the end */
        {"\xF0\x9F\xA6z", "\xEF\xBF\xBDz"}, /* and by another character */
        {"\xE2\x82\xE2\x82\xAC", "\xEF\xBF\xBD\xE2\x82\xAC"},
        {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"}, /* overlong */
        {"\xE0\x80\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"}, /* surrogate */
        {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
    };
    g3_tokenizer *t = small(control_types);
    for (size_t i = 0; i < VRPT_COUNT(cases); i++) {
        int32_t ids[8];
        size_t count = strlen(cases[i].bytes);
        for (size_t k = 0; k < count; k++)
            ids[k] = BYTES + (uint8_t)cases[i].bytes[k];
        g3_string out = t_decode(t, ids, count);
        assert_string_equal(out.bytes, cases[i].text);
        assert_int_equal(out.count, strlen(cases[i].text));
        g3_string_free(&out);
    }
    g3_tokenizer_close(t);
}

static void nothing_is_given_out_too_early(void **state) {
    (void)state;
    static const int32_t ids[] = {AB,           BYTES + 0xF0, BYTES + 0x9F, END, BYTES + 0xA6,
                                  BYTES + 0x99, SPACE_A,      99999,        -5};
    static const size_t counts[] = {2, 2, 2, 2, 2, 6, 8, 8, 8};
    g3_tokenizer *t = small(control_types);
    g3_stream_decoder decoder = {0};
    g3_string out = {0};
    g3_error error = {{0}};
    for (size_t i = 0; i < VRPT_COUNT(ids); i++) {
        assert_int_equal(g3_stream_decode(&decoder, t, ids[i], &out, &error), G3_OK);
        assert_int_equal(out.count, counts[i]);
        assert_int_equal(strlen(out.bytes), out.count);
    }
    assert_string_equal(out.bytes, "ab\xF0\x9F\xA6\x99 a");
    assert_int_equal(g3_stream_finish(&decoder, &out, &error), G3_OK);
    assert_int_equal(out.count, 8);
    g3_string_free(&out);
    assert_null(out.bytes);
    g3_tokenizer_close(t);
}

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_pair_merges_first),
        cmocka_unit_test(bytes_stand_for_what_has_no_token),
        cmocka_unit_test(user_defined_tokens_are_cut_out_first),
        cmocka_unit_test(control_tokens_are_never_found_in_typed_text),
        cmocka_unit_test(tokens_say_what_they_are),
        cmocka_unit_test(tokens_with_the_same_text),
        cmocka_unit_test(unknown_stands_for_missing_bytes),
        cmocka_unit_test(unused_pieces_fall_apart),
        cmocka_unit_test(merging_follows_the_rule),
        cmocka_unit_test(a_long_run_of_one_letter),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(ids_are_appended),
        cmocka_unit_test(streams_of_bytes),
        cmocka_unit_test(nothing_is_given_out_too_early),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
