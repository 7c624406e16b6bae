/* SPDX-License-Identifier: MIT */
/* What happens around every driver call of the simulated machine: the hook,
 * the counter, planned faults, the price, and the thread's last errors. */

#include "driver/sim_internal.h"

#include <string.h>

static _Thread_local int64_t last_native;

/* The app's last error, per machine. A thread that works with more machines
 * than this at a time is not a case that a test has. */
enum { SLOT_COUNT = 8 };
typedef struct error_slot {
    uint64_t serial;
    int32_t error;
} error_slot;
static _Thread_local error_slot slots[SLOT_COUNT];
static _Thread_local unsigned next_slot;

vrp_status vrpi_sim_native(vrp_status status, int64_t native) {
    last_native = native;
    vrpi_fail_native(native);
    return status;
}

int64_t vrpi_sim_last_native(void) { return last_native; }

static int64_t native_of(vrp_status status) {
    if (status == VRP_OUT_OF_DEVICE_MEMORY)
        return VRPI_SIM_NATIVE_OUT_OF_MEMORY;
    if (status == VRP_DEVICE_LOST)
        return VRPI_SIM_NATIVE_LAUNCH_FAILED;
    if (status == VRP_INVALID_ARGUMENT)
        return VRPI_SIM_NATIVE_INVALID_VALUE;
    if (status == VRP_NOT_SUPPORTED)
        return VRPI_SIM_NATIVE_NOT_SUPPORTED;
    return VRPI_SIM_NATIVE_UNKNOWN;
}

/* Counts a call against a plan; what the plan says of it. */
static vrp_status consult(vrpi_sim_fault *fault) {
    vrp_status status = fault->status;
    if (fault->nth == 0)
        return VRP_OK;
    if (fault->nth > 1) {
        fault->nth--;
        return VRP_OK;
    }
    if (fault->count != UINT64_MAX && --fault->count == 0)
        fault->nth = 0;
    return status;
}

static vrp_status planned(vrp_sim *sim, vrp_sim_call call) {
    vrp_status of_kind;
    vrp_status of_any;
    if (sim->lost)
        return VRP_DEVICE_LOST;
    of_kind = consult(&sim->faults[call]);
    of_any = consult(&sim->faults[VRP_SIM_CALL_COUNT]);
    if (of_kind == VRP_OK)
        of_kind = of_any;
    if (of_kind == VRP_DEVICE_LOST)
        sim->lost = 1;
    return of_kind;
}

vrp_status vrpi_sim_enter(vrp_sim *sim, vrp_sim_call call, uint64_t argument) {
    vrp_status status;
    /* Pairs with the store in vrp_sim_call_hook_set; the pair itself is read
     * under the lock. */
    if (atomic_load_explicit(&sim->hooked, memory_order_acquire) != 0) {
        vrp_sim_call_hook hook;
        void *user;
        vrpi_mutex_lock(&sim->lock);
        hook = sim->hook;
        user = sim->hook_user;
        vrpi_mutex_unlock(&sim->lock);
        if (hook != NULL)
            hook(user, (int32_t)call, argument);
    }
    vrpi_mutex_lock(&sim->lock);
    sim->calls[call]++;
    status = planned(sim, call);
    if (status == VRP_OK)
        return VRP_OK;
    vrpi_mutex_unlock(&sim->lock);
    (void)vrpi_fail(status, "%s failed as planned", vrp_sim_call_name((int32_t)call));
    return vrpi_sim_native(status, native_of(status));
}

vrp_status vrpi_sim_leave(vrp_sim *sim, vrp_status status, uint64_t price_ns) {
    if (status == VRP_OK) {
        sim->driver_time_ns += price_ns;
        sim->now_ns += price_ns;
    }
    vrpi_mutex_unlock(&sim->lock);
    return status;
}

uint64_t vrp_sim_call_count(vrp_sim *sim, int32_t call) {
    uint64_t count;
    if (sim == NULL || call < 0 || call >= (int32_t)VRP_SIM_CALL_COUNT)
        return 0;
    vrpi_mutex_lock(&sim->lock);
    count = sim->calls[call];
    vrpi_mutex_unlock(&sim->lock);
    return count;
}

uint64_t vrp_sim_driver_time_ns(vrp_sim *sim) {
    uint64_t time_ns;
    if (sim == NULL)
        return 0;
    vrpi_mutex_lock(&sim->lock);
    time_ns = sim->driver_time_ns;
    vrpi_mutex_unlock(&sim->lock);
    return time_ns;
}

void vrp_sim_fault_set(vrp_sim *sim, int32_t call, uint64_t nth, uint64_t count,
                       vrp_status status) {
    vrpi_sim_fault *fault;
    if (sim == NULL || call < -1 || call >= (int32_t)VRP_SIM_CALL_COUNT)
        return;
    vrpi_mutex_lock(&sim->lock);
    fault = &sim->faults[call < 0 ? (int32_t)VRP_SIM_CALL_COUNT : call];
    fault->nth = count == 0 || status == VRP_OK ? 0 : nth;
    fault->count = count;
    fault->status = status;
    vrpi_mutex_unlock(&sim->lock);
}

void vrp_sim_faults_clear(vrp_sim *sim) {
    if (sim == NULL)
        return;
    vrpi_mutex_lock(&sim->lock);
    memset(sim->faults, 0, sizeof sim->faults);
    sim->lost = 0;
    vrpi_mutex_unlock(&sim->lock);
}

void vrp_sim_call_hook_set(vrp_sim *sim, vrp_sim_call_hook hook, void *user) {
    if (sim == NULL)
        return;
    vrpi_mutex_lock(&sim->lock);
    sim->hook = hook;
    sim->hook_user = user;
    atomic_store_explicit(&sim->hooked, hook != NULL, memory_order_release);
    vrpi_mutex_unlock(&sim->lock);
}

void vrp_sim_last_error_set(vrp_sim *sim, int32_t error) {
    error_slot *slot = NULL;
    if (sim == NULL)
        return;
    for (unsigned i = 0; i < SLOT_COUNT && slot == NULL; i++)
        if (slots[i].serial == sim->serial)
            slot = &slots[i];
    if (slot == NULL)
        slot = &slots[next_slot++ % SLOT_COUNT];
    slot->serial = sim->serial;
    slot->error = error;
}

int32_t vrp_sim_last_error_get(vrp_sim *sim) {
    if (sim == NULL)
        return 0;
    for (unsigned i = 0; i < SLOT_COUNT; i++)
        if (slots[i].serial == sim->serial)
            return slots[i].error;
    return 0;
}
