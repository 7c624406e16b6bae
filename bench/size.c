/* SPDX-License-Identifier: MIT */
/* Numbers and sizes as people write them. */

#include "options.h"

#include <string.h>

__extension__ typedef unsigned __int128 wide;

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static const char *digits(const char *at, uint64_t *out_value) {
    uint64_t value = 0;
    for (; is_digit(*at); at++) {
        unsigned digit = (unsigned)(*at - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return NULL;
        value = value * 10 + digit;
    }
    *out_value = value;
    return at;
}

int bench_count_parse(const char *text, uint64_t *out_count) {
    uint64_t value = 0;
    const char *end = digits(text, &value);
    if (end == NULL || end == text || *end != '\0')
        return 0;
    *out_count = value;
    return 1;
}

static uint64_t unit_of(const char *name) {
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {{"", 1},
                 {"KiB", UINT64_C(1) << 10},
                 {"MiB", UINT64_C(1) << 20},
                 {"GiB", UINT64_C(1) << 30},
                 {"TiB", UINT64_C(1) << 40},
                 {"KB", UINT64_C(1000)},
                 {"MB", UINT64_C(1000000)},
                 {"GB", UINT64_C(1000000000)}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].name, name) == 0)
            return units[i].bytes;
    return 0;
}

int bench_size_parse(const char *text, uint64_t *out_bytes) {
    uint64_t whole = 0;
    uint64_t part = 0;
    uint64_t scale = 1;
    const char *at = digits(text, &whole);
    if (at == NULL || at == text)
        return 0;
    if (*at == '.') {
        const char *from = ++at;
        for (; is_digit(*at); at++) {
            /* Digits beyond the twelfth are less than a byte of a TiB. */
            if (at - from >= 12)
                continue;
            part = part * 10 + (uint64_t)(*at - '0');
            scale *= 10;
        }
        if (at == from || *at == '\0')
            return 0;
    }
    uint64_t unit = unit_of(at);
    wide bytes = (wide)whole * unit + (wide)part * unit / scale;
    if (unit == 0 || bytes > UINT64_MAX)
        return 0;
    *out_bytes = (uint64_t)bytes;
    return 1;
}
