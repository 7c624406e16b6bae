/* SPDX-License-Identifier: MIT */
#include "folder.h"

#include "json.h"
#include "map.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_CONFIG_BYTES ((size_t)16 << 20)
#define MAX_INDEX_BYTES ((size_t)100 << 20)
#define MAX_FILES 1000u
#define MAX_HEADER_BYTES ((uint64_t)101 << 20) /* of all files; a 27B model has 0.2 MB */
#define MAX_TENSOR_NAME 512u

char *g3_folder_join(const char *path, const char *name) {
    char *joined = NULL;
    return asprintf(&joined, "%s/%s", path, name) < 0 ? NULL : joined;
}

static g3_status no_memory(g3_error *error) {
    return g3_fail(error, G3_HOST_MEMORY, "no memory for a model folder");
}

static bool exists(const char *path, const char *name) {
    const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool there = folder >= 0 && faccessat(folder, name, F_OK, 0) == 0;
    if (folder >= 0)
        (void)close(folder);
    return there;
}

/* ---- Files --------------------------------------------------------------------- */

/* The file's place among those that are open, opening it if need be. */
static g3_status open_file(g3_folder *folder, const char *path, const char *name, size_t *out_at,
                           g3_error *error) {
    char *joined = g3_folder_join(path, name);
    if (joined == NULL)
        return no_memory(error);
    size_t at = 0;
    /* The last one is the likeliest: an index is sorted. */
    if (folder->file_count > 0 &&
        strcmp(g3_safetensors_path(folder->files[folder->file_count - 1]), joined) == 0)
        at = folder->file_count - 1;
    while (at < folder->file_count && strcmp(g3_safetensors_path(folder->files[at]), joined) != 0)
        at++;
    g3_status status = G3_OK;
    if (at == MAX_FILES)
        status = g3_fail(error, G3_UNSUPPORTED, "more than %u files", MAX_FILES);
    else if (at == folder->file_count)
        status = g3_safetensors_open(joined, &folder->files[at], error);
    if (status == G3_OK && at == folder->file_count) {
        folder->file_count++;
        folder->header_bytes += g3_safetensors_header_bytes(folder->files[at]);
        if (folder->header_bytes > MAX_HEADER_BYTES)
            status = g3_fail(error, G3_INVALID, "the headers of its files take more than %u MiB",
                             (unsigned)(MAX_HEADER_BYTES >> 20));
    }
    free(joined);
    *out_at = at;
    return status;
}

static void add_entry(g3_folder *folder, const g3_st_tensor *tensor, const char *path) {
    if (g3_index_add(&folder->index, tensor->name, strlen(tensor->name), folder->entry_count))
        folder->entries[folder->entry_count++] = (g3_folder_entry){tensor, path};
}

static g3_status make_room(g3_folder *folder, size_t entries, g3_error *error) {
    folder->entries = calloc(entries + 1, sizeof *folder->entries);
    if (folder->entries == NULL || !g3_index_create(&folder->index, entries))
        return no_memory(error);
    return G3_OK;
}

static g3_status open_single(g3_folder *folder, const char *path, g3_error *error) {
    size_t at = 0;
    g3_status status = open_file(folder, path, "model.safetensors", &at, error);
    if (status != G3_OK)
        return status;
    const g3_safetensors *file = folder->files[at];
    status = make_room(folder, g3_safetensors_count(file), error);
    for (size_t i = 0; status == G3_OK && i < g3_safetensors_count(file); i++)
        add_entry(folder, g3_safetensors_at(file, i), g3_safetensors_path(file));
    return status;
}

/* A name inside the folder, and nothing else. */
static bool is_plain_name(const char *name) {
    return name != NULL && name[0] != '\0' && strlen(name) <= 255 && strpbrk(name, "/\\") == NULL &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static g3_status map_entry(g3_folder *folder, const char *path, const char *tensor_name,
                           const char *file_name, g3_error *error) {
    char shown[96];
    char shown_file[96];
    (void)g3_printable(tensor_name, strlen(tensor_name), shown, sizeof shown);
    if (!is_plain_name(file_name))
        return g3_fail(error, G3_INVALID,
                       "weight_map: tensor '%s' is not mapped to the name of a file in the folder",
                       shown);
    size_t at = 0;
    g3_status status = open_file(folder, path, file_name, &at, error);
    if (status != G3_OK)
        return status;
    const g3_st_tensor *tensor = g3_safetensors_find(folder->files[at], tensor_name);
    if (tensor == NULL)
        return g3_fail(error, G3_INVALID, "weight_map: tensor '%s' is not in '%s'", shown,
                       g3_printable(file_name, strlen(file_name), shown_file, sizeof shown_file));
    add_entry(folder, tensor, g3_safetensors_path(folder->files[at]));
    return G3_OK;
}

static g3_status open_sharded(g3_folder *folder, const char *path, json_t *index, g3_error *error) {
    json_t *map = json_object_get(index, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        return g3_fail(error, G3_INVALID, "no weight_map");
    g3_status status = make_room(folder, json_object_size(map), error);
    for (void *at = json_object_iter(map); status == G3_OK && at != NULL;
         at = json_object_iter_next(map, at))
        status = map_entry(folder, path, json_object_iter_key(at),
                           json_string_value(json_object_iter_value(at)), error);
    return status;
}

g3_status g3_folder_open(const char *path, g3_folder *out_folder, g3_error *error) {
    static const char index_name[] = "model.safetensors.index.json";
    out_folder->files = calloc(MAX_FILES, sizeof *out_folder->files);
    if (out_folder->files == NULL)
        return no_memory(error);
    if (exists(path, "model.safetensors"))
        return open_single(out_folder, path, error);
    if (!exists(path, index_name))
        return g3_fail(error, G3_IO, "%s: neither model.safetensors nor %s is there", path,
                       index_name);
    char *joined = g3_folder_join(path, index_name);
    json_t *index = NULL;
    g3_status status =
        joined == NULL ? no_memory(error) : g3_json_load(joined, MAX_INDEX_BYTES, 0, &index, error);
    if (status == G3_OK) {
        status = open_sharded(out_folder, path, index, error);
        if (status != G3_OK)
            (void)g3_fail_in(error, status, joined);
    }
    json_decref(index);
    free(joined);
    return status;
}

void g3_folder_close(g3_folder *folder) {
    for (size_t i = 0; i < folder->file_count; i++)
        g3_safetensors_close(folder->files[i]);
    free(folder->files);
    free(folder->entries);
    g3_index_free(&folder->index);
    *folder = (g3_folder){0};
}

const g3_folder_entry *g3_folder_find(const g3_folder *folder, const char *prefix,
                                      const char *name) {
    char whole[MAX_TENSOR_NAME];
    size_t position = 0;
    const int count = snprintf(whole, sizeof whole, "%s%s", prefix, name);
    if (count < 0 || (size_t)count >= sizeof whole ||
        !g3_index_find(&folder->index, whole, (size_t)count, &position))
        return NULL;
    return &folder->entries[position];
}

bool g3_folder_has(const g3_folder *folder, const char *prefix) {
    for (size_t i = 0; i < folder->entry_count; i++)
        if (strncmp(folder->entries[i].tensor->name, prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

/* ---- Configuration ------------------------------------------------------------- */

/* NULL in out_json where an optional file is absent. */
static g3_status load(const char *path, const char *name, bool optional, json_t **out_json,
                      g3_error *error) {
    *out_json = NULL;
    if (optional && !exists(path, name))
        return G3_OK;
    char *joined = g3_folder_join(path, name);
    g3_status status = joined == NULL ? no_memory(error)
                                      : g3_json_load(joined, MAX_CONFIG_BYTES, 0, out_json, error);
    free(joined);
    return status;
}

g3_status g3_folder_config(const char *path, g3_hf_config *out_config, g3_error *error) {
    json_t *config = NULL;
    json_t *generation = NULL;
    json_t *preprocessor = NULL;
    g3_status status = load(path, "config.json", false, &config, error);
    if (status == G3_OK)
        status = load(path, "generation_config.json", true, &generation, error);
    if (status == G3_OK)
        status = load(path, "preprocessor_config.json", true, &preprocessor, error);
    if (status == G3_OK) {
        status = g3_config_from_hf(config, generation, preprocessor, out_config, error);
        if (status != G3_OK)
            (void)g3_fail_in(error, status, path);
    }
    json_decref(config);
    json_decref(generation);
    json_decref(preprocessor);
    return status;
}
