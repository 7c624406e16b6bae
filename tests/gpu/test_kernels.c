/* SPDX-License-Identifier: MIT */
/* Stream order of the pool, proven by data that kernels write and check: reuse
 * across streams, extents that move and trims that come while work is in
 * flight, announced uses, growable buffers.
 *
 *     test_kernels [cuda:N]
 *
 * Exit status 77 where there is no such device. A copy on another machine
 * needs libcmocka.so.0 beside it. Kernels run for a fixed time; where a test
 * wants one to be still running, the host has made calls since that take far
 * less.
 *
 * VRAMPOOL_TEST_NAIVE=1 takes freed memory past the pool in the test of reuse
 * across streams, which then has to fail. */

#include "kernels.h"
#include "support/vrp_test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MS UINT64_C(1000000)

enum { STREAMS = 3 };

/* A pool and streams that are ordered with nothing. */
typedef struct rig {
    vrpt t;
    vrp_stream stream[STREAMS];
} rig;

static int device_ordinal;

#define CUDA_OK(call)                                                  \
    do {                                                               \
        int cuda_error = (call);                                       \
        if (cuda_error != 0)                                           \
            fail_msg("%s: %s", #call, vrpt_kernels_error(cuda_error)); \
    } while (0)

static uint64_t now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

static int on_vmm(void) { return vrpt_now.backing == VRP_BACKING_VMM; }

static void rig_open(rig *r, uint64_t limit_bytes) {
    static int ready;
    const vrpt_options options = {.pool = {.limit_bytes = limit_bytes}};
    VRPT_REQUIRE(&r->t, vrpt_open(&r->t, &options));
    if (!ready)
        CUDA_OK(vrpt_kernels_begin(device_ordinal));
    ready = 1;
    for (size_t i = 0; i < STREAMS; i++) {
        r->stream[i] = vrpt_stream_create(&r->t);
        assert_int_not_equal(r->stream[i], 0);
    }
}

static void rig_close(rig *r) {
    vrpt_drain(&r->t);
    for (size_t i = 0; i < STREAMS; i++) {
        VRPT_OK(vrp_stream_forget(r->t.pool, r->stream[i]));
        vrpt_stream_destroy(&r->t, r->stream[i]);
    }
    VRPT_REQUIRE(&r->t, vrpt_close(&r->t));
}

static vrp_devptr take(rig *r, uint64_t bytes, vrp_stream stream) {
    vrp_devptr ptr = 0;
    VRPT_OK(vrp_alloc(r->t.pool, bytes, stream, &ptr));
    return ptr;
}

static void fill(vrp_stream stream, vrp_devptr at, uint64_t bytes, uint64_t seed) {
    CUDA_OK(vrpt_kernel_fill(stream, at, bytes, at, seed));
}

static void check(vrp_stream stream, vrp_devptr at, uint64_t bytes, uint64_t seed,
                  uint64_t delay_ns) {
    CUDA_OK(vrpt_kernel_check(stream, at, bytes, at, seed, delay_ns));
}

/* Ends all work: every check so far has found what was filled in. */
static void all_intact(void) {
    vrpt_mismatches seen;
    CUDA_OK(vrpt_device_finish(&seen));
    if (seen.count != 0)
        fail_msg("%" PRIu64 " words differ, the one at 0x%" PRIx64 " is 0x%" PRIx32
                 ", not 0x%" PRIx32,
                 seen.count, seen.at, seen.found, seen.expected);
}

/* ---- Reuse across streams ------------------------------------------------------------ */

/* The streams take turns: each checks its block late and frees it at once; the
 * next wants as much, and there is no more. */
static void freed_block_reaches_another_stream_in_order(void **state) {
    enum { ROUNDS = 6 };
    const uint64_t bytes = 64 * VRPT_MIB, busy = 150 * MS;
    const int naive = vrpt_env_number("VRAMPOOL_TEST_NAIVE", 0) != 0;
    vrp_devptr ptr = 0;
    rig r;
    (void)state;
    rig_open(&r, bytes);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        vrp_stream stream = r.stream[round % 2];
        vrp_stats before = vrpt_stats(&r.t), after;
        uint64_t began = now_ns(), took;
        if (round == 0 || !naive)
            ptr = take(&r, bytes, stream);
        took = now_ns() - began;
        after = vrpt_stats(&r.t);
        fill(stream, ptr, bytes, round);
        check(stream, ptr, bytes, round, busy);
        if (round == 0 || !naive)
            VRPT_OK(vrp_free(r.t.pool, ptr, stream));
        if (round == 0 || naive)
            continue;
        assert_true(after.cross_stream_waits + after.host_waits >
                    before.cross_stream_waits + before.host_waits);
        if (on_vmm()) { /* the device waits, the host does not */
            assert_int_equal(after.host_waits, 0);
            assert_true(took < busy / 2);
        }
    }
    all_intact();
    assert_true(vrpt_stats(&r.t).reserved_bytes.peak <= bytes);
    rig_close(&r);
}

/* What the other tests look for can be seen: two streams share memory in no
 * order, with the vmm backing through two mappings of one handle. */
static void memory_shared_in_no_order_is_found(void **state) {
    const uint64_t bytes = 64 * VRPT_MIB, busy = 300 * MS;
    vrp_devptr first = 0, second = 0;
    vrp_handle handle = 0;
    vrpt_mismatches seen;
    const vrp_driver_ops *ops;
    void *ctx;
    rig r;
    (void)state;
    rig_open(&r, 0);
    ops = vrp_driver_ops_get(r.t.driver, &ctx);
    if (on_vmm()) {
        VRPT_OK(ops->address_reserve(ctx, 2 * bytes, &first));
        VRPT_OK(ops->handle_create(ctx, bytes, &handle));
        second = first + bytes;
        VRPT_OK(ops->map(ctx, first, bytes, handle));
        VRPT_OK(ops->map(ctx, second, bytes, handle));
        VRPT_OK(ops->set_access(ctx, first, 2 * bytes));
    } else {
        VRPT_OK(ops->mem_alloc(ctx, bytes, &first));
        second = first;
    }
    fill(r.stream[0], first, bytes, 1);
    check(r.stream[0], first, bytes, 1, 0); /* the fill itself is good */
    CUDA_OK(vrpt_stream_finish(r.stream[0]));
    all_intact();
    check(r.stream[0], first, bytes, 1, busy);
    fill(r.stream[1], second, bytes, 2);
    CUDA_OK(vrpt_device_finish(&seen));
    if (on_vmm()) {
        VRPT_OK(ops->unmap(ctx, first, 2 * bytes));
        VRPT_OK(ops->handle_release(ctx, handle));
        VRPT_OK(ops->address_free(ctx, first, 2 * bytes));
    } else {
        VRPT_OK(ops->mem_free(ctx, first));
    }
    assert_true(seen.count > 0);
    rig_close(&r);
}

static void announced_use_outlives_the_free(void **state) {
    const uint64_t bytes = 48 * VRPT_MIB, busy = 200 * MS;
    (void)state;
    for (int tight = 0; tight < 2; tight++) { /* with and without other memory to be had */
        vrp_devptr ptr, next;
        rig r;
        rig_open(&r, tight ? bytes : 0);
        ptr = take(&r, bytes, r.stream[0]);
        fill(r.stream[0], ptr, bytes, 1);
        CUDA_OK(vrpt_stream_follow(r.stream[1], r.stream[0]));
        VRPT_OK(vrp_record_stream(r.t.pool, ptr, r.stream[1]));
        check(r.stream[1], ptr, bytes, 1, busy);
        VRPT_OK(vrp_free(r.t.pool, ptr, r.stream[0]));
        next = take(&r, bytes, r.stream[0]);
        fill(r.stream[0], next, bytes, 2);
        check(r.stream[0], next, bytes, 2, 0);
        VRPT_OK(vrp_free(r.t.pool, next, VRP_STREAM_OF_ALLOC));
        all_intact();
        rig_close(&r);
    }
}

/* ---- Extents that move ---------------------------------------------------------------- */

enum { SLOTS = 14, ROUNDS = 300 };

typedef struct slot {
    vrp_devptr ptr;
    uint64_t bytes, seed;
    vrp_stream stream;
} slot;

static void slot_end(rig *r, slot *s) {
    if (s->ptr == 0)
        return;
    check(s->stream, s->ptr, s->bytes, s->seed, 0);
    VRPT_OK(vrp_free(r->t.pool, s->ptr, s->stream));
    s->ptr = 0;
}

/* From 1 to 200 MiB, of all magnitudes and no round size. */
static uint64_t any_size(vrpt_rng *rng) {
    static const uint64_t most[] = {4, 16, 32, 64, 120, 200};
    uint64_t span = (most[vrpt_rng_below(rng, VRPT_COUNT(most))] - 1) * VRPT_MIB;
    return (VRPT_MIB + vrpt_rng_below(rng, span + 1)) & ~UINT64_C(3);
}

/* Blocks of changing sizes, each written when it is had and checked right
 * before it is freed; the streams lag far behind the host. */
static void churn(rig *r, size_t streams, uint64_t seed) {
    slot slots[SLOTS] = {{0}};
    vrpt_rng rng = {seed};
    for (uint64_t round = 0; round < ROUNDS; round++) {
        slot *s = &slots[vrpt_rng_below(&rng, SLOTS)];
        slot_end(r, s);
        if (round % 40 == 39) /* all at once: the next sizes are cut from what is in flight */
            for (size_t i = 0; i < SLOTS; i++)
                slot_end(r, &slots[i]);
        s->stream = r->stream[vrpt_rng_below(&rng, streams)];
        s->bytes = any_size(&rng);
        s->seed = round;
        s->ptr = take(r, s->bytes, s->stream);
        CUDA_OK(vrpt_kernel_spin(s->stream, 2 * MS * streams));
        fill(s->stream, s->ptr, s->bytes, s->seed);
        if (round % 50 == 49)
            VRPT_OK(vrp_pool_check(r->t.pool));
        if (round % 100 == 99)
            all_intact();
    }
    for (size_t i = 0; i < SLOTS; i++)
        slot_end(r, &slots[i]);
    all_intact();
}

static void churn_on(size_t streams) {
    vrp_stats stats;
    rig r;
    rig_open(&r, 0);
    churn(&r, streams, vrpt_env_number("VRAMPOOL_TEST_SEED", 5));
    stats = vrpt_stats(&r.t);
    print_message("unmapped: %" PRIu64 " mappings; given back: %" PRIu64 " of %" PRIu64
                  " MiB; waits: %" PRIu64 " of streams, %" PRIu64 " of the host\n",
                  stats.extents_unmapped, stats.trimmed_bytes / VRPT_MIB,
                  stats.reserved_bytes.peak / VRPT_MIB, stats.cross_stream_waits, stats.host_waits);
    if (on_vmm()) { /* memory went from block to block and not through the driver */
        assert_true(stats.extents_unmapped > 0);
        assert_true(stats.trimmed_bytes <= stats.reserved_bytes.peak / 4);
    }
    rig_close(&r);
}

static void extents_move_under_one_stream(void **state) {
    (void)state;
    churn_on(1);
}

static void extents_move_between_streams(void **state) {
    (void)state;
    churn_on(STREAMS);
}

/* ---- Trims under running work ----------------------------------------------------------- */

static void trim_does_not_wait_for_a_kernel(void **state) {
    const uint64_t bytes = 256 * VRPT_MIB, busy = 400 * MS;
    const struct timespec moment = {.tv_nsec = 10 * (long)MS};
    vrp_devptr ptr, done = 0;
    rig r;
    (void)state;
    rig_open(&r, 0);
    ptr = take(&r, bytes, r.stream[0]);
    if (on_vmm()) { /* giving a segment back waits for the device, an extent does not */
        done = take(&r, bytes, r.stream[1]);
        fill(r.stream[1], done, bytes, 1);
        VRPT_OK(vrp_free(r.t.pool, done, r.stream[1]));
        VRPT_OK(vrp_pool_poll(r.t.pool));
    }
    fill(r.stream[0], ptr, bytes, 2);
    check(r.stream[0], ptr, bytes, 2, busy);
    VRPT_OK(vrp_free(r.t.pool, ptr, r.stream[0]));
    (void)nanosleep(&moment, NULL);
    for (int again = 0; again < 2; again++) {
        vrp_trim_result result = {.struct_size = sizeof result};
        uint64_t began = now_ns(), took;
        VRPT_OK(vrp_empty_cache(r.t.pool, &result));
        took = now_ns() - began;
        if (took >= busy / 4)
            fail_msg("empty_cache took %" PRIu64 " us", took / 1000);
        assert_int_equal(result.released_bytes, done != 0 && !again ? bytes : 0);
        assert_int_equal(result.pending_bytes, bytes);
        assert_int_equal(result.stalled_ns, 0);
    }
    all_intact();
    VRPT_OK(vrp_trim(r.t.pool, 0, VRP_TRIM_WAIT, NULL)); /* the reclaimer may be at it */
    assert_int_equal(vrpt_stats(&r.t).reserved_bytes.current, 0);
    rig_close(&r);
}

/* A tensor made and dropped 200 times, with the cache emptied meanwhile. */
static void trims_between_launches_unmap_nothing_in_use(void **state) {
    const uint64_t bytes = UINT64_C(2048) * 7168 * 2;
    rig r;
    (void)state;
    rig_open(&r, 0);
    for (uint64_t i = 0; i < 200; i++) {
        vrp_devptr ptr = take(&r, bytes, r.stream[0]);
        fill(r.stream[0], ptr, bytes, i);
        CUDA_OK(vrpt_kernel_spin(r.stream[0], MS / 2));
        check(r.stream[0], ptr, bytes, i, 0);
        VRPT_OK(vrp_free(r.t.pool, ptr, r.stream[0]));
        if (i % 10 == 9)
            VRPT_OK(vrp_empty_cache(r.t.pool, NULL));
    }
    all_intact();
    rig_close(&r);
}

/* ---- Growable buffers --------------------------------------------------------------------- */

/* Contents are followed by their distance from the start: with the malloc
 * backing they move. What a shrink gives up is wanted elsewhere at once. */
static void buffer_keeps_its_contents(void **state) {
    static const uint64_t sizes[] = {16 * VRPT_MIB,  100 * VRPT_MIB, 3 * VRPT_MIB + 1236,
                                     256 * VRPT_MIB, 64 * VRPT_KIB,  512,
                                     48 * VRPT_MIB,  47 * VRPT_MIB,  700 * VRPT_MIB};
    vrp_growable_info info = {.struct_size = sizeof info, .max_bytes = VRPT_GIB};
    vrp_growable *buffer = NULL;
    uint64_t size = 0;
    rig r;
    (void)state;
    rig_open(&r, 0);
    info.stream = r.stream[0];
    VRPT_OK(vrp_growable_create(r.t.pool, &info, &buffer));
    for (size_t i = 0; i < 3 * VRPT_COUNT(sizes); i++) {
        uint64_t next = sizes[i % VRPT_COUNT(sizes)];
        uint64_t kept = next < size ? next : size;
        vrp_devptr before = vrp_growable_base(buffer), base;
        VRPT_OK(vrp_growable_resize(buffer, next));
        base = vrp_growable_base(buffer);
        if (on_vmm() && i > 0)
            assert_true(base == before);
        CUDA_OK(vrpt_kernel_check(r.stream[0], base, kept, 0, 1, 10 * MS));
        CUDA_OK(vrpt_kernel_fill(r.stream[0], base + kept, next - kept, kept, 1));
        if (next < size) {
            vrp_devptr other = take(&r, size - next, r.stream[1]);
            fill(r.stream[1], other, size - next, i);
            check(r.stream[1], other, size - next, i, 0);
            VRPT_OK(vrp_free(r.t.pool, other, r.stream[1]));
        }
        size = next;
    }
    CUDA_OK(vrpt_kernel_check(r.stream[0], vrp_growable_base(buffer), size, 0, 1, 0));
    VRPT_OK(vrp_growable_destroy(buffer));
    all_intact();
    rig_close(&r);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_shared_in_no_order_is_found),
        cmocka_unit_test(freed_block_reaches_another_stream_in_order),
        cmocka_unit_test(announced_use_outlives_the_free),
        cmocka_unit_test(extents_move_under_one_stream),
        cmocka_unit_test(extents_move_between_streams),
        cmocka_unit_test(trim_does_not_wait_for_a_kernel),
        cmocka_unit_test(trims_between_launches_unmap_nothing_in_use),
        cmocka_unit_test(buffer_keeps_its_contents),
    };
    char device[] = "cuda:0";
    char *arguments[] = {argv[0], argc > 1 ? argv[1] : device, NULL};
    if (sscanf(arguments[1], "cuda:%d", &device_ordinal) != 1)
        return VRPT_SKIP; /* simulated kernels would prove nothing */
    return vrpt_main("kernels", tests, VRPT_COUNT(tests), 2, arguments);
}
