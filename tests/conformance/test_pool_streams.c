/* SPDX-License-Identifier: MIT */
/* Conformance, stream order: who may have a freed block, and when. Most of it
 * needs work that ends when the test says so, which only the simulated device
 * has; its detector checks every use. Runs as test_pool_blocks.c says. */

#include "vrp_test.h"

#define SIZE (96 * VRPT_MIB)

static void open_manual(vrpt *t, uint32_t flags) {
    vrpt_options options = {.device_bytes = 256 * VRPT_MIB,
                            .completion = VRP_SIM_MANUAL,
                            .pool.flags = VRP_NO_RECLAIMER | flags};
    VRPT_REQUIRE(t, vrpt_open(t, &options));
}

static vrp_devptr take(vrpt *t, uint64_t bytes, vrp_stream stream) {
    vrp_devptr ptr = 0;
    VRPT_OK(vrp_alloc(t->pool, bytes, stream, &ptr));
    VRPT_OK(vrp_sim_launch(t->sim, stream, ptr, bytes, 1000));
    return ptr;
}

static void give(vrpt *t, vrp_devptr ptr, vrp_stream stream) {
    VRPT_OK(vrp_free(t->pool, ptr, stream));
}

static int overlap(vrp_devptr a, vrp_devptr b, uint64_t bytes) {
    return a < b + bytes && b < a + bytes;
}

static void same_stream_has_its_memory_back_at_once(void **state) {
    (void)state;
    static const uint64_t sizes[] = {700, 30000, 2 * VRPT_MIB, SIZE};
    vrpt t;
    vrpt_options options = {.pool.flags = VRP_NO_RECLAIMER};
    VRPT_REQUIRE(&t, vrpt_open(&t, &options));
    vrp_stream stream = vrpt_stream_create(&t);
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrp_devptr first = 0, second = 0;
        VRPT_OK(vrp_alloc(t.pool, sizes[i], stream, &first));
        VRPT_OK(vrp_free(t.pool, first, stream));
        uint64_t reserved = vrpt_stats(&t).reserved_bytes.total;
        VRPT_OK(vrp_alloc(t.pool, sizes[i], stream, &second));
        assert_int_equal(vrpt_stats(&t).reserved_bytes.total, reserved);
        VRPT_OK(vrp_free(t.pool, second, VRP_STREAM_OF_ALLOC));
    }
    assert_int_equal(vrpt_stats(&t).host_waits, 0);
    VRPT_OK(vrp_stream_forget(t.pool, stream));
    vrpt_stream_destroy(&t, stream);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void other_stream_waits_its_turn(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    static const uint64_t sizes[] = {700, 30000, 2 * VRPT_MIB, SIZE};
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrpt t;
        open_manual(&t, VRP_NO_DEVICE_WAITS);
        vrp_stream a = vrpt_stream_create(&t), b = vrpt_stream_create(&t);
        vrp_devptr first = take(&t, sizes[i], a);
        give(&t, first, a);
        vrp_devptr second = take(&t, sizes[i], b); /* the detector watches */
        assert_int_equal(vrpt_stats(&t).cross_stream_waits, 0);
        give(&t, second, b);
        assert_int_equal(vrpt_sim_stats(&t, 0).misuses, 0);
        VRPT_REQUIRE(&t, vrpt_close(&t));
    }
}

static void finished_memory_serves_every_stream(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    vrpt t;
    open_manual(&t, VRP_NO_DEVICE_WAITS);
    vrp_stream a = vrpt_stream_create(&t), b = vrpt_stream_create(&t);
    vrp_devptr x = take(&t, SIZE, a), y = take(&t, SIZE, b);
    give(&t, x, a);
    give(&t, y, b);
    vrp_sim_drain(t.sim);
    VRPT_OK(vrp_pool_poll(t.pool));
    x = take(&t, 250 * VRPT_MIB, a); /* as one block, on either stream in turn */
    give(&t, x, a);
    vrp_sim_drain(t.sim);
    VRPT_OK(vrp_pool_poll(t.pool));
    x = take(&t, 250 * VRPT_MIB, b);
    give(&t, x, b);
    assert_int_equal(vrpt_sim_stats(&t, 0).host_blocks, 0);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void memory_in_flight_is_taken_with_a_device_wait(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    vrpt t;
    open_manual(&t, 0);
    vrp_stream a = vrpt_stream_create(&t), b = vrpt_stream_create(&t), c = vrpt_stream_create(&t);
    vrp_devptr x = take(&t, SIZE, a), y = take(&t, SIZE, b);
    give(&t, x, a);
    give(&t, y, b);
    x = take(&t, 220 * VRPT_MIB, c); /* pieces of both: behind both, on the device */
    if (t.backing == VRP_BACKING_VMM) {
        assert_true(vrpt_stats(&t).cross_stream_waits >= 2);
        assert_int_equal(vrpt_sim_stats(&t, 0).host_blocks, 0);
    }
    give(&t, x, c);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void no_device_wait_where_it_is_off(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    for (int by_knob = 0; by_knob < 2; by_knob++) {
        vrpt t;
        open_manual(&t, by_knob ? 0 : VRP_NO_DEVICE_WAITS);
        if (by_knob)
            VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_DEVICE_WAITS, 0));
        vrp_stream a = vrpt_stream_create(&t), b = vrpt_stream_create(&t);
        vrp_devptr x = take(&t, 200 * VRPT_MIB, a), y = 0;
        give(&t, x, a);
        vrp_alloc_info info = {.struct_size = sizeof info,
                               .flags = VRP_ALLOC_NO_WAIT,
                               .bytes = 200 * VRPT_MIB,
                               .stream = b};
        VRPT_STATUS(vrp_alloc_ex(t.pool, &info, &y), VRP_OUT_OF_DEVICE_MEMORY);
        assert_int_equal(vrpt_sim_stats(&t, 0).host_blocks, 0);
        y = take(&t, 200 * VRPT_MIB, b); /* without the flag it waits on the host */
        assert_true(vrpt_stats(&t).host_waits >= 1);
        assert_int_equal(vrpt_stats(&t).cross_stream_waits, 0);
        give(&t, y, b);
        VRPT_REQUIRE(&t, vrpt_close(&t));
    }
}

static void announced_use_delays_reuse(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    static const uint64_t sizes[] = {700, 2 * VRPT_MIB, SIZE};
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrpt t;
        open_manual(&t, VRP_NO_DEVICE_WAITS);
        vrp_stream a = vrpt_stream_create(&t), b = vrpt_stream_create(&t);
        vrp_devptr x = take(&t, sizes[i], a);
        VRPT_OK(vrp_sim_stream_wait_stream(t.sim, b, a));
        VRPT_OK(vrp_sim_launch(t.sim, b, x, sizes[i], 1000));
        VRPT_OK(vrp_record_stream(t.pool, x, b));
        VRPT_OK(vrp_record_stream(t.pool, x, b)); /* twice is once */
        give(&t, x, a);
        vrp_devptr y = take(&t, sizes[i], a); /* not even its own stream may have it yet */
        assert_false(overlap(x, y, sizes[i]));
        give(&t, y, a);
        vrp_sim_drain(t.sim);
        VRPT_OK(vrp_pool_poll(t.pool));
        assert_int_equal(vrpt_stats(&t).blocks.current, 0);
        VRPT_REQUIRE(&t, vrpt_close(&t));
    }
}

static void free_on_another_stream_belongs_to_it(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    vrpt t;
    open_manual(&t, VRP_NO_DEVICE_WAITS);
    vrp_stream a = vrpt_stream_create(&t), b = vrpt_stream_create(&t);
    vrp_devptr x = take(&t, 3 * VRPT_MIB, a);
    VRPT_OK(vrp_sim_stream_wait_stream(t.sim, b, a));
    VRPT_OK(vrp_sim_launch(t.sim, b, x, 3 * VRPT_MIB, 1000));
    give(&t, x, b);
    for (int i = 0; i < 10; i++) { /* a may not have it before b's work is done */
        vrp_devptr y = take(&t, 3 * VRPT_MIB, a);
        give(&t, y, a);
        y = take(&t, 3 * VRPT_MIB, b);
        give(&t, y, b);
    }
    assert_int_equal(vrpt_sim_stats(&t, 0).misuses, 0);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

/* ---- Streams that end ------------------------------------------------------------- */

static void forgotten_streams_leave_merged_memory(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    vrpt t;
    vrp_devptr x;
    open_manual(&t, 0);
    for (int i = 0; i < 8; i++) {
        vrp_stream stream = vrpt_stream_create(&t);
        x = take(&t, VRPT_MIB, stream);
        give(&t, x, stream);
        VRPT_OK(vrp_stream_forget(t.pool, stream));
        vrpt_stream_destroy(&t, stream);
    }
    x = take(&t, 250 * VRPT_MIB, VRP_STREAM_LEGACY);
    give(&t, x, VRP_STREAM_LEGACY);
    vrp_sim_drain(t.sim);
    uint64_t host_bytes = 0;
    for (int i = 0; i < 2000; i++) { /* no table grows for ever */
        vrp_stream stream = vrpt_stream_create(&t);
        x = take(&t, VRPT_MIB, stream);
        give(&t, x, stream);
        VRPT_OK(vrp_stream_forget(t.pool, stream));
        vrpt_stream_destroy(&t, stream);
        vrp_sim_drain(t.sim);
        if (i == 200)
            host_bytes = vrpt_stats(&t).host_bytes;
    }
    assert_true(vrpt_stats(&t).host_bytes <= host_bytes + VRPT_MIB);
    assert_int_equal(vrpt_sim_stats(&t, 0).misuses, 0);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

/* The driver gives a handle out again: its new stream is another stream. */
static void handle_used_again_is_another_stream(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    static const uint64_t sizes[] = {700, 2 * VRPT_MIB};
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrpt t;
        open_manual(&t, 0);
        vrp_stream old = vrpt_stream_create(&t);
        vrp_devptr freed = take(&t, sizes[i], old), live = take(&t, sizes[i], old);
        give(&t, freed, old);
        VRPT_OK(vrp_stream_forget(t.pool, old));
        vrpt_stream_destroy(&t, old);
        vrp_stream again = vrpt_stream_create(&t);
        assert_int_equal(again, old);
        for (int k = 0; k < 5; k++) {
            vrp_devptr x = take(&t, sizes[i], again); /* the old work is unfinished */
            assert_true(x != live);
        }
        VRPT_OK(vrp_free(t.pool, live, VRP_STREAM_OF_ALLOC)); /* of the old stream */
        (void)take(&t, sizes[i], again);
        assert_int_equal(vrpt_sim_stats(&t, 0).misuses, 0);
        VRPT_REQUIRE(&t, vrpt_close(&t));
    }
}

static void unknown_stream_can_be_forgotten(void **state) {
    (void)state;
    vrpt t;
    vrpt_options options = {.pool.flags = VRP_NO_RECLAIMER};
    VRPT_REQUIRE(&t, vrpt_open(&t, &options));
    vrp_stream stream = vrpt_stream_create(&t);
    VRPT_OK(vrp_stream_forget(t.pool, stream));
    VRPT_OK(vrp_stream_forget(t.pool, VRP_STREAM_LEGACY));
    vrp_devptr x = 0;
    VRPT_OK(vrp_alloc(t.pool, 1000, VRP_STREAM_LEGACY, &x));
    vrpt_stream_destroy(&t, stream);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

/* Destroyed without a word: allowed when the pool was told that it may happen. */
static void untracked_streams_may_vanish(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    vrpt t;
    open_manual(&t, VRP_STREAMS_UNTRACKED);
    for (int i = 0; i < 20; i++) {
        vrp_stream stream = vrpt_stream_create(&t);
        vrp_devptr x = take(&t, 3 * VRPT_MIB, stream), y = take(&t, 900, stream);
        give(&t, x, stream);
        give(&t, y, stream);
        vrpt_stream_destroy(&t, stream);
        if (i % 5 == 4)
            vrp_sim_drain(t.sim);
    }
    assert_int_equal(vrpt_sim_stats(&t, 0).misuses, 0);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

/* ---- Captures ----------------------------------------------------------------------- */

static void capture_is_left_alone(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    static const int32_t modes[] = {VRP_SIM_CAPTURE_GLOBAL, VRP_SIM_CAPTURE_THREAD_LOCAL,
                                    VRP_SIM_CAPTURE_RELAXED};
    for (size_t i = 0; i < VRPT_COUNT(modes); i++) {
        vrpt t;
        int intact = 0;
        open_manual(&t, 0);
        vrp_stream captured = 0, other = vrpt_stream_create(&t);
        VRPT_OK(vrp_sim_stream_create(t.sim, 0, &captured)); /* orders with the legacy one */
        vrp_devptr before = take(&t, 60 * VRPT_MIB, captured), inside = 0;
        VRPT_OK(vrp_capture_begin(t.pool, captured));
        VRPT_STATUS(vrp_capture_begin(t.pool, captured), VRP_INVALID_ARGUMENT);
        VRPT_OK(vrp_sim_capture_begin(t.sim, captured, modes[i]));
        VRPT_OK(vrp_alloc(t.pool, 20 * VRPT_MIB, captured, &inside));
        VRPT_OK(vrp_free(t.pool, before, captured));
        VRPT_OK(vrp_free(t.pool, inside, captured));
        vrp_devptr x = take(&t, 100 * VRPT_MIB, other);
        give(&t, x, other);
        VRPT_OK(vrp_alloc(t.pool, 10 * VRPT_MIB, VRP_STREAM_LEGACY, &x));
        VRPT_OK(vrp_free(t.pool, x, VRP_STREAM_LEGACY));
        VRPT_OK(vrp_empty_cache(t.pool, NULL));
        VRPT_OK(vrp_pool_poll(t.pool));
        x = take(&t, 100 * VRPT_MIB, other); /* nothing of the capturing stream serves it */
        give(&t, x, other);
        VRPT_OK(vrp_sim_capture_end(t.sim, captured, &intact));
        assert_int_equal(intact, 1);
        VRPT_OK(vrp_capture_end(t.pool, captured));
        VRPT_STATUS(vrp_capture_end(t.pool, captured), VRP_INVALID_ARGUMENT);
        VRPT_STATUS(vrp_capture_end(t.pool, other), VRP_INVALID_ARGUMENT);
        VRPT_REQUIRE(&t, vrpt_close(&t));
    }
}

/* ---- The app's last error -------------------------------------------------------------- */

static void last_error_of_the_app_is_left_alone(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    vrpt t;
    vrp_devptr x = 0;
    open_manual(&t, 0);
    for (int32_t error = 0; error <= 700; error += 700) {
        vrp_sim_last_error_set(t.sim, error);
        give(&t, take(&t, SIZE, VRP_STREAM_LEGACY), VRP_STREAM_LEGACY);
        VRPT_STATUS(vrp_alloc(t.pool, VRPT_GIB, VRP_STREAM_LEGACY, &x), VRP_OUT_OF_DEVICE_MEMORY);
        VRPT_OK(vrp_trim(t.pool, 0, VRP_TRIM_WAIT, NULL));
        assert_int_equal(vrp_sim_last_error_get(t.sim), error);
    }
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_stream_has_its_memory_back_at_once),
        cmocka_unit_test(other_stream_waits_its_turn),
        cmocka_unit_test(finished_memory_serves_every_stream),
        cmocka_unit_test(memory_in_flight_is_taken_with_a_device_wait),
        cmocka_unit_test(no_device_wait_where_it_is_off),
        cmocka_unit_test(announced_use_delays_reuse),
        cmocka_unit_test(free_on_another_stream_belongs_to_it),
        cmocka_unit_test(forgotten_streams_leave_merged_memory),
        cmocka_unit_test(handle_used_again_is_another_stream),
        cmocka_unit_test(unknown_stream_can_be_forgotten),
        cmocka_unit_test(untracked_streams_may_vanish),
        cmocka_unit_test(capture_is_left_alone),
        cmocka_unit_test(last_error_of_the_app_is_left_alone),
    };
    return vrpt_main("pool_streams", tests, VRPT_COUNT(tests), argc, argv);
}
