/* SPDX-License-Identifier: MIT */
#ifndef BENCH_CUDA_STREAMS_H
#define BENCH_CUDA_STREAMS_H

/* Streams of a GPU, by way of libcuda at run time: a replay needs no CUDA
 * toolkit, and only the streams are its own affair. */

#include <stdint.h>

typedef struct bench_cuda {
    void *library;
    void *context; /* the device's primary context, retained */
    int device;
} bench_cuda;

/* NULL, or why not. */
const char *bench_cuda_open(bench_cuda *cuda, uint32_t ordinal);
void bench_cuda_close(bench_cuda *cuda);

/* 0: it cannot be had. */
int bench_cuda_stream_create(bench_cuda *cuda, uint64_t *out_stream);
void bench_cuda_stream_destroy(bench_cuda *cuda, uint64_t stream);

#endif
