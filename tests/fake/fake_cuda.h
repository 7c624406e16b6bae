/* SPDX-License-Identifier: MIT */
#ifndef VRPT_FAKE_CUDA_H
#define VRPT_FAKE_CUDA_H

/* A libcuda.so.1 without a device: as much of the driver API as the CUDA driver
 * of the library calls, with two devices whose memory is numbers only and whose
 * work is done at once. What a test looks at and what it sets is in one struct,
 * which the library hands out by fake_cuda_get. */

#include <stdatomic.h>
#include <stdint.h>

enum {
    FAKE_DEVICES = 2,
    FAKE_INVALID_VALUE = 1,
    FAKE_OUT_OF_MEMORY = 2,
    FAKE_DEINITIALIZED = 4,
    FAKE_INVALID_CONTEXT = 201,
    FAKE_ILLEGAL_ADDRESS = 700,
    FAKE_CONTEXT_IS_DESTROYED = 709,
    FAKE_NOT_PERMITTED = 800,
    FAKE_NOT_SUPPORTED = 801
};

typedef struct fake_cuda {
    /* set by tests */
    atomic_int deinitialized;    /* every call says so */
    atomic_int reset;            /* device 0's primary context was, and nobody made it anew */
    atomic_ullong context_id;    /* of device 0's primary context */
    atomic_int foreign_stream;   /* records are on a stream of another context */
    atomic_int illegal_address;  /* a kernel has killed the context: synchronising says so */
    atomic_int refuse_shareable; /* handles for other processes are not permitted here */
    atomic_int no_peers;         /* no device reaches another */
    atomic_int current_is_gone;  /* the thread's own context was destroyed elsewhere */
    /* counted */
    atomic_int calls; /* of everything but error names */
    atomic_int unmaps, handles, allocations, events, references;
    /* of the last cuMemSetAccess */
    atomic_int access_count;
    int access_device[64];
} fake_cuda;

#endif
