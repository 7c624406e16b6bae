/* SPDX-License-Identifier: MIT */
/* What happens around every operation: context, capture mode, errors. */

#include "driver/cuda_internal.h"

#if VRPI_HAVE_CUDA

#include "platform/error.h"
#include "platform/sync.h"

/* Numbers that the oldest headers do not name yet. */
enum {
    DEVICE_UNAVAILABLE = 46,
    CONTAINED = 226,
    TENSOR_MEMORY_LEAK = 721,
    MPS_CLIENT_TERMINATED = 810,
    EXTERNAL_DEVICE = 911
};

static _Thread_local int64_t last_native;

int64_t vrpi_cuda_last_native_error(void *ctx) {
    (void)ctx;
    return last_native;
}

vrp_status vrpi_cuda_status(CUresult result) {
    switch ((int)result) {
    case CUDA_SUCCESS:
        return VRP_OK;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return VRP_OUT_OF_DEVICE_MEMORY;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
        return VRP_INVALID_ARGUMENT;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:
        return VRP_NOT_SUPPORTED;
    /* The process ends, or somebody has reset the device. */
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_INVALID_CONTEXT: /* ours was current: it is gone */
        return VRP_SHUT_DOWN;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
    case DEVICE_UNAVAILABLE:
        return VRP_UNAVAILABLE;
    /* Every later call on the context fails with the same. */
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CONTAINED:
    case TENSOR_MEMORY_LEAK:
    case MPS_CLIENT_TERMINATED:
    case EXTERNAL_DEVICE:
        return VRP_DEVICE_LOST;
    default:
        return VRP_INTERNAL;
    }
}

vrp_status vrpi_cuda_fail(const vrpi_cuda_api *api, vrp_status status, CUresult result,
                          const char *function) {
    const char *name = NULL;
    if (api->error_name(result, &name) != CUDA_SUCCESS || name == NULL)
        name = "unknown error";
    (void)vrpi_fail(status, "%s: %s (%d)", function, name, (int)result);
    vrpi_fail_native((int64_t)result);
    last_native = (int64_t)result;
    return status;
}

static vrp_status is_lost(const vrpi_cuda *cuda, int native) {
    return vrpi_cuda_fail(cuda->api, vrpi_cuda_status((CUresult)native), (CUresult)native,
                          "lost earlier");
}

/* Somebody may have reset the device, and somebody else made the primary
 * context anew under the same handle: our memory would not be in it, and its
 * addresses may be others' by now. Only the id tells. */
static CUresult context_state(const vrpi_cuda *cuda) {
    unsigned long long id = 0;
    CUresult result;
    if (cuda->context_id == 0)
        return CUDA_SUCCESS;
    result = cuda->api->ctx_id(cuda->context, &id);
    if (result == CUDA_SUCCESS)
        return id == cuda->context_id ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    /* of any other failure the operation itself will tell */
    return vrpi_cuda_status(result) == VRP_SHUT_DOWN ? result : CUDA_SUCCESS;
}

/* What an operation is told where a stream or an address is another context's:
 * ours is alive. */
static int is_foreign(const vrpi_cuda *cuda, CUresult result) {
    return (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED) &&
           cuda->context_id != 0 && context_state(cuda) == CUDA_SUCCESS;
}

/* The context's end is kept: no later operation asks libcuda about it. */
static vrp_status ended(vrpi_cuda *cuda, CUresult result, const char *function) {
    vrp_status status = vrpi_cuda_status(result);
    if (status == VRP_DEVICE_LOST || status == VRP_SHUT_DOWN)
        atomic_store_explicit(&cuda->lost, (int)result, memory_order_relaxed);
    return vrpi_cuda_fail(cuda->api, status, result, function);
}

vrp_status vrpi_cuda_enter(void *ctx, vrpi_cuda_call *call) {
    vrpi_cuda *cuda = ctx;
    const vrpi_cuda_api *api = cuda->api;
    CUcontext current = NULL;
    CUresult result;
    /* Relaxed: a call that overlaps the failing one finds out from libcuda. */
    int native = atomic_load_explicit(&cuda->lost, memory_order_relaxed);
    if (native != 0)
        return is_lost(cuda, native);
    if (atomic_load_explicit(&vrpi_fork_count, memory_order_relaxed) != cuda->fork_count)
        return vrpi_fail(VRP_AFTER_FORK, "the CUDA driver belongs to the parent process");
    result = api->ctx_get_current(&current);
    if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT)
        current = NULL; /* one of the application's; ours is asked about next */
    else if (result != CUDA_SUCCESS)
        return ended(cuda, result, "cuCtxGetCurrent");
    result = context_state(cuda);
    if (result != CUDA_SUCCESS)
        return ended(cuda, result, "cuCtxGetId");
    call->cuda = cuda;
    call->api = api;
    call->pushed = current != cuda->context;
    if (call->pushed) {
        result = api->ctx_push(cuda->context);
        if (result != CUDA_SUCCESS)
            return ended(cuda, result, "cuCtxPushCurrent");
    }
    call->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    result = api->exchange_mode(&call->mode);
    if (result == CUDA_SUCCESS)
        return VRP_OK;
    if (call->pushed)
        (void)api->ctx_pop(&current);
    return ended(cuda, result, "cuThreadExchangeStreamCaptureMode");
}

vrp_status vrpi_cuda_leave(const vrpi_cuda_call *call, CUresult result, const char *function) {
    CUstreamCaptureMode mode = call->mode;
    CUcontext popped = NULL;
    (void)call->api->exchange_mode(&mode);
    if (call->pushed)
        (void)call->api->ctx_pop(&popped);
    if (result == CUDA_SUCCESS)
        return VRP_OK;
    if (is_foreign(call->cuda, result))
        return vrpi_cuda_fail(call->api, VRP_INVALID_ARGUMENT, result, function);
    return ended(call->cuda, result, function);
}

#endif
