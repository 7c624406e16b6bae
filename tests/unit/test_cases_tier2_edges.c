/* SPDX-License-Identifier: MIT */
/* Cases of others, second tier, at the edges: sizes exactly on a bound (55,
 * 56), a pool that was full (58), the path of running out itself (59). */

#include "unit_support.h"

#include <stdlib.h>

/* ---- 55: exact sizes -------------------------------------------------------------- */

static void first_request_is_exact(uint64_t bytes) {
    const vrpt_options options = {.device_bytes = 4 * VRPT_GIB};
    vrpt t;
    open_pool(&t, &options);
    vrp_devptr ptr = take(&t, bytes);
    assert_true(vrpt_usable(&t, ptr) >= bytes);
    assert_int_equal(requested(&t), bytes);
    /* exact where the request is a whole number of pieces; a smaller segment
     * has room for several blocks of the size */
    const uint64_t least = round_up(bytes, 2 * VRPT_MIB);
    const int whole = t.backing == VRP_BACKING_VMM || bytes > 128 * VRPT_MIB;
    const uint64_t most = whole ? least : 10 * least + 2 * piece(&t);
    if (reserved(&t) < least || reserved(&t) > most)
        fail_msg("%llu bytes reserve %llu, not %llu to %llu", (unsigned long long)bytes,
                 (unsigned long long)reserved(&t), (unsigned long long)least,
                 (unsigned long long)most);
    give(&t, ptr);
    close_pool(&t);
}

static void case_055_first_request_of_an_exact_size(void **state) {
    (void)state;
    for (uint64_t bound = 512; bound <= 2 * VRPT_GIB; bound *= 2) {
        first_request_is_exact(bound - 1);
        first_request_is_exact(bound);
        first_request_is_exact(bound + 1);
        first_request_is_exact(bound / 2 * 3);
    }
    for (uint64_t pieces = 1; pieces < 20; pieces += 3)
        first_request_is_exact(pieces * 32 * VRPT_MIB);
}

/* Every size to 33 KiB: the class holds it, and rounds by 12.5 % at most. */
static void case_055_every_small_size_fits_its_class(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    for (uint64_t bytes = 1; bytes <= 33 * VRPT_KIB; bytes += bytes % 512 == 511 ? 1 : 51) {
        vrp_devptr ptr = take(&t, bytes);
        const uint64_t usable = vrpt_usable(&t, ptr);
        assert_true(usable >= bytes && usable == allocated(&t));
        assert_true(usable <= round_up(bytes, 512) + (bytes > 4096 ? bytes / 8 : 0));
        give(&t, ptr);
    }
    close_pool(&t);
}

/* ---- 56: exactly the last size that is cached ---------------------------------------- */

static void case_056_sizes_around_the_largest_cached_one(void **state) {
    static const uint64_t largest[] = {0,        512,         32 * VRPT_KIB, 64 * VRPT_KIB,
                                       VRPT_MIB, 8 * VRPT_MIB};
    static const uint64_t cache[] = {0, 512, 64 * VRPT_KIB, 4 * VRPT_MIB, 64 * VRPT_MIB};
    (void)state;
    for (size_t l = 0; l < VRPT_COUNT(largest); l++)
        for (size_t c = 0; c < VRPT_COUNT(cache); c++) {
            vrpt t;
            open_pool(&t, NULL);
            VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_CACHE_BLOCK_BYTES, largest[l]));
            VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_CACHE_BYTES, cache[c]));
            VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_CACHE_HELD_BYTES, 0));
            for (uint64_t bound = 512; bound <= 16 * VRPT_MIB; bound *= 2)
                for (uint64_t i = 0; i < 5; i++) {
                    static const uint64_t shift[] = {512, 1, 0, UINT64_MAX, UINT64_MAX - 511};
                    const uint64_t bytes = bound - shift[i]; /* -512 -1 0 +1 +512 */
                    if (bytes == 0)
                        continue;
                    give(&t, take(&t, bytes));
                    assert_true(vrpt_stats(&t).cached_bytes <= cache[c] + 2 * VRPT_MIB);
                    vrp_devptr again = take(&t, bytes);
                    assert_true(vrpt_usable(&t, again) >= bytes);
                    give(&t, again);
                }
            VRPT_OK(vrp_empty_cache(t.pool, NULL));
            /* what is too large for the cache does not stay in it */
            const uint64_t above = (largest[l] > 32 * VRPT_KIB ? largest[l] : 32 * VRPT_KIB) + 1;
            give(&t, take(&t, above));
            assert_int_equal(vrpt_stats(&t).cached_bytes, 0);
            close_pool(&t);
        }
}

/* ---- 58: full, empty, full of something else ------------------------------------------- */

static void case_058_full_pool_serves_other_sizes_afterwards(void **state) {
    static const struct {
        uint64_t bytes, device;
    } fills[] = {{VRPT_KIB, 64 * VRPT_MIB},
                 {48 * VRPT_KIB, 256 * VRPT_MIB},
                 {VRPT_MIB, 512 * VRPT_MIB},
                 {64 * VRPT_MIB, 2 * VRPT_GIB}};
    (void)state;
    for (size_t f = 0; f < VRPT_COUNT(fills); f++) {
        const vrpt_options options = {.device_bytes = fills[f].device};
        const uint64_t most = fills[f].device / fills[f].bytes;
        vrp_devptr *ptrs = calloc(most + 1, sizeof *ptrs);
        uint64_t count = 0;
        vrp_status status;
        vrpt t;
        assert_non_null(ptrs);
        open_pool(&t, &options);
        while ((status = vrp_alloc(t.pool, fills[f].bytes, VRP_STREAM_LEGACY, &ptrs[count])) ==
               VRP_OK)
            assert_true(++count <= most);
        assert_int_equal(status, VRP_OUT_OF_DEVICE_MEMORY);
        assert_true(count >= most / 10 * 9);
        VRPT_OK(vrp_pool_check(t.pool));
        for (uint64_t i = 0; i < count; i++)
            give(&t, ptrs[i]);
        vrp_devptr b = take(&t, 4 * fills[f].bytes);
        vrp_devptr a = take(&t, fills[f].bytes);
        give(&t, b);
        give(&t, a);
        free(ptrs);
        close_pool(&t);
    }
}

/* ---- 59: running out with full caches --------------------------------------------------- */

static const uint64_t cached_sizes[] = {512, 4096, 32768, 256 * VRPT_KIB, 8 * VRPT_MIB};

static void case_059_running_out_flushes_the_caches_safely(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    for (int round = 0; round < 3; round++) {
        vrp_devptr live[VRPT_COUNT(cached_sizes)], freed[VRPT_COUNT(cached_sizes)];
        for (size_t i = 0; i < VRPT_COUNT(cached_sizes); i++) {
            freed[i] = take(&t, cached_sizes[i]);
            live[i] = take(&t, cached_sizes[i]);
        }
        for (size_t i = 0; i < VRPT_COUNT(cached_sizes); i++)
            give(&t, freed[i]);
        const vrp_stats before = vrpt_stats(&t);
        vrp_devptr ptr = 0;
        VRPT_STATUS(vrp_alloc(t.pool, t.device_bytes - 2 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr),
                    VRP_OUT_OF_DEVICE_MEMORY);
        assert_int_equal(ptr, 0);
        vrp_stats after = vrpt_stats(&t);
        assert_true(vrpt_same_counters(&before, &after));
        assert_int_equal(after.cached_bytes, 0);
        assert_int_equal(after.failures, before.failures + 1);
        VRPT_OK(vrp_pool_check(t.pool));
        for (size_t i = 0; i < VRPT_COUNT(cached_sizes); i++)
            give(&t, live[i]);
    }
    close_pool(&t);
}

typedef struct helper {
    vrpt *t;
    vrp_devptr spare[4];
    uint32_t asked, freed;
    uint64_t reported;
} helper;

static int free_one(void *user, const vrp_oom_report *report) {
    helper *h = user;
    vrp_devptr ptr = 0;
    h->asked++;
    h->reported = report->requested_bytes;
    /* a request of its own that fails does not ask again */
    if (vrp_alloc(h->t->pool, h->t->device_bytes, VRP_STREAM_LEGACY, &ptr) == VRP_OK)
        return 0;
    if (h->freed == VRPT_COUNT(h->spare))
        return 0;
    return vrp_free(h->t->pool, h->spare[h->freed++], VRP_STREAM_LEGACY) == VRP_OK;
}

static void case_059_callback_frees_what_is_missing(void **state) {
    helper h = {0};
    vrpt t;
    const vrpt_options options = {.pool = {.oom_fn = free_one, .oom_user = &h}};
    (void)state;
    open_pool(&t, &options);
    h.t = &t;
    for (size_t i = 0; i < VRPT_COUNT(h.spare); i++)
        h.spare[i] = take(&t, 192 * VRPT_MIB);
    assert_int_equal(h.asked, 0);
    vrp_devptr ptr = take(&t, 600 * VRPT_MIB);
    assert_true(h.reported >= 600 * VRPT_MIB);
    assert_int_equal(h.asked, h.freed);
    assert_true(h.freed >= 2 && h.freed <= VRP_OOM_ATTEMPTS);
    give(&t, ptr);
    const uint32_t asked = h.asked;
    vrp_alloc_info info = {
        .struct_size = sizeof info, .flags = VRP_ALLOC_NO_OOM_CALL, .bytes = VRPT_GIB};
    VRPT_STATUS(vrp_alloc_ex(t.pool, &info, &ptr), VRP_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(h.asked, asked);
    while (h.freed < VRPT_COUNT(h.spare))
        give(&t, h.spare[h.freed++]);
    close_pool(&t);
}

static int count_calls(void *user, const vrp_oom_report *report) {
    uint32_t *calls = user;
    (void)report;
    (*calls)++;
    return 0;
}

/* Memory whose work is done comes first, whatever stream it was freed on. */
static void case_059_callback_is_not_asked_for_what_the_pool_has(void **state) {
    (void)state;
    for (int other = 0; other < 2; other++)
        for (uint64_t parts = 1; parts <= 6; parts++) {
            uint32_t calls = 0;
            vrpt t;
            const vrpt_options options = {.pool = {.oom_fn = count_calls, .oom_user = &calls}};
            open_pool(&t, &options);
            vrp_devptr ptrs[6];
            vrp_stream stream = other ? vrpt_stream_create(&t) : VRP_STREAM_LEGACY;
            for (uint64_t i = 0; i < parts; i++)
                ptrs[i] = take(&t, 600 * VRPT_MIB / parts);
            for (uint64_t i = 0; i < parts; i++)
                give(&t, ptrs[i]);
            VRPT_OK(vrp_free(t.pool, take_on(&t, 900 * VRPT_MIB, stream), stream));
            assert_int_equal(calls, 0);
            if (other) {
                VRPT_OK(vrp_stream_forget(t.pool, stream));
                vrpt_stream_destroy(&t, stream);
            }
            close_pool(&t);
        }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_055_first_request_of_an_exact_size),
        cmocka_unit_test(case_055_every_small_size_fits_its_class),
        cmocka_unit_test(case_056_sizes_around_the_largest_cached_one),
        cmocka_unit_test(case_058_full_pool_serves_other_sizes_afterwards),
        cmocka_unit_test(case_059_running_out_flushes_the_caches_safely),
        cmocka_unit_test(case_059_callback_frees_what_is_missing),
        cmocka_unit_test(case_059_callback_is_not_asked_for_what_the_pool_has),
    };
    return vrpt_main("cases tier 2, edges", tests, VRPT_COUNT(tests), argc, argv);
}
