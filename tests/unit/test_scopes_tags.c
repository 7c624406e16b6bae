/* SPDX-License-Identifier: MIT */
/* Tags and scopes: what they count, their budgets, and the release of a scope
 * with all its blocks. */

#include "unit_support.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

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

static vrp_scope scope_of(vrpt *t, uint64_t budget) {
    vrp_scope scope = 0;
    VRPT_OK(vrp_scope_open(t->pool, budget, &scope));
    assert_true(scope != 0);
    return scope;
}

static vrp_devptr take_in(vrpt *t, uint64_t bytes, int32_t tag, vrp_scope scope) {
    vrp_devptr ptr = 0;
    VRPT_OK(ask(t, bytes, 0, tag, scope, &ptr));
    return ptr;
}

static const uint64_t sizes[] = {1, 512, 5000, 32768, 40000, VRPT_MIB, 3 * VRPT_MIB, 33 * VRPT_MIB};

/* ---- tags ------------------------------------------------------------------------- */

static void each_tag_counts_its_own(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrp_devptr ptrs[VRP_TAG_COUNT];
        uint64_t sum = 0;
        for (int32_t tag = 0; tag < VRP_TAG_COUNT; tag++) {
            vrp_block_info info = {.struct_size = sizeof info};
            const uint64_t before = tag_stats(&t, tag).requested_bytes.total;
            ptrs[tag] = take_in(&t, sizes[i], tag, 0);
            VRPT_OK(vrp_block_info_get(t.pool, ptrs[tag], &info));
            assert_int_equal(info.tag, tag);
            const vrp_group_stats stats = tag_stats(&t, tag);
            assert_int_equal(stats.requested_bytes.current, sizes[i]);
            assert_int_equal(stats.requested_bytes.total, before + sizes[i]);
            assert_int_equal(stats.allocated_bytes.current, vrpt_usable(&t, ptrs[tag]));
            assert_int_equal(stats.blocks, 1);
            sum += stats.allocated_bytes.current;
        }
        assert_int_equal(allocated(&t), sum);
        for (int32_t tag = 0; tag < VRP_TAG_COUNT; tag++) {
            give(&t, ptrs[tag]);
            assert_int_equal(tag_stats(&t, tag).allocated_bytes.current, 0);
            assert_int_equal(tag_stats(&t, tag).blocks, 0);
        }
    }
    close_pool(&t);
}

static void tag_budget_holds_to_the_byte(void **state) {
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrpt t;
        vrp_devptr ptrs[5], more = 0;
        open_pool(&t, NULL);
        ptrs[0] = take_in(&t, sizes[i], VRP_TAG_KV, 0);
        const uint64_t each = vrpt_usable(&t, ptrs[0]);
        VRPT_OK(vrp_tag_budget_set(t.pool, VRP_TAG_KV, 5 * each));
        for (size_t k = 1; k < VRPT_COUNT(ptrs); k++)
            ptrs[k] = take_in(&t, sizes[i], VRP_TAG_KV, 0);
        const vrp_stats before = vrpt_stats(&t);
        VRPT_STATUS(ask(&t, sizes[i], 0, VRP_TAG_KV, 0, &more), VRP_LIMIT_REACHED);
        VRPT_STATUS(ask(&t, 1, 0, VRP_TAG_KV, 0, &more), VRP_LIMIT_REACHED);
        assert_unchanged(&t, &before);
        assert_int_equal(more, 0);
        assert_int_equal(tag_stats(&t, VRP_TAG_KV).budget_bytes, 5 * each);
        give(&t, take_in(&t, sizes[i], VRP_TAG_VISION, 0)); /* others are not concerned */
        give(&t, ptrs[4]);
        give(&t, take_in(&t, sizes[i], VRP_TAG_KV, 0));
        /* below what is live: that stays, and nothing more comes */
        VRPT_OK(vrp_tag_budget_set(t.pool, VRP_TAG_KV, each));
        assert_int_equal(tag_stats(&t, VRP_TAG_KV).allocated_bytes.current, 4 * each);
        VRPT_STATUS(ask(&t, 1, 0, VRP_TAG_KV, 0, &more), VRP_LIMIT_REACHED);
        for (size_t k = 0; k < 4; k++)
            give(&t, ptrs[k]);
        give(&t, take_in(&t, sizes[i], VRP_TAG_KV, 0));
        VRPT_OK(vrp_tag_budget_set(t.pool, VRP_TAG_KV, 0));
        give(&t, take_in(&t, 8 * sizes[i], VRP_TAG_KV, 0));
        close_pool(&t);
    }
}

typedef struct budget_user {
    vrp_pool *pool;
    uint64_t bytes;
    int count;
    vrp_status status;
} budget_user;

static void *use_all_of_the_budget(void *user) {
    budget_user *u = user;
    vrp_devptr ptrs[64] = {0};
    vrp_alloc_info info = {.struct_size = sizeof info, .bytes = u->bytes, .tag = VRP_TAG_KV};
    for (int i = 0; i < u->count && u->status == VRP_OK; i++)
        u->status = vrp_alloc_ex(u->pool, &info, &ptrs[i]);
    for (int i = 0; i < u->count; i++)
        if (vrp_free(u->pool, ptrs[i], VRP_STREAM_LEGACY) != VRP_OK)
            u->status = VRP_INTERNAL;
    return NULL;
}

/* Threads hold pieces of a budget on account; what one holds and does not use
 * is not lost to the next. */
static void budget_is_not_stranded_in_threads(void **state) {
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes) - 1; i++) {
        vrpt t;
        open_pool(&t, NULL);
        vrp_devptr first = take_in(&t, sizes[i], VRP_TAG_KV, 0);
        const uint64_t each = vrpt_usable(&t, first);
        give(&t, first);
        VRPT_OK(vrp_tag_budget_set(t.pool, VRP_TAG_KV, 32 * each));
        for (int round = 0; round < 4; round++) {
            pthread_t thread;
            budget_user u = {.pool = t.pool, .bytes = sizes[i], .count = 32};
            assert_int_equal(pthread_create(&thread, NULL, use_all_of_the_budget, &u), 0);
            assert_int_equal(pthread_join(thread, NULL), 0);
            VRPT_OK(u.status);
            u.status = VRP_OK;
            (void)use_all_of_the_budget(&u); /* this thread lives on with its share */
            VRPT_OK(u.status);
        }
        close_pool(&t);
    }
}

/* ---- scopes ------------------------------------------------------------------------ */

static void scope_release_frees_all_its_blocks_and_no_other(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    vrp_scope scope = scope_of(&t, 0), other = scope_of(&t, 0);
    vrp_devptr mine[VRPT_COUNT(sizes)], theirs[VRPT_COUNT(sizes)], free_ones[VRPT_COUNT(sizes)];
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        mine[i] = take_in(&t, sizes[i], (int32_t)i % VRP_TAG_COUNT, scope);
        theirs[i] = take_in(&t, sizes[i], VRP_TAG_KV, other);
        free_ones[i] = take(&t, sizes[i]);
    }
    assert_int_equal(scope_stats(&t, scope).blocks, VRPT_COUNT(sizes));
    give(&t, mine[0]);
    uint64_t released = 0;
    VRPT_OK(vrp_scope_release(t.pool, scope, &released));
    assert_int_equal(released, VRPT_COUNT(sizes) - 1);
    VRPT_OK(vrp_pool_check(t.pool));
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        VRPT_STATUS(vrp_free(t.pool, mine[i], VRP_STREAM_LEGACY), VRP_ALREADY_FREED);
        assert_true(vrpt_usable(&t, theirs[i]) >= sizes[i]);
        assert_true(vrpt_usable(&t, free_ones[i]) >= sizes[i]);
        give(&t, free_ones[i]);
    }
    for (int32_t tag = 0; tag < VRP_TAG_COUNT; tag++)
        assert_int_equal(tag_stats(&t, tag).blocks, tag == VRP_TAG_KV ? VRPT_COUNT(sizes) : 0);
    VRPT_OK(vrp_scope_release(t.pool, other, NULL));
    assert_int_equal(allocated(&t), 0);
    close_pool(&t);
}

static void scope_that_is_closed_or_gone_takes_nothing(void **state) {
    vrpt t;
    vrp_devptr ptr = 7;
    vrp_group_stats stats = {.struct_size = sizeof stats};
    (void)state;
    open_pool(&t, NULL);
    vrp_scope closed = scope_of(&t, 0), gone = scope_of(&t, 0);
    vrp_devptr live = take_in(&t, 5000, VRP_TAG_KV, closed);
    VRPT_OK(vrp_scope_close(t.pool, closed));
    VRPT_STATUS(ask(&t, 100, 0, VRP_TAG_KV, closed, &ptr), VRP_INVALID_ARGUMENT);
    assert_int_equal(scope_stats(&t, closed).blocks, 1);
    give(&t, live);
    VRPT_OK(vrp_scope_release(t.pool, gone, NULL));
    static const vrp_scope nonsense[] = {0, 1 << 30, UINT64_MAX, UINT64_C(1) << 32};
    for (size_t i = 0; i <= VRPT_COUNT(nonsense); i++) {
        const vrp_scope scope = i < VRPT_COUNT(nonsense) ? nonsense[i] : gone;
        if (scope != 0)
            VRPT_STATUS(ask(&t, 100, 0, VRP_TAG_KV, scope, &ptr), VRP_INVALID_ARGUMENT);
        VRPT_STATUS(vrp_scope_close(t.pool, scope), VRP_INVALID_ARGUMENT);
        VRPT_STATUS(vrp_scope_release(t.pool, scope, NULL), VRP_INVALID_ARGUMENT);
        VRPT_STATUS(vrp_scope_stats_get(t.pool, scope, &stats), VRP_INVALID_ARGUMENT);
    }
    assert_int_equal(ptr, 7);
    /* an old name does not reach the scope that has its place now */
    for (int i = 0; i < 300; i++) {
        vrp_scope young = scope_of(&t, 0);
        assert_true(young != gone);
        VRPT_STATUS(vrp_scope_close(t.pool, gone), VRP_INVALID_ARGUMENT);
        VRPT_OK(vrp_scope_release(t.pool, young, NULL));
    }
    close_pool(&t);
}

static void scope_budget_holds_and_comes_back(void **state) {
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrpt t;
        vrp_devptr more = 0;
        open_pool(&t, NULL);
        vrp_devptr first = take(&t, sizes[i]);
        const uint64_t each = vrpt_usable(&t, first);
        give(&t, first);
        vrp_scope scope = scope_of(&t, 3 * each);
        vrp_devptr ptrs[3];
        for (size_t k = 0; k < VRPT_COUNT(ptrs); k++)
            ptrs[k] = take_in(&t, sizes[i], VRP_TAG_KV, scope);
        VRPT_STATUS(ask(&t, sizes[i], 0, VRP_TAG_KV, scope, &more), VRP_LIMIT_REACHED);
        give(&t, take_in(&t, sizes[i], VRP_TAG_KV, 0));
        give(&t, ptrs[1]);
        ptrs[1] = take_in(&t, sizes[i], VRP_TAG_KV, scope);
        assert_int_equal(scope_stats(&t, scope).allocated_bytes.peak, 3 * each);
        assert_int_equal(scope_stats(&t, scope).budget_bytes, 3 * each);
        uint64_t released = 0;
        VRPT_OK(vrp_scope_release(t.pool, scope, &released));
        assert_int_equal(released, 3);
        close_pool(&t);
    }
}

static double now_ms(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void scope_of_100000_blocks_is_released_in_one_call(void **state) {
    enum { COUNT = 100000 };
    const vrpt_options options = {.device_bytes = 16 * VRPT_GIB};
    static const uint64_t each[] = {1024, 40 * 1024};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(each); i++) {
        vrpt t;
        uint64_t released = 0;
        open_pool(&t, &options);
        vrp_scope scope = scope_of(&t, 0);
        for (int k = 0; k < COUNT; k++)
            (void)take_in(&t, each[i] + (uint64_t)(k % 7) * 512, VRP_TAG_KV, scope);
        const uint64_t calls = vrpt_driver_calls(&t);
        const double begun = now_ms();
        VRPT_OK(vrp_scope_release(t.pool, scope, &released));
        const double took = now_ms() - begun;
        print_message("100,000 blocks of %llu bytes and more: %.2f ms\n",
                      (unsigned long long)each[i], took);
        assert_true(took < 1000); /* the figure itself is the benchmark's */
        assert_int_equal(released, COUNT);
        assert_int_equal(vrpt_driver_calls(&t), calls);
        assert_int_equal(allocated(&t), 0);
        assert_int_equal(vrpt_stats(&t).blocks.current, 0);
        close_pool(&t);
    }
}

/* Each block on its own stream, and none reused before that stream is done. */
static void scope_release_keeps_stream_order(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_MANUAL};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrpt t;
        vrp_stream streams[3];
        open_pool(&t, &options);
        vrp_scope scope = scope_of(&t, 0);
        for (size_t k = 0; k < VRPT_COUNT(streams); k++) {
            streams[k] = vrpt_stream_create(&t);
            vrp_alloc_info info = {.struct_size = sizeof info,
                                   .bytes = sizes[i],
                                   .stream = streams[k],
                                   .scope = scope};
            vrp_devptr ptr = 0;
            VRPT_OK(vrp_alloc_ex(t.pool, &info, &ptr));
            VRPT_OK(vrp_sim_launch(t.sim, streams[k], ptr, sizes[i], 0));
        }
        VRPT_OK(vrp_scope_release(t.pool, scope, NULL));
        VRPT_OK(vrp_empty_cache(t.pool, NULL)); /* may unmap nothing of it */
        for (int k = 0; k < 4; k++) {
            vrp_devptr ptr = take(&t, sizes[i]);
            VRPT_OK(vrp_sim_launch(t.sim, VRP_STREAM_LEGACY, ptr, sizes[i], 0));
        }
        assert_int_equal(vrpt_sim_stats(&t, 0).misuses, 0);
        vrp_sim_drain(t.sim);
        for (size_t k = 0; k < VRPT_COUNT(streams); k++) {
            VRPT_OK(vrp_stream_forget(t.pool, streams[k]));
            vrpt_stream_destroy(&t, streams[k]);
        }
        close_pool(&t);
    }
}

static void scopes_are_many_but_not_without_end(void **state) {
    enum { MOST = 65535 };
    vrpt t;
    vrp_scope *scopes = calloc(MOST, sizeof *scopes);
    vrp_scope more = 7;
    (void)state;
    assert_non_null(scopes);
    open_pool(&t, NULL);
    for (int i = 0; i < MOST; i++)
        scopes[i] = scope_of(&t, 0);
    VRPT_STATUS(vrp_scope_open(t.pool, 0, &more), VRP_LIMIT_REACHED);
    assert_int_equal(more, 7);
    vrp_devptr ptr = take_in(&t, 5000, VRP_TAG_KV, scopes[MOST - 1]);
    assert_int_equal(scope_stats(&t, scopes[MOST - 1]).blocks, 1);
    give(&t, ptr);
    VRPT_OK(vrp_scope_release(t.pool, scopes[12345], NULL));
    scopes[12345] = scope_of(&t, 0);
    for (int i = 0; i < MOST; i++)
        VRPT_OK(vrp_scope_release(t.pool, scopes[i], NULL));
    free(scopes);
    close_pool(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_tag_counts_its_own),
        cmocka_unit_test(tag_budget_holds_to_the_byte),
        cmocka_unit_test(budget_is_not_stranded_in_threads),
        cmocka_unit_test(scope_release_frees_all_its_blocks_and_no_other),
        cmocka_unit_test(scope_that_is_closed_or_gone_takes_nothing),
        cmocka_unit_test(scope_budget_holds_and_comes_back),
        cmocka_unit_test(scope_of_100000_blocks_is_released_in_one_call),
        cmocka_unit_test(scope_release_keeps_stream_order),
        cmocka_unit_test(scopes_are_many_but_not_without_end),
    };
    return vrpt_main("scopes and tags", tests, VRPT_COUNT(tests), argc, argv);
}
