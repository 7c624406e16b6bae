/* SPDX-License-Identifier: MIT */
/* The three layers of memory, for people. */

#include <inttypes.h>
#include <stdio.h>

#include "chat.h"

void g3_report_layers(const g3_memory_report *r) {
    (void)printf("  weights %.1f   inference cache %.1f   temporary %.1f   MiB\n",
                 g3_mib(r->weights_bytes), g3_mib(r->kv_bytes), g3_mib(r->temporary_bytes));
    (void)printf("  allocated %.1f   reserved %.1f   gap %.1f MiB", g3_mib(r->allocated_bytes),
                 g3_mib(r->reserved_bytes), g3_mib(r->gap_bytes));
    (void)printf(" (idle %.1f, pinned %.1f, cached %.1f, pending %.1f, slack %.1f)\n",
                 g3_mib(r->gap.idle_bytes), g3_mib(r->gap.pinned_bytes),
                 g3_mib(r->gap.cached_bytes), g3_mib(r->gap.pending_bytes),
                 g3_mib(r->gap.slack_bytes));
}

static void print_decision(const char *what, const g3_decision *decision) {
    char text[256];
    g3_decision_text(decision, text, sizeof text);
    (void)printf("  %s: %s\n", what, text);
}

void g3_report_turn(const g3_chat *chat, const g3_turn *turn) {
    (void)printf(
        "-- turn %" PRIu64 ": %zu tokens in (%.0f/s), %zu out (%.1f/s), %u of %u positions",
        turn->index, turn->prompt_tokens, g3_per_second(turn->prompt_tokens, turn->prompt_seconds),
        turn->new_tokens, g3_per_second(turn->new_tokens, turn->answer_seconds), turn->length,
        g3_session_context(chat->session));
    if (turn->images > 0)
        (void)printf(", %zu images", turn->images);
    (void)putchar('\n');
    g3_report_layers(&turn->memory);
    (void)printf("  in the turn: activations to %.1f MiB, vision to %.1f MiB, %" PRIu64
                 " trims, %" PRIu64 " retries\n",
                 g3_mib(turn->peak_activation_bytes), g3_mib(turn->peak_vision_bytes),
                 turn->trims_inside, turn->retries);
    if (chat->optimizer == NULL) {
        (void)printf("  optimizer: off\n");
        return;
    }
    char what[48];
    (void)snprintf(what, sizeof what, "optimizer, step %" PRIu64, turn->step.report.step);
    print_decision(what, &turn->step);
    if (turn->idle.called && turn->idle.report.acted)
        print_decision("idle work", &turn->idle);
}

/* The pool's gap and what the optimizer did so far. */
static void print_totals(g3_chat *chat) {
    vrp_optimizer_stats stats = {.struct_size = sizeof stats};
    if (chat->optimizer == NULL) {
        (void)printf("  optimizer: off\n");
        return;
    }
    if (vrp_optimizer_stats_get(chat->optimizer, &stats) != VRP_OK)
        return;
    (void)printf("  optimizer: %" PRIu64 " steps, %" PRIu64 " looks, %" PRIu64
                 " trims, %.1f MiB given back, %.2f ms\n",
                 stats.steps, stats.looks, stats.acts, g3_mib(stats.released_bytes),
                 (double)stats.cost_ns * 1e-6);
    if (chat->turn_count > 0 && chat->turns[chat->turn_count - 1].step.called)
        print_decision("its last step", &chat->turns[chat->turn_count - 1].step);
}

void g3_report_now(g3_chat *chat) {
    g3_memory_report r;
    g3_error error;
    if (g3_memory_report_get(&chat->memory, &r, &error) != G3_OK) {
        (void)printf("%s\n", error.text);
        return;
    }
    (void)printf("-- after %zu turns: %u of %u positions; device %.1f of %.1f MiB free\n",
                 chat->turn_count, g3_session_length(chat->session),
                 g3_session_context(chat->session), g3_mib(r.device_free_bytes),
                 g3_mib(r.device_total_bytes));
    g3_report_layers(&r);
    (void)printf("  temporary: activations %.1f, vision %.1f, workspace %.1f, other %.1f MiB\n",
                 g3_mib(r.activation_bytes), g3_mib(r.vision_bytes), g3_mib(r.workspace_bytes),
                 g3_mib(r.other_bytes));
    print_totals(chat);
}
