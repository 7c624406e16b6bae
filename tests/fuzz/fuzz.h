/* SPDX-License-Identifier: MIT */
#ifndef VRPT_FUZZ_H
#define VRPT_FUZZ_H

/* What a fuzz target defines: libFuzzer's entry point. */

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
