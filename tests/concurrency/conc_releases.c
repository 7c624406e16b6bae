/* SPDX-License-Identifier: MIT */
/* Ends of scopes, streams and pools that meet calls of other threads: a scope
 * is released while its blocks are freed, allocated or grown, a stream is
 * forgotten or captured while another thread is inside an event record on it,
 * a pool is destroyed under calls that never take its lock. */

#include "threads.h"

#include <string.h>
#include <time.h>

static vrpt_trouble trouble;
static atomic_int stop;

/* ---- One thread is paused inside one driver call ------------------------------- */

typedef struct pause {
    int32_t call;
    uint64_t argument; /* 0: any */
    atomic_int armed;
    vrpt_gate arrived, go;
} pause;
#define PAUSE_AT(which) \
    { (which), 0, 1, VRPT_GATE_INITIALIZER, VRPT_GATE_INITIALIZER }

static _Thread_local pause *this_thread_pauses; /* NULL: it does not */

static void hook(void *user, int32_t call, uint64_t argument) {
    pause *at = this_thread_pauses;
    (void)user;
    if (at == NULL || call != at->call || (at->argument != 0 && argument != at->argument) ||
        !atomic_exchange(&at->armed, 0))
        return;
    vrpt_gate_open(&at->arrived);
    if (!vrpt_gate_wait(&at->go))
        vrpt_note(&trouble, "nobody let the paused thread go on");
}

typedef struct task {
    vrpt *t;
    pause *at;
    vrp_status (*run)(struct task *job);
    vrp_stream stream;
    vrp_scope scope;
    vrp_growable *buffer;
    uint64_t bytes;
    vrp_devptr ptr;
    vrp_status status;
    pthread_t thread;
    vrpt_gate done;
} task;

static void *perform(void *argument) {
    task *job = argument;
    this_thread_pauses = job->at;
    job->status = job->run(job);
    vrpt_gate_open(&job->done);
    return NULL;
}

static void launch(task *job) {
    job->done = (vrpt_gate)VRPT_GATE_INITIALIZER;
    assert_int_equal(pthread_create(&job->thread, NULL, perform, job), 0);
}

/* Starts a task and leaves it paused inside its call. 0: it never came there. */
static int launch_paused(task *job) {
    launch(job);
    return vrpt_gate_wait_ms(&job->at->arrived, 5000);
}

static void finish(task *job) {
    if (job->at != NULL)
        vrpt_gate_open(&job->at->go);
    (void)pthread_join(job->thread, NULL);
}

static vrp_status run_poll(task *job) { return vrp_pool_poll(job->t->pool); }
static vrp_status run_alloc(task *job) {
    return vrp_alloc(job->t->pool, job->bytes, job->stream, &job->ptr);
}
static vrp_status run_resize(task *job) { return vrp_growable_resize(job->buffer, job->bytes); }
static vrp_status run_release(task *job) {
    return vrp_scope_release(job->t->pool, job->scope, NULL);
}

static vrp_status run_capture(task *job) {
    vrp_status status = vrp_capture_begin(job->t->pool, job->stream);
    if (status == VRP_OK)
        status = vrp_sim_capture_begin(job->t->sim, job->stream, VRP_SIM_CAPTURE_GLOBAL);
    return status;
}

/* A forget, and the app's destruction of the stream behind it. */
static vrp_status run_forget_and_destroy(task *job) {
    vrp_status status = vrp_stream_forget(job->t->pool, job->stream);
    if (status == VRP_OK)
        status = vrp_sim_stream_destroy(job->t->sim, job->stream);
    return status;
}

static void begin(vrpt *t, int32_t completion) {
    memset(&trouble, 0, sizeof trouble);
    atomic_store(&stop, 0);
    vrpt_options options = {.completion = completion, .sim_only = 1};
    options.pool.flags = VRP_NO_RECLAIMER;
    VRPT_REQUIRE(t, vrpt_open(t, &options));
    vrp_sim_call_hook_set(t->sim, hook, NULL);
}

static void end(vrpt *t) {
    vrp_sim_call_hook_set(t->sim, NULL, NULL);
    if (atomic_load(&trouble.noted))
        fail_msg("%s", trouble.why);
    VRPT_REQUIRE(t, vrpt_close(t));
}

static void rest_us(long us) {
    const struct timespec moment = {us / 1000000, us % 1000000 * 1000};
    (void)nanosleep(&moment, NULL);
}

/* ---- Streams ---------------------------------------------------------------------- */

/* A stream with a freed block whose work is unfinished. */
static vrp_stream stream_with_work(vrpt *t) {
    vrp_devptr p = 0;
    vrp_stream stream = vrpt_stream_create(t);
    VRPT_OK(vrp_alloc(t->pool, 8 * VRPT_MIB, stream, &p));
    VRPT_OK(vrp_sim_launch(t->sim, stream, p, 8 * VRPT_MIB, 1000));
    VRPT_OK(vrp_free(t->pool, p, stream));
    return stream;
}

/* The handle comes back for a new, empty stream. An event of the paused poll on
 * that one would say that the old stream's work is done. */
static void forget_waits_for_a_record_elsewhere(void **state) {
    (void)state;
    vrpt t;
    begin(&t, VRP_SIM_MANUAL);
    vrp_stream old = stream_with_work(&t);
    pause record = PAUSE_AT(VRP_SIM_CALL_EVENT_RECORD);
    task poll = {.t = &t, .at = &record, .run = run_poll};
    task forget = {.t = &t, .run = run_forget_and_destroy, .stream = old};
    int arrived = launch_paused(&poll);
    launch(&forget);
    int early = vrpt_gate_wait_ms(&forget.done, 50);
    finish(&poll);
    finish(&forget);
    assert_true(arrived);
    assert_false(early);
    VRPT_OK(poll.status);
    VRPT_OK(forget.status);
    (void)vrpt_stream_create(&t); /* empty: events on it complete at once */
    VRPT_OK(vrp_pool_poll(t.pool));
    if (t.backing == VRP_BACKING_VMM) { /* giving a segment back waits in the driver */
        VRPT_OK(vrp_empty_cache(t.pool, NULL));
        assert_true(vrp_pool_reserved_bytes(t.pool) >= 8 * VRPT_MIB);
    }
    end(&t);
}

static void capture_begin_waits_for_a_record_elsewhere(void **state) {
    (void)state;
    vrpt t;
    int intact = 0;
    begin(&t, VRP_SIM_MANUAL);
    vrp_stream stream = stream_with_work(&t);
    pause record = PAUSE_AT(VRP_SIM_CALL_EVENT_RECORD);
    task poll = {.t = &t, .at = &record, .run = run_poll};
    task capture = {.t = &t, .run = run_capture, .stream = stream};
    int arrived = launch_paused(&poll);
    launch(&capture);
    int early = vrpt_gate_wait_ms(&capture.done, 50);
    finish(&poll);
    finish(&capture);
    assert_true(arrived);
    assert_false(early);
    VRPT_OK(poll.status);
    VRPT_OK(capture.status);
    VRPT_OK(vrp_pool_poll(t.pool));
    VRPT_OK(vrp_sim_capture_end(t.sim, stream, &intact));
    VRPT_OK(vrp_capture_end(t.pool, stream));
    assert_true(intact);
    end(&t);
}

enum { FREED_MEANWHILE = 40 };

typedef struct late_freer {
    vrpt *t;
    vrp_stream old, fresh;
    vrp_devptr blocks[FREED_MEANWHILE];
    vrpt_gate ready, free_now, freed, reuse_now;
} late_freer;

/* Frees blocks of a stream that is being forgotten, then asks on a new stream
 * that has the old one's handle. */
static void *frees_late(void *argument) {
    late_freer *f = argument;
    vrp_devptr p = 0;
    vrp_status status = vrp_alloc(f->t->pool, 512, VRP_STREAM_LEGACY, &p);
    vrpt_gate_open(&f->ready);
    if (!vrpt_gate_wait(&f->free_now))
        vrpt_note(&trouble, "the forget never came");
    for (size_t i = 0; i < FREED_MEANWHILE && status == VRP_OK; i++)
        status = vrp_free(f->t->pool, f->blocks[i], f->old);
    vrpt_gate_open(&f->freed);
    if (!vrpt_gate_wait(&f->reuse_now))
        vrpt_note(&trouble, "the forget never ended");
    if (status == VRP_OK)
        status = vrp_alloc(f->t->pool, 512, f->fresh, &p);
    if (status == VRP_OK)
        status = vrp_sim_launch(f->t->sim, f->fresh, p, 512, 10);
    (void)vrpt_worker_ok(&trouble, "late frees", status);
    return NULL;
}

static void free_amid_a_forget_caches_nothing(void **state) {
    (void)state;
    vrpt t;
    pthread_t thread;
    begin(&t, VRP_SIM_MANUAL);
    late_freer f = {.t = &t,
                    .old = vrpt_stream_create(&t),
                    .ready = VRPT_GATE_INITIALIZER,
                    .free_now = VRPT_GATE_INITIALIZER,
                    .freed = VRPT_GATE_INITIALIZER,
                    .reuse_now = VRPT_GATE_INITIALIZER};
    for (size_t i = 0; i < FREED_MEANWHILE; i++) {
        VRPT_OK(vrp_alloc(t.pool, 512, f.old, &f.blocks[i]));
        VRPT_OK(vrp_sim_launch(t.sim, f.old, f.blocks[i], 512, 1000));
    }
    assert_int_equal(pthread_create(&thread, NULL, frees_late, &f), 0);
    int ready = vrpt_gate_wait(&f.ready);
    pause record = PAUSE_AT(VRP_SIM_CALL_EVENT_RECORD);
    task forget = {.t = &t, .at = &record, .run = run_forget_and_destroy, .stream = f.old};
    int arrived = launch_paused(&forget);
    vrpt_gate_open(&f.free_now);
    int freed = vrpt_gate_wait_ms(&f.freed, 5000);
    finish(&forget);
    f.fresh = vrpt_stream_create(&t);
    vrpt_gate_open(&f.reuse_now);
    (void)pthread_join(thread, NULL);
    assert_true(ready && arrived && freed);
    VRPT_OK(forget.status);
    end(&t);
}

/* One thread is recording on a stream in order to wait for it when another one
 * begins to poll it, and is back while that one still asks about the stream's
 * first event. What is behind the first event may not be given up with it. */
static void device_wait_leaves_a_poll_alone(void **state) {
    (void)state;
    if (vrpt_now.backing != VRP_BACKING_VMM)
        skip(); /* half a segment does not change hands */
    vrpt t;
    vrp_devptr a = 0, b = 0;
    begin(&t, VRP_SIM_MANUAL);
    vrp_stream one = vrpt_stream_create(&t), two = vrpt_stream_create(&t);
    VRPT_OK(vrp_alloc(t.pool, 16 * VRPT_MIB, one, &a));
    VRPT_OK(vrp_alloc(t.pool, 16 * VRPT_MIB, one, &b));
    VRPT_OK(vrp_sim_launch(t.sim, one, a, 16 * VRPT_MIB, 9));
    VRPT_OK(vrp_free(t.pool, a, one));
    VRPT_OK(vrp_pool_poll(t.pool));
    VRPT_OK(vrp_sim_launch(t.sim, one, b, 16 * VRPT_MIB, 9));
    VRPT_OK(vrp_free(t.pool, b, one));
    pause record = PAUSE_AT(VRP_SIM_CALL_EVENT_RECORD), query = PAUSE_AT(VRP_SIM_CALL_EVENT_QUERY);
    task take = {.t = &t, .at = &record, .run = run_alloc, .stream = two, .bytes = 32 * VRPT_MIB};
    task poll = {.t = &t, .at = &query, .run = run_poll};
    record.argument = one;
    query.argument = 1; /* events are numbered */
    int arrived = launch_paused(&take);
    arrived = launch_paused(&poll) && arrived;
    finish(&take);
    vrp_sim_complete(t.sim, one, 1);
    vrp_status status = vrp_pool_poll(t.pool);
    finish(&poll);
    assert_true(arrived);
    VRPT_OK(status);
    VRPT_OK(poll.status);
    VRPT_OK(take.status);
    VRPT_OK(vrp_pool_poll(t.pool));
    end(&t);
}

/* ---- Scopes ------------------------------------------------------------------------ */

enum { HIT_BLOCKS = VRPT_TSAN ? 1000 : 20000 };

static struct {
    vrp_devptr blocks[HIT_BLOCKS];
    atomic_int go;
} hit;

/* Frees blocks of the scope and takes others, all from this thread's caches.
 * Which of the frees come too late is up to chance. */
static void *hits(void *argument) {
    vrpt *t = argument;
    while (!atomic_load(&stop)) {
        if (!atomic_load(&hit.go))
            continue;
        for (size_t i = 0; i < HIT_BLOCKS; i++) {
            (void)!vrp_free(t->pool, hit.blocks[i], VRP_STREAM_LEGACY);
            hit.blocks[i] = 0;
            (void)vrpt_worker_ok(&trouble, "a hit",
                                 vrp_alloc(t->pool, 512, VRP_STREAM_LEGACY, &hit.blocks[i]));
        }
        for (size_t i = 0; i < HIT_BLOCKS; i++)
            (void)!vrp_free(t->pool, hit.blocks[i], VRP_STREAM_LEGACY);
        atomic_store(&hit.go, 0);
    }
    return NULL;
}

static vrp_status one_scope_against_hits(vrpt *t, vrpt_rng *rng) {
    vrp_alloc_info info = {.struct_size = sizeof info, .bytes = 512};
    vrp_status status = vrp_scope_open(t->pool, 0, &info.scope);
    for (size_t i = 0; i < HIT_BLOCKS && status == VRP_OK; i++)
        status = vrp_alloc_ex(t->pool, &info, &hit.blocks[i]);
    atomic_store(&hit.go, 1);
    for (uint64_t left = vrpt_rng_below(rng, 20000); left > 0 && atomic_load(&hit.go); left--) {
    }
    if (status == VRP_OK)
        status = vrp_scope_release(t->pool, info.scope, NULL);
    while (atomic_load(&hit.go)) {
    }
    return status == VRP_OK ? vrp_pool_check(t->pool) : status;
}

static void scope_release_meets_hits(void **state) {
    (void)state;
    vrpt t;
    vrpt_rng rng = {8};
    pthread_t thread;
    vrp_status status = VRP_OK;
    begin(&t, VRP_SIM_IMMEDIATE);
    assert_int_equal(pthread_create(&thread, NULL, hits, &t), 0);
    for (int round = 0; round < 8 * VRPT_SCALE && status == VRP_OK; round++)
        status = one_scope_against_hits(&t, &rng);
    atomic_store(&stop, 1);
    (void)pthread_join(thread, NULL);
    VRPT_OK(status);
    assert_int_equal(vrpt_stats(&t).blocks.current, 0);
    end(&t);
}

static _Atomic uint64_t current;

/* Allocates into the scope of the moment until it is told that it is gone. */
static void *fills(void *argument) {
    vrpt *t = argument;
    while (!atomic_load(&stop) && !atomic_load(&trouble.noted)) {
        vrp_alloc_info info = {
            .struct_size = sizeof info, .bytes = 512, .scope = atomic_load(&current)};
        vrp_status status = VRP_OK;
        for (int i = 0; i < 64 && status == VRP_OK; i++) {
            vrp_devptr p = 0;
            info.bytes = i % 16 ? 512 : 200 * VRPT_KIB;
            status = vrp_alloc_ex(t->pool, &info, &p);
        }
        if (status != VRP_OK && status != VRP_INVALID_ARGUMENT)
            (void)vrpt_worker_ok(&trouble, "into a scope", status);
    }
    return NULL;
}

static void released_scope_takes_no_more_blocks(void **state) {
    (void)state;
    vrpt t;
    pthread_t threads[3];
    vrp_scope scope = 0;
    begin(&t, VRP_SIM_IMMEDIATE);
    VRPT_OK(vrp_scope_open(t.pool, 0, &scope));
    atomic_store(&current, scope);
    for (size_t i = 0; i < VRPT_COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fills, &t), 0);
    vrp_status status = VRP_OK;
    for (int round = 0; round < 60 * VRPT_SCALE && status == VRP_OK; round++) {
        rest_us(50);
        status = vrp_scope_release(t.pool, scope, NULL);
        if (status == VRP_OK)
            status = vrp_scope_open(t.pool, 0, &scope);
        atomic_store(&current, scope);
    }
    atomic_store(&stop, 1);
    for (size_t i = 0; i < VRPT_COUNT(threads); i++)
        (void)pthread_join(threads[i], NULL);
    VRPT_OK(status);
    VRPT_OK(vrp_scope_release(t.pool, scope, NULL));
    assert_int_equal(vrpt_stats(&t).blocks.current, 0);
    end(&t);
}

/* The release comes while another thread is making memory for the buffer:
 * whoever is first, the buffer is whole afterwards. */
static void scope_release_meets_a_growing_buffer(void **state) {
    (void)state;
    vrpt t;
    begin(&t, VRP_SIM_IMMEDIATE);
    vrp_growable_info info = {.struct_size = sizeof info, .max_bytes = 128 * VRPT_MIB};
    pause more = PAUSE_AT(t.backing == VRP_BACKING_VMM ? VRP_SIM_CALL_HANDLE_CREATE
                                                       : VRP_SIM_CALL_MEM_ALLOC);
    task grow = {.t = &t, .at = &more, .run = run_resize, .bytes = 100 * VRPT_MIB};
    task release = {.t = &t, .run = run_release};
    VRPT_OK(vrp_scope_open(t.pool, 0, &info.scope));
    VRPT_OK(vrp_growable_create(t.pool, &info, &grow.buffer));
    VRPT_OK(vrp_growable_resize(grow.buffer, 10 * VRPT_MIB));
    release.scope = info.scope;
    int arrived = launch_paused(&grow);
    launch(&release);
    (void)vrpt_gate_wait_ms(&release.done, 50);
    finish(&grow);
    finish(&release);
    assert_true(arrived);
    VRPT_OK(release.status);
    assert_true(grow.status == VRP_OK || grow.status == VRP_INVALID_ARGUMENT);
    VRPT_OK(vrp_pool_check(t.pool));
    assert_int_equal(vrp_pool_requested_bytes(t.pool), vrp_growable_size(grow.buffer));
    VRPT_OK(vrp_growable_destroy(grow.buffer));
    assert_int_equal(vrp_pool_allocated_bytes(t.pool), 0);
    end(&t);
}

/* ---- Destruction ------------------------------------------------------------------- */

typedef struct late_caller {
    vrp_pool *pool;
    vrp_scope scope;
    int reads;
} late_caller;

static void *calls_until_shut_down(void *argument) {
    late_caller *c = argument;
    vrp_alloc_info info = {.struct_size = sizeof info, .bytes = 512, .scope = c->scope};
    vrp_status status = VRP_OK;
    while (!atomic_load(&stop) && status == VRP_OK) {
        vrp_devptr p = 0;
        if (c->reads) {
            (void)vrp_pool_reserved_bytes(c->pool);
            (void)vrp_pool_allocated_bytes(c->pool);
            (void)vrp_pool_requested_bytes(c->pool);
            continue;
        }
        status = vrp_alloc_ex(c->pool, &info, &p);
        if (status == VRP_OK)
            status = vrp_free(c->pool, p, VRP_STREAM_LEGACY);
    }
    if (status != VRP_SHUT_DOWN)
        (void)vrpt_worker_ok(&trouble, "late call", status);
    return NULL;
}

static void scoped_calls_and_figures_meet_destruction(void **state) {
    (void)state;
    for (int round = 0; round < 12 * VRPT_SCALE; round++) {
        vrpt t;
        pthread_t threads[2];
        late_caller callers[2] = {{.reads = 0}, {.reads = 1}};
        vrp_scope scope = 0;
        begin(&t, VRP_SIM_IMMEDIATE);
        VRPT_OK(vrp_scope_open(t.pool, 0, &scope));
        for (size_t i = 0; i < VRPT_COUNT(threads); i++) {
            callers[i].pool = t.pool;
            callers[i].scope = scope;
            assert_int_equal(pthread_create(&threads[i], NULL, calls_until_shut_down, &callers[i]),
                             0);
        }
        rest_us(200 + 37 * (round % 16));
        vrp_status status = vrp_pool_destroy(t.pool, VRP_DESTROY_FORCE);
        rest_us(100);
        atomic_store(&stop, 1);
        for (size_t i = 0; i < VRPT_COUNT(threads); i++)
            (void)pthread_join(threads[i], NULL);
        VRPT_OK(status);
        if (atomic_load(&trouble.noted))
            fail_msg("%s", trouble.why);
        VRPT_REQUIRE(&t, vrpt_close_device(&t));
    }
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(forget_waits_for_a_record_elsewhere),
        cmocka_unit_test(capture_begin_waits_for_a_record_elsewhere),
        cmocka_unit_test(free_amid_a_forget_caches_nothing),
        cmocka_unit_test(device_wait_leaves_a_poll_alone),
        cmocka_unit_test(scope_release_meets_hits),
        cmocka_unit_test(released_scope_takes_no_more_blocks),
        cmocka_unit_test(scope_release_meets_a_growing_buffer),
        cmocka_unit_test(scoped_calls_and_figures_meet_destruction),
    };
    (void)argc;
    static char sim[] = "sim";
    char *sim_only[] = {argv[0], sim};
    return vrpt_main("conc_releases", tests, VRPT_COUNT(tests), 2, sim_only);
}
