/* SPDX-License-Identifier: MIT */
/* Sharing with other processes, as far as a simulated device can: the descriptor
 * is a real one, and what can be read from it names what was shared. */

#include "driver/sim_internal.h"
#include "platform/error.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static vrp_status describe(const vrp_sim_export *what, int64_t *out_fd) {
    int fd = memfd_create("vrampool-sim-export", MFD_CLOEXEC);
    if (fd < 0)
        return vrpi_fail(VRP_INTERNAL, "no descriptor can be had");
    if (pwrite(fd, what, sizeof *what, 0) != (ssize_t)sizeof *what) {
        (void)close(fd);
        return vrpi_fail(VRP_INTERNAL, "a descriptor cannot be written");
    }
    *out_fd = fd;
    return VRP_OK;
}

vrp_status vrpi_sim_handle_export(void *ctx, vrp_handle handle, int64_t *out_fd) {
    vrpi_sim_device *device = ctx;
    vrp_sim_export what = {.magic = VRP_SIM_EXPORT_MAGIC, .handle = handle};
    vrp_status status;
    VRPI_TRY(vrpi_sim_enter(device->sim, VRP_SIM_CALL_EXPORT, 0));
    what.bytes = vrpi_sim_handle_bytes(device, handle);
    status = what.bytes == 0 ? vrpi_fail(VRP_INVALID_ARGUMENT, "export of what is no live handle")
                             : describe(&what, out_fd);
    return vrpi_sim_leave(device->sim, status, vrp_sim_price_ns(VRP_SIM_CALL_EXPORT, 0));
}

vrp_status vrpi_sim_range_export(void *ctx, vrp_devptr ptr, uint64_t bytes, int64_t *out_fd) {
    vrpi_sim_device *device = ctx;
    vrp_sim_export what = {.magic = VRP_SIM_EXPORT_MAGIC, .ptr = ptr, .bytes = bytes};
    vrp_status status;
    VRPI_TRY(vrpi_sim_enter(device->sim, VRP_SIM_CALL_EXPORT, 0));
    status = describe(&what, out_fd);
    return vrpi_sim_leave(device->sim, status, vrp_sim_price_ns(VRP_SIM_CALL_EXPORT, 0));
}

vrp_status vrpi_sim_ipc_export(void *ctx, vrp_devptr ptr, unsigned char out_handle[64]) {
    vrpi_sim_device *device = ctx;
    vrp_sim_export what = {.magic = VRP_SIM_EXPORT_MAGIC, .ptr = ptr};
    VRPI_TRY(vrpi_sim_enter(device->sim, VRP_SIM_CALL_EXPORT, 0));
    memset(out_handle, 0, 64);
    memcpy(out_handle, &what, sizeof what);
    return vrpi_sim_leave(device->sim, VRP_OK, vrp_sim_price_ns(VRP_SIM_CALL_EXPORT, 0));
}
