/* SPDX-License-Identifier: MIT */
/* The lines of a trace, one after the other, through a pool. */

#include "run.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 1024, BAR_COLUMNS = 40 };
static const uint64_t bar_every_ns = 100000000;

uint64_t bench_clock_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int bench_trace_open(const char *path, vrp_trace_reader **out_reader) {
    char message[512] = "";
    *out_reader = NULL;
    if (access(path, R_OK) != 0)
        return bench_usage("\"%s\" cannot be read", path);
    if (vrp_trace_open(path, message, sizeof message, out_reader) != VRP_OK)
        return bench_fail("%s", message);
    return BENCH_OK;
}

uint64_t bench_line_of(const char *path, uint64_t index) {
    char message[8];
    vrp_trace_reader *reader;
    vrp_trace_event event;
    uint64_t line = 0;
    size_t count = 1;
    if (vrp_trace_open(path, message, sizeof message, &reader) != VRP_OK)
        return 0;
    for (uint64_t i = 0; i <= index && count == 1; i++)
        if (vrp_trace_read(reader, &event, 1, &count) != VRP_OK)
            count = 0;
    if (count == 1)
        line = vrp_trace_line(reader);
    vrp_trace_close(reader);
    return line;
}

/* So that a message does not begin behind the bar. */
static void clear_bar(const bench_run *run) {
    if (run->shows_bar && run->shown_ns != 0)
        (void)fputs("\r\033[K", stderr);
}

int bench_fail_here(const bench_run *run, const char *format, ...) {
    char text[256];
    va_list list;
    clear_bar(run);
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return bench_fail("%s:%" PRIu64 ": %s", run->options->trace,
                      bench_line_of(run->options->trace, run->index), text);
}

/* ---- One line ------------------------------------------------------------------ */

static int stream_handle(bench_run *run, uint32_t number, vrp_stream *out_handle) {
    int there = 0;
    bench_entry *entry = bench_table_find(&run->streams, number);
    if (entry == NULL) {
        entry = bench_table_add(&run->streams, number, &there);
        if (entry == NULL)
            return bench_fail("no host memory for a stream");
        if (bench_device_stream_create(&run->device, &entry->value) != VRP_OK) {
            bench_table_remove(&run->streams, entry);
            return bench_fail_here(run, "stream %" PRIu32 " cannot be made", number);
        }
        run->figures->streams++;
    }
    run->last_stream = number;
    run->last_handle = entry->value;
    *out_handle = entry->value;
    return BENCH_OK;
}

/* Whether the pool refused the request, as against a fault. */
static int is_refusal(vrp_status status) {
    return status == VRP_OUT_OF_DEVICE_MEMORY || status == VRP_LIMIT_REACHED ||
           status == VRP_INVALID_SIZE || status == VRP_OUT_OF_HOST_MEMORY;
}

static int refused(bench_run *run, vrp_status status, uint64_t bytes) {
    if (!is_refusal(status))
        return bench_fail_here(run, "%" PRIu64 " bytes: %s (%s)", bytes, vrp_status_name(status),
                               bench_detail());
    run->figures->failures++;
    if (run->first_refused == 0)
        run->first_refused = run->index + 1;
    return BENCH_OK;
}

static inline void count_requested(bench_run *run, uint64_t bytes) {
    run->requested += bytes;
    if (run->requested > run->peak_requested)
        run->peak_requested = run->requested;
}

/* A request that had failed where it was recorded has no block and no free: it
 * is made, and what it gets goes back at once. */
static int try_recorded_failure(bench_run *run, const vrp_trace_event *event, vrp_stream stream) {
    vrp_devptr ptr = 0;
    run->figures->recorded_failures++;
    if (run->first_recorded == 0)
        run->first_recorded = run->index + 1;
    vrp_status status = vrp_alloc(run->pool, event->bytes, stream, &ptr);
    if (status != VRP_OK)
        return refused(run, status, event->bytes);
    count_requested(run, event->bytes);
    run->requested -= event->bytes;
    status = vrp_free(run->pool, ptr, stream);
    return status == VRP_OK ? BENCH_OK : bench_fail_here(run, "free: %s", bench_detail());
}

static int apply_alloc(bench_run *run, const vrp_trace_event *event) {
    vrp_stream stream = run->last_handle;
    int there = 0;
    if (event->stream != run->last_stream || run->streams.count == 0) {
        int code = stream_handle(run, event->stream, &stream);
        if (code != BENCH_OK)
            return code;
    }
    if (event->failed)
        return try_recorded_failure(run, event, stream);
    if (!bench_seen_add(&run->ids, event->id, &there))
        return there ? bench_fail_here(run, "id %" PRIu64 " is allocated twice", event->id)
                     : bench_fail("no host memory for ids");
    bench_entry *entry = bench_table_add(&run->blocks, event->id, &there);
    if (entry == NULL)
        return bench_fail("no host memory for live blocks");
    entry->bytes = event->bytes;
    entry->stream = stream;
    vrp_status status = vrp_alloc(run->pool, event->bytes, stream, &entry->value);
    if (status != VRP_OK) {
        entry->refused = 1;
        return refused(run, status, event->bytes);
    }
    count_requested(run, event->bytes);
    if (run->device.uses && entry->value != 0 &&
        vrp_sim_use_begin(run->device.sim, stream, entry->value, event->bytes) != VRP_OK)
        return bench_fail_here(run, "use: %s", bench_detail());
    return BENCH_OK;
}

static int apply_free(bench_run *run, const vrp_trace_event *event) {
    bench_entry *entry = bench_table_find(&run->blocks, event->id);
    if (entry == NULL)
        return bench_fail_here(run, "id %" PRIu64 " is freed but not allocated", event->id);
    if (!entry->refused) {
        if (run->device.uses && entry->value != 0 &&
            vrp_sim_use_end(run->device.sim, entry->stream, entry->value, entry->bytes) != VRP_OK)
            return bench_fail_here(run, "use: %s", bench_detail());
        if (vrp_free(run->pool, entry->value, entry->stream) != VRP_OK)
            return bench_fail_here(run, "free: %s", bench_detail());
        run->requested -= entry->bytes;
    }
    bench_table_remove(&run->blocks, entry);
    return BENCH_OK;
}

/* What is taken down after each allocation and free. */
static inline int after_line(bench_run *run) {
    uint64_t reserved = vrp_pool_reserved_bytes(run->pool);
    run->gap_sum += (bench_wide)reserved - (bench_wide)run->requested;
    run->events++;
    if (run->device.sim != NULL)
        vrp_sim_tick(run->device.sim);
    if (reserved > run->peak_reserved) {
        run->peak_reserved = reserved;
        run->figures->at_peak_bytes = reserved - vrp_pool_allocated_bytes(run->pool);
        if (vrp_pool_gap_compute(run->pool, &run->figures->at_peak) != VRP_OK)
            return bench_fail_here(run, "gap: %s", bench_detail());
    }
    return run->events == run->next_check ? bench_check_point(run) : BENCH_OK;
}

static inline int apply(bench_run *run, const vrp_trace_event *event) {
    int code;
    switch ((vrp_trace_kind)event->kind) {
    case VRP_TRACE_ALLOC:
        code = apply_alloc(run, event);
        return code == BENCH_OK ? after_line(run) : code;
    case VRP_TRACE_FREE:
        code = apply_free(run, event);
        return code == BENCH_OK ? after_line(run) : code;
    case VRP_TRACE_MARKER:
        return bench_marker(run, (vrp_trace_marker)event->marker);
    case VRP_TRACE_SAFE:
    case VRP_TRACE_KIND_FORCE_INT32:
        break;
    }
    return BENCH_OK;
}

/* ---- All lines ------------------------------------------------------------------ */

static void show_progress(bench_run *run) {
    char bar[BAR_COLUMNS + 1];
    if (!run->shows_bar)
        return;
    uint64_t now = bench_clock_ns();
    if (now - run->shown_ns < bar_every_ns)
        return;
    run->shown_ns = now;
    double part = vrp_trace_progress(run->reader);
    memset(bar, ' ', BAR_COLUMNS);
    memset(bar, '=', (size_t)(part * BAR_COLUMNS));
    bar[BAR_COLUMNS] = '\0';
    (void)fprintf(stderr, "\r[%s] %3d %%  %" PRIu64 " events", bar, (int)(part * 100), run->events);
    (void)fflush(stderr);
}

static int apply_all(bench_run *run) {
    static vrp_trace_event batch[BATCH];
    size_t count = 0;
    do {
        if (vrp_trace_read(run->reader, batch, BATCH, &count) != VRP_OK) {
            clear_bar(run);
            return bench_fail("%s", vrp_trace_message(run->reader));
        }
        for (size_t i = 0; i < count; i++) {
            int code = apply(run, &batch[i]);
            if (code != BENCH_OK)
                return code;
            run->index++;
        }
        show_progress(run);
    } while (count > 0);
    return BENCH_OK;
}

static int timed(bench_run *run) {
    uint64_t decompress = vrp_trace_decompress_wall_ns(run->reader);
    uint64_t began = bench_clock_ns();
    int code = apply_all(run);
    if (code == BENCH_OK)
        clear_bar(run);
    uint64_t wall = bench_clock_ns() - began;
    decompress = vrp_trace_decompress_wall_ns(run->reader) - decompress;
    run->figures->decompress_ns = decompress;
    run->figures->wall_ns = wall > decompress ? wall - decompress : 0;
    return code;
}

/* ---- A whole replay -------------------------------------------------------------- */

/* The pool's own memory goes through here, so that its peak is exact. */
static void *host_alloc(void *user, size_t bytes) {
    bench_run *run = user;
    void *ptr = malloc(bytes);
    if (ptr == NULL)
        return NULL;
    uint64_t now = atomic_fetch_add(&run->host_bytes, bytes) + bytes;
    uint64_t peak = atomic_load(&run->host_bytes_peak);
    while (now > peak && !atomic_compare_exchange_weak(&run->host_bytes_peak, &peak, now))
        continue;
    return ptr;
}

static void host_free(void *user, void *ptr, size_t bytes) {
    bench_run *run = user;
    (void)atomic_fetch_sub(&run->host_bytes, bytes);
    free(ptr);
}

static int open_pool(bench_run *run) {
    const bench_options *options = run->options;
    vrp_pool_config config = {.struct_size = sizeof config,
                              .flags = VRP_NO_RECLAIMER,
                              .backing = options->backing,
                              .gap_rule = options->gap_rule,
                              .gap_limit_bytes = options->gap_limit_bytes,
                              .host_alloc = host_alloc,
                              .host_free = host_free,
                              .host_user = run};
    if (vrp_pool_create(run->device.driver, &config, &run->pool) != VRP_OK)
        return bench_fail("the pool cannot be made: %s", bench_detail());
    for (int32_t knob = 0; knob < (int32_t)VRP_KNOB_COUNT; knob++)
        if ((options->knobs_set >> knob & 1u) != 0 &&
            vrp_pool_knob_set(run->pool, knob, options->knob[knob]) != VRP_OK)
            return bench_usage("--knob %s: %s", vrp_knob_name(knob), bench_detail());
    if (options->optimizer_on &&
        vrp_optimizer_create(run->pool, &options->optimizer, &run->optimizer) != VRP_OK)
        return bench_usage("--optimizer \"%s\": %s", options->optimizer_text, bench_detail());
    return BENCH_OK;
}

/* Checks come after equal shares of the lines, none of them at the very end. */
static int plan_checks(bench_run *run) {
    vrp_trace_event batch[64];
    vrp_trace_reader *reader;
    size_t count = 0;
    uint64_t lines = 0;
    run->next_check = UINT64_MAX;
    if (run->options->check_points == 0)
        return BENCH_OK;
    int code = bench_trace_open(run->options->trace, &reader);
    if (code != BENCH_OK)
        return code;
    /* A trace that breaks off is reported when it is replayed. */
    while (vrp_trace_read(reader, batch, 64, &count) == VRP_OK && count > 0)
        for (size_t i = 0; i < count; i++)
            lines += batch[i].kind == VRP_TRACE_ALLOC || batch[i].kind == VRP_TRACE_FREE;
    vrp_trace_close(reader);
    run->check_events = lines;
    if (lines < run->options->check_points)
        return bench_usage("--check-empty-cache: \"%" PRIu64 "\" is more than the trace has lines",
                           run->options->check_points);
    run->next_check = (uint64_t)((bench_wide)lines / (bench_wide)(run->options->check_points + 1));
    run->next_check += run->next_check == 0;
    return BENCH_OK;
}

static int finish(bench_run *run) {
    bench_figures *figures = run->figures;
    const char *trace = run->options->trace;
    int code = bench_take_figures(run);
    if (code == BENCH_OK)
        code = bench_close_pool(run);
    if (code != BENCH_OK || (run->first_refused == 0 && run->first_recorded == 0))
        return code;
    if (run->first_recorded != 0)
        (void)bench_fail("%s:%" PRIu64 ": %" PRIu64 " recorded requests had failed, the first here",
                         trace, bench_line_of(trace, run->first_recorded - 1),
                         figures->recorded_failures);
    if (run->first_refused != 0)
        (void)bench_fail("%s:%" PRIu64 ": %" PRIu64 " requests were refused, the first here", trace,
                         bench_line_of(trace, run->first_refused - 1), figures->failures);
    return BENCH_REFUSED;
}

static int with_device(bench_run *run) {
    int code = open_pool(run);
    if (code == BENCH_OK)
        code = timed(run);
    if (code == BENCH_OK)
        code = finish(run);
    vrp_optimizer_destroy(run->optimizer);
    /* Only left over after a failure, which has been reported. */
    if (run->pool != NULL) {
        (void)bench_device_drain(&run->device);
        if (vrp_pool_destroy(run->pool, VRP_DESTROY_FORCE) != VRP_OK)
            return bench_fail("the pool does not end: %s", bench_detail());
    }
    for (uint64_t i = 0; run->streams.entries != NULL && i <= run->streams.mask; i++)
        if (run->streams.entries[i].used)
            bench_device_stream_destroy(&run->device, run->streams.entries[i].value);
    return code;
}

int bench_replay_run(const bench_options *options, bench_figures *out_figures) {
    bench_run run;
    memset(&run, 0, sizeof run);
    memset(out_figures, 0, sizeof *out_figures);
    out_figures->at_peak.struct_size = (uint32_t)sizeof out_figures->at_peak;
    out_figures->at_end.struct_size = (uint32_t)sizeof out_figures->at_end;
    run.options = options;
    run.figures = out_figures;
    run.shows_bar = isatty(STDERR_FILENO);
    int code = plan_checks(&run);
    if (code == BENCH_OK)
        code = bench_trace_open(options->trace, &run.reader);
    if (code != BENCH_OK)
        return code;
    if (!bench_table_init(&run.blocks) || !bench_table_init(&run.streams))
        code = bench_fail("no host memory for tables");
    if (code == BENCH_OK)
        code = bench_device_open(&run.device, options);
    if (code == BENCH_OK) {
        code = with_device(&run);
        uint64_t left = bench_device_close(&run.device);
        if (left > 0 && (code == BENCH_OK || code == BENCH_REFUSED))
            code = bench_fail("the device still holds %" PRIu64 " objects of the pool", left);
    }
    vrp_trace_close(run.reader);
    bench_table_free(&run.blocks);
    bench_seen_free(&run.ids);
    bench_table_free(&run.streams);
    return code;
}
