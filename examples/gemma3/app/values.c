/* SPDX-License-Identifier: MIT */
/* Sizes, counts, reals and devices as people write them. */

#include <math.h>
#include <string.h>

#include "options.h"

__extension__ typedef unsigned __int128 wide;

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* The number at `at` into *out_value and what follows it; NULL if it is too large. */
static const char *take_digits(const char *at, uint64_t *out_value) {
    uint64_t value = 0;
    for (; is_digit(*at); at++) {
        const unsigned digit = (unsigned)(*at - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return NULL;
        value = value * 10 + digit;
    }
    *out_value = value;
    return at;
}

bool g3_count_parse(const char *text, uint64_t *out_count) {
    uint64_t value = 0;
    const char *end = take_digits(text, &value);
    if (end == NULL || end == text || *end != '\0')
        return false;
    *out_count = value;
    return true;
}

static uint64_t unit_bytes(const char *unit) {
    static const struct {
        char letter;
        unsigned power;
    } letters[] = {{'K', 1}, {'M', 2}, {'G', 3}, {'T', 4}};
    if (*unit == '\0')
        return 1;
    if (strcmp(unit, "B") == 0)
        return 1;
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++) {
        if (unit[0] != letters[i].letter)
            continue;
        const bool binary = strcmp(unit + 1, "iB") == 0;
        if (!binary && strcmp(unit + 1, "B") != 0)
            return 0;
        uint64_t bytes = 1;
        for (unsigned n = 0; n < letters[i].power; n++)
            bytes *= binary ? 1024 : 1000;
        return bytes;
    }
    return 0;
}

bool g3_size_parse(const char *text, uint64_t *out_bytes) {
    uint64_t whole = 0;
    uint64_t part = 0;
    uint64_t scale = 1;
    const char *at = take_digits(text, &whole);
    if (at == NULL || at == text)
        return false;
    if (*at == '.') {
        const char *from = ++at;
        for (; is_digit(*at); at++) {
            /* Further digits are less than a byte of a TiB. */
            if (at - from >= 13)
                continue;
            part = part * 10 + (uint64_t)(*at - '0');
            scale *= 10;
        }
        /* A fraction needs digits, and a unit: there is no half byte. */
        if (at == from || *at == '\0' || *at == 'B')
            return false;
    }
    const uint64_t unit = unit_bytes(at);
    const wide bytes = (wide)whole * unit + (wide)part * unit / scale;
    if (unit == 0 || bytes > UINT64_MAX)
        return false;
    *out_bytes = (uint64_t)bytes;
    return true;
}

/* By hand, since strtod follows the locale and takes "nan", "inf" and hexadecimal. */
bool g3_real_parse(const char *text, double *out_value) {
    const bool negative = *text == '-';
    const char *at = text + (negative ? 1 : 0);
    double value = 0.0;
    size_t digits = 0;
    for (; is_digit(*at); at++, digits++)
        value = value * 10.0 + (double)(*at - '0');
    if (*at == '.') {
        double scale = 1.0;
        double part = 0.0;
        for (at++; is_digit(*at); at++, digits++) {
            part = part * 10.0 + (double)(*at - '0');
            scale *= 10.0;
        }
        value += part / scale;
    }
    if (digits == 0 || *at != '\0' || !isfinite(value))
        return false;
    *out_value = negative ? -value : value;
    return true;
}

bool g3_device_valid(const char *text) {
    uint64_t value = 0;
    if (strcmp(text, "sim") == 0 || strcmp(text, "cuda") == 0)
        return true;
    if (strncmp(text, "sim:", 4) == 0)
        return g3_size_parse(text + 4, &value) && value > 0;
    return strncmp(text, "cuda:", 5) == 0 && g3_count_parse(text + 5, &value) && value <= INT32_MAX;
}
