/* SPDX-License-Identifier: MIT */
#ifndef VRAMPOOL_SIM_H
#define VRAMPOOL_SIM_H

/* A simulated machine with GPUs, for tests, for replays and for programs on
 * machines without one. A simulated address is a host address: memory is
 * reserved lazily, so a 139 GiB device fits on a small machine as long as
 * nobody touches it all, and code can compute on what it touches.
 *
 * It behaves as the real driver was measured to: capacity, 2 MiB granularity,
 * handles that map whole, streams as queues of work, events, several devices,
 * captures, sticky errors, other users of the memory. Calls add the measured
 * prices to a virtual clock. A fault plan fails chosen calls. A misuse
 * detector with happens-before clocks finds memory that is unmapped, released
 * or handed to another stream while work may still use it.
 *
 * Time. Work is put on streams by vrp_sim_launch and by use_begin/use_end.
 * How it completes is the machine's `completion`:
 * - MANUAL: when the test says so (vrp_sim_complete);
 * - IMMEDIATE: at once;
 * - LAG: an event completes once `lag_ticks` further vrp_sim_tick calls were
 *   made after it was recorded, and not before an event that its stream was
 *   made to wait for;
 * - CLOCK: work has a duration; a stream is done when the virtual clock has
 *   passed it (vrp_sim_clock_advance; a wait of the host advances it).
 *
 * Thread-safe throughout: every call may come from any thread. */

#include "driver.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vrp_sim vrp_sim;

typedef enum vrp_sim_completion {
    VRP_SIM_IMMEDIATE = 0,
    VRP_SIM_MANUAL = 1,
    VRP_SIM_LAG = 2,
    VRP_SIM_CLOCK = 3,
    VRP_SIM_COMPLETION_FORCE_INT32 = 0x7fffffff
} vrp_sim_completion;

#define VRP_SIM_NO_DETECTOR (1u << 0) /* misuse detector off (faster) */
#define VRP_SIM_NO_VMM (1u << 1)      /* a device without virtual-memory calls */
#define VRP_SIM_NO_MALLOC (1u << 2)
#define VRP_SIM_NO_CONTEXT_RECORD (1u << 3)
#define VRP_SIM_NO_HOST_MEMORY                                       \
    (1u << 4) /* addresses are numbers only: nothing can be computed \
                 on them, and no host address space is taken */

typedef struct vrp_sim_config {
    uint32_t struct_size;
    uint32_t flags;             /* VRP_SIM_NO_* */
    uint32_t device_count;      /* 0: 1 */
    int32_t completion;         /* vrp_sim_completion */
    uint64_t device_bytes;      /* capacity of each device; 0: 8 GiB */
    uint64_t granularity_bytes; /* 0: 2 MiB */
    uint64_t window_bytes;      /* address space of each device; 0: the larger of 1 TiB and
                                   64 times the device (less where the system allows less) */
    uint64_t lag_ticks;         /* for VRP_SIM_LAG */
} vrp_sim_config;

/* Makes a machine. config NULL: the defaults. Errors: INVALID_ARGUMENT,
 * OUT_OF_HOST_MEMORY (also: no address space of that size). */
VRP_API VRP_NODISCARD vrp_status vrp_sim_create(const vrp_sim_config *config, vrp_sim **out_sim);

/* Ends it; drivers made from it must be gone. Returns how many handles,
 * mappings, ranges, allocations and events were still there: 0 when clean. */
VRP_API uint64_t vrp_sim_destroy(vrp_sim *sim);

/* A driver for one of its devices, to give to vrp_pool_create. The machine
 * must outlive it. Errors: INVALID_ARGUMENT (no such device),
 * OUT_OF_HOST_MEMORY. */
VRP_API VRP_NODISCARD vrp_status vrp_sim_driver_create(vrp_sim *sim, uint32_t ordinal,
                                                       vrp_driver **out_driver);

/* The machine behind a driver of this kind, NULL for any other driver. */
VRP_API vrp_sim *vrp_sim_of_driver(const vrp_driver *driver);

/* ---- Memory ----------------------------------------------------------------- */

/* The host pointer for a range of device memory that is backed whole.
 * Errors: INVALID_ARGUMENT (not backed, or out of range), NOT_SUPPORTED
 * (VRP_SIM_NO_HOST_MEMORY). The pointer is good while the range is mapped. */
VRP_API VRP_NODISCARD vrp_status vrp_sim_host_pointer(vrp_sim *sim, vrp_devptr ptr, uint64_t bytes,
                                                      void **out_pointer);

/* Bytes of a device that somebody else holds. Errors: OUT_OF_DEVICE_MEMORY
 * (more than is free). */
VRP_API VRP_NODISCARD vrp_status vrp_sim_other_bytes_set(vrp_sim *sim, uint32_t ordinal,
                                                         uint64_t bytes);

typedef struct vrp_sim_stats {
    uint32_t struct_size;
    uint32_t ordinal;
    uint64_t used_bytes; /* physical bytes held through this interface */
    uint64_t peak_used_bytes;
    uint64_t other_bytes;
    uint64_t allocations; /* live mem_alloc blocks */
    uint64_t handles;     /* live handles */
    uint64_t mappings;
    uint64_t ranges;         /* reserved address ranges */
    uint64_t events;         /* of the machine: live events */
    uint64_t misuses;        /* of the machine: what the detector found */
    uint64_t host_blocks;    /* times a call had to wait for unfinished work */
    uint64_t capture_breaks; /* captures that a call of the library ended */
} vrp_sim_stats;
VRP_API VRP_NODISCARD vrp_status vrp_sim_stats_get(vrp_sim *sim, uint32_t ordinal,
                                                   vrp_sim_stats *out_stats);

/* ---- Streams and work --------------------------------------------------------- */

#define VRP_SIM_STREAM_NON_BLOCKING (1u << 0) /* does not order with the legacy stream */

/* Handles are used again after a destroy, with a new id, as the real driver
 * does. VRP_STREAM_LEGACY and VRP_STREAM_PER_THREAD always exist; the latter
 * is a stream of its own for every thread. Work left on a destroyed stream
 * still completes. */
VRP_API VRP_NODISCARD vrp_status vrp_sim_stream_create(vrp_sim *sim, uint32_t flags,
                                                       vrp_stream *out_stream);
VRP_API VRP_NODISCARD vrp_status vrp_sim_stream_destroy(vrp_sim *sim, vrp_stream stream);

/* Queues one piece of work that reads or writes [ptr, ptr + bytes) on the
 * stream (bytes 0: touches nothing) and takes duration_ns by the CLOCK. The
 * detector checks that the memory is backed, and ordered after the last use by
 * any other stream. */
VRP_API VRP_NODISCARD vrp_status vrp_sim_launch(vrp_sim *sim, vrp_stream stream, vrp_devptr ptr,
                                                uint64_t bytes, uint64_t duration_ns);

/* A use with a beginning and an end in the stream's order, as a replay knows
 * blocks: everything between the two may touch the range. */
VRP_API VRP_NODISCARD vrp_status vrp_sim_use_begin(vrp_sim *sim, vrp_stream stream, vrp_devptr ptr,
                                                   uint64_t bytes);
VRP_API VRP_NODISCARD vrp_status vrp_sim_use_end(vrp_sim *sim, vrp_stream stream, vrp_devptr ptr,
                                                 uint64_t bytes);

/* MANUAL: completes the first `count` pieces of unfinished work of a stream
 * (events and waits between them included); UINT64_MAX: all. Work behind a
 * wait for an event that has not completed stays. */
VRP_API void vrp_sim_complete(vrp_sim *sim, vrp_stream stream, uint64_t count);

/* Completes everything on every stream, as the app's own synchronise does:
 * the host knows that it is done. */
VRP_API void vrp_sim_drain(vrp_sim *sim);

/* The app synchronises one stream. */
VRP_API VRP_NODISCARD vrp_status vrp_sim_stream_synchronize(vrp_sim *sim, vrp_stream stream);

/* The app makes a stream wait for all that another has queued so far. */
VRP_API VRP_NODISCARD vrp_status vrp_sim_stream_wait_stream(vrp_sim *sim, vrp_stream waiter,
                                                            vrp_stream awaited);

VRP_API void vrp_sim_tick(vrp_sim *sim);                       /* LAG: one line was issued */
VRP_API void vrp_sim_clock_advance(vrp_sim *sim, uint64_t ns); /* CLOCK */

/* ---- Captures ------------------------------------------------------------------ */

typedef enum vrp_sim_capture_mode {
    VRP_SIM_CAPTURE_GLOBAL = 0,
    VRP_SIM_CAPTURE_THREAD_LOCAL = 1,
    VRP_SIM_CAPTURE_RELAXED = 2,
    VRP_SIM_CAPTURE_MODE_FORCE_INT32 = 0x7fffffff
} vrp_sim_capture_mode;

/* While a stream captures: recording, waiting or synchronising on it ends the
 * capture; in global mode so does mem_alloc, mem_free or an event query from
 * any thread that did not exchange to relaxed mode (the driver's own calls
 * have, as the real driver layer does); recording on the legacy stream ends
 * the capture of a blocking stream. */
VRP_API VRP_NODISCARD vrp_status vrp_sim_capture_begin(vrp_sim *sim, vrp_stream stream,
                                                       int32_t mode);

/* out_intact: 1 if nothing ended the capture meanwhile. */
VRP_API VRP_NODISCARD vrp_status vrp_sim_capture_end(vrp_sim *sim, vrp_stream stream,
                                                     int *out_intact);

/* What can be read from a descriptor that a simulated device exported, or from the
 * beginning of an IPC handle of one. */
#define VRP_SIM_EXPORT_MAGIC UINT64_C(0x767270736d657870)
typedef struct vrp_sim_export {
    uint64_t magic;  /* VRP_SIM_EXPORT_MAGIC */
    uint64_t handle; /* POSIX_FD: the VMM handle */
    uint64_t ptr;    /* DMA_BUF, IPC: the address */
    uint64_t bytes;
} vrp_sim_export;

/* ---- Calls: prices, log, faults, hooks -------------------------------------------- */

/* clang-format off */
#define VRP_SIM_CALL_MAP(X) \
    X(DEVICE_INFO, 0) X(MEM_INFO, 1) X(EVENT_CREATE, 2) X(EVENT_DESTROY, 3) \
    X(EVENT_RECORD, 4) X(EVENT_QUERY, 5) X(EVENT_SYNCHRONIZE, 6) X(SYNCHRONIZE, 7) \
    X(MEM_ALLOC, 8) X(MEM_FREE, 9) X(ADDRESS_RESERVE, 10) X(ADDRESS_FREE, 11) \
    X(HANDLE_CREATE, 12) X(HANDLE_RELEASE, 13) X(MAP, 14) X(SET_ACCESS, 15) X(UNMAP, 16) \
    X(STREAM_WAIT_EVENT, 17) X(CONTEXT_RECORD, 18) X(STREAM_ID, 19) \
    X(STREAM_IS_CAPTURING, 20) X(COPY_ASYNC, 21) X(EXPORT, 22)

typedef enum vrp_sim_call {
#define VRP_SIM_CALL_ENUM(name, value) VRP_SIM_CALL_##name = value,
    VRP_SIM_CALL_MAP(VRP_SIM_CALL_ENUM)
#undef VRP_SIM_CALL_ENUM
    VRP_SIM_CALL_COUNT,
    VRP_SIM_CALL_FORCE_INT32 = 0x7fffffff
} vrp_sim_call;
/* clang-format on */

/* The CUDA name of a call ("cuMemMap"), NULL for none. Static. */
VRP_API const char *vrp_sim_call_name(int32_t call);

/* How often a call was made, and the sum of all prices in nanoseconds. */
VRP_API uint64_t vrp_sim_call_count(vrp_sim *sim, int32_t call);
VRP_API uint64_t vrp_sim_driver_time_ns(vrp_sim *sim);

/* The price of one call in nanoseconds, linear between the measured sizes. */
VRP_API uint64_t vrp_sim_price_ns(int32_t call, uint64_t bytes);

/* Makes the `nth` call of a kind from now (1: the next) fail with `status`,
 * and `count` in all from there (UINT64_MAX: for ever). call -1: calls of
 * every kind count. A plan of a kind replaces the one before; nth 0 takes it
 * away. A DEVICE_LOST is sticky: every later call fails with it. Failed calls
 * have no effect and no price. */
VRP_API void vrp_sim_fault_set(vrp_sim *sim, int32_t call, uint64_t nth, uint64_t count,
                               vrp_status status);
VRP_API void vrp_sim_faults_clear(vrp_sim *sim);

/* Called at the beginning of every driver call, on its thread, under no lock
 * of the machine: a test can pause a thread inside a call. NULL: none. */
typedef void (*vrp_sim_call_hook)(void *user, int32_t call, uint64_t argument);
VRP_API void vrp_sim_call_hook_set(vrp_sim *sim, vrp_sim_call_hook hook, void *user);

/* What the detector found last, "" if nothing: copied into text. */
VRP_API void vrp_sim_misuse_text(vrp_sim *sim, char *text, size_t text_bytes);

/* The slot where the driver keeps an app's last error, of this thread: the
 * library must leave it as it was. */
VRP_API void vrp_sim_last_error_set(vrp_sim *sim, int32_t error);
VRP_API int32_t vrp_sim_last_error_get(vrp_sim *sim);

#ifdef __cplusplus
}
#endif
#endif
