/* SPDX-License-Identifier: MIT */
/* Which kernels run on this CPU. */

#include "matrix_layout.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* -1: not chosen yet. Two threads that choose at once find the same. */
static _Atomic int chosen = -1;
static _Atomic int amx_state = -1;

const char *g3_isa_name(g3_isa isa) {
    switch (isa) {
    case G3_ISA_SCALAR:
        return "scalar";
    case G3_ISA_AVX2:
        return "avx2";
    case G3_ISA_AVX512:
        return "avx512";
    }
    return "unknown";
}

g3_isa g3_isa_best(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    /* f16c has no name in older compilers' list: bit 29 of leaf 1's ecx. */
    unsigned a = 0, b = 0, c = 0, d = 0;
    const int f16c = __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1u);
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !f16c)
        return G3_ISA_SCALAR;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni"))
        return G3_ISA_AVX512;
    return G3_ISA_AVX2;
#else
    return G3_ISA_SCALAR;
#endif
}

g3_isa g3_isa_current(void) {
    int isa = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (isa >= 0)
        return (g3_isa)isa;
    const g3_isa best = g3_isa_best();
    isa = (int)best;
    const char *name = getenv("GEMMA3_KERNELS");
    for (int i = 0; name && i <= (int)best; i++)
        if (!strcmp(name, g3_isa_name((g3_isa)i)))
            isa = i;
    atomic_store_explicit(&chosen, isa, memory_order_relaxed);
    return (g3_isa)isa;
}

int g3_isa_set(g3_isa isa) {
    if ((int)isa < 0 || isa > g3_isa_best())
        return -1;
    atomic_store_explicit(&chosen, (int)isa, memory_order_relaxed);
    return 0;
}

/* Tiles need a CPU that has them and a system that hands out their state. */
static int amx_usable(void) {
#if defined(__x86_64__) && defined(__linux__) && defined(SYS_arch_prctl)
    enum { ASK_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 24 & 1u) || !(d >> 25 & 1u))
        return 0;
    return syscall(SYS_arch_prctl, ASK_PERMISSION, TILE_DATA) == 0;
#else
    return 0;
#endif
}

/* Bit 0: usable, bit 1: allowed. */
static int amx_now(void) {
    int state = atomic_load_explicit(&amx_state, memory_order_relaxed);
    if (state < 0) {
        state = amx_usable() ? 3 : 2;
        atomic_store_explicit(&amx_state, state, memory_order_relaxed);
    }
    return state;
}

int g3_amx_allow(int allow) {
    const int usable = amx_now() & 1;
    atomic_store_explicit(&amx_state, usable | (allow ? 2 : 0), memory_order_relaxed);
    return usable;
}

const g3_kernels *g3_kernels_current(void) {
    switch (g3_isa_current()) {
#if defined(__x86_64__)
    case G3_ISA_AVX512:
        return amx_now() == 3 ? &g3_kernels_amx : &g3_kernels_avx512;
    case G3_ISA_AVX2:
        return &g3_kernels_avx2;
#else
    case G3_ISA_AVX512:
    case G3_ISA_AVX2:
#endif
    case G3_ISA_SCALAR:
        break;
    }
    return &g3_kernels_scalar;
}
