/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_FOLDER_H
#define GEMMA3_FOLDER_H

/* The tensors of a Hugging Face folder: one model.safetensors, or several files
 * through model.safetensors.index.json. */

#include "config_read.h"
#include "index.h"
#include "safetensors.h"

typedef struct g3_folder_entry {
    const g3_st_tensor *tensor;
    const char *path; /* of the file that it is in */
} g3_folder_entry;

typedef struct g3_folder {
    g3_safetensors **files;
    size_t file_count;
    uint64_t header_bytes; /* of all files */
    g3_folder_entry *entries;
    size_t entry_count;
    g3_index index;
} g3_folder;

/* Errors: IO, INVALID, UNSUPPORTED, HOST_MEMORY; on failure the folder is still to
 * be closed. out_folder is all zero before. */
g3_status g3_folder_open(const char *path, g3_folder *out_folder, g3_error *error);
void g3_folder_close(g3_folder *folder); /* an all-zero one is allowed */

/* The tensor named prefix + name; NULL if absent. */
const g3_folder_entry *g3_folder_find(const g3_folder *folder, const char *prefix,
                                      const char *name);
/* Whether any tensor's name begins so. */
bool g3_folder_has(const g3_folder *folder, const char *prefix);

/* The configuration in config.json and, where they are, generation_config.json
 * and preprocessor_config.json. */
g3_status g3_folder_config(const char *path, g3_hf_config *out_config, g3_error *error);

/* path/name in new memory, NULL without memory. */
char *g3_folder_join(const char *path, const char *name);

#endif
