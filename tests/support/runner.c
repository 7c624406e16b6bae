/* SPDX-License-Identifier: MIT */
/* Runs a group of tests over the backings of one device, and makes streams on
 * simulated and real devices. The few calls of a real device that a pool has
 * no use for are looked up at run time, so that tests link without CUDA. */

#include "vrp_test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*cu_init_fn)(unsigned);
typedef int (*cu_retain_fn)(void **, int);
typedef int (*cu_set_fn)(void *);
typedef int (*cu_stream_create_fn)(void **, unsigned);
typedef int (*cu_stream_destroy_fn)(void *);

static struct {
    cu_stream_create_fn stream_create;
    cu_stream_destroy_fn stream_destroy;
} cuda;

static void *symbol(void *library, const char *name) { return dlsym(library, name); }

/* Makes the device's primary context current on this thread. */
static int cuda_begin(int ordinal) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL)
        return 0;
    union {
        void *object;
        cu_init_fn init;
        cu_retain_fn retain;
        cu_set_fn set;
        cu_stream_create_fn create;
        cu_stream_destroy_fn destroy;
    } init, retain, set, create, destroy; /* ISO C has no cast from object to function */
    init.object = symbol(library, "cuInit");
    retain.object = symbol(library, "cuDevicePrimaryCtxRetain");
    set.object = symbol(library, "cuCtxSetCurrent");
    create.object = symbol(library, "cuStreamCreate");
    destroy.object = symbol(library, "cuStreamDestroy_v2");
    if (init.object == NULL || retain.object == NULL || set.object == NULL ||
        create.object == NULL || destroy.object == NULL)
        return 0;
    void *context = NULL;
    if (init.init(0) != 0 || retain.retain(&context, ordinal) != 0 || set.set(context) != 0)
        return 0;
    cuda.stream_create = create.create;
    cuda.stream_destroy = destroy.destroy;
    return 1;
}

vrp_stream vrpt_stream_create(vrpt *t) {
    if (t->sim != NULL) {
        vrp_stream stream = 0;
        if (vrp_sim_stream_create(t->sim, VRP_SIM_STREAM_NON_BLOCKING, &stream) != VRP_OK)
            return 0;
        return stream;
    }
    void *handle = NULL;
    if (cuda.stream_create == NULL || cuda.stream_create(&handle, 1) != 0)
        return 0;
    return (vrp_stream)(uintptr_t)handle;
}

void vrpt_stream_destroy(vrpt *t, vrp_stream stream) {
    if (t->sim != NULL)
        (void)!vrp_sim_stream_destroy(t->sim, stream);
    else if (cuda.stream_destroy != NULL)
        (void)cuda.stream_destroy((void *)(uintptr_t)stream);
}

/* 1 when the device is there and can do the backing. */
static int device_has(int32_t backing) {
    vrp_driver *driver = NULL;
    if (vrp_driver_open(vrpt_now.device, &driver) != VRP_OK)
        return 0;
    vrp_device_info info = {.struct_size = sizeof info};
    int has = vrp_driver_info_get(driver, &info) == VRP_OK &&
              (info.caps & (backing == VRP_BACKING_VMM ? VRP_CAP_VMM : VRP_CAP_MALLOC)) != 0;
    vrp_driver_destroy(driver);
    return has;
}

int vrpt_main(const char *name, const struct CMUnitTest *tests, size_t count, int argc,
              char **argv) {
    static const struct {
        const char *name;
        int32_t backing;
    } backings[] = {{"vmm", VRP_BACKING_VMM}, {"malloc", VRP_BACKING_MALLOC}};
    const char *device = getenv("VRAMPOOL_TEST_DEVICE");
    const char *only = getenv("VRAMPOOL_TEST_BACKING");
    if (argc > 1)
        device = argv[1];
    vrpt_now.device = device != NULL && *device != '\0' ? device : "sim";
    int real = vrpt_now.device[0] != 's';
    if (real && strncmp(vrpt_now.device, "cuda:", 5) != 0)
        return 2;
    if (real && !cuda_begin(atoi(vrpt_now.device + 5)))
        return VRPT_SKIP;
    int ran = 0, failed = 0;
    for (size_t i = 0; i < VRPT_COUNT(backings); i++) {
        if (only != NULL && *only != '\0' && strcmp(only, backings[i].name) != 0)
            continue;
        if (real && !device_has(backings[i].backing))
            continue;
        vrpt_now.backing = backings[i].backing;
        char group[96];
        (void)snprintf(group, sizeof group, "%s %s/%s", name, vrpt_now.device, backings[i].name);
        failed += _cmocka_run_group_tests(group, tests, count, NULL, NULL);
        ran++;
    }
    return ran == 0 ? VRPT_SKIP : failed != 0;
}
