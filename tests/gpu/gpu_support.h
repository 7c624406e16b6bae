/* SPDX-License-Identifier: MIT */
#ifndef VRPT_GPU_SUPPORT_H
#define VRPT_GPU_SUPPORT_H

/* What an application does with a GPU besides allocating: contexts, streams,
 * captures, copies to the host, two kernels. Straight calls of libcuda, found
 * at run time, so that the tests build without CUDA's headers and start
 * without its libraries. Included by one file a program. */

#include "support/vrp_test.h"

#include "vrampool/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct vrpt_cu_handle *vrpt_cu; /* context, stream, graph, module, function */

enum {
    VRPT_CU_INVALID_VALUE = 1,
    VRPT_CU_OUT_OF_MEMORY = 2,
    VRPT_CU_NON_BLOCKING = 1,
    VRPT_CU_GLOBAL = 0,
    VRPT_CU_THREAD_LOCAL = 1,
    VRPT_CU_RELAXED = 2,
    VRPT_CU_POSIX_FD = 1
};

#define VRPT_CU_MAP(X)                                                                           \
    X(init, "cuInit", (unsigned flags))                                                          \
    X(retain, "cuDevicePrimaryCtxRetain", (vrpt_cu * out, int device))                           \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int device))                                     \
    X(ctx_create, "cuCtxCreate_v2", (vrpt_cu * out, unsigned flags, int device))                 \
    X(ctx_destroy, "cuCtxDestroy_v2", (vrpt_cu context))                                         \
    X(ctx_set, "cuCtxSetCurrent", (vrpt_cu context))                                             \
    X(ctx_get, "cuCtxGetCurrent", (vrpt_cu * out))                                               \
    X(ctx_synchronize, "cuCtxSynchronize", (void))                                               \
    X(exchange_mode, "cuThreadExchangeStreamCaptureMode", (int *mode))                           \
    X(stream_create, "cuStreamCreate", (vrpt_cu * out, unsigned flags))                          \
    X(stream_destroy, "cuStreamDestroy_v2", (vrpt_cu stream))                                    \
    X(stream_synchronize, "cuStreamSynchronize", (vrpt_cu stream))                               \
    X(capture_begin, "cuStreamBeginCapture_v2", (vrpt_cu stream, int mode))                      \
    X(capture_end, "cuStreamEndCapture", (vrpt_cu stream, vrpt_cu * out_graph))                  \
    X(graph_destroy, "cuGraphDestroy", (vrpt_cu graph))                                          \
    X(to_device, "cuMemcpyHtoD_v2", (uint64_t to, const void *from, size_t bytes))               \
    X(to_host, "cuMemcpyDtoH_v2", (void *to, uint64_t from, size_t bytes))                       \
    X(export_handle, "cuMemExportToShareableHandle",                                             \
      (void *out, uint64_t handle, int type, unsigned long long flags))                          \
    X(module_load, "cuModuleLoadData", (vrpt_cu * out, const void *image))                       \
    X(module_function, "cuModuleGetFunction", (vrpt_cu * out, vrpt_cu module, const char *name)) \
    X(launch, "cuLaunchKernel",                                                                  \
      (vrpt_cu function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,        \
       unsigned bz, unsigned shared_bytes, vrpt_cu stream, void **parameters, void **extra))

static struct {
#define VRPT_CU_MEMBER(member, symbol, parameters) int(*member) parameters;
    VRPT_CU_MAP(VRPT_CU_MEMBER)
#undef VRPT_CU_MEMBER
    int device;
    vrpt_cu primary;
    vrpt_cu spin; /* (uint64_t nanoseconds): keeps its stream busy that long */
    vrpt_cu poke; /* (uint64_t address): writes there */
} cu;

static const char gpu_kernels[] = ".version 6.3\n"
                                  ".target sm_75\n"
                                  ".address_size 64\n"
                                  ".visible .entry spin(.param .u64 ns)\n"
                                  "{\n"
                                  "  .reg .u64 %t<4>;\n"
                                  "  .reg .pred %p;\n"
                                  "  ld.param.u64 %t0, [ns];\n"
                                  "  mov.u64 %t1, %globaltimer;\n"
                                  "again:\n"
                                  "  mov.u64 %t2, %globaltimer;\n"
                                  "  sub.u64 %t3, %t2, %t1;\n"
                                  "  setp.lt.u64 %p, %t3, %t0;\n"
                                  "  @%p bra again;\n"
                                  "  ret;\n"
                                  "}\n"
                                  ".visible .entry poke(.param .u64 at)\n"
                                  "{\n"
                                  "  .reg .u64 %a;\n"
                                  "  .reg .u32 %v;\n"
                                  "  ld.param.u64 %a, [at];\n"
                                  "  mov.u32 %v, 1;\n"
                                  "  st.global.u32 [%a], %v;\n"
                                  "  ret;\n"
                                  "}\n";

static inline int gpu_launch(vrpt_cu function, uint64_t argument, vrpt_cu stream) {
    void *parameters[] = {&argument};
    return cu.launch(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

/* Finds libcuda, makes the device's primary context current and loads the
 * kernels. NULL, or what is missing. */
static inline const char *gpu_begin(int device) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    vrpt_cu module = NULL;
    if (library == NULL)
        return "libcuda.so.1";
#define VRPT_CU_LOAD(member, symbol, parameters)      \
    {                                                 \
        void *address = dlsym(library, symbol);       \
        if (address == NULL)                          \
            return symbol;                            \
        memcpy(&cu.member, &address, sizeof address); \
    }
    VRPT_CU_MAP(VRPT_CU_LOAD)
#undef VRPT_CU_LOAD
    cu.device = device;
    if (cu.init(0) != 0 || cu.retain(&cu.primary, device) != 0 || cu.ctx_set(cu.primary) != 0)
        return "a context";
    if (cu.module_load(&module, gpu_kernels) != 0 ||
        cu.module_function(&cu.spin, module, "spin") != 0 ||
        cu.module_function(&cu.poke, module, "poke") != 0)
        return "the compiler for PTX";
    /* A kernel is loaded when it is first launched: not in the middle of a test. */
    return gpu_launch(cu.spin, 0, NULL) == 0 && cu.ctx_synchronize() == 0 ? NULL : "a first kernel";
}

static inline uint64_t gpu_number(vrpt_cu handle) { return (uint64_t)(uintptr_t)handle; }

/* The driver under test, its table and its context. */
typedef struct vrpt_gpu {
    vrp_driver *driver;
    const vrp_driver_ops *ops;
    void *ctx;
    vrp_device_info info;
} vrpt_gpu;

static vrpt_gpu gpu;

static inline vrp_status gpu_open(int device, uint32_t exportable, vrpt_gpu *out) {
    vrp_cuda_config config = {
        .struct_size = sizeof config, .ordinal = (uint32_t)device, .exportable = exportable};
    vrp_status status = vrp_cuda_driver_create(&config, &out->driver);
    if (status != VRP_OK)
        return status;
    out->ops = vrp_driver_ops_get(out->driver, &out->ctx);
    out->info.struct_size = sizeof out->info;
    return vrp_driver_info_get(out->driver, &out->info);
}

/* `call(address_reserve, bytes, &base)` */
#define GPU(operation, ...) gpu.ops->operation(gpu.ctx, __VA_ARGS__)

/* Every operation on memory and on events once, on no stream that captures.
 * NULL, or the first that failed. Any thread; its detail has the reason. */
static inline const char *gpu_every_call(const vrpt_gpu *g, vrp_stream stream) {
    const vrp_driver_ops *o = g->ops;
    const uint64_t bytes = g->info.granularity_bytes;
    uint64_t free_bytes, total_bytes;
    vrp_devptr base, ptr;
    vrp_handle handle;
    vrp_event event;
    int done;
#define VRPT_CALL(operation, ...)                    \
    if (o->operation(g->ctx, __VA_ARGS__) != VRP_OK) \
        return #operation;
    VRPT_CALL(mem_info, &free_bytes, &total_bytes)
    VRPT_CALL(address_reserve, bytes, &base)
    VRPT_CALL(handle_create, bytes, &handle)
    VRPT_CALL(map, base, bytes, handle)
    VRPT_CALL(set_access, base, bytes)
    VRPT_CALL(unmap, base, bytes)
    VRPT_CALL(handle_release, handle)
    VRPT_CALL(address_free, base, bytes)
    VRPT_CALL(mem_alloc, bytes, &ptr)
    VRPT_CALL(event_create, &event)
    VRPT_CALL(event_record, event, stream)
    VRPT_CALL(event_query, event, &done)
    VRPT_CALL(event_synchronize, event)
    VRPT_CALL(event_destroy, event)
    VRPT_CALL(mem_free, ptr)
#undef VRPT_CALL
    return NULL;
}

/* "cuda:N" among the arguments, else device 0. */
static inline int gpu_ordinal(int argc, char **argv) {
    int ordinal = 0;
    for (int i = 1; i < argc; i++)
        if (sscanf(argv[i], "cuda:%d", &ordinal) == 1 && ordinal >= 0)
            return ordinal;
    return 0;
}

/* What main does first. 0, or the exit status. */
static inline int gpu_main_begin(int argc, char **argv) {
    int ordinal = gpu_ordinal(argc, argv);
    const char *missing;
    if (vrp_cuda_device_count() <= (uint32_t)ordinal) {
        (void)printf("skipped: no CUDA device %d\n", ordinal);
        return VRPT_SKIP;
    }
    missing = gpu_begin(ordinal);
    if (missing != NULL) {
        (void)printf("failed: the device is there, %s is not\n", missing);
        return 1;
    }
    if (gpu_open(ordinal, 0, &gpu) != VRP_OK) {
        (void)printf("failed: %s\n", vrpt_detail());
        return 1;
    }
    return 0;
}

#endif
