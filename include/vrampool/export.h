/* SPDX-License-Identifier: MIT */
#ifndef VRAMPOOL_EXPORT_H
#define VRAMPOOL_EXPORT_H

/* Blocks that other processes use too. Included by vrampool.h. */

#include "driver.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct vrp_pool;

typedef enum vrp_export_kind {
    VRP_EXPORT_POSIX_FD = 0, /* a descriptor of a VMM handle: vmm backing */
    VRP_EXPORT_IPC = 1,      /* a legacy IPC handle: malloc backing */
    VRP_EXPORT_DMA_BUF = 2,  /* a DMA-BUF descriptor of the block's range */
    VRP_EXPORT_KIND_FORCE_INT32 = 0x7fffffff
} vrp_export_kind;

typedef struct vrp_export_info {
    uint32_t struct_size;
    int32_t kind;          /* vrp_export_kind */
    int64_t fd;            /* POSIX_FD, DMA_BUF: owned by the caller; otherwise -1 */
    uint64_t offset_bytes; /* of the block inside what an importer maps or opens: 0 but for
                              IPC, which opens a whole cudaMalloc */
    uint64_t bytes;        /* of all that an importer maps; IPC: of the block */
    unsigned char ipc_handle[64];
} vrp_export_info;

/* Shares a live block. With the vmm backing, POSIX_FD and DMA_BUF need a block that
 * was allocated with VRP_ALLOC_EXPORTABLE, which gives it physical memory of its
 * own. With the malloc backing any block will do; an importer of an IPC handle sees
 * its neighbours in the same cudaMalloc too. Until vrp_block_export_close has been
 * called as often as this, the block's memory is neither used again nor given back,
 * even when the block is freed; it counts as exported_bytes.
 * Errors: NOT_SUPPORTED (by the driver, as it was opened, or by the backing;
 * POSIX_FD of a GPU needs vrp_cuda_config.exportable), INVALID_ARGUMENT (not
 * exportable; the detail says why), NOT_OWNED, INTERIOR_POINTER, ALREADY_FREED,
 * OUT_OF_HOST_MEMORY. Any thread. */
VRP_API VRP_NODISCARD vrp_status vrp_block_export(struct vrp_pool *pool, vrp_devptr ptr,
                                                  int32_t kind, vrp_export_info *out_info);

/* Says that the importers of one export have closed it (their work with it is
 * done). The block may have been freed meanwhile. Errors: INVALID_ARGUMENT (not exported). Any
 * thread. */
VRP_API VRP_NODISCARD vrp_status vrp_block_export_close(struct vrp_pool *pool, vrp_devptr ptr);

#ifdef __cplusplus
}
#endif
#endif
