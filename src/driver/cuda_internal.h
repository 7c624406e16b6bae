/* SPDX-License-Identifier: MIT */
#ifndef VRPI_CUDA_INTERNAL_H
#define VRPI_CUDA_INTERNAL_H

/* What the files of the CUDA driver share. docs/design/drivers.md says why.
 *
 *   cuda         the driver object: opening a device, its capabilities
 *   cuda_ops     the operations, but for memory: events, streams, the device
 *   cuda_memory  the operations on memory
 *   cuda_call    what happens around every operation; statuses of errors
 *   cuda_api     entry points of libcuda
 *
 * Without the toolkit (VRPI_HAVE_CUDA 0) only cuda.c has anything in it. */

#include "vrampool/cuda.h"

#ifndef VRPI_HAVE_CUDA
#define VRPI_HAVE_CUDA 0
#endif

#if VRPI_HAVE_CUDA

#include <cuda.h>
#include <stdatomic.h>

#if CUDA_VERSION < 11030
#error "the CUDA driver needs the headers of CUDA 11.3 or newer"
#endif

#if CUDA_VERSION >= 11070
typedef CUmemRangeHandleType vrpi_cuda_range_type;
#else
typedef unsigned vrpi_cuda_range_type;
#endif
/* Numbers that the oldest headers do not name. */
enum { VRPI_CUDA_RANGE_DMA_BUF = 1, VRPI_CUDA_ATTRIBUTE_DMA_BUF = 124 };

/* ---- Entry points ------------------------------------------------------------- */

/* Member, function of cuda.h, exported symbol, the CUDA version that gave it
 * this prototype, parameters. The symbols are those without a per-thread
 * default stream: stream 0 is the legacy stream. */
/* clang-format off */
#define VRPI_CUDA_REQUIRED_MAP(X)                                                                  \
    X(init, cuInit, "cuInit", 2000, (unsigned flags))                                              \
    X(error_name, cuGetErrorName, "cuGetErrorName", 6000, (CUresult result, const char **out))     \
    X(device_count, cuDeviceGetCount, "cuDeviceGetCount", 2000, (int *out))                        \
    X(device_get, cuDeviceGet, "cuDeviceGet", 2000, (CUdevice *out, int ordinal))                  \
    X(device_name, cuDeviceGetName, "cuDeviceGetName", 2000, (char *name, int bytes, CUdevice d))  \
    X(device_attribute, cuDeviceGetAttribute, "cuDeviceGetAttribute", 2000,                        \
      (int *out, CUdevice_attribute attribute, CUdevice d))                                        \
    X(device_total, cuDeviceTotalMem, "cuDeviceTotalMem_v2", 3020, (size_t *out, CUdevice d))      \
    X(primary_retain, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000,                  \
      (CUcontext *out, CUdevice d))                                                                \
    X(primary_release, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", 11000,           \
      (CUdevice d))                                                                                \
    X(ctx_get_current, cuCtxGetCurrent, "cuCtxGetCurrent", 4000, (CUcontext *out))                 \
    X(ctx_push, cuCtxPushCurrent, "cuCtxPushCurrent_v2", 4000, (CUcontext context))                \
    X(ctx_pop, cuCtxPopCurrent, "cuCtxPopCurrent_v2", 4000, (CUcontext *out))                      \
    X(ctx_synchronize, cuCtxSynchronize, "cuCtxSynchronize", 2000, (void))                         \
    X(exchange_mode, cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode",       \
      10010, (CUstreamCaptureMode *mode))                                                          \
    X(mem_info, cuMemGetInfo, "cuMemGetInfo_v2", 3020, (size_t *out_free, size_t *out_total))      \
    X(mem_alloc, cuMemAlloc, "cuMemAlloc_v2", 3020, (CUdeviceptr *out, size_t bytes))              \
    X(mem_free, cuMemFree, "cuMemFree_v2", 3020, (CUdeviceptr ptr))                                \
    X(copy_async, cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", 3020,                                 \
      (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))                           \
    X(event_create, cuEventCreate, "cuEventCreate", 2000, (CUevent *out, unsigned flags))          \
    X(event_destroy, cuEventDestroy, "cuEventDestroy_v2", 4000, (CUevent event))                   \
    X(event_record, cuEventRecord, "cuEventRecord", 2000, (CUevent event, CUstream stream))        \
    X(event_query, cuEventQuery, "cuEventQuery", 2000, (CUevent event))                            \
    X(event_synchronize, cuEventSynchronize, "cuEventSynchronize", 2000, (CUevent event))          \
    X(stream_wait_event, cuStreamWaitEvent, "cuStreamWaitEvent", 3020,                             \
      (CUstream stream, CUevent event, unsigned flags))                                            \
    X(stream_is_capturing, cuStreamIsCapturing, "cuStreamIsCapturing", 10000,                      \
      (CUstream stream, CUstreamCaptureStatus *out))

#define VRPI_CUDA_VMM_MAP(X)                                                                       \
    X(address_reserve, cuMemAddressReserve, "cuMemAddressReserve", 10020,                          \
      (CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr hint,                         \
       unsigned long long flags))                                                                  \
    X(address_free, cuMemAddressFree, "cuMemAddressFree", 10020, (CUdeviceptr base, size_t bytes)) \
    X(handle_create, cuMemCreate, "cuMemCreate", 10020,                                            \
      (CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,           \
       unsigned long long flags))                                                                  \
    X(handle_release, cuMemRelease, "cuMemRelease", 10020, (CUmemGenericAllocationHandle handle))  \
    X(map, cuMemMap, "cuMemMap", 10020,                                                            \
      (CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,          \
       unsigned long long flags))                                                                  \
    X(set_access, cuMemSetAccess, "cuMemSetAccess", 10020,                                         \
      (CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *access, size_t count))                \
    X(unmap, cuMemUnmap, "cuMemUnmap", 10020, (CUdeviceptr ptr, size_t bytes))                     \
    X(granularity, cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity", 10020,          \
      (size_t *out, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags which))

/* Optional, one by one; some are newer than the oldest headers that this is built with. */
#define VRPI_CUDA_NEWER_MAP(X)                                                                     \
    X(stream_id, cuStreamGetId, "cuStreamGetId", 12000,                                            \
      (CUstream stream, unsigned long long *out))                                                  \
    X(ctx_id, cuCtxGetId, "cuCtxGetId", 12000, (CUcontext context, unsigned long long *out))       \
    X(peer_access, cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", 4000,                           \
      (int *out, CUdevice accessor, CUdevice owner))                                               \
    X(handle_export, cuMemExportToShareableHandle, "cuMemExportToShareableHandle", 10020,          \
      (void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,             \
       unsigned long long flags))                                                                  \
    X(range_export, cuMemGetHandleForAddressRange, "cuMemGetHandleForAddressRange", 11070,         \
      (void *out, CUdeviceptr ptr, size_t bytes, vrpi_cuda_range_type type,                        \
       unsigned long long flags))                                                                  \
    X(ipc_export, cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010,                                    \
      (CUipcMemHandle *out, CUdeviceptr ptr))                                                      \
    X(ctx_record, cuCtxRecordEvent, "cuCtxRecordEvent", 12050, (CUcontext context, CUevent event))
/* clang-format on */

typedef struct vrpi_cuda_api {
#define VRPI_CUDA_MEMBER(member, function, symbol, version, parameters) \
    CUresult(CUDAAPI *member) parameters;
    VRPI_CUDA_REQUIRED_MAP(VRPI_CUDA_MEMBER)
    VRPI_CUDA_VMM_MAP(VRPI_CUDA_MEMBER)   /* all or none */
    VRPI_CUDA_NEWER_MAP(VRPI_CUDA_MEMBER) /* NULL where the driver is older */
#undef VRPI_CUDA_MEMBER
} vrpi_cuda_api;

/* ---- The driver object ----------------------------------------------------------- */

enum { VRPI_CUDA_PEERS_MOST = 63 };

typedef struct vrpi_cuda {
    const vrpi_cuda_api *api;
    CUdevice device;
    CUcontext context;   /* primary, one reference is ours */
    unsigned fork_count; /* vrpi_fork_count at creation */
    atomic_int lost;     /* the CUresult that told of the context's end, 0 while it is alive */
    atomic_int plain;    /* 1: handles are made without fd and RDMA, see handle_create */
    int exportable, rdma;
    unsigned long long context_id; /* 0: the driver is too old to say */
    uint32_t peer_count;
    CUdevice peers[VRPI_CUDA_PEERS_MOST]; /* may access what is mapped */
    vrp_device_info info;
} vrpi_cuda;

/* One operation in progress. */
typedef struct vrpi_cuda_call {
    vrpi_cuda *cuda;
    const vrpi_cuda_api *api;
    int pushed;
    CUstreamCaptureMode mode; /* of the thread, before */
} vrpi_cuda_call;

/* ---- cuda_api ---- */
/* The table, loaded at the first call. NULL without libcuda or where it is too
 * old: *out_why_not is the reason then. Any thread. */
const vrpi_cuda_api *vrpi_cuda_api_get(const char **out_why_not);

/* ---- cuda_call ---- */
/* Begins an operation: the primary context is current and the thread is in
 * relaxed capture mode. On VRP_OK vrpi_cuda_leave must follow. */
vrp_status vrpi_cuda_enter(void *ctx, vrpi_cuda_call *call);
/* Puts both back and turns the result of `function` into a status. */
vrp_status vrpi_cuda_leave(const vrpi_cuda_call *call, CUresult result, const char *function);
/* The status of a result. */
vrp_status vrpi_cuda_status(CUresult result);
/* Sets the thread's detail and native error. */
vrp_status vrpi_cuda_fail(const vrpi_cuda_api *api, vrp_status status, CUresult result,
                          const char *function);
int64_t vrpi_cuda_last_native_error(void *ctx);

/* ---- cuda_memory ---- */
/* What physical memory of the driver is like. */
CUmemAllocationProp vrpi_cuda_prop(const vrpi_cuda *cuda);
void vrpi_cuda_memory_ops(const vrpi_cuda *cuda, vrp_driver_ops *ops);

/* ---- cuda_ops ---- */
void vrpi_cuda_ops(const vrpi_cuda *cuda, vrp_driver_ops *ops);

#endif
#endif
