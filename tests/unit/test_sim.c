/* SPDX-License-Identifier: MIT */
/* The simulated machine: memory, prices, faults, hooks, captures. */

#include "sim_support.h"

/* ---- Memory --------------------------------------------------------------------------- */

static void capacity_is_shared_by_allocations_handles_and_others(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_IMMEDIATE);
    vrp_devptr a = 0, b = 0;
    vrp_handle h = 0;
    uint64_t free_bytes = 0, total_bytes = 0;
    VRPT_OK(m.ops->mem_alloc(m.ctx, 512 * VRPT_MIB, &a));
    VRPT_OK(m.ops->handle_create(m.ctx, 256 * VRPT_MIB, &h));
    VRPT_OK(vrp_sim_other_bytes_set(m.sim, 0, 255 * VRPT_MIB));
    VRPT_STATUS(vrp_sim_other_bytes_set(m.sim, 0, 257 * VRPT_MIB), VRP_OUT_OF_DEVICE_MEMORY);
    VRPT_OK(m.ops->mem_info(m.ctx, &free_bytes, &total_bytes));
    assert_int_equal(free_bytes, VRPT_MIB);
    assert_int_equal(total_bytes, VRPT_GIB);
    VRPT_STATUS(m.ops->mem_alloc(m.ctx, VRPT_MIB + 1, &b), VRP_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(m.ops->last_native_error(m.ctx), 2);
    VRPT_OK(m.ops->mem_alloc(m.ctx, VRPT_MIB, &b));
    VRPT_STATUS(m.ops->handle_create(m.ctx, GRAIN, &h), VRP_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(sim_stats(&m).peak_used_bytes, 769 * VRPT_MIB);
    VRPT_OK(m.ops->mem_free(m.ctx, a));
    VRPT_OK(m.ops->mem_free(m.ctx, b));
    VRPT_OK(m.ops->handle_release(m.ctx, h));
    assert_int_equal(sim_stats(&m).used_bytes, 0);
    machine_close(&m);
}

static void allocations_are_aligned_usable_and_apart(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_IMMEDIATE);
    vrp_devptr ptr[24];
    VRPT_STATUS(m.ops->mem_alloc(m.ctx, 0, &ptr[0]), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(m.ops->mem_alloc(m.ctx, UINT64_MAX, &ptr[0]), VRP_OUT_OF_DEVICE_MEMORY);
    for (size_t i = 0; i < VRPT_COUNT(ptr); i++) {
        uint64_t bytes = (uint64_t)1 << i;
        void *host = NULL;
        VRPT_OK(m.ops->mem_alloc(m.ctx, bytes, &ptr[i]));
        assert_int_equal(ptr[i] % (bytes >= VRPT_MIB ? GRAIN : 512), 0);
        VRPT_OK(vrp_sim_host_pointer(m.sim, ptr[i], bytes, &host));
        memset(host, (int)i, bytes);
    }
    for (size_t i = 0; i < VRPT_COUNT(ptr); i++) {
        void *host = NULL;
        VRPT_OK(vrp_sim_host_pointer(m.sim, ptr[i], 1, &host));
        assert_int_equal(*(unsigned char *)host, i);
        VRPT_OK(m.ops->mem_free(m.ctx, ptr[i]));
        VRPT_STATUS(vrp_sim_host_pointer(m.sim, ptr[i], 1, &host), VRP_INVALID_ARGUMENT);
    }
    machine_close(&m);
}

static void sizes_and_addresses_off_the_granularity_are_refused(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_IMMEDIATE);
    vrp_devptr base = 0;
    vrp_handle h = 0;
    VRPT_STATUS(m.ops->address_reserve(m.ctx, GRAIN + 4096, &base), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(m.ops->address_reserve(m.ctx, 0, &base), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(m.ops->handle_create(m.ctx, GRAIN / 2, &h), VRP_INVALID_ARGUMENT);
    VRPT_OK(m.ops->address_reserve(m.ctx, 4 * GRAIN, &base));
    VRPT_OK(m.ops->handle_create(m.ctx, 2 * GRAIN, &h));
    VRPT_STATUS(m.ops->map(m.ctx, base + 4096, 2 * GRAIN, h), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(m.ops->map(m.ctx, base, GRAIN, h), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(m.ops->map(m.ctx, base + 3 * GRAIN, 2 * GRAIN, h), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(m.ops->set_access(m.ctx, base, 2 * GRAIN), VRP_INVALID_ARGUMENT);
    VRPT_OK(m.ops->handle_release(m.ctx, h));
    VRPT_OK(m.ops->address_free(m.ctx, base, 4 * GRAIN));
    assert_int_equal(misuses(&m), 0);
    machine_close(&m);
}

static void handle_at_two_addresses_is_the_same_bytes(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_IMMEDIATE);
    mapped a = map_new(&m, 2 * GRAIN);
    vrp_devptr second = 0;
    void *x = NULL, *y = NULL;
    VRPT_OK(m.ops->address_reserve(m.ctx, 2 * GRAIN, &second));
    VRPT_OK(m.ops->map(m.ctx, second, 2 * GRAIN, a.handle));
    VRPT_STATUS(vrp_sim_host_pointer(m.sim, second, 1, &y), VRP_INVALID_ARGUMENT);
    VRPT_OK(m.ops->set_access(m.ctx, second, 2 * GRAIN));
    VRPT_OK(vrp_sim_host_pointer(m.sim, a.ptr, a.bytes, &x));
    VRPT_OK(vrp_sim_host_pointer(m.sim, second, a.bytes, &y));
    memset(x, 0x5a, a.bytes);
    assert_memory_equal(x, y, a.bytes);
    /* A released handle's memory lives on until its last mapping goes. */
    VRPT_OK(m.ops->handle_release(m.ctx, a.handle));
    VRPT_OK(m.ops->unmap(m.ctx, a.ptr, a.bytes));
    assert_int_equal(((unsigned char *)y)[a.bytes - 1], 0x5a);
    assert_int_equal(sim_stats(&m).used_bytes, a.bytes);
    VRPT_OK(m.ops->unmap(m.ctx, second, a.bytes));
    assert_int_equal(sim_stats(&m).used_bytes, 0);
    VRPT_OK(m.ops->address_free(m.ctx, a.ptr, a.bytes));
    VRPT_OK(m.ops->address_free(m.ctx, second, a.bytes));
    machine_close(&m);
}

static void unmap_takes_whole_mappings_and_no_parts(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_IMMEDIATE);
    vrp_devptr base = 0;
    vrp_handle h[3];
    VRPT_OK(m.ops->address_reserve(m.ctx, 8 * GRAIN, &base));
    for (size_t i = 0; i < VRPT_COUNT(h); i++) {
        VRPT_OK(m.ops->handle_create(m.ctx, 2 * GRAIN, &h[i]));
        VRPT_OK(m.ops->map(m.ctx, base + 2 * i * GRAIN, 2 * GRAIN, h[i]));
    }
    VRPT_STATUS(m.ops->map(m.ctx, base + GRAIN, 2 * GRAIN, h[0]), VRP_INVALID_ARGUMENT);
    VRPT_OK(m.ops->set_access(m.ctx, base, 6 * GRAIN));
    VRPT_STATUS(m.ops->unmap(m.ctx, base, GRAIN), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(m.ops->unmap(m.ctx, base + GRAIN, GRAIN), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(m.ops->unmap(m.ctx, base, 8 * GRAIN), VRP_INVALID_ARGUMENT);
    assert_int_equal(sim_stats(&m).mappings, 3);
    VRPT_STATUS(m.ops->address_free(m.ctx, base, 8 * GRAIN), VRP_INVALID_ARGUMENT);
    VRPT_OK(m.ops->unmap(m.ctx, base, 6 * GRAIN));
    assert_int_equal(sim_stats(&m).mappings, 0);
    for (size_t i = 0; i < VRPT_COUNT(h); i++)
        VRPT_OK(m.ops->handle_release(m.ctx, h[i]));
    VRPT_OK(m.ops->address_free(m.ctx, base, 8 * GRAIN));
    machine_close(&m);
}

static void address_ranges_are_merged_and_used_again(void **state) {
    (void)state;
    vrp_sim_config config = {.device_bytes = 64 * VRPT_MIB, .window_bytes = 128 * VRPT_MIB};
    machine m = machine_open_with(config);
    vrp_devptr base[4], all = 0;
    for (size_t i = 0; i < VRPT_COUNT(base); i++)
        VRPT_OK(m.ops->address_reserve(m.ctx, 32 * VRPT_MIB, &base[i]));
    VRPT_STATUS(m.ops->address_reserve(m.ctx, GRAIN, &all), VRP_OUT_OF_DEVICE_MEMORY);
    VRPT_OK(m.ops->address_free(m.ctx, base[1], 32 * VRPT_MIB));
    VRPT_OK(m.ops->address_free(m.ctx, base[3], 32 * VRPT_MIB));
    VRPT_STATUS(m.ops->address_reserve(m.ctx, 64 * VRPT_MIB, &all), VRP_OUT_OF_DEVICE_MEMORY);
    VRPT_OK(m.ops->address_free(m.ctx, base[2], 32 * VRPT_MIB));
    VRPT_OK(m.ops->address_free(m.ctx, base[0], 32 * VRPT_MIB));
    VRPT_OK(m.ops->address_reserve(m.ctx, 128 * VRPT_MIB, &all));
    assert_int_equal(all, base[0]);
    VRPT_OK(m.ops->address_free(m.ctx, all, 128 * VRPT_MIB));
    machine_close(&m);
}

static void machine_without_host_memory_has_numbers_for_addresses(void **state) {
    (void)state;
    vrp_sim_config config = {.flags = VRP_SIM_NO_HOST_MEMORY, .device_bytes = 139 * VRPT_GIB};
    machine m = machine_open_with(config);
    mapped a = map_new(&m, 128 * VRPT_GIB);
    void *host = NULL;
    VRPT_STATUS(vrp_sim_host_pointer(m.sim, a.ptr, 1, &host), VRP_NOT_SUPPORTED);
    map_end(&m, a);
    machine_close(&m);
}

static void devices_have_memory_of_their_own(void **state) {
    (void)state;
    vrp_sim_config config = {.device_bytes = VRPT_GIB, .device_count = 2};
    machine m = machine_open_with(config);
    vrp_driver *second = NULL;
    void *ctx = NULL;
    vrp_devptr a = 0, b = 0;
    vrp_handle h = 0;
    VRPT_STATUS(vrp_sim_driver_create(m.sim, 2, &second), VRP_INVALID_ARGUMENT);
    VRPT_OK(vrp_sim_driver_create(m.sim, 1, &second));
    assert_ptr_equal(vrp_sim_of_driver(second), m.sim);
    (void)vrp_driver_ops_get(second, &ctx);
    VRPT_OK(m.ops->mem_alloc(m.ctx, VRPT_GIB, &a));
    VRPT_OK(m.ops->mem_alloc(ctx, VRPT_GIB / 2, &b));
    VRPT_STATUS(m.ops->mem_free(m.ctx, b), VRP_INVALID_ARGUMENT);
    VRPT_OK(m.ops->handle_create(ctx, GRAIN, &h));
    VRPT_STATUS(m.ops->handle_release(m.ctx, h), VRP_INVALID_ARGUMENT);
    VRPT_OK(m.ops->handle_release(ctx, h));
    VRPT_OK(m.ops->mem_free(m.ctx, a));
    VRPT_OK(m.ops->mem_free(ctx, b));
    vrp_driver_destroy(second);
    machine_close(&m);
}

static void leftovers_are_counted_at_the_end(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_IMMEDIATE);
    vrp_devptr ptr = 0;
    (void)map_new(&m, GRAIN); /* a range, a handle, a mapping */
    VRPT_OK(m.ops->mem_alloc(m.ctx, 1, &ptr));
    (void)event_new(&m);
    vrp_driver_destroy(m.driver);
    assert_int_equal(vrp_sim_destroy(m.sim), 5);
}

static void copy_moves_bytes_between_device_and_host(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_IMMEDIATE);
    mapped a = map_new(&m, GRAIN), b = map_new(&m, GRAIN);
    char text[16] = "across", back[16] = "";
    VRPT_OK(m.ops->copy_async(m.ctx, a.ptr, (uintptr_t)text, sizeof text, VRP_STREAM_LEGACY));
    VRPT_OK(m.ops->copy_async(m.ctx, b.ptr, a.ptr, sizeof text, VRP_STREAM_LEGACY));
    VRPT_OK(m.ops->copy_async(m.ctx, (uintptr_t)back, b.ptr, sizeof text, VRP_STREAM_LEGACY));
    assert_string_equal(back, "across");
    VRPT_STATUS(m.ops->copy_async(m.ctx, b.ptr + GRAIN - 8, a.ptr, 16, VRP_STREAM_LEGACY),
                VRP_INVALID_ARGUMENT);
    VRPT_OK(m.ops->synchronize(m.ctx));
    map_end(&m, a);
    map_end(&m, b);
    machine_close(&m);
}

/* ---- Prices, faults, hooks ---------------------------------------------------------------- */

static void prices_are_the_measured_rows_and_linear_between(void **state) {
    (void)state;
    assert_int_equal(vrp_sim_price_ns(VRP_SIM_CALL_MEM_ALLOC, 512), 30000);
    assert_int_equal(vrp_sim_price_ns(VRP_SIM_CALL_MEM_ALLOC, 32 * VRPT_MIB), 34000);
    assert_int_equal(vrp_sim_price_ns(VRP_SIM_CALL_MEM_ALLOC, 272 * VRPT_MIB), 49000);
    assert_int_equal(vrp_sim_price_ns(VRP_SIM_CALL_MEM_FREE, 2 * VRPT_GIB), 529000);
    assert_int_equal(vrp_sim_price_ns(VRP_SIM_CALL_MEM_FREE, 64 * VRPT_GIB), 529000);
    assert_int_equal(vrp_sim_price_ns(VRP_SIM_CALL_SET_ACCESS, 2 * VRPT_MIB), 18600);
    assert_int_equal(vrp_sim_price_ns(VRP_SIM_CALL_SET_ACCESS, 5 * VRPT_MIB), 18400);
    assert_int_equal(vrp_sim_price_ns(VRP_SIM_CALL_HANDLE_RELEASE, 320 * VRPT_MIB), 84900);
    assert_int_equal(vrp_sim_price_ns(VRP_SIM_CALL_EVENT_RECORD, 0), 310);
    assert_int_equal(vrp_sim_price_ns(VRP_SIM_CALL_STREAM_WAIT_EVENT, 0), 300);
    assert_int_equal(vrp_sim_price_ns(-1, 0), 0);
    assert_null(vrp_sim_call_name(VRP_SIM_CALL_COUNT));
    for (int32_t call = 0; call < (int32_t)VRP_SIM_CALL_COUNT; call++)
        assert_non_null(vrp_sim_call_name(call));
}

static void call_over_several_handles_costs_the_sum(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_IMMEDIATE);
    vrp_devptr base = 0;
    vrp_handle h[4];
    VRPT_OK(m.ops->address_reserve(m.ctx, 4 * GRAIN, &base));
    for (size_t i = 0; i < VRPT_COUNT(h); i++) {
        VRPT_OK(m.ops->handle_create(m.ctx, GRAIN, &h[i]));
        VRPT_OK(m.ops->map(m.ctx, base + i * GRAIN, GRAIN, h[i]));
    }
    uint64_t before = vrp_sim_driver_time_ns(m.sim);
    VRPT_OK(m.ops->set_access(m.ctx, base, 4 * GRAIN));
    assert_int_equal(vrp_sim_driver_time_ns(m.sim) - before, 4 * 18600);
    before = vrp_sim_driver_time_ns(m.sim);
    VRPT_STATUS(m.ops->unmap(m.ctx, base, GRAIN / 2), VRP_INVALID_ARGUMENT);
    assert_int_equal(vrp_sim_driver_time_ns(m.sim), before);
    VRPT_OK(m.ops->unmap(m.ctx, base, 4 * GRAIN));
    assert_int_equal(vrp_sim_driver_time_ns(m.sim) - before, 4 * 13200);
    assert_int_equal(vrp_sim_call_count(m.sim, VRP_SIM_CALL_MAP), 4);
    for (size_t i = 0; i < VRPT_COUNT(h); i++)
        VRPT_OK(m.ops->handle_release(m.ctx, h[i]));
    VRPT_OK(m.ops->address_free(m.ctx, base, 4 * GRAIN));
    machine_close(&m);
}

static void fault_hits_the_nth_call_as_often_as_planned(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_IMMEDIATE);
    vrp_handle h = 0;
    vrp_event e = 0;
    vrp_sim_fault_set(m.sim, VRP_SIM_CALL_HANDLE_CREATE, 2, 2, VRP_OUT_OF_DEVICE_MEMORY);
    for (int i = 1; i <= 4; i++) {
        int fails = i == 2 || i == 3;
        VRPT_STATUS(m.ops->handle_create(m.ctx, GRAIN, &h), fails ? VRP_OUT_OF_DEVICE_MEMORY : 0);
        if (!fails)
            VRPT_OK(m.ops->handle_release(m.ctx, h));
    }
    assert_int_equal(vrp_sim_call_count(m.sim, VRP_SIM_CALL_HANDLE_CREATE), 4);
    vrp_sim_fault_set(m.sim, -1, 1, UINT64_MAX, VRP_INTERNAL);
    for (int i = 0; i < 5; i++)
        VRPT_STATUS(m.ops->event_create(m.ctx, &e), VRP_INTERNAL);
    vrp_sim_fault_set(m.sim, -1, 0, 0, VRP_OK);
    VRPT_OK(m.ops->event_create(m.ctx, &e));
    event_end(&m, e);
    machine_close(&m);
}

static void lost_device_stays_lost(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_IMMEDIATE);
    uint64_t a = 0, b = 0;
    mapped range = map_new(&m, GRAIN);
    vrp_sim_fault_set(m.sim, VRP_SIM_CALL_MEM_INFO, 1, 1, VRP_DEVICE_LOST);
    VRPT_STATUS(m.ops->mem_info(m.ctx, &a, &b), VRP_DEVICE_LOST);
    VRPT_STATUS(m.ops->unmap(m.ctx, range.ptr, range.bytes), VRP_DEVICE_LOST);
    VRPT_STATUS(m.ops->synchronize(m.ctx), VRP_DEVICE_LOST);
    machine_close(&m); /* its memory went with it: nothing is left */
}

typedef struct seen {
    machine *m;
    int32_t call;
    uint64_t argument;
    uint64_t used_bytes;
} seen;

static void look(void *user, int32_t call, uint64_t argument) {
    seen *s = user;
    s->call = call;
    s->argument = argument;
    s->used_bytes = sim_stats(s->m).used_bytes; /* the machine is not locked */
}

static void hook_runs_before_the_call_and_outside_of_the_lock(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_IMMEDIATE);
    seen s = {.m = &m, .call = -1};
    vrp_devptr ptr = 0;
    vrp_sim_call_hook_set(m.sim, look, &s);
    VRPT_OK(m.ops->mem_alloc(m.ctx, 4096, &ptr));
    assert_int_equal(s.call, VRP_SIM_CALL_MEM_ALLOC);
    assert_int_equal(s.argument, 4096);
    assert_int_equal(s.used_bytes, 0);
    VRPT_OK(m.ops->mem_free(m.ctx, ptr));
    assert_int_equal(s.used_bytes, 4096);
    vrp_sim_call_hook_set(m.sim, NULL, NULL);
    VRPT_OK(m.ops->synchronize(m.ctx));
    assert_int_equal(s.call, VRP_SIM_CALL_MEM_FREE);
    machine_close(&m);
}

static void last_error_of_the_app_is_kept(void **state) {
    (void)state;
    machine m = machine_open(VRP_SIM_IMMEDIATE);
    vrp_devptr ptr = 0;
    assert_int_equal(vrp_sim_last_error_get(m.sim), 0);
    vrp_sim_last_error_set(m.sim, 77);
    VRPT_STATUS(m.ops->mem_alloc(m.ctx, 2 * VRPT_GIB, &ptr), VRP_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(vrp_sim_last_error_get(m.sim), 77);
    machine_close(&m);
}

static void bad_configurations_are_refused(void **state) {
    (void)state;
    static const vrp_sim_config bad[] = {
        {.struct_size = 0},
        {.struct_size = sizeof(vrp_sim_config), .flags = 1u << 31},
        {.struct_size = sizeof(vrp_sim_config), .completion = 4},
        {.struct_size = sizeof(vrp_sim_config), .completion = -1},
        {.struct_size = sizeof(vrp_sim_config), .granularity_bytes = 3 * VRPT_MIB},
        {.struct_size = sizeof(vrp_sim_config), .granularity_bytes = 512},
        {.struct_size = sizeof(vrp_sim_config), .device_bytes = UINT64_MAX}};
    vrp_sim *sim = NULL;
    for (size_t i = 0; i < VRPT_COUNT(bad); i++)
        VRPT_STATUS(vrp_sim_create(&bad[i], &sim), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_sim_create(NULL, NULL), VRP_INVALID_ARGUMENT);
    assert_null(sim);
    VRPT_OK(vrp_sim_create(NULL, &sim));
    assert_int_equal(vrp_sim_destroy(sim), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capacity_is_shared_by_allocations_handles_and_others),
        cmocka_unit_test(allocations_are_aligned_usable_and_apart),
        cmocka_unit_test(sizes_and_addresses_off_the_granularity_are_refused),
        cmocka_unit_test(handle_at_two_addresses_is_the_same_bytes),
        cmocka_unit_test(unmap_takes_whole_mappings_and_no_parts),
        cmocka_unit_test(address_ranges_are_merged_and_used_again),
        cmocka_unit_test(machine_without_host_memory_has_numbers_for_addresses),
        cmocka_unit_test(devices_have_memory_of_their_own),
        cmocka_unit_test(leftovers_are_counted_at_the_end),
        cmocka_unit_test(copy_moves_bytes_between_device_and_host),
        cmocka_unit_test(prices_are_the_measured_rows_and_linear_between),
        cmocka_unit_test(call_over_several_handles_costs_the_sum),
        cmocka_unit_test(fault_hits_the_nth_call_as_often_as_planned),
        cmocka_unit_test(lost_device_stays_lost),
        cmocka_unit_test(hook_runs_before_the_call_and_outside_of_the_lock),
        cmocka_unit_test(last_error_of_the_app_is_kept),
        cmocka_unit_test(bad_configurations_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
