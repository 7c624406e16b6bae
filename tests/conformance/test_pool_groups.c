/* SPDX-License-Identifier: MIT */
/* Conformance, sets of blocks: tags, budgets, scopes, and buffers that grow.
 * Runs as test_pool_blocks.c says. */

#include "vrp_test.h"

#include <string.h>

static void open_plain(vrpt *t) {
    vrpt_options options = {.pool.flags = VRP_NO_RECLAIMER};
    VRPT_REQUIRE(t, vrpt_open(t, &options));
}

static vrp_status take(vrpt *t, uint64_t bytes, int32_t tag, vrp_scope scope, vrp_devptr *ptr) {
    vrp_alloc_info info = {.struct_size = sizeof info, .bytes = bytes, .tag = tag, .scope = scope};
    return vrp_alloc_ex(t->pool, &info, ptr);
}

static vrp_group_stats tag_stats(vrpt *t, int32_t tag) {
    vrp_group_stats stats = {.struct_size = sizeof stats};
    VRPT_OK(vrp_tag_stats_get(t->pool, tag, &stats));
    return stats;
}

static vrp_group_stats scope_stats(vrpt *t, vrp_scope scope) {
    vrp_group_stats stats = {.struct_size = sizeof stats};
    VRPT_OK(vrp_scope_stats_get(t->pool, scope, &stats));
    return stats;
}

/* ---- Tags ---------------------------------------------------------------------- */

static void tags_are_counted_apart(void **state) {
    (void)state;
    vrpt t;
    vrp_devptr ptr[VRP_TAG_COUNT] = {0};
    open_plain(&t);
    for (int32_t tag = 0; tag < VRP_TAG_COUNT; tag++)
        VRPT_OK(take(&t, 10000u << (tag * 2), tag, 0, &ptr[tag]));
    uint64_t allocated = 0;
    for (int32_t tag = 0; tag < VRP_TAG_COUNT; tag++) {
        vrp_group_stats stats = tag_stats(&t, tag);
        assert_int_equal(stats.requested_bytes.current, 10000u << (tag * 2));
        assert_int_equal(stats.allocated_bytes.current, vrpt_usable(&t, ptr[tag]));
        assert_int_equal(stats.blocks, 1);
        allocated += stats.allocated_bytes.current;
    }
    assert_int_equal(allocated, vrpt_stats(&t).allocated_bytes.current);
    VRPT_OK(vrp_free(t.pool, ptr[VRP_TAG_KV], VRP_STREAM_LEGACY));
    vrp_group_stats kv = tag_stats(&t, VRP_TAG_KV);
    assert_int_equal(kv.requested_bytes.current, 0);
    assert_int_equal(kv.requested_bytes.peak, 10000u << 4);
    assert_int_equal(kv.requested_bytes.total, 10000u << 4);
    assert_int_equal(kv.blocks, 0);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void budget_of_a_tag_holds_to_the_byte(void **state) {
    (void)state;
    vrpt t;
    vrp_devptr ptr[64] = {0}, more = 77;
    open_plain(&t);
    VRPT_OK(vrp_tag_budget_set(t.pool, VRP_TAG_KV, 64 * 4096));
    for (int i = 0; i < 64; i++)
        VRPT_OK(take(&t, 4096, VRP_TAG_KV, 0, &ptr[i]));
    vrp_stats before = vrpt_stats(&t);
    VRPT_STATUS(take(&t, 1, VRP_TAG_KV, 0, &more), VRP_LIMIT_REACHED);
    VRPT_STATUS(take(&t, 50 * VRPT_MIB, VRP_TAG_KV, 0, &more), VRP_LIMIT_REACHED);
    assert_int_equal(more, 77);
    vrp_stats after = vrpt_stats(&t);
    assert_true(vrpt_same_counters(&before, &after));
    assert_int_equal(tag_stats(&t, VRP_TAG_KV).budget_bytes, 64 * 4096);
    VRPT_OK(take(&t, VRPT_MIB, VRP_TAG_OTHER, 0, &more)); /* others are not concerned */
    VRPT_OK(vrp_free(t.pool, ptr[9], VRP_STREAM_LEGACY));
    VRPT_OK(take(&t, 4096, VRP_TAG_KV, 0, &ptr[9]));
    VRPT_OK(vrp_tag_budget_set(t.pool, VRP_TAG_KV, 4096)); /* what is live stays */
    assert_int_equal(tag_stats(&t, VRP_TAG_KV).blocks, 64);
    VRPT_STATUS(take(&t, 1, VRP_TAG_KV, 0, &more), VRP_LIMIT_REACHED);
    VRPT_OK(vrp_tag_budget_set(t.pool, VRP_TAG_KV, 0));
    VRPT_OK(take(&t, VRPT_MIB, VRP_TAG_KV, 0, &more));
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

/* ---- Scopes ----------------------------------------------------------------------- */

static void scope_counts_and_releases_its_blocks(void **state) {
    (void)state;
    vrpt t;
    vrp_scope scope = 0, other = 0;
    vrp_devptr ptr = 0, outside = 0, kept = 0;
    uint64_t blocks = 0;
    open_plain(&t);
    VRPT_OK(vrp_scope_open(t.pool, 0, &scope));
    VRPT_OK(vrp_scope_open(t.pool, 0, &other));
    assert_true(scope != 0 && other != 0 && scope != other);
    VRPT_OK(take(&t, 5000, 0, 0, &outside));
    VRPT_OK(take(&t, 5000, 0, other, &kept));
    for (uint64_t i = 0; i < 40; i++)
        VRPT_OK(take(&t, 100 + i * i * 3000, (int32_t)(i % VRP_TAG_COUNT), scope, &ptr));
    VRPT_OK(vrp_free(t.pool, ptr, VRP_STREAM_LEGACY));
    vrp_group_stats stats = scope_stats(&t, scope);
    assert_int_equal(stats.blocks, 39);
    VRPT_OK(vrp_scope_close(t.pool, scope));
    VRPT_STATUS(take(&t, 100, 0, scope, &ptr), VRP_INVALID_ARGUMENT);
    assert_int_equal(scope_stats(&t, scope).blocks, 39);
    VRPT_OK(vrp_scope_release(t.pool, scope, &blocks));
    assert_int_equal(blocks, 39);
    VRPT_STATUS(vrp_scope_release(t.pool, scope, &blocks), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(take(&t, 100, 0, scope, &ptr), VRP_INVALID_ARGUMENT);
    assert_int_equal(vrpt_stats(&t).blocks.current, 2);
    for (int32_t tag = 1; tag < VRP_TAG_COUNT; tag++)
        assert_int_equal(tag_stats(&t, tag).blocks, 0);
    VRPT_OK(vrp_free(t.pool, kept, VRP_STREAM_LEGACY));
    VRPT_OK(vrp_scope_release(t.pool, other, &blocks));
    assert_int_equal(blocks, 0);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void scope_of_100000_blocks_goes_in_one_call(void **state) {
    (void)state;
    vrpt t;
    vrp_scope scope = 0;
    vrp_devptr ptr = 0, among = 0;
    uint64_t blocks = 0;
    open_plain(&t);
    VRPT_OK(vrp_scope_open(t.pool, 0, &scope));
    for (uint64_t i = 0; i < 100000; i++) {
        VRPT_OK(take(&t, 64 + i % 7 * 500, VRP_TAG_KV, scope, &ptr));
        if (i % 1000 == 500)
            VRPT_OK(take(&t, 700, VRP_TAG_OTHER, 0, &among));
    }
    VRPT_OK(vrp_scope_release(t.pool, scope, &blocks));
    assert_int_equal(blocks, 100000);
    vrp_stats stats = vrpt_stats(&t);
    assert_int_equal(stats.blocks.current, 100);
    assert_int_equal(stats.requested_bytes.current, 70000);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void budget_of_a_scope_holds(void **state) {
    (void)state;
    vrpt t;
    vrp_scope scope = 0;
    vrp_devptr ptr = 0;
    open_plain(&t);
    VRPT_OK(vrp_scope_open(t.pool, 3 * VRPT_MIB, &scope));
    VRPT_OK(take(&t, 2 * VRPT_MIB, 0, scope, &ptr));
    VRPT_OK(take(&t, VRPT_MIB, 0, scope, &ptr));
    VRPT_STATUS(take(&t, 512, 0, scope, &ptr), VRP_LIMIT_REACHED);
    assert_int_equal(scope_stats(&t, scope).budget_bytes, 3 * VRPT_MIB);
    VRPT_OK(vrp_free(t.pool, ptr, VRP_STREAM_LEGACY));
    VRPT_OK(take(&t, 512, 0, scope, &ptr));
    VRPT_OK(vrp_scope_release(t.pool, scope, NULL));
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void scopes_are_many_and_used_again(void **state) {
    (void)state;
    vrpt t;
    static vrp_scope scopes[2000];
    vrp_devptr ptr = 0;
    open_plain(&t);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < VRPT_COUNT(scopes); i++) {
            VRPT_OK(vrp_scope_open(t.pool, 0, &scopes[i]));
            VRPT_OK(take(&t, 3000, 0, scopes[i], &ptr));
        }
        for (size_t i = 0; i < VRPT_COUNT(scopes); i++) {
            uint64_t blocks = 0;
            VRPT_OK(vrp_scope_release(t.pool, scopes[i], &blocks));
            assert_int_equal(blocks, 1);
        }
        VRPT_STATUS(vrp_scope_close(t.pool, scopes[7]), VRP_INVALID_ARGUMENT);
    }
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

/* ---- Growable buffers --------------------------------------------------------------- */

static void *memory_of(vrpt *t, const vrp_growable *buffer) {
    void *memory = NULL;
    VRPT_OK(vrp_sim_host_pointer(t->sim, vrp_growable_base(buffer), vrp_growable_size(buffer),
                                 &memory));
    return memory;
}

static void buffer_keeps_its_contents_as_it_grows(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    static const uint64_t sizes[] = {5000, 3 * VRPT_MIB, 40 * VRPT_MIB, 41 * VRPT_MIB + 3};
    vrpt t;
    vrpt_options options = {.host_memory = 1, .pool.flags = VRP_NO_RECLAIMER};
    vrp_growable *buffer = NULL;
    vrp_growable_info info = {
        .struct_size = sizeof info, .tag = VRP_TAG_KV, .max_bytes = 64 * VRPT_MIB};
    VRPT_REQUIRE(&t, vrpt_open(&t, &options));
    VRPT_OK(vrp_growable_create(t.pool, &info, &buffer));
    assert_int_equal(vrp_growable_size(buffer), 0);
    assert_int_equal(vrpt_stats(&t).allocated_bytes.current, 0);
    vrp_devptr base = vrp_growable_base(buffer);
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        VRPT_OK(vrp_growable_resize(buffer, sizes[i]));
        assert_int_equal(vrp_growable_size(buffer), sizes[i]);
        if (t.backing == VRP_BACKING_VMM)
            assert_int_equal(vrp_growable_base(buffer), base);
        unsigned char *bytes = memory_of(&t, buffer);
        for (size_t k = 0; k < i; k++)
            assert_int_equal(bytes[sizes[k] - 1], k + 1);
        bytes[sizes[i] - 1] = (unsigned char)(i + 1);
        vrp_group_stats kv = tag_stats(&t, VRP_TAG_KV);
        assert_int_equal(kv.requested_bytes.current, sizes[i]);
        assert_int_equal(kv.blocks, 1);
        VRPT_REQUIRE(&t, vrpt_recount(&t));
    }
    VRPT_OK(vrp_growable_resize(buffer, 6000));
    assert_int_equal(((unsigned char *)memory_of(&t, buffer))[4999], 1);
    VRPT_STATUS(vrp_growable_resize(buffer, 64 * VRPT_MIB + 1), VRP_INVALID_SIZE);
    VRPT_STATUS(vrp_growable_resize(buffer, UINT64_MAX), VRP_INVALID_SIZE);
    assert_int_equal(vrp_growable_size(buffer), 6000);
    VRPT_OK(vrp_growable_destroy(buffer));
    assert_int_equal(vrpt_stats(&t).allocated_bytes.current, 0);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

/* Grown from 2 to 3 MiB and ended: whole granules go back, nothing is left. */
static void buffer_pays_for_its_size_only(void **state) {
    (void)state;
    vrpt t;
    vrp_growable *buffer = NULL;
    vrp_growable_info info = {.struct_size = sizeof info, .max_bytes = 512 * VRPT_MIB};
    open_plain(&t);
    VRPT_OK(vrp_growable_create(t.pool, &info, &buffer));
    VRPT_OK(vrp_growable_resize(buffer, 2 * VRPT_MIB));
    VRPT_OK(vrp_growable_resize(buffer, 3 * VRPT_MIB));
    VRPT_OK(vrp_pool_check(t.pool));
    assert_true(vrpt_stats(&t).reserved_bytes.current <= 96 * VRPT_MIB);
    if (t.backing == VRP_BACKING_VMM)
        assert_int_equal(vrpt_stats(&t).reserved_bytes.current, 4 * VRPT_MIB);
    VRPT_STATUS(vrp_pool_destroy(t.pool, 0), VRP_BUSY);
    VRPT_OK(vrp_growable_resize(buffer, 0));
    VRPT_OK(vrp_growable_resize(buffer, 5));
    VRPT_OK(vrp_growable_destroy(buffer));
    VRPT_OK(vrp_growable_destroy(NULL));
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void refused_growth_leaves_the_buffer(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    vrpt t;
    vrp_growable *buffer = NULL;
    vrp_devptr ptr = 0;
    vrp_growable_info info = {.struct_size = sizeof info, .max_bytes = 2048 * VRPT_MIB};
    open_plain(&t);
    VRPT_OK(vrp_growable_create(t.pool, &info, &buffer));
    VRPT_OK(vrp_growable_resize(buffer, 100 * VRPT_MIB));
    VRPT_OK(vrp_alloc(t.pool, 700 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr));
    vrp_stats before = vrpt_stats(&t);
    vrp_devptr base = vrp_growable_base(buffer);
    VRPT_STATUS(vrp_growable_resize(buffer, 900 * VRPT_MIB), VRP_OUT_OF_DEVICE_MEMORY);
    vrp_stats after = vrpt_stats(&t);
    assert_true(vrpt_same_counters(&before, &after));
    assert_int_equal(vrp_growable_size(buffer), 100 * VRPT_MIB);
    assert_int_equal(vrp_growable_base(buffer), base);
    VRPT_REQUIRE(&t, vrpt_recount(&t));
    VRPT_OK(vrp_growable_resize(buffer, 110 * VRPT_MIB));
    VRPT_OK(vrp_growable_destroy(buffer));
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

/* Many small steps over many layers hold little more than the sum of sizes. */
static void layers_of_caches_grow_without_copies(void **state) {
    (void)state;
    enum { LAYERS = 12 };
    vrpt t;
    vrp_growable *layers[LAYERS];
    vrp_growable_info info = {
        .struct_size = sizeof info, .tag = VRP_TAG_KV, .max_bytes = 32 * VRPT_MIB};
    open_plain(&t);
    for (int i = 0; i < LAYERS; i++)
        VRPT_OK(vrp_growable_create(t.pool, &info, &layers[i]));
    for (uint64_t tokens = 256; tokens <= 4096; tokens += 256)
        for (int i = 0; i < LAYERS; i++)
            VRPT_OK(vrp_growable_resize(layers[i], tokens * 4096));
    vrp_stats stats = vrpt_stats(&t);
    assert_int_equal(stats.requested_bytes.current, (uint64_t)LAYERS * 16 * VRPT_MIB);
    if (t.backing == VRP_BACKING_VMM)
        assert_true(stats.reserved_bytes.peak <= (uint64_t)LAYERS * 18 * VRPT_MIB);
    for (int i = 0; i < LAYERS; i++)
        VRPT_OK(vrp_growable_destroy(layers[i]));
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_are_counted_apart),
        cmocka_unit_test(budget_of_a_tag_holds_to_the_byte),
        cmocka_unit_test(scope_counts_and_releases_its_blocks),
        cmocka_unit_test(scope_of_100000_blocks_goes_in_one_call),
        cmocka_unit_test(budget_of_a_scope_holds),
        cmocka_unit_test(scopes_are_many_and_used_again),
        cmocka_unit_test(buffer_keeps_its_contents_as_it_grows),
        cmocka_unit_test(buffer_pays_for_its_size_only),
        cmocka_unit_test(refused_growth_leaves_the_buffer),
        cmocka_unit_test(layers_of_caches_grow_without_copies),
    };
    return vrpt_main("pool_groups", tests, VRPT_COUNT(tests), argc, argv);
}
