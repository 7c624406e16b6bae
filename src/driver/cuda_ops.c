/* SPDX-License-Identifier: MIT */
/* Events, streams and the device as a whole, of the CUDA driver. */

#include "driver/cuda_internal.h"

#if VRPI_HAVE_CUDA

#include "platform/error.h"
#include "platform/sync.h"

#include <stdlib.h>

static CUevent event_of(vrp_event event) { return (CUevent)(uintptr_t)event; }
static CUstream stream_of(vrp_stream stream) { return (CUstream)(uintptr_t)stream; }

/* ---- The device ---------------------------------------------------------------- */

static vrp_status device_info(void *ctx, vrp_device_info *out_info) {
    const vrpi_cuda *cuda = ctx;
    return vrpi_struct_out(out_info, &cuda->info, sizeof cuda->info, "vrp_device_info");
}

static vrp_status synchronize(void *ctx) {
    vrpi_cuda_call call;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    return vrpi_cuda_leave(&call, call.api->ctx_synchronize(), "cuCtxSynchronize");
}

/* In a child of fork the reference belongs to the parent. At the end of the
 * process libcuda may be gone already; then it answers an error. */
static void destroy(void *ctx) {
    vrpi_cuda *cuda = ctx;
    if (atomic_load_explicit(&vrpi_fork_count, memory_order_relaxed) == cuda->fork_count)
        (void)cuda->api->primary_release(cuda->device);
    free(cuda);
}

/* ---- Events ---------------------------------------------------------------------- */

static vrp_status event_create(void *ctx, vrp_event *out_event) {
    vrpi_cuda_call call;
    CUevent event = NULL;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    /* Without a timestamp an event is cheaper to record and to wait for. */
    VRPI_TRY(vrpi_cuda_leave(&call, call.api->event_create(&event, CU_EVENT_DISABLE_TIMING),
                             "cuEventCreate"));
    *out_event = (vrp_event)(uintptr_t)event;
    return VRP_OK;
}

static vrp_status event_destroy(void *ctx, vrp_event event) {
    vrpi_cuda_call call;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    return vrpi_cuda_leave(&call, call.api->event_destroy(event_of(event)), "cuEventDestroy");
}

static vrp_status event_record(void *ctx, vrp_event event, vrp_stream stream) {
    vrpi_cuda_call call;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    return vrpi_cuda_leave(&call, call.api->event_record(event_of(event), stream_of(stream)),
                           "cuEventRecord");
}

static vrp_status event_query(void *ctx, vrp_event event, int *out_done) {
    vrpi_cuda_call call;
    CUresult result;
    int done;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    result = call.api->event_query(event_of(event));
    done = result != CUDA_ERROR_NOT_READY;
    VRPI_TRY(vrpi_cuda_leave(&call, done ? result : CUDA_SUCCESS, "cuEventQuery"));
    *out_done = done;
    return VRP_OK;
}

static vrp_status event_synchronize(void *ctx, vrp_event event) {
    vrpi_cuda_call call;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    return vrpi_cuda_leave(&call, call.api->event_synchronize(event_of(event)),
                           "cuEventSynchronize");
}

/* ---- Streams ---------------------------------------------------------------------- */

static vrp_status stream_wait_event(void *ctx, vrp_stream stream, vrp_event event) {
    vrpi_cuda_call call;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    return vrpi_cuda_leave(&call,
                           call.api->stream_wait_event(stream_of(stream), event_of(event), 0),
                           "cuStreamWaitEvent");
}

static vrp_status context_record(void *ctx, vrp_event event) {
    vrpi_cuda_call call;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    return vrpi_cuda_leave(&call, call.api->ctx_record(call.cuda->context, event_of(event)),
                           "cuCtxRecordEvent");
}

static vrp_status stream_id(void *ctx, vrp_stream stream, uint64_t *out_id) {
    vrpi_cuda_call call;
    unsigned long long id = 0;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    VRPI_TRY(vrpi_cuda_leave(&call, call.api->stream_id(stream_of(stream), &id), "cuStreamGetId"));
    *out_id = id;
    return VRP_OK;
}

/* The legacy stream cannot capture, but nothing may be put on it while a
 * blocking stream does: libcuda says so with an error of its own (which leaves
 * that capture alone), and here it counts as capturing. */
static vrp_status stream_is_capturing(void *ctx, vrp_stream stream, int *out_capturing) {
    vrpi_cuda_call call;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    result = call.api->stream_is_capturing(stream_of(stream), &capture);
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
        capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        result = CUDA_SUCCESS;
    }
    VRPI_TRY(vrpi_cuda_leave(&call, result, "cuStreamIsCapturing"));
    *out_capturing = capture != CU_STREAM_CAPTURE_STATUS_NONE;
    return VRP_OK;
}

static vrp_status copy_async(void *ctx, vrp_devptr dst, vrp_devptr src, uint64_t bytes,
                             vrp_stream stream) {
    vrpi_cuda_call call;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    return vrpi_cuda_leave(&call, call.api->copy_async(dst, src, bytes, stream_of(stream)),
                           "cuMemcpyDtoDAsync");
}

void vrpi_cuda_ops(const vrpi_cuda *cuda, vrp_driver_ops *ops) {
    uint32_t caps = cuda->info.caps;
    ops->device_info = device_info;
    ops->event_create = event_create;
    ops->event_destroy = event_destroy;
    ops->event_record = event_record;
    ops->event_query = event_query;
    ops->event_synchronize = event_synchronize;
    ops->synchronize = synchronize;
    ops->stream_wait_event = stream_wait_event;
    ops->context_record = (caps & VRP_CAP_CONTEXT_RECORD) != 0 ? context_record : NULL;
    ops->stream_id = (caps & VRP_CAP_STREAM_ID) != 0 ? stream_id : NULL;
    ops->stream_is_capturing = stream_is_capturing;
    ops->copy_async = copy_async;
    ops->last_native_error = vrpi_cuda_last_native_error;
    ops->destroy = destroy;
}

#endif
