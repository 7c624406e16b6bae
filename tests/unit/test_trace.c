/* SPDX-License-Identifier: MIT */
/* Reading of "vram trace v2", plain and gzip-compressed, good and bad. */

#include "trace_support.h"

static const char sample[] = TRACE_HEAD "a,0,4096,0,0\n"
                                        "a,1,18446744073709551615,3,10\n"
                                        "f,0,5\n"
                                        "c,0,1\n"
                                        "m,load,0\n"
                                        "m,turn,1\n"
                                        "m,clear,2\n"
                                        "m,step,3\n"
                                        "m,request,4\n"
                                        "m,warm up,5\n";

static void assert_sample(const trace_all *all) {
    const vrp_trace_event expected[] = {
        {.kind = VRP_TRACE_ALLOC, .bytes = 4096},
        {.kind = VRP_TRACE_ALLOC, .id = 1, .bytes = UINT64_MAX, .stream = 3, .time_us = 10},
        {.kind = VRP_TRACE_FREE, .time_us = 15},
        {.kind = VRP_TRACE_SAFE, .time_us = 16},
        {.kind = VRP_TRACE_MARKER, .marker = VRP_MARKER_LOAD, .time_us = 16},
        {.kind = VRP_TRACE_MARKER, .marker = VRP_MARKER_TURN, .time_us = 17},
        {.kind = VRP_TRACE_MARKER, .marker = VRP_MARKER_CLEAR, .time_us = 19},
        {.kind = VRP_TRACE_MARKER, .marker = VRP_MARKER_STEP, .time_us = 22},
        {.kind = VRP_TRACE_MARKER, .marker = VRP_MARKER_REQUEST, .time_us = 26},
        {.kind = VRP_TRACE_MARKER, .marker = VRP_MARKER_OTHER, .time_us = 31},
    };
    assert_int_equal(all->status, VRP_OK);
    assert_int_equal(all->count, VRPT_COUNT(expected));
    assert_memory_equal(all->events, expected, sizeof expected);
    assert_string_equal(all->message, "");
}

static void rows_become_events(void **state) {
    (void)state;
    trace_file file;
    trace_file_make(&file);
    trace_all all;
    trace_read_text(&all, &file, sample);
    assert_sample(&all);
    assert_int_equal(all.line, 11);
    trace_all_free(&all);
    trace_read_text(&all, &file, strchr(sample, '\n') + 1); /* rows tell the format too */
    assert_sample(&all);
    assert_int_equal(all.line, 10);
    trace_all_free(&all);
    (void)remove(file.path);
}

static void carriage_returns_are_tolerated(void **state) {
    (void)state;
    char text[2 * sizeof sample];
    size_t count = 0;
    for (const char *c = sample; *c; c++) {
        if (*c == '\n')
            text[count++] = '\r';
        text[count++] = *c;
    }
    trace_file file;
    trace_file_make(&file);
    trace_file_put(&file, text, count);
    trace_all all;
    trace_read(&all, file.path, 64);
    assert_sample(&all);
    trace_all_free(&all);
    (void)remove(file.path);
}

static void gzip_is_told_by_content(void **state) {
    (void)state;
    trace_file file;
    trace_file_make(&file);
    trace_file_put_gzip(&file, sample, sizeof sample - 1, "wb");
    trace_all all;
    trace_read(&all, file.path, 64);
    assert_sample(&all);
    trace_all_free(&all);
    /* Two members, the seam inside a row. */
    trace_file_put_gzip(&file, sample, 40, "wb");
    trace_file_put_gzip(&file, sample + 40, sizeof sample - 1 - 40, "ab");
    trace_read(&all, file.path, 3);
    assert_sample(&all);
    trace_all_free(&all);
    (void)remove(file.path);
}

static void numbers_reach_their_limits(void **state) {
    (void)state;
    trace_file file;
    trace_file_make(&file);
    trace_all all;
    trace_read_text(&all, &file,
                    "a,18446744073709551615,00000000000000000000000000018446744073709551614,"
                    "4294967295,18446744073709551614\n"
                    "f,18446744073709551615,1\n");
    assert_int_equal(all.status, VRP_OK);
    assert_int_equal(all.count, 2);
    assert_true(all.events[0].id == UINT64_MAX && all.events[0].bytes == UINT64_MAX - 1);
    assert_int_equal(all.events[0].stream, UINT32_MAX);
    assert_true(all.events[1].id == UINT64_MAX && all.events[1].time_us == UINT64_MAX);
    trace_all_free(&all);
    (void)remove(file.path);
}

static void malformed_rows_are_refused_with_line_and_reason(void **state) {
    (void)state;
    static const struct {
        const char *row;
        const char *words;
    } cases[] = {
        {"\n", "kind"},
        {"\r\n", "kind"},
        {"x,1,2\n", "kind is none of a, f, c, m"},
        {"realloc,1,2,3,4\n", "kind"},
        {"a\n", "kind"},
        {"a;1,2,3,4\n", "kind"},
        {" a,1,2,3,4\n", "kind"},
        {"a,\n", "id is no number"},
        {"a,1\n", "id has no comma"},
        {"a,1,\n", "bytes is no number"},
        {"a,1,2\n", "bytes has no comma"},
        {"a,1,2,\n", "stream is no number"},
        {"a,1,2,3\n", "stream has no comma"},
        {"a,1,2,3,\n", "dt is no number"},
        {"a,1,2,3,4,5\n", "dt is not the end"},
        {"a,1,2,3,4 \n", "dt is not the end"},
        {"a,1,2,3,4\r5\n", "dt is not the end"},
        {"a,-1,2,3,4\n", "id is no number"},
        {"a,+1,2,3,4\n", "id is no number"},
        {"a,1,0x10,3,4\n", "bytes has no comma"},
        {"a,1,1e3,3,4\n", "bytes has no comma"},
        {"a,1,2.5,3,4\n", "bytes has no comma"},
        {"a,18446744073709551616,2,3,4\n", "id is too large"},
        {"a,1,18446744073709551616,3,4\n", "bytes is too large"},
        {"a,1,99999999999999999999999,3,4\n", "bytes is too large"},
        {"a,1,2,4294967296,4\n", "stream is too large"},
        {"a,1,2,3,18446744073709551616\n", "dt is too large"},
        {"a,1,2,3,18446744073709551615\n", "dt makes the time too large"},
        {"f,1\n", "id has no comma"},
        {"f,,1\n", "id is no number"},
        {"f,1,x\n", "dt is no number"},
        {"f,1,2,3\n", "dt is not the end"},
        {"c,1,\n", "dt is no number"},
        {"m,turn\n", "label has no comma"},
        {"m,,1\n", "label is empty"},
        {"m,turn,\n", "dt is no number"},
        {"m,turn,1,2\n", "dt is not the end"},
    };
    trace_file file;
    trace_file_make(&file);
    for (size_t i = 0; i < VRPT_COUNT(cases); i++) {
        char text[512];
        (void)snprintf(text, sizeof text, "%sa,0,1,0,1\n%sa,7,1,0,0\n", TRACE_HEAD, cases[i].row);
        trace_all all;
        trace_read_text(&all, &file, text);
        assert_refused(&all, &file, 3, cases[i].words);
        assert_int_equal(all.count, 1); /* what came before is delivered */
        assert_int_equal(all.line, 2);
        trace_all_free(&all);
    }
    (void)remove(file.path);
}

static void a_cut_file_is_refused_wherever_it_is_cut(void **state) {
    (void)state;
    trace_file file;
    trace_file_make(&file);
    size_t head = strlen(TRACE_HEAD);
    for (size_t cut = head; cut < sizeof sample - 1; cut++) {
        trace_all all;
        trace_file_put(&file, sample, cut);
        trace_read(&all, file.path, 64);
        if (sample[cut - 1] == '\n')
            assert_int_equal(all.status, VRP_OK);
        else
            assert_refused(&all, &file, (unsigned)all.count + 2, "cut last line");
        trace_all_free(&all);
    }
    trace_file_put_gzip(&file, sample, sizeof sample - 1, "wb");
    size_t packed = 0;
    unsigned char *bytes = trace_file_get(file.path, &packed);
    for (size_t cut = 0; cut < packed; cut++) {
        trace_all all;
        trace_file_put(&file, bytes, cut);
        trace_read(&all, file.path, 64);
        assert_int_not_equal(all.status, VRP_OK);
        assert_true(strlen(all.message) > strlen(file.path));
        trace_all_free(&all);
    }
    free(bytes);
    (void)remove(file.path);
}

static void damaged_gzip_is_refused(void **state) {
    (void)state;
    trace_file file;
    trace_file_make(&file);
    trace_file_put_gzip(&file, sample, sizeof sample - 1, "wb");
    size_t count = 0;
    unsigned char *bytes = trace_file_get(file.path, &count);
    for (size_t at = 10; at < count; at++) { /* behind the member's head */
        trace_all all;
        bytes[at] ^= 0x10;
        trace_file_put(&file, bytes, count);
        bytes[at] ^= 0x10;
        trace_read(&all, file.path, 64);
        if (all.status == VRP_OK)
            assert_sample(&all); /* a bit between the data and its sum means nothing */
        trace_all_free(&all);
    }
    bytes[count - 5] ^= 1; /* the sum itself */
    trace_file_put(&file, bytes, count);
    trace_all all;
    trace_read(&all, file.path, 4);
    assert_int_equal(all.status, VRP_CORRUPTED);
    trace_all_free(&all);
    free(bytes);
    (void)remove(file.path);
}

static void other_files_are_refused_at_opening(void **state) {
    (void)state;
    static const char *const texts[] = {"",      "a",    "#",
                                        "hello", "\x1f", "# vram trace v3\n",
                                        "VRPT",  "x,1",  "# vram trace v22\na,0,1,0,0\n"};
    trace_file file;
    trace_file_make(&file);
    char message[256];
    vrp_trace_reader *reader = NULL;
    for (size_t i = 0; i < VRPT_COUNT(texts); i++) {
        trace_file_put(&file, texts[i], strlen(texts[i]));
        assert_int_equal(vrp_trace_open(file.path, message, sizeof message, &reader),
                         VRP_INVALID_ARGUMENT);
        assert_non_null(strstr(message, file.path));
    }
    (void)remove(file.path);
    assert_int_equal(vrp_trace_open(file.path, message, sizeof message, &reader),
                     VRP_INVALID_ARGUMENT);
    assert_non_null(strstr(message, "No such file"));
    assert_int_equal(vrp_trace_open("/tmp", message, sizeof message, &reader),
                     VRP_INVALID_ARGUMENT);
    assert_int_equal(vrp_trace_open(NULL, NULL, 0, &reader), VRP_INVALID_ARGUMENT);
    assert_int_equal(vrp_trace_open("/tmp", message, 0, NULL), VRP_INVALID_ARGUMENT);
    assert_null(reader);
    size_t got = 0;
    assert_int_equal(vrp_trace_read(NULL, NULL, 0, &got), VRP_INVALID_ARGUMENT);
    vrp_trace_close(NULL);
}

/* So that a batch's last line tells the line of each of its events. */
static void a_batch_is_of_consecutive_lines(void **state) {
    (void)state;
    trace_file file;
    trace_file_make(&file);
    static const char text[] = TRACE_HEAD "# more\na,0,1,0,0\nf,0,0\n# between\n# two\n"
                                          "a,1,1,0,0\n# last\n";
    trace_file_put(&file, text, sizeof text - 1);
    vrp_trace_reader *reader = NULL;
    vrp_trace_event events[8];
    size_t got = 0;
    assert_int_equal(vrp_trace_open(file.path, NULL, 0, &reader), VRP_OK);
    assert_int_equal(vrp_trace_read(reader, events, 8, &got), VRP_OK);
    assert_int_equal(got, 2);
    assert_int_equal(vrp_trace_line(reader), 4);
    assert_int_equal(vrp_trace_read(reader, events, 8, &got), VRP_OK);
    assert_int_equal(got, 1);
    assert_int_equal(vrp_trace_line(reader), 7);
    assert_int_equal(vrp_trace_read(reader, events, 8, &got), VRP_OK);
    assert_int_equal(got, 0);
    vrp_trace_close(reader);
    (void)remove(file.path);
}

#define LONG_ROWS 60000
#define ROW_ROOM 64

/* Rows of all lengths, so that they straddle every seam of the windows. */
static void long_files_read_the_same_in_every_way(void **state) {
    (void)state;
    char *text = malloc(LONG_ROWS * ROW_ROOM);
    assert_non_null(text);
    uint64_t seed = 1;
    size_t count = 0;
    uint64_t ids = 0;
    for (size_t i = 0; i < LONG_ROWS; i++) {
        uint64_t random = trace_random(&seed);
        unsigned long long id = trace_random(&seed) >> (random & 63);
        ids += id;
        count += (size_t)snprintf(text + count, ROW_ROOM,
                                  random & 64 ? "a,%llu,1,0,2\n" : "f,%llu,2\n", id);
    }
    trace_file file;
    trace_file_make(&file);
    trace_file_put(&file, text, count);
    trace_all whole;
    trace_read(&whole, file.path, LONG_ROWS + 1);
    assert_int_equal(whole.count, LONG_ROWS);
    assert_int_equal(whole.line, LONG_ROWS);
    assert_int_equal(whole.events[LONG_ROWS - 1].time_us, 2 * LONG_ROWS);
    for (size_t i = 0; i < LONG_ROWS; i++)
        ids -= whole.events[i].id;
    assert_true(ids == 0);
    trace_all again;
    trace_read(&again, file.path, 1);
    assert_same_events(&whole, &again);
    trace_all_free(&again);
    trace_file_put_gzip(&file, text, count, "wb");
    trace_read(&again, file.path, 997);
    assert_same_events(&whole, &again);
    trace_all_free(&again);
    trace_all_free(&whole);
    free(text);
    (void)remove(file.path);
}

/* A small file that unpacks to a huge line must not take the memory of it. */
static void an_endless_line_is_refused(void **state) {
    (void)state;
    static char zeros[1 << 20];
    trace_file file;
    trace_file_make(&file);
    trace_file_put_gzip(&file, TRACE_HEAD, strlen(TRACE_HEAD), "wb");
    for (int i = 0; i < 32; i++)
        trace_file_put_gzip(&file, zeros, sizeof zeros, "ab");
    trace_all all;
    trace_read(&all, file.path, 64);
    assert_refused(&all, &file, 2, "too long");
    trace_all_free(&all);
    (void)remove(file.path);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_become_events),
        cmocka_unit_test(carriage_returns_are_tolerated),
        cmocka_unit_test(gzip_is_told_by_content),
        cmocka_unit_test(numbers_reach_their_limits),
        cmocka_unit_test(malformed_rows_are_refused_with_line_and_reason),
        cmocka_unit_test(a_cut_file_is_refused_wherever_it_is_cut),
        cmocka_unit_test(damaged_gzip_is_refused),
        cmocka_unit_test(other_files_are_refused_at_opening),
        cmocka_unit_test(a_batch_is_of_consecutive_lines),
        cmocka_unit_test(long_files_read_the_same_in_every_way),
        cmocka_unit_test(an_endless_line_is_refused),
    };
    (void)argc;
    (void)argv;
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
