/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_SUPPORT_BYTES_H
#define GEMMA3_SUPPORT_BYTES_H

/* Growing bytes, files in a folder of the test's own, and expectations on
 * errors. */

#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vrp_test.h"

#include "files/error.h"

typedef struct t_bytes {
    uint8_t *data;
    size_t count;
    size_t room;
} t_bytes;

static inline void t_put(t_bytes *bytes, const void *data, size_t count) {
    if (count > bytes->room - bytes->count) {
        bytes->room = 2 * (bytes->count + count);
        bytes->data = realloc(bytes->data, bytes->room);
        assert_non_null(bytes->data);
    }
    if (count > 0)
        memcpy(bytes->data + bytes->count, data, count);
    bytes->count += count;
}

static inline void t_put_u32(t_bytes *bytes, uint32_t value) { t_put(bytes, &value, 4); }
static inline void t_put_u64(t_bytes *bytes, uint64_t value) { t_put(bytes, &value, 8); }

/* Bytes that differ from place to place. */
static inline void t_put_pattern(t_bytes *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const uint8_t byte = (uint8_t)(bytes->count * 7 + (bytes->count >> 8));
        t_put(bytes, &byte, 1);
    }
}

static inline void t_free(t_bytes *bytes) {
    free(bytes->data);
    *bytes = (t_bytes){0};
}

/* ---- Errors -------------------------------------------------------------------- */

static inline int t_contains(const char *text, const char *part) {
    return part == NULL || strstr(text, part) != NULL;
}

/* The status, and every part (NULL: none) in the text. */
static inline void t_expect(g3_status got, g3_status expected, const g3_error *error,
                            const char *part, const char *other) {
    if (got != expected)
        fail_msg("status %d, not %d (%s)", (int)got, (int)expected, error->text);
    if (!t_contains(error->text, part) || !t_contains(error->text, other))
        fail_msg("'%s' does not say '%s' and '%s'", error->text, part == NULL ? "" : part,
                 other == NULL ? "" : other);
}

/* ---- Files --------------------------------------------------------------------- */

static inline void t_folder_make(char out_path[64]) {
    strcpy(out_path, "/tmp/gemma3-test-XXXXXX");
    assert_non_null(mkdtemp(out_path));
}

static inline int t_remove_entry(const char *path, const struct stat *about, int kind,
                                 struct FTW *place) {
    (void)about;
    (void)kind;
    (void)place;
    return remove(path);
}

static inline void t_folder_remove(const char *path) {
    (void)nftw(path, t_remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static inline void t_file_write(const char *folder, const char *name, const void *data,
                                size_t count, char out_path[256]) {
    (void)snprintf(out_path, 256, "%s/%s", folder, name);
    FILE *file = fopen(out_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static inline void t_text_write(const char *folder, const char *name, const char *text) {
    char path[256];
    t_file_write(folder, name, text, strlen(text), path);
}

#endif
