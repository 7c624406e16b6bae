/* SPDX-License-Identifier: MIT */
/* The figures of a run as JSON; docs/gemma3.md says what each means. */

#include <jansson.h>

#include "chat.h"

#define NUMBER(value) ((json_int_t)(value))

static json_t *gap_json(const vrp_gap *gap) {
    return json_pack("{s:I,s:I,s:I,s:I,s:I}", "idle", NUMBER(gap->idle_bytes), "pinned",
                     NUMBER(gap->pinned_bytes), "cached", NUMBER(gap->cached_bytes), "pending",
                     NUMBER(gap->pending_bytes), "slack", NUMBER(gap->slack_bytes));
}

static json_t *memory_json(const g3_memory_report *r) {
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:I}", "weights_bytes",
                     NUMBER(r->weights_bytes), "kv_bytes", NUMBER(r->kv_bytes), "temporary_bytes",
                     NUMBER(r->temporary_bytes), "vision_bytes", NUMBER(r->vision_bytes),
                     "activation_bytes", NUMBER(r->activation_bytes), "requested_bytes",
                     NUMBER(r->requested_bytes), "allocated_bytes", NUMBER(r->allocated_bytes),
                     "reserved_bytes", NUMBER(r->reserved_bytes), "gap_bytes", NUMBER(r->gap_bytes),
                     "gap_by_cause", gap_json(&r->gap), "device_free_bytes",
                     NUMBER(r->device_free_bytes));
}

static json_t *decision_json(const g3_decision *decision) {
    if (!decision->called)
        return json_null();
    const vrp_optimizer_report *r = &decision->report;
    char text[256];
    g3_decision_text(decision, text, sizeof text);
    return json_pack("{s:I,s:b,s:b,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "step", NUMBER(r->step),
                     "looked", (int)r->looked, "acted", (int)r->acted, "reason",
                     vrp_optimizer_reason_text(r->reason), "text", text, "threshold_bytes",
                     NUMBER(r->threshold_bytes), "gap_before_bytes", NUMBER(r->gap_bytes),
                     "gap_after_bytes", NUMBER(r->gap_after_bytes), "released_bytes",
                     NUMBER(r->released_bytes), "pending_bytes", NUMBER(r->pending_bytes),
                     "kept_bytes", NUMBER(r->keep_bytes), "cost_ns", NUMBER(r->cost_ns));
}

json_t *g3_stats_turn(const g3_turn *turn) {
    json_t *root = json_pack(
        "{s:I,s:I,s:b,s:b,s:s,s:i,s:s,s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:I}", "turn",
        NUMBER(turn->index), "conversation", NUMBER(turn->conversation), "added", (int)turn->added,
        "dropped", (int)turn->dropped, "end", g3_end_text(turn->end), "stop_id", (int)turn->stop_id,
        "error", turn->error.text, "images", NUMBER(turn->images), "prompt_tokens",
        NUMBER(turn->prompt_tokens), "new_tokens", NUMBER(turn->new_tokens), "prompt_seconds",
        turn->prompt_seconds, "answer_seconds", turn->answer_seconds, "prompt_tokens_per_second",
        g3_per_second(turn->prompt_tokens, turn->prompt_seconds), "tokens_per_second",
        g3_per_second(turn->new_tokens, turn->answer_seconds), "length", NUMBER(turn->length));
    json_t *inside = json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "trims", NUMBER(turn->trims_inside),
                               "released_bytes", NUMBER(turn->released_inside_bytes), "retries",
                               NUMBER(turn->retries), "peak_activation_bytes",
                               NUMBER(turn->peak_activation_bytes), "peak_vision_bytes",
                               NUMBER(turn->peak_vision_bytes), "peak_allocated_bytes",
                               NUMBER(turn->memory.peak_allocated_bytes), "peak_reserved_bytes",
                               NUMBER(turn->memory.peak_reserved_bytes));
    json_t *rest =
        json_pack("{s:o,s:o,s:o,s:o,s:o}", "inside", inside, "memory", memory_json(&turn->memory),
                  "optimizer", decision_json(&turn->step), "idle", decision_json(&turn->idle),
                  "after", memory_json(&turn->after));
    if (root == NULL || rest == NULL || json_object_update(root, rest) != 0) {
        json_decref(root);
        root = NULL;
    }
    json_decref(rest);
    return root;
}

static json_t *clears_json(const g3_chat *chat) {
    json_t *list = json_array();
    for (size_t i = 0; i < chat->clear_count; i++) {
        const g3_clear *c = &chat->clears[i];
        (void)json_array_append_new(
            list, json_pack("{s:I,s:I,s:I,s:I,s:I}", "after_turn", NUMBER(c->after_turn),
                            "reserved_before_bytes", NUMBER(c->reserved_before_bytes),
                            "reserved_after_bytes", NUMBER(c->reserved_after_bytes),
                            "allocated_after_bytes", NUMBER(c->allocated_after_bytes),
                            "weights_bytes", NUMBER(c->weights_bytes)));
    }
    return list;
}

static json_t *shortenings_json(const g3_chat *chat) {
    json_t *list = json_array();
    for (size_t i = 0; i < chat->shortening_count; i++) {
        const g3_shortening *s = &chat->shortenings[i];
        (void)json_array_append_new(
            list, json_pack("{s:I,s:I,s:I,s:I}", "after_turn", NUMBER(s->after_turn),
                            "length_before", NUMBER(s->length_before), "length_after",
                            NUMBER(s->length_after), "turns_dropped", NUMBER(s->turns_dropped)));
    }
    return list;
}

static json_t *totals_json(const g3_chat *chat) {
    uint64_t prompt = 0, fresh = 0, images = 0, trims = 0, released = 0;
    double prompt_seconds = 0.0, answer_seconds = 0.0;
    for (size_t i = 0; i < chat->turn_count; i++) {
        const g3_turn *turn = &chat->turns[i];
        prompt += turn->prompt_tokens;
        fresh += turn->new_tokens;
        images += turn->images;
        trims += turn->trims_inside;
        released += turn->released_inside_bytes;
        prompt_seconds += turn->prompt_seconds;
        answer_seconds += turn->answer_seconds;
    }
    return json_pack("{s:I,s:I,s:I,s:I,s:f,s:f,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "turns",
                     NUMBER(chat->turn_count), "prompt_tokens", NUMBER(prompt), "new_tokens",
                     NUMBER(fresh), "images", NUMBER(images), "prompt_seconds", prompt_seconds,
                     "answer_seconds", answer_seconds, "refused", NUMBER(chat->refused), "mistakes",
                     NUMBER(chat->mistakes), "trims_inside_turns", NUMBER(trims),
                     "released_inside_turns_bytes", NUMBER(released), "retries",
                     NUMBER(chat->memory.retries), "failures", NUMBER(chat->memory.failures),
                     "peak_allocated_bytes", NUMBER(chat->peak_allocated_bytes),
                     "peak_reserved_bytes", NUMBER(chat->peak_reserved_bytes));
}

static json_t *optimizer_json(const g3_chat *chat, const vrp_optimizer_stats *stats) {
    const vrp_optimizer_config *config = &chat->options.optimizer.config;
    if (stats == NULL)
        return json_null();
    return json_pack("{s:I,s:I,s:b,s:b,s:b,s:b,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}",
                     "threshold_bytes", NUMBER(config->threshold_bytes), "interval",
                     NUMBER(config->interval), "idle", (config->options & VRP_OPTIMIZER_IDLE) != 0,
                     "keep", (config->options & VRP_OPTIMIZER_KEEP) != 0, "hysteresis",
                     (config->options & VRP_OPTIMIZER_HYSTERESIS) != 0, "pressure",
                     (config->options & VRP_OPTIMIZER_PRESSURE) != 0, "steps", NUMBER(stats->steps),
                     "looks", NUMBER(stats->looks), "acts", NUMBER(stats->acts), "released_bytes",
                     NUMBER(stats->released_bytes), "largest_gap_after_look_bytes",
                     NUMBER(stats->largest_gap_after_look_bytes), "cost_ns", NUMBER(stats->cost_ns),
                     "idle_calls", NUMBER(chat->idle_calls), "idle_acts", NUMBER(chat->idle_acts),
                     "idle_released_bytes", NUMBER(chat->idle_released_bytes));
}

json_t *g3_stats_run(const g3_chat *chat, const char *pool_check,
                     const vrp_optimizer_stats *optimizer, uint64_t left) {
    json_t *turns = json_array();
    for (size_t i = 0; i < chat->turn_count; i++)
        (void)json_array_append_new(turns, g3_stats_turn(&chat->turns[i]));
    return json_pack("{s:s,s:s,s:I,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:{s:I,s:s}}", "model", chat->name,
                     "device", chat->options.device, "device_bytes", NUMBER(chat->device_bytes),
                     "weights_bytes", NUMBER(chat->weights_bytes), "context", NUMBER(chat->context),
                     "turns", turns, "clears", clears_json(chat), "shortenings",
                     shortenings_json(chat), "totals", totals_json(chat), "optimizer",
                     optimizer_json(chat, optimizer), "end", "device_bytes_left", NUMBER(left),
                     "pool_check", pool_check);
}
