/* SPDX-License-Identifier: MIT */
/* Vector clocks of the misuse detector. */

#include "driver/sim_internal.h"

#include <stdlib.h>
#include <string.h>

static vrp_status reach(vrpi_sim_clock *clock, uint32_t count) {
    uint64_t *at;
    if (count <= clock->count)
        return VRP_OK;
    at = realloc(clock->at, count * sizeof *at);
    if (at == NULL)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no memory for a clock of %u streams", count);
    memset(at + clock->count, 0, (count - clock->count) * sizeof *at);
    clock->at = at;
    clock->count = count;
    return VRP_OK;
}

uint64_t vrpi_sim_clock_get(const vrpi_sim_clock *clock, uint32_t component) {
    return component < clock->count ? clock->at[component] : 0;
}

vrp_status vrpi_sim_clock_join(vrpi_sim_clock *into, const vrpi_sim_clock *from) {
    VRPI_TRY(reach(into, from->count));
    for (uint32_t i = 0; i < from->count; i++)
        if (from->at[i] > into->at[i])
            into->at[i] = from->at[i];
    return VRP_OK;
}

vrp_status vrpi_sim_clock_step(vrpi_sim_clock *clock, uint32_t component) {
    VRPI_TRY(reach(clock, component + 1));
    clock->at[component]++;
    return VRP_OK;
}

void vrpi_sim_clock_raise(vrpi_sim_clock *clock, uint32_t component, uint64_t epoch) {
    if (reach(clock, component + 1) == VRP_OK && clock->at[component] < epoch)
        clock->at[component] = epoch;
}

void vrpi_sim_clock_free(vrpi_sim_clock *clock) {
    free(clock->at);
    clock->at = NULL;
    clock->count = 0;
}
