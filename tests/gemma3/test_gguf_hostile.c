/* SPDX-License-Identifier: MIT */
/* GGUF files that have broken other readers: each is refused with a text that
 * names the key or tensor and the offset, or loads by a written rule. */

#include "support_gguf.h"

static const uint64_t one_row[1] = {8};

static void dimension_counts_out_of_range(void **state) {
    (void)state;
    static const uint32_t counts[] = {0, 5, 9, 1000000, UINT32_MAX};
    const uint64_t dims[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (size_t i = 0; i < VRPT_COUNT(counts); i++) {
        t_gguf g = {0};
        char text[64];
        (void)snprintf(text, sizeof text, "%" PRIu32 " dimensions", counts[i]);
        t_entry(&g, "wide", counts[i], dims, counts[i] < 9 ? counts[i] : 9, G3_F32, 0);
        t_put_pattern(&g.data, 64);
        t_expect_gguf(&g, G3_INVALID, "tensor 'wide' at offset 24", text);
    }
}

/* A tensor without elements is legal and has no data; what needs elements asks
 * for them by shape. */
static void a_dimension_of_zero_loads(void **state) {
    (void)state;
    static const uint64_t shapes[][2] = {{4, 0}, {0, 4}, {0, 0}, {32, 0}};
    for (size_t i = 0; i < VRPT_COUNT(shapes); i++)
        for (uint32_t with_data = 0; with_data < 2; with_data++) {
            t_gguf g = {0};
            t_entry(&g, "none", 2, shapes[i], 2, i == 3 ? G3_Q4_0 : G3_F32, 0);
            if (with_data == 1)
                t_tensor(&g, "some", G3_F32, 8, 0, 0, 0);
            t_bytes file = t_finish(&g);
            uint8_t *copy = NULL;
            g3_gguf *gguf = NULL;
            g3_error error = {{0}};
            t_expect(t_parse(file.data, file.count, &copy, &gguf, &error), G3_OK, &error, NULL,
                     NULL);
            const g3_tensor *none = g3_gguf_find(gguf, "none");
            assert_int_equal(none->bytes, 0);
            assert_true(none->data >= copy && none->data <= copy + file.count);
            if (with_data == 1)
                assert_memory_equal(g3_gguf_find(gguf, "some")->data, file.data + file.count - 32,
                                    32);
            g3_gguf_close(gguf);
            free(copy);
            t_free(&file);
        }
}

static void sizes_that_overflow(void **state) {
    (void)state;
    static const struct {
        uint64_t dims[4];
        const char *part;
    } shapes[] = {
        {{(uint64_t)1 << 62, 4, 1, 1}, "overflows"},
        {{UINT64_MAX, 1, 1, 1}, "overflows"},
        {{(uint64_t)1 << 32, (uint64_t)1 << 32, 1, 1}, "overflows"},
        {{(uint64_t)1 << 16, (uint64_t)1 << 16, (uint64_t)1 << 16, (uint64_t)1 << 16}, "overflows"},
        {{(uint64_t)1 << 60, 1, 1, 1}, "do not fit"},
        {{((uint64_t)1 << 62) - 8, 1, 1, 1}, "do not fit"},
        {{17, 1, 1, 1}, "do not fit"},
    };
    for (size_t i = 0; i < VRPT_COUNT(shapes); i++) {
        t_gguf g = {0};
        t_entry(&g, "big", 4, shapes[i].dims, 4, G3_F32, 0);
        t_put_pattern(&g.data, 64);
        t_expect_gguf(&g, G3_INVALID, "tensor 'big'", shapes[i].part);
    }
}

static void places_that_are_wrong(void **state) {
    (void)state;
    static const struct {
        uint64_t offset; /* of the second tensor; the first takes 32 bytes */
        const char *part;
    } places[] = {
        {33, "multiple of the alignment"},
        {0, "ends at 32"},
        {64, "ends at 32"},
        {(uint64_t)1 << 63, "ends at 32"},
        {UINT64_MAX - 31, "ends at 32"},
    };
    for (size_t i = 0; i < VRPT_COUNT(places); i++) {
        t_gguf g = {0};
        t_entry(&g, "first", 1, one_row, 1, G3_F32, 0);
        t_entry(&g, "second", 1, one_row, 1, G3_F32, places[i].offset);
        t_put_pattern(&g.data, 256);
        t_expect_gguf(&g, G3_INVALID, "tensor 'second' at offset", places[i].part);
    }
    t_gguf late = {0};
    t_entry(&late, "first", 1, one_row, 1, G3_F32, 32);
    t_put_pattern(&late.data, 256);
    t_expect_gguf(&late, G3_INVALID, "tensor 'first'", "ends at 0");
}

static void types_that_are_not_read(void **state) {
    (void)state;
    static const struct {
        uint32_t type;
        const char *part;
    } types[] = {{4, "unknown type 4"}, {31, "unknown type 31"}, {UINT32_MAX, "unknown"}};
    for (size_t i = 0; i < VRPT_COUNT(types); i++) {
        t_gguf g = {0};
        t_entry(&g, "odd", 1, one_row, 1, types[i].type, 0);
        t_put_pattern(&g.data, 256);
        t_expect_gguf(&g, G3_UNSUPPORTED, "tensor 'odd'", types[i].part);
    }
    static const g3_type quantised[] = {G3_Q4_0, G3_Q4_1, G3_Q5_0, G3_Q5_1,
                                        G3_Q8_0, G3_Q4_K, G3_Q5_K, G3_Q6_K};
    for (size_t i = 0; i < VRPT_COUNT(quantised); i++) {
        const uint64_t dims[2] = {g3_type_info_get(quantised[i])->block_elements + 16, 2};
        t_gguf g = {0};
        t_entry(&g, "ragged", 2, dims, 2, quantised[i], 0);
        t_put_pattern(&g.data, 4096);
        t_expect_gguf(&g, G3_INVALID, "tensor 'ragged'", "not whole blocks");
    }
}

/* Types that are not read have their sizes, so that what is behind them is found. */
static void types_that_are_stepped_over(void **state) {
    (void)state;
    static const struct {
        uint32_t type;
        uint64_t elements, bytes;
    } types[] = {{9, 64, 72},   {10, 256, 84}, {11, 256, 110}, {15, 256, 292},
                 {16, 256, 66}, {20, 64, 36},  {23, 256, 136}, {24, 5, 5},
                 {25, 5, 10},   {26, 5, 20},   {27, 5, 40},    {28, 5, 40},
                 {29, 256, 56}, {34, 256, 54}, {39, 64, 34},   {40, 128, 72}};
    for (size_t i = 0; i < VRPT_COUNT(types); i++) {
        t_gguf g = {0};
        t_entry(&g, "odd", 1, &types[i].elements, 1, types[i].type, 0);
        t_put_pattern(&g.data, types[i].bytes);
        t_tensor(&g, "last", G3_F32, 4, 0, 0, 0);
        t_bytes file = t_finish(&g);
        uint8_t *copy = NULL;
        g3_gguf *gguf = NULL;
        g3_error error = {{0}};
        t_expect(t_parse(file.data, file.count, &copy, &gguf, &error), G3_OK, &error, NULL, NULL);
        assert_int_equal(g3_gguf_find(gguf, "odd")->bytes, types[i].bytes);
        assert_int_equal(g3_gguf_find(gguf, "last")->bytes, 16);
        assert_null(g3_type_info_get(types[i].type));
        g3_gguf_close(gguf);
        free(copy);
        t_free(&file);
    }
}

/* Eight arrays around the innermost one are stepped over, nine are not. */
static void arrays_in_arrays(void **state) {
    (void)state;
    for (unsigned depth = 1; depth <= 9; depth++) {
        t_bytes value = {0};
        t_gguf g = {0};
        t_put_u32(&value, 9);
        t_put_u64(&value, 1);
        for (unsigned i = 1; i < depth; i++) {
            t_put_u32(&value, 9);
            t_put_u64(&value, 1);
        }
        t_put_u32(&value, 4);
        t_put_u64(&value, 2);
        t_put_u64(&value, 7);
        t_raw(&g, "nested", 9, value.data, value.count);
        t_u32(&g, "behind", 5);
        t_bytes file = t_finish(&g);
        uint8_t *copy = NULL;
        g3_gguf *gguf = NULL;
        g3_error error = {{0}};
        const g3_status got = t_parse(file.data, file.count, &copy, &gguf, &error);
        t_expect(got, depth <= 8 ? G3_OK : G3_UNSUPPORTED, &error,
                 depth <= 8 ? NULL : "key 'nested'", NULL);
        uint32_t behind = 0;
        bool found = false;
        if (got == G3_OK)
            t_expect(g3_gguf_u32(gguf, "behind", &behind, &found, &error), G3_OK, &error, NULL,
                     NULL);
        assert_int_equal(behind, depth <= 8 ? 5 : 0);
        g3_gguf_close(gguf);
        free(copy);
        t_free(&file);
        t_free(&value);
    }
}

static void an_empty_key_is_refused(void **state) {
    (void)state;
    static const uint8_t zeros[16] = {0};
    static const size_t sizes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
    for (uint32_t type = 0; type < 13; type++) {
        t_gguf g = {0};
        t_raw(&g, "", type, zeros, sizes[type]);
        t_expect_gguf(&g, G3_INVALID, "key 0 at offset 24", "is empty");
    }
}

static void alignments(void **state) {
    (void)state;
    static const uint32_t bad[] = {0, 3, 24, 1u << 21, 1u << 30, 1u << 31, UINT32_MAX - 7};
    static const uint32_t good[] = {1, 2, 8, 32, 64, 4096, 1u << 20};
    for (size_t i = 0; i < VRPT_COUNT(bad); i++) {
        t_gguf g = {0};
        t_u32(&g, "general.alignment", bad[i]);
        t_tensor(&g, "t", G3_F32, 8, 0, 0, 0);
        t_expect_gguf(&g, G3_INVALID, "'general.alignment' at offset 24", "power of two");
    }
    for (size_t i = 0; i < VRPT_COUNT(good); i++) {
        t_gguf g = {.alignment = good[i]};
        t_u32(&g, "general.alignment", good[i]);
        t_tensor(&g, "a", G3_F32, 3, 0, 0, 0);
        t_tensor(&g, "b", G3_F32, 5, 0, 0, 0);
        t_expect_gguf(&g, G3_OK, NULL, NULL);
    }
    static const uint64_t wide = 32;
    static const uint32_t types[] = {0, 2, 5, 6, 10, 11, 12};
    for (size_t i = 0; i < VRPT_COUNT(types); i++) {
        static const size_t sizes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
        t_gguf g = {0};
        t_raw(&g, "general.alignment", types[i], &wide, sizes[types[i]]);
        t_expect_gguf(&g, G3_INVALID, "'general.alignment' at offset 24", "u32 is needed");
    }
}

static void duplicates(void **state) {
    (void)state;
    t_gguf keys = {0};
    t_u32(&keys, "same", 1);
    t_u32(&keys, "other", 2);
    t_string(&keys, "same", "1");
    t_expect_gguf(&keys, G3_INVALID, "key 'same' at offset 65", "twice");
    t_gguf tensors = {0};
    t_tensor(&tensors, "same", G3_F32, 8, 0, 0, 0);
    t_tensor(&tensors, "same", G3_F32, 8, 0, 0, 0);
    t_expect_gguf(&tensors, G3_INVALID, "tensor 'same' at offset", "twice");
    t_gguf spaces = {0}; /* a key and a tensor of one name are no conflict */
    t_u32(&spaces, "same", 1);
    t_tensor(&spaces, "same", G3_F32, 8, 0, 0, 0);
    t_expect_gguf(&spaces, G3_OK, NULL, NULL);
}

static void names_that_are_wrong(void **state) {
    (void)state;
    char name[66] = {0};
    memset(name, 'n', 65);
    t_gguf longer = {0};
    t_tensor(&longer, name, G3_F32, 8, 0, 0, 0);
    t_expect_gguf(&longer, G3_INVALID, "name of tensor 0 at offset 24", "65 bytes");
    name[64] = '\0';
    t_gguf longest = {0};
    t_tensor(&longest, name, G3_F32, 8, 0, 0, 0);
    t_expect_gguf(&longest, G3_OK, NULL, NULL);
    t_gguf empty = {0};
    t_tensor(&empty, "", G3_F32, 8, 0, 0, 0);
    t_expect_gguf(&empty, G3_INVALID, "name of tensor 0", "0 bytes");
    t_gguf zero = {0};
    t_put_u64(&zero.infos, 3);
    t_put(&zero.infos, "a\0b", 3);
    zero.tensor_count = 1;
    t_put_pattern(&zero.data, 64);
    t_expect_gguf(&zero, G3_INVALID, "name of tensor 0", "zero byte");
    t_gguf key = {0};
    t_put_u64(&key.pairs, 3);
    t_put(&key.pairs, "a\0b\7\0\0\0\1", 8);
    key.pair_count = 1;
    t_expect_gguf(&key, G3_INVALID, "key 'a?b' at offset 24", "zero byte");
}

static void values_that_are_wrong(void **state) {
    (void)state;
    const uint8_t two = 2;
    const uint64_t much = UINT64_MAX;
    t_gguf unknown = {0};
    t_raw(&unknown, "k", 13, &much, 8);
    t_expect_gguf(&unknown, G3_INVALID, "key 'k' at offset 24", "unknown value type");
    t_gguf boolean = {0};
    t_raw(&boolean, "k", 7, &two, 1);
    t_expect_gguf(&boolean, G3_INVALID, "key 'k'", "neither 0 nor 1");
    t_gguf string = {0};
    t_raw(&string, "k", 8, &much, 8);
    t_expect_gguf(&string, G3_INVALID, "key 'k'", "ends in its string");
    t_gguf nested = {0};
    t_array(&nested, "k", 9, 1, &much, 8);
    t_expect_gguf(&nested, G3_INVALID, "key 'k' at offset", "ends in the array's header");
    t_gguf other = {0};
    t_array(&other, "k", 99, 1, &much, 8);
    t_expect_gguf(&other, G3_INVALID, "key 'k'", "unknown type");
    static const uint64_t counts[] = {UINT64_MAX, (uint64_t)1 << 62, ((uint64_t)1 << 61) + 1, 3};
    static const uint32_t elements[] = {4, 10, 12, 8};
    for (size_t i = 0; i < VRPT_COUNT(counts); i++)
        for (size_t j = 0; j < VRPT_COUNT(elements); j++) {
            t_gguf g = {0};
            const uint64_t data = 0;
            t_array(&g, "k", elements[j], counts[i], &data, 8);
            t_expect_gguf(&g, G3_INVALID, "key 'k' at offset 24", "the file ends in");
        }
    t_gguf flags = {0};
    t_array(&flags, "k", 7, 1, &two, 1);
    t_expect_gguf(&flags, G3_INVALID, "key 'k'", "neither 0 nor 1");
    t_gguf shown = {0}; /* what a file says reaches a terminal only as plain text */
    t_raw(&shown, "\x1b[31mred", 13, &much, 8);
    t_expect_gguf(&shown, G3_INVALID, "key '?[31mred'", NULL);
}

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dimension_counts_out_of_range),
        cmocka_unit_test(a_dimension_of_zero_loads),
        cmocka_unit_test(sizes_that_overflow),
        cmocka_unit_test(places_that_are_wrong),
        cmocka_unit_test(types_that_are_not_read),
        cmocka_unit_test(types_that_are_stepped_over),
        cmocka_unit_test(arrays_in_arrays),
        cmocka_unit_test(an_empty_key_is_refused),
        cmocka_unit_test(alignments),
        cmocka_unit_test(duplicates),
        cmocka_unit_test(names_that_are_wrong),
        cmocka_unit_test(values_that_are_wrong),
    };
    return cmocka_run_group_tests_name("gguf_hostile", tests, NULL, NULL);
}
