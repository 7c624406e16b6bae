/* SPDX-License-Identifier: MIT */
/* Fuzz target: a config.json, and behind zero bytes a generation_config.json and a
 * preprocessor_config.json. What is accepted is within bounds, and the tensors
 * that it asks for have names and shapes. */

#include "fuzz.h"

#include "files/config_read.h"
#include "files/json.h"
#include "files/wanted.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(const g3_hf_config *read) {
    const g3_text_config *text = &read->config.text;
    REQUIRE(text->layers > 0 && text->layers <= G3_MAX_LAYERS);
    REQUIRE(text->kv_heads > 0 && text->heads % text->kv_heads == 0);
    REQUIRE(text->head_dim > 0 && text->head_dim % 2 == 0 && text->window > 0);
    REQUIRE(text->rope_factor_global > 0 && isfinite(text->rope_factor_global));
    REQUIRE(text->attention_scale > 0 && isfinite(text->attention_scale));
    REQUIRE(read->config.tokens.stop_count <= G3_MAX_STOP_IDS);
    const size_t count = g3_wanted_count(&read->config, !read->tied);
    for (size_t i = 0; i < count; i++) {
        g3_wanted wanted;
        g3_wanted_get(&read->config, !read->tied, i, &wanted);
        REQUIRE(wanted.gguf[0] != '\0' && wanted.hf[0] != '\0');
        for (size_t d = 0; d < G3_MAX_DIMS; d++)
            REQUIRE(wanted.dims[d] > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    json_t *parts[3] = {NULL, NULL, NULL};
    g3_error error = {{0}};
    const uint8_t *at = data;
    const uint8_t *end = data + size;
    for (size_t i = 0; i < 3 && size > 0 && at <= end; i++) {
        const uint8_t *zero = at < end ? memchr(at, 0, (size_t)(end - at)) : NULL;
        const uint8_t *stop = zero == NULL ? end : zero;
        (void)g3_json_parse((const char *)at, (size_t)(stop - at), 0, 0, &parts[i], &error);
        at = stop + 1;
    }
    static g3_hf_config read;
    if (parts[0] != NULL && g3_config_from_hf(parts[0], parts[1], parts[2], &read, &error) == G3_OK)
        check(&read);
    for (size_t i = 0; i < 3; i++)
        json_decref(parts[i]);
    return 0;
}
