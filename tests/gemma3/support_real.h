/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_SUPPORT_REAL_H
#define GEMMA3_SUPPORT_REAL_H

/* Where the 270M model lies, for tests that need it. */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* VRAMPOOL_GEMMA3_270M, else the file that fetch_model.sh makes; NULL if there is none:
 * the test is skipped. */
static inline const char *real_model_path(void) {
    static char path[4096];
    const char *chosen = getenv("VRAMPOOL_GEMMA3_270M"), *home = getenv("HOME");
    if (chosen != NULL && chosen[0] != '\0')
        (void)snprintf(path, sizeof path, "%s", chosen);
    else
        (void)snprintf(path, sizeof path, "%s/.cache/vrampool/gemma-3-270m-q4_k_m.gguf",
                       home == NULL ? "" : home);
    return access(path, R_OK) == 0 ? path : NULL;
}

#endif
