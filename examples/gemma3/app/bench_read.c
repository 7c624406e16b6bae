/* SPDX-License-Identifier: MIT */
/* The read bandwidth of main memory. */

#include "bench_read.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../kernels/matrix.h"
#include "clock.h"

#define LEAST_ROUNDS 5
#define LEAST_SECONDS 0.5 /* a busy machine has its quiet moments */
#define LEAST_BYTES (UINT64_C(64) << 20)
#define MOST_BYTES (UINT64_C(4) << 30) /* enough for any cache */
#define BLOCK_BYTES 16384u             /* what one call of a loop reads */
#define AHEAD_BYTES 16384u             /* readable beyond the last block: it is fetched ahead */

/* ---- Loops ------------------------------------------------------------------------- */

/* A cache line. The compiler takes the widest registers of the function's target. */
typedef uint64_t line __attribute__((vector_size(64), may_alias));
enum { LINES = BLOCK_BYTES / sizeof(line) };

/* The sum of a block's words, read as four streams that lie `stride` lines apart and go
 * on by `step`, each fetched `ahead` bytes before it is needed. */
static inline __attribute__((always_inline)) uint64_t sum_block(const line *block, size_t stride,
                                                                size_t step, size_t ahead) {
    line a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i < LINES / 4 * step; i += step) {
        const line *at = block + i;
        for (size_t k = 0; k < 4; k++)
            __builtin_prefetch((const char *)(at + k * stride) + ahead);
        a += at[0];
        b += at[stride];
        c += at[2 * stride];
        d += at[3 * stride];
    }
    a += b + c + d;
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof(line) / sizeof(uint64_t); i++)
        sum += a[i];
    return sum;
}

/* One page after the other; four pages side by side; the next block fetched meanwhile. */
#define LOOPS(name, target)                                         \
    target static uint64_t name##_in_order(const line *block) {     \
        return sum_block(block, 1, 4, 2048);                        \
    }                                                               \
    target static uint64_t name##_side_by_side(const line *block) { \
        return sum_block(block, LINES / 4, 1, 512);                 \
    }                                                               \
    target static uint64_t name##_next_block(const line *block) {   \
        return sum_block(block, LINES / 4, 1, BLOCK_BYTES);         \
    }                                                               \
    static const read_fn name##_loops[] = {name##_in_order, name##_side_by_side, name##_next_block};
typedef uint64_t (*read_fn)(const line *block);
enum { LOOP_COUNT = 3 };

LOOPS(plain, )
#if defined(__x86_64__)
LOOPS(avx2, __attribute__((target("avx2"))))
LOOPS(avx512, __attribute__((target("avx512f"))))
#endif

static const read_fn *loops_of_this_cpu(void) {
#if defined(__x86_64__)
    if (g3_isa_best() == G3_ISA_AVX512)
        return avx512_loops;
    if (g3_isa_best() == G3_ISA_AVX2)
        return avx2_loops;
#endif
    return plain_loops;
}

/* ---- Measuring ---------------------------------------------------------------------- */

static uint64_t buffer_bytes(uint64_t wanted) {
    uint64_t bytes = wanted;
#ifdef _SC_LEVEL3_CACHE_SIZE
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (cache > 0 && bytes < 2 * (uint64_t)cache)
        bytes = 2 * (uint64_t)cache;
#endif
    bytes = bytes < LEAST_BYTES ? LEAST_BYTES : bytes;
    bytes = bytes > MOST_BYTES ? MOST_BYTES : bytes;
    return bytes / BLOCK_BYTES * BLOCK_BYTES;
}

/* Seconds of one pass over the buffer; *io_total gets the sum of its words. */
static double pass(read_fn loop, const line *lines, int64_t blocks, uint64_t *io_total) {
    uint64_t total = 0;
    const double start = g3_now();
    /* Shared out a MiB at a time: a thread that is held up does not hold up the rest. */
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 64) reduction(+ : total)
#endif
    for (int64_t block = 0; block < blocks; block++)
        total += loop(lines + block * LINES);
    *io_total += total;
    return g3_now() - start;
}

g3_status g3_bench_read(uint64_t bytes, double *out_bytes_a_second, uint64_t *out_buffer_bytes,
                        g3_error *error) {
    const uint64_t size = buffer_bytes(bytes);
    line *lines = aligned_alloc(4096, size + AHEAD_BYTES);
    if (lines == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "out of memory for %llu bytes to read",
                       (unsigned long long)size);
    memset(lines, 1, size + AHEAD_BYTES);
    const read_fn *loops = loops_of_this_cpu();
    double best = 0.0;
    uint64_t total = 0;
    uint64_t rounds = 0;
    for (const double begin = g3_now(); rounds < LEAST_ROUNDS || g3_now() - begin < LEAST_SECONDS;
         rounds++)
        for (size_t i = 0; i < LOOP_COUNT; i++) {
            const double speed =
                (double)size / pass(loops[i], lines, (int64_t)(size / BLOCK_BYTES), &total);
            best = speed > best ? speed : best;
        }
    /* The sums are looked at, so the loop is not left out. */
    const uint64_t expected = UINT64_C(0x0101010101010101) * (size / 8) * rounds * LOOP_COUNT;
    free(lines);
    if (total != expected)
        return g3_fail(error, G3_DEVICE, "memory gave back other values than were written");
    *out_bytes_a_second = best;
    *out_buffer_bytes = size;
    return G3_OK;
}
