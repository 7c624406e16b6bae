/* SPDX-License-Identifier: MIT */
#ifndef VRAMPOOL_OPTIMIZER_H
#define VRAMPOOL_OPTIMIZER_H

/* Decides when a pool gives memory back.
 *
 * The classic rule, to the letter: every call of vrp_optimizer_step counts one
 * step; when the count is a multiple of `interval`, gap = reserved - allocated
 * is read; if it is above threshold_bytes, the cache is emptied and the call
 * says that it acted, otherwise that it did not.
 *
 * Beyond it, each an option:
 * - idle: vrp_optimizer_idle, called while the engine waits for its user,
 *   trims whatever is idle above what is kept, whatever the threshold;
 * - keep: learns how much memory recent turns (the steps between two looks)
 *   came to hold, and a trim leaves that much reserved, so that the next turn
 *   need not pay to map it again;
 * - hysteresis: after acting, the gap must first fall to `rearm_bytes` (or
 *   `cooldown_steps` must pass) before it acts again;
 * - pressure: when the device has less than pressure_free_bytes free, the
 *   threshold falls in proportion, down to 0, and keep is ignored.
 *
 * An optimizer belongs to one pool and is used by one thread at a time. */

#include "vrampool.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vrp_optimizer vrp_optimizer;

#define VRP_OPTIMIZER_IDLE (1u << 0)
#define VRP_OPTIMIZER_KEEP (1u << 1)
#define VRP_OPTIMIZER_HYSTERESIS (1u << 2)
#define VRP_OPTIMIZER_PRESSURE (1u << 3)

#define VRP_OPTIMIZER_THRESHOLD_BYTES UINT64_C(1610612736) /* 1.5 GiB */
#define VRP_OPTIMIZER_INTERVAL 5u

typedef struct vrp_optimizer_config {
    uint32_t struct_size;
    uint32_t options;             /* VRP_OPTIMIZER_*; 0: the classic rule alone */
    uint64_t threshold_bytes;     /* as given, 0 is a threshold of 0 */
    uint32_t interval;            /* steps; 0 is invalid */
    uint32_t keep_turns;          /* how many recent turns keep learns from; 0: 4 */
    uint64_t rearm_bytes;         /* hysteresis; 0: half the threshold */
    uint32_t cooldown_steps;      /* hysteresis; 0: 4 intervals */
    uint32_t reserved;            /* 0 */
    uint64_t pressure_free_bytes; /* pressure; 0: a sixteenth of the device */
} vrp_optimizer_config;

/* Fills in the defaults: struct_size, 1.5 GiB, 5 steps, no options. */
VRP_API void vrp_optimizer_config_init(vrp_optimizer_config *out_config);

typedef enum vrp_optimizer_reason {
    VRP_REASON_NOT_DUE = 0,         /* the count is no multiple of the interval */
    VRP_REASON_BELOW_THRESHOLD = 1, /* looked; the gap is not above the threshold */
    VRP_REASON_ABOVE_THRESHOLD = 2, /* acted by the classic rule */
    VRP_REASON_IDLE = 3,            /* acted: the engine waits for its user */
    VRP_REASON_PRESSURE = 4,        /* acted: the device is short of memory */
    VRP_REASON_KEPT = 5,            /* did not act: all of it is the learned working set */
    VRP_REASON_NOT_REARMED = 6,     /* did not act: hysteresis */
    VRP_REASON_NOTHING_IDLE = 7,    /* nothing could be released */
    VRP_REASON_FORCE_INT32 = 0x7fffffff
} vrp_optimizer_reason;

/* "not due", "above threshold" and so on. Static. */
VRP_API const char *vrp_optimizer_reason_text(int32_t reason);

typedef struct vrp_optimizer_report {
    uint32_t struct_size;
    int32_t reason;           /* vrp_optimizer_reason */
    uint32_t looked;          /* 1: the gap was read */
    uint32_t acted;           /* 1: the cache was emptied or trimmed */
    uint64_t step;            /* the count, this call included */
    uint64_t gap_bytes;       /* reserved - allocated before */
    uint64_t gap_after_bytes; /* and after */
    uint64_t threshold_bytes; /* the one that was compared (pressure lowers it) */
    uint64_t keep_bytes;      /* what a trim left on purpose */
    uint64_t released_bytes;
    uint64_t pending_bytes;     /* goes later, see vrp_trim_result */
    uint64_t device_free_bytes; /* with the pressure option, else 0 */
    uint64_t cost_ns;           /* host time of the call */
} vrp_optimizer_report;

/* config NULL: the defaults. The pool is borrowed and must outlive it.
 * Errors: INVALID_ARGUMENT (interval 0, unknown option bits),
 * OUT_OF_HOST_MEMORY. */
VRP_API VRP_NODISCARD vrp_status vrp_optimizer_create(vrp_pool *pool,
                                                      const vrp_optimizer_config *config,
                                                      vrp_optimizer **out_optimizer);
VRP_API void vrp_optimizer_destroy(vrp_optimizer *optimizer);

/* One step. out_acted (may be NULL) gets 1 if it emptied the cache, else 0;
 * out_report (may be NULL) the whole decision. Errors: those of vrp_trim; the
 * step is counted all the same. */
VRP_API VRP_NODISCARD vrp_status vrp_optimizer_step(vrp_optimizer *optimizer, int *out_acted,
                                                    vrp_optimizer_report *out_report);

/* The engine waits for its user: with the idle option trims what is idle,
 * otherwise does nothing. No step is counted. May be called again and again. */
VRP_API VRP_NODISCARD vrp_status vrp_optimizer_idle(vrp_optimizer *optimizer, int *out_acted,
                                                    vrp_optimizer_report *out_report);

typedef struct vrp_optimizer_stats {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t steps;
    uint64_t looks;
    uint64_t acts;
    uint64_t released_bytes;
    uint64_t largest_gap_after_look_bytes;
    uint64_t cost_ns;
} vrp_optimizer_stats;

/* Totals since creation. Errors: INVALID_ARGUMENT. */
VRP_API VRP_NODISCARD vrp_status vrp_optimizer_stats_get(const vrp_optimizer *optimizer,
                                                         vrp_optimizer_stats *out_stats);

#ifdef __cplusplus
}
#endif
#endif
