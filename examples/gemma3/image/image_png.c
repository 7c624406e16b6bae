/* SPDX-License-Identifier: MIT */
/* PNG through libspng. */
#include <stdbool.h>
#include <stdlib.h>

#include <spng.h>

#include "image_kinds.h"

enum {
    MAX_CHUNK_BYTES = 16 << 20, /* of metadata: texts and profiles, unpacked */
    MAX_KEPT_BYTES = 64 << 20,
    MOST_DEFLATED = 1032 /* bytes that one byte of a deflate stream can stand for */
};

static g3_status fail_png(int code, const char *name, g3_error *error) {
    return g3_fail(error, code == SPNG_EMEM ? G3_HOST_MEMORY : G3_INVALID, "%s: PNG: %s", name,
                   spng_strerror(code));
}

/* Pillow takes the upper 8 of 16 bits of everything but plain grey, whose values it
 * cuts off at 255. The reference sees pictures through Pillow, so that is right here. */
static bool is_grey16(const struct spng_ihdr *header) {
    return header->bit_depth == 16 && header->color_type == SPNG_COLOR_TYPE_GRAYSCALE;
}

/* From big-endian samples at the beginning of the buffer, backwards: a pixel's three
 * bytes never lie in front of its sample. */
static void spread_grey16(uint8_t *rgb, size_t pixels) {
    for (size_t i = pixels; i-- > 0;) {
        const uint8_t value = rgb[i * 2] ? 255 : rgb[i * 2 + 1];
        rgb[i * 3] = rgb[i * 3 + 1] = rgb[i * 3 + 2] = value;
    }
}

static g3_status read_header(spng_ctx *png, size_t count, const char *name,
                             struct spng_ihdr *header, g3_error *error) {
    int code = spng_get_ihdr(png, header);
    if (code != 0)
        return fail_png(code, name, error);
    g3_status status = g3_image_check_size(header->width, header->height, name, error);
    if (status != G3_OK)
        return status;
    const uint64_t bits = (uint64_t)header->width * header->height * header->bit_depth;
    if (bits / 8 / MOST_DEFLATED > count)
        return g3_fail(error, G3_INVALID, "%s: %zu bytes are not enough for %u x %u pixels", name,
                       count, header->width, header->height);
    return G3_OK;
}

static g3_status decode(spng_ctx *png, const uint8_t *bytes, size_t count, const char *name,
                        g3_image *image, g3_error *error) {
    struct spng_ihdr header;
    int code = spng_set_image_limits(png, G3_IMAGE_MAX_SIDE, G3_IMAGE_MAX_SIDE);
    if (code == 0)
        code = spng_set_chunk_limits(png, MAX_CHUNK_BYTES, MAX_KEPT_BYTES);
    if (code == 0)
        code = spng_set_png_buffer(png, bytes, count);
    if (code != 0)
        return fail_png(code, name, error);
    g3_status status = read_header(png, count, name, &header, error);
    if (status != G3_OK)
        return status;
    const size_t pixels = (size_t)header.width * header.height;
    *image = (g3_image){header.width, header.height, malloc(pixels * 3)};
    if (image->rgb == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "%s: no memory for %zu pixels", name, pixels);
    const bool grey16 = is_grey16(&header);
    code = spng_decode_image(png, image->rgb, pixels * (grey16 ? 2 : 3),
                             grey16 ? SPNG_FMT_RAW : SPNG_FMT_RGB8, 0);
    if (code != 0)
        return fail_png(code, name, error);
    if (grey16)
        spread_grey16(image->rgb, pixels);
    return G3_OK;
}

g3_status g3_image_png(const uint8_t *bytes, size_t count, const char *name, g3_image *out_image,
                       g3_error *error) {
    spng_ctx *png = spng_ctx_new(0);
    if (png == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "%s: no memory for a decoder", name);
    g3_image image = {0};
    g3_status status = decode(png, bytes, count, name, &image, error);
    spng_ctx_free(png);
    if (status == G3_OK)
        *out_image = image;
    else
        g3_image_free(&image);
    return status;
}
