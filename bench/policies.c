/* SPDX-License-Identifier: MIT */
/* --compare-policies: one workload under each policy of the optimizer. */

#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct policy {
    const char *name;
    const char *setting;
} policy;

/* Beside the defaults of the classic rule, one threshold that a chat reaches. */
static const policy policies[] = {
    {"off", "off"},
    {"classic", "threshold=1536MiB,interval=5"},
    {"classic, tight", "threshold=64MiB,interval=1"},
    {"keep", "threshold=64MiB,interval=1,keep=on"},
    {"idle", "threshold=1536MiB,interval=5,idle=on"},
    {"hysteresis", "threshold=64MiB,interval=1,hysteresis=on"},
    {"pressure", "threshold=64MiB,interval=1,pressure=on"},
};
enum { POLICIES = sizeof policies / sizeof *policies };

/* Where the command line names no moment: the one that the trace has. */
static uint32_t moment_of(const bench_figures *figures) {
    if (figures->markers[VRP_MARKER_TURN] + figures->markers[VRP_MARKER_CLEAR] > 0)
        return BENCH_AT_TURN;
    if (figures->markers[VRP_MARKER_STEP] > 0)
        return BENCH_AT_STEP;
    return BENCH_AT_REQUEST;
}

static void print_row(FILE *out, const policy *row, const bench_figures *f) {
    double mib = 1048576.0;
    (void)fprintf(out, "%-16s %10.1f %10.1f %10.1f %12.1f %6" PRIu64 " %12.1f  %s\n", row->name,
                  (double)f->driver_time_ns / 1e6, (double)f->peak_gap_bytes / mib,
                  (double)f->mean_gap_bytes / mib, (double)f->max_gap_after_step_bytes / mib,
                  f->steps_acted, (double)f->released_bytes / mib, row->setting);
}

static int write_json(const bench_options *options, const bench_figures *figures) {
    bench_options each = *options;
    FILE *out = bench_report_open(options);
    if (out == NULL)
        return BENCH_FAILED;
    (void)fputs("[\n", out);
    for (size_t i = 0; i < POLICIES; i++) {
        each.optimizer_text = policies[i].setting;
        each.optimizer_on = i > 0;
        bench_report_json(out, &each, &figures[i], policies[i].name, 2);
        (void)fputs(i + 1 < POLICIES ? ",\n" : "\n]", out);
    }
    return bench_report_close(out) ? BENCH_OK : BENCH_FAILED;
}

int bench_policies_command(const bench_options *options) {
    static bench_figures figures[POLICIES];
    FILE *table = options->json != NULL && strcmp(options->json, "-") == 0 ? NULL : stdout;
    uint32_t at = options->at;
    int worst = BENCH_OK;
    if (table != NULL)
        (void)fprintf(table, "%-16s %10s %10s %10s %12s %6s %12s\n%-16s %10s %10s %10s %12s\n",
                      "policy", "driver ms", "peak gap", "mean gap", "after a step", "acted",
                      "released MiB", "", "", "MiB", "MiB", "MiB");
    for (size_t i = 0; i < POLICIES; i++) {
        bench_options each = *options;
        vrp_optimizer_config_init(&each.optimizer);
        int code = bench_optimizer_parse(&each, policies[i].setting);
        each.at = at;
        if (code == BENCH_OK)
            code = bench_replay_run(&each, &figures[i]);
        if (code != BENCH_OK && code != BENCH_REFUSED)
            return code;
        if (code == BENCH_REFUSED)
            worst = code;
        if (i == 0 && !options->at_given)
            at = moment_of(&figures[0]);
        if (table != NULL)
            print_row(table, &policies[i], &figures[i]);
    }
    if (options->json == NULL)
        return worst;
    int code = write_json(options, figures);
    return code == BENCH_OK ? worst : code;
}
