/* SPDX-License-Identifier: MIT */
/* The virtual-memory calls: address ranges, handles, mappings. */

#include "driver/sim_internal.h"

#include <stdlib.h>

static vrpi_sim_mapping *as_mapping(vrpi_tree_node *node) { return (vrpi_sim_mapping *)node; }

static vrp_status refuse(const char *what, uint64_t address) {
    (void)vrpi_fail(VRP_INVALID_ARGUMENT, "%s", what);
    vrpi_fail_address(address);
    return vrpi_sim_native(VRP_INVALID_ARGUMENT, VRPI_SIM_NATIVE_INVALID_VALUE);
}

static int on_grid(const vrp_sim *sim, uint64_t bytes) {
    return bytes != 0 && bytes % sim->granularity == 0;
}

/* ---- Address ranges ---------------------------------------------------------- */

static uint64_t zone_bytes_of(const vrpi_sim_device *device, uint64_t bytes) {
    uint64_t unit = device->large.unit;
    return (bytes + unit - 1) / unit * unit;
}

static vrp_status reserve_locked(vrpi_sim_device *device, uint64_t bytes, vrp_devptr *out_base) {
    vrpi_tree_node *range;
    uint64_t base;
    if (!on_grid(device->sim, bytes))
        return refuse("the bytes to reserve are no multiple of the granularity", 0);
    range = calloc(1, sizeof *range);
    if (range == NULL)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no memory for an address range");
    base = bytes > device->large.bytes
               ? 0
               : vrpi_sim_zone_take(&device->large, zone_bytes_of(device, bytes));
    if (base == 0) {
        free(range);
        (void)vrpi_fail(VRP_OUT_OF_DEVICE_MEMORY, "no run of %llu addresses is free",
                        (unsigned long long)bytes);
        return vrpi_sim_native(VRP_OUT_OF_DEVICE_MEMORY, VRPI_SIM_NATIVE_OUT_OF_MEMORY);
    }
    range->key = base;
    range->length = bytes;
    vrpi_tree_insert(&device->ranges, range);
    *out_base = base;
    return VRP_OK;
}

vrp_status vrpi_sim_address_reserve(void *ctx, uint64_t bytes, vrp_devptr *out_base) {
    vrpi_sim_device *device = ctx;
    VRPI_TRY(vrpi_sim_enter(device->sim, VRP_SIM_CALL_ADDRESS_RESERVE, bytes));
    return vrpi_sim_leave(device->sim, reserve_locked(device, bytes, out_base),
                          vrp_sim_price_ns(VRP_SIM_CALL_ADDRESS_RESERVE, bytes));
}

static vrp_status unreserve_locked(vrpi_sim_device *device, vrp_devptr base, uint64_t bytes) {
    vrpi_tree_node *range = vrpi_tree_holding(&device->ranges, base);
    if (range == NULL || range->key != base || range->length != bytes) {
        vrpi_sim_misuse(device->sim, "address_free of %#llx, which is no reserved range",
                        (unsigned long long)base);
        return refuse("address_free of what is no reserved range", base);
    }
    if (vrpi_tree_overlapping(&device->mappings, base, bytes) != NULL) {
        vrpi_sim_misuse(device->sim, "address_free of %#llx, where memory is mapped",
                        (unsigned long long)base);
        return refuse("address_free of a range where memory is mapped", base);
    }
    vrpi_tree_remove(&device->ranges, range);
    free(range);
    vrpi_sim_zone_give(&device->large, base, zone_bytes_of(device, bytes));
    return VRP_OK;
}

vrp_status vrpi_sim_address_free(void *ctx, vrp_devptr base, uint64_t bytes) {
    vrpi_sim_device *device = ctx;
    VRPI_TRY(vrpi_sim_enter(device->sim, VRP_SIM_CALL_ADDRESS_FREE, base));
    return vrpi_sim_leave(device->sim, unreserve_locked(device, base, bytes),
                          vrp_sim_price_ns(VRP_SIM_CALL_ADDRESS_FREE, bytes));
}

/* ---- Handles -------------------------------------------------------------------- */

/* A handle is its index + 1 and, above, how often that index was used: an old
 * one is recognised. */
static vrpi_sim_handle *find_handle(vrpi_sim_device *device, vrp_handle value) {
    vrp_sim *sim = device->sim;
    uint32_t index = (uint32_t)(value & UINT32_MAX) - 1;
    vrpi_sim_handle *handle;
    if ((value & UINT32_MAX) == 0 || index >= sim->handle_count)
        return NULL;
    handle = &sim->handles[index];
    return handle->live && handle->generation == (uint32_t)(value >> 32) && handle->device == device
               ? handle
               : NULL;
}

static vrp_status create_locked(vrpi_sim_device *device, uint64_t bytes, vrp_handle *out_handle) {
    vrp_sim *sim = device->sim;
    uint32_t index = sim->handle_free;
    vrpi_sim_handle *handle;
    if (!on_grid(sim, bytes))
        return refuse("the bytes of a handle are no multiple of the granularity", 0);
    if (index == VRPI_SIM_NO_HANDLE) {
        void *array = sim->handles;
        if (!vrpi_sim_grow(&array, &sim->handle_capacity, sim->handle_count, sizeof *sim->handles))
            return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no memory for a handle");
        sim->handles = array;
    }
    VRPI_TRY(vrpi_sim_charge(device, bytes));
    if (index == VRPI_SIM_NO_HANDLE)
        index = sim->handle_count++;
    else
        sim->handle_free = sim->handles[index].next_free;
    handle = &sim->handles[index];
    handle->device = device;
    handle->bytes = bytes;
    handle->physical = device->next_physical;
    handle->mappings = 0;
    handle->live = 1;
    device->next_physical += bytes;
    device->handles++;
    *out_handle = ((uint64_t)handle->generation << 32) | (index + 1);
    return VRP_OK;
}

vrp_status vrpi_sim_handle_create(void *ctx, uint64_t bytes, vrp_handle *out_handle) {
    vrpi_sim_device *device = ctx;
    VRPI_TRY(vrpi_sim_enter(device->sim, VRP_SIM_CALL_HANDLE_CREATE, bytes));
    return vrpi_sim_leave(device->sim, create_locked(device, bytes, out_handle),
                          vrp_sim_price_ns(VRP_SIM_CALL_HANDLE_CREATE, bytes));
}

/* Memory goes when the handle is released and no mapping is left. */
static vrp_status drop_if_unused(vrpi_sim_device *device, vrpi_sim_handle *handle,
                                 const char *call) {
    vrp_sim *sim = device->sim;
    if (handle->live || handle->mappings != 0)
        return VRP_OK;
    VRPI_TRY(vrpi_sim_regions_freed(device, handle->physical, handle->bytes, call));
    vrpi_sim_refund(device, handle->physical, handle->bytes);
    handle->generation++;
    handle->next_free = sim->handle_free;
    sim->handle_free = (uint32_t)(handle - sim->handles);
    return VRP_OK;
}

static vrp_status release_locked(vrpi_sim_device *device, vrp_handle value, uint64_t *out_bytes) {
    vrpi_sim_handle *handle = find_handle(device, value);
    if (handle == NULL) {
        vrpi_sim_misuse(device->sim, "handle_release of %#llx, which is no live handle",
                        (unsigned long long)value);
        return refuse("handle_release of what is no live handle", 0);
    }
    *out_bytes = handle->bytes;
    handle->live = 0;
    device->handles--;
    return drop_if_unused(device, handle, "handle_release");
}

uint64_t vrpi_sim_handle_bytes(vrpi_sim_device *device, vrp_handle value) {
    const vrpi_sim_handle *handle = find_handle(device, value);
    return handle != NULL ? handle->bytes : 0;
}

vrp_status vrpi_sim_handle_release(void *ctx, vrp_handle handle) {
    vrpi_sim_device *device = ctx;
    uint64_t bytes = 0;
    vrp_status status;
    VRPI_TRY(vrpi_sim_enter(device->sim, VRP_SIM_CALL_HANDLE_RELEASE, handle));
    status = release_locked(device, handle, &bytes);
    return vrpi_sim_leave(device->sim, status,
                          vrp_sim_price_ns(VRP_SIM_CALL_HANDLE_RELEASE, bytes));
}

/* ---- Mappings --------------------------------------------------------------------- */

static vrp_status map_locked(vrpi_sim_device *device, vrp_devptr ptr, uint64_t bytes,
                             vrp_handle value) {
    vrpi_sim_handle *handle = find_handle(device, value);
    vrpi_tree_node *range = vrpi_tree_holding(&device->ranges, ptr);
    vrpi_sim_mapping *mapping;
    if (handle == NULL)
        return refuse("map of what is no live handle", ptr);
    if (!on_grid(device->sim, bytes) || bytes != handle->bytes)
        return refuse("a handle maps whole or not at all", ptr);
    if (range == NULL || (ptr - range->key) % device->sim->granularity != 0 ||
        bytes > range->length - (ptr - range->key))
        return refuse("map outside of a reserved range, or off the granularity", ptr);
    if (vrpi_tree_overlapping(&device->mappings, ptr, bytes) != NULL)
        return refuse("map over memory that is mapped", ptr);
    mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no memory for a mapping");
    mapping->node.key = ptr;
    mapping->node.length = bytes;
    mapping->physical = handle->physical;
    mapping->handle = (uint32_t)(handle - device->sim->handles);
    vrpi_tree_insert(&device->mappings, &mapping->node);
    handle->mappings++;
    device->mapped++;
    return VRP_OK;
}

vrp_status vrpi_sim_map(void *ctx, vrp_devptr ptr, uint64_t bytes, vrp_handle handle) {
    vrpi_sim_device *device = ctx;
    VRPI_TRY(vrpi_sim_enter(device->sim, VRP_SIM_CALL_MAP, ptr));
    return vrpi_sim_leave(device->sim, map_locked(device, ptr, bytes, handle),
                          vrp_sim_price_ns(VRP_SIM_CALL_MAP, bytes));
}

/* Whether [ptr, ptr + bytes) is whole mappings of handles without a hole, and
 * what `call` costs over them. */
static int whole_mappings(const vrpi_sim_device *device, vrp_devptr ptr, uint64_t bytes,
                          vrp_sim_call call, uint64_t *out_price_ns) {
    uint64_t at = ptr;
    uint64_t end = ptr + bytes;
    *out_price_ns = 0;
    if (bytes == 0 || end < ptr)
        return 0;
    while (at < end) {
        vrpi_tree_node *node = vrpi_tree_holding(&device->mappings, at);
        if (node == NULL || node->key != at || as_mapping(node)->handle == VRPI_SIM_NO_HANDLE ||
            node->length > end - at)
            return 0;
        *out_price_ns += vrp_sim_price_ns((int32_t)call, node->length);
        at += node->length;
    }
    return 1;
}

static vrp_status access_locked(vrpi_sim_device *device, vrp_devptr ptr, uint64_t bytes) {
    uint64_t end = ptr + bytes;
    vrpi_tree_node *node;
    for (uint64_t at = ptr; at < end; at += node->length) {
        vrp_status status = VRP_OK;
        node = vrpi_tree_holding(&device->mappings, at);
        if (!as_mapping(node)->access)
            status = vrpi_sim_pages_show(device, at, as_mapping(node)->physical, node->length);
        if (status != VRP_OK)
            return status;
        as_mapping(node)->access = 1;
    }
    return VRP_OK;
}

vrp_status vrpi_sim_set_access(void *ctx, vrp_devptr ptr, uint64_t bytes) {
    vrpi_sim_device *device = ctx;
    uint64_t price_ns;
    vrp_status status;
    VRPI_TRY(vrpi_sim_enter(device->sim, VRP_SIM_CALL_SET_ACCESS, ptr));
    if (whole_mappings(device, ptr, bytes, VRP_SIM_CALL_SET_ACCESS, &price_ns))
        status = access_locked(device, ptr, bytes);
    else
        status = refuse("set_access beyond whole mappings", ptr);
    return vrpi_sim_leave(device->sim, status, price_ns);
}

static vrp_status unmap_locked(vrpi_sim_device *device, vrp_devptr ptr, uint64_t bytes) {
    uint64_t end = ptr + bytes;
    uint64_t at = ptr;
    while (at < end) {
        vrpi_sim_mapping *mapping = as_mapping(vrpi_tree_holding(&device->mappings, at));
        vrpi_sim_handle *handle = &device->sim->handles[mapping->handle];
        vrpi_sim_piece piece = {at, mapping->physical, mapping->node.length};
        VRPI_TRY(vrpi_sim_regions_unmapped(device, &piece, "unmap"));
        vrpi_tree_remove(&device->mappings, &mapping->node);
        free(mapping);
        device->mapped--;
        handle->mappings--;
        at += piece.bytes;
        VRPI_TRY(drop_if_unused(device, handle, "unmap"));
    }
    vrpi_sim_pages_hide(device, ptr, bytes);
    return VRP_OK;
}

vrp_status vrpi_sim_unmap(void *ctx, vrp_devptr ptr, uint64_t bytes) {
    vrpi_sim_device *device = ctx;
    uint64_t price_ns;
    vrp_status status;
    VRPI_TRY(vrpi_sim_enter(device->sim, VRP_SIM_CALL_UNMAP, ptr));
    if (whole_mappings(device, ptr, bytes, VRP_SIM_CALL_UNMAP, &price_ns)) {
        status = unmap_locked(device, ptr, bytes);
    } else {
        if (vrpi_tree_holding(&device->mappings, ptr) == NULL)
            vrpi_sim_misuse(device->sim, "unmap of %#llx, where nothing is mapped",
                            (unsigned long long)ptr);
        status = refuse("unmap of what is not whole mappings", ptr);
    }
    return vrpi_sim_leave(device->sim, status, price_ns);
}
