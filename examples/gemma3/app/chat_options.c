/* SPDX-License-Identifier: MIT */
/* The command line of `gemma3 chat`. */

#include <stdio.h>
#include <string.h>

#include "chat.h"
#include "verify_setup.h"

static const g3_choice backings[] = {{"auto", VRP_BACKING_AUTO},
                                     {"vmm", VRP_BACKING_VMM},
                                     {"malloc", VRP_BACKING_MALLOC},
                                     {NULL, 0}};

static const g3_choice styles[] = {{"auto", G3_CHAT_STYLE_AUTO},
                                   {"gemma", G3_STYLE_TURNS},
                                   {"dialogue", G3_STYLE_DIALOGUE},
                                   {NULL, 0}};

static void defaults(g3_chat_options *options) {
    memset(options, 0, sizeof *options);
    options->device = "sim:8GiB";
    options->max_tokens = 512;
    options->seed = 1;
    options->top_k = 64;
    options->temperature = 1.0;
    options->top_p = 0.95;
    options->kv_type = G3_KV_F16;
    options->precision = G3_INT8;
    options->backing = VRP_BACKING_AUTO;
    options->style = G3_CHAT_STYLE_AUTO;
    g3_optimizer_options_init(&options->optimizer);
}

/* What a table cannot say. */
static g3_parsed check(const g3_chat_options *options) {
    if (strncmp(options->device, "sim", 3) == 0 && g3_device_valid(options->device))
        return G3_PARSED_OK;
    (void)fprintf(stderr,
                  "gemma3 chat: --device: \"%s\" is not sim or sim:SIZE: this engine computes on "
                  "the simulated device\nTry gemma3 chat --help.\n",
                  options->device);
    return G3_PARSED_BAD;
}

#define ROW(flag, what, where, word, text) \
    .name = flag, .kind = what, .out = where, .value = word, .help = text

/* Model, device, and what the chat begins with. */
static size_t put_first_rows(g3_chat_options *o, g3_option *out_rows) {
    const g3_option rows[] = {
        {ROW("--model", G3_OPTION_TEXT, &o->model, "FILE|DIR",
             "a GGUF file, or a Hugging Face folder"),
         .required = true},
        {ROW("--mmproj", G3_OPTION_TEXT, &o->mmproj, "FILE", "the GGUF file of the vision tower")},
        {ROW("--device", G3_OPTION_TEXT, &o->device, "sim:SIZE",
             "the simulated device and its memory (sim:8GiB)")},
        {ROW("--backing", G3_OPTION_CHOICE, &o->backing, "KIND",
             "how the pool takes memory: auto, vmm or malloc (auto)"),
         .choices = backings},
        {ROW("--image", G3_OPTION_TEXTS, &o->images, "FILE",
             "a JPEG or PNG for the first message; again for more")},
        {ROW("--system", G3_OPTION_TEXTS, &o->system, "TEXT",
             "stands in front of the first message; again for more")},
        {ROW("--template", G3_OPTION_CHOICE, &o->style, "KIND",
             "gemma: Gemma's turns; dialogue: plain text, for base models; auto: what the "
             "checkpoint was made for (auto)"),
         .choices = styles},
        {ROW("--script", G3_OPTION_TEXT, &o->script, "TURNS",
             "a file of lines to say instead of yours; -: standard input")},
        {ROW("--ctx", G3_OPTION_COUNT, &o->context, "N",
             "most positions (the model's, at most 8192)"),
         .low = 16, .high = G3_MAX_CONTEXT},
        {ROW("--chunk", G3_OPTION_COUNT, &o->chunk, "N",
             "positions that one step of a prompt takes (512)"),
         .low = 1, .high = 65536},
        {ROW("--kv", G3_OPTION_CHOICE, &o->kv_type, "TYPE",
             "elements of the inference cache: f32 or f16 (f16)"),
         .choices = g3_kv_choices},
        {ROW("--precision", G3_OPTION_CHOICE, &o->precision, "KIND",
             "products of quantised weights: float32 or int8 (int8)"),
         .choices = g3_precision_choices},
        {ROW("--threads", G3_OPTION_COUNT, &o->threads, "N", "threads that compute (all CPUs)"),
         .low = 1, .high = 1024},
    };
    memcpy(out_rows, rows, sizeof rows);
    return sizeof rows / sizeof *rows;
}

/* Answers, the optimizer, and what is shown. */
static size_t put_other_rows(g3_chat_options *o, g3_option *out_rows) {
    const g3_option rows[] = {
        {ROW("--max-tokens", G3_OPTION_COUNT, &o->max_tokens, "N", "longest answer (512)"),
         .low = 1, .high = G3_MAX_CONTEXT},
        {ROW("--temp", G3_OPTION_REAL, &o->temperature, "T",
             "temperature; 0: always the likeliest token (1)"),
         .low = 0.0, .high = 100.0},
        {ROW("--top-k", G3_OPTION_COUNT, &o->top_k, "N",
             "choose among the N likeliest tokens; 0: all (64)"),
         .low = 0, .high = G3_MAX_VOCAB},
        {ROW("--top-p", G3_OPTION_REAL, &o->top_p, "P",
             "choose among the likeliest tokens of that probability (0.95)"),
         .low = 0.0, .high = 1.0},
        {ROW("--seed", G3_OPTION_COUNT, &o->seed, "N", "the same seed gives the same answers (1)")},
        {ROW("--optimizer", G3_OPTION_OPTIMIZER, &o->optimizer, "LIST",
             "off, or threshold=SIZE,interval=N and idle=, keep=, hysteresis=, pressure=on|off "
             "(threshold=1.5GiB,interval=5,idle=on)")},
        {ROW("--stats", G3_OPTION_FLAG, &o->stats, NULL, "after each turn, where the memory is")},
        {ROW("--stats-json", G3_OPTION_TEXT, &o->stats_json, "FILE",
             "the figures of the run, written at its end; -: standard output")},
        {ROW("--trace", G3_OPTION_TEXT, &o->trace, "FILE",
             "every allocation and free of the run, for vrampool-bench replay")},
        {ROW("--quiet", G3_OPTION_FLAG, &o->quiet, NULL, "answers and errors only")},
    };
    memcpy(out_rows, rows, sizeof rows);
    return sizeof rows / sizeof *rows;
}
#undef ROW

g3_parsed g3_chat_options_parse(int argc, char **argv, g3_chat_options *out_options) {
    g3_option table[32];
    defaults(out_options);
    size_t count = put_first_rows(out_options, table);
    count += put_other_rows(out_options, table + count);
    const g3_parsed parsed = g3_options_parse(
        "chat",
        "Talks with a Gemma-3 model whose memory comes from a pool, and shows where it is.\n"
        "/help in the chat lists what can be typed besides messages.",
        table, count, argc, argv);
    return parsed == G3_PARSED_OK ? check(out_options) : parsed;
}
