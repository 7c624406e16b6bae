/* SPDX-License-Identifier: MIT */
#ifndef BENCH_ADAPTOR_H
#define BENCH_ADAPTOR_H

/* One allocator behind a table of C functions, so that all of them are called
 * in the same way. Those of this program are built in; others are shared
 * objects that export bench_adaptor_get, built where their library is
 * (build_adaptors.sh). Streams and addresses are integers; the primary context
 * of the device is current in every thread that calls. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BENCH_ADAPTOR_VERSION 1u
#define BENCH_UNKNOWN UINT64_MAX

typedef struct bench_adaptor_host {
    const char *variant; /* which of a library's allocators */
    uint32_t ordinal;    /* CUDA's device number */
    int on_gpu;          /* 0: a simulated device; only what comes with vrampool */
    void *driver;        /* a vrp_driver, for vrampool's own */
} bench_adaptor_host;

typedef struct bench_adaptor {
    uint32_t version; /* BENCH_ADAPTOR_VERSION */
    uint32_t flags;   /* BENCH_ADAPTOR_* */
    const char *name;
    /* NULL, or why not. Peaks begin anew. */
    const char *(*create)(const bench_adaptor_host *host, void **out_self);
    /* Everything is freed and the device is idle. */
    void (*destroy)(void *self);
    /* Of the library behind it; the text lives as long as `self`. */
    const char *(*version_text)(void *self);
    /* 0: refused. */
    uint64_t (*alloc)(void *self, size_t bytes, uint64_t stream);
    void (*free)(void *self, uint64_t ptr, size_t bytes, uint64_t stream);
    /* What follows may be NULL: there is no such call. */
    uint64_t (*alloc_weights)(void *self, size_t bytes, uint64_t stream);
    void (*empty_cache)(void *self);
    /* Device bytes held now, and at most since create. */
    uint64_t (*reserved)(void *self);
    uint64_t (*peak_reserved)(void *self);
    /* Host bytes for bookkeeping, as the library counts them. */
    uint64_t (*host_bytes)(void *self);
    /* Called before a stream is destroyed. */
    void (*stream_forget)(void *self, uint64_t stream);
} bench_adaptor;

#define BENCH_ADAPTOR_NO_MEMORY (1u << 0) /* addresses are made up: nothing may be written */
#define BENCH_ADAPTOR_NO_CACHE (1u << 1)  /* a free gives back: it is its own empty_cache */

/* What a shared object exports: the table of one variant, for good. */
typedef const bench_adaptor *(*bench_adaptor_get_fn)(const char *variant);

#ifdef __cplusplus
}
#endif
#endif
