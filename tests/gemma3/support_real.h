/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_SUPPORT_REAL_H
#define GEMMA3_SUPPORT_REAL_H

/* Where the 270M model lies, for tests that need it. */

#include <unistd.h>

#include "app/verify_setup.h"

/* VRAMPOOL_GEMMA3_270M, else the file that fetch_model.sh makes; NULL if there is none:
 * the test is skipped. */
static inline const char *real_model_path(void) {
    const char *path = g3_setup_model(NULL);
    return access(path, R_OK) == 0 ? path : NULL;
}

#endif
