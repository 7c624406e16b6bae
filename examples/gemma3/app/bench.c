/* SPDX-License-Identifier: MIT */
/* `gemma3 bench`: how fast a model runs here, beside what the memory allows.
 *
 * A repeat clears the conversation, adds `prompt` tokens in one call (prefill), and
 * then `decode` tokens one by one (decode, at contexts prompt .. prompt + decode).
 * Ids are from a fixed generator; nothing is sampled. One run that is not counted
 * goes first. The memory's read bandwidth is measured before and after. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench_read.h"
#include "clock.h"
#include "commands.h"
#include "verify_setup.h"

#define MAX_REPEATS 1000

typedef struct bench_options {
    g3_setup_options setup;
    const char *json;
    uint64_t prompt, decode, repeat;
    int32_t kv_type;
} bench_options;

typedef struct bench_spread {
    double samples[MAX_REPEATS]; /* in the order in which they were taken */
    double median, least, most;
    uint32_t count;
} bench_spread;

typedef struct bench_result {
    bench_spread prefill, decode; /* tokens a second */
    double bandwidth;             /* bytes a second */
    uint64_t read_buffer_bytes;
    uint64_t weight_read_bytes; /* of a decode step */
    double kv_read_bytes;       /* of a decode step, mean over the contexts */
    g3_memory_report memory;    /* at the end of the last repeat */
} bench_result;

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarise(bench_spread *spread) {
    double sorted[MAX_REPEATS];
    for (uint32_t i = 0; i < spread->count; i++)
        sorted[i] = spread->samples[i];
    qsort(sorted, spread->count, sizeof *sorted, by_value);
    spread->least = sorted[0];
    spread->most = sorted[spread->count - 1];
    spread->median = (sorted[(spread->count - 1) / 2] + sorted[spread->count / 2]) / 2.0;
}

/* Bytes of keys and values that a query at `context` positions reads: all of them in
 * global layers, at most the window's in local ones. */
static double kv_bytes(const g3_config *config, g3_kv_type type, uint64_t context) {
    const g3_text_config *text = &config->text;
    uint64_t positions = 0;
    for (uint32_t i = 0; i < text->layers; i++)
        positions += text->global[i] || context < text->window ? context : text->window;
    return (double)positions * 2.0 * text->kv_heads * text->head_dim *
           (double)g3_kv_element_bytes(type);
}

static void fill_ids(int32_t *ids, size_t count, uint32_t vocab) {
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((state >> 33) % vocab);
    }
}

/* One repeat; the times go into the result if it counts. */
static g3_status run_once(g3_session *session, const bench_options *options, int32_t *ids,
                          float *logits, bool counts, bench_result *result, g3_error *error) {
    const g3_prompt prompt = {.ids = {.ids = ids, .count = (size_t)options->prompt}};
    g3_status status = g3_session_clear(session, error);
    if (status != G3_OK)
        return status;
    const double start = g3_now();
    status = g3_session_prefill(session, &prompt, NULL, logits, error);
    const double middle = g3_now();
    for (uint64_t i = 0; status == G3_OK && i < options->decode; i++)
        status = g3_session_decode(session, ids[options->prompt + i], logits, error);
    const double end = g3_now();
    if (status != G3_OK || !counts)
        return status;
    result->prefill.samples[result->prefill.count++] = (double)options->prompt / (middle - start);
    result->decode.samples[result->decode.count++] = (double)options->decode / (end - middle);
    return G3_OK;
}

static g3_status run_repeats(const g3_setup *setup, const bench_options *options,
                             g3_session *session, bench_result *result, g3_error *error) {
    const uint32_t vocab = setup->model->config.text.vocab;
    const size_t count = (size_t)(options->prompt + options->decode);
    int32_t *ids = malloc(count * sizeof *ids);
    float *logits = malloc(vocab * sizeof *logits);
    g3_status status = G3_OK;
    if (ids == NULL || logits == NULL)
        status = g3_fail(error, G3_HOST_MEMORY, "out of memory for ids and logits");
    else
        fill_ids(ids, count, vocab);
    for (uint64_t i = 0; status == G3_OK && i <= options->repeat; i++)
        status = run_once(session, options, ids, logits, i > 0, result, error);
    if (status == G3_OK)
        status = g3_memory_report_get(setup->model->memory, &result->memory, error);
    free(ids);
    free(logits);
    return status;
}

/* The better of the bandwidth so far and now. */
static g3_status read_memory(const g3_setup *setup, bench_result *result, g3_error *error) {
    double bandwidth = 0.0;
    const g3_status status =
        g3_bench_read(setup->model->weight_bytes, &bandwidth, &result->read_buffer_bytes, error);
    result->bandwidth = bandwidth > result->bandwidth ? bandwidth : result->bandwidth;
    return status;
}

static g3_status measure(const g3_setup *setup, const bench_options *options, bench_result *result,
                         g3_error *error) {
    const g3_config *config = &setup->model->config;
    const uint64_t longest = options->prompt + options->decode;
    if (longest > config->text.context)
        return g3_fail(error, G3_INVALID, "%" PRIu64 " positions; the model takes %" PRIu32,
                       longest, config->text.context);
    const g3_session_options session_options = {.context = (uint32_t)longest,
                                                .kv_type = (g3_kv_type)options->kv_type};
    g3_session *session = NULL;
    g3_status status = read_memory(setup, result, error);
    if (status == G3_OK)
        status = g3_session_create(setup->model, &session_options, &session, error);
    if (status == G3_OK)
        status = run_repeats(setup, options, session, result, error);
    g3_session_destroy(session);
    if (status == G3_OK)
        status = read_memory(setup, result, error);
    if (status != G3_OK)
        return status;
    summarise(&result->prefill);
    summarise(&result->decode);
    result->weight_read_bytes = setup->model->read_bytes_a_token;
    for (uint64_t i = 0; i < options->decode; i++)
        result->kv_read_bytes +=
            kv_bytes(config, (g3_kv_type)options->kv_type, options->prompt + i + 1);
    result->kv_read_bytes /= (double)options->decode;
    return G3_OK;
}

/* Bytes a second that decoding reads, at the median. */
static double decode_bandwidth(const bench_result *result) {
    return result->decode.median * ((double)result->weight_read_bytes + result->kv_read_bytes);
}

static void print(const g3_setup *setup, const bench_options *options, const bench_result *result) {
    const double mebi = 1.0 / (1 << 20);
    (void)printf("%s, kernels %s, %" PRIu32 " threads, products %s, cache %s\n",
                 setup->model->config.name, g3_isa_name(g3_isa_current()), setup->threads,
                 options->setup.precision == G3_INT8 ? "int8" : "float32",
                 options->kv_type == G3_KV_F16 ? "f16" : "f32");
    (void)printf("prefill  %9.2f tokens/s (%.2f - %.2f), %" PRIu64 " tokens\n",
                 result->prefill.median, result->prefill.least, result->prefill.most,
                 options->prompt);
    (void)printf("decode   %9.2f tokens/s (%.2f - %.2f), %" PRIu64 " tokens at context %" PRIu64
                 " to %" PRIu64 "\n",
                 result->decode.median, result->decode.least, result->decode.most, options->decode,
                 options->prompt, options->prompt + options->decode);
    (void)printf("reads    %9.2f MiB a token: %.2f of weights, %.2f of keys and values\n",
                 ((double)result->weight_read_bytes + result->kv_read_bytes) * mebi,
                 (double)result->weight_read_bytes * mebi, result->kv_read_bytes * mebi);
    (void)printf(
        "memory   %9.2f GB/s read by the best of three loops over %.0f MiB; decode reads %.2f GB/s,"
        " %.1f %% of it\n",
        result->bandwidth * 1e-9, (double)result->read_buffer_bytes * mebi,
        decode_bandwidth(result) * 1e-9, 100.0 * decode_bandwidth(result) / result->bandwidth);
    (void)printf("pool     %9.2f MiB reserved, %.2f allocated, %.2f requested; at most %.2f"
                 " reserved\n",
                 (double)result->memory.reserved_bytes * mebi,
                 (double)result->memory.allocated_bytes * mebi,
                 (double)result->memory.requested_bytes * mebi,
                 (double)result->memory.peak_reserved_bytes * mebi);
}

static json_t *spread_json(const bench_spread *spread) {
    json_t *samples = json_array();
    for (uint32_t i = 0; samples != NULL && i < spread->count; i++)
        if (json_array_append_new(samples, json_real(spread->samples[i])) != 0)
            break;
    return json_pack("{s:f,s:f,s:f,s:o}", "median", spread->median, "min", spread->least, "max",
                     spread->most, "samples", samples);
}

static json_t *pool_json(const g3_memory_report *report) {
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "weights_bytes",
                     (json_int_t)report->weights_bytes, "kv_bytes", (json_int_t)report->kv_bytes,
                     "requested_bytes", (json_int_t)report->requested_bytes, "allocated_bytes",
                     (json_int_t)report->allocated_bytes, "reserved_bytes",
                     (json_int_t)report->reserved_bytes, "gap_bytes", (json_int_t)report->gap_bytes,
                     "peak_allocated_bytes", (json_int_t)report->peak_allocated_bytes,
                     "peak_reserved_bytes", (json_int_t)report->peak_reserved_bytes);
}

static json_t *result_json(const g3_setup *setup, const bench_options *options,
                           const bench_result *result) {
    return json_pack(
        "{s:o,s:s,s:s,s:s,s:I,s:I,s:[I,I],s:o,s:o,s:I,s:f,s:f,s:I,s:f,s:o}", "environment",
        g3_setup_environment(setup), "model", setup->model->config.name, "precision",
        options->setup.precision == G3_INT8 ? "int8" : "float32", "cache",
        options->kv_type == G3_KV_F16 ? "f16" : "f32", "prompt", (json_int_t)options->prompt,
        "decode", (json_int_t)options->decode, "decode_context", (json_int_t)options->prompt,
        (json_int_t)(options->prompt + options->decode), "prefill_tokens_s",
        spread_json(&result->prefill), "decode_tokens_s", spread_json(&result->decode),
        "weight_bytes_a_token", (json_int_t)result->weight_read_bytes, "kv_bytes_a_token",
        result->kv_read_bytes, "read_bytes_s", result->bandwidth, "read_buffer_bytes",
        (json_int_t)result->read_buffer_bytes, "fraction_of_read_bandwidth",
        decode_bandwidth(result) / result->bandwidth, "pool", pool_json(&result->memory));
}

static g3_parsed parse(bench_options *options, int argc, char **argv) {
    const g3_option table[] = {
        G3_SETUP_ROWS(options->setup),
        {.name = "--prompt",
         .kind = G3_OPTION_COUNT,
         .out = &options->prompt,
         .value = "N",
         .help = "tokens of the prefill (default 512)",
         .low = 1.0,
         .high = 1e6},
        {.name = "--decode",
         .kind = G3_OPTION_COUNT,
         .out = &options->decode,
         .value = "N",
         .help = "single tokens after it (default 128)",
         .low = 1.0,
         .high = 1e6},
        {.name = "--repeat",
         .kind = G3_OPTION_COUNT,
         .out = &options->repeat,
         .value = "N",
         .help = "repeats (default 5)",
         .low = 1.0,
         .high = MAX_REPEATS},
        G3_KV_ROW(options->kv_type),
        {.name = "--json",
         .kind = G3_OPTION_TEXT,
         .out = &options->json,
         .value = "FILE",
         .help = "all figures and samples as JSON (-: standard output)"},
    };
    return g3_options_parse("bench",
                            "Tokens a second of prefill and decode (median, least and most of the\n"
                            "repeats), beside the read bandwidth of this machine.",
                            table, sizeof table / sizeof *table, argc, argv);
}

int g3_cmd_bench(int argc, char **argv) {
    bench_options options = {.setup = {.kernels = -1, .precision = G3_INT8},
                             .prompt = 512,
                             .decode = 128,
                             .repeat = 5,
                             .kv_type = G3_KV_F16};
    const g3_parsed parsed = parse(&options, argc, argv);
    if (parsed != G3_PARSED_OK)
        return parsed == G3_PARSED_HELP ? G3_EXIT_OK : G3_EXIT_USAGE;
    g3_error error = {{0}};
    g3_setup setup;
    g3_status status = g3_setup_check_json(options.json, &error);
    if (status == G3_OK)
        status = g3_setup_open(&options.setup, &setup, &error);
    if (status != G3_OK)
        return g3_setup_failed("bench", &error);
    bench_result result = {0};
    status = measure(&setup, &options, &result, &error);
    if (status == G3_OK) {
        print(&setup, &options, &result);
        if (options.json != NULL)
            status =
                g3_setup_write_json(result_json(&setup, &options, &result), options.json, &error);
    }
    return g3_setup_end("bench", &setup, status, &error);
}
