/* SPDX-License-Identifier: MIT */
/* Conformance, inputs that must be refused: each with a status of its own, no
 * counter moved and no lock left held. */

#include "vrp_test.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void open_plain(vrpt *t) {
    vrpt_options options = {.pool.flags = VRP_NO_RECLAIMER};
    VRPT_REQUIRE(t, vrpt_open(t, &options));
}

/* Two small requests after a refusal: distinct blocks, nothing has moved. */
static void still_works(vrpt *t, const vrp_stats *before) {
    vrp_devptr a = 0, b = 0;
    vrp_stats after = vrpt_stats(t);
    assert_true(vrpt_same_counters(before, &after));
    VRPT_OK(vrp_alloc(t->pool, 512, VRP_STREAM_LEGACY, &a));
    VRPT_OK(vrp_alloc(t->pool, 512, VRP_STREAM_LEGACY, &b));
    assert_true(a != b && a != 0 && b != 0);
    VRPT_OK(vrp_free(t->pool, a, VRP_STREAM_LEGACY));
    VRPT_OK(vrp_free(t->pool, b, VRP_STREAM_LEGACY));
}

static void refuse_size(vrpt *t, uint64_t bytes, size_t alignment) {
    vrp_devptr ptr = 77;
    vrp_alloc_info info = {.struct_size = sizeof info, .bytes = bytes, .alignment = alignment};
    vrp_stats before = vrpt_stats(t);
    vrp_status plain = vrp_alloc(t->pool, bytes, VRP_STREAM_LEGACY, &ptr);
    vrp_status aligned = vrp_alloc_ex(t->pool, &info, &ptr);
    assert_true(plain == VRP_INVALID_SIZE || plain == VRP_OUT_OF_DEVICE_MEMORY);
    assert_true(aligned == VRP_INVALID_SIZE || aligned == VRP_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(ptr, 77);
    assert_true(vrpt_stats(t).failures >= before.failures + 2);
    still_works(t, &before);
}

static void sizes_near_the_end_of_numbers_are_refused(void **state) {
    (void)state;
    static const uint64_t units[] = {
        1,    2,     8,        16,      256,      511,      512,
        4096, 32768, VRPT_MIB, 2 << 20, 20 << 20, 32 << 20, 512 * VRPT_MIB};
    vrpt t;
    vrp_devptr cached = 0;
    open_plain(&t);
    VRPT_OK(vrp_alloc(t.pool, VRPT_MIB, VRP_STREAM_LEGACY, &cached));
    VRPT_OK(vrp_free(t.pool, cached, VRP_STREAM_LEGACY));
    for (size_t i = 0; i < VRPT_COUNT(units); i++)
        for (uint64_t d = 0; d <= 2 && d <= units[i]; d++) {
            refuse_size(&t, UINT64_MAX - units[i] + d, 0);
            refuse_size(&t, UINT64_MAX - units[i] + d, VRP_ALIGNMENT_MAX);
        }
    VRPT_STATUS(vrp_alloc(t.pool, SIZE_MAX, VRP_STREAM_LEGACY, &cached), VRP_INVALID_SIZE);
    VRPT_STATUS(vrp_alloc(t.pool, SIZE_MAX - 511, VRP_STREAM_LEGACY, &cached), VRP_INVALID_SIZE);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void sizes_that_fold_in_32_bits_are_refused(void **state) {
    (void)state;
    vrpt t;
    vrp_devptr small = 0;
    open_plain(&t);
    VRPT_OK(vrp_alloc(t.pool, 512, VRP_STREAM_LEGACY, &small));
    VRPT_OK(vrp_free(t.pool, small, VRP_STREAM_LEGACY));
    refuse_size(&t, (((uint64_t)1 << 31) + 1) * 512, 4096);
    refuse_size(&t, (((uint64_t)1 << 32) + 1) * 512, 4096);
    refuse_size(&t, (((uint64_t)1 << 32) + 1) * 4096, 4096);
    refuse_size(&t, (uint64_t)1 << 62, 4096);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void alignments_that_are_none_are_refused(void **state) {
    (void)state;
    static const size_t bad[] = {3,
                                 255,
                                 513,
                                 1000,
                                 12288,
                                 (size_t)VRP_ALIGNMENT_MAX * 2,
                                 (size_t)1 << 40,
                                 SIZE_MAX,
                                 SIZE_MAX / 2 + 1};
    vrpt t;
    open_plain(&t);
    for (size_t i = 0; i < VRPT_COUNT(bad); i++) {
        vrp_alloc_info info = {.struct_size = sizeof info, .bytes = 32, .alignment = bad[i]};
        vrp_devptr ptr = 77;
        vrp_stats before = vrpt_stats(&t);
        VRPT_STATUS(vrp_alloc_ex(t.pool, &info, &ptr), VRP_INVALID_ALIGNMENT);
        assert_int_equal(ptr, 77);
        still_works(&t, &before);
    }
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

/* ---- Frees ------------------------------------------------------------------------ */

static void refuse_free(vrpt *t, vrp_devptr ptr, vrp_status expected) {
    vrp_stats before = vrpt_stats(t);
    VRPT_STATUS(vrp_free(t->pool, ptr, VRP_STREAM_LEGACY), expected);
    VRPT_STATUS(vrp_record_stream(t->pool, ptr, VRP_STREAM_PER_THREAD), expected);
    assert_int_equal(vrpt_stats(t).bad_frees, before.bad_frees + 1);
    VRPT_OK(vrp_pool_check(t->pool));
    still_works(t, &before);
}

static void bad_frees_have_statuses_of_their_own(void **state) {
    (void)state;
    static const uint64_t sizes[] = {600, 2000, 100000, 9 * VRPT_MIB};
    vrpt t;
    int on_the_stack = 0;
    open_plain(&t);
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrp_devptr ptr = 0;
        VRPT_OK(vrp_alloc(t.pool, sizes[i], VRP_STREAM_LEGACY, &ptr));
        refuse_free(&t, ptr + 1, VRP_INTERIOR_POINTER);
        refuse_free(&t, ptr + 512, VRP_INTERIOR_POINTER);
        refuse_free(&t, ptr + sizes[i] - 1, VRP_INTERIOR_POINTER);
        refuse_free(&t, (vrp_devptr)(uintptr_t)&on_the_stack, VRP_NOT_OWNED);
        refuse_free(&t, 4096, VRP_NOT_OWNED);
        refuse_free(&t, UINT64_MAX - 5, VRP_NOT_OWNED);
        VRPT_OK(vrp_free(t.pool, ptr, VRP_STREAM_LEGACY));
        refuse_free(&t, ptr, VRP_ALREADY_FREED);
    }
    VRPT_REQUIRE(&t, vrpt_recount(&t));
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void second_free_does_not_hand_out_twice(void **state) {
    (void)state;
    vrpt t;
    vrp_devptr p = 0, q = 0, r = 0;
    open_plain(&t);
    VRPT_OK(vrp_alloc(t.pool, 512, VRP_STREAM_LEGACY, &p));
    VRPT_OK(vrp_free(t.pool, p, VRP_STREAM_LEGACY));
    VRPT_STATUS(vrp_free(t.pool, p, VRP_STREAM_LEGACY), VRP_ALREADY_FREED);
    VRPT_OK(vrp_alloc(t.pool, 512, VRP_STREAM_LEGACY, &q));
    VRPT_OK(vrp_alloc(t.pool, 512, VRP_STREAM_LEGACY, &r));
    assert_true(q != r);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void free_after_a_trim_is_refused(void **state) {
    (void)state;
    vrpt t;
    vrp_devptr p = 0;
    open_plain(&t);
    VRPT_OK(vrp_alloc(t.pool, 6 * VRPT_MIB, VRP_STREAM_LEGACY, &p));
    VRPT_OK(vrp_free(t.pool, p, VRP_STREAM_LEGACY));
    vrpt_drain(&t);
    VRPT_OK(vrp_empty_cache(t.pool, NULL));
    vrp_status status = vrp_free(t.pool, p, VRP_STREAM_LEGACY);
    assert_true(status == VRP_ALREADY_FREED || status == VRP_NOT_OWNED);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

/* ---- Arguments ------------------------------------------------------------------------ */

static void nulls_and_unknown_things_are_refused(void **state) {
    (void)state;
    vrpt t;
    vrp_devptr p = 0;
    vrp_alloc_info info = {.struct_size = sizeof info, .bytes = 100};
    vrp_group_stats group = {.struct_size = sizeof group};
    uint64_t value = 0;
    open_plain(&t);
    VRPT_STATUS(vrp_alloc(NULL, 1, 0, &p), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_alloc(t.pool, 1, 0, NULL), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_alloc_ex(t.pool, NULL, &p), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_free(NULL, 512, 0), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_pool_stats_get(t.pool, NULL), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_trim(t.pool, 0, 1u << 30, NULL), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_tag_stats_get(t.pool, VRP_TAG_COUNT, &group), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_tag_stats_get(t.pool, -1, &group), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_tag_budget_set(t.pool, 99, 5), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_scope_close(t.pool, 12345), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_scope_release(t.pool, 0, NULL), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_pool_knob_get(t.pool, VRP_KNOB_COUNT, &value), VRP_INVALID_ARGUMENT);
    info.flags = 1u << 31;
    VRPT_STATUS(vrp_alloc_ex(t.pool, &info, &p), VRP_INVALID_ARGUMENT);
    info.flags = 0;
    info.tag = VRP_TAG_COUNT;
    VRPT_STATUS(vrp_alloc_ex(t.pool, &info, &p), VRP_INVALID_ARGUMENT);
    info.tag = 0;
    info.scope = 999;
    VRPT_STATUS(vrp_alloc_ex(t.pool, &info, &p), VRP_INVALID_ARGUMENT);
    info.scope = 0;
    info.struct_size = 0;
    VRPT_STATUS(vrp_alloc_ex(t.pool, &info, &p), VRP_INVALID_ARGUMENT);
    assert_int_equal(p, 0);
    VRPT_OK(vrp_pool_destroy(NULL, 0));
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

/* A struct of a later version: fine as long as what is unknown is zero. */
static void longer_structs_must_be_zero_beyond(void **state) {
    (void)state;
    struct {
        vrp_alloc_info info;
        uint64_t later;
    } longer;
    vrpt t;
    vrp_devptr p = 0;
    open_plain(&t);
    memset(&longer, 0, sizeof longer);
    longer.info.struct_size = sizeof longer;
    longer.info.bytes = 1000;
    VRPT_OK(vrp_alloc_ex(t.pool, &longer.info, &p));
    longer.later = 1;
    VRPT_STATUS(vrp_alloc_ex(t.pool, &longer.info, &p), VRP_NOT_SUPPORTED);
    vrp_stats stats;
    memset(&stats, 0xee, sizeof stats);
    stats.struct_size = (uint32_t)offsetof(vrp_stats, cached_bytes); /* of an earlier version */
    VRPT_OK(vrp_pool_stats_get(t.pool, &stats));
    assert_int_equal(stats.requested_bytes.current, 1000);
    assert_int_equal(stats.cached_bytes, UINT64_C(0xeeeeeeeeeeeeeeee));
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void knobs_have_bounds(void **state) {
    (void)state;
    vrpt t;
    open_plain(&t);
    for (int32_t knob = 0; knob < VRP_KNOB_COUNT; knob++) {
        vrp_knob_bounds bounds = {.struct_size = sizeof bounds};
        uint64_t value = 0;
        VRPT_OK(vrp_knob_bounds_get(knob, &bounds));
        assert_non_null(vrp_knob_name(knob));
        assert_non_null(vrp_knob_meaning(knob));
        assert_true(bounds.low <= bounds.preset && bounds.preset <= bounds.high);
        const uint64_t good[] = {bounds.low, bounds.high, bounds.preset};
        for (size_t i = 0; i < VRPT_COUNT(good); i++) {
            VRPT_OK(vrp_pool_knob_set(t.pool, knob, good[i]));
            VRPT_OK(vrp_pool_knob_get(t.pool, knob, &value));
            assert_int_equal(value, good[i]);
        }
        if (bounds.low > 0)
            VRPT_STATUS(vrp_pool_knob_set(t.pool, knob, bounds.low - 1), VRP_INVALID_ARGUMENT);
        if (bounds.high < UINT64_MAX)
            VRPT_STATUS(vrp_pool_knob_set(t.pool, knob, bounds.high + 1), VRP_INVALID_ARGUMENT);
        VRPT_OK(vrp_pool_knob_get(t.pool, knob, &value));
        assert_int_equal(value, bounds.preset);
    }
    assert_null(vrp_knob_name(VRP_KNOB_COUNT));
    assert_null(vrp_knob_meaning(-1));
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void later_calls_say_not_supported(void **state) {
    (void)state;
    vrpt t;
    open_plain(&t);
    VRPT_STATUS(vrp_suspend(t.pool, VRP_SUSPEND_POOL, 0, 0), VRP_NOT_SUPPORTED);
    VRPT_STATUS(vrp_resume(t.pool, VRP_SUSPEND_POOL, 0), VRP_NOT_SUPPORTED);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

/* ---- The end of a pool ------------------------------------------------------------------- */

static void live_blocks_keep_a_pool(void **state) {
    (void)state;
    vrpt t;
    vrp_devptr p[3] = {0};
    vrp_error_detail detail = {.struct_size = sizeof detail};
    open_plain(&t);
    for (int i = 0; i < 3; i++)
        VRPT_OK(vrp_alloc(t.pool, 1000u << (8 * i), VRP_STREAM_LEGACY, &p[i]));
    VRPT_STATUS(vrp_pool_destroy(t.pool, 0), VRP_BUSY);
    VRPT_OK(vrp_error_detail_get(&detail));
    assert_int_equal(detail.status, VRP_BUSY);
    assert_int_equal(detail.live_count, 3);
    VRPT_STATUS(vrp_pool_destroy(t.pool, 1u << 9), VRP_INVALID_ARGUMENT);
    VRPT_OK(vrp_free(t.pool, p[1], VRP_STREAM_LEGACY)); /* it goes on as before */
    VRPT_OK(vrp_alloc(t.pool, 5000, VRP_STREAM_LEGACY, &p[1]));
    VRPT_OK(vrp_pool_check(t.pool));
    VRPT_OK(vrp_pool_destroy(t.pool, VRP_DESTROY_FORCE));
    VRPT_REQUIRE(&t, vrpt_close_device(&t));
}

static void calls_after_the_end_are_shut_down(void **state) {
    (void)state;
    vrpt t;
    vrp_devptr p = 0;
    vrp_stats stats = {.struct_size = sizeof stats};
    vrp_gap gap = {.struct_size = sizeof gap};
    vrp_scope scope = 0;
    open_plain(&t);
    VRPT_OK(vrp_alloc(t.pool, 1000, VRP_STREAM_LEGACY, &p));
    VRPT_OK(vrp_free(t.pool, p, VRP_STREAM_LEGACY));
    VRPT_OK(vrp_pool_destroy(t.pool, 0));
    VRPT_STATUS(vrp_alloc(t.pool, 1000, VRP_STREAM_LEGACY, &p), VRP_SHUT_DOWN);
    VRPT_STATUS(vrp_alloc(t.pool, 9 * VRPT_MIB, VRP_STREAM_LEGACY, &p), VRP_SHUT_DOWN);
    VRPT_STATUS(vrp_free(t.pool, p, VRP_STREAM_LEGACY), VRP_SHUT_DOWN);
    VRPT_STATUS(vrp_record_stream(t.pool, p, 0), VRP_SHUT_DOWN);
    VRPT_STATUS(vrp_stream_forget(t.pool, 0), VRP_SHUT_DOWN);
    VRPT_STATUS(vrp_pool_poll(t.pool), VRP_SHUT_DOWN);
    VRPT_STATUS(vrp_empty_cache(t.pool, NULL), VRP_SHUT_DOWN);
    VRPT_STATUS(vrp_pool_stats_get(t.pool, &stats), VRP_SHUT_DOWN);
    VRPT_STATUS(vrp_pool_gap_compute(t.pool, &gap), VRP_SHUT_DOWN);
    VRPT_STATUS(vrp_pool_check(t.pool), VRP_SHUT_DOWN);
    VRPT_STATUS(vrp_scope_open(t.pool, 0, &scope), VRP_SHUT_DOWN);
    VRPT_STATUS(vrp_pool_knob_set(t.pool, VRP_KNOB_GAP_RULE, 1), VRP_SHUT_DOWN);
    VRPT_STATUS(vrp_pool_destroy(t.pool, 0), VRP_SHUT_DOWN);
    VRPT_REQUIRE(&t, vrpt_close_device(&t));
}

static void child_is_told_after_fork(void **state) {
    (void)state;
    vrpt t;
    vrp_devptr p = 0;
    open_plain(&t);
    VRPT_OK(vrp_alloc(t.pool, 1000, VRP_STREAM_LEGACY, &p));
    pid_t child = fork();
    if (child == 0) {
        vrp_devptr q = 0;
        (void)alarm(5);
        _exit(vrp_alloc(t.pool, 1000, VRP_STREAM_LEGACY, &q) != VRP_AFTER_FORK ||
              vrp_free(t.pool, p, VRP_STREAM_LEGACY) != VRP_AFTER_FORK ||
              vrp_pool_check(t.pool) != VRP_AFTER_FORK ||
              vrp_empty_cache(t.pool, NULL) != VRP_AFTER_FORK ||
              vrp_pool_destroy(t.pool, VRP_DESTROY_FORCE) != VRP_AFTER_FORK);
    }
    int status = 0;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    VRPT_OK(vrp_free(t.pool, p, VRP_STREAM_LEGACY));
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

static void backing_that_the_device_lacks_is_refused(void **state) {
    (void)state;
    VRPT_NEED_SIM();
    int is_vmm = vrpt_now.backing == VRP_BACKING_VMM;
    vrpt t;
    vrpt_options options = {.sim_flags = is_vmm ? VRP_SIM_NO_VMM : VRP_SIM_NO_MALLOC};
    VRPT_REQUIRE(&t, vrpt_open_device(&t, &options));
    VRPT_STATUS(vrpt_pool_create(&t, &options, &t.pool), VRP_NOT_SUPPORTED);
    t.backing = VRP_BACKING_AUTO; /* takes the other one */
    VRPT_OK(vrpt_pool_create(&t, NULL, &t.pool));
    assert_int_equal(vrpt_stats(&t).backing, is_vmm ? VRP_BACKING_MALLOC : VRP_BACKING_VMM);
    VRPT_REQUIRE(&t, vrpt_close(&t));
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_near_the_end_of_numbers_are_refused),
        cmocka_unit_test(sizes_that_fold_in_32_bits_are_refused),
        cmocka_unit_test(alignments_that_are_none_are_refused),
        cmocka_unit_test(bad_frees_have_statuses_of_their_own),
        cmocka_unit_test(second_free_does_not_hand_out_twice),
        cmocka_unit_test(free_after_a_trim_is_refused),
        cmocka_unit_test(nulls_and_unknown_things_are_refused),
        cmocka_unit_test(longer_structs_must_be_zero_beyond),
        cmocka_unit_test(knobs_have_bounds),
        cmocka_unit_test(later_calls_say_not_supported),
        cmocka_unit_test(live_blocks_keep_a_pool),
        cmocka_unit_test(calls_after_the_end_are_shut_down),
        cmocka_unit_test(child_is_told_after_fork),
        cmocka_unit_test(backing_that_the_device_lacks_is_refused),
    };
    return vrpt_main("pool_inputs", tests, VRPT_COUNT(tests), argc, argv);
}
