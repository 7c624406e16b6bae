/* SPDX-License-Identifier: MIT */
/* The operations in plain C, for any machine. */
#include "ops_rows.h"

const g3_ops_kernels g3_ops_scalar = G3_OPS_KERNELS_TABLE;
