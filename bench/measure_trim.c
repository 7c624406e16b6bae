/* SPDX-License-Identifier: MIT */
/* Giving memory back while the device works, and taking a lot of it at once. */

#include "measure.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
enum { MOST_PIECES = 2048, NOT_READY = 600 /* of an event */ };

static void end_stream(const bench_measure *m, uint64_t stream) {
    if (m->adaptor->stream_forget != NULL)
        m->adaptor->stream_forget(m->self, stream);
    bench_stage_stream_end(m->stage, stream);
}

/* ---- A kernel that is limited by memory ----------------------------------------------------- */

typedef struct load {
    const bench_stage *stage;
    uint64_t buffer, stream;
    uint32_t passes; /* for about 100 ms */
    bench_cu_handle begin, end;
} load;

static int load_start(const load *l) {
    const bench_gpu *gpu = &l->stage->gpu;
    bench_cu_handle stream = (bench_cu_handle)(uintptr_t)l->stream;
    if (!l->stage->on_gpu)
        return 1;
    if (gpu->event_record(l->begin, stream) != 0 ||
        bench_gpu_read(gpu, l->stream, l->buffer, 4 * GIB, l->passes) != 0 ||
        gpu->event_record(l->end, stream) != 0)
        return !bench_fail("the kernel does not start");
    /* Under way for certain. */
    int error;
    while ((error = gpu->event_query(l->begin)) == NOT_READY)
        bench_sleep_us(20);
    bench_sleep_us(3000);
    return error == 0 || !bench_fail("the kernel: CUDA's error %d", error);
}

/* Milliseconds from its beginning to its end, once it has ended; 0: unknown. */
static double load_finish(const load *l) {
    float ms = 0;
    if (!l->stage->on_gpu)
        return 0;
    if (l->stage->gpu.event_synchronise(l->end) != 0 ||
        l->stage->gpu.event_elapsed(&ms, l->begin, l->end) != 0)
        return 0;
    return (double)ms;
}

static int load_open(load *l, const bench_stage *stage) {
    memset(l, 0, sizeof *l);
    l->stage = stage;
    if (!bench_stage_stream(stage, &l->stream))
        return 0;
    if (!stage->on_gpu)
        return 1;
    const bench_gpu *gpu = &stage->gpu;
    if (gpu->mem_alloc(&l->buffer, 4 * GIB) != 0 || gpu->mem_set(l->buffer, 0, 4 * GIB) != 0 ||
        gpu->event_create(&l->begin, 0) != 0 || gpu->event_create(&l->end, 0) != 0)
        return !bench_fail("4 GiB for a kernel to read");
    l->passes = 10;
    if (!load_start(l) || load_finish(l) <= 0)
        return 0;
    if (!load_start(l))
        return 0;
    double ms = load_finish(l);
    l->passes = ms > 0 ? (uint32_t)(10.0 * 100.0 / ms) + 1 : 10;
    return 1;
}

static void load_close(load *l) {
    if (l->buffer != 0) {
        (void)l->stage->gpu.event_destroy(l->begin);
        (void)l->stage->gpu.event_destroy(l->end);
        (void)l->stage->gpu.mem_free(l->buffer);
    }
    bench_stage_stream_end(l->stage, l->stream);
}

/* ---- 2 GiB go back while it runs ----------------------------------------------------------------
 */

typedef struct trim_rows {
    size_t host, released, slower; /* places in the sheet */
} trim_rows;

static int take(const bench_measure *m, uint64_t stream, uint64_t *blocks, uint64_t count,
                uint64_t bytes) {
    for (uint64_t i = 0; i < count; i++) {
        blocks[i] = bench_measure_alloc(m, bytes, stream);
        if (blocks[i] == 0 || !bench_stage_touch(m->stage, stream, blocks[i], bytes))
            return 0;
    }
    return bench_stage_synchronise(m->stage);
}

static void give(const bench_measure *m, uint64_t stream, const uint64_t *blocks, uint64_t count,
                 uint64_t bytes) {
    for (uint64_t i = 0; i < count; i++)
        m->adaptor->free(m->self, blocks[i], bytes, stream);
}

static int trim_once(bench_measure *m, const load *l, uint64_t stream, uint64_t *blocks,
                     uint64_t count, uint64_t bytes, double quiet_ms, trim_rows rows) {
    enum { PATIENCE_NS = 1000000000 };
    int no_cache = (m->adaptor->flags & BENCH_ADAPTOR_NO_CACHE) != 0;
    if (!take(m, stream, blocks, count, bytes))
        return 0;
    uint64_t held = bench_stage_free_bytes(m->stage);
    if (!no_cache)
        give(m, stream, blocks, count, bytes);
    if (!bench_stage_synchronise(m->stage) || !load_start(l))
        return 0;
    uint64_t began = bench_clock_ns();
    if (no_cache)
        give(m, stream, blocks, count, bytes);
    else
        m->adaptor->empty_cache(m->self);
    uint64_t returned = bench_clock_ns();
    uint64_t now = returned;
    /* Granules at the ends may stay with what shares them. */
    while (bench_stage_free_bytes(m->stage) < held + count * bytes - 4 * MIB &&
           (now = bench_clock_ns()) - began < PATIENCE_NS)
        bench_sleep_us(50);
    now = bench_clock_ns();
    int released = now - began < PATIENCE_NS;
    double ms = load_finish(l);
    bench_row_put(&m->sheet->rows[rows.host], (double)(returned - began) / 1e3);
    if (released)
        bench_row_put(&m->sheet->rows[rows.released], (double)(now - began) / 1e3);
    else
        bench_row_note(&m->sheet->rows[rows.released], "not within a second");
    if (m->stage->on_gpu)
        bench_row_put(&m->sheet->rows[rows.slower], (ms / quiet_ms - 1) * 100);
    return bench_stage_synchronise(m->stage);
}

static int trims_of(bench_measure *m, const load *l, uint64_t stream, uint64_t *blocks,
                    uint64_t count, double quiet_ms) {
    uint64_t bytes = 2 * GIB / count;
    trim_rows rows;
    char name[48];
    (void)snprintf(name, sizeof name, "empty_cache/%llux%lluMiB", (unsigned long long)count,
                   (unsigned long long)(bytes / MIB));
    rows.host = m->sheet->count;
    (void)bench_sheet_add(m->sheet, "us", "%s/host", name);
    rows.released = m->sheet->count;
    (void)bench_sheet_add(m->sheet, "us", "%s/released", name);
    rows.slower = m->sheet->count;
    bench_row *slower = bench_sheet_add(m->sheet, "percent", "%s/kernel_slower", name);
    if (m->sheet->failed)
        return 0;
    if (!m->stage->on_gpu)
        bench_row_note(slower, "no kernels on a simulated device");
    for (uint64_t i = 0; i < m->repeat; i++)
        if (!trim_once(m, l, stream, blocks, count, bytes, quiet_ms, rows))
            return 0;
    return 1;
}

int bench_measure_empty_cache(bench_measure *m) {
    static const uint64_t counts[] = {64, 1, 2048};
    uint64_t stream = 0;
    load l;
    if (m->adaptor->empty_cache == NULL && (m->adaptor->flags & BENCH_ADAPTOR_NO_CACHE) == 0) {
        bench_row_note(bench_sheet_add(m->sheet, "us", "empty_cache"), "it has no such call");
        return 1;
    }
    uint64_t *blocks = calloc(MOST_PIECES, sizeof *blocks);
    int good = blocks != NULL && load_open(&l, m->stage);
    if (!good) {
        free(blocks);
        return 0;
    }
    bench_row *quiet = bench_sheet_add(m->sheet, "ms", "kernel/undisturbed");
    for (uint64_t i = 0; good && i < m->repeat && m->stage->on_gpu; i++) {
        good = load_start(&l);
        bench_row_put(quiet, load_finish(&l));
    }
    double quiet_ms = bench_row_median(quiet);
    if (!m->stage->on_gpu)
        bench_row_note(quiet, "no kernels on a simulated device");
    good = good && bench_stage_stream(m->stage, &stream);
    for (size_t i = 0; good && i < sizeof counts / sizeof *counts; i++)
        good = trims_of(m, &l, stream, blocks, counts[i], quiet_ms);
    if (stream != 0)
        end_stream(m, stream);
    load_close(&l);
    free(blocks);
    return good;
}

/* ---- Launches of another thread
 * -------------------------------------------------------------------- */

typedef struct disturber {
    const bench_measure *m;
    uint64_t stream;
    int active; /* 0: it only sleeps */
    atomic_int stop, failed;
    atomic_uint_least64_t trims, given_back; /* bytes of the latter */
} disturber;

static uint64_t reserved(const bench_measure *m) {
    return m->adaptor->reserved != NULL ? m->adaptor->reserved(m->self) : 0;
}

/* Takes a piece and gives it back to the device. */
static int trim_piece(disturber *d) {
    enum { PIECE = 32 << 20 };
    const bench_measure *m = d->m;
    uint64_t ptr = bench_measure_alloc(m, PIECE, d->stream);
    if (ptr == 0)
        return 0;
    uint64_t before = reserved(m);
    m->adaptor->free(m->self, ptr, PIECE, d->stream);
    /* Else a pool is right to keep what its stream may still use. */
    if (m->stage->on_gpu &&
        m->stage->gpu.stream_synchronise((bench_cu_handle)(uintptr_t)d->stream) != 0)
        return 0;
    if (m->adaptor->empty_cache != NULL)
        m->adaptor->empty_cache(m->self);
    uint64_t after = reserved(m);
    (void)atomic_fetch_add(&d->given_back, m->adaptor->reserved == NULL ? PIECE
                                           : before > after             ? before - after
                                                                        : 0);
    (void)atomic_fetch_add(&d->trims, 1);
    return 1;
}

static void *disturb(void *user) {
    disturber *d = user;
    if (!bench_stage_thread(d->m->stage))
        atomic_store(&d->failed, 1);
    while (!atomic_load(&d->stop) && !atomic_load(&d->failed)) {
        if (!d->active)
            bench_sleep_us(100);
        else if (!trim_piece(d))
            atomic_store(&d->failed, 1);
    }
    return NULL;
}

static int by_time(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Fills `times`, sorted. */
static int launch_all(const bench_stage *stage, uint64_t stream, uint64_t *times, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        uint64_t began = bench_clock_ns();
        if (stage->on_gpu && bench_gpu_nothing(&stage->gpu, stream) != 0)
            return !bench_fail("a kernel does not start");
        times[i] = bench_clock_ns() - began;
        if (i % 64 == 63 && stage->on_gpu &&
            stage->gpu.stream_synchronise((bench_cu_handle)(uintptr_t)stream) != 0)
            return !bench_fail("the stream cannot be waited for");
    }
    qsort(times, count, sizeof *times, by_time);
    return 1;
}

static int launches_once(bench_measure *m, disturber *d, uint64_t stream, uint64_t *times,
                         size_t row) {
    enum { LAUNCHES = 4000 };
    pthread_t thread;
    atomic_store(&d->stop, 0);
    atomic_store(&d->trims, 0);
    if (pthread_create(&thread, NULL, disturb, d) != 0)
        return !bench_fail("a thread could not be made");
    do
        bench_sleep_us(5000);
    while (d->active && atomic_load(&d->trims) == 0 && !atomic_load(&d->failed));
    uint64_t before = atomic_load(&d->trims);
    uint64_t given = atomic_load(&d->given_back);
    uint64_t began = bench_clock_ns();
    int good = launch_all(m->stage, stream, times, LAUNCHES);
    double seconds = (double)(bench_clock_ns() - began) / 1e9;
    uint64_t trims = atomic_load(&d->trims) - before;
    given = atomic_load(&d->given_back) - given;
    atomic_store(&d->stop, 1);
    (void)pthread_join(thread, NULL);
    bench_row_put(&m->sheet->rows[row], (double)times[LAUNCHES / 2] / 1e3);
    bench_row_put(&m->sheet->rows[row + 1], (double)times[LAUNCHES * 99 / 100] / 1e3);
    if (d->active) {
        bench_row_put(&m->sheet->rows[row + 2], (double)trims / seconds);
        bench_row_put(&m->sheet->rows[row + 3], (double)given / (double)MIB / seconds);
    }
    return good && !atomic_load(&d->failed) && bench_stage_synchronise(m->stage);
}

int bench_measure_launches(bench_measure *m) {
    enum { LAUNCHES = 4000 };
    disturber d = {.m = m};
    uint64_t stream = 0;
    uint64_t *times = calloc(LAUNCHES, sizeof *times);
    size_t row[2] = {0, 0};
    if (m->adaptor->empty_cache == NULL && (m->adaptor->flags & BENCH_ADAPTOR_NO_CACHE) == 0) {
        free(times);
        bench_row_note(bench_sheet_add(m->sheet, "us", "launch"), "it gives nothing back");
        return 1;
    }
    int good = times != NULL && bench_stage_stream(m->stage, &stream) &&
               bench_stage_stream(m->stage, &d.stream);
    for (int active = 0; active <= 1; active++) {
        const char *name = active ? "trims" : "quiet";
        row[active] = m->sheet->count;
        (void)bench_sheet_add(m->sheet, "us", "launch/%s/p50", name);
        (void)bench_sheet_add(m->sheet, "us", "launch/%s/p99", name);
    }
    (void)bench_sheet_add(m->sheet, "per second", "launch/trims/rate");
    (void)bench_sheet_add(m->sheet, "MiB/s", "launch/trims/given_back");
    good = good && !m->sheet->failed;
    /* In turns, so that what the machine does besides falls on both. */
    for (uint64_t i = 0; good && i < m->repeat; i++)
        for (int active = 0; good && active <= 1; active++) {
            d.active = active;
            good = launches_once(m, &d, stream, times, row[active]);
        }
    if (stream != 0)
        bench_stage_stream_end(m->stage, stream);
    if (d.stream != 0)
        end_stream(m, d.stream);
    free(times);
    return good;
}

/* ---- Loading weights
 * ---------------------------------------------------------------------------------- */

int bench_measure_first_touch(bench_measure *m) {
    const uint64_t bytes = 118 * MIB;
    const uint64_t count = (24 * GIB + bytes - 1) / bytes;
    uint64_t stream = 0;
    uint64_t *blocks = calloc(count, sizeof *blocks);
    uint64_t (*alloc)(void *, size_t, uint64_t) =
        m->adaptor->alloc_weights != NULL ? m->adaptor->alloc_weights : m->adaptor->alloc;
    size_t row = m->sheet->count;
    (void)bench_sheet_add(m->sheet, "ms", "first_touch/24GiB");
    int good = blocks != NULL && !m->sheet->failed;
    for (uint64_t i = 0; good && i < m->repeat; i++) {
        good = bench_stage_stream(m->stage, &stream);
        uint64_t began = bench_clock_ns();
        for (uint64_t k = 0; good && k < count; k++) {
            blocks[k] = alloc(m->self, bytes, stream);
            good = blocks[k] != 0 ? bench_stage_touch(m->stage, stream, blocks[k], bytes)
                                  : !bench_fail("%s: refused a piece", m->adaptor->name);
        }
        good = good && bench_stage_synchronise(m->stage);
        bench_row_put(&m->sheet->rows[row], (double)(bench_clock_ns() - began) / 1e6);
        for (uint64_t k = 0; k < count && blocks[k] != 0; k++)
            m->adaptor->free(m->self, blocks[k], bytes, stream);
        memset(blocks, 0, count * sizeof *blocks);
        end_stream(m, stream);
        /* So that the next time is a first one again. */
        bench_measure_destroy(m);
        if (!bench_measure_create(m)) {
            free(blocks);
            return 0;
        }
    }
    free(blocks);
    return good;
}
