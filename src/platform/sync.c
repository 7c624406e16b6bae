/* SPDX-License-Identifier: MIT */
/* Locks with ranks, fork counter and time over POSIX. */

#include "platform/sync.h"

#include <sched.h>
#include <time.h>

#if defined(__linux__) && defined(__has_include)
#if __has_include(<linux/membarrier.h>)
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>
#define HAVE_MEMBARRIER 1
#endif
#endif
#ifndef HAVE_MEMBARRIER
#define HAVE_MEMBARRIER 0
#endif

atomic_uint vrpi_fork_count;

static atomic_uint violations;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

#ifdef VRPI_LOCK_RANKS
enum { HELD_MAX = 8 };
static _Thread_local int held[HELD_MAX];
static _Thread_local int held_count;

static void rank_push(int rank) {
    for (int i = 0; i < held_count; i++)
        if (held[i] >= rank)
            (void)atomic_fetch_add_explicit(&violations, 1, memory_order_relaxed);
    if (held_count < HELD_MAX)
        held[held_count++] = rank;
}

static void rank_pop(int rank) {
    for (int i = held_count - 1; i >= 0; i--)
        if (held[i] == rank) {
            for (; i + 1 < held_count; i++)
                held[i] = held[i + 1];
            held_count--;
            return;
        }
    (void)atomic_fetch_add_explicit(&violations, 1, memory_order_relaxed);
}

int vrpi_rank_held(int rank) {
    for (int i = 0; i < held_count; i++)
        if (held[i] >= rank)
            return 1;
    return 0;
}
#else
static void rank_push(int rank) { (void)rank; }
static void rank_pop(int rank) { (void)rank; }
int vrpi_rank_held(int rank) {
    (void)rank;
    return 0;
}
#endif

unsigned vrpi_rank_violations(void) {
    return atomic_load_explicit(&violations, memory_order_relaxed);
}

#if HAVE_MEMBARRIER
static long membarrier_call(int command) { return syscall(SYS_membarrier, command, 0, 0); }
#endif

#ifndef VRPI_GATES_CHEAP
int vrpi_gates_cheap;
static pthread_once_t gates_once = PTHREAD_ONCE_INIT;

static void gates_register(void) {
#if HAVE_MEMBARRIER
    long known = membarrier_call(MEMBARRIER_CMD_QUERY);
    if (known > 0 && (known & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 &&
        membarrier_call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0)
        vrpi_gates_cheap = 1;
#endif
}

void vrpi_gates_init(void) { (void)pthread_once(&gates_once, gates_register); }
#else
void vrpi_gates_init(void) {}
#endif

void vrpi_gates_barrier(void) {
#if HAVE_MEMBARRIER
    if (vrpi_gates_cheap)
        (void)membarrier_call(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
#endif
}

void vrpi_gate_wait(vrpi_gate *gate) {
    /* acquire pairs with the owner's leaving; seq_cst for the exchange of the other way */
    while (atomic_load(&gate->inside) != 0)
        vrpi_pause();
}

int vrpi_mutex_init(vrpi_mutex *mutex, int rank) {
    pthread_mutexattr_t attributes;
    int status = pthread_mutexattr_init(&attributes);
    mutex->rank = rank;
    if (status != 0)
        return status;
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
    /* Held for less than a microsecond: a moment of spinning is cheaper than a sleep. */
    (void)pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
    status = pthread_mutex_init(&mutex->mutex, &attributes);
    (void)pthread_mutexattr_destroy(&attributes);
    return status;
}

void vrpi_mutex_destroy(vrpi_mutex *mutex) { (void)pthread_mutex_destroy(&mutex->mutex); }

void vrpi_mutex_lock(vrpi_mutex *mutex) {
    rank_push(mutex->rank);
    (void)pthread_mutex_lock(&mutex->mutex);
}

void vrpi_mutex_unlock(vrpi_mutex *mutex) {
    (void)pthread_mutex_unlock(&mutex->mutex);
    rank_pop(mutex->rank);
}

static void in_child(void) {
    (void)atomic_fetch_add_explicit(&vrpi_fork_count, 1, memory_order_relaxed);
}

static void install(void) { (void)pthread_atfork(NULL, NULL, in_child); }

void vrpi_fork_watch(void) { (void)pthread_once(&fork_once, install); }

uint64_t vrpi_now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void vrpi_pause(void) { (void)sched_yield(); }
