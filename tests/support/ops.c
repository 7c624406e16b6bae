/* SPDX-License-Identifier: MIT */
/* Decoding of operations, and what is compared after each. The operations are
 * in ops_blocks.c and ops_pool.c. */

#include "ops_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    vrpt_op_fn fn;
    unsigned weight; /* of 256 */
} table[] = {
    {"alloc", vrpt_op_alloc, 88},       {"free", vrpt_op_free, 56},
    {"launch", vrpt_op_launch, 32},     {"record", vrpt_op_record, 8},
    {"progress", vrpt_op_progress, 22}, {"free_many", vrpt_op_free_many, 6},
    {"bad_free", vrpt_op_bad_free, 5},  {"forget", vrpt_op_forget, 4},
    {"capture", vrpt_op_capture, 5},    {"trim", vrpt_op_trim, 7},
    {"knob", vrpt_op_knob, 4},          {"scope", vrpt_op_scope, 5},
    {"budget", vrpt_op_budget, 2},      {"growable", vrpt_op_growable, 7},
    {"fault", vrpt_op_fault, 5},
};

/* Small sizes most often, every scale up to more than the device has. */
uint64_t vrpt_size_of(uint32_t number) {
    static const uint64_t tops[] = {
        512,
        4 * VRPT_KIB,
        32 * VRPT_KIB,
        32 * VRPT_KIB,
        VRPT_MIB / 4,
        VRPT_MIB,
        2 * VRPT_MIB,
        4 * VRPT_MIB,
        8 * VRPT_MIB,
        16 * VRPT_MIB,
        32 * VRPT_MIB,
        64 * VRPT_MIB,
        128 * VRPT_MIB,
        32 * VRPT_KIB,
        2 * VRPT_MIB,
        600 * VRPT_MIB,
    };
    uint64_t top = tops[number & 15];
    switch (number >> 4 & 7) {
    case 0:
        return top; /* exactly a bound, and one beside it */
    case 1:
        return top + 1;
    case 2:
        return top - 1;
    default:
        return 1 + (number >> 7) * (top / 64) / (UINT32_MAX >> 13);
    }
}

/* ---- One call ---------------------------------------------------------------- */

void vrpt_call_begin(vrpt_run *run) {
    run->before = vrpt_stats(&run->t);
    if (run->fault.armed)
        vrp_sim_fault_set(run->t.sim, run->fault.call, run->fault.nth, 1, run->fault.status);
}

int vrpt_call_end(vrpt_run *run, const char *what, vrp_status status, int *out_faulted) {
    *out_faulted = run->fault.armed;
    vrp_sim_faults_clear(run->t.sim);
    run->fault.armed = 0;
    if (run->options.trace)
        (void)fprintf(stderr, "%zu: %s: %s\n", run->op, what, vrp_status_name(status));
    if (status == VRP_OK)
        return 1;
    run->refused++;
    vrp_stats after = vrpt_stats(&run->t);
    if (!vrpt_same_counters(&run->before, &after))
        return vrpt_fail(&run->t,
                         "I6: %s answered %s and changed counters (allocated %" PRIu64
                         " to %" PRIu64 ")",
                         what, vrp_status_name(status), run->before.allocated_bytes.current,
                         after.allocated_bytes.current);
    if (status == VRP_DEVICE_LOST || status == VRP_SHUT_DOWN || status == VRP_CORRUPTED ||
        status == VRP_AFTER_FORK)
        return vrpt_fail(&run->t, "%s answered %s (%s)", what, vrp_status_name(status),
                         vrpt_detail());
    return 1;
}

/* ---- After each operation ------------------------------------------------------- */

static int full_check(vrpt_run *run) {
    vrp_status status = vrp_pool_check(run->t.pool);
    if (status != VRP_OK)
        return vrpt_fail(&run->t, "check: %s (%s)", vrp_status_name(status), vrpt_detail());
    return vrpt_recount(&run->t) && vrpt_model_compare_groups(&run->model, &run->t);
}

static int compare(vrpt_run *run) {
    vrp_stats stats = vrpt_stats(&run->t);
    if (!vrpt_model_compare(&run->model, &run->t, &stats))
        return 0;
    vrp_sim_stats machine = vrpt_sim_stats(&run->t, 0);
    if (machine.used_bytes != stats.reserved_bytes.current)
        return vrpt_fail(&run->t, "I2: reserved %" PRIu64 ", the device has %" PRIu64 " in use",
                         stats.reserved_bytes.current, machine.used_bytes);
    if (machine.misuses != 0) {
        char text[256];
        vrp_sim_misuse_text(run->t.sim, text, sizeof text);
        return vrpt_fail(&run->t, "I7: %s", text);
    }
    if (machine.capture_breaks != 0)
        return vrpt_fail(&run->t, "a capture was broken");
    return 1;
}

static int one_op(vrpt_run *run, const uint8_t *bytes) {
    vrpt_op op = {bytes[0], bytes[1], bytes[2], bytes[3], 0};
    memcpy(&op.number, bytes + 4, 4);
    unsigned left = op.code;
    for (size_t i = 0; i < VRPT_COUNT(table); i++) {
        if (left >= table[i].weight) {
            left -= table[i].weight;
            continue;
        }
        if (run->options.trace)
            (void)fprintf(stderr, "%zu: %s flags %02x index %u extra %02x number %08x\n", run->op,
                          table[i].name, op.flags, op.index, op.extra, op.number);
        if (!table[i].fn(run, &op))
            return 0;
        if (run->options.completion == VRP_SIM_LAG)
            vrp_sim_tick(run->t.sim);
        return compare(run);
    }
    return 1;
}

/* ---- A whole run ------------------------------------------------------------------ */

static int begin(vrpt_run *run, const vrpt_run_options *options) {
    memset(run, 0, sizeof *run);
    run->options = *options;
    run->capturing = -1;
    vrpt_options open = {.backing = options->backing,
                         .completion = options->completion,
                         .device_bytes = 512 * VRPT_MIB,
                         .lag_ticks = options->lag_ticks,
                         .sim_only = 1};
    open.pool.flags = options->pool_flags | VRP_NO_RECLAIMER;
    if (!vrpt_open(&run->t, &open))
        return 0;
    vrpt_model_clear(&run->model);
    run->streams[0] = VRP_STREAM_LEGACY;
    run->streams[1] = VRP_STREAM_PER_THREAD;
    run->blocking = 1 | 2 | 4;
    for (int i = 2; i < VRPT_STREAMS; i++) {
        uint32_t flags = run->blocking & 1u << i ? 0 : VRP_SIM_STREAM_NON_BLOCKING;
        if (vrp_sim_stream_create(run->t.sim, flags, &run->streams[i]) != VRP_OK)
            return vrpt_fail(&run->t, "no stream: %s", vrpt_detail());
    }
    return 1;
}

static int finish(vrpt_run *run) {
    if (!vrpt_capture_stop(run))
        return 0;
    for (int i = 0; i < VRPT_GROWABLES; i++)
        if (!vrpt_growable_drop(run, i))
            return 0;
    return compare(run) && full_check(run);
}

/* Ends a machine whose run has failed; the reason stays. */
static void abandon(vrpt_run *run) {
    char why[sizeof run->t.why];
    memcpy(why, run->t.why, sizeof why);
    if (run->t.pool != NULL)
        (void)!vrp_pool_destroy(run->t.pool, VRP_DESTROY_FORCE);
    if (run->t.driver != NULL)
        (void)vrpt_close_device(&run->t);
    memcpy(run->t.why, why, sizeof why);
}

int vrpt_run_ops(vrpt_run *run, const vrpt_run_options *options, const uint8_t *bytes,
                 size_t byte_count) {
    if (!begin(run, options))
        return 0;
    int good = 1;
    for (run->op = 0; good && run->op < byte_count / VRPT_OP_BYTES; run->op++) {
        good = one_op(run, bytes + run->op * VRPT_OP_BYTES);
        if (good && run->op % VRPT_CHECK_EVERY == VRPT_CHECK_EVERY - 1)
            good = full_check(run);
    }
    good = good && finish(run);
    if (!good) {
        abandon(run);
        return 0;
    }
    return vrpt_close(&run->t);
}

int vrpt_run_bytes(vrpt_run *run, const uint8_t *bytes, size_t byte_count, int trace) {
    static const int32_t completions[] = {VRP_SIM_MANUAL, VRP_SIM_LAG, VRP_SIM_IMMEDIATE};
    static const uint32_t flags[] = {0, VRP_NO_DEVICE_WAITS, VRP_STREAMS_UNTRACKED, 0};
    uint8_t head[VRPT_OP_BYTES] = {0};
    size_t head_bytes = byte_count < sizeof head ? byte_count : sizeof head;
    if (head_bytes > 0)
        memcpy(head, bytes, head_bytes);
    vrpt_run_options options = {.backing = head[0] & 1 ? VRP_BACKING_MALLOC : VRP_BACKING_VMM,
                                .completion = completions[head[1] % 3],
                                .pool_flags = flags[head[2] & 3],
                                .lag_ticks = head[3],
                                .trace = trace};
    return vrpt_run_ops(run, &options, bytes + head_bytes, byte_count - head_bytes);
}
