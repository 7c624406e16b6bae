/* SPDX-License-Identifier: MIT */
/* Capacity, mem_alloc and mem_free, and the question what physical bytes are
 * behind an address. */

#include "driver/sim_internal.h"

#include <stdlib.h>

#define LARGE_BYTES ((uint64_t)1 << 20) /* from here on an allocation is 2 MiB aligned */
#define ALLOC_UNIT ((uint64_t)512)

static vrpi_sim_mapping *as_mapping(vrpi_tree_node *node) { return (vrpi_sim_mapping *)node; }

vrpi_sim_device *vrpi_sim_device_of(vrp_sim *sim, uint64_t address) {
    for (uint32_t i = 0; i < sim->device_count; i++) {
        vrpi_sim_device *device = &sim->devices[i];
        if (address >= device->large.base &&
            address - device->large.base < device->large.bytes + device->small.bytes)
            return device;
    }
    return NULL;
}

int vrpi_sim_piece_at(const vrpi_sim_device *device, uint64_t address, uint64_t end,
                      vrpi_sim_piece *out_piece) {
    vrpi_tree_node *node = vrpi_tree_holding(&device->mappings, address);
    vrpi_sim_mapping *mapping = as_mapping(node);
    uint64_t reached;
    if (node == NULL || !mapping->access)
        return 0;
    out_piece->address = address;
    out_piece->physical = mapping->physical + (address - node->key);
    reached = node->key + node->length;
    while (reached < end) {
        node = vrpi_tree_holding(&device->mappings, reached);
        mapping = as_mapping(node);
        if (node == NULL || !mapping->access || node->key != reached ||
            mapping->physical - reached != out_piece->physical - address)
            break;
        reached += node->length;
    }
    out_piece->bytes = (reached < end ? reached : end) - address;
    return 1;
}

int vrpi_sim_backed(const vrpi_sim_device *device, uint64_t address, uint64_t bytes) {
    vrpi_sim_piece piece;
    uint64_t end = address + bytes;
    if (end < address)
        return 0;
    for (; address < end; address += piece.bytes)
        if (!vrpi_sim_piece_at(device, address, end, &piece))
            return 0;
    return 1;
}

vrp_status vrpi_sim_charge(vrpi_sim_device *device, uint64_t bytes) {
    uint64_t vacant = device->total_bytes - device->used_bytes - device->other_bytes;
    if (bytes > vacant) {
        (void)vrpi_fail(VRP_OUT_OF_DEVICE_MEMORY, "%llu bytes asked, %llu free",
                        (unsigned long long)bytes, (unsigned long long)vacant);
        vrpi_fail_request(bytes);
        return vrpi_sim_native(VRP_OUT_OF_DEVICE_MEMORY, VRPI_SIM_NATIVE_OUT_OF_MEMORY);
    }
    device->used_bytes += bytes;
    if (device->used_bytes > device->peak_used_bytes)
        device->peak_used_bytes = device->used_bytes;
    return VRP_OK;
}

void vrpi_sim_refund(vrpi_sim_device *device, uint64_t physical, uint64_t bytes) {
    vrpi_sim_pages_drop(device, physical, bytes);
    device->used_bytes -= bytes;
}

vrp_status vrpi_sim_mem_info(void *ctx, uint64_t *out_free_bytes, uint64_t *out_total_bytes) {
    vrpi_sim_device *device = ctx;
    VRPI_TRY(vrpi_sim_enter(device->sim, VRP_SIM_CALL_MEM_INFO, 0));
    *out_free_bytes = device->total_bytes - device->used_bytes - device->other_bytes;
    *out_total_bytes = device->total_bytes;
    return vrpi_sim_leave(device->sim, VRP_OK, vrp_sim_price_ns(VRP_SIM_CALL_MEM_INFO, 0));
}

/* Charged already; takes addresses and shows pages there. */
static vrp_status place(vrpi_sim_device *device, vrpi_sim_mapping *mapping, uint64_t bytes,
                        uint64_t charged) {
    vrpi_sim_zone *zone = bytes >= LARGE_BYTES ? &device->large : &device->small;
    uint64_t zone_bytes = (charged + zone->unit - 1) / zone->unit * zone->unit;
    uint64_t base = vrpi_sim_zone_take(zone, zone_bytes);
    if (base == 0) {
        (void)vrpi_fail(VRP_OUT_OF_DEVICE_MEMORY, "the address window is full");
        return vrpi_sim_native(VRP_OUT_OF_DEVICE_MEMORY, VRPI_SIM_NATIVE_OUT_OF_MEMORY);
    }
    mapping->node.key = base;
    mapping->node.length = charged;
    mapping->physical = device->next_physical;
    mapping->handle = VRPI_SIM_NO_HANDLE;
    mapping->access = 1;
    mapping->zone_bytes = zone_bytes;
    {
        vrp_status status = vrpi_sim_pages_show(device, base, mapping->physical, charged);
        if (status != VRP_OK) {
            vrpi_sim_zone_give(zone, base, zone_bytes);
            return status;
        }
    }
    device->next_physical += zone_bytes;
    vrpi_tree_insert(&device->mappings, &mapping->node);
    device->allocations++;
    return VRP_OK;
}

static vrp_status alloc_locked(vrpi_sim_device *device, uint64_t bytes, vrp_devptr *out_ptr) {
    uint64_t charged = (bytes + ALLOC_UNIT - 1) / ALLOC_UNIT * ALLOC_UNIT;
    vrpi_sim_mapping *mapping;
    vrp_status status;
    if (bytes == 0) {
        (void)vrpi_fail(VRP_INVALID_ARGUMENT, "mem_alloc of 0 bytes");
        return vrpi_sim_native(VRP_INVALID_ARGUMENT, VRPI_SIM_NATIVE_INVALID_VALUE);
    }
    VRPI_TRY(vrpi_sim_charge(device, charged < bytes ? UINT64_MAX : charged));
    mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL)
        status = vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no memory for an allocation");
    else
        status = place(device, mapping, bytes, charged);
    if (status != VRP_OK) {
        device->used_bytes -= charged;
        free(mapping);
        return status;
    }
    *out_ptr = mapping->node.key;
    return VRP_OK;
}

vrp_status vrpi_sim_mem_alloc(void *ctx, uint64_t bytes, vrp_devptr *out_ptr) {
    vrpi_sim_device *device = ctx;
    VRPI_TRY(vrpi_sim_enter(device->sim, VRP_SIM_CALL_MEM_ALLOC, bytes));
    return vrpi_sim_leave(device->sim, alloc_locked(device, bytes, out_ptr),
                          vrp_sim_price_ns(VRP_SIM_CALL_MEM_ALLOC, bytes));
}

static vrp_status free_locked(vrpi_sim_device *device, vrp_devptr ptr, uint64_t *out_bytes) {
    vrp_sim *sim = device->sim;
    vrpi_tree_node *node = vrpi_tree_holding(&device->mappings, ptr);
    vrpi_sim_mapping *mapping = as_mapping(node);
    vrpi_sim_piece piece;
    vrpi_sim_zone *zone;
    if (node == NULL || node->key != ptr || mapping->handle != VRPI_SIM_NO_HANDLE) {
        vrpi_sim_misuse(sim, "mem_free of %#llx, which is no allocation", (unsigned long long)ptr);
        (void)vrpi_fail(VRP_INVALID_ARGUMENT, "mem_free of an address that is no allocation");
        vrpi_fail_address(ptr);
        return vrpi_sim_native(VRP_INVALID_ARGUMENT, VRPI_SIM_NATIVE_INVALID_VALUE);
    }
    /* The real call waits for the whole device. */
    sim->host_blocks += vrpi_sim_anything_unfinished(sim) ? 1 : 0;
    VRPI_TRY(vrpi_sim_drain_all(sim));
    piece = (vrpi_sim_piece){ptr, mapping->physical, node->length};
    VRPI_TRY(vrpi_sim_regions_unmapped(device, &piece, "mem_free"));
    VRPI_TRY(vrpi_sim_regions_freed(device, piece.physical, piece.bytes, "mem_free"));
    *out_bytes = piece.bytes;
    zone = ptr >= device->small.base ? &device->small : &device->large;
    vrpi_tree_remove(&device->mappings, node);
    vrpi_sim_pages_hide(device, ptr, piece.bytes);
    vrpi_sim_refund(device, piece.physical, piece.bytes);
    vrpi_sim_zone_give(zone, ptr, mapping->zone_bytes);
    device->allocations--;
    free(mapping);
    return VRP_OK;
}

vrp_status vrpi_sim_mem_free(void *ctx, vrp_devptr ptr) {
    vrpi_sim_device *device = ctx;
    uint64_t bytes = 0;
    vrp_status status;
    VRPI_TRY(vrpi_sim_enter(device->sim, VRP_SIM_CALL_MEM_FREE, ptr));
    status = free_locked(device, ptr, &bytes);
    return vrpi_sim_leave(device->sim, status, vrp_sim_price_ns(VRP_SIM_CALL_MEM_FREE, bytes));
}

void vrpi_sim_memory_clear(vrpi_sim_device *device) {
    vrpi_tree_node *node;
    vrpi_sim_regions_clear(device);
    while ((node = device->mappings.root) != NULL) {
        vrpi_tree_remove(&device->mappings, node);
        free(as_mapping(node));
    }
    while ((node = device->ranges.root) != NULL) {
        vrpi_tree_remove(&device->ranges, node);
        free(node);
    }
}

vrp_status vrp_sim_host_pointer(vrp_sim *sim, vrp_devptr ptr, uint64_t bytes, void **out_pointer) {
    vrpi_sim_device *device;
    int backed;
    if (sim == NULL || out_pointer == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "host_pointer: NULL");
    if ((sim->flags & VRP_SIM_NO_HOST_MEMORY) != 0)
        return vrpi_fail(VRP_NOT_SUPPORTED, "the machine has no host memory");
    vrpi_mutex_lock(&sim->lock);
    device = vrpi_sim_device_of(sim, ptr);
    backed = device != NULL && vrpi_sim_backed(device, ptr, bytes == 0 ? 1 : bytes);
    vrpi_mutex_unlock(&sim->lock);
    if (!backed) {
        (void)vrpi_fail(VRP_INVALID_ARGUMENT, "%llu bytes there are not backed",
                        (unsigned long long)bytes);
        vrpi_fail_address(ptr);
        return VRP_INVALID_ARGUMENT;
    }
    *out_pointer = vrpi_sim_pointer(ptr);
    return VRP_OK;
}

vrp_status vrp_sim_other_bytes_set(vrp_sim *sim, uint32_t ordinal, uint64_t bytes) {
    vrp_status status = VRP_OK;
    if (sim == NULL || ordinal >= sim->device_count)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "no such device");
    vrpi_mutex_lock(&sim->lock);
    if (bytes > sim->devices[ordinal].total_bytes - sim->devices[ordinal].used_bytes)
        status = VRP_OUT_OF_DEVICE_MEMORY;
    else
        sim->devices[ordinal].other_bytes = bytes;
    vrpi_mutex_unlock(&sim->lock);
    if (status != VRP_OK)
        return vrpi_fail(status, "the device has fewer than %llu bytes free",
                         (unsigned long long)bytes);
    return VRP_OK;
}
