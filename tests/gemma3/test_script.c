/* SPDX-License-Identifier: MIT */
/* Lines of a chat, typed and from a script, and how they are read. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vrp_test.h"

#include "app/input.h"
#include "app/script.h"

static char buffer[4096];

static g3_line parse(const char *text, bool script) {
    g3_line line;
    const size_t count = strlen(text);
    memcpy(buffer, text, count + 1);
    g3_line_parse(buffer, count, script, &line);
    return line;
}

static void is_text(const char *line, bool script, const char *expected) {
    const g3_line parsed = parse(line, script);
    assert_int_equal(parsed.kind, G3_LINE_TEXT);
    assert_string_equal(parsed.text, expected);
    assert_int_equal(parsed.text_count, strlen(expected));
}

static void texts_are_turns(void **state) {
    (void)state;
    is_text("hello", false, "hello");
    is_text("  hello there \t\r", false, "hello there");
    is_text("//text", false, "/text");
    is_text("///", true, "//");
    is_text("a\\nb", false, "a\\nb");
    is_text("a\\nb\\tc\\\\n", true, "a\nb\tc\\n");
    is_text("50\\% and a \\", true, "50\\% and a \\");
    is_text("# typed", false, "# typed");
    is_text("\\# written", true, "# written");
    is_text("say <end_of_turn>", true, "say <end_of_turn>");
    assert_int_equal(parse("", false).kind, G3_LINE_NONE);
    assert_int_equal(parse(" \t \r", true).kind, G3_LINE_NONE);
    assert_int_equal(parse("# a comment", true).kind, G3_LINE_NONE);
    assert_int_equal(parse("  # a comment", true).kind, G3_LINE_NONE);
    /* bytes of 0 are text too */
    g3_line line;
    char zero[] = "a\0b";
    g3_line_parse(zero, 3, false, &line);
    assert_int_equal(line.text_count, 3);
}

static void commands_are_known(void **state) {
    (void)state;
    assert_int_equal(parse("/clear", false).kind, G3_LINE_CLEAR);
    assert_int_equal(parse(" /stats ", true).kind, G3_LINE_STATS);
    assert_int_equal(parse("/empty", false).kind, G3_LINE_EMPTY);
    assert_int_equal(parse("/help", false).kind, G3_LINE_HELP);
    assert_int_equal(parse("/quit", false).kind, G3_LINE_QUIT);
    g3_line line = parse("/image my.png", false);
    assert_int_equal(line.kind, G3_LINE_IMAGE);
    assert_string_equal(line.path, "my.png");
    assert_int_equal(line.text_count, 0);
    line = parse("/image \"my picture.png\"  what is\\nthis?", true);
    assert_int_equal(line.kind, G3_LINE_IMAGE);
    assert_string_equal(line.path, "my picture.png");
    assert_string_equal(line.text, "what is\nthis?");
    line = parse("/save out.txt", false);
    assert_int_equal(line.kind, G3_LINE_SAVE);
    assert_string_equal(line.path, "out.txt");
    line = parse("/shorten", false);
    assert_int_equal(line.kind, G3_LINE_SHORTEN);
    assert_int_equal(line.number, 0);
    line = parse("/shorten 200", false);
    assert_int_equal(line.number, 200);
}

static void wrong_commands_say_what_is_wrong(void **state) {
    (void)state;
    static const struct {
        const char *line, *says;
    } bad[] = {{"/nosuch", "/nosuch"},        {"/", "no command /"}, {"/Clear", "/Clear"},
               {"/clear now", "now"},         {"/image", "/image"},  {"/image \"open", "quote"},
               {"/image \"\" text", "empty"}, {"/save", "/save"},    {"/save a b", "b"},
               {"/shorten much", "much"},     {"/shorten 0", "0"},   {"/shorten -3", "-3"}};
    for (size_t i = 0; i < VRPT_COUNT(bad); i++) {
        const g3_line line = parse(bad[i].line, false);
        assert_int_equal(line.kind, G3_LINE_BAD);
        if (strstr(line.message, bad[i].says) == NULL)
            fail_msg("no %s in: %s", bad[i].says, line.message);
    }
    memset(buffer, 'x', sizeof buffer);
    buffer[0] = '/';
    buffer[4000] = '\0';
    g3_line line;
    g3_line_parse(buffer, 4000, false, &line);
    assert_int_equal(line.kind, G3_LINE_BAD);
    assert_true(strlen(line.message) < sizeof line.message);
}

/* ---- Reading ---------------------------------------------------------------------- */

static g3_input over(int fd) { return (g3_input){.fd = fd}; }

static void lines_come_whole_however_they_arrive(void **state) {
    (void)state;
    int ends[2];
    char *line = NULL;
    size_t count = 0;
    g3_error error;
    assert_int_equal(pipe(ends), 0);
    g3_input input = over(ends[0]);
    assert_int_equal(write(ends[1], "one\n\ntw", 7), 7);
    assert_int_equal(g3_input_read(&input, &line, &count, &error), G3_INPUT_LINE);
    assert_string_equal(line, "one");
    assert_int_equal(g3_input_read(&input, &line, &count, &error), G3_INPUT_LINE);
    assert_int_equal(count, 0);
    assert_int_equal(write(ends[1], "o\nlast", 6), 6);
    assert_int_equal(g3_input_read(&input, &line, &count, &error), G3_INPUT_LINE);
    assert_string_equal(line, "two");
    (void)close(ends[1]);
    assert_int_equal(g3_input_read(&input, &line, &count, &error), G3_INPUT_LINE);
    assert_string_equal(line, "last");
    assert_int_equal(count, 4);
    assert_int_equal(g3_input_read(&input, &line, &count, &error), G3_INPUT_END);
    g3_input_close(&input);
    (void)close(ends[0]);
}

static void a_long_line_is_one_line(void **state) {
    (void)state;
    enum { LONG = 300000 };
    FILE *file = tmpfile();
    assert_non_null(file);
    for (int i = 0; i < LONG; i++)
        (void)fputc('a' + i % 26, file);
    (void)fputs("\nnext\n", file);
    (void)fflush(file);
    rewind(file);
    g3_input input = over(fileno(file));
    char *line = NULL;
    size_t count = 0;
    g3_error error;
    assert_int_equal(g3_input_read(&input, &line, &count, &error), G3_INPUT_LINE);
    assert_int_equal(count, LONG);
    assert_int_equal(line[LONG - 1], 'a' + (LONG - 1) % 26);
    assert_int_equal(g3_input_read(&input, &line, &count, &error), G3_INPUT_LINE);
    assert_string_equal(line, "next");
    g3_input_close(&input);
    (void)fclose(file);
}

typedef struct waiter {
    int calls;
    int more; /* so many calls ask for another */
    int fd;   /* gets a line at the last one */
} waiter;

static bool idle(void *user) {
    waiter *w = (waiter *)user;
    w->calls++;
    if (w->calls <= w->more)
        return true;
    assert_int_equal(write(w->fd, "x\n", 2), 2);
    return false;
}

static void work_is_done_while_waiting_and_only_then(void **state) {
    (void)state;
    int ends[2];
    char *line = NULL;
    size_t count = 0;
    g3_error error;
    assert_int_equal(pipe(ends), 0);
    waiter w = {.more = 1, .fd = ends[1]};
    g3_input input = over(ends[0]);
    input.idle = idle;
    input.user = &w;
    assert_int_equal(write(ends[1], "a\nb\n", 4), 4);
    assert_int_equal(g3_input_read(&input, &line, &count, &error), G3_INPUT_LINE);
    assert_int_equal(g3_input_read(&input, &line, &count, &error), G3_INPUT_LINE);
    assert_int_equal(w.calls, 0); /* nobody had to wait */
    assert_int_equal(g3_input_read(&input, &line, &count, &error), G3_INPUT_LINE);
    assert_string_equal(line, "x");
    assert_int_equal(w.calls, 2);
    g3_input_close(&input);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static bool raise_interrupt(void *user) {
    (void)user;
    (void)raise(SIGINT);
    return false;
}

static void an_interrupt_ends_the_wait_and_nothing_else(void **state) {
    (void)state;
    int ends[2];
    char *line = NULL;
    size_t count = 0;
    g3_error error;
    assert_int_equal(pipe(ends), 0);
    g3_input input = over(ends[0]);
    input.idle = raise_interrupt;
    g3_interrupt_catch();
    g3_interrupt_reset();
    assert_int_equal(write(ends[1], "ha", 2), 2);
    assert_int_equal(g3_input_read(&input, &line, &count, &error), G3_INPUT_INTERRUPTED);
    assert_int_equal(g3_interrupt_count(), 1);
    g3_interrupt_reset();
    assert_int_equal(write(ends[1], "lf\n", 3), 3);
    assert_int_equal(g3_input_read(&input, &line, &count, &error), G3_INPUT_LINE);
    assert_string_equal(line, "half");
    g3_input_close(&input);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void a_missing_script_is_named(void **state) {
    (void)state;
    g3_error error = {{0}};
    g3_input input;
    assert_int_equal(g3_input_open("/nowhere/script.txt", &input, &error), G3_IO);
    assert_non_null(strstr(error.text, "/nowhere/script.txt"));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_turns),
        cmocka_unit_test(commands_are_known),
        cmocka_unit_test(wrong_commands_say_what_is_wrong),
        cmocka_unit_test(lines_come_whole_however_they_arrive),
        cmocka_unit_test(a_long_line_is_one_line),
        cmocka_unit_test(work_is_done_while_waiting_and_only_then),
        cmocka_unit_test(an_interrupt_ends_the_wait_and_nothing_else),
        cmocka_unit_test(a_missing_script_is_named),
    };
    (void)argc;
    (void)argv;
    return cmocka_run_group_tests_name("script", tests, NULL, NULL);
}
