/* SPDX-License-Identifier: MIT */
/* What graphs.h declares, over the CUDA runtime, linked statically, and the few
 * calls of the driver that the runtime does not have. */

#include "graphs.h"

#include <cuda.h>
#include <cuda_runtime.h>

namespace {

cudaStream_t stream_of(uint64_t stream) {
    return reinterpret_cast<cudaStream_t>(static_cast<uintptr_t>(stream));
}

cudaGraphExec_t graph_of(uint64_t graph) {
    return reinterpret_cast<cudaGraphExec_t>(static_cast<uintptr_t>(graph));
}

template <typename Function> bool entry(const char *name, Function *out) {
    cudaDriverEntryPointQueryResult found;
    void *address = nullptr;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &found);
    *out = reinterpret_cast<Function>(address);
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess && address != nullptr;
}

} // namespace

extern "C" int vrpt_capture_begin(uint64_t stream) {
    return cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeGlobal);
}

extern "C" int vrpt_capture_end(uint64_t stream, uint64_t *out_graph) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaError_t error = cudaStreamEndCapture(stream_of(stream), &graph);
    if (error == cudaSuccess)
        error = cudaGraphInstantiate(&exec, graph, 0);
    if (graph != nullptr)
        (void)cudaGraphDestroy(graph);
    *out_graph = reinterpret_cast<uintptr_t>(exec);
    return error;
}

extern "C" int vrpt_graph_launch(uint64_t graph, uint64_t stream) {
    return cudaGraphLaunch(graph_of(graph), stream_of(stream));
}

extern "C" int vrpt_graph_destroy(uint64_t graph) { return cudaGraphExecDestroy(graph_of(graph)); }

extern "C" int vrpt_unrelated_query(void) {
    static cudaEvent_t event; /* made before the capture, by the first call */
    if (event == nullptr)
        return cudaEventCreate(&event);
    return cudaEventQuery(event);
}

extern "C" int vrpt_record_and_ask(uint64_t stream, int *out_done) {
    cudaEvent_t event;
    cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error != cudaSuccess)
        return error;
    error = cudaEventRecord(event, stream_of(stream));
    const cudaError_t asked = error == cudaSuccess ? cudaEventQuery(event) : error;
    *out_done = asked == cudaSuccess;
    (void)cudaEventDestroy(event);
    return asked == cudaErrorNotReady ? cudaSuccess : asked;
}

extern "C" int vrpt_read_word(uint64_t at, uint32_t *out) {
    return cudaMemcpy(out, reinterpret_cast<void *>(static_cast<uintptr_t>(at)), sizeof *out,
                      cudaMemcpyDeviceToHost);
}

extern "C" int vrpt_import_and_read(int device, int fd, uint64_t bytes, uint32_t *out) {
    decltype(&cuMemImportFromShareableHandle) import;
    decltype(&cuMemAddressReserve) reserve;
    decltype(&cuMemMap) map;
    decltype(&cuMemSetAccess) set_access;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = 0;
    CUmemAccessDesc access = {};
    int error = cudaSetDevice(device);
    if (error == 0)
        error = cudaFree(nullptr);
    if (error != 0)
        return error;
    if (!entry("cuMemImportFromShareableHandle", &import) ||
        !entry("cuMemAddressReserve", &reserve) || !entry("cuMemMap", &map) ||
        !entry("cuMemSetAccess", &set_access))
        return CUDA_ERROR_NOT_FOUND;
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    error = import(&handle, reinterpret_cast<void *>(static_cast<intptr_t>(fd)),
                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (error == 0)
        error = reserve(&at, bytes, 0, 0, 0);
    if (error == 0)
        error = map(at, bytes, 0, handle, 0);
    if (error == 0)
        error = set_access(at, bytes, &access, 1);
    return error != 0 ? error : vrpt_read_word(at, out);
}
