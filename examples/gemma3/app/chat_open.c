/* SPDX-License-Identifier: MIT */
/* The beginning and the end of a chat. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <vrampool/inspect.h>

#include "chat.h"
#include "commands.h"
#include "verify_setup.h"

int g3_chat_stop(void *user) {
    (void)user;
    return g3_interrupt_count() > 0;
}

/* ---- Opening --------------------------------------------------------------------- */

/* A bar on the terminal, and nothing of it left at the end. */
static void progress(void *user, uint64_t done, uint64_t total) {
    static const char full[] = "########################################";
    enum { WIDTH = sizeof full - 1 };
    int *last = (int *)user;
    const int percent = total > 0 ? (int)((double)done / (double)total * 100.0) : 100;
    if (percent == *last)
        return;
    *last = percent;
    if (percent < 100)
        (void)fprintf(stderr, "\rloading [%-*.*s] %3d%%", (int)WIDTH, percent * (int)WIDTH / 100,
                      full, percent);
    else
        (void)fprintf(stderr, "\r%*s\r", (int)WIDTH + 16, "");
}

static g3_status load(g3_chat *chat, g3_error *error) {
    const g3_chat_options *o = &chat->options;
    g3_status status = g3_checkpoint_open(o->model, o->mmproj, &chat->checkpoint, error);
    if (status == G3_OK)
        status = g3_tokenizer_open(chat->checkpoint, &chat->tokenizer, error);
    if (status == G3_OK && g3_tokenizer_made_up(chat->tokenizer))
        (void)fprintf(stderr, "gemma3 chat: %s brings no vocabulary: a token is a byte\n",
                      o->model);
    if (status == G3_OK)
        status = g3_memory_open(o->device, o->backing, &chat->memory, error);
    if (status != G3_OK)
        return status;
    chat->memory_open = true;
    if (o->trace != NULL)
        status = g3_recorder_open(o->trace, &chat->memory, &chat->recorder, error);
    if (status != G3_OK)
        return status;
    g3_recorder_mark(chat->recorder, VRP_MARKER_LOAD);
    int percent = -1;
    const bool shown = !o->quiet && isatty(STDERR_FILENO) != 0;
    return g3_model_load(&chat->memory, chat->checkpoint, (g3_precision)o->precision, G3_FAULT_NONE,
                         shown ? progress : NULL, &percent, &chat->model, error);
}

static g3_status make_format(g3_chat *chat, g3_error *error) {
    const g3_config *config = &chat->model->config;
    const g3_special *special = g3_tokenizer_special(chat->tokenizer);
    const g3_token_config *ids = &config->tokens;
    chat->format = (g3_template){
        .tokenizer = chat->tokenizer,
        .image_tokens = config->vision.present ? config->vision.tokens : 0,
        .image_begin = ids->image_begin, /* without them the format takes the vocabulary's */
        .image_end = ids->image_end,
        .image = ids->image != G3_NO_ID ? ids->image : special->image};
    g3_stops_collect(ids, special, &chat->stops);
    if (chat->options.style != G3_CHAT_STYLE_AUTO) {
        chat->format.style = (g3_style)chat->options.style;
        return G3_OK;
    }
    return g3_style_of(chat->checkpoint, chat->tokenizer, &chat->format.style, error);
}

static g3_status open_session(g3_chat *chat, g3_error *error) {
    const g3_chat_options *o = &chat->options;
    const g3_session_options options = {.context = (uint32_t)o->context,
                                        .chunk = (uint32_t)o->chunk,
                                        .kv_type = (g3_kv_type)o->kv_type,
                                        .stop = g3_chat_stop};
    const size_t vocab = chat->model->output.rows;
    chat->logits = (float *)malloc(vocab * sizeof *chat->logits);
    chat->candidates = (g3_candidate *)malloc(vocab * sizeof *chat->candidates);
    if (chat->logits == NULL || chat->candidates == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "no host memory for the logits");
    chat->sampler = (g3_sampler){.temperature = (float)o->temperature,
                                 .top_k = (uint32_t)o->top_k,
                                 .top_p = (float)o->top_p,
                                 .seed = o->seed};
    return g3_session_create(chat->model, &options, &chat->session, error);
}

static g3_status join_system(g3_chat *chat, g3_error *error) {
    g3_string text = {0};
    const g3_texts *parts = &chat->options.system;
    for (size_t i = 0; i < parts->count; i++) {
        g3_status status = i > 0 ? g3_string_append(&text, "\n\n", 2, error) : G3_OK;
        if (status == G3_OK)
            status = g3_string_append(&text, parts->texts[i], strlen(parts->texts[i]), error);
        if (status != G3_OK) {
            g3_string_free(&text);
            return status;
        }
    }
    if (text.bytes != NULL)
        text.bytes[g3_template_clean(text.bytes, text.count)] = '\0';
    chat->system_text = text.bytes;
    return G3_OK;
}

static g3_status open_optimizer(g3_chat *chat, g3_error *error) {
    if (!chat->options.optimizer.on)
        return G3_OK;
    const vrp_status status =
        vrp_optimizer_create(chat->memory.pool, &chat->options.optimizer.config, &chat->optimizer);
    return status == VRP_OK
               ? G3_OK
               : g3_fail(error, G3_DEVICE, "the optimizer: %s", vrp_status_name(status));
}

static void remember(g3_chat *chat) {
    g3_memory_report report = {0};
    (void)g3_memory_report_get(&chat->memory, &report, NULL);
    (void)snprintf(chat->name, sizeof chat->name, "%s", chat->model->config.name);
    chat->weights_bytes = report.weights_bytes;
    chat->device_bytes = report.device_total_bytes;
    chat->context = g3_session_context(chat->session);
    chat->peak_allocated_bytes = report.peak_allocated_bytes;
    chat->peak_reserved_bytes = report.peak_reserved_bytes;
}

g3_status g3_chat_open(g3_chat *chat, g3_error *error) {
    const g3_chat_options *o = &chat->options;
    chat->unfed = G3_NO_ID;
    chat->conversation = 1;
    chat->scripted = o->script != NULL;
#ifdef _OPENMP
    if (o->threads > 0)
        omp_set_num_threads((int)o->threads);
#endif
    g3_status status = g3_input_open(o->script, &chat->input, error);
    if (status == G3_OK)
        status = g3_setup_check_json(o->stats_json, error);
    if (status == G3_OK)
        status = load(chat, error);
    if (status != G3_OK)
        return status;
    status = make_format(chat, error);
    if (status == G3_OK)
        status = open_session(chat, error);
    if (status == G3_OK)
        status = join_system(chat, error);
    if (status == G3_OK)
        status = open_optimizer(chat, error);
    if (status == G3_OK)
        remember(chat);
    return status;
}

/* ---- Closing --------------------------------------------------------------------- */

typedef struct ending {
    char pool_check[256];
    vrp_optimizer_stats optimizer;
    bool optimizer_known;
    uint64_t left;
    bool failed;
} ending;

static void complain(ending *end, const char *what, const g3_error *error) {
    (void)fprintf(stderr, "gemma3 chat: %s%s\n", what, error->text);
    end->failed = true;
}

static void check_pool(g3_chat *chat, ending *end) {
    (void)snprintf(end->pool_check, sizeof end->pool_check, "ok");
    const vrp_status status = vrp_pool_check(chat->memory.pool);
    if (status == VRP_OK)
        return;
    vrp_error_detail detail = {.struct_size = sizeof detail};
    if (vrp_error_detail_get(&detail) != VRP_OK)
        detail.message[0] = '\0';
    (void)snprintf(end->pool_check, sizeof end->pool_check, "%s: %s", vrp_status_name(status),
                   detail.message);
    (void)fprintf(stderr, "gemma3 chat: the pool's check: %s\n", end->pool_check);
    end->failed = true;
}

/* Everything on the device goes, in reverse order, and what stays is an error. */
static void close_memory(g3_chat *chat, ending *end) {
    g3_error error = {{0}};
    g3_session_destroy(chat->session);
    g3_model_free(chat->model);
    if (chat->optimizer != NULL) {
        end->optimizer.struct_size = sizeof end->optimizer;
        end->optimizer_known = vrp_optimizer_stats_get(chat->optimizer, &end->optimizer) == VRP_OK;
        vrp_optimizer_destroy(chat->optimizer);
    }
    if (g3_recorder_close(chat->recorder, &error) != G3_OK)
        complain(end, "--trace: ", &error);
    if (!chat->memory_open)
        return;
    check_pool(chat, end);
    const uint64_t retries = chat->memory.retries;
    const uint64_t failures = chat->memory.failures;
    if (g3_memory_close(&chat->memory, &end->left, &error) != G3_OK)
        complain(end, "", &error);
    chat->memory.retries = retries;
    chat->memory.failures = failures;
    if (end->left > 0) {
        (void)g3_fail(&error, G3_DEVICE, "%llu bytes are still on the device",
                      (unsigned long long)end->left);
        complain(end, "", &error);
    }
}

static void close_host(g3_chat *chat) {
    for (size_t i = 0; i < chat->turn_count; i++) {
        free(chat->turns[i].user);
        free(chat->turns[i].answer);
    }
    g3_chat_pictures_drop(chat);
    free(chat->turns);
    free(chat->clears);
    free(chat->shortenings);
    free(chat->system_text);
    free(chat->candidates);
    free(chat->logits);
    g3_tokenizer_close(chat->tokenizer);
    g3_checkpoint_close(chat->checkpoint);
    g3_input_close(&chat->input);
}

int g3_chat_close(g3_chat *chat) {
    g3_error error = {{0}};
    ending end = {.failed = false};
    const bool ran = chat->session != NULL;
    close_memory(chat, &end);
    if (ran && chat->options.stats_json != NULL) {
        json_t *root = g3_stats_run(chat, end.pool_check,
                                    end.optimizer_known ? &end.optimizer : NULL, end.left);
        if (g3_setup_write_json(root, chat->options.stats_json, &error) != G3_OK)
            complain(&end, "--stats-json: ", &error);
    }
    const bool failed = end.failed || (chat->scripted && chat->mistakes > 0);
    const bool refused = chat->scripted && chat->refused > 0;
    close_host(chat);
    if (failed)
        return G3_EXIT_FAILED;
    return refused ? G3_EXIT_REFUSED : G3_EXIT_OK;
}
