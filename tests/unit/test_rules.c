/* SPDX-License-Identifier: MIT */
/* Stream order beyond one stream: frees that name none, memory of captured
 * graphs, blocks shared with other processes. */

#include "unit_support.h"

#include <string.h>
#include <unistd.h>

static vrp_stream stream_of(vrpt *t) {
    vrp_stream stream = vrpt_stream_create(t);
    assert_true(stream != 0);
    return stream;
}

static void work(vrpt *t, vrp_stream stream, vrp_devptr ptr, uint64_t bytes) {
    VRPT_OK(vrp_sim_launch(t->sim, stream, ptr, bytes, 0));
}

static void give_any(vrpt *t, vrp_devptr ptr) { VRPT_OK(vrp_free(t->pool, ptr, VRP_STREAM_ANY)); }

/* ---- frees that name no stream ---------------------------------------------------- */

static const uint64_t sizes[] = {512, 32 * VRPT_KIB, 300 * VRPT_KIB, VRPT_MIB, 40 * VRPT_MIB};

/* Work of a non-blocking stream that the pool never heard of uses the block. */
static void free_of_any_stream_waits_for_all_of_the_context(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_MANUAL};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrpt t;
        open_pool(&t, &options);
        vrp_stream hidden = stream_of(&t);
        vrp_devptr a = take(&t, sizes[i]);
        work(&t, hidden, a, sizes[i]);
        give_any(&t, a);
        assert_int_equal(allocated(&t), 0);
        VRPT_STATUS(vrp_free(t.pool, a, VRP_STREAM_ANY), VRP_ALREADY_FREED);
        for (int n = 0; n < 40; n++) { /* whatever is asked meanwhile, it is not that block */
            vrp_devptr b = take(&t, sizes[i]);
            assert_true(b + sizes[i] <= a || a + sizes[i] <= b);
            work(&t, VRP_STREAM_LEGACY, b, sizes[i]);
            vrp_sim_complete(t.sim, VRP_STREAM_LEGACY, UINT64_MAX);
            give(&t, b);
        }
        VRPT_OK(vrp_pool_poll(t.pool));
        vrp_gap gap = {.struct_size = sizeof gap};
        VRPT_OK(vrp_pool_gap_compute(t.pool, &gap));
        assert_true(gap.pending_bytes >= sizes[i]);
        vrp_sim_complete(t.sim, hidden, UINT64_MAX);
        vrp_sim_complete(t.sim, VRP_STREAM_LEGACY, UINT64_MAX);
        VRPT_OK(vrp_pool_poll(t.pool));
        VRPT_OK(vrp_pool_check(t.pool));
        close_pool(&t);
    }
}

static void fences_are_batched_and_a_loop_does_not_grow(void **state) {
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrpt t;
        open_pool(&t, NULL);
        for (int n = 0; n < 3000; n++)
            give_any(&t, take(&t, sizes[i]));
        assert_true(vrpt_sim_stats(&t, 0).used_bytes <= 40 * sizes[i] + 64 * VRPT_MIB);
        assert_true(vrp_sim_call_count(t.sim, VRP_SIM_CALL_CONTEXT_RECORD) <=
                    (sizes[i] < 16 * VRPT_MIB ? 400 : 3000));
        assert_true(vrp_sim_call_count(t.sim, VRP_SIM_CALL_CONTEXT_RECORD) > 0);
        close_pool(&t);
    }
}

static void without_a_context_record_known_streams_are_asked(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_MANUAL,
                                  .sim_flags = VRP_SIM_NO_CONTEXT_RECORD};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    vrp_stream other = stream_of(&t);
    vrp_devptr known = take_on(&t, VRPT_MIB, other);
    vrp_devptr a = take(&t, VRPT_MIB);
    work(&t, other, a, VRPT_MIB);
    give_any(&t, a);
    for (int n = 0; n < 20; n++) {
        vrp_devptr b = take(&t, VRPT_MIB);
        assert_true(b != a);
        give(&t, b);
    }
    vrp_sim_complete(t.sim, other, UINT64_MAX);
    VRPT_OK(vrp_pool_poll(t.pool));
    give(&t, known);
    close_pool(&t);
}

static void fence_is_postponed_while_a_stream_captures(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_MANUAL};
    vrpt t;
    int intact = 0;
    (void)state;
    open_pool(&t, &options);
    vrp_stream capture = stream_of(&t);
    VRPT_OK(vrp_capture_begin(t.pool, capture));
    VRPT_OK(vrp_sim_capture_begin(t.sim, capture, VRP_SIM_CAPTURE_GLOBAL));
    for (int n = 0; n < 50; n++)
        give_any(&t, take(&t, VRPT_MIB));
    VRPT_OK(vrp_pool_poll(t.pool));
    assert_int_equal(vrp_sim_call_count(t.sim, VRP_SIM_CALL_CONTEXT_RECORD), 0);
    VRPT_OK(vrp_sim_capture_end(t.sim, capture, &intact));
    VRPT_OK(vrp_capture_end(t.pool, capture));
    assert_int_equal(intact, 1);
    VRPT_OK(vrp_pool_poll(t.pool));
    assert_true(vrp_sim_call_count(t.sim, VRP_SIM_CALL_CONTEXT_RECORD) > 0);
    close_pool(&t);
}

static void any_is_for_frees_only(void **state) {
    vrpt t;
    vrp_devptr ptr = 77;
    vrp_alloc_info info = {.struct_size = sizeof info, .bytes = 4096, .stream = VRP_STREAM_ANY};
    (void)state;
    open_pool(&t, NULL);
    VRPT_STATUS(vrp_alloc(t.pool, 4096, VRP_STREAM_ANY, &ptr), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_alloc_ex(t.pool, &info, &ptr), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_stream_forget(t.pool, VRP_STREAM_ANY), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_capture_begin(t.pool, VRP_STREAM_ANY), VRP_INVALID_ARGUMENT);
    assert_int_equal(ptr, 77);
    ptr = take(&t, 4096);
    VRPT_STATUS(vrp_record_stream(t.pool, ptr, VRP_STREAM_ANY), VRP_INVALID_ARGUMENT);
    give(&t, ptr);
    close_pool(&t);
}

/* ---- graph pools ------------------------------------------------------------------- */

static vrp_graph_pool *graph_pool(vrpt *t) {
    vrp_graph_pool *g = NULL;
    VRPT_OK(vrp_graph_pool_create(t->pool, &g));
    return g;
}

static void capture_on(vrpt *t, vrp_graph_pool *g, vrp_stream stream) {
    VRPT_OK(vrp_graph_pool_begin(g, stream));
    VRPT_OK(vrp_sim_capture_begin(t->sim, stream, VRP_SIM_CAPTURE_GLOBAL));
}

static void capture_off(vrpt *t, vrp_graph_pool *g, vrp_stream stream) {
    int intact = 0;
    VRPT_OK(vrp_sim_capture_end(t->sim, stream, &intact));
    VRPT_OK(vrp_graph_pool_end(g, stream));
    assert_int_equal(intact, 1);
}

static int overlaps(vrp_devptr a, vrp_devptr b, uint64_t bytes) {
    return a < b + bytes && b < a + bytes;
}

/* What a capture freed serves the capture, and neither the pool nor a trim. */
static void graph_memory_is_nobody_elses_until_release(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_MANUAL};
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(sizes); i++) {
        vrpt t;
        open_pool(&t, &options);
        vrp_stream stream = stream_of(&t), launches = stream_of(&t);
        give(&t, take_on(&t, sizes[i], stream)); /* something that a hit could give */
        vrp_graph_pool *g = graph_pool(&t);
        capture_on(&t, g, stream);
        vrp_devptr a = take_on(&t, sizes[i], stream);
        VRPT_OK(vrp_free(t.pool, a, stream));
        vrp_devptr again = take_on(&t, sizes[i], stream);
        assert_int_equal(again, a);
        VRPT_OK(vrp_free(t.pool, again, stream));
        capture_off(&t, g, stream);
        assert_true(vrpt_stats(&t).graph_bytes >= sizes[i]);
        work(&t, launches, a, sizes[i]); /* the graph, launched elsewhere */
        for (int n = 0; n < 20; n++) {
            vrp_devptr b = take_on(&t, sizes[i], stream);
            assert_false(overlaps(a, b, sizes[i]));
            VRPT_OK(vrp_free(t.pool, b, stream));
            VRPT_OK(vrp_empty_cache(t.pool, NULL));
        }
        assert_true(vrpt_stats(&t).graph_bytes >= sizes[i]);
        VRPT_OK(vrp_pool_check(t.pool));
        VRPT_OK(vrp_graph_pool_release(g, &launches, 1));
        assert_int_equal(vrpt_stats(&t).graph_bytes, 0);
        VRPT_OK(vrp_empty_cache(t.pool, NULL));
        if (t.backing == VRP_BACKING_VMM) /* the launch is not done: its memory stands */
            assert_true(reserved(&t) > 0);
        vrp_sim_complete(t.sim, launches, UINT64_MAX);
        VRPT_OK(vrp_empty_cache(t.pool, NULL));
        assert_int_equal(reserved(&t), 0);
        VRPT_OK(vrp_pool_check(t.pool));
        close_pool(&t);
    }
}

/* Without the wait, the detector would see the launch's memory go under it. */
static void release_without_streams_waits_for_the_context(void **state) {
    const vrpt_options options = {.completion = VRP_SIM_MANUAL};
    vrpt t;
    (void)state;
    open_pool(&t, &options);
    vrp_stream stream = stream_of(&t), hidden = stream_of(&t);
    vrp_graph_pool *g = graph_pool(&t);
    capture_on(&t, g, stream);
    vrp_devptr a = take_on(&t, 8 * VRPT_MIB, stream);
    VRPT_OK(vrp_free(t.pool, a, stream));
    capture_off(&t, g, stream);
    work(&t, hidden, a, 8 * VRPT_MIB);
    VRPT_OK(vrp_graph_pool_release(g, NULL, 0));
    if (t.backing == VRP_BACKING_VMM) {
        VRPT_OK(vrp_empty_cache(t.pool, NULL));
        assert_true(reserved(&t) >= 8 * VRPT_MIB);
    }
    vrp_sim_complete(t.sim, hidden, UINT64_MAX);
    VRPT_OK(vrp_empty_cache(t.pool, NULL));
    assert_int_equal(reserved(&t), 0);
    close_pool(&t);
}

static void two_streams_of_a_capture_share_nothing(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    vrp_stream one = stream_of(&t), two = stream_of(&t);
    vrp_graph_pool *g = graph_pool(&t);
    VRPT_OK(vrp_graph_pool_begin(g, one));
    VRPT_OK(vrp_graph_pool_begin(g, two));
    vrp_devptr a = take_on(&t, VRPT_MIB, one);
    VRPT_OK(vrp_free(t.pool, a, one));
    vrp_devptr b = take_on(&t, VRPT_MIB, two);
    assert_false(overlaps(a, b, VRPT_MIB));
    VRPT_OK(vrp_graph_pool_end(g, one));
    VRPT_OK(vrp_graph_pool_end(g, two));
    VRPT_OK(vrp_graph_pool_begin(g, one)); /* a second capture goes on with the memory */
    assert_int_equal(take_on(&t, VRPT_MIB, one), a);
    VRPT_STATUS(vrp_graph_pool_release(g, NULL, 0), VRP_BUSY);
    VRPT_OK(vrp_graph_pool_end(g, one));
    VRPT_OK(vrp_graph_pool_release(g, NULL, 0)); /* a and b are live: theirs */
    VRPT_OK(vrp_pool_check(t.pool));
    give(&t, a);
    VRPT_OK(vrp_free(t.pool, b, two));
    close_pool(&t);
}

static void wrong_calls_on_graph_pools(void **state) {
    vrpt t;
    vrp_graph_pool *none = NULL;
    vrp_stream bad = VRP_STREAM_ANY;
    (void)state;
    open_pool(&t, NULL);
    vrp_stream stream = stream_of(&t);
    vrp_graph_pool *g = graph_pool(&t), *h = graph_pool(&t);
    VRPT_STATUS(vrp_graph_pool_create(NULL, &none), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_graph_pool_create(t.pool, NULL), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_graph_pool_begin(NULL, stream), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_graph_pool_end(g, stream), VRP_INVALID_ARGUMENT);
    VRPT_OK(vrp_graph_pool_begin(g, stream));
    VRPT_STATUS(vrp_graph_pool_begin(g, stream), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_graph_pool_begin(h, stream), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_graph_pool_end(h, stream), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_capture_end(t.pool, stream), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_stream_forget(t.pool, stream), VRP_INVALID_ARGUMENT);
    VRPT_OK(vrp_graph_pool_end(g, stream));
    VRPT_STATUS(vrp_graph_pool_release(NULL, NULL, 0), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_graph_pool_release(g, NULL, 1), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_graph_pool_release(g, &bad, 1), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_pool_destroy(t.pool, 0), VRP_BUSY);
    VRPT_OK(vrp_graph_pool_release(g, &stream, 1));
    VRPT_OK(vrp_graph_pool_release(h, NULL, 0));
    close_pool(&t);
}

/* ---- exports ------------------------------------------------------------------------ */

static vrp_devptr take_exportable(vrpt *t, uint64_t bytes) {
    vrp_alloc_info info = {
        .struct_size = sizeof info, .bytes = bytes, .flags = VRP_ALLOC_EXPORTABLE};
    vrp_devptr ptr = 0;
    VRPT_OK(vrp_alloc_ex(t->pool, &info, &ptr));
    return ptr;
}

static vrp_sim_export read_fd(int64_t fd) {
    vrp_sim_export what = {0};
    assert_int_equal(pread((int)fd, &what, sizeof what, 0), sizeof what);
    assert_true(what.magic == VRP_SIM_EXPORT_MAGIC);
    assert_int_equal(close((int)fd), 0);
    return what;
}

/* Case 37: what an importer opens begins with the block, or at a known offset. */
static void case_037_each_block_exports_its_own_bytes(void **state) {
    vrp_devptr ptr[4];
    uint64_t handle[4];
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    for (int i = 0; i < 4; i++)
        ptr[i] = take_exportable(&t, VRPT_MIB);
    for (int i = 0; i < 4; i++) {
        vrp_export_info info = {.struct_size = sizeof info};
        if (t.backing == VRP_BACKING_VMM) {
            VRPT_OK(vrp_block_export(t.pool, ptr[i], VRP_EXPORT_POSIX_FD, &info));
            vrp_sim_export what = read_fd(info.fd);
            handle[i] = what.handle;
            assert_int_equal(info.offset_bytes, 0);
            assert_int_equal(info.bytes, what.bytes); /* nobody else's bytes are in it */
            for (int j = 0; j < i; j++)
                assert_true(handle[i] != handle[j]);
        } else {
            vrp_sim_export what;
            VRPT_OK(vrp_block_export(t.pool, ptr[i], VRP_EXPORT_IPC, &info));
            memcpy(&what, info.ipc_handle, sizeof what);
            assert_true(what.ptr == ptr[i]);
            /* the importer gets the base of the driver's allocation */
            assert_true(info.offset_bytes % VRPT_MIB == 0 && info.fd == -1);
        }
    }
    assert_int_equal(vrpt_stats(&t).exported_bytes,
                     4 * (t.backing == VRP_BACKING_VMM ? 2 : 1) * VRPT_MIB);
    for (int i = 0; i < 4; i++) {
        VRPT_OK(vrp_block_export_close(t.pool, ptr[i]));
        give(&t, ptr[i]);
    }
    assert_int_equal(vrpt_stats(&t).exported_bytes, 0);
    close_pool(&t);
}

static void freed_block_stays_until_all_have_closed_it(void **state) {
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    const int32_t kind = t.backing == VRP_BACKING_VMM ? VRP_EXPORT_POSIX_FD : VRP_EXPORT_IPC;
    vrp_devptr a = take_exportable(&t, 4 * VRPT_MIB);
    for (int n = 0; n < 2; n++) {
        vrp_export_info info = {.struct_size = sizeof info};
        VRPT_OK(vrp_block_export(t.pool, a, kind, &info));
        if (info.fd >= 0)
            (void)read_fd(info.fd);
    }
    give(&t, a);
    assert_int_equal(allocated(&t), 0);
    VRPT_STATUS(vrp_free(t.pool, a, VRP_STREAM_OF_ALLOC), VRP_ALREADY_FREED);
    VRPT_STATUS(vrp_pool_destroy(t.pool, 0), VRP_BUSY);
    for (int left = 2; left > 0; left--) {
        VRPT_OK(vrp_empty_cache(t.pool, NULL));
        assert_true(reserved(&t) >= 4 * VRPT_MIB);
        vrp_devptr b = take(&t, 4 * VRPT_MIB);
        assert_false(overlaps(a, b, 4 * VRPT_MIB));
        give(&t, b);
        VRPT_OK(vrp_pool_check(t.pool));
        VRPT_OK(vrp_block_export_close(t.pool, a));
    }
    VRPT_STATUS(vrp_block_export_close(t.pool, a), VRP_INVALID_ARGUMENT);
    VRPT_OK(vrp_empty_cache(t.pool, NULL));
    assert_int_equal(reserved(&t), 0);
    close_pool(&t);
}

static void what_cannot_be_exported_says_so(void **state) {
    vrp_export_info info = {.struct_size = sizeof info}, empty = {0};
    vrpt t;
    (void)state;
    open_pool(&t, NULL);
    vrp_devptr plain = take(&t, VRPT_MIB), slot = take(&t, 600);
    vrp_devptr own = take_exportable(&t, 700);
    const int vmm = t.backing == VRP_BACKING_VMM;
    VRPT_STATUS(vrp_block_export(NULL, own, VRP_EXPORT_POSIX_FD, &info), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_block_export(t.pool, own, VRP_EXPORT_POSIX_FD, NULL), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_block_export(t.pool, own, VRP_EXPORT_POSIX_FD, &empty), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_block_export(t.pool, own, 3, &info), VRP_INVALID_ARGUMENT);
    VRPT_STATUS(vrp_block_export(t.pool, own + 512, VRP_EXPORT_POSIX_FD, &info),
                VRP_INTERIOR_POINTER);
    VRPT_STATUS(vrp_block_export(t.pool, 512, VRP_EXPORT_POSIX_FD, &info), VRP_NOT_OWNED);
    VRPT_STATUS(vrp_block_export(t.pool, own, vmm ? VRP_EXPORT_IPC : VRP_EXPORT_POSIX_FD, &info),
                VRP_NOT_SUPPORTED);
    if (vmm) {
        VRPT_STATUS(vrp_block_export(t.pool, plain, VRP_EXPORT_POSIX_FD, &info),
                    VRP_INVALID_ARGUMENT);
        VRPT_STATUS(vrp_block_export(t.pool, slot, VRP_EXPORT_DMA_BUF, &info),
                    VRP_INVALID_ARGUMENT);
        vrp_sim_fault_set(t.sim, VRP_SIM_CALL_EXPORT, 1, 1, VRP_INTERNAL);
        VRPT_STATUS(vrp_block_export(t.pool, own, VRP_EXPORT_POSIX_FD, &info), VRP_INTERNAL);
        vrp_sim_faults_clear(t.sim);
    }
    assert_int_equal(vrpt_stats(&t).exported_bytes, 0);
    VRPT_STATUS(vrp_block_export_close(t.pool, own), VRP_INVALID_ARGUMENT);
    give(&t, plain);
    give(&t, slot);
    give(&t, own);
    close_pool(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_of_any_stream_waits_for_all_of_the_context),
        cmocka_unit_test(fences_are_batched_and_a_loop_does_not_grow),
        cmocka_unit_test(without_a_context_record_known_streams_are_asked),
        cmocka_unit_test(fence_is_postponed_while_a_stream_captures),
        cmocka_unit_test(any_is_for_frees_only),
        cmocka_unit_test(graph_memory_is_nobody_elses_until_release),
        cmocka_unit_test(release_without_streams_waits_for_the_context),
        cmocka_unit_test(two_streams_of_a_capture_share_nothing),
        cmocka_unit_test(wrong_calls_on_graph_pools),
        cmocka_unit_test(case_037_each_block_exports_its_own_bytes),
        cmocka_unit_test(freed_block_stays_until_all_have_closed_it),
        cmocka_unit_test(what_cannot_be_exported_says_so),
    };
    return vrpt_main("test_rules", tests, VRPT_COUNT(tests), argc, argv);
}
