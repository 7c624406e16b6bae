/* SPDX-License-Identifier: MIT */
/* The safetensors reader: values of right files wherever they lie, and a text of
 * its own for each way a file can be wrong. */

#include "support_safetensors.h"

static t_bytes small_file(void) {
    t_st s = {0};
    t_st_tensor(&s, "f32", "F32", "[2,3]", 24);
    t_st_tensor(&s, "f16", "F16", "[3]", 6);
    t_st_tensor(&s, "bf16", "BF16", "[1,1,1,1,5]", 10);
    t_st_tensor(&s, "none", "F32", "[0,4]", 0);
    t_st_tensor(&s, "i32", "I32", "[]", 4);
    t_st_tensor(&s, "i64", "I64", "[2]", 16);
    return t_st_finish(&s);
}

/* A header of exactly `length` bytes, so that data stand at any alignment. */
static t_bytes padded_file(size_t length) {
    static const float floats[2] = {1.5f, -0x1p-140f};
    static const uint16_t halves[6] = {0x3c00, 0xc001, 0x0001, 0x8001, 0x7c00, 0x03ff};
    static const uint16_t brains[2] = {0x3f80, 0xc049};
    static const int32_t narrow[2] = {-5, 1 << 30};
    static const int64_t wide[1] = {-((int64_t)1 << 40)};
    const char *header = "{\"__metadata__\":{\"format\":\"pt\"},"
                         "\"w\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[32,40]},"
                         "\"f\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                         "\"h\":{\"dtype\":\"F16\",\"shape\":[6],\"data_offsets\":[8,20]},"
                         "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[20,24]},"
                         "\"n\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[24,32]}}";
    t_bytes file = {0};
    t_put_u64(&file, length);
    t_put(&file, header, strlen(header));
    while (file.count < 8 + length)
        t_put(&file, " ", 1);
    t_put(&file, floats, sizeof floats);
    t_put(&file, halves, sizeof halves);
    t_put(&file, brains, sizeof brains);
    t_put(&file, narrow, sizeof narrow);
    t_put(&file, wide, sizeof wide);
    return file;
}

static void check_values(const g3_safetensors *file) {
    const g3_st_tensor *half = g3_safetensors_find(file, "h");
    static const float halves[6] = {1, -2.001953125f, 0x1p-24f, -0x1p-24f, 0, 0x3ffp-24f};
    assert_true(g3_st_float(g3_safetensors_find(file, "f"), 0) == 1.5f);
    assert_true(g3_st_float(g3_safetensors_find(file, "f"), 1) == -0x1p-140f);
    for (uint64_t i = 0; i < 6; i++)
        if (i != 4)
            assert_true(g3_st_float(half, i) == halves[i]);
    assert_true(g3_st_float(half, 4) > 3.4e38f); /* infinity stays one */
    assert_true(g3_st_float(g3_safetensors_find(file, "b"), 1) == -3.140625f);
    assert_true(g3_st_int(g3_safetensors_find(file, "n"), 0) == -5);
    assert_true(g3_st_int(g3_safetensors_find(file, "n"), 1) == 1 << 30);
    assert_true(g3_st_int(g3_safetensors_find(file, "w"), 0) == -((int64_t)1 << 40));
    assert_true(g3_st_int(half, 0) == 0);
    assert_true(g3_st_float(g3_safetensors_find(file, "n"), 0) == 0);
}

static void values_at_any_alignment(void **state) {
    (void)state;
    static const size_t lengths[] = {0xA766, 400, 401, 402, 403, 404, 405, 406, 407};
    for (size_t i = 0; i < VRPT_COUNT(lengths); i++) {
        t_bytes bytes = padded_file(lengths[i]);
        uint8_t *copy = NULL;
        g3_safetensors *file = NULL;
        g3_error error = {{0}};
        t_expect(t_st_parse(bytes.data, bytes.count, &copy, &file, &error), G3_OK, &error, NULL,
                 NULL);
        check_values(file);
        assert_int_equal(g3_safetensors_count(file), 5); /* metadata is no tensor */
        assert_int_equal(g3_safetensors_find(file, "w")->offset, 8 + lengths[i] + 32);
        assert_null(g3_safetensors_find(file, "__metadata__"));
        g3_safetensors_close(file);
        free(copy);
        t_free(&bytes);
    }
}

static void tensors_come_in_the_order_of_their_data(void **state) {
    (void)state;
    static const char *const names[] = {"f32", "f16", "bf16", "none", "i32", "i64"};
    static const uint32_t dims[] = {2, 1, 5, 2, 0, 1};
    t_bytes bytes = small_file();
    uint8_t *copy = NULL;
    g3_safetensors *file = NULL;
    g3_error error = {{0}};
    uint64_t next = 0;
    t_expect(t_st_parse(bytes.data, bytes.count, &copy, &file, &error), G3_OK, &error, NULL, NULL);
    assert_int_equal(g3_safetensors_count(file), 6);
    assert_string_equal(g3_safetensors_path(file), "made.safetensors");
    assert_null(g3_safetensors_at(file, 6));
    for (size_t i = 0; i < 6; i++) {
        const g3_st_tensor *tensor = g3_safetensors_at(file, i);
        assert_string_equal(tensor->name, names[i]);
        assert_ptr_equal(g3_safetensors_find(file, names[i]), tensor);
        assert_int_equal(tensor->dim_count, dims[i]);
        assert_true(next == 0 || tensor->offset == next);
        assert_ptr_equal(tensor->data, copy + tensor->offset);
        next = tensor->offset + tensor->bytes;
    }
    assert_int_equal(next, bytes.count);
    assert_true(g3_safetensors_at(file, 0)->shape[0] == 2 &&
                g3_safetensors_at(file, 0)->shape[1] == 3);
    g3_safetensors_close(file);
    free(copy);
    t_free(&bytes);
}

static void a_file_cut_anywhere_is_refused(void **state) {
    (void)state;
    t_bytes file = small_file();
    for (size_t count = 0; count < file.count; count++) {
        const t_bytes cut = {.data = file.data, .count = count};
        t_expect_st(&cut, G3_INVALID, NULL, NULL);
    }
    t_free(&file);
}

static void flipped_bits_never_reach_outside(void **state) {
    (void)state;
    t_bytes bytes = small_file();
    size_t accepted = 0;
    for (size_t bit = 0; bit < bytes.count * 8; bit++) {
        uint8_t *copy = NULL;
        g3_safetensors *file = NULL;
        g3_error error = {{0}};
        bytes.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        if (t_st_parse(bytes.data, bytes.count, &copy, &file, &error) == G3_OK)
            accepted++;
        else
            assert_true(file == NULL && error.text[0] != '\0');
        for (size_t i = 0; file != NULL && i < g3_safetensors_count(file); i++) {
            const g3_st_tensor *tensor = g3_safetensors_at(file, i);
            assert_true(tensor->data >= copy);
            assert_true((size_t)(tensor->data - copy) + tensor->bytes <= bytes.count);
        }
        g3_safetensors_close(file);
        free(copy);
        bytes.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    assert_true(accepted >= 8 * 60 && accepted < bytes.count * 8);
    t_free(&bytes);
}

static void header_lengths(void **state) {
    (void)state;
    static const struct {
        uint64_t length;
        const char *part;
    } lengths[] = {
        {UINT64_MAX, "100 MiB"},
        {132000000, "100 MiB"},
        {((uint64_t)100 << 20) + 1, "100 MiB"},
        {0, "header is empty"},
        {(uint64_t)100 << 20, "in a file of 18 bytes"},
        {18, "in a file of 18 bytes"},
        {11, "in a file of 18 bytes"},
    };
    for (size_t i = 0; i < VRPT_COUNT(lengths); i++) {
        t_bytes file = {0};
        t_put_u64(&file, lengths[i].length);
        t_put(&file, "{}        ", 10);
        t_expect_st(&file, G3_INVALID, lengths[i].part, NULL);
        memcpy(file.data, &(uint64_t){10}, 8);
        t_expect_st(&file, G3_OK, NULL, NULL);
        t_free(&file);
    }
    t_expect_header(" {}", 0, G3_INVALID, "begin with '{'", NULL);
    t_expect_header("{} x", 0, G3_INVALID, "header: line 1", NULL);
    t_expect_header("{\"a\":", 0, G3_INVALID, "header: line 1", NULL);
}

#define F32_AT(name, begin, end) \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" begin "," end "]}"

static void data_that_do_not_tile(void **state) {
    (void)state;
    t_expect_header("{" F32_AT("a", "0", "8") "," F32_AT("a", "8", "16") "}", 16, G3_INVALID,
                    "twice", NULL);
    t_expect_header("{" F32_AT("a", "0", "8") "," F32_AT("b", "12", "20") "}", 20, G3_INVALID,
                    "tensor 'b'", "gap of 4 bytes");
    t_expect_header("{" F32_AT("a", "4", "12") "}", 12, G3_INVALID, "tensor 'a'", "gap of 4 bytes");
    t_expect_header("{" F32_AT("a", "0", "8") "," F32_AT("b", "4", "12") "}", 12, G3_INVALID,
                    "tensor 'b'", "overlap");
    t_expect_header("{" F32_AT("a", "0", "8") "," F32_AT("b", "0", "8") "}", 8, G3_INVALID,
                    "tensor 'b'", "overlap");
    t_expect_header("{" F32_AT("a", "0", "8") "}", 9, G3_INVALID, "1 trailing bytes", NULL);
    t_expect_header("{}", 1, G3_INVALID, "1 trailing bytes", NULL);
    t_expect_header("{" F32_AT("b", "8", "16") "," F32_AT("a", "0", "8") "}", 16, G3_OK, NULL,
                    NULL);
}

static void offsets_that_are_wrong(void **state) {
    (void)state;
    t_expect_header("{" F32_AT("a", "0", "8") "}", 7, G3_INVALID, "tensor 'a'", "end at 8");
    t_expect_header("{" F32_AT("a", "8", "0") "}", 8, G3_INVALID, "tensor 'a'", "data_offsets");
    t_expect_header("{" F32_AT("a", "-8", "0") "}", 8, G3_INVALID, "tensor 'a'", "data_offsets");
    t_expect_header("{" F32_AT("a", "0", "8.0") "}", 8, G3_INVALID, "tensor 'a'", "data_offsets");
    t_expect_header("{" F32_AT("a", "0", "4") "}", 4, G3_INVALID, "tensor 'a'", "take 8");
    t_expect_header("{" F32_AT("a", "9223372036854775800", "9223372036854775807") "}", 8,
                    G3_INVALID, "tensor 'a'", "end at 9223372036854775807");
    t_expect_header("{" F32_AT("a", "9223372036854775808", "9223372036854775816") "}", 8,
                    G3_INVALID, "tensor 'a' at offset 9: ", "data_offsets of 2^63 or more");
    t_expect_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, G3_INVALID,
                    "tensor 'a'", "data_offsets");
    t_expect_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, G3_INVALID, "tensor 'a'",
                    "data_offsets");
}

static void entries_that_are_wrong(void **state) {
    (void)state;
    static const struct {
        const char *dtype, *offsets;
        g3_status status;
        const char *part;
    } dtypes[] = {
        {"Q9", "1000000000000000000,4", G3_INVALID, "unknown dtype 'Q9'"},
        {"Q9", "0,4", G3_INVALID, "unknown dtype 'Q9'"},
        {"f32", "0,4", G3_INVALID, "unknown dtype 'f32'"},
        {"Q9", "9223372036854775808,0", G3_INVALID, "unknown dtype 'Q9'"},
        {"F64", "0,4", G3_INVALID, "its shape and dtype take 8"},
        {"F8_E4M3", "0,4", G3_INVALID, "its shape and dtype take 1"},
        {"F4", "0,1", G3_INVALID, "no whole bytes"},
    };
    char header[256];
    for (size_t i = 0; i < VRPT_COUNT(dtypes); i++) {
        (void)snprintf(header, sizeof header,
                       "{\"a\":{\"dtype\":\"%s\",\"shape\":[1],\"data_offsets\":[%s]}}",
                       dtypes[i].dtype, dtypes[i].offsets);
        t_expect_header(header, 8, dtypes[i].status, "tensor 'a'", dtypes[i].part);
    }
    static const struct {
        const char *shape;
        g3_status status;
        const char *part;
    } shapes[] = {
        {"[-1]", G3_INVALID, "dimension"},
        {"[1.0]", G3_INVALID, "dimension"},
        {"[4611686018427387904]", G3_INVALID, "overflows"},
        {"[4294967296,4294967296]", G3_INVALID, "overflows"},
        {"[1,1,1,1,1,1]", G3_UNSUPPORTED, "5 dimensions"},
        {"4", G3_INVALID, "no shape"},
        {"null", G3_INVALID, "no shape"},
    };
    for (size_t i = 0; i < VRPT_COUNT(shapes); i++) {
        (void)snprintf(header, sizeof header,
                       "{\"a\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[0,0]}}",
                       shapes[i].shape);
        t_expect_header(header, 0, shapes[i].status, "tensor 'a'", shapes[i].part);
    }
    t_expect_header("{\"a\":[]}", 0, G3_INVALID, "tensor 'a'", "not an object");
    t_expect_header("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, G3_INVALID, "tensor 'a'",
                    "no dtype");
    t_expect_header("{\"__metadata__\":{\"a\":1}}", 0, G3_INVALID, "__metadata__", "no string");
    t_expect_header("{\"__metadata__\":[]}", 0, G3_INVALID, "__metadata__", "not an object");
    t_expect_header("{\"__metadata__\":{\"a\":\"1\"}}", 0, G3_OK, NULL, NULL);
}

static void files_are_mapped(void **state) {
    (void)state;
    char folder[64];
    char path[256];
    g3_safetensors *file = NULL;
    g3_error error = {{0}};
    t_folder_make(folder);
    t_expect(g3_safetensors_open(folder, &file, &error), G3_INVALID, &error, folder, "folder");
    t_expect(g3_safetensors_open("/nowhere", &file, &error), G3_IO, &error, "/nowhere", NULL);
    t_bytes bytes = padded_file(0xA766);
    t_file_write(folder, "x.safetensors", bytes.data, bytes.count, path);
    t_expect(g3_safetensors_open(path, &file, &error), G3_OK, &error, NULL, NULL);
    check_values(file);
    assert_string_equal(g3_safetensors_path(file), path);
    g3_safetensors_close(file);
    g3_safetensors_close(NULL);
    t_free(&bytes);
    t_folder_remove(folder);
}

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_at_any_alignment),
        cmocka_unit_test(tensors_come_in_the_order_of_their_data),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(flipped_bits_never_reach_outside),
        cmocka_unit_test(header_lengths),
        cmocka_unit_test(data_that_do_not_tile),
        cmocka_unit_test(offsets_that_are_wrong),
        cmocka_unit_test(entries_that_are_wrong),
        cmocka_unit_test(files_are_mapped),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
