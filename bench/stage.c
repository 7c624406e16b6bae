/* SPDX-License-Identifier: MIT */
/* Devices, streams and work for measurements. */

#include "stage.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { NON_BLOCKING = 1 };

static int open_sim(bench_stage *stage, const bench_options *options) {
    vrp_sim_config config = {.struct_size = sizeof config,
                             .flags = VRP_SIM_NO_HOST_MEMORY | VRP_SIM_NO_DETECTOR,
                             .completion = VRP_SIM_IMMEDIATE,
                             .device_bytes = options->device_bytes};
    if (vrp_sim_create(&config, &stage->sim) != VRP_OK)
        return bench_fail("%s: %s", options->device, bench_detail());
    (void)snprintf(stage->name, sizeof stage->name, "%s", options->device);
    return BENCH_OK;
}

int bench_stage_open(bench_stage *stage, const bench_options *options) {
    memset(stage, 0, sizeof *stage);
    if (!options->is_cuda)
        return open_sim(stage, options);
    stage->ordinal = options->ordinal;
    const char *missing = bench_gpu_open(&stage->gpu, options->ordinal);
    if (missing != NULL)
        return bench_fail("%s: there is not %s", options->device, missing);
    stage->on_gpu = 1;
    (void)snprintf(stage->name, sizeof stage->name, "%s", stage->gpu.name);
    return BENCH_OK;
}

int bench_stage_close(bench_stage *stage) {
    uint64_t left = 0;
    if (stage->sim != NULL)
        left = vrp_sim_destroy(stage->sim);
    else
        bench_gpu_close(&stage->gpu);
    memset(stage, 0, sizeof *stage);
    return left == 0 ? BENCH_OK
                     : bench_fail("the device still holds %llu objects", (unsigned long long)left);
}

vrp_driver *bench_stage_driver(const bench_stage *stage) {
    vrp_driver *driver = NULL;
    char name[32];
    if (stage->sim != NULL) {
        if (vrp_sim_driver_create(stage->sim, 0, &driver) == VRP_OK)
            return driver;
        (void)bench_fail("%s: %s", stage->name, bench_detail());
        return NULL;
    }
    (void)snprintf(name, sizeof name, "cuda:%u", stage->ordinal);
    if (vrp_driver_open(name, &driver) == VRP_OK)
        return driver;
    (void)bench_fail("%s: %s", name, bench_detail());
    return NULL;
}

/* 1, or 0 after a message. */
static int good(int error, const char *what) {
    if (error != 0)
        (void)bench_fail("%s: CUDA's error %d", what, error);
    return error == 0;
}

int bench_stage_thread(const bench_stage *stage) {
    return !stage->on_gpu || good(bench_gpu_thread(&stage->gpu), "context");
}

int bench_stage_stream(const bench_stage *stage, uint64_t *out_stream) {
    bench_cu_handle stream = NULL;
    if (stage->sim != NULL)
        return vrp_sim_stream_create(stage->sim, VRP_SIM_STREAM_NON_BLOCKING, out_stream) ==
                   VRP_OK ||
               !bench_fail("stream: %s", bench_detail());
    if (!good(stage->gpu.stream_create(&stream, NON_BLOCKING), "stream"))
        return 0;
    *out_stream = (uint64_t)(uintptr_t)stream;
    return 1;
}

void bench_stage_stream_end(const bench_stage *stage, uint64_t stream) {
    if (stage->on_gpu)
        (void)good(stage->gpu.stream_destroy((bench_cu_handle)(uintptr_t)stream), "stream");
    else if (vrp_sim_stream_destroy(stage->sim, stream) != VRP_OK)
        (void)bench_fail("stream: %s", bench_detail());
}

int bench_stage_synchronise(const bench_stage *stage) {
    if (stage->on_gpu)
        return good(stage->gpu.synchronise(), "synchronise");
    vrp_sim_drain(stage->sim);
    return 1;
}

int bench_stage_touch(const bench_stage *stage, uint64_t stream, uint64_t ptr, uint64_t bytes) {
    return !stage->on_gpu || good(bench_gpu_touch(&stage->gpu, stream, ptr, bytes), "kernel");
}

uint64_t bench_stage_free_bytes(const bench_stage *stage) {
    vrp_sim_stats stats = {.struct_size = sizeof stats};
    size_t free_bytes = 0;
    size_t total = 0;
    if (stage->on_gpu)
        return stage->gpu.mem_info(&free_bytes, &total) == 0 ? free_bytes : 0;
    /* Only differences count. */
    if (vrp_sim_stats_get(stage->sim, 0, &stats) != VRP_OK)
        return 0;
    return (UINT64_C(1) << 60) - stats.used_bytes;
}

void bench_sleep_us(uint32_t us) {
    struct timespec span = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
    (void)nanosleep(&span, NULL);
}
