/* SPDX-License-Identifier: MIT */
/* Opens and closes the device that a replay runs on. */

#include "device.h"

#include <string.h>

static int open_sim(bench_device *device, const bench_options *options) {
    vrp_sim_config config = {.struct_size = sizeof config,
                             .flags = VRP_SIM_NO_HOST_MEMORY,
                             .completion = VRP_SIM_LAG,
                             .device_bytes = options->device_bytes,
                             .lag_ticks = options->lag};
    if (options->fast)
        config.flags |= VRP_SIM_NO_DETECTOR;
    if (vrp_sim_create(&config, &device->sim) != VRP_OK)
        return bench_fail("%s: %s", options->device, bench_detail());
    if (vrp_sim_driver_create(device->sim, 0, &device->driver) != VRP_OK) {
        int code = bench_fail("%s: %s", options->device, bench_detail());
        (void)vrp_sim_destroy(device->sim);
        return code;
    }
    device->uses = !options->fast;
    return BENCH_OK;
}

/* --lag 0 on a GPU: the host waits for each event where it is recorded, so that
 * a replay finds what it finds on a simulated device without lag. */
static int complete_at_once(bench_device *device) {
    vrp_driver *behind = device->driver;
    device->clock.record_waits = 1;
    device->driver = bench_clocked_driver(&device->clock, behind);
    if (device->driver == NULL) {
        vrp_driver_destroy(behind);
        bench_cuda_close(&device->cuda);
        return BENCH_FAILED;
    }
    device->behind = behind;
    return BENCH_OK;
}

static int open_cuda(bench_device *device, const bench_options *options) {
    char name[32] = "cuda:";
    char digits[16];
    size_t count = 0;
    uint32_t ordinal = options->ordinal;
    do {
        digits[count++] = (char)('0' + ordinal % 10);
        ordinal /= 10;
    } while (ordinal > 0);
    for (size_t at = strlen(name); count > 0; at++)
        name[at] = digits[--count];
    if (vrp_driver_open(name, &device->driver) != VRP_OK)
        return bench_fail("%s: %s", name, bench_detail());
    const char *reason = bench_cuda_open(&device->cuda, options->ordinal);
    if (reason != NULL) {
        vrp_driver_destroy(device->driver);
        return bench_fail("%s: %s", name, reason);
    }
    return options->lag == 0 ? complete_at_once(device) : BENCH_OK;
}

int bench_device_open(bench_device *device, const bench_options *options) {
    memset(device, 0, sizeof *device);
    return options->is_cuda ? open_cuda(device, options) : open_sim(device, options);
}

uint64_t bench_device_close(bench_device *device) {
    uint64_t left = 0;
    vrp_driver_destroy(device->driver);
    vrp_driver_destroy(device->behind);
    if (device->sim != NULL)
        left = vrp_sim_destroy(device->sim);
    else
        bench_cuda_close(&device->cuda);
    memset(device, 0, sizeof *device);
    return left;
}

vrp_status bench_device_stream_create(bench_device *device, vrp_stream *out_stream) {
    if (device->sim != NULL)
        return vrp_sim_stream_create(device->sim, VRP_SIM_STREAM_NON_BLOCKING, out_stream);
    return bench_cuda_stream_create(&device->cuda, out_stream) ? VRP_OK : VRP_UNAVAILABLE;
}

void bench_device_stream_destroy(bench_device *device, vrp_stream stream) {
    if (device->sim == NULL)
        bench_cuda_stream_destroy(&device->cuda, stream);
    else if (vrp_sim_stream_destroy(device->sim, stream) != VRP_OK)
        (void)bench_fail("a stream could not be destroyed: %s", bench_detail());
}

vrp_status bench_device_drain(bench_device *device) {
    void *ctx = NULL;
    if (device->sim != NULL) {
        vrp_sim_drain(device->sim);
        return VRP_OK;
    }
    return vrp_driver_ops_get(device->driver, &ctx)->synchronize(ctx);
}
