/* SPDX-License-Identifier: MIT */
#ifndef VRAMPOOL_CUDA_H
#define VRAMPOOL_CUDA_H

/* The driver for NVIDIA GPUs. Its entry points are looked up at run time in
 * libcuda.so.1: a program that links vrampool starts on machines without one.
 * A build without the CUDA toolkit answers NOT_SUPPORTED here. */

#include "driver.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vrp_cuda_config {
    uint32_t struct_size;
    uint32_t ordinal;    /* CUDA's device number */
    uint32_t exportable; /* 1: VMM handles can be shared as POSIX file descriptors */
    uint32_t reserved;   /* 0 */
    uint64_t peer_mask;  /* bit N: device N may read and write what the vmm backing maps; 0: none */
} vrp_cuda_config;

/* Retains the device's primary context; the driver owns that reference.
 * Errors: UNAVAILABLE (no libcuda, no such device, a peer that cannot, too
 * old; the detail says which), NOT_SUPPORTED (built without CUDA), OUT_OF_DEVICE_MEMORY (none for
 * the context), OUT_OF_HOST_MEMORY. */
VRP_API VRP_NODISCARD vrp_status vrp_cuda_driver_create(const vrp_cuda_config *config,
                                                        vrp_driver **out_driver);

/* How many devices there are; 0 where there is no driver. Any thread. */
VRP_API uint32_t vrp_cuda_device_count(void);

#ifdef __cplusplus
}
#endif
#endif
