/* SPDX-License-Identifier: MIT */
/* Threads, gates and noted troubles for the concurrency tests. */

#include "threads.h"

#include <stdio.h>
#include <time.h>

void vrpt_note(vrpt_trouble *trouble, const char *format, ...) {
    if (atomic_exchange(&trouble->noted, 1) != 0)
        return;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(trouble->why, sizeof trouble->why, format, arguments);
    va_end(arguments);
}

int vrpt_worker_ok(vrpt_trouble *trouble, const char *what, vrp_status status) {
    if (status == VRP_OK)
        return 1;
    vrpt_note(trouble, "%s: %s (%s)", what, vrp_status_name(status), vrpt_detail());
    return 0;
}

void vrpt_gate_reset(vrpt_gate *gate) {
    (void)pthread_mutex_lock(&gate->mutex);
    gate->open = 0;
    (void)pthread_mutex_unlock(&gate->mutex);
}

void vrpt_gate_open(vrpt_gate *gate) {
    (void)pthread_mutex_lock(&gate->mutex);
    gate->open = 1;
    (void)pthread_cond_broadcast(&gate->cond);
    (void)pthread_mutex_unlock(&gate->mutex);
}

int vrpt_gate_wait_ms(vrpt_gate *gate, long ms) {
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    (void)pthread_mutex_lock(&gate->mutex);
    int error = 0;
    while (!gate->open && error == 0)
        error = pthread_cond_timedwait(&gate->cond, &gate->mutex, &until);
    int open = gate->open;
    (void)pthread_mutex_unlock(&gate->mutex);
    return open;
}

int vrpt_gate_wait(vrpt_gate *gate) { return vrpt_gate_wait_ms(gate, VRPT_PATIENCE_S * 1000L); }

void vrpt_threads_run(size_t count, void *(*fn)(void *), void *args, size_t arg_bytes) {
    pthread_t threads[32];
    size_t started = 0;
    for (; started < count && started < VRPT_COUNT(threads); started++)
        if (pthread_create(&threads[started], NULL, fn, (char *)args + started * arg_bytes) != 0)
            break;
    for (size_t i = 0; i < started; i++)
        (void)pthread_join(threads[i], NULL);
}
