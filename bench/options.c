/* SPDX-License-Identifier: MIT */
/* The command line of a replay. */

#include "options.h"

#include "vrampool/trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int bench_usage(const char *format, ...) {
    va_list list;
    va_start(list, format);
    (void)fputs(BENCH_PROGRAM ": ", stderr);
    (void)vfprintf(stderr, format, list);
    (void)fputs("\nTry " BENCH_PROGRAM " --help.\n", stderr);
    va_end(list);
    return BENCH_USAGE;
}

int bench_fail(const char *format, ...) {
    va_list list;
    va_start(list, format);
    (void)fputs(BENCH_PROGRAM ": ", stderr);
    (void)vfprintf(stderr, format, list);
    (void)fputs("\n", stderr);
    va_end(list);
    return BENCH_FAILED;
}

const char *bench_detail(void) {
    static vrp_error_detail detail;
    detail.struct_size = (uint32_t)sizeof detail;
    if (vrp_error_detail_get(&detail) != VRP_OK || detail.message[0] == '\0')
        return "no detail";
    return detail.message;
}

void bench_options_init(bench_options *options) {
    memset(options, 0, sizeof *options);
    (void)bench_device_parse(options, "sim:139GiB");
    options->lag = 64;
    options->repeat = 1;
    options->at = BENCH_AT_TURN;
    vrp_optimizer_config_init(&options->optimizer);
}

int bench_device_parse(bench_options *options, const char *text) {
    uint64_t number = 0;
    options->device = text;
    options->is_cuda = 0;
    if (strcmp(text, "sim") == 0 || strncmp(text, "sim:", 4) == 0) {
        const char *size = text[3] == ':' ? text + 4 : "8GiB";
        if (!bench_size_parse(size, &options->device_bytes) || options->device_bytes == 0)
            return bench_usage("--device: \"%s\" is no size", size);
        return BENCH_OK;
    }
    if (strcmp(text, "cuda") != 0 && strncmp(text, "cuda:", 5) != 0)
        return bench_usage("--device: \"%s\" is neither sim:SIZE nor cuda:N", text);
    if (text[4] == ':' && (!bench_count_parse(text + 5, &number) || number > UINT32_MAX))
        return bench_usage("--device: \"%s\" is no number of a device", text + 5);
    options->is_cuda = 1;
    options->ordinal = (uint32_t)number;
    return BENCH_OK;
}

static int parse_backing(bench_options *options, const char *text) {
    if (strcmp(text, "vmm") == 0)
        options->backing = VRP_BACKING_VMM;
    else if (strcmp(text, "malloc") == 0)
        options->backing = VRP_BACKING_MALLOC;
    else
        return bench_usage("--backing: \"%s\" is neither vmm nor malloc", text);
    return BENCH_OK;
}

int bench_gap_limit_parse(bench_options *options, const char *text) {
    options->gap_limit = text;
    options->gap_limit_bytes = 0;
    if (strcmp(text, "high-water") == 0)
        options->gap_rule = VRP_GAP_RULE_HIGH_WATER;
    else if (strcmp(text, "off") == 0)
        options->gap_rule = VRP_GAP_RULE_OFF;
    else if (bench_size_parse(text, &options->gap_limit_bytes))
        options->gap_rule = VRP_GAP_RULE_LIMIT;
    else
        return bench_usage("--gap-limit: \"%s\" is neither high-water, off nor a size", text);
    return BENCH_OK;
}

int bench_knob_parse(bench_options *options, const char *text) {
    const char *equals = strchr(text, '=');
    vrp_knob_bounds bounds = {.struct_size = sizeof bounds};
    uint64_t value = 0;
    if (equals == NULL)
        return bench_usage("--knob: \"%s\" is not NAME=VALUE", text);
    for (int32_t knob = 0; knob < (int32_t)VRP_KNOB_COUNT; knob++) {
        const char *name = vrp_knob_name(knob);
        if (name == NULL || strlen(name) != (size_t)(equals - text) ||
            strncmp(name, text, strlen(name)) != 0)
            continue;
        if (!bench_size_parse(equals + 1, &value))
            return bench_usage("--knob %s: \"%s\" is no number or size", name, equals + 1);
        if (vrp_knob_bounds_get(knob, &bounds) == VRP_OK &&
            (value < bounds.low || value > bounds.high))
            return bench_usage("--knob %s: \"%s\" is not between %llu and %llu", name, equals + 1,
                               (unsigned long long)bounds.low, (unsigned long long)bounds.high);
        options->knob[knob] = value;
        options->knobs_set |= 1u << knob;
        return BENCH_OK;
    }
    return bench_usage("--knob: \"%.*s\" is no knob", (int)(equals - text), text);
}

/* ---- --optimizer ------------------------------------------------------------- */

static int parse_at(bench_options *options, const char *value) {
    if (strcmp(value, "turn") == 0)
        options->at = BENCH_AT_TURN;
    else if (strcmp(value, "step") == 0)
        options->at = BENCH_AT_STEP;
    else if (strcmp(value, "request") == 0)
        options->at = BENCH_AT_REQUEST;
    else
        return bench_usage("--optimizer at: \"%s\" is none of turn, step, request", value);
    options->at_given = 1;
    return BENCH_OK;
}

static int parse_switch(bench_options *options, const char *name, const char *value) {
    static const struct {
        const char *name;
        uint32_t bit;
    } switches[] = {{"idle", VRP_OPTIMIZER_IDLE},
                    {"keep", VRP_OPTIMIZER_KEEP},
                    {"hysteresis", VRP_OPTIMIZER_HYSTERESIS},
                    {"pressure", VRP_OPTIMIZER_PRESSURE}};
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        if (strcmp(switches[i].name, name) != 0)
            continue;
        if (strcmp(value, "on") == 0)
            options->optimizer.options |= switches[i].bit;
        else if (strcmp(value, "off") == 0)
            options->optimizer.options &= ~switches[i].bit;
        else
            return bench_usage("--optimizer %s: \"%s\" is neither on nor off", name, value);
        return BENCH_OK;
    }
    return bench_usage("--optimizer: \"%s\" is no setting", name);
}

static int parse_setting(bench_options *options, const char *name, const char *value) {
    uint64_t number = 0;
    if (strcmp(name, "at") == 0)
        return parse_at(options, value);
    if (strcmp(name, "threshold") == 0) {
        if (!bench_size_parse(value, &options->optimizer.threshold_bytes))
            return bench_usage("--optimizer threshold: \"%s\" is no size", value);
        return BENCH_OK;
    }
    if (strcmp(name, "interval") != 0)
        return parse_switch(options, name, value);
    if (!bench_count_parse(value, &number) || number == 0 || number > UINT32_MAX)
        return bench_usage("--optimizer interval: \"%s\" is no number of steps from 1", value);
    options->optimizer.interval = (uint32_t)number;
    return BENCH_OK;
}

int bench_optimizer_parse(bench_options *options, const char *text) {
    const char *at = text;
    options->optimizer_text = text;
    options->optimizer_on = strcmp(text, "off") != 0;
    while (options->optimizer_on) {
        char word[64];
        size_t length = strcspn(at, ",");
        if (length >= sizeof word)
            return bench_usage("--optimizer: \"%s\" is no setting", at);
        memcpy(word, at, length);
        word[length] = '\0';
        char *equals = strchr(word, '=');
        if (equals == NULL)
            return bench_usage("--optimizer: \"%s\" is not NAME=VALUE", word);
        *equals = '\0';
        int code = parse_setting(options, word, equals + 1);
        if (code != BENCH_OK)
            return code;
        if (at[length] == '\0')
            break;
        at += length + 1;
    }
    return BENCH_OK;
}

/* ---- The words ----------------------------------------------------------------- */

static int parse_json(bench_options *options, const char *text) {
    if (*text == '\0')
        return bench_usage("--json: \"%s\" is no file", text);
    options->json = text;
    return BENCH_OK;
}

static int parse_lag(bench_options *options, const char *text) {
    return bench_count_parse(text, &options->lag)
               ? BENCH_OK
               : bench_usage("--lag: \"%s\" is no number of lines", text);
}

static int parse_repeat(bench_options *options, const char *text) {
    return bench_count_parse(text, &options->repeat) && options->repeat > 0
               ? BENCH_OK
               : bench_usage("--repeat: \"%s\" is no number from 1", text);
}

static int parse_points(bench_options *options, const char *text) {
    return bench_count_parse(text, &options->check_points) && options->check_points > 0
               ? BENCH_OK
               : bench_usage("--check-empty-cache: \"%s\" is no number from 1", text);
}

typedef int (*parse_fn)(bench_options *options, const char *text);
static const struct {
    const char *name;
    parse_fn parse;
} with_value[] = {{"--device", bench_device_parse},
                  {"--backing", parse_backing},
                  {"--gap-limit", bench_gap_limit_parse},
                  {"--lag", parse_lag},
                  {"--optimizer", bench_optimizer_parse},
                  {"--knob", bench_knob_parse},
                  {"--repeat", parse_repeat},
                  {"--check-empty-cache", parse_points},
                  {"--json", parse_json}};

/* --name VALUE or --name=VALUE; *at is moved to the last word used. */
static int parse_option(bench_options *options, int count, char **words, int *at) {
    const char *word = words[*at];
    size_t length = strcspn(word, "=");
    if (strcmp(word, "--fast") == 0) {
        options->fast = 1;
        return BENCH_OK;
    }
    if (strcmp(word, "--compare-policies") == 0) {
        options->compare = 1;
        return BENCH_OK;
    }
    for (size_t i = 0; i < sizeof with_value / sizeof *with_value; i++) {
        if (strlen(with_value[i].name) != length || strncmp(with_value[i].name, word, length) != 0)
            continue;
        if (word[length] == '=')
            return with_value[i].parse(options, word + length + 1);
        if (*at + 1 >= count)
            return bench_usage("%s needs a value", word);
        return with_value[i].parse(options, words[++*at]);
    }
    return bench_usage("\"%s\" is no option", word);
}

int bench_options_parse(bench_options *options, int count, char **words, int *out_help) {
    *out_help = 0;
    for (int i = 0; i < count; i++) {
        int code = BENCH_OK;
        if (strcmp(words[i], "--help") == 0 || strcmp(words[i], "-h") == 0) {
            *out_help = 1;
            return BENCH_OK;
        }
        if (words[i][0] == '-' && words[i][1] != '\0')
            code = parse_option(options, count, words, &i);
        else if (options->trace != NULL)
            code = bench_usage("\"%s\" is one trace too many", words[i]);
        else
            options->trace = words[i];
        if (code != BENCH_OK)
            return code;
    }
    if (options->trace == NULL)
        return bench_usage("no trace was named");
    if (options->compare && (options->repeat > 1 || options->check_points > 0))
        return bench_usage("--compare-policies goes with neither --repeat nor "
                           "--check-empty-cache");
    return BENCH_OK;
}
