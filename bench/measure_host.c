/* SPDX-License-Identifier: MIT */
/* Host memory for bookkeeping, a live block. */

#include "measure.h"

#include <stdlib.h>
#include <string.h>

static int host_memory_of(bench_measure *m, uint64_t live, uint64_t stream) {
    bench_random random;
    uint64_t done = 0;
    uint64_t *blocks = calloc(live, sizeof *blocks);
    uint64_t *sizes = calloc(live, sizeof *sizes);
    if (blocks == NULL || sizes == NULL) {
        free(blocks);
        free(sizes);
        return !bench_fail("no host memory");
    }
    bench_random_begin(&random, 1);
    for (uint64_t i = 0; i < live; i++)
        sizes[i] = bench_random_size(&random, 20);
    memset(blocks, 1, live * sizeof *blocks); /* resident before it is counted */
    uint64_t before = bench_resident_bytes();
    uint64_t counted = m->adaptor->host_bytes != NULL ? m->adaptor->host_bytes(m->self) : 0;
    for (; done < live; done++) {
        blocks[done] = m->adaptor->alloc(m->self, sizes[done], stream);
        if (blocks[done] == 0)
            break;
    }
    uint64_t after = bench_resident_bytes();
    double each = done == 0 ? 0 : (double)(after - before) / (double)done;
    bench_row *row =
        bench_sheet_add(m->sheet, "bytes", "host_memory/%llu/resident", (unsigned long long)live);
    bench_row_put(row, after > before ? each : 0);
    if (done < live)
        bench_row_note(row, "it refused to hold more than %llu", (unsigned long long)done);
    if (m->adaptor->host_bytes != NULL && done > 0) {
        uint64_t now = m->adaptor->host_bytes(m->self);
        row = bench_sheet_add(m->sheet, "bytes", "host_memory/%llu/counted",
                              (unsigned long long)live);
        bench_row_put(row, (double)now / (double)done);
        row = bench_sheet_add(m->sheet, "bytes", "host_memory/%llu/counted_growth",
                              (unsigned long long)live);
        bench_row_put(row, (double)(now - counted) / (double)done);
    }
    for (uint64_t i = 0; i < done; i++)
        m->adaptor->free(m->self, blocks[i], sizes[i], stream);
    free(blocks);
    free(sizes);
    return bench_stage_synchronise(m->stage);
}

int bench_measure_host_memory(bench_measure *m) {
    uint64_t stream = 0;
    int good = bench_stage_stream(m->stage, &stream) && host_memory_of(m, 10000, stream) &&
               host_memory_of(m, 100000, stream);
    if (m->adaptor->stream_forget != NULL)
        m->adaptor->stream_forget(m->self, stream);
    bench_stage_stream_end(m->stage, stream);
    return good;
}
