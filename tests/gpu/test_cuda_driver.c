/* SPDX-License-Identifier: MIT */
/* The CUDA driver on a device: what it says of itself, memory, contexts,
 * errors, the end of device and process. test_cuda_streams.c has the rest.
 *
 *     test_cuda_driver [cuda:N]
 *
 * Exit status 77 where there is no such device or no libcuda.so.1. It needs
 * nothing else of CUDA, no runtime and no compiler; a copy on another machine
 * needs libcmocka beside it when it was linked dynamically (-Wl,-rpath,$ORIGIN).
 * Two tests run the program again, as a child that breaks its device or ends
 * with a driver in use. */

#include "gpu_support.h"

#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- What the driver says ---------------------------------------------------------- */

static void device_is_described(void **state) {
    const uint32_t least =
        VRP_CAP_VMM | VRP_CAP_MALLOC | VRP_CAP_COPY | VRP_CAP_DEVICE_WAIT | VRP_CAP_CAPTURE;
    const vrp_device_info *info = &gpu.info;
    uint64_t free_bytes = 0, total_bytes = 0;
    (void)state;
    assert_int_equal(info->caps & least, least);
    assert_true(info->total_bytes >= VRPT_GIB);
    assert_true(info->granularity_bytes >= 65536);
    assert_int_equal(info->granularity_bytes & (info->granularity_bytes - 1), 0);
    assert_true(info->address_bytes >= 16 * info->total_bytes);
    assert_string_not_equal(info->name, "");
    assert_int_equal(gpu.ops->context_record != NULL, (info->caps & VRP_CAP_CONTEXT_RECORD) != 0);
    assert_int_equal(gpu.ops->stream_id != NULL, (info->caps & VRP_CAP_STREAM_ID) != 0);
    VRPT_OK(GPU(mem_info, &free_bytes, &total_bytes));
    assert_true(free_bytes <= total_bytes);
    assert_true(total_bytes <= info->total_bytes);
}

static void device_beyond_the_last_is_unavailable(void **state) {
    vrp_cuda_config config = {.struct_size = sizeof config, .ordinal = vrp_cuda_device_count()};
    vrp_driver *driver = NULL;
    (void)state;
    VRPT_STATUS(vrp_cuda_driver_create(&config, &driver), VRP_UNAVAILABLE);
    config.ordinal = UINT32_MAX;
    VRPT_STATUS(vrp_cuda_driver_create(&config, &driver), VRP_UNAVAILABLE);
    assert_null(driver);
}

static void drivers_of_one_device_are_independent(void **state) {
    vrpt_gpu other;
    (void)state;
    VRPT_OK(gpu_open(cu.device, 0, &other));
    assert_null(gpu_every_call(&other, VRP_STREAM_LEGACY));
    vrp_driver_destroy(other.driver);
    assert_null(gpu_every_call(&gpu, VRP_STREAM_LEGACY));
}

/* ---- Memory -------------------------------------------------------------------------- */

static void plain_memory_is_had_and_given_back(void **state) {
    const uint64_t bytes = 256 * VRPT_MIB;
    uint64_t before = 0, between = 0, after = 0, total = 0;
    uint32_t written = 0xfeedu, read = 0;
    vrp_devptr ptr = 0;
    (void)state;
    VRPT_OK(GPU(mem_info, &before, &total));
    VRPT_OK(GPU(mem_alloc, bytes, &ptr));
    assert_int_not_equal(ptr, 0);
    VRPT_OK(GPU(mem_info, &between, &total));
    assert_true(before - between >= bytes);
    assert_int_equal(cu.to_device(ptr + bytes - sizeof written, &written, sizeof written), 0);
    assert_int_equal(cu.to_host(&read, ptr + bytes - sizeof read, sizeof read), 0);
    assert_int_equal(read, written);
    VRPT_OK(GPU(mem_free, ptr));
    VRPT_OK(GPU(mem_info, &after, &total));
    assert_true(after >= between + bytes);
}

static void handle_is_seen_at_two_addresses(void **state) {
    const uint64_t bytes = gpu.info.granularity_bytes;
    vrp_devptr base = 0;
    vrp_handle first = 0, second = 0;
    uint32_t written = 0xabcd0001u, read = 0;
    (void)state;
    VRPT_OK(GPU(address_reserve, 3 * bytes, &base));
    assert_int_equal(base % bytes, 0);
    VRPT_OK(GPU(handle_create, bytes, &first));
    VRPT_OK(GPU(handle_create, bytes, &second));
    VRPT_OK(GPU(map, base, bytes, first));
    VRPT_OK(GPU(map, base + bytes, bytes, second));
    VRPT_OK(GPU(map, base + 2 * bytes, bytes, first));
    VRPT_OK(GPU(set_access, base, 3 * bytes));
    assert_int_equal(cu.to_device(base + 64, &written, sizeof written), 0);
    assert_int_equal(cu.to_host(&read, base + 2 * bytes + 64, sizeof read), 0);
    assert_int_equal(read, written);
    /* Released first: the memory stays until the last mapping goes. */
    VRPT_OK(GPU(handle_release, first));
    VRPT_OK(GPU(unmap, base, 2 * bytes)); /* two mappings in one call */
    read = 0;
    assert_int_equal(cu.to_host(&read, base + 2 * bytes + 64, sizeof read), 0);
    assert_int_equal(read, written);
    VRPT_OK(GPU(unmap, base + 2 * bytes, bytes));
    VRPT_OK(GPU(handle_release, second));
    VRPT_OK(GPU(address_free, base, 3 * bytes));
}

static void a_large_handle_and_a_huge_range_are_had(void **state) {
    const uint64_t bytes = 512 * VRPT_MIB, range = UINT64_C(1) << 44;
    uint64_t before = 0, between = 0, after = 0, total = 0;
    vrp_devptr base = 0;
    vrp_handle handle = 0;
    (void)state;
    VRPT_OK(GPU(address_reserve, range, &base));
    VRPT_OK(GPU(mem_info, &before, &total));
    VRPT_OK(GPU(handle_create, bytes, &handle));
    VRPT_OK(GPU(map, base + range - bytes, bytes, handle));
    VRPT_OK(GPU(set_access, base + range - bytes, bytes));
    VRPT_OK(GPU(mem_info, &between, &total));
    assert_true(before - between >= bytes);
    VRPT_OK(GPU(unmap, base + range - bytes, bytes));
    VRPT_OK(GPU(handle_release, handle));
    VRPT_OK(GPU(mem_info, &after, &total));
    assert_true(after >= between + bytes);
    VRPT_OK(GPU(address_free, base, range));
}

static void exportable_handle_has_a_file_descriptor(void **state) {
    vrpt_gpu other;
    vrp_handle handle = 0;
    int fd = -1, result;
    (void)state;
    VRPT_OK(gpu_open(cu.device, 1, &other));
    VRPT_OK(other.ops->handle_create(other.ctx, other.info.granularity_bytes, &handle));
    result = cu.export_handle(&fd, handle, VRPT_CU_POSIX_FD, 0);
    VRPT_OK(other.ops->handle_release(other.ctx, handle));
    vrp_driver_destroy(other.driver);
    if (result != 0)
        skip(); /* the system cannot: the handle itself was had all the same */
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
}

/* ---- Errors -------------------------------------------------------------------------- */

static void failed_as(vrp_status status, vrp_status expected, int64_t native) {
    vrp_error_detail detail = {.struct_size = sizeof detail};
    if (status != expected)
        fail_msg("%s, not %s (%s)", vrp_status_name(status), vrp_status_name(expected),
                 vrpt_detail());
    VRPT_OK(vrp_error_detail_get(&detail));
    assert_int_equal(detail.status, expected);
    if (native == 0)
        return;
    assert_int_equal(detail.native_code, native);
    assert_int_equal(gpu.ops->last_native_error(gpu.ctx), native);
}

static void want_of_memory_is_told_and_harms_nothing(void **state) {
    const uint64_t bytes =
        gpu.info.total_bytes / gpu.info.granularity_bytes * gpu.info.granularity_bytes * 2;
    vrp_devptr ptr = 7;
    vrp_handle handle = 7;
    (void)state;
    failed_as(GPU(mem_alloc, bytes, &ptr), VRP_OUT_OF_DEVICE_MEMORY, VRPT_CU_OUT_OF_MEMORY);
    assert_int_equal(ptr, 7);
    failed_as(GPU(handle_create, bytes, &handle), VRP_OUT_OF_DEVICE_MEMORY, VRPT_CU_OUT_OF_MEMORY);
    assert_int_equal(handle, 7);
    assert_null(gpu_every_call(&gpu, VRP_STREAM_LEGACY));
}

static void misuse_of_addresses_is_refused_and_harms_nothing(void **state) {
    const uint64_t bytes = gpu.info.granularity_bytes;
    vrp_devptr base = 0;
    vrp_handle handle = 0;
    uint32_t written = 5, read = 0;
    (void)state;
    VRPT_OK(GPU(address_reserve, 4 * bytes, &base));
    VRPT_OK(GPU(handle_create, 2 * bytes, &handle));
    VRPT_OK(GPU(map, base, 2 * bytes, handle));
    VRPT_OK(GPU(set_access, base, 2 * bytes));
    failed_as(GPU(unmap, base, bytes), VRP_INVALID_ARGUMENT, VRPT_CU_INVALID_VALUE);
    failed_as(GPU(handle_create, bytes + 512, &handle), VRP_INVALID_ARGUMENT,
              VRPT_CU_INVALID_VALUE);
    assert_int_not_equal(GPU(map, base + 2 * bytes, bytes, handle), VRP_OK); /* not whole */
    assert_int_not_equal(GPU(address_free, base, bytes), VRP_OK);
    assert_int_equal(cu.to_device(base, &written, sizeof written), 0);
    assert_int_equal(cu.to_host(&read, base, sizeof read), 0);
    assert_int_equal(read, written);
    VRPT_OK(GPU(unmap, base, 2 * bytes));
    VRPT_OK(GPU(handle_release, handle));
    VRPT_OK(GPU(address_free, base, 4 * bytes));
}

/* ---- The calling thread --------------------------------------------------------------- */

static void current_context_stays(void **state) {
    vrpt_cu other = NULL, current = NULL;
    (void)state;
    assert_int_equal(cu.ctx_set(NULL), 0);
    const char *failed = gpu_every_call(&gpu, VRP_STREAM_LEGACY);
    vrp_devptr ptr = 7;
    vrp_status refused = GPU(mem_alloc, 2 * gpu.info.total_bytes, &ptr);
    int result = cu.ctx_get(&current);
    assert_int_equal(cu.ctx_set(cu.primary), 0);
    assert_null(failed);
    assert_int_equal(refused, VRP_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(result, 0);
    assert_null(current);

    if (cu.ctx_create(&other, 0, cu.device) != 0)
        skip(); /* a device in exclusive mode has one context only */
    failed = gpu_every_call(&gpu, VRP_STREAM_LEGACY);
    refused = GPU(mem_alloc, 2 * gpu.info.total_bytes, &ptr);
    result = cu.ctx_get(&current);
    assert_int_equal(cu.ctx_destroy(other), 0);
    assert_int_equal(cu.ctx_set(cu.primary), 0);
    assert_null(failed);
    assert_int_equal(refused, VRP_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(result, 0);
    assert_ptr_equal(current, other);
}

static void capture_mode_of_the_thread_stays(void **state) {
    (void)state;
    for (int mode = VRPT_CU_GLOBAL; mode <= VRPT_CU_RELAXED; mode++) {
        int before = mode, after = VRPT_CU_GLOBAL;
        vrp_devptr ptr = 7;
        assert_int_equal(cu.exchange_mode(&before), 0);
        const char *failed = gpu_every_call(&gpu, VRP_STREAM_LEGACY);
        (void)!GPU(mem_alloc, 2 * gpu.info.total_bytes, &ptr);
        after = before;
        assert_int_equal(cu.exchange_mode(&after), 0);
        assert_null(failed);
        assert_int_equal(after, mode);
    }
}

typedef struct worker {
    pthread_t thread;
    const char *failed;
    vrpt_cu current;
    char why[192];
} worker;

static void *work(void *argument) {
    worker *w = argument;
    for (int i = 0; i < 50 && w->failed == NULL; i++)
        w->failed = gpu_every_call(&gpu, VRP_STREAM_PER_THREAD);
    if (w->failed != NULL)
        (void)snprintf(w->why, sizeof w->why, "%s", vrpt_detail());
    (void)cu.ctx_get(&w->current);
    return NULL;
}

static void threads_without_a_context_work_side_by_side(void **state) {
    worker workers[8];
    (void)state;
    memset(workers, 0, sizeof workers);
    for (size_t i = 0; i < VRPT_COUNT(workers); i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    for (size_t i = 0; i < VRPT_COUNT(workers); i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    for (size_t i = 0; i < VRPT_COUNT(workers); i++) {
        if (workers[i].failed != NULL)
            fail_msg("%s: %s", workers[i].failed, workers[i].why);
        assert_null(workers[i].current);
    }
}

static void child_of_fork_touches_nothing(void **state) {
    int exited = -1;
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        vrp_devptr ptr = 0;
        int good = GPU(mem_alloc, VRPT_MIB, &ptr) == VRP_AFTER_FORK &&
                   gpu.ops->synchronize(gpu.ctx) == VRP_AFTER_FORK;
        vrp_driver_destroy(gpu.driver);
        _exit(good ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &exited, 0), child);
    assert_int_equal(exited, 0);
    assert_null(gpu_every_call(&gpu, VRP_STREAM_LEGACY));
}

/* ---- The end ---------------------------------------------------------------------------- */

/* A kernel that writes to address 0 kills the context. 0, or the step that
 * went wrong. */
static int child_loses_its_device(void) {
    enum { ILLEGAL_ADDRESS = 700 };
    vrp_error_detail detail = {.struct_size = sizeof detail};
    vrp_device_info info = {.struct_size = sizeof info};
    uint64_t free_bytes, total_bytes;
    vrp_devptr ptr, more;
    vrp_event event;
    int done = 7;
    if (GPU(mem_alloc, VRPT_MIB, &ptr) != VRP_OK || GPU(event_create, &event) != VRP_OK)
        return 1;
    if (gpu_launch(cu.poke, 0, NULL) != 0)
        return 2;
    if (gpu.ops->synchronize(gpu.ctx) != VRP_DEVICE_LOST)
        return 3;
    if (vrp_error_detail_get(&detail) != VRP_OK || detail.native_code != ILLEGAL_ADDRESS ||
        gpu.ops->last_native_error(gpu.ctx) != ILLEGAL_ADDRESS)
        return 4;
    if (GPU(event_query, event, &done) != VRP_DEVICE_LOST || done != 7)
        return 5;
    if (GPU(mem_free, ptr) != VRP_DEVICE_LOST || GPU(event_destroy, event) != VRP_DEVICE_LOST)
        return 6;
    if (GPU(mem_info, &free_bytes, &total_bytes) != VRP_DEVICE_LOST ||
        GPU(mem_alloc, VRPT_MIB, &more) != VRP_DEVICE_LOST)
        return 7;
    if (vrp_driver_info_get(gpu.driver, &info) != VRP_OK)
        return 8;
    vrp_driver_destroy(gpu.driver);
    return 0;
}

static vrp_devptr left_over;

/* Registered before libcuda is loaded, so it runs after libcuda's own end. */
static void after_everything(void) {
    vrp_status freed = GPU(mem_free, left_over);
    vrp_status waited = gpu.ops->synchronize(gpu.ctx);
    vrp_driver_destroy(gpu.driver);
    if ((freed != VRP_OK && freed != VRP_SHUT_DOWN) ||
        (waited != VRP_OK && waited != VRP_SHUT_DOWN))
        _exit(9);
}

static void child_ends_well(const char *role) {
    extern char **environ;
    char device[16], name[32];
    char *argv[] = {name, device, NULL};
    pid_t child = 0;
    int status = -1;
    (void)snprintf(name, sizeof name, "%s", role);
    (void)snprintf(device, sizeof device, "cuda:%d", cu.device);
    assert_int_equal(posix_spawn(&child, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0)
        fail_msg("the child that is %s ended with %#x", role, (unsigned)status);
}

static void lost_device_is_lost_for_good(void **state) {
    (void)state;
    child_ends_well("losing");
}

static void calls_at_the_end_of_the_process_are_quiet(void **state) {
    (void)state;
    child_ends_well("ending");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_is_described),
        cmocka_unit_test(device_beyond_the_last_is_unavailable),
        cmocka_unit_test(drivers_of_one_device_are_independent),
        cmocka_unit_test(plain_memory_is_had_and_given_back),
        cmocka_unit_test(handle_is_seen_at_two_addresses),
        cmocka_unit_test(a_large_handle_and_a_huge_range_are_had),
        cmocka_unit_test(exportable_handle_has_a_file_descriptor),
        cmocka_unit_test(want_of_memory_is_told_and_harms_nothing),
        cmocka_unit_test(misuse_of_addresses_is_refused_and_harms_nothing),
        cmocka_unit_test(current_context_stays),
        cmocka_unit_test(capture_mode_of_the_thread_stays),
        cmocka_unit_test(threads_without_a_context_work_side_by_side),
        cmocka_unit_test(child_of_fork_touches_nothing),
        cmocka_unit_test(lost_device_is_lost_for_good),
        cmocka_unit_test(calls_at_the_end_of_the_process_are_quiet),
    };
    int ending = strcmp(argv[0], "ending") == 0;
    int status;
    if (ending && atexit(after_everything) != 0)
        return 1;
    status = gpu_main_begin(argc, argv);
    if (status != 0)
        return status;
    if (strcmp(argv[0], "losing") == 0)
        return child_loses_its_device();
    if (ending)
        return GPU(mem_alloc, VRPT_MIB, &left_over) == VRP_OK ? 0 : 1;
    status = cmocka_run_group_tests_name("cuda driver", tests, NULL, NULL);
    vrp_driver_destroy(gpu.driver);
    return status;
}
