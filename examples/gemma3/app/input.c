/* SPDX-License-Identifier: MIT */
/* Waiting for lines. */

#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_LINE_BYTES ((size_t)64 << 20)

static volatile sig_atomic_t interrupts;

static void on_interrupt(int number) {
    (void)number;
    if (interrupts < 1000)
        interrupts = interrupts + 1;
}

void g3_interrupt_catch(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    (void)sigemptyset(&action.sa_mask);
    /* No SA_RESTART: a wait for a line has to end. */
    (void)sigaction(SIGINT, &action, NULL);
}

int g3_interrupt_count(void) { return (int)interrupts; }

void g3_interrupt_reset(void) { interrupts = 0; }

g3_status g3_input_open(const char *path, g3_input *out_input, g3_error *error) {
    g3_input input = {.fd = STDIN_FILENO};
    if (path != NULL && strcmp(path, "-") != 0) {
        input.fd = open(path, O_RDONLY | O_CLOEXEC);
        if (input.fd < 0)
            return g3_fail(error, G3_IO, "%s: %s", path, strerror(errno));
        input.owned = true;
    }
    *out_input = input;
    return G3_OK;
}

void g3_input_close(g3_input *input) {
    if (input->owned)
        (void)close(input->fd);
    free(input->buffer);
    memset(input, 0, sizeof *input);
}

/* Waits until there is something to read, with the idle work in between. SIGINT
 * comes only inside the wait, so that none is missed. */
static g3_input_status wait_readable(g3_input *input) {
    struct pollfd fd = {.fd = input->fd, .events = POLLIN};
    int ms = 100;
    bool idle = input->idle != NULL;
    sigset_t block;
    sigset_t before;
    (void)sigemptyset(&block);
    (void)sigaddset(&block, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &block, &before);
    g3_input_status status = G3_INPUT_LINE;
    if (idle && poll(&fd, 1, 0) == 0)
        idle = input->idle(input->user);
    for (;;) {
        if (interrupts > 0) {
            status = G3_INPUT_INTERRUPTED;
            break;
        }
        const struct timespec timeout = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
        const int ready = ppoll(&fd, 1, idle ? &timeout : NULL, &before);
        if (ready > 0)
            break;
        if (ready < 0 && errno != EINTR) {
            status = G3_INPUT_FAILED;
            break;
        }
        if (ready == 0) {
            idle = input->idle(input->user);
            ms = ms < 5000 ? ms * 2 : ms;
        }
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

/* Room for more behind what is unread, and for a NUL. */
static g3_status make_room(g3_input *input, g3_error *error) {
    if (input->begin > 0) {
        memmove(input->buffer, input->buffer + input->begin, input->count - input->begin);
        input->count -= input->begin;
        input->begin = 0;
    }
    if (input->room - input->count > 4096)
        return G3_OK;
    const size_t room = input->room == 0 ? 16384 : input->room * 2;
    if (room > MOST_LINE_BYTES)
        return g3_fail(error, G3_INVALID, "a line of more than %zu MiB", MOST_LINE_BYTES >> 20);
    char *larger = (char *)realloc(input->buffer, room);
    if (larger == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "no host memory for a line");
    input->buffer = larger;
    input->room = room;
    return G3_OK;
}

static g3_input_status take_line(g3_input *input, size_t length, size_t skip, char **out_line,
                                 size_t *out_count) {
    *out_line = input->buffer + input->begin;
    *out_count = length;
    (*out_line)[length] = '\0';
    input->begin += length + skip;
    return G3_INPUT_LINE;
}

g3_input_status g3_input_read(g3_input *input, char **out_line, size_t *out_count,
                              g3_error *error) {
    for (;;) {
        const size_t unread = input->count - input->begin;
        char *from = input->buffer + input->begin;
        char *newline = unread > 0 ? (char *)memchr(from, '\n', unread) : NULL;
        if (newline != NULL)
            return take_line(input, (size_t)(newline - from), 1, out_line, out_count);
        if (input->ended)
            return unread > 0 ? take_line(input, unread, 0, out_line, out_count) : G3_INPUT_END;
        if (make_room(input, error) != G3_OK)
            return G3_INPUT_FAILED;
        const g3_input_status status = wait_readable(input);
        if (status == G3_INPUT_INTERRUPTED)
            return status;
        const ssize_t n =
            read(input->fd, input->buffer + input->count, input->room - input->count - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || status == G3_INPUT_FAILED) {
            (void)g3_fail(error, G3_IO, "reading lines: %s", strerror(errno));
            return G3_INPUT_FAILED;
        }
        input->ended = n == 0;
        input->count += (size_t)n;
    }
}
