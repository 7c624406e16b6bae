// SPDX-License-Identifier: MIT
// A program outside the project, in C++17: a container of device buffers, the
// allocator through std::allocator_traits, and errors as exceptions.

#include <vrampool/allocator.hpp>
#include <vrampool/sim.h>

#include <cstdio>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

using vrampool::device_allocator;
using vrampool::device_buffer;
using vrampool::device_ptr;

namespace {

int failures = 0;

void expect(bool holds, const char *what) {
    if (!holds) {
        std::printf("does not hold: %s\n", what);
        failures++;
    }
}
#define EXPECT(expression) expect((expression), #expression)

// A device pointer cannot be dereferenced on the host.
template <class P, class = void> struct dereferences : std::false_type {};
template <class P>
struct dereferences<P, std::void_t<decltype(*std::declval<P>())>> : std::true_type {};
static_assert(dereferences<float *>::value && !dereferences<device_ptr<float>>::value);
static_assert(!std::is_convertible_v<device_ptr<float>, float *>);
static_assert(std::is_convertible_v<device_ptr<float>, device_ptr<const float>>);
static_assert(!std::is_convertible_v<device_ptr<const float>, device_ptr<float>>);
static_assert(std::is_nothrow_move_constructible_v<device_buffer<float>>);
static_assert(!std::is_copy_constructible_v<device_buffer<float>>);

using traits = std::allocator_traits<device_allocator<float>>;
static_assert(std::is_same_v<traits::pointer, device_ptr<float>>);
static_assert(std::is_same_v<traits::rebind_alloc<int>, device_allocator<int>>);

void buffers(vrampool::pool &pool, vrp_sim *sim) {
    std::vector<device_buffer<float>> layers;
    for (std::size_t i = 1; i <= 64; i++)
        layers.emplace_back(pool, i * 1000, vrampool::placement(VRP_STREAM_LEGACY, VRP_TAG_KV));
    EXPECT(pool.stats().blocks.current == 64);

    void *host = nullptr;
    vrampool::check(
        vrp_sim_host_pointer(sim, layers[9].data().address(), layers[9].size_bytes(), &host));
    static_cast<float *>(host)[9999] = 1.5f;
    EXPECT(static_cast<const float *>(layers[9].data().raw())[9999] == 1.5f);

    layers.erase(layers.begin(), layers.begin() + 32); // moves the rest down
    EXPECT(pool.stats().blocks.current == 32);
    device_buffer<float> taken = std::move(layers.front());
    EXPECT(layers.front().empty() && !layers.front().data());
    layers.clear();
    EXPECT(pool.stats().blocks.current == 1 && taken.size() == 33000);
}

void allocator(vrampool::pool &pool) {
    device_allocator<float> a(pool);
    traits::pointer p = traits::allocate(a, 1 << 20);
    EXPECT(p + 4 - p == 4 && (p + 4).address() == p.address() + 16);
    EXPECT(pool.stats().requested_bytes.current == 4u << 20);
    traits::rebind_alloc<int> b(a);
    EXPECT(a == b);
    traits::deallocate(a, p, 1 << 20);
    EXPECT(pool.stats().blocks.current == 0);
}

void errors(vrampool::pool &pool) {
    try {
        device_buffer<double> too_much(pool, static_cast<std::size_t>(-1) / 4);
        EXPECT(!"a product that wraps is refused");
    } catch (const vrampool::error &reason) {
        EXPECT(reason.status() == VRP_INVALID_SIZE);
    }
    device_buffer<char> held(pool, 1000);
    try {
        pool.close();
        EXPECT(!"a pool with a live block is not ended");
    } catch (const vrampool::error &reason) {
        EXPECT(reason.status() == VRP_BUSY);
    }
    EXPECT(pool.stats().blocks.current == 1);
}

} // namespace

int main() {
    vrp_sim_config machine = {};
    machine.struct_size = sizeof machine;
    machine.device_bytes = 1u << 30;
    vrp_sim *sim = nullptr;
    vrp_driver *driver = nullptr;
    try {
        vrampool::check(vrp_sim_create(&machine, &sim));
        vrampool::check(vrp_sim_driver_create(sim, 0, &driver));
        vrampool::pool pool(driver);
        buffers(pool, sim);
        allocator(pool);
        errors(pool);
        EXPECT(pool.empty_cache().reserved_bytes == 0);
        pool.close();
        vrp_driver_destroy(driver);
        EXPECT(vrp_sim_destroy(sim) == 0);

        vrampool::pool by_name("sim:1GiB");
        device_buffer<float> outlives(by_name, 1000);
        by_name = vrampool::pool("sim:2GiB");
        outlives.reset(); // its pool is gone: refused, and nothing happens
    } catch (const vrampool::error &reason) {
        std::printf("%s\n", reason.what());
        return 1;
    }
    std::printf("%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
