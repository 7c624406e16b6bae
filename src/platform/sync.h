/* SPDX-License-Identifier: MIT */
#ifndef VRPI_PLATFORM_SYNC_H
#define VRPI_PLATFORM_SYNC_H

/* Locks with ranks, the fork counter, time. Ranks are checked where VRPI_LOCK_RANKS is defined: a
 * thread may take a lock only if its rank is above that of every lock it
 * holds. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#if defined(__SANITIZE_THREAD__)
#define VRPI_GATES_CHEAP 0 /* ThreadSanitizer does not know the barrier below */
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VRPI_GATES_CHEAP 0
#endif
#endif

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

/* A gate: its owner passes all the time and must pay next to nothing, others close
 * it now and then and may pay for both. The owner stores, then loads, with no
 * fence between; whoever closes makes every running thread of the process
 * execute one (membarrier). Where that call is missing the owner's store is an
 * exchange. Gates are closed under a lock of their user's, and nest. */
typedef struct vrpi_gate {
    _Atomic int inside; /* written by the owner alone */
    _Atomic int closed; /* how many keep it closed */
} vrpi_gate;

void vrpi_gates_init(void); /* before the first gate is used; any number of times */
/* After closing gates: from here on their owners see that, or are seen inside. */
void vrpi_gates_barrier(void);
void vrpi_gate_wait(vrpi_gate *gate); /* until the owner is outside */

#ifdef VRPI_GATES_CHEAP
enum { vrpi_gates_cheap = VRPI_GATES_CHEAP };
#else
extern int vrpi_gates_cheap; /* written once, by vrpi_gates_init */
#endif

static inline void vrpi_gate_leave(vrpi_gate *gate) {
    /* release: who closes the gate sees what was done inside */
    atomic_store_explicit(&gate->inside, 0, memory_order_release);
}

/* Where vrpi_gates_cheap. As below. */
static inline int vrpi_gate_pass_cheap(vrpi_gate *gate) {
    atomic_store_explicit(&gate->inside, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst); /* the compiler keeps the order */
    /* acquire pairs with the reopening */
    if (__builtin_expect(atomic_load_explicit(&gate->closed, memory_order_acquire) == 0, 1))
        return 1;
    vrpi_gate_leave(gate);
    return 0;
}

/* 0: it is closed. Otherwise vrpi_gate_leave must follow. */
static inline int vrpi_gate_pass(vrpi_gate *gate) {
    if (vrpi_gates_cheap)
        return vrpi_gate_pass_cheap(gate);
    (void)atomic_exchange(&gate->inside, 1); /* seq_cst, as is the closing */
    if (__builtin_expect(atomic_load(&gate->closed) == 0, 1))
        return 1;
    vrpi_gate_leave(gate);
    return 0;
}

static inline void vrpi_gate_close(vrpi_gate *gate) { (void)atomic_fetch_add(&gate->closed, 1); }
static inline void vrpi_gate_open(vrpi_gate *gate) {
    (void)atomic_fetch_sub_explicit(&gate->closed, 1, memory_order_release);
}

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
