/* SPDX-License-Identifier: MIT */
/* Calls that meet others under way: trims and statistics while threads hit
 * their caches, forks, the per-thread default stream, destruction. */

#include "threads.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static vrpt_trouble trouble;
static atomic_int stop;

typedef struct worker {
    vrpt *t;
    uint64_t seed;
    vrp_stream stream;
    int until_shut_down;
    uint64_t done;
} worker;

static void begin(vrpt *t, const vrpt_options *options) {
    memset(&trouble, 0, sizeof trouble);
    atomic_store(&stop, 0);
    VRPT_REQUIRE(t, vrpt_open(t, options));
}

static void end(vrpt *t) {
    if (atomic_load(&trouble.noted))
        fail_msg("%s", trouble.why);
    VRPT_REQUIRE(t, vrpt_close(t));
}

/* Allocates and frees until told to stop, or until the pool is gone. */
static void *churn(void *argument) {
    worker *w = argument;
    vrpt_rng rng = {w->seed};
    vrp_devptr held[16] = {0};
    vrp_status status = VRP_OK;
    while (!atomic_load(&stop) && status == VRP_OK) {
        size_t slot = vrpt_rng_below(&rng, VRPT_COUNT(held));
        uint64_t top = vrpt_rng_below(&rng, 8) ? 16 * VRPT_KIB : 2 * VRPT_MIB;
        status = vrp_free(w->t->pool, held[slot], w->stream);
        held[slot] = 0;
        if (status == VRP_OK)
            status = vrp_alloc(w->t->pool, 1 + vrpt_rng_below(&rng, top), w->stream, &held[slot]);
        w->done++;
    }
    for (size_t i = 0; i < VRPT_COUNT(held) && status == VRP_OK; i++)
        status = vrp_free(w->t->pool, held[i], w->stream);
    if (!w->until_shut_down || status != VRP_SHUT_DOWN)
        (void)vrpt_worker_ok(&trouble, "churn", status);
    return NULL;
}

static void start(vrpt *t, worker *workers, pthread_t *threads, size_t count, int until) {
    for (size_t i = 0; i < count; i++) {
        workers[i] = (worker){t, 300 + i, vrpt_stream_create(t), until, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &workers[i]), 0);
    }
}

static void join(pthread_t *threads, size_t count) {
    atomic_store(&stop, 1);
    for (size_t i = 0; i < count; i++)
        (void)pthread_join(threads[i], NULL);
}

static void rest_ms(long ms) {
    const struct timespec moment = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&moment, NULL);
}

/* ---- Trim, statistics, walks ------------------------------------------------------- */

static void trims_and_walks_meet_cache_hits(void **state) {
    (void)state;
    vrpt t;
    worker workers[4];
    pthread_t threads[4];
    begin(&t, NULL);
    start(&t, workers, threads, 4, 0);
    for (int i = 0; i < 25 * VRPT_SCALE && !atomic_load(&trouble.noted); i++) {
        vrp_trim_result result = {.struct_size = sizeof result};
        vrp_gap gap = {.struct_size = sizeof gap};
        VRPT_OK(vrp_empty_cache(t.pool, &result));
        VRPT_OK(vrp_pool_gap_compute(t.pool, &gap));
        vrp_stats stats = vrpt_stats(&t);
        if (stats.reserved_bytes.current > VRPT_GIB || stats.reserved_bytes.peak > VRPT_GIB ||
            stats.allocated_bytes.current > VRPT_GIB || stats.blocks.current > 1000000)
            vrpt_note(&trouble, "counters that cannot be: allocated %" PRIu64 ", reserved %" PRIu64,
                      stats.allocated_bytes.current, stats.reserved_bytes.current);
        if (vrp_pool_check(t.pool) != VRP_OK)
            vrpt_note(&trouble, "check amid calls: %s", vrpt_detail());
        if (i % 4 == 0)
            VRPT_OK(vrp_pool_poll(t.pool));
    }
    join(threads, 4);
    end(&t);
}

static void *streams_of_its_own(void *argument) {
    worker *w = argument;
    for (int i = 0; i < 30 * VRPT_SCALE; i++) {
        vrp_devptr p = 0;
        vrp_stream stream = vrpt_stream_create(w->t);
        vrp_status status = vrp_alloc(w->t->pool, 5000 + 300000 * (uint64_t)(i % 3), stream, &p);
        if (status == VRP_OK)
            status = vrp_free(w->t->pool, p, stream);
        if (status == VRP_OK)
            status = vrp_stream_forget(w->t->pool, stream);
        vrpt_stream_destroy(w->t, stream);
        if (!vrpt_worker_ok(&trouble, "stream life", status))
            break;
    }
    return NULL;
}

static void streams_come_and_go_on_many_threads(void **state) {
    (void)state;
    vrpt t;
    worker workers[VRPT_THREADS];
    begin(&t, NULL);
    for (size_t i = 0; i < VRPT_THREADS; i++)
        workers[i] = (worker){.t = &t};
    vrpt_threads_run(VRPT_THREADS, streams_of_its_own, workers, sizeof *workers);
    end(&t);
}

/* ---- The per-thread default stream (cub 373) ---------------------------------------- */

typedef struct default_stream_user {
    vrpt *t;
    vrp_devptr ptr;
    vrpt_gate freed, checked;
} default_stream_user;

static void *uses_its_default_stream(void *argument) {
    default_stream_user *user = argument;
    vrp_status status = vrp_alloc(user->t->pool, VRPT_MIB, VRP_STREAM_PER_THREAD, &user->ptr);
    if (status == VRP_OK)
        status = vrp_sim_launch(user->t->sim, VRP_STREAM_PER_THREAD, user->ptr, VRPT_MIB, 1000);
    if (status == VRP_OK)
        status = vrp_free(user->t->pool, user->ptr, VRP_STREAM_PER_THREAD);
    (void)vrpt_worker_ok(&trouble, "its default stream", status);
    vrpt_gate_open(&user->freed);
    if (!vrpt_gate_wait(&user->checked))
        vrpt_note(&trouble, "the other thread hangs");
    return NULL;
}

static void default_streams_of_threads_are_apart(void **state) {
    (void)state;
    vrpt t;
    pthread_t thread;
    vrp_devptr mine = 0;
    vrpt_options options = {.sim_only = 1, .completion = VRP_SIM_MANUAL};
    begin(&t, &options);
    default_stream_user user = {
        .t = &t, .freed = VRPT_GATE_INITIALIZER, .checked = VRPT_GATE_INITIALIZER};
    assert_int_equal(pthread_create(&thread, NULL, uses_its_default_stream, &user), 0);
    int freed = vrpt_gate_wait(&user.freed);
    vrp_status status = vrp_alloc(t.pool, VRPT_MIB, VRP_STREAM_PER_THREAD, &mine);
    if (status == VRP_OK)
        status = vrp_sim_launch(t.sim, VRP_STREAM_PER_THREAD, mine, VRPT_MIB, 1000);
    vrpt_gate_open(&user.checked);
    (void)pthread_join(thread, NULL);
    assert_true(freed);
    VRPT_OK(status);
    assert_true(mine + VRPT_MIB <= user.ptr || user.ptr + VRPT_MIB <= mine);
    end(&t);
}

/* ---- Fork ------------------------------------------------------------------------------ */

/* In the child: every call answers, and answers AFTER_FORK. */
static int child_is_told(vrp_pool *pool, vrp_devptr block) {
    vrp_devptr p = 77;
    vrp_stats stats = {.struct_size = sizeof stats};
    (void)alarm(5);
    if (vrp_alloc(pool, 1000, 0, &p) != VRP_AFTER_FORK || p != 77)
        return 2;
    if (vrp_alloc(pool, 5 * VRPT_MIB, 0, &p) != VRP_AFTER_FORK)
        return 3;
    if (vrp_free(pool, block, 0) != VRP_AFTER_FORK)
        return 4;
    if (vrp_pool_stats_get(pool, &stats) != VRP_AFTER_FORK)
        return 5;
    if (vrp_empty_cache(pool, NULL) != VRP_AFTER_FORK || vrp_pool_poll(pool) != VRP_AFTER_FORK)
        return 6;
    return 0;
}

static void fork_amid_calls_tells_the_child(void **state) {
    (void)state;
    vrpt t;
    worker workers[4];
    pthread_t threads[4];
    vrp_devptr block = 0;
    int worst = 0;
    begin(&t, NULL);
    VRPT_OK(vrp_alloc(t.pool, 1000, 0, &block));
    start(&t, workers, threads, 4, 0);
    for (int i = 0; i < (VRPT_TSAN ? 20 : 200) && worst == 0; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(child_is_told(t.pool, block));
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child)
            break;
        worst = WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
    }
    join(threads, 4);
    assert_int_equal(worst, 0); /* 114: the child hung */
    end(&t);
}

/* ---- Destruction ------------------------------------------------------------------------- */

static void calls_during_destruction_are_shut_down(void **state) {
    (void)state;
    for (int round = 0; round < 3 * VRPT_SCALE; round++) {
        vrpt t;
        worker workers[4];
        pthread_t threads[4];
        vrp_devptr p = 0;
        begin(&t, NULL);
        start(&t, workers, threads, 4, 1);
        rest_ms(3);
        vrp_status status = vrp_pool_destroy(t.pool, VRP_DESTROY_FORCE);
        join(threads, 4);
        VRPT_OK(status);
        if (atomic_load(&trouble.noted))
            fail_msg("%s", trouble.why);
        VRPT_STATUS(vrp_alloc(t.pool, 100, 0, &p), VRP_SHUT_DOWN);
        VRPT_REQUIRE(&t, vrpt_close_device(&t));
    }
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(trims_and_walks_meet_cache_hits),
        cmocka_unit_test(streams_come_and_go_on_many_threads),
        cmocka_unit_test(default_streams_of_threads_are_apart),
        cmocka_unit_test(fork_amid_calls_tells_the_child),
        cmocka_unit_test(calls_during_destruction_are_shut_down),
    };
    (void)argc;
    static char sim[] = "sim";
    char *sim_only[] = {argv[0], sim};
    return vrpt_main("conc_calls", tests, VRPT_COUNT(tests), 2, sim_only);
}
