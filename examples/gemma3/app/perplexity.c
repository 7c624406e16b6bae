/* SPDX-License-Identifier: MIT */
/* `gemma3 perplexity`: how well a model predicts a text, by the definition of
 * llama.cpp's tool of that name, so that the figures can be compared:
 *
 * The tokens of the whole text, <bos> in front, are cut into chunks of `ctx`; what
 * does not fill a chunk is left out. Each chunk is run alone, its first token
 * replaced by <bos>. Positions ctx / 2 to ctx - 2 are scored: each by the negative
 * logarithm of the probability that it gives the token behind it (softmax over the
 * whole vocabulary). The perplexity is e to the mean of the scores; the standard
 * error is that of the mean, carried through the exponential. */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../files/map.h"
#include "../text/tokenizer.h"
#include "commands.h"
#include "verify_setup.h"

typedef struct perplexity_options {
    g3_setup_options setup;
    const char *text;
    const char *json;
    uint64_t ctx;
    uint64_t chunks; /* 0: all */
    int32_t kv_type;
} perplexity_options;

typedef struct perplexity_score {
    double sum, sum_of_squares;
    uint64_t count;
    /* Of the chunk at work: */
    const int32_t *next; /* the token behind the position that comes next */
    size_t vocab, index;
} perplexity_score;

/* -log softmax(logits)[id], in float64. */
static double negative_log(const float *logits, size_t vocab, int32_t id) {
    float top = logits[0];
    for (size_t i = 1; i < vocab; i++)
        top = logits[i] > top ? logits[i] : top;
    double sum = 0.0;
    for (size_t i = 0; i < vocab; i++)
        sum += (double)expf(logits[i] - top);
    return log(sum) + (double)top - (double)logits[id];
}

static int take_logits(void *user, size_t index, const float *logits) {
    perplexity_score *score = user;
    if (index != score->index)
        return 1;
    const double value = negative_log(logits, score->vocab, score->next[index]);
    score->sum += value;
    score->sum_of_squares += value * value;
    score->count++;
    score->index++;
    return 0;
}

/* One chunk of `ctx` ids, the first already <bos>: the first half only fills the
 * cache, and the last token is only predicted. */
static g3_status run_chunk(g3_session *session, int32_t *ids, size_t ctx, perplexity_score *score,
                           g3_error *error) {
    const size_t first = ctx / 2;
    const g3_prompt context = {.ids = {.ids = ids, .count = first}};
    const g3_prompt scored = {.ids = {.ids = ids + first, .count = ctx - 1 - first}};
    g3_status status = g3_session_clear(session, error);
    if (status == G3_OK)
        status = g3_session_prefill(session, &context, NULL, NULL, error);
    score->next = ids + first + 1;
    score->index = 0;
    if (status == G3_OK)
        status = g3_session_evaluate(session, &scored, NULL, NULL, take_logits, score, error);
    if (status == G3_OK && score->index != scored.ids.count)
        status = g3_fail(error, G3_INVALID, "the engine gave logits of %zu positions, not of %zu",
                         score->index, scored.ids.count);
    return status;
}

static double mean_of(const perplexity_score *score) { return score->sum / (double)score->count; }

static double error_of(const perplexity_score *score) {
    const double count = (double)score->count;
    const double mean = mean_of(score);
    const double variance = score->sum_of_squares / count - mean * mean;
    return count > 1.0 && variance > 0.0 ? sqrt(variance / (count - 1.0)) : 0.0;
}

/* The text's ids, <bos> in front. */
static g3_status read_ids(const g3_checkpoint *checkpoint, const char *path, g3_ids *ids,
                          int32_t *out_bos, g3_error *error) {
    g3_map map;
    g3_tokenizer *tokenizer = NULL;
    g3_status status = g3_map_open(path, &map, error);
    if (status != G3_OK)
        return status;
    status = g3_tokenizer_open(checkpoint, &tokenizer, error);
    if (status == G3_OK) {
        *out_bos = g3_tokenizer_special(tokenizer)->bos;
        if (*out_bos == G3_NO_ID)
            status = g3_fail(error, G3_INVALID, "the vocabulary has no <bos>");
    }
    if (status == G3_OK)
        status = g3_ids_append(ids, *out_bos, error);
    if (status == G3_OK)
        status =
            g3_tokenizer_encode(tokenizer, (const char *)map.bytes, map.count, false, ids, error);
    g3_tokenizer_close(tokenizer);
    g3_map_close(&map);
    return status;
}

static g3_status run_chunks(g3_model *model, const perplexity_options *options, g3_ids *ids,
                            int32_t bos, uint64_t chunks, perplexity_score *score,
                            g3_error *error) {
    const size_t ctx = (size_t)options->ctx;
    const g3_session_options session_options = {.context = (uint32_t)ctx,
                                                .kv_type = (g3_kv_type)options->kv_type};
    g3_session *session = NULL;
    g3_status status = g3_session_create(model, &session_options, &session, error);
    for (uint64_t i = 0; status == G3_OK && i < chunks; i++) {
        int32_t *chunk = ids->ids + i * ctx;
        chunk[0] = bos;
        status = run_chunk(session, chunk, ctx, score, error);
        if (status == G3_OK)
            (void)fprintf(stderr, "chunk %" PRIu64 " of %" PRIu64 ": %.4f\n", i + 1, chunks,
                          exp(mean_of(score)));
    }
    g3_session_destroy(session);
    return status;
}

static g3_status report(const g3_setup *setup, const perplexity_options *options, uint64_t chunks,
                        const perplexity_score *score, g3_error *error) {
    const double mean = mean_of(score);
    const double value = exp(mean);
    if (!isfinite(value))
        return g3_fail(error, G3_INVALID, "the mean score is %g: no perplexity", mean);
    (void)printf("perplexity %.4f +/- %.4f (mean -log p %.6f; %" PRIu64 " tokens scored in %" PRIu64
                 " chunks of %" PRIu64 ")\n",
                 value, value * error_of(score), mean, score->count, chunks, options->ctx);
    if (options->json == NULL)
        return G3_OK;
    json_t *root = json_pack(
        "{s:f,s:f,s:f,s:I,s:I,s:I,s:s,s:s,s:o}", "perplexity", value, "standard_error",
        value * error_of(score), "mean_nll", mean, "chunks", (json_int_t)chunks, "scored_tokens",
        (json_int_t)score->count, "ctx", (json_int_t)options->ctx, "precision",
        options->setup.precision == G3_INT8 ? "int8" : "float32", "cache",
        options->kv_type == G3_KV_F16 ? "f16" : "f32", "environment", g3_setup_environment(setup));
    return g3_setup_write_json(root, options->json, error);
}

static g3_status measure(const g3_setup *setup, const perplexity_options *options,
                         g3_error *error) {
    g3_ids ids = {0};
    int32_t bos = G3_NO_ID;
    g3_status status = read_ids(setup->checkpoint, options->text, &ids, &bos, error);
    uint64_t chunks = ids.count / options->ctx;
    if (options->chunks > 0 && chunks > options->chunks)
        chunks = options->chunks;
    if (status == G3_OK && chunks == 0)
        status = g3_fail(error, G3_INVALID, "%s has %zu tokens, less than one chunk of %" PRIu64,
                         options->text, ids.count, options->ctx);
    perplexity_score score = {.vocab = setup->model->config.text.vocab};
    if (status == G3_OK)
        status = run_chunks(setup->model, options, &ids, bos, chunks, &score, error);
    if (status == G3_OK)
        status = report(setup, options, chunks, &score, error);
    g3_ids_free(&ids);
    return status;
}

/* Takes the word that is neither an option nor the value of one out of argv: the
 * text. The table of this command has no option without a value. */
static int take_text(perplexity_options *options, int argc, char **argv) {
    int kept = 1;
    bool value = false;
    for (int i = 1; i < argc; i++) {
        if (!value && argv[i][0] != '-' && options->text == NULL) {
            options->text = argv[i];
            continue;
        }
        bool equals = false;
        for (const char *at = argv[i]; *at != '\0'; at++)
            equals = equals || *at == '=';
        value = !value && !equals;
        argv[kept++] = argv[i];
    }
    return kept;
}

static g3_parsed parse(perplexity_options *options, int argc, char **argv) {
    const g3_option table[] = {
        G3_SETUP_ROWS(options->setup),
        {.name = "--text",
         .kind = G3_OPTION_TEXT,
         .out = &options->text,
         .value = "FILE",
         .help = "the text; its name alone, without --text, will do too"},
        {.name = "--ctx",
         .kind = G3_OPTION_COUNT,
         .out = &options->ctx,
         .value = "N",
         .help = "tokens of a chunk (default 512)",
         .low = 4.0,
         .high = (double)G3_MAX_CONTEXT},
        {.name = "--chunks",
         .kind = G3_OPTION_COUNT,
         .out = &options->chunks,
         .value = "N",
         .help = "only the first N chunks",
         .low = 1.0,
         .high = 1e9},
        G3_KV_ROW(options->kv_type),
        {.name = "--json",
         .kind = G3_OPTION_TEXT,
         .out = &options->json,
         .value = "FILE",
         .help = "the figures as JSON (-: standard output)"},
    };
    return g3_options_parse("perplexity",
                            "Perplexity of a text: e to the mean negative log probability of the\n"
                            "second half of every chunk, as llama.cpp's tool defines it.",
                            table, sizeof table / sizeof *table, argc, argv);
}

int g3_cmd_perplexity(int argc, char **argv) {
    perplexity_options options = {
        .setup = {.kernels = -1, .precision = G3_INT8}, .ctx = 512, .kv_type = G3_KV_F16};
    const g3_parsed parsed = parse(&options, take_text(&options, argc, argv), argv);
    if (parsed != G3_PARSED_OK)
        return parsed == G3_PARSED_HELP ? G3_EXIT_OK : G3_EXIT_USAGE;
    if (options.text == NULL) {
        (void)fprintf(stderr, "gemma3 perplexity: no text was named\n");
        return G3_EXIT_USAGE;
    }
    g3_error error = {{0}};
    g3_setup setup;
    g3_status status = g3_setup_check_json(options.json, &error);
    if (status == G3_OK)
        status = g3_setup_open(&options.setup, &setup, &error);
    if (status != G3_OK)
        return g3_setup_failed("perplexity", &error);
    status = measure(&setup, &options, &error);
    return g3_setup_end("perplexity", &setup, status, &error);
}
