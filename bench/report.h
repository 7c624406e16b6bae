/* SPDX-License-Identifier: MIT */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

/* Figures as a table for people and as JSON for programs. */

#include <stdio.h>

#include "replay.h"

void bench_report_table(FILE *out, const bench_options *options, const bench_figures *figures);

/* One JSON object, indented by `indent` columns, no newline behind it. `policy`
 * is a further key, or NULL. */
void bench_report_json(FILE *out, const bench_options *options, const bench_figures *figures,
                       const char *policy, int indent);

/* What --json names: standard output for "-". NULL after a message. */
FILE *bench_report_open(const bench_options *options);
/* 0: it could not be written whole. */
int bench_report_close(FILE *out);

#endif
