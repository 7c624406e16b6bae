/* SPDX-License-Identifier: MIT */
#ifndef VRPI_PLATFORM_SYNC_H
#define VRPI_PLATFORM_SYNC_H

/* Locks with ranks, the fork counter, time. Ranks are checked where VRPI_LOCK_RANKS is defined: a
 * thread may take a lock only if its rank is above that of every lock it
 * holds. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum {
    VRPI_RANK_POOL = 30,   /* a pool's structure */
    VRPI_RANK_SHARD = 40,  /* what is below a pool */
    VRPI_RANK_DRIVER = 50, /* a driver's own state: innermost */
};

typedef struct vrpi_mutex {
    pthread_mutex_t mutex;
    int rank;
} vrpi_mutex;

int vrpi_mutex_init(vrpi_mutex *mutex, int rank); /* 0 on success */
void vrpi_mutex_destroy(vrpi_mutex *mutex);
void vrpi_mutex_lock(vrpi_mutex *mutex);
void vrpi_mutex_unlock(vrpi_mutex *mutex);

/* How often this process has forked on the child's side: 0 in the process that
 * loaded the library. A pool remembers the value of its creation. */
extern atomic_uint vrpi_fork_count;
void vrpi_fork_watch(void); /* installs the hook, once */

/* Ranks: how many violations were seen, and whether the calling thread holds a
 * lock of that rank or above (0 where ranks are not checked). */
unsigned vrpi_rank_violations(void);
int vrpi_rank_held(int rank);

/* Host time, monotonic, nanoseconds. For costs that are reported, never for
 * decisions of the core. */
uint64_t vrpi_now_ns(void);
void vrpi_pause(void); /* in a spin: gives the core to others for a moment */

#endif
