/* SPDX-License-Identifier: MIT */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

g3_status g3_fail(g3_error *error, g3_status status, const char *format, ...) {
    if (error == NULL)
        return status;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return status;
}

g3_status g3_fail_in(g3_error *error, g3_status status, const char *where) {
    if (error == NULL)
        return status;
    char text[sizeof error->text];
    (void)snprintf(text, sizeof text, "%.200s: %.300s", where, error->text);
    memcpy(error->text, text, sizeof text);
    return status;
}
