/* SPDX-License-Identifier: MIT */
/* Trims on a device that is busy: how long the call takes, how soon the driver
 * reports the memory free, and what launches of another thread notice of it.
 *
 *     test_cuda_trim [cuda:N]
 *
 * It runs as test_cuda_driver.c says, and prints what it measures. That nothing
 * waits for the running kernel is always checked; the figures are held against
 * their targets where VRAMPOOL_TEST_TIMES=1 says that the machine is quiet. */

#include "gpu_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define BUSY_NS (100 * UINT64_C(1000000))
#define ALL_BYTES (2 * VRPT_GIB)

enum { ROUNDS = 7, LAUNCHES = 20000, CALL_US = 1000, BACK_US = 5000 };

static uint64_t now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t free_on_device(void) {
    uint64_t free_bytes = 0, total_bytes = 0;
    VRPT_OK(GPU(mem_info, &free_bytes, &total_bytes));
    return free_bytes;
}

static vrp_pool *pool_new(void) {
    vrp_pool_config config = {
        .struct_size = sizeof config, .backing = VRP_BACKING_VMM, .gap_rule = VRP_GAP_RULE_OFF};
    vrp_pool *pool = NULL;
    VRPT_OK(vrp_pool_create(gpu.driver, &config, &pool));
    return pool;
}

/* Makes the pool hold that many idle blocks, the device quiet. */
static void fill(vrp_pool *pool, uint64_t bytes, size_t count, int32_t tag, vrp_stream stream) {
    static vrp_devptr ptrs[2048];
    for (size_t i = 0; i < count; i++) {
        vrp_alloc_info info = {
            .struct_size = sizeof info, .bytes = bytes, .stream = stream, .tag = tag};
        VRPT_OK(vrp_alloc_ex(pool, &info, &ptrs[i]));
    }
    for (size_t i = 0; i < count; i++)
        VRPT_OK(vrp_free(pool, ptrs[i], stream));
    assert_int_equal(cu.ctx_synchronize(), 0);
}

typedef struct measured {
    uint64_t call_ns, back_ns;
    uint64_t in_call;
} measured;

/* One trim under a kernel on another stream. */
static measured trim_once(vrp_pool *pool, vrpt_cu busy) {
    vrp_trim_result result = {.struct_size = sizeof result};
    const uint64_t before = free_on_device();
    vrp_event event = 0;
    int done = 7;
    measured m;
    VRPT_OK(GPU(event_create, &event));
    assert_int_equal(gpu_launch(cu.spin, BUSY_NS, busy), 0);
    VRPT_OK(GPU(event_record, event, gpu_number(busy)));
    const uint64_t began = now_ns();
    VRPT_OK(vrp_empty_cache(pool, &result));
    m.call_ns = now_ns() - began;
    do
        m.back_ns = now_ns() - began;
    while (free_on_device() < before + ALL_BYTES && m.back_ns < 4 * BUSY_NS);
    m.in_call = result.released_bytes;
    VRPT_OK(GPU(event_query, event, &done));
    assert_int_equal(done, 0); /* nothing has waited for the kernel */
    VRPT_OK(GPU(event_synchronize, event));
    VRPT_OK(GPU(event_destroy, event));
    return m;
}

static void memory_comes_back_while_a_kernel_runs(void **state) {
    static const struct {
        const char *name;
        uint64_t bytes;
        size_t count;
        int32_t tag;
    } patterns[] = {
        {"1 x 2 GiB", ALL_BYTES, 1, VRP_TAG_OTHER},
        {"1 x 2 GiB weights", ALL_BYTES, 1, VRP_TAG_WEIGHTS},
        {"64 x 32 MiB", 32 * VRPT_MIB, 64, VRP_TAG_OTHER},
        {"64 x 32 MiB weights", 32 * VRPT_MIB, 64, VRP_TAG_WEIGHTS},
        {"2048 x 1 MiB", VRPT_MIB, 2048, VRP_TAG_OTHER},
        {"2048 x 1 MiB weights", VRPT_MIB, 2048, VRP_TAG_WEIGHTS},
    };
    const int strict = vrpt_env_number("VRAMPOOL_TEST_TIMES", 0) != 0;
    vrpt_cu own = NULL, busy = NULL;
    (void)state;
    assert_int_equal(cu.stream_create(&own, VRPT_CU_NON_BLOCKING), 0);
    assert_int_equal(cu.stream_create(&busy, VRPT_CU_NON_BLOCKING), 0);
    for (size_t i = 0; i < VRPT_COUNT(patterns); i++) {
        uint64_t calls[ROUNDS], backs[ROUNDS], extents = 0, in_call = 0;
        for (size_t round = 0; round < ROUNDS; round++) {
            vrp_pool *pool = pool_new(); /* new each time: extents are as after loading */
            vrp_stats stats = {.struct_size = sizeof stats};
            fill(pool, patterns[i].bytes, patterns[i].count, patterns[i].tag, gpu_number(own));
            VRPT_OK(vrp_pool_stats_get(pool, &stats));
            const measured m = trim_once(pool, busy);
            calls[round] = m.call_ns;
            backs[round] = m.back_ns;
            extents = stats.extents.current;
            in_call = m.in_call;
            VRPT_OK(vrp_pool_destroy(pool, 0));
        }
        qsort(calls, ROUNDS, sizeof calls[0], by_value);
        qsort(backs, ROUNDS, sizeof backs[0], by_value);
        print_message(
            "%-22s %4llu extents, %4llu MiB in the call: call %llu us (%llu - %llu), "
            "all back after %llu us (%llu - %llu)\n",
            patterns[i].name, (unsigned long long)extents, (unsigned long long)(in_call >> 20),
            (unsigned long long)calls[ROUNDS / 2] / 1000, (unsigned long long)calls[0] / 1000,
            (unsigned long long)calls[ROUNDS - 1] / 1000,
            (unsigned long long)backs[ROUNDS / 2] / 1000, (unsigned long long)backs[0] / 1000,
            (unsigned long long)backs[ROUNDS - 1] / 1000);
        if (strict) {
            assert_true(calls[ROUNDS / 2] <= CALL_US * UINT64_C(1000));
            assert_true(backs[ROUNDS / 2] <= BACK_US * UINT64_C(1000));
        }
    }
    assert_int_equal(cu.stream_destroy(own), 0);
    assert_int_equal(cu.stream_destroy(busy), 0);
}

/* What is pending goes by itself, soon after its work is done. */
static void pending_memory_goes_after_its_kernel(void **state) {
    vrpt_cu stream = NULL;
    vrp_pool *pool = pool_new();
    vrp_devptr ptr = 0;
    (void)state;
    assert_int_equal(cu.stream_create(&stream, VRPT_CU_NON_BLOCKING), 0);
    VRPT_OK(vrp_alloc(pool, 512 * VRPT_MIB, gpu_number(stream), &ptr));
    assert_int_equal(gpu_launch(cu.spin, BUSY_NS, stream), 0);
    VRPT_OK(vrp_free(pool, ptr, gpu_number(stream)));
    const uint64_t began = now_ns();
    VRPT_OK(vrp_empty_cache(pool, NULL));
    const uint64_t call = now_ns() - began;
    const uint64_t held = vrp_pool_reserved_bytes(pool);
    assert_int_equal(cu.stream_synchronize(stream), 0);
    const uint64_t ended = now_ns();
    uint64_t waited = 0;
    while (vrp_pool_reserved_bytes(pool) > 0 && waited < 2000000000)
        waited = now_ns() - ended; /* no call that could help */
    print_message("call %llu us, gone %llu us after the kernel\n", (unsigned long long)call / 1000,
                  (unsigned long long)waited / 1000);
    assert_int_equal(held, 512 * VRPT_MIB);
    assert_true(call < BUSY_NS / 2);
    assert_int_equal(vrp_pool_reserved_bytes(pool), 0);
    VRPT_OK(vrp_stream_forget(pool, gpu_number(stream)));
    VRPT_OK(vrp_pool_destroy(pool, 0));
    assert_int_equal(cu.stream_destroy(stream), 0);
}

/* ---- launches of another thread ----------------------------------------------------------- */

typedef struct launcher {
    uint64_t ns[LAUNCHES];
    atomic_int ended;
    int failed;
} launcher;

static void *launch(void *argument) {
    launcher *l = argument;
    vrpt_cu stream = NULL;
    if (cu.ctx_set(cu.primary) != 0 || cu.stream_create(&stream, VRPT_CU_NON_BLOCKING) != 0)
        l->failed = 1;
    for (int i = 0; i < LAUNCHES && !l->failed; i++) {
        const uint64_t began = now_ns();
        l->failed = gpu_launch(cu.spin, 0, stream) != 0;
        l->ns[i] = now_ns() - began;
        if (i % 100 == 99) /* a full queue would be measured otherwise */
            l->failed |= cu.stream_synchronize(stream) != 0;
    }
    if (stream != NULL)
        (void)cu.stream_destroy(stream);
    atomic_store(&l->ended, 1);
    return NULL;
}

static void launches_of_others_go_on(void **state) {
    static launcher runs[2];
    const int strict = vrpt_env_number("VRAMPOOL_TEST_TIMES", 0) != 0;
    uint64_t trims = 0;
    (void)state;
    for (int with = 0; with < 2; with++) {
        vrp_pool *pool = pool_new();
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, launch, &runs[with]), 0);
        while (with && !atomic_load(&runs[with].ended)) {
            vrp_devptr ptrs[16];
            for (size_t i = 0; i < VRPT_COUNT(ptrs); i++)
                VRPT_OK(vrp_alloc(pool, 32 * VRPT_MIB, VRP_STREAM_LEGACY, &ptrs[i]));
            for (size_t i = 0; i < VRPT_COUNT(ptrs); i++)
                VRPT_OK(vrp_free(pool, ptrs[i], VRP_STREAM_LEGACY));
            VRPT_OK(vrp_empty_cache(pool, NULL));
            trims++;
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        VRPT_OK(vrp_pool_destroy(pool, 0));
        assert_int_equal(runs[with].failed, 0);
        qsort(runs[with].ns, LAUNCHES, sizeof runs[with].ns[0], by_value);
        print_message("launches %s trims: p50 %llu ns, p99 %llu ns\n", with ? "beside" : "without",
                      (unsigned long long)runs[with].ns[LAUNCHES / 2],
                      (unsigned long long)runs[with].ns[LAUNCHES / 100 * 99]);
    }
    print_message("%llu trims of 512 MiB\n", (unsigned long long)trims);
    assert_true(trims > 0);
    if (strict)
        assert_true(2 * runs[1].ns[LAUNCHES / 100 * 99] <= 3 * runs[0].ns[LAUNCHES / 100 * 99]);
}

/* ---- loading --------------------------------------------------------------------------------- */

static void weights_load_as_fast_as_by_plain_allocations(void **state) {
    enum { PIECES = 203 };
    const uint64_t bytes = 118 * VRPT_MIB;
    const int strict = vrpt_env_number("VRAMPOOL_TEST_TIMES", 0) != 0;
    static vrp_devptr ptrs[PIECES];
    uint64_t pooled[3], plain[3];
    (void)state;
    if (free_on_device() < (PIECES + 10) * bytes)
        skip();
    for (int round = 0; round < 3; round++) {
        vrp_pool *pool = pool_new();
        uint64_t began = now_ns();
        for (size_t i = 0; i < PIECES; i++) {
            vrp_alloc_info info = {.struct_size = sizeof info,
                                   .bytes = bytes,
                                   .stream = VRP_STREAM_LEGACY,
                                   .tag = VRP_TAG_WEIGHTS};
            VRPT_OK(vrp_alloc_ex(pool, &info, &ptrs[i]));
        }
        pooled[round] = now_ns() - began;
        VRPT_OK(vrp_pool_destroy(pool, VRP_DESTROY_FORCE));
        began = now_ns();
        for (size_t i = 0; i < PIECES; i++)
            VRPT_OK(GPU(mem_alloc, bytes, &ptrs[i]));
        plain[round] = now_ns() - began;
        for (size_t i = 0; i < PIECES; i++)
            VRPT_OK(GPU(mem_free, ptrs[i]));
        print_message("203 x 118 MiB: %llu us by the pool, %llu us by plain allocations\n",
                      (unsigned long long)pooled[round] / 1000,
                      (unsigned long long)plain[round] / 1000);
    }
    qsort(pooled, 3, sizeof pooled[0], by_value);
    qsort(plain, 3, sizeof plain[0], by_value);
    if (strict)
        assert_true(pooled[1] <= plain[1]);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_comes_back_while_a_kernel_runs),
        cmocka_unit_test(pending_memory_goes_after_its_kernel),
        cmocka_unit_test(launches_of_others_go_on),
        cmocka_unit_test(weights_load_as_fast_as_by_plain_allocations),
    };
    int status = gpu_main_begin(argc, argv);
    if (status != 0)
        return status;
    if ((gpu.info.caps & VRP_CAP_VMM) == 0) {
        (void)printf("skipped: the device has no virtual memory calls\n");
        return VRPT_SKIP;
    }
    status = cmocka_run_group_tests_name("cuda trims", tests, NULL, NULL);
    vrp_driver_destroy(gpu.driver);
    return status;
}
