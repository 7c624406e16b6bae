/* SPDX-License-Identifier: MIT */
/* Entry points of libcuda, looked up once when the first driver is made. */

#include "driver/cuda_internal.h"

#if VRPI_HAVE_CUDA

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The lists in cuda_internal.h say what cuda.h says. */
#define SAME(member, function, symbol, version, parameters)                               \
    _Static_assert(__builtin_types_compatible_p(__typeof__(((vrpi_cuda_api *)0)->member), \
                                                __typeof__(&(function))),                 \
                   "prototype of " symbol);
VRPI_CUDA_REQUIRED_MAP(SAME)
VRPI_CUDA_VMM_MAP(SAME)
#if CUDA_VERSION >= 12050
VRPI_CUDA_NEWER_MAP(SAME)
#endif
#undef SAME

typedef struct entry {
    const char *name;   /* for cuGetProcAddress */
    const char *symbol; /* for dlsym */
    int version;
    size_t offset; /* in vrpi_cuda_api */
} entry;

#define ENTRY(member, function, symbol, version, parameters) \
    {#function, symbol, version, offsetof(vrpi_cuda_api, member)},
static const entry required[] = {VRPI_CUDA_REQUIRED_MAP(ENTRY)};
static const entry vmm[] = {VRPI_CUDA_VMM_MAP(ENTRY)};
static const entry newer[] = {VRPI_CUDA_NEWER_MAP(ENTRY)};
#undef ENTRY
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

typedef CUresult(CUDAAPI *lookup_fn)(const char *name, void **out, int version, cuuint64_t flags);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static vrpi_cuda_api loaded;
static char why_not[160]; /* "" when `loaded` is good */

static void *find(void *library, lookup_fn lookup, const entry *wanted) {
    void *address = NULL;
    if (lookup != NULL && lookup(wanted->name, &address, wanted->version,
                                 CU_GET_PROC_ADDRESS_LEGACY_STREAM) != CUDA_SUCCESS)
        address = NULL;
    return address != NULL ? address : dlsym(library, wanted->symbol);
}

/* Fills in a list. Answers the first entry that is missing, NULL for none. */
static const entry *fill(void *library, lookup_fn lookup, const entry *list, size_t count) {
    const entry *missing = NULL;
    for (size_t i = 0; i < count; i++) {
        void *address = find(library, lookup, &list[i]);
        if (address == NULL && missing == NULL)
            missing = &list[i];
        /* A copy, since ISO C has no cast from an object to a function. */
        memcpy((char *)&loaded + list[i].offset, &address, sizeof address);
    }
    return missing;
}

static void load(void) {
    /* Never closed: other libraries of the process use it, and it does not
     * expect to be unloaded. */
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *address;
    const entry *missing;
    lookup_fn lookup = NULL;
    if (library == NULL) {
        const char *reason = dlerror();
        (void)snprintf(why_not, sizeof why_not, "no NVIDIA driver: %s",
                       reason != NULL ? reason : "libcuda.so.1 cannot be loaded");
        return;
    }
    address = dlsym(library, "cuGetProcAddress");
    memcpy(&lookup, &address, sizeof lookup);
    missing = fill(library, lookup, required, COUNT(required));
    if (missing != NULL) {
        (void)snprintf(why_not, sizeof why_not, "the NVIDIA driver is too old: it has no %s",
                       missing->symbol);
        return;
    }
    if (fill(library, lookup, vmm, COUNT(vmm)) != NULL)
        loaded.address_reserve = NULL; /* one for all: it is what the driver object asks */
    (void)fill(library, lookup, newer, COUNT(newer));
}

const vrpi_cuda_api *vrpi_cuda_api_get(const char **out_why_not) {
    (void)pthread_once(&once, load);
    *out_why_not = why_not;
    return why_not[0] == '\0' ? &loaded : NULL;
}

#endif
