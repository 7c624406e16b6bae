/* SPDX-License-Identifier: MIT */
/* The reclaimer thread and the budget of a trim: what a trim leaves goes
 * without a further call, from a thread that is there only while it is needed,
 * and every end is survived: destroy, fork, a thread that cannot be had. */

#include "unit_support.h"

#include "platform/worker.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const vrpt_options held = {
    .completion = VRP_SIM_MANUAL, .device_bytes = 4 * VRPT_GIB, .pool.gap_rule = VRP_GAP_RULE_OFF};

static void open_with_reclaimer(vrpt *t, const vrpt_options *options, uint64_t budget_ns) {
    open_pool(t, options);
    VRPT_OK(vrp_pool_knob_set(t->pool, VRP_KNOB_RECLAIMER, 1));
    VRPT_OK(vrp_pool_knob_set(t->pool, VRP_KNOB_TRIM_BUDGET_NS, budget_ns));
}

static void moment(void) {
    const struct timespec ms = {.tv_nsec = 1000000};
    (void)nanosleep(&ms, NULL);
}

/* 1 once no more than that is reserved; makes no call that could help. */
static int falls_to(vrpt *t, uint64_t bytes) {
    for (int i = 0; i < 10000; i++) {
        if (vrp_pool_reserved_bytes(t->pool) <= bytes)
            return 1;
        moment();
    }
    return 0;
}

/* How many reclaimers this process has. */
static int reclaimers(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        char path[300], name[32] = "";
        (void)snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *comm = fopen(path, "r");
        if (comm == NULL)
            continue;
        if (fgets(name, sizeof name, comm) != NULL && strncmp(name, "vrp-reclaimer", 13) == 0)
            count++;
        (void)fclose(comm);
    }
    (void)closedir(tasks);
    return count;
}

/* A thread that was joined is listed for a moment yet. */
static int no_reclaimer_left(void) {
    for (int i = 0; i < 10000; i++) {
        if (reclaimers() == 0)
            return 1;
        moment();
    }
    return 0;
}

static vrp_devptr used(vrpt *t, uint64_t bytes, vrp_stream stream) {
    vrp_devptr ptr = take_on(t, bytes, stream);
    VRPT_OK(vrp_sim_launch(t->sim, stream, ptr, bytes, 0));
    return ptr;
}

static vrp_trim_result trim(vrpt *t, uint32_t flags) {
    vrp_trim_result result = {.struct_size = sizeof result};
    VRPT_OK(vrp_trim(t->pool, 0, flags, &result));
    return result;
}

/* ---- what is pending ------------------------------------------------------------------ */

static void pending_memory_goes_without_a_call(void **state) {
    vrpt t;
    (void)state;
    open_with_reclaimer(&t, &held, 500000);
    vrp_stream streams[2] = {vrpt_stream_create(&t), vrpt_stream_create(&t)};
    vrp_devptr first = used(&t, 100 * VRPT_MIB, streams[0]);
    vrp_devptr second = used(&t, 300 * VRPT_MIB, streams[1]);
    VRPT_OK(vrp_free(t.pool, first, streams[0]));
    VRPT_OK(vrp_free(t.pool, second, streams[1]));
    const uint64_t all = reserved(&t);
    assert_int_equal(reclaimers(), 0);
    const vrp_trim_result result = trim(&t, 0);
    assert_int_equal(result.released_bytes, 0);
    assert_int_equal(result.pending_bytes, all);
    assert_int_equal(reclaimers(), 1);
    for (int i = 0; i < 20; i++)
        moment();
    assert_int_equal(vrp_pool_reserved_bytes(t.pool), all); /* nothing is done yet */
    vrp_sim_complete(t.sim, streams[0], UINT64_MAX);
    assert_true(falls_to(&t, all - 100 * VRPT_MIB));
    for (int i = 0; i < 20; i++)
        moment();
    if (t.backing == VRP_BACKING_VMM) /* a plain free waits for the whole device */
        assert_true(vrp_pool_reserved_bytes(t.pool) >= 300 * VRPT_MIB);
    vrp_sim_complete(t.sim, streams[1], UINT64_MAX);
    assert_true(falls_to(&t, 0));
    assert_int_equal(vrpt_stats(&t).reclaimed_bytes, all);
    assert_int_equal(vrpt_stats(&t).trimmed_bytes, all);
    for (size_t i = 0; i < VRPT_COUNT(streams); i++) {
        VRPT_OK(vrp_stream_forget(t.pool, streams[i]));
        vrpt_stream_destroy(&t, streams[i]);
    }
    close_pool(&t);
    assert_true(no_reclaimer_left());
}

static void deferred_block_goes_when_its_other_stream_is_done(void **state) {
    vrpt t;
    (void)state;
    open_with_reclaimer(&t, &held, 500000);
    vrp_stream own = vrpt_stream_create(&t), other = vrpt_stream_create(&t);
    vrp_devptr ptr = take_on(&t, 64 * VRPT_MIB, own);
    VRPT_OK(vrp_record_stream(t.pool, ptr, other));
    VRPT_OK(vrp_sim_stream_wait_stream(t.sim, other, own));
    VRPT_OK(vrp_sim_launch(t.sim, other, ptr, 64 * VRPT_MIB, 0));
    VRPT_OK(vrp_free(t.pool, ptr, own));
    assert_true(trim(&t, 0).pending_bytes >= 64 * VRPT_MIB);
    for (int i = 0; i < 10; i++)
        moment();
    assert_true(vrp_pool_reserved_bytes(t.pool) > 0);
    vrp_sim_complete(t.sim, other, UINT64_MAX);
    assert_true(falls_to(&t, 0));
    VRPT_OK(vrp_stream_forget(t.pool, own));
    VRPT_OK(vrp_stream_forget(t.pool, other));
    vrpt_stream_destroy(&t, own);
    vrpt_stream_destroy(&t, other);
    close_pool(&t);
}

/* Memory that is wanted again before its work is done is not taken away. */
static void memory_used_again_stays(void **state) {
    vrpt t;
    (void)state;
    open_with_reclaimer(&t, &held, 500000);
    vrp_devptr ptr = used(&t, 100 * VRPT_MIB, VRP_STREAM_LEGACY);
    give(&t, ptr);
    (void)trim(&t, 0);
    ptr = used(&t, 100 * VRPT_MIB, VRP_STREAM_LEGACY);
    vrp_sim_drain(t.sim);
    for (int i = 0; i < 20; i++)
        moment();
    assert_true(vrp_pool_reserved_bytes(t.pool) >= 100 * VRPT_MIB);
    VRPT_OK(vrp_sim_launch(t.sim, VRP_STREAM_LEGACY, ptr, 100 * VRPT_MIB, 0));
    give(&t, ptr);
    close_pool(&t);
}

static void poll_and_reclaimer_share_the_work(void **state) {
    vrpt t;
    (void)state;
    open_with_reclaimer(&t, &held, UINT64_MAX);
    for (int round = 0; round < 50; round++) {
        give(&t, used(&t, 64 * VRPT_MIB, VRP_STREAM_LEGACY));
        (void)trim(&t, 0);
        vrp_sim_drain(t.sim);
        for (int i = 0; i < 10000 && reserved(&t) > 0; i++)
            VRPT_OK(vrp_pool_poll(t.pool));
        assert_true(falls_to(&t, 0));
    }
    close_pool(&t);
}

/* ---- the budget ------------------------------------------------------------------------ */

typedef struct pattern {
    const char *name;
    uint64_t bytes;
    size_t count;
    int32_t tag;
} pattern;

static uint64_t call_ns(vrpt *t) { return vrp_sim_driver_time_ns(t->sim); }

/* Holds back everything but the calling thread. */
static pthread_t main_thread;
static atomic_int hold;
static void only_main(void *user, int32_t call, uint64_t argument) {
    (void)user;
    (void)call;
    (void)argument;
    while (atomic_load(&hold) && !pthread_equal(pthread_self(), main_thread))
        moment();
}

/* 2 GiB in the usual shapes: what the call itself spends by the prices of the
 * simulated device, and what all of it takes. */
static void call_stays_within_its_budget(void **state) {
    static const pattern patterns[] = {
        {"one block", 2 * VRPT_GIB, 1, VRP_TAG_OTHER},
        {"one block of weights", 2 * VRPT_GIB, 1, VRP_TAG_WEIGHTS},
        {"64 blocks", 32 * VRPT_MIB, 64, VRP_TAG_OTHER},
        {"64 blocks of weights", 32 * VRPT_MIB, 64, VRP_TAG_WEIGHTS},
        {"2048 blocks", VRPT_MIB, 2048, VRP_TAG_OTHER},
        {"2048 blocks of weights", VRPT_MIB, 2048, VRP_TAG_WEIGHTS},
    };
    static vrp_devptr ptrs[2048];
    const vrpt_options options = {.device_bytes = 4 * VRPT_GIB, .pool.gap_rule = VRP_GAP_RULE_OFF};
    (void)state;
    main_thread = pthread_self();
    for (size_t i = 0; i < VRPT_COUNT(patterns); i++) {
        const pattern *p = &patterns[i];
        vrpt t;
        open_with_reclaimer(&t, &options, 500000);
        for (size_t k = 0; k < p->count; k++)
            VRPT_OK(ask(&t, p->bytes, 0, p->tag, 0, &ptrs[k]));
        for (size_t k = 0; k < p->count; k++)
            give(&t, ptrs[k]);
        const uint64_t all = reserved(&t), before = call_ns(&t);
        assert_true(all >= 2 * VRPT_GIB);
        atomic_store(&hold, 1);
        vrp_sim_call_hook_set(t.sim, only_main, NULL);
        const vrp_trim_result result = trim(&t, 0);
        const uint64_t spent = call_ns(&t) - before;
        if (t.backing == VRP_BACKING_VMM) {
            assert_true(spent <= 550000);
            assert_true(result.released_bytes > 0);
            assert_int_equal(result.released_bytes + result.pending_bytes, all);
        }
        atomic_store(&hold, 0);
        assert_true(falls_to(&t, 0));
        vrp_sim_call_hook_set(t.sim, NULL, NULL);
        if (t.backing == VRP_BACKING_VMM) {
            print_message("%s: %llu us in the call, %llu us in all\n", p->name,
                          (unsigned long long)spent / 1000,
                          (unsigned long long)(call_ns(&t) - before) / 1000);
            /* while a model is small little is loaded ahead, so its pieces are small too */
            assert_true(call_ns(&t) - before <= (p->tag == VRP_TAG_WEIGHTS ? 6000000 : 4000000));
        }
        close_pool(&t);
    }
}

static void no_budget_leaves_everything_to_the_thread(void **state) {
    const vrpt_options options = {.pool.gap_rule = VRP_GAP_RULE_OFF};
    vrpt t;
    (void)state;
    open_with_reclaimer(&t, &options, 0);
    if (t.backing == VRP_BACKING_VMM) {
        give(&t, take(&t, 512 * VRPT_MIB));
        const vrp_trim_result result = trim(&t, 0);
        assert_int_equal(result.extents_released, 0);
        assert_int_equal(result.pending_bytes, 512 * VRPT_MIB);
        assert_true(falls_to(&t, 0));
    }
    close_pool(&t);
}

static void neighbours_are_unmapped_by_one_call(void **state) {
    const vrpt_options options = {.pool.gap_rule = VRP_GAP_RULE_OFF};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    if (t.backing == VRP_BACKING_VMM) {
        give(&t, take(&t, 512 * VRPT_MIB));
        const uint64_t extents = vrpt_stats(&t).extents.current;
        const uint64_t before = vrp_sim_call_count(t.sim, VRP_SIM_CALL_UNMAP);
        const vrp_trim_result result = trim(&t, 0);
        assert_true(extents > 1);
        assert_int_equal(result.extents_released, extents);
        assert_int_equal(vrp_sim_call_count(t.sim, VRP_SIM_CALL_UNMAP) - before,
                         (extents + 15) / 16);
        assert_int_equal(result.reserved_bytes, 0);
    }
    close_pool(&t);
}

static void waiting_trim_leaves_nothing(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_CLOCK,
                                  .device_bytes = 4 * VRPT_GIB,
                                  .pool.gap_rule = VRP_GAP_RULE_OFF};
    vrpt t;
    (void)state;
    open_with_reclaimer(&t, &options, 100000);
    for (int round = 0; round < 10; round++) {
        vrp_devptr ptrs[32];
        for (size_t i = 0; i < VRPT_COUNT(ptrs); i++) {
            ptrs[i] = take(&t, 64 * VRPT_MIB);
            VRPT_OK(vrp_sim_launch(t.sim, VRP_STREAM_LEGACY, ptrs[i], 64 * VRPT_MIB, 1000));
        }
        for (size_t i = 0; i < VRPT_COUNT(ptrs); i++)
            give(&t, ptrs[i]);
        if (round % 2 == 1)
            (void)trim(&t, 0); /* the thread is at it already */
        const vrp_trim_result result = trim(&t, VRP_TRIM_WAIT);
        assert_int_equal(result.reserved_bytes, 0);
        assert_int_equal(result.pending_bytes, 0);
    }
    close_pool(&t);
}

/* ---- the thread ------------------------------------------------------------------------- */

static void thread_ends_when_idle_and_comes_back(void **state) {
    vrpt t;
    (void)state;
    open_with_reclaimer(&t, &held, 500000);
    for (int round = 0; round < 2; round++) {
        give(&t, used(&t, 64 * VRPT_MIB, VRP_STREAM_LEGACY));
        (void)trim(&t, 0);
        assert_int_equal(reclaimers(), 1);
        vrp_sim_drain(t.sim);
        assert_true(falls_to(&t, 0));
        assert_true(no_reclaimer_left());
    }
    close_pool(&t);
}

static void no_thread_without_the_knob_or_against_the_flag(void **state) {
    (void)state;
    for (int flag = 0; flag < 2; flag++) {
        vrpt_options options = held;
        vrpt t;
        options.pool.flags = flag ? VRP_NO_RECLAIMER : 0;
        open_pool(&t, &options);
        VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_RECLAIMER, (uint64_t)flag));
        give(&t, used(&t, 64 * VRPT_MIB, VRP_STREAM_LEGACY));
        assert_true(trim(&t, 0).pending_bytes > 0);
        assert_int_equal(reclaimers(), 0);
        vrp_sim_drain(t.sim);
        for (int i = 0; i < 10; i++)
            moment();
        assert_true(vrp_pool_reserved_bytes(t.pool) > 0);
        VRPT_OK(vrp_pool_poll(t.pool));
        assert_int_equal(reserved(&t), 0);
        close_pool(&t);
    }
}

static int refuse_thread(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                         void *argument) {
    (void)thread;
    (void)attr;
    (void)run;
    (void)argument;
    return EAGAIN;
}

/* Then the next calls do it, each within its budget. */
static void without_a_thread_the_next_calls_do_it(void **state) {
    vrpt t;
    (void)state;
    open_with_reclaimer(&t, &held, 100000);
    vrpi_worker_create = refuse_thread;
    give(&t, used(&t, 1024 * VRPT_MIB, VRP_STREAM_LEGACY));
    assert_int_equal(trim(&t, 0).pending_bytes, 1024 * VRPT_MIB);
    assert_int_equal(reclaimers(), 0);
    vrp_sim_drain(t.sim);
    int calls = 0;
    while (reserved(&t) > 0 && calls < 1000) {
        VRPT_OK(vrp_pool_poll(t.pool));
        calls++;
    }
    vrpi_worker_create = pthread_create;
    assert_int_equal(reserved(&t), 0);
    if (t.backing == VRP_BACKING_VMM)
        assert_true(calls > 1); /* not all at once */
    close_pool(&t);
}

static void *read_mask(void *out) {
    (void)out;
    return NULL;
}

/* No handler of the application may run on the helper thread. */
static int mask_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                       void *argument) {
    sigset_t now;
    (void)run;
    (void)argument;
    if (pthread_sigmask(SIG_BLOCK, NULL, &now) != 0 || !sigismember(&now, SIGTERM) ||
        !sigismember(&now, SIGINT) || !sigismember(&now, SIGCHLD) || !sigismember(&now, SIGALRM) ||
        sigismember(&now, SIGSEGV))
        return EINVAL;
    return pthread_create(thread, attr, read_mask, NULL);
}

static void signals_stay_with_the_application(void **state) {
    vrpi_worker worker;
    sigset_t before, after;
    (void)state;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &before), 0);
    vrpi_worker_create = mask_create;
    const int error = vrpi_worker_start(&worker, read_mask, NULL, "vrp-test");
    vrpi_worker_create = pthread_create;
    assert_int_equal(error, 0);
    vrpi_worker_join(&worker);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &after), 0);
    assert_int_equal(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
}

/* ---- ends --------------------------------------------------------------------------------- */

static void pool_is_destroyed_while_memory_is_pending(void **state) {
    (void)state;
    for (int round = 0; round < 20; round++) {
        vrpt t;
        open_with_reclaimer(&t, &held, round % 2 == 0 ? 0 : 500000);
        give(&t, used(&t, 256 * VRPT_MIB, VRP_STREAM_LEGACY));
        vrp_devptr live = used(&t, VRPT_MIB, VRP_STREAM_LEGACY);
        (void)trim(&t, 0);
        if (round % 3 == 0)
            vrp_sim_drain(t.sim);                           /* the thread is in the middle of it */
        VRPT_STATUS(vrp_pool_destroy(t.pool, 0), VRP_BUSY); /* goes on as before */
        give(&t, live);
        VRPT_OK(vrp_pool_destroy(t.pool, 0));
        t.pool = NULL;
        assert_true(no_reclaimer_left());
        VRPT_REQUIRE(&t, vrpt_close_device(&t));
    }
}

static void child_of_fork_has_no_thread_and_touches_nothing(void **state) {
    vrpt t;
    int exited = -1;
    (void)state;
    open_with_reclaimer(&t, &held, 500000);
    give(&t, used(&t, 64 * VRPT_MIB, VRP_STREAM_LEGACY));
    (void)trim(&t, 0);
    pid_t child = fork();
    if (child == 0) {
        int good = vrp_trim(t.pool, 0, 0, NULL) == VRP_AFTER_FORK &&
                   vrp_pool_poll(t.pool) == VRP_AFTER_FORK &&
                   vrp_pool_destroy(t.pool, 0) == VRP_AFTER_FORK && reclaimers() == 0;
        _exit(good ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &exited, 0), child);
    assert_int_equal(exited, 0);
    vrp_sim_drain(t.sim);
    assert_true(falls_to(&t, 0)); /* the parent's goes on */
    close_pool(&t);
}

/* A process that ends while its reclaimer works: the child makes its own pool. */
static void process_ends_while_the_thread_runs(void **state) {
    (void)state;
    if (VRPT_TSAN)
        skip(); /* a thread that nobody has joined is a finding there */
    for (int round = 0; round < 5; round++) {
        int exited = -1;
        pid_t child = fork();
        if (child == 0) {
            vrpt t;
            if (!vrpt_open(&t, &held) || vrp_pool_knob_set(t.pool, VRP_KNOB_RECLAIMER, 1) != VRP_OK)
                _exit(1);
            vrp_devptr ptr = 0;
            if (vrp_alloc(t.pool, VRPT_GIB, VRP_STREAM_LEGACY, &ptr) != VRP_OK ||
                vrp_sim_launch(t.sim, VRP_STREAM_LEGACY, ptr, VRPT_GIB, 0) != VRP_OK ||
                vrp_free(t.pool, ptr, VRP_STREAM_LEGACY) != VRP_OK ||
                vrp_empty_cache(t.pool, NULL) != VRP_OK)
                _exit(2);
            vrp_sim_drain(t.sim);
            (void)fflush(NULL);
            exit(0); /* with exit handlers */
        }
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &exited, 0), child);
        assert_int_equal(exited, 0);
    }
}

static void lost_device_ends_the_thread(void **state) {
    vrpt t;
    (void)state;
    open_with_reclaimer(&t, &held, 500000);
    give(&t, used(&t, 64 * VRPT_MIB, VRP_STREAM_LEGACY));
    (void)trim(&t, 0);
    vrp_sim_fault_set(t.sim, VRP_SIM_CALL_EVENT_QUERY, 1, 1, VRP_DEVICE_LOST);
    assert_true(no_reclaimer_left());
    VRPT_OK(vrp_pool_destroy(t.pool, VRP_DESTROY_FORCE));
    vrp_driver_destroy(t.driver);
    (void)vrp_sim_destroy(t.sim);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pending_memory_goes_without_a_call),
        cmocka_unit_test(deferred_block_goes_when_its_other_stream_is_done),
        cmocka_unit_test(memory_used_again_stays),
        cmocka_unit_test(poll_and_reclaimer_share_the_work),
        cmocka_unit_test(call_stays_within_its_budget),
        cmocka_unit_test(no_budget_leaves_everything_to_the_thread),
        cmocka_unit_test(neighbours_are_unmapped_by_one_call),
        cmocka_unit_test(waiting_trim_leaves_nothing),
        cmocka_unit_test(thread_ends_when_idle_and_comes_back),
        cmocka_unit_test(no_thread_without_the_knob_or_against_the_flag),
        cmocka_unit_test(without_a_thread_the_next_calls_do_it),
        cmocka_unit_test(signals_stay_with_the_application),
        cmocka_unit_test(pool_is_destroyed_while_memory_is_pending),
        cmocka_unit_test(child_of_fork_has_no_thread_and_touches_nothing),
        cmocka_unit_test(process_ends_while_the_thread_runs),
        cmocka_unit_test(lost_device_ends_the_thread),
    };
    return vrpt_main("reclaimer", tests, VRPT_COUNT(tests), argc, argv);
}
