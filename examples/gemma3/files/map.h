/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_MAP_H
#define GEMMA3_MAP_H

/* A whole file mapped for reading. The file must not be cut short while it is
 * mapped: reading a page that is gone is a bus error, as for every program that
 * maps files. */

#include <stddef.h>
#include <stdint.h>

#include "error.h"

typedef struct g3_map {
    const uint8_t *bytes; /* NULL: nothing is mapped */
    size_t count;         /* > 0 while mapped */
} g3_map;

/* Maps a regular file of at least one byte. Errors: IO (absent, not readable),
 * INVALID (a folder, a device, an empty file), HOST_MEMORY (no address space).
 * The text begins with the path. On failure out_map is empty. */
g3_status g3_map_open(const char *path, g3_map *out_map, g3_error *error);
void g3_map_close(g3_map *map); /* an empty one is allowed; leaves it empty */

/* Lets go of the whole pages inside [data, data + count), a part of a mapped
 * file. They are read again from the file when next touched. */
void g3_map_done(const uint8_t *data, uint64_t count);

/* Text for a message from bytes of a file: what is not printable ASCII becomes
 * '?', and what is longer than the room ends in "...". Returns out. */
const char *g3_printable(const char *bytes, size_t count, char *out, size_t room);

#endif
