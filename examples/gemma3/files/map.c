/* SPDX-License-Identifier: MIT */
#include "map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The size of an open file that can be mapped. */
static g3_status size_of(int file, const char *path, size_t *out_count, g3_error *error) {
    struct stat about;
    if (fstat(file, &about) != 0)
        return g3_fail(error, G3_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(about.st_mode))
        return g3_fail(error, G3_INVALID, "%s: is a folder, a file is expected", path);
    if (!S_ISREG(about.st_mode))
        return g3_fail(error, G3_INVALID, "%s: is not a regular file", path);
    if (about.st_size <= 0)
        return g3_fail(error, G3_INVALID, "%s: is empty", path);
    if ((uintmax_t)about.st_size > SIZE_MAX / 2)
        return g3_fail(error, G3_HOST_MEMORY, "%s: too large to map", path);
    *out_count = (size_t)about.st_size;
    return G3_OK;
}

g3_status g3_map_open(const char *path, g3_map *out_map, g3_error *error) {
    *out_map = (g3_map){0};
    /* A pipe would wait for a writer: it is opened without waiting and refused. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return g3_fail(error, G3_IO, "%s: %s", path, strerror(errno));
    size_t count = 0;
    g3_status status = size_of(file, path, &count, error);
    if (status == G3_OK) {
        void *bytes = mmap(NULL, count, PROT_READ, MAP_PRIVATE, file, 0);
        if (bytes == MAP_FAILED)
            status = g3_fail(error, errno == ENOMEM ? G3_HOST_MEMORY : G3_IO, "%s: mmap: %s", path,
                             strerror(errno));
        else
            *out_map = (g3_map){.bytes = bytes, .count = count};
    }
    (void)close(file);
    return status;
}

void g3_map_close(g3_map *map) {
    /* munmap takes a pointer to what it unmaps, constant for everybody else. */
    if (map->bytes != NULL)
        (void)munmap((void *)(uintptr_t)map->bytes, map->count);
    *map = (g3_map){0};
}

void g3_map_done(const uint8_t *data, uint64_t count) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)data + page - 1) & ~(page - 1);
    const uintptr_t end = ((uintptr_t)data + (uintptr_t)count) & ~(page - 1);
    if (begin < end)
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

const char *g3_printable(const char *bytes, size_t count, char *out, size_t room) {
    size_t n = count < room ? count : room - 1;
    for (size_t i = 0; i < n; i++)
        if (bytes[i] >= ' ' && bytes[i] <= '~')
            out[i] = bytes[i];
        else
            out[i] = '?';
    if (n < count && n >= 3)
        memcpy(out + n - 3, "...", 3);
    out[n] = '\0';
    return out;
}
