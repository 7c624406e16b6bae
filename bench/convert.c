/* SPDX-License-Identifier: MIT */
/* The convert command: any trace to the compact format. */

#include "run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 4096 };

static int copy(vrp_trace_reader *reader, vrp_trace_writer *writer, uint64_t *out_events) {
    static vrp_trace_event batch[BATCH];
    size_t count = 0;
    *out_events = 0;
    do {
        if (vrp_trace_read(reader, batch, BATCH, &count) != VRP_OK)
            return bench_fail("%s", vrp_trace_message(reader));
        if (vrp_trace_write(writer, batch, count) != VRP_OK)
            return bench_fail("the trace cannot be written: %s", bench_detail());
        *out_events += count;
    } while (count > 0);
    return BENCH_OK;
}

int bench_convert_command(int count, char **words) {
    vrp_trace_reader *reader;
    vrp_trace_writer *writer;
    uint64_t events = 0;
    if (count == 1 && strcmp(words[0], "--help") == 0)
        return -1;
    if (count != 2)
        return bench_usage("convert takes two files, IN and OUT");
    int code = bench_trace_open(words[0], &reader);
    if (code != BENCH_OK)
        return code;
    if (vrp_trace_writer_open(words[1], &writer) != VRP_OK) {
        vrp_trace_close(reader);
        return bench_usage("\"%s\" cannot be written", words[1]);
    }
    code = copy(reader, writer, &events);
    vrp_trace_close(reader);
    if (vrp_trace_writer_close(writer) != VRP_OK && code == BENCH_OK)
        code = bench_fail("\"%s\" could not be written whole", words[1]);
    if (code != BENCH_OK)
        (void)remove(words[1]); /* half a trace is none */
    else
        (void)printf("%s: %" PRIu64 " events\n", words[1], events);
    return code;
}
