/* SPDX-License-Identifier: MIT */
/* libcuda at run time, and the kernels of the measurements as PTX, which the
 * driver compiles for the device at hand. */

#include "gpu.h"

#include <dlfcn.h>
#include <string.h>

enum { MOST_THREADS = 256, READ_BLOCKS = 132 * 16 };
#define GRANULE (UINT64_C(2) << 20)

/* touch: thread i writes the byte at i * 2 MiB, and thread 0 the last one too.
 * read: a grid-stride loop over 64 bytes a thread and turn. What it reads is
 * folded together and compared, so that no load can be left out. */
static const char kernels[] =
    ".version 6.3\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".visible .entry nothing()\n"
    "{\n"
    "  ret;\n"
    "}\n"
    ".visible .entry touch(.param .u64 p_at, .param .u64 p_bytes)\n"
    "{\n"
    "  .reg .u64 %at, %bytes, %i, %offset;\n"
    "  .reg .u32 %t, %b, %d;\n"
    "  .reg .u16 %v;\n"
    "  .reg .pred %out, %first, %none;\n"
    "  ld.param.u64 %at, [p_at];\n"
    "  ld.param.u64 %bytes, [p_bytes];\n"
    "  setp.eq.u64 %none, %bytes, 0;\n"
    "  @%none bra done;\n"
    "  mov.u32 %t, %tid.x;\n"
    "  mov.u32 %b, %ctaid.x;\n"
    "  mov.u32 %d, %ntid.x;\n"
    "  mad.lo.u32 %t, %b, %d, %t;\n"
    "  cvt.u64.u32 %i, %t;\n"
    "  shl.b64 %offset, %i, 21;\n"
    "  setp.ge.u64 %out, %offset, %bytes;\n"
    "  @%out bra done;\n"
    "  mov.u16 %v, 1;\n"
    "  add.u64 %offset, %at, %offset;\n"
    "  st.global.u8 [%offset], %v;\n"
    "  setp.ne.u64 %first, %i, 0;\n"
    "  @%first bra done;\n"
    "  add.u64 %offset, %at, %bytes;\n"
    "  st.global.u8 [%offset+-1], %v;\n"
    "done:\n"
    "  ret;\n"
    "}\n"
    ".visible .entry read(.param .u64 p_at, .param .u64 p_bytes, .param .u32 p_passes)\n"
    "{\n"
    "  .reg .u64 %at, %end, %p, %step, %i;\n"
    "  .reg .u32 %t, %b, %d, %g, %left, %sum, %x0, %x1, %x2, %x3;\n"
    "  .reg .u32 %y0, %y1, %y2, %y3, %z0, %z1, %z2, %z3, %w0, %w1, %w2, %w3;\n"
    "  .reg .pred %more, %again, %hit;\n"
    "  ld.param.u64 %at, [p_at];\n"
    "  ld.param.u64 %end, [p_bytes];\n"
    "  ld.param.u32 %left, [p_passes];\n"
    "  add.u64 %end, %at, %end;\n"
    "  mov.u32 %t, %tid.x;\n"
    "  mov.u32 %b, %ctaid.x;\n"
    "  mov.u32 %d, %ntid.x;\n"
    "  mov.u32 %g, %nctaid.x;\n"
    "  mul.lo.u32 %g, %g, %d;\n"
    "  mul.wide.u32 %step, %g, 64;\n"
    "  mul.lo.u32 %b, %b, %d;\n"
    "  mul.wide.u32 %i, %b, 64;\n"
    "  add.u64 %i, %at, %i;\n"
    "  mul.wide.u32 %p, %t, 16;\n"
    "  add.u64 %i, %i, %p;\n"
    "  mul.wide.u32 %at, %d, 16;\n"
    "  mov.u32 %sum, 0;\n"
    "pass:\n"
    "  mov.u64 %p, %i;\n"
    "  bra test;\n"
    "loop:\n"
    "  ld.global.v4.u32 {%x0, %x1, %x2, %x3}, [%p];\n"
    "  add.u64 %p, %p, %at;\n"
    "  ld.global.v4.u32 {%y0, %y1, %y2, %y3}, [%p];\n"
    "  add.u64 %p, %p, %at;\n"
    "  ld.global.v4.u32 {%z0, %z1, %z2, %z3}, [%p];\n"
    "  add.u64 %p, %p, %at;\n"
    "  ld.global.v4.u32 {%w0, %w1, %w2, %w3}, [%p];\n"
    "  mad.lo.u64 %p, %at, -3, %p;\n"
    "  add.u64 %p, %p, %step;\n"
    "  xor.b32 %x0, %x0, %x1;\n"
    "  xor.b32 %x2, %x2, %x3;\n"
    "  xor.b32 %y0, %y0, %y1;\n"
    "  xor.b32 %y2, %y2, %y3;\n"
    "  xor.b32 %z0, %z0, %z1;\n"
    "  xor.b32 %z2, %z2, %z3;\n"
    "  xor.b32 %w0, %w0, %w1;\n"
    "  xor.b32 %w2, %w2, %w3;\n"
    "  xor.b32 %x0, %x0, %x2;\n"
    "  xor.b32 %y0, %y0, %y2;\n"
    "  xor.b32 %z0, %z0, %z2;\n"
    "  xor.b32 %w0, %w0, %w2;\n"
    "  xor.b32 %x0, %x0, %y0;\n"
    "  xor.b32 %z0, %z0, %w0;\n"
    "  add.u32 %sum, %sum, %x0;\n"
    "  add.u32 %sum, %sum, %z0;\n"
    "test:\n"
    "  setp.lt.u64 %more, %p, %end;\n"
    "  @%more bra loop;\n"
    "  sub.u32 %left, %left, 1;\n"
    "  setp.ne.u32 %again, %left, 0;\n"
    "  @%again bra pass;\n"
    "  setp.eq.u32 %hit, %sum, 305419896;\n"
    "  ld.param.u64 %at, [p_at];\n"
    "  @%hit st.global.u32 [%at], %sum;\n"
    "  ret;\n"
    "}\n";

/* Copies an entry point into a pointer to a function; ISO C has no cast. */
static int look_up(void *library, const char *symbol, void *out_function) {
    void *address = dlsym(library, symbol);
    memcpy(out_function, &address, sizeof address);
    return address != NULL;
}

static const char *load_kernels(bench_gpu *gpu) {
    bench_cu_handle module = NULL;
    if (gpu->module_load(&module, kernels) != 0 ||
        gpu->module_function(&gpu->nothing, module, "nothing") != 0 ||
        gpu->module_function(&gpu->touch, module, "touch") != 0 ||
        gpu->module_function(&gpu->read, module, "read") != 0)
        return "the compiler for PTX";
    /* A kernel is loaded when it is first launched: not in a measurement. */
    uint64_t word = 0;
    if (gpu->mem_alloc(&word, 4096) != 0)
        return "4 KiB of device memory";
    int error = gpu->mem_set(word, 0, 4096);
    error = error != 0 ? error : bench_gpu_nothing(gpu, 0);
    error = error != 0 ? error : bench_gpu_touch(gpu, 0, word, 4096);
    error = error != 0 ? error : bench_gpu_read(gpu, 0, word, 4096, 1);
    error = error != 0 ? error : gpu->synchronise();
    error = error != 0 ? error : gpu->mem_free(word);
    return error == 0 ? NULL : "a first kernel";
}

const char *bench_gpu_open(bench_gpu *gpu, uint32_t ordinal) {
    memset(gpu, 0, sizeof *gpu);
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL)
        return "libcuda.so.1";
#define BENCH_CU_LOAD(member, symbol, parameters)        \
    if (!look_up(library, symbol, (void *)&gpu->member)) \
        return "an entry point of libcuda.so.1: " symbol;
    BENCH_CU_MAP(BENCH_CU_LOAD)
#undef BENCH_CU_LOAD
    if (!look_up(library, "cuEventElapsedTime_v2", (void *)&gpu->event_elapsed) &&
        !look_up(library, "cuEventElapsedTime", (void *)&gpu->event_elapsed))
        return "an entry point of libcuda.so.1: cuEventElapsedTime";
    if (gpu->init(0) != 0 || gpu->device_get(&gpu->device, (int)ordinal) != 0)
        return "such a device";
    if (gpu->retain(&gpu->context, gpu->device) != 0 || gpu->context_set(gpu->context) != 0)
        return "its primary context";
    if (gpu->device_name(gpu->name, (int)sizeof gpu->name, gpu->device) != 0 ||
        gpu->driver_version(&gpu->version) != 0)
        return "its name";
    return load_kernels(gpu);
}

void bench_gpu_close(bench_gpu *gpu) {
    if (gpu->context != NULL) {
        (void)gpu->context_set(NULL);
        (void)gpu->release(gpu->device);
    }
    /* The library stays: it does not expect to be unloaded. */
    memset(gpu, 0, sizeof *gpu);
}

int bench_gpu_thread(const bench_gpu *gpu) { return gpu->context_set(gpu->context); }

static bench_cu_handle handle(uint64_t stream) { return (bench_cu_handle)(uintptr_t)stream; }

int bench_gpu_nothing(const bench_gpu *gpu, uint64_t stream) {
    return gpu->launch(gpu->nothing, 1, 1, 1, 32, 1, 1, 0, handle(stream), NULL, NULL);
}

int bench_gpu_touch(const bench_gpu *gpu, uint64_t stream, uint64_t ptr, uint64_t bytes) {
    void *parameters[] = {&ptr, &bytes};
    uint64_t granules = (bytes + GRANULE - 1) / GRANULE;
    unsigned threads = granules < 32 ? 32 : MOST_THREADS;
    unsigned blocks = granules == 0 ? 1 : (unsigned)((granules + threads - 1) / threads);
    return gpu->launch(gpu->touch, blocks, 1, 1, threads, 1, 1, 0, handle(stream), parameters,
                       NULL);
}

int bench_gpu_read(const bench_gpu *gpu, uint64_t stream, uint64_t ptr, uint64_t bytes,
                   uint32_t passes) {
    /* Whole turns of a block of threads only: 256 threads at 64 bytes each. */
    uint64_t whole = bytes / (64u * 256u) * (64u * 256u);
    void *parameters[] = {&ptr, &whole, &passes};
    return gpu->launch(gpu->read, READ_BLOCKS, 1, 1, 256, 1, 1, 0, handle(stream), parameters,
                       NULL);
}
