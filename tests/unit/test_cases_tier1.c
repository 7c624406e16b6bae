/* SPDX-License-Identifier: MIT */
/* Cases of others, first tier: silent corruption. One address handed out
 * twice, a block that is too small, a free that takes what is not its own.
 * The number in a name is the case's; each runs over both backings. */

#include "unit_support.h"

#include <pthread.h>
#include <string.h>

#define UNTOUCHED UINT64_C(0xdeadbeef)

/* ---- 1, 2: sizes that do not fit ------------------------------------------------ */

/* The request must be refused, and leave a pool that still serves. */
static void assert_refused(vrpt *t, uint64_t bytes, uint64_t alignment, int only_invalid) {
    const vrp_stats before = vrpt_stats(t);
    vrp_devptr ptr = UNTOUCHED;
    vrp_status status = alignment == 0 ? vrp_alloc(t->pool, bytes, VRP_STREAM_LEGACY, &ptr)
                                       : ask(t, bytes, alignment, VRP_TAG_OTHER, 0, &ptr);
    if (status != VRP_INVALID_SIZE && (only_invalid || status != VRP_OUT_OF_DEVICE_MEMORY))
        fail_msg("%#llx bytes, alignment %#llx: %s", (unsigned long long)bytes,
                 (unsigned long long)alignment, vrp_status_name(status));
    assert_int_equal(ptr, UNTOUCHED);
    assert_unchanged(t, &before);
    assert_true(vrpt_stats(t).failures <= before.failures + 1);
    vrp_devptr a = take(t, 512);
    vrp_devptr b = take(t, 512);
    assert_true(a != 0 && b != 0 && a != b);
    give(t, a);
    give(t, b);
}

static void case_001_size_near_size_max_never_wraps(void **state) {
    static const uint64_t below[] = {0, 1, 7, 255, 510, 511};
    static const uint64_t alignments[] = {0, 1, 512, 4096, 2 * VRPT_MIB};
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    give(&t, take(&t, VRPT_MIB)); /* a cached block that a wrapped size would find */
    vrp_devptr a = take(&t, 512);
    vrp_devptr b = take(&t, 512); /* slots, so that the counters' peaks are settled */
    give(&t, a);
    give(&t, b);
    for (size_t k = 0; k < VRPT_COUNT(alignments); k++) {
        for (size_t i = 0; i < VRPT_COUNT(below); i++)
            assert_refused(&t, SIZE_MAX - below[i], alignments[k], 1);
        /* the window of every rounding there could be: grid, classes, cells,
         * granules, extents, segments, arenas */
        for (uint64_t unit = 512; unit <= UINT64_C(1) << 50; unit *= 2)
            for (uint64_t more = 0; more < 3; more++)
                assert_refused(&t, SIZE_MAX - unit + more, alignments[k], 1);
        assert_refused(&t, SIZE_MAX - 20 * VRPT_MIB + 1, alignments[k], 1);
        assert_refused(&t, (SIZE_MAX >> 1) + 1, alignments[k], 1);
    }
    close_pool(&t);
}

static void case_001_growable_near_size_max_never_wraps(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    const vrp_stats before = vrpt_stats(&t);
    for (uint64_t below = 0; below < 3 * VRPT_MIB; below += below < 1024 ? 1 : VRPT_MIB / 2) {
        vrp_growable_info info = {.struct_size = sizeof info, .max_bytes = SIZE_MAX - below};
        vrp_growable *buffer = NULL;
        VRPT_STATUS(vrp_growable_create(t.pool, &info, &buffer), VRP_INVALID_SIZE);
        assert_null(buffer);
    }
    assert_unchanged(&t, &before);
    close_pool(&t);
}

static void case_002_size_index_is_not_narrowed_to_32_bits(void **state) {
    static const uint64_t units[] = {512, 4096, 32768};
    static const uint64_t alignments[] = {0, 4096, 2 * VRPT_MIB};
    const vrpt_options options = {.device_bytes = 64 * VRPT_GIB};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    vrp_devptr small = take(&t, 512);
    give(&t, small);
    for (size_t k = 0; k < VRPT_COUNT(alignments); k++)
        for (size_t u = 0; u < VRPT_COUNT(units); u++)
            for (unsigned bits = 31; bits < 36; bits++) {
                const uint64_t calls = vrpt_driver_calls(&t);
                const vrp_stats before = vrpt_stats(&t);
                vrp_devptr ptr = UNTOUCHED;
                const uint64_t bytes = ((UINT64_C(1) << bits) + 1) * units[u];
                vrp_status status = ask(&t, bytes, alignments[k], VRP_TAG_OTHER, 0, &ptr);
                assert_true(status == VRP_OUT_OF_DEVICE_MEMORY || status == VRP_INVALID_SIZE);
                assert_int_equal(ptr, UNTOUCHED);
                assert_unchanged(&t, &before);
                /* hopeless from the start: the cached slot is not sacrificed */
                assert_int_equal(vrpt_driver_calls(&t), calls);
                assert_int_equal(take(&t, 512), small);
                give(&t, small);
            }
    close_pool(&t);
}

/* ---- 4: a free block that is too small ------------------------------------------- */

static void served_whole(vrpt *t, uint64_t freed, uint64_t asked) {
    give(t, take(t, freed));
    vrp_devptr ptr = take(t, asked);
    if (vrpt_usable(t, ptr) < asked)
        fail_msg("%llu bytes asked after %llu were freed: %llu usable", (unsigned long long)asked,
                 (unsigned long long)freed, (unsigned long long)vrpt_usable(t, ptr));
    give(t, ptr);
}

static void case_004_block_of_a_class_is_never_too_small(void **state) {
    const vrpt_options options = {.device_bytes = 8 * VRPT_GIB};
    for (int caching = 0; caching < 2; caching++) {
        vrpt t;
        (void)state;
        open_pool(&t, &options);
        if (caching) {
            VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_CACHE_BYTES, VRPT_GIB));
            VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_CACHE_BLOCK_BYTES, VRPT_GIB));
        }
        served_whole(&t, 150 * VRPT_MIB, 200 * VRPT_MIB);
        for (uint64_t low = 512; low <= 512 * VRPT_MIB; low *= 2) {
            served_whole(&t, low + 1, low * 2);
            served_whole(&t, low, low + 1);
            served_whole(&t, low + low / 2 + 1, low * 2 - 1);
        }
        for (uint64_t bytes = 1; bytes <= 33 * VRPT_KIB; bytes += 256)
            served_whole(&t, bytes, bytes + 255);
        close_pool(&t);
    }
}

/* ---- 5: alignments ------------------------------------------------------------------ */

static void case_005_alignment_below_the_base_does_not_underflow(void **state) {
    static const uint64_t sizes[] = {1, 32, 511, 512, 513, 4096, 40000, VRPT_MIB, 5 * VRPT_MIB + 1};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++)
        for (uint64_t alignment = 1; alignment <= VRP_ALIGNMENT_MAX; alignment *= 2) {
            vrpt t;
            vrp_devptr ptr = 0;
            open_pool(&t, NULL);
            VRPT_OK(ask(&t, sizes[i], alignment, VRP_TAG_OTHER, 0, &ptr));
            assert_int_equal(ptr % (alignment < VRP_ALIGNMENT_MIN ? VRP_ALIGNMENT_MIN : alignment),
                             0);
            assert_true(vrpt_usable(&t, ptr) >= sizes[i]);
            assert_true(reserved(&t) <= round_up(sizes[i], piece(&t)) + piece(&t));
            if (alignment <= 512 && sizes[i] <= piece(&t)) /* one normal segment */
                assert_true(reserved(&t) <= first_piece(&t));
            close_pool(&t);
        }
}

static void case_005_bad_alignments_are_refused(void **state) {
    static const uint64_t bad[] = {3,
                                   255,
                                   257,
                                   511,
                                   513,
                                   768,
                                   2 * VRP_ALIGNMENT_MAX,
                                   VRP_ALIGNMENT_MAX + 1,
                                   SIZE_MAX,
                                   UINT64_C(1) << 63};
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    for (size_t i = 0; i < VRPT_COUNT(bad); i++)
        for (uint64_t bytes = 0; bytes <= 64 * VRPT_MIB; bytes = bytes * 8 + 1) {
            const vrp_stats before = vrpt_stats(&t);
            vrp_devptr ptr = UNTOUCHED;
            VRPT_STATUS(ask(&t, bytes, bad[i], VRP_TAG_OTHER, 0, &ptr), VRP_INVALID_ALIGNMENT);
            assert_int_equal(ptr, UNTOUCHED);
            assert_unchanged(&t, &before);
        }
    close_pool(&t);
}

/* ---- 7: bad frees ---------------------------------------------------------------------- */

static void assert_bad_free(vrpt *t, vrp_devptr ptr, vrp_status expected, vrp_status or_else) {
    static const vrp_stream streams[] = {VRP_STREAM_LEGACY, VRP_STREAM_OF_ALLOC};
    for (size_t i = 0; i < VRPT_COUNT(streams); i++) {
        const vrp_stats before = vrpt_stats(t);
        vrp_status status = vrp_free(t->pool, ptr, streams[i]);
        if (status != expected && status != or_else)
            fail_msg("free of %#llx: %s, not %s", (unsigned long long)ptr, vrp_status_name(status),
                     vrp_status_name(expected));
        assert_unchanged(t, &before);
        assert_int_equal(vrpt_stats(t).bad_frees, before.bad_frees + 1);
        status = vrp_record_stream(t->pool, ptr, VRP_STREAM_LEGACY);
        assert_true(status == expected || status == or_else);
        assert_unchanged(t, &before);
    }
}

static void *use_the_pool(void *user) {
    vrpt *t = user;
    for (uint64_t bytes = 1; bytes <= 4 * VRPT_MIB; bytes *= 4) {
        vrp_devptr ptr = 0;
        if (vrp_alloc(t->pool, bytes, VRP_STREAM_LEGACY, &ptr) != VRP_OK || ptr == 0 ||
            vrp_free(t->pool, ptr, VRP_STREAM_LEGACY) != VRP_OK)
            return t; /* anything but NULL */
    }
    return NULL;
}

/* A lock that was left held would stop this thread. */
static void another_thread_can_use(vrpt *t) {
    pthread_t thread;
    void *failed = NULL;
    assert_int_equal(pthread_create(&thread, NULL, use_the_pool, t), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
}

static const uint64_t free_sizes[] = {1,     512,      513,          4096,         32768,
                                      32769, VRPT_MIB, 3 * VRPT_MIB, 40 * VRPT_MIB};

static void case_007_second_free_is_refused_and_changes_nothing(void **state) {
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(free_sizes); i++) {
        vrpt t;
        open_pool(&t, NULL);
        vrp_devptr p = take(&t, free_sizes[i]);
        give(&t, p);
        assert_bad_free(&t, p, VRP_ALREADY_FREED, VRP_ALREADY_FREED);
        vrp_devptr q = take(&t, free_sizes[i]);
        vrp_devptr r = take(&t, free_sizes[i]);
        assert_true(q != r);
        assert_true(vrpt_usable(&t, q) >= free_sizes[i] && vrpt_usable(&t, r) >= free_sizes[i]);
        another_thread_can_use(&t);
        give(&t, q);
        give(&t, r);
        VRPT_OK(vrp_empty_cache(t.pool, NULL));
        assert_bad_free(&t, p, VRP_ALREADY_FREED, VRP_NOT_OWNED);
        another_thread_can_use(&t);
        close_pool(&t);
    }
}

static void case_007_free_of_a_wrong_address_has_its_own_status(void **state) {
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(free_sizes); i++) {
        int on_stack = 0;
        vrpt t;
        open_pool(&t, NULL);
        vrp_devptr p = take(&t, free_sizes[i]);
        const uint64_t usable = vrpt_usable(&t, p);
        for (uint64_t inside = 1; inside < usable; inside = inside * 2 + (inside % 3 == 0))
            assert_bad_free(&t, p + inside, VRP_INTERIOR_POINTER, VRP_INTERIOR_POINTER);
        assert_bad_free(&t, p + usable - 1, VRP_INTERIOR_POINTER, VRP_INTERIOR_POINTER);
        if (usable > 512)
            assert_bad_free(&t, p + 512, VRP_INTERIOR_POINTER, VRP_INTERIOR_POINTER);
        assert_bad_free(&t, p + usable, VRP_NOT_OWNED, VRP_ALREADY_FREED);
        assert_bad_free(&t, p + usable + 512, VRP_NOT_OWNED, VRP_ALREADY_FREED);
        assert_bad_free(&t, (vrp_devptr)(uintptr_t)&on_stack, VRP_NOT_OWNED, VRP_NOT_OWNED);
        assert_bad_free(&t, 1, VRP_NOT_OWNED, VRP_NOT_OWNED);
        assert_bad_free(&t, UINT64_MAX, VRP_NOT_OWNED, VRP_NOT_OWNED);
        assert_bad_free(&t, UINT64_C(1) << 63, VRP_NOT_OWNED, VRP_NOT_OWNED);
        assert_int_equal(vrpt_usable(&t, p), usable);
        another_thread_can_use(&t);
        close_pool(&t);
    }
}

static void case_007_free_of_another_pools_block_is_refused(void **state) {
    vrpt t;
    vrp_pool *other = NULL;
    vrp_devptr theirs = 0;
    (void)state;
    open_pool(&t, NULL);
    VRPT_OK(vrpt_pool_create(&t, NULL, &other));
    for (size_t i = 0; i < VRPT_COUNT(free_sizes); i++) {
        vrp_devptr ours = take(&t, free_sizes[i]);
        VRPT_OK(vrp_alloc(other, free_sizes[i], VRP_STREAM_LEGACY, &theirs));
        assert_true(ours != theirs);
        assert_bad_free(&t, theirs, VRP_NOT_OWNED, VRP_NOT_OWNED);
        VRPT_STATUS(vrp_free(other, ours, VRP_STREAM_LEGACY), VRP_NOT_OWNED);
        VRPT_OK(vrp_free(other, theirs, VRP_STREAM_LEGACY));
        give(&t, ours);
    }
    VRPT_OK(vrp_pool_check(other));
    VRPT_OK(vrp_pool_destroy(other, 0));
    close_pool(&t);
}

/* Pending memory is free too: it waits for a stream that still uses it. */
static void case_007_second_free_of_a_pending_block_is_refused(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_MANUAL};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(free_sizes); i++) {
        vrpt t;
        open_pool(&t, &options);
        vrp_stream side = vrpt_stream_create(&t);
        vrp_devptr p = take(&t, free_sizes[i]);
        VRPT_OK(vrp_sim_stream_wait_stream(t.sim, side, VRP_STREAM_LEGACY));
        VRPT_OK(vrp_record_stream(t.pool, p, side));
        VRPT_OK(vrp_sim_launch(t.sim, side, p, free_sizes[i], 0));
        give(&t, p);
        assert_bad_free(&t, p, VRP_ALREADY_FREED, VRP_ALREADY_FREED);
        another_thread_can_use(&t);
        vrp_sim_drain(t.sim);
        VRPT_OK(vrp_pool_poll(t.pool));
        assert_bad_free(&t, p, VRP_ALREADY_FREED, VRP_ALREADY_FREED);
        VRPT_OK(vrp_stream_forget(t.pool, side));
        vrpt_stream_destroy(&t, side);
        close_pool(&t);
    }
}

/* ---- 38: nothing asked ------------------------------------------------------------------ */

static void case_038_zero_bytes_writes_zero_and_counts_nothing(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    const vrp_stats before = vrpt_stats(&t);
    for (int i = 0; i < 1000; i++) {
        vrp_devptr ptr = UNTOUCHED;
        VRPT_OK(i % 2 ? vrp_alloc(t.pool, 0, VRP_STREAM_LEGACY, &ptr)
                      : ask(&t, 0, 4096, VRP_TAG_KV, 0, &ptr));
        assert_int_equal(ptr, 0);
        VRPT_OK(vrp_free(t.pool, ptr, VRP_STREAM_LEGACY));
    }
    assert_unchanged(&t, &before);
    assert_int_equal(vrpt_stats(&t).failures, before.failures);
    assert_int_equal(vrpt_stats(&t).bad_frees, before.bad_frees);
    close_pool(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_001_size_near_size_max_never_wraps),
        cmocka_unit_test(case_001_growable_near_size_max_never_wraps),
        cmocka_unit_test(case_002_size_index_is_not_narrowed_to_32_bits),
        cmocka_unit_test(case_004_block_of_a_class_is_never_too_small),
        cmocka_unit_test(case_005_alignment_below_the_base_does_not_underflow),
        cmocka_unit_test(case_005_bad_alignments_are_refused),
        cmocka_unit_test(case_007_second_free_is_refused_and_changes_nothing),
        cmocka_unit_test(case_007_free_of_a_wrong_address_has_its_own_status),
        cmocka_unit_test(case_007_free_of_another_pools_block_is_refused),
        cmocka_unit_test(case_007_second_free_of_a_pending_block_is_refused),
        cmocka_unit_test(case_038_zero_bytes_writes_zero_and_counts_nothing),
    };
    return vrpt_main("cases tier 1", tests, VRPT_COUNT(tests), argc, argv);
}
