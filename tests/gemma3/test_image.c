/* SPDX-License-Identifier: MIT */
/* Pictures: every kind against Pillow's pixels (tests/golden/images), resizing byte by
 * byte, and files that are not what they should be. */

#include "image/image.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vrp_test.h"

#define FOLDER VRPT_SOURCE_DIR "/tests/golden/images/"

typedef struct bytes {
    uint8_t *data;
    size_t count;
} bytes;

static bytes load(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("%s cannot be read", path);
    bytes b = {malloc(1 << 20), 0};
    assert_non_null(b.data);
    b.count = fread(b.data, 1, 1 << 20, file);
    (void)fclose(file);
    return b;
}

static uint32_t crc32_of(const uint8_t *data, size_t count) {
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* ---- Decoding ---------------------------------------------------------------------- */

static void compare_with_pillow(const char *name) {
    char path[512];
    (void)snprintf(path, sizeof path, FOLDER "%s", name);
    g3_image image = {0};
    g3_error error;
    if (g3_image_read(path, &image, &error) != G3_OK)
        fail_msg("%s", error.text);
    (void)snprintf(strrchr(path, '.'), 5, ".rgb");
    bytes expected = load(path);
    assert_int_equal(image.width, 33);
    assert_int_equal(image.height, 25);
    assert_int_equal(expected.count, 33 * 25 * 3);
    for (size_t i = 0; i < expected.count; i++)
        if (image.rgb[i] != expected.data[i])
            fail_msg("%s: byte %zu is %u, Pillow has %u", name, i, image.rgb[i], expected.data[i]);
    free(expected.data);
    g3_image_free(&image);
}

static void pictures_equal_pillows(void **state) {
    (void)state;
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *end = strrchr(entry->d_name, '.');
        if (end && (!strcmp(end, ".png") || !strcmp(end, ".jpg"))) {
            compare_with_pillow(entry->d_name);
            found++;
        }
    }
    (void)closedir(folder);
    assert_int_equal(found, 32);
}

/* ---- Files that are not pictures, or not whole --------------------------------------- */

static g3_status decode(const uint8_t *data, size_t count, g3_error *error) {
    g3_image image = {0};
    uint8_t *copy = malloc(count + 1); /* a sanitizer sees reads beyond it */
    assert_non_null(copy);
    copy = realloc(copy, count ? count : 1);
    assert_non_null(copy);
    memcpy(copy, data, count);
    g3_status status = g3_image_decode(copy, count, "x", &image, error);
    free(copy);
    if (status != G3_OK)
        assert_null(image.rgb);
    g3_image_free(&image);
    return status;
}

/* Cut anywhere before the last pixel's data, a file is an error. */
static void truncated_files_are_errors(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t tail; /* bytes after the pixels' data: an end marker */
    } file[] = {{"colour420.jpg", 2},      {"progressive.jpg", 2}, {"cmyk.jpg", 2},
                {"restarts.jpg", 2},       {"rgb8.png", 16},       {"palette4.png", 16},
                {"rgb_interlaced.png", 16}};
    for (size_t f = 0; f < VRPT_COUNT(file); f++) {
        char path[512];
        (void)snprintf(path, sizeof path, FOLDER "%s", file[f].name);
        bytes whole = load(path);
        g3_error error;
        assert_int_equal(decode(whole.data, whole.count, &error), G3_OK);
        for (size_t count = 0; count < whole.count - file[f].tail; count++) {
            g3_status status = decode(whole.data, count, &error);
            if (status !=
                (count < 3 || (whole.data[0] == 0x89 && count < 8) ? G3_UNSUPPORTED : G3_INVALID))
                fail_msg("%s cut to %zu of %zu bytes: status %d", file[f].name, count, whole.count,
                         (int)status);
        }
        free(whole.data);
    }
}

/* The end marker too early: the library would fill the rest up with grey. */
static void jpeg_that_ends_early_is_an_error(void **state) {
    (void)state;
    bytes file = load(FOLDER "colour420.jpg");
    for (size_t cut = 8; cut < 200; cut += 16) {
        g3_error error;
        file.data[file.count - cut] = 0xff;
        file.data[file.count - cut + 1] = 0xd9;
        assert_int_equal(decode(file.data, file.count - cut + 2, &error), G3_INVALID);
        assert_non_null(strstr(error.text, "premature end"));
    }
    free(file.data);
}

/* Whatever single bytes say, decoding ends with a picture or an error. */
static void damaged_files_do_no_harm(void **state) {
    (void)state;
    static const char *const name[] = {"colour420.jpg", "progressive.jpg", "ycck.jpg",
                                       "palette8.png",  "rgb16.png",       "grey1_interlaced.png"};
    vrpt_rng rng = {7};
    for (size_t f = 0; f < VRPT_COUNT(name); f++) {
        char path[512];
        (void)snprintf(path, sizeof path, FOLDER "%s", name[f]);
        bytes whole = load(path);
        int errors = 0;
        for (int round = 0; round < 400; round++) {
            const size_t place = vrpt_rng_below(&rng, whole.count);
            const uint8_t before = whole.data[place];
            whole.data[place] = (uint8_t)vrpt_rng_next(&rng);
            g3_error error;
            errors += decode(whole.data, whole.count, &error) != G3_OK;
            whole.data[place] = before;
        }
        assert_true(errors > 0);
        free(whole.data);
    }
}

static void put_be32(uint8_t *p, uint32_t value) {
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(value >> (24 - 8 * i));
}

static g3_status png_of_size(uint32_t width, uint32_t height, g3_error *error) {
    bytes file = load(FOLDER "grey8.png");
    put_be32(file.data + 16, width);
    put_be32(file.data + 20, height);
    put_be32(file.data + 29, crc32_of(file.data + 12, 17));
    g3_status status = decode(file.data, file.count, error);
    free(file.data);
    return status;
}

static g3_status jpeg_of_size(uint32_t width, uint32_t height, g3_error *error) {
    bytes file = load(FOLDER "grey.jpg");
    for (size_t i = 0; i + 9 < file.count; i++)
        if (file.data[i] == 0xff && file.data[i + 1] == 0xc0) {
            file.data[i + 5] = (uint8_t)(height >> 8);
            file.data[i + 6] = (uint8_t)height;
            file.data[i + 7] = (uint8_t)(width >> 8);
            file.data[i + 8] = (uint8_t)width;
        }
    g3_status status = decode(file.data, file.count, error);
    free(file.data);
    return status;
}

static void sizes_are_checked_before_decoding(void **state) {
    (void)state;
    g3_error error;
    assert_int_equal(png_of_size(33, 25, &error), G3_OK);
    assert_int_equal(jpeg_of_size(33, 25, &error), G3_OK);
    assert_int_equal(png_of_size(0, 25, &error), G3_INVALID);
    assert_int_equal(png_of_size(32769, 1, &error), G3_INVALID);
    assert_int_equal(png_of_size(20000, 20000, &error), G3_INVALID);
    assert_non_null(strstr(error.text, "20000 x 20000"));
    assert_int_equal(png_of_size(0x7fffffff, 0x7fffffff, &error), G3_INVALID);
    assert_int_equal(png_of_size(16384, 8192, &error), G3_INVALID); /* not with so few bytes */
    assert_non_null(strstr(error.text, "not enough"));
    assert_int_equal(jpeg_of_size(40000, 1, &error), G3_INVALID);
    assert_non_null(strstr(error.text, "40000 x 1"));
    assert_int_equal(jpeg_of_size(30000, 30000, &error), G3_INVALID);
    assert_int_equal(jpeg_of_size(16384, 8192, &error), G3_INVALID);
    assert_non_null(strstr(error.text, "not enough"));
    assert_int_equal(jpeg_of_size(0, 25, &error), G3_INVALID);
}

/* Arithmetic coding has no least size: so few bytes are no large picture. */
static void arithmetic_coding_is_bounded(void **state) {
    (void)state;
    static const uint8_t frame[] = {0xff, 0xc9, 0,    11, 8,    0x1f, 0x40, 0x1f, 0x40,
                                    1,    1,    0x11, 0,  0xff, 0xda, 0,    8,    1,
                                    1,    0,    0,    63, 0,    0,    0,    0xff, 0xd9};
    uint8_t file[2 + 4 + 65 + sizeof frame] = {0xff, 0xd8, 0xff, 0xdb, 0, 67, 0};
    memset(file + 7, 1, 64);
    memcpy(file + 71, frame, sizeof frame);
    g3_error error;
    assert_int_equal(decode(file, sizeof file, &error), G3_INVALID);
    assert_non_null(strstr(error.text, "not enough for 8000 x 8000"));
    file[71 + 5] = file[71 + 7] = 0; /* 64 x 64 */
    const g3_status small = decode(file, sizeof file, &error);
    assert_true(small == G3_OK || strstr(error.text, "not enough") == NULL);
}

/* The scans of a file times its pixels are bounded, as the memory between them is. */
static void scans_are_bounded(void **state) {
    (void)state;
    bytes file = load(FOLDER "progressive.jpg");
    for (size_t i = 0; i + 9 < file.count; i++)
        if (file.data[i] == 0xff && file.data[i + 1] == 0xc2) {
            const uint8_t size[] = {0x20, 0x01, 0x20, 0x01}; /* 8193 x 8193 */
            memcpy(file.data + i + 5, size, sizeof size);
        }
    uint8_t *longer = calloc(1, 1 << 20); /* enough bytes for so many pixels */
    assert_non_null(longer);
    memcpy(longer, file.data, file.count);
    g3_error error;
    assert_int_equal(decode(longer, 1 << 20, &error), G3_INVALID);
    assert_non_null(strstr(error.text, "in several scans"));
    free(longer);
    free(file.data);
}

static void other_files_are_refused(void **state) {
    (void)state;
    static const char *const text[] = {"", "\xff\xd8", "GIF89a......", "RIFF....WEBPVP8 ", "BM"};
    g3_error error;
    for (size_t i = 0; i < VRPT_COUNT(text); i++)
        assert_int_equal(decode((const uint8_t *)text[i], strlen(text[i]), &error), G3_UNSUPPORTED);
    assert_non_null(strstr(error.text, "x: "));
    g3_image image = {0};
    assert_int_equal(g3_image_read(FOLDER "nothing.png", &image, &error), G3_IO);
    assert_non_null(strstr(error.text, "nothing.png"));
    assert_int_equal(g3_image_read(FOLDER, &image, &error), G3_INVALID);
    assert_non_null(strstr(error.text, "folder"));
    assert_int_equal(g3_image_read(FOLDER "resize.txt", &image, NULL), G3_UNSUPPORTED);
    assert_null(image.rgb);
    g3_image_free(&image);
}

/* ---- Resizing --------------------------------------------------------------------------- */

/* As source() in make_images.py. */
static g3_image make_source(uint32_t width, uint32_t height) {
    const size_t count = (size_t)width * height * 3;
    g3_image image = {width, height, malloc(count)};
    assert_non_null(image.rgb);
    for (size_t i = 0; i < count; i++) {
        uint32_t x = (uint32_t)i * 2654435761u;
        x ^= x >> 15;
        x *= 2246822519u;
        image.rgb[i] = (uint8_t)(x >> 24);
    }
    return image;
}

static void resizing_equals_pillows(void **state) {
    (void)state;
    FILE *list = fopen(FOLDER "resize.txt", "r");
    assert_non_null(list);
    uint32_t width = 0, height = 0, side = 0, crc = 0;
    int cases = 0;
    while (fscanf(list, "%u %u %u %x", &width, &height, &side, &crc) == 4) {
        g3_image image = make_source(width, height), out = {0};
        assert_int_equal(g3_image_resize(&image, side, &out, NULL), G3_OK);
        assert_int_equal(out.width, side);
        assert_int_equal(out.height, side);
        if (crc32_of(out.rgb, (size_t)side * side * 3) != crc)
            fail_msg("%u x %u to %u differs", width, height, side);
        g3_image_free(&image);
        g3_image_free(&out);
        cases++;
    }
    (void)fclose(list);
    assert_int_equal(cases, 30);
}

/* Against the definition in real numbers, which the fixed point follows to a unit. */
static void resizing_is_a_triangle_filter(void **state) {
    (void)state;
    g3_image image = make_source(50, 50), out = {0};
    for (size_t i = 0; i < 50 * 50 * 3; i++) /* rows alike: only the first pass matters */
        image.rgb[i] = image.rgb[i % (50 * 3)];
    assert_int_equal(g3_image_resize(&image, 13, &out, NULL), G3_OK);
    const double scale = 50.0 / 13.0;
    for (int x = 0; x < 13; x++)
        for (int c = 0; c < 3; c++) {
            double sum = 0, total = 0;
            for (int i = 0; i < 50; i++) {
                double w = fmax(0.0, 1.0 - fabs((i + 0.5) - (x + 0.5) * scale) / scale);
                sum += w * image.rgb[i * 3 + c];
                total += w;
            }
            assert_true(fabs(out.rgb[x * 3 + c] - sum / total) < 1.01);
        }
    g3_image_free(&image);
    g3_image_free(&out);
}

static void resizing_refuses_nonsense(void **state) {
    (void)state;
    g3_image image = make_source(4, 4), out = {0}, empty = {0};
    g3_error error;
    assert_int_equal(g3_image_resize(&image, 0, &out, &error), G3_INVALID);
    assert_int_equal(g3_image_resize(&image, G3_IMAGE_MAX_SIDE + 1, &out, &error), G3_INVALID);
    assert_int_equal(g3_image_resize(&empty, 4, &out, &error), G3_INVALID);
    assert_null(out.rgb);
    g3_image_free(&image);
}

static void normalise_gives_planes(void **state) {
    (void)state;
    g3_image image = make_source(16, 16);
    for (int v = 0; v < 256; v++)
        image.rgb[v * 3] = (uint8_t)v;
    static const float mean[3] = {0.5f, 0.25f, 0.0f}, std[3] = {0.5f, 0.125f, 1.0f};
    float out[3 * 256];
    g3_image_normalise(&image, mean, std, out);
    assert_true(out[0] == -1.0f && out[255] == 1.0f);
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < 256; i++) {
            double value = (image.rgb[i * 3 + c] / 255.0 - (double)mean[c]) / (double)std[c];
            assert_true(fabs((double)out[c * 256 + i] - value) < 1e-6);
        }
    g3_image_free(&image);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_equal_pillows),
        cmocka_unit_test(truncated_files_are_errors),
        cmocka_unit_test(jpeg_that_ends_early_is_an_error),
        cmocka_unit_test(damaged_files_do_no_harm),
        cmocka_unit_test(sizes_are_checked_before_decoding),
        cmocka_unit_test(arithmetic_coding_is_bounded),
        cmocka_unit_test(scans_are_bounded),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(resizing_equals_pillows),
        cmocka_unit_test(resizing_is_a_triangle_filter),
        cmocka_unit_test(resizing_refuses_nonsense),
        cmocka_unit_test(normalise_gives_planes),
    };
    return cmocka_run_group_tests_name("image", tests, NULL, NULL);
}
