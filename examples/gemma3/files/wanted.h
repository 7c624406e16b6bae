/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_WANTED_H
#define GEMMA3_WANTED_H

/* The tensors that a configuration asks for, with their names in both formats
 * and their shapes. */

#include <stddef.h>

#include "config.h"
#include "tensor.h"

typedef enum g3_part { G3_PART_TEXT, G3_PART_OUTPUT, G3_PART_VISION, G3_PART_PROJECTOR } g3_part;

#define G3_WANTED_NAME 96

typedef struct g3_wanted {
    g3_part part;
    char gguf[G3_WANTED_NAME];
    char hf[G3_WANTED_NAME];    /* behind the prefix of its part */
    uint64_t dims[G3_MAX_DIMS]; /* fastest first; unused ones are 1 */
    bool dense;                 /* only F32, F16 or BF16 */
} g3_wanted;

/* How many there are; `output`: a matrix of the logits besides the embedding. */
size_t g3_wanted_count(const g3_config *config, bool output);

/* One of them; index is below the count. */
void g3_wanted_get(const g3_config *config, bool output, size_t index, g3_wanted *out_wanted);

#endif
