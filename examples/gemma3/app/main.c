/* SPDX-License-Identifier: MIT */
/* gemma3: Gemma-3 models on a pool of device memory. */

#include <stdio.h>
#include <string.h>

#include <vrampool/status.h>

#include "commands.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} commands[] = {
    {"chat", g3_cmd_chat, "talk with a model, and see where its memory is"},
    {"verify", g3_cmd_verify, "compare the engine with recorded reference values"},
    {"bench", g3_cmd_bench, "measure prompt and answer speed, and memory"},
    {"perplexity", g3_cmd_perplexity, "how well a model predicts a text"},
};

static void print_usage(FILE *file) {
    (void)fputs("usage: gemma3 COMMAND [OPTION...]\n\n", file);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        (void)fprintf(file, "  %-12s %s\n", commands[i].name, commands[i].about);
    (void)fputs("\ngemma3 COMMAND --help lists the options of a command.\n", file);
}

/* What was printed has to have gone somewhere: a full disk is a failure too. */
static int end_output(int status) {
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return status;
    (void)fputs("gemma3: standard output could not be written\n", stderr);
    return status == G3_EXIT_OK ? G3_EXIT_FAILED : status;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_usage(stderr);
        return G3_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage(stdout);
        return G3_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)printf("gemma3 %d.%d.%d\n", VRP_VERSION_MAJOR, VRP_VERSION_MINOR, VRP_VERSION_PATCH);
        return G3_EXIT_OK;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return end_output(commands[i].run(argc - 1, argv + 1));
    (void)fprintf(stderr, "gemma3: there is no command \"%s\"\n", argv[1]);
    print_usage(stderr);
    return G3_EXIT_USAGE;
}
