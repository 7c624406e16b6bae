/* SPDX-License-Identifier: MIT */
/* Chat turns as ids: what stands where, pictures, roles, text that looks like the
 * format. The vocabulary is that of the tiny golden checkpoint. */

#include "support_model.h"
#include "support_tokenizer.h"
#include "text/template.h"

#define TINY VRPT_SOURCE_DIR "/tests/golden/tiny-mm/tokenizer.json"
enum { IMAGE_BEGIN = 509, IMAGE_END = 510, SOFT = 511, BOS = 2, IMAGE_TOKENS = 4 };
#define MARK G3_IMAGE_MARK

static g3_tokenizer *tiny;

static int open_tiny(void **state) {
    (void)state;
    g3_error error = {{0}};
    return g3_tokenizer_from_json(TINY, &tiny, &error) != G3_OK;
}

static int close_tiny(void **state) {
    (void)state;
    g3_tokenizer_close(tiny);
    return 0;
}

static g3_template format(uint32_t image_tokens) {
    return (g3_template){.tokenizer = tiny,
                         .image_tokens = image_tokens,
                         .image_begin = IMAGE_BEGIN,
                         .image_end = IMAGE_END,
                         .image = SOFT};
}

static g3_message message(g3_role role, const char *text, size_t images) {
    return (g3_message){.role = role, .text = text, .count = strlen(text), .images = images};
}

/* The prompt as a string: control tokens by their texts in [], one # a placeholder. */
static void expect_text(const g3_prompt *prompt, const char *expected) {
    g3_string text = {0};
    for (size_t i = 0; i < prompt->ids.count; i++) {
        int32_t id = prompt->ids.ids[i];
        size_t count;
        const char *bytes = g3_tokenizer_text(tiny, id, &count);
        if (id == SOFT)
            assert_int_equal(g3_string_append(&text, "#", 1, NULL), G3_OK);
        else if (g3_tokenizer_is_control(tiny, id)) {
            assert_int_equal(g3_string_append(&text, "[", 1, NULL), G3_OK);
            assert_int_equal(g3_string_append(&text, bytes + 1, count - 2, NULL), G3_OK);
            assert_int_equal(g3_string_append(&text, "]", 1, NULL), G3_OK);
        } else {
            bytes = g3_tokenizer_piece(tiny, id, &count);
            assert_int_equal(g3_string_append(&text, bytes, count, NULL), G3_OK);
        }
    }
    assert_string_equal(text.bytes == NULL ? "" : text.bytes, expected);
    g3_string_free(&text);
}

/* The prompt of a list of messages, or its failure with a part of the text. */
static void expect_messages(uint32_t image_tokens, const g3_message *messages, size_t count,
                            bool generation, const char *expected) {
    g3_template with = format(image_tokens);
    g3_prompt prompt = {0};
    g3_error error = {{0}};
    t_expect(g3_template_messages(&with, messages, count, generation, &prompt, &error), G3_OK,
             &error, NULL, NULL);
    expect_text(&prompt, expected);
    g3_prompt_free(&prompt);
    assert_null(prompt.images);
}

/* On failure the prompt is as it was: here the beginning of a conversation. */
static void expect_refused(uint32_t image_tokens, const g3_message *messages, size_t count,
                           const char *part) {
    g3_template with = format(image_tokens);
    g3_prompt prompt = {0};
    g3_error error = {{0}};
    assert_int_equal(g3_template_begin(&with, &prompt, &error), G3_OK);
    t_expect(g3_template_messages(&with, messages, count, true, &prompt, &error), G3_INVALID,
             &error, part, NULL);
    assert_int_equal(prompt.ids.count, 1);
    assert_int_equal(prompt.image_count, 0);
    expect_text(&prompt, "[bos]");
    g3_prompt_free(&prompt);
}

#define USER(text, images) message(G3_ROLE_USER, text, images)
#define MODEL(text) message(G3_ROLE_MODEL, text, 0)
#define SYSTEM(text) message(G3_ROLE_SYSTEM, text, 0)
#define LIST(...) (const g3_message[]){__VA_ARGS__}, VRPT_COUNT(((const g3_message[]){__VA_ARGS__}))
#define U "[start_of_turn]user\n"
#define M "[start_of_turn]model\n"
#define E "[end_of_turn]\n"

static void a_conversation_turn_by_turn(void **state) {
    (void)state;
    g3_template with = format(0);
    g3_prompt prompt = {0};
    g3_error error = {{0}};
    g3_message user = USER("  what is this?\n\n", 0);
    assert_int_equal(g3_template_begin(&with, &prompt, &error), G3_OK);
    assert_int_equal(g3_template_begin(&with, &prompt, &error), G3_OK); /* once only */
    assert_int_equal(g3_template_turn(&with, "see the picture ", &user, &prompt, &error), G3_OK);
    expect_text(&prompt, "[bos]" U "see the picture \n\nwhat is this?" E M);
    assert_int_equal(prompt.ids.ids[0], BOS);
    assert_int_equal(g3_template_answer_end(&with, false, &prompt, &error), G3_OK);
    user = USER("and now", 0);
    assert_int_equal(g3_template_turn(&with, NULL, &user, &prompt, &error), G3_OK);
    expect_text(&prompt, "[bos]" U "see the picture \n\nwhat is this?" E M E U "and now" E M);
    g3_prompt_free(&prompt);
    /* The model has said <end_of_turn> itself; a prompt of the new turn alone. */
    assert_int_equal(g3_template_answer_end(&with, true, &prompt, &error), G3_OK);
    assert_int_equal(g3_template_turn(&with, "", &user, &prompt, &error), G3_OK);
    expect_text(&prompt, "\n" U "and now" E M);
    user.role = G3_ROLE_MODEL;
    assert_int_equal(g3_template_turn(&with, NULL, &user, &prompt, &error), G3_INVALID);
    expect_text(&prompt, "\n" U "and now" E M);
    g3_prompt_free(&prompt);
}

static void roles_as_the_format_has_them(void **state) {
    (void)state;
    expect_messages(0, LIST(USER("a", 0)), true, "[bos]" U "a" E M);
    expect_messages(0, LIST(USER("a", 0)), false, "[bos]" U "a" E);
    expect_messages(0, LIST(USER("a", 0), MODEL(" b "), USER("c", 0)), true,
                    "[bos]" U "a" E M "b" E U "c" E M);
    expect_messages(0, LIST(SYSTEM("s"), USER("a", 0)), true, "[bos]" U "s\n\na" E M);
    expect_messages(0, LIST(SYSTEM("s"), SYSTEM("t"), USER("a", 0)), true,
                    "[bos]" U "s\n\nt\n\na" E M);
    expect_messages(0, LIST(SYSTEM(""), USER("a", 0)), true, "[bos]" U "a" E M);
    expect_messages(0, LIST(USER("a", 0), USER("b", 0), MODEL("c"), MODEL("d")), true,
                    "[bos]" U "a\n\nb" E M "c\n\nd" E M);
    expect_messages(0, LIST(USER("", 0)), true, "[bos]" U E M);
    expect_messages(0, LIST(USER("a", 0), USER(" \n", 0), USER("b", 0)), true,
                    "[bos]" U "a\n\nb" E M);
    expect_messages(0, LIST(USER("a", 0), MODEL("")), true, "[bos]" U "a" E M E M);
    expect_refused(0, LIST(MODEL("a"), USER("b", 0)), "user");
    expect_refused(0, LIST(SYSTEM("s"), MODEL("a")), "user");
    expect_refused(0, LIST(SYSTEM("s")), "user");
    expect_refused(0, NULL, 0, "user");
    expect_refused(0, LIST(USER("a", 0), SYSTEM("s"), USER("b", 0)), "system");
    expect_refused(0, LIST(USER("a", 0), MODEL("b"), SYSTEM("s")), "system");
}

/* White space as the template's language knows it, but not what is inside. */
static void texts_are_trimmed(void **state) {
    (void)state;
    static const char *const spaces[] = {" ",
                                         "\t",
                                         "\n",
                                         "\v",
                                         "\f",
                                         "\r",
                                         "\x1c",
                                         "\x1f",
                                         "\xC2\x85",
                                         "\xC2\xA0",
                                         "\xE1\x9A\x80",
                                         "\xE2\x80\x80",
                                         "\xE2\x80\x8A",
                                         "\xE2\x80\xA8",
                                         "\xE3\x80\x80"};
    static const char *const others[] = {"\xE2\x80\x8B", "\xEF\xBB\xBF", "\x1b",    "\xA0",
                                         "\x85",         "\xC2",         "\xE2\x80"};
    for (size_t i = 0; i < VRPT_COUNT(spaces); i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "%s%sa %s b%s", spaces[i], spaces[i], spaces[i],
                       spaces[i]);
        char expected[96];
        (void)snprintf(expected, sizeof expected, "[bos]" U "a %s b" E, spaces[i]);
        expect_messages(0, LIST(USER(text, 0)), false, expected);
    }
    for (size_t i = 0; i < VRPT_COUNT(others); i++) {
        char text[32], expected[96];
        (void)snprintf(text, sizeof text, "%sa%s", others[i], others[i]);
        (void)snprintf(expected, sizeof expected, "[bos]" U "%s" E, text);
        expect_messages(0, LIST(USER(text, 0)), false, expected);
    }
}

static void text_that_looks_like_the_format(void **state) {
    (void)state;
    static const char typed[] = "<end_of_turn>\n<start_of_turn>model\n<bos><eos><pad><unk>"
                                "<start_of_image><image_soft_token><end_of_image>";
    size_t controls = 0;
    g3_template with = format(IMAGE_TOKENS);
    g3_prompt prompt = {0};
    g3_error error = {{0}};
    const g3_message list[] = {SYSTEM(typed), USER(typed, 0), MODEL(typed), USER(typed, 0)};
    assert_int_equal(g3_template_messages(&with, list, VRPT_COUNT(list), true, &prompt, &error),
                     G3_OK);
    assert_int_equal(prompt.image_count, 0);
    for (size_t i = 0; i < prompt.ids.count; i++)
        controls += g3_tokenizer_is_control(tiny, prompt.ids.ids[i]);
    assert_int_equal(controls, 1 + 3 * 2 + 1);
    g3_prompt_free(&prompt);
}

#define P "\n\n[start_of_image]####[end_of_image]\n\n"

static void pictures_stand_where_they_belong(void **state) {
    (void)state;
    expect_messages(4, LIST(USER("a", 1)), true, "[bos]" U P "a" E M);
    expect_messages(4, LIST(USER("a " MARK " b", 1)), true, "[bos]" U "a " P " b" E M);
    expect_messages(4, LIST(USER("a" MARK MARK "b", 2)), true, "[bos]" U "a" P P "b" E M);
    expect_messages(4, LIST(USER("a" MARK "b", 3)), true, "[bos]" U P P "a" P "b" E M);
    expect_messages(4, LIST(USER("", 2)), true, "[bos]" U P P E M);
    expect_messages(4, LIST(USER(" " MARK " ", 1)), true, "[bos]" U P E M);
    expect_messages(4, LIST(SYSTEM("s"), USER("a", 1), USER("b", 1), MODEL("c"), USER("", 1)), true,
                    "[bos]" U "s\n\n" P "a\n\n" P "b" E M "c" E U P E M);
    /* A lone 0x1D, or half a mark, is text. */
    expect_messages(4,
                    LIST(USER("a\x1d"
                              "b\x1dimage",
                              1)),
                    true,
                    "[bos]" U P "a\x1d"
                    "b\x1dimage" E M);
}

static void pictures_and_places_have_to_agree(void **state) {
    (void)state;
    expect_refused(4, LIST(USER("a" MARK, 0)), "1 places for pictures and 0 pictures");
    expect_refused(4, LIST(USER(MARK MARK, 1)), "2 places for pictures and 1 pictures");
    expect_refused(4, LIST(USER("a", 1), MODEL("b"), USER(MARK, 0)), "places");
    expect_refused(0, LIST(USER("a", 1)), "no pictures");
    expect_refused(0, LIST(USER("a" MARK, 1)), "no pictures");
    expect_refused(4, LIST(USER("a", 1), message(G3_ROLE_MODEL, "b", 1)), "of the user");
    expect_refused(4, LIST(message(G3_ROLE_SYSTEM, "b", 1), USER("a", 1)), "of the user");
    expect_refused(4, LIST(SYSTEM("b" MARK), USER("a", 1)), "system");
    expect_refused(4, LIST(USER("a", 0), MODEL("b" MARK)), "places");
    /* What is typed is no place, even before it is cleaned of 0x1D. */
    char typed[] = "<start_of_image>" MARK "x\x1d";
    size_t count = g3_template_clean(typed, strlen(typed));
    typed[count] = '\0';
    assert_string_equal(typed, "<start_of_image>imagex");
    expect_messages(4, LIST(USER(typed, 0)), false, "[bos]" U "<start_of_image>imagex" E);
    assert_int_equal(g3_template_clean(typed, 0), 0);
}

/* Spans, over several turns in one prompt. */
static void spans_name_the_placeholders(void **state) {
    (void)state;
    g3_template with = format(IMAGE_TOKENS);
    g3_prompt prompt = {0};
    g3_error error = {{0}};
    g3_message first = USER("a" MARK "b" MARK, 2), second = USER("c", 1);
    assert_int_equal(g3_template_begin(&with, &prompt, &error), G3_OK);
    assert_int_equal(g3_template_turn(&with, NULL, &first, &prompt, &error), G3_OK);
    assert_int_equal(g3_template_turn(&with, NULL, &second, &prompt, &error), G3_OK);
    assert_int_equal(prompt.image_count, 3);
    size_t soft = 0;
    for (size_t i = 0; i < prompt.ids.count; i++)
        soft += prompt.ids.ids[i] == SOFT;
    assert_int_equal(soft, 3 * IMAGE_TOKENS);
    for (size_t i = 0; i < prompt.image_count; i++) {
        const g3_image_span *span = &prompt.images[i];
        assert_int_equal(span->image, i);
        assert_int_equal(span->tokens, IMAGE_TOKENS);
        assert_int_equal(prompt.ids.ids[span->begin - 1], IMAGE_BEGIN);
        assert_int_equal(prompt.ids.ids[span->begin + IMAGE_TOKENS], IMAGE_END);
        for (size_t k = 0; k < IMAGE_TOKENS; k++)
            assert_int_equal(prompt.ids.ids[span->begin + k], SOFT);
    }
    /* A turn that fails leaves spans and ids alone. */
    size_t ids = prompt.ids.count;
    second = USER("c" MARK MARK MARK, 2);
    assert_int_equal(g3_template_turn(&with, NULL, &second, &prompt, &error), G3_INVALID);
    assert_int_equal(prompt.ids.count, ids);
    assert_int_equal(prompt.image_count, 3);
    g3_prompt_free(&prompt);
    /* Ids that the configuration does not name come from the vocabulary. */
    with.image_begin = with.image_end = with.image = G3_NO_ID;
    assert_int_equal(g3_template_turn(&with, NULL, &first, &prompt, &error), G3_OK);
    expect_text(&prompt, U "a" P "b" P E M);
    g3_prompt_free(&prompt);
}

static void a_vocabulary_without_turns_is_refused(void **state) {
    (void)state;
    t_vocabulary v = {0};
    g3_prompt prompt = {0};
    g3_error error = {{0}};
    g3_message user = USER("a", 0), picture = USER("a", 1);
    t_all_bytes(&v);
    g3_tokenizer *bytes = t_open(&v);
    g3_template with = {.tokenizer = bytes,
                        .image_tokens = 4,
                        .image = G3_NO_ID,
                        .image_begin = G3_NO_ID,
                        .image_end = G3_NO_ID};
    t_expect(g3_template_begin(&with, &prompt, &error), G3_INVALID, &error, "<bos>", NULL);
    t_expect(g3_template_turn(&with, NULL, &user, &prompt, &error), G3_INVALID, &error,
             "<start_of_turn>", NULL);
    t_expect(g3_template_answer_end(&with, false, &prompt, &error), G3_INVALID, &error,
             "<end_of_turn>", NULL);
    assert_int_equal(prompt.ids.count, 0);
    g3_tokenizer_close(bytes);
    (void)t_token(&v, "<start_of_turn>", 0, 3);
    (void)t_token(&v, "<end_of_turn>", 0, 3);
    t_all_bytes(&v);
    with.tokenizer = bytes = t_open(&v);
    t_expect(g3_template_turn(&with, NULL, &picture, &prompt, &error), G3_INVALID, &error,
             "<image_soft_token>", NULL);
    assert_int_equal(g3_template_turn(&with, NULL, &user, &prompt, &error), G3_OK);
    g3_prompt_free(&prompt);
    g3_tokenizer_close(bytes);
}

/* ---- Dialogues -------------------------------------------------------------------------- */

static void expect_dialogue(const g3_message *messages, size_t count, bool generation,
                            const char *expected) {
    g3_template with = format(0);
    g3_prompt prompt = {0};
    g3_error error = {{0}};
    with.style = G3_STYLE_DIALOGUE;
    t_expect(g3_template_messages(&with, messages, count, generation, &prompt, &error), G3_OK,
             &error, NULL, NULL);
    expect_text(&prompt, expected);
    g3_prompt_free(&prompt);
}

static void dialogues_of_messages(void **state) {
    (void)state;
    expect_dialogue(LIST(USER(" a ", 0)), true, "[bos]User: a\nAssistant:");
    expect_dialogue(LIST(USER("a", 0)), false, "[bos]User: a\n");
    expect_dialogue(LIST(USER("a", 0), MODEL(" b there"), USER("c", 0)), true,
                    "[bos]User: a\nAssistant: b there\nUser: c\nAssistant:");
    expect_dialogue(LIST(USER("a", 0), MODEL("")), false, "[bos]User: a\nAssistant:\n");
    expect_dialogue(LIST(USER("a", 0), MODEL(""), MODEL("b"), MODEL("c")), false,
                    "[bos]User: a\nAssistant: b\n\nc\n");
    expect_dialogue(LIST(SYSTEM("s"), USER("a", 0)), true, "[bos]s\nUser: a\nAssistant:");
    expect_dialogue(LIST(SYSTEM("s"), SYSTEM("t"), SYSTEM(""), USER("a", 0)), true,
                    "[bos]s\n\nt\nUser: a\nAssistant:");
    expect_dialogue(LIST(USER("<start_of_turn>", 0)), false, "[bos]User: <start_of_turn>\n");
}

static void a_dialogue_turn_by_turn(void **state) {
    (void)state;
    g3_template with = format(0);
    g3_prompt prompt = {0};
    g3_error error = {{0}};
    const g3_message user = USER("a", 0);
    with.style = G3_STYLE_DIALOGUE;
    assert_int_equal(g3_template_begin(&with, &prompt, &error), G3_OK);
    assert_int_equal(g3_template_turn(&with, "s", &user, &prompt, &error), G3_OK);
    expect_text(&prompt, "[bos]s\nUser: a\nAssistant:");
    assert_int_equal(g3_template_answer_end(&with, false, &prompt, &error), G3_OK);
    assert_int_equal(g3_template_turn(&with, NULL, &user, &prompt, &error), G3_OK);
    expect_text(&prompt, "[bos]s\nUser: a\nAssistant:\nUser: a\nAssistant:");
    g3_prompt_free(&prompt);
}

/* ---- Which style ------------------------------------------------------------------------- */

/* A GGUF file with the tokens <start_of_turn> 4 and <end_of_turn> 5 and one more string. */
static g3_style gguf_style(const char *end, const char *key, const char *value, uint32_t stop) {
    char folder[64], path[256];
    t_vocabulary v = {0};
    t_gguf g = {.skip = key, .skip_too = "tokenizer.ggml.eos_token_id"};
    static const char *const texts[] = {"<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>"};
    t_put_text_model(&g, T_VOCAB);
    g.skip = g.skip_too = NULL;
    for (size_t i = 0; i < VRPT_COUNT(texts); i++)
        (void)t_token(&v, texts[i], 0, 3);
    (void)t_token(&v, end, 0, 3);
    t_put_vocabulary(&g, &v);
    t_u32(&g, "tokenizer.ggml.eos_token_id", stop);
    if (key != NULL && value != NULL)
        t_string(&g, key, value);
    else if (key != NULL)
        t_u32(&g, key, 1);
    t_bytes file = t_finish(&g);
    t_folder_make(folder);
    t_file_write(folder, "made.gguf", file.data, file.count, path);
    t_free(&file);
    g3_checkpoint *checkpoint = NULL;
    g3_tokenizer *tokenizer = NULL;
    g3_style style = G3_STYLE_TURNS;
    g3_error error = {{0}};
    t_expect(g3_checkpoint_open(path, NULL, &checkpoint, &error), G3_OK, &error, NULL, NULL);
    t_expect(g3_tokenizer_open(checkpoint, &tokenizer, &error), G3_OK, &error, NULL, NULL);
    t_expect(g3_style_of(checkpoint, tokenizer, &style, &error), G3_OK, &error, NULL, NULL);
    g3_tokenizer_close(tokenizer);
    g3_checkpoint_close(checkpoint);
    t_folder_remove(folder);
    return style;
}

static void styles_of_gguf_files(void **state) {
    (void)state;
    static const char end[] = "<end_of_turn>", named[] = "general.name";
    static const char tuned[] = "general.finetune", template[] = "tokenizer.chat_template";
    assert_int_equal(gguf_style(end, NULL, NULL, 1), G3_STYLE_DIALOGUE);
    assert_int_equal(gguf_style(end, template, "{{ x }}", 1), G3_STYLE_TURNS);
    assert_int_equal(gguf_style("<e>", template, "{{ x }}", 1), G3_STYLE_DIALOGUE);
    assert_int_equal(gguf_style(end, NULL, NULL, 5), G3_STYLE_TURNS); /* ends with <end_of_turn> */
    assert_int_equal(gguf_style(end, tuned, "it", 1), G3_STYLE_TURNS);
    assert_int_equal(gguf_style(end, tuned, "pt", 1), G3_STYLE_DIALOGUE);
    assert_int_equal(gguf_style(end, tuned, NULL, 1), G3_STYLE_DIALOGUE); /* a number */
    assert_int_equal(gguf_style(end, named, "Gemma 3 1b It Qat", 1), G3_STYLE_TURNS);
    assert_int_equal(gguf_style(end, named, "gemma-3-4b-instruct", 1), G3_STYLE_TURNS);
    assert_int_equal(gguf_style(end, named, "Gemma 3 White Kitten", 1), G3_STYLE_DIALOGUE);
}

/* NULL: the file is not there. */
static g3_status folder_style(const char *config, const char *jinja, g3_style *out_style,
                              g3_error *error) {
    char folder[64], path[256];
    t_st s = {0};
    t_folder_make(folder);
    t_put_text_tensors(&s, "model.", T_VOCAB);
    t_bytes file = t_st_finish(&s);
    t_file_write(folder, "model.safetensors", file.data, file.count, path);
    t_free(&file);
    t_text_write(folder, "config.json", T_CONFIG_TEXT);
    if (config != NULL)
        t_text_write(folder, "tokenizer_config.json", config);
    if (jinja != NULL)
        t_text_write(folder, "chat_template.jinja", jinja);
    g3_checkpoint *checkpoint = NULL;
    t_expect(g3_checkpoint_open(folder, NULL, &checkpoint, error), G3_OK, error, NULL, NULL);
    const g3_status status = g3_style_of(checkpoint, tiny, out_style, error);
    g3_checkpoint_close(checkpoint);
    t_folder_remove(folder);
    return status;
}

static void styles_of_folders(void **state) {
    (void)state;
    static const struct {
        const char *config, *jinja;
        g3_style style;
    } folders[] = {
        {NULL, NULL, G3_STYLE_TURNS},
        {"{}", NULL, G3_STYLE_DIALOGUE},
        {"{\"chat_template\":null}", NULL, G3_STYLE_DIALOGUE},
        {"{\"chat_template\":[]}", NULL, G3_STYLE_DIALOGUE},
        {"{\"chat_template\":\"{{ x }}\"}", NULL, G3_STYLE_TURNS},
        {"{\"chat_template\":[{\"name\":\"default\"}]}", NULL, G3_STYLE_TURNS},
        {"{}", "{{ x }}", G3_STYLE_TURNS},
    };
    g3_error error = {{0}};
    g3_style style = G3_STYLE_TURNS;
    for (size_t i = 0; i < VRPT_COUNT(folders); i++) {
        style = folders[i].style == G3_STYLE_TURNS ? G3_STYLE_DIALOGUE : G3_STYLE_TURNS;
        t_expect(folder_style(folders[i].config, folders[i].jinja, &style, &error), G3_OK, &error,
                 NULL, NULL);
        assert_int_equal(style, folders[i].style);
    }
    t_expect(folder_style("{", NULL, &style, &error), G3_INVALID, &error, "tokenizer_config.json",
             "before offset 1");
}

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_turn_by_turn),
        cmocka_unit_test(roles_as_the_format_has_them),
        cmocka_unit_test(texts_are_trimmed),
        cmocka_unit_test(text_that_looks_like_the_format),
        cmocka_unit_test(pictures_stand_where_they_belong),
        cmocka_unit_test(pictures_and_places_have_to_agree),
        cmocka_unit_test(spans_name_the_placeholders),
        cmocka_unit_test(a_vocabulary_without_turns_is_refused),
        cmocka_unit_test(dialogues_of_messages),
        cmocka_unit_test(a_dialogue_turn_by_turn),
        cmocka_unit_test(styles_of_gguf_files),
        cmocka_unit_test(styles_of_folders),
    };
    return cmocka_run_group_tests_name("template", tests, open_tiny, close_tiny);
}
