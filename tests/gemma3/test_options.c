/* SPDX-License-Identifier: MIT */
/* Command lines: sizes, counts, reals, devices, the optimizer's words, the table. */

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vrp_test.h"

#include "app/chat.h"

/* ---- Words ------------------------------------------------------------------------ */

static void sizes_are_read_as_people_write_them(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"1", 1},
                {"512B", 512},
                {"1KiB", 1024},
                {"32MiB", UINT64_C(33554432)},
                {"1.5GiB", UINT64_C(1610612736)},
                {"0.5GB", UINT64_C(500000000)},
                {"2TB", UINT64_C(2000000000000)},
                {"1TiB", UINT64_C(1) << 40},
                {"0.0000001KiB", 0},
                {"16777215TiB", UINT64_C(16777215) << 40},
                {"18446744073709551615", UINT64_MAX}};
    for (size_t i = 0; i < VRPT_COUNT(good); i++) {
        uint64_t bytes = 77;
        assert_true(g3_size_parse(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    static const char *const bad[] = {
        "",     "MiB",   "1.5",     "1.MiB",       ".5MiB", "-1",   "1mib", "1 MiB",
        "1XiB", "1KiBs", "1.2.3KB", "16777216TiB", "1K",    "1.5B", "0x10", "18446744073709551616"};
    for (size_t i = 0; i < VRPT_COUNT(bad); i++) {
        uint64_t bytes = 77;
        assert_false(g3_size_parse(bad[i], &bytes));
        assert_int_equal(bytes, 77);
    }
}

static void numbers_are_whole_or_real(void **state) {
    (void)state;
    uint64_t count = 7;
    assert_true(g3_count_parse("18446744073709551615", &count));
    assert_true(count == UINT64_MAX);
    static const char *const no_count[] = {"", "-1", "+1", "1.0", "1e3", " 1", "0x1"};
    for (size_t i = 0; i < VRPT_COUNT(no_count); i++)
        assert_false(g3_count_parse(no_count[i], &count));
    double value = 7.0;
    assert_true(g3_real_parse("0.95", &value));
    assert_true(fabs(value - 0.95) < 1e-15);
    assert_true(g3_real_parse("-2.5", &value) && value < -2.4999 && value > -2.5001);
    static const char *const no_real[] = {"",    ".",     "-",   "nan", "inf",
                                          "1e3", "0x1p3", "1,5", "1.5 "};
    for (size_t i = 0; i < VRPT_COUNT(no_real); i++)
        assert_false(g3_real_parse(no_real[i], &value));
}

static void devices_have_names(void **state) {
    (void)state;
    static const char *const good[] = {"sim", "sim:1GiB", "sim:4096", "cuda", "cuda:0", "cuda:7"};
    static const char *const bad[] = {"", "sim:", "sim:0", "sim:xGiB", "cuda:", "cuda:x", "tpu:0"};
    for (size_t i = 0; i < VRPT_COUNT(good); i++)
        assert_true(g3_device_valid(good[i]));
    for (size_t i = 0; i < VRPT_COUNT(bad); i++)
        assert_false(g3_device_valid(bad[i]));
}

/* ---- The optimizer ------------------------------------------------------------------ */

static void the_optimizer_takes_words_in_any_order(void **state) {
    (void)state;
    char message[160] = "";
    g3_optimizer_options o;
    g3_optimizer_options_init(&o);
    assert_true(o.on);
    assert_int_equal(o.config.threshold_bytes, UINT64_C(1610612736));
    assert_int_equal(o.config.interval, 5);
    assert_int_equal(o.config.options, VRP_OPTIMIZER_IDLE);
    assert_true(g3_optimizer_parse("interval=3,idle=off,threshold=32MiB,keep=on", &o, message,
                                   sizeof message));
    assert_int_equal(o.config.threshold_bytes, 32 * VRPT_MIB);
    assert_int_equal(o.config.interval, 3);
    assert_int_equal(o.config.options, VRP_OPTIMIZER_KEEP);
    assert_true(
        g3_optimizer_parse("pressure=on,hysteresis=on,keep=off", &o, message, sizeof message));
    assert_int_equal(o.config.options, VRP_OPTIMIZER_PRESSURE | VRP_OPTIMIZER_HYSTERESIS);
    assert_true(g3_optimizer_parse("off", &o, message, sizeof message));
    assert_false(o.on);
}

static void a_wrong_word_is_named_and_changes_nothing(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {{"threshold=much", "\"much\""},
               {"interval=0", "\"0\""},
               {"interval=4294967296", "\"4294967296\""},
               {"idle=maybe", "\"maybe\""},
               {"colour=red", "\"colour\""},
               {"threshold", "\"threshold\""},
               {"interval=2,", "\"\""},
               {"", "\"\""},
               {"interval=2,keep=", "keep"},
               {"interval=9,off", "\"off\""}};
    for (size_t i = 0; i < VRPT_COUNT(bad); i++) {
        g3_optimizer_options o;
        g3_optimizer_options before;
        char message[160] = "";
        g3_optimizer_options_init(&o);
        g3_optimizer_options_init(&before);
        assert_false(g3_optimizer_parse(bad[i].text, &o, message, sizeof message));
        if (strstr(message, bad[i].says) == NULL)
            fail_msg("no %s in: %s", bad[i].says, message);
        assert_memory_equal(&o.config, &before.config, sizeof o.config);
        assert_true(o.on);
    }
}

/* ---- The command line of a chat ------------------------------------------------------- */

/* What the parser prints goes into a file meanwhile. */
typedef struct catcher {
    FILE *file;
    int saved_out, saved_err;
    char text[8192];
} catcher;

static void begin_catch(catcher *c) {
    (void)fflush(NULL);
    c->file = tmpfile();
    assert_non_null(c->file);
    c->saved_out = dup(STDOUT_FILENO);
    c->saved_err = dup(STDERR_FILENO);
    assert_true(dup2(fileno(c->file), STDOUT_FILENO) >= 0);
    assert_true(dup2(fileno(c->file), STDERR_FILENO) >= 0);
}

static void end_catch(catcher *c) {
    (void)fflush(NULL);
    (void)dup2(c->saved_out, STDOUT_FILENO);
    (void)dup2(c->saved_err, STDERR_FILENO);
    (void)close(c->saved_out);
    (void)close(c->saved_err);
    rewind(c->file);
    c->text[fread(c->text, 1, sizeof c->text - 1, c->file)] = '\0';
    (void)fclose(c->file);
}

/* argv is a list that ends with NULL. */
static g3_parsed parse(const char *const *words, g3_chat_options *options, catcher *c) {
    char *argv[32];
    int argc = 0;
    for (; words[argc] != NULL; argc++)
        argv[argc] = strdup(words[argc]);
    begin_catch(c);
    const g3_parsed parsed = g3_chat_options_parse(argc, argv, options);
    end_catch(c);
    /* Texts of the options point into argv: kept, as a program's are. */
    static char *kept[64][32];
    static size_t count;
    memcpy(kept[count++ % 64], argv, sizeof argv);
    return parsed;
}

static void a_whole_command_line_is_understood(void **state) {
    (void)state;
    static const char *const words[] = {"chat",     "--model",   "m.gguf",  "--device=sim:2GiB",
                                        "--image",  "a.png",     "--image", "b.jpg",
                                        "--ctx",    "1024",      "--temp",  "0",
                                        "--seed=9", "--kv",      "f32",     "--precision",
                                        "float32",  "--backing", "malloc",  "--system",
                                        "Be so.",   "--stats",   "--top-p", "0.5",
                                        NULL};
    g3_chat_options o;
    catcher c;
    assert_int_equal(parse(words, &o, &c), G3_PARSED_OK);
    assert_string_equal(c.text, "");
    assert_string_equal(o.model, "m.gguf");
    assert_string_equal(o.device, "sim:2GiB");
    assert_int_equal(o.images.count, 2);
    assert_string_equal(o.images.texts[1], "b.jpg");
    assert_int_equal(o.context, 1024);
    assert_true(o.temperature == 0.0 && o.top_p > 0.49 && o.top_p < 0.51);
    assert_int_equal(o.seed, 9);
    assert_int_equal(o.kv_type, G3_KV_F32);
    assert_int_equal(o.precision, G3_FLOAT32);
    assert_int_equal(o.backing, VRP_BACKING_MALLOC);
    assert_int_equal(o.system.count, 1);
    assert_true(o.stats && !o.quiet);
    assert_int_equal(o.max_tokens, 512);
}

static void what_is_wrong_is_named(void **state) {
    (void)state;
#define M "chat", "--model", "m"
    static const struct {
        const char *words[8];
        const char *says[2];
    } bad[] = {{{"chat", NULL}, {"--model", "missing"}},
               {{M, "--frobnicate", NULL}, {"--frobnicate", "unknown"}},
               {{M, "--frobnicate=1", NULL}, {"\"--frobnicate\"", "unknown"}},
               {{M, "hello", NULL}, {"\"hello\"", "no option"}},
               {{M, "--ctx", NULL}, {"--ctx", "needs a value"}},
               {{M, "--ctx", "many", NULL}, {"--ctx", "\"many\""}},
               {{M, "--ctx", "3", NULL}, {"--ctx", "\"3\""}},
               {{M, "--ctx", "-5", NULL}, {"--ctx", "\"-5\""}},
               {{M, "--temp", "hot", NULL}, {"--temp", "\"hot\""}},
               {{M, "--top-p", "1.5", NULL}, {"--top-p", "\"1.5\""}},
               {{M, "--kv", "f8", NULL}, {"--kv", "\"f8\""}},
               {{M, "--stats=yes", NULL}, {"--stats", "\"yes\""}},
               {{M, "--device", "cuda:0", NULL}, {"--device", "\"cuda:0\""}},
               {{M, "--device", "sim:lots", NULL}, {"--device", "\"sim:lots\""}},
               {{M, "--optimizer", "threshold=x", NULL}, {"--optimizer", "\"x\""}},
               {{M, "--threads", "0", NULL}, {"--threads", "\"0\""}},
               {{M, "--max-tokens", "0", NULL}, {"--max-tokens", "\"0\""}}};
#undef M
    for (size_t i = 0; i < VRPT_COUNT(bad); i++) {
        g3_chat_options o;
        catcher c;
        assert_int_equal(parse(bad[i].words, &o, &c), G3_PARSED_BAD);
        for (size_t k = 0; k < 2; k++)
            if (strstr(c.text, bad[i].says[k]) == NULL)
                fail_msg("no %s in: %s", bad[i].says[k], c.text);
        assert_non_null(strstr(c.text, "gemma3 chat: "));
    }
}

static void help_lists_every_option(void **state) {
    (void)state;
    static const char *const words[] = {"chat", "--help", NULL};
    static const char *const options[] = {
        "--model",   "--mmproj",     "--device", "--image",      "--script", "--ctx",
        "--temp",    "--optimizer",  "--seed",   "--stats-json", "--trace",  "--system",
        "--top-k",   "--max-tokens", "--top-p",  "--chunk",      "--kv",     "--precision",
        "--threads", "--backing",    "--stats",  "--quiet",      "--help"};
    g3_chat_options o;
    catcher c;
    assert_int_equal(parse(words, &o, &c), G3_PARSED_HELP);
    assert_non_null(strstr(c.text, "usage: gemma3 chat"));
    for (size_t i = 0; i < VRPT_COUNT(options); i++)
        if (strstr(c.text, options[i]) == NULL)
            fail_msg("no %s in the help", options[i]);
}

/* ---- What ends an answer ------------------------------------------------------------- */

static void an_answer_ends_with_any_known_end(void **state) {
    (void)state;
    g3_token_config config = {.stop = {1}, .stop_count = 1};
    g3_special special = {.eos = 1, .turn_end = 106};
    g3_stops stops;
    g3_stops_collect(&config, &special, &stops);
    assert_int_equal(stops.count, 2);
    assert_true(g3_stops_has(&stops, 1) && g3_stops_has(&stops, 106));
    assert_false(g3_stops_has(&stops, 105) || g3_stops_has(&stops, G3_NO_ID));
    for (int32_t i = 0; i < G3_MAX_STOP_IDS; i++)
        config.stop[i] = 1000 + i;
    config.stop_count = G3_MAX_STOP_IDS;
    g3_stops_collect(&config, &special, &stops);
    assert_int_equal(stops.count, G3_MAX_STOP_IDS + 2);
    assert_true(g3_stops_has(&stops, 1007) && g3_stops_has(&stops, 106));
    config.stop_count = 0;
    special = (g3_special){.eos = G3_NO_ID, .turn_end = G3_NO_ID};
    g3_stops_collect(&config, &special, &stops);
    assert_int_equal(stops.count, 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_read_as_people_write_them),
        cmocka_unit_test(numbers_are_whole_or_real),
        cmocka_unit_test(devices_have_names),
        cmocka_unit_test(the_optimizer_takes_words_in_any_order),
        cmocka_unit_test(a_wrong_word_is_named_and_changes_nothing),
        cmocka_unit_test(a_whole_command_line_is_understood),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(help_lists_every_option),
        cmocka_unit_test(an_answer_ends_with_any_known_end),
    };
    (void)argc;
    (void)argv;
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
