/* SPDX-License-Identifier: MIT */
/* The driver object: a checked copy of an ops table and its context. */

#include "platform/error.h"
#include "vrampool/driver.h"

#include <stdlib.h>

struct vrp_driver {
    vrp_driver_ops ops;
    void *ctx;
};

static vrp_status missing(const char *name) {
    return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_driver_ops.%s is NULL", name);
}

static vrp_status ops_check(const vrp_driver_ops *o) {
    int vmm = (o->address_reserve != NULL) + (o->address_free != NULL) +
              (o->handle_create != NULL) + (o->handle_release != NULL) + (o->map != NULL) +
              (o->set_access != NULL) + (o->unmap != NULL);
#define NEED(name)       \
    if (o->name == NULL) \
        return missing(#name);
    NEED(device_info)
    NEED(mem_info)
    NEED(event_create)
    NEED(event_destroy)
    NEED(event_record)
    NEED(event_query)
    NEED(event_synchronize)
    NEED(synchronize)
#undef NEED
    if (vmm != 0 && vmm != 7)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_driver_ops: %d of the 7 vmm operations are set",
                         vmm);
    if ((o->mem_alloc == NULL) != (o->mem_free == NULL))
        return vrpi_fail(VRP_INVALID_ARGUMENT,
                         "vrp_driver_ops: only one of mem_alloc and mem_free is set");
    if (vmm == 0 && o->mem_alloc == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_driver_ops: neither malloc nor vmm is there");
    return VRP_OK;
}

vrp_status vrp_driver_create(const vrp_driver_ops *ops, void *ctx, vrp_driver **out_driver) {
    vrp_driver_ops in;
    vrp_driver *driver;
    if (out_driver == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_driver_create: out_driver is NULL");
    VRPI_TRY(vrpi_struct_in(&in, sizeof in, ops, "vrp_driver_ops"));
    if (in.reserved != 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_driver_ops.reserved is not 0");
    VRPI_TRY(ops_check(&in));
    driver = calloc(1, sizeof *driver);
    if (driver == NULL)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no host memory for a driver");
    driver->ops = in;
    driver->ctx = ctx;
    *out_driver = driver;
    return VRP_OK;
}

void vrp_driver_destroy(vrp_driver *driver) {
    if (driver == NULL)
        return;
    if (driver->ops.destroy != NULL)
        driver->ops.destroy(driver->ctx);
    free(driver);
}

vrp_status vrp_driver_info_get(vrp_driver *driver, vrp_device_info *out_info) {
    vrp_device_info info = {.struct_size = sizeof info};
    if (driver == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_driver_info_get: driver is NULL");
    VRPI_TRY(driver->ops.device_info(driver->ctx, &info));
    return vrpi_struct_out(out_info, &info, sizeof info, "vrp_device_info");
}

const vrp_driver_ops *vrp_driver_ops_get(const vrp_driver *driver, void **out_ctx) {
    if (driver == NULL)
        return NULL;
    if (out_ctx != NULL)
        *out_ctx = driver->ctx;
    return &driver->ops;
}
