/* SPDX-License-Identifier: MIT */
#ifndef VRAMPOOL_LATER_H
#define VRAMPOOL_LATER_H

/* Calls whose shape is settled and whose work is not built yet: each answers
 * NOT_SUPPORTED after checking its arguments. Programs can be written against
 * them and ask at run time. Included by vrampool.h. */

#include "driver.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct vrp_pool;

/* ---- Suspend and resume -----------------------------------------------------
 * Physical memory is released, addresses stay, contents go to pinned host
 * memory or are dropped. Idempotent. */

typedef enum vrp_suspend_target {
    VRP_SUSPEND_POOL = 0,
    VRP_SUSPEND_TAG = 1,
    VRP_SUSPEND_SCOPE = 2,
    VRP_SUSPEND_TARGET_FORCE_INT32 = 0x7fffffff
} vrp_suspend_target;

#define VRP_SUSPEND_DROP (1u << 0) /* contents need not come back */

/* `which` is a tag or a scope, 0 for the pool. Errors: NOT_SUPPORTED. */
VRP_API VRP_NODISCARD vrp_status vrp_suspend(struct vrp_pool *pool, int32_t target, uint64_t which,
                                             uint32_t flags);
VRP_API VRP_NODISCARD vrp_status vrp_resume(struct vrp_pool *pool, int32_t target, uint64_t which);

#ifdef __cplusplus
}
#endif
#endif
