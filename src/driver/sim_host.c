/* SPDX-License-Identifier: MIT */
/* The address window of a simulated device and the pages behind its memory.
 *
 * Addresses are reserved host addresses without access. Physical memory is a
 * place in one sparse file per device, so that two mappings of a handle share
 * pages, and so that nothing costs memory before somebody touches it. Places
 * are never used twice: the file is larger than any run could fill. */

#include "driver/sim_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_BYTES ((off_t)1 << 60)
#define NUMBER_LIMIT ((uint64_t)1 << 47)

static const int reserve_flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void *vrpi_sim_pointer(uint64_t address) { return (void *)(uintptr_t)address; }

static uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

static vrp_status zone_open(vrpi_sim_zone *zone, uint64_t base, uint64_t bytes, uint64_t unit) {
    vrpi_tree_node *all = calloc(1, sizeof *all);
    if (all == NULL)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no memory for the address window");
    zone->base = base;
    zone->bytes = bytes;
    zone->unit = unit;
    all->key = base;
    all->length = bytes;
    vrpi_tree_insert(&zone->vacant, all);
    return VRP_OK;
}

static void zone_close(vrpi_sim_zone *zone) {
    vrpi_tree_node *node;
    while ((node = zone->vacant.root) != NULL) {
        vrpi_tree_remove(&zone->vacant, node);
        free(node);
    }
}

uint64_t vrpi_sim_zone_take(vrpi_sim_zone *zone, uint64_t bytes) {
    vrpi_tree_node *node = vrpi_tree_first_fit(&zone->vacant, bytes);
    uint64_t base;
    if (node == NULL)
        return 0;
    base = node->key;
    vrpi_tree_remove(&zone->vacant, node);
    if (node->length == bytes) {
        free(node);
    } else {
        node->key += bytes;
        node->length -= bytes;
        vrpi_tree_insert(&zone->vacant, node);
    }
    return base;
}

void vrpi_sim_zone_give(vrpi_sim_zone *zone, uint64_t base, uint64_t bytes) {
    vrpi_tree_node *low = vrpi_tree_at_or_below(&zone->vacant, base);
    vrpi_tree_node *high = vrpi_tree_above(&zone->vacant, base);
    vrpi_tree_node *node = NULL;
    if (low != NULL && low->key + low->length == base) {
        vrpi_tree_remove(&zone->vacant, low);
        base = low->key;
        bytes += low->length;
        node = low;
    }
    if (high != NULL && high->key == base + bytes) {
        vrpi_tree_remove(&zone->vacant, high);
        bytes += high->length;
        if (node == NULL)
            node = high;
        else
            free(high);
    }
    if (node == NULL)
        node = calloc(1, sizeof *node);
    if (node == NULL)
        return; /* these addresses are lost, of a window that has many */
    node->key = base;
    node->length = bytes;
    vrpi_tree_insert(&zone->vacant, node);
}

/* Asks the system for addresses; for less where it has not as many. */
static void *reserve(uint64_t *in_out_bytes, uint64_t least, uint64_t unit) {
    for (;;) {
        void *base = mmap(NULL, *in_out_bytes + *in_out_bytes / 16 + 2 * unit, PROT_NONE,
                          reserve_flags, -1, 0);
        if (base != MAP_FAILED)
            return base;
        if (*in_out_bytes / 2 < least)
            return NULL;
        *in_out_bytes = *in_out_bytes / 2 / unit * unit;
    }
}

static vrp_status file_open(vrpi_sim_device *device) {
    device->file = memfd_create("vrampool-sim", MFD_CLOEXEC);
    if (device->file < 0)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "memfd_create: %s", strerror(errno));
    if (ftruncate(device->file, FILE_BYTES) != 0)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "a sparse file: %s", strerror(errno));
    return VRP_OK;
}

vrp_status vrpi_sim_window_open(vrpi_sim_device *device, uint64_t wanted_bytes,
                                uint64_t *in_out_number_base) {
    uint64_t two_mib = (uint64_t)2 << 20;
    uint64_t unit = device->sim->granularity > two_mib ? device->sim->granularity : two_mib;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t bytes = round_up(wanted_bytes, unit);
    uint64_t small_bytes;
    uint64_t base;
    device->file = -1;
    if (bytes >= NUMBER_LIMIT)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no address space of %llu bytes",
                         (unsigned long long)wanted_bytes);
    if ((device->sim->flags & VRP_SIM_NO_HOST_MEMORY) != 0) {
        base = *in_out_number_base;
        small_bytes = round_up(bytes / 16, unit) + unit;
        *in_out_number_base = round_up(base + bytes + small_bytes, (uint64_t)1 << 40);
        if (*in_out_number_base > NUMBER_LIMIT)
            return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "the devices need more than 47 address bits");
    } else {
        device->window = reserve(&bytes, 2 * device->total_bytes, unit);
        if (device->window == NULL)
            return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no address space of %llu bytes",
                             (unsigned long long)bytes);
        device->window_bytes = bytes + bytes / 16 + 2 * unit;
        (void)madvise(device->window, device->window_bytes, MADV_DONTDUMP);
        base = round_up((uint64_t)(uintptr_t)device->window, unit);
        small_bytes = bytes / 16 / page * page + unit;
        VRPI_TRY(file_open(device));
    }
    VRPI_TRY(zone_open(&device->large, base, bytes, unit));
    return zone_open(&device->small, base + bytes, small_bytes, page);
}

void vrpi_sim_window_close(vrpi_sim_device *device) {
    zone_close(&device->large);
    zone_close(&device->small);
    if (device->window != NULL)
        (void)munmap(device->window, device->window_bytes);
    if (device->file >= 0)
        (void)close(device->file);
}

static uint64_t whole_pages(uint64_t bytes) {
    return round_up(bytes, (uint64_t)sysconf(_SC_PAGESIZE));
}

vrp_status vrpi_sim_pages_show(vrpi_sim_device *device, uint64_t address, uint64_t physical,
                               uint64_t bytes) {
    if (device->window == NULL)
        return VRP_OK;
    if (mmap(vrpi_sim_pointer(address), whole_pages(bytes), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED, device->file, (off_t)physical) == MAP_FAILED)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "mapping simulated memory: %s", strerror(errno));
    return VRP_OK;
}

void vrpi_sim_pages_hide(vrpi_sim_device *device, uint64_t address, uint64_t bytes) {
    if (device->window != NULL)
        (void)mmap(vrpi_sim_pointer(address), whole_pages(bytes), PROT_NONE,
                   reserve_flags | MAP_FIXED, -1, 0);
}

void vrpi_sim_pages_drop(vrpi_sim_device *device, uint64_t physical, uint64_t bytes) {
    if (device->window != NULL)
        (void)fallocate(device->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)physical,
                        (off_t)whole_pages(bytes));
}
