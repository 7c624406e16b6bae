/* SPDX-License-Identifier: MIT */
/* Fuzz target: bytes as a GGUF file. What is accepted lies in the file, strings
 * walk to their end, and both kinds of configuration are read from it. */

#include "fuzz.h"

#include "files/config_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_tensors(const g3_gguf *gguf, const uint8_t *bytes, size_t size) {
    uint8_t sum = 0;
    for (size_t i = 0; i < g3_gguf_tensor_count(gguf); i++) {
        const g3_tensor *tensor = g3_gguf_tensor(gguf, i);
        REQUIRE(g3_gguf_find(gguf, tensor->name) == tensor);
        REQUIRE(tensor->data >= bytes && tensor->data <= bytes + size);
        REQUIRE(tensor->bytes <= size - (size_t)(tensor->data - bytes));
        if (tensor->bytes > 0)
            sum ^= tensor->data[0] ^ tensor->data[tensor->bytes - 1];
    }
    volatile uint8_t used = sum;
    (void)used;
}

static void check_array(const g3_gguf *gguf, const char *key) {
    g3_error error = {{0}};
    g3_array array = {0};
    g3_text text = {0};
    bool found = false;
    uint64_t cursor = 0;
    uint64_t count = 0;
    if (g3_gguf_array(gguf, key, &array, &found, &error) != G3_OK || !found)
        return;
    while (g3_array_next_string(&array, &cursor, &text))
        count++;
    REQUIRE(count == 0 || (count == array.count && cursor == array.bytes));
    if (array.count > 0) {
        volatile double number = g3_array_number(&array, array.count - 1);
        (void)number;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    /* A copy of exactly this size: a sanitizer sees the byte behind it. */
    uint8_t *bytes = malloc(size == 0 ? 1 : size);
    if (bytes == NULL)
        return 0;
    if (size > 0)
        memcpy(bytes, data, size);
    g3_gguf *gguf = NULL;
    g3_error error = {{0}};
    g3_status status = g3_gguf_parse(bytes, size, "fuzz", &gguf, &error);
    REQUIRE((status == G3_OK) == (gguf != NULL));
    REQUIRE(status == G3_OK || error.text[0] != '\0');
    if (gguf != NULL) {
        static g3_config config;
        check_tensors(gguf, bytes, size);
        check_array(gguf, "tokenizer.ggml.tokens");
        check_array(gguf, "tokenizer.ggml.scores");
        check_array(gguf, "clip.vision.image_mean");
        if (g3_config_from_gguf(gguf, &config, &error) == G3_OK)
            REQUIRE(config.text.layers <= G3_MAX_LAYERS && config.text.heads > 0);
        config.text.hidden = 64;
        if (g3_config_from_mmproj(gguf, &config, &error) == G3_OK)
            REQUIRE(config.vision.present);
    }
    g3_gguf_close(gguf);
    free(bytes);
    return 0;
}
