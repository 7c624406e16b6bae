/* SPDX-License-Identifier: MIT */
/* Fuzz target: bytes as a safetensors file. What is accepted tiles the file, and
 * the first and last element of every tensor can be read. */

#include "fuzz.h"

#include "files/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_tensors(const g3_safetensors *file, const uint8_t *bytes, size_t size) {
    double sum = 0;
    uint64_t next = 0;
    for (size_t i = 0; i < g3_safetensors_count(file); i++) {
        const g3_st_tensor *tensor = g3_safetensors_at(file, i);
        uint64_t elements = 1;
        REQUIRE(g3_safetensors_find(file, tensor->name) == tensor);
        REQUIRE(tensor->data == bytes + tensor->offset && tensor->offset <= size);
        REQUIRE(tensor->bytes <= size - tensor->offset);
        REQUIRE(i == 0 || tensor->offset == next);
        next = tensor->offset + tensor->bytes;
        for (uint32_t d = 0; d < tensor->dim_count; d++)
            elements *= tensor->bytes == 0 ? 0 : tensor->shape[d];
        if (elements == 0)
            continue;
        sum += (double)g3_st_float(tensor, 0) + (double)g3_st_float(tensor, elements - 1);
        sum += (double)g3_st_int(tensor, 0) + (double)g3_st_int(tensor, elements - 1);
    }
    REQUIRE(g3_safetensors_count(file) == 0 || next == size);
    volatile double used = sum;
    (void)used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *bytes = malloc(size == 0 ? 1 : size);
    if (bytes == NULL)
        return 0;
    if (size > 0)
        memcpy(bytes, data, size);
    g3_safetensors *file = NULL;
    g3_error error = {{0}};
    g3_status status = g3_safetensors_parse(bytes, size, "fuzz", &file, &error);
    REQUIRE((status == G3_OK) == (file != NULL));
    REQUIRE(status == G3_OK || error.text[0] != '\0');
    if (file != NULL)
        check_tensors(file, bytes, size);
    g3_safetensors_close(file);
    free(bytes);
    return 0;
}
