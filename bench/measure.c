/* SPDX-License-Identifier: MIT */
/* What the measurements share, and the order in which they run. */

#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int bench_measure_create(bench_measure *m) {
    const char *reason = m->adaptor->create(&m->host, &m->self);
    if (reason != NULL)
        (void)bench_fail("%s: %s", m->adaptor->name, reason);
    return reason == NULL;
}

void bench_measure_destroy(bench_measure *m) {
    if (m->self == NULL)
        return;
    (void)bench_stage_synchronise(m->stage);
    m->adaptor->destroy(m->self);
    m->self = NULL;
}

uint64_t bench_measure_alloc(const bench_measure *m, uint64_t bytes, uint64_t stream) {
    uint64_t ptr = m->adaptor->alloc(m->self, bytes, stream);
    if (ptr == 0)
        (void)bench_fail("%s: refused %llu bytes", m->adaptor->name, (unsigned long long)bytes);
    return ptr;
}

uint64_t bench_measure_count(const bench_measure *m, double each_ns, uint64_t least,
                             uint64_t most) {
    double count = (double)m->sample_ns / (each_ns > 0.1 ? each_ns : 0.1);
    if (count < (double)least)
        return least;
    return count > (double)most ? most : (uint64_t)count;
}

uint64_t bench_resident_bytes(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%*s %lu", &pages) != 1)
        pages = 0;
    (void)fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Whether a name is among those in a list with commas; "pair" names "pair-4096"
 * as well. */
static int wanted(const char *only, const char *name) {
    size_t length = strlen(name);
    for (const char *at = only; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 &&
            (at[length] == '\0' || at[length] == ',' || at[length] == '-'))
            return 1;
    }
    return only == NULL;
}

int bench_measure_all(bench_measure *m) {
    static const struct {
        const char *name;
        int (*run)(bench_measure *m);
        int memory;                                             /* it needs real memory */
    } parts[] = {{"host_memory", bench_measure_host_memory, 1}, /* while the heap is small */
                 {"pair", bench_measure_pairs, 0},
                 {"replace", bench_measure_replace, 0},
                 {"threads", bench_measure_threads, 0},
                 {"handoff", bench_measure_handoff, 0},
                 {"empty_cache", bench_measure_empty_cache, 1},
                 {"launch", bench_measure_launches, 1},
                 {"first_touch", bench_measure_first_touch, 1}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!wanted(m->only, parts[i].name) ||
            (parts[i].memory && (m->adaptor->flags & BENCH_ADAPTOR_NO_MEMORY) != 0))
            continue;
        /* Each begins with an allocator that holds nothing. */
        if (!bench_measure_create(m))
            return BENCH_FAILED;
        int good = parts[i].run(m);
        bench_measure_destroy(m);
        if (!good)
            return bench_fail("%s: the measurement %s broke off", m->adaptor->name, parts[i].name);
    }
    return m->sheet->failed ? bench_fail("no host memory for results") : BENCH_OK;
}
