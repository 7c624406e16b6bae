/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_RECORDER_H
#define GEMMA3_RECORDER_H

/* Records every allocation, free and resize of a run in vrampool's compact trace
 * format, which vrampool-bench replays. A growable buffer has no event of its own
 * there: what it grows by is one block, what it shrinks by is freed, so that the
 * live bytes agree at every event. */

#include <vrampool/trace.h>

#include "../engine/memory.h"

typedef struct g3_recorder g3_recorder;

/* Begins a file, and watches the memory until g3_recorder_close; the memory must not
 * be closed before. Errors: IO, HOST_MEMORY, UNSUPPORTED (built without the trace
 * library). */
g3_status g3_recorder_open(const char *path, g3_memory *memory, g3_recorder **out_recorder,
                           g3_error *error);
/* NULL is allowed: nothing is recorded. */
void g3_recorder_mark(g3_recorder *recorder, vrp_trace_marker marker);
/* Ends the file. NULL is allowed. Errors: IO, and what went wrong while recording;
 * the file then is not whole. */
g3_status g3_recorder_close(g3_recorder *recorder, g3_error *error);

#endif
