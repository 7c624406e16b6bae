/* SPDX-License-Identifier: MIT */
/* Programs built against other versions of the headers: shorter structs are
 * extended with zeros, longer ones must be zero beyond what is known, answers
 * are cut to the caller's size. Only public names, over the shared library. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "vrampool/inspect.h"
#include "vrampool/knobs.h"
#include "vrampool/optimizer.h"
#include "vrampool/sim.h"
#include "vrampool/vrampool.h"

#define OK(expression) assert_int_equal((expression), VRP_OK)
#define BYTES_UP_TO(type, member) (uint32_t)(offsetof(type, member) + sizeof(((type *)0)->member))

typedef struct fixture {
    vrp_driver *driver;
    vrp_pool *pool;
} fixture;

static int open_pool(void **state) {
    static fixture f;
    if (vrp_driver_open("sim:256MiB", &f.driver) != VRP_OK ||
        vrp_pool_create(f.driver, NULL, &f.pool) != VRP_OK)
        return -1;
    *state = &f;
    return 0;
}

static int close_pool(void **state) {
    fixture *f = *state;
    vrp_status status = vrp_pool_destroy(f->pool, 0);
    vrp_driver_destroy(f->driver);
    return status == VRP_OK ? 0 : -1;
}

/* A request by a caller that knows nothing beyond `bytes`. What follows is
 * garbage in its memory and must not be read. */
static void short_request_is_extended_with_zeros(void **state) {
    fixture *f = *state;
    vrp_alloc_info info;
    memset(&info, 0xa5, sizeof info);
    info.struct_size = BYTES_UP_TO(vrp_alloc_info, bytes);
    info.flags = 0;
    info.bytes = 4096;
    vrp_devptr ptr = 0;
    OK(vrp_alloc_ex(f->pool, &info, &ptr));
    vrp_block_info block = {.struct_size = sizeof block};
    OK(vrp_block_info_get(f->pool, ptr, &block));
    assert_int_equal(block.tag, VRP_TAG_OTHER);
    assert_int_equal(block.stream, VRP_STREAM_LEGACY);
    assert_int_equal(block.scope, 0);
    OK(vrp_free(f->pool, ptr, VRP_STREAM_OF_ALLOC));
}

typedef struct longer_info {
    vrp_alloc_info known;
    uint64_t later;
} longer_info;

static void long_request_with_zeros_works(void **state) {
    fixture *f = *state;
    longer_info info = {.known = {.struct_size = sizeof info, .bytes = 4096}};
    vrp_devptr ptr = 0;
    OK(vrp_alloc_ex(f->pool, &info.known, &ptr));
    OK(vrp_free(f->pool, ptr, VRP_STREAM_OF_ALLOC));
}

static void long_request_with_an_unknown_member_is_refused(void **state) {
    fixture *f = *state;
    longer_info info = {.known = {.struct_size = sizeof info, .bytes = 4096}, .later = 1};
    vrp_devptr ptr = 77;
    assert_int_equal(vrp_alloc_ex(f->pool, &info.known, &ptr), VRP_NOT_SUPPORTED);
    assert_int_equal(ptr, 77);
}

static void struct_size_zero_is_refused(void **state) {
    fixture *f = *state;
    vrp_alloc_info info = {.bytes = 4096};
    vrp_devptr ptr = 77;
    assert_int_equal(vrp_alloc_ex(f->pool, &info, &ptr), VRP_INVALID_ARGUMENT);
    assert_int_equal(ptr, 77);
    vrp_stats stats = {0};
    assert_int_equal(vrp_pool_stats_get(f->pool, &stats), VRP_INVALID_ARGUMENT);
    vrp_pool_config config = {0};
    vrp_pool *pool = NULL;
    assert_int_equal(vrp_pool_create(f->driver, &config, &pool), VRP_INVALID_ARGUMENT);
    vrp_sim_config machine = {0};
    vrp_sim *sim = NULL;
    assert_int_equal(vrp_sim_create(&machine, &sim), VRP_INVALID_ARGUMENT);
}

static void unknown_flags_are_refused(void **state) {
    fixture *f = *state;
    vrp_alloc_info info = {.struct_size = sizeof info, .flags = 1u << 31, .bytes = 4096};
    vrp_devptr ptr = 77;
    assert_int_equal(vrp_alloc_ex(f->pool, &info, &ptr), VRP_INVALID_ARGUMENT);
    assert_int_equal(vrp_trim(f->pool, 0, 1u << 31, NULL), VRP_INVALID_ARGUMENT);
    assert_int_equal(vrp_pool_destroy(f->pool, 1u << 31), VRP_INVALID_ARGUMENT);
    vrp_pool_config config = {.struct_size = sizeof config, .flags = 1u << 31};
    vrp_pool *pool = NULL;
    assert_int_equal(vrp_pool_create(f->driver, &config, &pool), VRP_INVALID_ARGUMENT);
}

/* An answer is written up to the caller's size, and not a byte beyond. */
static void short_answers_are_cut(void **state) {
    fixture *f = *state;
    unsigned char room[sizeof(vrp_stats) + 16];
    uint32_t size = BYTES_UP_TO(vrp_stats, reserved_bytes);
    memset(room, 0xa5, sizeof room);
    memcpy(room, &size, sizeof size);
    OK(vrp_pool_stats_get(f->pool, (vrp_stats *)(void *)room));
    uint32_t written = 0;
    memcpy(&written, room, sizeof written);
    assert_int_equal(written, size);
    for (size_t i = size; i < sizeof room; i++)
        assert_int_equal(room[i], 0xa5);
}

static void long_answers_say_what_was_written(void **state) {
    fixture *f = *state;
    struct {
        vrp_trim_result known;
        uint64_t later;
    } result = {.known = {.struct_size = sizeof result}, .later = 99};
    OK(vrp_empty_cache(f->pool, &result.known));
    assert_int_equal(result.known.struct_size, sizeof result.known);
    assert_int_equal(result.later, 99);
}

/* Everything after the required operations is younger than the table. */
static vrp_status no_info(void *ctx, vrp_device_info *out_info) {
    (void)ctx;
    (void)out_info;
    return VRP_UNAVAILABLE;
}

static void driver_table_without_a_required_operation_is_refused(void **state) {
    (void)state;
    vrp_driver_ops ops = {.struct_size = BYTES_UP_TO(vrp_driver_ops, device_info),
                          .device_info = no_info};
    vrp_driver *driver = NULL;
    assert_int_equal(vrp_driver_create(&ops, NULL, &driver), VRP_INVALID_ARGUMENT);
    assert_null(driver);
    vrp_error_detail detail = {.struct_size = sizeof detail};
    OK(vrp_error_detail_get(&detail));
    assert_non_null(strstr(detail.message, "mem_info"));
}

/* The half of a group is refused, a shorter table without the group is not. */
static void driver_table_of_another_length(void **state) {
    fixture *f = *state;
    void *ctx = NULL;
    const vrp_driver_ops *full = vrp_driver_ops_get(f->driver, &ctx);
    vrp_driver *driver = NULL;
    vrp_driver_ops ops = *full;
    ops.destroy = NULL;
    ops.struct_size = BYTES_UP_TO(vrp_driver_ops, mem_free);
    OK(vrp_driver_create(&ops, ctx, &driver));
    vrp_driver_destroy(driver);
    driver = NULL;
    ops.struct_size = BYTES_UP_TO(vrp_driver_ops, mem_alloc);
    assert_int_equal(vrp_driver_create(&ops, ctx, &driver), VRP_INVALID_ARGUMENT);
    struct {
        vrp_driver_ops known;
        void *later;
    } longer = {.known = *full, .later = &longer};
    longer.known.destroy = NULL;
    longer.known.struct_size = sizeof longer;
    assert_int_equal(vrp_driver_create(&longer.known, ctx, &driver), VRP_NOT_SUPPORTED);
    assert_null(driver);
    longer.later = NULL;
    OK(vrp_driver_create(&longer.known, ctx, &driver));
    vrp_driver_destroy(driver);
}

static void optimizer_of_another_version(void **state) {
    fixture *f = *state;
    vrp_optimizer_config config;
    memset(&config, 0xa5, sizeof config);
    vrp_optimizer_config_init(&config);
    assert_int_equal(config.struct_size, sizeof config);
    config.struct_size = BYTES_UP_TO(vrp_optimizer_config, interval);
    memset((unsigned char *)&config + config.struct_size, 0xa5, sizeof config - config.struct_size);
    vrp_optimizer *optimizer = NULL;
    OK(vrp_optimizer_create(f->pool, &config, &optimizer));
    OK(vrp_optimizer_step(optimizer, NULL, NULL));
    vrp_optimizer_destroy(optimizer);
}

static void version_is_that_of_the_headers(void **state) {
    (void)state;
    assert_int_equal(vrp_version(),
                     VRP_VERSION_MAJOR * 10000 + VRP_VERSION_MINOR * 100 + VRP_VERSION_PATCH);
    assert_non_null(vrp_build_info());
    assert_true(strlen(vrp_build_info()) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_request_is_extended_with_zeros),
        cmocka_unit_test(long_request_with_zeros_works),
        cmocka_unit_test(long_request_with_an_unknown_member_is_refused),
        cmocka_unit_test(struct_size_zero_is_refused),
        cmocka_unit_test(unknown_flags_are_refused),
        cmocka_unit_test(short_answers_are_cut),
        cmocka_unit_test(long_answers_say_what_was_written),
        cmocka_unit_test(driver_table_without_a_required_operation_is_refused),
        cmocka_unit_test(driver_table_of_another_length),
        cmocka_unit_test(optimizer_of_another_version),
        cmocka_unit_test(version_is_that_of_the_headers),
    };
    return cmocka_run_group_tests(tests, open_pool, close_pool);
}
