/* SPDX-License-Identifier: MIT */
/* The CUDA driver over a libcuda that has no device: what it calls, what it
 * never calls, and what it makes of answers that a real device seldom gives.
 * Runs with the folder of that library in LD_LIBRARY_PATH. */

#include "fake_cuda.h"
#include "support/vrp_test.h"

#include "vrampool/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static fake_cuda *fake;
static int (*push)(void *context);
static int (*pop)(void **out);
static int (*current)(void **out);
static int (*exchange)(int *mode);

typedef struct opened {
    vrp_driver *driver;
    const vrp_driver_ops *ops;
    void *ctx;
    vrp_device_info info;
} opened;

static void world_reset(void) { memset(fake, 0, sizeof *fake); }

static opened open_with(vrp_cuda_config config) {
    opened d;
    memset(&d, 0, sizeof d);
    config.struct_size = sizeof config;
    VRPT_OK(vrp_cuda_driver_create(&config, &d.driver));
    d.ops = vrp_driver_ops_get(d.driver, &d.ctx);
    d.info.struct_size = sizeof d.info;
    VRPT_OK(vrp_driver_info_get(d.driver, &d.info));
    return d;
}

static opened open_plain(void) {
    world_reset();
    return open_with((vrp_cuda_config){0});
}

#define CALL(d, operation, ...) (d).ops->operation((d).ctx, __VA_ARGS__)

/* ---- the calling thread -------------------------------------------------------------------- */

static void context_and_capture_mode_are_as_before(void **state) {
    int others[2];
    (void)state;
    opened d = open_plain();
    for (int with = 0; with < 3; with++) {
        void *before = NULL, *after = NULL, *popped = NULL;
        int mode = with;
        uint64_t a = 0, b = 0;
        vrp_devptr ptr = 0;
        for (int i = 0; i < with; i++)
            assert_int_equal(push(&others[i]), 0);
        assert_int_equal(exchange(&mode), 0);
        assert_int_equal(current(&before), 0);
        VRPT_OK(CALL(d, mem_info, &a, &b));
        VRPT_STATUS(CALL(d, mem_alloc, UINT64_C(1) << 40, &ptr), VRP_OUT_OF_DEVICE_MEMORY);
        fake->current_is_gone = 1;
        VRPT_OK(CALL(d, mem_info, &a, &b)); /* the application's context, not ours */
        fake->current_is_gone = 0;
        assert_int_equal(current(&after), 0);
        assert_int_equal(exchange(&mode), 0);
        assert_ptr_equal(after, before);
        assert_int_equal(mode, with);
        for (int i = 0; i < with; i++)
            assert_int_equal(pop(&popped), 0);
    }
    vrp_driver_destroy(d.driver);
    assert_int_equal(fake->references, 0);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Every further operation answers the same without a call of libcuda. */
static void is_over(const opened *d, vrp_status status) {
    const int calls = fake->calls;
    uint64_t a = 0, b = 0;
    vrp_devptr ptr = 7;
    vrp_handle handle = 7;
    int done = 7;
    VRPT_STATUS(CALL(*d, mem_info, &a, &b), status);
    VRPT_STATUS(CALL(*d, mem_alloc, 4096, &ptr), status);
    VRPT_STATUS(CALL(*d, mem_free, 4096), status);
    VRPT_STATUS(CALL(*d, handle_create, 2097152, &handle), status);
    VRPT_STATUS(CALL(*d, unmap, 2097152, 2097152), status);
    VRPT_STATUS(CALL(*d, handle_release, 3), status);
    VRPT_STATUS(CALL(*d, address_free, 2097152, 2097152), status);
    VRPT_STATUS(CALL(*d, event_query, 1, &done), status);
    VRPT_STATUS(CALL(*d, event_destroy, 1), status);
    VRPT_STATUS(d->ops->synchronize(d->ctx), status);
    assert_int_equal(fake->calls, calls);
    assert_true(ptr == 7 && handle == 7 && done == 7);
}

static void reset_context_is_gone_for_good(void **state) {
    (void)state;
    for (int anew = 0; anew < 2; anew++) {
        opened d = open_plain();
        uint64_t a = 0, b = 0;
        VRPT_OK(CALL(d, mem_info, &a, &b));
        if (anew)
            fake->context_id = 1; /* another one under the same handle */
        else
            fake->reset = 1;
        VRPT_STATUS(CALL(d, mem_info, &a, &b), VRP_SHUT_DOWN);
        fake->reset = 0; /* too late */
        is_over(&d, VRP_SHUT_DOWN);
        vrp_driver_destroy(d.driver);
    }
}

static void end_of_libcuda_is_the_end(void **state) {
    (void)state;
    opened d = open_plain();
    uint64_t a = 0, b = 0;
    fake->deinitialized = 1;
    VRPT_STATUS(CALL(d, mem_info, &a, &b), VRP_SHUT_DOWN);
    is_over(&d, VRP_SHUT_DOWN);
    vrp_driver_destroy(d.driver);
}

static void killed_context_is_lost(void **state) {
    (void)state;
    opened d = open_plain();
    fake->illegal_address = 1;
    VRPT_STATUS(d.ops->synchronize(d.ctx), VRP_DEVICE_LOST);
    assert_int_equal(d.ops->last_native_error(d.ctx), FAKE_ILLEGAL_ADDRESS);
    is_over(&d, VRP_DEVICE_LOST);
    vrp_driver_destroy(d.driver);
}

static void foreign_stream_is_an_arguments_fault(void **state) {
    (void)state;
    opened d = open_plain();
    uint64_t a = 0, b = 0;
    vrp_event event = 0;
    VRPT_OK(CALL(d, event_create, &event));
    fake->foreign_stream = 1;
    VRPT_STATUS(CALL(d, event_record, event, 4096), VRP_INVALID_ARGUMENT);
    fake->foreign_stream = 0;
    VRPT_OK(CALL(d, event_record, event, 0));
    VRPT_OK(CALL(d, mem_info, &a, &b));
    VRPT_OK(CALL(d, event_destroy, event));
    vrp_driver_destroy(d.driver);
}

/* A pool whose device was reset frees its own memory and unmaps nothing, not in
 * the context that somebody has made since. */
static void pool_over_a_reset_device_ends_quietly(void **state) {
    (void)state;
    for (int32_t backing = VRP_BACKING_VMM; backing <= VRP_BACKING_MALLOC; backing++) {
        opened d = open_plain();
        vrp_pool_config config = {.struct_size = sizeof config, .backing = backing};
        vrp_pool *pool = NULL;
        vrp_devptr live = 0, more = 0;
        VRPT_OK(vrp_pool_create(d.driver, &config, &pool));
        VRPT_OK(vrp_alloc(pool, 40 * VRPT_MIB, VRP_STREAM_LEGACY, &live));
        VRPT_OK(vrp_alloc(pool, 80 * VRPT_MIB, VRP_STREAM_LEGACY, &more));
        VRPT_OK(vrp_free(pool, more, VRP_STREAM_LEGACY));
        const int unmaps = fake->unmaps, allocations = fake->allocations;
        fake->context_id = 1;
        VRPT_STATUS(vrp_alloc(pool, 900 * VRPT_MIB, VRP_STREAM_LEGACY, &more), VRP_SHUT_DOWN);
        VRPT_OK(vrp_free(pool, live, VRP_STREAM_LEGACY));
        vrp_status trimmed = vrp_trim(pool, 0, VRP_TRIM_WAIT, NULL);
        assert_true(trimmed == VRP_OK || trimmed == VRP_SHUT_DOWN);
        VRPT_OK(vrp_pool_destroy(pool, 0));
        assert_int_equal(fake->unmaps, unmaps);
        assert_int_equal(fake->allocations, allocations);
        vrp_driver_destroy(d.driver);
    }
}

/* ---- peers and exports -------------------------------------------------------------------------
 */

static void peers_get_access_on_request(void **state) {
    (void)state;
    opened d = open_plain();
    VRPT_OK(CALL(d, set_access, 2097152, 2097152));
    assert_int_equal(fake->access_count, 1);
    assert_int_equal(fake->access_device[0], 0);
    vrp_driver_destroy(d.driver);
    d = open_with((vrp_cuda_config){.peer_mask = 3});
    VRPT_OK(CALL(d, set_access, 2097152, 2097152));
    assert_int_equal(fake->access_count, 2);
    assert_int_equal(fake->access_device[0], 0);
    assert_int_equal(fake->access_device[1], 1);
    vrp_driver_destroy(d.driver);
    d = open_with((vrp_cuda_config){.ordinal = 1, .peer_mask = 1});
    VRPT_OK(CALL(d, set_access, 2097152, 2097152));
    assert_int_equal(fake->access_device[0], 1);
    assert_int_equal(fake->access_device[1], 0);
    vrp_driver_destroy(d.driver);
    assert_int_equal(fake->references, 0);
}

static void peers_that_cannot_be_are_refused(void **state) {
    vrp_cuda_config config = {.struct_size = sizeof config, .peer_mask = 4};
    vrp_driver *driver = NULL;
    (void)state;
    world_reset();
    VRPT_STATUS(vrp_cuda_driver_create(&config, &driver), VRP_UNAVAILABLE);
    assert_non_null(strstr(vrpt_detail(), "device 2"));
    config.peer_mask = 2;
    fake->no_peers = 1;
    VRPT_STATUS(vrp_cuda_driver_create(&config, &driver), VRP_NOT_SUPPORTED);
    assert_string_equal(vrpt_detail(), "CUDA device 1 cannot access the memory of device 0");
    assert_null(driver);
    assert_int_equal(fake->references, 0);
}

static void exports_answer_what_libcuda_gives(void **state) {
    unsigned char handle[64] = {0};
    int64_t fd = 0;
    (void)state;
    opened d = open_plain();
    const uint32_t always = VRP_CAP_EXPORT_DMA_BUF | VRP_CAP_EXPORT_IPC | VRP_CAP_ASYNC_DEVICE;
    assert_int_equal(d.info.caps & always, always);
    assert_int_equal(d.info.caps & VRP_CAP_EXPORT_FD, 0);
    assert_null(d.ops->handle_export);
    VRPT_OK(CALL(d, range_export, 2097152, 4096, &fd));
    assert_int_equal(fd, 51);
    VRPT_OK(CALL(d, ipc_export, 3 * 2097152, handle));
    for (size_t i = 0; i < sizeof handle; i++)
        assert_int_equal(handle[i], 3);
    vrp_driver_destroy(d.driver);
    d = open_with((vrp_cuda_config){.exportable = 1});
    assert_int_equal(d.info.caps & VRP_CAP_EXPORT_FD, VRP_CAP_EXPORT_FD);
    VRPT_OK(CALL(d, handle_export, 9, &fd));
    assert_int_equal(fd, 41);
    vrp_driver_destroy(d.driver);
}

static void refused_kind_of_handle_is_had_without(void **state) {
    vrp_handle handle = 0;
    int64_t fd = -7;
    (void)state;
    world_reset();
    opened d = open_with((vrp_cuda_config){.exportable = 1});
    fake->refuse_shareable = 1;
    VRPT_OK(CALL(d, handle_create, 2097152, &handle));
    VRPT_STATUS(CALL(d, handle_export, handle, &fd), VRP_NOT_SUPPORTED);
    assert_int_equal(fd, -7);
    VRPT_OK(CALL(d, handle_release, handle));
    vrp_driver_destroy(d.driver);
}

/* ---- pools
 * ---------------------------------------------------------------------------------------- */

/* On a device that works by itself a pool has a reclaimer unless told not to. */
static void pools_have_a_reclaimer_here(void **state) {
    (void)state;
    for (uint32_t flags = 0; flags <= VRP_NO_RECLAIMER; flags += VRP_NO_RECLAIMER) {
        opened d = open_plain();
        vrp_pool_config config = {.struct_size = sizeof config, .flags = flags};
        vrp_stats stats = {.struct_size = sizeof stats};
        const struct timespec moment = {.tv_nsec = 1000000};
        vrp_pool *pool = NULL;
        vrp_devptr ptr[256];
        uint64_t knob = 7;
        VRPT_OK(vrp_pool_create(d.driver, &config, &pool));
        VRPT_OK(vrp_pool_knob_get(pool, VRP_KNOB_RECLAIMER, &knob));
        assert_int_equal(knob, flags == 0);
        for (size_t i = 0; i < VRPT_COUNT(ptr); i++)
            VRPT_OK(vrp_alloc(pool, 16 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr[i]));
        for (size_t i = 0; i < VRPT_COUNT(ptr); i++)
            VRPT_OK(vrp_free(pool, ptr[i], VRP_STREAM_LEGACY));
        VRPT_OK(vrp_empty_cache(pool, NULL));
        for (int i = 0; i < 10000 && vrp_pool_reserved_bytes(pool) > 0; i++)
            (void)nanosleep(&moment, NULL);
        VRPT_OK(vrp_pool_stats_get(pool, &stats));
        assert_int_equal(stats.reserved_bytes.current, 0);
        assert_int_equal(stats.reclaimed_bytes > 0, flags == 0);
        VRPT_OK(vrp_pool_destroy(pool, 0));
        assert_int_equal(fake->handles, 0);
        assert_int_equal(fake->events, 0);
        vrp_driver_destroy(d.driver);
    }
}

static int fake_find(void) {
    static const char *const symbols[] = {"fake_cuda_get", "cuCtxPushCurrent_v2",
                                          "cuCtxPopCurrent_v2", "cuCtxGetCurrent",
                                          "cuThreadExchangeStreamCaptureMode"};
    fake_cuda *(*get)(void) = NULL;
    void *found[5];
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; i < VRPT_COUNT(symbols); i++)
        if (library == NULL || (found[i] = dlsym(library, symbols[i])) == NULL)
            return 0;
    memcpy(&get, &found[0], sizeof get);
    memcpy(&push, &found[1], sizeof push);
    memcpy(&pop, &found[2], sizeof pop);
    memcpy(&current, &found[3], sizeof current);
    memcpy(&exchange, &found[4], sizeof exchange);
    fake = get();
    return 1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_and_capture_mode_are_as_before),
        cmocka_unit_test(reset_context_is_gone_for_good),
        cmocka_unit_test(end_of_libcuda_is_the_end),
        cmocka_unit_test(killed_context_is_lost),
        cmocka_unit_test(foreign_stream_is_an_arguments_fault),
        cmocka_unit_test(pool_over_a_reset_device_ends_quietly),
        cmocka_unit_test(peers_get_access_on_request),
        cmocka_unit_test(peers_that_cannot_be_are_refused),
        cmocka_unit_test(exports_answer_what_libcuda_gives),
        cmocka_unit_test(refused_kind_of_handle_is_had_without),
        cmocka_unit_test(pools_have_a_reclaimer_here),
    };
    if (!fake_find()) {
        (void)printf("failed: LD_LIBRARY_PATH has no fake libcuda.so.1\n");
        return 1;
    }
    return cmocka_run_group_tests_name("cuda driver over a fake libcuda", tests, NULL, NULL);
}
