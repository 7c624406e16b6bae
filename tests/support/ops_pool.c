/* SPDX-License-Identifier: MIT */
/* Operations on the pool as a whole: progress of the device, trims, knobs,
 * scopes, budgets, buffers that grow, captures, and the next fault. */

#include "ops_internal.h"

#include <inttypes.h>
#include <string.h>

/* An answer that must be OK unless a fault was planted. */
static int expect_ok(vrpt_run *run, const char *what, vrp_status status, int faulted) {
    if (status == VRP_OK || faulted)
        return 1;
    return vrpt_fail(&run->t, "%s: %s (%s)", what, vrp_status_name(status), vrpt_detail());
}

int vrpt_op_progress(vrpt_run *run, const vrpt_op *op) {
    int stream = op->index % VRPT_STREAMS, faulted;
    switch (op->flags & 7) {
    case 0:
    case 1:
    case 2:
        vrp_sim_complete(run->t.sim, run->streams[stream], 1 + op->number % 8);
        return 1;
    case 3:
        if (run->capturing >= 0)
            return 1;
        vrp_sim_drain(run->t.sim);
        for (size_t i = 0; i < run->model.count; i++)
            run->model.live[i].used = 0; /* the host knows that all is done */
        return 1;
    case 4:
        if (run->capturing >= 0)
            return 1;
        return expect_ok(run, "synchronize",
                         vrp_sim_stream_synchronize(run->t.sim, run->streams[stream]), 0);
    case 5:
        vrp_sim_tick(run->t.sim);
        return 1;
    default: {
        vrpt_call_begin(run);
        vrp_status status = vrp_pool_poll(run->t.pool);
        return vrpt_call_end(run, "poll", status, &faulted) &&
               expect_ok(run, "poll", status, faulted);
    }
    }
}

/* ---- Trims and knobs -------------------------------------------------------------- */

static int trimmed_well(vrpt_run *run, const vrp_trim_result *result, uint32_t flags) {
    vrp_stats stats = vrpt_stats(&run->t);
    vrp_gap gap = {.struct_size = sizeof gap};
    vrp_status status = vrp_pool_gap_compute(run->t.pool, &gap);
    if (status != VRP_OK)
        return expect_ok(run, "gap", status, 0);
    if (result->reserved_bytes != stats.reserved_bytes.current ||
        result->released_bytes != run->before.reserved_bytes.current - stats.reserved_bytes.current)
        return vrpt_fail(&run->t,
                         "trim says %" PRIu64 " released and %" PRIu64
                         " reserved; reserved went from %" PRIu64 " to %" PRIu64,
                         result->released_bytes, result->reserved_bytes,
                         run->before.reserved_bytes.current, stats.reserved_bytes.current);
    if (gap.idle_bytes != 0)
        return vrpt_fail(&run->t, "%" PRIu64 " idle bytes after everything idle was trimmed",
                         gap.idle_bytes);
    if (!(flags & VRP_TRIM_KEEP_CACHES) && gap.cached_bytes != 0)
        return vrpt_fail(&run->t, "%" PRIu64 " bytes in caches after a trim", gap.cached_bytes);
    if (flags & VRP_TRIM_WAIT && run->capturing < 0 && result->pending_bytes != 0)
        return vrpt_fail(&run->t, "a trim that waits left %" PRIu64 " bytes pending",
                         result->pending_bytes);
    return 1;
}

int vrpt_op_trim(vrpt_run *run, const vrpt_op *op) {
    vrp_trim_result result = {.struct_size = sizeof result};
    uint32_t flags = 0;
    uint64_t target = 0;
    int faulted, whole = op->flags & 1;
    if (!whole) {
        flags = op->flags >> 1 & (VRP_TRIM_WAIT | VRP_TRIM_KEEP_CACHES);
        target = op->flags & 8 ? op->number % (256 * VRPT_MIB) : 0;
    }
    vrpt_call_begin(run);
    vrp_status status = whole ? vrp_empty_cache(run->t.pool, &result)
                              : vrp_trim(run->t.pool, target, flags, &result);
    if (!vrpt_call_end(run, "trim", status, &faulted) || !expect_ok(run, "trim", status, faulted))
        return 0;
    if (status == VRP_OK && !faulted && target == 0)
        return trimmed_well(run, &result, flags);
    return 1;
}

int vrpt_op_knob(vrpt_run *run, const vrpt_op *op) {
    int32_t knob = op->index % VRP_KNOB_COUNT;
    uint64_t value = op->number, got = 0;
    vrp_knob_bounds bounds = {.struct_size = sizeof bounds};
    if (op->flags & 1 && op->extra & 1) {
        vrp_status status = vrp_pool_peaks_reset(run->t.pool);
        vrpt_model_peaks_reset(&run->model);
        return expect_ok(run, "peaks_reset", status, 0);
    }
    vrp_status status = vrp_knob_bounds_get(knob, &bounds);
    if (status != VRP_OK)
        return expect_ok(run, "knob_bounds_get", status, 0);
    if (knob == VRP_KNOB_LIMIT_BYTES)
        value = op->flags & 2 ? 0 : 32 * VRPT_MIB + value % (512 * VRPT_MIB);
    else if (op->flags & 2)
        value = bounds.preset;
    else if (op->flags & 4)
        value &= ~(2 * VRPT_MIB - 1);
    if (value < bounds.low || value > bounds.high)
        value = bounds.low + value % (bounds.high - bounds.low + 1);
    status = vrp_pool_knob_set(run->t.pool, knob, value);
    if (status == VRP_OK)
        status = vrp_pool_knob_get(run->t.pool, knob, &got);
    if (status == VRP_OK && got != value)
        return vrpt_fail(&run->t, "%s was set to %" PRIu64 " and reads %" PRIu64,
                         vrp_knob_name(knob), value, got);
    if (knob == VRP_KNOB_LIMIT_BYTES)
        run->limit_bytes = value;
    return expect_ok(run, "knob", status, 0);
}

/* ---- Tags and scopes ----------------------------------------------------------------- */

int vrpt_op_budget(vrpt_run *run, const vrpt_op *op) {
    int32_t tag = op->extra % VRP_TAG_COUNT;
    uint64_t bytes = op->flags & 3 ? 0 : op->number % (128 * VRPT_MIB);
    vrp_status status = vrp_tag_budget_set(run->t.pool, tag, bytes);
    if (status == VRP_OK)
        run->model.tag_budgets[tag] = bytes;
    return expect_ok(run, "tag_budget_set", status, 0);
}

/* A release frees each block on its own stream: that stream must be behind the
 * block's other users. 0: the run failed; otherwise *out_ready says. */
static int ready_to_release(vrpt_run *run, int slot, int *out_ready) {
    *out_ready = 1;
    for (size_t i = 0; i < run->model.count; i++) {
        const vrpt_live *block = &run->model.live[i];
        uint32_t missing;
        if (block->scope != slot || block->stream < 0)
            continue;
        if (!vrpt_waits(run, block->stream, block->used & ~block->recorded, &missing))
            return 0;
        if (missing != 0)
            *out_ready = 0;
    }
    return 1;
}

static int release_scope(vrpt_run *run, int slot) {
    uint64_t blocks = 0, expected = run->model.scopes[slot].sums.blocks;
    int ready, faulted;
    if (!ready_to_release(run, slot, &ready))
        return 0;
    if (!ready)
        return 1;
    vrpt_call_begin(run);
    vrp_status status = vrp_scope_release(run->t.pool, run->model.scopes[slot].scope, &blocks);
    if (!vrpt_call_end(run, "scope_release", status, &faulted) ||
        !expect_ok(run, "scope_release", status, faulted))
        return 0;
    if (status != VRP_OK)
        return 1;
    if (blocks != expected)
        return vrpt_fail(&run->t, "a scope released %" PRIu64 " blocks and had %" PRIu64, blocks,
                         expected);
    for (size_t i = run->model.count; i-- > 0;)
        if (run->model.live[i].scope == slot)
            vrpt_model_remove(&run->model, i);
    memset(&run->model.scopes[slot], 0, sizeof run->model.scopes[slot]);
    return 1;
}

int vrpt_op_scope(vrpt_run *run, const vrpt_op *op) {
    int slot = op->index % VRPT_SCOPE_SLOTS;
    if (run->model.scopes[slot].scope == 0) {
        uint64_t budget = op->flags & 128 ? op->number % (64 * VRPT_MIB) : 0;
        vrp_scope scope = 0;
        vrp_status status = vrp_scope_open(run->t.pool, budget, &scope);
        if (status == VRP_OK && scope == 0)
            return vrpt_fail(&run->t, "a scope was opened as no scope");
        run->model.scopes[slot].scope = scope;
        run->model.scopes[slot].budget = budget;
        return expect_ok(run, "scope_open", status, 0);
    }
    if ((op->flags & 7) == 0 && !run->model.scopes[slot].closed) {
        run->model.scopes[slot].closed = 1;
        return expect_ok(run, "scope_close",
                         vrp_scope_close(run->t.pool, run->model.scopes[slot].scope), 0);
    }
    return op->flags & 6 ? release_scope(run, slot) : 1;
}

/* ---- Growable buffers ------------------------------------------------------------------ */

/* Takes the buffer out of the model and enters it as it is now. */
static int buffer_changed(vrpt_run *run, const vrpt_growth *growth, vrp_devptr old_base,
                          int32_t tag) {
    size_t index = old_base != 0 ? vrpt_model_find(&run->model, old_base) : run->model.count;
    run->model.loose = 1;
    vrpt_live block = {.scope = -1, .stream = growth->stream, .tag = tag};
    if (index < run->model.count) {
        block.used = run->model.live[index].used;
        vrpt_model_remove(&run->model, index);
    }
    block.ptr = vrp_growable_base(growth->buffer);
    block.requested = vrp_growable_size(growth->buffer);
    block.usable = vrpt_usable(&run->t, block.ptr);
    if (block.requested == 0)
        return 1;
    return vrpt_model_add(&run->model, &run->t, &block, VRP_ALIGNMENT_MIN);
}

static int resize(vrpt_run *run, vrpt_growth *growth, const vrpt_op *op) {
    uint64_t bytes = op->number % (growth->max_bytes + 1), size;
    vrp_devptr base = vrp_growable_base(growth->buffer);
    int faulted;
    size = vrp_growable_size(growth->buffer);
    if (op->flags & 8)
        bytes &= ~(VRPT_MIB - 1);
    if (size == 0 && run->model.count == VRPT_LIVE_MAX)
        return 1;
    run->model.loose = 1;
    vrpt_call_begin(run);
    vrp_status status = vrp_growable_resize(growth->buffer, bytes);
    if (!vrpt_call_end(run, "growable_resize", status, &faulted))
        return 0;
    if (status != VRP_OK) {
        if (vrp_growable_base(growth->buffer) != base || vrp_growable_size(growth->buffer) != size)
            return vrpt_fail(&run->t, "I6: a refused resize changed the buffer");
        return status == VRP_OUT_OF_DEVICE_MEMORY || status == VRP_LIMIT_REACHED ||
               expect_ok(run, "growable_resize", status, faulted);
    }
    if (vrp_growable_size(growth->buffer) != bytes)
        return vrpt_fail(&run->t, "a buffer has %" PRIu64 " bytes, not %" PRIu64,
                         vrp_growable_size(growth->buffer), bytes);
    if (run->options.backing == VRP_BACKING_VMM && base != 0 &&
        vrp_growable_base(growth->buffer) != base)
        return vrpt_fail(&run->t, "the base of a growable buffer moved");
    return buffer_changed(run, growth, size != 0 ? base : 0, VRP_TAG_KV);
}

int vrpt_growable_drop(vrpt_run *run, int index) {
    vrpt_growth *growth = &run->growth[index];
    if (growth->buffer == NULL)
        return 1;
    vrp_devptr base =
        vrp_growable_size(growth->buffer) != 0 ? vrp_growable_base(growth->buffer) : 0;
    int faulted;
    vrpt_call_begin(run);
    vrp_status status = vrp_growable_destroy(growth->buffer);
    if (!vrpt_call_end(run, "growable_destroy", status, &faulted) ||
        !expect_ok(run, "growable_destroy", status, faulted))
        return 0;
    if (status != VRP_OK)
        return 1;
    growth->buffer = NULL;
    run->model.loose = 1;
    if (base != 0)
        vrpt_model_remove(&run->model, vrpt_model_find(&run->model, base));
    return 1;
}

int vrpt_op_growable(vrpt_run *run, const vrpt_op *op) {
    vrpt_growth *growth = &run->growth[op->index % VRPT_GROWABLES];
    int faulted;
    if (run->capturing >= 0)
        return 1;
    if (growth->buffer != NULL) {
        if ((op->flags & 7) == 0)
            return vrpt_growable_drop(run, op->index % VRPT_GROWABLES);
        return resize(run, growth, op);
    }
    growth->stream = op->extra % VRPT_STREAMS;
    growth->max_bytes = 1 + op->number % (96 * VRPT_MIB);
    vrp_growable_info info = {.struct_size = sizeof info,
                              .tag = VRP_TAG_KV,
                              .max_bytes = growth->max_bytes,
                              .stream = run->streams[growth->stream]};
    run->model.loose = 1;
    vrpt_call_begin(run);
    vrp_status status = vrp_growable_create(run->t.pool, &info, &growth->buffer);
    return vrpt_call_end(run, "growable_create", status, &faulted) &&
           expect_ok(run, "growable_create", status, faulted);
}

/* ---- Captures and faults -------------------------------------------------------------------- */

int vrpt_capture_stop(vrpt_run *run) {
    if (run->capturing < 0)
        return 1;
    int intact = 0, faulted;
    vrp_stream stream = run->streams[run->capturing];
    vrp_status status = vrp_sim_capture_end(run->t.sim, stream, &intact);
    if (status != VRP_OK || !intact)
        return vrpt_fail(&run->t, "the capture did not survive: %s", vrpt_detail());
    run->capturing = -1;
    vrpt_call_begin(run);
    status = vrp_capture_end(run->t.pool, stream);
    if (!vrpt_call_end(run, "capture_end", status, &faulted))
        return 0;
    if (status != VRP_OK && faulted)
        status = vrp_capture_end(run->t.pool, stream);
    return expect_ok(run, "capture_end", status, 0);
}

int vrpt_op_capture(vrpt_run *run, const vrpt_op *op) {
    if (run->capturing >= 0)
        return vrpt_capture_stop(run);
    int stream = 2 + op->index % (VRPT_STREAMS - 2), faulted;
    vrpt_call_begin(run);
    vrp_status status = vrp_capture_begin(run->t.pool, run->streams[stream]);
    if (!vrpt_call_end(run, "capture_begin", status, &faulted) ||
        !expect_ok(run, "capture_begin", status, faulted))
        return 0;
    if (status != VRP_OK)
        return 1;
    run->capturing = stream;
    return expect_ok(run, "the app's capture",
                     vrp_sim_capture_begin(run->t.sim, run->streams[stream], op->extra % 3), 0);
}

int vrpt_op_fault(vrpt_run *run, const vrpt_op *op) {
    run->fault.armed = 1;
    run->t.faulted = 1;
    run->fault.nth = 1 + op->index % 3;
    run->fault.call = op->flags & 1 ? -1 : (int32_t)(op->number % VRP_SIM_CALL_COUNT);
    run->fault.status = op->flags & 2 ? VRP_INTERNAL : VRP_OUT_OF_DEVICE_MEMORY;
    run->tried_faults++;
    return 1;
}
