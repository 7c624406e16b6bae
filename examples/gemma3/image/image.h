/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_IMAGE_H
#define GEMMA3_IMAGE_H

/* Pictures: JPEG and PNG files to the pixels that the vision tower takes. */

#include <stddef.h>
#include <stdint.h>

#include "../files/error.h"

#define G3_IMAGE_MAX_SIDE 32768u
/* Of the decoded picture, which takes 3 bytes a pixel: more than any camera's photographs.
 * A JPEG of several scans takes up to 8 bytes more a pixel while it is decoded. */
#define G3_IMAGE_MAX_PIXELS (UINT64_C(1) << 27)
#define G3_IMAGE_MAX_SCANNED_PIXELS (UINT64_C(1) << 26)

/* 8-bit RGB, rows of 3 * width bytes, top first. */
typedef struct g3_image {
    uint32_t width, height;
    uint8_t *rgb; /* malloc'ed */
} g3_image;
void g3_image_free(g3_image *image); /* an image of zeros is allowed */

/* Reads a file, the kind by its first bytes. Grey becomes RGB; alpha is dropped,
 * palettes and 16 bits are converted, CMYK JPEG is converted, as Pillow's
 * convert("RGB") does. EXIF orientation is not applied: the reference's slow image
 * processor does not either. Errors: IO, INVALID (what the library says, not a
 * regular file, or a size beyond the limits), UNSUPPORTED (another kind of file), HOST_MEMORY. */
g3_status g3_image_read(const char *path, g3_image *out_image, g3_error *error);
g3_status g3_image_decode(const uint8_t *bytes, size_t count, const char *name, g3_image *out_image,
                          g3_error *error);

/* Resizes to side x side, aspect ratio not kept, by antialiased bilinear
 * (triangle filter, support scaled when shrinking, horizontal then vertical
 * pass, 8-bit intermediate with Pillow's fixed-point rounding: equal bytes; Pillow 13
 * takes the vertical pass first where the height shrinks and the width grows, which
 * rounds some values to the next one).
 * Errors: INVALID (side 0 or above G3_IMAGE_MAX_SIDE, empty image), HOST_MEMORY. */
g3_status g3_image_resize(const g3_image *image, uint32_t side, g3_image *out_image,
                          g3_error *error);

/* (v / 255 - mean) / std into out[3][side][side], float32. image is square. */
void g3_image_normalise(const g3_image *image, const float mean[3], const float std[3], float *out);

#endif
