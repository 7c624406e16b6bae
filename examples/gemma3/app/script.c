/* SPDX-License-Identifier: MIT */
/* Lines of a chat. */

#include "script.h"

#include <stdio.h>
#include <string.h>

#include "options.h"

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static size_t unescape(char *text, size_t count) {
    size_t to = 0;
    for (size_t from = 0; from < count; from++) {
        char c = text[from];
        if (c == '\\' && from + 1 < count) {
            const char next = text[from + 1];
            const char meant = next == 'n'                   ? '\n'
                               : next == 't'                 ? '\t'
                               : next == '\\' || next == '#' ? next
                                                             : '\0';
            if (meant != '\0') {
                c = meant;
                from++;
            }
        }
        text[to++] = c;
    }
    text[to] = '\0';
    return to;
}

static void set_text(g3_line *line, char *text, size_t count, bool script) {
    line->text = text;
    line->text_count = script ? unescape(text, count) : count;
}

static void wrong(g3_line *line, const char *word, const char *what) {
    line->kind = G3_LINE_BAD;
    (void)snprintf(line->message, sizeof line->message, "%s%.60s", what, word);
}

/* A path, quoted or up to the next space; ends it with a NUL and gives what follows. */
static char *take_path(char *at, char *end, g3_line *line) {
    char *stop;
    if (*at == '"') {
        at++;
        stop = (char *)memchr(at, '"', (size_t)(end - at));
        if (stop == NULL) {
            wrong(line, at, "no closing quote: ");
            return end;
        }
    } else {
        for (stop = at; stop < end && !is_space(*stop); stop++) {
        }
    }
    char *next = stop < end ? stop + 1 : end;
    *stop = '\0';
    while (next < end && is_space(*next))
        next++;
    line->path = at;
    return next;
}

typedef enum rest_kind { REST_NONE, REST_PATH, REST_PATH_TEXT, REST_NUMBER } rest_kind;
typedef struct command {
    const char *name;
    g3_line_kind kind;
    rest_kind rest;
} command;

static const command commands[] = {
    {"/image", G3_LINE_IMAGE, REST_PATH_TEXT}, {"/clear", G3_LINE_CLEAR, REST_NONE},
    {"/stats", G3_LINE_STATS, REST_NONE},      {"/empty", G3_LINE_EMPTY, REST_NONE},
    {"/save", G3_LINE_SAVE, REST_PATH},        {"/shorten", G3_LINE_SHORTEN, REST_NUMBER},
    {"/help", G3_LINE_HELP, REST_NONE},        {"/quit", G3_LINE_QUIT, REST_NONE}};

static void parse_rest(const command *found, char *rest, char *end, bool script, g3_line *line) {
    line->kind = found->kind;
    switch (found->rest) {
    case REST_NONE:
        if (rest < end)
            wrong(line, rest, "nothing may follow this command: ");
        return;
    case REST_NUMBER:
        if (rest < end && (!g3_count_parse(rest, &line->number) || line->number == 0))
            wrong(line, rest, "/shorten takes a number of positions, not ");
        return;
    case REST_PATH:
    case REST_PATH_TEXT:
        if (rest == end) {
            wrong(line, found->name, "a file is missing behind ");
            return;
        }
        rest = take_path(rest, end, line);
        if (line->kind == G3_LINE_BAD)
            return;
        if (*line->path == '\0')
            wrong(line, found->name, "an empty name behind ");
        else if (found->rest == REST_PATH && rest < end)
            wrong(line, rest, "one file only (quote a name with spaces): ");
        else
            set_text(line, rest, (size_t)(end - rest), script);
        return;
    }
}

static void parse_command(char *at, char *end, bool script, g3_line *line) {
    char *stop = at;
    while (stop < end && !is_space(*stop))
        stop++;
    char *rest = stop;
    while (rest < end && is_space(*rest))
        rest++;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const size_t length = strlen(commands[i].name);
        if ((size_t)(stop - at) == length && memcmp(at, commands[i].name, length) == 0) {
            parse_rest(&commands[i], rest, end, script, line);
            return;
        }
    }
    *stop = '\0';
    wrong(line, at, "there is no command ");
    const size_t used = strlen(line->message);
    (void)snprintf(line->message + used, sizeof line->message - used,
                   " (/help lists them; //... sends a text that begins with a slash)");
}

void g3_line_parse(char *text, size_t count, bool script, g3_line *out_line) {
    memset(out_line, 0, sizeof *out_line);
    out_line->text = "";
    char *at = text;
    char *end = text + count;
    while (end > at && is_space(end[-1]))
        end--;
    *end = '\0';
    while (at < end && is_space(*at))
        at++;
    if (at == end || (script && *at == '#'))
        return;
    if (*at == '/' && (at + 1 == end || at[1] != '/')) {
        parse_command(at, end, script, out_line);
        return;
    }
    if (*at == '/')
        at++;
    out_line->kind = G3_LINE_TEXT;
    set_text(out_line, at, (size_t)(end - at), script);
}
