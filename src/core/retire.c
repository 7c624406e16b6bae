/* SPDX-License-Identifier: MIT */
/* When is memory done with? Events, recorded in batches and only when somebody
 * wants to know; waits of the device and, as the last resort, of the host. */

#include "core/core.h"

#include <string.h>

void vrpi_driver_failed(vrpi_pool *core, vrp_status status) {
    int64_t native =
        core->ops->last_native_error != NULL ? core->ops->last_native_error(core->ctx) : 0;
    (void)vrpi_fail(status, "the driver answered: %s", vrp_status_message(status));
    vrpi_fail_native(native);
    if (status == VRP_DEVICE_LOST || status == VRP_SHUT_DOWN)
        atomic_store_explicit(&core->lost, (int)status, memory_order_relaxed);
}

/* An unused event. Room to give every event back is made when it is created. */
static int event_take(vrpi_pool *core, vrp_event *out) {
    vrp_event event;
    vrp_status status;
    if (core->event_count > 0) {
        *out = core->events[--core->event_count];
        return 1;
    }
    if (core->event_total == core->event_capacity) {
        size_t old = core->event_capacity * sizeof(vrp_event);
        vrp_event *grown = vrpi_host_alloc(core, old + 64 * sizeof(vrp_event));
        if (grown == NULL)
            return 0;
        vrpi_host_free(core, core->events, old); /* none is unused: nothing to copy */
        core->events = grown;
        core->event_capacity += 64;
    }
    core->event_total++;
    vrpi_mutex_unlock(&core->lock);
    status = core->ops->event_create(core->ctx, &event);
    vrpi_mutex_lock(&core->lock);
    if (status != VRP_OK) {
        vrpi_driver_failed(core, status);
        core->event_total--;
        return 0;
    }
    *out = event;
    return 1;
}

static void event_give(vrpi_pool *core, vrp_event event) {
    core->events[core->event_count++] = event;
}

static int may_record(const vrpi_pool *core, const vrpi_thread *t, const vrpi_stream *s) {
    if (s->capturing || s->recording || vrpi_lost(core) != VRP_OK)
        return 0;
    /* A record on the legacy stream, or on the whole context, would end the
     * capture of a stream that is ordered with it. */
    if (s->graph != NULL || s->after != NULL)
        return 0; /* no stream, but memory */
    if (core->capturing_count > 0 && (s->forgotten || s->whole || s->handle == VRP_STREAM_LEGACY))
        return 0;
    if (s->forgotten || s->whole)
        return core->ops->context_record != NULL; /* its handle is gone, or there is none */
    return !s->per_thread || (t != NULL && s->owner == t);
}

/* VRP_STREAMS_UNTRACKED: the handle may be another stream's by now. No lock. */
static int gone_unsaid(const vrpi_pool *core, const vrpi_stream *s) {
    uint64_t id = 0;
    if ((core->config.flags & VRP_STREAMS_UNTRACKED) == 0 || s->handle <= VRP_STREAM_PER_THREAD ||
        s->whole)
        return 0;
    return core->ops->stream_id(core->ctx, s->handle, &id) != VRP_OK || id != s->key;
}

int vrpi_record(vrpi_pool *core, vrpi_thread *t, vrpi_stream *stream) {
    vrp_event event;
    vrp_status status;
    uint64_t seq;
    int whole, capturing;
    if (stream->covered >= stream->seq)
        return 1;
    if (!may_record(core, t, stream))
        return 0;
    if (stream->ring_count == VRPI_RING && stream->polling)
        return 0;
    stream->recording = 1;
    if (stream->ring_count == VRPI_RING) {
        /* All are in flight: the newest is recorded again and covers more. */
        stream->ring_count--;
        event = stream->ring[(stream->ring_first + stream->ring_count) % VRPI_RING].event;
        stream->covered =
            stream->ring[(stream->ring_first + stream->ring_count - 1) % VRPI_RING].seq;
    } else if (!event_take(core, &event)) {
        stream->recording = 0;
        return 0;
    }
    /* The stamps up to here are covered: their frees came before the record.
     * One that comes while the lock is dropped has a larger stamp. */
    seq = stream->seq;
    whole = stream->forgotten || stream->whole;
    capturing = core->capturing_count > 0;
    vrpi_mutex_unlock(&core->lock);
    if (!whole && gone_unsaid(core, stream))
        whole = 1;
    /* not on the whole context while a stream of it captures */
    status = whole && (core->ops->context_record == NULL || capturing) ? VRP_UNAVAILABLE
             : whole ? core->ops->context_record(core->ctx, event)
                     : core->ops->event_record(core->ctx, event, stream->handle);
    vrpi_mutex_lock(&core->lock);
    stream->recording = 0;
    if (status != VRP_OK) {
        vrpi_driver_failed(core, status);
        event_give(core, event);
        return 0;
    }
    core->events_recorded++;
    uint32_t at = (stream->ring_first + stream->ring_count++) % VRPI_RING;
    stream->ring[at].event = event;
    stream->ring[at].seq = seq;
    stream->ring[at].order = core->events_recorded;
    stream->covered = seq;
    return stream->covered >= stream->seq;
}

int vrpi_record_wanted(vrpi_pool *core, vrpi_thread *t) {
    uint64_t before = core->events_recorded;
    for (vrpi_stream *s = core->streams; s != NULL; s = s->next)
        if (s->wanted) {
            (void)vrpi_record(core, t, s);
            s->wanted = 0;
        }
    return core->events_recorded != before;
}

/* On every stream with uncovered frees; 1: did. */
static int record_all(vrpi_pool *core, vrpi_thread *t) {
    for (vrpi_stream *s = core->streams; s != NULL; s = s->next)
        s->wanted = s->seq > s->covered;
    return vrpi_record_wanted(core, t);
}

void vrpi_settle_all(vrpi_pool *core, vrpi_thread *t) {
    enum { ROUNDS = 4 };
    int more = 1;
    /* Deferred blocks that are done become memory of their own stream, which
     * then needs a record too. */
    for (int round = 0; more && round < ROUNDS; round++) {
        const vrpi_uses *before = core->deferred;
        more = record_all(core, t);
        vrpi_poll(core, t);
        more |= core->deferred != before;
    }
}

int vrpi_record_idle(vrpi_pool *core, vrpi_thread *t) {
    /* The mark also keeps a stream while the lock is dropped. */
    for (vrpi_node *n = vrpi_treap_last(&core->idle); n != NULL;
         n = vrpi_treap_prev(&core->idle, n)) {
        vrpi_extent *e = (vrpi_extent *)(void *)n;
        if (e->stream != NULL && e->stamp > e->stream->covered)
            e->stream->wanted = 1;
    }
    for (const vrpi_uses *u = core->deferred; u != NULL; u = u->next)
        for (uint32_t i = 0; i < u->count; i++)
            if (u->use[i].stamp > u->use[i].stream->covered)
                u->use[i].stream->wanted = 1;
    return vrpi_record_wanted(core, t);
}

/* Takes up the oldest events of one stream that are done. Lock dropped. */
static int poll_stream(vrpi_pool *core, vrpi_stream *s) {
    int progress = 0;
    s->polling = 1;
    while (s->ring_count > 0 && vrpi_lost(core) == VRP_OK) {
        vrp_event event = s->ring[s->ring_first].event;
        int done = 0;
        vrp_status status;
        vrpi_mutex_unlock(&core->lock);
        status = core->ops->event_query(core->ctx, event, &done);
        vrpi_mutex_lock(&core->lock);
        if (status != VRP_OK) {
            vrpi_driver_failed(core, status);
            break;
        }
        if (!done)
            break;
        s->completed = s->ring[s->ring_first].seq;
        s->ring_first = (s->ring_first + 1) % VRPI_RING;
        s->ring_count--;
        event_give(core, event);
        progress = 1;
    }
    s->polling = 0;
    return progress;
}

/* What follows from completed work. */
static void harvest(vrpi_pool *core) {
    while (vrpi_deferred_poll(core))
        continue;
    vrpi_graphs_poll(core);
    vrpi_ghosts_poll(core);
    vrpi_trim_marked(core);
    for (vrpi_stream *s = core->streams, *next; s != NULL; s = next) {
        next = s->next;
        vrpi_stream_settle(core, s);
    }
}

void vrpi_poll(vrpi_pool *core, vrpi_thread *t) {
    for (vrpi_stream *s = core->streams; s != NULL; s = s->next) {
        /* The owner of a per-thread stream makes up for the records that the
         * others could not make. A forgotten one may still need its record. */
        if ((s->per_thread || s->forgotten) && s->covered < s->seq && !s->polling)
            (void)vrpi_record(core, t, s);
        if (s->ring_count > 0 && !s->polling && !s->capturing)
            (void)poll_stream(core, s);
    }
    harvest(core);
}

/* All that was freed before `seq` is done with. */
static void complete_to(vrpi_pool *core, vrpi_stream *s, uint64_t seq) {
    while (s->ring_count > 0 && s->ring[s->ring_first].seq <= seq) {
        event_give(core, s->ring[s->ring_first].event);
        s->ring_first = (s->ring_first + 1) % VRPI_RING;
        s->ring_count--;
    }
    if (s->completed < seq)
        s->completed = seq;
    if (s->covered < seq)
        s->covered = seq;
}

/* Streams that hold memory somebody may wait for; the mark keeps them alive. */
static void mark_useful(vrpi_pool *core) {
    for (vrpi_node *n = vrpi_treap_last(&core->idle); n != NULL;
         n = vrpi_treap_prev(&core->idle, n)) {
        vrpi_extent *e = (vrpi_extent *)(void *)n;
        if (!vrpi_done(e->stream, e->stamp))
            e->stream->useful = 1;
    }
    for (const vrpi_ghost *g = core->ghosts; g != NULL; g = g->next)
        if (!vrpi_done(g->stream, g->stamp))
            g->stream->useful = 1;
    for (const vrpi_stream *s = core->streams; s != NULL; s = s->next)
        for (uint32_t i = 0; s->after != NULL && i < s->after->count; i++)
            if (!vrpi_done(s->after->use[i].stream, s->after->use[i].stamp))
                s->after->use[i].stream->useful = 1;
    for (const vrpi_uses *u = core->deferred; u != NULL; u = u->next)
        for (uint32_t i = 0; i < u->count; i++)
            if (!vrpi_done(u->use[i].stream, u->use[i].stamp))
                u->use[i].stream->useful = 1;
}

int vrpi_wait_oldest(vrpi_pool *core, vrpi_thread *t, vrp_status *out_status) {
    vrpi_stream *chosen = NULL, *other = NULL;
    vrp_event event;
    vrp_status status;
    uint64_t seq;
    *out_status = VRP_OK;
    mark_useful(core);
    for (vrpi_stream *s = core->streams; s != NULL; s = s->next)
        if (s->useful && !s->capturing && !s->polling && s->completed < s->seq)
            (void)vrpi_record(core, t, s);
    mark_useful(core); /* another thread may have cleared the marks meanwhile */
    for (vrpi_stream *s = core->streams; s != NULL; s = s->next) {
        if (s->useful && s->polling)
            other = s;
        if (s->useful && s->ring_count > 0 && !s->capturing && !s->polling &&
            (chosen == NULL ||
             s->ring[s->ring_first].order < chosen->ring[chosen->ring_first].order))
            chosen = s;
        s->useful = 0;
    }
    if (vrpi_lost(core) != VRP_OK)
        return 0;
    if (chosen == NULL && other != NULL) {
        other->busy++; /* another thread is asking or waiting: so do we */
        while (other->polling) {
            vrpi_mutex_unlock(&core->lock);
            vrpi_pause();
            vrpi_mutex_lock(&core->lock);
        }
        other->busy--;
        return 1;
    }
    if (chosen == NULL)
        return 0;
    chosen->polling = 1; /* its ring is ours meanwhile */
    event = chosen->ring[chosen->ring_first].event;
    seq = chosen->ring[chosen->ring_first].seq;
    core->host_waits++;
    vrpi_mutex_unlock(&core->lock);
    status = core->ops->event_synchronize(core->ctx, event);
    vrpi_mutex_lock(&core->lock);
    chosen->polling = 0;
    if (status != VRP_OK) {
        vrpi_driver_failed(core, status);
        *out_status = status;
        return 0;
    }
    complete_to(core, chosen, seq); /* known without a query */
    harvest(core);
    vrpi_poll(core, t);
    return 1;
}

void vrpi_wait_all(vrpi_pool *core) {
    vrp_status status;
    if (vrpi_lost(core) != VRP_OK)
        return;
    for (vrpi_stream *s = core->streams; s != NULL; s = s->next)
        if (s->capturing || s->recording || s->polling)
            return; /* somebody else works on it; the caller tries again */
    for (vrpi_stream *s = core->streams; s != NULL; s = s->next) {
        s->syncing = 1;
        s->polling = 1; /* its ring is ours meanwhile */
        s->snapshot = s->seq;
    }
    core->host_waits++;
    vrpi_mutex_unlock(&core->lock);
    status = core->ops->synchronize(core->ctx);
    vrpi_mutex_lock(&core->lock);
    for (vrpi_stream *s = core->streams; s != NULL; s = s->next) {
        if (!s->syncing)
            continue; /* came meanwhile */
        s->syncing = 0;
        s->polling = 0;
        if (status == VRP_OK)
            complete_to(core, s, s->snapshot);
    }
    if (status == VRP_OK)
        harvest(core);
    else
        vrpi_driver_failed(core, status);
}

/* The waiter's later work already comes after that of an earlier wait. */
static int waits_already(const vrpi_stream *waiter, const vrpi_stream *awaited, uint64_t stamp) {
    for (uint32_t i = 0; i < VRPI_WAITED; i++)
        if (waiter->waited[i].serial == awaited->serial && waiter->waited[i].seq >= stamp)
            return 1;
    return 0;
}

vrp_status vrpi_device_wait(vrpi_pool *core, vrpi_thread *t, vrpi_stream *waiter,
                            vrpi_stream *awaited, uint64_t stamp) {
    vrp_event event = 0;
    vrp_status status;
    uint64_t seq = 0;
    int found = 0;
    if (waits_already(waiter, awaited, stamp))
        return VRP_OK;
    if (core->ops->stream_wait_event == NULL || (core->config.flags & VRP_NO_DEVICE_WAITS) != 0 ||
        vrpi_knob(core, VRP_KNOB_DEVICE_WAITS) == 0 || waiter->capturing || awaited->capturing ||
        waiter->graph != NULL || awaited->after != NULL || awaited->whole || awaited->polling ||
        vrpi_lost(core) != VRP_OK)
        return VRP_UNAVAILABLE;
    if (waiter->per_thread && waiter->owner != t)
        return VRP_UNAVAILABLE; /* from here the wait would land on another stream */
    if (core->capturing_count > 0 &&
        (waiter->handle == VRP_STREAM_LEGACY || awaited->handle == VRP_STREAM_LEGACY))
        return VRP_UNAVAILABLE;
    awaited->busy++;
    if (awaited->covered < stamp)
        (void)vrpi_record(core, t, awaited);
    if (awaited->polling) { /* another thread has its ring by now */
        awaited->busy--;
        return VRP_UNAVAILABLE;
    }
    for (uint32_t i = 0; i < awaited->ring_count && !found; i++) {
        uint32_t at = (awaited->ring_first + i) % VRPI_RING;
        if (awaited->ring[at].seq >= stamp) {
            event = awaited->ring[at].event;
            seq = awaited->ring[at].seq;
            found = 1;
        }
    }
    if (!found) {
        awaited->busy--;
        return awaited->completed >= stamp ? VRP_OK : VRP_UNAVAILABLE;
    }
    awaited->polling = 1; /* the event stays in the ring while the lock is dropped */
    waiter->waiting++;
    vrpi_mutex_unlock(&core->lock);
    status = core->ops->stream_wait_event(core->ctx, waiter->handle, event);
    vrpi_mutex_lock(&core->lock);
    awaited->polling = 0;
    awaited->busy--;
    waiter->waiting--;
    if (status != VRP_OK) {
        vrpi_driver_failed(core, status);
        return status;
    }
    core->cross_stream_waits++;
    waiter->waited[waiter->waited_turn % VRPI_WAITED].serial = awaited->serial;
    waiter->waited[waiter->waited_turn++ % VRPI_WAITED].seq = seq;
    return VRP_OK;
}
