/* SPDX-License-Identifier: MIT */
/* Fragmentation as a chat makes it, and how it goes. Weights of 12 GB stay;
 * each of ten turns makes an image embedding, hidden activations and a key
 * and value cache one step longer than the last one's. The new buffer is made
 * before the old one is freed, as a framework does when it concatenates, so
 * every turn leaves holes that the next turn's larger buffers do not fit in.
 *
 * After each turn it prints what the program has (allocated), what the device
 * has given (reserved), and the gap between the two, by cause. Then it frees
 * everything and empties the cache.
 *
 * "fragmentation" runs on a simulated device of 24 GiB; "fragmentation cuda:0"
 * on a real one. */

#include <stdio.h>
#include <stdlib.h>

#include "vrampool/vrampool.h"

enum { TURNS = 10, LAYERS = 48 };

#define WEIGHT_BYTES UINT64_C(12000000000)
#define F32 sizeof(float)

static void check(vrp_status status, const char *what) {
    if (status == VRP_OK)
        return;
    vrp_error_detail detail = {.struct_size = sizeof detail};
    if (vrp_error_detail_get(&detail) != VRP_OK)
        detail.message[0] = '\0';
    (void)fprintf(stderr, "%s: %s: %s\n", what, vrp_status_name(status), detail.message);
    exit(1);
}

static double mib(uint64_t bytes) { return (double)bytes / 1048576.0; }

static void print_row(vrp_pool *pool, const char *label) {
    vrp_stats stats = {.struct_size = sizeof stats};
    vrp_gap gap = {.struct_size = sizeof gap};
    check(vrp_pool_stats_get(pool, &stats), "vrp_pool_stats_get");
    /* takes up what the device has finished: that is idle, not pending */
    check(vrp_pool_poll(pool), "vrp_pool_poll");
    check(vrp_pool_gap_compute(pool, &gap), "vrp_pool_gap_compute");
    uint64_t allocated = stats.allocated_bytes.current;
    uint64_t reserved = stats.reserved_bytes.current;
    (void)printf("%-14s %12.2f %12.2f %9.2f | %7.2f %7.2f %7.2f %7.2f %7.2f\n", label,
                 mib(allocated), mib(reserved), mib(reserved - allocated), mib(gap.idle_bytes),
                 mib(gap.pinned_bytes), mib(gap.cached_bytes), mib(gap.pending_bytes),
                 mib(gap.slack_bytes));
}

static vrp_devptr make(vrp_pool *pool, size_t bytes, vrp_tag tag) {
    vrp_alloc_info info = {.struct_size = sizeof info,
                           .bytes = bytes,
                           .stream = VRP_STREAM_LEGACY,
                           .tag = (int32_t)tag};
    vrp_devptr ptr = 0;
    check(vrp_alloc_ex(pool, &info, &ptr), "vrp_alloc_ex");
    return ptr;
}

static void drop(vrp_pool *pool, vrp_devptr ptr) {
    check(vrp_free(pool, ptr, VRP_STREAM_OF_ALLOC), "vrp_free");
}

/* What a turn leaves alive until the next one replaces it. */
typedef struct turn_memory {
    vrp_devptr image;  /* 1 x 3 x 512 x 512 f32 */
    vrp_devptr hidden; /* 1 x 1024 x 4096 f32 */
    vrp_devptr kv;     /* 32 x (step + 1) x 16 x 128 f32 */
} turn_memory;

static void run_turn(vrp_pool *pool, turn_memory *memory, size_t step) {
    turn_memory fresh;
    fresh.image = make(pool, 1UL * 3 * 512 * 512 * F32, VRP_TAG_VISION);
    fresh.hidden = make(pool, 1UL * 1024 * 4096 * F32, VRP_TAG_ACTIVATION);
    fresh.kv = make(pool, 32UL * (step + 1) * 16 * 128 * F32, VRP_TAG_KV);
    drop(pool, memory->image);
    drop(pool, memory->hidden);
    drop(pool, memory->kv);
    *memory = fresh;
}

int main(int argc, char **argv) {
    const char *device = argc > 1 ? argv[1] : "sim:24GiB";
    vrp_driver *driver = NULL;
    vrp_pool *pool = NULL;
    check(vrp_driver_open(device, &driver), "vrp_driver_open");
    check(vrp_pool_create(driver, NULL, &pool), "vrp_pool_create");

    (void)printf("MiB               allocated     reserved       gap |    idle  pinned  cached "
                 "pending   slack\n");
    vrp_devptr weights[LAYERS];
    for (size_t i = 0; i < LAYERS; i++)
        weights[i] = make(pool, (size_t)(WEIGHT_BYTES / LAYERS), VRP_TAG_WEIGHTS);
    print_row(pool, "weights");

    turn_memory memory = {0};
    for (size_t step = 0; step < TURNS; step++) {
        char label[32];
        run_turn(pool, &memory, step);
        (void)snprintf(label, sizeof label, "turn %zu", step + 1);
        print_row(pool, label);
    }

    drop(pool, memory.image);
    drop(pool, memory.hidden);
    drop(pool, memory.kv);
    print_row(pool, "turns freed");
    for (size_t i = 0; i < LAYERS; i++)
        drop(pool, weights[i]);
    print_row(pool, "weights freed");
    check(vrp_empty_cache(pool, NULL), "vrp_empty_cache");
    print_row(pool, "empty_cache");

    check(vrp_pool_destroy(pool, 0), "vrp_pool_destroy");
    vrp_driver_destroy(driver);
    return 0;
}
