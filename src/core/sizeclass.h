/* SPDX-License-Identifier: MIT */
#ifndef VRPI_CORE_SIZECLASS_H
#define VRPI_CORE_SIZECLASS_H

/* Size classes of small requests, in units of 512 bytes: steps of one unit to
 * 8 KiB (which is eight steps in the doubling from 4 KiB), then eight a
 * doubling to 32 KiB: at most 12.5 % rounding above 4 KiB. 32 classes. */

#include <stdint.h>

/* Class of a request of 1 .. 32768 bytes. */
static inline uint32_t vrpi_small_class(uint64_t bytes) {
    uint32_t units = (uint32_t)((bytes + 511) >> 9); /* 1 .. 64 */
    if (units <= 16)
        return units - 1;
    if (units <= 32)
        return 16 + (units - 17) / 2;
    return 24 + (units - 33) / 4;
}

static inline uint32_t vrpi_small_class_bytes(uint32_t klass) {
    if (klass < 16)
        return (klass + 1) * 512;
    if (klass < 24)
        return (18 + (klass - 16) * 2) * 512;
    return (36 + (klass - 24) * 4) * 512;
}

#endif
