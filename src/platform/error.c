/* SPDX-License-Identifier: MIT */
/* Status names, per-thread error details and the struct-size rule. */

#include "platform/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local vrp_error_detail detail;

const char *vrp_status_name(vrp_status status) {
    switch (status) {
#define CASE(name, value, message) \
    case VRP_##name:               \
        return "VRP_" #name;
        VRP_STATUS_MAP(CASE)
#undef CASE
    case VRP_STATUS_FORCE_INT32:
    default:
        return "VRP_UNKNOWN";
    }
}

const char *vrp_status_message(vrp_status status) {
    switch (status) {
#define CASE(name, value, message) \
    case VRP_##name:               \
        return message;
        VRP_STATUS_MAP(CASE)
#undef CASE
    case VRP_STATUS_FORCE_INT32:
    default:
        return "unknown status";
    }
}

vrp_status vrpi_fail(vrp_status status, const char *format, ...) {
    va_list args;
    memset(&detail, 0, sizeof detail);
    detail.status = (int32_t)status;
    va_start(args, format);
    (void)vsnprintf(detail.message, sizeof detail.message, format, args);
    va_end(args);
    return status;
}

void vrpi_fail_request(uint64_t requested_bytes) { detail.requested_bytes = requested_bytes; }
void vrpi_fail_address(uint64_t address) { detail.address = address; }
void vrpi_fail_live(uint64_t live_count) { detail.live_count = live_count; }
void vrpi_fail_native(int64_t native_code) { detail.native_code = native_code; }

vrp_status vrp_error_detail_get(vrp_error_detail *out_detail) {
    uint32_t size;
    if (out_detail == NULL)
        return VRP_INVALID_ARGUMENT;
    size = out_detail->struct_size;
    if (size == 0)
        return VRP_INVALID_ARGUMENT;
    if (size > sizeof detail)
        size = (uint32_t)sizeof detail;
    memcpy(out_detail, &detail, size);
    out_detail->struct_size = size;
    return VRP_OK;
}

vrp_status vrpi_struct_in(void *known_struct, size_t known, const void *given, const char *what) {
    uint32_t size;
    if (given == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "%s is NULL", what);
    memcpy(&size, given, sizeof size);
    if (size < sizeof size)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "%s.struct_size is %u", what, size);
    for (size_t i = known; i < size; i++)
        if (((const unsigned char *)given)[i] != 0)
            return vrpi_fail(
                VRP_NOT_SUPPORTED,
                "%s has a non-zero member at byte %zu, beyond the %zu that this version knows",
                what, i, known);
    memset(known_struct, 0, known);
    memcpy(known_struct, given, size < known ? size : known);
    return VRP_OK;
}

vrp_status vrpi_struct_out(void *given, const void *known_struct, size_t known, const char *what) {
    uint32_t size;
    if (given == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "%s is NULL", what);
    memcpy(&size, given, sizeof size);
    if (size < sizeof size)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "%s.struct_size is %u", what, size);
    if (size > known)
        size = (uint32_t)known;
    memcpy(given, known_struct, size);
    memcpy(given, &size, sizeof size);
    return VRP_OK;
}
