/* SPDX-License-Identifier: MIT */
/* Cases of others, third tier, about processes: 71 (fork while threads are
 * inside the allocator) and 77 (exit with live blocks, frees from exit
 * handlers, thread-exit hooks and destructors, a driver that shuts down). */

#include "unit_support.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- 71 ------------------------------------------------------------------------------ */

enum { FORKS = VRPT_TSAN ? 20 : 200, CHURNERS = 4 };

typedef struct churner {
    vrp_pool *pool;
    atomic_int *stop;
    uint64_t seed;
    int failed;
} churner;

static void *churn(void *user) {
    churner *c = user;
    vrpt_rng rng = {.state = c->seed};
    while (!atomic_load(c->stop)) {
        vrp_devptr ptr = 0;
        const uint64_t bytes = 1 + vrpt_rng_below(&rng, UINT64_C(1) << (9 + c->seed % 4 * 5));
        if (vrp_alloc(c->pool, bytes, VRP_STREAM_LEGACY, &ptr) != VRP_OK ||
            vrp_free(c->pool, ptr, VRP_STREAM_LEGACY) != VRP_OK)
            c->failed = 1;
    }
    return NULL;
}

/* Every kind of call, in a child whose pool may be locked for ever. */
static int child_is_turned_away(vrpt *t, vrp_devptr live) {
    vrp_devptr ptr = 0;
    vrp_stats stats = {.struct_size = sizeof stats};
    vrp_gap gap = {.struct_size = sizeof gap};
    vrp_scope scope = 0;
    const vrp_status got[] = {
        vrp_alloc(t->pool, 512, VRP_STREAM_LEGACY, &ptr),
        vrp_alloc(t->pool, 40 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr),
        vrp_free(t->pool, live, VRP_STREAM_LEGACY),
        vrp_record_stream(t->pool, live, VRP_STREAM_LEGACY),
        vrp_pool_stats_get(t->pool, &stats),
        vrp_pool_gap_compute(t->pool, &gap),
        vrp_pool_check(t->pool),
        vrp_pool_poll(t->pool),
        vrp_empty_cache(t->pool, NULL),
        vrp_scope_open(t->pool, 0, &scope),
        vrp_stream_forget(t->pool, VRP_STREAM_LEGACY),
        vrp_pool_destroy(t->pool, VRP_DESTROY_FORCE),
    };
    for (size_t i = 0; i < VRPT_COUNT(got); i++)
        if (got[i] != VRP_AFTER_FORK)
            return 10 + (int)i;
    return 0;
}

static void assert_exits_with_zero(pid_t child) {
    int how = 0;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        fail_msg("the child ended with %s %d", WIFEXITED(how) ? "status" : "signal",
                 WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how));
}

static void case_071_child_of_a_fork_is_turned_away_and_never_hangs(void **state) {
    vrpt t;
    atomic_int stop = 0;
    pthread_t threads[CHURNERS];
    churner churners[CHURNERS];
    (void)state;
    open_pool(&t, NULL);
    vrp_devptr live = take(&t, 5000);
    for (int i = 0; i < CHURNERS; i++) {
        churners[i] = (churner){.pool = t.pool, .stop = &stop, .seed = (uint64_t)i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &churners[i]), 0);
    }
    (void)fflush(NULL);
    int bad = 0;
    for (int i = 0; i < FORKS && bad == 0; i++) {
        int how = 0;
        pid_t child = fork();
        if (child == 0) {
            (void)alarm(5);
            _exit(child_is_turned_away(&t, live));
        }
        bad =
            child < 0 || waitpid(child, &how, 0) != child || !WIFEXITED(how) ? 1 : WEXITSTATUS(how);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < CHURNERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(churners[i].failed, 0);
    }
    assert_int_equal(bad, 0);
    give(&t, live);
    close_pool(&t);
}

static void case_071_child_may_make_a_pool_of_its_own(void **state) {
    const vrpt_options options = {.pool.flags = VRP_NO_RECLAIMER};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    (void)take(&t, 5000);
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        vrpt mine;
        (void)alarm(20);
        if (!vrpt_open(&mine, NULL))
            _exit(1);
        vrp_devptr ptr = 0;
        if (vrp_alloc(mine.pool, 5000, VRP_STREAM_LEGACY, &ptr) != VRP_OK)
            _exit(2);
        _exit(vrpt_close(&mine) ? 0 : 3);
    }
    assert_exits_with_zero(child);
    close_pool(&t);
}

/* ---- 77 ------------------------------------------------------------------------------ */

/* In static storage, as programs have it; used by the child alone. */
static vrpt at_exit;
static vrp_devptr left[6];
static size_t next_left;
static int destroyed, exiting;

/* A free that comes while the process ends may be told that things are shut
 * down; anything else is a defect, and so is a crash. */
static void free_late(void) {
    if (at_exit.pool == NULL || next_left >= VRPT_COUNT(left))
        return;
    vrp_status status = vrp_free(at_exit.pool, left[next_left++], VRP_STREAM_LEGACY);
    if (status != (destroyed ? VRP_SHUT_DOWN : VRP_OK) && status != VRP_SHUT_DOWN)
        _exit(40 + (int)status);
}

__attribute__((destructor)) static void free_from_destructor(void) {
    if (!exiting)
        return;
    free_late();
    vrp_devptr ptr = 0;
    vrp_status status = vrp_alloc(at_exit.pool, 32 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr);
    if (status != VRP_OK && status != VRP_SHUT_DOWN && status != VRP_OUT_OF_DEVICE_MEMORY)
        _exit(70 + (int)status);
}

static void free_from_thread_exit(void *user) {
    (void)user;
    free_late();
}

static void *end_with_a_hook(void *user) {
    pthread_key_t *key = user;
    if (pthread_setspecific(*key, &at_exit) != 0)
        _exit(30);
    /* so that the pool has a hook of its own on this thread, of either order */
    if (vrp_alloc(at_exit.pool, 700, VRP_STREAM_LEGACY, &left[0]) != VRP_OK)
        _exit(31);
    return NULL;
}

enum { EXIT_SHUT_DOWN = 1, EXIT_DESTROYED = 2, EXIT_WORKING = 4 };

static void child_that_exits(unsigned how) {
    static const uint64_t sizes[] = {1, 512, 40000, VRPT_MIB, 5 * VRPT_MIB, 70 * VRPT_MIB};
    const vrpt_options options = {.completion =
                                      how & EXIT_WORKING ? VRP_SIM_MANUAL : VRP_SIM_IMMEDIATE};
    pthread_key_t key;
    pthread_t thread;
    (void)alarm(30);
    if (pthread_key_create(&key, free_from_thread_exit) != 0)
        _exit(20);
    if (!vrpt_open(&at_exit, &options))
        _exit(21);
    for (size_t i = 0; i < VRPT_COUNT(left); i++)
        if (vrp_alloc(at_exit.pool, sizes[i], VRP_STREAM_LEGACY, &left[i]) != VRP_OK)
            _exit(22);
    if (how & EXIT_WORKING &&
        vrp_sim_launch(at_exit.sim, VRP_STREAM_LEGACY, left[5], sizes[5], 0) != VRP_OK)
        _exit(23);
    if (vrp_free(at_exit.pool, left[0], VRP_STREAM_LEGACY) != VRP_OK)
        _exit(24);
    if (how & EXIT_SHUT_DOWN)
        vrp_sim_fault_set(at_exit.sim, -1, 1, UINT64_MAX, VRP_SHUT_DOWN);
    else if (pthread_create(&thread, NULL, end_with_a_hook, &key) != 0 ||
             pthread_join(thread, NULL) != 0)
        _exit(25);
    if (how & EXIT_DESTROYED) {
        vrp_status status = vrp_pool_destroy(at_exit.pool, VRP_DESTROY_FORCE);
        destroyed = status == VRP_OK;
        if (!destroyed && (how & EXIT_SHUT_DOWN) == 0)
            _exit(26);
    }
    next_left = how & EXIT_SHUT_DOWN ? 1 : next_left;
    if (atexit(free_late) != 0)
        _exit(27);
    exiting = 1;
    exit(0);
}

static void case_077_process_exits_with_live_blocks(void **state) {
    (void)state;
    for (unsigned how = 0; how < 8; how++) {
        (void)fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            child_that_exits(how);
        assert_exits_with_zero(child);
    }
}

/* The driver goes first, the pool's owner calls on: statuses, no crash, and no
 * call that could touch what is gone. */
static void case_077_calls_after_the_driver_shut_down(void **state) {
    static const uint64_t sizes[] = {512, 40000, 5 * VRPT_MIB, 70 * VRPT_MIB};
    vrpt t;
    vrp_devptr ptrs[VRPT_COUNT(sizes)];
    (void)state;
    open_pool(&t, NULL);
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++)
        ptrs[i] = take(&t, sizes[i]);
    vrp_sim_fault_set(t.sim, -1, 1, UINT64_MAX, VRP_SHUT_DOWN);
    vrp_devptr more = 0;
    VRPT_STATUS(vrp_alloc(t.pool, 512 * VRPT_MIB, VRP_STREAM_LEGACY, &more), VRP_SHUT_DOWN);
    assert_int_equal(more, 0);
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++)
        give(&t, ptrs[i]);
    vrp_status status = vrp_empty_cache(t.pool, NULL);
    assert_true(status == VRP_OK || status == VRP_SHUT_DOWN);
    VRPT_OK(vrp_pool_check(t.pool));
    vrp_sim_faults_clear(t.sim);
    (void)!vrp_pool_destroy(t.pool, VRP_DESTROY_FORCE);
    vrp_driver_destroy(t.driver);
    (void)vrp_sim_destroy(t.sim); /* what a driver that is gone held is gone */
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_071_child_of_a_fork_is_turned_away_and_never_hangs),
        cmocka_unit_test(case_071_child_may_make_a_pool_of_its_own),
        cmocka_unit_test(case_077_process_exits_with_live_blocks),
        cmocka_unit_test(case_077_calls_after_the_driver_shut_down),
    };
    return vrpt_main("cases tier 3, processes", tests, VRPT_COUNT(tests), argc, argv);
}
