/* SPDX-License-Identifier: MIT */
#ifndef VRPI_CORE_SIZECLASS_H
#define VRPI_CORE_SIZECLASS_H

/* Size classes of small requests, in units of 512 bytes: steps of one unit to
 * 8 KiB (which is eight steps in the doubling from 4 KiB), then eight a
 * doubling to 32 KiB: at most 12.5 % rounding above 4 KiB. 32 classes. */

#include <stdint.h>

/* By units of 512 bytes, rounded up. */
static const uint8_t vrpi_class_of_units[65] = {
    0,  0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 16, 17, 17, 18,
    18, 19, 19, 20, 20, 21, 21, 22, 22, 23, 23, 24, 24, 24, 24, 25, 25, 25, 25, 26, 26, 26,
    26, 27, 27, 27, 27, 28, 28, 28, 28, 29, 29, 29, 29, 30, 30, 30, 30, 31, 31, 31, 31};

/* Class of a request of 1 .. 32768 bytes. */
static inline uint32_t vrpi_small_class(uint64_t bytes) {
    return vrpi_class_of_units[(bytes + 511) >> 9];
}

static inline uint32_t vrpi_small_class_bytes(uint32_t klass) {
    if (klass < 16)
        return (klass + 1) * 512;
    if (klass < 24)
        return (18 + (klass - 16) * 2) * 512;
    return (36 + (klass - 24) * 4) * 512;
}

#endif
