/* SPDX-License-Identifier: MIT */
#ifndef VRPI_PLATFORM_WORKER_H
#define VRPI_PLATFORM_WORKER_H

/* Helper threads of the library: starting and joining them, sleeping with a
 * lock given up meanwhile, and the end of the process, at which none of them
 * may be inside a driver call. */

#include "platform/sync.h"

typedef struct vrpi_cond {
    pthread_cond_t cond;
} vrpi_cond;

int vrpi_cond_init(vrpi_cond *cond); /* 0 on success */
void vrpi_cond_destroy(vrpi_cond *cond);
void vrpi_cond_signal(vrpi_cond *cond);
/* Gives the lock up, sleeps until a signal or for that long, and has it again.
 * 0: the time ran out. No other ranked lock may be held. */
int vrpi_cond_wait(vrpi_cond *cond, vrpi_mutex *mutex, uint64_t ns);

typedef struct vrpi_worker {
    pthread_t thread;
} vrpi_worker;

/* Starts a thread with a small stack and every signal blocked but those that a
 * thread raises itself (faults), so that no handler of the application runs on
 * it. `name` has 15 characters at most. 0, or an errno value: none was started. */
int vrpi_worker_start(vrpi_worker *worker, void *(*run)(void *), void *argument, const char *name);
void vrpi_worker_join(vrpi_worker *worker);

/* Around the work of a helper thread. 0: the process is at its end, nothing may
 * be begun any more. The end of the process waits, for a short time, for work
 * that has begun. */
int vrpi_worker_begin(void);
void vrpi_worker_end(void);
int vrpi_workers_ending(void); /* 1: work under way is to stop soon */

/* What creates threads; tests replace it. */
extern int (*vrpi_worker_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

#endif
