/* SPDX-License-Identifier: MIT */
/* Replays with real threads, streams and kernels. */

#include "contest.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* How far one thread may be ahead of the slowest, in lines of the trace: they
 * run freely, and yet no workload is played that was not recorded. */
enum { AHEAD = 512, SAMPLE_EVERY = 256, LOOK_EVERY = 16, MOST_STREAMS = 64 };

__extension__ typedef __int128 wide;

typedef struct show show;

typedef struct player {
    show *show;
    pthread_t thread;
    uint32_t stream; /* number; the one whose steps it takes */
    uint64_t handle;
    uint64_t events, failures, inside_ns;
    _Alignas(64) atomic_uint_least64_t at; /* the step it is about to take */
} player;

struct show {
    const bench_contest *contest;
    uint64_t *blocks; /* addresses; 0: not alive */
    player *players;
    uint32_t count;
    pthread_barrier_t meeting;
    atomic_int stop, failed;
    atomic_uint_least64_t requested, peak_requested, sampled_requested;
    atomic_flag sampling; /* by whoever comes first, one at a time; what follows is theirs */
    uint64_t free_before, began, samples, peak_reserved, host_bytes;
    wide gap_sum;
    int reserved_known;
};

/* ---- Samples ---------------------------------------------------------------------------- */

static uint64_t reserved_now(const show *s, int *out_known) {
    const bench_contest *c = s->contest;
    uint64_t free_now;
    *out_known = 1;
    if (c->adaptor->reserved != NULL)
        return c->adaptor->reserved(c->self);
    free_now = bench_stage_free_bytes(c->stage);
    *out_known = free_now != 0 && s->free_before != 0;
    return s->free_before > free_now ? s->free_before - free_now : 0;
}

static void sample(show *s) {
    const bench_contest *c = s->contest;
    uint64_t requested = atomic_load(&s->requested);
    uint64_t reserved = reserved_now(s, &s->reserved_known);
    s->samples++;
    s->gap_sum += (wide)reserved - (wide)requested;
    if (reserved > s->peak_reserved)
        s->peak_reserved = reserved;
    if (c->adaptor->host_bytes != NULL) {
        uint64_t host = c->adaptor->host_bytes(c->self);
        s->host_bytes = host > s->host_bytes ? host : s->host_bytes;
    }
    if (c->most_ns > 0 && bench_clock_ns() - s->began > c->most_ns)
        atomic_store(&s->stop, 1);
}

/* Every so often, and where the workload reaches a new height. */
static void sample_at_times(show *s, const player *p) {
    enum { RISE = 1 << 20 };
    uint64_t peak = atomic_load_explicit(&s->peak_requested, memory_order_relaxed);
    uint64_t sampled = atomic_load_explicit(&s->sampled_requested, memory_order_relaxed);
    if (p->events % SAMPLE_EVERY != 0 && peak < sampled + RISE)
        return;
    if (atomic_flag_test_and_set(&s->sampling))
        return;
    atomic_store_explicit(&s->sampled_requested, peak, memory_order_relaxed);
    sample(s);
    atomic_flag_clear(&s->sampling);
}

static void count_requested(show *s, uint64_t bytes) {
    uint64_t now = atomic_fetch_add_explicit(&s->requested, bytes, memory_order_relaxed) + bytes;
    uint64_t peak = atomic_load_explicit(&s->peak_requested, memory_order_relaxed);
    while (now > peak && !atomic_compare_exchange_weak(&s->peak_requested, &peak, now)) {
    }
}

/* ---- Steps ------------------------------------------------------------------------------- */

static int take_alloc(player *p, const bench_step *step) {
    show *s = p->show;
    const bench_contest *c = s->contest;
    uint64_t began = bench_clock_ns();
    uint64_t ptr = c->adaptor->alloc(c->self, step->bytes, p->handle);
    p->inside_ns += bench_clock_ns() - began;
    s->blocks[step->block] = ptr;
    if (ptr == 0) {
        p->failures++;
        return 1;
    }
    count_requested(s, step->bytes);
    /* A kernel that has nothing to write takes its time all the same. */
    int real = (c->adaptor->flags & BENCH_ADAPTOR_NO_MEMORY) == 0;
    return bench_stage_touch(c->stage, p->handle, real ? ptr : 0, real ? step->bytes : 0);
}

static void take_free(player *p, const bench_step *step) {
    show *s = p->show;
    const bench_contest *c = s->contest;
    uint64_t ptr = s->blocks[step->block];
    if (ptr == 0)
        return; /* it had been refused */
    s->blocks[step->block] = 0;
    uint64_t began = bench_clock_ns();
    c->adaptor->free(c->self, ptr, step->bytes, p->handle);
    p->inside_ns += bench_clock_ns() - began;
    (void)atomic_fetch_sub_explicit(&s->requested, step->bytes, memory_order_relaxed);
}

/* All threads meet, the device is waited for, and they go on. */
static int meet(player *p) {
    show *s = p->show;
    int good = 1;
    if (s->count > 1)
        (void)pthread_barrier_wait(&s->meeting);
    if (p == s->players)
        good = bench_stage_synchronise(s->contest->stage);
    if (s->count > 1)
        (void)pthread_barrier_wait(&s->meeting);
    return good;
}

static void wait_for_the_slowest(const player *p, uint64_t at) {
    const show *s = p->show;
    for (uint32_t i = 0; i < s->count; i++)
        while (atomic_load_explicit(&s->players[i].at, memory_order_relaxed) + AHEAD < at)
            (void)sched_yield();
}

static int is_mine(const player *p, const bench_step *step) {
    return p->show->count == 1 || step->kind == BENCH_STEP_SYNCHRONISE || step->stream == p->stream;
}

static int take(player *p, const bench_step *step) {
    show *s = p->show;
    if (step->kind == BENCH_STEP_SYNCHRONISE)
        return meet(p);
    /* Once the time is up nothing is done; meetings are still kept. */
    if (atomic_load_explicit(&s->stop, memory_order_relaxed) || step->bytes == 0)
        return 1;
    p->events++;
    if (step->kind == BENCH_STEP_FREE)
        take_free(p, step);
    else if (!take_alloc(p, step))
        return 0;
    sample_at_times(s, p);
    return 1;
}

static void *play(void *user) {
    player *p = user;
    show *s = p->show;
    const bench_script *script = s->contest->script;
    if (!bench_stage_thread(s->contest->stage))
        atomic_store(&s->failed, 1);
    uint64_t mine = 0;
    for (uint64_t i = 0; i < script->count; i++) {
        if (!is_mine(p, &script->steps[i]))
            continue;
        if (s->count > 1) {
            atomic_store_explicit(&p->at, i, memory_order_relaxed);
            if (mine++ % LOOK_EVERY == 0)
                wait_for_the_slowest(p, i);
        }
        if (!take(p, &script->steps[i])) {
            /* The others still come to their meetings. */
            atomic_store(&s->failed, 1);
            atomic_store(&s->stop, 1);
        }
    }
    atomic_store(&p->at, UINT64_MAX - AHEAD);
    return NULL;
}

/* ---- A whole replay ----------------------------------------------------------------------- */

static int play_all(show *s) {
    uint32_t made = 0;
    if (s->count == 1) {
        /* One thread takes the steps of all streams: this one. */
        (void)play(&s->players[0]);
        return !atomic_load(&s->failed);
    }
    if (pthread_barrier_init(&s->meeting, NULL, s->count) != 0)
        return !bench_fail("no barrier");
    for (; made < s->count; made++)
        if (pthread_create(&s->players[made].thread, NULL, play, &s->players[made]) != 0) {
            (void)bench_fail("a thread could not be made");
            exit(BENCH_FAILED); /* those that run wait for it at a meeting */
        }
    for (uint32_t i = 0; i < made; i++)
        (void)pthread_join(s->players[i].thread, NULL);
    (void)pthread_barrier_destroy(&s->meeting);
    return !atomic_load(&s->failed);
}

static void take_end(const show *s, bench_outcome *out) {
    const bench_contest *c = s->contest;
    out->live_bytes_at_end = atomic_load(&s->requested);
    out->reserved_at_end_bytes = reserved_now(s, &out->reserved_known);
    out->has_empty_cache = c->adaptor->empty_cache != NULL;
    if (out->has_empty_cache) {
        uint64_t began = bench_clock_ns();
        c->adaptor->empty_cache(c->self);
        out->empty_cache_ns = bench_clock_ns() - began;
    }
    /* Memory may go back behind the call's back. */
    bench_sleep_us(20000);
    out->reserved_after_empty_bytes = reserved_now(s, &out->reserved_known);
}

static void sum_up(const show *s, bench_outcome *out) {
    const bench_contest *c = s->contest;
    for (uint32_t i = 0; i < s->count; i++) {
        out->events += s->players[i].events;
        out->failures += s->players[i].failures;
        out->inside_ns += s->players[i].inside_ns;
    }
    out->threads = s->count;
    out->complete = !atomic_load(&s->stop);
    out->peak_requested_bytes = atomic_load(&s->peak_requested);
    out->peak_reserved_bytes = s->peak_reserved;
    if (c->adaptor->peak_reserved != NULL) {
        uint64_t own = c->adaptor->peak_reserved(c->self);
        out->peak_is_own = own != BENCH_UNKNOWN;
        out->peak_reserved_bytes = out->peak_is_own ? own : s->peak_reserved;
    }
    if (s->samples > 0)
        out->mean_gap_bytes = (uint64_t)(s->gap_sum / (wide)s->samples);
    out->host_bytes = s->host_bytes;
    if (c->clocked != NULL)
        bench_clocked_read(c->clocked, &out->driver);
}

/* Blocks that the trace leaves alive, or that were when the time was up. */
static void free_rest(const show *s, const uint64_t *handles) {
    const bench_contest *c = s->contest;
    for (uint64_t i = 0; i < c->script->count; i++) {
        const bench_step *step = &c->script->steps[i];
        if (step->kind != BENCH_STEP_ALLOC || s->blocks[step->block] == 0)
            continue;
        c->adaptor->free(c->self, s->blocks[step->block], step->bytes, handles[step->stream]);
        s->blocks[step->block] = 0;
    }
}

static int with_streams(show *s, const uint64_t *handles, bench_outcome *out) {
    const bench_contest *c = s->contest;
    for (uint32_t i = 0; i < s->count; i++)
        s->players[i] = (player){.show = s, .stream = i, .handle = handles[i]};
    s->free_before = bench_stage_free_bytes(c->stage);
    s->began = bench_clock_ns();
    int good = play_all(s);
    good = bench_stage_synchronise(c->stage) && good;
    out->wall_ns = bench_clock_ns() - s->began;
    sample(s);
    sum_up(s, out);
    take_end(s, out);
    free_rest(s, handles);
    good = bench_stage_synchronise(c->stage) && good;
    for (uint32_t i = 0; c->adaptor->stream_forget != NULL && i < c->script->streams; i++)
        c->adaptor->stream_forget(c->self, handles[i]);
    return good;
}

int bench_contest_run(const bench_contest *contest, bench_outcome *out_outcome) {
    const bench_script *script = contest->script;
    uint64_t handles[MOST_STREAMS];
    uint32_t made = 0;
    show s = {.contest = contest, .count = script->streams, .sampling = ATOMIC_FLAG_INIT};
    memset(out_outcome, 0, sizeof *out_outcome);
    if (script->streams > MOST_STREAMS)
        return bench_fail("%s: more than %d streams", script->trace, MOST_STREAMS);
    s.blocks = calloc(script->blocks, sizeof *s.blocks);
    s.players = aligned_alloc(64, script->streams * sizeof *s.players);
    int good = s.blocks != NULL && s.players != NULL;
    if (!good)
        (void)bench_fail("no host memory for a replay");
    while (good && made < script->streams)
        if (bench_stage_stream(contest->stage, &handles[made]))
            made++;
        else
            good = 0;
    good = good && with_streams(&s, handles, out_outcome);
    for (uint32_t i = 0; i < made; i++)
        bench_stage_stream_end(contest->stage, handles[i]);
    free(s.blocks);
    free(s.players);
    return good ? BENCH_OK : BENCH_FAILED;
}

void bench_outcome_json(bench_json *json, const bench_contest *c, const bench_outcome *o) {
    bench_json_count(json, "trace_events", c->script->events);
    bench_json_number(json, "recorded_s", (double)c->script->recorded_us / 1e6);
    bench_json_count(json, "events", o->events);
    bench_json_flag(json, "complete", o->complete);
    bench_json_count(json, "streams", c->script->streams);
    bench_json_count(json, "threads", o->threads);
    bench_json_count(json, "failures", o->failures);
    bench_json_number(json, "wall_s", (double)o->wall_ns / 1e9);
    bench_json_number(json, "inside_ms", (double)o->inside_ns / 1e6);
    if (c->clocked != NULL) {
        bench_json_number(json, "driver_ms", (double)o->driver.all_ns / 1e6);
        bench_json_count(json, "driver_calls", o->driver.all_calls);
        bench_call_times_json(json, "driver_calls_by_name", &o->driver);
    }
    bench_json_count(json, "peak_requested_bytes", o->peak_requested_bytes);
    if ((c->adaptor->flags & BENCH_ADAPTOR_NO_MEMORY) == 0 &&
        (o->reserved_known || o->peak_is_own)) {
        bench_json_count(json, "peak_reserved_bytes", o->peak_reserved_bytes);
        bench_json_text(json, "peak_reserved_by", o->peak_is_own ? "allocator" : "device, sampled");
        bench_json_number(json, "peak_gap_mib",
                          ((double)o->peak_reserved_bytes - (double)o->peak_requested_bytes) /
                              1048576.0);
        bench_json_number(json, "mean_gap_mib", (double)(int64_t)o->mean_gap_bytes / 1048576.0);
        bench_json_count(json, "reserved_at_end_bytes", o->reserved_at_end_bytes);
    }
    bench_json_count(json, "live_bytes_at_end", o->live_bytes_at_end);
    if (o->has_empty_cache) {
        bench_json_number(json, "empty_cache_us", (double)o->empty_cache_ns / 1e3);
        bench_json_count(json, "reserved_after_empty_bytes", o->reserved_after_empty_bytes);
    }
    if (o->host_bytes > 0)
        bench_json_count(json, "host_bytes", o->host_bytes);
}
