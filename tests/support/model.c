/* SPDX-License-Identifier: MIT */
/* The plain model of a pool. */

#include "model.h"

#include <inttypes.h>
#include <string.h>

void vrpt_model_clear(vrpt_model *model) { memset(model, 0, sizeof *model); }

static void sums_add(vrpt_sums *sums, const vrpt_live *block) {
    sums->requested += block->requested;
    sums->allocated += block->usable;
    sums->blocks++;
}

static void sums_remove(vrpt_sums *sums, const vrpt_live *block) {
    sums->requested -= block->requested;
    sums->allocated -= block->usable;
    sums->blocks--;
}

static void raise_peaks(vrpt_model *model) {
    if (model->peak.requested < model->now.requested)
        model->peak.requested = model->now.requested;
    if (model->peak.allocated < model->now.allocated)
        model->peak.allocated = model->now.allocated;
    if (model->peak.blocks < model->now.blocks)
        model->peak.blocks = model->now.blocks;
}

static void enter(vrpt_model *model, const vrpt_live *block) {
    sums_add(&model->now, block);
    sums_add(&model->total, block);
    sums_add(&model->tags[block->tag], block);
    if (block->scope >= 0)
        sums_add(&model->scopes[block->scope].sums, block);
    raise_peaks(model);
}

static void leave(vrpt_model *model, const vrpt_live *block) {
    sums_remove(&model->now, block);
    sums_remove(&model->tags[block->tag], block);
    if (block->scope >= 0)
        sums_remove(&model->scopes[block->scope].sums, block);
}

int vrpt_model_add(vrpt_model *model, vrpt *t, const vrpt_live *block, uint64_t alignment) {
    if (block->ptr == 0 || block->ptr % alignment != 0)
        return vrpt_fail(t, "I1: %" PRIx64 " is not aligned to %" PRIu64, block->ptr, alignment);
    if (block->usable < block->requested)
        return vrpt_fail(t, "I1: %" PRIu64 " usable bytes for a request of %" PRIu64, block->usable,
                         block->requested);
    for (size_t i = 0; i < model->count; i++) {
        const vrpt_live *other = &model->live[i];
        if (block->ptr < other->ptr + other->usable && other->ptr < block->ptr + block->usable)
            return vrpt_fail(t, "I1: %" PRIx64 "+%" PRIu64 " overlaps %" PRIx64 "+%" PRIu64,
                             block->ptr, block->usable, other->ptr, other->usable);
    }
    model->live[model->count++] = *block;
    enter(model, block);
    return 1;
}

void vrpt_model_remove(vrpt_model *model, size_t index) {
    leave(model, &model->live[index]);
    model->live[index] = model->live[--model->count];
}

size_t vrpt_model_find(const vrpt_model *model, vrp_devptr ptr) {
    for (size_t i = 0; i < model->count; i++)
        if (ptr - model->live[i].ptr < model->live[i].usable)
            return i;
    return model->count;
}

static int agree(vrpt *t, const char *group, const char *what, uint64_t pool, uint64_t model) {
    if (pool == model)
        return 1;
    return vrpt_fail(t, "I2: %s%s: the pool says %" PRIu64 ", the model %" PRIu64, group, what,
                     pool, model);
}

static int compare_history(vrpt_model *model, vrpt *t, const vrp_stats *stats) {
    if (model->loose) { /* how a buffer grew is not the model's to know */
        model->loose = 0;
        model->peak = (vrpt_sums){stats->requested_bytes.peak, stats->allocated_bytes.peak,
                                  stats->blocks.peak};
        model->total = (vrpt_sums){stats->requested_bytes.total, stats->allocated_bytes.total,
                                   stats->blocks.total};
        if (model->peak.requested < model->now.requested ||
            model->peak.allocated < model->now.allocated || model->peak.blocks < model->now.blocks)
            return vrpt_fail(t, "a peak is below its current value");
        return 1;
    }
    return agree(t, "requested", ", peak", stats->requested_bytes.peak, model->peak.requested) &&
           agree(t, "allocated", ", peak", stats->allocated_bytes.peak, model->peak.allocated) &&
           agree(t, "blocks", ", peak", stats->blocks.peak, model->peak.blocks) &&
           agree(t, "requested", ", total", stats->requested_bytes.total, model->total.requested) &&
           agree(t, "allocated", ", total", stats->allocated_bytes.total, model->total.allocated) &&
           agree(t, "blocks", ", total", stats->blocks.total, model->total.blocks);
}

int vrpt_model_compare(vrpt_model *model, vrpt *t, const vrp_stats *stats) {
    if (!agree(t, "", "requested", stats->requested_bytes.current, model->now.requested) ||
        !agree(t, "", "allocated", stats->allocated_bytes.current, model->now.allocated) ||
        !agree(t, "", "blocks", stats->blocks.current, model->now.blocks))
        return 0;
    if (stats->reserved_bytes.current < model->now.allocated + stats->cached_bytes ||
        stats->reserved_bytes.peak < stats->reserved_bytes.current ||
        stats->reserved_bytes.total < stats->reserved_bytes.peak)
        return vrpt_fail(t,
                         "I3: reserved %" PRIu64 ", peak %" PRIu64 ", total %" PRIu64
                         ", allocated %" PRIu64 ", cached %" PRIu64,
                         stats->reserved_bytes.current, stats->reserved_bytes.peak,
                         stats->reserved_bytes.total, model->now.allocated, stats->cached_bytes);
    return compare_history(model, t, stats);
}

static int compare_group(vrpt *t, const char *group, const vrp_group_stats *stats,
                         const vrpt_sums *sums, uint64_t budget) {
    return agree(t, group, "requested", stats->requested_bytes.current, sums->requested) &&
           agree(t, group, "allocated", stats->allocated_bytes.current, sums->allocated) &&
           agree(t, group, "blocks", stats->blocks, sums->blocks) &&
           agree(t, group, "budget", stats->budget_bytes, budget);
}

int vrpt_model_compare_groups(vrpt_model *model, vrpt *t) {
    for (int32_t tag = 0; tag < VRP_TAG_COUNT; tag++) {
        vrp_group_stats stats = {.struct_size = sizeof stats};
        vrp_status status = vrp_tag_stats_get(t->pool, tag, &stats);
        if (status != VRP_OK)
            return vrpt_fail(t, "tag_stats_get: %s", vrp_status_name(status));
        if (!compare_group(t, "tag, ", &stats, &model->tags[tag], model->tag_budgets[tag]))
            return 0;
    }
    for (int i = 0; i < VRPT_SCOPE_SLOTS; i++) {
        vrp_group_stats stats = {.struct_size = sizeof stats};
        if (model->scopes[i].scope == 0)
            continue;
        vrp_status status = vrp_scope_stats_get(t->pool, model->scopes[i].scope, &stats);
        if (status != VRP_OK)
            return vrpt_fail(t, "scope_stats_get: %s", vrp_status_name(status));
        if (!compare_group(t, "scope, ", &stats, &model->scopes[i].sums, model->scopes[i].budget))
            return 0;
    }
    return 1;
}

void vrpt_model_peaks_reset(vrpt_model *model) { model->peak = model->now; }
