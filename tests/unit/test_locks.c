/* SPDX-License-Identifier: MIT */
/* Ranked locks: a violation is seen, and no driver call that can take time is
 * made while the pool's lock is held. Builds without ranks skip. */

#include "platform/sync.h"
#include "unit_support.h"

#include <stdlib.h>

static int ranks_are_checked(void) {
    vrpi_mutex low;
    int held;
    if (vrpi_mutex_init(&low, VRPI_RANK_POOL) != 0)
        return 0;
    vrpi_mutex_lock(&low);
    held = vrpi_rank_held(VRPI_RANK_POOL);
    vrpi_mutex_unlock(&low);
    vrpi_mutex_destroy(&low);
    return held;
}

static void lock_of_a_lower_rank_is_a_violation(void **state) {
    vrpi_mutex low, high;
    const unsigned before = vrpi_rank_violations();
    (void)state;
    if (VRPT_TSAN)
        skip(); /* which reports the planted inversion itself */
    assert_int_equal(vrpi_mutex_init(&low, VRPI_RANK_POOL), 0);
    assert_int_equal(vrpi_mutex_init(&high, VRPI_RANK_SHARD), 0);
    vrpi_mutex_lock(&low);
    vrpi_mutex_lock(&high);
    vrpi_mutex_unlock(&high);
    vrpi_mutex_unlock(&low);
    assert_int_equal(vrpi_rank_violations(), before);
    vrpi_mutex_lock(&high);
    vrpi_mutex_lock(&low);
    vrpi_mutex_unlock(&low);
    vrpi_mutex_unlock(&high);
    assert_int_equal(vrpi_rank_violations(), before + 1);
    vrpi_mutex_destroy(&low);
    vrpi_mutex_destroy(&high);
}

typedef struct seen {
    unsigned calls, held;
    int32_t last;
} seen;

static void look(void *user, int32_t call, uint64_t argument) {
    seen *s = user;
    (void)argument;
    s->calls++;
    /* events are destroyed when the pool ends: nobody allocates then */
    if (call != VRP_SIM_CALL_EVENT_DESTROY && vrpi_rank_held(VRPI_RANK_POOL)) {
        s->held++;
        s->last = call;
    }
}

static void no_driver_call_is_made_under_the_pools_lock(void **state) {
    const vrpt_options options = {.pool.gap_rule = VRP_GAP_RULE_HIGH_WATER};
    seen s = {0};
    vrpt t;
    vrp_stream other;
    vrp_growable *buffer;
    (void)state;
    open_pool(&t, &options);
    VRPT_OK(vrp_sim_stream_create(t.sim, VRP_SIM_STREAM_NON_BLOCKING, &other));
    vrp_sim_call_hook_set(t.sim, look, &s);
    for (uint64_t round = 0; round < 40; round++) {
        vrp_devptr a = take(&t, (1 + round) * VRPT_MIB);
        vrp_devptr b = take_on(&t, (40 - round) * 3 * VRPT_MIB, other);
        VRPT_OK(vrp_record_stream(t.pool, a, other));
        give(&t, a);
        give(&t, b);
        if (round % 8 == 7)
            VRPT_OK(vrp_empty_cache(t.pool, NULL));
    }
    const vrp_growable_info info = {.struct_size = sizeof info, .max_bytes = 64 * VRPT_MIB};
    VRPT_OK(vrp_growable_create(t.pool, &info, &buffer));
    VRPT_OK(vrp_growable_resize(buffer, 40 * VRPT_MIB));
    VRPT_OK(vrp_growable_resize(buffer, 10 * VRPT_MIB));
    VRPT_OK(vrp_growable_destroy(buffer));
    VRPT_OK(vrp_stream_forget(t.pool, other));
    VRPT_OK(vrp_sim_stream_destroy(t.sim, other));
    vrp_sim_call_hook_set(t.sim, NULL, NULL);
    if (s.held > 0)
        fail_msg("%u calls under the lock, the last %s", s.held, vrp_sim_call_name(s.last));
    assert_true(s.calls > 100);
    close_pool(&t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lock_of_a_lower_rank_is_a_violation),
        cmocka_unit_test(no_driver_call_is_made_under_the_pools_lock),
    };
    if (!ranks_are_checked())
        return 77;
    return vrpt_main("ranked locks", tests, VRPT_COUNT(tests), argc, argv);
}
