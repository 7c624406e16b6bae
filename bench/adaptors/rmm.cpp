/* SPDX-License-Identifier: MIT */
/* RMM's pool and arena over cudaMalloc. What they take from the device is
 * counted on the way. */

#include "../adaptor.h"

#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/version_config.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <string>

namespace {

#define BENCH_TEXT(x) #x
#define BENCH_STRING(x) BENCH_TEXT(x)
constexpr const char *version = "RMM " BENCH_STRING(RMM_VERSION_MAJOR) "." BENCH_STRING(
    RMM_VERSION_MINOR) "." BENCH_STRING(RMM_VERSION_PATCH);

/* Initially nothing: the pool grows as it is used, as the others do. The arena
 * never grows; its default is half of what is free on the device. */
constexpr std::size_t pool_begin = 0;
constexpr std::size_t alignment = rmm::CUDA_ALLOCATION_ALIGNMENT;

std::string failure;

struct state {
    std::atomic<uint64_t> held{0};
    std::atomic<uint64_t> peak{0};
    std::unique_ptr<rmm::mr::pool_memory_resource> pool;
    std::unique_ptr<rmm::mr::arena_memory_resource> arena;

    rmm::mr::callback_memory_resource upstream() {
        return rmm::mr::callback_memory_resource(
            [this](std::size_t bytes, cuda::stream_ref stream, void *) {
                void *ptr = rmm::mr::cuda_memory_resource{}.allocate(stream, bytes);
                const uint64_t now = held += bytes;
                uint64_t most = peak;
                while (now > most && !peak.compare_exchange_weak(most, now)) {
                }
                return ptr;
            },
            [this](void *ptr, std::size_t bytes, cuda::stream_ref stream, void *) {
                rmm::mr::cuda_memory_resource{}.deallocate(stream, ptr, bytes);
                held -= bytes;
            });
    }
};

const char *create(const bench_adaptor_host *host, void **out_self) {
    try {
        if (cudaSetDevice(static_cast<int>(host->ordinal)) != cudaSuccess)
            return "no such device";
        auto self = std::make_unique<state>();
        if (std::strcmp(host->variant, "arena") == 0)
            self->arena = std::make_unique<rmm::mr::arena_memory_resource>(self->upstream());
        else
            self->pool =
                std::make_unique<rmm::mr::pool_memory_resource>(self->upstream(), pool_begin);
        *out_self = self.release();
    } catch (const std::exception &error) {
        failure = error.what();
        return failure.c_str();
    }
    return nullptr;
}

void destroy(void *self) { delete static_cast<state *>(self); }

const char *version_text(void *) { return version; }

cuda::stream_ref stream_of(uint64_t stream) {
    return cuda::stream_ref{reinterpret_cast<cudaStream_t>(stream)};
}

template <typename resource> uint64_t alloc_from(resource &from, size_t bytes, uint64_t stream) {
    try {
        return reinterpret_cast<uint64_t>(from.allocate(stream_of(stream), bytes, alignment));
    } catch (const std::exception &) {
        return 0;
    }
}

uint64_t pool_alloc(void *self, size_t bytes, uint64_t stream) {
    return alloc_from(*static_cast<state *>(self)->pool, bytes, stream);
}

void pool_free(void *self, uint64_t ptr, size_t bytes, uint64_t stream) {
    static_cast<state *>(self)->pool->deallocate(stream_of(stream), reinterpret_cast<void *>(ptr),
                                                 bytes, alignment);
}

uint64_t arena_alloc(void *self, size_t bytes, uint64_t stream) {
    return alloc_from(*static_cast<state *>(self)->arena, bytes, stream);
}

void arena_free(void *self, uint64_t ptr, size_t bytes, uint64_t stream) {
    static_cast<state *>(self)->arena->deallocate(stream_of(stream), reinterpret_cast<void *>(ptr),
                                                  bytes, alignment);
}

uint64_t reserved(void *self) { return static_cast<state *>(self)->held; }

uint64_t peak_reserved(void *self) { return static_cast<state *>(self)->peak; }

#define RMM_TABLE(alloc, free)                                                                \
    {                                                                                         \
        BENCH_ADAPTOR_VERSION, 0, "rmm", create, destroy, version_text, alloc, free, nullptr, \
            nullptr, reserved, peak_reserved, nullptr, nullptr                                \
    }
const bench_adaptor pool_table = RMM_TABLE(pool_alloc, pool_free);
const bench_adaptor arena_table = RMM_TABLE(arena_alloc, arena_free);

} // namespace

/* One table a variant: no call may look which it is. */
extern "C" __attribute__((visibility("default"))) const bench_adaptor *
bench_adaptor_get(const char *variant) {
    return std::strcmp(variant, "arena") == 0 ? &arena_table : &pool_table;
}
