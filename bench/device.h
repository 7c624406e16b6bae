/* SPDX-License-Identifier: MIT */
#ifndef BENCH_DEVICE_H
#define BENCH_DEVICE_H

/* The device under a replay: a simulated machine or a GPU, and its streams. */

#include "clocked.h"
#include "cuda_streams.h"
#include "options.h"
#include "vrampool/sim.h"

typedef struct bench_device {
    vrp_driver *driver;
    vrp_driver *behind; /* what `driver` passes its calls on to; NULL: it is the device's own */
    bench_clocked clock;
    vrp_sim *sim; /* NULL on a GPU */
    bench_cuda cuda;
    int uses; /* the detector is to hear of each block's life */
} bench_device;

/* 0, or BENCH_FAILED after a message. On failure nothing is left open. */
int bench_device_open(bench_device *device, const bench_options *options);

/* Ends it; its pools and streams must be gone. Returns what the simulated
 * machine still held: 0 when clean. */
uint64_t bench_device_close(bench_device *device);

vrp_status bench_device_stream_create(bench_device *device, vrp_stream *out_stream);
void bench_device_stream_destroy(bench_device *device, vrp_stream stream);

/* Waits for all that was queued, as the recorder did at a marker. */
vrp_status bench_device_drain(bench_device *device);

#endif
