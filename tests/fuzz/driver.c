/* SPDX-License-Identifier: MIT */
/* Runs a fuzz target over files, without a fuzzer: the corpora are ordinary
 * tests. Built into one program with one target: fuzz_ops is fuzz_ops.c +
 * driver.c; its argument is the folder corpus/ops (or files and folders). With
 * libFuzzer, this file is left out. */

#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int one_file(const char *name) {
    static uint8_t bytes[1 << 20];
    FILE *file = fopen(name, "rb");
    if (file == NULL)
        return 0;
    size_t count = fread(bytes, 1, sizeof bytes, file);
    (void)fclose(file);
    (void)fprintf(stderr, "%s: %zu bytes\n", name, count);
    (void)LLVMFuzzerTestOneInput(bytes, count);
    return 1;
}

static int folder(const char *name) {
    int files = 0;
    DIR *entries = opendir(name);
    if (entries == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", name, entry->d_name);
        files += one_file(path);
    }
    (void)closedir(entries);
    return files;
}

/* Beside this source file, for a program that is run without arguments. */
static int preset_folder(void) {
    char path[4096] = __FILE__;
    char *end = strrchr(path, '/');
    if (end == NULL)
        return 0;
    (void)snprintf(end, sizeof path - (size_t)(end - path), "/corpus/ops");
    return folder(path);
}

int main(int argc, char **argv) {
    int files = 0;
    for (int i = 1; i < argc; i++) {
        struct stat kind;
        if (stat(argv[i], &kind) != 0)
            continue;
        files += S_ISDIR(kind.st_mode) ? folder(argv[i]) : one_file(argv[i]);
    }
    if (argc == 1)
        files = preset_folder();
    (void)fprintf(stderr, "%d files\n", files);
    return files == 0; /* an empty corpus is a mistake */
}
