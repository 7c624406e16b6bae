/* SPDX-License-Identifier: MIT */
#include "tensor.h"

#include <stddef.h>

/* All types of the format, so that tensors that nobody asks for can be stepped over. The
 * first `READ` of them are read. */
enum { READ = 11 };
static const struct {
    uint32_t type;
    g3_type_info info;
} types[] = {
    {G3_F32, {"F32", 1, 4}},       {G3_F16, {"F16", 1, 2}},       {G3_BF16, {"BF16", 1, 2}},
    {G3_Q4_0, {"Q4_0", 32, 18}},   {G3_Q4_1, {"Q4_1", 32, 20}},   {G3_Q5_0, {"Q5_0", 32, 22}},
    {G3_Q5_1, {"Q5_1", 32, 24}},   {G3_Q8_0, {"Q8_0", 32, 34}},   {G3_Q4_K, {"Q4_K", 256, 144}},
    {G3_Q5_K, {"Q5_K", 256, 176}}, {G3_Q6_K, {"Q6_K", 256, 210}}, {9, {"Q8_1", 32, 36}},
    {10, {"Q2_K", 256, 84}},       {11, {"Q3_K", 256, 110}},      {15, {"Q8_K", 256, 292}},
    {16, {"IQ2_XXS", 256, 66}},    {17, {"IQ2_XS", 256, 74}},     {18, {"IQ3_XXS", 256, 98}},
    {19, {"IQ1_S", 256, 50}},      {20, {"IQ4_NL", 32, 18}},      {21, {"IQ3_S", 256, 110}},
    {22, {"IQ2_S", 256, 82}},      {23, {"IQ4_XS", 256, 136}},    {24, {"I8", 1, 1}},
    {25, {"I16", 1, 2}},           {26, {"I32", 1, 4}},           {27, {"I64", 1, 8}},
    {28, {"F64", 1, 8}},           {29, {"IQ1_M", 256, 56}},      {34, {"TQ1_0", 256, 54}},
    {35, {"TQ2_0", 256, 66}},      {39, {"MXFP4", 32, 17}},       {40, {"NVFP4", 64, 36}},
};

static const g3_type_info *find(uint32_t type, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (types[i].type == type)
            return &types[i].info;
    return NULL;
}

const g3_type_info *g3_type_info_get(uint32_t type) { return find(type, READ); }

const g3_type_info *g3_type_layout(uint32_t type) {
    return find(type, sizeof types / sizeof types[0]);
}
