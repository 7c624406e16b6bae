/* SPDX-License-Identifier: MIT */
/* Growable buffers: the base, the contents, what is counted, what is given up
 * when, and failures that leave the buffer as it was. With the malloc backing
 * a resize copies. */

#include "unit_support.h"

#include <string.h>

static vrp_growable *make(vrpt *t, uint64_t max_bytes, int32_t tag, vrp_scope scope) {
    vrp_growable_info info = {
        .struct_size = sizeof info, .tag = tag, .max_bytes = max_bytes, .scope = scope};
    vrp_growable *buffer = NULL;
    VRPT_OK(vrp_growable_create(t->pool, &info, &buffer));
    assert_int_equal(vrp_growable_size(buffer), 0);
    return buffer;
}

static unsigned char *host(vrpt *t, vrp_growable *buffer) {
    void *pointer = NULL;
    VRPT_OK(vrp_sim_host_pointer(t->sim, vrp_growable_base(buffer), vrp_growable_size(buffer),
                                 &pointer));
    return pointer;
}

static unsigned char pattern(uint64_t i) { return (unsigned char)(i * 2654435761u >> 13); }

/* Case 34: what was there stays there, through growth and shrinking. */
static void contents_stay_and_the_base_does_not_move(void **state) {
    static const uint64_t steps[] = {1,
                                     512,
                                     100000,
                                     2 * VRPT_MIB,
                                     2 * VRPT_MIB + 1,
                                     3 * VRPT_MIB,
                                     20 * VRPT_MIB,
                                     7 * VRPT_MIB,
                                     5,
                                     9 * VRPT_MIB,
                                     64 * VRPT_MIB,
                                     100};
    const vrpt_options options = {.host_memory = 1};
    vrpt t;
    uint64_t written = 0;
    (void)state;
    open_pool(&t, &options);
    vrp_growable *buffer = make(&t, 64 * VRPT_MIB, VRP_TAG_KV, 0);
    const vrp_devptr base = vrp_growable_base(buffer);
    for (size_t i = 0; i < VRPT_COUNT(steps); i++) {
        VRPT_OK(vrp_growable_resize(buffer, steps[i]));
        assert_int_equal(vrp_growable_size(buffer), steps[i]);
        if (t.backing == VRP_BACKING_VMM)
            assert_int_equal(vrp_growable_base(buffer), base);
        unsigned char *bytes = host(&t, buffer);
        if (written > steps[i])
            written = steps[i];
        for (uint64_t k = 0; k < written; k += 97)
            assert_int_equal(bytes[k], pattern(k));
        for (uint64_t k = 0; k < steps[i]; k += 97) /* every byte that is read later */
            bytes[k] = pattern(k);
        written = steps[i];
    }
    VRPT_OK(vrp_growable_destroy(buffer));
    close_pool(&t);
}

static void size_is_counted_as_one_block(void **state) {
    vrpt t;
    vrp_group_stats stats = {.struct_size = sizeof stats};
    (void)state;
    open_pool(&t, NULL);
    vrp_growable *buffer = make(&t, 100 * VRPT_MIB, VRP_TAG_KV, 0);
    for (uint64_t mib = 1; mib <= 64; mib *= 4) {
        VRPT_OK(vrp_growable_resize(buffer, mib * VRPT_MIB - 100));
        VRPT_OK(vrp_tag_stats_get(t.pool, VRP_TAG_KV, &stats));
        assert_int_equal(stats.requested_bytes.current, mib * VRPT_MIB - 100);
        assert_int_equal(requested(&t), mib * VRPT_MIB - 100);
        assert_true(stats.allocated_bytes.current >= mib * VRPT_MIB - 100);
        assert_true(reserved(&t) >= allocated(&t));
        assert_int_equal(stats.blocks, 1);
        VRPT_OK(vrp_pool_check(t.pool));
    }
    VRPT_OK(vrp_growable_destroy(buffer));
    VRPT_OK(vrp_tag_stats_get(t.pool, VRP_TAG_KV, &stats));
    assert_int_equal(stats.allocated_bytes.current, 0);
    assert_int_equal(stats.blocks, 0);
    close_pool(&t);
}

/* Case 67: no second copy while it grows, where memory can be mapped. */
static void growth_pays_only_for_what_is_added(void **state) {
    vrpt t;
    (void)state;
    if (vrpt_now.backing == VRP_BACKING_MALLOC)
        return;
    open_pool(&t, NULL);
    vrp_growable *buffer = make(&t, 900 * VRPT_MIB, VRP_TAG_KV, 0);
    for (uint64_t mib = 50; mib <= 900; mib += 50) {
        VRPT_OK(vrp_growable_resize(buffer, mib * VRPT_MIB));
        assert_int_equal(reserved(&t), mib * VRPT_MIB);
        assert_int_equal(vrpt_stats(&t).reserved_bytes.peak, mib * VRPT_MIB);
    }
    VRPT_OK(vrp_growable_destroy(buffer));
    close_pool(&t);
}

static void many_buffers_of_the_whole_device_each_cost_addresses_only(void **state) {
    vrp_growable *buffers[16];
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    for (size_t i = 0; i < VRPT_COUNT(buffers); i++) {
        buffers[i] = make(&t, VRPT_GIB, VRP_TAG_KV, 0);
        assert_int_equal(reserved(&t), 0);
    }
    for (size_t i = 0; i < VRPT_COUNT(buffers); i++)
        VRPT_OK(vrp_growable_resize(buffers[i], 10 * VRPT_MIB));
    for (size_t i = 0; i < VRPT_COUNT(buffers); i++)
        VRPT_OK(vrp_growable_destroy(buffers[i]));
    close_pool(&t);
}

static void refused_resize_leaves_the_buffer_as_it_was(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    vrp_scope scope = 0;
    VRPT_OK(vrp_scope_open(t.pool, 100 * VRPT_MIB, &scope));
    vrp_growable *buffer = make(&t, 2 * VRPT_GIB, VRP_TAG_KV, 0);
    vrp_growable *bounded = make(&t, 2 * VRPT_GIB, VRP_TAG_OTHER, scope);
    VRPT_OK(vrp_growable_resize(buffer, 10 * VRPT_MIB));
    VRPT_OK(vrp_growable_resize(bounded, 90 * VRPT_MIB));
    VRPT_OK(vrp_empty_cache(t.pool, NULL));
    const vrp_stats before = vrpt_stats(&t);
    const vrp_devptr base = vrp_growable_base(buffer);
    VRPT_STATUS(vrp_growable_resize(buffer, 2 * VRPT_GIB + 1), VRP_INVALID_SIZE);
    VRPT_STATUS(vrp_growable_resize(buffer, UINT64_MAX), VRP_INVALID_SIZE);
    VRPT_STATUS(vrp_growable_resize(buffer, 3 * VRPT_GIB / 2), VRP_OUT_OF_DEVICE_MEMORY);
    VRPT_STATUS(vrp_growable_resize(bounded, 101 * VRPT_MIB), VRP_LIMIT_REACHED);
    VRPT_OK(vrp_tag_budget_set(t.pool, VRP_TAG_KV, 15 * VRPT_MIB));
    VRPT_STATUS(vrp_growable_resize(buffer, 20 * VRPT_MIB), VRP_LIMIT_REACHED);
    assert_int_equal(vrp_growable_size(buffer), 10 * VRPT_MIB);
    assert_int_equal(vrp_growable_base(buffer), base);
    assert_int_equal(vrp_growable_size(bounded), 90 * VRPT_MIB);
    vrp_stats now = vrpt_stats(&t);
    assert_true(vrpt_same_counters(&now, &before));
    if (t.backing == VRP_BACKING_MALLOC) /* which holds both copies for a moment */
        VRPT_OK(vrp_tag_budget_set(t.pool, VRP_TAG_KV, 0));
    VRPT_OK(vrp_growable_resize(buffer, 12 * VRPT_MIB));
    VRPT_OK(vrp_growable_destroy(buffer));
    VRPT_OK(vrp_growable_destroy(bounded));
    VRPT_OK(vrp_scope_close(t.pool, scope));
    close_pool(&t);
}

static void failing_driver_leaves_the_buffer_as_it_was(void **state) {
    static const int32_t calls[] = {VRP_SIM_CALL_HANDLE_CREATE, VRP_SIM_CALL_MAP,
                                    VRP_SIM_CALL_SET_ACCESS, VRP_SIM_CALL_MEM_ALLOC,
                                    VRP_SIM_CALL_COPY_ASYNC};
    (void)state;
    for (size_t c = 0; c < VRPT_COUNT(calls); c++)
        for (uint64_t nth = 1; nth <= 3; nth++) {
            vrpt t;
            open_pool(&t, NULL);
            VRPT_OK(vrp_pool_knob_set(t.pool, VRP_KNOB_EXTENT_LARGE_BYTES, 2 * VRPT_MIB));
            vrp_growable *buffer = make(&t, 512 * VRPT_MIB, VRP_TAG_KV, 0);
            VRPT_OK(vrp_growable_resize(buffer, 10 * VRPT_MIB));
            vrp_sim_fault_set(t.sim, calls[c], nth, UINT64_MAX, VRP_OUT_OF_DEVICE_MEMORY);
            vrp_status status = vrp_growable_resize(buffer, 200 * VRPT_MIB);
            vrp_sim_faults_clear(t.sim);
            assert_true(status == VRP_OK || status == VRP_OUT_OF_DEVICE_MEMORY);
            assert_int_equal(vrp_growable_size(buffer), (status == VRP_OK ? 200 : 10) * VRPT_MIB);
            assert_int_equal(requested(&t), vrp_growable_size(buffer));
            assert_int_equal(used_on_device(&t), reserved(&t));
            VRPT_OK(vrp_pool_check(t.pool));
            VRPT_OK(vrp_growable_resize(buffer, 300 * VRPT_MIB));
            VRPT_OK(vrp_growable_destroy(buffer));
            close_pool(&t);
        }
}

/* Work may still use the end that is given up: it stays mapped until then. */
static void bytes_given_up_wait_for_the_stream(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_MANUAL, .pool.flags = VRP_NO_RECLAIMER};
    vrpt t;
    (void)state;
    for (uint64_t left = 0; left <= 30 * VRPT_MIB; left += 15 * VRPT_MIB) {
        open_pool(&t, &options);
        vrp_stream stream = vrpt_stream_create(&t);
        vrp_growable_info info = {
            .struct_size = sizeof info, .max_bytes = VRPT_GIB, .stream = stream};
        vrp_growable *buffer = NULL;
        VRPT_OK(vrp_growable_create(t.pool, &info, &buffer));
        VRPT_OK(vrp_growable_resize(buffer, 100 * VRPT_MIB));
        VRPT_OK(vrp_sim_launch(t.sim, stream, vrp_growable_base(buffer), 100 * VRPT_MIB, 0));
        VRPT_OK(vrp_growable_resize(buffer, left));
        VRPT_OK(vrp_empty_cache(t.pool, NULL));
        VRPT_OK(vrp_pool_poll(t.pool));
        assert_int_equal(vrpt_sim_stats(&t, 0).misuses, 0);
        assert_true(used_on_device(&t) >= 100 * VRPT_MIB);
        vrp_sim_drain(t.sim);
        VRPT_OK(vrp_pool_poll(t.pool));
        VRPT_OK(vrp_empty_cache(t.pool, NULL));
        /* what is left over is the end of an extent, or a segment's */
        assert_true(reserved(&t) <= left + (t.backing == VRP_BACKING_VMM ? 32 : 99) * VRPT_MIB);
        vrp_gap gap = {.struct_size = sizeof gap};
        VRPT_OK(vrp_pool_gap_compute(t.pool, &gap));
        assert_int_equal(gap.pending_bytes, 0);
        VRPT_OK(vrp_sim_launch(t.sim, stream, vrp_growable_base(buffer), left, 0));
        VRPT_OK(vrp_growable_destroy(buffer)); /* with work under way */
        VRPT_OK(vrp_empty_cache(t.pool, NULL));
        assert_int_equal(vrpt_sim_stats(&t, 0).misuses, 0);
        vrp_sim_drain(t.sim);
        VRPT_OK(vrp_stream_forget(t.pool, stream));
        vrpt_stream_destroy(&t, stream);
        close_pool(&t);
    }
}

static void bad_descriptions_are_refused(void **state) {
    vrpt t;
    vrp_growable *buffer = NULL;
    (void)state;
    open_pool(&t, NULL);
    vrp_growable_info info = {.struct_size = sizeof info, .max_bytes = VRPT_MIB, .tag = -1};
    VRPT_STATUS(vrp_growable_create(t.pool, &info, &buffer), VRP_INVALID_ARGUMENT);
    info.tag = VRP_TAG_COUNT;
    VRPT_STATUS(vrp_growable_create(t.pool, &info, &buffer), VRP_INVALID_ARGUMENT);
    info.tag = 0;
    info.scope = 12345;
    VRPT_STATUS(vrp_growable_create(t.pool, &info, &buffer), VRP_INVALID_ARGUMENT);
    info.scope = 0;
    info.struct_size = 0;
    VRPT_STATUS(vrp_growable_create(t.pool, &info, &buffer), VRP_INVALID_ARGUMENT);
    assert_null(buffer);
    VRPT_OK(vrp_growable_destroy(NULL));
    assert_int_equal(vrp_growable_base(NULL), 0);
    assert_int_equal(vrp_growable_size(NULL), 0);
    /* the base is no block that can be freed */
    buffer = make(&t, 10 * VRPT_MIB, 0, 0);
    VRPT_OK(vrp_growable_resize(buffer, 5 * VRPT_MIB));
    assert_true(vrp_free(t.pool, vrp_growable_base(buffer), VRP_STREAM_LEGACY) != VRP_OK);
    assert_int_equal(vrp_growable_size(buffer), 5 * VRPT_MIB);
    VRPT_OK(vrp_growable_destroy(buffer));
    close_pool(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contents_stay_and_the_base_does_not_move),
        cmocka_unit_test(size_is_counted_as_one_block),
        cmocka_unit_test(growth_pays_only_for_what_is_added),
        cmocka_unit_test(many_buffers_of_the_whole_device_each_cost_addresses_only),
        cmocka_unit_test(refused_resize_leaves_the_buffer_as_it_was),
        cmocka_unit_test(failing_driver_leaves_the_buffer_as_it_was),
        cmocka_unit_test(bytes_given_up_wait_for_the_stream),
        cmocka_unit_test(bad_descriptions_are_refused),
    };
    return vrpt_main("growable", tests, VRPT_COUNT(tests), argc, argv);
}
