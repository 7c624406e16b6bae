/* SPDX-License-Identifier: MIT */
/* libcuda.so.1 of fake_cuda.h. Prototypes are those of the driver API with its
 * types as plain numbers and pointers. */

#include "fake_cuda.h"

#include <stddef.h>
#include <string.h>

#define API __attribute__((visibility("default")))

static fake_cuda fake_cuda_state;
API fake_cuda *fake_cuda_get(void);

typedef struct context {
    int device;
} context;

typedef struct access {
    int type, device;
    int flags;
} access;

static context primary[FAKE_DEVICES] = {{0}, {1}};
static _Thread_local void *stack[8];
static _Thread_local int depth;
static _Thread_local int capture_mode;
static atomic_ullong next_address = 1u << 30, next_handle = 1;

fake_cuda *fake_cuda_get(void) { return &fake_cuda_state; }

static int enter(void) {
    (void)atomic_fetch_add(&fake_cuda_state.calls, 1);
    return fake_cuda_state.deinitialized ? FAKE_DEINITIALIZED : 0;
}

/* For what works on the current context. */
static int enter_context(void) {
    int error = enter();
    if (error != 0)
        return error;
    if (depth == 0)
        return FAKE_INVALID_CONTEXT;
    if (stack[depth - 1] == &primary[0] && fake_cuda_state.reset)
        return FAKE_CONTEXT_IS_DESTROYED;
    return fake_cuda_state.illegal_address ? FAKE_ILLEGAL_ADDRESS : 0;
}

#define FAKE(name, parameters) \
    API int name parameters;   \
    int name parameters

FAKE(cuInit, (unsigned flags)) {
    (void)flags;
    return enter();
}
FAKE(cuGetErrorName, (int result, const char **out)) {
    (void)result;
    *out = "FAKE_ERROR";
    return 0;
}
FAKE(cuDeviceGetCount, (int *out)) {
    *out = FAKE_DEVICES;
    return enter();
}
FAKE(cuDeviceGet, (int *out, int ordinal)) {
    if (ordinal < 0 || ordinal >= FAKE_DEVICES)
        return 101;
    *out = ordinal;
    return enter();
}
FAKE(cuDeviceGetName, (char *name, int bytes, int device)) {
    (void)device;
    memset(name, 0, (size_t)bytes);
    memcpy(name, "fake", 4);
    return enter();
}
FAKE(cuDeviceGetAttribute, (int *out, int attribute, int device)) {
    (void)attribute;
    (void)device;
    *out = 1;
    return enter();
}
FAKE(cuDeviceTotalMem_v2, (size_t * out, int device)) {
    (void)device;
    *out = (size_t)8 << 30;
    return enter();
}
FAKE(cuDeviceCanAccessPeer, (int *out, int accessor, int owner)) {
    *out = accessor != owner && !fake_cuda_state.no_peers;
    return enter();
}

/* ---- contexts --------------------------------------------------------------------- */

FAKE(cuDevicePrimaryCtxRetain, (void **out, int device)) {
    (void)atomic_fetch_add(&fake_cuda_state.references, 1);
    *out = &primary[device];
    return enter();
}
FAKE(cuDevicePrimaryCtxRelease_v2, (int device)) {
    (void)device;
    (void)atomic_fetch_sub(&fake_cuda_state.references, 1);
    return enter();
}
FAKE(cuCtxGetId, (void *which, unsigned long long *out)) {
    int error = enter();
    if (error == 0 && which == &primary[0] && fake_cuda_state.reset)
        error = FAKE_CONTEXT_IS_DESTROYED;
    if (error == 0)
        *out = which == &primary[0] ? fake_cuda_state.context_id + 100 : 7;
    return error;
}
FAKE(cuCtxGetCurrent, (void **out)) {
    int error = enter();
    if (error == 0 && fake_cuda_state.current_is_gone && (depth == 0 || depth == 1))
        return FAKE_CONTEXT_IS_DESTROYED;
    if (error == 0)
        *out = depth > 0 ? stack[depth - 1] : NULL;
    return error;
}
FAKE(cuCtxPushCurrent_v2, (void *which)) {
    int error = enter();
    if (error == 0 && which == &primary[0] && fake_cuda_state.reset)
        error = FAKE_CONTEXT_IS_DESTROYED;
    if (error == 0)
        stack[depth++] = which;
    return error;
}
FAKE(cuCtxPopCurrent_v2, (void **out)) {
    int error = enter();
    if (error == 0 && depth == 0)
        error = FAKE_INVALID_CONTEXT;
    if (error == 0)
        *out = stack[--depth];
    return error;
}
FAKE(cuCtxSynchronize, (void)) { return enter_context(); }
FAKE(cuThreadExchangeStreamCaptureMode, (int *mode)) {
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return enter();
}

/* ---- memory ------------------------------------------------------------------------ */

FAKE(cuMemGetInfo_v2, (size_t * out_free, size_t *out_total)) {
    *out_free = *out_total = (size_t)8 << 30;
    return enter_context();
}
FAKE(cuMemAlloc_v2, (uint64_t * out, size_t bytes)) {
    int error = enter_context();
    if (error == 0 && bytes > (size_t)8 << 30)
        error = FAKE_OUT_OF_MEMORY;
    if (error == 0) {
        *out = atomic_fetch_add(&next_address, (bytes + 4194303) / 2097152 * 2097152);
        (void)atomic_fetch_add(&fake_cuda_state.allocations, 1);
    }
    return error;
}
FAKE(cuMemFree_v2, (uint64_t ptr)) {
    int error = enter_context();
    (void)ptr;
    if (error == 0)
        (void)atomic_fetch_sub(&fake_cuda_state.allocations, 1);
    return error;
}
FAKE(cuMemcpyDtoDAsync_v2, (uint64_t dst, uint64_t src, size_t bytes, void *stream)) {
    (void)dst;
    (void)src;
    (void)bytes;
    (void)stream;
    return enter_context();
}
FAKE(cuMemGetAllocationGranularity, (size_t * out, const void *prop, int which)) {
    (void)prop;
    (void)which;
    *out = 2097152;
    return enter();
}
FAKE(cuMemAddressReserve,
     (uint64_t * out, size_t bytes, size_t alignment, uint64_t hint, unsigned long long flags)) {
    int error = enter_context();
    (void)alignment;
    (void)hint;
    (void)flags;
    if (error == 0)
        *out = atomic_fetch_add(&next_address, bytes);
    return error;
}
FAKE(cuMemAddressFree, (uint64_t base, size_t bytes)) {
    (void)base;
    (void)bytes;
    return enter_context();
}
/* `prop` begins with the type and the kinds of handles asked for. */
FAKE(cuMemCreate, (uint64_t * out, size_t bytes, const int *prop, unsigned long long flags)) {
    int error = enter_context();
    (void)flags;
    if (error == 0 && fake_cuda_state.refuse_shareable && prop[1] != 0)
        error = FAKE_NOT_PERMITTED;
    if (error == 0 && bytes > (size_t)8 << 30)
        error = FAKE_OUT_OF_MEMORY;
    if (error == 0) {
        *out = atomic_fetch_add(&next_handle, 1);
        (void)atomic_fetch_add(&fake_cuda_state.handles, 1);
    }
    return error;
}
FAKE(cuMemRelease, (uint64_t handle)) {
    int error = enter_context();
    (void)handle;
    if (error == 0)
        (void)atomic_fetch_sub(&fake_cuda_state.handles, 1);
    return error;
}
FAKE(cuMemMap,
     (uint64_t ptr, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags)) {
    (void)ptr;
    (void)bytes;
    (void)handle;
    (void)flags;
    return offset != 0 ? FAKE_NOT_SUPPORTED : enter_context();
}
FAKE(cuMemSetAccess, (uint64_t ptr, size_t bytes, const access *given, size_t count)) {
    (void)ptr;
    (void)bytes;
    fake_cuda_state.access_count = (int)count;
    for (size_t i = 0; i < count; i++)
        fake_cuda_state.access_device[i] = given[i].flags == 3 ? given[i].device : -1;
    return enter_context();
}
FAKE(cuMemUnmap, (uint64_t ptr, size_t bytes)) {
    (void)ptr;
    (void)bytes;
    (void)atomic_fetch_add(&fake_cuda_state.unmaps, 1);
    return enter_context();
}
FAKE(cuMemExportToShareableHandle,
     (int *out, uint64_t handle, int type, unsigned long long flags)) {
    (void)handle;
    (void)flags;
    *out = 40 + type;
    return enter_context();
}
FAKE(cuMemGetHandleForAddressRange,
     (int *out, uint64_t ptr, size_t bytes, int type, unsigned long long flags)) {
    (void)ptr;
    (void)bytes;
    (void)flags;
    *out = 50 + type;
    return enter_context();
}
FAKE(cuIpcGetMemHandle, (unsigned char *out, uint64_t ptr)) {
    memset(out, (int)(ptr >> 21 & 0xff), 64);
    return enter_context();
}

/* ---- events and streams ---------------------------------------------------------------- */

FAKE(cuEventCreate, (void **out, unsigned flags)) {
    int error = enter_context();
    (void)flags;
    if (error == 0) {
        (void)atomic_fetch_add(&fake_cuda_state.events, 1);
        *out = &fake_cuda_state;
    }
    return error;
}
FAKE(cuEventDestroy_v2, (void *event)) {
    int error = enter_context();
    (void)event;
    if (error == 0)
        (void)atomic_fetch_sub(&fake_cuda_state.events, 1);
    return error;
}
FAKE(cuEventRecord, (void *event, void *stream)) {
    int error = enter_context();
    (void)event;
    (void)stream;
    return error == 0 && fake_cuda_state.foreign_stream ? FAKE_INVALID_CONTEXT : error;
}
FAKE(cuEventQuery, (void *event)) {
    (void)event;
    return enter_context();
}
FAKE(cuEventSynchronize, (void *event)) {
    (void)event;
    return enter_context();
}
FAKE(cuStreamWaitEvent, (void *stream, void *event, unsigned flags)) {
    (void)stream;
    (void)event;
    (void)flags;
    return enter_context();
}
FAKE(cuStreamIsCapturing, (void *stream, int *out)) {
    (void)stream;
    *out = 0;
    return enter_context();
}
FAKE(cuStreamGetId, (void *stream, unsigned long long *out)) {
    *out = (unsigned long long)(uintptr_t)stream;
    return enter_context();
}
FAKE(cuCtxRecordEvent, (void *which, void *event)) {
    (void)which;
    (void)event;
    return enter_context();
}
