/* SPDX-License-Identifier: MIT */
/* Device, pool and model for the commands that measure. */

#include "verify_setup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "commands.h"

const g3_choice g3_kernel_choices[] = {
    {"scalar", G3_ISA_SCALAR}, {"avx2", G3_ISA_AVX2}, {"avx512", G3_ISA_AVX512}, {NULL, 0}};
const g3_choice g3_precision_choices[] = {{"int8", G3_INT8}, {"float32", G3_FLOAT32}, {NULL, 0}};
const g3_choice g3_kv_choices[] = {{"f16", G3_KV_F16}, {"f32", G3_KV_F32}, {NULL, 0}};

static uint32_t choose_threads(uint64_t wanted) {
#ifdef _OPENMP
    if (wanted > 0)
        omp_set_num_threads((int)wanted);
    return (uint32_t)omp_get_max_threads();
#else
    (void)wanted;
    return 1;
#endif
}

/* Twice the tensors, for groups that are filled up and for activations, and a floor
 * that any small model's cache fits in. The simulation takes memory when it is
 * touched, so a large device costs nothing. */
static void default_device(const g3_checkpoint *checkpoint, char *name, size_t room) {
    const uint64_t mebibytes = (g3_checkpoint_tensor_bytes(checkpoint) >> 19) + 2048;
    (void)snprintf(name, room, "sim:%" PRIu64 "MiB", mebibytes);
}

const char *g3_setup_model(const char *asked) {
    static char path[4096];
    const char *named = getenv("VRAMPOOL_GEMMA3_270M"), *home = getenv("HOME");
    if (asked != NULL)
        return asked;
    if (named != NULL && named[0] != '\0')
        return named;
    (void)snprintf(path, sizeof path, "%.4000s/.cache/vrampool/gemma-3-270m-q4_k_m.gguf",
                   home == NULL ? "" : home);
    return path;
}

g3_status g3_setup_open(const g3_setup_options *options, g3_setup *out_setup, g3_error *error) {
    g3_setup setup = {0};
    if (options->kernels >= 0 && g3_isa_set((g3_isa)options->kernels) != 0)
        return g3_fail(error, G3_UNSUPPORTED, "this CPU cannot run the %s kernels",
                       g3_isa_name((g3_isa)options->kernels));
    setup.threads = choose_threads(options->threads);
    const char *model = g3_setup_model(options->model);
    if (options->model == NULL && access(model, F_OK) != 0)
        return g3_fail(error, G3_IO,
                       "no --model, and no %.300s: examples/gemma3/fetch_model.sh gets it", model);
    g3_status status = g3_checkpoint_open(model, options->mmproj, &setup.checkpoint, error);
    if (status != G3_OK)
        return status;
    char device[48];
    default_device(setup.checkpoint, device, sizeof device);
    status = g3_memory_open(options->device != NULL ? options->device : device, VRP_BACKING_VMM,
                            &setup.memory, error);
    setup.memory_open = status == G3_OK;
    *out_setup = setup;
    if (status == G3_OK)
        status =
            g3_model_load(&out_setup->memory, setup.checkpoint, (g3_precision)options->precision,
                          (g3_fault)options->fault, NULL, NULL, &out_setup->model, error);
    if (status != G3_OK)
        (void)g3_setup_close(out_setup, NULL);
    return status;
}

g3_status g3_setup_close(g3_setup *setup, g3_error *error) {
    g3_status status = G3_OK;
    g3_model_free(setup->model);
    setup->model = NULL;
    if (setup->memory_open) {
        uint64_t left = 0;
        status = g3_memory_close(&setup->memory, &left, error);
        setup->memory_open = false;
        if (status == G3_OK && left > 0)
            status = g3_fail(error, G3_INVALID,
                             "%" PRIu64 " bytes were left on the simulated device", left);
    }
    g3_checkpoint_close(setup->checkpoint);
    setup->checkpoint = NULL;
    return status;
}

int g3_setup_failed(const char *command, const g3_error *error) {
    (void)fflush(stdout);
    (void)fprintf(stderr, "gemma3 %s: %s\n", command, error->text);
    return G3_EXIT_FAILED;
}

int g3_setup_end(const char *command, g3_setup *setup, g3_status status, const g3_error *error) {
    g3_error closing = {{0}};
    const g3_status closed = g3_setup_close(setup, &closing);
    if (status != G3_OK || closed != G3_OK)
        return g3_setup_failed(command, status != G3_OK ? error : &closing);
    return G3_EXIT_OK;
}

g3_status g3_setup_check_json(const char *path, g3_error *error) {
    if (path == NULL || strcmp(path, "-") == 0)
        return G3_OK;
    FILE *file = fopen(path, "ab"); /* what is in it stays until there is something new */
    if (file == NULL)
        return g3_fail(error, G3_IO, "%s: cannot be written: %s", path, strerror(errno));
    (void)fclose(file);
    return G3_OK;
}

g3_status g3_setup_write_json(json_t *root, const char *path, g3_error *error) {
    if (root == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "out of memory for the JSON object");
    const size_t flags = JSON_INDENT(1) | JSON_REAL_PRECISION(9);
    int written = -1;
    if (strcmp(path, "-") == 0) {
        written = json_dumpf(root, stdout, flags);
        (void)putchar('\n');
    } else {
        written = json_dump_file(root, path, flags);
    }
    json_decref(root);
    return written == 0 ? G3_OK : g3_fail(error, G3_IO, "%s: cannot be written", path);
}

/* "model name" of the first CPU that /proc/cpuinfo lists. */
static void cpu_name(char *name, size_t room) {
    (void)snprintf(name, room, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL)
        return;
    char line[256];
    while (fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(name, room, "%s", colon[1] == ' ' ? colon + 2 : colon + 1);
        break;
    }
    (void)fclose(file);
}

json_t *g3_setup_environment(const g3_setup *setup) {
    char cpu[128];
    cpu_name(cpu, sizeof cpu);
    json_t *root = json_pack("{s:s,s:I,s:I,s:s,s:s}", "cpu", cpu, "cpus",
                             (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "threads",
                             (json_int_t)setup->threads, "kernels", g3_isa_name(g3_isa_current()),
#ifdef __OPTIMIZE__
                             "build", "optimised"
#else
                             "build", "not optimised"
#endif
    );
#ifdef VRAMPOOL_COMMIT
    if (root != NULL && json_object_set_new(root, "commit", json_string(VRAMPOOL_COMMIT)) != 0) {
        json_decref(root);
        root = NULL;
    }
#endif
    return root;
}
