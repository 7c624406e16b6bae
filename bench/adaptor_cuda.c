/* SPDX-License-Identifier: MIT */
/* cudaMalloc and cudaMallocAsync, by way of libcudart at run time. */

#include "adaptors.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Attributes of a memory pool, as the runtime numbers them. */
enum { RELEASE_THRESHOLD = 4, RESERVED_CURRENT = 5, RESERVED_HIGH = 6 };

#define RUNTIME_MAP(X)                                                           \
    X(set_device, "cudaSetDevice", (int device))                                 \
    X(version, "cudaRuntimeGetVersion", (int *out))                              \
    X(alloc, "cudaMalloc", (void **out, size_t bytes))                           \
    X(release, "cudaFree", (void *ptr))                                          \
    X(alloc_async, "cudaMallocAsync", (void **out, size_t bytes, void *stream))  \
    X(free_async, "cudaFreeAsync", (void *ptr, void *stream))                    \
    X(default_pool, "cudaDeviceGetDefaultMemPool", (void **out, int device))     \
    X(pool_set, "cudaMemPoolSetAttribute", (void *pool, int which, void *value)) \
    X(pool_get, "cudaMemPoolGetAttribute", (void *pool, int which, void *value)) \
    X(pool_trim, "cudaMemPoolTrimTo", (void *pool, size_t keep))

static struct {
#define RUNTIME_MEMBER(member, symbol, parameters) int(*member) parameters;
    RUNTIME_MAP(RUNTIME_MEMBER)
#undef RUNTIME_MEMBER
    void *pool;
    char text[64];
} runtime;

static void *open_library(void) {
    const char *names[] = {getenv("VRAMPOOL_BENCH_CUDART"), "libcudart.so.13",
                           "/usr/local/cuda/lib64/libcudart.so.13", "libcudart.so.12",
                           "/usr/local/cuda/lib64/libcudart.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = names[i] != NULL ? dlopen(names[i], RTLD_NOW | RTLD_LOCAL) : NULL;
        if (library != NULL)
            return library;
    }
    return NULL;
}

static const char *begin(const bench_adaptor_host *host) {
    int version = 0;
    void *library = open_library();
    if (!host->on_gpu)
        return "only on a GPU";
    if (library == NULL)
        return "libcudart is not found; VRAMPOOL_BENCH_CUDART may name it";
#define RUNTIME_LOAD(member, symbol, parameters)                   \
    {                                                              \
        void *address = dlsym(library, symbol);                    \
        if (address == NULL)                                       \
            return "libcudart lacks " symbol;                      \
        memcpy((void *)&runtime.member, &address, sizeof address); \
    }
    RUNTIME_MAP(RUNTIME_LOAD)
#undef RUNTIME_LOAD
    if (runtime.set_device((int)host->ordinal) != 0 || runtime.version(&version) != 0)
        return "libcudart does not take the device";
    (void)snprintf(runtime.text, sizeof runtime.text, "CUDA runtime %d.%d", version / 1000,
                   version % 1000 / 10);
    return NULL;
}

static const char *version_text(void *self) {
    (void)self;
    return runtime.text;
}

static const char *malloc_create(const bench_adaptor_host *host, void **out_self) {
    const char *reason = begin(host);
    *out_self = &runtime;
    return reason;
}

static void malloc_destroy(void *self) { (void)self; }

static uint64_t malloc_alloc(void *self, size_t bytes, uint64_t stream) {
    void *ptr = NULL;
    (void)self;
    (void)stream;
    return runtime.alloc(&ptr, bytes) == 0 ? (uint64_t)(uintptr_t)ptr : 0;
}

static void malloc_free(void *self, uint64_t ptr, size_t bytes, uint64_t stream) {
    (void)self;
    (void)bytes;
    (void)stream;
    (void)runtime.release((void *)(uintptr_t)ptr);
}

static const char *async_create(const bench_adaptor_host *host, void **out_self) {
    uint64_t threshold = strcmp(host->variant, "async-max") == 0 ? UINT64_MAX : 0;
    uint64_t zero = 0;
    const char *reason = begin(host);
    if (reason != NULL)
        return reason;
    if (runtime.default_pool(&runtime.pool, (int)host->ordinal) != 0 ||
        runtime.pool_trim(runtime.pool, 0) != 0 ||
        runtime.pool_set(runtime.pool, RELEASE_THRESHOLD, &threshold) != 0 ||
        runtime.pool_set(runtime.pool, RESERVED_HIGH, &zero) != 0)
        return "the device has no pool of its own";
    *out_self = &runtime;
    return NULL;
}

static void async_empty(void *self) {
    (void)self;
    (void)runtime.pool_trim(runtime.pool, 0);
}

static uint64_t async_alloc(void *self, size_t bytes, uint64_t stream) {
    void *ptr = NULL;
    (void)self;
    return runtime.alloc_async(&ptr, bytes, (void *)(uintptr_t)stream) == 0
               ? (uint64_t)(uintptr_t)ptr
               : 0;
}

static void async_free(void *self, uint64_t ptr, size_t bytes, uint64_t stream) {
    (void)self;
    (void)bytes;
    (void)runtime.free_async((void *)(uintptr_t)ptr, (void *)(uintptr_t)stream);
}

static uint64_t attribute(int which) {
    uint64_t value = 0;
    return runtime.pool_get(runtime.pool, which, &value) == 0 ? value : BENCH_UNKNOWN;
}

static uint64_t async_reserved(void *self) {
    (void)self;
    return attribute(RESERVED_CURRENT);
}

static uint64_t async_peak(void *self) {
    (void)self;
    return attribute(RESERVED_HIGH);
}

const bench_adaptor bench_adaptor_cuda_malloc = {.version = BENCH_ADAPTOR_VERSION,
                                                 .flags = BENCH_ADAPTOR_NO_CACHE,
                                                 .name = "cuda",
                                                 .create = malloc_create,
                                                 .destroy = malloc_destroy,
                                                 .version_text = version_text,
                                                 .alloc = malloc_alloc,
                                                 .free = malloc_free};

const bench_adaptor bench_adaptor_cuda_async = {.version = BENCH_ADAPTOR_VERSION,
                                                .name = "cuda",
                                                .create = async_create,
                                                .destroy = async_empty,
                                                .version_text = version_text,
                                                .alloc = async_alloc,
                                                .free = async_free,
                                                .empty_cache = async_empty,
                                                .reserved = async_reserved,
                                                .peak_reserved = async_peak};
