/* SPDX-License-Identifier: MIT */
/* The operations for AVX-512, compiled with its flags; run only where the CPU has it. */
#include "ops_kernels.h"

#if defined(__x86_64__)
#include "ops_rows.h"

const g3_ops_kernels g3_ops_avx512 = G3_OPS_KERNELS_TABLE;
#endif
