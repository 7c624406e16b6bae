/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_SCRIPT_H
#define GEMMA3_SCRIPT_H

/* What a line of a chat asks for, typed or from a script. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum g3_line_kind {
    G3_LINE_NONE = 0,  /* blank, or a script's comment */
    G3_LINE_TEXT = 1,  /* a turn: text */
    G3_LINE_IMAGE = 2, /* path; text: a turn with it, or empty */
    G3_LINE_CLEAR = 3,
    G3_LINE_STATS = 4,
    G3_LINE_EMPTY = 5,   /* empty the cache */
    G3_LINE_SAVE = 6,    /* path */
    G3_LINE_SHORTEN = 7, /* number; 0: half the context */
    G3_LINE_HELP = 8,
    G3_LINE_QUIT = 9,
    G3_LINE_BAD = 10 /* message says what is wrong */
} g3_line_kind;

typedef struct g3_line {
    g3_line_kind kind;
    const char *text; /* in the line that was parsed, NUL behind it */
    size_t text_count;
    const char *path;
    uint64_t number;
    char message[160];
} g3_line;

/* Reads one line of `count` bytes, without its newline, with a NUL behind it, in
 * place. script: "#" begins a comment, and in the text of a turn "\n", "\t" and "\\"
 * stand for newline, tab and backslash (other pairs stay as they are). A line that
 * begins with "//" is text with one slash less. A path with spaces stands in double
 * quotes. */
void g3_line_parse(char *line, size_t count, bool script, g3_line *out_line);

#endif
