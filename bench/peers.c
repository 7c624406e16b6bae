/* SPDX-License-Identifier: MIT */
/* Every allocator in turn, each measurement and each replay in a process of its
 * own, so that none inherits what another left behind. */

#include "peers.h"

#include "adaptors.h"
#include "script.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MOST_WORDS = 32, PATIENCE_S = 240 };
#define ALLOC_CONF "PYTORCH_CUDA_ALLOC_CONF"

static void add_word(char **words, size_t *count, const char *word) {
    if (*count + 1 < MOST_WORDS)
        words[(*count)++] = (char *)(uintptr_t)word;
    words[*count] = NULL;
}

static void add_option(char **words, size_t *count, const char *name, const char *value) {
    if (value == NULL)
        return;
    add_word(words, count, name);
    add_word(words, count, value);
}

/* The process's end: its status, 128 + signal, or -1 when it took too long. */
static int wait_for(pid_t pid) {
    int status = 0;
    uint64_t began = bench_clock_ns();
    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid)
            return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (got < 0 && errno != EINTR)
            return -1;
        if (bench_clock_ns() - began > (uint64_t)PATIENCE_S * 1000000000) {
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, &status, 0);
            return -1;
        }
        bench_sleep_us(2000);
    }
}

static int run_child(const bench_plan *plan, const bench_peer *peer, const char *trace,
                     const char *path) {
    char *words[MOST_WORDS];
    char numbers[3][24];
    size_t count = 0;
    pid_t pid = 0;
    add_word(words, &count, BENCH_PROGRAM);
    add_word(words, &count, "child");
    (void)snprintf(numbers[0], sizeof numbers[0], "%llu", (unsigned long long)plan->repeat);
    (void)snprintf(numbers[1], sizeof numbers[1], "%llu", (unsigned long long)plan->sample_ms);
    (void)snprintf(numbers[2], sizeof numbers[2], "%llu", (unsigned long long)plan->most_seconds);
    add_option(words, &count, "--allocator", peer->id);
    add_option(words, &count, "--device", plan->device.device);
    add_option(words, &count, "--json", path);
    add_option(words, &count, "--adaptors", plan->adaptors);
    add_option(words, &count, "--only", plan->only);
    add_option(words, &count, "--repeat", numbers[0]);
    add_option(words, &count, "--sample-ms", numbers[1]);
    add_option(words, &count, "--max-seconds", plan->most_seconds > 0 ? numbers[2] : NULL);
    add_option(words, &count, "--trace", trace);
    /* Read once, when the library is loaded. */
    (void)unsetenv("PYTORCH_ALLOC_CONF");
    (void)unsetenv(ALLOC_CONF);
    if (peer->environment != NULL && setenv(ALLOC_CONF, peer->environment, 1) != 0)
        return bench_fail("no host memory");
    (void)fflush(NULL);
    int error = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, words, environ);
    (void)unsetenv(ALLOC_CONF);
    if (error != 0)
        return bench_fail("%s: no process: %s", peer->id, strerror(error));
    return wait_for(pid);
}

/* The text of a file without the end of its last line; NULL: there is none. */
static char *read_text(const char *path) {
    char *text = NULL;
    size_t room = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return NULL;
    ssize_t length = getdelim(&text, &room, '\0', file);
    (void)fclose(file);
    if (length <= 0) {
        free(text);
        return NULL;
    }
    while (length > 0 && text[length - 1] == '\n')
        text[--length] = '\0';
    return text;
}

/* Runs a child and adds what it found to an array. */
static void add_result(const bench_plan *plan, const bench_peer *peer, const char *trace,
                       bench_json *json) {
    char path[] = "/tmp/vrampool-bench-XXXXXX";
    int file = mkstemp(path);
    if (file < 0) {
        (void)bench_fail("no file for a result: %s", strerror(errno));
        return;
    }
    (void)close(file);
    (void)fprintf(stderr, "%s%s%s\n", peer->id, trace != NULL ? ": " : "",
                  trace != NULL ? trace : "");
    int status = run_child(plan, peer, trace, path);
    char *text = read_text(path);
    (void)unlink(path);
    if (status == BENCH_OK && text != NULL) {
        bench_json_raw(json, NULL, text);
    } else {
        char why[64];
        (void)snprintf(why, sizeof why, status < 0 ? "took too long" : "ended with status %d",
                       status);
        bench_json_open(json, NULL, '{');
        bench_json_text(json, "allocator", peer->id);
        if (trace != NULL)
            bench_json_text(json, "trace", trace);
        bench_json_text(json, "failed", why);
        bench_json_close(json, '}');
        (void)bench_fail("%s %s", peer->id, why);
    }
    free(text);
}

static int named(const char *list, const char *id) {
    size_t length = strlen(id);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, id, length) == 0 && (at[length] == '\0' || at[length] == ','))
            return 1;
    }
    return list == NULL;
}

/* All allocators: the small measurements, or one trace after the other. */
static int collect(const bench_plan *plan, const char *path, int replays) {
    bench_json json;
    FILE *out = bench_open_out(path);
    if (out == NULL)
        return BENCH_FAILED;
    bench_json_begin(&json, out);
    bench_json_open(&json, NULL, '{');
    bench_json_text(&json, "device", plan->device.device);
    bench_json_open(&json, replays ? "replays" : "allocators", '[');
    for (uint32_t t = 0; t < (replays ? plan->trace_count : 1); t++)
        for (size_t i = 0; i < bench_peer_count; i++)
            if (named(plan->allocators, bench_peers[i].id))
                add_result(plan, &bench_peers[i], replays ? plan->traces[t] : NULL, &json);
    bench_json_close(&json, ']');
    bench_json_close(&json, '}');
    return bench_close_out(out);
}

static int dump(const bench_plan *plan) {
    bench_script script;
    if (plan->trace_count != 1)
        return bench_usage("--dump takes one --trace");
    int code = bench_script_read(&script, plan->traces[0]);
    if (code != BENCH_OK)
        return code;
    code = bench_script_dump(&script, plan->dump);
    (void)printf("{\"steps\": %llu, \"events\": %llu, \"blocks\": %llu, \"streams\": %u, "
                 "\"recorded_s\": %.3f}\n",
                 (unsigned long long)script.count, (unsigned long long)script.events,
                 (unsigned long long)script.blocks, script.streams,
                 (double)script.recorded_us / 1e6);
    bench_script_free(&script);
    return code;
}

int bench_peers_command(int count, char **words) {
    bench_plan plan;
    int help;
    int code = bench_plan_parse(&plan, count, words, &help);
    if (code != BENCH_OK || help)
        return help ? -1 : code;
    if (plan.dump != NULL)
        return dump(&plan);
    if (plan.json == NULL && plan.replays_json == NULL)
        return bench_usage("peers needs --json, --replays-json, or both");
    if (plan.replays_json != NULL && plan.trace_count == 0)
        return bench_usage("--replays-json needs a --trace");
    if (plan.json != NULL)
        code = collect(&plan, plan.json, 0);
    if (code == BENCH_OK && plan.replays_json != NULL)
        code = collect(&plan, plan.replays_json, 1);
    return code;
}
