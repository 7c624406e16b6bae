/* SPDX-License-Identifier: MIT */
/* The CUDA driver on a device: events, streams, waits, copies, captures. What
 * a pool relies on is checked against kernels that really run.
 *
 *     test_cuda_streams [cuda:N]
 *
 * It runs as test_cuda_driver.c says. The kernels keep a stream busy for a
 * fixed time; where a test needs one to be still running, it has only made
 * calls since that take a thousandth of that. */

#include "gpu_support.h"

#include <pthread.h>

#define BUSY_NS (300 * UINT64_C(1000000))

static vrpt_cu stream_new(unsigned flags) {
    vrpt_cu stream = NULL;
    assert_int_equal(cu.stream_create(&stream, flags), 0);
    return stream;
}

static vrp_event event_new(void) {
    vrp_event event = 0;
    VRPT_OK(GPU(event_create, &event));
    assert_int_not_equal(event, 0);
    return event;
}

static int is_done(vrp_event event) {
    int done = 7;
    VRPT_OK(GPU(event_query, event, &done));
    assert_true(done == 0 || done == 1);
    return done;
}

static void busy(vrpt_cu stream) { assert_int_equal(gpu_launch(cu.spin, BUSY_NS, stream), 0); }

/* ---- Events --------------------------------------------------------------------------- */

static void event_completes_with_the_work_before_it(void **state) {
    vrpt_cu stream = stream_new(VRPT_CU_NON_BLOCKING);
    vrp_event event = event_new();
    (void)state;
    assert_true(is_done(event)); /* never recorded */
    busy(stream);
    VRPT_OK(GPU(event_record, event, gpu_number(stream)));
    assert_false(is_done(event));
    VRPT_OK(GPU(event_synchronize, event));
    assert_true(is_done(event));
    VRPT_OK(GPU(event_record, event, gpu_number(stream))); /* again */
    VRPT_OK(GPU(event_synchronize, event));
    VRPT_OK(GPU(event_destroy, event));
    assert_int_equal(cu.stream_destroy(stream), 0);
}

static void default_streams_record(void **state) {
    static const vrp_stream streams[] = {VRP_STREAM_LEGACY, 1, VRP_STREAM_PER_THREAD};
    vrp_event event = event_new();
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(streams); i++) {
        busy((vrpt_cu)(uintptr_t)streams[i]);
        VRPT_OK(GPU(event_record, event, streams[i]));
        assert_false(is_done(event));
        VRPT_OK(GPU(event_synchronize, event));
        assert_true(is_done(event));
    }
    VRPT_OK(GPU(event_destroy, event));
}

static void synchronize_waits_for_every_stream(void **state) {
    vrpt_cu streams[] = {stream_new(VRPT_CU_NON_BLOCKING), stream_new(0)};
    vrp_event events[] = {event_new(), event_new()};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(streams); i++) {
        busy(streams[i]);
        VRPT_OK(GPU(event_record, events[i], gpu_number(streams[i])));
    }
    assert_false(is_done(events[0]));
    VRPT_OK(gpu.ops->synchronize(gpu.ctx));
    for (size_t i = 0; i < VRPT_COUNT(streams); i++) {
        assert_true(is_done(events[i]));
        VRPT_OK(GPU(event_destroy, events[i]));
        assert_int_equal(cu.stream_destroy(streams[i]), 0);
    }
}

static void waiting_stream_waits_on_the_device(void **state) {
    vrpt_cu first = stream_new(VRPT_CU_NON_BLOCKING), second = stream_new(VRPT_CU_NON_BLOCKING);
    vrp_event awaited = event_new(), free_running = event_new(), held = event_new();
    (void)state;
    busy(first);
    VRPT_OK(GPU(event_record, awaited, gpu_number(first)));
    VRPT_OK(GPU(event_record, free_running, gpu_number(second)));
    VRPT_OK(GPU(event_synchronize, free_running)); /* nothing holds the second stream yet */
    VRPT_OK(GPU(stream_wait_event, gpu_number(second), awaited));
    VRPT_OK(GPU(event_record, held, gpu_number(second)));
    assert_false(is_done(awaited));
    assert_false(is_done(held));
    VRPT_OK(GPU(event_destroy, awaited)); /* the wait stands all the same */
    assert_false(is_done(held));
    VRPT_OK(GPU(event_synchronize, held));
    assert_int_equal(cu.stream_synchronize(first), 0);
    VRPT_OK(GPU(event_destroy, free_running));
    VRPT_OK(GPU(event_destroy, held));
    assert_int_equal(cu.stream_destroy(first), 0);
    assert_int_equal(cu.stream_destroy(second), 0);
}

static void context_record_covers_what_the_legacy_stream_does_not(void **state) {
    vrpt_cu stream = stream_new(VRPT_CU_NON_BLOCKING);
    vrp_event legacy = event_new(), whole = event_new();
    (void)state;
    if (gpu.ops->context_record == NULL)
        skip();
    busy(stream);
    VRPT_OK(GPU(context_record, whole));
    VRPT_OK(GPU(event_record, legacy, VRP_STREAM_LEGACY));
    VRPT_OK(GPU(event_synchronize, legacy));
    assert_false(is_done(whole));
    VRPT_OK(GPU(event_synchronize, whole));
    assert_int_equal(cu.stream_synchronize(stream), 0);
    VRPT_OK(GPU(event_destroy, legacy));
    VRPT_OK(GPU(event_destroy, whole));
    assert_int_equal(cu.stream_destroy(stream), 0);
}

/* ---- Streams ---------------------------------------------------------------------------- */

static void stream_id_differs_for_a_handle_that_comes_back(void **state) {
    enum { TRIES = 16 };
    uint64_t id = 0, legacy = 0, again = 0;
    (void)state;
    if (gpu.ops->stream_id == NULL)
        skip();
    vrpt_cu stream = stream_new(VRPT_CU_NON_BLOCKING);
    VRPT_OK(GPU(stream_id, VRP_STREAM_LEGACY, &legacy));
    VRPT_OK(GPU(stream_id, gpu_number(stream), &id));
    VRPT_OK(GPU(stream_id, gpu_number(stream), &again));
    assert_int_not_equal(id, legacy);
    assert_int_equal(id, again);
    for (int i = 0; i < TRIES; i++) {
        assert_int_equal(cu.stream_destroy(stream), 0);
        stream = stream_new(VRPT_CU_NON_BLOCKING);
        VRPT_OK(GPU(stream_id, gpu_number(stream), &again));
        assert_int_not_equal(again, id);
        id = again;
    }
    assert_int_equal(cu.stream_destroy(stream), 0);
}

static void copy_comes_in_the_order_of_its_stream(void **state) {
    const uint64_t bytes = gpu.info.granularity_bytes, half = bytes / 2;
    vrpt_cu stream = stream_new(VRPT_CU_NON_BLOCKING);
    vrp_event event = event_new();
    vrp_devptr ptr = 0;
    uint64_t written = UINT64_C(0x0123456789abcdef), read = 0;
    (void)state;
    VRPT_OK(GPU(mem_alloc, bytes, &ptr));
    assert_int_equal(cu.to_device(ptr + half - sizeof written, &written, sizeof written), 0);
    busy(stream);
    VRPT_OK(GPU(copy_async, ptr + half, ptr, half, gpu_number(stream)));
    VRPT_OK(GPU(event_record, event, gpu_number(stream)));
    assert_false(is_done(event)); /* the host did not wait */
    VRPT_OK(GPU(event_synchronize, event));
    assert_int_equal(cu.to_host(&read, ptr + bytes - sizeof read, sizeof read), 0);
    assert_true(read == written);
    VRPT_OK(GPU(mem_free, ptr));
    VRPT_OK(GPU(event_destroy, event));
    assert_int_equal(cu.stream_destroy(stream), 0);
}

/* ---- Captures ------------------------------------------------------------------------------ */

static int is_capturing(vrp_stream stream) {
    int capturing = 7;
    VRPT_OK(GPU(stream_is_capturing, stream, &capturing));
    assert_true(capturing == 0 || capturing == 1);
    return capturing;
}

static void end_capture(vrpt_cu stream) {
    vrpt_cu graph = NULL;
    int result = cu.capture_end(stream, &graph);
    if (result != 0)
        fail_msg("the capture was ended by a call (error %d)", result);
    assert_non_null(graph);
    assert_int_equal(cu.graph_destroy(graph), 0);
}

static void capture_is_seen(void **state) {
    vrpt_cu blocking = stream_new(0), other = stream_new(VRPT_CU_NON_BLOCKING);
    (void)state;
    assert_false(is_capturing(gpu_number(blocking)));
    assert_false(is_capturing(VRP_STREAM_LEGACY));
    assert_int_equal(cu.capture_begin(blocking, VRPT_CU_GLOBAL), 0);
    int seen = is_capturing(gpu_number(blocking));
    int others = is_capturing(gpu_number(other));
    int legacy = is_capturing(VRP_STREAM_LEGACY); /* it would order itself after the capture */
    end_capture(blocking);
    assert_true(seen);
    assert_false(others);
    assert_true(legacy);
    assert_false(is_capturing(gpu_number(blocking)));
    assert_false(is_capturing(VRP_STREAM_LEGACY));

    assert_int_equal(cu.capture_begin(other, VRPT_CU_GLOBAL), 0);
    seen = is_capturing(gpu_number(other));
    legacy = is_capturing(VRP_STREAM_LEGACY); /* a non-blocking stream is no matter to it */
    end_capture(other);
    assert_true(seen);
    assert_false(legacy);
    assert_int_equal(cu.stream_destroy(blocking), 0);
    assert_int_equal(cu.stream_destroy(other), 0);
}

typedef struct worker {
    vrp_stream stream;
    const char *failed;
    char why[192];
} worker;

static void *work(void *argument) {
    worker *w = argument;
    for (int i = 0; i < 8 && w->failed == NULL; i++)
        w->failed = gpu_every_call(&gpu, w->stream);
    if (w->failed != NULL)
        (void)snprintf(w->why, sizeof w->why, "%s", vrpt_detail());
    return NULL;
}

/* `elsewhere`: the calls come from another thread than the capture. */
static void survives(int mode, int elsewhere) {
    vrpt_cu captured = stream_new(VRPT_CU_NON_BLOCKING), other = stream_new(VRPT_CU_NON_BLOCKING);
    worker w = {.stream = gpu_number(other)};
    pthread_t thread;
    assert_int_equal(cu.capture_begin(captured, mode), 0);
    int launched = gpu_launch(cu.spin, 0, captured);
    if (elsewhere) {
        if (pthread_create(&thread, NULL, work, &w) == 0)
            (void)pthread_join(thread, NULL);
        else
            w.failed = "pthread_create";
    } else {
        (void)work(&w);
    }
    end_capture(captured);
    assert_int_equal(launched, 0);
    if (w.failed != NULL)
        fail_msg("%s: %s", w.failed, w.why);
    assert_int_equal(cu.stream_destroy(captured), 0);
    assert_int_equal(cu.stream_destroy(other), 0);
}

static void global_capture_survives_calls_of_its_own_thread(void **state) {
    (void)state;
    survives(VRPT_CU_GLOBAL, 0);
}

static void global_capture_survives_calls_of_another_thread(void **state) {
    (void)state;
    survives(VRPT_CU_GLOBAL, 1);
}

static void thread_local_capture_survives_calls_of_its_own_thread(void **state) {
    (void)state;
    survives(VRPT_CU_THREAD_LOCAL, 0);
}

/* What no mode of the thread can prevent: a record on the capturing stream
 * belongs to the graph, and its event cannot be asked. This is why the pool
 * wants to be told of captures. */
static void query_of_a_captured_event_fails(void **state) {
    vrpt_cu stream = stream_new(VRPT_CU_NON_BLOCKING), graph = NULL;
    vrp_event event = event_new();
    int done = 7;
    (void)state;
    assert_int_equal(cu.capture_begin(stream, VRPT_CU_RELAXED), 0);
    vrp_status recorded = GPU(event_record, event, gpu_number(stream));
    vrp_status queried = GPU(event_query, event, &done);
    if (cu.capture_end(stream, &graph) == 0 && graph != NULL)
        (void)cu.graph_destroy(graph);
    assert_int_equal(recorded, VRP_OK);
    assert_int_equal(queried, VRP_INTERNAL);
    assert_int_equal(done, 7);
    VRPT_OK(GPU(event_destroy, event));
    assert_int_equal(cu.stream_destroy(stream), 0);
    assert_null(gpu_every_call(&gpu, VRP_STREAM_LEGACY));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(event_completes_with_the_work_before_it),
        cmocka_unit_test(default_streams_record),
        cmocka_unit_test(synchronize_waits_for_every_stream),
        cmocka_unit_test(waiting_stream_waits_on_the_device),
        cmocka_unit_test(context_record_covers_what_the_legacy_stream_does_not),
        cmocka_unit_test(stream_id_differs_for_a_handle_that_comes_back),
        cmocka_unit_test(copy_comes_in_the_order_of_its_stream),
        cmocka_unit_test(capture_is_seen),
        cmocka_unit_test(global_capture_survives_calls_of_its_own_thread),
        cmocka_unit_test(global_capture_survives_calls_of_another_thread),
        cmocka_unit_test(thread_local_capture_survives_calls_of_its_own_thread),
        cmocka_unit_test(query_of_a_captured_event_fails),
    };
    int status = gpu_main_begin(argc, argv);
    if (status != 0)
        return status;
    status = cmocka_run_group_tests_name("cuda streams", tests, NULL, NULL);
    vrp_driver_destroy(gpu.driver);
    return status;
}
