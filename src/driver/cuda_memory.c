/* SPDX-License-Identifier: MIT */
/* Memory of the CUDA driver: plain allocations and virtual memory. */

#include "driver/cuda_internal.h"

#if VRPI_HAVE_CUDA

#include "platform/error.h"

#include <string.h>

static vrp_status mem_info(void *ctx, uint64_t *out_free_bytes, uint64_t *out_total_bytes) {
    vrpi_cuda_call call;
    size_t free_bytes = 0, total_bytes = 0;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    VRPI_TRY(vrpi_cuda_leave(&call, call.api->mem_info(&free_bytes, &total_bytes), "cuMemGetInfo"));
    *out_free_bytes = free_bytes;
    *out_total_bytes = total_bytes;
    return VRP_OK;
}

/* ---- Plain allocations -------------------------------------------------------- */

static vrp_status mem_alloc(void *ctx, uint64_t bytes, vrp_devptr *out_ptr) {
    vrpi_cuda_call call;
    CUdeviceptr ptr = 0;
    vrp_status status;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    status = vrpi_cuda_leave(&call, call.api->mem_alloc(&ptr, bytes), "cuMemAlloc");
    if (status == VRP_OK)
        *out_ptr = ptr;
    else
        vrpi_fail_request(bytes);
    return status;
}

/* Waits for the whole device: that is how cuMemFree is. */
static vrp_status mem_free(void *ctx, vrp_devptr ptr) {
    vrpi_cuda_call call;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    return vrpi_cuda_leave(&call, call.api->mem_free(ptr), "cuMemFree");
}

/* ---- Virtual memory -------------------------------------------------------------- */

CUmemAllocationProp vrpi_cuda_prop(const vrpi_cuda *cuda) {
    CUmemAllocationProp prop;
    int plain = atomic_load_explicit(&cuda->plain, memory_order_relaxed);
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = cuda->device;
    if (cuda->exportable && !plain)
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (cuda->rdma && !plain)
        prop.allocFlags.gpuDirectRDMACapable = 1;
    return prop;
}

static vrp_status address_reserve(void *ctx, uint64_t bytes, vrp_devptr *out_base) {
    vrpi_cuda_call call;
    CUdeviceptr base = 0;
    vrp_status status;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    status = vrpi_cuda_leave(&call, call.api->address_reserve(&base, bytes, 0, 0, 0),
                             "cuMemAddressReserve");
    if (status == VRP_OK)
        *out_base = base;
    else
        vrpi_fail_request(bytes);
    return status;
}

static vrp_status address_free(void *ctx, vrp_devptr base, uint64_t bytes) {
    vrpi_cuda_call call;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    return vrpi_cuda_leave(&call, call.api->address_free(base, bytes), "cuMemAddressFree");
}

/* Devices claim the support of file descriptors and RDMA where the system
 * (a container, a kernel without the module) then refuses them. Such a refusal
 * turns both off for good, as long as the handle can be had without. */
static CUresult handle_create_any(vrpi_cuda_call *call, uint64_t bytes,
                                  CUmemGenericAllocationHandle *out) {
    vrpi_cuda *cuda = call->cuda;
    CUmemAllocationProp prop = vrpi_cuda_prop(cuda);
    CUresult result = call->api->handle_create(out, bytes, &prop, 0);
    CUresult again;
    if (result != CUDA_ERROR_NOT_SUPPORTED && result != CUDA_ERROR_NOT_PERMITTED &&
        result != CUDA_ERROR_INVALID_DEVICE && result != CUDA_ERROR_OPERATING_SYSTEM)
        return result;
    if (prop.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE &&
        prop.allocFlags.gpuDirectRDMACapable == 0)
        return result;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    prop.allocFlags.gpuDirectRDMACapable = 0;
    again = call->api->handle_create(out, bytes, &prop, 0);
    if (again == CUDA_SUCCESS)
        atomic_store_explicit(&cuda->plain, 1, memory_order_relaxed);
    return again;
}

static vrp_status handle_create(void *ctx, uint64_t bytes, vrp_handle *out_handle) {
    vrpi_cuda_call call;
    CUmemGenericAllocationHandle handle = 0;
    vrp_status status;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    status = vrpi_cuda_leave(&call, handle_create_any(&call, bytes, &handle), "cuMemCreate");
    if (status == VRP_OK)
        *out_handle = handle;
    else
        vrpi_fail_request(bytes);
    return status;
}

static vrp_status handle_release(void *ctx, vrp_handle handle) {
    vrpi_cuda_call call;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    return vrpi_cuda_leave(&call, call.api->handle_release(handle), "cuMemRelease");
}

static vrp_status map(void *ctx, vrp_devptr ptr, uint64_t bytes, vrp_handle handle) {
    vrpi_cuda_call call;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    return vrpi_cuda_leave(&call, call.api->map(ptr, bytes, 0, handle, 0), "cuMemMap");
}

static vrp_status set_access(void *ctx, vrp_devptr ptr, uint64_t bytes) {
    vrpi_cuda_call call;
    CUmemAccessDesc access[1 + VRPI_CUDA_PEERS_MOST];
    uint32_t count;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    count = 1 + call.cuda->peer_count;
    memset(access, 0, count * sizeof access[0]);
    for (uint32_t i = 0; i < count; i++) {
        access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access[i].location.id = i == 0 ? call.cuda->device : call.cuda->peers[i - 1];
        access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    return vrpi_cuda_leave(&call, call.api->set_access(ptr, bytes, access, count),
                           "cuMemSetAccess");
}

static vrp_status unmap(void *ctx, vrp_devptr ptr, uint64_t bytes) {
    vrpi_cuda_call call;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    return vrpi_cuda_leave(&call, call.api->unmap(ptr, bytes), "cuMemUnmap");
}

/* ---- Sharing with other processes ------------------------------------------------ */

static vrp_status handle_export(void *ctx, vrp_handle handle, int64_t *out_fd) {
    vrpi_cuda_call call;
    const vrpi_cuda *cuda = ctx;
    int fd = -1;
    if (atomic_load_explicit(&cuda->plain, memory_order_relaxed))
        return vrpi_fail(VRP_NOT_SUPPORTED, "this system has refused exportable handles");
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    VRPI_TRY(vrpi_cuda_leave(
        &call, call.api->handle_export(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "cuMemExportToShareableHandle"));
    *out_fd = fd;
    return VRP_OK;
}

static vrp_status range_export(void *ctx, vrp_devptr ptr, uint64_t bytes, int64_t *out_fd) {
    vrpi_cuda_call call;
    int fd = -1;
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    VRPI_TRY(vrpi_cuda_leave(
        &call,
        call.api->range_export(&fd, ptr, bytes, (vrpi_cuda_range_type)VRPI_CUDA_RANGE_DMA_BUF, 0),
        "cuMemGetHandleForAddressRange"));
    *out_fd = fd;
    return VRP_OK;
}

/* Of plain allocations; the handle names the whole of it, wherever ptr points. */
static vrp_status ipc_export(void *ctx, vrp_devptr ptr, unsigned char out_handle[64]) {
    vrpi_cuda_call call;
    CUipcMemHandle handle;
    memset(&handle, 0, sizeof handle);
    VRPI_TRY(vrpi_cuda_enter(ctx, &call));
    VRPI_TRY(vrpi_cuda_leave(&call, call.api->ipc_export(&handle, ptr), "cuIpcGetMemHandle"));
    memcpy(out_handle, handle.reserved, 64);
    return VRP_OK;
}

_Static_assert(sizeof(CUipcMemHandle) == 64, "what ipc_export writes");

void vrpi_cuda_memory_ops(const vrpi_cuda *cuda, vrp_driver_ops *ops) {
    ops->mem_info = mem_info;
    ops->mem_alloc = mem_alloc;
    ops->mem_free = mem_free;
    ops->handle_export = (cuda->info.caps & VRP_CAP_EXPORT_FD) != 0 ? handle_export : NULL;
    ops->range_export = (cuda->info.caps & VRP_CAP_EXPORT_DMA_BUF) != 0 ? range_export : NULL;
    ops->ipc_export = (cuda->info.caps & VRP_CAP_EXPORT_IPC) != 0 ? ipc_export : NULL;
    if ((cuda->info.caps & VRP_CAP_VMM) == 0)
        return;
    ops->address_reserve = address_reserve;
    ops->address_free = address_free;
    ops->handle_create = handle_create;
    ops->handle_release = handle_release;
    ops->map = map;
    ops->set_access = set_access;
    ops->unmap = unmap;
}

#endif
