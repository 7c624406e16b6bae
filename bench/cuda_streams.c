/* SPDX-License-Identifier: MIT */
/* The few entry points of libcuda that streams take. */

#include "cuda_streams.h"

#include <dlfcn.h>
#include <string.h>

enum { NON_BLOCKING = 1 };

typedef int (*init_fn)(unsigned flags);
typedef int (*device_get_fn)(int *device, int ordinal);
typedef int (*retain_fn)(void **context, int device);
typedef int (*release_fn)(int device);
typedef int (*push_fn)(void *context);
typedef int (*pop_fn)(void **context);
typedef int (*stream_create_fn)(void **stream, unsigned flags);
typedef int (*stream_destroy_fn)(void *stream);

/* Copies an entry point into a pointer to a function; ISO C has no cast. */
static int look_up(const bench_cuda *cuda, const char *name, void *out_function, size_t bytes) {
    void *address = dlsym(cuda->library, name);
    memcpy(out_function, &address, bytes);
    return address != NULL;
}
#define LOOK_UP(cuda, name, function) look_up(cuda, name, (void *)&(function), sizeof(function))

const char *bench_cuda_open(bench_cuda *cuda, uint32_t ordinal) {
    init_fn init;
    device_get_fn device_get;
    retain_fn retain;
    memset(cuda, 0, sizeof *cuda);
    cuda->library = dlopen("libcuda.so.1", RTLD_NOW);
    if (cuda->library == NULL)
        return "there is no libcuda.so.1";
    if (!LOOK_UP(cuda, "cuInit", init) || !LOOK_UP(cuda, "cuDeviceGet", device_get) ||
        !LOOK_UP(cuda, "cuDevicePrimaryCtxRetain", retain))
        return "libcuda.so.1 lacks an entry point";
    if (init(0) != 0 || device_get(&cuda->device, (int)ordinal) != 0)
        return "no such device";
    if (retain(&cuda->context, cuda->device) != 0)
        return "its primary context cannot be had";
    return NULL;
}

void bench_cuda_close(bench_cuda *cuda) {
    release_fn release;
    if (cuda->context != NULL && LOOK_UP(cuda, "cuDevicePrimaryCtxRelease_v2", release))
        (void)release(cuda->device);
    /* The library stays: it does not expect to be unloaded. */
    memset(cuda, 0, sizeof *cuda);
}

/* Makes the context current; pop undoes it. */
static int enter(const bench_cuda *cuda, pop_fn *out_pop) {
    push_fn push;
    return LOOK_UP(cuda, "cuCtxPushCurrent_v2", push) &&
           LOOK_UP(cuda, "cuCtxPopCurrent_v2", *out_pop) && push(cuda->context) == 0;
}

int bench_cuda_stream_create(bench_cuda *cuda, uint64_t *out_stream) {
    stream_create_fn create;
    pop_fn pop;
    void *stream = NULL;
    void *context = NULL;
    if (!LOOK_UP(cuda, "cuStreamCreate", create) || !enter(cuda, &pop))
        return 0;
    int result = create(&stream, NON_BLOCKING);
    (void)pop(&context);
    *out_stream = (uint64_t)(uintptr_t)stream;
    return result == 0;
}

void bench_cuda_stream_destroy(bench_cuda *cuda, uint64_t stream) {
    stream_destroy_fn destroy;
    pop_fn pop;
    void *context = NULL;
    if (!LOOK_UP(cuda, "cuStreamDestroy_v2", destroy) || !enter(cuda, &pop))
        return;
    (void)destroy((void *)(uintptr_t)stream);
    (void)pop(&context);
}
