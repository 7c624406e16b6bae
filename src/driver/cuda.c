/* SPDX-License-Identifier: MIT */
/* The driver object for NVIDIA GPUs: opening a device and asking what it can
 * do. Without the toolkit at build time: the answers for that. */

#include "driver/cuda_internal.h"

#include "platform/error.h"

#if VRPI_HAVE_CUDA

#include "platform/sync.h"

#include <stdlib.h>
#include <string.h>

/* A reservation of this size was seen to succeed; the device's address space
 * is larger, but no attribute tells how large. */
#define ADDRESS_BYTES (UINT64_C(64) << 40)

/* While a device is opened everything but want of memory means that there is
 * no device to be had. */
static vrp_status opening(const vrpi_cuda_api *api, CUresult result, const char *function) {
    vrp_status status =
        result == CUDA_ERROR_OUT_OF_MEMORY ? VRP_OUT_OF_DEVICE_MEMORY : VRP_UNAVAILABLE;
    return result == CUDA_SUCCESS ? VRP_OK : vrpi_cuda_fail(api, status, result, function);
}

static int has(const vrpi_cuda *cuda, CUdevice_attribute attribute) {
    int value = 0;
    return cuda->api->device_attribute(&value, attribute, cuda->device) == CUDA_SUCCESS &&
           value != 0;
}

static vrp_status device_find(vrpi_cuda *cuda, uint32_t ordinal) {
    const vrpi_cuda_api *api = cuda->api;
    int count = 0;
    VRPI_TRY(opening(api, api->init(0), "cuInit"));
    VRPI_TRY(opening(api, api->device_count(&count), "cuDeviceGetCount"));
    if (count < 0 || ordinal >= (uint32_t)count)
        return vrpi_fail(VRP_UNAVAILABLE, "no CUDA device %u: there are %d", ordinal, count);
    return opening(api, api->device_get(&cuda->device, (int)ordinal), "cuDeviceGet");
}

/* Devices that are to reach what is mapped here. The device itself always does. */
static vrp_status peers_find(vrpi_cuda *cuda, const vrp_cuda_config *config) {
    const vrpi_cuda_api *api = cuda->api;
    for (uint32_t ordinal = 0; ordinal < 64; ordinal++) {
        CUdevice peer = 0;
        int can = 0;
        if ((config->peer_mask >> ordinal & 1) == 0 || ordinal == config->ordinal)
            continue;
        if (api->device_get(&peer, (int)ordinal) != CUDA_SUCCESS)
            return vrpi_fail(VRP_UNAVAILABLE, "vrp_cuda_config.peer_mask: no CUDA device %u",
                             ordinal);
        if (api->peer_access == NULL ||
            api->peer_access(&can, peer, cuda->device) != CUDA_SUCCESS || !can)
            return vrpi_fail(VRP_NOT_SUPPORTED,
                             "CUDA device %u cannot access the memory of device %u", ordinal,
                             config->ordinal);
        if (cuda->peer_count == VRPI_CUDA_PEERS_MOST)
            return vrpi_fail(VRP_NOT_SUPPORTED, "more than %d peers", VRPI_CUDA_PEERS_MOST);
        cuda->peers[cuda->peer_count++] = peer;
    }
    return VRP_OK;
}

/* The larger of both granularities: the pool's sizes are multiples of it, and
 * less than the recommended one costs the device translation entries. */
static uint64_t granularity(const vrpi_cuda *cuda) {
    CUmemAllocationProp prop = vrpi_cuda_prop(cuda);
    size_t least = 0, recommended = 0;
    if (cuda->api->granularity(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS)
        return 0;
    if (cuda->api->granularity(&recommended, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) !=
        CUDA_SUCCESS)
        recommended = 0;
    return recommended > least ? recommended : least;
}

static vrp_status probe(vrpi_cuda *cuda, int exportable) {
    const vrpi_cuda_api *api = cuda->api;
    vrp_device_info *info = &cuda->info;
    size_t total = 0;
    VRPI_TRY(opening(api, api->device_total(&total, cuda->device), "cuDeviceTotalMem"));
    VRPI_TRY(opening(api, api->device_name(info->name, (int)sizeof info->name, cuda->device),
                     "cuDeviceGetName"));
    info->name[sizeof info->name - 1] = '\0';
    info->struct_size = (uint32_t)sizeof *info;
    info->total_bytes = total;
    info->caps = VRP_CAP_MALLOC | VRP_CAP_COPY | VRP_CAP_DEVICE_WAIT | VRP_CAP_CAPTURE |
                 VRP_CAP_ASYNC_DEVICE;
    if (api->ipc_export != NULL)
        info->caps |= VRP_CAP_EXPORT_IPC;
    if (api->range_export != NULL && has(cuda, (CUdevice_attribute)VRPI_CUDA_ATTRIBUTE_DMA_BUF))
        info->caps |= VRP_CAP_EXPORT_DMA_BUF;
    if (api->ctx_record != NULL)
        info->caps |= VRP_CAP_CONTEXT_RECORD;
    if (api->stream_id != NULL)
        info->caps |= VRP_CAP_STREAM_ID;
    info->granularity_bytes = UINT64_C(2) << 20; /* of the device's pages, also without vmm */
    if (api->address_reserve == NULL ||
        !has(cuda, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        return VRP_OK;
    cuda->exportable =
        exportable && has(cuda, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    cuda->rdma = has(cuda, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    total = granularity(cuda);
    if (total == 0)
        return VRP_OK;
    info->caps |= VRP_CAP_VMM;
    if (cuda->exportable && api->handle_export != NULL)
        info->caps |= VRP_CAP_EXPORT_FD;
    info->granularity_bytes = total;
    info->address_bytes = ADDRESS_BYTES;
    return VRP_OK;
}

/* Fills in a driver object; on failure it holds no reference. */
static vrp_status open_device(vrpi_cuda *cuda, const vrp_cuda_config *config) {
    const char *why_not;
    vrp_status status;
    cuda->api = vrpi_cuda_api_get(&why_not);
    if (cuda->api == NULL)
        return vrpi_fail(VRP_UNAVAILABLE, "%s", why_not);
    VRPI_TRY(device_find(cuda, config->ordinal));
    VRPI_TRY(peers_find(cuda, config));
    VRPI_TRY(opening(cuda->api, cuda->api->primary_retain(&cuda->context, cuda->device),
                     "cuDevicePrimaryCtxRetain"));
    if (cuda->api->ctx_id == NULL ||
        cuda->api->ctx_id(cuda->context, &cuda->context_id) != CUDA_SUCCESS)
        cuda->context_id = 0;
    status = probe(cuda, config->exportable != 0);
    if (status != VRP_OK)
        (void)cuda->api->primary_release(cuda->device);
    return status;
}

vrp_status vrp_cuda_driver_create(const vrp_cuda_config *config, vrp_driver **out_driver) {
    vrp_cuda_config known;
    vrp_driver_ops ops;
    vrp_status status;
    vrpi_cuda *cuda;
    if (out_driver == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_cuda_driver_create: out_driver is NULL");
    VRPI_TRY(vrpi_struct_in(&known, sizeof known, config, "vrp_cuda_config"));
    if (known.exportable > 1 || known.reserved != 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_cuda_config: exportable is %u, reserved is %u",
                         known.exportable, known.reserved);
    cuda = calloc(1, sizeof *cuda);
    if (cuda == NULL)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for a CUDA driver");
    vrpi_fork_watch();
    cuda->fork_count = atomic_load_explicit(&vrpi_fork_count, memory_order_relaxed);
    atomic_init(&cuda->lost, 0);
    atomic_init(&cuda->plain, 0);
    status = open_device(cuda, &known);
    if (status != VRP_OK) {
        free(cuda);
        return status;
    }
    memset(&ops, 0, sizeof ops);
    ops.struct_size = (uint32_t)sizeof ops;
    vrpi_cuda_ops(cuda, &ops);
    vrpi_cuda_memory_ops(cuda, &ops);
    status = vrp_driver_create(&ops, cuda, out_driver);
    if (status != VRP_OK)
        ops.destroy(cuda);
    return status;
}

uint32_t vrp_cuda_device_count(void) {
    const char *why_not;
    const vrpi_cuda_api *api = vrpi_cuda_api_get(&why_not);
    int count = 0;
    if (api == NULL || api->init(0) != CUDA_SUCCESS || api->device_count(&count) != CUDA_SUCCESS ||
        count < 0)
        return 0;
    return (uint32_t)count;
}

#else

vrp_status vrp_cuda_driver_create(const vrp_cuda_config *config, vrp_driver **out_driver) {
    (void)config;
    (void)out_driver;
    return vrpi_fail(VRP_NOT_SUPPORTED, "this build of vrampool has no CUDA driver");
}

uint32_t vrp_cuda_device_count(void) { return 0; }

#endif
