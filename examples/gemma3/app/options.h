/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_OPTIONS_H
#define GEMMA3_OPTIONS_H

/* Command lines from a table, and the words that people write for sizes,
 * counts and the optimizer. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <vrampool/optimizer.h>

/* A list of texts that an option given several times collects. */
#define G3_MAX_TEXTS 16
typedef struct g3_texts {
    const char *texts[G3_MAX_TEXTS];
    size_t count;
} g3_texts;

/* One word of an option that takes one of several. */
typedef struct g3_choice {
    const char *word; /* NULL ends the list */
    int32_t value;
} g3_choice;

typedef enum g3_option_kind {
    G3_OPTION_FLAG = 0,     /* out: bool *; takes no value */
    G3_OPTION_TEXT = 1,     /* out: const char ** */
    G3_OPTION_TEXTS = 2,    /* out: g3_texts *; may be given several times */
    G3_OPTION_COUNT = 3,    /* out: uint64_t *; low to high */
    G3_OPTION_REAL = 4,     /* out: double *; low to high */
    G3_OPTION_CHOICE = 5,   /* out: int32_t * */
    G3_OPTION_OPTIMIZER = 6 /* out: g3_optimizer_options * */
} g3_option_kind;

typedef struct g3_option {
    const char *name; /* "--ctx" */
    g3_option_kind kind;
    void *out;
    const char *value;        /* what the help calls the value, "N"; NULL for flags */
    const char *help;         /* one line */
    double low, high;         /* inclusive; COUNT and REAL. Both 0: any */
    const g3_choice *choices; /* CHOICE */
    bool required;
} g3_option;

typedef enum g3_parsed {
    G3_PARSED_OK = 0,
    G3_PARSED_HELP = 1, /* the help was printed on stdout */
    G3_PARSED_BAD = 2   /* the message was printed on stderr */
} g3_parsed;

/* Reads argv[1..argc-1] by the table: "--name value" or "--name=value". `command`
 * and `about` head the help ("--help"). A word that is no option, an option that is
 * not in the table, a value that is missing, out of bounds or unreadable: BAD, the
 * message names option and value. An option given twice: the later one holds. */
g3_parsed g3_options_parse(const char *command, const char *about, const g3_option *options,
                           size_t count, int argc, char **argv);

/* "512", "64KiB", "1.5GiB", "2MB" as bytes (rounded down). False: no size. */
bool g3_size_parse(const char *text, uint64_t *out_bytes);
/* A decimal number. False: anything else, or above 2^64 - 1. */
bool g3_count_parse(const char *text, uint64_t *out_count);
/* A finite number, decimal point whatever the locale. */
bool g3_real_parse(const char *text, double *out_value);
/* "sim", "sim:SIZE" with a size above 0, "cuda", "cuda:N". */
bool g3_device_valid(const char *text);

typedef struct g3_optimizer_options {
    bool on;
    vrp_optimizer_config config;
} g3_optimizer_options;

/* The defaults: 1.5 GiB, 5 steps, idle. */
void g3_optimizer_options_init(g3_optimizer_options *out_options);

/* "off", or "threshold=SIZE,interval=N,idle=on|off,keep=on|off,hysteresis=on|off,
 * pressure=on|off" in any order, each once or not at all. False: `message` says which
 * word is wrong; the options are as before. */
bool g3_optimizer_parse(const char *text, g3_optimizer_options *options, char *message,
                        size_t message_bytes);

#endif
