/* SPDX-License-Identifier: MIT */
/* The read bandwidth of main memory. */

#include "bench_read.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LEAST_PASSES 9
#define LEAST_SECONDS 0.5 /* a busy machine has its quiet moments */
#define PAGE_WORDS 512u   /* 4 KiB */
#define LEAST_BYTES (UINT64_C(64) << 20)
#define MOST_BYTES (UINT64_C(4) << 30) /* enough for any cache */

static double now(void) {
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Eight sums, so that no addition waits for the one before it. */
static uint64_t sum_page(const uint64_t *words) {
    uint64_t sums[8] = {0};
    for (uint32_t i = 0; i < PAGE_WORDS; i += 8)
        for (uint32_t lane = 0; lane < 8; lane++)
            sums[lane] += words[i + lane];
    uint64_t sum = 0;
    for (uint32_t lane = 0; lane < 8; lane++)
        sum += sums[lane];
    return sum;
}

static uint64_t buffer_bytes(uint64_t wanted) {
    uint64_t bytes = wanted;
#ifdef _SC_LEVEL3_CACHE_SIZE
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (cache > 0 && bytes < 2 * (uint64_t)cache)
        bytes = 2 * (uint64_t)cache;
#endif
    bytes = bytes < LEAST_BYTES ? LEAST_BYTES : bytes;
    bytes = bytes > MOST_BYTES ? MOST_BYTES : bytes;
    return bytes & ~UINT64_C(4095);
}

g3_status g3_bench_read(uint64_t bytes, double *out_bytes_a_second, uint64_t *out_buffer_bytes,
                        g3_error *error) {
    const uint64_t size = buffer_bytes(bytes);
    uint64_t *words = aligned_alloc(4096, size);
    if (words == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "out of memory for %llu bytes to read",
                       (unsigned long long)size);
    memset(words, 1, size);
    const int64_t pages = (int64_t)(size / 4096);
    double best = 0.0;
    uint64_t total = 0;
    uint64_t passes = 0;
    for (const double begin = now(); passes < LEAST_PASSES || now() - begin < LEAST_SECONDS;
         passes++) {
        const double start = now();
        /* Shared out a MiB at a time: a thread that is held up does not hold up the rest. */
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 256) reduction(+ : total)
#endif
        for (int64_t page = 0; page < pages; page++)
            total += sum_page(words + page * PAGE_WORDS);
        const double speed = (double)size / (now() - start);
        best = speed > best ? speed : best;
    }
    /* The sums are looked at, so the loop is not left out. */
    const uint64_t expected = UINT64_C(0x0101010101010101) * (size / 8) * passes;
    free(words);
    if (total != expected)
        return g3_fail(error, G3_DEVICE, "memory gave back other values than were written");
    *out_bytes_a_second = best;
    *out_buffer_bytes = size;
    return G3_OK;
}
