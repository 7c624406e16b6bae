/* SPDX-License-Identifier: MIT */
/* Events: recorded on a stream or on all, queried, waited for by the host and
 * by streams. */

#include "driver/sim_internal.h"

#include <stdlib.h>

#define NO_EVENT UINT32_MAX

void vrpi_sim_record_unref(vrpi_sim_record *record) {
    if (record == NULL || --record->refs != 0)
        return;
    vrpi_sim_clock_free(&record->clock);
    free(record);
}

static vrp_status record_alloc(vrp_sim *sim, vrpi_sim_record **out_record) {
    vrpi_sim_record *record = calloc(1, sizeof *record);
    if (record == NULL)
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no memory for a recording");
    record->refs = 1;
    record->seq = ++sim->seq;
    *out_record = record;
    return VRP_OK;
}

/* The recording also covers what `stream` has so far. */
static vrp_status cover(vrp_sim *sim, vrpi_sim_record *record, vrpi_sim_stream *stream) {
    uint64_t due = 0;
    if (sim->completion == VRP_SIM_LAG) {
        uint64_t now = atomic_load_explicit(&sim->ticks, memory_order_relaxed);
        /* nothing was issued since everything was drained: nothing to lag behind */
        due = now == sim->drained_ticks ? stream->due : now + sim->lag;
        if (due < stream->not_before)
            due = stream->not_before;
        if (stream->due < due)
            stream->due = due;
    } else if (sim->completion == VRP_SIM_CLOCK) {
        due = stream->due;
    } else if (sim->completion == VRP_SIM_MANUAL && stream->tail != NULL) {
        VRPI_TRY(vrpi_sim_push(sim, stream, VRPI_SIM_ITEM_RECORD, record, NULL));
    }
    if (record->due < due)
        record->due = due;
    return vrpi_sim_detects(sim) ? vrpi_sim_clock_join(&record->clock, &stream->clock) : VRP_OK;
}

vrp_status vrpi_sim_record_new(vrp_sim *sim, vrpi_sim_stream *stream,
                               vrpi_sim_record **out_record) {
    vrpi_sim_record *record = NULL;
    vrp_status status;
    VRPI_TRY(vrpi_sim_operation(sim, stream));
    VRPI_TRY(record_alloc(sim, &record));
    record->stream = stream;
    status = cover(sim, record, stream);
    if (status != VRP_OK) {
        vrpi_sim_record_unref(record);
        return status;
    }
    if (sim->completion == VRP_SIM_MANUAL)
        vrpi_sim_progress(sim);
    *out_record = record;
    return VRP_OK;
}

static vrp_status record_all(vrp_sim *sim, vrpi_sim_record **out_record) {
    vrpi_sim_record *record = NULL;
    vrp_status status;
    VRPI_TRY(record_alloc(sim, &record));
    status = vrpi_sim_detects(sim) ? vrpi_sim_clock_join(&record->clock, &sim->gone_clock) : VRP_OK;
    record->due = sim->gone_due;
    for (uint32_t i = 0; i < sim->stream_count && status == VRP_OK; i++)
        status = cover(sim, record, sim->streams[i]);
    if (status != VRP_OK) {
        vrpi_sim_record_unref(record);
        return status;
    }
    if (sim->completion == VRP_SIM_MANUAL)
        vrpi_sim_progress(sim);
    *out_record = record;
    return VRP_OK;
}

vrp_status vrpi_sim_wait_record(vrp_sim *sim, vrpi_sim_stream *stream, vrpi_sim_record *record) {
    VRPI_TRY(vrpi_sim_operation(sim, stream));
    if (vrpi_sim_detects(sim))
        VRPI_TRY(vrpi_sim_clock_join(&stream->clock, &record->clock));
    if (vrpi_sim_record_done(sim, record))
        return VRP_OK;
    if (sim->completion == VRP_SIM_LAG && stream->not_before < record->due)
        stream->not_before = record->due;
    if (sim->completion == VRP_SIM_CLOCK && stream->due < record->due)
        stream->due = record->due;
    if (sim->completion == VRP_SIM_MANUAL)
        return vrpi_sim_push(sim, stream, VRPI_SIM_ITEM_WAIT_RECORD, record, NULL);
    return VRP_OK;
}

/* ---- The table's operations --------------------------------------------------------- */

/* An event is its index + 1 and, above, how often that index was used. */
static vrp_status find(vrp_sim *sim, vrp_event value, vrpi_sim_event **out_event) {
    uint32_t index = (uint32_t)(value & UINT32_MAX) - 1;
    if ((value & UINT32_MAX) != 0 && index < sim->event_count && sim->events[index].live &&
        sim->events[index].generation == (uint32_t)(value >> 32)) {
        *out_event = &sim->events[index];
        return VRP_OK;
    }
    vrpi_sim_misuse(sim, "%#llx is no live event", (unsigned long long)value);
    (void)vrpi_fail(VRP_INVALID_ARGUMENT, "%#llx is no live event", (unsigned long long)value);
    return vrpi_sim_native(VRP_INVALID_ARGUMENT, VRPI_SIM_NATIVE_INVALID_HANDLE);
}

static vrp_status create_locked(vrp_sim *sim, vrp_event *out_event) {
    uint32_t index = sim->event_free;
    if (index == NO_EVENT) {
        void *array = sim->events;
        if (!vrpi_sim_grow(&array, &sim->event_capacity, sim->event_count, sizeof *sim->events))
            return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no memory for an event");
        sim->events = array;
        index = sim->event_count++;
    } else {
        sim->event_free = sim->events[index].next_free;
    }
    sim->events[index].live = 1;
    sim->events[index].record = NULL;
    sim->live_events++;
    *out_event = ((uint64_t)sim->events[index].generation << 32) | (index + 1);
    return VRP_OK;
}

vrp_status vrpi_sim_event_create(void *ctx, vrp_event *out_event) {
    vrp_sim *sim = ((vrpi_sim_device *)ctx)->sim;
    VRPI_TRY(vrpi_sim_enter(sim, VRP_SIM_CALL_EVENT_CREATE, 0));
    return vrpi_sim_leave(sim, create_locked(sim, out_event),
                          vrp_sim_price_ns(VRP_SIM_CALL_EVENT_CREATE, 0));
}

vrp_status vrpi_sim_event_destroy(void *ctx, vrp_event event) {
    vrp_sim *sim = ((vrpi_sim_device *)ctx)->sim;
    vrpi_sim_event *found = NULL;
    vrp_status status;
    VRPI_TRY(vrpi_sim_enter(sim, VRP_SIM_CALL_EVENT_DESTROY, event));
    status = find(sim, event, &found);
    if (status == VRP_OK) {
        vrpi_sim_record_unref(found->record);
        found->record = NULL;
        found->live = 0;
        found->generation++;
        found->next_free = sim->event_free;
        sim->event_free = (uint32_t)(found - sim->events);
        sim->live_events--;
    }
    return vrpi_sim_leave(sim, status, vrp_sim_price_ns(VRP_SIM_CALL_EVENT_DESTROY, 0));
}

static void replace_record(vrpi_sim_event *event, vrpi_sim_record *record) {
    vrpi_sim_record_unref(event->record);
    event->record = record;
}

static vrp_status record_locked(vrp_sim *sim, vrp_event event, vrp_stream handle) {
    vrpi_sim_event *found = NULL;
    vrpi_sim_stream *stream = NULL;
    vrpi_sim_record *record = NULL;
    VRPI_TRY(find(sim, event, &found));
    VRPI_TRY(vrpi_sim_stream_find(sim, handle, &stream));
    VRPI_TRY(vrpi_sim_capture_guard(sim, stream, VRPI_SIM_NATIVE_CAPTURE_UNSUPPORTED, 1));
    VRPI_TRY(vrpi_sim_record_new(sim, stream, &record));
    replace_record(found, record);
    return VRP_OK;
}

vrp_status vrpi_sim_event_record(void *ctx, vrp_event event, vrp_stream stream) {
    vrp_sim *sim = ((vrpi_sim_device *)ctx)->sim;
    VRPI_TRY(vrpi_sim_enter(sim, VRP_SIM_CALL_EVENT_RECORD, stream));
    return vrpi_sim_leave(sim, record_locked(sim, event, stream),
                          vrp_sim_price_ns(VRP_SIM_CALL_EVENT_RECORD, 0));
}

static vrp_status context_record_locked(vrp_sim *sim, vrp_event event) {
    vrpi_sim_event *found = NULL;
    vrpi_sim_record *record = NULL;
    VRPI_TRY(find(sim, event, &found));
    VRPI_TRY(vrpi_sim_capture_guard_all(sim, 1));
    VRPI_TRY(record_all(sim, &record));
    replace_record(found, record);
    return VRP_OK;
}

vrp_status vrpi_sim_context_record(void *ctx, vrp_event event) {
    vrp_sim *sim = ((vrpi_sim_device *)ctx)->sim;
    VRPI_TRY(vrpi_sim_enter(sim, VRP_SIM_CALL_CONTEXT_RECORD, event));
    return vrpi_sim_leave(sim, context_record_locked(sim, event),
                          vrp_sim_price_ns(VRP_SIM_CALL_CONTEXT_RECORD, 0));
}

static vrp_status query_locked(vrp_sim *sim, vrp_event event, int *out_done) {
    vrpi_sim_event *found = NULL;
    VRPI_TRY(find(sim, event, &found));
    if (found->record == NULL) {
        *out_done = 1;
        return VRP_OK;
    }
    if (!vrpi_sim_record_done(sim, found->record)) {
        *out_done = 0;
        return VRP_OK;
    }
    VRPI_TRY(vrpi_sim_host_learns(sim, &found->record->clock));
    *out_done = 1;
    return VRP_OK;
}

vrp_status vrpi_sim_event_query(void *ctx, vrp_event event, int *out_done) {
    vrp_sim *sim = ((vrpi_sim_device *)ctx)->sim;
    VRPI_TRY(vrpi_sim_enter(sim, VRP_SIM_CALL_EVENT_QUERY, event));
    return vrpi_sim_leave(sim, query_locked(sim, event, out_done),
                          vrp_sim_price_ns(VRP_SIM_CALL_EVENT_QUERY, 0));
}

static vrp_status event_sync_locked(vrp_sim *sim, vrp_event event) {
    vrpi_sim_event *found = NULL;
    VRPI_TRY(find(sim, event, &found));
    if (found->record == NULL)
        return VRP_OK;
    if (!vrpi_sim_record_done(sim, found->record)) {
        sim->host_blocks++;
        vrpi_sim_force_record(sim, found->record);
    }
    return vrpi_sim_host_learns(sim, &found->record->clock);
}

vrp_status vrpi_sim_event_synchronize(void *ctx, vrp_event event) {
    vrp_sim *sim = ((vrpi_sim_device *)ctx)->sim;
    VRPI_TRY(vrpi_sim_enter(sim, VRP_SIM_CALL_EVENT_SYNCHRONIZE, event));
    return vrpi_sim_leave(sim, event_sync_locked(sim, event),
                          vrp_sim_price_ns(VRP_SIM_CALL_EVENT_SYNCHRONIZE, 0));
}

static vrp_status sync_locked(vrp_sim *sim) {
    VRPI_TRY(vrpi_sim_capture_guard_all(sim, 1));
    sim->host_blocks += vrpi_sim_anything_unfinished(sim) ? 1 : 0;
    return vrpi_sim_drain_all(sim);
}

vrp_status vrpi_sim_synchronize(void *ctx) {
    vrp_sim *sim = ((vrpi_sim_device *)ctx)->sim;
    VRPI_TRY(vrpi_sim_enter(sim, VRP_SIM_CALL_SYNCHRONIZE, 0));
    return vrpi_sim_leave(sim, sync_locked(sim), vrp_sim_price_ns(VRP_SIM_CALL_SYNCHRONIZE, 0));
}

static vrp_status stream_wait_locked(vrp_sim *sim, vrp_stream handle, vrp_event event) {
    vrpi_sim_event *found = NULL;
    vrpi_sim_stream *stream = NULL;
    VRPI_TRY(find(sim, event, &found));
    VRPI_TRY(vrpi_sim_stream_find(sim, handle, &stream));
    VRPI_TRY(vrpi_sim_capture_guard(sim, stream, VRPI_SIM_NATIVE_CAPTURE_ISOLATION, 1));
    return found->record == NULL ? VRP_OK : vrpi_sim_wait_record(sim, stream, found->record);
}

vrp_status vrpi_sim_stream_wait_event(void *ctx, vrp_stream stream, vrp_event event) {
    vrp_sim *sim = ((vrpi_sim_device *)ctx)->sim;
    VRPI_TRY(vrpi_sim_enter(sim, VRP_SIM_CALL_STREAM_WAIT_EVENT, stream));
    return vrpi_sim_leave(sim, stream_wait_locked(sim, stream, event),
                          vrp_sim_price_ns(VRP_SIM_CALL_STREAM_WAIT_EVENT, 0));
}

void vrpi_sim_events_close(vrp_sim *sim) {
    for (uint32_t i = 0; i < sim->event_count; i++)
        vrpi_sim_record_unref(sim->events[i].record);
    free(sim->events);
}
