/* SPDX-License-Identifier: MIT */
#include "matrix.h"

#include <string.h>

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float g3_half_to_float(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 31u;
    const uint32_t mantissa = half & 0x3ffu;
    if (exponent == 31)
        return float_of_bits(sign | 0x7f800000u | (mantissa ? 0x400000u | mantissa << 13 : 0));
    if (exponent != 0)
        return float_of_bits(sign | (exponent + 112u) << 23 | mantissa << 13);
    /* Zero or subnormal: mantissa * 2^-24, exact in float. */
    const float magnitude = (float)mantissa * 0x1p-24f;
    return float_of_bits(sign | bits_of_float(magnitude));
}

/* `bits` without its low `shift` bits, rounded to nearest, ties to even. */
static uint32_t round_off(uint32_t bits, uint32_t shift) {
    const uint32_t half = (UINT32_C(1) << (shift - 1)) - 1;
    return (bits + half + ((bits >> shift) & 1u)) >> shift;
}

uint16_t g3_float_to_half(float value) {
    const uint32_t bits = bits_of_float(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) /* 2^-14: a normal half; the exponent takes a carry */
        return (uint16_t)(sign | round_off(magnitude - 0x38000000u, 13));
    if (magnitude < 0x33000000u) /* below 2^-25, half the smallest subnormal */
        return (uint16_t)sign;
    const uint32_t exponent = magnitude >> 23;
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | round_off(mantissa, 126u - exponent));
}

float g3_bf16_to_float(uint16_t value) { return float_of_bits((uint32_t)value << 16); }

uint16_t g3_float_to_bf16(float value) {
    const uint32_t bits = bits_of_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)round_off(bits, 16);
}
