/* SPDX-License-Identifier: MIT */
/* Cases of others, second tier: requests refused although there is memory, and
 * memory held that nobody can use. 53, 61 and 62 are the optimizer's: see
 * test_cases_optimizer.c. */

#include "unit_support.h"

#include <stdlib.h>

/* ---- 40: an initial segment that is in the way ------------------------------------ */

static void case_040_idle_initial_memory_gives_way_to_the_maximum(void **state) {
    (void)state;
    for (uint64_t pieces = 2; pieces <= 8; pieces *= 2) {
        vrpt t = {.backing = vrpt_now.backing};
        const uint64_t unit = piece(&t);
        const vrpt_options options = {
            .pool = {.initial_bytes = unit, .limit_bytes = unit * pieces}};
        open_pool(&t, &options);
        assert_int_equal(reserved(&t), unit);
        vrp_devptr ptr = take(&t, unit * pieces);
        assert_int_equal(reserved(&t), unit * pieces);
        give(&t, ptr);
        close_pool(&t);
    }
}

static void case_040_odd_initial_memory_does_not_cost_a_block(void **state) {
    static const uint64_t initial[] = {0, 256, 1000192, 2 * VRPT_MIB, 9 * VRPT_MIB, 32 * VRPT_MIB};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(initial); i++) {
        /* a segment is one piece: the end of one of 9 MiB is lost to such blocks */
        if (vrpt_now.backing == VRP_BACKING_MALLOC && initial[i] == 9 * VRPT_MIB)
            continue;
        vrpt t;
        vrp_devptr ptrs[8];
        const vrpt_options options = {
            .pool = {.initial_bytes = initial[i], .limit_bytes = 64 * VRPT_MIB}};
        open_pool(&t, &options);
        for (size_t k = 0; k < VRPT_COUNT(ptrs); k++)
            ptrs[k] = take(&t, 8 * VRPT_MIB);
        vrp_devptr more = 0;
        VRPT_STATUS(vrp_alloc(t.pool, 8 * VRPT_MIB, VRP_STREAM_LEGACY, &more), VRP_LIMIT_REACHED);
        assert_true(reserved(&t) <= 64 * VRPT_MIB);
        for (size_t k = 0; k < VRPT_COUNT(ptrs); k++)
            give(&t, ptrs[k]);
        close_pool(&t);
    }
}

/* ---- 41: what is idle is given up before a request fails ---------------------------- */

static void case_041_idle_memory_is_given_up_at_the_first_call(void **state) {
    const vrpt_options options = {.device_bytes = 10 * VRPT_GIB};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    vrp_devptr first = take(&t, 3 * VRPT_GIB);
    vrp_devptr second = take(&t, 3 * VRPT_GIB);
    give(&t, second);
    give(&t, take(&t, 6 * VRPT_GIB));
    give(&t, first);
    close_pool(&t);
}

/* Idle memory of any size class, tag and stream serves any other. */
static void case_041_idle_memory_of_any_kind_serves_any_other(void **state) {
    static const uint64_t sizes[] = {16 * VRPT_KIB, VRPT_MIB, 8 * VRPT_MIB, 64 * VRPT_MIB,
                                     768 * VRPT_MIB};
    static const int32_t tags[] = {VRP_TAG_OTHER, VRP_TAG_WEIGHTS};
    vrp_devptr *ptrs = calloc(65536, sizeof *ptrs);
    (void)state;
    assert_non_null(ptrs);
    for (size_t s = 0; s < VRPT_COUNT(sizes); s++)
        for (size_t k = 0; k < VRPT_COUNT(tags); k++) {
            vrpt t;
            open_pool(&t, NULL);
            vrp_stream side = vrpt_stream_create(&t);
            const uint64_t count = 768 * VRPT_MIB / sizes[s];
            for (uint64_t i = 0; i < count; i++)
                VRPT_OK(ask(&t, sizes[s], 0, tags[k], 0, &ptrs[i]));
            for (uint64_t i = 0; i < count; i++)
                give(&t, ptrs[i]);
            vrp_sim_drain(t.sim);
            VRPT_OK(vrp_free(t.pool, take_on(&t, 960 * VRPT_MIB, side), side));
            VRPT_OK(vrp_stream_forget(t.pool, side));
            vrpt_stream_destroy(&t, side);
            close_pool(&t);
        }
    free(ptrs);
}

static void case_041_most_of_the_device_twice_in_two_sizes(void **state) {
    const vrpt_options options = {.device_bytes = 80 * VRPT_GIB};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    give(&t, take(&t, 60 * VRPT_GIB));
    give(&t, take(&t, 70 * VRPT_GIB));
    give(&t, take(&t, 60 * VRPT_GIB));
    close_pool(&t);
}

/* ---- 43, 44: growth ------------------------------------------------------------------- */

static void case_043_growth_falls_back_to_what_is_needed(void **state) {
    const vrpt_options options = {.device_bytes = 32510 * VRPT_MIB,
                                  .pool.initial_bytes = 16255 * VRPT_MIB};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    vrp_devptr first = take(&t, 8 * VRPT_GIB);
    vrp_devptr second = take(&t, 8 * VRPT_GIB);
    give(&t, first);
    give(&t, second);
    close_pool(&t);
}

static void case_044_growth_does_not_double_the_footprint(void **state) {
    const vrpt_options options = {.device_bytes = 32 * VRPT_GIB};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    (void)take(&t, 2560 * VRPT_MIB);
    for (int i = 0; i < 40; i++) {
        (void)take(&t, 400 * VRPT_MIB);
        assert_true(reserved(&t) <= allocated(&t) / 10 * 11);
    }
    close_pool(&t);
}

/* ---- 46: a splinter in a huge segment --------------------------------------------------- */

static void splinters(uint64_t split_limit, int must_succeed) {
    const vrpt_options options = {.device_bytes = 16 * VRPT_GIB};
    vrpt t;
    vrp_devptr ptrs[200];
    open_pool(&t, &options);
    VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_SPLIT_LIMIT_BYTES, split_limit));
    give(&t, take(&t, 11 * VRPT_GIB));
    for (size_t i = 0; i < VRPT_COUNT(ptrs); i++)
        ptrs[i] = take(&t, 18 * VRPT_MIB);
    for (size_t i = 0; i < VRPT_COUNT(ptrs); i += 2)
        give(&t, ptrs[i]);
    vrp_devptr big = 0;
    vrp_status status = vrp_alloc(t.pool, 11 * VRPT_GIB, VRP_STREAM_LEGACY, &big);
    if (must_succeed)
        VRPT_OK(status);
    if (status != VRP_OK) {
        vrp_oom_report report = {.struct_size = sizeof report};
        assert_int_equal(status, VRP_OUT_OF_DEVICE_MEMORY);
        VRPT_OK(vrp_oom_report_get(t.pool, &report));
        assert_true(report.requested_bytes >= 11 * VRPT_GIB);
        assert_int_equal(report.allocated_bytes, allocated(&t));
        assert_int_equal(report.reserved_bytes, reserved(&t));
        assert_true(report.largest_free_bytes > 0);
        assert_true(report.largest_free_bytes < 11 * VRPT_GIB);
        assert_true(report.pinning_blocks > 0 && report.pinning_blocks <= 100);
        assert_int_equal(report.device_total_bytes, 16 * VRPT_GIB);
    }
    close_pool(&t);
}

static void case_046_huge_segment_is_not_split_for_small_blocks(void **state) {
    (void)state;
    splinters(VRPT_GIB, 1);
    splinters(64 * VRPT_MIB, 1);
    splinters(0, vrpt_now.backing == VRP_BACKING_VMM);
}

/* ---- 47: sizes that never come twice ------------------------------------------------------ */

static void case_047_slowly_growing_size_does_not_strand_memory(void **state) {
    /* with the malloc backing the gap rule is off unless it is asked for:
     * giving a segment back waits for the device */
    const vrpt_options options = {.device_bytes = 4 * VRPT_GIB,
                                  .pool.gap_rule = VRP_GAP_RULE_HIGH_WATER};
    (void)state;
    for (uint64_t step = 1; step <= 5; step += 2) {
        vrpt t;
        open_pool(&t, &options);
        for (uint64_t k = 0; k < 20; k++)
            give(&t, take(&t, (50 + step * k) * VRPT_MIB));
        assert_true(vrpt_stats(&t).reserved_bytes.peak <= 2 * (50 + step * 19) * VRPT_MIB);
        close_pool(&t);
    }
}

static void case_047_no_table_of_sizes_overflows(void **state) {
    enum { SIZES = 2000 };
    static vrp_devptr ptrs[SIZES];
    const vrpt_options options = {.device_bytes = 32 * VRPT_GIB};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < SIZES; i++)
            ptrs[i] = take(&t, 512 * (i * 7 + 1));
        for (uint64_t i = 0; i < SIZES; i++)
            give(&t, ptrs[i]);
    }
    close_pool(&t);
}

/* ---- 49: free memory of several streams ----------------------------------------------------- */

static void case_049_memory_of_all_streams_is_one_when_work_is_done(void **state) {
    (void)state;
    for (uint64_t streams = 2; streams <= 8; streams *= 2) {
        vrpt t;
        vrp_stream on[9];
        vrp_devptr ptrs[8];
        const uint64_t whole = streams == 2 ? 64 * VRPT_MIB : 256 * VRPT_MIB;
        const vrpt_options options = {.completion = VRP_SIM_MANUAL, .pool.limit_bytes = whole};
        open_pool(&t, &options);
        for (uint64_t i = 0; i <= streams; i++)
            on[i] = vrpt_stream_create(&t);
        for (uint64_t i = 0; i < streams; i++) {
            ptrs[i] = take_on(&t, whole / streams, on[i]);
            VRPT_OK(vrp_sim_launch(t.sim, on[i], ptrs[i], whole / streams, 0));
        }
        for (uint64_t i = 0; i < streams; i++)
            VRPT_OK(vrp_free(t.pool, ptrs[i], on[i]));
        vrp_sim_drain(t.sim);
        for (uint64_t i = 0; i <= streams; i++) {
            vrp_devptr ptr = take_on(&t, whole, on[i]);
            VRPT_OK(vrp_sim_launch(t.sim, on[i], ptr, whole, 0));
            VRPT_OK(vrp_free(t.pool, ptr, on[i]));
            vrp_sim_drain(t.sim);
        }
        for (uint64_t i = 0; i <= streams; i++) {
            VRPT_OK(vrp_stream_forget(t.pool, on[i]));
            vrpt_stream_destroy(&t, on[i]);
        }
        close_pool(&t);
    }
}

/* ---- 50: no driver free for a part of a segment ---------------------------------------------- */

static void case_050_freed_blocks_go_back_to_the_pool_not_to_the_driver(void **state) {
    const vrpt_options options = {.device_bytes = 5 * VRPT_GIB};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    (void)take(&t, 2 * VRPT_GIB);
    for (int i = 0; i < 5; i++)
        give(&t, take(&t, 2 * VRPT_GIB));
    (void)take(&t, 2 * VRPT_GIB);
    assert_int_equal(vrp_sim_call_count(t.sim, VRP_SIM_CALL_MEM_FREE), 0);
    assert_int_equal(vrp_sim_call_count(t.sim, VRP_SIM_CALL_UNMAP), 0);
    assert_int_equal(vrp_sim_call_count(t.sim, VRP_SIM_CALL_HANDLE_RELEASE), 0);
    close_pool(&t);
}

/* ---- 52: a steady loop costs no driver call -----------------------------------------------------
 */

static void case_052_steady_loop_makes_no_driver_call(void **state) {
    static const uint64_t sizes[] = {
        1, 8, 1032, 4095, 33000, VRPT_MIB + 8, 5 * VRPT_MIB + 8, 40 * VRPT_MIB + 1};
    static const uint64_t alignments[] = {1, 16, 512, 4096};
    (void)state;
    for (size_t s = 0; s < VRPT_COUNT(sizes); s++)
        for (size_t k = 0; k < VRPT_COUNT(alignments); k++) {
            vrpt t;
            uint64_t calls = 0;
            open_pool(&t, NULL);
            for (int round = 0; round < 6; round++) {
                vrp_devptr a = 0, b = 0;
                if (round == 1)
                    calls = vrpt_driver_calls(&t);
                VRPT_OK(ask(&t, sizes[s], alignments[k], VRP_TAG_OTHER, 0, &a));
                VRPT_OK(ask(&t, sizes[s], alignments[k], VRP_TAG_OTHER, 0, &b));
                give(&t, a);
                give(&t, b);
            }
            assert_int_equal(vrpt_driver_calls(&t), calls);
            close_pool(&t);
        }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_040_idle_initial_memory_gives_way_to_the_maximum),
        cmocka_unit_test(case_040_odd_initial_memory_does_not_cost_a_block),
        cmocka_unit_test(case_041_idle_memory_is_given_up_at_the_first_call),
        cmocka_unit_test(case_041_idle_memory_of_any_kind_serves_any_other),
        cmocka_unit_test(case_041_most_of_the_device_twice_in_two_sizes),
        cmocka_unit_test(case_043_growth_falls_back_to_what_is_needed),
        cmocka_unit_test(case_044_growth_does_not_double_the_footprint),
        cmocka_unit_test(case_046_huge_segment_is_not_split_for_small_blocks),
        cmocka_unit_test(case_047_slowly_growing_size_does_not_strand_memory),
        cmocka_unit_test(case_047_no_table_of_sizes_overflows),
        cmocka_unit_test(case_049_memory_of_all_streams_is_one_when_work_is_done),
        cmocka_unit_test(case_050_freed_blocks_go_back_to_the_pool_not_to_the_driver),
        cmocka_unit_test(case_052_steady_loop_makes_no_driver_call),
    };
    return vrpt_main("cases tier 2", tests, VRPT_COUNT(tests), argc, argv);
}
