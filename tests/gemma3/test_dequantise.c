/* SPDX-License-Identifier: MIT */
/* Number formats: halves and bfloat16 over all their values, and every block format
 * against its definition. */

#include "vrp_test.h"

#include "matrix_support.h"

static uint32_t bits_of(float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    return bits;
}

static float float_of(uint32_t bits) {
    float v;
    memcpy(&v, &bits, 4);
    return v;
}

static void every_half_has_its_value(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const uint8_t bytes[2] = {(uint8_t)h, (uint8_t)(h >> 8)};
        const float v = g3_half_to_float((uint16_t)h);
        if ((h & 0x7c00u) != 0x7c00u) {
            assert_true((double)v == g3t_half(bytes));
            assert_int_equal(bits_of(v) >> 31, h >> 15);
            assert_int_equal(g3_float_to_half(v), h);
        } else if (h & 0x3ffu) {
            assert_true(isnan(v));
            const uint16_t back = g3_float_to_half(v);
            assert_true((back & 0x7c00u) == 0x7c00u && (back & 0x3ffu));
        } else {
            assert_true(isinf(v) && (v < 0.0f) == (h >> 15 != 0));
            assert_int_equal(g3_float_to_half(v), h);
        }
    }
}

static void floats_become_the_nearest_half(void **state) {
    (void)state;
    /* Between every two neighbours: the middle goes to the even one, what is beside
     * the middle to its side. The last neighbour is infinity, as if it were 65536. */
    for (uint32_t h = 0; h < 0x7c00u; h++) {
        const double below = (double)g3_half_to_float((uint16_t)h);
        const double above = h == 0x7bffu ? 65536.0 : (double)g3_half_to_float((uint16_t)(h + 1));
        const float middle = (float)((below + above) / 2);
        const uint32_t even = h % 2 ? h + 1 : h;
        for (uint32_t sign = 0; sign < 2; sign++) {
            const uint32_t m = bits_of(middle) | sign << 31, s = sign << 15;
            assert_int_equal(g3_float_to_half(float_of(m)), even | s);
            assert_int_equal(g3_float_to_half(float_of(m - 1)), h | s);
            assert_int_equal(g3_float_to_half(float_of(m + 1)), (h + 1) | s);
        }
    }
    assert_int_equal(g3_float_to_half(1e30f), 0x7c00u);
    assert_int_equal(g3_float_to_half(-1e-30f), 0x8000u);
}

static void bfloat16_both_ways(void **state) {
    (void)state;
    for (uint32_t b = 0; b < 65536; b++) {
        const float v = g3_bf16_to_float((uint16_t)b);
        assert_int_equal(bits_of(v), b << 16);
        if (isnan(v)) {
            assert_true(isnan(g3_bf16_to_float(g3_float_to_bf16(v))));
            continue;
        }
        assert_int_equal(g3_float_to_bf16(v), b);
        if (isinf(v))
            continue;
        assert_int_equal(g3_float_to_bf16(float_of(b << 16 | 0x7fffu)), b);
        assert_int_equal(g3_float_to_bf16(float_of(b << 16 | 0x8001u)), b + 1);
        assert_int_equal(g3_float_to_bf16(float_of(b << 16 | 0x8000u)), b % 2 ? b + 1 : b);
    }
    assert_true(isnan(g3_bf16_to_float(g3_float_to_bf16(float_of(0x7f800001u)))));
}

static void every_block_format_follows_its_definition(void **state) {
    (void)state;
    enum { COUNT = 4096 };
    static float out[COUNT];
    for (size_t t = 0; t < G3T_TYPES; t++) {
        const g3_type type = g3t_types[t];
        const g3t_format f = g3t_format_of(type);
        for (uint64_t seed = 1; seed <= 8; seed++) {
            uint8_t *rows = g3t_random_rows(type, COUNT, seed * 977 + t);
            /* Also from an odd address. */
            uint8_t *shifted = malloc(COUNT / f.elements * f.bytes + 1);
            assert_non_null(shifted);
            memcpy(shifted + 1, rows, COUNT / f.elements * f.bytes);
            g3_dequantise(type, shifted + 1, COUNT, out);
            for (size_t i = 0; i < COUNT; i++)
                if (out[i] != (float)g3t_value(type, rows, i))
                    fail_msg("type %d element %zu: %.9g, not %.9g", (int)type, i, (double)out[i],
                             g3t_value(type, rows, i));
            free(shifted);
            free(rows);
        }
    }
}

/* The comparison would see the usual mistake: neighbouring nibbles as neighbouring
 * elements. */
static void another_nibble_order_would_be_seen(void **state) {
    (void)state;
    float out[32];
    uint8_t *row = g3t_random_rows(G3_Q4_0, 32, 5);
    row[0] = 0;
    row[1] = 0x3c; /* 1 */
    g3_dequantise(G3_Q4_0, row, 32, out);
    int differences = 0;
    for (size_t i = 0; i < 32; i++)
        differences += out[i] != (float)(g3t_bits(row + 2, 4 * i, 4) - 8);
    assert_true(differences > 16);
    free(row);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_has_its_value),
        cmocka_unit_test(floats_become_the_nearest_half),
        cmocka_unit_test(bfloat16_both_ways),
        cmocka_unit_test(every_block_format_follows_its_definition),
        cmocka_unit_test(another_nibble_order_would_be_seen),
    };
    (void)argc;
    (void)argv;
    return cmocka_run_group_tests_name("dequantise", tests, NULL, NULL);
}
