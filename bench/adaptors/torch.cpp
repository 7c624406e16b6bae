/* SPDX-License-Identifier: MIT */
/* PyTorch's caching allocator by its C++ interface; no Python takes part. Which
 * of its modes it is follows from PYTORCH_CUDA_ALLOC_CONF when the process
 * starts. */

#include "../adaptor.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#if __has_include(<c10/cuda/PeerToPeerAccess.h>)
#include <c10/cuda/PeerToPeerAccess.h>
#define HAS_PEER_CACHE 1
#endif
#include <torch/headeronly/version.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

struct state {
    c10::DeviceIndex device;
    std::string version;
    std::string failure;
};
state the_state; /* there is one allocator in a process */

const char *create(const bench_adaptor_host *host, void **out_self) {
    try {
        the_state.device = static_cast<c10::DeviceIndex>(host->ordinal);
        c10::cuda::set_device(the_state.device);
#ifdef HAS_PEER_CACHE
        /* What importing torch does; expandable segments look into it without a check. */
        c10::cuda::detail::init_p2p_access_cache(c10::cuda::device_count());
#endif
        caching::init(c10::cuda::device_count());
        caching::emptyCache();
        caching::resetPeakStats(the_state.device);
        the_state.version = std::string("PyTorch ") + TORCH_VERSION + ", " + caching::name();
        /* Not asked of its configuration class: a second copy of that, compiled here
         * with other macros than PyTorch's own, would stand in for the library's. */
        const char *asked = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
        if (asked != nullptr && std::strstr(asked, "expandable_segments:True") != nullptr)
            the_state.version += ", expandable segments";
    } catch (const std::exception &error) {
        the_state.failure = error.what();
        return the_state.failure.c_str();
    }
    *out_self = &the_state;
    return nullptr;
}

void destroy(void *) { caching::emptyCache(); }

const char *version_text(void *) { return the_state.version.c_str(); }

uint64_t alloc(void *, size_t bytes, uint64_t stream) {
    try {
        return reinterpret_cast<uint64_t>(
            caching::raw_alloc_with_stream(bytes, reinterpret_cast<cudaStream_t>(stream)));
    } catch (const std::exception &) {
        return 0;
    }
}

void release(void *, uint64_t ptr, size_t, uint64_t) {
    caching::raw_delete(reinterpret_cast<void *>(ptr));
}

void empty_cache(void *) { caching::emptyCache(); }

uint64_t reserved(void *) {
    return static_cast<uint64_t>(
        caching::getDeviceStats(the_state.device).reserved_bytes[0].current);
}

uint64_t peak_reserved(void *) {
    return static_cast<uint64_t>(caching::getDeviceStats(the_state.device).reserved_bytes[0].peak);
}

const bench_adaptor table = {BENCH_ADAPTOR_VERSION,
                             0,
                             "torch",
                             create,
                             destroy,
                             version_text,
                             alloc,
                             release,
                             nullptr,
                             empty_cache,
                             reserved,
                             peak_reserved,
                             nullptr,
                             nullptr};

} // namespace

extern "C" __attribute__((visibility("default"))) const bench_adaptor *
bench_adaptor_get(const char *) {
    return &table;
}
