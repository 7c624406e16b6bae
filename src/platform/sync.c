/* SPDX-License-Identifier: MIT */
/* Locks with ranks, fork counter and time over POSIX. */

#include "platform/sync.h"

#include <sched.h>
#include <time.h>

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

int vrpi_mutex_init(vrpi_mutex *mutex, int rank) {
    mutex->rank = rank;
    return pthread_mutex_init(&mutex->mutex, NULL);
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
