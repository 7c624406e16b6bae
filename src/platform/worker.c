/* SPDX-License-Identifier: MIT */
/* Helper threads over POSIX. */

#include "platform/worker.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum { STACK_BYTES = 512 * 1024, END_WAIT_MS = 200 };

int (*vrpi_worker_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
                          void *) = pthread_create;

static atomic_int ending, working;
static atomic_uint owner; /* vrpi_fork_count of the process whose threads are counted */
static pthread_once_t hook_once = PTHREAD_ONCE_INIT;

/* ---- sleeping -------------------------------------------------------------------- */

int vrpi_cond_init(vrpi_cond *cond) {
    pthread_condattr_t attr;
    int error = pthread_condattr_init(&attr);
    if (error != 0)
        return error;
    error = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (error == 0)
        error = pthread_cond_init(&cond->cond, &attr);
    (void)pthread_condattr_destroy(&attr);
    return error;
}

void vrpi_cond_destroy(vrpi_cond *cond) { (void)pthread_cond_destroy(&cond->cond); }

void vrpi_cond_signal(vrpi_cond *cond) { (void)pthread_cond_signal(&cond->cond); }

int vrpi_cond_wait(vrpi_cond *cond, vrpi_mutex *mutex, uint64_t ns) {
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)(ns / 1000000000u);
    at.tv_nsec += (long)(ns % 1000000000u);
    if (at.tv_nsec >= 1000000000) {
        at.tv_nsec -= 1000000000;
        at.tv_sec++;
    }
    /* The rank stays noted as held: a sleeping thread takes no other lock. */
    return pthread_cond_timedwait(&cond->cond, &mutex->mutex, &at) != ETIMEDOUT;
}

/* ---- the end of the process --------------------------------------------------------- */

/* Runs before the destructors of what was loaded earlier, libcuda among them. */
static void at_end(void) {
    const struct timespec moment = {.tv_nsec = 1000000};
    if (atomic_load(&vrpi_fork_count) != atomic_load(&owner))
        return; /* a child has none of its parent's threads */
    atomic_store(&ending, 1);
    for (int i = 0; i < END_WAIT_MS && atomic_load(&working) != 0; i++)
        (void)nanosleep(&moment, NULL);
}

static void hook_install(void) { (void)atexit(at_end); }

/* The first thread of a child begins to count anew. */
static void own(void) {
    unsigned now = atomic_load(&vrpi_fork_count);
    if (atomic_exchange(&owner, now) != now)
        atomic_store(&working, 0);
}

int vrpi_worker_begin(void) {
    /* seq_cst, as in at_end: either that sees this thread, or it sees the end */
    (void)atomic_fetch_add(&working, 1);
    if (atomic_load(&ending) == 0)
        return 1;
    (void)atomic_fetch_sub(&working, 1);
    return 0;
}

void vrpi_worker_end(void) { (void)atomic_fetch_sub(&working, 1); }

int vrpi_workers_ending(void) { return atomic_load_explicit(&ending, memory_order_relaxed); }

/* ---- threads ------------------------------------------------------------------------ */

/* Faults of a thread itself are left to the application's handlers. */
static void signals_of_others(sigset_t *set) {
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    (void)sigfillset(set);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        (void)sigdelset(set, own[i]);
}

int vrpi_worker_start(vrpi_worker *worker, void *(*run)(void *), void *argument, const char *name) {
    pthread_attr_t attr;
    sigset_t blocked, before;
    int error;
    (void)pthread_once(&hook_once, hook_install);
    own();
    if (vrpi_workers_ending())
        return ECANCELED;
    error = pthread_attr_init(&attr);
    if (error != 0)
        return error;
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES); /* refused: the usual size */
    signals_of_others(&blocked);
    error = pthread_sigmask(SIG_SETMASK, &blocked, &before);
    if (error == 0) {
        error = vrpi_worker_create(&worker->thread, &attr, run, argument);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    (void)pthread_attr_destroy(&attr);
    if (error == 0)
        (void)pthread_setname_np(worker->thread, name);
    return error;
}

void vrpi_worker_join(vrpi_worker *worker) { (void)pthread_join(worker->thread, NULL); }
