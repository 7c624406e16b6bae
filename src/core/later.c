/* SPDX-License-Identifier: MIT */
/* The calls of later.h: arguments are checked, the answer is NOT_SUPPORTED. */

#include "core/core.h"

static vrp_status unsupported(const char *what) {
    return vrpi_fail(VRP_NOT_SUPPORTED, "%s is not supported by this version", what);
}

static vrp_status target_check(struct vrp_pool *pool, int32_t target) {
    VRPI_TRY(vrpi_pool_usable(pool));
    if (target < VRP_SUSPEND_POOL || target > VRP_SUSPEND_SCOPE)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "no suspend target %d", target);
    return VRP_OK;
}

vrp_status vrp_suspend(struct vrp_pool *pool, int32_t target, uint64_t which, uint32_t flags) {
    (void)which;
    VRPI_TRY(target_check(pool, target));
    if ((flags & ~VRP_SUSPEND_DROP) != 0)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_suspend: unknown flags 0x%x", flags);
    return unsupported("suspend");
}

vrp_status vrp_resume(struct vrp_pool *pool, int32_t target, uint64_t which) {
    (void)which;
    VRPI_TRY(target_check(pool, target));
    return unsupported("resume");
}
