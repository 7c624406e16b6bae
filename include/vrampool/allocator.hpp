// SPDX-License-Identifier: MIT
#ifndef VRAMPOOL_ALLOCATOR_HPP
#define VRAMPOOL_ALLOCATOR_HPP

// vrampool for C++17, header only: a pool handle, a device pointer that the
// host cannot dereference, an owning device buffer, and an allocator.
//
//     vrampool::pool pool("sim:8GiB");                    // or "cuda:0"
//     vrampool::device_buffer<float> x(pool, 1024, stream);
//     kernel<<<grid, block, 0, s>>>(x.data().raw(), x.size());
//                                                         // freed on its stream
//
// Errors are vrampool::error exceptions, which carry the status. Destructors
// and deallocate() cannot throw: a refused free there shows in the pool's
// bad_frees counter. Constructors of elements are never run: device memory
// holds trivially copyable types.
//
// Containers. A std::vector of device_buffer<T> works as of any movable type.
// A std::vector<T, device_allocator<T>> does not compile, and must not: a
// container constructs its elements on the host. device_allocator serves code
// that only allocates through std::allocator_traits.

#include "vrampool.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace vrampool {

/// A call that did not answer VRP_OK. what() says which and why.
class error : public std::runtime_error {
  public:
    explicit error(vrp_status status) : std::runtime_error(text(status)), status_(status) {}
    vrp_status status() const noexcept { return status_; }

  private:
    static std::string text(vrp_status status) {
        std::string result = vrp_status_name(status);
        result += ": ";
        vrp_error_detail detail = {};
        detail.struct_size = sizeof detail;
        const bool known = vrp_error_detail_get(&detail) == VRP_OK && detail.status == status &&
                           detail.message[0] != '\0';
        result += known ? detail.message : vrp_status_message(status);
        return result;
    }

    vrp_status status_;
};

/// Throws error unless the status is VRP_OK.
inline void check(vrp_status status) {
    if (status != VRP_OK)
        throw error(status);
}

namespace detail {
// For calls whose failure has nobody to tell: destructors.
inline void drop(vrp_status) noexcept {}

template <class T> constexpr std::size_t size_of() noexcept {
    if constexpr (std::is_void_v<T>)
        return 1;
    else
        return sizeof(T);
}
} // namespace detail

/// The address of a T in device memory. Has the arithmetic and comparisons of
/// a pointer, and no dereference: raw() gives the T * to pass to a kernel.
template <class T> class device_ptr {
  public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;
    using difference_type = std::ptrdiff_t;
    template <class U> using rebind = device_ptr<U>;

    constexpr device_ptr() noexcept = default;
    constexpr device_ptr(std::nullptr_t) noexcept {}
    explicit constexpr device_ptr(vrp_devptr address) noexcept : address_(address) {}

    /// As for pointers: to const, and to void.
    template <class U,
              class = std::enable_if_t<!std::is_same_v<U, T> && std::is_convertible_v<U *, T *>>>
    constexpr device_ptr(device_ptr<U> other) noexcept : address_(other.address()) {}

    constexpr vrp_devptr address() const noexcept { return address_; }
    explicit constexpr operator bool() const noexcept { return address_ != 0; }

    /// For calls that take a pointer, kernels and copies; not for the host.
    T *raw() const noexcept { return reinterpret_cast<T *>(static_cast<std::uintptr_t>(address_)); }

    constexpr device_ptr &operator+=(difference_type n) noexcept {
        address_ += static_cast<vrp_devptr>(n) * detail::size_of<T>();
        return *this;
    }
    constexpr device_ptr &operator-=(difference_type n) noexcept {
        address_ -= static_cast<vrp_devptr>(n) * detail::size_of<T>();
        return *this;
    }
    constexpr device_ptr &operator++() noexcept { return *this += 1; }
    constexpr device_ptr &operator--() noexcept { return *this -= 1; }
    constexpr device_ptr operator++(int) noexcept {
        device_ptr before = *this;
        *this += 1;
        return before;
    }
    constexpr device_ptr operator--(int) noexcept {
        device_ptr before = *this;
        *this -= 1;
        return before;
    }
    friend constexpr device_ptr operator+(device_ptr p, difference_type n) noexcept {
        return p += n;
    }
    friend constexpr device_ptr operator+(difference_type n, device_ptr p) noexcept {
        return p += n;
    }
    friend constexpr device_ptr operator-(device_ptr p, difference_type n) noexcept {
        return p -= n;
    }
    friend constexpr difference_type operator-(device_ptr a, device_ptr b) noexcept {
        return static_cast<difference_type>(a.address_ - b.address_) /
               static_cast<difference_type>(detail::size_of<T>());
    }
    friend constexpr bool operator==(device_ptr a, device_ptr b) noexcept {
        return a.address_ == b.address_;
    }
    friend constexpr bool operator!=(device_ptr a, device_ptr b) noexcept { return !(a == b); }
    friend constexpr bool operator<(device_ptr a, device_ptr b) noexcept {
        return a.address_ < b.address_;
    }
    friend constexpr bool operator>(device_ptr a, device_ptr b) noexcept { return b < a; }
    friend constexpr bool operator<=(device_ptr a, device_ptr b) noexcept { return !(b < a); }
    friend constexpr bool operator>=(device_ptr a, device_ptr b) noexcept { return !(a < b); }

  private:
    vrp_devptr address_ = 0;
};

/// What an allocation is for, and on which stream it is used.
struct placement {
    vrp_stream stream = VRP_STREAM_LEGACY;
    std::int32_t tag = VRP_TAG_OTHER;
    vrp_scope scope = 0;
    std::size_t alignment = 0; ///< 0: VRP_ALIGNMENT_MIN

    placement() = default;
    placement(vrp_stream on) : stream(on) {}
    placement(vrp_stream on, std::int32_t what, vrp_scope in = 0, std::size_t align = 0)
        : stream(on), tag(what), scope(in), alignment(align) {}
};

namespace detail {
inline vrp_devptr allocate(vrp_pool *pool, std::size_t count, std::size_t element_bytes,
                           const placement &where) {
    vrp_alloc_info info = {};
    info.struct_size = sizeof info;
    // A product that wraps becomes a size that the pool refuses by name.
    info.bytes = count > std::numeric_limits<std::size_t>::max() / element_bytes
                     ? std::numeric_limits<std::size_t>::max()
                     : count * element_bytes;
    info.alignment = where.alignment;
    info.stream = where.stream;
    info.tag = where.tag;
    info.scope = where.scope;
    vrp_devptr address = 0;
    check(vrp_alloc_ex(pool, &info, &address));
    return address;
}
} // namespace detail

/// A pool. Movable; ends the pool when it goes, giving up blocks that are
/// still live (their buffers' later frees answer SHUT_DOWN and do nothing).
/// close() is the strict ending.
class pool {
  public:
    /// Opens the driver by name, "sim:8GiB" or "cuda:0", and owns it.
    explicit pool(const char *device, const vrp_pool_config *config = nullptr) {
        check(vrp_driver_open(device, &driver_));
        const vrp_status status = vrp_pool_create(driver_, config, &pool_);
        if (status != VRP_OK) {
            error reason(status); // reads the detail before another call replaces it
            vrp_driver_destroy(driver_);
            throw reason;
        }
    }
    /// On a driver of the caller's, which must outlive the pool.
    explicit pool(vrp_driver *driver, const vrp_pool_config *config = nullptr) {
        check(vrp_pool_create(driver, config, &pool_));
    }
    pool(pool &&other) noexcept
        : driver_(std::exchange(other.driver_, nullptr)),
          pool_(std::exchange(other.pool_, nullptr)) {}
    pool &operator=(pool &&other) noexcept {
        if (this != &other) {
            end();
            driver_ = std::exchange(other.driver_, nullptr);
            pool_ = std::exchange(other.pool_, nullptr);
        }
        return *this;
    }
    pool(const pool &) = delete;
    pool &operator=(const pool &) = delete;
    ~pool() { end(); }

    /// Ends the pool; throws BUSY while blocks are live, and goes on as before.
    void close() {
        check(vrp_pool_destroy(pool_, 0));
        pool_ = nullptr;
        end();
    }

    vrp_pool *get() const noexcept { return pool_; }

    vrp_stats stats() const {
        vrp_stats result = {};
        result.struct_size = sizeof result;
        check(vrp_pool_stats_get(pool_, &result));
        return result;
    }
    vrp_trim_result empty_cache() { return trim(0); }
    vrp_trim_result trim(std::uint64_t target_bytes, std::uint32_t flags = 0) {
        vrp_trim_result result = {};
        result.struct_size = sizeof result;
        check(vrp_trim(pool_, target_bytes, flags, &result));
        return result;
    }
    void poll() { check(vrp_pool_poll(pool_)); }
    void forget(vrp_stream stream) { check(vrp_stream_forget(pool_, stream)); }

  private:
    void end() noexcept {
        if (pool_ != nullptr)
            detail::drop(vrp_pool_destroy(pool_, VRP_DESTROY_FORCE));
        if (driver_ != nullptr)
            vrp_driver_destroy(driver_);
        pool_ = nullptr;
        driver_ = nullptr;
    }

    vrp_driver *driver_ = nullptr; // owned, or null
    vrp_pool *pool_ = nullptr;
};

/// An array of T in device memory. Owns one block and frees it on stream().
template <class T> class device_buffer {
    static_assert(std::is_trivially_copyable_v<T>, "device memory holds trivially copyable types");

  public:
    using value_type = T;
    using size_type = std::size_t;
    using pointer = device_ptr<T>;
    using const_pointer = device_ptr<const T>;

    device_buffer() noexcept = default;
    /// The contents are undefined. The pool is borrowed.
    device_buffer(pool &from, size_type count, const placement &where = {})
        : device_buffer(from.get(), count, where) {}
    device_buffer(vrp_pool *from, size_type count, const placement &where = {})
        : pool_(from), size_(count), stream_(where.stream),
          data_(detail::allocate(from, count, sizeof(T), where)) {}
    device_buffer(device_buffer &&other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), size_(std::exchange(other.size_, 0)),
          stream_(other.stream_), data_(std::exchange(other.data_, nullptr)) {}
    device_buffer &operator=(device_buffer &&other) noexcept {
        device_buffer(std::move(other)).swap(*this);
        return *this;
    }
    device_buffer(const device_buffer &) = delete;
    device_buffer &operator=(const device_buffer &) = delete;
    ~device_buffer() { reset(); }

    pointer data() noexcept { return data_; }
    const_pointer data() const noexcept { return data_; }
    size_type size() const noexcept { return size_; }
    size_type size_bytes() const noexcept { return size_ * sizeof(T); }
    bool empty() const noexcept { return size_ == 0; }

    /// The stream that the free will belong to: that of the last use.
    vrp_stream stream() const noexcept { return stream_; }
    void set_stream(vrp_stream stream) noexcept { stream_ = stream; }

    /// Says that work on another stream uses the buffer too.
    void record_stream(vrp_stream stream) {
        if (data_)
            check(vrp_record_stream(pool_, data_.address(), stream));
    }

    /// Frees now; the buffer is empty then.
    void reset() noexcept {
        if (data_)
            detail::drop(vrp_free(pool_, data_.address(), stream_));
        data_ = nullptr;
        size_ = 0;
    }

    /// Gives the block to the caller, who frees it with vrp_free.
    pointer release() noexcept {
        size_ = 0;
        return std::exchange(data_, nullptr);
    }

    void swap(device_buffer &other) noexcept {
        std::swap(pool_, other.pool_);
        std::swap(size_, other.size_);
        std::swap(stream_, other.stream_);
        std::swap(data_, other.data_);
    }
    friend void swap(device_buffer &a, device_buffer &b) noexcept { a.swap(b); }

  private:
    vrp_pool *pool_ = nullptr;
    size_type size_ = 0;
    vrp_stream stream_ = VRP_STREAM_LEGACY;
    pointer data_ = nullptr;
};

/// Allocates arrays of T for std::allocator_traits. Equal allocators (same
/// pool, same stream) may free each other's memory.
template <class T> class device_allocator {
  public:
    using value_type = T;
    using pointer = device_ptr<T>;
    using const_pointer = device_ptr<const T>;
    using void_pointer = device_ptr<void>;
    using const_void_pointer = device_ptr<const void>;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    device_allocator(pool &from, const placement &where = {}) noexcept
        : pool_(from.get()), where_(where) {}
    device_allocator(vrp_pool *from, const placement &where = {}) noexcept
        : pool_(from), where_(where) {}
    template <class U>
    device_allocator(const device_allocator<U> &other) noexcept
        : pool_(other.resource()), where_(other.where()) {}

    [[nodiscard]] pointer allocate(size_type count) {
        return pointer(detail::allocate(pool_, count, sizeof(T), where_));
    }
    void deallocate(pointer ptr, size_type) noexcept {
        detail::drop(vrp_free(pool_, ptr.address(), where_.stream));
    }
    size_type max_size() const noexcept {
        return std::numeric_limits<difference_type>::max() / sizeof(T);
    }

    vrp_pool *resource() const noexcept { return pool_; }
    const placement &where() const noexcept { return where_; }

    template <class U> bool operator==(const device_allocator<U> &other) const noexcept {
        return pool_ == other.resource() && where_.stream == other.where().stream;
    }
    template <class U> bool operator!=(const device_allocator<U> &other) const noexcept {
        return !(*this == other);
    }

  private:
    vrp_pool *pool_;
    placement where_;
};

} // namespace vrampool
#endif
