/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_COMMANDS_H
#define GEMMA3_COMMANDS_H

/* The commands of the program. Each gets the words behind its name in
 * argv[1..argc-1] (argv[0] is the name itself) and returns the exit status. */

/* Exit statuses of every command. */
#define G3_EXIT_OK 0
#define G3_EXIT_FAILED 1  /* something did not work; the message says what */
#define G3_EXIT_USAGE 2   /* the command line is wrong; nothing was done */
#define G3_EXIT_REFUSED 3 /* a step was refused for memory or context; the run went on */

int g3_cmd_chat(int argc, char **argv);
int g3_cmd_verify(int argc, char **argv);
int g3_cmd_bench(int argc, char **argv);
int g3_cmd_perplexity(int argc, char **argv);

#endif
