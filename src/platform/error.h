/* SPDX-License-Identifier: MIT */
#ifndef VRPI_PLATFORM_ERROR_H
#define VRPI_PLATFORM_ERROR_H

/* Statuses with a reason. The detail of the last failing call is kept per
 * thread (vrp_error_detail_get). */

#include "vrampool/status.h"

/* Sets this thread's detail to `status` and a formatted message, clears its
 * numbers, and returns `status`: `return vrpi_fail(VRP_INVALID_SIZE, ...)`. */
vrp_status vrpi_fail(vrp_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds numbers to the detail that vrpi_fail has just set. */
void vrpi_fail_request(uint64_t requested_bytes);
void vrpi_fail_address(uint64_t address);
void vrpi_fail_live(uint64_t live_count);
void vrpi_fail_native(int64_t native_code);

/* Forwards anything that is not VRP_OK. */
#define VRPI_TRY(expression)                       \
    do {                                           \
        vrp_status vrpi_try_status = (expression); \
        if (vrpi_try_status != VRP_OK)             \
            return vrpi_try_status;                \
    } while (0)

/* Reads a caller's struct into today's: copies what both know and leaves zero
 * beyond. INVALID_ARGUMENT for NULL or struct_size 0, NOT_SUPPORTED for bytes
 * beyond `known` that are not zero. `what` names the struct in the detail. */
vrp_status vrpi_struct_in(void *known_struct, size_t known, const void *given, const char *what);

/* Writes today's struct to a caller's, as much as its struct_size takes, and
 * sets that to what was written. INVALID_ARGUMENT for NULL or struct_size 0. */
vrp_status vrpi_struct_out(void *given, const void *known_struct, size_t known, const char *what);

#endif
