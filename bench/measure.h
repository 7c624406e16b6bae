/* SPDX-License-Identifier: MIT */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

/* The small measurements of one allocator. Each adds rows to the sheet; a
 * message and 0 where it broke off. */

#include "adaptor.h"
#include "sheet.h"
#include "stage.h"

typedef struct bench_measure {
    const bench_stage *stage;
    const bench_adaptor *adaptor;
    void *self;
    bench_sheet *sheet;
    bench_adaptor_host host; /* to make `self` anew */
    uint64_t repeat;         /* samples of each row */
    uint64_t sample_ns;      /* about how long a sample of a loop takes */
    uint64_t pairs;          /* exactly so many, once, unprepared; 0: by time */
    const char *only;        /* names of measurements, with commas; NULL: all */
} bench_measure;

/* Makes and ends m->self. */
int bench_measure_create(bench_measure *m);
void bench_measure_destroy(bench_measure *m);

/* One block for the adaptor's own type of request; 0 after a message. */
uint64_t bench_measure_alloc(const bench_measure *m, uint64_t bytes, uint64_t stream);

/* How often to repeat something that takes `each_ns`, for one sample. */
uint64_t bench_measure_count(const bench_measure *m, double each_ns, uint64_t least, uint64_t most);

int bench_measure_pairs(bench_measure *m);
int bench_measure_replace(bench_measure *m);
int bench_measure_threads(bench_measure *m);
int bench_measure_handoff(bench_measure *m);
int bench_measure_empty_cache(bench_measure *m);
int bench_measure_launches(bench_measure *m);
int bench_measure_first_touch(bench_measure *m);
int bench_measure_host_memory(bench_measure *m);

/* All that `only` names. BENCH_OK or BENCH_FAILED. */
int bench_measure_all(bench_measure *m);

/* The process's resident memory. */
uint64_t bench_resident_bytes(void);

/* Sizes of blocks, logarithmically even from 512 bytes up to 2^top, always the
 * same ones: what std::uniform_real_distribution over std::mt19937_64 gives. */
typedef struct bench_random {
    uint64_t state[312];
    uint32_t next;
} bench_random;
void bench_random_begin(bench_random *random, uint64_t seed);
uint64_t bench_random_next(bench_random *random);
uint64_t bench_random_size(bench_random *random, double top);

#endif
