/* SPDX-License-Identifier: MIT */
/* JPEG through libjpeg. The library reports errors by a call that must not return,
 * so everything happens between setjmp and the call that jumps; what has to be
 * released lies in a structure that the jump leaves alone. */
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h> /* jpeglib.h needs FILE and size_t */
#include <stdlib.h>

#include <jpeglib.h>
#include <jerror.h>

#include "image_kinds.h"

/* Of a progressive file: real ones have about 10. Each is a pass over the whole picture, so
 * a small file could ask for hours: the more pixels, the fewer scans. */
enum { MAX_SCANS = 200, ALWAYS_SCANS = 16 };
#define MAX_SCAN_PIXELS (UINT64_C(1) << 30)

/* Pixels that a byte of arithmetic coding may stand for, which has no least size. */
enum { MOST_ARITHMETIC = 4096 };

typedef struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    char text[JMSG_LENGTH_MAX];
    uint8_t *rgb;
    uint8_t *row; /* of CMYK or grey samples */
} decoder;

static _Noreturn void give_up(j_common_ptr jpeg) {
    decoder *d = jpeg->client_data;
    longjmp(d->jump, 1);
}

static _Noreturn void on_error(j_common_ptr jpeg) {
    decoder *d = jpeg->client_data;
    jpeg->err->format_message(jpeg, d->text);
    give_up(jpeg);
}

/* Warnings are what the library can paper over. Pixels that it made up because data
 * are missing or damaged are no picture; other oddities are common and harmless. */
static void on_message(j_common_ptr jpeg, int level) {
    if (level >= 0)
        return;
    switch (jpeg->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
        on_error(jpeg);
    default:
        break;
    }
}

static void on_output(j_common_ptr jpeg) { (void)jpeg; }

static uint64_t pixels_of(const struct jpeg_decompress_struct *jpeg) {
    return (uint64_t)jpeg->image_width * jpeg->image_height;
}

static void on_progress(j_common_ptr jpeg) {
    decoder *d = jpeg->client_data;
    const uint64_t pixels = pixels_of(&d->jpeg);
    uint64_t most = pixels == 0 ? MAX_SCANS : MAX_SCAN_PIXELS / pixels;
    most = most > MAX_SCANS ? MAX_SCANS : most < ALWAYS_SCANS ? ALWAYS_SCANS : most;
    if (d->jpeg.input_scan_number <= (int)most)
        return;
    (void)snprintf(d->text, sizeof d->text, "more than %d scans", (int)most);
    give_up(jpeg);
}

/* What Pillow does: samples are inverted as Adobe writes them (here they stay so),
 * and each colour is black's share of it, rounded as a product of 8-bit fractions. */
static void cmyk_row(const uint8_t *samples, uint32_t width, uint8_t *rgb) {
    for (size_t x = 0; x < width; x++)
        for (size_t c = 0; c < 3; c++) {
            const int black = samples[x * 4 + 3], ink = 255 - samples[x * 4 + c];
            const int product = ink * black + 128;
            rgb[x * 3 + c] = (uint8_t)(black - ((product + (product >> 8)) >> 8));
        }
}

static void grey_row(const uint8_t *samples, uint32_t width, uint8_t *rgb) {
    for (size_t x = 0; x < width; x++)
        rgb[x * 3] = rgb[x * 3 + 1] = rgb[x * 3 + 2] = samples[x];
}

/* A Huffman-coded block takes at least one bit; a component has at least a 16th of
 * one block for every 64 pixels. Zeros of arithmetic coding take next to nothing. */
static bool is_too_short(const struct jpeg_decompress_struct *jpeg, size_t count) {
    const uint64_t most = jpeg->arith_code ? MOST_ARITHMETIC : 64 * 16 * 8;
    return pixels_of(jpeg) / most > count;
}

static g3_status read_header(decoder *d, size_t count, const char *name, g3_error *error) {
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    (void)jpeg_read_header(jpeg, TRUE);
    g3_status status = g3_image_check_size(jpeg->image_width, jpeg->image_height, name, error);
    if (status != G3_OK)
        return status;
    if (is_too_short(jpeg, count))
        return g3_fail(error, G3_INVALID, "%s: %zu bytes are not enough for %u x %u pixels", name,
                       count, jpeg->image_width, jpeg->image_height);
    if (jpeg_has_multiple_scans(jpeg) && pixels_of(jpeg) > G3_IMAGE_MAX_SCANNED_PIXELS)
        return g3_fail(error, G3_INVALID,
                       "%s: %u x %u pixels in several scans are too many (%llu in all)", name,
                       jpeg->image_width, jpeg->image_height,
                       (unsigned long long)G3_IMAGE_MAX_SCANNED_PIXELS);
    if (jpeg->num_components == 4)
        jpeg->out_color_space = JCS_CMYK;
    else if (jpeg->num_components == 1)
        jpeg->out_color_space = JCS_GRAYSCALE;
    else
        jpeg->out_color_space = JCS_RGB;
    return G3_OK;
}

static void read_rows(decoder *d) {
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    const uint32_t width = jpeg->output_width;
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *rgb = d->rgb + (size_t)jpeg->output_scanline * width * 3;
        JSAMPROW row = jpeg->out_color_space == JCS_RGB ? rgb : d->row;
        if (jpeg_read_scanlines(jpeg, &row, 1) != 1)
            continue;
        if (jpeg->out_color_space == JCS_CMYK)
            cmyk_row(row, width, rgb);
        else if (jpeg->out_color_space == JCS_GRAYSCALE)
            grey_row(row, width, rgb);
    }
}

static g3_status decode(decoder *d, const uint8_t *bytes, size_t count, const char *name,
                        g3_error *error) {
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    jpeg->err = jpeg_std_error(&d->errors);
    d->errors.error_exit = on_error;
    d->errors.emit_message = on_message;
    d->errors.output_message = on_output;
    jpeg->client_data = d;
    if (setjmp(d->jump))
        return g3_fail(error, G3_INVALID, "%s: JPEG: %s", name, d->text);
    jpeg_create_decompress(jpeg);
    d->progress.progress_monitor = on_progress;
    jpeg->progress = &d->progress;
    jpeg_mem_src(jpeg, bytes, (unsigned long)count);
    g3_status status = read_header(d, count, name, error);
    if (status != G3_OK)
        return status;
    const size_t pixels = (size_t)jpeg->image_width * jpeg->image_height;
    d->rgb = malloc(pixels * 3);
    d->row = malloc((size_t)jpeg->image_width * 4);
    if (d->rgb == NULL || d->row == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "%s: no memory for %zu pixels", name, pixels);
    (void)jpeg_start_decompress(jpeg);
    read_rows(d);
    (void)jpeg_finish_decompress(jpeg);
    return G3_OK;
}

g3_status g3_image_jpeg(const uint8_t *bytes, size_t count, const char *name, g3_image *out_image,
                        g3_error *error) {
    decoder *d = calloc(1, sizeof *d);
    if (d == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "%s: no memory for a decoder", name);
    g3_status status = decode(d, bytes, count, name, error);
    if (status == G3_OK) {
        *out_image = (g3_image){d->jpeg.image_width, d->jpeg.image_height, d->rgb};
        d->rgb = NULL;
    }
    jpeg_destroy_decompress(&d->jpeg);
    free(d->row);
    free(d->rgb);
    free(d);
    return status;
}
