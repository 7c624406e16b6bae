/* SPDX-License-Identifier: MIT */
#ifndef VRPI_SIM_INTERNAL_H
#define VRPI_SIM_INTERNAL_H

/* What the files of the simulated machine share. One lock guards a machine;
 * unless a comment says otherwise, every function here wants it held.
 *
 *   sim_machine   configuration, statistics, the driver tables
 *   sim_call      what happens around every driver call: hook, faults, prices
 *   sim_price     names and prices of calls
 *   sim_host      address window and pages behind simulated memory
 *   sim_memory    mem_alloc, handles, ranges, mappings
 *   sim_stream    streams, work, waits
 *   sim_time      when work is complete, in each of the four modes
 *   sim_event     events
 *   sim_capture   captures
 *   sim_clock     vector clocks: what happens before what
 *   sim_regions   who used which physical bytes last
 *   sim_tree      the ordered map under all of them */

#include "vrampool/sim.h"

#include "driver/sim_tree.h"
#include "platform/error.h"
#include "platform/sync.h"

#include <stdatomic.h>
#include <stdint.h>

/* CUDA's own error numbers, for last_native_error. */
enum {
    VRPI_SIM_NATIVE_INVALID_VALUE = 1,
    VRPI_SIM_NATIVE_OUT_OF_MEMORY = 2,
    VRPI_SIM_NATIVE_INVALID_HANDLE = 400,
    VRPI_SIM_NATIVE_LAUNCH_FAILED = 719,
    VRPI_SIM_NATIVE_NOT_SUPPORTED = 801,
    VRPI_SIM_NATIVE_CAPTURE_UNSUPPORTED = 900,
    VRPI_SIM_NATIVE_CAPTURE_INVALIDATED = 901,
    VRPI_SIM_NATIVE_CAPTURE_ISOLATION = 905,
    VRPI_SIM_NATIVE_CAPTURE_IMPLICIT = 906,
    VRPI_SIM_NATIVE_UNKNOWN = 999
};

/* ---- Vector clocks -------------------------------------------------------- */

/* Component i counts the operations of one stream; absent ones are 0. */
typedef struct vrpi_sim_clock {
    uint64_t *at;
    uint32_t count;
} vrpi_sim_clock;

uint64_t vrpi_sim_clock_get(const vrpi_sim_clock *clock, uint32_t component);
/* into = the later of both, component by component. */
vrp_status vrpi_sim_clock_join(vrpi_sim_clock *into, const vrpi_sim_clock *from);
vrp_status vrpi_sim_clock_step(vrpi_sim_clock *clock, uint32_t component);
void vrpi_sim_clock_raise(vrpi_sim_clock *clock, uint32_t component, uint64_t epoch);
void vrpi_sim_clock_free(vrpi_sim_clock *clock);

/* ---- Streams and events ---------------------------------------------------- */

typedef struct vrpi_sim_stream vrpi_sim_stream;
typedef struct vrpi_sim_device vrpi_sim_device;

/* One recording of an event. The event refers to its latest; waits that are
 * queued refer to the one that they met. */
typedef struct vrpi_sim_record {
    uint32_t refs;
    uint32_t pending; /* MANUAL: how many queues it still stands in */
    uint64_t seq;
    uint64_t due;            /* LAG: tick; CLOCK: nanosecond */
    vrpi_sim_stream *stream; /* NULL: of the whole context */
    vrpi_sim_clock clock;
} vrpi_sim_record;

typedef enum vrpi_sim_item_kind {
    VRPI_SIM_ITEM_WORK,
    VRPI_SIM_ITEM_RECORD,
    VRPI_SIM_ITEM_WAIT_RECORD,
    VRPI_SIM_ITEM_WAIT_STREAM /* for all that `stream` had queued up to `upto` */
} vrpi_sim_item_kind;

typedef struct vrpi_sim_item {
    struct vrpi_sim_item *next;
    vrpi_sim_item_kind kind;
    uint64_t seq;
    vrpi_sim_record *record;
    vrpi_sim_stream *stream;
    uint64_t upto;
} vrpi_sim_item;

typedef enum vrpi_sim_capture {
    VRPI_SIM_CAPTURE_NONE,
    VRPI_SIM_CAPTURE_ACTIVE,
    VRPI_SIM_CAPTURE_BROKEN /* ended by a call; waits for capture_end */
} vrpi_sim_capture;

struct vrpi_sim_stream {
    vrpi_sim_stream *next_gone; /* list of those that are over */
    vrp_stream handle;
    uint64_t id;
    uint64_t thread; /* of a per-thread stream, else 0 */
    uint32_t flags;  /* VRP_SIM_STREAM_* */
    uint32_t slot;
    int live; /* 0: destroyed */
    vrpi_sim_capture capture;
    vrpi_sim_item *head; /* MANUAL: what is queued */
    vrpi_sim_item *tail;
    uint64_t target;     /* while forcing: complete up to here */
    uint64_t due;        /* LAG, CLOCK: when the last work is complete */
    uint64_t not_before; /* LAG: tick of the latest event that it waited for */
    uint64_t forced;     /* LAG: recordings up to here are complete */
    uint32_t component;
    uint64_t host_seen; /* version of the host's clock that is joined in */
    vrpi_sim_clock clock;
};

typedef struct vrpi_sim_event {
    vrpi_sim_record *record; /* NULL: never recorded */
    uint32_t generation;
    int live;
    uint32_t next_free;
} vrpi_sim_event;

/* ---- Memory ---------------------------------------------------------------- */

typedef struct vrpi_sim_handle {
    vrpi_sim_device *device;
    uint64_t bytes;
    uint64_t physical; /* place in the device's sparse file */
    uint32_t mappings;
    uint32_t generation;
    int live; /* 0: released; memory goes with the last mapping */
    uint32_t next_free;
} vrpi_sim_handle;

/* Backed addresses: a mapped handle, or an allocation of mem_alloc. The node
 * holds the address and the bytes. */
typedef struct vrpi_sim_mapping {
    vrpi_tree_node node; /* first: the tree's node is the mapping */
    uint64_t physical;
    uint32_t handle;     /* index, or VRPI_SIM_NO_HANDLE for mem_alloc */
    int access;          /* readable and writable */
    uint64_t zone_bytes; /* mem_alloc: address space taken */
} vrpi_sim_mapping;

#define VRPI_SIM_NO_HANDLE UINT32_MAX

/* Addresses that are handed out in multiples of a unit. */
typedef struct vrpi_sim_zone {
    uint64_t base;
    uint64_t bytes;
    uint64_t unit;
    vrpi_tree vacant;
} vrpi_sim_zone;

struct vrpi_sim_device {
    vrp_sim *sim;
    uint32_t ordinal;
    uint64_t total_bytes;
    uint64_t used_bytes;
    uint64_t peak_used_bytes;
    uint64_t other_bytes;
    uint64_t allocations;
    uint64_t handles;
    uint64_t mapped; /* live mappings of handles */

    void *window; /* NULL: addresses are numbers */
    uint64_t window_bytes;
    int file; /* sparse; -1 none */
    uint64_t next_physical;
    vrpi_sim_zone large; /* ranges and allocations from 1 MiB */
    vrpi_sim_zone small;

    vrpi_tree ranges;
    vrpi_tree mappings;
    vrpi_tree regions; /* detector: last uses by physical place */
    vrpi_tree open;    /* detector: uses between begin and end */
};

/* ---- The machine ------------------------------------------------------------ */

typedef struct vrpi_sim_fault {
    uint64_t nth; /* 0: no plan */
    uint64_t count;
    vrp_status status;
} vrpi_sim_fault;

typedef struct vrpi_sim_retired {
    uint32_t component;
    uint64_t epoch;
} vrpi_sim_retired;

struct vrp_sim {
    vrpi_mutex lock;
    uint64_t serial; /* of this machine in the process, never used twice */
    uint32_t flags;
    vrp_sim_completion completion;
    uint64_t granularity;
    uint64_t lag;
    uint64_t drained_ticks;     /* LAG: `ticks` at the last drain: what is idle completes at once */
    atomic_uint_fast64_t ticks; /* alone outside the lock: a replay counts millions */

    uint32_t device_count;
    vrpi_sim_device *devices;

    vrpi_sim_handle *handles;
    uint32_t handle_count, handle_capacity, handle_free;
    vrpi_sim_event *events;
    uint32_t event_count, event_capacity, event_free;
    uint64_t live_events;

    vrpi_sim_stream *legacy;
    vrpi_sim_stream **streams; /* all that may still do something */
    uint32_t stream_count, stream_capacity;
    vrpi_sim_stream **slots; /* by handle; NULL: free */
    uint32_t *free_slots;    /* a stack, the latest destroyed on top */
    uint32_t slot_count, slot_capacity, free_slot_count;
    vrpi_sim_stream *gone; /* kept: recordings point at them */
    uint64_t next_id;
    uint64_t seq;
    uint64_t drained; /* LAG: recordings up to here are complete */
    uint64_t now_ns;
    uint64_t gone_due;

    vrpi_sim_clock host;
    uint64_t host_version;
    vrpi_sim_clock gone_clock;
    uint32_t components;
    vrpi_sim_retired *retired;
    uint32_t retired_count, retired_capacity;
    uint64_t misuses;
    char misuse_text[256];

    uint64_t host_blocks;
    uint64_t capture_breaks;
    uint64_t calls[VRP_SIM_CALL_COUNT];
    uint64_t driver_time_ns;
    vrpi_sim_fault faults[VRP_SIM_CALL_COUNT + 1]; /* the last: calls of every kind */
    int lost;
    atomic_int hooked; /* lets a call skip the lock when there is no hook */
    vrp_sim_call_hook hook;
    void *hook_user;
};

static inline int vrpi_sim_detects(const vrp_sim *sim) {
    return (sim->flags & VRP_SIM_NO_DETECTOR) == 0;
}

/* ---- sim_call ---------------------------------------------------------------- */

/* Begins a driver call, without the lock: hook, count, faults. On VRP_OK the
 * lock is held and vrpi_sim_leave must follow. */
vrp_status vrpi_sim_enter(vrp_sim *sim, vrp_sim_call call, uint64_t argument);
/* Ends it: adds the price if it succeeded, unlocks, returns `status`. */
vrp_status vrpi_sim_leave(vrp_sim *sim, vrp_status status, uint64_t price_ns);
/* Notes the driver's own number of a failure; returns `status`. Any thread. */
vrp_status vrpi_sim_native(vrp_status status, int64_t native);
int64_t vrpi_sim_last_native(void);

/* ---- sim_host ---------------------------------------------------------------- */

vrp_status vrpi_sim_window_open(vrpi_sim_device *device, uint64_t wanted_bytes,
                                uint64_t *in_out_number_base);
void vrpi_sim_window_close(vrpi_sim_device *device);
/* Addresses of a zone: 0 if there is no run of that size. */
uint64_t vrpi_sim_zone_take(vrpi_sim_zone *zone, uint64_t bytes);
void vrpi_sim_zone_give(vrpi_sim_zone *zone, uint64_t base, uint64_t bytes);
vrp_status vrpi_sim_pages_show(vrpi_sim_device *device, uint64_t address, uint64_t physical,
                               uint64_t bytes);
void vrpi_sim_pages_hide(vrpi_sim_device *device, uint64_t address, uint64_t bytes);
void vrpi_sim_pages_drop(vrpi_sim_device *device, uint64_t physical, uint64_t bytes);
void *vrpi_sim_pointer(uint64_t address);

/* ---- sim_memory --------------------------------------------------------------- */

/* The device in whose window an address lies, NULL for none. */
vrpi_sim_device *vrpi_sim_device_of(vrp_sim *sim, uint64_t address);

/* A run of physical bytes behind a run of addresses. */
typedef struct vrpi_sim_piece {
    uint64_t address;
    uint64_t physical;
    uint64_t bytes;
} vrpi_sim_piece;

/* The piece that begins at `address`, at most to `end`; 0 if that is not
 * backed. Neighbours that continue each other physically come as one. */
int vrpi_sim_piece_at(const vrpi_sim_device *device, uint64_t address, uint64_t end,
                      vrpi_sim_piece *out_piece);
/* Whether a range is backed whole. */
int vrpi_sim_backed(const vrpi_sim_device *device, uint64_t address, uint64_t bytes);
void vrpi_sim_memory_clear(vrpi_sim_device *device);

vrp_status vrpi_sim_mem_info(void *ctx, uint64_t *out_free_bytes, uint64_t *out_total_bytes);
vrp_status vrpi_sim_mem_alloc(void *ctx, uint64_t bytes, vrp_devptr *out_ptr);
vrp_status vrpi_sim_mem_free(void *ctx, vrp_devptr ptr);
vrp_status vrpi_sim_address_reserve(void *ctx, uint64_t bytes, vrp_devptr *out_base);
vrp_status vrpi_sim_address_free(void *ctx, vrp_devptr base, uint64_t bytes);
vrp_status vrpi_sim_handle_create(void *ctx, uint64_t bytes, vrp_handle *out_handle);
vrp_status vrpi_sim_handle_release(void *ctx, vrp_handle handle);
vrp_status vrpi_sim_map(void *ctx, vrp_devptr ptr, uint64_t bytes, vrp_handle handle);
vrp_status vrpi_sim_set_access(void *ctx, vrp_devptr ptr, uint64_t bytes);
uint64_t vrpi_sim_handle_bytes(vrpi_sim_device *device, vrp_handle value); /* 0: none; lock held */
vrp_status vrpi_sim_unmap(void *ctx, vrp_devptr ptr, uint64_t bytes);
/* Takes physical bytes of a device, or OUT_OF_DEVICE_MEMORY. */
vrp_status vrpi_sim_charge(vrpi_sim_device *device, uint64_t bytes);
void vrpi_sim_refund(vrpi_sim_device *device, uint64_t physical, uint64_t bytes);

/* ---- sim_stream ----------------------------------------------------------------- */

/* Finds a stream; creates the calling thread's own for VRP_STREAM_PER_THREAD.
 * INVALID_ARGUMENT for no stream. */
vrp_status vrpi_sim_stream_find(vrp_sim *sim, vrp_stream handle, vrpi_sim_stream **out_stream);
vrp_status vrpi_sim_streams_open(vrp_sim *sim);
void vrpi_sim_streams_close(vrp_sim *sim);
int vrpi_sim_stream_blocking(const vrpi_sim_stream *stream);
/* Begins an operation on a stream: it comes after all that the host knows to
 * be done and, by the rules of the legacy stream, after others' work. */
vrp_status vrpi_sim_operation(vrp_sim *sim, vrpi_sim_stream *stream);
vrp_status vrpi_sim_work(vrp_sim *sim, vrpi_sim_stream *stream, uint64_t duration_ns);
vrp_status vrpi_sim_stream_id(void *ctx, vrp_stream stream, uint64_t *out_id);
vrp_status vrpi_sim_copy_async(void *ctx, vrp_devptr dst, vrp_devptr src, uint64_t bytes,
                               vrp_stream stream);
/* Moves destroyed streams without work to the list of gone ones. */
void vrpi_sim_streams_sweep(vrp_sim *sim);

/* ---- sim_time ---------------------------------------------------------------------- */

vrp_status vrpi_sim_push(vrp_sim *sim, vrpi_sim_stream *stream, vrpi_sim_item_kind kind,
                         vrpi_sim_record *record, vrpi_sim_stream *awaited);
/* MANUAL: lets events and waits pass that nothing holds back. */
void vrpi_sim_progress(vrp_sim *sim);
int vrpi_sim_record_done(const vrp_sim *sim, const vrpi_sim_record *record);
int vrpi_sim_anything_unfinished(const vrp_sim *sim);
int vrpi_sim_stream_unfinished(const vrp_sim *sim, const vrpi_sim_stream *stream);
/* Completes what is due before one recording or the end of one stream. */
void vrpi_sim_force_record(vrp_sim *sim, vrpi_sim_record *record);
void vrpi_sim_force_stream(vrp_sim *sim, vrpi_sim_stream *stream);
/* Completes everything; the host knows. */
vrp_status vrpi_sim_drain_all(vrp_sim *sim);
/* The host has seen that everything in `clock` is done. */
vrp_status vrpi_sim_host_learns(vrp_sim *sim, const vrpi_sim_clock *clock);
void vrpi_sim_items_free(vrp_sim *sim, vrpi_sim_stream *stream);

/* ---- sim_event ---------------------------------------------------------------------- */

vrp_status vrpi_sim_record_new(vrp_sim *sim, vrpi_sim_stream *stream, vrpi_sim_record **out_record);
void vrpi_sim_record_unref(vrpi_sim_record *record);
/* Makes a stream wait for a recording. */
vrp_status vrpi_sim_wait_record(vrp_sim *sim, vrpi_sim_stream *stream, vrpi_sim_record *record);
void vrpi_sim_events_close(vrp_sim *sim);
vrp_status vrpi_sim_event_create(void *ctx, vrp_event *out_event);
vrp_status vrpi_sim_event_destroy(void *ctx, vrp_event event);
vrp_status vrpi_sim_event_record(void *ctx, vrp_event event, vrp_stream stream);
vrp_status vrpi_sim_event_query(void *ctx, vrp_event event, int *out_done);
vrp_status vrpi_sim_event_synchronize(void *ctx, vrp_event event);
vrp_status vrpi_sim_synchronize(void *ctx);
vrp_status vrpi_sim_stream_wait_event(void *ctx, vrp_stream stream, vrp_event event);
vrp_status vrpi_sim_context_record(void *ctx, vrp_event event);

/* ---- sim_capture --------------------------------------------------------------------- */

/* Before something is put on a stream or waits for it: fails, and ends the
 * captures concerned, where a capture forbids it. `library`: count the ends. */
vrp_status vrpi_sim_capture_guard(vrp_sim *sim, vrpi_sim_stream *stream, int64_t native,
                                  int library);
/* The same for what concerns all streams. */
vrp_status vrpi_sim_capture_guard_all(vrp_sim *sim, int library);
vrp_status vrpi_sim_stream_is_capturing(void *ctx, vrp_stream stream, int *out_capturing);

/* ---- sim_regions ----------------------------------------------------------------------- */

typedef enum vrpi_sim_use_kind {
    VRPI_SIM_USE_ONCE, /* one piece of work */
    VRPI_SIM_USE_BEGIN,
    VRPI_SIM_USE_END
} vrpi_sim_use_kind;

void vrpi_sim_misuse(vrp_sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A use of addresses by a stream whose operation has begun. */
vrp_status vrpi_sim_use(vrp_sim *sim, vrpi_sim_stream *stream, vrp_devptr ptr, uint64_t bytes,
                        vrpi_sim_use_kind kind);
/* Addresses go: nothing may use them any more. */
vrp_status vrpi_sim_regions_unmapped(vrpi_sim_device *device, const vrpi_sim_piece *piece,
                                     const char *call);
/* Physical memory goes. */
vrp_status vrpi_sim_regions_freed(vrpi_sim_device *device, uint64_t physical, uint64_t bytes,
                                  const char *call);
void vrpi_sim_regions_clear(vrpi_sim_device *device);

/* ---- sim_machine ------------------------------------------------------------------------ */

/* Number of this thread in the process, from 1. No lock needed. */
uint64_t vrpi_sim_thread(void);
/* Grows an array to hold one more; 0 if there is no memory. */
int vrpi_sim_grow(void **array, uint32_t *capacity, uint32_t count, size_t item_bytes);

/* ---- sim_export.c ---- */
vrp_status vrpi_sim_handle_export(void *ctx, vrp_handle handle, int64_t *out_fd);
vrp_status vrpi_sim_range_export(void *ctx, vrp_devptr ptr, uint64_t bytes, int64_t *out_fd);
vrp_status vrpi_sim_ipc_export(void *ctx, vrp_devptr ptr, unsigned char out_handle[64]);

#endif
