/* SPDX-License-Identifier: MIT */
#ifndef VRPT_KERNELS_H
#define VRPT_KERNELS_H

/* Kernels that write a pattern into memory and check it, for tests that prove
 * an order by data. Plain C: streams and addresses are the integers that the
 * pool uses. Functions that return int return the CUDA runtime's error, 0 for
 * none; vrpt_kernels_error names it.
 *
 * The pattern of a 32-bit word follows from `origin` plus its distance from
 * the start, and from a seed. With the address as origin, memory that shows up
 * at another address never looks right by accident; with 0, contents can be
 * followed through a move. Addresses and sizes are multiples of 4. */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vrpt_mismatches {
    uint64_t count; /* words */
    uint64_t at;    /* one of them, what it held and what it should have held */
    uint32_t found, expected;
} vrpt_mismatches;

/* Loads every kernel on the device and makes room for the count of mismatches:
 * a kernel that is loaded when it is first launched could wait for others. */
int vrpt_kernels_begin(int device);
const char *vrpt_kernels_error(int error);
int vrpt_kernels_thread(int device); /* before a further thread launches any */

int vrpt_kernel_fill(uint64_t stream, uint64_t at, uint64_t bytes, uint64_t origin, uint64_t seed);

/* Counts the words that are not as vrpt_kernel_fill left them. Runs for at
 * least `delay_ns` and reads only then, from a few multiprocessors. */
int vrpt_kernel_check(uint64_t stream, uint64_t at, uint64_t bytes, uint64_t origin, uint64_t seed,
                      uint64_t delay_ns);

/* Keeps a stream busy. */
int vrpt_kernel_spin(uint64_t stream, uint64_t ns);

/* The later work of a stream comes after all that is on another one now. */
int vrpt_stream_follow(uint64_t stream, uint64_t other);

/* Waits for the stream or for the whole device; the latter tells what all
 * checks since the last time have found. */
int vrpt_stream_finish(uint64_t stream);
int vrpt_device_finish(vrpt_mismatches *out);

#ifdef __cplusplus
}
#endif
#endif
