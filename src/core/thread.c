/* SPDX-License-Identifier: MIT */
/* A thread's part of a pool: found through thread-local storage, emptied when
 * the thread ends, and by others (who seize it) on trim and at destroy. */

#include "core/core.h"

#include <stdlib.h>

static _Thread_local vrpi_thread *mine;    /* every pool this thread has used */
static _Thread_local vrpi_thread *current; /* the one used last */
static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static int exit_ready;

/* Guards the moment between finding a pool alive and entering it. */
static pthread_mutex_t alive_lock = PTHREAD_MUTEX_INITIALIZER;

static struct vrp_pool *pool_of(const vrpi_thread *t) {
    return atomic_load_explicit(&t->pool, memory_order_relaxed);
}

void vrpi_seize(vrpi_thread *t) {
    /* acquire pairs with the owner's release in vrpi_leave */
    while (atomic_exchange_explicit(&t->busy, 1, memory_order_acquire) != 0)
        vrpi_pause();
}

vrpi_thread *vrpi_thread_peek(const vrp_pool *pool) {
    vrpi_thread *t = current;
    if (t != NULL && pool_of(t) == pool)
        return t;
    for (t = mine; t != NULL; t = t->thread_next)
        if (pool_of(t) == pool) {
            current = t;
            return t;
        }
    return NULL;
}

static void cached_set(vrpi_front *front, uint64_t bytes) {
    atomic_store_explicit(&front->cached_bytes, bytes, memory_order_relaxed);
}

/* The pool's lock is held, the thread seized. */
static void front_flush(vrpi_pool *core, vrpi_front *front) {
    uint64_t bytes = atomic_load_explicit(&front->cached_bytes, memory_order_relaxed);
    uint64_t stamp;
    if (bytes == 0)
        return;
    stamp = vrpi_stamp(front->stream);
    for (uint32_t k = 0; k < VRPI_SMALL_CLASSES; k++) {
        vrpi_magazine *mag = &front->mag[k];
        while (mag->count > 0) {
            mag->count--;
            vrpi_slab_put(core, mag->slot[mag->count].slab, mag->slot[mag->count].index);
        }
    }
    while (front->block_count > 0)
        vrpi_block_free(core, front->block[--front->block_count], stamp);
    cached_set(front, 0);
    (void)atomic_fetch_sub_explicit(&front->thread->cached_bytes, bytes, memory_order_relaxed);
}

static void fronts_free(vrpi_pool *core, vrpi_thread *t) {
    while (t->fronts != NULL) {
        vrpi_front *front = t->fronts;
        t->fronts = front->next;
        front_flush(core, front);
        vrpi_host_free(core, front, sizeof *front);
    }
    t->front_count = 0;
}

static void unlink_thread(vrpi_thread *t) {
    *t->link = t->next;
    if (t->next != NULL)
        t->next->link = t->link;
}

/* The pool is entered. Ends the thread's part of it. */
static void thread_retire(vrpi_thread *t) {
    vrpi_pool *core = t->core;
    vrpi_mutex_lock(&core->lock);
    vrpi_seize(t);
    fronts_free(core, t);
    vrpi_budget_collect_one(t);
    vrpi_shards_flush(t);
    vrpi_leave(t);
    /* Its default stream ends with it, and only it can record there. */
    for (vrpi_stream *s = core->streams; s != NULL; s = s->next)
        if (s->owner == t) {
            s->busy++;
            s->forgetting = 1;
            vrpi_stream_quiet(core, s);
            s->seq++; /* blocks that are still live may have been used since */
            (void)vrpi_record(core, t, s);
            core->capturing_count -= s->capturing;
            s->capturing = 0;
            s->forgotten = 1;
            s->owner = NULL;
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
    current = NULL;
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

static void key_make(void) { exit_ready = pthread_key_create(&exit_key, thread_exit) == 0; }

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
    current = NULL;
    purge_dead();
    t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    if (exit_ready)
        (void)pthread_setspecific(exit_key, t);
    t->core = core;
    atomic_store_explicit(&t->pool, pool, memory_order_relaxed);
    t->thread_next = mine;
    mine = current = t;
    vrpi_mutex_lock(&core->lock);
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
        vrpi_thread *t = core->threads;
        vrpi_seize(t);
        while (t->fronts != NULL) {
            vrpi_front *front = t->fronts;
            t->fronts = front->next;
            vrpi_host_free(core, front, sizeof *front);
        }
        unlink_thread(t);
        atomic_store_explicit(&t->pool, NULL, memory_order_relaxed);
        vrpi_leave(t);
        if (t->orphan)
            free(t);
    }
    (void)pthread_mutex_unlock(&alive_lock);
}

/* ---- fronts, under the pool's lock ------------------------------------------ */

vrpi_front *vrpi_front_get(vrpi_pool *core, vrpi_thread *t, vrpi_stream *stream,
                           vrp_stream handle) {
    vrpi_front *front, **link = &t->fronts, **last = NULL;
    if (stream->forgetting || stream->forgotten)
        return NULL; /* its handle may be another stream's soon */
    for (; *link != NULL; link = &(*link)->next) {
        if ((*link)->stream == stream)
            return *link;
        last = link;
    }
    if (t->front_count >= VRPI_FRONTS_MAX) {
        /* the one at the end gives way */
        front = *last;
        vrpi_seize(t);
        front_flush(core, front);
        *last = NULL;
        vrpi_leave(t);
    } else {
        front = vrpi_host_alloc(core, sizeof *front);
        if (front == NULL)
            return NULL;
        t->front_count++;
    }
    front->thread = t;
    front->handle = handle;
    front->stream = stream;
    front->next = t->fronts;
    t->fronts = front;
    return front;
}

uint64_t vrpi_fronts_flush_all(vrpi_pool *core) {
    uint64_t bytes = 0;
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next) {
        if (atomic_load_explicit(&t->cached_bytes, memory_order_relaxed) == 0)
            continue;
        vrpi_seize(t);
        bytes += atomic_load_explicit(&t->cached_bytes, memory_order_relaxed);
        for (vrpi_front *front = t->fronts; front != NULL; front = front->next)
            front_flush(core, front);
        vrpi_leave(t);
    }
    return bytes;
}

void vrpi_fronts_drop(vrpi_pool *core, vrpi_stream *stream) {
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next) {
        vrpi_seize(t);
        for (vrpi_front **link = &t->fronts; *link != NULL; link = &(*link)->next)
            if ((*link)->stream == stream) {
                vrpi_front *front = *link;
                front_flush(core, front);
                *link = front->next;
                t->front_count--;
                vrpi_host_free(core, front, sizeof *front);
                break;
            }
        vrpi_leave(t);
    }
}

uint64_t vrpi_cached_bytes(vrpi_pool *core) {
    uint64_t bytes = 0;
    vrpi_mutex_lock(&core->threads_lock);
    for (vrpi_thread *t = core->threads; t != NULL; t = t->next)
        bytes += atomic_load_explicit(&t->cached_bytes, memory_order_relaxed);
    vrpi_mutex_unlock(&core->threads_lock);
    return bytes;
}
