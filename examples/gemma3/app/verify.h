/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_VERIFY_H
#define GEMMA3_VERIFY_H

/* The parts of `gemma3 verify`: reading what is expected, comparing, and the
 * tokenizer's cases. */

#include "../files/safetensors.h"
#include "verify_setup.h"

#define G3_VERIFY_MAX_TURNS 1024u

/* One turn of the conversation that an expected file holds. The tensors belong to
 * the file. */
typedef struct g3_expected_turn {
    const g3_st_tensor *ids;        /* [added] */
    const g3_st_tensor *logits;     /* [added][vocab] */
    const g3_st_tensor *pixels;     /* [images][3][side][side], or NULL */
    const g3_st_tensor *features;   /* [images][tokens][hidden]; with pixels only */
    const g3_st_tensor *decode_ids; /* [steps] */
    uint32_t added, images, steps;
} g3_expected_turn;

typedef struct g3_expected {
    g3_safetensors *file;
    g3_expected_turn *turns; /* malloc'ed */
    uint32_t count;
    uint32_t positions; /* of the whole conversation */
} g3_expected;

/* Reads a file and holds its shapes against the model's. INVALID: an output that is
 * missing, a shape or type that does not fit, a tensor that belongs to no turn. */
g3_status g3_expected_open(const char *path, const g3_config *config, g3_expected *out_expected,
                           g3_error *error);
void g3_expected_close(g3_expected *expected);

/* The logits after step `step` of the turn's decode, [vocab]; checked when opened. */
const g3_st_tensor *g3_expected_decode(const g3_expected *expected, uint32_t turn, uint32_t step);

/* The ids and pictures of a turn as a prompt. `image` is the id of the placeholders;
 * every run of it is `tokens` long. INVALID: runs and pictures do not agree. */
g3_status g3_expected_prompt(const g3_expected *expected, uint32_t turn, int32_t image,
                             uint32_t tokens, g3_prompt *out_prompt, g3_error *error);

/* The table of comparisons, printed as it grows, and the worst of each kind. */
typedef enum g3_compared {
    G3_COMPARED_LOGITS = 0,
    G3_COMPARED_FEATURES = 1,
    G3_COMPARED_IDS = 2,
    G3_COMPARED_KINDS = 3
} g3_compared;

typedef struct g3_comparison {
    double tolerance[G3_COMPARED_KINDS]; /* largest |difference| that passes; ids: 0 */
    double worst[G3_COMPARED_KINDS];     /* NaN once a NaN was met */
    uint64_t values[G3_COMPARED_KINDS];
    uint32_t outputs, failed;
} g3_comparison;

/* A running comparison of one output. */
typedef struct g3_difference {
    double largest; /* NaN once one side was NaN or both infinite */
    uint64_t at;    /* index of the largest */
    uint64_t count;
} g3_difference;

/* Compares `count` values with elements [first, first + count) of a tensor. */
void g3_difference_add(g3_difference *difference, const float *values, uint64_t count,
                       const g3_st_tensor *expected, uint64_t first);

/* Adds one line to the table. width: row length of the output, for the place of the
 * largest error. An output without a value has failed. */
void g3_comparison_header(void);
void g3_comparison_add(g3_comparison *comparison, g3_compared kind, const char *name,
                       const g3_difference *difference, uint64_t width);

/* Prints the last line, "ok: ..." or "FAILED: ..."; whether all passed. */
bool g3_comparison_finish(const g3_comparison *comparison);

/* `verify --tokenizer`: the exit status. */
int g3_verify_tokenizer(const char *model, const char *path);

#endif
