/* SPDX-License-Identifier: MIT */
/* Finds the table of an allocator. */

#include "adaptors.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const bench_peer bench_peers[] = {
    {"vrampool", NULL, "", NULL, 1},
    {"cuda-malloc", NULL, "malloc", NULL, 0},
    {"cuda-async-0", NULL, "async-0", NULL, 0},
    {"cuda-async-max", NULL, "async-max", NULL, 0},
    {"torch", "torch.so", "native", NULL, 0},
    {"torch-expandable", "torch.so", "expandable", "expandable_segments:True", 0},
    {"rmm-pool", "rmm.so", "pool", NULL, 0},
    {"rmm-arena", "rmm.so", "arena", NULL, 0},
    {"none", NULL, "", NULL, 1},
};
const size_t bench_peer_count = sizeof bench_peers / sizeof *bench_peers;

const bench_peer *bench_peer_find(const char *id) {
    for (size_t i = 0; i < bench_peer_count; i++)
        if (strcmp(bench_peers[i].id, id) == 0)
            return &bench_peers[i];
    return NULL;
}

static const bench_adaptor *built_in(const bench_peer *peer) {
    if (strcmp(peer->id, "vrampool") == 0)
        return &bench_adaptor_vrampool;
    if (strcmp(peer->id, "none") == 0)
        return &bench_adaptor_none;
    return strcmp(peer->id, "cuda-malloc") == 0 ? &bench_adaptor_cuda_malloc
                                                : &bench_adaptor_cuda_async;
}

/* What build_adaptors.sh left beside a library that it could not build, else
 * what the loader says. */
static void why_not(const char *library, const char *loader_says, char *out_reason,
                    size_t reason_bytes) {
    char path[1100];
    (void)snprintf(path, sizeof path, "%s.why", library);
    FILE *file = fopen(path, "r");
    (void)snprintf(out_reason, reason_bytes, "%s", loader_says);
    if (file == NULL)
        return;
    if (fgets(out_reason, (int)reason_bytes, file) != NULL)
        out_reason[strcspn(out_reason, "\n")] = '\0';
    (void)fclose(file);
}

const bench_adaptor *bench_peer_load(const bench_peer *peer, const char *folder, char *out_reason,
                                     size_t reason_bytes) {
    char path[1024];
    bench_adaptor_get_fn get = NULL;
    if (peer->library == NULL)
        return built_in(peer);
    if (folder == NULL) {
        (void)snprintf(out_reason, reason_bytes, "no folder of adaptors was named");
        return NULL;
    }
    (void)snprintf(path, sizeof path, "%s/%s", folder, peer->library);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        why_not(path, dlerror(), out_reason, reason_bytes);
        return NULL;
    }
    void *address = dlsym(library, "bench_adaptor_get");
    memcpy((void *)&get, &address, sizeof address);
    const bench_adaptor *table = get != NULL ? get(peer->variant) : NULL;
    if (table == NULL || table->version != BENCH_ADAPTOR_VERSION) {
        (void)snprintf(out_reason, reason_bytes, "%s is for another version", path);
        return NULL;
    }
    return table;
}
