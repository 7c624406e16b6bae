/* SPDX-License-Identifier: MIT */
/* Reading pictures: the file, its kind, its limits. */
#include "image.h"

#include <stdlib.h>
#include <string.h>

#include "../files/map.h"
#include "image_kinds.h"

/* Of a file: more than any picture within the limits takes, compressed. */
#define MAX_FILE_BYTES ((size_t)1 << 30)

void g3_image_free(g3_image *image) {
    free(image->rgb);
    *image = (g3_image){0};
}

g3_status g3_image_check_size(uint32_t width, uint32_t height, const char *name, g3_error *error) {
    if (width == 0 || height == 0)
        return g3_fail(error, G3_INVALID, "%s: the picture is empty (%u x %u)", name, width,
                       height);
    if (width > G3_IMAGE_MAX_SIDE || height > G3_IMAGE_MAX_SIDE ||
        (uint64_t)width * height > G3_IMAGE_MAX_PIXELS)
        return g3_fail(error, G3_INVALID,
                       "%s: %u x %u pixels are too many (%u a side, %llu in all)", name, width,
                       height, G3_IMAGE_MAX_SIDE, (unsigned long long)G3_IMAGE_MAX_PIXELS);
    return G3_OK;
}

g3_status g3_image_decode(const uint8_t *bytes, size_t count, const char *name, g3_image *out_image,
                          g3_error *error) {
    static const uint8_t jpeg[] = {0xff, 0xd8, 0xff};
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    if (count >= sizeof jpeg && !memcmp(bytes, jpeg, sizeof jpeg))
        return g3_image_jpeg(bytes, count, name, out_image, error);
    if (count >= sizeof png && !memcmp(bytes, png, sizeof png))
        return g3_image_png(bytes, count, name, out_image, error);
    return g3_fail(error, G3_UNSUPPORTED, "%s: neither a JPEG nor a PNG file", name);
}

g3_status g3_image_read(const char *path, g3_image *out_image, g3_error *error) {
    g3_map map;
    g3_status status = g3_map_open(path, &map, error);
    if (status != G3_OK)
        return status;
    if (map.count > MAX_FILE_BYTES)
        status = g3_fail(error, G3_INVALID, "%s: a picture of %zu bytes", path, map.count);
    else
        status = g3_image_decode(map.bytes, map.count, path, out_image, error);
    g3_map_close(&map);
    return status;
}

/* The reference multiplies by 1/255 in double, rounds to float32, and subtracts and
 * divides in float32. */
void g3_image_normalise(const g3_image *image, const float mean[3], const float std[3],
                        float *out) {
    const size_t pixels = (size_t)image->width * image->height;
    for (size_t c = 0; c < 3; c++) {
        float value[256];
        for (int v = 0; v < 256; v++)
            value[v] = ((float)(v * (1.0 / 255.0)) - mean[c]) / std[c];
        for (size_t i = 0; i < pixels; i++)
            out[c * pixels + i] = value[image->rgb[i * 3 + c]];
    }
}
