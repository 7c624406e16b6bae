/* SPDX-License-Identifier: MIT */
/* When work is complete.
 *
 * MANUAL keeps queues: a stream's head stands until the test completes it, a
 * wait stands until what it waits for is complete, and recordings pass by
 * themselves. LAG and CLOCK need no queues: a recording knows from the start
 * at which tick or nanosecond it will be complete. */

#include "driver/sim_internal.h"

#include <stdlib.h>

static uint64_t ticks_of(const vrp_sim *sim) {
    /* Only a count: nothing else is published through it. */
    return atomic_load_explicit(&sim->ticks, memory_order_relaxed);
}

vrp_status vrpi_sim_push(vrp_sim *sim, vrpi_sim_stream *stream, vrpi_sim_item_kind kind,
                         vrpi_sim_record *record, vrpi_sim_stream *awaited) {
    vrpi_sim_item *item = calloc(1, sizeof *item);
    if (item == NULL)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no memory for a piece of work");
    item->kind = kind;
    item->seq = ++sim->seq;
    item->record = record;
    item->stream = awaited;
    if (record != NULL)
        record->refs++;
    if (kind == VRPI_SIM_ITEM_RECORD)
        record->pending++;
    if (awaited != NULL)
        item->upto = awaited->tail->seq;
    if (stream->tail == NULL)
        stream->head = item;
    else
        stream->tail->next = item;
    stream->tail = item;
    return VRP_OK;
}

static void pop(vrpi_sim_stream *stream) {
    vrpi_sim_item *item = stream->head;
    stream->head = item->next;
    if (stream->head == NULL)
        stream->tail = NULL;
    if (item->kind == VRPI_SIM_ITEM_RECORD)
        item->record->pending--;
    vrpi_sim_record_unref(item->record);
    free(item);
}

static int satisfied(const vrpi_sim_item *item) {
    switch (item->kind) {
    case VRPI_SIM_ITEM_WORK:
        return 0;
    case VRPI_SIM_ITEM_RECORD:
        return 1;
    case VRPI_SIM_ITEM_WAIT_RECORD:
        return item->record->pending == 0;
    case VRPI_SIM_ITEM_WAIT_STREAM:
    default:
        return item->stream->head == NULL || item->stream->head->seq > item->upto;
    }
}

static int pass(vrpi_sim_stream *stream) {
    int passed = 0;
    while (stream->head != NULL && satisfied(stream->head)) {
        pop(stream);
        passed = 1;
    }
    return passed;
}

void vrpi_sim_progress(vrp_sim *sim) {
    int again = 1;
    while (again) {
        again = 0;
        for (uint32_t i = 0; i < sim->stream_count; i++)
            again |= pass(sim->streams[i]);
    }
    vrpi_sim_streams_sweep(sim);
}

int vrpi_sim_record_done(const vrp_sim *sim, const vrpi_sim_record *record) {
    switch (sim->completion) {
    case VRP_SIM_MANUAL:
        return record->pending == 0;
    case VRP_SIM_LAG:
        return record->seq <= sim->drained || ticks_of(sim) >= record->due ||
               (record->stream != NULL && record->seq <= record->stream->forced);
    case VRP_SIM_CLOCK:
        return sim->now_ns >= record->due;
    case VRP_SIM_IMMEDIATE:
    case VRP_SIM_COMPLETION_FORCE_INT32:
    default:
        return 1;
    }
}

int vrpi_sim_stream_unfinished(const vrp_sim *sim, const vrpi_sim_stream *stream) {
    switch (sim->completion) {
    case VRP_SIM_MANUAL:
        return stream->head != NULL;
    case VRP_SIM_LAG:
        return stream->due > ticks_of(sim);
    case VRP_SIM_CLOCK:
        return stream->due > sim->now_ns;
    case VRP_SIM_IMMEDIATE:
    case VRP_SIM_COMPLETION_FORCE_INT32:
    default:
        return 0;
    }
}

int vrpi_sim_anything_unfinished(const vrp_sim *sim) {
    for (uint32_t i = 0; i < sim->stream_count; i++)
        if (vrpi_sim_stream_unfinished(sim, sim->streams[i]))
            return 1;
    return sim->completion == VRP_SIM_LAG     ? sim->gone_due > ticks_of(sim)
           : sim->completion == VRP_SIM_CLOCK ? sim->gone_due > sim->now_ns
                                              : 0;
}

/* ---- Forcing, in MANUAL ---------------------------------------------------------- */

/* What a stream waits for at its head becomes a target of its own. */
static void aim(vrp_sim *sim, const vrpi_sim_item *wait) {
    if (wait->kind == VRPI_SIM_ITEM_WAIT_STREAM) {
        if (wait->stream->target < wait->upto)
            wait->stream->target = wait->upto;
        return;
    }
    for (uint32_t i = 0; i < sim->stream_count; i++)
        for (vrpi_sim_item *item = sim->streams[i]->head; item != NULL; item = item->next)
            if (item->kind == VRPI_SIM_ITEM_RECORD && item->record == wait->record &&
                sim->streams[i]->target < item->seq)
                sim->streams[i]->target = item->seq;
}

/* Completes every stream up to its target and whatever that needs. Ends: a
 * wait only ever looks at what was queued before it. */
static void force_targets(vrp_sim *sim) {
    int again = 1;
    while (again) {
        again = 0;
        for (uint32_t i = 0; i < sim->stream_count; i++) {
            vrpi_sim_stream *stream = sim->streams[i];
            while (stream->head != NULL && stream->head->seq <= stream->target) {
                if (stream->head->kind != VRPI_SIM_ITEM_WORK && !satisfied(stream->head)) {
                    aim(sim, stream->head);
                    break;
                }
                pop(stream);
                again = 1;
            }
            again |= stream->head != NULL && stream->head->seq <= stream->target;
        }
    }
    for (uint32_t i = 0; i < sim->stream_count; i++)
        sim->streams[i]->target = 0;
    vrpi_sim_progress(sim);
}

void vrpi_sim_force_record(vrp_sim *sim, vrpi_sim_record *record) {
    if (sim->completion == VRP_SIM_MANUAL) {
        vrpi_sim_item wait = {.kind = VRPI_SIM_ITEM_WAIT_RECORD, .record = record};
        aim(sim, &wait);
        force_targets(sim);
    } else if (sim->completion == VRP_SIM_LAG) {
        if (record->stream != NULL && record->stream->forced < record->seq)
            record->stream->forced = record->seq;
        record->due = 0;
        /* what it waited for on other streams was recorded before it */
        for (uint32_t i = 0; i < sim->stream_count; i++)
            if (sim->streams[i]->forced < record->seq)
                sim->streams[i]->forced = record->seq;
    } else if (sim->completion == VRP_SIM_CLOCK && sim->now_ns < record->due) {
        sim->now_ns = record->due;
    }
}

void vrpi_sim_force_stream(vrp_sim *sim, vrpi_sim_stream *stream) {
    if (sim->completion == VRP_SIM_MANUAL) {
        if (stream->tail != NULL)
            stream->target = stream->tail->seq;
        force_targets(sim);
    } else if (sim->completion == VRP_SIM_LAG) {
        for (uint32_t i = 0; i < sim->stream_count; i++)
            sim->streams[i]->forced = sim->seq;
        stream->due = 0;
        stream->not_before = 0;
    } else if (sim->completion == VRP_SIM_CLOCK && sim->now_ns < stream->due) {
        sim->now_ns = stream->due;
    }
}

vrp_status vrpi_sim_host_learns(vrp_sim *sim, const vrpi_sim_clock *clock) {
    if (!vrpi_sim_detects(sim))
        return VRP_OK;
    sim->host_version++;
    return vrpi_sim_clock_join(&sim->host, clock);
}

vrp_status vrpi_sim_drain_all(vrp_sim *sim) {
    for (uint32_t i = 0; i < sim->stream_count; i++) {
        vrpi_sim_stream *stream = sim->streams[i];
        while (stream->head != NULL)
            pop(stream);
        if (sim->completion == VRP_SIM_CLOCK && sim->now_ns < stream->due)
            sim->now_ns = stream->due;
        stream->due = 0;
        stream->not_before = 0;
        VRPI_TRY(vrpi_sim_host_learns(sim, &stream->clock));
    }
    if (sim->completion == VRP_SIM_CLOCK && sim->now_ns < sim->gone_due)
        sim->now_ns = sim->gone_due;
    sim->gone_due = 0;
    sim->drained = sim->seq;
    sim->drained_ticks = atomic_load_explicit(&sim->ticks, memory_order_relaxed);
    VRPI_TRY(vrpi_sim_host_learns(sim, &sim->gone_clock));
    vrpi_sim_streams_sweep(sim);
    return VRP_OK;
}

void vrpi_sim_items_free(vrp_sim *sim, vrpi_sim_stream *stream) {
    (void)sim;
    while (stream->head != NULL)
        pop(stream);
}

/* ---- What a test calls -------------------------------------------------------------- */

/* Pieces of work count; events and waits on the way come along. */
static uint64_t complete(vrp_sim *sim, vrpi_sim_stream *stream, uint64_t count) {
    for (;;) {
        (void)pass(stream);
        if (count == 0 || stream->head == NULL || stream->head->kind != VRPI_SIM_ITEM_WORK)
            return count;
        pop(stream);
        count--;
        /* What this piece held back elsewhere may hold back the next one. */
        for (uint32_t i = 0; i < sim->stream_count; i++)
            (void)pass(sim->streams[i]);
    }
}

void vrp_sim_complete(vrp_sim *sim, vrp_stream stream, uint64_t count) {
    uint64_t own_thread = stream == VRP_STREAM_PER_THREAD ? vrpi_sim_thread() : 0;
    if (sim == NULL || sim->completion != VRP_SIM_MANUAL)
        return;
    vrpi_mutex_lock(&sim->lock);
    /* A handle may also stand for destroyed streams that had it before. */
    for (uint32_t i = 0; i < sim->stream_count; i++)
        if (sim->streams[i]->handle == stream && sim->streams[i]->thread == own_thread)
            count = complete(sim, sim->streams[i], count);
    vrpi_sim_progress(sim);
    vrpi_mutex_unlock(&sim->lock);
}

void vrp_sim_drain(vrp_sim *sim) {
    if (sim == NULL)
        return;
    vrpi_mutex_lock(&sim->lock);
    (void)vrpi_sim_drain_all(sim);
    vrpi_mutex_unlock(&sim->lock);
}

void vrp_sim_tick(vrp_sim *sim) {
    if (sim != NULL)
        (void)atomic_fetch_add_explicit(&sim->ticks, 1, memory_order_relaxed);
}

void vrp_sim_clock_advance(vrp_sim *sim, uint64_t ns) {
    if (sim == NULL)
        return;
    vrpi_mutex_lock(&sim->lock);
    sim->now_ns += ns;
    vrpi_mutex_unlock(&sim->lock);
}
