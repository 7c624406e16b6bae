/* SPDX-License-Identifier: MIT */
/* The rules of stream order on silicon, each by data that kernels check.
 *
 *     test_order [cuda:N]                 every rule, both backings
 *     test_order cuda:N naive RULE        one rule with its protection left out:
 *                                         exit status 0 if that was noticed
 *     test_order cuda:N import FD BYTES   the other process of rule 8
 *
 * A naive run has a process of its own, since it may end the device's context. */

#include "graphs.h"
#include "kernels.h"
#include "support/vrp_test.h"
#include "vrampool/cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS UINT64_C(1000000)

static int device_ordinal;
static int naive; /* the rule whose protection is left out; 0: none */
static const char *self;

#define CUDA_OK(call)                                                  \
    do {                                                               \
        int cuda_error = (call);                                       \
        if (cuda_error != 0)                                           \
            fail_msg("%s: %s", #call, vrpt_kernels_error(cuda_error)); \
    } while (0)

/* ---- a driver whose answers can be wrong ---------------------------------------------- */

static struct {
    vrp_driver_ops real;
    void *ctx;
} under;

static vrp_status says_done(void *ctx, vrp_event event, int *out_done) {
    (void)ctx;
    (void)event;
    *out_done = 1;
    return VRP_OK;
}

static vrp_status does_not_wait(void *ctx, vrp_stream stream, vrp_event event) {
    (void)ctx;
    (void)stream;
    (void)event;
    return VRP_OK;
}

/* An event on the legacy stream in place of one on the whole context. */
static vrp_status records_legacy(void *ctx, vrp_event event) {
    return under.real.event_record(ctx, event, VRP_STREAM_LEGACY);
}

/* ---- the rig ------------------------------------------------------------------------------ */

typedef struct rig {
    vrpt t;
    vrp_driver *below;
    vrp_stream a, b;
} rig;

static void rig_open(rig *r, uint64_t limit_bytes, uint32_t exportable) {
    vrp_cuda_config cuda = {
        .struct_size = sizeof cuda, .ordinal = (uint32_t)device_ordinal, .exportable = exportable};
    vrp_pool_config config = {
        .struct_size = sizeof config, .backing = vrpt_now.backing, .limit_bytes = limit_bytes};
    static int ready;
    if (naive == 2)
        config.flags = VRP_NO_DEVICE_WAITS; /* that would be another protection */
    memset(r, 0, sizeof *r);
    VRPT_OK(vrp_cuda_driver_create(&cuda, &r->below));
    under.real = *vrp_driver_ops_get(r->below, &under.ctx);
    vrp_driver_ops ops = under.real;
    ops.destroy = NULL;
    if (naive == 2)
        ops.event_query = says_done;
    if (naive == 3)
        ops.context_record = records_legacy;
    if (naive == 7)
        ops.stream_wait_event = does_not_wait;
    VRPT_OK(vrp_driver_create(&ops, under.ctx, &r->t.driver));
    VRPT_OK(vrp_pool_create(r->t.driver, &config, &r->t.pool));
    r->t.backing = vrpt_now.backing;
    if (!ready)
        CUDA_OK(vrpt_kernels_begin(device_ordinal));
    ready = 1;
    r->a = vrpt_stream_create(&r->t);
    r->b = vrpt_stream_create(&r->t);
    assert_true(r->a != 0 && r->b != 0);
}

static void rig_close(rig *r) {
    vrpt_mismatches seen;
    CUDA_OK(vrpt_device_finish(&seen));
    VRPT_OK(vrp_pool_check(r->t.pool));
    VRPT_OK(vrp_trim(r->t.pool, 0, VRP_TRIM_WAIT, NULL));
    assert_int_equal(vrp_pool_reserved_bytes(r->t.pool), 0);
    VRPT_OK(vrp_pool_destroy(r->t.pool, 0));
    vrpt_stream_destroy(&r->t, r->a);
    vrpt_stream_destroy(&r->t, r->b);
    vrp_driver_destroy(r->t.driver);
    vrp_driver_destroy(r->below);
}

static vrp_devptr take(rig *r, uint64_t bytes, vrp_stream stream) {
    vrp_devptr ptr = 0;
    VRPT_OK(vrp_alloc(r->t.pool, bytes, stream, &ptr));
    return ptr;
}

static void fill(vrp_stream stream, vrp_devptr at, uint64_t bytes, uint64_t seed) {
    CUDA_OK(vrpt_kernel_fill(stream, at, bytes, at, seed));
}

static void check_late(vrp_stream stream, vrp_devptr at, uint64_t bytes, uint64_t seed) {
    CUDA_OK(vrpt_kernel_check(stream, at, bytes, at, seed, 150 * MS));
}

/* The end of a scenario: nothing was wrong, or, without protection, it was seen. */
static void judge(void) {
    vrpt_mismatches seen = {0};
    int error = vrpt_device_finish(&seen);
    if (naive != 0) { /* the rest of the rig is not worth ending */
        int caught = seen.count > 0 || error != 0;
        (void)printf("rule %d, naive: %s, %llu words wrong, %s\n", naive,
                     caught ? "caught" : "NOT NOTICED", (unsigned long long)seen.count,
                     vrpt_kernels_error(error));
        (void)fflush(stdout);
        _exit(caught ? 0 : 1);
    }
    CUDA_OK(error);
    assert_int_equal(seen.count, 0);
}

static const uint64_t size = 64 * VRPT_MIB;

/* ---- 2 and 7: another stream ------------------------------------------------------------------
 */

/* Both protections are about the same hand-over: the pool asks whether the first
 * stream is done, or makes the second wait on the device. */
static void another_stream_gets_memory_in_order(void **state) {
    rig r;
    (void)state;
    rig_open(&r, size, 0);
    for (uint64_t round = 0; round < 3; round++) {
        vrp_stream stream = round % 2 != 0 ? r.b : r.a;
        vrp_devptr ptr = take(&r, size, stream);
        fill(stream, ptr, size, round);
        check_late(stream, ptr, size, round);
        VRPT_OK(vrp_free(r.t.pool, ptr, stream));
    }
    judge();
    rig_close(&r);
}

/* ---- 3: a free that names no stream -------------------------------------------------------------
 */

static void free_of_any_stream_waits_for_hidden_work(void **state) {
    rig r;
    (void)state;
    rig_open(&r, size, 0);
    vrp_devptr ptr = take(&r, size, r.a);
    fill(r.a, ptr, size, 1);
    CUDA_OK(vrpt_stream_follow(r.b, r.a)); /* the pool never hears of r.b */
    check_late(r.b, ptr, size, 1);
    CUDA_OK(vrpt_stream_finish(r.a));
    VRPT_OK(vrp_free(r.t.pool, ptr, VRP_STREAM_ANY));
    ptr = take(&r, size, r.a);
    fill(r.a, ptr, size, 2);
    VRPT_OK(vrp_free(r.t.pool, ptr, r.a));
    judge();
    rig_close(&r);
}

/* ---- 4: the per-thread default stream
 * -------------------------------------------------------------- */

typedef struct owner {
    rig *r;
    pthread_barrier_t freed, asked;
    vrp_devptr ptr;
} owner;

static void *own_and_free(void *user) {
    owner *o = user;
    if (vrp_alloc(o->r->t.pool, size, VRP_STREAM_PER_THREAD, &o->ptr) == VRP_OK) {
        (void)vrpt_kernel_fill(VRP_STREAM_PER_THREAD, o->ptr, size, o->ptr, 1);
        (void)vrpt_kernel_check(VRP_STREAM_PER_THREAD, o->ptr, size, o->ptr, 1, 300 * MS);
        (void)!vrp_free(o->r->t.pool, o->ptr, VRP_STREAM_PER_THREAD);
    }
    (void)pthread_barrier_wait(&o->freed);
    (void)pthread_barrier_wait(&o->asked); /* until then it makes no call */
    return NULL;
}

static void per_thread_stream_is_recorded_by_its_owner(void **state) {
    rig r;
    owner o = {.r = &r};
    pthread_t thread;
    vrp_devptr ptr = 0;
    (void)state;
    rig_open(&r, size, 0);
    assert_int_equal(pthread_barrier_init(&o.freed, NULL, 2), 0);
    assert_int_equal(pthread_barrier_init(&o.asked, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, own_and_free, &o), 0);
    (void)pthread_barrier_wait(&o.freed);
    assert_true(o.ptr != 0);
    vrp_alloc_info info = {
        .struct_size = sizeof info, .bytes = size, .stream = r.a, .flags = VRP_ALLOC_NO_WAIT};
    vrp_status status = vrp_alloc_ex(r.t.pool, &info, &ptr);
    if (naive == 4) { /* whoever records on that handle records on his own stream */
        int done = 0;
        CUDA_OK(vrpt_record_and_ask(VRP_STREAM_PER_THREAD, &done));
        if (done)
            fill(r.a, o.ptr, size, 2);
    } else {
        assert_true(status != VRP_OK); /* nobody but the owner can know */
    }
    (void)pthread_barrier_wait(&o.asked);
    assert_int_equal(pthread_join(thread, NULL), 0); /* its end makes up for the record */
    if (naive == 0) {
        ptr = take(&r, size, r.a);
        fill(r.a, ptr, size, 2);
        VRPT_OK(vrp_free(r.t.pool, ptr, r.a));
    }
    (void)pthread_barrier_destroy(&o.freed);
    (void)pthread_barrier_destroy(&o.asked);
    judge();
    rig_close(&r);
}

/* ---- 5: destroyed streams
 * ----------------------------------------------------------------------------- */

static void handle_of_a_destroyed_stream_is_another_stream(void **state) {
    enum { TRIES = 64 };
    vrp_stream again[TRIES];
    int made = 0;
    rig r;
    (void)state;
    rig_open(&r, size, 0);
    vrp_stream old = vrpt_stream_create(&r.t);
    vrp_devptr ptr = take(&r, size, old);
    fill(old, ptr, size, 1);
    check_late(old, ptr, size, 1);
    VRPT_OK(vrp_free(r.t.pool, ptr, old));
    if (naive != 5)
        VRPT_OK(vrp_stream_forget(r.t.pool, old));
    vrpt_stream_destroy(&r.t, old);
    do
        again[made] = vrpt_stream_create(&r.t);
    while (again[made++] != old && made < TRIES);
    vrp_stream fresh = again[made - 1]; /* the same number, if the driver gives it out again */
    ptr = take(&r, size, fresh);
    fill(fresh, ptr, size, 2);
    VRPT_OK(vrp_free(r.t.pool, ptr, fresh));
    judge();
    while (made-- > 0) {
        VRPT_OK(vrp_stream_forget(r.t.pool, again[made]));
        vrpt_stream_destroy(&r.t, again[made]);
    }
    rig_close(&r);
}

/* ---- 6: captures and graph pools
 * -------------------------------------------------------------------------- */

typedef struct busy {
    rig *r;
    vrp_stream stream;
    int rounds;
} busy;

/* What another thread does to the pool while a stream captures in global mode. */
static void *use_the_pool(void *user) {
    busy *b = user;
    for (int i = 0; i < 50; i++) {
        vrp_devptr ptr = 0;
        if (naive == 61)
            (void)vrpt_unrelated_query();
        if (vrp_alloc(b->r->t.pool, (uint64_t)(i + 1) * VRPT_MIB, b->stream, &ptr) != VRP_OK)
            continue;
        (void)vrpt_kernel_fill(b->stream, ptr, VRPT_MIB, ptr, 3);
        (void)!vrp_free(b->r->t.pool, ptr, i % 3 == 0 ? VRP_STREAM_ANY : b->stream);
        (void)!vrp_pool_poll(b->r->t.pool);
        if (i % 10 == 9)
            (void)!vrp_empty_cache(b->r->t.pool, NULL);
        b->rounds++;
    }
    return NULL;
}

static void capture_survives_other_threads(void **state) {
    uint64_t graph = 0;
    vrp_graph_pool *g = NULL;
    pthread_t thread;
    rig r;
    (void)state;
    rig_open(&r, 0, 0);
    (void)vrpt_unrelated_query();
    busy b = {.r = &r, .stream = r.b};
    VRPT_OK(vrp_graph_pool_create(r.t.pool, &g));
    VRPT_OK(vrp_graph_pool_begin(g, r.a));
    CUDA_OK(vrpt_capture_begin(r.a));
    assert_int_equal(pthread_create(&thread, NULL, use_the_pool, &b), 0);
    for (int i = 0; i < 20; i++) { /* memory comes and goes in the capture too */
        vrp_devptr ptr = take(&r, (uint64_t)(i + 1) * VRPT_MIB, r.a);
        (void)vrpt_kernel_fill(r.a, ptr, VRPT_MIB, ptr, 4);
        (void)vrpt_kernel_check(r.a, ptr, VRPT_MIB, ptr, 4, 0);
        VRPT_OK(vrp_free(r.t.pool, ptr, r.a));
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    int error = vrpt_capture_end(r.a, &graph);
    if (naive == 61) {
        (void)printf("rule 6, naive: %s (%s)\n", error != 0 ? "caught" : "NOT NOTICED",
                     vrpt_kernels_error(error));
        (void)fflush(stdout);
        _exit(error != 0 ? 0 : 1);
    }
    CUDA_OK(error);
    assert_int_equal(b.rounds, 50);
    VRPT_OK(vrp_graph_pool_end(g, r.a));
    CUDA_OK(vrpt_graph_launch(graph, r.b));
    judge();
    CUDA_OK(vrpt_graph_destroy(graph));
    VRPT_OK(vrp_graph_pool_release(g, NULL, 0));
    rig_close(&r);
}

/* The graph is released while it runs elsewhere, and others want its memory. */
static void graph_memory_is_released_behind_its_launch(void **state) {
    uint64_t graph = 0;
    vrp_graph_pool *g = NULL;
    vrp_devptr ptr = 0;
    rig r;
    (void)state;
    rig_open(&r, size, 0);
    VRPT_OK(vrp_graph_pool_create(r.t.pool, &g));
    if (naive != 6)
        VRPT_OK(vrp_graph_pool_begin(g, r.a));
    else
        ptr = take(&r, size, r.a); /* from the pool itself, which knows of no graph */
    CUDA_OK(vrpt_capture_begin(r.a));
    if (naive != 6)
        ptr = take(&r, size, r.a);
    fill(r.a, ptr, size, 1);
    check_late(r.a, ptr, size, 1);
    if (naive != 6)
        VRPT_OK(vrp_free(r.t.pool, ptr, r.a));
    CUDA_OK(vrpt_capture_end(r.a, &graph));
    if (naive != 6)
        VRPT_OK(vrp_graph_pool_end(g, r.a));
    else
        VRPT_OK(vrp_free(r.t.pool, ptr, r.a));
    CUDA_OK(vrpt_graph_launch(graph, r.b));
    CUDA_OK(vrpt_stream_finish(r.a));
    VRPT_OK(vrp_graph_pool_release(g, &r.b, 1));
    ptr = take(&r, size, r.a);
    fill(r.a, ptr, size, 2);
    VRPT_OK(vrp_free(r.t.pool, ptr, r.a));
    judge();
    CUDA_OK(vrpt_graph_destroy(graph));
    rig_close(&r);
}

/* ---- 8: exported blocks
 * --------------------------------------------------------------------------------------- */

/* Another process opens it; exit status 1 + the first word, or 0. */
static int word_in_another_process(int fd, uint64_t bytes) {
    char device[32], number[32], length[32];
    int status = 0;
    (void)snprintf(device, sizeof device, "cuda:%d", device_ordinal);
    (void)snprintf(number, sizeof number, "%d", fd);
    (void)snprintf(length, sizeof length, "%llu", (unsigned long long)bytes);
    pid_t child = fork();
    if (child == 0) {
        (void)execl(self, self, device, "import", number, length, (char *)NULL);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status) - 1;
}

static void each_exported_block_opens_at_its_own_bytes(void **state) {
    enum { COUNT = 4 };
    vrp_devptr ptr[COUNT] = {0};
    rig r;
    (void)state;
    if (vrpt_now.backing != VRP_BACKING_VMM)
        skip(); /* legacy IPC opens at the allocation's base: offset_bytes says where */
    rig_open(&r, 0, 1);
    for (int i = 0; i < COUNT; i++) {
        vrp_alloc_info info = {.struct_size = sizeof info,
                               .bytes = VRPT_MIB,
                               .stream = r.a,
                               .flags = VRP_ALLOC_EXPORTABLE};
        VRPT_OK(vrp_alloc_ex(r.t.pool, &info, &ptr[i]));
        CUDA_OK(vrpt_kernel_fill(r.a, ptr[i], VRPT_MIB, 0, (uint64_t)i));
    }
    CUDA_OK(vrpt_stream_finish(r.a));
    for (int i = 0; i < COUNT; i++) {
        vrp_export_info out = {.struct_size = sizeof out};
        uint32_t word = 0;
        vrp_status status = vrp_block_export(r.t.pool, ptr[i], VRP_EXPORT_POSIX_FD, &out);
        if (status == VRP_NOT_SUPPORTED && i == 0) {
            (void)printf("descriptors cannot be exported here: %s\n", vrpt_detail());
            break;
        }
        VRPT_OK(status);
        assert_int_equal(out.offset_bytes, 0);
        CUDA_OK(vrpt_read_word(ptr[i], &word));
        int fd = dup((int)out.fd); /* inherited by the child */
        assert_int_equal(word_in_another_process(fd, out.bytes), (int)(word % 251));
        (void)close(fd);
        (void)close((int)out.fd);
        VRPT_OK(vrp_block_export_close(r.t.pool, ptr[i]));
    }
    for (int i = 0; i < COUNT; i++)
        VRPT_OK(vrp_free(r.t.pool, ptr[i], r.a));
    rig_close(&r);
}

static int import(int argc, char **argv) {
    uint32_t word = 0;
    if (argc < 5 || vrpt_import_and_read(device_ordinal, atoi(argv[3]), strtoull(argv[4], NULL, 10),
                                         &word) != 0)
        return 0;
    return 1 + (int)(word % 251);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_stream_gets_memory_in_order),
        cmocka_unit_test(free_of_any_stream_waits_for_hidden_work),
        cmocka_unit_test(per_thread_stream_is_recorded_by_its_owner),
        cmocka_unit_test(handle_of_a_destroyed_stream_is_another_stream),
        cmocka_unit_test(capture_survives_other_threads),
        cmocka_unit_test(graph_memory_is_released_behind_its_launch),
        cmocka_unit_test(each_exported_block_opens_at_its_own_bytes),
    };
    static const struct {
        int rule, test;
    } by_rule[] = {{2, 0}, {3, 1}, {4, 2}, {5, 3}, {61, 4}, {6, 5}, {7, 0}};
    self = argv[0];
    for (int i = 1; i < argc; i++)
        (void)sscanf(argv[i], "cuda:%d", &device_ordinal);
    if (argc > 2 && strcmp(argv[2], "import") == 0)
        return import(argc, argv);
    if (vrp_cuda_device_count() <= (uint32_t)device_ordinal) {
        (void)printf("skipped: no CUDA device %d\n", device_ordinal);
        return VRPT_SKIP;
    }
    if (argc > 3 && strcmp(argv[2], "naive") == 0) {
        naive = atoi(argv[3]);
        argc = 2;
        for (size_t i = 0; i < VRPT_COUNT(by_rule); i++)
            if (by_rule[i].rule == naive) /* it ends the process if it noticed something */
                return vrpt_main("order", &tests[by_rule[i].test], 1, argc, argv);
        return 2;
    }
    return vrpt_main("order", tests, VRPT_COUNT(tests), argc, argv);
}
