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
    uint32_t exportable; /* 1: VMM handles can be shared as POSIX file descriptors, where the
                            device can (VRP_CAP_EXPORT_FD says so) */
    uint32_t reserved;   /* 0 */
    uint64_t peer_mask;  /* bit n: kernels on device n may use memory of the vmm backing too;
                            the device's own bit says nothing. 0: none */
} vrp_cuda_config;

/* Retains the device's primary context; the driver owns that reference. Which
 * devices are peers is settled here. Access costs each mapping more, so none is
 * given by default; to plain allocations (malloc backing) CUDA gives it by
 * cuCtxEnablePeerAccess, which is the program's to call.
 * Errors: UNAVAILABLE (no libcuda, no such device or peer, too old; the detail says
 * which), NOT_SUPPORTED (built without CUDA; a peer cannot reach the device, the
 * detail names the pair), OUT_OF_DEVICE_MEMORY (none for the context),
 * OUT_OF_HOST_MEMORY. */
VRP_API VRP_NODISCARD vrp_status vrp_cuda_driver_create(const vrp_cuda_config *config,
                                                        vrp_driver **out_driver);

/* How many devices there are; 0 where there is no driver. Any thread. */
VRP_API uint32_t vrp_cuda_device_count(void);

#ifdef __cplusplus
}
#endif
#endif
