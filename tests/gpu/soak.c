/* SPDX-License-Identifier: MIT */
/* Many threads and streams over one pool, for as long as asked:
 *
 *     soak_cuda [cuda:N]      a GPU; blocks are filled and checked by kernels
 *     conc_soak               the simulated device, whose detector watches
 *
 * Eight threads with a stream each allocate, fill blocks, check them, free them on their own
 * stream, on another one that used them too, on no stream, or hand them to another thread. One of
 * them trims now and then. A block that is used again too early has wrong bytes.
 *
 * VRAMPOOL_TEST_SECONDS: for each backing, default 3. VRAMPOOL_TEST_WITHOUT leaves
 * out, to narrow a failure down: e frees elsewhere, b blocks of two streams, a frees
 * of any stream, h blocks handed to other threads, t trims, r the reclaimer, w waits
 * on the device. */

#ifdef VRPT_ON_GPU
#include "kernels.h"
#endif
#include "support/vrp_test.h"
#include "vrampool/cuda.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8, HELD = 24, SHELVES = 64, HANG_SECONDS = 120 };

typedef struct parcel {
    vrp_devptr ptr;
    uint64_t bytes, seed;
    vrp_stream stream; /* it was allocated and last used on */
} parcel;

static struct {
    vrpt t;
    vrp_stream stream[THREADS];
    _Atomic(parcel *) shelf[SHELVES];
    atomic_int stop;
    atomic_uint_fast64_t pairs, crossed, handed, any, trims, kernels, refused, errors, beat;
    uint64_t seed;
} soak;

/* ---- the device's part ---------------------------------------------------------------- */

#ifdef VRPT_ON_GPU
static int device_ordinal;

static int dev_begin(void) {
    static int ready;
    int error = ready ? 0 : vrpt_kernels_begin(device_ordinal);
    ready = 1;
    return error == 0;
}
static int dev_thread(void) { return vrpt_kernels_thread(device_ordinal) == 0; }
static int dev_fill(const parcel *p, uint64_t spin_ns) {
    return (spin_ns == 0 || vrpt_kernel_spin(p->stream, spin_ns) == 0) &&
           vrpt_kernel_fill(p->stream, p->ptr, p->bytes, p->ptr, p->seed) == 0;
}
static int dev_check(const parcel *p, vrp_stream stream) {
    return vrpt_kernel_check(stream, p->ptr, p->bytes, p->ptr, p->seed, 0) == 0;
}
static int dev_follow(vrp_stream stream, vrp_stream other) {
    return vrpt_stream_follow(stream, other) == 0;
}
static int dev_finish(vrp_stream stream) { return vrpt_stream_finish(stream) == 0; }
static void dev_wait(void) { (void)usleep(100000); }
static uint64_t dev_wrong(void) {
    vrpt_mismatches seen;
    return vrpt_device_finish(&seen) == 0 ? seen.count : UINT64_MAX;
}
#else
static int dev_begin(void) { return 1; }
static int dev_thread(void) { return 1; }
static int dev_use(vrp_stream stream, const parcel *p) {
    return vrp_sim_launch(soak.t.sim, stream, p->ptr, p->bytes, 0) == VRP_OK;
}
static int dev_fill(const parcel *p, uint64_t spin_ns) {
    (void)spin_ns;
    return dev_use(p->stream, p);
}
static int dev_check(const parcel *p, vrp_stream stream) { return dev_use(stream, p); }
static int dev_follow(vrp_stream stream, vrp_stream other) {
    return vrp_sim_stream_wait_stream(soak.t.sim, stream, other) == VRP_OK;
}
static int dev_finish(vrp_stream stream) {
    (void)stream;
    return 1;
}
/* The device is as far behind as this lets it be. */
static void dev_wait(void) {
    static vrpt_rng rng = {.state = 99};
    vrp_sim_complete(soak.t.sim, soak.stream[vrpt_rng_below(&rng, THREADS)],
                     vrpt_rng_below(&rng, 200));
    (void)usleep(50);
}
static uint64_t dev_wrong(void) {
    vrp_sim_drain(soak.t.sim);
    return 0; /* the closing of the machine asks the detector */
}
#endif

static int without(char what) {
    const char *all = getenv("VRAMPOOL_TEST_WITHOUT");
    return all != NULL && strchr(all, what) != NULL;
}

static double now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(int good, const char *what) {
    if (good)
        return;
    if (atomic_fetch_add(&soak.errors, 1) < 8)
        (void)fprintf(stderr, "%s, after %" PRIu64 " steps: %s\n", what,
                      (uint64_t)atomic_load(&soak.beat), vrpt_detail());
}

/* Nobody makes progress: say so and end. */
static void *watch(void *unused) {
    uint64_t last = 0, still = 0;
    (void)unused;
    while (!atomic_load(&soak.stop)) {
        (void)sleep(1);
        uint64_t beat = atomic_load(&soak.beat);
        still = beat == last ? still + 1 : 0;
        last = beat;
        if (still > HANG_SECONDS) {
            (void)fprintf(stderr, "no progress for %d seconds\n", HANG_SECONDS);
            _exit(3);
        }
    }
    return NULL;
}

static uint64_t random_bytes(vrpt_rng *rng) {
    double power = 9.0 + (double)vrpt_rng_below(rng, 1700) / 100.0; /* 512 B to 64 MiB */
    return ((uint64_t)exp2(power) + 3) & ~UINT64_C(3);
}

static void fill(parcel *p, vrpt_rng *rng) {
    must(dev_fill(p, vrpt_rng_below(rng, 64) == 0 ? vrpt_rng_below(rng, 300000) : 0), "fill");
    (void)atomic_fetch_add(&soak.kernels, 1);
}

static void check(const parcel *p, vrp_stream stream) {
    must(dev_check(p, stream), "check");
    (void)atomic_fetch_add(&soak.kernels, 1);
}

/* Checks it for the last time, in one of the ways a program can, and frees it. */
static void end_parcel(parcel *p, vrpt_rng *rng) {
    vrp_stream other = soak.stream[vrpt_rng_below(rng, THREADS)];
    uint64_t way = vrpt_rng_below(rng, 16);
    if (way < 10 || other == p->stream || without(way < 13 ? 'e' : way < 15 ? 'b' : 'a')) {
        check(p, p->stream);
        must(vrp_free(soak.t.pool, p->ptr, way < 5 ? p->stream : VRP_STREAM_OF_ALLOC) == VRP_OK,
             "free");
    } else if (way < 13) { /* another stream uses it last, and frees it */
        must(dev_follow(other, p->stream), "follow");
        check(p, other);
        must(vrp_free(soak.t.pool, p->ptr, other) == VRP_OK, "free elsewhere");
        (void)atomic_fetch_add(&soak.crossed, 1);
    } else if (way < 15) { /* both use it */
        must(vrp_record_stream(soak.t.pool, p->ptr, other) == VRP_OK, "record_stream");
        check(p, p->stream);
        must(dev_follow(other, p->stream), "follow");
        check(p, other);
        must(vrp_free(soak.t.pool, p->ptr, p->stream) == VRP_OK, "free of two");
        (void)atomic_fetch_add(&soak.crossed, 1);
    } else { /* the pool hears of no stream */
        must(dev_follow(other, p->stream), "follow");
        check(p, other);
        must(vrp_free(soak.t.pool, p->ptr, VRP_STREAM_ANY) == VRP_OK, "free of any");
        (void)atomic_fetch_add(&soak.any, 1);
    }
    (void)atomic_fetch_add(&soak.pairs, 1);
    free(p);
}

static parcel *make_parcel(uint64_t who, vrpt_rng *rng) {
    parcel *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->bytes = random_bytes(rng);
    p->seed = vrpt_rng_next(rng);
    p->stream = soak.stream[who];
    vrp_alloc_info info = {.struct_size = sizeof info,
                           .bytes = p->bytes,
                           .stream = p->stream,
                           .tag = (int32_t)vrpt_rng_below(rng, VRP_TAG_COUNT)};
    vrp_status status = vrp_alloc_ex(soak.t.pool, &info, &p->ptr);
    if (status != VRP_OK) {
        must(status == VRP_OUT_OF_DEVICE_MEMORY || status == VRP_LIMIT_REACHED, "alloc");
        (void)atomic_fetch_add(&soak.refused, 1);
        free(p);
        return NULL;
    }
    fill(p, rng);
    return p;
}

static void *run(void *argument) {
    uint64_t who = (uint64_t)(uintptr_t)argument;
    vrpt_rng rng = {.state = soak.seed * THREADS + who + 1};
    parcel *mine[HELD] = {NULL};
    must(dev_thread(), "device of the thread");
    while (!atomic_load(&soak.stop)) {
        parcel **slot = &mine[vrpt_rng_below(&rng, HELD)];
        uint64_t choice = vrpt_rng_below(&rng, 1000);
        (void)atomic_fetch_add(&soak.beat, 1);
        if (*slot == NULL) {
            *slot = make_parcel(who, &rng);
        } else if (choice < 150 && !without('h')) { /* to whoever takes it */
            *slot = atomic_exchange(&soak.shelf[vrpt_rng_below(&rng, SHELVES)], *slot);
            (void)atomic_fetch_add(&soak.handed, 1);
        } else if (choice < 300) {
            check(*slot, (*slot)->stream);
        } else {
            end_parcel(*slot, &rng);
            *slot = NULL;
        }
        if (choice == 999 && who == 0 && !without('t')) {
            must(vrp_empty_cache(soak.t.pool, NULL) == VRP_OK, "empty_cache");
            (void)atomic_fetch_add(&soak.trims, 1);
        }
        if (choice == 998)
            must(vrp_pool_poll(soak.t.pool) == VRP_OK, "poll");
        if (choice >= 990 && choice < 994) /* not more than so far ahead of the device */
            must(dev_finish(soak.stream[who]), "synchronise");
    }
    for (size_t i = 0; i < HELD; i++)
        if (mine[i] != NULL)
            end_parcel(mine[i], &rng);
    return NULL;
}

static void many_threads_and_streams_keep_their_bytes(void **state) {
    const double seconds = (double)vrpt_env_number("VRAMPOOL_TEST_SECONDS", 3);
    const vrpt_options options = {.device_bytes = 8 * VRPT_GIB,
                                  .completion = VRP_SIM_MANUAL,
                                  .pool = {.limit_bytes = 6 * VRPT_GIB}};
    uint64_t wrong;
    pthread_t thread[THREADS], watcher;
    vrpt_rng rng = {.state = 7};
    (void)state;
    memset(&soak, 0, sizeof soak);
    soak.seed = vrpt_env_number("VRAMPOOL_TEST_SEED", 1);
    VRPT_REQUIRE(&soak.t, vrpt_open(&soak.t, &options));
    if (without('r'))
        VRPT_OK(vrp_pool_knob_set(soak.t.pool, VRP_KNOB_RECLAIMER, 0));
    else
        VRPT_OK(vrp_pool_knob_set(soak.t.pool, VRP_KNOB_RECLAIMER, 1));
    if (without('w'))
        VRPT_OK(vrp_pool_knob_set(soak.t.pool, VRP_KNOB_DEVICE_WAITS, 0));
    assert_true(dev_begin());
    for (size_t i = 0; i < THREADS; i++) {
        soak.stream[i] = vrpt_stream_create(&soak.t);
        assert_true(soak.stream[i] != 0);
    }
    assert_int_equal(pthread_create(&watcher, NULL, watch, NULL), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run, (void *)(uintptr_t)i), 0);
    for (double end = now() + seconds; now() < end;)
        dev_wait();
    atomic_store(&soak.stop, 1);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(pthread_join(watcher, NULL), 0);
    for (size_t i = 0; i < SHELVES; i++)
        if (soak.shelf[i] != NULL)
            end_parcel(soak.shelf[i], &rng);
    wrong = dev_wrong();
    (void)printf("%" PRIu64 " blocks, %" PRIu64 " across streams, %" PRIu64
                 " across threads, %" PRIu64 " of any stream, %" PRIu64 " trims, %" PRIu64
                 " kernels, %" PRIu64 " refused, %" PRIu64 " wrong words\n",
                 (uint64_t)soak.pairs, (uint64_t)soak.crossed, (uint64_t)soak.handed,
                 (uint64_t)soak.any, (uint64_t)soak.trims, (uint64_t)soak.kernels,
                 (uint64_t)soak.refused, wrong);
    assert_int_equal(soak.errors, 0);
    assert_int_equal(wrong, 0);
    assert_true(soak.pairs > 100);
    for (size_t i = 0; i < THREADS; i++) {
        VRPT_OK(vrp_stream_forget(soak.t.pool, soak.stream[i]));
        vrpt_stream_destroy(&soak.t, soak.stream[i]);
    }
    VRPT_REQUIRE(&soak.t, vrpt_close(&soak.t));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_threads_and_streams_keep_their_bytes),
    };
#ifdef VRPT_ON_GPU
    for (int i = 1; i < argc; i++)
        (void)sscanf(argv[i], "cuda:%d", &device_ordinal);
    if (vrp_cuda_device_count() <= (uint32_t)device_ordinal) {
        (void)printf("skipped: no CUDA device %d\n", device_ordinal);
        return VRPT_SKIP;
    }
#endif
    return vrpt_main("soak", tests, VRPT_COUNT(tests), argc, argv);
}
