/* SPDX-License-Identifier: MIT */
/* The misuse detector of the simulated machine: it finds what is planted, and
 * is silent about programs that are right. Work that is complete is no excuse:
 * what counts is whether anybody waited for it. */

#include "sim_support.h"

typedef struct scene {
    machine m;
    vrp_stream a, b; /* neither orders with the legacy stream */
    mapped memory;
} scene;

static scene scene_open(int32_t completion) {
    scene s;
    s.m = machine_open(completion);
    s.a = stream_new(&s.m, VRP_SIM_STREAM_NON_BLOCKING);
    s.b = stream_new(&s.m, VRP_SIM_STREAM_NON_BLOCKING);
    s.memory = map_new(&s.m, GRAIN);
    return s;
}

static void scene_close(scene *s) {
    vrp_sim_drain(s->m.sim);
    map_end(&s->m, s->memory);
    machine_close(&s->m);
}

static void launch(scene *s, vrp_stream stream, uint64_t offset, uint64_t bytes) {
    VRPT_OK(vrp_sim_launch(s->m.sim, stream, s->memory.ptr + offset, bytes, 0));
}

static void begin(scene *s, vrp_stream stream, uint64_t offset, uint64_t bytes) {
    VRPT_OK(vrp_sim_use_begin(s->m.sim, stream, s->memory.ptr + offset, bytes));
}

static void end(scene *s, vrp_stream stream, uint64_t offset, uint64_t bytes) {
    VRPT_OK(vrp_sim_use_end(s->m.sim, stream, s->memory.ptr + offset, bytes));
}

/* An event of `from` that `to` waits for. */
static void join(scene *s, vrp_stream from, vrp_stream to) {
    vrp_event e = record_new(&s->m, from);
    VRPT_OK(s->m.ops->stream_wait_event(s->m.ctx, to, e));
    event_end(&s->m, e);
}

static const int32_t modes[] = {VRP_SIM_IMMEDIATE, VRP_SIM_MANUAL, VRP_SIM_LAG, VRP_SIM_CLOCK};

static void planted_missing_wait_is_found_in_every_mode(void **state) {
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(modes); i++) {
        scene s = scene_open(modes[i]);
        char text[128] = "";
        launch(&s, s.a, 0, 4096);
        vrp_sim_misuse_text(s.m.sim, text, sizeof text);
        assert_string_equal(text, "");
        launch(&s, s.b, 2048, 4096);
        assert_int_equal(misuses(&s.m), 1);
        vrp_sim_misuse_text(s.m.sim, text, sizeof text);
        assert_non_null(strstr(text, "without a wait"));
        scene_close(&s);
    }
}

static void waits_of_every_kind_are_accepted(void **state) {
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(modes); i++) {
        scene s = scene_open(modes[i]);
        launch(&s, s.a, 0, 4096);
        join(&s, s.a, s.b); /* an event */
        launch(&s, s.b, 0, 4096);
        VRPT_OK(vrp_sim_stream_wait_stream(s.m.sim, s.a, s.b)); /* the app's own wait */
        launch(&s, s.a, 0, 8192);
        VRPT_OK(vrp_sim_stream_synchronize(s.m.sim, s.a)); /* by the host */
        launch(&s, s.b, 0, 8192);
        vrp_event e = event_new(&s.m);
        VRPT_OK(s.m.ops->context_record(s.m.ctx, e)); /* of all streams */
        VRPT_OK(s.m.ops->event_synchronize(s.m.ctx, e));
        launch(&s, s.a, 0, GRAIN);
        vrp_sim_drain(s.m.sim);
        launch(&s, s.b, 0, GRAIN);
        event_end(&s.m, e);
        assert_int_equal(misuses(&s.m), 0);
        scene_close(&s);
    }
}

static void wait_for_an_earlier_event_does_not_cover_later_work(void **state) {
    (void)state;
    scene s = scene_open(VRP_SIM_MANUAL);
    vrp_event early = record_new(&s.m, s.a);
    launch(&s, s.a, 0, 4096);
    VRPT_OK(s.m.ops->stream_wait_event(s.m.ctx, s.b, early));
    launch(&s, s.b, 0, 4096);
    assert_int_equal(misuses(&s.m), 1);
    event_end(&s.m, early);
    scene_close(&s);
}

static void order_is_passed_on_through_a_third_stream(void **state) {
    (void)state;
    scene s = scene_open(VRP_SIM_MANUAL);
    vrp_stream middle = stream_new(&s.m, VRP_SIM_STREAM_NON_BLOCKING);
    launch(&s, s.a, 0, 4096);
    join(&s, s.a, middle);
    join(&s, middle, s.b);
    launch(&s, s.b, 0, 4096);
    assert_int_equal(misuses(&s.m), 0);
    scene_close(&s);
}

static void event_on_the_legacy_stream_covers_blocking_streams_only(void **state) {
    (void)state;
    scene s = scene_open(VRP_SIM_IMMEDIATE);
    vrp_stream blocking = stream_new(&s.m, 0);
    launch(&s, blocking, 0, 4096);
    launch(&s, s.a, 8192, 4096);
    join(&s, VRP_STREAM_LEGACY, s.b);
    launch(&s, s.b, 0, 4096);
    assert_int_equal(misuses(&s.m), 0);
    launch(&s, s.b, 8192, 4096);
    assert_int_equal(misuses(&s.m), 1);
    scene_close(&s);
}

static void new_stream_with_an_old_handle_is_not_the_old_stream(void **state) {
    (void)state;
    scene s = scene_open(VRP_SIM_IMMEDIATE);
    vrp_stream first = stream_new(&s.m, VRP_SIM_STREAM_NON_BLOCKING);
    launch(&s, first, 0, 4096);
    VRPT_OK(vrp_sim_stream_destroy(s.m.sim, first));
    vrp_stream second = stream_new(&s.m, VRP_SIM_STREAM_NON_BLOCKING);
    assert_int_equal(first, second);
    launch(&s, second, 0, 4096);
    assert_int_equal(misuses(&s.m), 1);
    for (int i = 0; i < 100; i++) { /* with a drain between them all is well */
        VRPT_OK(vrp_sim_stream_destroy(s.m.sim, second));
        vrp_sim_drain(s.m.sim);
        second = stream_new(&s.m, VRP_SIM_STREAM_NON_BLOCKING);
        launch(&s, second, 0, 4096);
    }
    assert_int_equal(misuses(&s.m), 1);
    scene_close(&s);
}

static void overlap_of_two_blocks_in_use_is_found(void **state) {
    (void)state;
    scene s = scene_open(VRP_SIM_LAG);
    begin(&s, s.a, 0, 8192);
    launch(&s, s.a, 4096, 4096); /* work inside of it */
    begin(&s, s.a, 8192, 4096);  /* the neighbour */
    assert_int_equal(misuses(&s.m), 0);
    begin(&s, s.a, 4096, 2048);
    assert_int_equal(misuses(&s.m), 1);
    launch(&s, s.a, 4096, 8192); /* across both */
    assert_int_equal(misuses(&s.m), 2);
    end(&s, s.a, 0, 8192);
    end(&s, s.a, 8192, 4096);
    end(&s, s.a, 0, 8192); /* once too often */
    assert_int_equal(misuses(&s.m), 3);
    scene_close(&s);
}

static void block_used_by_two_streams_needs_both_before_it_is_used_again(void **state) {
    (void)state;
    scene s = scene_open(VRP_SIM_LAG);
    vrp_stream c = stream_new(&s.m, VRP_SIM_STREAM_NON_BLOCKING);
    begin(&s, s.a, 0, 4096);
    join(&s, s.a, s.b);
    begin(&s, s.b, 0, 4096);
    end(&s, s.b, 0, 4096);
    end(&s, s.a, 0, 4096);
    join(&s, s.a, c); /* b is forgotten */
    begin(&s, c, 0, 4096);
    assert_int_equal(misuses(&s.m), 1);
    end(&s, c, 0, 4096);
    scene_close(&s);
}

static void unmap_under_unfinished_work_is_found(void **state) {
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(modes); i++) {
        scene s = scene_open(modes[i]);
        mapped again = map_new(&s.m, GRAIN);
        VRPT_OK(vrp_sim_launch(s.m.sim, s.a, again.ptr, 4096, 0));
        vrp_event e = record_new(&s.m, s.a);
        VRPT_OK(s.m.ops->event_synchronize(s.m.ctx, e));
        VRPT_OK(vrp_sim_launch(s.m.sim, s.b, again.ptr, 4096, 0));
        map_end(&s.m, again); /* the event is an earlier stream's */
        assert_int_equal(misuses(&s.m), 1);
        event_end(&s.m, e);
        scene_close(&s);
    }
}

static void memory_in_use_may_not_go(void **state) {
    (void)state;
    scene s = scene_open(VRP_SIM_IMMEDIATE);
    vrp_devptr ptr = 0;
    mapped again = map_new(&s.m, GRAIN);
    VRPT_OK(vrp_sim_use_begin(s.m.sim, s.a, again.ptr, GRAIN));
    vrp_sim_drain(s.m.sim);
    map_end(&s.m, again);
    assert_int_equal(misuses(&s.m), 1);
    VRPT_OK(s.m.ops->mem_alloc(s.m.ctx, 4096, &ptr));
    VRPT_OK(vrp_sim_use_begin(s.m.sim, s.a, ptr, 4096));
    VRPT_OK(s.m.ops->mem_free(s.m.ctx, ptr));
    assert_int_equal(misuses(&s.m), 2);
    VRPT_STATUS(s.m.ops->mem_free(s.m.ctx, ptr), VRP_INVALID_ARGUMENT);
    assert_int_equal(misuses(&s.m), 3);
    scene_close(&s);
}

static void double_release_and_unbacked_use_are_found(void **state) {
    (void)state;
    scene s = scene_open(VRP_SIM_IMMEDIATE);
    mapped again = map_new(&s.m, GRAIN);
    map_end(&s.m, again);
    VRPT_STATUS(s.m.ops->handle_release(s.m.ctx, again.handle), VRP_INVALID_ARGUMENT);
    assert_int_equal(misuses(&s.m), 1);
    VRPT_STATUS(s.m.ops->unmap(s.m.ctx, again.ptr, GRAIN), VRP_INVALID_ARGUMENT);
    assert_int_equal(misuses(&s.m), 2);
    VRPT_OK(vrp_sim_launch(s.m.sim, s.a, again.ptr, 1, 0));
    assert_int_equal(misuses(&s.m), 3);
    launch(&s, s.a, GRAIN - 1, 2); /* one byte beyond */
    assert_int_equal(misuses(&s.m), 4);
    scene_close(&s);
}

static void alias_is_the_same_memory(void **state) {
    (void)state;
    scene s = scene_open(VRP_SIM_IMMEDIATE);
    vrp_devptr alias = 0;
    VRPT_OK(s.m.ops->address_reserve(s.m.ctx, GRAIN, &alias));
    VRPT_OK(s.m.ops->map(s.m.ctx, alias, GRAIN, s.memory.handle));
    VRPT_OK(s.m.ops->set_access(s.m.ctx, alias, GRAIN));
    launch(&s, s.a, 0, 4096);
    VRPT_OK(vrp_sim_launch(s.m.sim, s.b, alias, 4096, 0));
    assert_int_equal(misuses(&s.m), 1);
    vrp_sim_drain(s.m.sim);
    launch(&s, s.a, 0, 4096);
    VRPT_OK(s.m.ops->unmap(s.m.ctx, alias, GRAIN)); /* work uses the other address */
    assert_int_equal(misuses(&s.m), 1);
    VRPT_OK(s.m.ops->address_free(s.m.ctx, alias, GRAIN));
    scene_close(&s);
}

static void detector_that_is_off_says_nothing(void **state) {
    (void)state;
    vrp_sim_config config = {.flags = VRP_SIM_NO_DETECTOR, .device_bytes = VRPT_GIB};
    machine m = machine_open_with(config);
    VRPT_OK(vrp_sim_use_begin(m.sim, VRP_STREAM_LEGACY, 1, 1));
    VRPT_OK(vrp_sim_launch(m.sim, VRP_STREAM_LEGACY, 1, 1, 0));
    assert_int_equal(misuses(&m), 0);
    machine_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_missing_wait_is_found_in_every_mode),
        cmocka_unit_test(waits_of_every_kind_are_accepted),
        cmocka_unit_test(wait_for_an_earlier_event_does_not_cover_later_work),
        cmocka_unit_test(order_is_passed_on_through_a_third_stream),
        cmocka_unit_test(event_on_the_legacy_stream_covers_blocking_streams_only),
        cmocka_unit_test(new_stream_with_an_old_handle_is_not_the_old_stream),
        cmocka_unit_test(overlap_of_two_blocks_in_use_is_found),
        cmocka_unit_test(block_used_by_two_streams_needs_both_before_it_is_used_again),
        cmocka_unit_test(unmap_under_unfinished_work_is_found),
        cmocka_unit_test(memory_in_use_may_not_go),
        cmocka_unit_test(double_release_and_unbacked_use_are_found),
        cmocka_unit_test(alias_is_the_same_memory),
        cmocka_unit_test(detector_that_is_off_says_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
