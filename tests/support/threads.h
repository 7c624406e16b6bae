/* SPDX-License-Identifier: MIT */
#ifndef VRPT_THREADS_H
#define VRPT_THREADS_H

/* Threads in tests. Workers assert nothing (cmocka's asserts may only be used
 * on the main thread): they note the first trouble, and the test looks at it
 * after joining them. */

#include "vrp_test.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    VRPT_THREADS = 8,
    VRPT_SCALE = VRPT_TSAN ? 1 : 8, /* rounds per thread are multiplied by it */
    VRPT_PATIENCE_S = 20            /* after that, a thread counts as hung */
};

typedef struct vrpt_trouble {
    atomic_int noted;
    char why[256];
} vrpt_trouble;

void vrpt_note(vrpt_trouble *trouble, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Notes a status that is not OK; 1 if it was OK. */
int vrpt_worker_ok(vrpt_trouble *trouble, const char *what, vrp_status status);

/* Something that happens once and that others wait for. */
typedef struct vrpt_gate {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int open;
} vrpt_gate;
#define VRPT_GATE_INITIALIZER \
    { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 }

void vrpt_gate_reset(vrpt_gate *gate);
void vrpt_gate_open(vrpt_gate *gate);
int vrpt_gate_wait(vrpt_gate *gate);             /* 0: patience ran out */
int vrpt_gate_wait_ms(vrpt_gate *gate, long ms); /* 0: time ran out */

/* Runs fn(&args[i * arg_bytes]) on `count` threads and joins them. */
void vrpt_threads_run(size_t count, void *(*fn)(void *), void *args, size_t arg_bytes);

#endif
