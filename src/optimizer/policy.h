/* SPDX-License-Identifier: MIT */
#ifndef VRPI_OPTIMIZER_POLICY_H
#define VRPI_OPTIMIZER_POLICY_H

/* The arithmetic behind the optimizer's options, apart from the pool: what a
 * turn came to need, when acting again makes sense, how much pressure lowers
 * the threshold. Numbers in, numbers out. */

#include <stdint.h>

/* What is read from the pool at a look. */
typedef struct vrpi_reading {
    uint64_t allocated;
    uint64_t reserved;
    uint64_t reserved_peak;  /* the pool's own, which its user may reset */
    uint64_t reserved_total; /* sum of all growth since the pool was made */
} vrpi_reading;

/* The learned working set.
 *
 * A turn that made the pool grow needed what the pool came to hold. A turn
 * that did not grow only says that it needed no more than that. So after
 * `turns` looks in a row without growth a trim probes: it leaves half of what
 * lies between allocated and the learned amount, and half again at each
 * further quiet look. If the next turn grows, the probe was too low: the need
 * is known again, and the next probe waits twice as long. One long request is
 * thus forgotten within a few turns, and a steady chat pays for a probe
 * seldom. */
typedef struct vrpi_keep {
    uint64_t bytes;      /* what a trim leaves reserved */
    uint64_t peak_seen;  /* reserved_peak at the last look */
    uint64_t total_seen; /* reserved_total at the last look */
    uint32_t turns;      /* quiet looks before the first probe */
    uint32_t patience;   /* the same, for the next probe */
    uint32_t quiet;      /* looks in a row without growth */
    uint32_t probe_due;  /* 1: the next trim may probe */
    uint32_t probed;     /* 1: a probe was made since the last look */
} vrpi_keep;

void vrpi_keep_init(vrpi_keep *keep, uint32_t turns, const vrpi_reading *now);

/* Learns from the turn that ends with this look. */
void vrpi_keep_look(vrpi_keep *keep, const vrpi_reading *now);

/* How much a trim made now should leave; probes if that is due. */
uint64_t vrpi_keep_target(vrpi_keep *keep, const vrpi_reading *now);

/* Closes the look: growth from here on belongs to the next turn. */
void vrpi_keep_turn_begin(vrpi_keep *keep, const vrpi_reading *after);

/* Hysteresis: whether acting is allowed at a step with this gap. */
typedef struct vrpi_rearm {
    uint64_t bytes;    /* a gap of at most this arms again */
    uint64_t cooldown; /* so do that many steps */
    uint64_t acted_at; /* the step that acted last */
    uint32_t disarmed;
} vrpi_rearm;

int vrpi_rearm_ready(vrpi_rearm *rearm, uint64_t step, uint64_t gap);
void vrpi_rearm_acted(vrpi_rearm *rearm, uint64_t step, uint64_t gap_after);

/* The threshold scaled by free / wanted where free is the smaller. */
uint64_t vrpi_pressure_threshold(uint64_t threshold, uint64_t free_bytes, uint64_t wanted_bytes);

#endif
