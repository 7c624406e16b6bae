/* SPDX-License-Identifier: MIT */
/* JSON, member by member. */

#include "json.h"

#include <inttypes.h>

static void quoted(FILE *out, const char *value) {
    (void)fputc('"', out);
    for (; *value != '\0'; value++) {
        unsigned char c = (unsigned char)*value;
        if (c == '"' || c == '\\')
            (void)fprintf(out, "\\%c", c);
        else if (c < 0x20)
            (void)fprintf(out, "\\u%04x", c);
        else
            (void)fputc(c, out);
    }
    (void)fputc('"', out);
}

static void line(bench_json *json) {
    if (!json->flat)
        (void)fprintf(json->out, "\n%*s", json->depth * 2, "");
}

static void member(bench_json *json, const char *name) {
    if (json->filled)
        (void)fputs(json->flat ? ", " : ",", json->out);
    if (json->depth > 0)
        line(json);
    json->filled = 1;
    if (name == NULL)
        return;
    quoted(json->out, name);
    (void)fputs(": ", json->out);
}

void bench_json_begin(bench_json *json, FILE *out) { *json = (bench_json){.out = out}; }

void bench_json_open(bench_json *json, const char *name, char bracket) {
    member(json, name);
    (void)fputc(bracket, json->out);
    json->depth++;
    json->filled = 0;
}

void bench_json_open_inline(bench_json *json, const char *name) {
    bench_json_open(json, name, '[');
    json->flat = 1;
}

void bench_json_close(bench_json *json, char bracket) {
    json->depth--;
    if (json->filled)
        line(json);
    json->flat = 0;
    json->filled = 1;
    (void)fputc(bracket, json->out);
    if (json->depth == 0)
        (void)fputc('\n', json->out);
}

void bench_json_text(bench_json *json, const char *name, const char *value) {
    member(json, name);
    quoted(json->out, value);
}

void bench_json_count(bench_json *json, const char *name, uint64_t value) {
    member(json, name);
    (void)fprintf(json->out, "%" PRIu64, value);
}

void bench_json_number(bench_json *json, const char *name, double value) {
    member(json, name);
    (void)fprintf(json->out, "%.3f", value);
}

void bench_json_flag(bench_json *json, const char *name, int value) {
    member(json, name);
    (void)fputs(value ? "true" : "false", json->out);
}

void bench_json_null(bench_json *json, const char *name) {
    member(json, name);
    (void)fputs("null", json->out);
}

void bench_json_raw(bench_json *json, const char *name, const char *text) {
    member(json, name);
    (void)fputs(text, json->out);
}
