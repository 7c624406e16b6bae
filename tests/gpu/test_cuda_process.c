/* SPDX-License-Identifier: MIT */
/* Pools on a device whose process or context ends: frees after libcuda's own
 * end, a reclaimer that is at work then, a device that is reset or lost under
 * the pool, and a fork.
 *
 *     test_cuda_process [cuda:N]
 *
 * It runs as test_cuda_driver.c says. Each test runs the program again, as a
 * child with a role. */

#include "gpu_support.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define BUSY_NS (300 * UINT64_C(1000000))

enum { BACKINGS = 2 };

static vrp_pool *pools[BACKINGS]; /* vmm, malloc */
static vrp_devptr live[BACKINGS], small[BACKINGS];

/* An answer that is right when the device may have gone. */
static int expected(vrp_status status) {
    return status == VRP_OK || status == VRP_SHUT_DOWN || status == VRP_DEVICE_LOST;
}

static int gone(vrp_status status) { return status == VRP_SHUT_DOWN || status == VRP_DEVICE_LOST; }

/* Two pools with live, cached and idle memory. 0, or the step that failed. */
static int pools_make(void) {
    for (int i = 0; i < BACKINGS; i++) {
        vrp_pool_config config = {.struct_size = sizeof config,
                                  .backing = i == 0 ? VRP_BACKING_VMM : VRP_BACKING_MALLOC};
        vrp_devptr ptr = 0, idle = 0;
        if (vrp_pool_create(gpu.driver, &config, &pools[i]) != VRP_OK)
            return 20;
        if (vrp_alloc(pools[i], 40 * VRPT_MIB, VRP_STREAM_LEGACY, &live[i]) != VRP_OK ||
            vrp_alloc(pools[i], 1000, VRP_STREAM_LEGACY, &small[i]) != VRP_OK ||
            vrp_alloc(pools[i], 1000, VRP_STREAM_LEGACY, &ptr) != VRP_OK ||
            vrp_alloc(pools[i], 100 * VRPT_MIB, VRP_STREAM_LEGACY, &idle) != VRP_OK)
            return 21;
        if (vrp_free(pools[i], ptr, VRP_STREAM_LEGACY) != VRP_OK ||
            vrp_free(pools[i], idle, VRP_STREAM_LEGACY) != VRP_OK)
            return 22;
    }
    return 0;
}

/* Everything that an application may still call. 0, or the step that failed. */
static int pools_unmake(void) {
    for (int i = 0; i < BACKINGS; i++) {
        if (!expected(vrp_free(pools[i], live[i], VRP_STREAM_LEGACY)) ||
            !expected(vrp_free(pools[i], small[i], VRP_STREAM_LEGACY)))
            return 30;
        if (!expected(vrp_empty_cache(pools[i], NULL)) || !expected(vrp_pool_poll(pools[i])) ||
            !expected(vrp_trim(pools[i], 0, VRP_TRIM_WAIT, NULL)))
            return 31;
        if (vrp_pool_destroy(pools[i], VRP_DESTROY_FORCE) != VRP_OK)
            return 32;
    }
    vrp_driver_destroy(gpu.driver);
    return 0;
}

/* ---- roles ---------------------------------------------------------------------------------- */

/* Registered before libcuda is loaded, so it runs after libcuda's own end. */
static void after_everything(void) {
    int step = pools_unmake();
    if (step != 0)
        _exit(step);
}

/* The reclaimer waits for a kernel, or is in the middle of giving back. */
static int child_leaves_a_reclaimer(void) {
    vrp_pool *pool = NULL;
    vrp_devptr ptrs[32];
    if (vrp_pool_create(gpu.driver, NULL, &pool) != VRP_OK)
        return 1;
    for (size_t i = 0; i < VRPT_COUNT(ptrs); i++)
        if (vrp_alloc(pool, 32 * VRPT_MIB, VRP_STREAM_LEGACY, &ptrs[i]) != VRP_OK)
            return 2;
    if (gpu_launch(cu.spin, BUSY_NS / 10, NULL) != 0)
        return 3;
    for (size_t i = 0; i < VRPT_COUNT(ptrs); i++)
        if (vrp_free(pool, ptrs[i], VRP_STREAM_LEGACY) != VRP_OK)
            return 4;
    if (vrp_empty_cache(pool, NULL) != VRP_OK)
        return 5;
    if (cu.ctx_synchronize() != 0)
        return 6;
    exit(0); /* nothing is destroyed */
}

/* A block of the program's own in the new context: nobody may touch it. */
static int own_block(uint64_t *out) {
    int (*alloc)(uint64_t * out, size_t bytes) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *address = library != NULL ? dlsym(library, "cuMemAlloc_v2") : NULL;
    memcpy(&alloc, &address, sizeof alloc);
    return alloc != NULL && alloc(out, 64 * VRPT_MIB) == 0;
}

static int device_reset(void) {
    int (*reset)(int device) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *address = library != NULL ? dlsym(library, "cuDevicePrimaryCtxReset_v2") : NULL;
    memcpy(&reset, &address, sizeof reset);
    return reset != NULL && reset(cu.device) == 0;
}

/* `anew`: the program goes on with a new context on the same device. */
static int child_resets_its_device(int anew) {
    uint32_t written = 0x5eed, read = 0;
    uint64_t block = 0;
    vrp_devptr ptr = 0;
    int step = pools_make();
    if (step != 0)
        return step;
    if (!device_reset())
        return 1;
    if (anew && (cu.retain(&cu.primary, cu.device) != 0 || cu.ctx_set(cu.primary) != 0 ||
                 !own_block(&block) || cu.to_device(block, &written, sizeof written) != 0))
        return 2;
    for (int i = 0; i < BACKINGS; i++)
        if (!gone(vrp_alloc(pools[i], 300 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr)))
            return 3;
    step = pools_unmake();
    if (step != 0)
        return step;
    if (anew && (cu.to_host(&read, block, sizeof read) != 0 || read != written))
        return 4;
    return 0;
}

/* A kernel that writes to address 0 kills the context. */
static int child_loses_its_device(void) {
    vrp_devptr ptr = 0;
    int step = pools_make();
    if (step != 0)
        return step;
    if (gpu_launch(cu.poke, 0, NULL) != 0 || gpu.ops->synchronize(gpu.ctx) != VRP_DEVICE_LOST)
        return 1;
    for (int i = 0; i < BACKINGS; i++)
        if (!gone(vrp_alloc(pools[i], 300 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr)))
            return 2;
    return pools_unmake();
}

/* The child of a process whose reclaimer waits for a kernel. */
static int child_forks(void) {
    vrp_pool *pool = NULL;
    vrp_devptr ptr = 0;
    int status = -1;
    if (vrp_pool_create(gpu.driver, NULL, &pool) != VRP_OK ||
        vrp_alloc(pool, 256 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr) != VRP_OK ||
        gpu_launch(cu.spin, BUSY_NS, NULL) != 0 ||
        vrp_free(pool, ptr, VRP_STREAM_LEGACY) != VRP_OK || vrp_empty_cache(pool, NULL) != VRP_OK)
        return 1;
    pid_t child = fork();
    if (child == 0) {
        int good = vrp_empty_cache(pool, NULL) == VRP_AFTER_FORK &&
                   vrp_pool_destroy(pool, 0) == VRP_AFTER_FORK;
        _exit(good ? 0 : 1);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        return 2;
    if (cu.ctx_synchronize() != 0)
        return 3;
    for (int i = 0; i < 5000 && vrp_pool_reserved_bytes(pool) > 0; i++)
        (void)usleep(1000);
    if (vrp_pool_reserved_bytes(pool) != 0) /* the reclaimer of the parent goes on */
        return 4;
    if (vrp_pool_destroy(pool, 0) != VRP_OK)
        return 5;
    vrp_driver_destroy(gpu.driver);
    return 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

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

static void calls_after_the_end_of_libcuda_are_quiet(void **state) {
    (void)state;
    child_ends_well("ending");
}

static void process_ends_with_a_reclaimer_at_work(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++)
        child_ends_well("leaving");
}

static void reset_device_is_gone_and_nothing_is_unmapped(void **state) {
    (void)state;
    child_ends_well("resetting");
}

static void context_made_anew_is_not_the_pools(void **state) {
    (void)state;
    child_ends_well("renewing");
}

static void lost_device_ends_pools_quietly(void **state) {
    (void)state;
    child_ends_well("losing");
}

static void fork_leaves_the_reclaimer_to_the_parent(void **state) {
    (void)state;
    child_ends_well("forking");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_after_the_end_of_libcuda_are_quiet),
        cmocka_unit_test(process_ends_with_a_reclaimer_at_work),
        cmocka_unit_test(reset_device_is_gone_and_nothing_is_unmapped),
        cmocka_unit_test(context_made_anew_is_not_the_pools),
        cmocka_unit_test(lost_device_ends_pools_quietly),
        cmocka_unit_test(fork_leaves_the_reclaimer_to_the_parent),
    };
    const char *role = argv[0];
    int ending = strcmp(role, "ending") == 0;
    int status;
    if (ending && atexit(after_everything) != 0)
        return 1;
    status = gpu_main_begin(argc, argv);
    if (status != 0) {
        if (ending)
            _exit(status); /* there are no pools yet */
        return status;
    }
    if (ending) {
        status = pools_make();
        if (status != 0)
            _exit(status);
        return 0;
    }
    if (strcmp(role, "leaving") == 0)
        return child_leaves_a_reclaimer();
    if (strcmp(role, "resetting") == 0 || strcmp(role, "renewing") == 0)
        return child_resets_its_device(strcmp(role, "renewing") == 0);
    if (strcmp(role, "losing") == 0)
        return child_loses_its_device();
    if (strcmp(role, "forking") == 0)
        return child_forks();
    status = cmocka_run_group_tests_name("cuda process", tests, NULL, NULL);
    vrp_driver_destroy(gpu.driver);
    return status;
}
