/* SPDX-License-Identifier: MIT */
/* Statuses and their texts, the detail of a failure, the version, and the rule
 * for structs that are shorter or longer than today's. */

#include "unit_support.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const struct {
    vrp_status status;
    int value;
    const char *name;
} frozen[] = {
    {VRP_OK, 0, "VRP_OK"},
    {VRP_INVALID_ARGUMENT, 1, "VRP_INVALID_ARGUMENT"},
    {VRP_INVALID_SIZE, 2, "VRP_INVALID_SIZE"},
    {VRP_INVALID_ALIGNMENT, 3, "VRP_INVALID_ALIGNMENT"},
    {VRP_NOT_OWNED, 4, "VRP_NOT_OWNED"},
    {VRP_INTERIOR_POINTER, 5, "VRP_INTERIOR_POINTER"},
    {VRP_ALREADY_FREED, 6, "VRP_ALREADY_FREED"},
    {VRP_BUSY, 7, "VRP_BUSY"},
    {VRP_OUT_OF_DEVICE_MEMORY, 8, "VRP_OUT_OF_DEVICE_MEMORY"},
    {VRP_OUT_OF_HOST_MEMORY, 9, "VRP_OUT_OF_HOST_MEMORY"},
    {VRP_LIMIT_REACHED, 10, "VRP_LIMIT_REACHED"},
    {VRP_NOT_SUPPORTED, 11, "VRP_NOT_SUPPORTED"},
    {VRP_UNAVAILABLE, 12, "VRP_UNAVAILABLE"},
    {VRP_DEVICE_LOST, 13, "VRP_DEVICE_LOST"},
    {VRP_SHUT_DOWN, 14, "VRP_SHUT_DOWN"},
    {VRP_AFTER_FORK, 15, "VRP_AFTER_FORK"},
    {VRP_CORRUPTED, 16, "VRP_CORRUPTED"},
    {VRP_INTERNAL, 17, "VRP_INTERNAL"},
};

static void values_and_names_are_frozen(void **state) {
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(frozen); i++) {
        assert_int_equal(frozen[i].status, frozen[i].value);
        assert_string_equal(vrp_status_name(frozen[i].status), frozen[i].name);
        assert_true(strlen(vrp_status_message(frozen[i].status)) > 3);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(vrp_status_message(frozen[i].status),
                                    vrp_status_message(frozen[k].status));
    }
    assert_int_equal(sizeof(vrp_status), 4);
    static const int32_t none[] = {-1, 18, 1000, INT32_MAX};
    for (size_t i = 0; i < VRPT_COUNT(none); i++) {
        assert_string_equal(vrp_status_name((vrp_status)none[i]), "VRP_UNKNOWN");
        assert_true(strlen(vrp_status_message((vrp_status)none[i])) > 3);
    }
}

static void version_at_run_time_is_the_headers(void **state) {
    (void)state;
    assert_int_equal(vrp_version(),
                     VRP_VERSION_MAJOR * 10000 + VRP_VERSION_MINOR * 100 + VRP_VERSION_PATCH);
    char version[32];
    (void)snprintf(version, sizeof version, "%d.%d.%d", VRP_VERSION_MAJOR, VRP_VERSION_MINOR,
                   VRP_VERSION_PATCH);
    assert_non_null(strstr(vrp_build_info(), version));
    assert_non_null(strstr(vrp_build_info(), "sim"));
}

/* ---- details ---------------------------------------------------------------------- */

static void *detail_of_a_fresh_thread(void *user) {
    vrp_error_detail *detail = user;
    detail->struct_size = sizeof *detail;
    return vrp_error_detail_get(detail) == VRP_OK ? NULL : user;
}

static void detail_tells_what_failed_on_this_thread(void **state) {
    vrpt t;
    vrp_devptr ptr = 0;
    vrp_error_detail detail = {.struct_size = sizeof detail};
    (void)state;
    open_pool(&t, NULL);
    VRPT_STATUS(vrp_alloc(t.pool, 2 * VRPT_GIB, VRP_STREAM_LEGACY, &ptr), VRP_OUT_OF_DEVICE_MEMORY);
    VRPT_OK(vrp_error_detail_get(&detail));
    assert_int_equal(detail.status, VRP_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(detail.requested_bytes, 2 * VRPT_GIB);
    assert_true(strlen(detail.message) > 0);
    VRPT_STATUS(vrp_free(t.pool, 12345, VRP_STREAM_LEGACY), VRP_NOT_OWNED);
    VRPT_OK(vrp_error_detail_get(&detail));
    assert_int_equal(detail.status, VRP_NOT_OWNED);
    assert_int_equal(detail.address, 12345);
    assert_int_equal(detail.requested_bytes, 0);
    for (int i = 0; i < 3; i++)
        (void)take(&t, 100);
    VRPT_OK(vrp_error_detail_get(&detail)); /* a success leaves it */
    assert_int_equal(detail.status, VRP_NOT_OWNED);
    VRPT_STATUS(vrp_pool_destroy(t.pool, 0), VRP_BUSY);
    VRPT_OK(vrp_error_detail_get(&detail));
    assert_int_equal(detail.status, VRP_BUSY);
    assert_int_equal(detail.live_count, 3);

    vrp_error_detail others;
    pthread_t thread;
    void *failed = NULL;
    assert_int_equal(pthread_create(&thread, NULL, detail_of_a_fresh_thread, &others), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_int_equal(others.status, VRP_OK);
    close_pool(&t);
}

static void detail_follows_the_struct_rule(void **state) {
    struct {
        vrp_error_detail detail;
        unsigned char after[64];
    } given;
    (void)state;
    VRPT_STATUS(vrp_error_detail_get(NULL), VRP_INVALID_ARGUMENT);
    memset(&given, 0, sizeof given);
    VRPT_STATUS(vrp_error_detail_get(&given.detail), VRP_INVALID_ARGUMENT);
    for (uint32_t size = 4; size <= sizeof given; size += 4) {
        const uint32_t written = size < sizeof given.detail ? size : (uint32_t)sizeof given.detail;
        memset(&given, 0xa5, sizeof given);
        given.detail.struct_size = size;
        VRPT_OK(vrp_error_detail_get(&given.detail));
        assert_int_equal(given.detail.struct_size, written);
        for (size_t i = written; i < sizeof given; i++)
            assert_int_equal(((unsigned char *)&given)[i], 0xa5);
    }
}

/* ---- structs from other versions ------------------------------------------------------ */

static void short_and_long_results_are_written_as_far_as_they_go(void **state) {
    struct {
        vrp_stats stats;
        unsigned char after[64];
    } given;
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    (void)take(&t, 1000);
    VRPT_STATUS(vrp_pool_stats_get(t.pool, NULL), VRP_INVALID_ARGUMENT);
    for (uint32_t size = 0; size <= sizeof given; size += 4) {
        const uint32_t written = size < sizeof given.stats ? size : (uint32_t)sizeof given.stats;
        memset(&given, 0xa5, sizeof given);
        given.stats.struct_size = size;
        if (size == 0) {
            VRPT_STATUS(vrp_pool_stats_get(t.pool, &given.stats), VRP_INVALID_ARGUMENT);
            continue;
        }
        VRPT_OK(vrp_pool_stats_get(t.pool, &given.stats));
        assert_int_equal(given.stats.struct_size, written);
        for (size_t i = written; i < sizeof given; i++)
            assert_int_equal(((unsigned char *)&given)[i], 0xa5);
        if (size >= offsetof(vrp_stats, allocated_bytes))
            assert_int_equal(given.stats.requested_bytes.current, 1000);
    }
    close_pool(&t);
}

static void long_arguments_must_be_zero_where_they_are_not_known(void **state) {
    struct {
        vrp_alloc_info info;
        uint64_t future[4];
    } given;
    vrpt t;
    vrp_devptr ptr = 7;
    (void)state;
    open_pool(&t, NULL);
    for (size_t i = 0; i <= VRPT_COUNT(given.future); i++) {
        memset(&given, 0, sizeof given);
        given.info.struct_size = sizeof given;
        given.info.bytes = 1000;
        if (i == VRPT_COUNT(given.future)) {
            VRPT_OK(vrp_alloc_ex(t.pool, &given.info, &ptr));
            give(&t, ptr);
        } else {
            given.future[i] = UINT64_C(1) << (i * 16);
            VRPT_STATUS(vrp_alloc_ex(t.pool, &given.info, &ptr), VRP_NOT_SUPPORTED);
            assert_int_equal(ptr, 7);
        }
    }
    close_pool(&t);
}

static void short_arguments_mean_zero_beyond(void **state) {
    vrp_alloc_info info;
    vrp_group_stats stats = {.struct_size = sizeof stats};
    vrpt t;
    vrp_devptr ptr = 0;
    (void)state;
    open_pool(&t, NULL);
    memset(&info, 0xff, sizeof info);
    info.struct_size = (uint32_t)offsetof(vrp_alloc_info, stream);
    info.flags = 0;
    info.bytes = 1000;
    info.alignment = 4096;
    VRPT_OK(vrp_alloc_ex(t.pool, &info, &ptr));
    assert_int_equal(ptr % 4096, 0);
    VRPT_OK(vrp_tag_stats_get(t.pool, VRP_TAG_OTHER, &stats));
    assert_int_equal(stats.requested_bytes.current, 1000);
    info.struct_size = 0;
    VRPT_STATUS(vrp_alloc_ex(t.pool, &info, &ptr), VRP_INVALID_ARGUMENT);
    close_pool(&t);
}

static void unknown_flags_and_values_are_refused(void **state) {
    vrpt t;
    vrp_pool *pool = NULL;
    vrp_devptr ptr = 7;
    (void)state;
    open_pool(&t, NULL);
    const vrp_stats before = vrpt_stats(&t);
    for (uint32_t bit = 0; bit < 32; bit++) {
        const uint32_t flag = UINT32_C(1) << bit;
        vrp_alloc_info info = {.struct_size = sizeof info, .bytes = 1000, .flags = flag};
        vrp_pool_config config = {.struct_size = sizeof config, .flags = flag};
        if ((flag & (VRP_ALLOC_NO_WAIT | VRP_ALLOC_NO_OOM_CALL | VRP_ALLOC_EXPORTABLE)) == 0)
            VRPT_STATUS(vrp_alloc_ex(t.pool, &info, &ptr), VRP_INVALID_ARGUMENT);
        if ((flag & (VRP_STREAMS_UNTRACKED | VRP_NO_DEVICE_WAITS | VRP_NO_RECLAIMER)) == 0)
            VRPT_STATUS(vrp_pool_create(t.driver, &config, &pool), VRP_INVALID_ARGUMENT);
        if ((flag & (VRP_TRIM_WAIT | VRP_TRIM_KEEP_CACHES)) == 0)
            VRPT_STATUS(vrp_trim(t.pool, 0, flag, NULL), VRP_INVALID_ARGUMENT);
        if ((flag & VRP_DESTROY_FORCE) == 0)
            VRPT_STATUS(vrp_pool_destroy(t.pool, flag), VRP_INVALID_ARGUMENT);
    }
    static const int32_t wrong[] = {-1, 100, INT32_MAX};
    for (size_t i = 0; i < VRPT_COUNT(wrong); i++) {
        vrp_alloc_info info = {.struct_size = sizeof info, .bytes = 1000, .tag = wrong[i]};
        vrp_pool_config backing = {.struct_size = sizeof backing, .backing = wrong[i]};
        vrp_pool_config rule = {.struct_size = sizeof rule, .gap_rule = wrong[i]};
        vrp_group_stats stats = {.struct_size = sizeof stats};
        VRPT_STATUS(vrp_alloc_ex(t.pool, &info, &ptr), VRP_INVALID_ARGUMENT);
        VRPT_STATUS(vrp_pool_create(t.driver, &backing, &pool), VRP_INVALID_ARGUMENT);
        VRPT_STATUS(vrp_pool_create(t.driver, &rule, &pool), VRP_INVALID_ARGUMENT);
        VRPT_STATUS(vrp_tag_stats_get(t.pool, wrong[i], &stats), VRP_INVALID_ARGUMENT);
        VRPT_STATUS(vrp_tag_budget_set(t.pool, wrong[i], 1), VRP_INVALID_ARGUMENT);
    }
    vrp_alloc_info info = {.struct_size = sizeof info, .bytes = 1000, .reserved = 1};
    VRPT_STATUS(vrp_alloc_ex(t.pool, &info, &ptr), VRP_INVALID_ARGUMENT);
    assert_null(pool);
    assert_int_equal(ptr, 7);
    assert_unchanged(&t, &before);
    close_pool(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_names_are_frozen),
        cmocka_unit_test(version_at_run_time_is_the_headers),
        cmocka_unit_test(detail_tells_what_failed_on_this_thread),
        cmocka_unit_test(detail_follows_the_struct_rule),
        cmocka_unit_test(short_and_long_results_are_written_as_far_as_they_go),
        cmocka_unit_test(long_arguments_must_be_zero_where_they_are_not_known),
        cmocka_unit_test(short_arguments_mean_zero_beyond),
        cmocka_unit_test(unknown_flags_and_values_are_refused),
    };
    return vrpt_main("status", tests, VRPT_COUNT(tests), argc, argv);
}
