/* SPDX-License-Identifier: MIT */
/* A program outside the project, in C11: allocates, frees in a scope, trims,
 * and finds its device empty afterwards. */

#include <stdio.h>
#include <string.h>

#include <vrampool/optimizer.h>
#include <vrampool/sim.h>
#include <vrampool/vrampool.h>

#define TRY(expression)                                                   \
    do {                                                                  \
        vrp_status try_status = (expression);                             \
        if (try_status != VRP_OK) {                                       \
            printf("%s: %s\n", #expression, vrp_status_name(try_status)); \
            return 1;                                                     \
        }                                                                 \
    } while (0)

int main(void) {
    vrp_sim *sim;
    vrp_driver *driver;
    vrp_pool *pool;
    vrp_sim_config machine = {.struct_size = sizeof machine, .device_bytes = 1u << 30};
    TRY(vrp_sim_create(&machine, &sim));
    TRY(vrp_sim_driver_create(sim, 0, &driver));
    TRY(vrp_pool_create(driver, NULL, &pool));

    vrp_scope session;
    TRY(vrp_scope_open(pool, 0, &session));
    for (size_t i = 1; i <= 100; i++) {
        vrp_alloc_info info = {
            .struct_size = sizeof info, .bytes = i * 10000, .tag = VRP_TAG_KV, .scope = session};
        vrp_devptr ptr;
        void *host;
        TRY(vrp_alloc_ex(pool, &info, &ptr));
        TRY(vrp_sim_host_pointer(sim, ptr, info.bytes, &host));
        memset(host, (int)i, info.bytes);
    }
    uint64_t released = 0;
    TRY(vrp_scope_release(pool, session, &released));

    vrp_optimizer *optimizer;
    TRY(vrp_optimizer_create(pool, NULL, &optimizer));
    TRY(vrp_optimizer_step(optimizer, NULL, NULL));
    vrp_optimizer_destroy(optimizer);

    vrp_trim_result result = {.struct_size = sizeof result};
    TRY(vrp_empty_cache(pool, &result));
    TRY(vrp_pool_destroy(pool, 0));
    vrp_driver_destroy(driver);
    uint64_t left = vrp_sim_destroy(sim);
    printf("%s: %llu blocks released, %llu bytes trimmed, %llu left on the device\n",
           vrp_build_info(), (unsigned long long)released,
           (unsigned long long)result.released_bytes, (unsigned long long)left);
    return released == 100 && result.reserved_bytes == 0 && left == 0 ? 0 : 1;
}
