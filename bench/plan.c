/* SPDX-License-Identifier: MIT */
/* The command line of the commands that measure. */

#include "peers.h"

#include <string.h>

static int parse_count(const char *name, const char *text, uint64_t *out) {
    if (bench_count_parse(text, out) && *out > 0)
        return BENCH_OK;
    return bench_usage("%s: \"%s\" is no number from 1", name, text);
}

static int parse_value(bench_plan *plan, const char *name, const char *text) {
    const struct {
        const char *name;
        const char **text;
    } texts[] = {{"--only", &plan->only},           {"--csv", &plan->csv},
                 {"--json", &plan->json},           {"--replays-json", &plan->replays_json},
                 {"--adaptors", &plan->adaptors},   {"--allocators", &plan->allocators},
                 {"--allocator", &plan->allocator}, {"--dump", &plan->dump}};
    const struct {
        const char *name;
        uint64_t *count;
    } counts[] = {{"--pairs", &plan->pairs},
                  {"--repeat", &plan->repeat},
                  {"--sample-ms", &plan->sample_ms},
                  {"--max-seconds", &plan->most_seconds},
                  {"--resident-replays", &plan->resident_replays}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(name, texts[i].name) == 0) {
            *texts[i].text = text;
            return BENCH_OK;
        }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (strcmp(name, counts[i].name) == 0)
            return parse_count(name, text, counts[i].count);
    if (strcmp(name, "--device") == 0)
        return bench_device_parse(&plan->device, text);
    if (strcmp(name, "--trace") != 0)
        return bench_usage("\"%s\" is no option", name);
    if (plan->trace_count == sizeof plan->traces / sizeof *plan->traces)
        return bench_usage("\"%s\" is one trace too many", text);
    plan->traces[plan->trace_count++] = text;
    return BENCH_OK;
}

int bench_plan_parse(bench_plan *plan, int count, char **words, int *out_help) {
    *out_help = 0;
    memset(plan, 0, sizeof *plan);
    bench_options_init(&plan->device);
    plan->repeat = 7;
    plan->sample_ms = 50;
    for (int i = 0; i < count; i++) {
        int code = BENCH_OK;
        if (strcmp(words[i], "--help") == 0 || strcmp(words[i], "-h") == 0) {
            *out_help = 1;
            return BENCH_OK;
        }
        if (strcmp(words[i], "--quick") == 0) {
            plan->repeat = 3;
            plan->sample_ms = 5;
            continue;
        }
        if (strncmp(words[i], "--", 2) != 0)
            return bench_usage("\"%s\" is no option", words[i]);
        if (i + 1 >= count)
            return bench_usage("%s needs a value", words[i]);
        code = parse_value(plan, words[i], words[i + 1]);
        if (code != BENCH_OK)
            return code;
        i++;
    }
    if (plan->repeat > BENCH_SAMPLES)
        return bench_usage("--repeat: at most %d", BENCH_SAMPLES);
    return BENCH_OK;
}

FILE *bench_open_out(const char *path) {
    if (strcmp(path, "-") == 0)
        return stdout;
    FILE *out = fopen(path, "w");
    if (out == NULL)
        (void)bench_fail("\"%s\" cannot be written", path);
    return out;
}

int bench_close_out(FILE *out) {
    int good = fflush(out) == 0 && !ferror(out);
    if (out != stdout)
        good = fclose(out) == 0 && good;
    return good ? BENCH_OK : bench_fail("the results could not be written whole");
}
