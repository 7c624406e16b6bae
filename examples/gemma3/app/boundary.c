/* SPDX-License-Identifier: MIT */
/* The optimizer works between turns and while the program waits, never inside. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "chat.h"

static bool idle_wanted(const g3_chat *chat) {
    return chat->optimizer != NULL &&
           (chat->options.optimizer.config.options & VRP_OPTIMIZER_IDLE) != 0;
}

static g3_decision idle_once(g3_chat *chat) {
    g3_decision decision = {.called = true};
    decision.report.struct_size = sizeof decision.report;
    if (vrp_optimizer_idle(chat->optimizer, NULL, &decision.report) != VRP_OK)
        memset(&decision, 0, sizeof decision);
    chat->idle_calls++;
    chat->idle_acts += decision.report.acted;
    chat->idle_released_bytes += decision.report.released_bytes;
    return decision;
}

void g3_chat_boundary(g3_chat *chat, g3_turn *turn) {
    if (chat->optimizer == NULL)
        return;
    turn->step.report.struct_size = sizeof turn->step.report;
    turn->step.called = vrp_optimizer_step(chat->optimizer, NULL, &turn->step.report) == VRP_OK;
    if (chat->scripted && idle_wanted(chat))
        turn->idle = idle_once(chat);
}

/* Again for as long as something went or is still to go. */
bool g3_chat_idle(void *user) {
    g3_chat *chat = (g3_chat *)user;
    /* A picture that waits for its message will need much memory at once: what is idle
     * now is what it takes. */
    if (!idle_wanted(chat) || chat->picture_count > 0)
        return false;
    const g3_decision decision = idle_once(chat);
    return decision.report.released_bytes > 0 || decision.report.pending_bytes > 0;
}

/* What was found and done about it. */
static int reason_text(const vrp_optimizer_report *r, char *text, size_t room) {
    switch (r->reason) {
    case VRP_REASON_NOT_DUE:
        return snprintf(text, room, "not due");
    case VRP_REASON_BELOW_THRESHOLD:
        return snprintf(text, room, "gap %.1f MiB is not above %.1f MiB: left as it is",
                        g3_mib(r->gap_bytes), g3_mib(r->threshold_bytes));
    case VRP_REASON_ABOVE_THRESHOLD:
        return snprintf(text, room, "gap %.1f MiB is above %.1f MiB", g3_mib(r->gap_bytes),
                        g3_mib(r->threshold_bytes));
    case VRP_REASON_IDLE:
        return snprintf(text, room, "nobody waits, gap %.1f MiB", g3_mib(r->gap_bytes));
    case VRP_REASON_PRESSURE:
        return snprintf(
            text, room, "the device has %.1f MiB free, gap %.1f MiB is above the lowered %.1f MiB",
            g3_mib(r->device_free_bytes), g3_mib(r->gap_bytes), g3_mib(r->threshold_bytes));
    case VRP_REASON_KEPT:
        return snprintf(text, room, "gap %.1f MiB is what turns need again: kept",
                        g3_mib(r->gap_bytes));
    case VRP_REASON_NOT_REARMED:
        return snprintf(text, room, "gap %.1f MiB, but it acted a short while ago",
                        g3_mib(r->gap_bytes));
    case VRP_REASON_NOTHING_IDLE:
        return snprintf(text, room, "gap %.1f MiB, none of it idle", g3_mib(r->gap_bytes));
    default:
        return snprintf(text, room, "%s", vrp_optimizer_reason_text(r->reason));
    }
}

void g3_decision_text(const g3_decision *decision, char *text, size_t text_bytes) {
    const vrp_optimizer_report *r = &decision->report;
    if (!decision->called) {
        (void)snprintf(text, text_bytes, "not asked");
        return;
    }
    const int used = reason_text(r, text, text_bytes);
    if (!r->acted || used < 0 || (size_t)used >= text_bytes)
        return;
    (void)snprintf(text + used, text_bytes - (size_t)used,
                   ": gave back %.1f MiB in %.2f ms, gap now %.1f MiB", g3_mib(r->released_bytes),
                   (double)r->cost_ns * 1e-6, g3_mib(r->gap_after_bytes));
}
