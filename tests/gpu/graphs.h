/* SPDX-License-Identifier: MIT */
#ifndef VRPT_GRAPHS_H
#define VRPT_GRAPHS_H

/* Captures, graphs, raw events and imported memory, for tests of what an
 * application does around the pool. As kernels.h: functions that return int
 * return an error of CUDA, 0 for none. */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

int vrpt_capture_begin(uint64_t stream);                    /* global mode */
int vrpt_capture_end(uint64_t stream, uint64_t *out_graph); /* instantiated */
int vrpt_graph_launch(uint64_t graph, uint64_t stream);
int vrpt_graph_destroy(uint64_t graph);

/* Of the calling thread, which must not have gone to relaxed mode: asks after an
 * event that has nothing to do with anything. */
int vrpt_unrelated_query(void);

/* Records on a stream from this thread and asks at once whether that is done. */
int vrpt_record_and_ask(uint64_t stream, int *out_done);

int vrpt_read_word(uint64_t at, uint32_t *out);

/* Imports a descriptor of `bytes` bytes of physical memory and reads its first word. */
int vrpt_import_and_read(int device, int fd, uint64_t bytes, uint32_t *out);

#ifdef __cplusplus
}
#endif
#endif
