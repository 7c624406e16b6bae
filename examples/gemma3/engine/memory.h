/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_MEMORY_H
#define GEMMA3_MEMORY_H

/* The engine's view of the pool: one device, one pool, one stream. Every device
 * byte of the engine comes through here. */

#include <vrampool/optimizer.h>
#include <vrampool/sim.h>
#include <vrampool/vrampool.h>

#include <stdbool.h>
#include <stddef.h>

#include "../files/error.h"

/* What an observer is told, after the pool did it: for a recorder of traces. */
typedef enum g3_memory_action {
    G3_MEMORY_ALLOC,  /* ptr, bytes, tag, scope */
    G3_MEMORY_FREE,   /* ptr */
    G3_MEMORY_RESIZE, /* ptr: the buffer's base before it first grew or after; bytes: its size now
                       */
    G3_MEMORY_RELEASE /* scope: every block and buffer of it is gone */
} g3_memory_action;

typedef struct g3_memory_event {
    g3_memory_action action;
    uint32_t tag; /* vrp_tag */
    vrp_devptr ptr;
    uint64_t bytes;
    vrp_scope scope;
    const void *buffer; /* names a growable buffer; NULL for blocks */
} g3_memory_event;
typedef void (*g3_memory_observer)(void *user, const g3_memory_event *event);

typedef struct g3_memory {
    vrp_driver *driver;
    vrp_pool *pool;
    vrp_stream stream;
    /* Requests that went through after a trim, and steps of a prompt that were refused
     * and tried again as smaller ones. */
    uint64_t retries;
    uint64_t failures; /* requests that were refused, also of steps tried again */
    /* Requests are tried once, and a refusal is not counted: for memory that nobody needs
     * yet. */
    bool tentative;
    g3_memory_observer observer; /* NULL: none; set by whoever wants to know */
    void *observer_user;
} g3_memory;

/* device: as vrp_driver_open takes it ("sim:2GiB"). backing: vrp_backing.
 * Errors: INVALID (no such device), DEVICE. */
g3_status g3_memory_open(const char *device, int32_t backing, g3_memory *out_memory,
                         g3_error *error);
/* Ends the pool. out_left (may be NULL): what the simulated device still holds in
 * bytes, 0 when clean. INVALID when blocks are live: they are given up. */
g3_status g3_memory_close(g3_memory *memory, uint64_t *out_left, g3_error *error);

/* A block for `bytes`; a request that fails is tried once more after everything
 * idle was trimmed, pending work waited for. DEVICE_MEMORY: the text says what was
 * asked for and the report. *out_ptr is 0 for 0 bytes. */
g3_status g3_memory_alloc(g3_memory *memory, size_t bytes, vrp_tag tag, vrp_scope scope,
                          vrp_devptr *out_ptr, g3_error *error);
void g3_memory_free(g3_memory *memory, vrp_devptr ptr); /* 0 is allowed */

/* Scopes and growable buffers of the pool, observed, with errors as texts. A buffer
 * that cannot grow is tried once more after a trim, as a block is. Destroying a
 * buffer or releasing a scope cannot fail here. */
g3_status g3_memory_scope_open(g3_memory *memory, vrp_scope *out_scope, g3_error *error);
void g3_memory_scope_release(g3_memory *memory, vrp_scope scope);
g3_status g3_memory_buffer_create(g3_memory *memory, uint64_t max_bytes, vrp_tag tag,
                                  vrp_scope scope, vrp_growable **out_buffer, g3_error *error);
g3_status g3_memory_buffer_resize(g3_memory *memory, vrp_growable *buffer, uint64_t bytes,
                                  g3_error *error);
void g3_memory_buffer_destroy(g3_memory *memory, vrp_growable *buffer); /* NULL is allowed */

/* The host's pointer to device memory of a simulated device. */
static inline void *g3_host(vrp_devptr ptr) { return (void *)(uintptr_t)ptr; }

/* The three layers and the gap, for people and for JSON. */
typedef struct g3_memory_report {
    uint64_t weights_bytes;   /* allocated under tag weights */
    uint64_t kv_bytes;        /* inference cache */
    uint64_t temporary_bytes; /* activations, vision, workspace, other: live now */
    uint64_t activation_bytes, vision_bytes, workspace_bytes, other_bytes;
    uint64_t requested_bytes, allocated_bytes, reserved_bytes;
    uint64_t gap_bytes; /* reserved - allocated */
    vrp_gap gap;        /* by cause */
    uint64_t peak_allocated_bytes, peak_reserved_bytes;
    uint64_t device_free_bytes, device_total_bytes;
    uint64_t trimmed_bytes;
} g3_memory_report;
g3_status g3_memory_report_get(g3_memory *memory, g3_memory_report *out_report, g3_error *error);

#endif
