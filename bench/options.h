/* SPDX-License-Identifier: MIT */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

/* What a replay is to do, and how that is said on the command line. */

#include "vrampool/knobs.h"
#include "vrampool/optimizer.h"
#include "vrampool/vrampool.h"

enum { BENCH_OK = 0, BENCH_FAILED = 1, BENCH_USAGE = 2, BENCH_REFUSED = 3 };

#define BENCH_PROGRAM "vrampool-bench"

/* The markers at which the optimizer is asked, as a mask of 1 << marker. */
#define BENCH_AT_TURN (1u << VRP_MARKER_TURN | 1u << VRP_MARKER_CLEAR)
#define BENCH_AT_STEP (1u << VRP_MARKER_STEP)
#define BENCH_AT_REQUEST (1u << VRP_MARKER_REQUEST)

typedef struct bench_options {
    const char *trace;
    const char *device; /* as given */
    int is_cuda;
    uint32_t ordinal;      /* of a GPU */
    uint64_t device_bytes; /* of a simulated device */
    int32_t backing;
    const char *gap_limit; /* as given, NULL: the default */
    int32_t gap_rule;
    uint64_t gap_limit_bytes;
    uint64_t lag;
    const char *optimizer_text; /* as given, NULL: off */
    int optimizer_on;
    int at_given;
    uint32_t at;
    vrp_optimizer_config optimizer;
    uint64_t knob[VRP_KNOB_COUNT];
    uint32_t knobs_set; /* mask of 1 << knob */
    int fast;
    int compare;
    uint64_t repeat;
    uint64_t check_points; /* how often to empty the cache and recount; 0: never */
    const char *json;      /* a file, "-", or NULL */
} bench_options;

void bench_options_init(bench_options *options);

/* Reads the words behind "replay". 0, or BENCH_USAGE after a message that names
 * the word that was wrong; *out_help 1 where help was asked for. */
int bench_options_parse(bench_options *options, int count, char **words, int *out_help);

/* One setting of --knob, --optimizer, --gap-limit, --device; the same results. */
int bench_knob_parse(bench_options *options, const char *text);
int bench_optimizer_parse(bench_options *options, const char *text);
int bench_gap_limit_parse(bench_options *options, const char *text);
int bench_device_parse(bench_options *options, const char *text);

/* "64MiB", "1.5GB", "4096". 0: it is no size. */
int bench_size_parse(const char *text, uint64_t *out_bytes);
/* Digits alone. 0: it is no number. */
int bench_count_parse(const char *text, uint64_t *out_count);

/* Prints "vrampool-bench: ..." and a hint at --help; returns BENCH_USAGE. */
int bench_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints "vrampool-bench: ..."; returns BENCH_FAILED. */
int bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Of a clock that only goes forward. */
uint64_t bench_clock_ns(void);
/* What the library says about this thread's last failure. */
const char *bench_detail(void);

#endif
