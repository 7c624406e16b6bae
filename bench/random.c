/* SPDX-License-Identifier: MIT */
/* The 64-bit Mersenne twister, so that the order of blocks is the one that a
 * C++ program with the standard library's generator has. */

#include "measure.h"

#include <math.h>

enum { N = 312, M = 156 };
static const uint64_t matrix = UINT64_C(0xb5026f5aa96619e9);
static const uint64_t upper = UINT64_C(0xffffffff80000000);

void bench_random_begin(bench_random *random, uint64_t seed) {
    random->state[0] = seed;
    for (uint32_t i = 1; i < N; i++) {
        uint64_t before = random->state[i - 1];
        random->state[i] = UINT64_C(6364136223846793005) * (before ^ (before >> 62)) + i;
    }
    random->next = N;
}

static void turn(bench_random *random) {
    for (uint32_t i = 0; i < N; i++) {
        uint64_t x = (random->state[i] & upper) | (random->state[(i + 1) % N] & ~upper);
        random->state[i] =
            random->state[(i + M) % N] ^ (x >> 1) ^ ((x & 1) != 0 ? matrix : UINT64_C(0));
    }
    random->next = 0;
}

uint64_t bench_random_next(bench_random *random) {
    if (random->next == N)
        turn(random);
    uint64_t x = random->state[random->next++];
    x ^= (x >> 29) & UINT64_C(0x5555555555555555);
    x ^= (x << 17) & UINT64_C(0x71d67fffeda60000);
    x ^= (x << 37) & UINT64_C(0xfff7eee000000000);
    return x ^ (x >> 43);
}

uint64_t bench_random_size(bench_random *random, double top) {
    double part = (double)bench_random_next(random) / 18446744073709551616.0;
    if (part >= 1.0)
        part = nextafter(1.0, 0.0);
    return (uint64_t)exp2(part * (top - 9.0) + 9.0);
}
