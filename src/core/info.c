/* SPDX-License-Identifier: MIT */
/* Version and build line of the library. */

#include "vrampool/status.h"

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

#ifndef VRPI_HAVE_CUDA
#define VRPI_HAVE_CUDA 0
#endif
#if VRPI_HAVE_CUDA
#define DRIVERS "sim, cuda"
#else
#define DRIVERS "sim"
#endif

uint32_t vrp_version(void) {
    return VRP_VERSION_MAJOR * 10000 + VRP_VERSION_MINOR * 100 + VRP_VERSION_PATCH;
}

const char *vrp_build_info(void) {
    return "vrampool " TEXT(VRP_VERSION_MAJOR) "." TEXT(VRP_VERSION_MINOR) "." TEXT(
        VRP_VERSION_PATCH) ", compiler " __VERSION__ ", drivers " DRIVERS;
}
