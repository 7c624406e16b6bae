/* SPDX-License-Identifier: MIT */
/* Drivers by name: "sim", "sim:SIZE", "cuda", "cuda:N". */

#include "driver/sim_internal.h"
#include "platform/error.h"
#include "vrampool/cuda.h"
#include "vrampool/sim.h"

#include <string.h>

/* ---- Numbers ------------------------------------------------------------------ */

static int is_digit(char c) { return c >= '0' && c <= '9'; }

/* Reads decimal digits. 0 when there is none or the number is too large. */
static int read_number(const char **text, uint64_t *out_number) {
    uint64_t number = 0;
    if (!is_digit(**text))
        return 0;
    for (; is_digit(**text); (*text)++) {
        uint64_t digit = (uint64_t)(**text - '0');
        if (number > (UINT64_MAX - digit) / 10)
            return 0;
        number = number * 10 + digit;
    }
    *out_number = number;
    return 1;
}

/* Bytes of a unit, 0 for no unit. */
static uint64_t unit_bytes(const char *unit) {
    static const struct {
        char name[4];
        uint64_t bytes;
    } units[] = {
        {"", 1},
        {"KiB", UINT64_C(1) << 10},
        {"MiB", UINT64_C(1) << 20},
        {"GiB", UINT64_C(1) << 30},
        {"TiB", UINT64_C(1) << 40},
        {"KB", UINT64_C(1000)},
        {"MB", UINT64_C(1000000)},
        {"GB", UINT64_C(1000000000)},
        {"TB", UINT64_C(1000000000000)},
    };
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(unit, units[i].name) == 0)
            return units[i].bytes;
    return 0;
}

/* The fraction's share of a unit, rounded down: long division digit by digit,
 * from the last one, so that nothing overflows and no floating point rounds. */
static uint64_t fraction_bytes(const char *first, const char *end, uint64_t unit) {
    uint64_t bytes = 0;
    while (end > first)
        bytes = ((uint64_t)(*--end - '0') * unit + bytes) / 10;
    return bytes;
}

/* A size: digits, perhaps a fraction, a unit. 0 for none. */
static int read_size(const char *text, uint64_t *out_bytes) {
    const char *fraction = "", *fraction_end = fraction;
    uint64_t whole, unit, part;
    if (!read_number(&text, &whole))
        return 0;
    if (*text == '.') {
        fraction = ++text;
        while (is_digit(*text))
            text++;
        fraction_end = text;
        if (fraction_end == fraction || *text == '\0') /* half a byte is no size */
            return 0;
    }
    unit = unit_bytes(text);
    if (unit == 0)
        return 0;
    part = fraction_bytes(fraction, fraction_end, unit);
    if (whole > (UINT64_MAX - part) / unit)
        return 0;
    *out_bytes = whole * unit + part;
    return *out_bytes != 0;
}

/* ---- The simulated device -------------------------------------------------------- */

/* A machine that nobody else has ends with its only driver. */
static void machine_end(void *ctx) { (void)vrp_sim_destroy(((vrpi_sim_device *)ctx)->sim); }

static vrp_status own_driver(vrp_sim *sim, vrp_driver **out_driver) {
    vrp_driver *borrowing;
    vrp_driver_ops ops;
    vrp_status status;
    void *ctx;
    VRPI_TRY(vrp_sim_driver_create(sim, 0, &borrowing));
    ops = *vrp_driver_ops_get(borrowing, &ctx);
    ops.destroy = machine_end;
    status = vrp_driver_create(&ops, ctx, out_driver);
    vrp_driver_destroy(borrowing);
    return status;
}

/* size NULL: the default. */
static vrp_status open_sim(const char *name, const char *size, vrp_driver **out_driver) {
    vrp_sim_config config = {.struct_size = sizeof config};
    vrp_status status;
    vrp_sim *sim;
    if (size != NULL && !read_size(size, &config.device_bytes))
        return vrpi_fail(VRP_INVALID_ARGUMENT,
                         "driver \"%s\": \"%s\" is no size like 8GiB, 1.5TB or 1048576", name,
                         size);
    VRPI_TRY(vrp_sim_create(&config, &sim));
    status = own_driver(sim, out_driver);
    if (status != VRP_OK)
        (void)vrp_sim_destroy(sim);
    return status;
}

/* ---- CUDA ------------------------------------------------------------------------ */

/* number NULL: the first device. */
static vrp_status open_cuda(const char *name, const char *number, vrp_driver **out_driver) {
    vrp_cuda_config config = {.struct_size = sizeof config};
    uint64_t ordinal = 0;
    vrp_status status;
    if (number != NULL && (!read_number(&number, &ordinal) || *number != '\0'))
        return vrpi_fail(VRP_INVALID_ARGUMENT, "driver \"%s\": no device number after \"cuda:\"",
                         name);
    if (ordinal > INT32_MAX)
        return vrpi_fail(VRP_UNAVAILABLE, "driver \"%s\": no such device", name);
    config.ordinal = (uint32_t)ordinal;
    status = vrp_cuda_driver_create(&config, out_driver);
    if (status == VRP_NOT_SUPPORTED)
        return vrpi_fail(VRP_UNAVAILABLE,
                         "driver \"%s\": this build of vrampool has no CUDA driver", name);
    return status;
}

/* Whether `name` is `kind` or begins with `kind` and a colon; *out_rest is what
 * follows the colon, NULL for nothing. */
static int is_kind(const char *name, const char *kind, const char **out_rest) {
    size_t length = strlen(kind);
    if (strncmp(name, kind, length) != 0 || (name[length] != '\0' && name[length] != ':'))
        return 0;
    *out_rest = name[length] == ':' ? name + length + 1 : NULL;
    return 1;
}

vrp_status vrp_driver_open(const char *name, vrp_driver **out_driver) {
    const char *rest;
    if (name == NULL || out_driver == NULL)
        return vrpi_fail(VRP_INVALID_ARGUMENT, "vrp_driver_open: %s is NULL",
                         name == NULL ? "name" : "out_driver");
    if (is_kind(name, "sim", &rest))
        return open_sim(name, rest, out_driver);
    if (is_kind(name, "cuda", &rest))
        return open_cuda(name, rest, out_driver);
    return vrpi_fail(VRP_INVALID_ARGUMENT,
                     "no driver is called \"%s\": there are \"sim\", \"sim:SIZE\" and \"cuda:N\"",
                     name);
}
