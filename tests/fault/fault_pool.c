/* SPDX-License-Identifier: MIT */
/* The fault sweep: the n-th driver call of every kind and the n-th host
 * allocation fail, once and for ever, in a script that exercises everything.
 * Each time: the status is a documented one, the pool checks clean, counters
 * are as before, the next call works, and nothing is left at the end. */

#include "fault_script.h"

#include <inttypes.h>

static script run;

static void one(const script_plan *plan, const char *what) {
    if (!script_run(&run, plan))
        fail_msg("%s fails at call %" PRIu64 "%s with %s, %s backing: %s", what,
                 plan->nth + plan->host_nth,
                 plan->count == UINT64_MAX || plan->host_for_ever ? " for ever" : "",
                 vrp_status_name(plan->status), plan->backing == VRP_BACKING_VMM ? "vmm" : "malloc",
                 run.t.why);
}

/* How often the script makes each call when nothing fails. */
static void count_calls(uint64_t counts[VRP_SIM_CALL_COUNT], uint64_t *out_host) {
    script_plan plan = {.backing = vrpt_now.backing};
    one(&plan, "nothing");
    *out_host = run.host_calls;
    for (int32_t call = 0; call < VRP_SIM_CALL_COUNT; call++)
        counts[call] = run.calls[call];
}

static void script_passes_without_faults(void **state) {
    (void)state;
    script_plan plan = {.backing = vrpt_now.backing};
    one(&plan, "nothing");
    assert_int_equal(run.refused, 1); /* the request above the device */
}

static void sweep(uint64_t count, vrp_status status) {
    uint64_t counts[VRP_SIM_CALL_COUNT], host;
    count_calls(counts, &host);
    for (int32_t call = 0; call < VRP_SIM_CALL_COUNT; call++)
        for (uint64_t nth = 1; nth <= counts[call]; nth++) {
            script_plan plan = {.backing = vrpt_now.backing,
                                .call = call,
                                .nth = nth,
                                .count = count,
                                .status = status};
            one(&plan, vrp_sim_call_name(call));
        }
}

static void driver_call_fails_once(void **state) {
    (void)state;
    sweep(1, VRP_INTERNAL);
}

static void driver_call_is_out_of_memory_once(void **state) {
    (void)state;
    sweep(1, VRP_OUT_OF_DEVICE_MEMORY);
}

static void driver_call_fails_for_ever(void **state) {
    (void)state;
    sweep(UINT64_MAX, VRP_INTERNAL);
}

static void driver_call_is_out_of_memory_for_ever(void **state) {
    (void)state;
    sweep(UINT64_MAX, VRP_OUT_OF_DEVICE_MEMORY);
}

/* From one call on the driver does nothing at all any more. */
static void whole_driver_fails_for_ever(void **state) {
    (void)state;
    uint64_t counts[VRP_SIM_CALL_COUNT], host, all = 0;
    count_calls(counts, &host);
    for (int32_t call = 0; call < VRP_SIM_CALL_COUNT; call++)
        all += counts[call];
    for (uint64_t nth = 1; nth <= all; nth++) {
        script_plan plan = {.backing = vrpt_now.backing,
                            .call = -1,
                            .nth = nth,
                            .count = UINT64_MAX,
                            .status = VRP_INTERNAL};
        one(&plan, "the driver");
    }
}

static void host_sweep(int for_ever) {
    uint64_t counts[VRP_SIM_CALL_COUNT], host;
    count_calls(counts, &host);
    assert_true(host > 0); /* bookkeeping goes through the hooks */
    for (uint64_t nth = 1; nth <= host; nth++) {
        script_plan plan = {
            .backing = vrpt_now.backing, .host_nth = nth, .host_for_ever = for_ever};
        one(&plan, "host memory");
    }
}

static void host_allocation_fails_once(void **state) {
    (void)state;
    host_sweep(0);
}

static void host_allocation_fails_for_ever(void **state) {
    (void)state;
    host_sweep(1);
}

/* ---- A device that is lost -------------------------------------------------------- */

static void lose(int32_t call) {
    vrpt t;
    vrpt_options options = {.sim_only = 1, .completion = VRP_SIM_MANUAL};
    options.pool.flags = VRP_NO_RECLAIMER;
    vrp_devptr blocks[4] = {0}, more = 0;
    VRPT_REQUIRE(&t, vrpt_open(&t, &options));
    for (int i = 0; i < 4; i++)
        VRPT_OK(vrp_alloc(t.pool, 3 * VRPT_MIB << i, VRP_STREAM_LEGACY, &blocks[i]));
    vrp_sim_fault_set(t.sim, call, 1, 1, VRP_DEVICE_LOST);
    VRPT_OK(vrp_free(t.pool, blocks[0], VRP_STREAM_LEGACY));
    VRPT_OK(vrp_free(t.pool, blocks[1], VRP_STREAM_LEGACY));
    int lost = 0;
    for (int i = 0; i < 8; i++) {
        vrp_status status = vrp_alloc(t.pool, 16 * VRPT_MIB, VRP_STREAM_LEGACY, &more);
        if (status == VRP_OK)
            status = vrp_empty_cache(t.pool, NULL);
        lost |= status == VRP_DEVICE_LOST;
        assert_true(status == VRP_OK || status == VRP_DEVICE_LOST);
    }
    uint64_t gone = vrp_sim_call_count(t.sim, VRP_SIM_CALL_UNMAP) +
                    vrp_sim_call_count(t.sim, VRP_SIM_CALL_MEM_FREE);
    VRPT_OK(vrp_pool_check(t.pool));
    VRPT_OK(vrp_free(t.pool, blocks[2], VRP_STREAM_LEGACY));
    VRPT_STATUS(vrp_pool_destroy(t.pool, 0), VRP_BUSY);
    VRPT_OK(vrp_pool_destroy(t.pool, VRP_DESTROY_FORCE));
    if (lost) /* no unmap after it */
        assert_int_equal(gone, vrp_sim_call_count(t.sim, VRP_SIM_CALL_UNMAP) +
                                   vrp_sim_call_count(t.sim, VRP_SIM_CALL_MEM_FREE));
    vrp_driver_destroy(t.driver);
    (void)vrp_sim_destroy(t.sim); /* what was on the device went with it */
}

static void lost_device_is_left_alone(void **state) {
    (void)state;
    for (int32_t call = 0; call < VRP_SIM_CALL_COUNT; call++)
        lose(call);
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(script_passes_without_faults),
        cmocka_unit_test(driver_call_fails_once),
        cmocka_unit_test(driver_call_is_out_of_memory_once),
        cmocka_unit_test(driver_call_fails_for_ever),
        cmocka_unit_test(driver_call_is_out_of_memory_for_ever),
        cmocka_unit_test(whole_driver_fails_for_ever),
        cmocka_unit_test(host_allocation_fails_once),
        cmocka_unit_test(host_allocation_fails_for_ever),
        cmocka_unit_test(lost_device_is_left_alone),
    };
    (void)argc;
    static char sim[] = "sim";
    char *sim_only[] = {argv[0], sim};
    return vrpt_main("fault_pool", tests, VRPT_COUNT(tests), 2, sim_only);
}
