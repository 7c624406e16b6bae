/* SPDX-License-Identifier: MIT */
/* Attention in plain C, for any machine. */
#include "attention_tile.h"

const g3_attention_kernels g3_attention_scalar = G3_ATTENTION_KERNELS_TABLE;
