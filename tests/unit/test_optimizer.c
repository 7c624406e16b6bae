/* SPDX-License-Identifier: MIT */
/* The optimizer's classic rule, its arguments and results, and calls that
 * fail. The options are in test_optimizer_options.c. */

#include "optimizer_support.h"

#include <string.h>

/* ---- the rule ---------------------------------------------------------------------- */

static void defaults_are_the_classic_ones(void **state) {
    vrp_optimizer_config config;
    (void)state;
    memset(&config, 0xff, sizeof config);
    vrp_optimizer_config_init(&config);
    assert_int_equal(config.struct_size, sizeof config);
    assert_int_equal(config.threshold_bytes, UINT64_C(3) << 29); /* 1.5 GiB */
    assert_int_equal(config.interval, 5);
    assert_int_equal(config.options, 0);
    vrp_optimizer_config_init(NULL);

    /* a NULL config means the same */
    const vrpt_options options = {.device_bytes = 8 * VRPT_GIB, .pool.gap_rule = VRP_GAP_RULE_OFF};
    vrpt t;
    vrp_optimizer *optimizer = NULL;
    open_pool(&t, &options);
    VRPT_OK(vrp_optimizer_create(t.pool, NULL, &optimizer));
    give(&t, take(&t, 1536 * VRPT_MIB));
    for (int i = 1; i <= 5; i++)
        assert_int_equal(step(optimizer).acted, 0); /* 1.5 GiB is not above 1.5 GiB */
    give(&t, take(&t, 1538 * VRPT_MIB));
    assert_true(gap(&t) > 1536 * VRPT_MIB);
    for (int i = 6; i <= 10; i++)
        assert_int_equal(step(optimizer).acted, i == 10);
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

static void only_multiples_of_the_interval_look(void **state) {
    static const uint32_t intervals[] = {1, 2, 3, 5, 7, 100};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(intervals); i++) {
        vrpt t;
        open_pool(&t, &hoarding);
        vrp_optimizer *optimizer = make_classic(&t, VRPT_MIB, intervals[i], 0);
        for (uint64_t n = 1; n <= 3 * (uint64_t)intervals[i]; n++) {
            give(&t, take(&t, 64 * VRPT_MIB));
            const uint64_t before = gap(&t);
            const vrp_optimizer_report report = step(optimizer);
            const int due = n % intervals[i] == 0;
            assert_int_equal(report.step, n);
            assert_int_equal(report.looked, due);
            assert_int_equal(report.acted, due);
            assert_int_equal(report.reason, due ? VRP_REASON_ABOVE_THRESHOLD : VRP_REASON_NOT_DUE);
            assert_int_equal(report.gap_bytes, due ? before : 0);
            assert_int_equal(report.threshold_bytes, due ? VRPT_MIB : 0);
            assert_int_equal(report.released_bytes, due ? before : 0);
            assert_int_equal(report.gap_after_bytes, 0);
            assert_int_equal(report.keep_bytes, 0);
            assert_int_equal(report.device_free_bytes, 0);
            assert_int_equal(gap(&t), due ? 0 : before);
            assert_true(!due || report.cost_ns > 0);
        }
        const vrp_optimizer_stats stats = stats_of(optimizer);
        assert_int_equal(stats.steps, 3 * (uint64_t)intervals[i]);
        assert_int_equal(stats.looks, 3);
        assert_int_equal(stats.acts, 3);
        assert_true(stats.released_bytes >= 3 * 64 * VRPT_MIB);
        assert_int_equal(stats.largest_gap_after_look_bytes, 0);
        vrp_optimizer_destroy(optimizer);
        close_pool(&t);
    }
}

static void threshold_itself_is_not_above_the_threshold(void **state) {
    (void)state;
    for (uint64_t mib = 32; mib <= 512; mib *= 2) {
        vrpt t;
        open_pool(&t, &hoarding);
        (void)take(&t, VRPT_MIB);
        give(&t, take(&t, mib * VRPT_MIB));
        const uint64_t exactly = gap(&t);
        vrp_optimizer *at = make_classic(&t, exactly, 1, 0);
        vrp_optimizer *above = make_classic(&t, exactly + 1, 1, 0);
        vrp_optimizer *below = make_classic(&t, exactly - 1, 1, 0);
        assert_int_equal(step(above).reason, VRP_REASON_BELOW_THRESHOLD);
        assert_int_equal(step(at).reason, VRP_REASON_BELOW_THRESHOLD);
        assert_int_equal(stats_of(at).largest_gap_after_look_bytes, exactly);
        assert_int_equal(gap(&t), exactly);
        assert_int_equal(step(below).reason, VRP_REASON_ABOVE_THRESHOLD);
        assert_true(gap(&t) < exactly);
        vrp_optimizer_destroy(at);
        vrp_optimizer_destroy(above);
        vrp_optimizer_destroy(below);
        close_pool(&t);
    }
}

static void threshold_zero_acts_on_any_gap_and_on_no_other(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    vrp_optimizer *optimizer = make_classic(&t, 0, 1, 0);
    assert_int_equal(step(optimizer).reason, VRP_REASON_BELOW_THRESHOLD);
    (void)take(&t, 64 * VRPT_MIB);
    assert_int_equal(gap(&t), 0);
    assert_int_equal(step(optimizer).reason, VRP_REASON_BELOW_THRESHOLD);
    (void)take(&t, 512); /* the rest of its extent is a gap that nobody can release */
    for (int i = 0; i < 3; i++) {
        const vrp_optimizer_report report = step(optimizer);
        assert_int_equal(report.reason, VRP_REASON_ABOVE_THRESHOLD);
        assert_int_equal(report.acted, 1); /* to the letter: the cache was emptied */
        assert_int_equal(report.released_bytes, 0);
        assert_int_equal(report.gap_after_bytes, report.gap_bytes);
    }
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

/* ---- arguments ------------------------------------------------------------------------ */

static void bad_configurations_are_refused(void **state) {
    vrp_optimizer *optimizer = NULL;
    vrp_optimizer_config config;
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    vrp_optimizer_config_init(&config);
    VRPT_STATUS(vrp_optimizer_create(NULL, &config, &optimizer), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_optimizer_create(t.pool, &config, NULL), VRP_INVALID_ARGUMENT);
    config.interval = 0;
    VRPT_STATUS(vrp_optimizer_create(t.pool, &config, &optimizer), VRP_INVALID_ARGUMENT);
    assert_non_null(strstr(vrpt_detail(), "interval"));
    vrp_optimizer_config_init(&config);
    for (uint32_t bit = 4; bit < 32; bit++) {
        config.options = 1u << bit;
        VRPT_STATUS(vrp_optimizer_create(t.pool, &config, &optimizer), VRP_INVALID_ARGUMENT);
    }
    vrp_optimizer_config_init(&config);
    config.reserved = 1;
    VRPT_STATUS(vrp_optimizer_create(t.pool, &config, &optimizer), VRP_INVALID_ARGUMENT);
    vrp_optimizer_config_init(&config);
    config.struct_size = 0;
    VRPT_STATUS(vrp_optimizer_create(t.pool, &config, &optimizer), VRP_INVALID_ARGUMENT);
    assert_null(optimizer);
    vrp_optimizer_destroy(NULL);
    close_pool(&t);
}

static void configurations_of_other_versions_are_understood(void **state) {
    struct longer {
        vrp_optimizer_config config;
        uint64_t from_the_future;
    } longer = {.from_the_future = 0};
    vrp_optimizer *optimizer = NULL;
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    vrp_optimizer_config_init(&longer.config);
    longer.config.struct_size = sizeof longer;
    VRPT_OK(vrp_optimizer_create(t.pool, &longer.config, &optimizer));
    vrp_optimizer_destroy(optimizer);
    optimizer = NULL;
    longer.from_the_future = 1;
    VRPT_STATUS(vrp_optimizer_create(t.pool, &longer.config, &optimizer), VRP_NOT_SUPPORTED);
    assert_null(optimizer);
    /* one that ends after the interval */
    vrp_optimizer_config_init(&longer.config);
    longer.config.struct_size = (uint32_t)offsetof(vrp_optimizer_config, keep_turns);
    memset(&longer.config.keep_turns, 0xff,
           sizeof longer.config - offsetof(vrp_optimizer_config, keep_turns));
    VRPT_OK(vrp_optimizer_create(t.pool, &longer.config, &optimizer));
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

static void results_may_be_left_out_and_may_be_short(void **state) {
    struct {
        vrp_optimizer_report report;
        unsigned char after[64];
    } given;
    vrp_optimizer_report *report = &given.report;
    int acted = 7;
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    vrp_optimizer *optimizer = make_classic(&t, 0, 1, VRP_OPTIMIZER_IDLE);
    VRPT_STATUS(vrp_optimizer_step(NULL, &acted, NULL), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_optimizer_idle(NULL, &acted, NULL), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_optimizer_stats_get(NULL, NULL), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_optimizer_stats_get(optimizer, NULL), VRP_INVALID_ARGUMENT);
    assert_int_equal(acted, 7);
    memset(&given, 0, sizeof given);
    VRPT_STATUS(vrp_optimizer_step(optimizer, &acted, report), VRP_INVALID_ARGUMENT);
    assert_int_equal(acted, 7);
    assert_int_equal(stats_of(optimizer).steps, 0); /* refused before anything was done */
    VRPT_OK(vrp_optimizer_step(optimizer, NULL, NULL));
    VRPT_OK(vrp_optimizer_idle(optimizer, NULL, NULL));
    give(&t, take(&t, 64 * VRPT_MIB));
    VRPT_OK(vrp_optimizer_step(optimizer, &acted, NULL));
    assert_int_equal(acted, 1);
    assert_int_equal(gap(&t), 0);
    for (uint32_t size = 4; size <= sizeof given; size += 4) {
        memset(&given, 0xa5, sizeof given);
        report->struct_size = size;
        VRPT_OK(vrp_optimizer_step(optimizer, NULL, report));
        const uint32_t written = size < sizeof *report ? size : (uint32_t)sizeof *report;
        assert_int_equal(report->struct_size, written);
        for (size_t i = written; i < sizeof given; i++)
            assert_int_equal(((unsigned char *)&given)[i], 0xa5);
    }
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

static void every_reason_has_a_text_of_its_own(void **state) {
    (void)state;
    assert_string_equal(vrp_optimizer_reason_text(VRP_REASON_NOT_DUE), "not due");
    assert_string_equal(vrp_optimizer_reason_text(VRP_REASON_ABOVE_THRESHOLD), "above threshold");
    for (int32_t i = VRP_REASON_NOT_DUE; i <= VRP_REASON_NOTHING_IDLE; i++)
        for (int32_t k = VRP_REASON_NOT_DUE; k < i; k++)
            assert_string_not_equal(vrp_optimizer_reason_text(i), vrp_optimizer_reason_text(k));
    assert_string_equal(vrp_optimizer_reason_text(-1), "unknown reason");
    assert_string_equal(vrp_optimizer_reason_text(VRP_REASON_NOTHING_IDLE + 1), "unknown reason");
}

/* ---- failing calls ----------------------------------------------------------------------- */

static void steps_are_counted_through_errors(void **state) {
    vrpt t;
    vrp_optimizer_report report = {.struct_size = sizeof report, .step = 99};
    int acted = 7;
    (void)state;
    open_pool(&t, &hoarding);
    vrp_optimizer *optimizer = make_classic(&t, 0, 2, VRP_OPTIMIZER_PRESSURE);
    give(&t, take(&t, 64 * VRPT_MIB));
    for (int i = 1; i <= 6; i++) {
        vrp_sim_fault_set(t.sim, VRP_SIM_CALL_MEM_INFO, 1, UINT64_MAX, VRP_INTERNAL);
        VRPT_STATUS(vrp_optimizer_step(optimizer, &acted, &report),
                    i % 2 == 0 ? VRP_INTERNAL : VRP_OK);
        assert_int_equal(stats_of(optimizer).steps, i);
        assert_int_equal(acted, i == 1 ? 0 : acted);
        assert_int_equal(report.step, i % 2 == 0 ? i - 1 : i); /* untouched by a failure */
        assert_int_equal(stats_of(optimizer).acts, 0);
        VRPT_OK(vrp_pool_check(t.pool));
    }
    vrp_sim_faults_clear(t.sim);
    assert_int_equal(step(optimizer).acted, 0);
    assert_int_equal(step(optimizer).acted, 1);
    assert_int_equal(stats_of(optimizer).steps, 8);
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

static void failing_release_is_reported_and_tried_again(void **state) {
    static const int32_t calls[] = {VRP_SIM_CALL_UNMAP, VRP_SIM_CALL_HANDLE_RELEASE,
                                    VRP_SIM_CALL_MEM_FREE};
    (void)state;
    for (size_t c = 0; c < VRPT_COUNT(calls); c++) {
        vrpt t;
        open_pool(&t, &hoarding);
        vrp_optimizer *optimizer = make_classic(&t, 0, 1, 0);
        give(&t, take(&t, 64 * VRPT_MIB));
        vrp_sim_fault_set(t.sim, calls[c], 1, UINT64_MAX, VRP_INTERNAL);
        vrp_status status = vrp_optimizer_step(optimizer, NULL, NULL);
        assert_true(status == VRP_OK || status == VRP_INTERNAL);
        assert_int_equal(stats_of(optimizer).steps, 1);
        assert_int_equal(stats_of(optimizer).acts, status == VRP_OK);
        VRPT_OK(vrp_pool_check(t.pool));
        vrp_sim_faults_clear(t.sim);
        give(&t, take(&t, 64 * VRPT_MIB));
        assert_int_equal(step(optimizer).acted, 1);
        assert_int_equal(reserved(&t), 0);
        vrp_optimizer_destroy(optimizer);
        close_pool(&t);
    }
}

static void optimizer_of_a_pool_that_is_gone_says_so(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    vrp_optimizer *optimizer = make_classic(&t, 0, 1, VRP_OPTIMIZER_IDLE);
    vrp_pool *gone = t.pool;
    VRPT_OK(vrp_pool_destroy(gone, 0));
    VRPT_STATUS(vrp_optimizer_step(optimizer, NULL, NULL), VRP_SHUT_DOWN);
    VRPT_STATUS(vrp_optimizer_idle(optimizer, NULL, NULL), VRP_SHUT_DOWN);
    assert_int_equal(stats_of(optimizer).steps, 1);
    vrp_optimizer_destroy(optimizer);
    optimizer = NULL;
    VRPT_STATUS(vrp_optimizer_create(gone, NULL, &optimizer), VRP_SHUT_DOWN);
    assert_null(optimizer);
    t.pool = NULL;
    VRPT_REQUIRE(&t, vrpt_close_device(&t));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_classic_ones),
        cmocka_unit_test(only_multiples_of_the_interval_look),
        cmocka_unit_test(threshold_itself_is_not_above_the_threshold),
        cmocka_unit_test(threshold_zero_acts_on_any_gap_and_on_no_other),
        cmocka_unit_test(bad_configurations_are_refused),
        cmocka_unit_test(configurations_of_other_versions_are_understood),
        cmocka_unit_test(results_may_be_left_out_and_may_be_short),
        cmocka_unit_test(every_reason_has_a_text_of_its_own),
        cmocka_unit_test(steps_are_counted_through_errors),
        cmocka_unit_test(failing_release_is_reported_and_tried_again),
        cmocka_unit_test(optimizer_of_a_pool_that_is_gone_says_so),
    };
    return vrpt_main("optimizer", tests, VRPT_COUNT(tests), argc, argv);
}
