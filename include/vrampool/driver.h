/* SPDX-License-Identifier: MIT */
#ifndef VRAMPOOL_DRIVER_H
#define VRAMPOOL_DRIVER_H

/* The device calls that a pool needs, behind one table. Two drivers come with
 * the library: sim.h (a simulated device) and cuda.h (the real one). Anybody
 * can add another by filling in vrp_driver_ops.
 *
 * Contract of every operation, stated once:
 * - it may be called from any thread, and concurrently;
 * - it returns VRP_OK or a status of status.h; out-parameters are written on
 *   success only; a failed call has changed nothing on the device;
 * - too little device memory is OUT_OF_DEVICE_MEMORY, a driver that is going
 *   down is SHUT_DOWN, an error that kills the context is DEVICE_LOST;
 * - it leaves the current device, context and last error of the calling
 *   thread as they were;
 * - the pool calls none of them under a lock that an allocation needs, but for
 *   last_native_error, and event_destroy when the pool ends.
 */

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t vrp_devptr; /* a device address; 0 is no address */
typedef uint64_t vrp_stream; /* the driver's stream handle as an integer */
typedef uint64_t vrp_handle; /* physical memory, a VMM handle */
typedef uint64_t vrp_event;  /* an event of the driver */

#define VRP_STREAM_LEGACY ((vrp_stream)0)     /* the legacy default stream */
#define VRP_STREAM_PER_THREAD ((vrp_stream)2) /* each thread's own default stream */
#define VRP_STREAM_OF_ALLOC (~(vrp_stream)0)  /* in a free: the allocation's stream */
#define VRP_STREAM_ANY (~(vrp_stream)1)       /* in a free: whichever streams there are */

/* Capabilities of a driver. */
#define VRP_CAP_VMM (1u << 0)            /* address_reserve ... set_access */
#define VRP_CAP_MALLOC (1u << 1)         /* mem_alloc, mem_free */
#define VRP_CAP_CONTEXT_RECORD (1u << 2) /* context_record */
#define VRP_CAP_STREAM_ID (1u << 3)      /* stream_id */
#define VRP_CAP_CAPTURE (1u << 4)        /* stream_is_capturing */
#define VRP_CAP_COPY (1u << 5)           /* copy_async */
#define VRP_CAP_DEVICE_WAIT (1u << 6)    /* stream_wait_event */
#define VRP_CAP_EXPORT_FD (1u << 7)      /* handle_export */
#define VRP_CAP_EXPORT_DMA_BUF (1u << 8) /* range_export */
#define VRP_CAP_EXPORT_IPC (1u << 9)     /* ipc_export */
#define VRP_CAP_ASYNC_DEVICE                                         \
    (1u << 10) /* work goes on by itself, in real time: pools finish \
                  pending trims on a helper thread unless told not to */

typedef struct vrp_device_info {
    uint32_t struct_size;
    uint32_t caps;              /* VRP_CAP_* */
    uint64_t total_bytes;       /* of the device */
    uint64_t granularity_bytes; /* of VMM handles and mappings */
    uint64_t address_bytes;     /* address space that can be reserved */
    char name[64];
} vrp_device_info;

typedef struct vrp_driver_ops {
    uint32_t struct_size;
    uint32_t reserved; /* 0 */
    /* Required. */
    vrp_status (*device_info)(void *ctx, vrp_device_info *out_info);
    vrp_status (*mem_info)(void *ctx, uint64_t *out_free_bytes, uint64_t *out_total_bytes);
    vrp_status (*event_create)(void *ctx, vrp_event *out_event);
    vrp_status (*event_destroy)(void *ctx, vrp_event event);
    vrp_status (*event_record)(void *ctx, vrp_event event, vrp_stream stream);
    vrp_status (*event_query)(void *ctx, vrp_event event, int *out_done);
    vrp_status (*event_synchronize)(void *ctx, vrp_event event); /* blocks the host */
    vrp_status (*synchronize)(void *ctx);                        /* whole device, blocks */
    /* VRP_CAP_MALLOC: both or none. mem_free may block until the device is idle. */
    vrp_status (*mem_alloc)(void *ctx, uint64_t bytes, vrp_devptr *out_ptr);
    vrp_status (*mem_free)(void *ctx, vrp_devptr ptr);
    /* VRP_CAP_VMM: all or none. Sizes and addresses are multiples of the
     * granularity. A handle is mapped whole; one unmap may cover several whole
     * neighbouring mappings. One handle may be mapped at several addresses. */
    vrp_status (*address_reserve)(void *ctx, uint64_t bytes, vrp_devptr *out_base);
    vrp_status (*address_free)(void *ctx, vrp_devptr base, uint64_t bytes);
    vrp_status (*handle_create)(void *ctx, uint64_t bytes, vrp_handle *out_handle);
    vrp_status (*handle_release)(void *ctx, vrp_handle handle);
    vrp_status (*map)(void *ctx, vrp_devptr ptr, uint64_t bytes, vrp_handle handle);
    vrp_status (*set_access)(void *ctx, vrp_devptr ptr, uint64_t bytes);
    vrp_status (*unmap)(void *ctx, vrp_devptr ptr, uint64_t bytes);
    /* Optional, one by one; NULL where the capability is missing. */
    vrp_status (*stream_wait_event)(void *ctx, vrp_stream stream, vrp_event event);
    vrp_status (*context_record)(void *ctx, vrp_event event);
    vrp_status (*stream_id)(void *ctx, vrp_stream stream, uint64_t *out_id);
    vrp_status (*stream_is_capturing)(void *ctx, vrp_stream stream, int *out_capturing);
    vrp_status (*copy_async)(void *ctx, vrp_devptr dst, vrp_devptr src, uint64_t bytes,
                             vrp_stream stream);
    int64_t (*last_native_error)(void *ctx); /* of the calling thread's last failing call */
    void (*destroy)(void *ctx);              /* called once by vrp_driver_destroy */
    /* Optional, one by one: sharing memory with other processes. */
    vrp_status (*handle_export)(void *ctx, vrp_handle handle, int64_t *out_fd); /* POSIX fd */
    vrp_status (*range_export)(void *ctx, vrp_devptr ptr, uint64_t bytes, int64_t *out_fd);
    vrp_status (*ipc_export)(void *ctx, vrp_devptr ptr, unsigned char out_handle[64]);
} vrp_driver_ops;

typedef struct vrp_driver vrp_driver;

/* Makes a driver from a table, which is copied, and a context, which the
 * driver owns from now on (ops->destroy). A table shorter than today's is
 * extended with NULL; a longer one must be zero beyond it.
 * Errors: INVALID_ARGUMENT (a required operation is missing, or a group is
 * half filled; the detail names it), OUT_OF_HOST_MEMORY. Any thread. */
VRP_API VRP_NODISCARD vrp_status vrp_driver_create(const vrp_driver_ops *ops, void *ctx,
                                                   vrp_driver **out_driver);

/* Opens a driver by name: "sim:SIZE" (a simulated device, "sim:139GiB";
 * plain "sim" has 8 GiB) or "cuda:N". The caller owns the driver.
 * Errors: INVALID_ARGUMENT (unknown name, bad size), UNAVAILABLE (no such
 * device, or CUDA is not built in), OUT_OF_HOST_MEMORY. Any thread. */
VRP_API VRP_NODISCARD vrp_status vrp_driver_open(const char *name, vrp_driver **out_driver);

/* Ends the driver. No pool may use it any more. NULL is allowed. */
VRP_API void vrp_driver_destroy(vrp_driver *driver);

/* Asks the driver about its device. Errors: INVALID_ARGUMENT, and the
 * driver's own. Any thread. */
VRP_API VRP_NODISCARD vrp_status vrp_driver_info_get(vrp_driver *driver, vrp_device_info *out_info);

/* The table and context, for tests and tools that call the device themselves;
 * valid while the driver lives. */
VRP_API const vrp_driver_ops *vrp_driver_ops_get(const vrp_driver *driver, void **out_ctx);

#ifdef __cplusplus
}
#endif
#endif
