/* SPDX-License-Identifier: MIT */
#ifndef BENCH_JSON_H
#define BENCH_JSON_H

/* Writes JSON, a member a line; what is inside an inline array stays on its
 * line. `name` is NULL for members of an array. */

#include <stdint.h>
#include <stdio.h>

typedef struct bench_json {
    FILE *out;
    int depth;
    int filled; /* the innermost has a member already */
    int flat;   /* inside an inline array */
} bench_json;

void bench_json_begin(bench_json *json, FILE *out);
void bench_json_open(bench_json *json, const char *name, char bracket); /* '{' or '[' */
void bench_json_open_inline(bench_json *json, const char *name);        /* '[' */
void bench_json_close(bench_json *json, char bracket);                  /* '}' or ']' */
void bench_json_text(bench_json *json, const char *name, const char *value);
void bench_json_count(bench_json *json, const char *name, uint64_t value);
void bench_json_number(bench_json *json, const char *name, double value); /* to a thousandth */
void bench_json_flag(bench_json *json, const char *name, int value);
void bench_json_null(bench_json *json, const char *name);
/* A value that is JSON already. */
void bench_json_raw(bench_json *json, const char *name, const char *text);

#endif
