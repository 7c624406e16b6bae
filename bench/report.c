/* SPDX-License-Identifier: MIT */
/* The JSON object and the table of a replay. */

#include "report.h"

#include <inttypes.h>
#include <string.h>

/* ---- JSON ---------------------------------------------------------------------------- */

typedef struct writer {
    FILE *out;
    int indent;
    int empty; /* no member yet */
} writer;

static void text(FILE *out, const char *value) {
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

static void key(writer *w, const char *name) {
    (void)fprintf(w->out, "%s\n%*s", w->empty ? "" : ",", w->indent + 2, "");
    w->empty = 0;
    text(w->out, name);
    (void)fputs(": ", w->out);
}

static void put_text(writer *w, const char *name, const char *value) {
    key(w, name);
    text(w->out, value);
}

static void put(writer *w, const char *name, uint64_t value) {
    key(w, name);
    (void)fprintf(w->out, "%" PRIu64, value);
}

/* Thousandths of the unit: exact in decimal. */
static void put_thousandths(writer *w, const char *name, uint64_t value) {
    key(w, name);
    (void)fprintf(w->out, "%" PRIu64 ".%03" PRIu64, value / 1000, value % 1000);
}

static void put_null(writer *w, const char *name) {
    key(w, name);
    (void)fputs("null", w->out);
}

static void put_gap(writer *w, const char *name, const vrp_gap *gap) {
    key(w, name);
    (void)fprintf(w->out,
                  "{\"cached\": %" PRIu64 ", \"pending\": %" PRIu64 ", \"idle\": %" PRIu64
                  ", \"pinned\": %" PRIu64 ", \"slack\": %" PRIu64 "}",
                  gap->cached_bytes, gap->pending_bytes, gap->idle_bytes, gap->pinned_bytes,
                  gap->slack_bytes);
}

static void put_calls(writer *w, const bench_figures *figures) {
    const char *between = "";
    key(w, "driver_calls_by_name");
    (void)fputc('{', w->out);
    for (int32_t call = 0; call < (int32_t)VRP_SIM_CALL_COUNT; call++) {
        if (figures->calls[call] == 0)
            continue;
        (void)fputs(between, w->out);
        text(w->out, vrp_sim_call_name(call));
        (void)fprintf(w->out, ": %" PRIu64, figures->calls[call]);
        between = ", ";
    }
    (void)fputc('}', w->out);
}

static const char *backing_name(const bench_options *options) {
    return options->backing == VRP_BACKING_MALLOC ? "malloc" : "vmm";
}

static const char *gap_limit_name(const bench_options *options) {
    if (options->gap_limit != NULL)
        return options->gap_limit;
    return options->backing == VRP_BACKING_MALLOC ? "off" : "high-water";
}

static void put_settings(writer *w, const bench_options *options, const char *policy) {
    if (policy != NULL)
        put_text(w, "policy", policy);
    put_text(w, "trace", options->trace);
    put_text(w, "device", options->device);
    put_text(w, "backing", backing_name(options));
    put_text(w, "gap_limit", gap_limit_name(options));
    put(w, "lag", options->lag);
    put_text(w, "optimizer", options->optimizer_on ? options->optimizer_text : "off");
}

static void put_driver(writer *w, const bench_figures *figures) {
    if (figures->on_gpu) {
        put_null(w, "driver_time_us");
        put_null(w, "driver_calls");
        put_null(w, "driver_calls_by_name");
    } else {
        put_thousandths(w, "driver_time_us", figures->driver_time_ns);
        put(w, "driver_calls", figures->driver_calls);
        put_calls(w, figures);
    }
    put(w, "driver_allocations", figures->driver_allocations);
}

static void put_wall(writer *w, const bench_figures *figures) {
    put_thousandths(w, "wall_time_s", figures->wall_ns / 1000000);
    put_thousandths(w, "decompress_wall_s", figures->decompress_ns / 1000000);
    put(w, "events_per_wall_s",
        figures->wall_ns == 0
            ? 0
            : (uint64_t)((double)figures->events * 1e9 / (double)figures->wall_ns));
}

void bench_report_json(FILE *out, const bench_options *options, const bench_figures *figures,
                       const char *policy, int indent) {
    writer w = {.out = out, .indent = indent, .empty = 1};
    (void)fprintf(out, "%*s{", indent, "");
    put_settings(&w, options, policy);
    put(&w, "events", figures->events);
    put(&w, "failures", figures->failures);
    put(&w, "recorded_failures", figures->recorded_failures);
    put(&w, "streams", figures->streams);
    put(&w, "live_blocks_at_end", figures->live_blocks);
    put(&w, "peak_requested_bytes", figures->peak_requested_bytes);
    put(&w, "peak_allocated_bytes", figures->peak_allocated_bytes);
    put(&w, "peak_reserved_bytes", figures->peak_reserved_bytes);
    put(&w, "peak_gap_bytes", figures->peak_gap_bytes);
    put(&w, "mean_gap_bytes", figures->mean_gap_bytes);
    put(&w, "host_bytes_peak", figures->host_bytes_peak);
    put_gap(&w, "gap_by_cause_at_peak", &figures->at_peak);
    put_gap(&w, "gap_by_cause_at_end", &figures->at_end);
    put(&w, "gap_limit_missed_bytes", figures->gap_limit_missed_bytes);
    put(&w, "cross_stream_waits", figures->cross_stream_waits);
    put_driver(&w, figures);
    put(&w, "steps", figures->steps);
    put(&w, "steps_acted", figures->steps_acted);
    put(&w, "max_gap_after_step_bytes", figures->max_gap_after_step_bytes);
    put(&w, "released_bytes", figures->released_bytes);
    if (options->check_points > 0)
        put(&w, "empty_cache_points", figures->points);
    if (options->fast)
        put_null(&w, "misuses");
    else
        put(&w, "misuses", figures->misuses);
    put_wall(&w, figures);
    (void)fprintf(out, "\n%*s}", indent, "");
}

FILE *bench_report_open(const bench_options *options) {
    if (strcmp(options->json, "-") == 0)
        return stdout;
    FILE *out = fopen(options->json, "w");
    if (out == NULL)
        (void)bench_fail("\"%s\" cannot be written", options->json);
    return out;
}

int bench_report_close(FILE *out) {
    int good = fputc('\n', out) != EOF && fflush(out) == 0 && !ferror(out);
    if (out != stdout)
        good = fclose(out) == 0 && good;
    if (!good)
        (void)bench_fail("the JSON could not be written whole");
    return good;
}

/* ---- Table ---------------------------------------------------------------------------- */

static void row_mib(FILE *out, const char *name, uint64_t bytes) {
    (void)fprintf(out, "  %-34s %12.2f MiB\n", name, (double)bytes / 1048576.0);
}

static void row(FILE *out, const char *name, uint64_t value) {
    (void)fprintf(out, "  %-34s %12" PRIu64 "\n", name, value);
}

static void gap_rows(FILE *out, const char *heading, const vrp_gap *gap) {
    (void)fprintf(out, "%s\n", heading);
    row_mib(out, "cached in threads", gap->cached_bytes);
    row_mib(out, "pending, work unfinished", gap->pending_bytes);
    row_mib(out, "idle extents", gap->idle_bytes);
    row_mib(out, "pinned by live blocks", gap->pinned_bytes);
    row_mib(out, "slack", gap->slack_bytes);
}

static void driver_rows(FILE *out, const bench_figures *figures) {
    (void)fprintf(out, "driver\n");
    if (!figures->on_gpu) {
        (void)fprintf(out, "  %-34s %12.3f ms\n", "time by the virtual clock",
                      (double)figures->driver_time_ns / 1e6);
        row(out, "calls", figures->driver_calls);
        for (int32_t call = 0; call < (int32_t)VRP_SIM_CALL_COUNT; call++)
            if (figures->calls[call] > 0)
                (void)fprintf(out, "    %-32s %12" PRIu64 "\n", vrp_sim_call_name(call),
                              figures->calls[call]);
    }
    row(out, "allocations", figures->driver_allocations);
    row(out, "waits between streams", figures->cross_stream_waits);
}

void bench_report_table(FILE *out, const bench_options *options, const bench_figures *figures) {
    (void)fprintf(out, "%s on %s, %s backing, gap limit %s\n", options->trace, options->device,
                  backing_name(options), gap_limit_name(options));
    row(out, "allocations and frees", figures->events);
    row(out, "refused", figures->failures);
    row(out, "streams", figures->streams);
    (void)fprintf(out, "memory\n");
    row_mib(out, "peak requested", figures->peak_requested_bytes);
    row_mib(out, "peak allocated", figures->peak_allocated_bytes);
    row_mib(out, "peak reserved", figures->peak_reserved_bytes);
    row_mib(out, "peak gap", figures->peak_gap_bytes);
    row_mib(out, "mean gap", figures->mean_gap_bytes);
    row_mib(out, "gap limit missed by", figures->gap_limit_missed_bytes);
    row_mib(out, "host memory of the pool at most", figures->host_bytes_peak);
    gap_rows(out, "gap when reserved was highest, by cause", &figures->at_peak);
    gap_rows(out, "gap after the last line, by cause", &figures->at_end);
    driver_rows(out, figures);
    if (options->optimizer_on) {
        (void)fprintf(out, "optimizer %s\n", options->optimizer_text);
        row(out, "steps", figures->steps);
        row(out, "acted", figures->steps_acted);
        row_mib(out, "largest gap after a step", figures->max_gap_after_step_bytes);
        row_mib(out, "released", figures->released_bytes);
    }
    if (options->check_points > 0)
        row(out, "recounts after empty_cache agreed", figures->points);
    (void)fprintf(out, "wall time\n  %-34s %12.3f s\n  %-34s %12.3f s\n", "replay",
                  (double)figures->wall_ns / 1e9, "decompression",
                  (double)figures->decompress_ns / 1e9);
}
