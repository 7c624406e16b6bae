/* SPDX-License-Identifier: MIT */
/* Command lines from a table. */

#include "options.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static g3_parsed bad(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static g3_parsed bad(const char *command, const char *format, ...) {
    va_list list;
    va_start(list, format);
    (void)fprintf(stderr, "gemma3 %s: ", command);
    (void)vfprintf(stderr, format, list);
    (void)fprintf(stderr, "\nTry gemma3 %s --help.\n", command);
    va_end(list);
    return G3_PARSED_BAD;
}

static void print_help(const char *command, const char *about, const g3_option *options,
                       size_t count) {
    (void)printf("usage: gemma3 %s [OPTION...]\n%s\n\n", command, about);
    for (size_t i = 0; i < count; i++) {
        const g3_option *option = &options[i];
        char left[64];
        (void)snprintf(left, sizeof left, "%s%s%s", option->name, option->value != NULL ? " " : "",
                       option->value != NULL ? option->value : "");
        if (strlen(left) > 24)
            (void)printf("  %s\n  %-24s  %s\n", left, "", option->help);
        else
            (void)printf("  %-24s  %s\n", left, option->help);
    }
    (void)printf("  %-24s  %s\n", "--help", "this text");
}

static g3_parsed set_count(const char *command, const g3_option *option, const char *value) {
    uint64_t number = 0;
    if (!g3_count_parse(value, &number))
        return bad(command, "%s: \"%s\" is no whole number", option->name, value);
    const bool bounded = option->low > 0.0 || option->high > 0.0;
    if (bounded && ((double)number < option->low || (double)number > option->high))
        return bad(command, "%s: \"%s\" is not from %.0f to %.0f", option->name, value, option->low,
                   option->high);
    *(uint64_t *)option->out = number;
    return G3_PARSED_OK;
}

static g3_parsed set_real(const char *command, const g3_option *option, const char *value) {
    double number = 0.0;
    if (!g3_real_parse(value, &number))
        return bad(command, "%s: \"%s\" is no number", option->name, value);
    const bool bounded = option->low < option->high;
    if (bounded && (number < option->low || number > option->high))
        return bad(command, "%s: \"%s\" is not from %g to %g", option->name, value, option->low,
                   option->high);
    *(double *)option->out = number;
    return G3_PARSED_OK;
}

static g3_parsed set_choice(const char *command, const g3_option *option, const char *value) {
    char words[128] = "";
    size_t used = 0;
    for (const g3_choice *choice = option->choices; choice->word != NULL; choice++) {
        if (strcmp(choice->word, value) == 0) {
            *(int32_t *)option->out = choice->value;
            return G3_PARSED_OK;
        }
        const int n =
            snprintf(words + used, sizeof words - used, "%s%s", used > 0 ? ", " : "", choice->word);
        if (n > 0 && (size_t)n < sizeof words - used)
            used += (size_t)n;
    }
    return bad(command, "%s: \"%s\" is none of %s", option->name, value, words);
}

static g3_parsed set_texts(const char *command, const g3_option *option, const char *value) {
    g3_texts *texts = (g3_texts *)option->out;
    if (texts->count == G3_MAX_TEXTS)
        return bad(command, "%s: \"%s\" is one too many: at most %d", option->name, value,
                   G3_MAX_TEXTS);
    texts->texts[texts->count++] = value;
    return G3_PARSED_OK;
}

static g3_parsed set_optimizer(const char *command, const g3_option *option, const char *value) {
    char message[160];
    if (!g3_optimizer_parse(value, (g3_optimizer_options *)option->out, message, sizeof message))
        return bad(command, "%s: %s", option->name, message);
    return G3_PARSED_OK;
}

static g3_parsed set_value(const char *command, const g3_option *option, const char *value) {
    switch (option->kind) {
    case G3_OPTION_TEXT:
        *(const char **)option->out = value;
        return G3_PARSED_OK;
    case G3_OPTION_TEXTS:
        return set_texts(command, option, value);
    case G3_OPTION_COUNT:
        return set_count(command, option, value);
    case G3_OPTION_REAL:
        return set_real(command, option, value);
    case G3_OPTION_CHOICE:
        return set_choice(command, option, value);
    case G3_OPTION_OPTIMIZER:
        return set_optimizer(command, option, value);
    case G3_OPTION_FLAG:
        break;
    }
    *(bool *)option->out = true;
    return G3_PARSED_OK;
}

/* The option that a word names, its name ending at '=' or the word's end. */
static const g3_option *find(const g3_option *options, size_t count, const char *word,
                             size_t length) {
    for (size_t i = 0; i < count; i++)
        if (strlen(options[i].name) == length && strncmp(options[i].name, word, length) == 0)
            return &options[i];
    return NULL;
}

/* Takes the option at argv[*at], and its value; moves *at to the last word of it. */
static g3_parsed take(const char *command, const g3_option *options, size_t count, int argc,
                      char **argv, int *at, uint64_t *seen) {
    const char *word = argv[*at];
    if (word[0] != '-' || word[1] == '\0')
        return bad(command, "\"%s\" is no option", word);
    const char *equals = strchr(word, '=');
    const size_t length = equals != NULL ? (size_t)(equals - word) : strlen(word);
    const g3_option *option = find(options, count, word, length);
    if (option == NULL)
        return bad(command, "unknown option \"%.*s\"", (int)length, word);
    *seen |= UINT64_C(1) << (option - options);
    if (option->kind == G3_OPTION_FLAG) {
        if (equals != NULL)
            return bad(command, "%s takes no value, not \"%s\"", option->name, equals + 1);
        return set_value(command, option, "");
    }
    if (equals != NULL)
        return set_value(command, option, equals + 1);
    if (*at + 1 >= argc)
        return bad(command, "%s needs a value: %s", option->name, option->value);
    *at += 1;
    return set_value(command, option, argv[*at]);
}

g3_parsed g3_options_parse(const char *command, const char *about, const g3_option *options,
                           size_t count, int argc, char **argv) {
    uint64_t seen = 0; /* a bit for each option: tables have fewer than 64 */
    for (int at = 1; at < argc; at++) {
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) {
            print_help(command, about, options, count);
            return G3_PARSED_HELP;
        }
        const g3_parsed parsed = take(command, options, count, argc, argv, &at, &seen);
        if (parsed != G3_PARSED_OK)
            return parsed;
    }
    for (size_t i = 0; i < count; i++)
        if (options[i].required && (seen >> i & 1) == 0)
            return bad(command, "%s %s is missing", options[i].name, options[i].value);
    return G3_PARSED_OK;
}
