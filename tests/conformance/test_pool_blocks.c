/* SPDX-License-Identifier: MIT */
/* Conformance, blocks: allocating, freeing, alignment, exact counters. Runs on
 * every device and backing: sim/vmm and sim/malloc by default; with the
 * argument or VRAMPOOL_TEST_DEVICE "cuda:0" on that GPU (label gpu, exit
 * status 77 where there is none). The same holds for all test_pool_*.c. */

#include "vrp_test.h"

#include <inttypes.h>

static vrp_devptr take(vrpt *t, uint64_t bytes) {
    vrp_devptr ptr = 0;
    VRPT_OK(vrp_alloc(t->pool, bytes, VRP_STREAM_LEGACY, &ptr));
    return ptr;
}

static void give(vrpt *t, vrp_devptr ptr) { VRPT_OK(vrp_free(t->pool, ptr, VRP_STREAM_LEGACY)); }

static void open_plain(vrpt *t) {
    vrpt_options options = {.pool.flags = VRP_NO_RECLAIMER};
    VRPT_REQUIRE(t, vrpt_open(t, &options));
}

static void blocks_of_all_sizes_are_apart(void **state) {
    (void)state;
    vrpt t;
    vrp_devptr ptr[120];
    uint64_t bytes[120], requested = 0;
    vrpt_rng rng = {4};
    open_plain(&t);
    for (size_t i = 0; i < VRPT_COUNT(ptr); i++) {
        bytes[i] = 1 + vrpt_rng_below(&rng, (uint64_t)1 << (i % 24));
        ptr[i] = take(&t, bytes[i]);
        requested += bytes[i];
        assert_true(ptr[i] != 0 && ptr[i] % VRP_ALIGNMENT_MIN == 0);
        assert_true(vrpt_usable(&t, ptr[i]) >= bytes[i]);
        for (size_t k = 0; k < i; k++)
            assert_true(ptr[k] + bytes[k] <= ptr[i] || ptr[i] + bytes[i] <= ptr[k]);
    }
    vrp_stats stats = vrpt_stats(&t);
    assert_int_equal(stats.requested_bytes.current, requested);
    assert_int_equal(stats.blocks.current, VRPT_COUNT(ptr));
    VRPT_REQUIRE(&t, vrpt_recount(&t));
    for (size_t i = 0; i < VRPT_COUNT(ptr); i += 2)
        give(&t, ptr[i]);
    VRPT_REQUIRE(&t, vrpt_recount(&t));
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void size_zero_gives_address_zero(void **state) {
    (void)state;
    vrpt t;
    open_plain(&t);
    give(&t, take(&t, 100));
    vrp_stats before = vrpt_stats(&t);
    for (int i = 0; i < 1000; i++) {
        vrp_devptr ptr = 0xdeadbeef;
        VRPT_OK(vrp_alloc(t.pool, 0, VRP_STREAM_LEGACY, &ptr));
        assert_int_equal(ptr, 0);
        VRPT_OK(vrp_free(t.pool, ptr, VRP_STREAM_LEGACY));
        VRPT_OK(vrp_free(t.pool, 0, VRP_STREAM_OF_ALLOC));
    }
    vrp_stats after = vrpt_stats(&t);
    assert_true(vrpt_same_counters(&before, &after));
    assert_int_equal(before.reserved_bytes.total, after.reserved_bytes.total);
    assert_int_equal(after.bad_frees, 0);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void every_alignment_is_honoured(void **state) {
    (void)state;
    static const uint64_t sizes[] = {1, 512, 5000, 40000, 3 * VRPT_MIB + 1};
    vrpt t;
    open_plain(&t);
    for (size_t alignment = 1; alignment <= VRP_ALIGNMENT_MAX; alignment *= 2)
        for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
            vrp_alloc_info info = {
                .struct_size = sizeof info, .bytes = sizes[i], .alignment = alignment};
            vrp_devptr ptr = 0;
            VRPT_OK(vrp_alloc_ex(t.pool, &info, &ptr));
            assert_int_equal(ptr % alignment, 0);
            assert_int_equal(ptr % VRP_ALIGNMENT_MIN, 0);
            assert_true(vrpt_usable(&t, ptr) >= sizes[i]);
        }
    VRPT_REQUIRE(&t, vrpt_recount(&t));
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void rounding_is_at_most_an_eighth(void **state) {
    (void)state;
    vrpt t;
    open_plain(&t);
    for (uint64_t bytes = 1; bytes <= 40000; bytes += 97) {
        vrp_devptr ptr = take(&t, bytes);
        uint64_t usable = vrpt_usable(&t, ptr);
        assert_true(usable >= bytes && usable % 512 == 0);
        assert_true(usable <= (bytes + 511) / 512 * 512 + (bytes > 4096 ? bytes / 8 : 0));
        assert_int_equal(vrpt_stats(&t).allocated_bytes.current, usable);
        give(&t, ptr);
    }
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void bounds_of_classes_and_segments_are_served(void **state) {
    (void)state;
    static const uint64_t bounds[] = {512,           4096,          32768,         VRPT_MIB,
                                      2 * VRPT_MIB,  8 * VRPT_MIB,  20 * VRPT_MIB, 32 * VRPT_MIB,
                                      64 * VRPT_MIB, 512 * VRPT_MIB};
    for (size_t i = 0; i < VRPT_COUNT(bounds); i++)
        for (uint64_t bytes = bounds[i] - 1; bytes <= bounds[i] + 1; bytes++) {
            vrpt t; /* each is the first request of a fresh pool */
            open_plain(&t);
            vrp_devptr ptr = take(&t, bytes);
            assert_true(vrpt_usable(&t, ptr) >= bytes);
            if (bytes % (2 * VRPT_MIB) == 0 && t.backing == VRP_BACKING_VMM)
                assert_int_equal(vrpt_stats(&t).reserved_bytes.current, bytes);
            give(&t, ptr);
            give(&t, take(&t, bytes));
            VRPT_REQUIRE(&t, vrpt_close(&t));
        }
}

static void smaller_free_block_never_serves(void **state) {
    (void)state;
    vrpt t;
    open_plain(&t);
    for (uint64_t scale = 512; scale <= 128 * VRPT_MIB; scale *= 2) {
        vrp_devptr low = take(&t, scale + 1);
        give(&t, low);
        vrp_devptr high = take(&t, scale * 2);
        assert_true(vrpt_usable(&t, high) >= scale * 2);
        give(&t, high);
    }
    VRPT_REQUIRE(&t, vrpt_recount(&t));
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void counters_are_exact(void **state) {
    (void)state;
    vrpt t;
    open_plain(&t);
    vrp_devptr a = take(&t, 1000), b = take(&t, 50000), c = take(&t, 9 * VRPT_MIB + 7);
    uint64_t usable = vrpt_usable(&t, a) + vrpt_usable(&t, b) + vrpt_usable(&t, c);
    uint64_t of_c = vrpt_usable(&t, c), requested = 1000 + 50000 + 9 * VRPT_MIB + 7;
    give(&t, c);
    vrp_stats stats = vrpt_stats(&t);
    assert_int_equal(stats.requested_bytes.current, 51000);
    assert_int_equal(stats.requested_bytes.peak, requested);
    assert_int_equal(stats.requested_bytes.total, requested);
    assert_int_equal(stats.allocated_bytes.current, usable - of_c);
    assert_int_equal(stats.allocated_bytes.peak, usable);
    assert_int_equal(stats.allocated_bytes.total, usable);
    assert_int_equal(stats.blocks.current, 2);
    assert_int_equal(stats.blocks.peak, 3);
    assert_int_equal(stats.blocks.total, 3);
    assert_int_equal(stats.backing, t.backing);
    VRPT_OK(vrp_pool_peaks_reset(t.pool));
    stats = vrpt_stats(&t);
    assert_int_equal(stats.requested_bytes.peak, 51000);
    assert_int_equal(stats.requested_bytes.total, requested);
    assert_int_equal(stats.blocks.peak, 2);
    assert_int_equal(stats.reserved_bytes.peak, stats.reserved_bytes.current);
    give(&t, take(&t, 5 * VRPT_MIB));
    assert_int_equal(vrpt_stats(&t).requested_bytes.peak, 51000 + 5 * VRPT_MIB);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void repeated_requests_cost_no_driver_call(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    static const uint64_t sizes[] = {16, 1032, 30000, 700000, 24 * VRPT_MIB};
    vrpt t;
    open_plain(&t);
    uint64_t calls = 0;
    for (int round = 0; round < 5; round++) {
        vrp_devptr ptr[2 * VRPT_COUNT(sizes)];
        for (size_t i = 0; i < VRPT_COUNT(ptr); i++)
            ptr[i] = take(&t, sizes[i / 2]);
        for (size_t i = 0; i < VRPT_COUNT(ptr); i++)
            give(&t, ptr[i]);
        if (round == 0)
            calls = vrpt_driver_calls(&t);
    }
    assert_int_equal(vrpt_driver_calls(&t), calls);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void filled_pool_can_be_filled_with_other_sizes(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    static const uint64_t sizes[] = {256 * VRPT_KIB, VRPT_MIB, 64 * VRPT_MIB};
    static vrp_devptr ptr[1024];
    for (size_t k = 0; k < VRPT_COUNT(sizes); k++) {
        vrpt t;
        vrpt_options options = {.device_bytes = 256 * VRPT_MIB, .pool.flags = VRP_NO_RECLAIMER};
        VRPT_REQUIRE(&t, vrpt_open(&t, &options));
        size_t count = 0;
        while (count < VRPT_COUNT(ptr) &&
               vrp_alloc(t.pool, sizes[k], VRP_STREAM_LEGACY, &ptr[count]) == VRP_OK)
            count++;
        assert_true(count * sizes[k] >= 240 * VRPT_MIB);
        for (size_t i = 0; i < count; i++)
            give(&t, ptr[i]);
        vrp_devptr large = take(&t, 4 * sizes[k] <= 256 * VRPT_MIB ? 4 * sizes[k] : sizes[k]);
        give(&t, large);
        give(&t, take(&t, sizes[k]));
        VRPT_REQUIRE(&t, vrpt_close(&t));
    }
}

static void block_info_answers_for_every_byte(void **state) {
    (void)state;
    static const uint64_t sizes[] = {700, 100000, 5 * VRPT_MIB};
    vrpt t;
    open_plain(&t);
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrp_devptr ptr = take(&t, sizes[i]);
        vrp_block_info info = {.struct_size = sizeof info};
        VRPT_OK(vrp_block_info_get(t.pool, ptr + sizes[i] - 1, &info));
        assert_int_equal(info.base, ptr);
        assert_int_equal(info.state, VRP_BLOCK_LIVE);
        assert_int_equal(info.requested_bytes, sizes[i]);
        assert_true(info.bytes >= sizes[i]);
        assert_int_equal(info.stream, VRP_STREAM_LEGACY);
        give(&t, ptr);
        vrp_status status = vrp_block_info_get(t.pool, ptr, &info);
        assert_true(status == VRP_ALREADY_FREED || status == VRP_NOT_OWNED);
    }
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void two_pools_share_a_device(void **state) {
    (void)state;
    vrpt t;
    vrp_pool *other = NULL;
    vrpt_options options = {.pool.flags = VRP_NO_RECLAIMER};
    VRPT_REQUIRE(&t, vrpt_open(&t, &options));
    VRPT_OK(vrpt_pool_create(&t, &options, &other));
    t.shared = 1;
    vrp_devptr a = take(&t, 100000), b = 0;
    VRPT_OK(vrp_alloc(other, 100000, VRP_STREAM_LEGACY, &b));
    assert_true(a != 0 && b != 0 && a != b);
    VRPT_STATUS(vrp_free(other, a, VRP_STREAM_LEGACY), VRP_NOT_OWNED);
    VRPT_STATUS(vrp_free(t.pool, b, VRP_STREAM_LEGACY), VRP_NOT_OWNED);
    if (t.sim != NULL) {
        vrp_stats mine = vrpt_stats(&t), theirs = {.struct_size = sizeof theirs};
        VRPT_OK(vrp_pool_stats_get(other, &theirs));
        assert_int_equal(mine.reserved_bytes.current + theirs.reserved_bytes.current,
                         vrpt_sim_stats(&t, 0).used_bytes);
    }
    VRPT_OK(vrp_free(other, b, VRP_STREAM_LEGACY));
    VRPT_OK(vrp_pool_check(other));
    VRPT_OK(vrp_pool_destroy(other, 0));
    t.shared = 0;
    give(&t, a);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_all_sizes_are_apart),
        cmocka_unit_test(size_zero_gives_address_zero),
        cmocka_unit_test(every_alignment_is_honoured),
        cmocka_unit_test(rounding_is_at_most_an_eighth),
        cmocka_unit_test(bounds_of_classes_and_segments_are_served),
        cmocka_unit_test(smaller_free_block_never_serves),
        cmocka_unit_test(counters_are_exact),
        cmocka_unit_test(repeated_requests_cost_no_driver_call),
        cmocka_unit_test(filled_pool_can_be_filled_with_other_sizes),
        cmocka_unit_test(block_info_answers_for_every_byte),
        cmocka_unit_test(two_pools_share_a_device),
    };
    return vrpt_main("pool_blocks", tests, VRPT_COUNT(tests), argc, argv);
}
