/* SPDX-License-Identifier: MIT */
/* `gemma3 verify`: one conversation against outputs of a reference. */

#include "verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/ops.h"
#include "../text/tokenizer.h"
#include "commands.h"

/* Ids at the end of a reference's vocabulary that greedy decoding leaves out: the
 * picture tokens of the small checkpoints. Part of the expected file's format. */
#define LEFT_OUT 3u

#define LOGITS_TOLERANCE 2e-3
#define FEATURES_SHARE 0.5 /* of the logits' tolerance */

typedef struct verify_options {
    g3_setup_options setup;
    const char *expected;
    const char *tokenizer;
    int32_t kv_type;
    uint64_t chunk;
    double tolerance;
} verify_options;

typedef struct verify_run {
    g3_setup setup;
    g3_expected expected;
    g3_session *session;
    g3_comparison comparison;
    float *logits;    /* [vocab], of the last position */
    int32_t image_id; /* of placeholders, G3_NO_ID without pictures */
} verify_run;

/* What the callback of an evaluation needs. */
typedef struct added_logits {
    verify_run *run;
    const g3_st_tensor *expected;
    size_t vocab, next;
    g3_difference difference;
} added_logits;

static int take_logits(void *user, size_t index, const float *logits) {
    added_logits *added = user;
    if (index != added->next)
        return 1; /* out of order: the outputs could not be told apart */
    g3_difference_add(&added->difference, logits, added->vocab, added->expected,
                      index * added->vocab);
    memcpy(added->run->logits, logits, added->vocab * sizeof *logits);
    added->next++;
    return 0;
}

/* The elements of a tensor as floats; free them. NULL: out of memory. */
static float *floats_of(const g3_st_tensor *tensor) {
    uint64_t count = 1;
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        count *= tensor->shape[i];
    float *values = malloc((size_t)count * sizeof *values + 1);
    for (uint64_t i = 0; values != NULL && i < count; i++)
        values[i] = g3_st_float(tensor, i);
    return values;
}

/* Adds the turn's ids and pictures; compares features and logits. */
static g3_status evaluate_turn(verify_run *run, uint32_t number, const g3_prompt *prompt,
                               const float *pixels, float *features, g3_error *error) {
    const g3_config *config = &run->setup.model->config;
    const g3_expected_turn *turn = &run->expected.turns[number];
    added_logits added = {.run = run, .expected = turn->logits, .vocab = config->text.vocab};
    const g3_status status =
        g3_session_evaluate(run->session, prompt, pixels, features, take_logits, &added, error);
    if (status != G3_OK)
        return status;
    if (features != NULL) {
        g3_difference difference = {0};
        const uint64_t count = (uint64_t)turn->images * config->vision.tokens * config->text.hidden;
        g3_difference_add(&difference, features, count, turn->features, 0);
        g3_comparison_add(&run->comparison, G3_COMPARED_FEATURES, turn->features->name, &difference,
                          config->text.hidden);
    }
    if (added.next != turn->added)
        return g3_fail(error, G3_INVALID,
                       "turn%" PRIu32 ": the engine gave logits of %zu positions, not of %" PRIu32,
                       number, added.next, turn->added);
    g3_comparison_add(&run->comparison, G3_COMPARED_LOGITS, turn->logits->name, &added.difference,
                      config->text.vocab);
    return G3_OK;
}

/* The greedy ids, and the logits after each. The expected id is fed, so that one
 * wrong choice does not make everything behind it wrong. */
static g3_status decode_turn(verify_run *run, uint32_t number, g3_error *error) {
    const size_t vocab = run->setup.model->config.text.vocab;
    const g3_expected_turn *turn = &run->expected.turns[number];
    g3_difference ids = {0};
    for (uint32_t step = 0; step < turn->steps; step++) {
        const int32_t id = (int32_t)g3_st_int(turn->decode_ids, step);
        const size_t best = g3_argmax(run->logits, vocab - LEFT_OUT);
        const double off = fabs((double)id - (double)best);
        if (off > ids.largest) {
            ids.largest = off;
            ids.at = step;
        }
        ids.count++;
        g3_status status = g3_session_decode(run->session, id, run->logits, error);
        if (status != G3_OK)
            return status;
        const g3_st_tensor *expected = g3_expected_decode(&run->expected, number, step);
        g3_difference difference = {0};
        g3_difference_add(&difference, run->logits, vocab, expected, 0);
        g3_comparison_add(&run->comparison, G3_COMPARED_LOGITS, expected->name, &difference, vocab);
    }
    if (turn->steps > 0)
        g3_comparison_add(&run->comparison, G3_COMPARED_IDS, turn->decode_ids->name, &ids,
                          turn->steps);
    return G3_OK;
}

static g3_status run_turn(verify_run *run, uint32_t number, g3_error *error) {
    const g3_config *config = &run->setup.model->config;
    const g3_expected_turn *turn = &run->expected.turns[number];
    const uint32_t tokens = config->vision.present ? config->vision.tokens : 0;
    g3_prompt prompt;
    g3_status status =
        g3_expected_prompt(&run->expected, number, run->image_id, tokens, &prompt, error);
    if (status != G3_OK)
        return status;
    float *pixels = NULL;
    float *features = NULL;
    if (turn->images > 0) {
        pixels = floats_of(turn->pixels);
        features = calloc((size_t)turn->images * tokens, config->text.hidden * sizeof *features);
        if (pixels == NULL || features == NULL)
            status = g3_fail(error, G3_HOST_MEMORY, "out of memory for pictures");
    }
    if (status == G3_OK)
        status = evaluate_turn(run, number, &prompt, pixels, features, error);
    if (status == G3_OK)
        status = decode_turn(run, number, error);
    free(pixels);
    free(features);
    g3_prompt_free(&prompt);
    return status;
}

/* The placeholder's id: the files', else the tokenizer's by its text. */
static g3_status find_image_id(verify_run *run, g3_error *error) {
    const g3_config *config = &run->setup.model->config;
    run->image_id = config->tokens.image;
    if (!config->vision.present || run->image_id != G3_NO_ID)
        return G3_OK;
    g3_tokenizer *tokenizer = NULL;
    const g3_status status = g3_tokenizer_open(run->setup.checkpoint, &tokenizer, error);
    if (status != G3_OK)
        return status;
    run->image_id = g3_tokenizer_special(tokenizer)->image;
    g3_tokenizer_close(tokenizer);
    return run->image_id != G3_NO_ID
               ? G3_OK
               : g3_fail(error, G3_INVALID, "neither model nor tokenizer name a picture token");
}

static g3_status start(verify_run *run, const verify_options *options, g3_error *error) {
    const g3_config *config = &run->setup.model->config;
    /* Without a difference the fault would be found by nothing. */
    if (options->setup.fault == G3_FAULT_LOCAL_SCALING && config->text.rope_factor_global == 1.0)
        return g3_fail(error, G3_INVALID, "--fault local-rope: this model scales no positions");
    if (config->text.vocab <= LEFT_OUT)
        return g3_fail(error, G3_INVALID, "a vocabulary of %" PRIu32 " ids", config->text.vocab);
    g3_status status = find_image_id(run, error);
    if (status == G3_OK)
        status = g3_expected_open(options->expected, config, &run->expected, error);
    if (status != G3_OK)
        return status;
    run->logits = malloc(config->text.vocab * sizeof *run->logits);
    if (run->logits == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "out of memory for logits");
    const g3_session_options session = {.context = run->expected.positions,
                                        .chunk = (uint32_t)options->chunk,
                                        .kv_type = (g3_kv_type)options->kv_type};
    return g3_session_create(run->setup.model, &session, &run->session, error);
}

static int verify_outputs(const verify_options *options) {
    g3_error error = {{0}};
    verify_run run = {.comparison = {.tolerance = {options->tolerance,
                                                   options->tolerance * FEATURES_SHARE, 0.0}}};
    g3_status status = g3_setup_open(&options->setup, &run.setup, &error);
    if (status != G3_OK)
        return g3_setup_failed("verify", &error);
    status = start(&run, options, &error);
    if (status == G3_OK)
        g3_comparison_header();
    for (uint32_t i = 0; status == G3_OK && i < run.expected.count; i++)
        status = run_turn(&run, i, &error);
    g3_session_destroy(run.session);
    g3_expected_close(&run.expected);
    free(run.logits);
    const int ended = g3_setup_end("verify", &run.setup, status, &error);
    if (ended != G3_EXIT_OK)
        return ended;
    return g3_comparison_finish(&run.comparison) ? G3_EXIT_OK : G3_EXIT_FAILED;
}

static const g3_choice fault_choices[] = {{"none", G3_FAULT_NONE},
                                          {"weight", G3_FAULT_WEIGHT},
                                          {"scale", G3_FAULT_NO_SCALE},
                                          {"window", G3_FAULT_WINDOW},
                                          {"local-rope", G3_FAULT_LOCAL_SCALING},
                                          {NULL, 0}};

static g3_parsed parse(verify_options *options, int argc, char **argv) {
    const g3_option table[] = {
        G3_SETUP_ROWS(options->setup),
        {.name = "--mmproj",
         .kind = G3_OPTION_TEXT,
         .out = &options->setup.mmproj,
         .value = "FILE",
         .help = "the vision part of a .gguf model"},
        {.name = "--expected",
         .kind = G3_OPTION_TEXT,
         .out = &options->expected,
         .value = "FILE",
         .help = "a conversation with its reference outputs (safetensors)"},
        {.name = "--tokenizer",
         .kind = G3_OPTION_TEXT,
         .out = &options->tokenizer,
         .value = "FILE",
         .help = "texts with their ids (JSON): checks the tokenizer instead"},
        {.name = "--chunk",
         .kind = G3_OPTION_COUNT,
         .out = &options->chunk,
         .value = "N",
         .help = "positions of one prefill step (default 512)",
         .low = 1.0,
         .high = 65536.0},
        {.name = "--tolerance",
         .kind = G3_OPTION_REAL,
         .out = &options->tolerance,
         .value = "X",
         .help = "largest error of a logit (default 0.002); image features: half of it",
         .low = 0.0,
         .high = 1e6},
        {.name = "--kv",
         .kind = G3_OPTION_CHOICE,
         .out = &options->kv_type,
         .value = "TYPE",
         .help = "f32 (default) or f16 cache",
         .choices = g3_kv_choices},
        {.name = "--fault",
         .kind = G3_OPTION_CHOICE,
         .out = &options->setup.fault,
         .value = "NAME",
         .choices = fault_choices,
         .help = "none, weight, scale, window, local-rope: a deviation that must be found"},
    };
    return g3_options_parse("verify",
                            "Compares a model's outputs with those of a reference. Exit status: 0\n"
                            "if all are within the tolerance, else 1.",
                            table, sizeof table / sizeof *table, argc, argv);
}

int g3_cmd_verify(int argc, char **argv) {
    verify_options options = {.setup = {.kernels = -1, .precision = G3_FLOAT32},
                              .kv_type = G3_KV_F32,
                              .tolerance = LOGITS_TOLERANCE};
    const g3_parsed parsed = parse(&options, argc, argv);
    if (parsed != G3_PARSED_OK)
        return parsed == G3_PARSED_HELP ? G3_EXIT_OK : G3_EXIT_USAGE;
    if ((options.expected != NULL) == (options.tokenizer != NULL)) {
        (void)fprintf(stderr, "gemma3 verify: give either --expected or --tokenizer\n");
        return G3_EXIT_USAGE;
    }
    if (options.tokenizer != NULL)
        return g3_verify_tokenizer(g3_setup_model(options.setup.model), options.tokenizer);
    return verify_outputs(&options);
}
