/* SPDX-License-Identifier: MIT */
#ifndef BENCH_STAGE_H
#define BENCH_STAGE_H

/* Where allocators are measured: a GPU, or the simulated device to try the
 * measurements themselves (no kernels run there, its calls take no time). */

#include "gpu.h"
#include "options.h"
#include "vrampool/sim.h"

typedef struct bench_stage {
    int on_gpu;
    uint32_t ordinal;
    bench_gpu gpu;
    vrp_sim *sim;
    char name[96];
} bench_stage;

/* 0, or BENCH_FAILED after a message. `options` says which device. */
int bench_stage_open(bench_stage *stage, const bench_options *options);
/* BENCH_FAILED after a message where something was left on a simulated device. */
int bench_stage_close(bench_stage *stage);

/* A driver of vrampool for this device; NULL after a message. */
vrp_driver *bench_stage_driver(const bench_stage *stage);

/* Each 0 after a message on standard error. */
int bench_stage_thread(const bench_stage *stage); /* first in every further thread */
int bench_stage_stream(const bench_stage *stage, uint64_t *out_stream);
int bench_stage_synchronise(const bench_stage *stage);
int bench_stage_touch(const bench_stage *stage, uint64_t stream, uint64_t ptr, uint64_t bytes);
void bench_stage_stream_end(const bench_stage *stage, uint64_t stream);

/* Bytes free on the device; 0 where it cannot be told. */
uint64_t bench_stage_free_bytes(const bench_stage *stage);

void bench_sleep_us(uint32_t us);

#endif
