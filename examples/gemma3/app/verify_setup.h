/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_VERIFY_SETUP_H
#define GEMMA3_VERIFY_SETUP_H

/* What verify, bench and perplexity begin with: kernels and threads chosen, a
 * device, a pool, and a model in it. */

#include <jansson.h>

#include "../engine/model.h"
#include "../engine/session.h"
#include "options.h"

typedef struct g3_setup_options {
    const char *model;  /* a file or a folder; NULL: see g3_setup_model */
    const char *mmproj; /* or NULL */
    const char *device; /* NULL: a simulated device that surely holds the model */
    int32_t kernels;    /* g3_isa, or -1 for the best this CPU has */
    int32_t precision;  /* g3_precision */
    int32_t fault;      /* g3_fault */
    uint64_t threads;   /* 0: as many as OpenMP takes */
} g3_setup_options;

typedef struct g3_setup {
    g3_checkpoint *checkpoint;
    g3_memory memory;
    bool memory_open;
    g3_model *model;
    uint32_t threads; /* that the kernels run with */
} g3_setup;

/* Words of the options that the three commands share. */
extern const g3_choice g3_kernel_choices[];
extern const g3_choice g3_precision_choices[];
extern const g3_choice g3_kv_choices[];

/* The rows of an option table for a g3_setup_options. */
#define G3_SETUP_ROWS(o)                                                                         \
    {.name = "--model",                                                                          \
     .kind = G3_OPTION_TEXT,                                                                     \
     .out = &(o).model,                                                                          \
     .value = "PATH",                                                                            \
     .help = "a .gguf file, or a Hugging Face folder (default: the 270M model of "               \
             "fetch_model.sh)"},                                                                 \
        {.name = "--device",                                                                     \
         .kind = G3_OPTION_TEXT,                                                                 \
         .out = &(o).device,                                                                     \
         .value = "NAME",                                                                        \
         .help = "sim:SIZE (default: a simulated device that holds the model)"},                 \
        {.name = "--threads",                                                                    \
         .kind = G3_OPTION_COUNT,                                                                \
         .out = &(o).threads,                                                                    \
         .value = "N",                                                                           \
         .help = "threads of the kernels (default: OpenMP's)",                                   \
         .low = 1.0,                                                                             \
         .high = 1024.0},                                                                        \
        {.name = "--kernels",                                                                    \
         .kind = G3_OPTION_CHOICE,                                                               \
         .out = &(o).kernels,                                                                    \
         .value = "NAME",                                                                        \
         .help = "scalar, avx2 or avx512 (default: the best of this CPU)",                       \
         .choices = g3_kernel_choices},                                                          \
    {                                                                                            \
        .name = "--precision", .kind = G3_OPTION_CHOICE, .out = &(o).precision, .value = "NAME", \
        .help = "int8 or float32 products of quantised weights", .choices = g3_precision_choices \
    }

/* The row of the cache's elements, for a g3_kv_type. */
#define G3_KV_ROW(type)                                                            \
    {                                                                              \
        .name = "--kv", .kind = G3_OPTION_CHOICE, .out = &(type), .value = "TYPE", \
        .help = "f16 (default) or f32 cache", .choices = g3_kv_choices             \
    }

/* The model that was asked for; NULL: the file that VRAMPOOL_GEMMA3_270M names, else the
 * one that fetch_model.sh makes. Static storage. */
const char *g3_setup_model(const char *asked);

/* Chooses kernels and threads, opens checkpoint, device and pool, and loads the
 * model. On failure everything is closed again. Errors: those of the parts;
 * UNSUPPORTED: kernels that this CPU cannot run. */
g3_status g3_setup_open(const g3_setup_options *options, g3_setup *out_setup, g3_error *error);

/* Frees the model and ends the pool. INVALID when blocks were still live or the
 * simulated device was not empty. */
g3_status g3_setup_close(g3_setup *setup, g3_error *error);

/* Prints "gemma3 COMMAND: text" on stderr; returns G3_EXIT_FAILED. */
int g3_setup_failed(const char *command, const g3_error *error);

/* Closes the setup at the end of a command that came to `status`; prints the first
 * failure of the two. Returns the program's exit status. */
int g3_setup_end(const char *command, g3_setup *setup, g3_status status, const g3_error *error);

/* Whether g3_setup_write_json will find a file that it may write: asked before a long
 * run, so that its figures are not lost. Makes the file where there is none. path may be
 * NULL. Errors: IO. */
g3_status g3_setup_check_json(const char *path, g3_error *error);

/* Writes and releases a JSON object; path "-" is standard output. root NULL counts
 * as out of memory. Errors: IO, HOST_MEMORY. */
g3_status g3_setup_write_json(json_t *root, const char *path, g3_error *error);

/* What the figures were measured on: CPU, threads, kernels, build. A new object,
 * NULL out of memory. */
json_t *g3_setup_environment(const g3_setup *setup);

#endif
