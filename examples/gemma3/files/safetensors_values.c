/* SPDX-License-Identifier: MIT */
/* Single elements of safetensors, for ids and for comparison with references. */

#include "safetensors.h"

#include <string.h>

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float half(uint16_t bits) {
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 31u;
    const uint32_t fraction = bits & 1023u;
    if (exponent == 31)
        return float_of_bits(sign | 0x7f800000u | (fraction << 13));
    if (exponent != 0)
        return float_of_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
    const float tiny = (float)fraction * 0x1p-24f; /* exact: subnormals of half are normal here */
    return sign != 0 ? -tiny : tiny;
}

float g3_st_float(const g3_st_tensor *tensor, uint64_t index) {
    uint32_t wide = 0;
    uint16_t narrow = 0;
    switch (tensor->type) {
    case G3_ST_F32:
        memcpy(&wide, tensor->data + index * sizeof wide, sizeof wide);
        return float_of_bits(wide);
    case G3_ST_F16:
        memcpy(&narrow, tensor->data + index * sizeof narrow, sizeof narrow);
        return half(narrow);
    case G3_ST_BF16:
        memcpy(&narrow, tensor->data + index * sizeof narrow, sizeof narrow);
        return float_of_bits((uint32_t)narrow << 16);
    case G3_ST_I32:
    case G3_ST_I64:
    case G3_ST_OTHER:
    default:
        return 0;
    }
}

int64_t g3_st_int(const g3_st_tensor *tensor, uint64_t index) {
    int32_t narrow = 0;
    int64_t wide = 0;
    switch (tensor->type) {
    case G3_ST_I32:
        memcpy(&narrow, tensor->data + index * sizeof narrow, sizeof narrow);
        return narrow;
    case G3_ST_I64:
        memcpy(&wide, tensor->data + index * sizeof wide, sizeof wide);
        return wide;
    case G3_ST_F32:
    case G3_ST_F16:
    case G3_ST_BF16:
    case G3_ST_OTHER:
    default:
        return 0;
    }
}
