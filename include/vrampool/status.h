/* SPDX-License-Identifier: MIT */
#ifndef VRAMPOOL_STATUS_H
#define VRAMPOOL_STATUS_H

/* Status codes, export macros and version of vrampool. Included by every
 * other public header. */

#include <stddef.h>
#include <stdint.h>

#define VRP_VERSION_MAJOR 0
#define VRP_VERSION_MINOR 1
#define VRP_VERSION_PATCH 0

#if defined(__GNUC__) || defined(__clang__)
#define VRP_API __attribute__((visibility("default")))
#define VRP_NODISCARD __attribute__((warn_unused_result))
#else
#define VRP_API
#define VRP_NODISCARD
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The one list of status codes: name, frozen value, message. Values never
 * move; new codes go to the end. */
#define VRP_STATUS_MAP(X)                                                            \
    X(OK, 0, "success")                                                              \
    X(INVALID_ARGUMENT, 1, "an argument is out of its documented range")             \
    X(INVALID_SIZE, 2, "the size cannot be represented after rounding")              \
    X(INVALID_ALIGNMENT, 3, "the alignment is no power of two or above the maximum") \
    X(NOT_OWNED, 4, "the address does not belong to this pool")                      \
    X(INTERIOR_POINTER, 5, "the address lies inside a live block, not at its start") \
    X(ALREADY_FREED, 6, "the address belongs to memory that is already free")        \
    X(BUSY, 7, "blocks are still live")                                              \
    X(OUT_OF_DEVICE_MEMORY, 8, "the device has too little free memory")              \
    X(OUT_OF_HOST_MEMORY, 9, "host memory for bookkeeping could not be had")         \
    X(LIMIT_REACHED, 10, "a configured limit or budget would be exceeded")           \
    X(NOT_SUPPORTED, 11, "not supported by this driver, backing or version")         \
    X(UNAVAILABLE, 12, "no driver or no such device on this machine")                \
    X(DEVICE_LOST, 13, "the device context is lost; its memory is gone")             \
    X(SHUT_DOWN, 14, "the pool or the driver is shut down or shutting down")         \
    X(AFTER_FORK, 15, "the pool belongs to the parent process")                      \
    X(CORRUPTED, 16, "an invariant of the pool does not hold")                       \
    X(INTERNAL, 17, "a fault in vrampool or an unknown driver error")

typedef enum vrp_status {
#define VRP_STATUS_ENUM(name, value, message) VRP_##name = value,
    VRP_STATUS_MAP(VRP_STATUS_ENUM)
#undef VRP_STATUS_ENUM
        VRP_STATUS_FORCE_INT32 = 0x7fffffff /* pins the width of the enum */
} vrp_status;

/* The code's name, "VRP_OK" and so on; "VRP_UNKNOWN" for no code.
 * Static string. Any thread. No errors. Since 0.1. */
VRP_API const char *vrp_status_name(vrp_status status);

/* One English sentence for the code. Static string. Any thread. Since 0.1. */
VRP_API const char *vrp_status_message(vrp_status status);

/* More about the last call that failed on this thread. */
typedef struct vrp_error_detail {
    uint32_t struct_size;     /* set by the caller before the call */
    int32_t status;           /* the vrp_status that was returned */
    int64_t native_code;      /* the driver's own error number, 0 if none */
    uint64_t requested_bytes; /* what was asked for, 0 if it was no request */
    uint64_t address;         /* the address in question, 0 if none */
    uint64_t live_count;      /* BUSY: how many blocks are live */
    char message[192];        /* what and where, NUL-terminated */
} vrp_error_detail;

/* Copies the detail of this thread's last failing call; status VRP_OK inside
 * when there was none. Errors: INVALID_ARGUMENT (NULL, struct_size 0).
 * Any thread; each sees its own. Since 0.1. */
VRP_API VRP_NODISCARD vrp_status vrp_error_detail_get(vrp_error_detail *out_detail);

/* Version of the library at run time, major * 10000 + minor * 100 + patch;
 * and a line that names version, compiler and drivers built in. Any thread. */
VRP_API uint32_t vrp_version(void);
VRP_API const char *vrp_build_info(void);

#ifdef __cplusplus
}
#endif
#endif
