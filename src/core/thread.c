/* SPDX-License-Identifier: MIT */
/* A thread's part of a pool: found through thread-local storage, emptied when
 * the thread ends, and by others (who seize it) on trim and at destroy. */

#include "core/front.h"

#include <stdlib.h>

static _Thread_local vrpi_thread *mine; /* every pool this thread has used */
/* A pool that is NULL is none either. */
vrpi_thread vrpi_nobody = {.pool = (struct vrp_pool *)(void *)&vrpi_nobody};
_Thread_local vrpi_thread *vrpi_current VRPI_TLS = &vrpi_nobody;
static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static int exit_ready;

/* Guards the moment between finding a pool alive and entering it. */
static pthread_mutex_t alive_lock = PTHREAD_MUTEX_INITIALIZER;

static struct vrp_pool *pool_of(const vrpi_thread *t) {
    return atomic_load_explicit(&t->pool, memory_order_relaxed);
}

/* The calling thread is outside its own gate, and what it sees there needs no barrier. */
static int is_own(const vrpi_thread *t) { return t->self == &mine; }

void vrpi_close(vrpi_thread *t) {
    vrpi_gate_close(&t->gate);
    if (is_own(t))
        return;
    vrpi_gates_barrier();
    vrpi_gate_wait(&t->gate);
}

void vrpi_close_all(vrpi_pool *core) {
    int others = 0;
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next) {
        vrpi_gate_close(&t->gate);
        others |= !is_own(t);
    }
    if (!others)
        return;
    vrpi_gates_barrier();
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next)
        vrpi_gate_wait(&t->gate);
}

void vrpi_open_all(vrpi_pool *core) {
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next)
        vrpi_gate_open(&t->gate);
}

/* The quick hits are only for gates that cost nothing. */
static void make_current(vrpi_thread *t) {
    if (vrpi_gates_cheap)
        vrpi_current = t;
}

vrpi_thread *vrpi_thread_peek(const vrp_pool *pool) {
    vrpi_thread *t = vrpi_current;
    if (pool_of(t) == pool)
        return t;
    for (t = mine; t != NULL && pool_of(t) != pool; t = t->thread_next)
        continue;
    if (t != NULL)
        make_current(t);
    return t;
}

void vrpi_held_flush(vrpi_pool *core, vrpi_thread *t) {
    if (t == NULL || atomic_load_explicit(&t->held_bytes, memory_order_relaxed) == 0)
        return;
    for (vrpi_front *front = t->fronts; front != NULL; front = front->next)
        (void)vrpi_front_flush_held(core, front);
}

static uint64_t cached_of(const vrpi_thread *t) {
    uint64_t bytes = atomic_load_explicit(&t->held_bytes, memory_order_relaxed);
    for (const vrpi_front *front = t->fronts; front != NULL; front = front->next)
        bytes += vrpi_front_cached(front);
    return bytes;
}

static void fronts_free(vrpi_pool *core, vrpi_thread *t) {
    t->hot = NULL;
    while (t->fronts != NULL) {
        vrpi_front *front = t->fronts;
        (void)vrpi_front_flush(core, front, 0, 1);
        t->fronts = front->next;
        vrpi_host_free(core, front, sizeof *front);
    }
    t->front_count = 0;
}

static void unlink_thread(vrpi_thread *t) {
    *t->link = t->next;
    if (t->next != NULL)
        t->next->link = t->link;
}

static void wait_for_all(vrpi_pool *core, vrpi_stream *s) {
    uint64_t seq = s->seq;
    vrp_status status;
    vrpi_mutex_unlock(&core->lock);
    status = core->ops->synchronize(core->ctx);
    vrpi_mutex_lock(&core->lock);
    if (status == VRP_OK && s->ring_count == 0)
        s->completed = s->covered = seq;
}

/* The pool is entered. Ends the thread's part of it. */
static void thread_retire(vrpi_thread *t) {
    vrpi_pool *core = t->core;
    vrpi_mutex_lock(&core->lock);
    fronts_free(core, t);
    vrpi_budget_collect_one(t);
    vrpi_shards_flush(t);
    /* Its default stream ends with it, or has ended already: the driver's own part of
     * the thread may have gone before this one, and a record here would land on a new,
     * empty stream. So it is the context that is recorded. */
    for (vrpi_stream *s = core->streams; s != NULL; s = s->next)
        if (s->owner == t) {
            s->busy++;
            s->forgetting = 1;
            (void)vrpi_depot_flush(core, s);
            vrpi_stream_quiet(core, s);
            s->seq++; /* blocks that are still live may have been used since */
            core->capturing_count -= s->capturing;
            s->capturing = 0;
            s->forgotten = 1;
            s->owner = NULL;
            if (!vrpi_record(core, t, s) && core->ops->context_record == NULL)
                wait_for_all(core, s);
            s->busy--;
        }
    vrpi_mutex_lock(&core->threads_lock);
    unlink_thread(t);
    vrpi_mutex_unlock(&core->threads_lock);
    for (vrpi_stream *s = core->streams, *next; s != NULL; s = next) {
        next = s->next;
        vrpi_stream_settle(core, s);
    }
    vrpi_mutex_unlock(&core->lock);
}

static void thread_exit(void *unused) {
    (void)unused;
    vrpi_current = &vrpi_nobody;
    while (mine != NULL) {
        vrpi_thread *t = mine;
        struct vrp_pool *pool;
        int entered;
        mine = t->thread_next;
        (void)pthread_mutex_lock(&alive_lock);
        pool = pool_of(t);
        entered = pool != NULL && vrpi_enter(pool) == VRP_OK;
        /* being destroyed: vrpi_threads_end still has it in its list */
        t->orphan = pool != NULL && !entered && pool->fork_count == atomic_load(&vrpi_fork_count);
        if (t->orphan)
            t = NULL;
        (void)pthread_mutex_unlock(&alive_lock);
        if (entered) {
            thread_retire(t);
            vrpi_exit(pool);
        }
        free(t);
    }
}

/* A hit does not ask whether the process has forked: its gate is closed. */
static void in_child(void) {
    for (vrpi_thread *t = mine; t != NULL; t = t->thread_next)
        vrpi_gate_close(&t->gate);
}

static void key_make(void) {
    exit_ready = pthread_key_create(&exit_key, thread_exit) == 0;
    (void)pthread_atfork(NULL, NULL, in_child);
}

/* Parts of pools that are gone. */
static void purge_dead(void) {
    vrpi_thread **link = &mine;
    (void)pthread_mutex_lock(&alive_lock); /* whoever ends a pool still looks at its part */
    while (*link != NULL) {
        vrpi_thread *t = *link;
        if (pool_of(t) == NULL) {
            *link = t->thread_next;
            free(t);
        } else {
            link = &t->thread_next;
        }
    }
    (void)pthread_mutex_unlock(&alive_lock);
}

vrpi_thread *vrpi_thread_get(vrp_pool *pool) {
    vrpi_pool *core = pool->core;
    vrpi_thread *t = vrpi_thread_peek(pool);
    if (t != NULL)
        return t;
    (void)pthread_once(&exit_once, key_make);
    vrpi_current = &vrpi_nobody;
    purge_dead();
    t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    if (exit_ready)
        (void)pthread_setspecific(exit_key, t);
    t->core = core;
    t->self = &mine;
    atomic_store_explicit(&t->pool, pool, memory_order_relaxed);
    t->thread_next = mine;
    mine = t;
    make_current(t);
    vrpi_mutex_lock(&core->lock);
    vrpi_shards_init(t); /* as the budgets are until others see it */
    vrpi_mutex_lock(&core->threads_lock);
    t->next = core->threads;
    t->link = &core->threads;
    if (t->next != NULL)
        t->next->link = &t->next;
    core->threads = t;
    vrpi_mutex_unlock(&core->threads_lock);
    vrpi_mutex_unlock(&core->lock);
    return t;
}

/* Nobody is inside the pool any more. Each part is freed by its thread. */
void vrpi_threads_end(vrpi_pool *core) {
    (void)pthread_mutex_lock(&alive_lock);
    while (core->threads != NULL) {
        vrpi_thread *t = core->threads; /* its gate is closed, and stays so */
        t->hot = NULL;
        while (t->fronts != NULL) {
            vrpi_front *front = t->fronts;
            t->fronts = front->next;
            vrpi_host_free(core, front, sizeof *front);
        }
        unlink_thread(t);
        atomic_store_explicit(&t->pool, NULL, memory_order_relaxed);
        if (t->orphan)
            free(t);
    }
    (void)pthread_mutex_unlock(&alive_lock);
}

/* ---- fronts, under the pool's lock ------------------------------------------ */

vrpi_front *vrpi_front_get(vrpi_pool *core, vrpi_thread *t, vrpi_stream *stream,
                           vrp_stream handle) {
    vrpi_front *front, **link = &t->fronts, **last = NULL;
    if (stream->forgetting || stream->forgotten || stream->graph != NULL || stream->route != NULL)
        return NULL; /* its handle may be another stream's soon, or it has none, or it captures */
    for (; *link != NULL; link = &(*link)->next) {
        if ((*link)->stream == stream)
            return *link;
        last = link;
    }
    if (t->front_count >= VRPI_FRONTS_MAX) {
        /* the one at the end gives way */
        front = *last;
        (void)vrpi_front_flush(core, front, 0, 1);
        *last = NULL;
    } else {
        front = vrpi_host_alloc(core, sizeof *front);
        if (front == NULL)
            return NULL;
        t->front_count++;
    }
    vrpi_front_reset(core, front);
    front->thread = t;
    front->handle = handle;
    front->stream = stream;
    front->next = t->fronts;
    t->fronts = t->hot = front;
    return front;
}

uint64_t vrpi_fronts_flush(vrpi_pool *core, uint64_t least, int slots) {
    uint64_t bytes = 0;
    int others = 0, any = 0;
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next)
        if (cached_of(t) > 0) {
            any = 1;
            others |= !is_own(t);
        }
    for (vrpi_stream *s = core->streams; slots && s != NULL && core->depot_bytes > 0; s = s->next)
        bytes += vrpi_depot_flush(core, s);
    if (!any)
        return bytes;
    if (others)
        vrpi_close_all(core);
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next)
        if (others || is_own(t))
            for (vrpi_front *front = t->fronts; front != NULL; front = front->next)
                bytes += vrpi_front_flush(core, front, least, slots);
    if (others)
        vrpi_open_all(core);
    return bytes;
}

uint64_t vrpi_fronts_flush_all(vrpi_pool *core) { return vrpi_fronts_flush(core, 0, 1); }

void vrpi_held_flush_all(vrpi_pool *core) {
    if (!vrpi_anybody_holds(core))
        return;
    vrpi_close_all(core);
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next)
        vrpi_held_flush(core, t);
    vrpi_open_all(core);
}

int vrpi_anybody_holds(const vrpi_pool *core) {
    for (const vrpi_thread *t = core->threads; t != NULL; t = t->next)
        if (atomic_load_explicit(&t->held_bytes, memory_order_relaxed) > 0)
            return 1;
    return 0;
}

void vrpi_fronts_drop(vrpi_pool *core, vrpi_stream *stream) {
    (void)vrpi_depot_flush(core, stream);
    vrpi_close_all(core);
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next)
        for (vrpi_front **link = &t->fronts; *link != NULL; link = &(*link)->next)
            if ((*link)->stream == stream) {
                vrpi_front *front = *link;
                (void)vrpi_front_flush(core, front, 0, 1);
                *link = front->next;
                if (t->hot == front)
                    t->hot = NULL;
                t->front_count--;
                vrpi_host_free(core, front, sizeof *front);
                break;
            }
    vrpi_open_all(core);
}

uint64_t vrpi_cached_bytes(vrpi_pool *core) {
    uint64_t bytes = core->depot_bytes;
    for (const vrpi_thread *t = core->threads; t != NULL; t = t->next)
        bytes += cached_of(t);
    return bytes;
}

void vrpi_fronts_limits(vrpi_pool *core) {
    (void)vrpi_fronts_flush_all(core); /* nobody has more than the new limit allows */
    vrpi_close_all(core);
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next)
        for (vrpi_front *front = t->fronts; front != NULL; front = front->next)
            vrpi_front_limits(core, front);
    vrpi_open_all(core);
}
