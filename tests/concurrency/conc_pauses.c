/* SPDX-License-Identifier: MIT */
/* A thread is paused inside a driver call, and others go on: no driver call is
 * made under a lock that an allocation needs. And what is freed while a batch
 * is between its detachment and its event is not covered by that event. */

#include "threads.h"

#include <string.h>

static vrpt_trouble trouble;

/* ---- Pausing one thread at one call ------------------------------------------- */

static struct {
    int32_t call;      /* pause here */
    int32_t after;     /* -1, or: at the first call after one of this kind */
    int armed, passed; /* of the paused thread, guarded by its being alone */
    vrpt_gate arrived, go;
} pause_at = {.arrived = VRPT_GATE_INITIALIZER, .go = VRPT_GATE_INITIALIZER};

static _Thread_local int this_thread_pauses;

static void hook(void *user, int32_t call, uint64_t argument) {
    (void)user;
    (void)argument;
    if (!this_thread_pauses || !pause_at.armed)
        return;
    if (pause_at.after >= 0 && !pause_at.passed) {
        pause_at.passed = call == pause_at.after;
        return;
    }
    if (pause_at.after < 0 && call != pause_at.call)
        return;
    pause_at.armed = 0;
    vrpt_gate_open(&pause_at.arrived);
    if (!vrpt_gate_wait(&pause_at.go))
        vrpt_note(&trouble, "nobody let the paused thread go on");
}

typedef struct task {
    vrpt *t;
    int what;
    vrp_stream stream;
    uint64_t bytes;
    vrp_devptr ptr;
    vrp_status status;
    vrpt_gate done;
} task;

enum { TASK_ALLOC, TASK_EMPTY, TASK_SMALL, TASK_POLL };

static void *perform(void *argument) {
    task *job = argument;
    switch (job->what) {
    case TASK_EMPTY:
        job->status = vrp_empty_cache(job->t->pool, NULL);
        break;
    case TASK_POLL:
        job->status = vrp_pool_poll(job->t->pool);
        break;
    default:
        job->status = vrp_alloc(job->t->pool, job->bytes, job->stream, &job->ptr);
        break;
    }
    vrpt_gate_open(&job->done);
    return NULL;
}

static void *perform_paused(void *argument) {
    this_thread_pauses = 1;
    return perform(argument);
}

static void begin(vrpt *t, int32_t completion, uint64_t device_bytes) {
    memset(&trouble, 0, sizeof trouble);
    vrpt_options options = {.completion = completion, .device_bytes = device_bytes, .sim_only = 1};
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

static void arm(int32_t call, int32_t after) {
    vrpt_gate_reset(&pause_at.arrived);
    vrpt_gate_reset(&pause_at.go);
    pause_at.call = call;
    pause_at.after = after;
    pause_at.passed = 0;
    pause_at.armed = 1;
}

static task make_task(vrpt *t, int what, vrp_stream stream, uint64_t bytes) {
    task job = {.t = t, .what = what, .stream = stream, .bytes = bytes};
    job.done = (vrpt_gate)VRPT_GATE_INITIALIZER;
    return job;
}

/* Does a task on a thread of its own: 1 if it came back while `paused` was
 * inside its call. */
static int comes_back(task *job) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, perform, job), 0);
    int back = vrpt_gate_wait_ms(&job->done, 5000);
    if (!back)
        vrpt_gate_open(&pause_at.go); /* end the hang, then fail */
    (void)pthread_join(thread, NULL);
    return back;
}

/* One thread is paused inside `call` on its way through `paused`; meanwhile
 * requests from caches, from free blocks and for new memory are served. */
static void others_are_served(vrpt *t, task *paused, int32_t call) {
    pthread_t thread;
    vrp_stream other = vrpt_stream_create(t);
    task jobs[] = {
        make_task(t, TASK_ALLOC, other, 700), make_task(t, TASK_ALLOC, other, 3 * VRPT_MIB),
        make_task(t, TASK_ALLOC, VRP_STREAM_LEGACY, 40 * VRPT_MIB),
        make_task(t, TASK_ALLOC, VRP_STREAM_LEGACY, 2000), make_task(t, TASK_POLL, 0, 0)};
    arm(call, -1);
    assert_int_equal(pthread_create(&thread, NULL, perform_paused, paused), 0);
    if (!vrpt_gate_wait_ms(&pause_at.arrived, 5000)) {
        (void)pthread_join(thread, NULL);
        fail_msg("the call %s was not made", vrp_sim_call_name(call));
    }
    for (size_t i = 0; i < VRPT_COUNT(jobs); i++) {
        if (!comes_back(&jobs[i]))
            vrpt_note(&trouble, "task %zu waited for a thread inside %s", i,
                      vrp_sim_call_name(call));
        else if (jobs[i].status != VRP_OK)
            vrpt_note(&trouble, "task %zu: %s", i, vrp_status_name(jobs[i].status));
    }
    vrp_stats stats = {.struct_size = sizeof stats};
    VRPT_OK(vrp_pool_stats_get(t->pool, &stats));
    vrpt_gate_open(&pause_at.go);
    (void)pthread_join(thread, NULL);
    VRPT_OK(paused->status);
    VRPT_OK(vrp_pool_check(t->pool));
}

static void growth_does_not_hold_others_up(void **state) {
    (void)state;
    static const int32_t vmm[] = {VRP_SIM_CALL_HANDLE_CREATE, VRP_SIM_CALL_MAP,
                                  VRP_SIM_CALL_SET_ACCESS};
    static const int32_t plain[] = {VRP_SIM_CALL_MEM_ALLOC};
    int is_vmm = vrpt_now.backing == VRP_BACKING_VMM;
    for (size_t i = 0; i < (is_vmm ? VRPT_COUNT(vmm) : VRPT_COUNT(plain)); i++) {
        vrpt t;
        begin(&t, VRP_SIM_IMMEDIATE, VRPT_GIB);
        task paused = make_task(&t, TASK_ALLOC, VRP_STREAM_LEGACY, 96 * VRPT_MIB);
        others_are_served(&t, &paused, is_vmm ? vmm[i] : plain[i]);
        end(&t);
    }
}

static void trim_does_not_hold_others_up(void **state) {
    (void)state;
    static const int32_t vmm[] = {VRP_SIM_CALL_UNMAP, VRP_SIM_CALL_HANDLE_RELEASE};
    static const int32_t plain[] = {VRP_SIM_CALL_MEM_FREE};
    int is_vmm = vrpt_now.backing == VRP_BACKING_VMM;
    for (size_t i = 0; i < (is_vmm ? VRPT_COUNT(vmm) : VRPT_COUNT(plain)); i++) {
        vrpt t;
        vrp_devptr blocks[6] = {0};
        begin(&t, VRP_SIM_IMMEDIATE, VRPT_GIB);
        for (size_t k = 0; k < VRPT_COUNT(blocks); k++)
            VRPT_OK(vrp_alloc(t.pool, 40 * VRPT_MIB, VRP_STREAM_LEGACY, &blocks[k]));
        for (size_t k = 0; k < VRPT_COUNT(blocks); k++)
            VRPT_OK(vrp_free(t.pool, blocks[k], VRP_STREAM_LEGACY));
        task paused = make_task(&t, TASK_EMPTY, 0, 0);
        others_are_served(&t, &paused, is_vmm ? vmm[i] : plain[i]);
        end(&t);
    }
}

/* ---- Free in the middle of a batch ------------------------------------------------- */

/* Stream a has freed X with work unfinished. A thread that wants a's memory
 * for stream b records an event on a. At the pause, more work on Y is queued on
 * a and Y is freed there. Then only what was queued before the pause is
 * completed: Y may serve nobody else yet. The detector sees whether it did. */
static void free_in_between(int32_t call, int32_t after) {
    vrpt t;
    vrp_devptr x = 0, y = 0;
    pthread_t thread;
    begin(&t, VRP_SIM_MANUAL, 256 * VRPT_MIB);
    vrp_stream a = vrpt_stream_create(&t), b = vrpt_stream_create(&t);
    VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_DEVICE_WAITS, 0));
    VRPT_OK(vrp_alloc(t.pool, 120 * VRPT_MIB, a, &x));
    VRPT_OK(vrp_alloc(t.pool, 120 * VRPT_MIB, a, &y));
    VRPT_OK(vrp_sim_launch(t.sim, a, x, 120 * VRPT_MIB, 1000));
    VRPT_OK(vrp_free(t.pool, x, a));
    task paused = make_task(&t, TASK_ALLOC, b, 100 * VRPT_MIB);
    arm(call, after);
    assert_int_equal(pthread_create(&thread, NULL, perform_paused, &paused), 0);
    int arrived = vrpt_gate_wait_ms(&pause_at.arrived, 5000);
    if (arrived) {
        VRPT_OK(vrp_sim_launch(t.sim, a, y, 120 * VRPT_MIB, 1000));
        VRPT_OK(vrp_free(t.pool, y, a));
        vrp_sim_complete(t.sim, a, after < 0 ? 1 : 2); /* x's work, and the event if it is there */
        vrpt_gate_open(&pause_at.go);
    }
    (void)pthread_join(thread, NULL);
    assert_true(arrived);
    VRPT_OK(paused.status);
    VRPT_OK(vrp_sim_launch(t.sim, b, paused.ptr, 100 * VRPT_MIB, 1000));
    vrp_devptr more = 0; /* what is left of the device is y's */
    vrp_alloc_info info = {.struct_size = sizeof info,
                           .flags = VRP_ALLOC_NO_WAIT,
                           .bytes = 100 * VRPT_MIB,
                           .stream = b};
    vrp_status status = vrp_alloc_ex(t.pool, &info, &more);
    if (status == VRP_OK)
        VRPT_OK(vrp_sim_launch(t.sim, b, more, 100 * VRPT_MIB, 1000));
    else
        assert_int_equal(status, VRP_OUT_OF_DEVICE_MEMORY);
    VRPT_OK(vrp_empty_cache(t.pool, NULL));
    assert_int_equal(vrpt_sim_stats(&t, 0).misuses, 0);
    end(&t);
}

static void free_before_the_record_is_not_covered(void **state) {
    (void)state;
    free_in_between(VRP_SIM_CALL_EVENT_RECORD, -1);
}

static void free_after_the_record_is_not_covered(void **state) {
    (void)state;
    free_in_between(-1, VRP_SIM_CALL_EVENT_RECORD);
}

/* ---- Reclaiming waits for nobody unconcerned (rmm PR 2470) --------------------------- */

static void reclaim_does_not_wait_for_other_streams(void **state) {
    (void)state;
    vrpt t;
    vrp_devptr idle = 0, busy = 0;
    begin(&t, VRP_SIM_MANUAL, 256 * VRPT_MIB);
    vrp_stream one = vrpt_stream_create(&t), two = vrpt_stream_create(&t);
    VRPT_OK(vrp_alloc(t.pool, 150 * VRPT_MIB, one, &idle));
    VRPT_OK(vrp_free(t.pool, idle, one));
    VRPT_OK(vrp_alloc(t.pool, 40 * VRPT_MIB, two, &busy));
    VRPT_OK(vrp_sim_launch(t.sim, two, busy, 40 * VRPT_MIB, 1000));
    VRPT_OK(vrp_free(t.pool, busy, two));
    uint64_t waits = vrpt_sim_stats(&t, 0).host_blocks;
    task job = make_task(&t, TASK_ALLOC, one, 200 * VRPT_MIB);
    assert_true(comes_back(&job));
    VRPT_OK(job.status);
    if (t.backing == VRP_BACKING_VMM) /* giving a segment back waits in the driver */
        assert_int_equal(vrpt_sim_stats(&t, 0).host_blocks, waits);
    vrp_sim_complete(t.sim, two, UINT64_MAX);
    end(&t);
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(growth_does_not_hold_others_up),
        cmocka_unit_test(trim_does_not_hold_others_up),
        cmocka_unit_test(free_before_the_record_is_not_covered),
        cmocka_unit_test(free_after_the_record_is_not_covered),
        cmocka_unit_test(reclaim_does_not_wait_for_other_streams),
    };
    (void)argc;
    static char sim[] = "sim";
    char *sim_only[] = {argv[0], sim};
    return vrpt_main("conc_pauses", tests, VRPT_COUNT(tests), 2, sim_only);
}
