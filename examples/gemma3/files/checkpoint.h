/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_CHECKPOINT_H
#define GEMMA3_CHECKPOINT_H

/* A model on disk: a GGUF file, with an optional second one for vision
 * (mmproj), or a Hugging Face folder. Opening maps and validates everything:
 * metadata, bounds, types, that every tensor the configuration asks for is
 * there with its shape. Nothing is allocated on a device here. */

#include "config.h"
#include "error.h"
#include "tensor.h"

typedef struct g3_checkpoint g3_checkpoint;

/* path: a .gguf file or a folder with config.json. mmproj: a GGUF file, or NULL.
 * The checkpoint belongs to the caller. Errors: IO, INVALID (text names file,
 * key or tensor, and offset), UNSUPPORTED, HOST_MEMORY. */
g3_status g3_checkpoint_open(const char *path, const char *mmproj, g3_checkpoint **out_checkpoint,
                             g3_error *error);
void g3_checkpoint_close(g3_checkpoint *checkpoint); /* NULL is allowed */

const g3_config *g3_checkpoint_config(const g3_checkpoint *checkpoint);

/* The tensor by its GGUF name ("blk.3.attn_q.weight", "v.blk.0.ln1.bias",
 * "mm.input_projection.weight"), whatever the source; NULL if absent. Names of
 * a folder are translated; ffn_up and ffn_down of old mmproj files, which are
 * swapped, are given by their shape. */
const g3_tensor *g3_checkpoint_tensor(const g3_checkpoint *checkpoint, const char *gguf_name);

/* Whether RMS norm weights (of text and mm.soft_emb_norm) already hold the 1
 * that is added to them: true for GGUF, false for a folder. */
bool g3_checkpoint_norms_shifted(const g3_checkpoint *checkpoint);

/* Tells the system that the bytes of a tensor have been used (they leave the
 * page cache's mapping of this process; reading them again still works). */
void g3_checkpoint_done(const g3_checkpoint *checkpoint, const g3_tensor *tensor);

/* Sum of the bytes of all tensors, for a progress bar. */
uint64_t g3_checkpoint_tensor_bytes(const g3_checkpoint *checkpoint);

/* Where the vocabulary is: the GGUF file that was opened, or NULL for a folder,
 * whose path is then g3_checkpoint_path. */
struct g3_gguf;
const struct g3_gguf *g3_checkpoint_gguf(const g3_checkpoint *checkpoint);
const char *g3_checkpoint_path(const g3_checkpoint *checkpoint);

#endif
