/* SPDX-License-Identifier: MIT */
#include "tensor.h"

#include <stddef.h>

static const struct {
    uint32_t type;
    g3_type_info info;
} types[] = {
    {G3_F32, {"F32", 1, 4}},       {G3_F16, {"F16", 1, 2}},       {G3_BF16, {"BF16", 1, 2}},
    {G3_Q4_0, {"Q4_0", 32, 18}},   {G3_Q4_1, {"Q4_1", 32, 20}},   {G3_Q5_0, {"Q5_0", 32, 22}},
    {G3_Q5_1, {"Q5_1", 32, 24}},   {G3_Q8_0, {"Q8_0", 32, 34}},   {G3_Q4_K, {"Q4_K", 256, 144}},
    {G3_Q5_K, {"Q5_K", 256, 176}}, {G3_Q6_K, {"Q6_K", 256, 210}},
};

const g3_type_info *g3_type_info_get(uint32_t type) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].type == type)
            return &types[i].info;
    return NULL;
}
