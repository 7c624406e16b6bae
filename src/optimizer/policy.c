/* SPDX-License-Identifier: MIT */
/* Keep, hysteresis and pressure as plain arithmetic (see policy.h). */

#include "optimizer/policy.h"

enum { PATIENCE_FACTOR_MAX = 8, GROWTH_DIVISOR = 8 };

__extension__ typedef unsigned __int128 wide;

static uint64_t held_in_turn(const vrpi_keep *keep, const vrpi_reading *now) {
    /* A peak that rose since the last look was reached in this turn. */
    if (now->reserved_peak > keep->peak_seen && now->reserved_peak > now->reserved)
        return now->reserved_peak;
    return now->reserved;
}

/* Growth that is small beside the gap is churn (a class of blocks that found
 * no room in its own arena), no sign that the turn needed all that is held. */
static int grew(const vrpi_keep *keep, const vrpi_reading *now) {
    const uint64_t growth = now->reserved_total - keep->total_seen;
    const uint64_t held = held_in_turn(keep, now);
    const uint64_t gap = held > now->allocated ? held - now->allocated : 0;
    return growth > 0 && growth >= gap / GROWTH_DIVISOR;
}

void vrpi_keep_init(vrpi_keep *keep, uint32_t turns, const vrpi_reading *now) {
    *keep = (vrpi_keep){.bytes = now->reserved, .turns = turns, .patience = turns};
    vrpi_keep_turn_begin(keep, now);
}

void vrpi_keep_look(vrpi_keep *keep, const vrpi_reading *now) {
    const uint64_t held = held_in_turn(keep, now);
    if (grew(keep, now) && held >= keep->bytes) {
        const uint64_t longest = (uint64_t)keep->turns * PATIENCE_FACTOR_MAX;
        const uint64_t twice = (uint64_t)keep->patience * 2;
        const uint64_t next = !keep->probed ? keep->turns : twice < longest ? twice : longest;
        keep->patience = next < UINT32_MAX ? (uint32_t)next : UINT32_MAX;
        keep->bytes = held;
        keep->quiet = 0;
    } else if (keep->quiet < UINT32_MAX) {
        keep->quiet++;
    }
    keep->probe_due = keep->quiet >= keep->patience;
    keep->probed = 0;
}

uint64_t vrpi_keep_target(vrpi_keep *keep, const vrpi_reading *now) {
    if (grew(keep, now)) { /* in a turn that has not ended: its need counts already */
        const uint64_t held = held_in_turn(keep, now);
        if (held > keep->bytes)
            return held;
    }
    if (keep->probe_due) {
        const uint64_t bytes = keep->bytes < now->reserved ? keep->bytes : now->reserved;
        keep->bytes =
            bytes > now->allocated ? now->allocated + (bytes - now->allocated) / 2 : now->allocated;
        keep->probe_due = 0;
        keep->probed = 1;
    }
    return keep->bytes;
}

void vrpi_keep_turn_begin(vrpi_keep *keep, const vrpi_reading *after) {
    keep->peak_seen = after->reserved_peak;
    keep->total_seen = after->reserved_total;
}

int vrpi_rearm_ready(vrpi_rearm *rearm, uint64_t step, uint64_t gap) {
    if (rearm->disarmed && (gap <= rearm->bytes || step - rearm->acted_at >= rearm->cooldown))
        rearm->disarmed = 0;
    return !rearm->disarmed;
}

void vrpi_rearm_acted(vrpi_rearm *rearm, uint64_t step, uint64_t gap_after) {
    rearm->acted_at = step;
    rearm->disarmed = gap_after > rearm->bytes;
}

uint64_t vrpi_pressure_threshold(uint64_t threshold, uint64_t free_bytes, uint64_t wanted_bytes) {
    if (free_bytes >= wanted_bytes)
        return threshold;
    return (uint64_t)((wide)threshold * free_bytes / wanted_bytes);
}
