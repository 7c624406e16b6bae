/* SPDX-License-Identifier: MIT */
/* The optimizer's options: idle, keep, hysteresis, pressure, and the reason
 * that each gives for acting or not. */

#include "optimizer_support.h"

/* ---- idle ---------------------------------------------------------------------------- */

static void idle_call_without_the_option_does_nothing(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    vrp_optimizer *optimizer = make(&t, &(vrp_optimizer_config){.interval = 1});
    give(&t, take(&t, 64 * VRPT_MIB));
    const vrp_optimizer_report report = idle(optimizer);
    assert_int_equal(report.reason, VRP_REASON_NOT_DUE);
    assert_int_equal(report.looked, 0);
    assert_int_equal(report.acted, 0);
    assert_int_equal(gap(&t), 64 * VRPT_MIB);
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

static void idle_call_trims_whatever_the_threshold(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    vrp_optimizer *optimizer =
        make(&t, &(vrp_optimizer_config){
                     .options = VRP_OPTIMIZER_IDLE, .interval = 5, .threshold_bytes = VRPT_GIB});
    assert_int_equal(idle(optimizer).reason, VRP_REASON_NOTHING_IDLE);
    (void)take(&t, 512);
    const uint64_t pinned = gap(&t);
    give(&t, take(&t, 64 * VRPT_MIB));
    vrp_optimizer_report report = idle(optimizer);
    assert_int_equal(report.reason, VRP_REASON_IDLE);
    assert_int_equal(report.acted, 1);
    assert_int_equal(report.released_bytes, 64 * VRPT_MIB);
    assert_int_equal(report.gap_bytes, pinned + 64 * VRPT_MIB);
    assert_int_equal(report.gap_after_bytes, pinned);
    assert_int_equal(report.step, 0); /* no step was counted */
    report = idle(optimizer);
    assert_int_equal(report.reason, VRP_REASON_NOTHING_IDLE);
    assert_int_equal(report.acted, 0);
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

static void idle_call_reports_what_the_device_still_uses(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_MANUAL,
                                  .pool.gap_rule = VRP_GAP_RULE_OFF,
                                  .pool.flags = VRP_NO_RECLAIMER};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    vrp_optimizer *optimizer =
        make(&t, &(vrp_optimizer_config){.options = VRP_OPTIMIZER_IDLE, .interval = 1});
    vrp_devptr ptr = take(&t, 64 * VRPT_MIB);
    VRPT_OK(vrp_sim_launch(t.sim, VRP_STREAM_LEGACY, ptr, 64 * VRPT_MIB, 0));
    give(&t, ptr);
    const vrp_optimizer_report report = idle(optimizer);
    assert_int_equal(report.reason, VRP_REASON_IDLE);
    assert_int_equal(report.released_bytes, 0);
    assert_int_equal(report.pending_bytes, 64 * VRPT_MIB);
    assert_int_equal(vrpt_stats(&t).host_waits, 0);
    vrp_sim_drain(t.sim);
    VRPT_OK(vrp_pool_poll(t.pool));
    (void)idle(optimizer);
    assert_int_equal(reserved(&t), 0);
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

/* ---- keep ----------------------------------------------------------------------------- */

static void turn(vrpt *t, uint64_t bytes) { give(t, take(t, bytes)); }

static const vrp_optimizer_config keeping = {
    .options = VRP_OPTIMIZER_KEEP, .interval = 1, .threshold_bytes = 0};

static void keep_leaves_what_the_turns_need(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    (void)take(&t, 64 * VRPT_MIB);
    vrp_optimizer *optimizer = make(&t, &keeping);
    turn(&t, 192 * VRPT_MIB);
    vrp_optimizer_report report = step(optimizer); /* a turn that grew: kept whole */
    assert_int_equal(report.reason, VRP_REASON_KEPT);
    assert_int_equal(report.acted, 0);
    assert_int_equal(report.keep_bytes, 256 * VRPT_MIB);
    const uint64_t calls = vrpt_driver_calls(&t);
    for (int i = 0; i < 3; i++) {
        turn(&t, 192 * VRPT_MIB);
        assert_int_equal(step(optimizer).reason, VRP_REASON_KEPT);
    }
    assert_int_equal(vrpt_driver_calls(&t), calls); /* the turns paid for nothing */
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

/* After four turns that did not grow, half of the rest is tried without; a
 * turn that then has to grow sets it back, and the next trial waits longer. */
static void keep_probes_seldom_where_the_need_is_steady(void **state) {
    vrpt t;
    int probes = 0;
    (void)state;
    open_pool(&t, &hoarding);
    (void)take(&t, 64 * VRPT_MIB);
    vrp_optimizer *optimizer = make(&t, &keeping);
    for (int i = 1; i <= 100; i++) {
        turn(&t, 192 * VRPT_MIB);
        const vrp_optimizer_report report = step(optimizer);
        if (!report.acted) {
            assert_int_equal(report.reason, VRP_REASON_KEPT);
            continue;
        }
        probes++;
        assert_true(i > 4);
        assert_int_equal(report.reason, VRP_REASON_ABOVE_THRESHOLD);
        assert_int_equal(report.keep_bytes, 160 * VRPT_MIB);
        assert_true(reserved(&t) <= 160 * VRPT_MIB);
    }
    assert_true(probes >= 2 && probes <= 6);
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

static void keep_forgets_one_long_request(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    (void)take(&t, 64 * VRPT_MIB);
    vrp_optimizer *optimizer = make(&t, &keeping);
    for (int i = 0; i < 10; i++) {
        turn(&t, 128 * VRPT_MIB);
        (void)step(optimizer);
    }
    turn(&t, 800 * VRPT_MIB);
    (void)step(optimizer);
    int looks = 0;
    while (reserved(&t) > 256 * VRPT_MIB && looks < 100) {
        turn(&t, 128 * VRPT_MIB);
        (void)step(optimizer);
        looks++;
    }
    assert_true(looks >= 2 && looks <= 20);
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

static void keep_holds_for_idle_calls_too(void **state) {
    vrpt t;
    vrp_optimizer_config config = keeping;
    (void)state;
    open_pool(&t, &hoarding);
    config.options |= VRP_OPTIMIZER_IDLE;
    (void)take(&t, 64 * VRPT_MIB);
    vrp_optimizer *optimizer = make(&t, &config);
    turn(&t, 192 * VRPT_MIB);
    /* in the middle of a turn: what it has come to hold counts already */
    assert_int_equal(idle(optimizer).reason, VRP_REASON_KEPT);
    (void)step(optimizer);
    for (int i = 0; i < 20; i++)
        assert_int_equal(idle(optimizer).reason, VRP_REASON_KEPT);
    assert_int_equal(reserved(&t), 256 * VRPT_MIB);
    for (int i = 0; i < 4; i++) {
        turn(&t, 192 * VRPT_MIB);
        (void)step(optimizer);
    }
    /* a quiet turn allows one probe, however often the engine is idle */
    const uint64_t after = reserved(&t);
    assert_true(after <= 160 * VRPT_MIB);
    for (int i = 0; i < 20; i++)
        (void)idle(optimizer);
    assert_int_equal(reserved(&t), after);
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

/* ---- hysteresis -------------------------------------------------------------------------- */

enum { PINS = 128 };

/* Every second block goes: a gap that no trim can give back. */
static void pin(vrpt *t, vrp_devptr *ptrs) {
    for (int i = 0; i < PINS; i++)
        ptrs[i] = take(t, 512 * VRPT_KIB);
    for (int i = 0; i < PINS; i += 2)
        give(t, ptrs[i]);
    VRPT_OK(vrp_empty_cache(t->pool, NULL));
    assert_true(gap(t) >= 24 * VRPT_MIB);
}

static void hysteresis_does_not_act_again_on_what_is_pinned(void **state) {
    vrp_devptr ptrs[PINS];
    vrpt t;
    (void)state;
    for (uint32_t interval = 1; interval <= 3; interval++)
        for (uint32_t cooldown = 0; cooldown <= 6; cooldown += 3) {
            open_pool(&t, &hoarding);
            vrp_optimizer *optimizer =
                make(&t, &(vrp_optimizer_config){.options = VRP_OPTIMIZER_HYSTERESIS,
                                                 .interval = interval,
                                                 .threshold_bytes = 8 * VRPT_MIB,
                                                 .cooldown_steps = cooldown});
            pin(&t, ptrs);
            const uint64_t wait = cooldown != 0 ? cooldown : 4 * interval;
            uint64_t acted_at = 0;
            for (uint64_t n = 1; n <= 40; n++) {
                const vrp_optimizer_report report = step(optimizer);
                if (n % interval != 0) {
                    assert_int_equal(report.reason, VRP_REASON_NOT_DUE);
                } else if (acted_at == 0 || n - acted_at >= wait) {
                    assert_int_equal(report.reason, VRP_REASON_ABOVE_THRESHOLD);
                    acted_at = n;
                } else {
                    assert_int_equal(report.reason, VRP_REASON_NOT_REARMED);
                    assert_int_equal(report.acted, 0);
                }
            }
            vrp_optimizer_destroy(optimizer);
            close_pool(&t);
        }
}

static void hysteresis_stays_armed_where_trims_help(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    vrp_optimizer *optimizer = make(&t, &(vrp_optimizer_config){.options = VRP_OPTIMIZER_HYSTERESIS,
                                                                .interval = 1,
                                                                .threshold_bytes = 16 * VRPT_MIB,
                                                                .rearm_bytes = 4 * VRPT_MIB,
                                                                .cooldown_steps = 1000000});
    for (int i = 0; i < 5; i++) {
        turn(&t, 64 * VRPT_MIB);
        assert_int_equal(step(optimizer).reason, VRP_REASON_ABOVE_THRESHOLD);
    }
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

static void hysteresis_rearms_when_the_gap_has_fallen(void **state) {
    vrp_devptr ptrs[PINS];
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    pin(&t, ptrs);
    const uint64_t pinned = gap(&t); /* 32 MiB of holes, and the end of a segment */
    vrp_optimizer *optimizer =
        make(&t, &(vrp_optimizer_config){.options = VRP_OPTIMIZER_HYSTERESIS,
                                         .interval = 1,
                                         .threshold_bytes = pinned - 8 * VRPT_MIB,
                                         .rearm_bytes = pinned - 24 * VRPT_MIB,
                                         .cooldown_steps = 1000000});
    assert_int_equal(step(optimizer).reason, VRP_REASON_ABOVE_THRESHOLD);
    assert_int_equal(step(optimizer).reason, VRP_REASON_NOT_REARMED);
    for (int i = 0; i < PINS; i += 2) /* the holes are used again */
        ptrs[i] = take(&t, 512 * VRPT_KIB);
    assert_true(gap(&t) <= pinned - 24 * VRPT_MIB);
    assert_int_equal(step(optimizer).reason, VRP_REASON_BELOW_THRESHOLD);
    for (int i = 0; i < PINS; i += 2)
        give(&t, ptrs[i]);
    assert_int_equal(step(optimizer).reason, VRP_REASON_ABOVE_THRESHOLD);
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

/* ---- pressure ------------------------------------------------------------------------------ */

static void pressure_lowers_the_threshold_in_proportion(void **state) {
    const uint64_t threshold = 512 * VRPT_MIB, wanted = 256 * VRPT_MIB;
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    vrp_optimizer *optimizer = make(&t, &(vrp_optimizer_config){.options = VRP_OPTIMIZER_PRESSURE,
                                                                .interval = 1,
                                                                .threshold_bytes = threshold,
                                                                .pressure_free_bytes = wanted});
    turn(&t, 128 * VRPT_MIB);
    for (uint64_t free_mib = 512; free_mib > 64; free_mib -= 32) {
        VRPT_OK(vrp_sim_other_bytes_set(t.sim, 0, (1024 - 128 - free_mib) * VRPT_MIB));
        const vrp_optimizer_report report = step(optimizer);
        const uint64_t free_bytes = free_mib * VRPT_MIB;
        assert_int_equal(report.device_free_bytes, free_bytes);
        assert_int_equal(report.threshold_bytes,
                         free_bytes >= wanted ? threshold : threshold / wanted * free_bytes);
        assert_int_equal(report.reason, VRP_REASON_BELOW_THRESHOLD);
    }
    VRPT_OK(vrp_sim_other_bytes_set(t.sim, 0, (1024 - 128 - 63) * VRPT_MIB));
    const vrp_optimizer_report report = step(optimizer);
    assert_int_equal(report.reason, VRP_REASON_PRESSURE);
    assert_int_equal(report.acted, 1);
    assert_int_equal(report.threshold_bytes, 126 * VRPT_MIB);
    assert_int_equal(report.released_bytes, 128 * VRPT_MIB);
    VRPT_OK(vrp_sim_other_bytes_set(t.sim, 0, 0));
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

static void pressure_wants_a_sixteenth_of_the_device_by_default(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    vrp_optimizer *optimizer = make(&t, &(vrp_optimizer_config){.options = VRP_OPTIMIZER_PRESSURE,
                                                                .interval = 1,
                                                                .threshold_bytes = VRPT_GIB});
    turn(&t, 512 * VRPT_MIB);
    VRPT_OK(vrp_sim_other_bytes_set(t.sim, 0, 448 * VRPT_MIB)); /* 64 MiB are free */
    assert_int_equal(step(optimizer).threshold_bytes, VRPT_GIB);
    VRPT_OK(vrp_sim_other_bytes_set(t.sim, 0, 480 * VRPT_MIB)); /* 32 MiB */
    const vrp_optimizer_report at_limit = step(optimizer);
    assert_int_equal(at_limit.threshold_bytes, 512 * VRPT_MIB);
    assert_int_equal(at_limit.acted, 0);
    VRPT_OK(vrp_sim_other_bytes_set(t.sim, 0, 512 * VRPT_MIB)); /* nothing */
    const vrp_optimizer_report report = step(optimizer);
    assert_int_equal(report.threshold_bytes, 0);
    assert_int_equal(report.reason, VRP_REASON_PRESSURE);
    VRPT_OK(vrp_sim_other_bytes_set(t.sim, 0, 0));
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

static void pressure_overrides_keep_and_reaches_idle_calls(void **state) {
    vrpt t;
    vrp_optimizer_config config = keeping;
    (void)state;
    for (int by_idle = 0; by_idle < 2; by_idle++) {
        open_pool(&t, &hoarding);
        config.options = VRP_OPTIMIZER_KEEP | VRP_OPTIMIZER_PRESSURE | VRP_OPTIMIZER_IDLE;
        vrp_optimizer *optimizer = make(&t, &config);
        turn(&t, 512 * VRPT_MIB);
        assert_int_equal(step(optimizer).reason, VRP_REASON_KEPT);
        assert_int_equal(idle(optimizer).reason, VRP_REASON_KEPT);
        VRPT_OK(vrp_sim_other_bytes_set(t.sim, 0, 500 * VRPT_MIB));
        const vrp_optimizer_report report = by_idle ? idle(optimizer) : step(optimizer);
        assert_int_equal(report.reason, VRP_REASON_PRESSURE);
        assert_int_equal(report.keep_bytes, 0);
        assert_int_equal(reserved(&t), 0);
        VRPT_OK(vrp_sim_other_bytes_set(t.sim, 0, 0));
        vrp_optimizer_destroy(optimizer);
        close_pool(&t);
    }
}

static void thresholds_of_any_size_do_not_overflow(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, &hoarding);
    vrp_optimizer *optimizer = make(&t, &(vrp_optimizer_config){.options = 15,
                                                                .interval = UINT32_MAX,
                                                                .threshold_bytes = UINT64_MAX,
                                                                .keep_turns = UINT32_MAX,
                                                                .rearm_bytes = UINT64_MAX,
                                                                .cooldown_steps = UINT32_MAX,
                                                                .pressure_free_bytes = UINT64_MAX});
    turn(&t, 64 * VRPT_MIB);
    for (int i = 0; i < 10; i++)
        assert_int_equal(step(optimizer).acted, 0);
    assert_int_equal(idle(optimizer).reason, VRP_REASON_PRESSURE);
    vrp_optimizer_destroy(optimizer);
    optimizer = make(&t, &(vrp_optimizer_config){.options = VRP_OPTIMIZER_PRESSURE,
                                                 .interval = 1,
                                                 .threshold_bytes = UINT64_MAX,
                                                 .pressure_free_bytes = 2 * VRPT_GIB});
    assert_int_equal(step(optimizer).threshold_bytes, UINT64_MAX / 2);
    vrp_optimizer_destroy(optimizer);
    close_pool(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_call_without_the_option_does_nothing),
        cmocka_unit_test(idle_call_trims_whatever_the_threshold),
        cmocka_unit_test(idle_call_reports_what_the_device_still_uses),
        cmocka_unit_test(keep_leaves_what_the_turns_need),
        cmocka_unit_test(keep_probes_seldom_where_the_need_is_steady),
        cmocka_unit_test(keep_forgets_one_long_request),
        cmocka_unit_test(keep_holds_for_idle_calls_too),
        cmocka_unit_test(hysteresis_does_not_act_again_on_what_is_pinned),
        cmocka_unit_test(hysteresis_stays_armed_where_trims_help),
        cmocka_unit_test(hysteresis_rearms_when_the_gap_has_fallen),
        cmocka_unit_test(pressure_lowers_the_threshold_in_proportion),
        cmocka_unit_test(pressure_wants_a_sixteenth_of_the_device_by_default),
        cmocka_unit_test(pressure_overrides_keep_and_reaches_idle_calls),
        cmocka_unit_test(thresholds_of_any_size_do_not_overflow),
    };
    return vrpt_main("optimizer options", tests, VRPT_COUNT(tests), argc, argv);
}
