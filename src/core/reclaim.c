/* SPDX-License-Identifier: MIT */
/* The reclaimer: a thread that ends what trims have left, extents whose work
 * was unfinished and what was beyond the budget of the call. One a pool,
 * started by the first trim that leaves something, gone when idle for a while.
 *
 * It works as a user of the pool (vrpi_enter), holds the lock only between
 * driver calls, and has no part of the pool of its own (vrpi_thread). */

#include "core/core.h"

#define PAUSE_LEAST_NS UINT64_C(50000) /* between two looks, doubled while nothing happens */
#define PAUSE_MOST_NS UINT64_C(2000000)
#define IDLE_NS UINT64_C(1000000000) /* without work for that long it ends */

enum { NONE = 0, STARTING = 1, RUNS = 2, ENDED = 3 };

int vrpi_reclaimer_wanted(const vrpi_pool *core) {
    return vrpi_knob(core, VRP_KNOB_RECLAIMER) != 0 &&
           (core->config.flags & VRP_NO_RECLAIMER) == 0 && !vrpi_workers_ending();
}

int vrpi_reclaimer_runs(const vrpi_pool *core) {
    return (core->reclaimer.state == STARTING || core->reclaimer.state == RUNS) &&
           vrpi_reclaimer_wanted(core);
}

static int has_work(const vrpi_pool *core) {
    if (core->marked_count > 0)
        return 1;
    for (const vrpi_uses *u = core->deferred; u != NULL; u = u->next)
        if (u->marked)
            return 1;
    return 0;
}

/* Untracked streams may be gone without a word: on them only calls that name
 * them record, at each free. */
static void record_marked(vrpi_pool *core) {
    if ((core->config.flags & VRP_STREAMS_UNTRACKED) != 0)
        return;
    for (vrpi_node *n = vrpi_treap_last(&core->idle); n != NULL;
         n = vrpi_treap_prev(&core->idle, n)) {
        const vrpi_extent *e = (const vrpi_extent *)(const void *)n;
        if (e->marked && e->stream != NULL && e->stamp > e->stream->covered)
            e->stream->wanted = 1;
    }
    for (const vrpi_uses *u = core->deferred; u != NULL; u = u->next)
        for (uint32_t i = 0; u->marked && i < u->count; i++)
            if (u->use[i].stamp > u->use[i].stream->covered)
                u->use[i].stream->wanted = 1;
    (void)vrpi_record_wanted(core, NULL);
}

/* Takes up what is done and gives it back. 1: did. */
static int step(vrpi_pool *core) {
    uint64_t bytes;
    record_marked(core);
    vrpi_poll(core, NULL);
    bytes = vrpi_marked_release(core, UINT64_MAX);
    core->reclaimed_bytes += bytes;
    return bytes > 0;
}

static void *run(void *argument) {
    vrpi_pool *core = argument;
    uint64_t pause = PAUSE_LEAST_NS;
    vrpi_mutex_lock(&core->lock);
    while (!core->reclaimer.stop && vrpi_lost(core) == VRP_OK && !vrpi_workers_ending()) {
        int work = has_work(core);
        core->reclaimer.woken = 0;
        if (work && vrpi_enter(core->handle) == VRP_OK) { /* not while it may be destroyed */
            int did = 0;
            if (vrpi_worker_begin()) {
                did = step(core);
                vrpi_worker_end();
            }
            vrpi_exit(core->handle);
            pause = did ? PAUSE_LEAST_NS : pause < PAUSE_MOST_NS / 2 ? pause * 2 : PAUSE_MOST_NS;
        }
        if (core->reclaimer.stop || core->reclaimer.woken)
            continue;
        if (vrpi_cond_wait(&core->reclaimer.cond, &core->lock, work ? pause : IDLE_NS))
            pause = PAUSE_LEAST_NS; /* a trim has left something */
        else if (!work && !has_work(core))
            break;
    }
    core->reclaimer.state = ENDED;
    vrpi_mutex_unlock(&core->lock);
    return NULL;
}

void vrpi_reclaimer_wake(vrpi_pool *core) {
    int ended = core->reclaimer.state == ENDED, failed;
    if (!vrpi_reclaimer_wanted(core) || vrpi_lost(core) != VRP_OK || !has_work(core))
        return;
    core->reclaimer.woken = 1;
    if (core->reclaimer.state == RUNS)
        vrpi_cond_signal(&core->reclaimer.cond);
    if (core->reclaimer.state == RUNS || core->reclaimer.state == STARTING)
        return;
    core->reclaimer.state = STARTING;
    vrpi_mutex_unlock(&core->lock);
    if (ended)
        vrpi_worker_join(&core->reclaimer.worker); /* it has let go of the lock: no wait */
    failed = vrpi_worker_start(&core->reclaimer.worker, run, core, "vrp-reclaimer");
    vrpi_mutex_lock(&core->lock);
    core->reclaimer.failed = failed != 0;
    if (failed)
        core->reclaimer.state = NONE; /* the next calls do its work */
    else if (core->reclaimer.state == STARTING)
        core->reclaimer.state = RUNS; /* else it has ended already */
}

void vrpi_reclaimer_stop(vrpi_pool *core) {
    int joinable;
    vrpi_mutex_lock(&core->lock);
    core->reclaimer.stop = 1;
    joinable = core->reclaimer.state != NONE;
    vrpi_cond_signal(&core->reclaimer.cond);
    vrpi_mutex_unlock(&core->lock);
    if (joinable)
        vrpi_worker_join(&core->reclaimer.worker);
    vrpi_mutex_lock(&core->lock);
    core->reclaimer.state = NONE;
    core->reclaimer.stop = 0;
    vrpi_mutex_unlock(&core->lock);
}
