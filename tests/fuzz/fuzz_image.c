/* SPDX-License-Identifier: MIT */
/* Fuzz target: bytes as a picture. What can be decoded is within the limits and can be
 * resized. */

#include "fuzz.h"

#include <stdlib.h>

#include "image/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    g3_image image = {0}, small = {0};
    if (g3_image_decode(data, size, "fuzz", &image, NULL) != G3_OK) {
        if (image.rgb)
            abort();
        return 0;
    }
    if (image.width > G3_IMAGE_MAX_SIDE || image.height > G3_IMAGE_MAX_SIDE ||
        (uint64_t)image.width * image.height > G3_IMAGE_MAX_PIXELS)
        abort();
    if (g3_image_resize(&image, 9, &small, NULL) == G3_OK && small.width != 9)
        abort();
    g3_image_free(&image);
    g3_image_free(&small);
    return 0;
}
