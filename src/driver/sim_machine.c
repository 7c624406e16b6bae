/* SPDX-License-Identifier: MIT */
/* The simulated machine itself: configuration, statistics, end; and the
 * driver tables of its devices. */

#include "driver/sim_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB(n) ((uint64_t)(n) << 30)
#define TIB(n) ((uint64_t)(n) << 40)
#define KNOWN_FLAGS                                                                         \
    (VRP_SIM_NO_DETECTOR | VRP_SIM_NO_VMM | VRP_SIM_NO_MALLOC | VRP_SIM_NO_CONTEXT_RECORD | \
     VRP_SIM_NO_HOST_MEMORY)
enum { DEVICES_MAX = 64 };

static atomic_uint_fast64_t machines;
static atomic_uint_fast64_t threads;
static _Thread_local uint64_t this_thread;

uint64_t vrpi_sim_thread(void) {
    if (this_thread == 0)
        this_thread = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;
    return this_thread;
}

int vrpi_sim_grow(void **array, uint32_t *capacity, uint32_t count, size_t item_bytes) {
    uint32_t wanted = *capacity == 0 ? 16 : *capacity * 2;
    void *grown;
    if (count < *capacity)
        return 1;
    if (wanted <= *capacity)
        return 0;
    grown = realloc(*array, wanted * item_bytes);
    if (grown == NULL)
        return 0;
    memset((char *)grown + *capacity * item_bytes, 0, (wanted - *capacity) * item_bytes);
    *array = grown;
    *capacity = wanted;
    return 1;
}

/* ---- Creation ------------------------------------------------------------------------ */

static vrp_status config_read(const vrp_sim_config *given, vrp_sim_config *config) {
    uint64_t page = 4096;
    memset(config, 0, sizeof *config);
    if (given != NULL)
        VRPI_TRY(vrpi_struct_in(config, sizeof *config, given, "vrp_sim_config"));
    if (config->device_count == 0)
        config->device_count = 1;
    if (config->device_bytes == 0)
        config->device_bytes = GIB(8);
    if (config->granularity_bytes == 0)
        config->granularity_bytes = (uint64_t)2 << 20;
    if (config->window_bytes == 0)
        config->window_bytes =
            config->device_bytes > TIB(1) / 64 ? config->device_bytes * 64 : TIB(1);
    if ((config->flags & ~KNOWN_FLAGS) != 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_sim_config.flags has unknown bits: %#x",
                         config->flags);
    if (config->device_count > DEVICES_MAX)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_sim_config.device_count %u is above %d",
                         config->device_count, DEVICES_MAX);
    if (config->completion < VRP_SIM_IMMEDIATE || config->completion > VRP_SIM_CLOCK)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_sim_config.completion %d is no mode",
                         config->completion);
    if (config->granularity_bytes < page ||
        (config->granularity_bytes & (config->granularity_bytes - 1)) != 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT,
                         "vrp_sim_config.granularity_bytes is no power of two from 4096");
    if (config->device_bytes > TIB(128) / 16)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_sim_config.device_bytes is above 8 TiB");
    return VRP_OK;
}

static vrp_status devices_open(vrp_sim *sim, const vrp_sim_config *config) {
    uint64_t number_base = TIB(16);
    sim->devices = calloc(config->device_count, sizeof *sim->devices);
    if (sim->devices == NULL)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no memory for devices");
    for (uint32_t i = 0; i < config->device_count; i++) {
        vrpi_sim_device *device = &sim->devices[i];
        device->sim = sim;
        device->ordinal = i;
        device->total_bytes = config->device_bytes;
        device->file = -1;
        sim->device_count++;
        VRPI_TRY(vrpi_sim_window_open(device, config->window_bytes, &number_base));
    }
    return VRP_OK;
}

static void machine_free(vrp_sim *sim) {
    for (uint32_t i = 0; i < sim->device_count; i++) {
        vrpi_sim_memory_clear(&sim->devices[i]);
        vrpi_sim_window_close(&sim->devices[i]);
    }
    free(sim->devices);
    free(sim->handles);
    vrpi_sim_events_close(sim);
    vrpi_sim_streams_close(sim);
    vrpi_mutex_destroy(&sim->lock);
    free(sim);
}

vrp_status vrp_sim_create(const vrp_sim_config *given, vrp_sim **out_sim) {
    vrp_sim_config config;
    vrp_status status;
    vrp_sim *sim;
    if (out_sim == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "sim_create: nowhere to put the machine");
    VRPI_TRY(config_read(given, &config));
    sim = calloc(1, sizeof *sim);
    if (sim == NULL || vrpi_mutex_init(&sim->lock, VRPI_RANK_DRIVER) != 0) {
        free(sim);
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no memory for a machine");
    }
    sim->serial = atomic_fetch_add_explicit(&machines, 1, memory_order_relaxed) + 1;
    sim->flags = config.flags;
    sim->completion = (vrp_sim_completion)config.completion;
    sim->granularity = config.granularity_bytes;
    sim->lag = config.lag_ticks;
    sim->handle_free = VRPI_SIM_NO_HANDLE;
    sim->event_free = UINT32_MAX;
    atomic_init(&sim->ticks, 0);
    atomic_init(&sim->hooked, 0);
    status = vrpi_sim_streams_open(sim);
    if (status == VRP_OK)
        status = devices_open(sim, &config);
    if (status != VRP_OK) {
        machine_free(sim);
        return status;
    }
    *out_sim = sim;
    return VRP_OK;
}

uint64_t vrp_sim_destroy(vrp_sim *sim) {
    uint64_t left;
    if (sim == NULL)
        return 0;
    left = sim->live_events;
    for (uint32_t i = 0; i < sim->device_count; i++)
        left +=
            sim->devices[i].handles + sim->devices[i].mappings.count + sim->devices[i].ranges.count;
    /* A lost context has taken everything with it. */
    if (sim->lost)
        left = 0;
    machine_free(sim);
    return left;
}

/* ---- Statistics ------------------------------------------------------------------------ */

vrp_status vrp_sim_stats_get(vrp_sim *sim, uint32_t ordinal, vrp_sim_stats *out_stats) {
    vrp_sim_stats stats;
    const vrpi_sim_device *device;
    if (sim == NULL || ordinal >= sim->device_count)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "no such device");
    device = &sim->devices[ordinal];
    memset(&stats, 0, sizeof stats);
    stats.ordinal = ordinal;
    vrpi_mutex_lock(&sim->lock);
    stats.used_bytes = device->used_bytes;
    stats.peak_used_bytes = device->peak_used_bytes;
    stats.other_bytes = device->other_bytes;
    stats.allocations = device->allocations;
    stats.handles = device->handles;
    stats.mappings = device->mapped;
    stats.ranges = device->ranges.count;
    stats.events = sim->live_events;
    stats.misuses = sim->misuses;
    stats.host_blocks = sim->host_blocks;
    stats.capture_breaks = sim->capture_breaks;
    vrpi_mutex_unlock(&sim->lock);
    return vrpi_struct_out(out_stats, &stats, sizeof stats, "vrp_sim_stats");
}

void vrp_sim_misuse_text(vrp_sim *sim, char *text, size_t text_bytes) {
    if (text == NULL || text_bytes == 0)
        return;
    text[0] = '\0';
    if (sim == NULL)
        return;
    vrpi_mutex_lock(&sim->lock);
    (void)snprintf(text, text_bytes, "%s", sim->misuse_text);
    vrpi_mutex_unlock(&sim->lock);
}

/* ---- Driver tables ----------------------------------------------------------------------- */

static vrp_status device_info(void *ctx, vrp_device_info *out_info) {
    vrpi_sim_device *device = ctx;
    vrp_sim *sim = device->sim;
    vrp_device_info info;
    vrp_status status;
    memset(&info, 0, sizeof info);
    VRPI_TRY(vrpi_sim_enter(sim, VRP_SIM_CALL_DEVICE_INFO, device->ordinal));
    info.caps = VRP_CAP_STREAM_ID | VRP_CAP_CAPTURE | VRP_CAP_COPY | VRP_CAP_DEVICE_WAIT;
    if ((sim->flags & VRP_SIM_NO_VMM) == 0)
        info.caps |= VRP_CAP_VMM;
    if ((sim->flags & VRP_SIM_NO_MALLOC) == 0)
        info.caps |= VRP_CAP_MALLOC;
    if ((sim->flags & VRP_SIM_NO_CONTEXT_RECORD) == 0)
        info.caps |= VRP_CAP_CONTEXT_RECORD;
    if ((sim->flags & VRP_SIM_NO_VMM) == 0)
        info.caps |= VRP_CAP_EXPORT_FD | VRP_CAP_EXPORT_DMA_BUF;
    if ((sim->flags & VRP_SIM_NO_MALLOC) == 0)
        info.caps |= VRP_CAP_EXPORT_IPC;
    info.total_bytes = device->total_bytes;
    info.granularity_bytes = sim->granularity;
    info.address_bytes = device->large.bytes;
    (void)snprintf(info.name, sizeof info.name, "simulated device %" PRIu32, device->ordinal);
    status = vrpi_struct_out(out_info, &info, sizeof info, "vrp_device_info");
    return vrpi_sim_leave(sim, status, vrp_sim_price_ns(VRP_SIM_CALL_DEVICE_INFO, 0));
}

static int64_t last_native_error(void *ctx) {
    (void)ctx;
    return vrpi_sim_last_native();
}

/* The device belongs to the machine, which outlives its drivers. */
static void driver_gone(void *ctx) { (void)ctx; }

static void fill(const vrp_sim *sim, vrp_driver_ops *ops) {
    memset(ops, 0, sizeof *ops);
    ops->struct_size = (uint32_t)sizeof *ops;
    ops->device_info = device_info;
    ops->mem_info = vrpi_sim_mem_info;
    ops->event_create = vrpi_sim_event_create;
    ops->event_destroy = vrpi_sim_event_destroy;
    ops->event_record = vrpi_sim_event_record;
    ops->event_query = vrpi_sim_event_query;
    ops->event_synchronize = vrpi_sim_event_synchronize;
    ops->synchronize = vrpi_sim_synchronize;
    if ((sim->flags & VRP_SIM_NO_MALLOC) == 0) {
        ops->mem_alloc = vrpi_sim_mem_alloc;
        ops->mem_free = vrpi_sim_mem_free;
        ops->ipc_export = vrpi_sim_ipc_export;
    }
    if ((sim->flags & VRP_SIM_NO_VMM) == 0) {
        ops->address_reserve = vrpi_sim_address_reserve;
        ops->address_free = vrpi_sim_address_free;
        ops->handle_create = vrpi_sim_handle_create;
        ops->handle_release = vrpi_sim_handle_release;
        ops->map = vrpi_sim_map;
        ops->set_access = vrpi_sim_set_access;
        ops->unmap = vrpi_sim_unmap;
        ops->handle_export = vrpi_sim_handle_export;
        ops->range_export = vrpi_sim_range_export;
    }
    ops->stream_wait_event = vrpi_sim_stream_wait_event;
    if ((sim->flags & VRP_SIM_NO_CONTEXT_RECORD) == 0)
        ops->context_record = vrpi_sim_context_record;
    ops->stream_id = vrpi_sim_stream_id;
    ops->stream_is_capturing = vrpi_sim_stream_is_capturing;
    ops->copy_async = vrpi_sim_copy_async;
    ops->last_native_error = last_native_error;
    ops->destroy = driver_gone;
}

vrp_status vrp_sim_driver_create(vrp_sim *sim, uint32_t ordinal, vrp_driver **out_driver) {
    vrp_driver_ops ops;
    if (sim == NULL || ordinal >= sim->device_count || out_driver == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "no such device of a simulated machine");
    fill(sim, &ops);
    return vrp_driver_create(&ops, &sim->devices[ordinal], out_driver);
}

vrp_sim *vrp_sim_of_driver(const vrp_driver *driver) {
    void *ctx = NULL;
    const vrp_driver_ops *ops = driver == NULL ? NULL : vrp_driver_ops_get(driver, &ctx);
    if (ops == NULL || ops->device_info != device_info || ctx == NULL)
        return NULL;
    return ((vrpi_sim_device *)ctx)->sim;
}
