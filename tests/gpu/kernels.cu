/* SPDX-License-Identifier: MIT */
/* The kernels behind kernels.h, over the CUDA runtime, which is linked
 * statically: the programs start where there is no GPU. */

#include "kernels.h"

#include <cuda_runtime.h>

namespace {

constexpr unsigned threads = 256;
constexpr unsigned most_blocks = 1024;
constexpr unsigned late_blocks = 64; /* all resident at once, with room for others */

vrpt_mismatches *mismatches; /* on the device */

__device__ uint32_t pattern(uint64_t where, uint64_t seed) {
    uint64_t z = where + seed * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 33)) * 0xff51afd7ed558ccdull;
    z = (z ^ (z >> 33)) * 0xc4ceb9fe1a85ec53ull;
    return static_cast<uint32_t>(z >> 32);
}

/* In nanoseconds, so that a delay is one whatever the clocks of the device do. */
__device__ void delay(uint64_t ns) {
    uint64_t begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < ns);
}

__global__ void fill(uint32_t *at, uint64_t words, uint64_t origin, uint64_t seed) {
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < words;
         i += step)
        at[i] = pattern(origin + i * 4, seed);
}

__global__ void check(const uint32_t *at, uint64_t words, uint64_t origin, uint64_t seed,
                      uint64_t delay_ns, vrpt_mismatches *out) {
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    unsigned long long bad = 0;
    if (delay_ns > 0)
        delay(delay_ns);
    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < words;
         i += step) {
        const uint32_t expected = pattern(origin + i * 4, seed);
        const uint32_t found = __ldcg(at + i); /* as other multiprocessors left it */
        if (found == expected)
            continue;
        if (bad++ == 0) {
            out->at = reinterpret_cast<uint64_t>(at + i);
            out->found = found;
            out->expected = expected;
        }
    }
    if (bad > 0)
        atomicAdd(reinterpret_cast<unsigned long long *>(&out->count), bad);
}

__global__ void spin(uint64_t ns) { delay(ns); }

cudaStream_t stream_of(uint64_t stream) {
    return reinterpret_cast<cudaStream_t>(static_cast<uintptr_t>(stream));
}

unsigned blocks_for(uint64_t words, unsigned most) {
    const uint64_t blocks = (words + threads - 1) / threads;
    return blocks > most ? most : blocks > 0 ? static_cast<unsigned>(blocks) : 1;
}

} // namespace

extern "C" int vrpt_kernels_begin(int device) {
    vrpt_mismatches none;
    cudaError_t error = cudaSetDevice(device);
    if (error == cudaSuccess)
        error = cudaMalloc(reinterpret_cast<void **>(&mismatches), sizeof *mismatches);
    if (error == cudaSuccess)
        error = cudaMemset(mismatches, 0, sizeof *mismatches);
    if (error != cudaSuccess)
        return error;
    (void)vrpt_kernel_fill(0, 0, 0, 0, 0);
    (void)vrpt_kernel_check(0, 0, 0, 0, 0, 0);
    (void)vrpt_kernel_spin(0, 0);
    return vrpt_device_finish(&none);
}

extern "C" int vrpt_kernels_thread(int device) { return cudaSetDevice(device); }

extern "C" const char *vrpt_kernels_error(int error) {
    return cudaGetErrorName(static_cast<cudaError_t>(error));
}

extern "C" int vrpt_kernel_fill(uint64_t stream, uint64_t at, uint64_t bytes, uint64_t origin,
                                uint64_t seed) {
    fill<<<blocks_for(bytes / 4, most_blocks), threads, 0, stream_of(stream)>>>(
        reinterpret_cast<uint32_t *>(at), bytes / 4, origin, seed);
    return cudaGetLastError();
}

extern "C" int vrpt_kernel_check(uint64_t stream, uint64_t at, uint64_t bytes, uint64_t origin,
                                 uint64_t seed, uint64_t delay_ns) {
    const unsigned most = delay_ns > 0 ? late_blocks : most_blocks;
    check<<<blocks_for(bytes / 4, most), threads, 0, stream_of(stream)>>>(
        reinterpret_cast<const uint32_t *>(at), bytes / 4, origin, seed, delay_ns, mismatches);
    return cudaGetLastError();
}

extern "C" int vrpt_kernel_spin(uint64_t stream, uint64_t ns) {
    spin<<<1, 1, 0, stream_of(stream)>>>(ns);
    return cudaGetLastError();
}

extern "C" int vrpt_stream_follow(uint64_t stream, uint64_t other) {
    cudaEvent_t event;
    cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error != cudaSuccess)
        return error;
    error = cudaEventRecord(event, stream_of(other));
    if (error == cudaSuccess)
        error = cudaStreamWaitEvent(stream_of(stream), event, 0);
    const cudaError_t destroyed = cudaEventDestroy(event); /* the wait stands all the same */
    return error != cudaSuccess ? error : destroyed;
}

extern "C" int vrpt_stream_finish(uint64_t stream) {
    return cudaStreamSynchronize(stream_of(stream));
}

extern "C" int vrpt_device_finish(vrpt_mismatches *out) {
    cudaError_t error = cudaDeviceSynchronize();
    if (error == cudaSuccess)
        error = cudaMemcpy(out, mismatches, sizeof *out, cudaMemcpyDeviceToHost);
    if (error == cudaSuccess)
        error = cudaMemset(mismatches, 0, sizeof *mismatches);
    return error == cudaSuccess ? cudaDeviceSynchronize() : error;
}
