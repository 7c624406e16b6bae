/* SPDX-License-Identifier: MIT */
#ifndef VRPT_OPS_INTERNAL_H
#define VRPT_OPS_INTERNAL_H

/* What the files of the operation decoder share. */

#include "ops.h"

/* One operation's bytes, named. */
typedef struct vrpt_op {
    uint8_t code, flags, index, extra;
    uint32_t number;
} vrpt_op;

typedef int (*vrpt_op_fn)(vrpt_run *run, const vrpt_op *op);

/* The pool's call that an operation is about: the fault plan, if one is armed,
 * holds for it alone. After it, a refused call must have left the counters. */
void vrpt_call_begin(vrpt_run *run);
int vrpt_call_end(vrpt_run *run, const char *what, vrp_status status, int *out_faulted);

int vrpt_waits(vrpt_run *run, int waiter, uint32_t streams, uint32_t *out_missing);
int vrpt_stream_usable(const vrpt_run *run, int stream); /* may the app put work on it */
int vrpt_use(vrpt_run *run, size_t index, int stream, int record);
int vrpt_free_at(vrpt_run *run, size_t index, int stream);
uint64_t vrpt_size_of(uint32_t number);

int vrpt_op_alloc(vrpt_run *run, const vrpt_op *op);
int vrpt_op_free(vrpt_run *run, const vrpt_op *op);
int vrpt_op_free_many(vrpt_run *run, const vrpt_op *op);
int vrpt_op_bad_free(vrpt_run *run, const vrpt_op *op);
int vrpt_op_launch(vrpt_run *run, const vrpt_op *op);
int vrpt_op_record(vrpt_run *run, const vrpt_op *op);
int vrpt_op_forget(vrpt_run *run, const vrpt_op *op);
int vrpt_op_capture(vrpt_run *run, const vrpt_op *op);
int vrpt_op_progress(vrpt_run *run, const vrpt_op *op);
int vrpt_op_trim(vrpt_run *run, const vrpt_op *op);
int vrpt_op_knob(vrpt_run *run, const vrpt_op *op);
int vrpt_op_scope(vrpt_run *run, const vrpt_op *op);
int vrpt_op_budget(vrpt_run *run, const vrpt_op *op);
int vrpt_op_growable(vrpt_run *run, const vrpt_op *op);
int vrpt_op_fault(vrpt_run *run, const vrpt_op *op);

int vrpt_capture_stop(vrpt_run *run);
int vrpt_growable_drop(vrpt_run *run, int index);

#endif
