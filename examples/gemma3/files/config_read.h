/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_CONFIG_READ_H
#define GEMMA3_CONFIG_READ_H

/* Configurations from files, for the checkpoint and its tests. */

#include <jansson.h>

#include "config.h"
#include "error.h"
#include "gguf.h"

/* What a Hugging Face folder says besides the shape. */
typedef struct g3_hf_config {
    g3_config config; /* name is empty; vision.present: there is a vision_config */
    bool rows_named;  /* vocab_size is there */
    bool tied;        /* the output is the embedding; else lm_head.weight is needed */
} g3_hf_config;

/* From config.json and, where not NULL, generation_config.json (stop ids) and
 * preprocessor_config.json (mean and deviation of pixels). Fields that are absent
 * have the defaults of the Gemma3 classes. Checked as by g3_config_check; texts
 * begin with the name of the file and the key. Errors: INVALID, UNSUPPORTED. */
g3_status g3_config_from_hf(const json_t *config, const json_t *generation,
                            const json_t *preprocessor, g3_hf_config *out_config, g3_error *error);

/* From the metadata of a text GGUF file; vision is left absent. Checked. */
g3_status g3_config_from_gguf(const g3_gguf *gguf, g3_config *out_config, g3_error *error);

/* From the metadata of an mmproj file, into config->vision; config->text is there
 * already. Checked. */
g3_status g3_config_from_mmproj(const g3_gguf *gguf, g3_config *config, g3_error *error);

/* Which field is outside of its bounds, by its keys in both kinds of files. */
typedef struct g3_config_fault {
    const char *gguf; /* "gemma3.block_count" */
    const char *hf;   /* "num_hidden_layers", below text_config or vision_config */
    enum { G3_FAULT_TOP, G3_FAULT_TEXT, G3_FAULT_VISION, G3_FAULT_PIXELS } part;
} g3_config_fault;

/* Bounds of config.h, and whether the fields agree. The text does not name the key,
 * out_fault does. Errors: INVALID. */
g3_status g3_config_check(const g3_config *config, g3_config_fault *out_fault, g3_error *error);

/* Adds an id that ends answers, unless it is there. false: no room. */
bool g3_config_add_stop(g3_token_config *tokens, int32_t id);

/* Every period-th layer is global, the others local. period > 0. */
void g3_config_pattern(g3_text_config *text, uint32_t period);

/* The name of a model for people: printable, cut to fit. */
void g3_config_name(g3_config *config, const char *bytes, size_t count);

#endif
