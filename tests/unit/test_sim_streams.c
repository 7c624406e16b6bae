/* SPDX-License-Identifier: MIT */
/* The simulated machine: streams, events, the four ways in which work
 * completes, and captures. */

#include "sim_support.h"

#include <pthread.h>

/* ---- MANUAL -------------------------------------------------------------------------- */

static void work_completes_when_the_test_says_so(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_MANUAL);
    vrp_stream s = stream_new(&m, 0);
    vrp_event never = event_new(&m);
    vrp_event idle = record_new(&m, s);
    assert_int_equal(done(&m, never), 1);
    assert_int_equal(done(&m, idle), 1); /* nothing was queued before it */
    work(&m, s, 0);
    vrp_event first = record_new(&m, s);
    work(&m, s, 0);
    vrp_event second = record_new(&m, s);
    assert_int_equal(done(&m, first), 0);
    vrp_sim_complete(m.sim, s, 1);
    assert_int_equal(done(&m, first), 1);
    assert_int_equal(done(&m, second), 0);
    vrp_sim_complete(m.sim, s, UINT64_MAX);
    assert_int_equal(done(&m, second), 1);
    assert_int_equal(sim_stats(&m).host_blocks, 0);
    event_end(&m, never);
    event_end(&m, idle);
    event_end(&m, first);
    event_end(&m, second);
    machine_close(&m);
}

static void work_behind_a_wait_stays_until_the_event_is_complete(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_MANUAL);
    vrp_stream a = stream_new(&m, VRP_SIM_STREAM_NON_BLOCKING);
    vrp_stream b = stream_new(&m, VRP_SIM_STREAM_NON_BLOCKING);
    work(&m, a, 0);
    vrp_event of_a = record_new(&m, a);
    VRPT_OK(m.ops->stream_wait_event(m.ctx, b, of_a));
    work(&m, b, 0);
    vrp_event of_b = record_new(&m, b);
    vrp_sim_complete(m.sim, b, UINT64_MAX);
    assert_int_equal(done(&m, of_b), 0);
    vrp_sim_complete(m.sim, a, UINT64_MAX);
    assert_int_equal(done(&m, of_a), 1);
    assert_int_equal(done(&m, of_b), 0); /* its work has not been completed yet */
    vrp_sim_complete(m.sim, b, UINT64_MAX);
    assert_int_equal(done(&m, of_b), 1);
    event_end(&m, of_a);
    event_end(&m, of_b);
    machine_close(&m);
}

static void host_wait_completes_what_the_event_needs_and_no_more(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_MANUAL);
    vrp_stream s[3];
    vrp_event e[3];
    for (size_t i = 0; i < 3; i++)
        s[i] = stream_new(&m, VRP_SIM_STREAM_NON_BLOCKING);
    for (size_t i = 0; i < 3; i++) {
        if (i == 1)
            VRPT_OK(vrp_sim_stream_wait_stream(m.sim, s[1], s[0]));
        work(&m, s[i], 0);
        e[i] = record_new(&m, s[i]);
    }
    VRPT_OK(m.ops->event_synchronize(m.ctx, e[1]));
    assert_int_equal(done(&m, e[0]), 1);
    assert_int_equal(done(&m, e[1]), 1);
    assert_int_equal(done(&m, e[2]), 0);
    assert_int_equal(sim_stats(&m).host_blocks, 1);
    VRPT_OK(m.ops->synchronize(m.ctx));
    assert_int_equal(done(&m, e[2]), 1);
    assert_int_equal(sim_stats(&m).host_blocks, 2);
    for (size_t i = 0; i < 3; i++)
        event_end(&m, e[i]);
    machine_close(&m);
}

static void mem_free_waits_for_the_whole_device(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_MANUAL);
    vrp_stream s = stream_new(&m, VRP_SIM_STREAM_NON_BLOCKING);
    vrp_devptr ptr = 0;
    VRPT_OK(m.ops->mem_alloc(m.ctx, 4096, &ptr));
    VRPT_OK(vrp_sim_launch(m.sim, s, ptr, 4096, 0));
    vrp_event e = record_new(&m, s);
    VRPT_OK(m.ops->mem_free(m.ctx, ptr));
    assert_int_equal(done(&m, e), 1);
    assert_int_equal(sim_stats(&m).host_blocks, 1);
    assert_int_equal(misuses(&m), 0);
    event_end(&m, e);
    machine_close(&m);
}

static void legacy_stream_orders_with_blocking_streams_only(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_MANUAL);
    vrp_stream blocking = stream_new(&m, 0);
    vrp_stream free_running = stream_new(&m, VRP_SIM_STREAM_NON_BLOCKING);
    work(&m, free_running, 0);
    vrp_event idle = record_new(&m, VRP_STREAM_LEGACY);
    assert_int_equal(done(&m, idle), 1);
    work(&m, blocking, 0);
    vrp_event legacy = record_new(&m, VRP_STREAM_LEGACY);
    vrp_event context = event_new(&m);
    VRPT_OK(m.ops->context_record(m.ctx, context));
    assert_int_equal(done(&m, legacy), 0);
    vrp_sim_complete(m.sim, blocking, UINT64_MAX);
    assert_int_equal(done(&m, legacy), 1);
    assert_int_equal(done(&m, context), 0);
    vrp_sim_complete(m.sim, free_running, UINT64_MAX);
    assert_int_equal(done(&m, context), 1);
    work(&m, VRP_STREAM_LEGACY, 0);
    vrp_event behind = record_new(&m, blocking);
    vrp_event beside = record_new(&m, free_running);
    assert_int_equal(done(&m, behind), 0);
    assert_int_equal(done(&m, beside), 1);
    vrp_sim_complete(m.sim, VRP_STREAM_LEGACY, 1);
    assert_int_equal(done(&m, behind), 1);
    event_end(&m, idle);
    event_end(&m, legacy);
    event_end(&m, context);
    event_end(&m, behind);
    event_end(&m, beside);
    machine_close(&m);
}

/* ---- Handles ---------------------------------------------------------------------------- */

static uint64_t id_of(const machine *m, vrp_stream stream) {
    uint64_t id = 0;
    VRPT_OK(m->ops->stream_id(m->ctx, stream, &id));
    return id;
}

static void handle_of_a_destroyed_stream_comes_back_with_another_id(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_MANUAL);
    vrp_stream first = stream_new(&m, VRP_SIM_STREAM_NON_BLOCKING);
    uint64_t id = id_of(&m, first);
    work(&m, first, 0);
    vrp_event left = record_new(&m, first);
    VRPT_OK(vrp_sim_stream_destroy(m.sim, first));
    VRPT_STATUS(vrp_sim_launch(m.sim, first, 0, 0, 0), VRP_INVALID_ARGUMENT);
    vrp_stream second = stream_new(&m, VRP_SIM_STREAM_NON_BLOCKING);
    assert_int_equal(second, first);
    assert_int_not_equal(id_of(&m, second), id);
    vrp_event fresh = record_new(&m, second);
    assert_int_equal(done(&m, fresh), 1);
    assert_int_equal(done(&m, left), 0);
    vrp_sim_complete(m.sim, second, UINT64_MAX); /* the old stream's work completes too */
    assert_int_equal(done(&m, left), 1);
    VRPT_STATUS(vrp_sim_stream_destroy(m.sim, VRP_STREAM_LEGACY), VRP_INVALID_ARGUMENT);
    event_end(&m, left);
    event_end(&m, fresh);
    machine_close(&m);
}

typedef struct other_thread {
    const machine *m;
    vrp_event event;
    uint64_t id;
    int ok;
} other_thread;

static void *record_elsewhere(void *user) {
    other_thread *o = user;
    o->ok = o->m->ops->stream_id(o->m->ctx, VRP_STREAM_PER_THREAD, &o->id) == VRP_OK &&
            o->m->ops->event_record(o->m->ctx, o->event, VRP_STREAM_PER_THREAD) == VRP_OK;
    return NULL;
}

static void per_thread_stream_is_each_threads_own(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_MANUAL);
    work(&m, VRP_STREAM_PER_THREAD, 0);
    vrp_event mine = record_new(&m, VRP_STREAM_PER_THREAD);
    other_thread o = {&m, event_new(&m), 0, 0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, record_elsewhere, &o), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(o.ok);
    assert_int_not_equal(o.id, id_of(&m, VRP_STREAM_PER_THREAD));
    assert_int_equal(done(&m, o.event), 1); /* the other's own stream is idle */
    assert_int_equal(done(&m, mine), 0);
    vrp_sim_complete(m.sim, VRP_STREAM_PER_THREAD, UINT64_MAX);
    assert_int_equal(done(&m, mine), 1);
    event_end(&m, mine);
    event_end(&m, o.event);
    machine_close(&m);
}

/* ---- LAG and CLOCK ------------------------------------------------------------------------ */

static void ticks(const machine *m, int count) {
    for (int i = 0; i < count; i++)
        vrp_sim_tick(m->sim);
}

static void lagging_event_completes_after_its_ticks(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_LAG); /* 4 ticks */
    vrp_stream s = stream_new(&m, VRP_SIM_STREAM_NON_BLOCKING);
    ticks(&m, 1);
    vrp_event e = record_new(&m, s);
    ticks(&m, 3);
    assert_int_equal(done(&m, e), 0);
    ticks(&m, 1);
    assert_int_equal(done(&m, e), 1);
    VRPT_OK(m.ops->event_record(m.ctx, e, s)); /* a new recording: not complete again */
    assert_int_equal(done(&m, e), 0);
    vrp_sim_drain(m.sim);
    assert_int_equal(done(&m, e), 1);
    ticks(&m, 1);
    VRPT_OK(m.ops->event_record(m.ctx, e, s));
    assert_int_equal(done(&m, e), 0);
    VRPT_OK(m.ops->event_synchronize(m.ctx, e));
    assert_int_equal(done(&m, e), 1);
    assert_int_equal(sim_stats(&m).host_blocks, 1);
    event_end(&m, e);
    machine_close(&m);
}

static void lag_of_nothing_is_none(void **state) {
    (void)state;
    vrp_sim_config config = {.device_bytes = VRPT_GIB, .completion = VRP_SIM_LAG, .lag_ticks = 0};
    machine zero = machine_open_with(config);
    ticks(&zero, 1);
    vrp_event at_once = record_new(&zero, VRP_STREAM_LEGACY);
    assert_int_equal(done(&zero, at_once), 1);
    event_end(&zero, at_once);
    machine_close(&zero);

    machine m = machine_open(VRP_SIM_LAG);
    ticks(&m, 1);
    vrp_sim_drain(m.sim);
    vrp_event idle = record_new(&m, VRP_STREAM_LEGACY); /* nothing was issued since */
    assert_int_equal(done(&m, idle), 1);
    work(&m, VRP_STREAM_LEGACY, 0);
    vrp_event busy = record_new(&m, VRP_STREAM_LEGACY);
    assert_int_equal(done(&m, busy), 0);
    event_end(&m, idle);
    event_end(&m, busy);
    machine_close(&m);
}

static void lagging_event_is_not_before_one_that_its_stream_awaits(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_LAG);
    vrp_stream a = stream_new(&m, VRP_SIM_STREAM_NON_BLOCKING);
    vrp_stream b = stream_new(&m, VRP_SIM_STREAM_NON_BLOCKING);
    vrp_stream c = stream_new(&m, VRP_SIM_STREAM_NON_BLOCKING);
    work(&m, a, 0);
    vrp_event of_a = record_new(&m, a);
    VRPT_OK(m.ops->stream_wait_event(m.ctx, b, of_a));
    vrp_event of_b = record_new(&m, b);
    vrp_event of_c = record_new(&m, c);
    assert_int_equal(done(&m, of_b), 0); /* idle itself, but behind the work of a */
    assert_int_equal(done(&m, of_c), 1);
    ticks(&m, 4);
    assert_int_equal(done(&m, of_a), 1);
    assert_int_equal(done(&m, of_b), 1);
    event_end(&m, of_a);
    event_end(&m, of_b);
    event_end(&m, of_c);
    machine_close(&m);
}

static void clocked_work_takes_its_time(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_CLOCK);
    vrp_stream a = stream_new(&m, VRP_SIM_STREAM_NON_BLOCKING);
    vrp_stream b = stream_new(&m, VRP_SIM_STREAM_NON_BLOCKING);
    work(&m, a, 1000000);
    vrp_event of_a = record_new(&m, a);
    VRPT_OK(m.ops->stream_wait_event(m.ctx, b, of_a));
    work(&m, b, 1000000);
    vrp_event of_b = record_new(&m, b);
    assert_int_equal(done(&m, of_a), 0);
    vrp_sim_clock_advance(m.sim, 1000000);
    assert_int_equal(done(&m, of_a), 1);
    assert_int_equal(done(&m, of_b), 0);
    VRPT_OK(vrp_sim_stream_synchronize(m.sim, b)); /* the clock goes on meanwhile */
    assert_int_equal(done(&m, of_b), 1);
    event_end(&m, of_a);
    event_end(&m, of_b);
    machine_close(&m);
}

/* ---- Captures ------------------------------------------------------------------------------- */

static int intact_after_capture(const machine *m, vrp_stream s) {
    int intact = -1;
    VRPT_OK(vrp_sim_capture_end(m->sim, s, &intact));
    return intact;
}

static void capture_survives_what_does_not_touch_it(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_MANUAL);
    vrp_stream s = stream_new(&m, VRP_SIM_STREAM_NON_BLOCKING);
    vrp_stream other = stream_new(&m, 0);
    int capturing = -1;
    vrp_devptr ptr = 0;
    VRPT_OK(vrp_sim_capture_begin(m.sim, s, VRP_SIM_CAPTURE_GLOBAL));
    VRPT_STATUS(vrp_sim_capture_begin(m.sim, s, VRP_SIM_CAPTURE_GLOBAL), VRP_INVALID_ARGUMENT);
    VRPT_OK(m.ops->stream_is_capturing(m.ctx, s, &capturing));
    assert_int_equal(capturing, 1);
    work(&m, s, 0);
    map_end(&m, map_new(&m, GRAIN));
    VRPT_OK(m.ops->mem_alloc(m.ctx, 4096, &ptr));
    VRPT_OK(m.ops->mem_free(m.ctx, ptr));
    vrp_event e = record_new(&m, other);
    assert_int_equal(done(&m, e), 1);
    VRPT_OK(m.ops->event_record(m.ctx, e, VRP_STREAM_LEGACY)); /* it does not order with it */
    event_end(&m, e);
    assert_int_equal(intact_after_capture(&m, s), 1);
    VRPT_OK(m.ops->stream_is_capturing(m.ctx, s, &capturing));
    assert_int_equal(capturing, 0);
    assert_int_equal(sim_stats(&m).capture_breaks, 0);
    machine_close(&m);
}

static void capture_ends_when_something_touches_it(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_MANUAL);
    vrp_stream s = stream_new(&m, 0);
    vrp_event e = event_new(&m);
    for (int how = 0; how < 6; how++) {
        vrp_status status = VRP_OK;
        int native = how == 1 ? 905 : how == 2 ? 906 : 900;
        int legacy = -1;
        VRPT_OK(vrp_sim_capture_begin(m.sim, s, VRP_SIM_CAPTURE_RELAXED));
        VRPT_OK(m.ops->stream_is_capturing(m.ctx, VRP_STREAM_LEGACY, &legacy));
        assert_int_equal(legacy, 1);
        if (how == 0)
            status = m.ops->event_record(m.ctx, e, s);
        else if (how == 1)
            status = m.ops->stream_wait_event(m.ctx, s, e);
        else if (how == 2)
            status = m.ops->event_record(m.ctx, e, VRP_STREAM_LEGACY);
        else if (how == 3)
            status = m.ops->context_record(m.ctx, e);
        else if (how == 4)
            status = m.ops->synchronize(m.ctx);
        else
            status = vrp_sim_stream_synchronize(m.sim, s);
        assert_int_equal(status, VRP_INTERNAL);
        assert_int_equal(m.ops->last_native_error(m.ctx), native);
        VRPT_STATUS(vrp_sim_launch(m.sim, s, 0, 0, 0), VRP_INTERNAL);
        assert_int_equal(m.ops->last_native_error(m.ctx), 901);
        assert_int_equal(intact_after_capture(&m, s), 0);
    }
    assert_int_equal(sim_stats(&m).capture_breaks, 5); /* the last was the app's own */
    event_end(&m, e);
    machine_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_completes_when_the_test_says_so),
        cmocka_unit_test(work_behind_a_wait_stays_until_the_event_is_complete),
        cmocka_unit_test(host_wait_completes_what_the_event_needs_and_no_more),
        cmocka_unit_test(mem_free_waits_for_the_whole_device),
        cmocka_unit_test(legacy_stream_orders_with_blocking_streams_only),
        cmocka_unit_test(handle_of_a_destroyed_stream_comes_back_with_another_id),
        cmocka_unit_test(per_thread_stream_is_each_threads_own),
        cmocka_unit_test(lagging_event_completes_after_its_ticks),
        cmocka_unit_test(lag_of_nothing_is_none),
        cmocka_unit_test(lagging_event_is_not_before_one_that_its_stream_awaits),
        cmocka_unit_test(clocked_work_takes_its_time),
        cmocka_unit_test(capture_survives_what_does_not_touch_it),
        cmocka_unit_test(capture_ends_when_something_touches_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
