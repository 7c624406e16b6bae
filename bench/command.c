/* SPDX-License-Identifier: MIT */
/* The replay command and its repetitions. */

#include "report.h"

#include <stdio.h>
#include <string.h>

/* Everything but what a clock says. */
static int same(const bench_figures *a, const bench_figures *b) {
    bench_figures x = *a;
    bench_figures y = *b;
    x.wall_ns = y.wall_ns = 0;
    x.decompress_ns = y.decompress_ns = 0;
    return memcmp(&x, &y, sizeof x) == 0;
}

/* All repetitions on fresh pools; the figures are those of the fastest. */
static int repeat(const bench_options *options, bench_figures *best) {
    bench_figures figures;
    int code = bench_replay_run(options, best);
    for (uint64_t i = 1; i < options->repeat && (code == BENCH_OK || code == BENCH_REFUSED); i++) {
        int again = bench_replay_run(options, &figures);
        if (again != code)
            return again == BENCH_OK ? bench_fail("two replays ended differently") : again;
        if (!same(best, &figures))
            return bench_fail("repetition %llu gave other figures than the first",
                              (unsigned long long)i + 1);
        if (figures.wall_ns < best->wall_ns)
            *best = figures;
    }
    return code;
}

int bench_replay_command(int count, char **words) {
    static bench_figures figures;
    bench_options options;
    int help;
    bench_options_init(&options);
    int code = bench_options_parse(&options, count, words, &help);
    if (code != BENCH_OK)
        return code;
    if (help)
        return -1;
    if (options.compare)
        return bench_policies_command(&options);
    code = repeat(&options, &figures);
    if (code != BENCH_OK && code != BENCH_REFUSED)
        return code;
    if (options.json == NULL || strcmp(options.json, "-") != 0)
        bench_report_table(stdout, &options, &figures);
    if (options.json == NULL)
        return code;
    FILE *out = bench_report_open(&options);
    if (out == NULL)
        return BENCH_FAILED;
    bench_report_json(out, &options, &figures, NULL, 0);
    return bench_report_close(out) ? code : BENCH_FAILED;
}
