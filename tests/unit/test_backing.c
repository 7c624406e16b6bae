/* SPDX-License-Identifier: MIT */
/* Which backing a pool takes, and the reason that it gives. */

#include "unit_support.h"

#include <string.h>

static void says(vrp_sim *sim, int32_t asked, int32_t backing, const char *reason) {
    vrp_pool_config config = {.struct_size = sizeof config, .backing = asked};
    vrp_stats stats = {.struct_size = sizeof stats};
    vrp_driver *driver;
    vrp_pool *pool;
    char text[256] = "";
    VRPT_OK(vrp_sim_driver_create(sim, 0, &driver));
    VRPT_OK(vrp_pool_create(driver, &config, &pool));
    VRPT_OK(vrp_pool_stats_get(pool, &stats));
    assert_int_equal(stats.backing, backing);
    VRPT_OK(vrp_pool_backing_reason_get(pool, text, sizeof text));
    if (strncmp(text, reason, strlen(reason)) != 0)
        fail_msg("\"%s\", not \"%s\"", text, reason);
    VRPT_OK(vrp_pool_destroy(pool, 0));
    VRPT_STATUS(vrp_pool_backing_reason_get(pool, text, sizeof text), VRP_SHUT_DOWN);
    vrp_driver_destroy(driver);
}

static vrp_sim *machine(uint32_t flags) {
    vrp_sim_config config = {
        .struct_size = sizeof config, .flags = flags, .device_bytes = VRPT_GIB};
    vrp_sim *sim = NULL;
    VRPT_OK(vrp_sim_create(&config, &sim));
    return sim;
}

static void backing_follows_device_and_configuration(void **state) {
    (void)state;
    vrp_sim *whole = machine(0), *plain = machine(VRP_SIM_NO_VMM),
            *virtual = machine(VRP_SIM_NO_MALLOC);
    says(whole, VRP_BACKING_AUTO, VRP_BACKING_VMM, "vmm: the device supports it");
    says(whole, VRP_BACKING_VMM, VRP_BACKING_VMM, "vmm: asked for by the configuration");
    says(whole, VRP_BACKING_MALLOC, VRP_BACKING_MALLOC, "malloc: asked for by the configuration");
    says(plain, VRP_BACKING_AUTO, VRP_BACKING_MALLOC,
         "malloc: the driver has no calls for virtual memory");
    says(virtual, VRP_BACKING_AUTO, VRP_BACKING_VMM, "vmm: the device supports it");
    vrp_sim_fault_set(whole, VRP_SIM_CALL_ADDRESS_RESERVE, 1, 1, VRP_OUT_OF_DEVICE_MEMORY);
    says(whole, VRP_BACKING_AUTO, VRP_BACKING_MALLOC,
         "malloc: no address range could be reserved: ");
    assert_int_equal(vrp_sim_destroy(whole), 0);
    assert_int_equal(vrp_sim_destroy(plain), 0);
    assert_int_equal(vrp_sim_destroy(virtual), 0);
}

static void what_cannot_be_is_refused(void **state) {
    static const struct {
        uint32_t flags;
        int32_t asked;
    } cases[] = {{VRP_SIM_NO_VMM, VRP_BACKING_VMM}, {VRP_SIM_NO_MALLOC, VRP_BACKING_MALLOC}};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(cases); i++) {
        vrp_pool_config config = {.struct_size = sizeof config, .backing = cases[i].asked};
        vrp_sim *sim = machine(cases[i].flags);
        vrp_driver *driver;
        vrp_pool *pool = NULL;
        VRPT_OK(vrp_sim_driver_create(sim, 0, &driver));
        VRPT_STATUS(vrp_pool_create(driver, &config, &pool), VRP_NOT_SUPPORTED);
        assert_null(pool);
        vrp_driver_destroy(driver);
        assert_int_equal(vrp_sim_destroy(sim), 0);
    }
}

static void reason_is_cut_to_the_room_there_is(void **state) {
    vrpt t;
    char text[64];
    (void)state;
    open_pool(&t, NULL);
    for (size_t room = 1; room <= sizeof text; room++) {
        memset(text, 'x', sizeof text);
        VRPT_OK(vrp_pool_backing_reason_get(t.pool, text, room));
        assert_true(strlen(text) < room);
        for (size_t i = room; i < sizeof text; i++)
            assert_int_equal(text[i], 'x');
    }
    VRPT_STATUS(vrp_pool_backing_reason_get(t.pool, text, 0), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_pool_backing_reason_get(t.pool, NULL, 9), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_pool_backing_reason_get(NULL, text, 9), VRP_INVALID_ARGUMENT);
    close_pool(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backing_follows_device_and_configuration),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(reason_is_cut_to_the_room_there_is),
    };
    return vrpt_main("backing", tests, VRPT_COUNT(tests), argc, argv);
}
