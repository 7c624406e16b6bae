/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_SUPPORT_SAFETENSORS_H
#define GEMMA3_SUPPORT_SAFETENSORS_H

/* A writer of safetensors files, right ones and wrong ones. */

#include "files/safetensors.h"
#include "support_bytes.h"

/* Length, header as it is, data_bytes of a pattern. */
static inline t_bytes t_st_file(const char *header, size_t data_bytes) {
    t_bytes file = {0};
    t_put_u64(&file, strlen(header));
    t_put(&file, header, strlen(header));
    t_put_pattern(&file, data_bytes);
    return file;
}

/* A header written entry by entry, tensors back to back. */
typedef struct t_st {
    t_bytes header;
    t_bytes data;
    const char *skip; /* a name, or the beginning of names with '*' at its end */
} t_st;

static inline int t_st_skipped(const t_st *s, const char *name) {
    if (s->skip == NULL)
        return 0;
    const size_t count = strlen(s->skip);
    if (count > 0 && s->skip[count - 1] == '*')
        return strncmp(name, s->skip, count - 1) == 0;
    return strcmp(name, s->skip) == 0;
}

/* shape: slowest first, "[2,3]". bytes: what dtype and shape take. */
static inline void t_st_tensor(t_st *s, const char *name, const char *dtype, const char *shape,
                               size_t bytes) {
    char entry[512];
    if (t_st_skipped(s, name))
        return;
    (void)snprintf(
        entry, sizeof entry, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
        s->header.count == 0 ? "{" : ",", name, dtype, shape, s->data.count, s->data.count + bytes);
    t_put(&s->header, entry, strlen(entry));
    t_put_pattern(&s->data, bytes);
}

/* The file; the writer is empty afterwards. */
static inline t_bytes t_st_finish(t_st *s) {
    t_bytes file = {0};
    t_put(&s->header, s->header.count == 0 ? "{}" : "}", s->header.count == 0 ? 2 : 1);
    t_put_u64(&file, s->header.count);
    t_put(&file, s->header.data, s->header.count);
    t_put(&file, s->data.data, s->data.count);
    t_free(&s->header);
    t_free(&s->data);
    *s = (t_st){0};
    return file;
}

/* As t_parse of support_gguf.h. */
static inline g3_status t_st_parse(const uint8_t *data, size_t count, uint8_t **out_copy,
                                   g3_safetensors **out_file, g3_error *error) {
    *out_copy = malloc(count == 0 ? 1 : count);
    assert_non_null(*out_copy);
    if (count > 0)
        memcpy(*out_copy, data, count);
    return g3_safetensors_parse(*out_copy, count, "made.safetensors", out_file, error);
}

static inline void t_expect_st(const t_bytes *file, g3_status expected, const char *part,
                               const char *other) {
    uint8_t *copy = NULL;
    g3_safetensors *parsed = NULL;
    g3_error error = {{0}};
    const g3_status got = t_st_parse(file->data, file->count, &copy, &parsed, &error);
    t_expect(got, expected, &error, expected == G3_OK ? NULL : "made.safetensors: ", NULL);
    t_expect(got, expected, &error, part, other);
    assert_int_equal(parsed != NULL, expected == G3_OK);
    g3_safetensors_close(parsed);
    free(copy);
}

static inline void t_expect_header(const char *header, size_t data_bytes, g3_status expected,
                                   const char *part, const char *other) {
    t_bytes file = t_st_file(header, data_bytes);
    t_expect_st(&file, expected, part, other);
    t_free(&file);
}

#endif
