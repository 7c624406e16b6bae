/* SPDX-License-Identifier: MIT */
/* The library alone: its small measurements, and its memory over many replays. */

#include "adaptors.h"
#include "peers.h"
#include "replay.h"

#include <string.h>

/* Resident memory after each of several replays in this process, each with a
 * device and a pool of its own. */
static int replay_often(const bench_plan *plan, bench_sheet *sheet) {
    static bench_figures figures;
    bench_options options = plan->device;
    uint64_t times = plan->resident_replays > 0 ? plan->resident_replays : 20;
    options.trace = plan->traces[0];
    options.fast = 1;
    size_t at = sheet->count;
    (void)bench_sheet_add(sheet, "KiB", "replays/resident");
    (void)bench_sheet_add(sheet, "KiB", "replays/growth_after_fifth");
    if (sheet->failed || times > BENCH_SAMPLES)
        return bench_fail("no room for results");
    for (uint64_t i = 0; i < times; i++) {
        int code = bench_replay_run(&options, &figures);
        if (code != BENCH_OK)
            return code;
        bench_row_put(&sheet->rows[at], (double)bench_resident_bytes() / 1024.0);
    }
    const bench_row *row = &sheet->rows[at];
    /* The first ones warm the heap up. */
    if (row->count > 5)
        bench_row_put(&sheet->rows[at + 1], row->samples[row->count - 1] - row->samples[4]);
    bench_row_put(bench_sheet_add(sheet, "KiB", "replays/host_bytes_at_peak"),
                  (double)figures.host_bytes_peak / 1024.0);
    return BENCH_OK;
}

static int write_all(const bench_plan *plan, const char *device, const bench_sheet *sheet) {
    bench_json json;
    FILE *out;
    if (plan->csv != NULL) {
        out = bench_open_out(plan->csv);
        if (out == NULL)
            return BENCH_FAILED;
        bench_sheet_csv(out, sheet);
        if (bench_close_out(out) != BENCH_OK)
            return BENCH_FAILED;
    }
    if (plan->json == NULL)
        return BENCH_OK;
    out = bench_open_out(plan->json);
    if (out == NULL)
        return BENCH_FAILED;
    bench_json_begin(&json, out);
    bench_json_open(&json, NULL, '{');
    bench_json_text(&json, "allocator", "vrampool");
    bench_json_text(&json, "version", vrp_build_info());
    bench_json_text(&json, "device", device);
    bench_sheet_json(&json, "measurements", sheet);
    bench_json_close(&json, '}');
    return bench_close_out(out);
}

static int measure(const bench_plan *plan, bench_sheet *sheet, char *out_device, size_t bytes) {
    bench_stage stage;
    int code = bench_stage_open(&stage, &plan->device);
    if (code != BENCH_OK)
        return code;
    (void)snprintf(out_device, bytes, "%s", stage.name);
    vrp_driver *driver = bench_stage_driver(&stage);
    bench_measure m = {
        .stage = &stage,
        .adaptor = &bench_adaptor_vrampool,
        .sheet = sheet,
        .host = {.variant = "", .ordinal = stage.ordinal, .on_gpu = stage.on_gpu, .driver = driver},
        .repeat = plan->repeat,
        .sample_ns = plan->sample_ms * 1000000,
        .pairs = plan->pairs,
        .only = plan->only};
    code = driver != NULL ? bench_measure_all(&m) : BENCH_FAILED;
    vrp_driver_destroy(driver);
    int closed = bench_stage_close(&stage);
    return code != BENCH_OK ? code : closed;
}

int bench_micro_command(int count, char **words) {
    bench_plan plan;
    bench_sheet sheet = {0};
    char device[96] = "";
    int help;
    int code = bench_plan_parse(&plan, count, words, &help);
    if (code != BENCH_OK || help)
        return help ? -1 : code;
    code = measure(&plan, &sheet, device, sizeof device);
    if (code == BENCH_OK && plan.trace_count > 0)
        code = replay_often(&plan, &sheet);
    if (code == BENCH_OK && (plan.json == NULL || strcmp(plan.json, "-") != 0)) {
        (void)printf("vrampool on %s: medians (least - most)\n", device);
        bench_sheet_table(stdout, &sheet);
    }
    if (code == BENCH_OK)
        code = write_all(&plan, device, &sheet);
    bench_sheet_free(&sheet);
    return code;
}
