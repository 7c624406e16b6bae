/* SPDX-License-Identifier: MIT */
/* The transcript of a conversation, as text and with its figures as JSON. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chat.h"

/* A new file, never one that is there already. */
static FILE *create(g3_chat *chat, const char *path) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file == NULL) {
        const int why = errno;
        if (fd >= 0)
            (void)close(fd);
        g3_chat_mistake(chat, "/save: %s: %s: nothing was written", path,
                        why == EEXIST ? "is there already" : strerror(why));
    }
    return file;
}

static bool worth_saving(const g3_chat *chat, const g3_turn *turn) {
    return turn->added && turn->conversation == chat->conversation && turn->user != NULL;
}

static void write_text(const g3_chat *chat, FILE *file) {
    if (chat->system_text != NULL)
        (void)fprintf(file, "system: %s\n\n", chat->system_text);
    for (size_t i = 0; i < chat->turn_count; i++) {
        const g3_turn *turn = &chat->turns[i];
        if (!worth_saving(chat, turn))
            continue;
        (void)fputs(turn->dropped ? "user (dropped by /shorten)" : "user", file);
        if (turn->images > 0)
            (void)fprintf(file, " (%zu images)", turn->images);
        (void)fprintf(file, ": %s\n\nmodel: %s\n\n", turn->user,
                      turn->answer != NULL ? turn->answer : "");
    }
}

/* Bytes of a person need not be UTF-8; JSON needs it. */
static json_t *text_of(const char *text, size_t count) {
    json_t *value = json_stringn(text, count);
    if (value != NULL)
        return value;
    char *plain = (char *)malloc(count + 1);
    if (plain == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++)
        plain[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
    value = json_stringn(plain, count);
    free(plain);
    return value;
}

static json_t *message_of(const char *role, const char *text, size_t count) {
    return json_pack("{s:s,s:o}", "role", role, "text", text_of(text != NULL ? text : "", count));
}

static json_t *figures(const g3_chat *chat) {
    json_t *messages = json_array();
    json_t *turns = json_array();
    int wrong = 0;
    if (chat->system_text != NULL)
        wrong |= json_array_append_new(
            messages, message_of("system", chat->system_text, strlen(chat->system_text)));
    for (size_t i = 0; i < chat->turn_count; i++) {
        const g3_turn *turn = &chat->turns[i];
        if (!worth_saving(chat, turn))
            continue;
        wrong |= json_array_append_new(messages, message_of("user", turn->user, turn->user_count));
        wrong |=
            json_array_append_new(messages, message_of("model", turn->answer, turn->answer_count));
        wrong |= json_array_append_new(turns, g3_stats_turn(turn));
    }
    json_t *root = json_pack("{s:s,s:o,s:o}", "model", chat->model->config.name, "messages",
                             messages, "turns", turns);
    if (wrong != 0 && root != NULL) {
        json_decref(root);
        root = NULL;
    }
    return root;
}

static bool finish(FILE *file, bool whole) {
    whole = ferror(file) == 0 && whole;
    return fclose(file) == 0 && whole;
}

void g3_chat_save(g3_chat *chat, const char *path) {
    char *beside = NULL;
    if (asprintf(&beside, "%s.json", path) < 0) {
        g3_chat_mistake(chat, "/save: no host memory");
        return;
    }
    FILE *text = create(chat, path);
    FILE *json = text != NULL ? create(chat, beside) : NULL;
    if (json == NULL) {
        if (text != NULL) {
            (void)fclose(text);
            (void)unlink(path);
        }
        free(beside);
        return;
    }
    write_text(chat, text);
    json_t *root = figures(chat);
    const int dumped = root != NULL ? json_dumpf(root, json, JSON_INDENT(1)) : -1;
    json_decref(root);
    const bool json_whole = finish(json, dumped == 0);
    if (!finish(text, true) || !json_whole)
        g3_chat_mistake(chat, "/save: %s or %s could not be written whole", path, beside);
    else
        (void)printf("[wrote the conversation to %s and its figures to %s]\n", path, beside);
    free(beside);
}
