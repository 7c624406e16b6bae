/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_ERROR_H
#define GEMMA3_ERROR_H

/* How the engine's functions report failure: a status, and a text that says
 * what is wrong and where, written by the function that found it. */

#include <stdint.h>

typedef enum g3_status {
    G3_OK = 0,
    G3_INVALID = 1,       /* the input is wrong: file, option, prompt */
    G3_UNSUPPORTED = 2,   /* well-formed, but not something this engine runs */
    G3_IO = 3,            /* the system refused a file */
    G3_HOST_MEMORY = 4,   /* malloc failed */
    G3_DEVICE_MEMORY = 5, /* the pool refused, after everything it can trim */
    G3_CONTEXT_FULL = 6,  /* the conversation is as long as the session allows */
    G3_STOPPED = 7,       /* the caller asked to stop */
    G3_DEVICE = 8         /* any other failure of the pool or the device */
} g3_status;

typedef struct g3_error {
    char text[512];
} g3_error;

/* Writes the text (cut to fit) and returns the status, so that a caller can
 * `return g3_fail(error, G3_INVALID, "...")`. error may be NULL. */
g3_status g3_fail(g3_error *error, g3_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "WHERE: " in front of the text of a failure and returns its status. */
g3_status g3_fail_in(g3_error *error, g3_status status, const char *where);

#endif
