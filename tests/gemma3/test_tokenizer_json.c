/* SPDX-License-Identifier: MIT */
/* Vocabularies from a tokenizer.json: merges by the order of their list, added
 * tokens, files that are wrong, the vocabulary of the tiny golden checkpoint. */

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

#define HEAD                                                                \
    "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"}," \
    "\"content\":\"\xE2\x96\x81\"},\"pre_tokenizer\":null,"
#define BPE "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"byte_fallback\":true,"
#define ADDED                                                              \
    "\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true}," \
    "{\"id\":7,\"content\":\"<t>\",\"special\":false}],"
#define VOCAB                                                               \
    "\"vocab\":{\"<unk>\":0,\"a\":1,\"aa\":2,\"aaa\":3,\"\xE2\x96\x81\":4," \
    "\"\xE2\x96\x81"                                                        \
    "a\":5,\"<0x41>\":6,\"<t>\":7}"
#define PAIRS "\"merges\":[[\"a\",\"a\"],[\"aa\",\"a\"],[\"a\",\"aa\"],[\"\xE2\x96\x81\",\"a\"]]}}"

static g3_status read_json(const char *text, g3_tokenizer **out, g3_error *error) {
    char path[256];
    t_file_write(folder, "made.json", text, strlen(text), path);
    return g3_tokenizer_from_json(path, out, error);
}

static void expect_json(const char *text, g3_status expected, const char *part) {
    g3_tokenizer *tokenizer = NULL;
    g3_error error = {{0}};
    t_expect(read_json(text, &tokenizer, &error), expected, &error,
             expected == G3_OK ? NULL : "made.json: ", part);
    assert_int_equal(tokenizer != NULL, expected == G3_OK);
    g3_tokenizer_close(tokenizer);
}

/* Both ways of writing merges; the order is that of the list: in "aaaa" aa comes
 * first, twice, and "a" "aaa" is no pair. */
static void json_merges_rank_by_their_place(void **state) {
    (void)state;
    static const char *const texts[] = {
        HEAD ADDED BPE VOCAB "," PAIRS,
        HEAD ADDED BPE VOCAB ",\"merges\":[\"a a\",\"aa a\",\"a aa\",\"\xE2\x96\x81 a\"]}}"};
    for (size_t i = 0; i < VRPT_COUNT(texts); i++) {
        g3_tokenizer *t = NULL;
        g3_error error = {{0}};
        t_expect(read_json(texts[i], &t, &error), G3_OK, &error, NULL, NULL);
        assert_int_equal(g3_tokenizer_size(t), 8);
        t_expect_ids(t, "aaaa", false, T_IDS(2, 2));
        t_expect_ids(t, "aaa", false, T_IDS(3));
        t_expect_ids(t, " a", false, T_IDS(5));
        t_expect_ids(t, " aa", false, T_IDS(4, 2));
        t_expect_ids(t, "A<t>a", false, T_IDS(6, 7, 1));
        t_expect_ids(t, "<unk>", true, T_IDS(0));
        t_expect_ids(t, "zz<", false, T_IDS(0));
        g3_tokenizer_close(t);
    }
}

/* A token that no pair makes stays out of reach in a list, not by score. */
static void unlisted_pairs_never_merge(void **state) {
    (void)state;
    static const char unreachable[] =
        HEAD BPE "\"vocab\":{\"<unk>\":0,\"b\":1,\"a\":2,\"ab\":3},\"merges\":[]}}";
    g3_tokenizer *t = NULL;
    g3_error error = {{0}};
    t_expect(read_json(unreachable, &t, &error), G3_OK, &error, NULL, NULL);
    t_expect_ids(t, "ab", false, T_IDS(2, 1));
    g3_tokenizer_close(t);
    t_vocabulary v = {0};
    (void)t_token(&v, "<unk>", 0, 2);
    (void)t_token(&v, "b", 0, 1);
    (void)t_token(&v, "a", 0, 1);
    (void)t_token(&v, "ab", -9, 1);
    t = t_open(&v);
    t_expect_ids(t, "ab", false, T_IDS(3));
    g3_tokenizer_close(t);
}

/* ---- Against the rule, spelled out ---------------------------------------------------- */

typedef struct pair {
    char left[8], right[8];
} pair;

/* left and right together, in a place of its own; short enough for it. */
static void both(char out[8], const char *left, const char *right) {
    size_t count = strlen(left), more = strlen(right);
    assert_true(count + more < 8);
    memcpy(out, left, count);
    memcpy(out + count, right, more + 1);
}

/* Random pairs of letters and of what earlier pairs make, in a random order that
 * has nothing to do with the result. */
static size_t random_pairs(vrpt_rng *rng, pair *out, size_t most) {
    char tokens[64][8];
    size_t count = 0, known = 0;
    for (; known < 3; known++)
        (void)snprintf(tokens[known], 8, "%c", 'a' + (char)known);
    while (count < most) {
        const char *left = tokens[vrpt_rng_below(rng, known)];
        const char *right = tokens[vrpt_rng_below(rng, known)];
        bool old = strlen(left) + strlen(right) > 5;
        for (size_t i = 0; i < count; i++)
            old = old || (strcmp(out[i].left, left) == 0 && strcmp(out[i].right, right) == 0);
        if (old)
            continue;
        both(out[count].left, left, "");
        both(out[count].right, right, "");
        count++;
        both(tokens[known++], left, right);
    }
    for (size_t i = count; i > 1; i--) {
        size_t k = (size_t)vrpt_rng_below(rng, i);
        pair swapped = out[k];
        out[k] = out[i - 1];
        out[i - 1] = swapped;
    }
    return count;
}

/* A tokenizer.json of these merges; ids 1 to 3 are the letters. */
static g3_tokenizer *open_pairs(const pair *pairs, size_t count) {
    char text[16384], merges[4096] = "";
    size_t at = 0, merges_at = 0, next = 4;
    g3_tokenizer *t = NULL;
    g3_error error = {{0}};
    at += (size_t)snprintf(text, sizeof text, "%s",
                           HEAD BPE "\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"c\":3");
    for (size_t i = 0; i < count; i++) {
        bool old = false;
        char made[8], other[8];
        both(made, pairs[i].left, pairs[i].right);
        for (size_t k = 0; k < i; k++) {
            both(other, pairs[k].left, pairs[k].right);
            old = old || strcmp(made, other) == 0;
        }
        if (!old)
            at += (size_t)snprintf(text + at, sizeof text - at, ",\"%s\":%zu", made, next++);
        merges_at +=
            (size_t)snprintf(merges + merges_at, sizeof merges - merges_at, "%s[\"%s\",\"%s\"]",
                             i == 0 ? "" : ",", pairs[i].left, pairs[i].right);
    }
    (void)snprintf(text + at, sizeof text - at, "},\"merges\":[%s]}}", merges);
    t_expect(read_json(text, &t, &error), G3_OK, &error, NULL, NULL);
    return t;
}

/* Looks at all neighbours again for every merge. by_result: equal results are
 * equal, as with scores; else every pair has its own rank. */
static size_t slow(const pair *pairs, size_t count, const char *text, char out[][8],
                   bool by_result) {
    size_t symbols = strlen(text);
    for (size_t i = 0; i < symbols; i++)
        (void)snprintf(out[i], 8, "%c", text[i]);
    for (;;) {
        size_t best = symbols, best_rank = count;
        for (size_t i = 0; i + 1 < symbols; i++)
            for (size_t k = 0; k < best_rank; k++) {
                char made[8];
                size_t left = strlen(out[i]);
                both(made, pairs[k].left, pairs[k].right);
                if (by_result
                        ? strncmp(made, out[i], left) == 0 && strcmp(made + left, out[i + 1]) == 0
                        : strcmp(out[i], pairs[k].left) == 0 &&
                              strcmp(out[i + 1], pairs[k].right) == 0) {
                    best = i;
                    best_rank = k;
                }
            }
        if (best == symbols)
            return symbols;
        memcpy(out[best] + strlen(out[best]), out[best + 1], strlen(out[best + 1]) + 1);
        symbols--;
        memmove(out[best + 1], out[best + 2], (symbols - best - 1) * sizeof out[0]);
    }
}

/* The list's order is kept exactly, also between splits of one token, where an
 * order by the token alone would give other ids. */
static void merging_follows_the_list(void **state) {
    (void)state;
    vrpt_rng rng = {vrpt_env_number("VRAMPOOL_TEST_SEED", 14)};
    size_t differ = 0;
    for (int round = 0; round < 150; round++) {
        pair pairs[24];
        size_t count = random_pairs(&rng, pairs, VRPT_COUNT(pairs));
        g3_tokenizer *t = open_pairs(pairs, count);
        for (int k = 0; k < 20; k++) {
            char text[40], expected[40][8], other[40][8];
            size_t length = (size_t)vrpt_rng_below(&rng, 36);
            for (size_t i = 0; i < length; i++)
                text[i] = (char)('a' + vrpt_rng_below(&rng, 3));
            text[length] = '\0';
            size_t symbols = slow(pairs, count, text, expected, false);
            size_t others = slow(pairs, count, text, other, true);
            bool same = symbols == others;
            g3_ids got = t_encode_bytes(t, text, length, false);
            assert_int_equal(got.count, symbols);
            for (size_t i = 0; i < symbols; i++) {
                size_t bytes;
                const char *piece = g3_tokenizer_piece(t, got.ids[i], &bytes);
                assert_int_equal(bytes, strlen(expected[i]));
                assert_memory_equal(piece, expected[i], bytes);
                same = same && strcmp(expected[i], other[i]) == 0;
            }
            differ += !same;
            g3_ids_free(&got);
        }
        g3_tokenizer_close(t);
    }
    assert_true(differ > 20);
}

/* Added tokens may lie beyond the vocabulary, with gaps, and rename what is there. */
static void json_added_tokens(void **state) {
    (void)state;
    static const char text[] =
        HEAD "\"added_tokens\":[{\"id\":9,\"content\":\"<image_soft_token>\",\"special\":true},"
             "{\"id\":2,\"content\":\"<tool>\",\"special\":false},"
             "{\"id\":3,\"content\":\"  \",\"special\":false}]," BPE VOCAB "," PAIRS;
    g3_tokenizer *t = NULL;
    g3_error error = {{0}};
    size_t count;
    t_expect(read_json(text, &t, &error), G3_OK, &error, NULL, NULL);
    assert_int_equal(g3_tokenizer_size(t), 10);
    assert_int_equal(g3_tokenizer_special(t)->image, 9);
    assert_true(g3_tokenizer_is_control(t, 9));
    assert_false(g3_tokenizer_is_control(t, 8));
    (void)g3_tokenizer_text(t, 8, &count);
    assert_int_equal(count, 0);
    t_expect_ids(t, "aa<tool>  ", false, T_IDS(1, 1, 2, 3));
    assert_memory_equal(g3_tokenizer_piece(t, 3, &count), "  ", 2);
    g3_tokenizer_close(t);
}

static void json_files_that_are_refused(void **state) {
    (void)state;
    expect_json("", G3_INVALID, "empty");
    expect_json("{", G3_INVALID, "line");
    expect_json("[]", G3_INVALID, "object");
    expect_json("{}", G3_UNSUPPORTED, "model.type");
    expect_json(HEAD "\"model\":{\"type\":\"Unigram\"}}", G3_UNSUPPORTED, "Unigram");
    expect_json("{" BPE VOCAB "," PAIRS, G3_UNSUPPORTED, "normalizer");
    expect_json("{\"normalizer\":{\"type\":\"Lowercase\"}," BPE VOCAB "," PAIRS, G3_UNSUPPORTED,
                "Lowercase");
    expect_json("{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[]}," BPE VOCAB "," PAIRS,
                G3_UNSUPPORTED, "normalizer");
    expect_json("{\"pre_tokenizer\":{\"type\":\"ByteLevel\"}," BPE VOCAB "," PAIRS, G3_UNSUPPORTED,
                "ByteLevel");
    expect_json(HEAD BPE "\"vocab\":{}," PAIRS, G3_INVALID, "vocab");
    expect_json(HEAD BPE "\"vocab\":[\"a\"]," PAIRS, G3_INVALID, "vocab");
    expect_json(HEAD BPE "\"vocab\":{\"a\":\"1\"}," PAIRS, G3_INVALID, "integer");
    expect_json(HEAD BPE "\"vocab\":{\"a\":-1}," PAIRS, G3_INVALID, "token id -1");
    expect_json(HEAD BPE "\"vocab\":{\"a\":1048577}," PAIRS, G3_INVALID, "1048577");
    expect_json(HEAD BPE "\"vocab\":{\"a\":4294967296}," PAIRS, G3_INVALID, "4294967296");
    expect_json(HEAD BPE "\"vocab\":{\"a\":1,\"b\":1}," PAIRS, G3_INVALID, "id 1 is given twice");
    expect_json(HEAD BPE VOCAB "}}", G3_INVALID, "merges");
    expect_json(HEAD BPE VOCAB ",\"merges\":[\"aa\"]}}", G3_INVALID, "element 0");
    expect_json(HEAD BPE VOCAB ",\"merges\":[[\"a\",\"a\"],[\"a\"]]}}", G3_INVALID, "element 1");
    expect_json(HEAD BPE VOCAB ",\"merges\":[[\"a\",1]]}}", G3_INVALID, "element 0");
    expect_json(HEAD BPE VOCAB ",\"merges\":[1]}}", G3_INVALID, "element 0");
    expect_json(HEAD BPE VOCAB ",\"merges\":[[\"a\",\"z\"]]}}", G3_INVALID, "made of tokens");
    expect_json(HEAD BPE VOCAB ",\"merges\":[[\"aa\",\"aa\"]]}}", G3_INVALID, "made of tokens");
    expect_json(HEAD "\"added_tokens\":[{\"content\":\"x\"}]," BPE VOCAB "," PAIRS, G3_INVALID,
                "element 0");
    expect_json(HEAD "\"added_tokens\":[{\"id\":1}]," BPE VOCAB "," PAIRS, G3_INVALID, "no text");
    expect_json(HEAD "\"added_tokens\":[7]," BPE VOCAB "," PAIRS, G3_INVALID, "element 0");
    expect_json(HEAD BPE "\"vocab\":{\"a\":0},\"merges\":[]}}", G3_INVALID, "byte 0x00");
    g3_tokenizer *t = NULL;
    g3_error error = {{0}};
    char path[256];
    (void)snprintf(path, sizeof path, "%s/none.json", folder);
    t_expect(g3_tokenizer_from_json(path, &t, &error), G3_IO, &error, "none.json", NULL);
    t_expect(g3_tokenizer_from_model(path, &t, &error), G3_IO, &error, "none.json", NULL);
    assert_null(t);
}

/* ---- The tiny vocabulary ---- */

/* The tiny vocabulary has every byte and reaches every token that is text. */
static void the_tiny_vocabulary_writes_everything(void **state) {
    (void)state;
    g3_tokenizer *t = NULL;
    g3_error error = {{0}};
    vrpt_rng rng = {vrpt_env_number("VRAMPOOL_TEST_SEED", 13)};
    t_expect(g3_tokenizer_from_json(GOLDEN "/tokenizer.json", &t, &error), G3_OK, &error, NULL,
             NULL);
    for (unsigned i = 0; i < 0x10000; i++) {
        const uint8_t two[2] = {(uint8_t)i, (uint8_t)(i >> 8)};
        t_round_trip(t, two, 2);
    }
    for (int round = 0; round < 4000; round++) {
        char text[200];
        t_round_trip(t, text, t_random_text(&rng, text, sizeof text));
    }
    for (int32_t id = 0; id < 512; id++) {
        size_t count;
        const char *piece = g3_tokenizer_piece(t, id, &count);
        if (g3_tokenizer_is_control(t, id) || (id >= 9 && id < 9 + 256))
            continue;
        g3_ids ids = t_encode_bytes(t, piece, count, false);
        t_same_ids(piece, &ids, &id, 1);
        g3_ids_free(&ids);
    }
    g3_tokenizer_close(t);
}

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_merges_rank_by_their_place),
        cmocka_unit_test(unlisted_pairs_never_merge),
        cmocka_unit_test(merging_follows_the_list),
        cmocka_unit_test(json_added_tokens),
        cmocka_unit_test(json_files_that_are_refused),
        cmocka_unit_test(the_tiny_vocabulary_writes_everything),
    };
    return cmocka_run_group_tests_name("tokenizer.json", tests, make_folder, remove_folder);
}
