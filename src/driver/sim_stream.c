/* SPDX-License-Identifier: MIT */
/* Streams: their handles, the order between them, and work on them. */

#include "driver/sim_internal.h"

#include <stdlib.h>
#include <string.h>

#define HANDLE_BASE ((vrp_stream)0x100000)
#define HANDLE_STEP ((vrp_stream)0x40)
#define LEGACY_ID ((uint64_t)1)
#define COPY_BYTES_PER_US ((uint64_t)55000) /* between pinned host memory and the device */
enum { RETIRED_LOOKED_AT = 8 };

int vrpi_sim_stream_blocking(const vrpi_sim_stream *stream) {
    return (stream->flags & VRP_SIM_STREAM_NON_BLOCKING) == 0;
}

/* A clock component: a retired one, if the host has seen all of its work, so
 * that clocks do not grow with every stream that ever was. */
static uint32_t take_component(vrp_sim *sim) {
    for (uint32_t i = 0; i < sim->retired_count && i < RETIRED_LOOKED_AT; i++) {
        uint32_t component = sim->retired[i].component;
        if (vrpi_sim_clock_get(&sim->host, component) >= sim->retired[i].epoch) {
            sim->retired[i] = sim->retired[--sim->retired_count];
            return component;
        }
    }
    return sim->components++;
}

static void retire_component(vrp_sim *sim, const vrpi_sim_stream *stream) {
    void *array = sim->retired;
    if (!vrpi_sim_grow(&array, &sim->retired_capacity, sim->retired_count, sizeof *sim->retired))
        return; /* it is not used again, which costs a word per clock */
    sim->retired = array;
    sim->retired[sim->retired_count].component = stream->component;
    sim->retired[sim->retired_count].epoch = vrpi_sim_clock_get(&stream->clock, stream->component);
    sim->retired_count++;
}

static vrp_status stream_new(vrp_sim *sim, vrp_stream handle, vrpi_sim_stream **out_stream) {
    void *array = sim->streams;
    vrpi_sim_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL ||
        !vrpi_sim_grow(&array, &sim->stream_capacity, sim->stream_count, sizeof *sim->streams)) {
        free(stream);
        return vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no memory for a stream");
    }
    sim->streams = array;
    sim->streams[sim->stream_count++] = stream;
    stream->handle = handle;
    stream->id = sim->next_id++;
    stream->live = 1;
    stream->component = take_component(sim);
    /* A component that had an owner goes on counting where that one stopped. */
    vrpi_sim_clock_raise(&stream->clock, stream->component,
                         vrpi_sim_clock_get(&sim->host, stream->component));
    *out_stream = stream;
    return VRP_OK;
}

vrp_status vrpi_sim_streams_open(vrp_sim *sim) {
    sim->next_id = LEGACY_ID;
    VRPI_TRY(stream_new(sim, VRP_STREAM_LEGACY, &sim->legacy));
    sim->next_id = 16;
    return VRP_OK;
}

static void stream_free(vrp_sim *sim, vrpi_sim_stream *stream) {
    vrpi_sim_items_free(sim, stream);
    vrpi_sim_clock_free(&stream->clock);
    free(stream);
}

void vrpi_sim_streams_close(vrp_sim *sim) {
    for (uint32_t i = 0; i < sim->stream_count; i++)
        vrpi_sim_items_free(sim, sim->streams[i]);
    for (uint32_t i = 0; i < sim->stream_count; i++)
        stream_free(sim, sim->streams[i]);
    while (sim->gone != NULL) {
        vrpi_sim_stream *stream = sim->gone;
        sim->gone = stream->next_gone;
        stream_free(sim, stream);
    }
    free(sim->streams);
    free(sim->slots);
    free(sim->free_slots);
    free(sim->retired);
    vrpi_sim_clock_free(&sim->host);
    vrpi_sim_clock_free(&sim->gone_clock);
}

void vrpi_sim_streams_sweep(vrp_sim *sim) {
    for (uint32_t i = 0; i < sim->stream_count;) {
        vrpi_sim_stream *stream = sim->streams[i];
        if (stream->live || stream->head != NULL) {
            i++;
            continue;
        }
        if (sim->gone_due < stream->due)
            sim->gone_due = stream->due;
        if (vrpi_sim_detects(sim)) {
            (void)vrpi_sim_clock_join(&sim->gone_clock, &stream->clock);
            retire_component(sim, stream);
        }
        vrpi_sim_clock_free(&stream->clock);
        stream->next_gone = sim->gone;
        sim->gone = stream;
        sim->stream_count--;
        memmove(&sim->streams[i], &sim->streams[i + 1],
                (sim->stream_count - i) * sizeof(vrpi_sim_stream *));
    }
}

static vrp_status own_stream(vrp_sim *sim, vrpi_sim_stream **out_stream) {
    uint64_t thread = vrpi_sim_thread();
    for (uint32_t i = 0; i < sim->stream_count; i++)
        if (sim->streams[i]->thread == thread) {
            *out_stream = sim->streams[i];
            return VRP_OK;
        }
    VRPI_TRY(stream_new(sim, VRP_STREAM_PER_THREAD, out_stream));
    (*out_stream)->thread = thread;
    return VRP_OK;
}

vrp_status vrpi_sim_stream_find(vrp_sim *sim, vrp_stream handle, vrpi_sim_stream **out_stream) {
    if (handle == VRP_STREAM_LEGACY || handle == 1) { /* 1: the explicit legacy handle */
        *out_stream = sim->legacy;
        return VRP_OK;
    }
    if (handle == VRP_STREAM_PER_THREAD)
        return own_stream(sim, out_stream);
    if (handle >= HANDLE_BASE && (handle - HANDLE_BASE) % HANDLE_STEP == 0) {
        uint64_t slot = (handle - HANDLE_BASE) / HANDLE_STEP;
        if (slot < sim->slot_count && sim->slots[slot] != NULL) {
            *out_stream = sim->slots[slot];
            return VRP_OK;
        }
    }
    (void)vrpi_fail(VRP_INVALID_ARGUMENT, "%#llx is no stream", (unsigned long long)handle);
    return vrpi_sim_native(VRP_INVALID_ARGUMENT, VRPI_SIM_NATIVE_INVALID_HANDLE);
}

static int take_slot(vrp_sim *sim, uint32_t *out_slot) {
    uint32_t capacity = sim->slot_capacity;
    void *slots = sim->slots;
    void *stack = sim->free_slots;
    if (sim->free_slot_count > 0) {
        *out_slot = sim->free_slots[--sim->free_slot_count];
        return 1;
    }
    if (!vrpi_sim_grow(&slots, &capacity, sim->slot_count, sizeof *sim->slots))
        return 0;
    sim->slots = slots;
    capacity = sim->slot_capacity;
    if (!vrpi_sim_grow(&stack, &capacity, sim->slot_count, sizeof *sim->free_slots))
        return 0;
    sim->free_slots = stack;
    sim->slot_capacity = capacity;
    *out_slot = sim->slot_count++;
    sim->slots[*out_slot] = NULL;
    return 1;
}

vrp_status vrp_sim_stream_create(vrp_sim *sim, uint32_t flags, vrp_stream *out_stream) {
    vrpi_sim_stream *stream = NULL;
    vrp_status status;
    uint32_t slot = 0;
    if (sim == NULL || out_stream == NULL || (flags & ~VRP_SIM_STREAM_NON_BLOCKING) != 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "stream_create: NULL or unknown flags");
    vrpi_mutex_lock(&sim->lock);
    if (!take_slot(sim, &slot)) {
        status = vrpi_fail(VRP_OUT_OF_HOST_MEMORY, "no memory for a stream");
    } else {
        status = stream_new(sim, HANDLE_BASE + slot * HANDLE_STEP, &stream);
        if (status == VRP_OK) {
            stream->flags = flags;
            stream->slot = slot;
            sim->slots[slot] = stream;
            *out_stream = stream->handle;
        } else {
            sim->free_slots[sim->free_slot_count++] = slot;
        }
    }
    vrpi_mutex_unlock(&sim->lock);
    return status;
}

vrp_status vrp_sim_stream_destroy(vrp_sim *sim, vrp_stream handle) {
    vrpi_sim_stream *stream = NULL;
    vrp_status status;
    if (sim == NULL || handle < HANDLE_BASE)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "a default stream cannot be destroyed");
    vrpi_mutex_lock(&sim->lock);
    status = vrpi_sim_stream_find(sim, handle, &stream);
    if (status == VRP_OK) {
        stream->live = 0;
        sim->slots[stream->slot] = NULL;
        sim->free_slots[sim->free_slot_count++] = stream->slot;
        vrpi_sim_streams_sweep(sim);
    }
    vrpi_mutex_unlock(&sim->lock);
    return status;
}

/* ---- Order ------------------------------------------------------------------------- */

/* `later` comes after all that `earlier` has so far. */
static vrp_status order(vrp_sim *sim, vrpi_sim_stream *later, vrpi_sim_stream *earlier) {
    if (vrpi_sim_detects(sim))
        VRPI_TRY(vrpi_sim_clock_join(&later->clock, &earlier->clock));
    if (later->not_before < earlier->not_before)
        later->not_before = earlier->not_before;
    if (sim->completion == VRP_SIM_CLOCK && later->due < earlier->due)
        later->due = earlier->due;
    if (sim->completion == VRP_SIM_MANUAL && earlier->tail != NULL)
        return vrpi_sim_push(sim, later, VRPI_SIM_ITEM_WAIT_STREAM, NULL, earlier);
    return VRP_OK;
}

/* The stream's next operation comes after all that the host has seen done. */
static vrp_status observe(vrp_sim *sim, vrpi_sim_stream *stream) {
    if (!vrpi_sim_detects(sim))
        return VRP_OK;
    if (stream->host_seen != sim->host_version) {
        VRPI_TRY(vrpi_sim_clock_join(&stream->clock, &sim->host));
        stream->host_seen = sim->host_version;
    }
    return vrpi_sim_clock_step(&stream->clock, stream->component);
}

vrp_status vrpi_sim_operation(vrp_sim *sim, vrpi_sim_stream *stream) {
    if (stream == sim->legacy) {
        for (uint32_t i = 0; i < sim->stream_count; i++)
            if (sim->streams[i] != stream && vrpi_sim_stream_blocking(sim->streams[i]))
                VRPI_TRY(order(sim, stream, sim->streams[i]));
    } else if (vrpi_sim_stream_blocking(stream)) {
        VRPI_TRY(order(sim, stream, sim->legacy));
    }
    if (stream->due < sim->now_ns && sim->completion == VRP_SIM_CLOCK)
        stream->due = sim->now_ns;
    return observe(sim, stream);
}

vrp_status vrpi_sim_work(vrp_sim *sim, vrpi_sim_stream *stream, uint64_t duration_ns) {
    if (sim->completion == VRP_SIM_MANUAL)
        return vrpi_sim_push(sim, stream, VRPI_SIM_ITEM_WORK, NULL, NULL);
    if (sim->completion == VRP_SIM_CLOCK)
        stream->due += duration_ns;
    if (sim->completion == VRP_SIM_LAG) {
        uint64_t due = atomic_load_explicit(&sim->ticks, memory_order_relaxed) + sim->lag;
        stream->due = due > stream->not_before ? due : stream->not_before;
    }
    return VRP_OK;
}

/* ---- Work ---------------------------------------------------------------------------- */

static vrp_status launch_locked(vrp_sim *sim, vrp_stream handle, vrp_devptr ptr, uint64_t bytes,
                                uint64_t duration_ns) {
    vrpi_sim_stream *stream = NULL;
    VRPI_TRY(vrpi_sim_stream_find(sim, handle, &stream));
    if (stream->capture == VRPI_SIM_CAPTURE_ACTIVE)
        return VRP_OK; /* becomes part of a graph: nothing runs */
    VRPI_TRY(vrpi_sim_capture_guard(sim, stream, VRPI_SIM_NATIVE_CAPTURE_UNSUPPORTED, 0));
    VRPI_TRY(vrpi_sim_operation(sim, stream));
    VRPI_TRY(vrpi_sim_work(sim, stream, duration_ns));
    return vrpi_sim_use(sim, stream, ptr, bytes, VRPI_SIM_USE_ONCE);
}

vrp_status vrp_sim_launch(vrp_sim *sim, vrp_stream stream, vrp_devptr ptr, uint64_t bytes,
                          uint64_t duration_ns) {
    vrp_status status;
    if (sim == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "launch: no machine");
    vrpi_mutex_lock(&sim->lock);
    status = launch_locked(sim, stream, ptr, bytes, duration_ns);
    vrpi_mutex_unlock(&sim->lock);
    return status;
}

/* The end of a use is a piece of work; its beginning is only an instant. */
static vrp_status use_locked(vrp_sim *sim, vrp_stream handle, vrp_devptr ptr, uint64_t bytes,
                             vrpi_sim_use_kind kind) {
    vrpi_sim_stream *stream = NULL;
    VRPI_TRY(vrpi_sim_stream_find(sim, handle, &stream));
    if (stream->capture != VRPI_SIM_CAPTURE_NONE) {
        /* Nothing runs, but the block is in use from here on. */
        VRPI_TRY(observe(sim, stream));
        return vrpi_sim_use(sim, stream, ptr, bytes, kind);
    }
    VRPI_TRY(vrpi_sim_operation(sim, stream));
    if (kind == VRPI_SIM_USE_END && sim->completion != VRP_SIM_LAG)
        VRPI_TRY(vrpi_sim_work(sim, stream, 0));
    return vrpi_sim_use(sim, stream, ptr, bytes, kind);
}

static vrp_status use_point(vrp_sim *sim, vrp_stream stream, vrp_devptr ptr, uint64_t bytes,
                            vrpi_sim_use_kind kind) {
    vrp_status status;
    if (sim == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "use: no machine");
    /* Without a detector, and where recordings alone decide when they are
     * complete, there is nothing to note: the replay's fast path. */
    if (!vrpi_sim_detects(sim) && sim->completion != VRP_SIM_MANUAL)
        return VRP_OK;
    vrpi_mutex_lock(&sim->lock);
    status = use_locked(sim, stream, ptr, bytes, kind);
    vrpi_mutex_unlock(&sim->lock);
    return status;
}

vrp_status vrp_sim_use_begin(vrp_sim *sim, vrp_stream stream, vrp_devptr ptr, uint64_t bytes) {
    return use_point(sim, stream, ptr, bytes, VRPI_SIM_USE_BEGIN);
}

vrp_status vrp_sim_use_end(vrp_sim *sim, vrp_stream stream, vrp_devptr ptr, uint64_t bytes) {
    return use_point(sim, stream, ptr, bytes, VRPI_SIM_USE_END);
}

static vrp_status copy_locked(vrpi_sim_device *device, vrp_devptr dst, vrp_devptr src,
                              uint64_t bytes, vrp_stream handle) {
    vrp_sim *sim = device->sim;
    vrp_devptr ends[2] = {dst, src};
    vrpi_sim_stream *stream = NULL;
    VRPI_TRY(vrpi_sim_stream_find(sim, handle, &stream));
    VRPI_TRY(vrpi_sim_capture_guard(sim, stream, VRPI_SIM_NATIVE_CAPTURE_UNSUPPORTED, 1));
    for (int i = 0; i < 2; i++) {
        vrpi_sim_device *owner = vrpi_sim_device_of(sim, ends[i]);
        if (owner != NULL && !vrpi_sim_backed(owner, ends[i], bytes)) {
            (void)vrpi_fail(VRP_INVALID_ARGUMENT, "a copy of memory that is not backed");
            vrpi_fail_address(ends[i]);
            return vrpi_sim_native(VRP_INVALID_ARGUMENT, VRPI_SIM_NATIVE_INVALID_VALUE);
        }
    }
    VRPI_TRY(vrpi_sim_operation(sim, stream));
    VRPI_TRY(vrpi_sim_work(sim, stream, bytes * 1000 / COPY_BYTES_PER_US));
    for (int i = 0; i < 2; i++)
        if (vrpi_sim_device_of(sim, ends[i]) != NULL)
            VRPI_TRY(vrpi_sim_use(sim, stream, ends[i], bytes, VRPI_SIM_USE_ONCE));
    /* The bytes move at once: nobody may look at them before the stream is
     * done, so nobody can tell. */
    if (device->window != NULL && bytes != 0)
        memmove(vrpi_sim_pointer(dst), vrpi_sim_pointer(src), bytes);
    return VRP_OK;
}

vrp_status vrpi_sim_copy_async(void *ctx, vrp_devptr dst, vrp_devptr src, uint64_t bytes,
                               vrp_stream stream) {
    vrpi_sim_device *device = ctx;
    VRPI_TRY(vrpi_sim_enter(device->sim, VRP_SIM_CALL_COPY_ASYNC, bytes));
    return vrpi_sim_leave(device->sim, copy_locked(device, dst, src, bytes, stream),
                          vrp_sim_price_ns(VRP_SIM_CALL_COPY_ASYNC, bytes));
}

vrp_status vrpi_sim_stream_id(void *ctx, vrp_stream stream, uint64_t *out_id) {
    vrpi_sim_device *device = ctx;
    vrpi_sim_stream *found = NULL;
    vrp_status status;
    VRPI_TRY(vrpi_sim_enter(device->sim, VRP_SIM_CALL_STREAM_ID, stream));
    status = vrpi_sim_stream_find(device->sim, stream, &found);
    if (status == VRP_OK)
        *out_id = found->id;
    return vrpi_sim_leave(device->sim, status, vrp_sim_price_ns(VRP_SIM_CALL_STREAM_ID, 0));
}

static vrp_status synchronize_locked(vrp_sim *sim, vrp_stream handle) {
    vrpi_sim_stream *stream = NULL;
    VRPI_TRY(vrpi_sim_stream_find(sim, handle, &stream));
    VRPI_TRY(vrpi_sim_capture_guard(sim, stream, VRPI_SIM_NATIVE_CAPTURE_UNSUPPORTED, 0));
    VRPI_TRY(vrpi_sim_operation(sim, stream));
    vrpi_sim_force_stream(sim, stream);
    return vrpi_sim_host_learns(sim, &stream->clock);
}

vrp_status vrp_sim_stream_synchronize(vrp_sim *sim, vrp_stream stream) {
    vrp_status status;
    if (sim == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "stream_synchronize: no machine");
    vrpi_mutex_lock(&sim->lock);
    status = synchronize_locked(sim, stream);
    vrpi_mutex_unlock(&sim->lock);
    return status;
}

static vrp_status wait_locked(vrp_sim *sim, vrp_stream waiter, vrp_stream awaited) {
    vrpi_sim_stream *later = NULL;
    vrpi_sim_stream *earlier = NULL;
    vrpi_sim_record *record = NULL;
    vrp_status status;
    VRPI_TRY(vrpi_sim_stream_find(sim, waiter, &later));
    VRPI_TRY(vrpi_sim_stream_find(sim, awaited, &earlier));
    VRPI_TRY(vrpi_sim_capture_guard(sim, earlier, VRPI_SIM_NATIVE_CAPTURE_UNSUPPORTED, 0));
    VRPI_TRY(vrpi_sim_capture_guard(sim, later, VRPI_SIM_NATIVE_CAPTURE_ISOLATION, 0));
    VRPI_TRY(vrpi_sim_record_new(sim, earlier, &record));
    status = vrpi_sim_wait_record(sim, later, record);
    vrpi_sim_record_unref(record);
    return status;
}

vrp_status vrp_sim_stream_wait_stream(vrp_sim *sim, vrp_stream waiter, vrp_stream awaited) {
    vrp_status status;
    if (sim == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "stream_wait_stream: no machine");
    vrpi_mutex_lock(&sim->lock);
    status = wait_locked(sim, waiter, awaited);
    vrpi_mutex_unlock(&sim->lock);
    return status;
}
