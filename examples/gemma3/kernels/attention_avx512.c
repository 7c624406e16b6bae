/* SPDX-License-Identifier: MIT */
/* Attention for AVX-512, compiled with its flags; run only where the CPU has it. */
#include "attention_kernels.h"

#if defined(__x86_64__)
#include "attention_tile.h"

const g3_attention_kernels g3_attention_avx512 = G3_ATTENTION_KERNELS_TABLE;
#endif
