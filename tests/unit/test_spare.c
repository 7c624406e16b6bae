/* SPDX-License-Identifier: MIT */
/* The device is full, but a hole of another class of the stream has room: it is taken
 * before anybody is asked, waited for or refused. */

#include "vrp_test.h"

static int asked;

static int count_calls(void *user, const vrp_oom_report *report) {
    (void)user;
    (void)report;
    asked++;
    return 0;
}

static vrp_devptr get(vrpt *t, uint64_t bytes, vrp_tag tag) {
    vrp_alloc_info info = {.struct_size = sizeof info,
                           .bytes = bytes,
                           .stream = VRP_STREAM_LEGACY,
                           .tag = (int32_t)tag};
    vrp_devptr ptr = 0;
    vrp_status status = vrp_alloc_ex(t->pool, &info, &ptr);
    if (status != VRP_OK)
        fail_msg("%llu bytes: %s", (unsigned long long)bytes, vrp_status_name(status));
    return ptr;
}

/* Fills the device with blocks of one kind, so that its last extent has `rest` free
 * bytes; then asks for one of another kind that fits there. */
static void other_kinds_fit(uint64_t device, uint64_t filler, vrp_tag filler_tag, uint64_t wanted,
                            vrp_tag wanted_tag) {
    vrpt t;
    vrpt_options options = {.sim_only = 1,
                            .backing = VRP_BACKING_VMM,
                            .device_bytes = device,
                            .pool.oom_fn = count_calls};
    vrp_devptr blocks[256];
    size_t count = 0;
    vrp_stats stats = {.struct_size = sizeof stats};
    assert_true(vrpt_open(&t, &options));
    asked = 0;
    uint64_t used = 0;
    for (; used + filler <= device; used += filler)
        blocks[count++] = get(&t, filler, filler_tag);
    assert_int_equal(vrp_pool_stats_get(t.pool, &stats), VRP_OK);
    assert_int_equal(stats.reserved_bytes.current, device);
    assert_true(device - used >= wanted);
    const vrp_devptr last = get(&t, wanted, wanted_tag);
    assert_int_equal(asked, 0);
    assert_int_equal(vrp_pool_stats_get(t.pool, &stats), VRP_OK);
    assert_int_equal(stats.failures, 0);
    assert_int_equal(stats.host_waits, 0);
    assert_int_equal(stats.reserved_bytes.current, device);

    /* What fits nowhere is refused as before, after the callback. */
    vrp_devptr none = 0;
    assert_int_equal(vrp_alloc(t.pool, 4 * VRPT_MIB, VRP_STREAM_LEGACY, &none),
                     VRP_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(none, 0);
    assert_true(asked > 0);

    assert_int_equal(vrp_free(t.pool, last, VRP_STREAM_LEGACY), VRP_OK);
    while (count > 0)
        assert_int_equal(vrp_free(t.pool, blocks[--count], VRP_STREAM_LEGACY), VRP_OK);
    if (!vrpt_close(&t))
        fail_msg("%s", t.why);
}

static void activations_fit_behind_weights(void **state) {
    (void)state;
    other_kinds_fit(8 * VRPT_MIB, 2500 * VRPT_KIB, VRP_TAG_WEIGHTS, 600 * VRPT_KIB,
                    VRP_TAG_ACTIVATION);
    other_kinds_fit(8 * VRPT_MIB, 2500 * VRPT_KIB, VRP_TAG_WEIGHTS, 48 * VRPT_KIB, VRP_TAG_KV);
}

static void small_ones_fit_behind_large_ones(void **state) {
    (void)state;
    other_kinds_fit(8 * VRPT_MIB, 2500 * VRPT_KIB, VRP_TAG_ACTIVATION, 600 * VRPT_KIB,
                    VRP_TAG_ACTIVATION);
    other_kinds_fit(8 * VRPT_MIB, 2500 * VRPT_KIB, VRP_TAG_ACTIVATION, 4096, VRP_TAG_ACTIVATION);
}

static void weights_fit_behind_activations(void **state) {
    (void)state;
    other_kinds_fit(8 * VRPT_MIB, 2500 * VRPT_KIB, VRP_TAG_ACTIVATION, 600 * VRPT_KIB,
                    VRP_TAG_WEIGHTS);
}

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_fit_behind_weights),
        cmocka_unit_test(small_ones_fit_behind_large_ones),
        cmocka_unit_test(weights_fit_behind_activations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
