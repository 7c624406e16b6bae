/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_INPUT_H
#define GEMMA3_INPUT_H

/* Lines of a person or a script, read so that the program can work while it
 * waits, and Ctrl-C. */

#include <stdbool.h>
#include <stddef.h>

#include "../files/error.h"

/* ---- Ctrl-C ---------------------------------------------------------------- */

/* Takes SIGINT from now on: it sets a flag and ends nothing. */
void g3_interrupt_catch(void);
/* How often Ctrl-C came since the last reset. */
int g3_interrupt_count(void);
void g3_interrupt_reset(void);

/* ---- Lines ------------------------------------------------------------------- */

/* Work to do while waiting; answers whether to be called again soon. */
typedef bool (*g3_idle_fn)(void *user);

typedef struct g3_input {
    int fd;
    bool owned; /* the file is closed at the end */
    bool ended;
    char *buffer;
    size_t begin, count, room; /* unread bytes are [begin, count) */
    g3_idle_fn idle;           /* NULL: none */
    void *user;
} g3_input;

typedef enum g3_input_status {
    G3_INPUT_LINE = 0,
    G3_INPUT_END = 1,
    G3_INPUT_INTERRUPTED = 2, /* Ctrl-C came while waiting */
    G3_INPUT_FAILED = 3       /* the text says why */
} g3_input_status;

/* path NULL or "-": standard input. Errors: IO. */
g3_status g3_input_open(const char *path, g3_input *out_input, g3_error *error);
void g3_input_close(g3_input *input);

/* The next line, without its newline, a NUL behind it; *out_line belongs to the
 * input, may be changed in place, and is good until the next call. The last line
 * needs no newline. */
g3_input_status g3_input_read(g3_input *input, char **out_line, size_t *out_count, g3_error *error);

#endif
