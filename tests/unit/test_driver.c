/* SPDX-License-Identifier: MIT */
/* The driver object: which tables are accepted, tables of other versions, what
 * is passed through, what is called at the end, and drivers opened by name. */

#include "unit_support.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A device that has memory to give and nothing else to do. */
typedef struct plain {
    uint64_t next, live, destroyed;
    uint32_t caps;
    vrp_status answer; /* to mem_alloc and device_info, if not VRP_OK */
} plain;

static vrp_status plain_device_info(void *ctx, vrp_device_info *out_info) {
    const plain *p = ctx;
    if (p->answer != VRP_OK)
        return p->answer;
    *out_info = (vrp_device_info){.struct_size = sizeof *out_info,
                                  .caps = p->caps,
                                  .total_bytes = VRPT_GIB,
                                  .granularity_bytes = 2 * VRPT_MIB,
                                  .address_bytes = UINT64_C(1) << 40,
                                  .name = "plain"};
    return VRP_OK;
}
static vrp_status plain_mem_info(void *ctx, uint64_t *out_free, uint64_t *out_total) {
    (void)ctx;
    *out_free = VRPT_GIB / 2;
    *out_total = VRPT_GIB;
    return VRP_OK;
}
static vrp_status plain_event_create(void *ctx, vrp_event *out_event) {
    plain *p = ctx;
    *out_event = ++p->next;
    return VRP_OK;
}
static vrp_status plain_event(void *ctx, vrp_event event) {
    (void)ctx;
    return event != 0 ? VRP_OK : VRP_INTERNAL;
}
static vrp_status plain_event_record(void *ctx, vrp_event event, vrp_stream stream) {
    (void)stream;
    return plain_event(ctx, event);
}
static vrp_status plain_event_query(void *ctx, vrp_event event, int *out_done) {
    *out_done = 1;
    return plain_event(ctx, event);
}
static vrp_status plain_synchronize(void *ctx) {
    (void)ctx;
    return VRP_OK;
}
static vrp_status plain_mem_alloc(void *ctx, uint64_t bytes, vrp_devptr *out_ptr) {
    plain *p = ctx;
    if (p->answer != VRP_OK)
        return p->answer;
    *out_ptr = UINT64_C(0x700000000000) + p->next * VRPT_GIB;
    p->next += bytes / VRPT_GIB + 1;
    p->live++;
    return VRP_OK;
}
static vrp_status plain_mem_free(void *ctx, vrp_devptr ptr) {
    plain *p = ctx;
    p->live--;
    return ptr != 0 ? VRP_OK : VRP_INTERNAL;
}
static int64_t plain_native(void *ctx) {
    (void)ctx;
    return 719;
}
static void plain_destroy(void *ctx) {
    plain *p = ctx;
    p->destroyed++;
}

/* For the group of VMM calls: never called here, only present or not. */
static vrp_status never_ranges(void *ctx, uint64_t bytes, uint64_t *out) {
    (void)ctx, (void)bytes, (void)out;
    return VRP_INTERNAL;
}
static vrp_status never_two(void *ctx, vrp_devptr ptr, uint64_t bytes) {
    (void)ctx, (void)ptr, (void)bytes;
    return VRP_INTERNAL;
}
static vrp_status never_one(void *ctx, vrp_handle handle) {
    (void)ctx, (void)handle;
    return VRP_INTERNAL;
}
static vrp_status never_map(void *ctx, vrp_devptr ptr, uint64_t bytes, vrp_handle handle) {
    (void)ctx, (void)ptr, (void)bytes, (void)handle;
    return VRP_INTERNAL;
}

static const vrp_driver_ops full = {
    .struct_size = sizeof full,
    .device_info = plain_device_info,
    .mem_info = plain_mem_info,
    .event_create = plain_event_create,
    .event_destroy = plain_event,
    .event_record = plain_event_record,
    .event_query = plain_event_query,
    .event_synchronize = plain_event,
    .synchronize = plain_synchronize,
    .mem_alloc = plain_mem_alloc,
    .mem_free = plain_mem_free,
    .address_reserve = never_ranges,
    .address_free = never_two,
    .handle_create = never_ranges,
    .handle_release = never_one,
    .map = never_map,
    .set_access = never_two,
    .unmap = never_two,
    .last_native_error = plain_native,
    .destroy = plain_destroy,
};

typedef void (*any_fn)(void);

/* One operation of a table, by its place in the struct. */
static void leave_out(vrp_driver_ops *ops, size_t offset) {
    memset((unsigned char *)ops + offset, 0, sizeof(any_fn));
}

#define PLACE(name) \
    { #name, offsetof(vrp_driver_ops, name) }

static void refused(const vrp_driver_ops *ops, const char *named) {
    plain p = {0};
    vrp_driver *driver = NULL;
    VRPT_STATUS(vrp_driver_create(ops, &p, &driver), VRP_INVALID_ARGUMENT);
    if (strstr(vrpt_detail(), named) == NULL)
        fail_msg("the detail does not name %s: %s", named, vrpt_detail());
    assert_null(driver);
    assert_int_equal(p.destroyed, 0); /* the context is still the caller's */
}

static void missing_operation_is_named(void **state) {
    static const struct {
        const char *named;
        size_t offset;
    } needed[] = {
        PLACE(device_info),
        PLACE(mem_info),
        PLACE(event_create),
        PLACE(event_destroy),
        PLACE(event_record),
        PLACE(event_query),
        PLACE(event_synchronize),
        PLACE(synchronize),
        /* a group that is half filled */
        {"mem_alloc", offsetof(vrp_driver_ops, mem_alloc)},
        {"mem_free", offsetof(vrp_driver_ops, mem_free)},
        {"vmm", offsetof(vrp_driver_ops, address_reserve)},
        {"vmm", offsetof(vrp_driver_ops, address_free)},
        {"vmm", offsetof(vrp_driver_ops, handle_create)},
        {"vmm", offsetof(vrp_driver_ops, handle_release)},
        {"vmm", offsetof(vrp_driver_ops, map)},
        {"vmm", offsetof(vrp_driver_ops, set_access)},
        {"vmm", offsetof(vrp_driver_ops, unmap)},
    };
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(needed); i++) {
        vrp_driver_ops ops = full;
        leave_out(&ops, needed[i].offset);
        refused(&ops, needed[i].named);
    }
    plain p = {0};
    vrp_driver *driver = NULL;
    VRPT_STATUS(vrp_driver_create(NULL, &p, &driver), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_driver_create(&full, &p, NULL), VRP_INVALID_ARGUMENT);
    vrp_driver_ops ops = full;
    ops.struct_size = 0;
    VRPT_STATUS(vrp_driver_create(&ops, &p, &driver), VRP_INVALID_ARGUMENT);
    ops = full;
    ops.reserved = 1;
    VRPT_STATUS(vrp_driver_create(&ops, &p, &driver), VRP_INVALID_ARGUMENT);
    assert_null(driver);
}

static void group_that_is_left_out_whole_is_accepted(void **state) {
    (void)state;
    for (int group = 0; group < 3; group++) {
        plain p = {.caps = VRP_CAP_MALLOC};
        vrp_driver *driver = NULL;
        vrp_driver_ops ops = full;
        if (group != 1)
            ops.mem_alloc = NULL, ops.mem_free = NULL;
        if (group != 0) {
            ops.address_reserve = ops.handle_create = NULL;
            ops.address_free = ops.set_access = ops.unmap = NULL;
            ops.handle_release = NULL;
            ops.map = NULL;
        }
        if (group == 2) { /* no memory to be had at all */
            refused(&ops, "malloc");
            continue;
        }
        VRPT_OK(vrp_driver_create(&ops, &p, &driver));
        vrp_driver_destroy(driver);
        assert_int_equal(p.destroyed, 1);
    }
}

static void table_of_another_version_is_understood(void **state) {
    struct {
        vrp_driver_ops ops;
        any_fn future[2];
    } longer = {.ops = full};
    plain p = {.caps = VRP_CAP_MALLOC};
    vrp_driver *driver = NULL;
    void *ctx = NULL;
    (void)state;
    longer.ops.struct_size = sizeof longer;
    VRPT_OK(vrp_driver_create(&longer.ops, &p, &driver));
    vrp_driver_destroy(driver);
    assert_int_equal(p.destroyed, 1);
    driver = NULL;
    longer.future[1] = (any_fn)plain_destroy;
    VRPT_STATUS(vrp_driver_create(&longer.ops, &p, &driver), VRP_NOT_SUPPORTED);
    assert_null(driver);
    /* a table from before there was anything optional */
    vrp_driver_ops old = full;
    old.struct_size = (uint32_t)offsetof(vrp_driver_ops, stream_wait_event);
    memset((unsigned char *)&old + old.struct_size, 0xff, sizeof old - old.struct_size);
    VRPT_OK(vrp_driver_create(&old, &p, &driver));
    const vrp_driver_ops *ops = vrp_driver_ops_get(driver, &ctx);
    assert_non_null(ops);
    assert_ptr_equal(ctx, &p);
    assert_true(ops->unmap == never_two);
    assert_true(ops->stream_wait_event == NULL && ops->context_record == NULL &&
                ops->stream_id == NULL && ops->stream_is_capturing == NULL &&
                ops->copy_async == NULL && ops->last_native_error == NULL && ops->destroy == NULL);
    vrp_driver_destroy(driver); /* nothing to call */
    assert_int_equal(p.destroyed, 1);
}

static void table_is_copied(void **state) {
    plain p = {.caps = VRP_CAP_MALLOC};
    vrp_driver *driver = NULL;
    vrp_driver_ops ops = full;
    void *ctx = NULL;
    (void)state;
    VRPT_OK(vrp_driver_create(&ops, &p, &driver));
    memset(&ops, 0xff, sizeof ops);
    assert_true(vrp_driver_ops_get(driver, &ctx)->mem_alloc == plain_mem_alloc);
    assert_true(vrp_driver_ops_get(driver, NULL) != NULL);
    vrp_driver_destroy(driver);
    assert_int_equal(p.destroyed, 1);
    vrp_driver_destroy(NULL);
    assert_null(vrp_driver_ops_get(NULL, NULL));
    assert_null(vrp_sim_of_driver(NULL));
}

static void device_info_follows_the_struct_rule_and_passes_errors_on(void **state) {
    struct {
        vrp_device_info info;
        unsigned char after[64];
    } given;
    plain p = {.caps = VRP_CAP_MALLOC};
    vrp_driver *driver = NULL;
    (void)state;
    VRPT_OK(vrp_driver_create(&full, &p, &driver));
    for (uint32_t size = 4; size <= sizeof given; size += 4) {
        const uint32_t written = size < sizeof given.info ? size : (uint32_t)sizeof given.info;
        memset(&given, 0xa5, sizeof given);
        given.info.struct_size = size;
        VRPT_OK(vrp_driver_info_get(driver, &given.info));
        assert_int_equal(given.info.struct_size, written);
        for (size_t i = written; i < sizeof given; i++)
            assert_int_equal(((unsigned char *)&given)[i], 0xa5);
    }
    assert_string_equal(given.info.name, "plain");
    assert_int_equal(given.info.total_bytes, VRPT_GIB);
    p.answer = VRP_DEVICE_LOST;
    given.info.total_bytes = 77;
    given.info.struct_size = sizeof given.info;
    VRPT_STATUS(vrp_driver_info_get(driver, &given.info), VRP_DEVICE_LOST);
    assert_int_equal(given.info.total_bytes, 77);
    vrp_driver_destroy(driver);
}

static void pool_runs_on_a_driver_of_ones_own(void **state) {
    plain p = {.caps = VRP_CAP_MALLOC};
    vrp_driver *driver = NULL;
    vrp_pool *pool = NULL;
    vrp_devptr ptr = 0;
    uint64_t free_bytes = 0, total_bytes = 0;
    (void)state;
    VRPT_OK(vrp_driver_create(&full, &p, &driver));
    VRPT_OK(vrp_pool_create(driver, NULL, &pool));
    VRPT_OK(vrp_pool_device_memory_get(pool, &free_bytes, &total_bytes));
    assert_int_equal(free_bytes, VRPT_GIB / 2);
    assert_int_equal(total_bytes, VRPT_GIB);
    for (uint64_t bytes = 1; bytes <= 128 * VRPT_MIB; bytes *= 16) {
        VRPT_OK(vrp_alloc(pool, bytes, VRP_STREAM_LEGACY, &ptr));
        VRPT_OK(vrp_free(pool, ptr, VRP_STREAM_LEGACY));
    }
    VRPT_OK(vrp_pool_check(pool));
    /* the driver's own error number reaches the detail */
    vrp_error_detail detail = {.struct_size = sizeof detail};
    p.answer = VRP_INTERNAL;
    VRPT_STATUS(vrp_alloc(pool, 512 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr), VRP_INTERNAL);
    VRPT_OK(vrp_error_detail_get(&detail));
    assert_int_equal(detail.native_code, 719);
    p.answer = VRP_OK;
    VRPT_OK(vrp_empty_cache(pool, NULL));
    assert_int_equal(p.live, 0);
    VRPT_OK(vrp_pool_destroy(pool, 0));
    vrp_driver_destroy(driver);
    assert_int_equal(p.destroyed, 1);
}

static void pool_needs_a_backing_that_the_driver_has(void **state) {
    static const struct {
        uint32_t sim_flags;
        int32_t backing;
        vrp_status expected;
    } tries[] = {
        {VRP_SIM_NO_VMM, VRP_BACKING_VMM, VRP_NOT_SUPPORTED},
        {VRP_SIM_NO_VMM, VRP_BACKING_MALLOC, VRP_OK},
        {VRP_SIM_NO_VMM, VRP_BACKING_AUTO, VRP_OK},
        {VRP_SIM_NO_MALLOC, VRP_BACKING_MALLOC, VRP_NOT_SUPPORTED},
        {VRP_SIM_NO_MALLOC, VRP_BACKING_VMM, VRP_OK},
        {VRP_SIM_NO_MALLOC, VRP_BACKING_AUTO, VRP_OK},
    };
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(tries); i++) {
        vrpt t;
        const vrpt_options options = {.sim_flags = tries[i].sim_flags};
        VRPT_REQUIRE(&t, vrpt_open_device(&t, &options));
        vrp_pool_config config = {.struct_size = sizeof config, .backing = tries[i].backing};
        VRPT_STATUS(vrp_pool_create(t.driver, &config, &t.pool), tries[i].expected);
        if (tries[i].expected == VRP_OK)
            close_pool(&t);
        else
            VRPT_REQUIRE(&t, vrpt_close_device(&t));
    }
}

static void drivers_are_opened_by_name(void **state) {
    static const struct {
        const char *name;
        uint64_t bytes;
    } good[] = {{"sim", 8 * VRPT_GIB},
                {"sim:64MiB", 64 * VRPT_MIB},
                {"sim:139GiB", 139 * VRPT_GIB},
                {"sim:1TiB", 1024 * VRPT_GIB},
                {"sim:1073741824", VRPT_GIB}};
    static const char *const bad[] = {"",        "simulated", "sim:",   "sim:0",     "sim:-1",
                                      "sim:12X", "sim:GiB",   "opencl", "sim:1GiB ", "sim: 1GiB",
                                      "cuda:",   "cuda:x",    "cuda:-1"};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(good); i++) {
        vrp_driver *driver = NULL;
        vrp_device_info info = {.struct_size = sizeof info};
        if (VRPT_TSAN && good[i].bytes > 139 * VRPT_GIB)
            continue; /* no address space is left for it */
        VRPT_OK(vrp_driver_open(good[i].name, &driver));
        VRPT_OK(vrp_driver_info_get(driver, &info));
        assert_int_equal(info.total_bytes, good[i].bytes);
        assert_int_equal(info.granularity_bytes, 2 * VRPT_MIB);
        assert_non_null(vrp_sim_of_driver(driver));
        vrp_driver_destroy(driver);
    }
    for (size_t i = 0; i < VRPT_COUNT(bad); i++) {
        vrp_driver *driver = NULL;
        vrp_status status = vrp_driver_open(bad[i], &driver);
        if (status != VRP_INVALID_ARGUMENT)
            fail_msg("\"%s\": %s", bad[i], vrp_status_name(status));
        assert_null(driver);
    }
    vrp_driver *driver = NULL;
    VRPT_STATUS(vrp_driver_open(NULL, &driver), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_driver_open("sim", NULL), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_driver_open("cuda:9999", &driver), VRP_UNAVAILABLE);
    assert_null(driver);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_operation_is_named),
        cmocka_unit_test(group_that_is_left_out_whole_is_accepted),
        cmocka_unit_test(table_of_another_version_is_understood),
        cmocka_unit_test(table_is_copied),
        cmocka_unit_test(device_info_follows_the_struct_rule_and_passes_errors_on),
        cmocka_unit_test(pool_runs_on_a_driver_of_ones_own),
        cmocka_unit_test(pool_needs_a_backing_that_the_driver_has),
        cmocka_unit_test(drivers_are_opened_by_name),
    };
    return cmocka_run_group_tests_name("driver", tests, NULL, NULL);
}
