/* SPDX-License-Identifier: MIT */
/* vrp_driver_open: which names there are, how sizes are read, what a bad name
 * answers; and the CUDA driver where there is no device. */

#include "unit_support.h"

#include "vrampool/cuda.h"

#include <stdio.h>
#include <string.h>

static uint64_t bytes_of(const char *name) {
    vrp_driver *driver = NULL;
    vrp_device_info info = {.struct_size = sizeof info};
    vrp_status status = vrp_driver_open(name, &driver);
    if (status != VRP_OK)
        fail_msg("\"%s\": %s (%s)", name, vrp_status_name(status), vrpt_detail());
    VRPT_OK(vrp_driver_info_get(driver, &info));
    vrp_driver_destroy(driver);
    return info.total_bytes;
}

static void size_is_read_to_the_byte(void **state) {
    static const struct {
        const char *name;
        uint64_t bytes;
    } sizes[] = {
        {"sim", 8 * VRPT_GIB},
        {"sim:67108864", 64 * VRPT_MIB},
        {"sim:65536KiB", 64 * VRPT_MIB},
        {"sim:64MiB", 64 * VRPT_MIB},
        {"sim:139GiB", 139 * VRPT_GIB},
#if !VRPT_TSAN /* which leaves too few addresses */
        {"sim:1TiB", 1024 * VRPT_GIB},
        {"sim:1TB", UINT64_C(1000000000000)},
#endif
        {"sim:64000KB", 64000000},
        {"sim:64MB", 64000000},
        {"sim:80GB", UINT64_C(80000000000)},
        {"sim:1.5GiB", VRPT_GIB + VRPT_GIB / 2},
        {"sim:0.25GiB", VRPT_GIB / 4},
        {"sim:1.500GB", UINT64_C(1500000000)},
        {"sim:0001GiB", VRPT_GIB},
        {"sim:1.0000000000000000000000000000001GiB", VRPT_GIB}, /* rounds down */
        {"sim:0.1GiB", VRPT_GIB / 10},
        {"sim:0.3333333333333333333333333GB", UINT64_C(333333333)},
    };
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        uint64_t bytes = bytes_of(sizes[i].name);
        if (bytes != sizes[i].bytes)
            fail_msg("\"%s\" has %llu bytes", sizes[i].name, (unsigned long long)bytes);
    }
}

/* Refuses `name`; the message says `word`. */
static void refused(const char *name, vrp_status expected, const char *word) {
    vrp_driver *driver = NULL;
    vrp_error_detail detail = {.struct_size = sizeof detail};
    vrp_status status = vrp_driver_open(name, &driver);
    if (status != expected)
        fail_msg("\"%s\": %s", name, vrp_status_name(status));
    assert_null(driver);
    VRPT_OK(vrp_error_detail_get(&detail));
    assert_int_equal(detail.status, expected);
    if (strstr(detail.message, word) == NULL)
        fail_msg("\"%s\": \"%s\" does not say \"%s\"", name, detail.message, word);
}

static void unknown_name_is_refused_and_named(void **state) {
    static const char *const names[] = {"opencl", "simulated", "Sim",    "SIM:8GiB", " sim",
                                        "sim ",   "cudart",    "CUDA:0", "cuda0",    "8GiB"};
    char quoted[32];
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(names); i++) {
        (void)snprintf(quoted, sizeof quoted, "\"%s\"", names[i]);
        refused(names[i], VRP_INVALID_ARGUMENT, quoted);
    }
    refused("", VRP_INVALID_ARGUMENT, "\"\"");
    refused(":", VRP_INVALID_ARGUMENT, "\":\"");
}

static void bad_size_is_refused_and_named(void **state) {
    static const char *const sizes[] = {"",
                                        "0",
                                        "0GiB",
                                        "0.0GiB",
                                        "-1",
                                        "+1",
                                        " 8GiB",
                                        "8 GiB",
                                        "8GiB ",
                                        "8gib",
                                        "8G",
                                        "8Gib",
                                        "GiB",
                                        ".5GiB",
                                        "1.GiB",
                                        "1.5",
                                        "1..5GiB",
                                        "1.5.GiB",
                                        "0x10",
                                        "1e9",
                                        "8GiB,8",
                                        "8PiB",
                                        "8B",
                                        "8GiBs",
                                        "1,5GiB",
                                        "all",
                                        "0.0001KB",
                                        "18446744073709551616",
                                        "16777216TiB",
                                        "99999999999999999999999999GiB"};
    char name[64];
    char quoted[64];
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        (void)snprintf(name, sizeof name, "sim:%s", sizes[i]);
        (void)snprintf(quoted, sizeof quoted, "\"%s\"", sizes[i]);
        refused(name, VRP_INVALID_ARGUMENT, quoted);
    }
}

static void size_that_no_machine_can_have_is_refused(void **state) {
    vrp_driver *driver = NULL;
    (void)state;
    VRPT_STATUS(vrp_driver_open("sim:16777215TiB", &driver), VRP_INVALID_ARGUMENT);
    assert_null(driver);
}

static void null_is_refused(void **state) {
    vrp_driver *driver = NULL;
    (void)state;
    VRPT_STATUS(vrp_driver_open(NULL, &driver), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_driver_open("sim", NULL), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_driver_open(NULL, NULL), VRP_INVALID_ARGUMENT);
    assert_null(driver);
}

/* Each driver has a machine of its own, and takes it along: a leak checker
 * sees the rest. */
static void opened_machines_are_separate_and_end_with_their_drivers(void **state) {
    vrp_driver *first = NULL, *second = NULL;
    void *first_ctx = NULL, *second_ctx = NULL;
    vrp_handle handle = 0;
    uint64_t free_bytes = 0, total_bytes = 0;
    (void)state;
    VRPT_OK(vrp_driver_open("sim:64MiB", &first));
    VRPT_OK(vrp_driver_open("sim:64MiB", &second));
    const vrp_driver_ops *first_ops = vrp_driver_ops_get(first, &first_ctx);
    const vrp_driver_ops *second_ops = vrp_driver_ops_get(second, &second_ctx);
    VRPT_OK(first_ops->handle_create(first_ctx, 64 * VRPT_MIB, &handle));
    VRPT_STATUS(first_ops->handle_create(first_ctx, 2 * VRPT_MIB, &handle),
                VRP_OUT_OF_DEVICE_MEMORY);
    VRPT_OK(second_ops->mem_info(second_ctx, &free_bytes, &total_bytes));
    assert_int_equal(free_bytes, 64 * VRPT_MIB);
    assert_int_equal(total_bytes, 64 * VRPT_MIB);
    assert_non_null(vrp_sim_of_driver(first));
    assert_ptr_not_equal(vrp_sim_of_driver(first), vrp_sim_of_driver(second));
    vrp_driver_destroy(first); /* with a handle left: no matter */
    VRPT_OK(second_ops->handle_create(second_ctx, 2 * VRPT_MIB, &handle));
    VRPT_OK(second_ops->handle_release(second_ctx, handle));
    vrp_driver_destroy(second);
}

static void pool_runs_on_an_opened_driver(void **state) {
    vrp_driver *driver = NULL;
    vrp_pool *pool = NULL;
    vrp_devptr ptr = 0;
    (void)state;
    VRPT_OK(vrp_driver_open("sim:256MiB", &driver));
    VRPT_OK(vrp_pool_create(driver, NULL, &pool));
    VRPT_OK(vrp_alloc(pool, VRPT_MIB, VRP_STREAM_LEGACY, &ptr));
    assert_int_not_equal(ptr, 0);
    VRPT_OK(vrp_free(pool, ptr, VRP_STREAM_LEGACY));
    VRPT_OK(vrp_pool_destroy(pool, 0));
    vrp_driver_destroy(driver);
}

/* ---- CUDA ------------------------------------------------------------------------ */

static void cuda_name_needs_a_number(void **state) {
    static const char *const names[] = {"cuda:",    "cuda:x",   "cuda:-1",
                                        "cuda:0x0", "cuda: 0",  "cuda:0 ",
                                        "cuda:0:1", "cuda:1.0", "cuda:99999999999999999999999"};
    char quoted[64];
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(names); i++) {
        (void)snprintf(quoted, sizeof quoted, "\"%s\"", names[i]);
        refused(names[i], VRP_INVALID_ARGUMENT, quoted);
    }
}

static void cuda_device_that_is_not_there_is_unavailable(void **state) {
    vrp_driver *driver = NULL;
    (void)state;
    VRPT_STATUS(vrp_driver_open("cuda:9999", &driver), VRP_UNAVAILABLE);
    VRPT_STATUS(vrp_driver_open("cuda:4294967296", &driver), VRP_UNAVAILABLE);
    VRPT_STATUS(vrp_driver_open("cuda:18446744073709551615", &driver), VRP_UNAVAILABLE);
    assert_null(driver);
    if (vrp_cuda_device_count() != 0)
        return;
    VRPT_STATUS(vrp_driver_open("cuda", &driver), VRP_UNAVAILABLE);
    VRPT_STATUS(vrp_driver_open("cuda:0", &driver), VRP_UNAVAILABLE);
    assert_null(driver);
    assert_string_not_equal(vrpt_detail(), ""); /* says what is missing */
}

static void cuda_config_is_checked_before_the_device(void **state) {
    vrp_driver *driver = NULL;
    const vrp_cuda_config good = {.struct_size = sizeof good};
    const vrp_cuda_config sizeless = {0};
    const vrp_cuda_config reserved = {.struct_size = sizeof reserved, .reserved = 1};
    const vrp_cuda_config twice = {.struct_size = sizeof twice, .exportable = 2};
    (void)state;
    vrp_status status = vrp_cuda_driver_create(&good, &driver);
    if (status == VRP_NOT_SUPPORTED)
        skip(); /* built without CUDA: nothing else is looked at */
    if (vrp_cuda_device_count() == 0)
        assert_int_equal(status, VRP_UNAVAILABLE);
    else
        assert_int_equal(status, VRP_OK);
    vrp_driver_destroy(driver);
    driver = NULL;
    VRPT_STATUS(vrp_cuda_driver_create(NULL, &driver), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_cuda_driver_create(&good, NULL), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_cuda_driver_create(&sizeless, &driver), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_cuda_driver_create(&reserved, &driver), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_cuda_driver_create(&twice, &driver), VRP_INVALID_ARGUMENT);
    assert_null(driver);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_is_read_to_the_byte),
        cmocka_unit_test(unknown_name_is_refused_and_named),
        cmocka_unit_test(bad_size_is_refused_and_named),
        cmocka_unit_test(size_that_no_machine_can_have_is_refused),
        cmocka_unit_test(null_is_refused),
        cmocka_unit_test(opened_machines_are_separate_and_end_with_their_drivers),
        cmocka_unit_test(pool_runs_on_an_opened_driver),
        cmocka_unit_test(cuda_name_needs_a_number),
        cmocka_unit_test(cuda_device_that_is_not_there_is_unavailable),
        cmocka_unit_test(cuda_config_is_checked_before_the_device),
    };
    return cmocka_run_group_tests_name("open", tests, NULL, NULL);
}
