/* SPDX-License-Identifier: MIT */
#ifndef VRPT_OPTIMIZER_SUPPORT_H
#define VRPT_OPTIMIZER_SUPPORT_H

/* What the optimizer's tests share: making one, a step or an idle call whose
 * two answers agree, the gap, and a pool that keeps idle memory by itself. */

#include "unit_support.h"
#include "vrampool/optimizer.h"

static inline vrp_optimizer *make(vrpt *t, const vrp_optimizer_config *choices) {
    vrp_optimizer_config config = *choices;
    vrp_optimizer *optimizer = NULL;
    config.struct_size = sizeof config;
    VRPT_OK(vrp_optimizer_create(t->pool, &config, &optimizer));
    return optimizer;
}

static inline vrp_optimizer *make_classic(vrpt *t, uint64_t threshold, uint32_t interval,
                                          uint32_t options) {
    return make(t, &(vrp_optimizer_config){
                       .options = options, .threshold_bytes = threshold, .interval = interval});
}

static inline vrp_optimizer_report step(vrp_optimizer *optimizer) {
    vrp_optimizer_report report = {.struct_size = sizeof report};
    int acted = -1;
    VRPT_OK(vrp_optimizer_step(optimizer, &acted, &report));
    assert_int_equal(acted, report.acted);
    return report;
}

static inline vrp_optimizer_report idle(vrp_optimizer *optimizer) {
    vrp_optimizer_report report = {.struct_size = sizeof report};
    int acted = -1;
    VRPT_OK(vrp_optimizer_idle(optimizer, &acted, &report));
    assert_int_equal(acted, report.acted);
    return report;
}

static inline vrp_optimizer_stats stats_of(const vrp_optimizer *optimizer) {
    vrp_optimizer_stats stats = {.struct_size = sizeof stats};
    VRPT_OK(vrp_optimizer_stats_get(optimizer, &stats));
    return stats;
}

static inline uint64_t gap(vrpt *t) { return reserved(t) - allocated(t); }

/* Idle memory stays until somebody trims. */
static const vrpt_options hoarding = {.pool.gap_rule = VRP_GAP_RULE_OFF};

#endif
