/* SPDX-License-Identifier: MIT */
/* vrampool behind the table of all allocators, and an allocator that does
 * nothing: what measuring costs by itself. */

#include "adaptors.h"
#include "options.h"

static const char *create(const bench_adaptor_host *host, void **out_self) {
    vrp_pool *pool = NULL;
    vrp_driver *driver = host->driver;
    if (driver == NULL)
        return "no driver";
    if (vrp_pool_create(driver, NULL, &pool) != VRP_OK)
        return bench_detail();
    *out_self = pool;
    return NULL;
}

static void destroy(void *self) {
    if (vrp_pool_destroy(self, 0) != VRP_OK)
        (void)bench_fail("the pool does not end: %s", bench_detail());
}

static const char *version_text(void *self) {
    (void)self;
    return vrp_build_info();
}

static uint64_t alloc(void *self, size_t bytes, uint64_t stream) {
    vrp_devptr ptr = 0;
    return vrp_alloc(self, bytes, stream, &ptr) == VRP_OK ? ptr : 0;
}

static void release(void *self, uint64_t ptr, size_t bytes, uint64_t stream) {
    (void)bytes;
    if (vrp_free(self, ptr, stream) != VRP_OK)
        (void)bench_fail("free: %s", bench_detail());
}

static uint64_t alloc_weights(void *self, size_t bytes, uint64_t stream) {
    vrp_devptr ptr = 0;
    vrp_alloc_info info = {
        .struct_size = sizeof info, .bytes = bytes, .stream = stream, .tag = VRP_TAG_WEIGHTS};
    return vrp_alloc_ex(self, &info, &ptr) == VRP_OK ? ptr : 0;
}

static void empty_cache(void *self) {
    if (vrp_empty_cache(self, NULL) != VRP_OK)
        (void)bench_fail("empty_cache: %s", bench_detail());
}

static uint64_t reserved(void *self) { return vrp_pool_reserved_bytes(self); }

static vrp_stats stats_of(vrp_pool *pool) {
    vrp_stats stats = {.struct_size = sizeof stats};
    if (vrp_pool_stats_get(pool, &stats) != VRP_OK)
        (void)bench_fail("statistics: %s", bench_detail());
    return stats;
}

static uint64_t peak_reserved(void *self) { return stats_of(self).reserved_bytes.peak; }

static uint64_t host_bytes(void *self) { return stats_of(self).host_bytes; }

static void stream_forget(void *self, uint64_t stream) {
    if (vrp_stream_forget(self, stream) != VRP_OK)
        (void)bench_fail("a stream cannot be forgotten: %s", bench_detail());
}

const bench_adaptor bench_adaptor_vrampool = {.version = BENCH_ADAPTOR_VERSION,
                                              .name = "vrampool",
                                              .create = create,
                                              .destroy = destroy,
                                              .version_text = version_text,
                                              .alloc = alloc,
                                              .free = release,
                                              .alloc_weights = alloc_weights,
                                              .empty_cache = empty_cache,
                                              .reserved = reserved,
                                              .peak_reserved = peak_reserved,
                                              .host_bytes = host_bytes,
                                              .stream_forget = stream_forget};

/* ---- None ----------------------------------------------------------------------- */

static const char *none_create(const bench_adaptor_host *host, void **out_self) {
    static char self;
    (void)host;
    *out_self = &self;
    return NULL;
}

static void none_destroy(void *self) { (void)self; }

static const char *none_version(void *self) {
    (void)self;
    return "an allocator that does nothing";
}

static uint64_t none_alloc(void *self, size_t bytes, uint64_t stream) {
    (void)self;
    (void)bytes;
    (void)stream;
    return 512;
}

static void none_free(void *self, uint64_t ptr, size_t bytes, uint64_t stream) {
    (void)self;
    (void)ptr;
    (void)bytes;
    (void)stream;
}

static uint64_t none_reserved(void *self) {
    (void)self;
    return 0;
}

const bench_adaptor bench_adaptor_none = {.version = BENCH_ADAPTOR_VERSION,
                                          .flags = BENCH_ADAPTOR_NO_MEMORY,
                                          .name = "none",
                                          .create = none_create,
                                          .destroy = none_destroy,
                                          .version_text = none_version,
                                          .alloc = none_alloc,
                                          .free = none_free,
                                          .reserved = none_reserved,
                                          .peak_reserved = none_reserved};
