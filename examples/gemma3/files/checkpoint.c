/* SPDX-License-Identifier: MIT */
#include "checkpoint.h"

#include "config_read.h"
#include "folder.h"
#include "gguf_internal.h"
#include "index.h"
#include "map.h"
#include "wanted.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct g3_checkpoint {
    char *path;
    g3_config config;
    g3_gguf *gguf;   /* text; NULL for a folder */
    g3_gguf *mmproj; /* or NULL */
    bool swapped;    /* ffn_up and ffn_down of mmproj */
    g3_folder folder;
    const char *prefixes[G3_PART_PROJECTOR + 1]; /* of names in the folder */
    g3_tensor *tensors;                          /* named as in GGUF */
    char (*names)[G3_WANTED_NAME];
    size_t count;
    g3_index index;
    uint64_t bytes;
};

/* ---- Finding ------------------------------------------------------------------- */

static const char *const text_prefixes[] = {"model.", "language_model.model.",
                                            "model.language_model.", NULL};
static const char *const output_prefixes[] = {"", "language_model.", "model.language_model.",
                                              "model.", NULL};
static const char *const vision_prefixes[] = {"vision_tower.vision_model.", "vision_tower.",
                                              "model.vision_tower.vision_model.",
                                              "model.vision_tower.", NULL};
static const char *const projector_prefixes[] = {"multi_modal_projector.",
                                                 "model.multi_modal_projector.", NULL};

/* The prefix that a part's names have in this folder; the first one if none. */
static const char *prefix_of(const g3_folder *folder, const char *const *prefixes,
                             const char *name) {
    for (size_t i = 0; prefixes[i] != NULL; i++)
        if (g3_folder_find(folder, prefixes[i], name) != NULL)
            return prefixes[i];
    return prefixes[0];
}

static void find_prefixes(g3_checkpoint *checkpoint) {
    const g3_folder *folder = &checkpoint->folder;
    const char **prefixes = checkpoint->prefixes;
    prefixes[G3_PART_TEXT] = prefix_of(folder, text_prefixes, "embed_tokens.weight");
    prefixes[G3_PART_OUTPUT] = prefix_of(folder, output_prefixes, "lm_head.weight");
    prefixes[G3_PART_VISION] =
        prefix_of(folder, vision_prefixes, "embeddings.patch_embedding.weight");
    prefixes[G3_PART_PROJECTOR] =
        prefix_of(folder, projector_prefixes, "mm_input_projection_weight");
}

static bool has_vision_tensors(const g3_folder *folder) {
    for (size_t i = 0; vision_prefixes[i] != NULL; i++)
        if (g3_folder_has(folder, vision_prefixes[i]))
            return true;
    for (size_t i = 0; projector_prefixes[i] != NULL; i++)
        if (g3_folder_has(folder, projector_prefixes[i]))
            return true;
    return false;
}

/* A tensor of a folder in the form of GGUF, under its own name. */
static g3_status from_safetensors(const g3_folder_entry *entry, g3_tensor *out, g3_error *error) {
    const g3_st_tensor *tensor = entry->tensor;
    *out = (g3_tensor){.name = tensor->name,
                       .dim_count = tensor->dim_count == 0 ? 1 : tensor->dim_count,
                       .dims = {1, 1, 1, 1},
                       .data = tensor->data,
                       .bytes = tensor->bytes,
                       .offset = tensor->offset,
                       .path = entry->path};
    switch (tensor->type) {
    case G3_ST_F32:
        out->type = G3_F32;
        break;
    case G3_ST_F16:
        out->type = G3_F16;
        break;
    case G3_ST_BF16:
        out->type = G3_BF16;
        break;
    case G3_ST_I32:
    case G3_ST_I64:
    case G3_ST_OTHER:
    default:
        return g3_fail(error, G3_UNSUPPORTED,
                       "%.200s: tensor '%.120s' at offset %" PRIu64
                       " has type %s; F32, F16 or BF16 is needed",
                       entry->path, tensor->name, tensor->offset, tensor->dtype);
    }
    if (tensor->dim_count > G3_MAX_DIMS)
        return g3_fail(error, G3_INVALID,
                       "%.200s: tensor '%.120s' at offset %" PRIu64 " has %" PRIu32 " dimensions",
                       entry->path, tensor->name, tensor->offset, tensor->dim_count);
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        out->dims[i] = tensor->shape[tensor->dim_count - 1 - i];
    return G3_OK;
}

static g3_status find_in_folder(const g3_checkpoint *checkpoint, const g3_wanted *wanted,
                                g3_tensor *out, g3_error *error) {
    const char *prefix = checkpoint->prefixes[wanted->part];
    const g3_folder_entry *entry = g3_folder_find(&checkpoint->folder, prefix, wanted->hf);
    if (entry == NULL)
        return g3_fail(error, G3_INVALID, "%.200s: tensor '%s%s' is missing", checkpoint->path,
                       prefix, wanted->hf);
    return from_safetensors(entry, out, error);
}

/* The name in an old mmproj file whose feed-forward matrices are swapped. */
static const char *swapped_name(const char *name, char out[G3_WANTED_NAME]) {
    const char *up = strstr(name, ".ffn_up.");
    const char *down = strstr(name, ".ffn_down.");
    if (up != NULL)
        (void)snprintf(out, G3_WANTED_NAME, "%.*s.ffn_down.%s", (int)(up - name), name, up + 8);
    else if (down != NULL)
        (void)snprintf(out, G3_WANTED_NAME, "%.*s.ffn_up.%s", (int)(down - name), name, down + 10);
    else
        return name;
    return out;
}

static g3_status find_in_gguf(const g3_checkpoint *checkpoint, const g3_wanted *wanted,
                              g3_tensor *out, g3_error *error) {
    const bool text = wanted->part == G3_PART_TEXT || wanted->part == G3_PART_OUTPUT;
    char other[G3_WANTED_NAME];
    const char *name =
        !text && checkpoint->swapped ? swapped_name(wanted->gguf, other) : wanted->gguf;
    const g3_gguf *gguf = text ? checkpoint->gguf : checkpoint->mmproj;
    const g3_tensor *tensor = g3_gguf_find(gguf, name);
    if (tensor == NULL)
        return g3_fail(error, G3_INVALID, "%.200s: tensor '%s' is missing", gguf->name, name);
    *out = *tensor;
    return G3_OK;
}

static bool is_swapped(const g3_gguf *mmproj, const g3_vision_config *vision) {
    const g3_tensor *up = g3_gguf_find(mmproj, "v.blk.0.ffn_up.weight");
    return up != NULL && vision->hidden != vision->feed_forward &&
           up->dims[0] == vision->feed_forward && up->dims[1] == vision->hidden;
}

/* ---- Validating ---------------------------------------------------------------- */

/* "[640, 1024]" without the ones at the end. */
static void write_shape(const uint64_t dims[G3_MAX_DIMS], char *out, size_t room) {
    size_t count = G3_MAX_DIMS;
    while (count > 1 && dims[count - 1] == 1)
        count--;
    size_t at = 0;
    for (size_t i = 0; i < count && at < room; i++)
        at += (size_t)snprintf(out + at, room - at, "%s%" PRIu64, i == 0 ? "[" : ", ", dims[i]);
    if (at < room)
        (void)snprintf(out + at, room - at, "]");
}

static g3_status validate(const g3_wanted *wanted, const g3_tensor *tensor, g3_error *error) {
    if (memcmp(wanted->dims, tensor->dims, sizeof tensor->dims) != 0) {
        char found[96];
        char expected[96];
        write_shape(tensor->dims, found, sizeof found);
        write_shape(wanted->dims, expected, sizeof expected);
        return g3_fail(error, G3_INVALID,
                       "%.160s: tensor '%.96s' at offset %" PRIu64
                       " has shape %s, %s is expected (row length first)",
                       tensor->path, tensor->name, tensor->offset, found, expected);
    }
    if (g3_type_info_get(tensor->type) == NULL)
        return g3_fail(
            error, G3_UNSUPPORTED,
            "%.160s: tensor '%.96s' at offset %" PRIu64 " has type %s, which is not read",
            tensor->path, tensor->name, tensor->offset, g3_type_layout(tensor->type)->name);
    if (wanted->dense && tensor->type != G3_F32 && tensor->type != G3_F16 &&
        tensor->type != G3_BF16)
        return g3_fail(
            error, G3_UNSUPPORTED,
            "%.160s: tensor '%s' at offset %" PRIu64 " has type %s; F32, F16 or BF16 is needed",
            tensor->path, tensor->name, tensor->offset, g3_type_info_get(tensor->type)->name);
    return G3_OK;
}

static g3_status collect(g3_checkpoint *checkpoint, bool output, g3_error *error) {
    const size_t count = g3_wanted_count(&checkpoint->config, output);
    checkpoint->tensors = calloc(count, sizeof *checkpoint->tensors);
    checkpoint->names = calloc(count, sizeof *checkpoint->names);
    if (checkpoint->tensors == NULL || checkpoint->names == NULL ||
        !g3_index_create(&checkpoint->index, count))
        return g3_fail(error, G3_HOST_MEMORY, "no memory for %zu tensors", count);
    for (size_t i = 0; i < count; i++) {
        g3_wanted wanted;
        g3_tensor *tensor = &checkpoint->tensors[i];
        g3_wanted_get(&checkpoint->config, output, i, &wanted);
        g3_status status = checkpoint->gguf != NULL
                               ? find_in_gguf(checkpoint, &wanted, tensor, error)
                               : find_in_folder(checkpoint, &wanted, tensor, error);
        if (status != G3_OK)
            return status;
        status = validate(&wanted, tensor, error); /* its name in the file is what a text shows */
        if (status != G3_OK)
            return status;
        memcpy(checkpoint->names[i], wanted.gguf, sizeof wanted.gguf);
        tensor->name = checkpoint->names[i];
        (void)g3_index_add(&checkpoint->index, tensor->name, strlen(tensor->name), i);
        checkpoint->bytes += tensor->bytes;
        checkpoint->count++;
    }
    return G3_OK;
}

/* ---- Opening ------------------------------------------------------------------- */

/* The last part of the path, for files that have no name of their own. */
static void name_from_path(g3_checkpoint *checkpoint) {
    /* A folder may be "."; a file may be a link to a worse name. */
    char *whole = checkpoint->gguf == NULL ? realpath(checkpoint->path, NULL) : NULL;
    const char *path = whole != NULL ? whole : checkpoint->path;
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL && slash[1] != '\0' ? slash + 1 : path;
    size_t count = strlen(name);
    if (checkpoint->gguf != NULL && count > 5 && strcmp(name + count - 5, ".gguf") == 0)
        count -= 5;
    g3_config_name(&checkpoint->config, name, count);
    free(whole);
}

static g3_status refuse_split(const g3_gguf *gguf, const char *path, g3_error *error) {
    uint32_t parts = 1;
    bool found = false;
    g3_status status = g3_gguf_u32(gguf, "split.count", &parts, &found, error);
    if (status == G3_OK && found && parts > 1)
        status =
            g3_fail(error, G3_UNSUPPORTED,
                    "%.200s: one of %" PRIu32 " parts of a model; parts are not read", path, parts);
    return status;
}

static g3_status open_ggufs(g3_checkpoint *checkpoint, const char *mmproj, g3_error *error) {
    g3_status status = g3_gguf_open(checkpoint->path, &checkpoint->gguf, error);
    if (status == G3_OK)
        status = refuse_split(checkpoint->gguf, checkpoint->path, error);
    if (status == G3_OK)
        status = g3_config_from_gguf(checkpoint->gguf, &checkpoint->config, error);
    if (status == G3_OK && mmproj != NULL)
        status = g3_gguf_open(mmproj, &checkpoint->mmproj, error);
    if (status == G3_OK && mmproj != NULL)
        status = g3_config_from_mmproj(checkpoint->mmproj, &checkpoint->config, error);
    if (status != G3_OK)
        return status;
    if (mmproj != NULL)
        checkpoint->swapped = is_swapped(checkpoint->mmproj, &checkpoint->config.vision);
    if (checkpoint->config.name[0] == '\0')
        name_from_path(checkpoint);
    return collect(checkpoint, g3_gguf_find(checkpoint->gguf, "output.weight") != NULL, error);
}

/* The rows of the table win over a size that nobody named, and over the other one of the
 * two sizes that published models have with and without padding: text parts of larger models
 * come with the whole config.json. */
static void settle_rows(const g3_folder *folder, const char *prefix, bool named,
                        uint32_t *io_rows) {
    enum { PLAIN_ROWS = 262144, PADDED_ROWS = 262208 };
    const g3_folder_entry *entry = g3_folder_find(folder, prefix, "embed_tokens.weight");
    const uint64_t rows =
        entry == NULL || entry->tensor->dim_count != 2 ? 0 : entry->tensor->shape[0];
    const bool published = (*io_rows == PLAIN_ROWS || *io_rows == PADDED_ROWS) &&
                           (rows == PLAIN_ROWS || rows == PADDED_ROWS);
    if (rows > 0 && rows <= G3_MAX_VOCAB && (published || !named))
        *io_rows = (uint32_t)rows;
}

static g3_status open_folder(g3_checkpoint *checkpoint, const char *mmproj, g3_error *error) {
    if (mmproj != NULL)
        return g3_fail(error, G3_INVALID,
                       "%.200s: an mmproj file goes with a GGUF file, not with a folder",
                       checkpoint->path);
    g3_hf_config read;
    g3_status status = g3_folder_config(checkpoint->path, &read, error);
    if (status != G3_OK)
        return status;
    checkpoint->config = read.config;
    name_from_path(checkpoint);
    status = g3_folder_open(checkpoint->path, &checkpoint->folder, error);
    if (status != G3_OK)
        return status;
    find_prefixes(checkpoint);
    settle_rows(&checkpoint->folder, checkpoint->prefixes[G3_PART_TEXT], read.rows_named,
                &checkpoint->config.text.vocab);
    /* Text parts of larger models are published with the whole config.json. */
    if (checkpoint->config.vision.present && !has_vision_tensors(&checkpoint->folder))
        checkpoint->config.vision = (g3_vision_config){.present = false};
    return collect(checkpoint, !read.tied, error);
}

g3_status g3_checkpoint_open(const char *path, const char *mmproj, g3_checkpoint **out_checkpoint,
                             g3_error *error) {
    *out_checkpoint = NULL;
    struct stat about;
    if (stat(path, &about) != 0)
        return g3_fail(error, G3_IO, "%s: %s", path, strerror(errno));
    g3_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (checkpoint == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "%s: no memory", path);
    checkpoint->path = strdup(path);
    g3_status status = G3_OK;
    if (checkpoint->path == NULL)
        status = g3_fail(error, G3_HOST_MEMORY, "%s: no memory", path);
    else if (S_ISDIR(about.st_mode))
        status = open_folder(checkpoint, mmproj, error);
    else
        status = open_ggufs(checkpoint, mmproj, error);
    if (status != G3_OK) {
        g3_checkpoint_close(checkpoint);
        return status;
    }
    *out_checkpoint = checkpoint;
    return G3_OK;
}

void g3_checkpoint_close(g3_checkpoint *checkpoint) {
    if (checkpoint == NULL)
        return;
    g3_index_free(&checkpoint->index);
    free(checkpoint->tensors);
    free(checkpoint->names);
    g3_folder_close(&checkpoint->folder);
    g3_gguf_close(checkpoint->gguf);
    g3_gguf_close(checkpoint->mmproj);
    free(checkpoint->path);
    free(checkpoint);
}

/* ---- Answers ------------------------------------------------------------------- */

const g3_config *g3_checkpoint_config(const g3_checkpoint *checkpoint) {
    return &checkpoint->config;
}

const g3_tensor *g3_checkpoint_tensor(const g3_checkpoint *checkpoint, const char *gguf_name) {
    size_t position = 0;
    if (!g3_index_find(&checkpoint->index, gguf_name, strlen(gguf_name), &position))
        return NULL;
    return &checkpoint->tensors[position];
}

bool g3_checkpoint_norms_shifted(const g3_checkpoint *checkpoint) {
    return checkpoint->gguf != NULL;
}

void g3_checkpoint_done(const g3_checkpoint *checkpoint, const g3_tensor *tensor) {
    (void)checkpoint;
    g3_map_done(tensor->data, tensor->bytes);
}

uint64_t g3_checkpoint_tensor_bytes(const g3_checkpoint *checkpoint) { return checkpoint->bytes; }

const g3_gguf *g3_checkpoint_gguf(const g3_checkpoint *checkpoint) { return checkpoint->gguf; }

const char *g3_checkpoint_path(const g3_checkpoint *checkpoint) { return checkpoint->path; }
