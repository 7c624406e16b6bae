/* SPDX-License-Identifier: MIT */
#ifndef BENCH_SHEET_H
#define BENCH_SHEET_H

/* Measured figures: a row each, with every sample that was taken. */

#include "json.h"

#include <stddef.h>

enum { BENCH_SAMPLES = 64 };

typedef struct bench_row {
    char name[64]; /* "pair/4096" */
    char unit[12];
    char note[120]; /* "" or what a reader has to know; without samples, why there are none */
    size_t count;
    double samples[BENCH_SAMPLES];
} bench_row;

typedef struct bench_sheet {
    bench_row *rows;
    size_t count, room;
    int failed; /* there was no memory for a row */
} bench_sheet;

/* A new row, good until the next one; never NULL: without memory it is a spare
 * that goes nowhere, and `failed` is set. */
bench_row *bench_sheet_add(bench_sheet *sheet, const char *unit, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void bench_row_put(bench_row *row, double value);
void bench_row_note(bench_row *row, const char *format, ...) __attribute__((format(printf, 2, 3)));
double bench_row_median(const bench_row *row);
void bench_sheet_free(bench_sheet *sheet);

void bench_sheet_json(bench_json *json, const char *name, const bench_sheet *sheet);
/* "name,unit,median,min,max,samples", one line a row. */
void bench_sheet_csv(FILE *out, const bench_sheet *sheet);
void bench_sheet_table(FILE *out, const bench_sheet *sheet);

#endif
