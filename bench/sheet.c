/* SPDX-License-Identifier: MIT */
/* Rows of samples, their medians, and how they are written down. */

#include "sheet.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bench_row *bench_sheet_add(bench_sheet *sheet, const char *unit, const char *format, ...) {
    static bench_row spare;
    bench_row *row = &spare;
    va_list list;
    if (sheet->count == sheet->room) {
        size_t room = sheet->room == 0 ? 64 : sheet->room * 2;
        bench_row *more = realloc(sheet->rows, room * sizeof *more);
        if (more == NULL) {
            sheet->failed = 1;
        } else {
            sheet->rows = more;
            sheet->room = room;
        }
    }
    if (sheet->count < sheet->room)
        row = &sheet->rows[sheet->count++];
    memset(row, 0, sizeof *row);
    va_start(list, format);
    (void)vsnprintf(row->name, sizeof row->name, format, list);
    va_end(list);
    (void)snprintf(row->unit, sizeof row->unit, "%s", unit);
    return row;
}

void bench_row_put(bench_row *row, double value) {
    if (row->count < BENCH_SAMPLES)
        row->samples[row->count++] = value;
}

void bench_row_note(bench_row *row, const char *format, ...) {
    va_list list;
    va_start(list, format);
    (void)vsnprintf(row->note, sizeof row->note, format, list);
    va_end(list);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Least, median, most. */
static void spread(const bench_row *row, double out[3]) {
    double sorted[BENCH_SAMPLES];
    size_t n = row->count;
    memset(out, 0, 3 * sizeof *out);
    if (n == 0)
        return;
    memcpy(sorted, row->samples, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_value);
    out[0] = sorted[0];
    out[1] = n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    out[2] = sorted[n - 1];
}

double bench_row_median(const bench_row *row) {
    double values[3];
    spread(row, values);
    return values[1];
}

void bench_sheet_free(bench_sheet *sheet) {
    free(sheet->rows);
    memset(sheet, 0, sizeof *sheet);
}

void bench_sheet_json(bench_json *json, const char *name, const bench_sheet *sheet) {
    double values[3];
    bench_json_open(json, name, '[');
    for (size_t i = 0; i < sheet->count; i++) {
        const bench_row *row = &sheet->rows[i];
        spread(row, values);
        bench_json_open(json, NULL, '{');
        bench_json_text(json, "name", row->name);
        bench_json_text(json, "unit", row->unit);
        if (row->count > 0) {
            bench_json_number(json, "median", values[1]);
            bench_json_number(json, "min", values[0]);
            bench_json_number(json, "max", values[2]);
        } else {
            bench_json_null(json, "median");
        }
        if (row->note[0] != '\0')
            bench_json_text(json, "note", row->note);
        bench_json_open_inline(json, "samples");
        for (size_t k = 0; k < row->count; k++)
            bench_json_number(json, NULL, row->samples[k]);
        bench_json_close(json, ']');
        bench_json_close(json, '}');
    }
    bench_json_close(json, ']');
}

void bench_sheet_csv(FILE *out, const bench_sheet *sheet) {
    double values[3];
    (void)fputs("name,unit,median,min,max,samples\n", out);
    for (size_t i = 0; i < sheet->count; i++) {
        const bench_row *row = &sheet->rows[i];
        spread(row, values);
        if (row->count == 0)
            continue;
        (void)fprintf(out, "%s,%s,%.3f,%.3f,%.3f,", row->name, row->unit, values[1], values[0],
                      values[2]);
        for (size_t k = 0; k < row->count; k++)
            (void)fprintf(out, "%s%.3f", k == 0 ? "" : " ", row->samples[k]);
        (void)fputc('\n', out);
    }
}

void bench_sheet_table(FILE *out, const bench_sheet *sheet) {
    double values[3];
    for (size_t i = 0; i < sheet->count; i++) {
        const bench_row *row = &sheet->rows[i];
        spread(row, values);
        if (row->count == 0)
            (void)fprintf(out, "  %-36s %s\n", row->name, row->note);
        else
            (void)fprintf(out, "  %-36s %12.2f %-10s (%.2f - %.2f)\n", row->name, values[1],
                          row->unit, values[0], values[2]);
    }
}
