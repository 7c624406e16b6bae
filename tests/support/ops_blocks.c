/* SPDX-License-Identifier: MIT */
/* Operations on blocks: allocating, freeing rightly and wrongly, work on
 * them, and the streams that they belong to. */

#include "ops_internal.h"

#include <inttypes.h>

/* ---- The app's own ordering ------------------------------------------------------ */

int vrpt_stream_usable(const vrpt_run *run, int stream) {
    if (run->capturing < 0)
        return 1;
    if (stream == run->capturing)
        return 0; /* work would become part of the graph */
    return stream != 0 || !(run->blocking & 1u << run->capturing);
}

/* Makes `waiter` wait for all that `streams` have queued. What cannot be waited
 * for now is left in out_missing. */
int vrpt_waits(vrpt_run *run, int waiter, uint32_t streams, uint32_t *out_missing) {
    *out_missing = 0;
    for (int i = 0; i < VRPT_STREAMS; i++) {
        if (!(streams & 1u << i) || i == waiter)
            continue;
        if (!vrpt_stream_usable(run, waiter) || !vrpt_stream_usable(run, i)) {
            *out_missing |= 1u << i;
            continue;
        }
        vrp_status status =
            vrp_sim_stream_wait_stream(run->t.sim, run->streams[waiter], run->streams[i]);
        if (status != VRP_OK)
            return vrpt_fail(&run->t, "the app's wait: %s (%s)", vrp_status_name(status),
                             vrpt_detail());
    }
    return 1;
}

static uint32_t users(const vrpt_live *block) {
    return block->used | (block->stream >= 0 ? 1u << block->stream : 0);
}

static int record(vrpt_run *run, size_t index, int stream) {
    vrpt_live *block = &run->model.live[index];
    int faulted;
    vrpt_call_begin(run);
    vrp_status status = vrp_record_stream(run->t.pool, block->ptr, run->streams[stream]);
    if (!vrpt_call_end(run, "record_stream", status, &faulted))
        return 0;
    if (status == VRP_OK)
        block->recorded |= 1u << stream;
    else if (!faulted)
        return vrpt_fail(&run->t, "record_stream: %s (%s)", vrp_status_name(status), vrpt_detail());
    return 1;
}

/* Work on a block: behind all earlier users. */
int vrpt_use(vrpt_run *run, size_t index, int stream, int announce) {
    vrpt_live *block = &run->model.live[index];
    uint32_t missing;
    if (block->stale || !vrpt_stream_usable(run, stream))
        return 1;
    for (int i = 0; i < VRPT_STREAMS; i++)
        if (users(block) & 1u << i && !vrpt_stream_usable(run, i) && i != stream)
            return 1;
    if (!vrpt_waits(run, stream, users(block), &missing))
        return 0;
    vrp_status status =
        vrp_sim_launch(run->t.sim, run->streams[stream], block->ptr, block->requested, 1000);
    if (status != VRP_OK)
        return vrpt_fail(&run->t, "launch: %s (%s)", vrp_status_name(status), vrpt_detail());
    block->used |= 1u << stream;
    if (announce && stream != block->stream && !(block->recorded & 1u << stream))
        return record(run, index, stream);
    return 1;
}

/* ---- Allocating ---------------------------------------------------------------------- */

static int refusal_is_right(vrpt_run *run, const vrp_alloc_info *info, vrp_status status,
                            int faulted, int scope) {
    if (faulted || status == VRP_OUT_OF_DEVICE_MEMORY)
        return 1;
    int limited = run->limit_bytes != 0 || run->model.tag_budgets[info->tag] != 0 ||
                  (scope >= 0 && run->model.scopes[scope].budget != 0);
    if (status == VRP_LIMIT_REACHED && limited)
        return 1;
    return vrpt_fail(&run->t, "alloc of %zu: %s (%s)", info->bytes, vrp_status_name(status),
                     vrpt_detail());
}

static int budgets_hold(vrpt_run *run, const vrpt_live *block) {
    uint64_t budget = run->model.tag_budgets[block->tag];
    if (budget != 0 && run->model.tags[block->tag].allocated > budget)
        return vrpt_fail(&run->t, "the budget of tag %d was exceeded", block->tag);
    if (block->scope < 0)
        return 1;
    budget = run->model.scopes[block->scope].budget;
    if (budget != 0 && run->model.scopes[block->scope].sums.allocated > budget)
        return vrpt_fail(&run->t, "the budget of a scope was exceeded");
    vrp_stats stats = vrpt_stats(&run->t);
    if (run->limit_bytes != 0 && stats.reserved_bytes.current > run->limit_bytes &&
        stats.reserved_bytes.current > run->before.reserved_bytes.current)
        return vrpt_fail(&run->t, "the pool grew to %" PRIu64 " over its limit of %" PRIu64,
                         stats.reserved_bytes.current, run->limit_bytes);
    return 1;
}

static int admit(vrpt_run *run, const vrp_alloc_info *info, vrp_devptr ptr, int stream, int scope) {
    if (info->bytes == 0)
        return ptr == 0 || vrpt_fail(&run->t, "size 0 gave an address");
    vrpt_live block = {.ptr = ptr,
                       .usable = vrpt_usable(&run->t, ptr),
                       .requested = info->bytes,
                       .tag = info->tag,
                       .scope = scope,
                       .stream = stream};
    uint64_t alignment = info->alignment > VRP_ALIGNMENT_MIN ? info->alignment : VRP_ALIGNMENT_MIN;
    return vrpt_model_add(&run->model, &run->t, &block, alignment) && budgets_hold(run, &block);
}

int vrpt_op_alloc(vrpt_run *run, const vrpt_op *op) {
    if (run->model.count == VRPT_LIVE_MAX)
        return vrpt_op_free(run, op);
    int stream = op->index % VRPT_STREAMS;
    int scope = op->extra & 8 ? (op->extra >> 4) % VRPT_SCOPE_SLOTS : -1;
    if (scope >= 0 && (run->model.scopes[scope].scope == 0 || run->model.scopes[scope].closed))
        scope = -1;
    vrp_alloc_info info = {.struct_size = sizeof info,
                           .flags = op->flags & 128 ? VRP_ALLOC_NO_WAIT : 0,
                           .bytes = vrpt_size_of(op->number),
                           .alignment = op->flags & 1 ? (size_t)1 << (op->flags >> 1 & 15) : 0,
                           .stream = run->streams[stream],
                           .tag = (op->extra & 7) % VRP_TAG_COUNT,
                           .scope = scope >= 0 ? run->model.scopes[scope].scope : 0};
    vrp_devptr ptr = 0xdead;
    int faulted, plain = (op->flags & 0x81) == 0 && info.tag == 0 && scope < 0;
    vrpt_call_begin(run);
    vrp_status status = plain ? vrp_alloc(run->t.pool, info.bytes, info.stream, &ptr)
                              : vrp_alloc_ex(run->t.pool, &info, &ptr);
    if (!vrpt_call_end(run, "alloc", status, &faulted))
        return 0;
    if (status != VRP_OK) {
        if (ptr != 0xdead)
            return vrpt_fail(&run->t, "a refused request wrote its address");
        return refusal_is_right(run, &info, status, faulted, scope);
    }
    if (!admit(run, &info, ptr, stream, scope))
        return 0;
    return op->flags & 64 && info.bytes != 0 ? vrpt_use(run, run->model.count - 1, stream, 0) : 1;
}

/* ---- Freeing ---------------------------------------------------------------------------- */

/* stream -1: the one it was allocated on. */
int vrpt_free_at(vrpt_run *run, size_t index, int stream) {
    vrpt_live block = run->model.live[index];
    int effective = stream < 0 ? block.stream : stream;
    uint32_t missing = 0;
    if (effective >= 0) {
        if (!vrpt_waits(run, effective, users(&block) & ~block.recorded, &missing))
            return 0;
    }
    if (missing != 0)
        return 1; /* a capture is in the way; later */
    int faulted;
    vrpt_call_begin(run);
    vrp_status status =
        vrp_free(run->t.pool, block.ptr, stream < 0 ? VRP_STREAM_OF_ALLOC : run->streams[stream]);
    if (!vrpt_call_end(run, "free", status, &faulted))
        return 0;
    if (status != VRP_OK)
        return faulted || vrpt_fail(&run->t, "free of %" PRIx64 ": %s (%s)", block.ptr,
                                    vrp_status_name(status), vrpt_detail());
    run->last_freed = block.ptr;
    vrpt_model_remove(&run->model, index);
    return 1;
}

/* A buffer that grows is a block of the model but is not freed by address. */
static int is_buffer(const vrpt_run *run, size_t index) {
    for (int i = 0; i < VRPT_GROWABLES; i++)
        if (run->growth[i].buffer != NULL &&
            vrp_growable_base(run->growth[i].buffer) == run->model.live[index].ptr)
            return 1;
    return 0;
}

int vrpt_op_free(vrpt_run *run, const vrpt_op *op) {
    if (run->model.count == 0)
        return 1;
    size_t index = (op->number >> 8) % run->model.count;
    if (is_buffer(run, index))
        return 1;
    int stream = op->index % VRPT_STREAMS;
    if (run->model.live[index].stream < 0 || op->flags & 1)
        return vrpt_free_at(run, index, -1);
    if (!(op->flags & 6)) /* most are freed where they were made */
        return vrpt_free_at(run, index, stream);
    return vrpt_free_at(run, index, run->model.live[index].stream);
}

int vrpt_op_free_many(vrpt_run *run, const vrpt_op *op) {
    uint32_t some = op->number | 1;
    for (size_t i = run->model.count; i-- > 0;) {
        some = some * 1664525u + 1013904223u;
        if (some >> 28 < 11 && i < run->model.count && !is_buffer(run, i) &&
            !vrpt_free_at(run, i, -1))
            return 0;
    }
    return 1;
}

static int refused_as(vrpt_run *run, vrp_devptr ptr, vrp_status first, vrp_status second) {
    int faulted;
    vrpt_call_begin(run);
    vrp_status status = vrp_free(run->t.pool, ptr, VRP_STREAM_OF_ALLOC);
    if (!vrpt_call_end(run, "bad free", status, &faulted))
        return 0;
    if (status != first && status != second)
        return vrpt_fail(&run->t, "bad free of %" PRIx64 ": %s, not %s", ptr,
                         vrp_status_name(status), vrp_status_name(first));
    if (vrpt_stats(&run->t).bad_frees != run->before.bad_frees + 1)
        return vrpt_fail(&run->t, "a bad free was not counted");
    return 1;
}

int vrpt_op_bad_free(vrpt_run *run, const vrpt_op *op) {
    if (op->flags & 1) {
        if (run->last_freed == 0 ||
            vrpt_model_find(&run->model, run->last_freed) != run->model.count)
            return 1;
        return refused_as(run, run->last_freed, VRP_ALREADY_FREED, VRP_NOT_OWNED);
    }
    if (op->flags & 2) /* an address of nobody */
        return refused_as(run, (vrp_devptr)op->number + 4096, VRP_NOT_OWNED, VRP_NOT_OWNED);
    if (run->model.count == 0)
        return 1;
    const vrpt_live *block = &run->model.live[op->index % run->model.count];
    uint64_t offset = 1 + op->number % (block->usable - 1);
    if (is_buffer(run, op->index % run->model.count)) /* ends by a call of its own */
        return refused_as(run, block->ptr + (offset % 512 | 1), VRP_INVALID_ARGUMENT,
                          VRP_INTERIOR_POINTER);
    return refused_as(run, block->ptr + offset, VRP_INTERIOR_POINTER, VRP_INTERIOR_POINTER);
}

/* ---- Work and streams -------------------------------------------------------------------- */

int vrpt_op_launch(vrpt_run *run, const vrpt_op *op) {
    if (run->model.count == 0)
        return 1;
    size_t index = (op->number >> 8) % run->model.count;
    int stream = run->model.live[index].stream;
    if (!(op->flags & 3) && !is_buffer(run, index))
        stream = op->index % VRPT_STREAMS;
    return stream < 0 ? 1 : vrpt_use(run, index, stream, op->flags & 4);
}

int vrpt_op_record(vrpt_run *run, const vrpt_op *op) {
    if (run->model.count == 0)
        return 1;
    size_t index = (op->number >> 8) % run->model.count;
    if (is_buffer(run, index))
        return 1;
    return record(run, index, op->index % VRPT_STREAMS);
}

/* Before a stream goes: blocks that it uses beside their own stream must have
 * been announced, and blocks of its own must know all their other users. */
static int announce_all(vrpt_run *run, int stream) {
    for (size_t i = 0; i < run->model.count; i++) {
        vrpt_live *block = &run->model.live[i];
        uint32_t others = block->used & ~block->recorded;
        if (block->stream >= 0)
            others &= ~(1u << block->stream);
        if (block->stream != stream)
            others &= 1u << stream;
        for (int k = 0; k < VRPT_STREAMS; k++)
            if (others & 1u << k && !record(run, i, k))
                return 0;
    }
    return 1;
}

static void drop_stream(vrpt_run *run, int stream) {
    for (size_t i = 0; i < run->model.count; i++) {
        vrpt_live *block = &run->model.live[i];
        if (users(block) & 1u << stream)
            block->stale = 1;
        if (block->stream == stream)
            block->stream = -1;
        block->used &= ~(1u << stream);
        block->recorded &= ~(1u << stream);
    }
}

static int renew(vrpt_run *run, int stream) {
    uint32_t flags = run->blocking & 1u << stream ? 0 : VRP_SIM_STREAM_NON_BLOCKING;
    if (vrp_sim_stream_destroy(run->t.sim, run->streams[stream]) != VRP_OK ||
        vrp_sim_stream_create(run->t.sim, flags, &run->streams[stream]) != VRP_OK)
        return vrpt_fail(&run->t, "stream anew: %s", vrpt_detail());
    drop_stream(run, stream);
    return 1;
}

/* Whether a stream may go without a word: no live block knows it. */
static int unannounced(const vrpt_run *run, int stream, const vrpt_op *op) {
    if (!(run->options.pool_flags & VRP_STREAMS_UNTRACKED) || op->flags & 1)
        return 0;
    for (size_t i = 0; i < run->model.count; i++)
        if ((users(&run->model.live[i]) | run->model.live[i].recorded) & 1u << stream)
            return 0;
    return 1;
}

int vrpt_op_forget(vrpt_run *run, const vrpt_op *op) {
    int stream = 2 + op->index % (VRPT_STREAMS - 2);
    if (run->capturing >= 0)
        return 1;
    for (int i = 0; i < VRPT_GROWABLES; i++)
        if (run->growth[i].buffer != NULL && run->growth[i].stream == stream)
            return 1;
    if (unannounced(run, stream, op))
        return renew(run, stream);
    int armed = run->fault.armed;
    run->fault.armed = 0; /* for the forget alone */
    if (!announce_all(run, stream))
        return 0;
    run->fault.armed = armed;
    int faulted;
    vrpt_call_begin(run);
    vrp_status status = vrp_stream_forget(run->t.pool, run->streams[stream]);
    if (!vrpt_call_end(run, "forget", status, &faulted))
        return 0;
    if (status != VRP_OK && faulted)
        status = vrp_stream_forget(run->t.pool, run->streams[stream]);
    if (status != VRP_OK)
        return vrpt_fail(&run->t, "forget: %s (%s)", vrp_status_name(status), vrpt_detail());
    return renew(run, stream);
}
