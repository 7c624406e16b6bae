/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_SUPPORT_GGUF_H
#define GEMMA3_SUPPORT_GGUF_H

/* A writer of GGUF files, right ones and wrong ones. */

#include "files/gguf.h"
#include "support_bytes.h"

typedef struct t_gguf {
    t_bytes pairs, infos, data;
    uint64_t pair_count, tensor_count;
    uint32_t version;     /* 0: 3 */
    uint32_t alignment;   /* 0: 32 */
    const char *skip;     /* a key or tensor that is left out */
    const char *skip_too; /* another one */
} t_gguf;

static inline int t_skipped(const t_gguf *g, const char *name) {
    return (g->skip != NULL && strcmp(name, g->skip) == 0) ||
           (g->skip_too != NULL && strcmp(name, g->skip_too) == 0);
}

static inline void t_put_string(t_bytes *bytes, const char *text) {
    t_put_u64(bytes, strlen(text));
    t_put(bytes, text, strlen(text));
}

/* A pair whose value is already bytes. */
static inline void t_raw(t_gguf *g, const char *key, uint32_t type, const void *value,
                         size_t count) {
    if (t_skipped(g, key))
        return;
    t_put_string(&g->pairs, key);
    t_put_u32(&g->pairs, type);
    t_put(&g->pairs, value, count);
    g->pair_count++;
}

static inline void t_u32(t_gguf *g, const char *key, uint32_t value) {
    t_raw(g, key, 4, &value, 4);
}
static inline void t_f32(t_gguf *g, const char *key, float value) { t_raw(g, key, 6, &value, 4); }
static inline void t_bool(t_gguf *g, const char *key, uint8_t value) {
    t_raw(g, key, 7, &value, 1);
}
static inline void t_string(t_gguf *g, const char *key, const char *value) {
    t_bytes bytes = {0};
    t_put_string(&bytes, value);
    t_raw(g, key, 8, bytes.data, bytes.count);
    t_free(&bytes);
}

static inline void t_array(t_gguf *g, const char *key, uint32_t element, uint64_t count,
                           const void *data, size_t bytes) {
    t_bytes value = {0};
    t_put_u32(&value, element);
    t_put_u64(&value, count);
    t_put(&value, data, bytes);
    t_raw(g, key, 9, value.data, value.count);
    t_free(&value);
}

static inline uint64_t t_aligned(const t_gguf *g, uint64_t value) {
    const uint64_t to = g->alignment == 0 ? 32 : g->alignment;
    return (value + to - 1) / to * to;
}

static inline void t_pad(const t_gguf *g, t_bytes *bytes) {
    const uint8_t zero = 0;
    for (uint64_t to = t_aligned(g, bytes->count); bytes->count < to;)
        t_put(bytes, &zero, 1);
}

/* An entry of the table with any content; no data. */
static inline void t_entry(t_gguf *g, const char *name, uint32_t dim_count, const uint64_t *dims,
                           uint32_t dims_written, uint32_t type, uint64_t offset) {
    t_put_string(&g->infos, name);
    t_put_u32(&g->infos, dim_count);
    for (uint32_t i = 0; i < dims_written; i++)
        t_put_u64(&g->infos, dims[i]);
    t_put_u32(&g->infos, type);
    t_put_u64(&g->infos, offset);
    g->tensor_count++;
}

/* A right tensor with data; dims end at the first 0 or after four. */
static inline void t_tensor(t_gguf *g, const char *name, g3_type type, uint64_t d0, uint64_t d1,
                            uint64_t d2, uint64_t d3) {
    const uint64_t dims[4] = {d0, d1, d2, d3};
    const g3_type_info *info = g3_type_info_get(type);
    uint32_t count = 0;
    uint64_t elements = 1;
    if (t_skipped(g, name))
        return;
    while (count < 4 && dims[count] != 0)
        elements *= dims[count++];
    t_pad(g, &g->data);
    t_entry(g, name, count, dims, count, type, g->data.count);
    t_put_pattern(&g->data, elements / info->block_elements * info->block_bytes);
}

/* The file; the writer is empty afterwards. */
static inline t_bytes t_finish(t_gguf *g) {
    t_bytes file = {0};
    t_put(&file, "GGUF", 4);
    t_put_u32(&file, g->version == 0 ? 3 : g->version);
    t_put_u64(&file, g->tensor_count);
    t_put_u64(&file, g->pair_count);
    t_put(&file, g->pairs.data, g->pairs.count);
    t_put(&file, g->infos.data, g->infos.count);
    if (g->data.count > 0)
        t_pad(g, &file);
    t_put(&file, g->data.data, g->data.count);
    t_free(&g->pairs);
    t_free(&g->infos);
    t_free(&g->data);
    *g = (t_gguf){0};
    return file;
}

/* Parses a copy of exactly this size, so that a sanitizer sees a byte too far;
 * the copy lives in *out_copy. */
static inline g3_status t_parse(const uint8_t *data, size_t count, uint8_t **out_copy,
                                g3_gguf **out_gguf, g3_error *error) {
    *out_copy = malloc(count == 0 ? 1 : count);
    assert_non_null(*out_copy);
    if (count > 0)
        memcpy(*out_copy, data, count);
    return g3_gguf_parse(*out_copy, count, "made.gguf", out_gguf, error);
}

/* Finishes, parses and expects this outcome; on success the file is only closed. */
static inline void t_expect_gguf(t_gguf *g, g3_status expected, const char *part,
                                 const char *other) {
    t_bytes file = t_finish(g);
    uint8_t *copy = NULL;
    g3_gguf *gguf = NULL;
    g3_error error = {{0}};
    const g3_status got = t_parse(file.data, file.count, &copy, &gguf, &error);
    t_expect(got, expected, &error, expected == G3_OK ? NULL : "made.gguf: ", NULL);
    t_expect(got, expected, &error, part, other);
    assert_int_equal(gguf != NULL, expected == G3_OK);
    g3_gguf_close(gguf);
    free(copy);
    t_free(&file);
}

#endif
