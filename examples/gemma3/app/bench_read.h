/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_BENCH_READ_H
#define GEMMA3_BENCH_READ_H

/* What decoding can at best reach: the read bandwidth of main memory. */

#include <stdint.h>

#include "../files/error.h"

/* Reads a buffer of at least `bytes` and of at least twice the last-level cache from
 * beginning to end, a MiB at a time shared out to all threads, by a plain loop of
 * 64-bit sums. The best of at least nine passes and half a second, in bytes a second;
 * the buffer's size too. Errors: HOST_MEMORY. */
g3_status g3_bench_read(uint64_t bytes, double *out_bytes_a_second, uint64_t *out_buffer_bytes,
                        g3_error *error);

#endif
