/* SPDX-License-Identifier: MIT */
/* The frontier command: gap against driver time over gap rules, limits and the
 * knobs of extents, as rows for plot_frontier.py. */

#include "replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct setting {
    const char *gap_limit;
    const char *knob; /* NULL: all as they are */
} setting;

static const setting grid[] = {
    {"off", NULL},
    {"high-water", NULL},
    {"1GiB", NULL},
    {"512MiB", NULL},
    {"256MiB", NULL},
    {"128MiB", NULL},
    {"64MiB", NULL},
    {"32MiB", NULL},
    {"16MiB", NULL},
    {"high-water", "EXTENT_LARGE_BYTES=2MiB"},
    {"high-water", "EXTENT_LARGE_BYTES=4MiB"},
    {"high-water", "EXTENT_LARGE_BYTES=16MiB"},
    {"high-water", "EXTENT_LARGE_BYTES=32MiB"},
    {"high-water", "EXTENT_LARGE_BYTES=64MiB"},
    {"high-water", "EXTENT_SMALL_BYTES=4MiB"},
    {"high-water", "EXTENT_SMALL_BYTES=8MiB"},
    {"high-water", "EXTENT_LOADING_BYTES=8MiB"},
    {"high-water", "EXTENT_LOADING_BYTES=32MiB"},
    {"high-water", "EXTENT_LOADING_BYTES=256MiB"},
    {"64MiB", "EXTENT_LARGE_BYTES=2MiB"},
    {"64MiB", "EXTENT_LARGE_BYTES=4MiB"},
    {"64MiB", "EXTENT_LARGE_BYTES=16MiB"},
    {"64MiB", "EXTENT_LARGE_BYTES=32MiB"},
    {"64MiB", "EXTENT_LARGE_BYTES=64MiB"},
    {"64MiB", "IDLE_AGE=0"},
    {"64MiB", "IDLE_AGE=500"},
    {"64MiB", "IDLE_AGE=8000"},
};

/* "traces/chat.csv.gz" is "chat". */
static void short_name(const char *path, char *name, size_t room) {
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    size_t length = strcspn(base, ".");
    (void)snprintf(name, room, "%.*s", (int)(length > 60 ? 60 : length), base);
}

static const char *rule_name(int32_t rule) {
    if (rule == VRP_GAP_RULE_OFF)
        return "off";
    return rule == VRP_GAP_RULE_LIMIT ? "limit" : "high-water";
}

static int one_row(FILE *out, const bench_options *base, const setting *set) {
    bench_figures figures;
    bench_options options = *base;
    char name[64];
    int code = bench_gap_limit_parse(&options, set->gap_limit);
    if (code == BENCH_OK && set->knob != NULL)
        code = bench_knob_parse(&options, set->knob);
    if (code == BENCH_OK)
        code = bench_replay_run(&options, &figures);
    if (code != BENCH_OK)
        return code;
    short_name(options.trace, name, sizeof name);
    (void)fprintf(
        out, "%s,%s,%" PRIu64 ",%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ".%03" PRIu64 ",%" PRIu64 "\n",
        name, rule_name(options.gap_rule), options.gap_limit_bytes,
        set->knob != NULL ? set->knob : "", figures.peak_gap_bytes, figures.mean_gap_bytes,
        figures.driver_time_ns / 1000000, figures.driver_time_ns / 1000 % 1000,
        figures.cross_stream_waits);
    (void)fflush(out); /* a long run can be watched */
    return BENCH_OK;
}

static int one_trace(FILE *out, const bench_options *base) {
    int code = BENCH_OK;
    for (size_t i = 0; i < sizeof grid / sizeof *grid && code == BENCH_OK; i++)
        code = one_row(out, base, &grid[i]);
    return code;
}

/* Traces are moved to the front of `words`, options are taken out. */
static int parse(bench_options *options, int count, char **words, int *out_traces,
                 const char **out_csv) {
    *out_traces = 0;
    *out_csv = NULL;
    for (int i = 0; i < count; i++) {
        int code = BENCH_OK;
        if (words[i][0] != '-') {
            words[(*out_traces)++] = words[i];
            continue;
        }
        if (i + 1 >= count)
            return bench_usage("%s needs a value", words[i]);
        if (strcmp(words[i], "--csv") == 0)
            *out_csv = words[++i];
        else if (strcmp(words[i], "--device") == 0)
            code = bench_device_parse(options, words[++i]);
        else if (strcmp(words[i], "--lag") == 0)
            code = bench_count_parse(words[++i], &options->lag)
                       ? BENCH_OK
                       : bench_usage("--lag: \"%s\" is no number of lines", words[i]);
        else
            code = bench_usage("\"%s\" is no option of frontier", words[i]);
        if (code != BENCH_OK)
            return code;
    }
    if (*out_traces == 0 || *out_csv == NULL)
        return bench_usage("frontier takes traces and --csv FILE");
    return options->is_cuda ? bench_usage("--device: \"%s\" has no virtual clock", options->device)
                            : BENCH_OK;
}

int bench_frontier_command(int count, char **words) {
    bench_options options;
    const char *csv;
    int traces;
    if (count == 1 && strcmp(words[0], "--help") == 0)
        return -1;
    bench_options_init(&options);
    options.fast = 1;
    int code = parse(&options, count, words, &traces, &csv);
    if (code != BENCH_OK)
        return code;
    FILE *out = fopen(csv, "w");
    if (out == NULL)
        return bench_usage("--csv: \"%s\" cannot be written", csv);
    (void)fputs("trace,rule,limit,knobs,peak_gap,mean_gap,driver_ms,waits\n", out);
    for (int i = 0; i < traces && code == BENCH_OK; i++) {
        options.trace = words[i];
        code = one_trace(out, &options);
    }
    int broken = ferror(out);
    if ((fclose(out) != 0 || broken) && code == BENCH_OK)
        code = bench_fail("\"%s\" could not be written whole", csv);
    return code;
}
