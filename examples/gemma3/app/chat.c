/* SPDX-License-Identifier: MIT */
/* `gemma3 chat`: lines in, turns out. */

#include "chat.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"

static void print_help(void) {
    (void)fputs("  /image FILE [text]  a JPEG or PNG, sent with the text or with the next message\n"
                "  /clear              a new conversation; its memory goes back to the device\n"
                "  /stats              where the memory is, what the optimizer did\n"
                "  /empty              gives back what is idle, now\n"
                "  /save FILE          the conversation, and FILE.json with its figures\n"
                "  /shorten [N]        drops the oldest turns; at most N positions stay (half)\n"
                "  /quit               ends the program, as Ctrl-D does\n"
                "  Ctrl-C stops an answer. //text sends \"/text\".\n",
                stdout);
}

/* ---- What is printed around a line ---------------------------------------------- */

static const char *bold(const g3_chat *chat) { return chat->colour ? "\x1b[1m" : ""; }
static const char *plain(const g3_chat *chat) { return chat->colour ? "\x1b[0m" : ""; }

static void banner(const g3_chat *chat) {
    if (chat->options.quiet)
        return;
    const g3_text_config *text = &chat->model->config.text;
    (void)printf("%s%s%s: %u layers, weights %.1f MiB, on %s; %u positions%s\n", bold(chat),
                 chat->name, plain(chat), text->layers, (double)chat->weights_bytes / 1048576.0,
                 chat->options.device, chat->context,
                 chat->scripted ? "" : "; /help lists commands");
    (void)fflush(stdout);
}

/* A person sees what a script says, long passages by their beginning. */
static void echo(const g3_chat *chat, const char *text, size_t count) {
    const size_t most = 200;
    size_t shown = count <= most ? count : most;
    while (shown < count && shown > 0 && ((unsigned char)text[shown] & 0xc0) == 0x80)
        shown--;
    (void)printf("%s> %.*s%s", bold(chat), (int)shown, text, plain(chat));
    if (shown < count)
        (void)printf(" ... (%zu bytes)", count);
    (void)putchar('\n');
    (void)fflush(stdout);
}

static bool prompts(const g3_chat *chat) { return !chat->scripted && isatty(STDIN_FILENO) != 0; }

static void prompt(const g3_chat *chat) {
    if (!prompts(chat))
        return;
    (void)printf("%s> %s", bold(chat), plain(chat));
    (void)fflush(stdout);
}

/* ---- Lines ------------------------------------------------------------------------ */

/* Does what a line asks for; false ends the chat. */
static bool obey(g3_chat *chat, const g3_line *line) {
    switch (line->kind) {
    case G3_LINE_NONE:
        if (chat->picture_count > 0 && !chat->scripted)
            g3_chat_turn(chat, "", 0);
        return true;
    case G3_LINE_TEXT:
        g3_chat_turn(chat, line->text, line->text_count);
        return true;
    case G3_LINE_IMAGE:
        if (g3_chat_image(chat, line->path) && line->text_count > 0)
            g3_chat_turn(chat, line->text, line->text_count);
        return true;
    case G3_LINE_CLEAR:
        g3_chat_clear(chat);
        return true;
    case G3_LINE_STATS:
        g3_report_now(chat);
        return true;
    case G3_LINE_EMPTY:
        g3_chat_empty(chat);
        return true;
    case G3_LINE_SAVE:
        g3_chat_save(chat, line->path);
        return true;
    case G3_LINE_SHORTEN:
        g3_chat_shorten(chat, line->number);
        return true;
    case G3_LINE_HELP:
        print_help();
        return true;
    case G3_LINE_BAD:
        g3_chat_mistake(chat, "%s", line->message);
        return true;
    case G3_LINE_QUIT:
        break;
    }
    return false;
}

/* Ctrl-C while no answer is being given. Twice in a script, it ends. */
static bool interrupted(g3_chat *chat) {
    const int count = g3_interrupt_count();
    g3_interrupt_reset();
    if (chat->scripted)
        return count < 2;
    (void)printf("\n(/quit or Ctrl-D ends the program)\n");
    return true;
}

static void talk(g3_chat *chat) {
    g3_error error;
    for (;;) {
        char *text = NULL;
        size_t count = 0;
        prompt(chat);
        const g3_input_status status = g3_input_read(&chat->input, &text, &count, &error);
        if (status == G3_INPUT_INTERRUPTED) {
            if (!interrupted(chat))
                return;
            continue;
        }
        if (status == G3_INPUT_FAILED)
            g3_chat_mistake(chat, "%s", error.text);
        if (status != G3_INPUT_LINE)
            break;
        g3_line line;
        /* The echo shows the line as it was written, before it is cut up. */
        char *copy = chat->scripted && !chat->options.quiet ? strndup(text, count) : NULL;
        g3_line_parse(text, count, chat->scripted, &line);
        if (copy != NULL && line.kind != G3_LINE_NONE)
            echo(chat, copy, strlen(copy));
        free(copy);
        if (!obey(chat, &line))
            return;
        if (!chat->scripted)
            g3_interrupt_reset(); /* it was for the answer */
        else if (g3_interrupt_count() > 1)
            return;
    }
    if (prompts(chat))
        (void)putchar('\n');
}

/* The pictures of the command line wait for the first message. */
static bool attach(g3_chat *chat) {
    for (size_t i = 0; i < chat->options.images.count; i++)
        if (!g3_chat_image(chat, chat->options.images.texts[i]))
            return false;
    return true;
}

int g3_cmd_chat(int argc, char **argv) {
    g3_chat chat = {.unfed = G3_NO_ID};
    const g3_parsed parsed = g3_chat_options_parse(argc, argv, &chat.options);
    if (parsed != G3_PARSED_OK)
        return parsed == G3_PARSED_HELP ? G3_EXIT_OK : G3_EXIT_USAGE;
    const char *no_colour = getenv("NO_COLOR");
    chat.colour = isatty(STDOUT_FILENO) != 0 && (no_colour == NULL || *no_colour == '\0');
    g3_error error = {{0}};
    if (g3_chat_open(&chat, &error) != G3_OK) {
        (void)fprintf(stderr, "gemma3 chat: %s\n", error.text);
        (void)g3_chat_close(&chat);
        return G3_EXIT_FAILED;
    }
    banner(&chat);
    bool attached = attach(&chat);
    if (attached) {
        if (!chat.scripted) {
            chat.input.idle = g3_chat_idle;
            chat.input.user = &chat;
        }
        g3_interrupt_catch();
        talk(&chat);
        if (chat.picture_count > 0)
            g3_chat_mistake(&chat, "%zu pictures waited for a message that did not come",
                            chat.picture_count);
    }
    const int status = g3_chat_close(&chat);
    return attached ? status : G3_EXIT_FAILED;
}
