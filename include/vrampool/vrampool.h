/* SPDX-License-Identifier: MIT */
#ifndef VRAMPOOL_VRAMPOOL_H
#define VRAMPOOL_VRAMPOOL_H

/* vrampool: an in-process pool allocator for GPU memory.
 *
 * A pool takes memory from the driver in large pieces, hands it out in
 * blocks, reuses freed blocks in stream order, shows the gap between what it
 * holds and what is in use, and gives the gap back without stopping the GPU.
 *
 * Simple use:
 *
 *     vrp_driver *driver;  vrp_pool *pool;  vrp_devptr p;
 *     vrp_driver_open("sim:8GiB", &driver);           // or "cuda:0"
 *     vrp_pool_create(driver, NULL, &pool);
 *     vrp_alloc(pool, bytes, stream, &p);
 *     ...                                             // work on stream
 *     vrp_free(pool, p, stream);                      // at once, no waiting
 *     vrp_empty_cache(pool, NULL);                    // at a natural pause
 *     vrp_pool_destroy(pool, 0);
 *
 * Words. Requested: bytes asked for. Allocated: bytes handed out after
 * rounding. Reserved: physical bytes held from the driver. Gap: reserved
 * minus allocated, split by cause (vrp_gap). Extent: one piece of physical
 * memory, the unit that is given back. Block: a piece of address space, live
 * or free. Trim: give wholly free extents back to the driver.
 *
 * Stream order. A free belongs to a stream. The block serves that stream
 * again at once, other streams when the work queued before the free is done
 * (or after a wait that the pool puts on the device). Memory that a further
 * stream uses is announced by vrp_record_stream. A stream is forgotten
 * (vrp_stream_forget) before it is destroyed.
 *
 * Threads. Every call may be made from any thread at any time, but for
 * vrp_pool_destroy, which needs the other calls to have returned: those that
 * come during or after it answer SHUT_DOWN. After fork() every call in the
 * child answers AFTER_FORK and touches nothing.
 *
 * Errors. Every fallible call returns vrp_status; out-parameters come last
 * and are written on success only; a failed call changes no counter but the
 * failure counters. Nothing prints, exits or aborts. Any call on a pool may
 * return INVALID_ARGUMENT (a NULL that must not be), SHUT_DOWN and
 * AFTER_FORK; a call that reaches the driver may return DEVICE_LOST; these
 * are not repeated below.
 *
 * Structs. Public structs begin with struct_size, set to sizeof by the
 * caller; zero in every other member means the default. They grow at the
 * end. Unknown flag bits are INVALID_ARGUMENT, a longer struct that is passed in
 * with non-zero bytes beyond what this version knows is NOT_SUPPORTED.
 *
 * Stability. Before 1.0 a minor version may break the ABI; the CHANGELOG says
 * so. Everything below is "since 0.1".
 *
 * See also graph.h (memory of captured graphs) and export.h (blocks for other
 * processes), which this header includes, driver.h (devices), sim.h (the
 * simulated device), cuda.h, knobs.h (tuning at run time), inspect.h (walk,
 * check, block queries), optimizer.h (when to trim), trace.h (recorded
 * workloads), allocator.hpp (C++17); later.h for what is not built yet.
 */

#include "driver.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vrp_pool vrp_pool;

/* ---- Pools -------------------------------------------------------------- */

typedef enum vrp_backing {
    VRP_BACKING_AUTO = 0,   /* vmm where the driver has it, else malloc */
    VRP_BACKING_VMM = 1,    /* address ranges backed on demand */
    VRP_BACKING_MALLOC = 2, /* cudaMalloc'ed segments */
    VRP_BACKING_FORCE_INT32 = 0x7fffffff
} vrp_backing;

typedef enum vrp_gap_rule {
    VRP_GAP_RULE_DEFAULT = 0,    /* high-water with vmm, off with malloc */
    VRP_GAP_RULE_OFF = 1,        /* keep idle memory until a trim */
    VRP_GAP_RULE_HIGH_WATER = 2, /* no new maximum while idle memory can be given up */
    VRP_GAP_RULE_LIMIT = 3,      /* before growth, idle memory is cut to gap_limit_bytes */
    VRP_GAP_RULE_FORCE_INT32 = 0x7fffffff
} vrp_gap_rule;

/* What memory is for. Counted apart, each with an optional budget. */
typedef enum vrp_tag {
    VRP_TAG_OTHER = 0,
    VRP_TAG_WEIGHTS = 1, /* long-lived: kept apart from short-lived blocks */
    VRP_TAG_KV = 2,
    VRP_TAG_ACTIVATION = 3,
    VRP_TAG_VISION = 4,
    VRP_TAG_WORKSPACE = 5,
    VRP_TAG_COUNT = 6,
    VRP_TAG_FORCE_INT32 = 0x7fffffff
} vrp_tag;

/* Why a request failed for want of memory. */
typedef struct vrp_oom_report {
    uint32_t struct_size;
    uint32_t attempts;          /* how often the callback was asked */
    uint64_t requested_bytes;   /* the request, rounded */
    uint64_t device_free_bytes; /* free on the device, by the driver */
    uint64_t device_total_bytes;
    uint64_t reserved_bytes;     /* held by this pool */
    uint64_t allocated_bytes;    /* handed out */
    uint64_t limit_bytes;        /* the pool's limit, 0 if none */
    uint64_t largest_free_bytes; /* longest free run inside the pool */
    uint64_t idle_bytes;         /* the gap by cause, see vrp_gap */
    uint64_t cached_bytes;
    uint64_t pinned_bytes;
    uint64_t pending_bytes;
    uint64_t slack_bytes;
    uint64_t pinning_blocks; /* live blocks in extents that also hold free bytes */
} vrp_oom_report;

/* Asked when nothing else helps. May free blocks of this pool and call any
 * other function of it, but a request made here does not ask again. Returns
 * non-zero to have the request tried again, at most VRP_OOM_ATTEMPTS times.
 * Called without a lock, on the thread whose request failed. */
typedef int (*vrp_oom_fn)(void *user, const vrp_oom_report *report);
#define VRP_OOM_ATTEMPTS 4

#define VRP_STREAMS_UNTRACKED                                     \
    (1u << 0) /* streams are destroyed without vrp_stream_forget: \
                 key on the driver's stream id, pay an event a free */
#define VRP_NO_DEVICE_WAITS                                    \
    (1u << 1) /* never make a stream wait for another (kernels \
                 that wait for later host work could deadlock) */
#define VRP_NO_RECLAIMER                                                    \
    (1u << 2) /* no helper thread, ever: a trim gives back all that is done \
                 before it returns, pending ones end at the next call */

typedef struct vrp_pool_config {
    uint32_t struct_size;
    uint32_t flags;           /* VRP_STREAMS_UNTRACKED ... */
    int32_t backing;          /* vrp_backing */
    int32_t gap_rule;         /* vrp_gap_rule */
    uint64_t gap_limit_bytes; /* for VRP_GAP_RULE_LIMIT */
    uint64_t limit_bytes;     /* most bytes the pool may reserve; 0: no limit */
    uint64_t initial_bytes;   /* backed at creation, given up when in the way; 0: none */
    uint64_t arena_bytes;     /* address space of one arena; 0: from the device's size */
    vrp_oom_fn oom_fn;        /* NULL: none */
    void *oom_user;
    /* Host memory for bookkeeping; all three or none. host_alloc returns memory
     * aligned for any type, or NULL. Called under no lock the user can hold. */
    void *(*host_alloc)(void *user, size_t bytes);
    void (*host_free)(void *user, void *ptr, size_t bytes);
    void *host_user;
} vrp_pool_config;

/* Makes a pool on the driver's device. The driver is borrowed and must outlive
 * the pool. config may be NULL. A driver that cannot do the backing asked for
 * gives NOT_SUPPORTED; with AUTO an address reservation that fails falls back
 * to malloc backing (vrp_pool_backing_reason_get in inspect.h says why).
 * Errors: NOT_SUPPORTED (also VRP_STREAMS_UNTRACKED without VRP_CAP_STREAM_ID),
 * OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY (initial_bytes), LIMIT_REACHED
 * (initial_bytes above limit_bytes), and the driver's. */
VRP_API VRP_NODISCARD vrp_status vrp_pool_create(vrp_driver *driver, const vrp_pool_config *config,
                                                 vrp_pool **out_pool);

#define VRP_DESTROY_FORCE (1u << 0) /* give up live blocks too */

/* Ends the pool: waits for the work that uses its memory and gives everything
 * back. With live blocks, growable buffers, graph pools, or freed blocks that are
 * still exported it answers BUSY, the detail says how many, and the pool goes on
 * as before, unless VRP_DESTROY_FORCE. NULL is allowed.
 * Errors: BUSY. Later calls on the pool answer SHUT_DOWN. */
VRP_API VRP_NODISCARD vrp_status vrp_pool_destroy(vrp_pool *pool, uint32_t flags);

/* ---- Blocks ------------------------------------------------------------- */

#define VRP_ALIGNMENT_MIN 512u       /* what every block has */
#define VRP_ALIGNMENT_MAX (2u << 20) /* the most that can be asked */

/* A block of at least `bytes` bytes for use on `stream`, aligned to
 * VRP_ALIGNMENT_MIN. The caller owns it until vrp_free. Size 0 gives OK and
 * address 0. Errors: INVALID_SIZE (wraps after rounding, or above the address
 * space), OUT_OF_DEVICE_MEMORY (after the whole chain: completed frees, idle
 * extents, memory in flight elsewhere, the callback, waiting; see
 * vrp_oom_report_get; at once above 1 TiB, but for the callback), LIMIT_REACHED,
 * OUT_OF_HOST_MEMORY, INVALID_ARGUMENT (a stream that is for frees only). */
VRP_API VRP_NODISCARD vrp_status vrp_alloc(vrp_pool *pool, size_t bytes, vrp_stream stream,
                                           vrp_devptr *out_ptr);

#define VRP_ALLOC_NO_WAIT (1u << 0)     /* fail rather than wait on the host for pending work */
#define VRP_ALLOC_NO_OOM_CALL (1u << 1) /* do not ask the callback */
#define VRP_ALLOC_EXPORTABLE                                         \
    (1u << 2) /* for vrp_block_export: with the vmm backing physical \
                 memory of its own, in whole granules of the device */

typedef struct vrp_alloc_info {
    uint32_t struct_size;
    uint32_t flags; /* VRP_ALLOC_* */
    size_t bytes;
    size_t alignment; /* power of two up to VRP_ALIGNMENT_MAX; 0: the minimum */
    vrp_stream stream;
    int32_t tag;       /* vrp_tag */
    uint32_t reserved; /* 0 */
    uint64_t scope;    /* a vrp_scope, or 0 */
} vrp_alloc_info;

/* vrp_alloc with all choices. Further errors: INVALID_ALIGNMENT; LIMIT_REACHED
 * also for a budget of the tag or scope. */
VRP_API VRP_NODISCARD vrp_status vrp_alloc_ex(vrp_pool *pool, const vrp_alloc_info *info,
                                              vrp_devptr *out_ptr);

/* Ends a block; `stream` is the stream of its last use, VRP_STREAM_OF_ALLOC
 * the one it was allocated on, VRP_STREAM_ANY where nobody knows (as cudaFree):
 * it is used again only when all that the context was given before is done (with a
 * driver without VRP_CAP_CONTEXT_RECORD: all on the streams that the pool has
 * seen). Never waits (but for the device, when a further stream is named and the
 * host has no memory left to remember it). Address 0 is allowed. A block whose
 * stream was forgotten meanwhile frees without error. Errors: NOT_OWNED,
 * INTERIOR_POINTER, ALREADY_FREED, INVALID_ARGUMENT (a growable buffer's base). */
VRP_API VRP_NODISCARD vrp_status vrp_free(vrp_pool *pool, vrp_devptr ptr, vrp_stream stream);

/* Says that work on `stream` uses the block too: when it is freed, it serves
 * others only when that stream's work up to the free is done.
 * Errors: NOT_OWNED, INTERIOR_POINTER, ALREADY_FREED, OUT_OF_HOST_MEMORY,
 * INVALID_ARGUMENT (no stream is named). */
VRP_API VRP_NODISCARD vrp_status vrp_record_stream(vrp_pool *pool, vrp_devptr ptr,
                                                   vrp_stream stream);

/* ---- Streams ------------------------------------------------------------ */

/* To be called before a stream is destroyed: records what is pending on it
 * and forgets the handle, which the driver may give out again. A stream the
 * pool has not seen is OK. VRP_STREAM_PER_THREAD is forgotten when its thread
 * ends. Errors: INVALID_ARGUMENT (it captures), INTERNAL (nothing could be
 * recorded; it is not forgotten then). */
VRP_API VRP_NODISCARD vrp_status vrp_stream_forget(vrp_pool *pool, vrp_stream stream);

/* Announces that a capture begins (before it does) or has ended on a stream.
 * Between the two the pool records, queries and waits for nothing on it; what is
 * freed there waits for the end. What is allocated there is the pool's own and
 * has to stay allocated as long as the graph is launched; memory for graphs comes
 * from graph.h. Errors: INVALID_ARGUMENT (already, or not, capturing; capturing
 * for a graph pool). */
VRP_API VRP_NODISCARD vrp_status vrp_capture_begin(vrp_pool *pool, vrp_stream stream);
VRP_API VRP_NODISCARD vrp_status vrp_capture_end(vrp_pool *pool, vrp_stream stream);

/* Takes up what the device has completed since: makes freed memory usable by
 * all streams and ends trims that were pending. Never waits. */
VRP_API VRP_NODISCARD vrp_status vrp_pool_poll(vrp_pool *pool);

/* ---- Giving memory back --------------------------------------------------- */

#define VRP_TRIM_WAIT (1u << 0)        /* wait for pending work, then trim that too */
#define VRP_TRIM_KEEP_CACHES (1u << 1) /* leave the per-thread caches as they are */

typedef struct vrp_trim_result {
    uint32_t struct_size;
    uint32_t extents_released;
    uint64_t released_bytes; /* given back by this call */
    uint64_t pending_bytes; /* goes later: its work is unfinished, or the call's budget was spent */
    uint64_t pinned_bytes;  /* free bytes in extents that hold live blocks */
    uint64_t reserved_bytes; /* held after the call */
    uint64_t stalled_ns;     /* how long driver calls blocked the host (malloc backing) */
} vrp_trim_result;

/* Gives idle extents back until at most target_bytes are reserved. Extents
 * whose work is unfinished go when it has completed: at a later call or, where
 * the pool has a reclaimer (VRP_KNOB_RECLAIMER; the default on a real device),
 * by a helper thread that is there while it is needed. With a reclaimer and the
 * vmm backing the call itself spends no more driver time than
 * VRP_KNOB_TRIM_BUDGET_NS, by estimate, and leaves the rest to the thread;
 * VRP_TRIM_WAIT waits until all of it is done. out_result may be NULL.
 * Errors: those of the driver. */
VRP_API VRP_NODISCARD vrp_status vrp_trim(vrp_pool *pool, uint64_t target_bytes, uint32_t flags,
                                          vrp_trim_result *out_result);

/* vrp_trim(pool, 0, 0, out_result): everything that is idle now. */
VRP_API VRP_NODISCARD vrp_status vrp_empty_cache(vrp_pool *pool, vrp_trim_result *out_result);

/* ---- Statistics ----------------------------------------------------------- */

typedef struct vrp_counter {
    uint64_t current;
    uint64_t peak;  /* since creation or the last reset */
    uint64_t total; /* sum of all increases since creation */
} vrp_counter;

/* Counters are exact when no other thread is inside a call. Peaks are exact
 * with one thread; with n threads they are low by at most n * 16 MiB, or high by
 * that and what lay in the other threads' caches. */
typedef struct vrp_stats {
    uint32_t struct_size;
    int32_t backing; /* vrp_backing in use */
    vrp_counter requested_bytes;
    vrp_counter allocated_bytes;
    vrp_counter reserved_bytes;
    vrp_counter blocks;              /* live blocks */
    vrp_counter extents;             /* extents held */
    uint64_t cached_bytes;           /* in threads' caches now, or on the way between them */
    uint64_t failures;               /* requests refused */
    uint64_t bad_frees;              /* frees refused */
    uint64_t trims;                  /* calls of trim and empty_cache */
    uint64_t trimmed_bytes;          /* bytes given back since creation, by whatever cause */
    uint64_t cross_stream_waits;     /* waits put on the device */
    uint64_t host_waits;             /* times the pool blocked the host for the device */
    uint64_t gap_limit_missed_bytes; /* most by which the gap rule could not be kept */
    uint64_t exported_bytes;         /* blocks shared with other processes, freed ones too */
    uint64_t suspended_bytes;        /* host bytes that hold suspended contents: 0, see later.h */
    uint64_t host_bytes;             /* host memory used for bookkeeping */
    uint64_t extents_unmapped;       /* driver calls by kind, since creation */
    uint64_t extents_created;
    uint64_t events_recorded;
    uint64_t graph_bytes;     /* reserved for graph pools that are not released yet */
    uint64_t reclaimed_bytes; /* of trimmed_bytes: by the helper thread, after its trim returned */
} vrp_stats;

/* Reads the counters; cheap: holds the pool's lock for an instant, walks no blocks. */
VRP_API VRP_NODISCARD vrp_status vrp_pool_stats_get(vrp_pool *pool, vrp_stats *out_stats);

/* The three figures most asked for, without a lock; 0 for NULL and for a pool that
 * is gone. Reserved is exact. In the other two each other thread may be late by up
 * to 8 MiB and what it holds back of larger blocks; exact with one thread. */
VRP_API uint64_t vrp_pool_reserved_bytes(const vrp_pool *pool);
VRP_API uint64_t vrp_pool_allocated_bytes(const vrp_pool *pool);
VRP_API uint64_t vrp_pool_requested_bytes(const vrp_pool *pool);

/* What the driver says of the whole device now. Errors: the driver's. */
VRP_API VRP_NODISCARD vrp_status vrp_pool_device_memory_get(vrp_pool *pool,
                                                            uint64_t *out_free_bytes,
                                                            uint64_t *out_total_bytes);

/* The gap by cause. A free byte counts under the first that holds. */
typedef struct vrp_gap {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t cached_bytes;  /* in threads' caches, or on the way between them */
    uint64_t pending_bytes; /* that unfinished work or another process may touch */
    uint64_t idle_bytes;    /* in wholly free extents */
    uint64_t pinned_bytes;  /* in extents that also hold live blocks, or in graph pools */
    uint64_t slack_bytes;   /* behind the ends of growable buffers */
} vrp_gap;

/* Walks the pool and splits reserved - allocated by cause; the five sum to it
 * exactly. Takes the pool's lock meanwhile. */
VRP_API VRP_NODISCARD vrp_status vrp_pool_gap_compute(vrp_pool *pool, vrp_gap *out_gap);

/* Sets every peak to its current value; totals and live counts stay, and the
 * high-water rule keeps its own maximum. */
VRP_API VRP_NODISCARD vrp_status vrp_pool_peaks_reset(vrp_pool *pool);

/* The report of the last request that this thread had refused for memory.
 * Errors: NOT_SUPPORTED (none was). */
VRP_API VRP_NODISCARD vrp_status vrp_oom_report_get(vrp_pool *pool, vrp_oom_report *out_report);

/* ---- Tags and scopes ------------------------------------------------------ */

typedef struct vrp_group_stats {
    uint32_t struct_size;
    uint32_t reserved;
    vrp_counter requested_bytes;
    vrp_counter allocated_bytes;
    uint64_t blocks;       /* live */
    uint64_t budget_bytes; /* 0: none */
} vrp_group_stats;

/* Counters of one tag. Errors: INVALID_ARGUMENT (no such tag). */
VRP_API VRP_NODISCARD vrp_status vrp_tag_stats_get(vrp_pool *pool, int32_t tag,
                                                   vrp_group_stats *out_stats);

/* The most allocated bytes a tag may have; 0: no budget. Requests beyond it
 * answer LIMIT_REACHED; what is live stays. */
VRP_API VRP_NODISCARD vrp_status vrp_tag_budget_set(vrp_pool *pool, int32_t tag, uint64_t bytes);

typedef uint64_t vrp_scope; /* 0 is no scope */

/* Opens a scope: a set of allocations that end together. budget_bytes 0: no
 * budget. Errors: LIMIT_REACHED (65,535 scopes are open), OUT_OF_HOST_MEMORY. */
VRP_API VRP_NODISCARD vrp_status vrp_scope_open(vrp_pool *pool, uint64_t budget_bytes,
                                                vrp_scope *out_scope);

/* No further allocations; live blocks stay and are freed one by one or by
 * vrp_scope_release. Errors: INVALID_ARGUMENT (no such scope). */
VRP_API VRP_NODISCARD vrp_status vrp_scope_close(vrp_pool *pool, vrp_scope scope);

/* Frees every live block of the scope, each on the stream it was allocated
 * on, and ends the scope. Its growable buffers shrink to 0 bytes and are still
 * to be destroyed. out_blocks (may be NULL) says how many there were.
 * Errors: INVALID_ARGUMENT (no such scope). */
VRP_API VRP_NODISCARD vrp_status vrp_scope_release(vrp_pool *pool, vrp_scope scope,
                                                   uint64_t *out_blocks);

/* Counters of one scope. Errors: INVALID_ARGUMENT (no such scope). */
VRP_API VRP_NODISCARD vrp_status vrp_scope_stats_get(vrp_pool *pool, vrp_scope scope,
                                                     vrp_group_stats *out_stats);

/* ---- Growable buffers ------------------------------------------------------ */

typedef struct vrp_growable vrp_growable;

typedef struct vrp_growable_info {
    uint32_t struct_size;
    int32_t tag;        /* vrp_tag */
    uint64_t max_bytes; /* the most it can ever have */
    vrp_stream stream;  /* the stream that uses it */
    vrp_scope scope;    /* or 0 */
} vrp_growable_info;

/* A buffer of 0 bytes that can grow to max_bytes. With the vmm backing its
 * addresses are reserved now and its base never moves. With the malloc backing
 * a resize may move it: the contents are copied on `stream` and the base is
 * to be read again. Counted as one block of its current size.
 * Errors: INVALID_SIZE, OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY. */
VRP_API VRP_NODISCARD vrp_status vrp_growable_create(vrp_pool *pool, const vrp_growable_info *info,
                                                     vrp_growable **out_buffer);

/* Backs or gives up the end of the buffer; contents up to the smaller of both
 * sizes stay. Extents given up serve others when the stream's work is done.
 * On failure the buffer is as before. A buffer is resized by one thread at a
 * time. Errors: INVALID_SIZE (above max_bytes), OUT_OF_DEVICE_MEMORY,
 * LIMIT_REACHED, OUT_OF_HOST_MEMORY, NOT_SUPPORTED (malloc backing without
 * VRP_CAP_COPY). */
VRP_API VRP_NODISCARD vrp_status vrp_growable_resize(vrp_growable *buffer, uint64_t bytes);

/* The base (0 while nothing was ever backed with malloc backing) and size. */
VRP_API vrp_devptr vrp_growable_base(const vrp_growable *buffer);
VRP_API uint64_t vrp_growable_size(const vrp_growable *buffer);

/* Ends the buffer; its memory serves others when its stream's work is done.
 * NULL is allowed. */
VRP_API VRP_NODISCARD vrp_status vrp_growable_destroy(vrp_growable *buffer);

#ifdef __cplusplus
}
#endif
#include "export.h"
#include "graph.h"
#include "later.h"
#endif
