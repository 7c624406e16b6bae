/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_IMAGE_KINDS_H
#define GEMMA3_IMAGE_KINDS_H

/* The decoders behind g3_image_decode. Both check a picture's size before they
 * decode anything and write out_image on success only. */

#include "image.h"

g3_status g3_image_jpeg(const uint8_t *bytes, size_t count, const char *name, g3_image *out_image,
                        g3_error *error);
g3_status g3_image_png(const uint8_t *bytes, size_t count, const char *name, g3_image *out_image,
                       g3_error *error);

/* INVALID unless the size is within the limits of image.h. */
g3_status g3_image_check_size(uint32_t width, uint32_t height, const char *name, g3_error *error);

#endif
