/* SPDX-License-Identifier: MIT */
#ifndef BENCH_GPU_H
#define BENCH_GPU_H

/* What a measurement does with a GPU besides allocating: streams, timed events,
 * three kernels. libcuda is found at run time, so that the program starts where
 * there is none. Functions return CUDA's error, 0 for none. */

#include <stddef.h>
#include <stdint.h>

typedef struct bench_cu *bench_cu_handle; /* context, stream, event, module, function */

/* member, symbol, parameters */
#define BENCH_CU_MAP(X)                                                                           \
    X(init, "cuInit", (unsigned flags))                                                           \
    X(device_get, "cuDeviceGet", (int *out, int ordinal))                                         \
    X(device_name, "cuDeviceGetName", (char *out, int bytes, int device))                         \
    X(driver_version, "cuDriverGetVersion", (int *out))                                           \
    X(retain, "cuDevicePrimaryCtxRetain", (bench_cu_handle * out, int device))                    \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int device))                                      \
    X(context_set, "cuCtxSetCurrent", (bench_cu_handle context))                                  \
    X(synchronise, "cuCtxSynchronize", (void))                                                    \
    X(stream_create, "cuStreamCreate", (bench_cu_handle * out, unsigned flags))                   \
    X(stream_destroy, "cuStreamDestroy_v2", (bench_cu_handle stream))                             \
    X(stream_synchronise, "cuStreamSynchronize", (bench_cu_handle stream))                        \
    X(event_create, "cuEventCreate", (bench_cu_handle * out, unsigned flags))                     \
    X(event_destroy, "cuEventDestroy_v2", (bench_cu_handle event))                                \
    X(event_record, "cuEventRecord", (bench_cu_handle event, bench_cu_handle stream))             \
    X(event_query, "cuEventQuery", (bench_cu_handle event))                                       \
    X(event_synchronise, "cuEventSynchronize", (bench_cu_handle event))                           \
    X(mem_info, "cuMemGetInfo_v2", (size_t * out_free, size_t * out_total))                       \
    X(mem_alloc, "cuMemAlloc_v2", (uint64_t * out, size_t bytes))                                 \
    X(mem_free, "cuMemFree_v2", (uint64_t ptr))                                                   \
    X(mem_set, "cuMemsetD8_v2", (uint64_t ptr, unsigned char value, size_t bytes))                \
    X(module_load, "cuModuleLoadData", (bench_cu_handle * out, const void *image))                \
    X(module_function, "cuModuleGetFunction",                                                     \
      (bench_cu_handle * out, bench_cu_handle module, const char *name))                          \
    X(launch, "cuLaunchKernel",                                                                   \
      (bench_cu_handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, \
       unsigned bz, unsigned shared_bytes, bench_cu_handle stream, void **parameters,             \
       void **extra))

typedef struct bench_gpu {
#define BENCH_CU_MEMBER(member, symbol, parameters) int(*member) parameters;
    BENCH_CU_MAP(BENCH_CU_MEMBER)
#undef BENCH_CU_MEMBER
    /* Of version 12.8 on; where it is missing the older name does. */
    int (*event_elapsed)(float *out_ms, bench_cu_handle begin, bench_cu_handle end);
    bench_cu_handle context;
    bench_cu_handle nothing, touch, read;
    int device;
    char name[96];
    int version; /* of the driver: 13000 is CUDA 13.0 */
} bench_gpu;

/* Retains the primary context, makes it current in this thread and loads the
 * kernels, each launched once. NULL, or what is missing. */
const char *bench_gpu_open(bench_gpu *gpu, uint32_t ordinal);
void bench_gpu_close(bench_gpu *gpu);

/* Every further thread that calls the GPU begins so. */
int bench_gpu_thread(const bench_gpu *gpu);

/* A kernel that does nothing. */
int bench_gpu_nothing(const bench_gpu *gpu, uint64_t stream);

/* Writes the first byte of every 2 MiB of a block, and its last one. */
int bench_gpu_touch(const bench_gpu *gpu, uint64_t stream, uint64_t ptr, uint64_t bytes);

/* One kernel that reads the range `passes` times, as fast as the memory goes.
 * bytes is a multiple of 64; the first 4 bytes may be written. */
int bench_gpu_read(const bench_gpu *gpu, uint64_t stream, uint64_t ptr, uint64_t bytes,
                   uint32_t passes);

#endif
