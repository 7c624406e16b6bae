/* SPDX-License-Identifier: MIT */
/* Knobs: names and bounds that can be enumerated, values that hold, values out
 * of bounds refused, and what each knob does to a pool. */

#include "unit_support.h"

#include <string.h>

/* Frozen: programs store these numbers. */
static const struct {
    const char *name;
    int32_t value;
    uint64_t low, high, preset;
} frozen[] = {
    {"GAP_RULE", 0, 1, 3, 2},
    {"GAP_LIMIT_BYTES", 1, 0, UINT64_MAX, UINT64_C(1) << 26},
    {"LIMIT_BYTES", 2, 0, UINT64_MAX, 0},
    {"CACHE_BYTES", 3, 0, UINT64_C(1) << 30, UINT64_C(1) << 26},
    {"CACHE_BLOCK_BYTES", 4, 0, UINT64_C(1) << 30, UINT64_C(1) << 20},
    {"DEVICE_WAITS", 5, 0, 1, 1},
    {"SPLIT_LIMIT_BYTES", 6, 0, UINT64_MAX, 0},
};

static void names_values_and_bounds_are_frozen(void **state) {
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(frozen); i++) {
        vrp_knob_bounds bounds = {.struct_size = sizeof bounds};
        assert_string_equal(vrp_knob_name(frozen[i].value), frozen[i].name);
        VRPT_OK(vrp_knob_bounds_get(frozen[i].value, &bounds));
        assert_int_equal(bounds.low, frozen[i].low);
        assert_int_equal(bounds.high, frozen[i].high);
        assert_int_equal(bounds.preset, frozen[i].preset);
    }
}

static void every_knob_can_be_enumerated(void **state) {
    (void)state;
    for (int32_t knob = 0; knob < VRP_KNOB_COUNT; knob++) {
        vrp_knob_bounds bounds = {.struct_size = sizeof bounds};
        VRPT_OK(vrp_knob_bounds_get(knob, &bounds));
        assert_true(bounds.low <= bounds.preset && bounds.preset <= bounds.high);
        assert_non_null(vrp_knob_name(knob));
        assert_true(strlen(vrp_knob_meaning(knob)) > 4);
        for (int32_t other = 0; other < knob; other++)
            assert_string_not_equal(vrp_knob_name(knob), vrp_knob_name(other));
    }
    static const int32_t none[] = {-1, VRP_KNOB_COUNT, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < VRPT_COUNT(none); i++) {
        vrp_knob_bounds bounds = {.struct_size = sizeof bounds, .low = 77};
        assert_null(vrp_knob_name(none[i]));
        assert_null(vrp_knob_meaning(none[i]));
        VRPT_STATUS(vrp_knob_bounds_get(none[i], &bounds), VRP_INVALID_ARGUMENT);
        assert_int_equal(bounds.low, 77);
    }
    VRPT_STATUS(vrp_knob_bounds_get(0, NULL), VRP_INVALID_ARGUMENT);
}

static void bounds_are_themselves_allowed_and_nothing_beyond(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    for (int32_t knob = 0; knob < VRP_KNOB_COUNT; knob++) {
        vrp_knob_bounds bounds = {.struct_size = sizeof bounds};
        uint64_t value = 0, first = 0;
        VRPT_OK(vrp_knob_bounds_get(knob, &bounds));
        VRPT_OK(vrp_pool_knob_get(t.pool, knob, &first));
        if (knob != VRP_KNOB_GAP_RULE || t.backing == VRP_BACKING_VMM)
            assert_int_equal(first, bounds.preset);
        const uint64_t good[] = {bounds.low, bounds.high,
                                 bounds.low + (bounds.high - bounds.low) / 2, first};
        for (size_t i = 0; i < VRPT_COUNT(good); i++) {
            VRPT_OK(vrp_pool_knob_set(t.pool, knob, good[i]));
            VRPT_OK(vrp_pool_knob_get(t.pool, knob, &value));
            /* sizes of extents and segments may be rounded to the granularity */
            assert_true(value == good[i] || (value > good[i] && value - good[i] < 2 * VRPT_MIB));
        }
        if (bounds.low > 0)
            VRPT_STATUS(vrp_pool_knob_set(t.pool, knob, bounds.low - 1), VRP_INVALID_ARGUMENT);
        if (bounds.high < UINT64_MAX) {
            VRPT_STATUS(vrp_pool_knob_set(t.pool, knob, bounds.high + 1), VRP_INVALID_ARGUMENT);
            assert_non_null(strstr(vrpt_detail(), vrp_knob_name(knob)));
        }
        VRPT_OK(vrp_pool_knob_get(t.pool, knob, &value));
        assert_int_equal(value, first);
    }
    uint64_t value = 77;
    VRPT_STATUS(vrp_pool_knob_get(t.pool, -1, &value), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_pool_knob_get(t.pool, VRP_KNOB_COUNT, &value), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_pool_knob_get(t.pool, 0, NULL), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_pool_knob_set(t.pool, -1, 1), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_pool_knob_set(t.pool, VRP_KNOB_COUNT, 1), VRP_INVALID_ARGUMENT);
    assert_int_equal(value, 77);
    close_pool(&t);
}

static void configuration_sets_the_knobs(void **state) {
    const vrpt_options options = {.pool = {.flags = VRP_NO_DEVICE_WAITS,
                                           .gap_rule = VRP_GAP_RULE_LIMIT,
                                           .gap_limit_bytes = 123 * VRPT_MIB,
                                           .limit_bytes = 512 * VRPT_MIB}};
    static const struct {
        int32_t knob;
        uint64_t value;
    } expected[] = {{VRP_KNOB_GAP_RULE, VRP_GAP_RULE_LIMIT},
                    {VRP_KNOB_GAP_LIMIT_BYTES, 123 * VRPT_MIB},
                    {VRP_KNOB_LIMIT_BYTES, 512 * VRPT_MIB},
                    {VRP_KNOB_DEVICE_WAITS, 0}};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    for (size_t i = 0; i < VRPT_COUNT(expected); i++) {
        uint64_t value = 0;
        VRPT_OK(vrp_pool_knob_get(t.pool, expected[i].knob, &value));
        assert_int_equal(value, expected[i].value);
    }
    close_pool(&t);
    open_pool(&t, NULL);
    uint64_t rule = 0;
    VRPT_OK(vrp_pool_knob_get(t.pool, VRP_KNOB_GAP_RULE, &rule));
    assert_int_equal(rule,
                     t.backing == VRP_BACKING_VMM ? VRP_GAP_RULE_HIGH_WATER : VRP_GAP_RULE_OFF);
    close_pool(&t);
}

static void limit_holds_to_the_byte_and_can_be_moved(void **state) {
    vrpt t;
    vrp_devptr ptr = 0;
    (void)state;
    open_pool(&t, NULL);
    VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_LIMIT_BYTES, 256 * VRPT_MIB));
    vrp_devptr half = take(&t, 128 * VRPT_MIB);
    vrp_devptr rest = take(&t, 128 * VRPT_MIB);
    const vrp_stats before = vrpt_stats(&t);
    VRPT_STATUS(vrp_alloc(t.pool, 512, VRP_STREAM_LEGACY, &ptr), VRP_LIMIT_REACHED);
    assert_unchanged(&t, &before);
    assert_int_equal(vrpt_stats(&t).failures, before.failures + 1);
    give(&t, rest);
    (void)take(&t, 512); /* the idle half gives way */
    assert_true(reserved(&t) <= 256 * VRPT_MIB);
    /* a limit below what is held: live memory stays, and nothing more is had */
    VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_LIMIT_BYTES, 64 * VRPT_MIB));
    VRPT_STATUS(vrp_alloc(t.pool, 200 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr), VRP_LIMIT_REACHED);
    assert_true(vrpt_usable(&t, half) == 128 * VRPT_MIB);
    VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_LIMIT_BYTES, 0));
    give(&t, take(&t, 512 * VRPT_MIB));
    close_pool(&t);
}

static void smaller_cache_holds_from_the_next_free_on(void **state) {
    vrpt t;
    vrp_devptr ptrs[64];
    (void)state;
    open_pool(&t, NULL);
    for (size_t i = 0; i < VRPT_COUNT(ptrs); i++)
        ptrs[i] = take(&t, 16 * VRPT_KIB);
    for (size_t i = 0; i < VRPT_COUNT(ptrs); i++)
        give(&t, ptrs[i]);
    assert_true(vrpt_stats(&t).cached_bytes <= 4 * VRPT_MIB);
    VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_CACHE_BYTES, 0));
    for (size_t i = 0; i < VRPT_COUNT(ptrs); i++)
        ptrs[i] = take(&t, 16 * VRPT_KIB);
    for (size_t i = 0; i < VRPT_COUNT(ptrs); i++)
        give(&t, ptrs[i]);
    assert_int_equal(vrpt_stats(&t).cached_bytes, 0);
    close_pool(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_values_and_bounds_are_frozen),
        cmocka_unit_test(every_knob_can_be_enumerated),
        cmocka_unit_test(bounds_are_themselves_allowed_and_nothing_beyond),
        cmocka_unit_test(configuration_sets_the_knobs),
        cmocka_unit_test(limit_holds_to_the_byte_and_can_be_moved),
        cmocka_unit_test(smaller_cache_holds_from_the_next_free_on),
    };
    return vrpt_main("knobs", tests, VRPT_COUNT(tests), argc, argv);
}
