/* SPDX-License-Identifier: MIT */
/* What the pool's own bookkeeping takes of host memory: bytes for each live block,
 * bytes of a fresh pool, and that nothing of it grows with time. */

#include "unit_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define BYTES_PER_BLOCK 64
#define FRESH_BYTES (256 * VRPT_KIB)

static uint64_t seed = UINT64_C(88172645463325252);

static uint64_t next_random(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* 512 B to 1 MiB, every doubling as likely as the next. */
static uint64_t log_uniform(void) {
    uint64_t doubling = UINT64_C(512) << next_random() % 11;
    return doubling + next_random() % doubling;
}

static uint64_t host_bytes(vrpt *t) { return vrpt_stats(t).host_bytes; }

static void open_large(vrpt *t) {
    const vrpt_options options = {
        .sim_only = 1, .backing = VRP_BACKING_VMM, .device_bytes = 256 * VRPT_GIB};
    open_pool(t, &options);
}

/* bytes 0: log-uniform, each block replaced four times on average. */
static void bytes_a_block(size_t count, uint64_t bytes) {
    vrpt t;
    vrp_devptr *blocks = calloc(count, sizeof *blocks);
    assert_non_null(blocks);
    open_large(&t);
    const vrp_devptr first = take(&t, 512);
    const uint64_t fresh = host_bytes(&t);
    assert_true(fresh <= FRESH_BYTES);
    for (size_t i = 0; i < count; i++)
        blocks[i] = take(&t, bytes != 0 ? bytes : log_uniform());
    for (size_t i = 0; bytes == 0 && i < 4 * count; i++) {
        size_t which = next_random() % count;
        give(&t, blocks[which]);
        blocks[which] = take(&t, log_uniform());
    }
    const uint64_t used = host_bytes(&t) - fresh;
    if (used > count * BYTES_PER_BLOCK)
        fail_msg("%zu blocks of %llu bytes: %.1f bytes of host memory each", count,
                 (unsigned long long)bytes, (double)used / (double)count);
    VRPT_OK(vrp_pool_check(t.pool));
    for (size_t i = 0; i < count; i++)
        give(&t, blocks[i]);
    give(&t, first);
    close_pool(&t);
    free(blocks);
}

static void every_size(size_t count) {
    const uint64_t sizes[] = {512, 4096, 32768, 33 * 1024, 65536, 262144, 0};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        bytes_a_block(count, sizes[i]);
}

static void ten_thousand_blocks(void **state) {
    (void)state;
    every_size(10000);
}

static void a_hundred_thousand_blocks(void **state) {
    (void)state;
    every_size(100000);
}

/* Of this process, in KiB. */
static long resident(void) {
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (kib < 0 && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    (void)fclose(file);
    assert_true(kib > 0);
    return kib;
}

enum { ROUND_BLOCKS = 5000, ROUNDS = 20, SETTLED = 5, SLACK_KIB = 256 };

static void one_round(vrpt *t, vrp_devptr *blocks) {
    for (size_t i = 0; i < ROUND_BLOCKS; i++)
        blocks[i] = take(t, log_uniform());
    for (size_t i = 0; i < ROUND_BLOCKS; i++) {
        size_t which = next_random() % ROUND_BLOCKS;
        give(t, blocks[which]);
        blocks[which] = take(t, log_uniform());
    }
    for (size_t i = 0; i < ROUND_BLOCKS; i++)
        give(t, blocks[i]);
}

/* The same work again and again, in one pool or in a new one each time. */
static void flat(int one_pool) {
    static vrp_devptr blocks[ROUND_BLOCKS];
    const uint64_t begin = seed;
    uint64_t settled_bytes = 0;
    long settled = 0;
    vrpt t;
    for (int round = 0; round < ROUNDS; round++) {
        seed = begin;
        if (!one_pool || round == 0)
            open_large(&t);
        one_round(&t, blocks);
        if (round == SETTLED)
            settled_bytes = host_bytes(&t);
        if (round > SETTLED && host_bytes(&t) > settled_bytes + settled_bytes / 16)
            fail_msg("round %d: %llu bytes of host memory after %llu", round,
                     (unsigned long long)host_bytes(&t), (unsigned long long)settled_bytes);
        if (!one_pool || round == ROUNDS - 1)
            close_pool(&t);
        if (round == SETTLED)
            settled = resident();
    }
    /* Sanitizers keep freed memory back. */
    if (!SANITIZED && resident() > settled + SLACK_KIB)
        fail_msg("%ld KiB resident, %ld before", resident(), settled);
}

static void pools_in_a_row(void **state) {
    (void)state;
    flat(0);
}

static void rounds_in_one_pool(void **state) {
    (void)state;
    flat(1);
}

/* Blocks of few granules, then of many in each, then none: tables of the address
 * map are replaced by larger ones and taken up again. */
static void the_map_follows(void **state) {
    enum { MOST = 8192 };
    static vrp_devptr blocks[MOST];
    const uint64_t sizes[] = {1024, 33, 700, 48, 1900, 64, 130};
    vrpt t;
    uint64_t settled = 0;
    (void)state;
    open_large(&t);
    for (size_t round = 0; round < 42; round++) {
        size_t count = 0;
        uint64_t bytes = sizes[round % 7] * VRPT_KIB;
        for (uint64_t sum = 0; sum < 256 * VRPT_MIB; sum += bytes)
            blocks[count++] = take(&t, bytes);
        for (size_t i = 0; i < count; i += 2)
            give(&t, blocks[i]);
        for (size_t i = 0; i < count; i += 2)
            blocks[i] = take(&t, bytes / 2);
        VRPT_OK(vrp_pool_check(t.pool));
        while (count > 0)
            give(&t, blocks[--count]);
        if (round == 20)
            settled = host_bytes(&t);
        if (round > 20)
            assert_true(host_bytes(&t) <= settled + settled / 32);
    }
    close_pool(&t);
}

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_blocks), cmocka_unit_test(a_hundred_thousand_blocks),
        cmocka_unit_test(the_map_follows),     cmocka_unit_test(pools_in_a_row),
        cmocka_unit_test(rounds_in_one_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
