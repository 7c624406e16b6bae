/* SPDX-License-Identifier: MIT */
/* The snippet of the README as a program. Runs on a simulated device, so it
 * needs no GPU; "hello cuda:0" runs it on a real one. */

#include <stdio.h>
#include <stdlib.h>

#include "vrampool/vrampool.h"

static void check(vrp_status status) {
    if (status == VRP_OK)
        return;
    vrp_error_detail detail = {.struct_size = sizeof detail};
    if (vrp_error_detail_get(&detail) != VRP_OK)
        detail.message[0] = '\0';
    (void)fprintf(stderr, "%s: %s\n", vrp_status_name(status), detail.message);
    exit(1);
}

static void print(const char *when, vrp_pool *pool) {
    vrp_stats stats = {.struct_size = sizeof stats};
    check(vrp_pool_stats_get(pool, &stats));
    (void)printf("%-18s requested %9.3f MiB   allocated %9.3f MiB   reserved %9.3f MiB\n", when,
                 (double)stats.requested_bytes.current / 1048576.0,
                 (double)stats.allocated_bytes.current / 1048576.0,
                 (double)stats.reserved_bytes.current / 1048576.0);
}

int main(int argc, char **argv) {
    const char *device = argc > 1 ? argv[1] : "sim:8GiB";
    vrp_stream stream = VRP_STREAM_LEGACY;

    /* README: begin */
    vrp_driver *driver;
    vrp_pool *pool;
    vrp_devptr block;
    check(vrp_driver_open(device, &driver)); /* "sim:8GiB", or "cuda:0" */
    check(vrp_pool_create(driver, NULL, &pool));
    check(vrp_alloc(pool, 100000000, stream, &block)); /* work on the stream may use it now */
    print("after the alloc", pool);
    check(vrp_free(pool, block, stream)); /* at once: the stream may still be busy */
    print("after the free", pool);        /* the pool keeps the memory for the next request */
    check(vrp_empty_cache(pool, NULL));   /* at a pause, the device gets it back */
    print("after empty_cache", pool);
    check(vrp_pool_destroy(pool, 0));
    /* README: end */

    vrp_driver_destroy(driver);
    return 0;
}
