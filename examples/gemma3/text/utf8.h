/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_UTF8_H
#define GEMMA3_UTF8_H

/* UTF-8 as the Unicode standard defines it (table 3-7): no surrogates, nothing
 * overlong, nothing above U+10FFFF. */

#include <stddef.h>
#include <stdint.h>

typedef enum g3_utf8 {
    G3_UTF8_WHOLE, /* a character of *out_count bytes */
    G3_UTF8_BAD,   /* *out_count bytes (at least 1) that can never become one */
    G3_UTF8_CUT    /* all `count` bytes are the beginning of one */
} g3_utf8;

/* Looks at the beginning of bytes[count], count > 0. BAD gives the maximal part
 * that one U+FFFD stands for. */
static inline g3_utf8 g3_utf8_next(const uint8_t *bytes, size_t count, uint32_t *out_count) {
    uint8_t lead = bytes[0];
    uint8_t low = 0x80, high = 0xBF; /* of the second byte */
    uint32_t length;
    *out_count = 1;
    if (lead < 0x80)
        return G3_UTF8_WHOLE;
    if (lead < 0xC2 || lead > 0xF4)
        return G3_UTF8_BAD;
    length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (lead == 0xE0)
        low = 0xA0;
    else if (lead == 0xED)
        high = 0x9F;
    else if (lead == 0xF0)
        low = 0x90;
    else if (lead == 0xF4)
        high = 0x8F;
    for (uint32_t i = 1; i < length; i++) {
        *out_count = i;
        if (i == count)
            return G3_UTF8_CUT;
        if (bytes[i] < low || bytes[i] > high)
            return G3_UTF8_BAD;
        low = 0x80;
        high = 0xBF;
    }
    *out_count = length;
    return G3_UTF8_WHOLE;
}

#endif
