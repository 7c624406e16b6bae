/* SPDX-License-Identifier: MIT */
/* Reading of RMM's log. */

#include "trace_support.h"

static void addresses_become_ids(void **state) {
    (void)state;
    trace_file file;
    trace_file_make(&file);
    trace_all all;
    trace_read_text(&all, &file,
                    RMM_HEAD "140,10:00:00:000100,allocate,0x7f00,1024,0x0\n"
                             "140,10:00:00:000350,allocate,0x7F40,64,0x55aa\n"
                             "141,10:00:01:000350,free,0x7f00,1024,0x0\n"
                             "140,10:00:01:000350,allocate,0x7f00,32,21930\n"
                             "140,10:00:01:000351,allocate failure,(nil),99999999999,0x77\n"
                             "140,10:00:01:000352,free,32512,32,0x55aa\n"
                             "140,10:00:01:000353,allocate,0xffffffffffffffff,1,0\n");
    const vrp_trace_event expected[] = {
        {.kind = VRP_TRACE_ALLOC, .bytes = 1024},
        {.kind = VRP_TRACE_ALLOC, .id = 1, .bytes = 64, .stream = 1, .time_us = 250},
        {.kind = VRP_TRACE_FREE, .time_us = 1000250},
        {.kind = VRP_TRACE_ALLOC, .id = 2, .bytes = 32, .stream = 1, .time_us = 1000250},
        {.kind = VRP_TRACE_ALLOC,
         .failed = 1,
         .id = 3,
         .bytes = 99999999999,
         .stream = 2,
         .time_us = 1000251},
        {.kind = VRP_TRACE_FREE, .id = 2, .time_us = 1000252},
        {.kind = VRP_TRACE_ALLOC, .id = 4, .bytes = 1, .time_us = 1000253},
    };
    assert_int_equal(all.status, VRP_OK);
    assert_int_equal(all.count, VRPT_COUNT(expected));
    assert_memory_equal(all.events, expected, sizeof expected);
    assert_int_equal(all.line, 8);
    trace_all_free(&all);
    (void)remove(file.path);
}

static void times_come_in_several_forms(void **state) {
    (void)state;
    static const struct {
        const char *from;
        const char *to;
        uint64_t us;
    } cases[] = {
        {"10:00:00", "10:00:01", 1000000},
        {"10:00:00.5", "10:00:00.75", 250000},
        {"10:00:00:000001", "10:00:00:000004", 3},
        {"10:00:00.000000001", "10:00:00.000001999", 1},
        {"2024-05-01 10:00:00.0", "2024-05-01 10:00:00.1", 100000},
        {"2024-05-01T10:00:00", "2024-05-01T11:00:00", 3600000000},
        {"23:59:59:900000", "00:00:00:100000", 200000}, /* midnight */
        {"10:00:00:000009", "10:00:00:000001", 0},      /* threads out of order */
        {"", "", 0},
        {"10:00:00", "", 0},
        {"", "10:00:00", 0},
        {"17", "20", 3},
        {"20", "17", 0},
        {"0", "18446744073709551615", UINT64_MAX},
    };
    trace_file file;
    trace_file_make(&file);
    for (size_t i = 0; i < VRPT_COUNT(cases); i++) {
        char text[512];
        (void)snprintf(text, sizeof text, "%s1,%s,allocate,0x1,1,0\r\n1,%s,free,0x1,1,0\r\n",
                       RMM_HEAD, cases[i].from, cases[i].to);
        trace_all all;
        trace_read_text(&all, &file, text);
        assert_int_equal(all.status, VRP_OK);
        assert_int_equal(all.count, 2);
        assert_true(all.events[0].time_us == 0);
        assert_true(all.events[1].time_us == cases[i].us);
        trace_all_free(&all);
    }
    (void)remove(file.path);
}

static void malformed_rows_are_refused_with_line_and_reason(void **state) {
    (void)state;
    static const struct {
        const char *row;
        const char *words;
    } cases[] = {
        {"\n", "Thread is missing"},
        {"1\n", "Thread is missing"},
        {"1,\n", "Time is missing"},
        {"1,,\n", "Action is missing"},
        {"1,,allocate\n", "Action is missing"},
        {"1,noon,allocate,0x2,1,0\n", "Time"},
        {"1,24:00:00,allocate,0x2,1,0\n", "Time"},
        {"1,10:60:00,allocate,0x2,1,0\n", "Time"},
        {"1,10:00,allocate,0x2,1,0\n", "Time"},
        {"1,10:00:00:,allocate,0x2,1,0\n", "Time"},
        {"1,10:00:00x,allocate,0x2,1,0\n", "Time"},
        {"1,,realloc,0x2,1,0\n", "Action is none of"},
        {"1,,Allocate,0x2,1,0\n", "Action is none of"},
        {"1,,allocate failed,0x2,1,0\n", "Action is none of"},
        {"1,,,0x2,1,0\n", "Action is none of"},
        {"1,,allocate,,1,0\n", "Pointer is no number"},
        {"1,,allocate,0x,1,0\n", "Pointer is no number"},
        {"1,,allocate,7fff,1,0\n", "Pointer has no comma"},
        {"1,,allocate,0x10000000000000000,1,0\n", "Pointer is too large"},
        {"1,,allocate,18446744073709551616,1,0\n", "Pointer is too large"},
        {"1,,allocate,0x2\n", "Pointer has no comma"},
        {"1,,allocate,0x2,,0\n", "Size is no number"},
        {"1,,allocate,0x2,-1,0\n", "Size is no number"},
        {"1,,allocate,0x2,1\n", "Size has no comma"},
        {"1,,allocate,0x2,1,\n", "Stream is no number"},
        {"1,,allocate,0x2,1,0x\n", "Stream is no number"},
        {"1,,allocate,0x2,1,0,\n", "Stream is not the end"},
        {"1,,free,0x2,1,0\n", "Pointer is freed but not allocated"},
        {"1,,free,0x0,1,0\n", "Pointer is freed but not allocated"},
        {"1,,allocate,0x1,1,0\n", "Pointer is allocated twice"},
        {"1,,allocate,0x0,1,0\n", "Pointer is null"},
    };
    trace_file file;
    trace_file_make(&file);
    for (size_t i = 0; i < VRPT_COUNT(cases); i++) {
        char text[512];
        (void)snprintf(text, sizeof text, "%s1,,allocate,0x1,1,0\n%s1,,free,0x1,1,0\n", RMM_HEAD,
                       cases[i].row);
        trace_all all;
        trace_read_text(&all, &file, text);
        assert_refused(&all, &file, 3, cases[i].words);
        assert_int_equal(all.count, 1);
        trace_all_free(&all);
    }
    trace_all all;
    trace_read_text(&all, &file, RMM_HEAD "1,,allocate,0x1,1,0\n1,,free,0x1,1,0");
    assert_refused(&all, &file, 3, "cut last line");
    trace_all_free(&all);
    trace_read_text(&all, &file, "Thread,Time,Action,Pointer,Size,Stream,Extra\n");
    assert_int_equal(all.status, VRP_INVALID_ARGUMENT);
    (void)remove(file.path);
}

/* And the line numbers go on counting them. */
static void requests_of_nothing_are_no_events(void **state) {
    (void)state;
    trace_file file;
    trace_file_make(&file);
    trace_all all;
    trace_read_text(&all, &file,
                    RMM_HEAD "1,,allocate,(nil),0,0\n1,,allocate,0x0,0,0\n1,,allocate,0x8,0,0\n"
                             "1,,free,(nil),0,0\n1,,free,0x8,0,0\n1,,allocate failure,0,0,0\n");
    assert_int_equal(all.status, VRP_OK);
    assert_int_equal(all.count, 3);
    assert_int_equal(all.events[1].kind, VRP_TRACE_FREE);
    assert_true(all.events[0].id == all.events[1].id);
    assert_int_equal(all.events[2].failed, 1);
    assert_int_equal(all.line, 7);
    trace_all_free(&all);
    (void)remove(file.path);
}

#define ROWS 100000
#define SLOTS 5000

/* Addresses that come and go at random, against an array of who lives where. */
static void ids_stay_right_over_many_reuses(void **state) {
    (void)state;
    static uint64_t owner[SLOTS]; /* id plus 1 */
    static uint64_t expected[ROWS];
    trace_file file;
    trace_file_make(&file);
    FILE *out = fopen(file.path, "wb");
    assert_non_null(out);
    assert_true(fputs(RMM_HEAD, out) >= 0);
    uint64_t seed = 7;
    uint64_t next_id = 0;
    for (size_t i = 0; i < ROWS; i++) {
        size_t slot = (size_t)(trace_random(&seed) % SLOTS);
        int is_alloc = owner[slot] == 0;
        if (is_alloc)
            owner[slot] = ++next_id;
        expected[i] = owner[slot] - 1;
        if (!is_alloc)
            owner[slot] = 0;
        assert_true(fprintf(out, "1,,%s,0x7f%06zx000000,256,0x%zx\n",
                            is_alloc ? "allocate" : "free", slot, slot % 16) > 0);
    }
    assert_int_equal(fclose(out), 0);
    trace_all all;
    trace_read(&all, file.path, 1000);
    assert_int_equal(all.status, VRP_OK);
    assert_int_equal(all.count, ROWS);
    for (size_t i = 0; i < ROWS; i++) {
        assert_true(all.events[i].id == expected[i]);
        assert_true(all.events[i].stream < 16);
    }
    trace_all_free(&all);
    (void)remove(file.path);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_become_ids),
        cmocka_unit_test(times_come_in_several_forms),
        cmocka_unit_test(malformed_rows_are_refused_with_line_and_reason),
        cmocka_unit_test(requests_of_nothing_are_no_events),
        cmocka_unit_test(ids_stay_right_over_many_reuses),
    };
    (void)argc;
    (void)argv;
    return cmocka_run_group_tests_name("trace_rmm", tests, NULL, NULL);
}
