/* SPDX-License-Identifier: MIT */
/* The value of --optimizer. */

#include <stdio.h>
#include <string.h>

#include "options.h"

void g3_optimizer_options_init(g3_optimizer_options *out_options) {
    out_options->on = true;
    vrp_optimizer_config_init(&out_options->config);
    out_options->config.options = VRP_OPTIMIZER_IDLE;
}

static const struct {
    const char *name;
    uint32_t bit;
} switches[] = {{"idle", VRP_OPTIMIZER_IDLE},
                {"keep", VRP_OPTIMIZER_KEEP},
                {"hysteresis", VRP_OPTIMIZER_HYSTERESIS},
                {"pressure", VRP_OPTIMIZER_PRESSURE}};

/* One NAME=VALUE. Writes what is wrong, if so. */
static bool set_word(const char *name, const char *value, vrp_optimizer_config *config,
                     char *message, size_t message_bytes) {
    uint64_t number = 0;
    if (strcmp(name, "threshold") == 0) {
        if (g3_size_parse(value, &config->threshold_bytes))
            return true;
        (void)snprintf(message, message_bytes, "threshold: \"%s\" is no size", value);
        return false;
    }
    if (strcmp(name, "interval") == 0) {
        if (g3_count_parse(value, &number) && number > 0 && number <= UINT32_MAX) {
            config->interval = (uint32_t)number;
            return true;
        }
        (void)snprintf(message, message_bytes, "interval: \"%s\" is no number from 1 to %u", value,
                       UINT32_MAX);
        return false;
    }
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        if (strcmp(name, switches[i].name) != 0)
            continue;
        const bool on = strcmp(value, "on") == 0;
        if (!on && strcmp(value, "off") != 0) {
            (void)snprintf(message, message_bytes, "%s: \"%s\" is neither on nor off", name, value);
            return false;
        }
        config->options =
            on ? config->options | switches[i].bit : config->options & ~switches[i].bit;
        return true;
    }
    (void)snprintf(message, message_bytes,
                   "\"%s\" is none of threshold, interval, idle, keep, hysteresis, pressure", name);
    return false;
}

bool g3_optimizer_parse(const char *text, g3_optimizer_options *options, char *message,
                        size_t message_bytes) {
    if (strcmp(text, "off") == 0) {
        options->on = false;
        return true;
    }
    g3_optimizer_options result = *options;
    result.on = true;
    char words[256];
    if (strlen(text) >= sizeof words || *text == '\0') {
        (void)snprintf(message, message_bytes, "\"%.60s\" is no list of NAME=VALUE, nor off", text);
        return false;
    }
    memcpy(words, text, strlen(text) + 1);
    for (char *word = words; word != NULL;) {
        char *comma = strchr(word, ',');
        if (comma != NULL)
            *comma = '\0';
        char *equals = strchr(word, '=');
        if (equals == NULL) {
            (void)snprintf(message, message_bytes, "\"%.60s\" is no NAME=VALUE", word);
            return false;
        }
        *equals = '\0';
        if (!set_word(word, equals + 1, &result.config, message, message_bytes))
            return false;
        word = comma != NULL ? comma + 1 : NULL;
    }
    *options = result;
    return true;
}
