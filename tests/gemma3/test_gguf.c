/* SPDX-License-Identifier: MIT */
/* The GGUF reader: what right files hold, and that wrong ones are refused with a
 * text that says where. */

#include "support_gguf.h"

/* Every type of value, an array of strings, three tensors. */
static void put_small(t_gguf *g) {
    const uint8_t u8 = 200;
    const int8_t i8 = -3;
    const uint16_t u16 = 60000;
    const int16_t i16 = -30000;
    const int32_t i32 = 7;
    const uint64_t u64 = 4294967295u;
    const int64_t i64 = 12;
    const double f64 = 0.1;
    const float floats[3] = {1.5f, -2.0f, 0.25f};
    const int16_t shorts[3] = {-1, 2, 300};
    t_bytes strings = {0};
    t_raw(g, "u8", 0, &u8, 1);
    t_raw(g, "i8", 1, &i8, 1);
    t_raw(g, "u16", 2, &u16, 2);
    t_raw(g, "i16", 3, &i16, 2);
    t_u32(g, "u32", 123456789);
    t_raw(g, "i32", 5, &i32, 4);
    t_f32(g, "f32", 0.5f);
    t_bool(g, "yes", 1);
    t_bool(g, "no", 0);
    t_string(g, "string", "a text");
    t_raw(g, "u64", 10, &u64, 8);
    t_raw(g, "i64", 11, &i64, 8);
    t_raw(g, "f64", 12, &f64, 8);
    t_array(g, "floats", 6, 3, floats, sizeof floats);
    t_array(g, "shorts", 3, 3, shorts, sizeof shorts);
    t_put_string(&strings, "one");
    t_put_string(&strings, "");
    t_put_string(&strings, "three");
    t_array(g, "strings", 8, 3, strings.data, strings.count);
    t_free(&strings);
    t_tensor(g, "norm", G3_F32, 5, 0, 0, 0);
    t_tensor(g, "quantised", G3_Q4_0, 64, 3, 0, 0);
    t_tensor(g, "half", G3_F16, 3, 2, 4, 5);
}

static void check_integers(const g3_gguf *gguf) {
    static const struct {
        const char *key;
        uint32_t value;
    } right[] = {{"u8", 200}, {"u16", 60000},      {"u32", 123456789},
                 {"i32", 7},  {"u64", 4294967295}, {"i64", 12}};
    static const char *const wrong[] = {"i8", "i16", "f32", "yes", "string", "floats"};
    g3_error error = {{0}};
    uint32_t value = 0;
    bool found = false;
    for (size_t i = 0; i < VRPT_COUNT(right); i++) {
        assert_int_equal(g3_gguf_u32(gguf, right[i].key, &value, &found, &error), G3_OK);
        assert_true(found);
        assert_int_equal(value, right[i].value);
    }
    for (size_t i = 0; i < VRPT_COUNT(wrong); i++) {
        t_expect(g3_gguf_u32(gguf, wrong[i], &value, &found, &error), G3_INVALID, &error, wrong[i],
                 "offset");
        assert_false(found);
    }
    assert_int_equal(g3_gguf_u32(gguf, "absent", &value, &found, &error), G3_OK);
    assert_false(found);
}

static void check_other_values(const g3_gguf *gguf) {
    g3_error error = {{0}};
    double number = 0;
    bool flag = false;
    bool found = false;
    g3_text text = {0};
    assert_int_equal(g3_gguf_f64(gguf, "f32", &number, &found, &error), G3_OK);
    assert_true(found && number == 0.5);
    assert_int_equal(g3_gguf_f64(gguf, "f64", &number, &found, &error), G3_OK);
    assert_true(found && number == 0.1);
    t_expect(g3_gguf_f64(gguf, "u32", &number, &found, &error), G3_INVALID, &error, "'u32'",
             "type u32");
    assert_int_equal(g3_gguf_bool(gguf, "yes", &flag, &found, &error), G3_OK);
    assert_true(found && flag);
    assert_int_equal(g3_gguf_bool(gguf, "no", &flag, &found, &error), G3_OK);
    assert_true(found && !flag);
    t_expect(g3_gguf_bool(gguf, "u8", &flag, &found, &error), G3_INVALID, &error, "'u8'", NULL);
    assert_int_equal(g3_gguf_string(gguf, "string", &text, &found, &error), G3_OK);
    assert_true(found && text.count == 6 && memcmp(text.bytes, "a text", 6) == 0);
    t_expect(g3_gguf_string(gguf, "floats", &text, &found, &error), G3_INVALID, &error, "'floats'",
             "type array");
}

static void check_arrays(const g3_gguf *gguf) {
    static const char *const texts[] = {"one", "", "three"};
    g3_error error = {{0}};
    g3_array array = {0};
    g3_text text = {0};
    bool found = false;
    uint64_t cursor = 0;
    assert_int_equal(g3_gguf_array(gguf, "floats", &array, &found, &error), G3_OK);
    assert_true(found && array.count == 3 && array.bytes == 12);
    assert_true(g3_array_number(&array, 0) == 1.5 && g3_array_number(&array, 1) == -2.0 &&
                g3_array_number(&array, 2) == 0.25 && g3_array_number(&array, 3) == 0);
    assert_false(g3_array_next_string(&array, &cursor, &text));
    assert_int_equal(g3_gguf_array(gguf, "shorts", &array, &found, &error), G3_OK);
    assert_true(g3_array_number(&array, 0) == -1 && g3_array_number(&array, 2) == 300);
    assert_int_equal(g3_gguf_array(gguf, "strings", &array, &found, &error), G3_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_true(g3_array_next_string(&array, &cursor, &text));
        assert_int_equal(text.count, strlen(texts[i]));
        assert_memory_equal(text.bytes, texts[i], text.count);
    }
    assert_false(g3_array_next_string(&array, &cursor, &text));
    t_expect(g3_gguf_array(gguf, "u32", &array, &found, &error), G3_INVALID, &error, "'u32'", NULL);
}

static void check_tensors(const g3_gguf *gguf, const t_bytes *file, const uint8_t *copy) {
    const g3_tensor *norm = g3_gguf_find(gguf, "norm");
    const g3_tensor *quantised = g3_gguf_find(gguf, "quantised");
    const g3_tensor *half = g3_gguf_find(gguf, "half");
    assert_int_equal(g3_gguf_tensor_count(gguf), 3);
    assert_ptr_equal(g3_gguf_tensor(gguf, 0), norm);
    assert_ptr_equal(g3_gguf_tensor(gguf, 3), NULL);
    assert_ptr_equal(g3_gguf_find(gguf, "nor"), NULL);
    assert_true(norm->type == G3_F32 && norm->dim_count == 1 && norm->bytes == 20);
    assert_true(norm->dims[0] == 5 && norm->dims[1] == 1 && norm->dims[3] == 1);
    assert_true(quantised->dims[0] == 64 && quantised->dims[1] == 3 && quantised->bytes == 108);
    assert_true(half->dim_count == 4 && half->dims[3] == 5 && half->bytes == 240);
    assert_int_equal(half->offset + half->bytes, file->count);
    assert_int_equal(quantised->offset, norm->offset + 32);
    for (size_t i = 0; i < 3; i++) {
        const g3_tensor *tensor = g3_gguf_tensor(gguf, i);
        assert_ptr_equal(tensor->data, copy + tensor->offset);
        assert_string_equal(tensor->path, "made.gguf");
    }
}

static void right_files_give_their_values(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++)
        for (uint32_t shift = 0; shift < 2; shift++) {
            t_gguf g = {.version = version};
            if (shift == 1)
                t_bool(&g, "x", 0); /* everything behind it is unaligned */
            put_small(&g);
            t_bytes file = t_finish(&g);
            uint8_t *copy = NULL;
            g3_gguf *gguf = NULL;
            g3_error error = {{0}};
            t_expect(t_parse(file.data, file.count, &copy, &gguf, &error), G3_OK, &error, NULL,
                     NULL);
            check_integers(gguf);
            check_other_values(gguf);
            check_arrays(gguf);
            check_tensors(gguf, &file, copy);
            g3_gguf_close(gguf);
            free(copy);
            t_free(&file);
        }
}

static void a_file_cut_anywhere_is_refused(void **state) {
    (void)state;
    t_gguf g = {0};
    put_small(&g);
    t_bytes file = t_finish(&g);
    for (size_t count = 0; count < file.count; count++) {
        uint8_t *copy = NULL;
        g3_gguf *gguf = NULL;
        g3_error error = {{0}};
        if (t_parse(file.data, count, &copy, &gguf, &error) != G3_INVALID)
            fail_msg("cut at %zu of %zu: '%s'", count, file.count, error.text);
        assert_null(gguf);
        assert_true(t_contains(error.text, "made.gguf: "));
        free(copy);
    }
    t_free(&file);
}

/* Whatever a flip does, tensors that come out lie in the file. */
static void flipped_bits_never_reach_outside(void **state) {
    (void)state;
    t_gguf g = {0};
    put_small(&g);
    t_bytes file = t_finish(&g);
    size_t accepted = 0;
    for (size_t bit = 0; bit < file.count * 8; bit++) {
        uint8_t *copy = NULL;
        g3_gguf *gguf = NULL;
        g3_error error = {{0}};
        file.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        if (t_parse(file.data, file.count, &copy, &gguf, &error) == G3_OK)
            accepted++;
        else if (error.text[0] == '\0' || gguf != NULL)
            fail_msg("bit %zu: no reason", bit);
        for (size_t i = 0; gguf != NULL && i < g3_gguf_tensor_count(gguf); i++) {
            const g3_tensor *tensor = g3_gguf_tensor(gguf, i);
            assert_true(tensor->data >= copy && tensor->bytes <= file.count);
            assert_true((size_t)(tensor->data - copy) + tensor->bytes <= file.count);
        }
        g3_gguf_close(gguf);
        free(copy);
        file.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    assert_true(accepted > 8 * (20 + 108 + 240)); /* bits of data mean nothing here */
    assert_true(accepted < file.count * 8);
    t_free(&file);
}

static void headers_that_are_not_ours(void **state) {
    (void)state;
    static const struct {
        uint32_t version;
        const char *part;
    } versions[] = {{1, "version 1"}, {4, "version 4"}, {0x03000000, "big-endian"}};
    for (size_t i = 0; i < VRPT_COUNT(versions); i++) {
        t_gguf g = {.version = versions[i].version};
        t_expect_gguf(&g, G3_UNSUPPORTED, versions[i].part, NULL);
    }
    g3_gguf *gguf = NULL;
    g3_error error = {{0}};
    t_expect(g3_gguf_parse((const uint8_t *)"GGML1234", 8, "f", &gguf, &error), G3_INVALID, &error,
             "not a GGUF file", NULL);
    t_gguf keys = {.pair_count = UINT64_MAX};
    t_expect_gguf(&keys, G3_INVALID, "offset 16", "18446744073709551615 keys");
    t_gguf tensors = {.tensor_count = (uint64_t)1 << 63};
    t_expect_gguf(&tensors, G3_INVALID, "offset 8", "9223372036854775808 tensors");
    t_gguf empty = {0};
    t_expect_gguf(&empty, G3_OK, NULL, NULL);
}

static void files_that_cannot_be_mapped(void **state) {
    (void)state;
    char folder[64];
    char path[256];
    g3_gguf *gguf = NULL;
    g3_error error = {{0}};
    t_folder_make(folder);
    t_expect(g3_gguf_open(folder, &gguf, &error), G3_INVALID, &error, folder, "is a folder");
    t_file_write(folder, "empty", "", 0, path);
    t_expect(g3_gguf_open(path, &gguf, &error), G3_INVALID, &error, path, "is empty");
    t_expect(g3_gguf_open("/nowhere/at/all.gguf", &gguf, &error), G3_IO, &error,
             "/nowhere/at/all.gguf", "No such file");
    assert_int_equal(chmod(path, 0), 0);
    if (geteuid() != 0) /* who may read everything */
        t_expect(g3_gguf_open(path, &gguf, &error), G3_IO, &error, path, "Permission denied");
    (void)snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    t_expect(g3_gguf_open(path, &gguf, &error), G3_INVALID, &error, path, "not a regular file");
    t_gguf g = {0};
    put_small(&g);
    t_bytes file = t_finish(&g);
    t_file_write(folder, "small.gguf", file.data, file.count, path);
    t_expect(g3_gguf_open(path, &gguf, &error), G3_OK, &error, NULL, NULL);
    assert_string_equal(g3_gguf_find(gguf, "half")->path, path);
    assert_memory_equal(g3_gguf_find(gguf, "half")->data, file.data + file.count - 240, 240);
    g3_gguf_close(gguf);
    g3_gguf_close(NULL);
    t_free(&file);
    t_folder_remove(folder);
}

static void many_names_are_all_found(void **state) {
    (void)state;
    t_gguf g = {.alignment = 0};
    char name[32];
    for (unsigned i = 0; i < 5000; i++) {
        (void)snprintf(name, sizeof name, "blk.%u.weight", i);
        t_u32(&g, name, i);
        t_tensor(&g, name, G3_F32, 1, 0, 0, 0);
    }
    t_bytes file = t_finish(&g);
    uint8_t *copy = NULL;
    g3_gguf *gguf = NULL;
    g3_error error = {{0}};
    t_expect(t_parse(file.data, file.count, &copy, &gguf, &error), G3_OK, &error, NULL, NULL);
    for (unsigned i = 0; i < 5000; i++) {
        uint32_t value = 0;
        bool found = false;
        (void)snprintf(name, sizeof name, "blk.%u.weight", i);
        assert_int_equal(g3_gguf_u32(gguf, name, &value, &found, &error), G3_OK);
        assert_true(found && value == i);
        assert_ptr_equal(g3_gguf_find(gguf, name), g3_gguf_tensor(gguf, i));
    }
    g3_gguf_close(gguf);
    free(copy);
    t_free(&file);
}

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_files_give_their_values),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(flipped_bits_never_reach_outside),
        cmocka_unit_test(headers_that_are_not_ours),
        cmocka_unit_test(files_that_cannot_be_mapped),
        cmocka_unit_test(many_names_are_all_found),
    };
    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
