/* SPDX-License-Identifier: MIT */
/* The CUDA driver beside others: handles for other processes, access by other
 * devices, threads that work on other contexts, the runtime's last error.
 *
 *     test_cuda_share [cuda:N]
 *
 * It runs as test_cuda_driver.c says. Tests that need a second device, or the
 * runtime (libcudart.so.13 or .12), skip where there is none. */

#include "gpu_support.h"

#include <pthread.h>
#include <unistd.h>

static const uint64_t too_much = UINT64_C(1) << 46; /* on the grid of every granularity */

/* ---- other processes --------------------------------------------------------------------- */

static void handles_are_exported_where_asked_for(void **state) {
    vrpt_gpu other;
    vrp_handle handle = 0;
    vrp_status status = VRP_NOT_SUPPORTED;
    int64_t fd = -7;
    (void)state;
    assert_null(gpu.ops->handle_export); /* not by default */
    assert_int_equal(gpu.info.caps & VRP_CAP_EXPORT_FD, 0);
    VRPT_OK(gpu_open(cu.device, 1, &other));
    assert_int_equal(other.ops->handle_export != NULL, (other.info.caps & VRP_CAP_EXPORT_FD) != 0);
    if (other.ops->handle_export != NULL) {
        VRPT_OK(other.ops->handle_create(other.ctx, other.info.granularity_bytes, &handle));
        status = other.ops->handle_export(other.ctx, handle, &fd);
        VRPT_OK(other.ops->handle_release(other.ctx, handle));
    }
    vrp_driver_destroy(other.driver);
    if (status == VRP_NOT_SUPPORTED)
        skip(); /* the device or the system cannot */
    assert_int_equal(status, VRP_OK);
    assert_true(fd >= 0);
    assert_int_equal(close((int)fd), 0);
}

static void range_has_a_dma_buf_where_the_device_can(void **state) {
    vrp_devptr ptr = 0;
    int64_t fd = -7;
    (void)state;
    assert_int_equal(gpu.ops->range_export != NULL, (gpu.info.caps & VRP_CAP_EXPORT_DMA_BUF) != 0);
    if (gpu.ops->range_export == NULL)
        skip();
    VRPT_OK(GPU(mem_alloc, 4 * VRPT_MIB, &ptr));
    vrp_status status = GPU(range_export, ptr, 4 * VRPT_MIB, &fd);
    VRPT_OK(GPU(mem_free, ptr));
    assert_null(gpu_every_call(&gpu, VRP_STREAM_LEGACY));
    if (status != VRP_OK)
        skip(); /* the kernel's part is missing */
    assert_true(fd >= 0);
    assert_int_equal(close((int)fd), 0);
}

static void plain_memory_has_an_ipc_handle(void **state) {
    const uint64_t bytes = gpu.info.granularity_bytes;
    unsigned char first[64] = {0}, middle[64] = {0}, untouched[64], zero[64] = {0};
    vrp_devptr ptr = 0, base = 0;
    vrp_handle handle = 0;
    (void)state;
    assert_int_equal(gpu.ops->ipc_export != NULL, (gpu.info.caps & VRP_CAP_EXPORT_IPC) != 0);
    if (gpu.ops->ipc_export == NULL)
        skip();
    VRPT_OK(GPU(mem_alloc, 4 * VRPT_MIB, &ptr));
    vrp_status whole = GPU(ipc_export, ptr, first);
    vrp_status part = GPU(ipc_export, ptr + 2 * VRPT_MIB + 512, middle);
    VRPT_OK(GPU(mem_free, ptr));
    /* virtual memory has none, and asking harms nothing */
    VRPT_OK(GPU(address_reserve, bytes, &base));
    VRPT_OK(GPU(handle_create, bytes, &handle));
    VRPT_OK(GPU(map, base, bytes, handle));
    VRPT_OK(GPU(set_access, base, bytes));
    memset(untouched, 0xa5, sizeof untouched);
    vrp_status refused = GPU(ipc_export, base, untouched);
    VRPT_OK(GPU(unmap, base, bytes));
    VRPT_OK(GPU(handle_release, handle));
    VRPT_OK(GPU(address_free, base, bytes));
    assert_null(gpu_every_call(&gpu, VRP_STREAM_LEGACY));
    if (whole == VRP_NOT_SUPPORTED)
        skip();
    assert_int_equal(whole, VRP_OK);
    assert_int_equal(part, VRP_OK);
    assert_memory_not_equal(first, zero, sizeof zero);
    assert_int_not_equal(refused, VRP_OK);
    for (size_t i = 0; i < sizeof untouched; i++)
        assert_int_equal(untouched[i], 0xa5);
}

/* ---- other devices ------------------------------------------------------------------------ */

static vrp_status open_with_peers(uint64_t mask, vrp_driver **out) {
    vrp_cuda_config config = {
        .struct_size = sizeof config, .ordinal = (uint32_t)cu.device, .peer_mask = mask};
    return vrp_cuda_driver_create(&config, out);
}

static void peers_are_checked_when_the_driver_is_made(void **state) {
    vrp_driver *driver = NULL;
    (void)state;
    VRPT_OK(open_with_peers(UINT64_C(1) << cu.device, &driver)); /* itself: says nothing */
    vrp_driver_destroy(driver);
    driver = NULL;
    if (vrp_cuda_device_count() >= 64)
        skip();
    VRPT_STATUS(open_with_peers(UINT64_C(1) << 63, &driver), VRP_UNAVAILABLE);
    assert_null(driver);
    assert_non_null(strstr(vrpt_detail(), "63"));
}

static void peer_has_access_to_what_is_mapped(void **state) {
    const uint64_t bytes = gpu.info.granularity_bytes;
    uint32_t other_device = cu.device == 0 ? 1 : 0;
    vrpt_gpu g = {.info.struct_size = sizeof g.info};
    vrp_devptr base = 0;
    vrp_handle handle = 0;
    (void)state;
    if (vrp_cuda_device_count() < 2)
        skip();
    vrp_status status = open_with_peers(UINT64_C(1) << other_device, &g.driver);
    if (status == VRP_NOT_SUPPORTED) { /* no link between the two: the detail names both */
        assert_non_null(strstr(vrpt_detail(), "cannot access"));
        skip();
    }
    assert_int_equal(status, VRP_OK);
    g.ops = vrp_driver_ops_get(g.driver, &g.ctx);
    VRPT_OK(vrp_driver_info_get(g.driver, &g.info));
    assert_null(gpu_every_call(&g, VRP_STREAM_LEGACY));
    VRPT_OK(g.ops->address_reserve(g.ctx, bytes, &base));
    VRPT_OK(g.ops->handle_create(g.ctx, bytes, &handle));
    VRPT_OK(g.ops->map(g.ctx, base, bytes, handle));
    VRPT_OK(g.ops->set_access(g.ctx, base, bytes));
    /* cuMemGetAccess says what each device may do there */
    typedef struct location {
        int type, id;
    } location;
    int (*get_access)(unsigned long long *flags, const location *where, uint64_t ptr) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *address = library != NULL ? dlsym(library, "cuMemGetAccess") : NULL;
    memcpy(&get_access, &address, sizeof get_access);
    if (get_access != NULL) {
        const location where = {1, (int)other_device};
        unsigned long long flags = 0;
        assert_int_equal(get_access(&flags, &where, base), 0);
        assert_int_equal(flags, 3); /* reading and writing */
    }
    VRPT_OK(g.ops->unmap(g.ctx, base, bytes));
    VRPT_OK(g.ops->handle_release(g.ctx, handle));
    VRPT_OK(g.ops->address_free(g.ctx, base, bytes));
    vrp_driver_destroy(g.driver);
}

static void current_device_of_the_thread_is_no_matter(void **state) {
    vrpt_gpu other;
    vrpt_cu primary = NULL, current = NULL;
    int other_device = cu.device == 0 ? 1 : 0;
    (void)state;
    if (vrp_cuda_device_count() < 2)
        skip();
    VRPT_OK(gpu_open(other_device, 0, &other));
    assert_int_equal(cu.retain(&primary, other_device), 0);
    assert_int_equal(cu.ctx_set(primary), 0);
    const char *failed = NULL;
    for (int i = 0; i < 10 && failed == NULL; i++) {
        failed = gpu_every_call(&gpu, VRP_STREAM_LEGACY);
        if (failed == NULL)
            failed = gpu_every_call(&other, VRP_STREAM_PER_THREAD);
    }
    int result = cu.ctx_get(&current);
    assert_int_equal(cu.ctx_set(cu.primary), 0);
    assert_null(failed);
    assert_int_equal(result, 0);
    assert_ptr_equal(current, primary);
    vrp_driver_destroy(other.driver);
    assert_int_equal(cu.release(other_device), 0);
}

/* ---- other contexts ------------------------------------------------------------------------ */

typedef struct orphaned {
    pthread_barrier_t *barrier;
    vrpt_cu context;
    const char *failed;
    int set, before, after;
    vrpt_cu current_before, current_after;
} orphaned;

/* Works on a context that another thread destroys. */
static void *orphaned_work(void *argument) {
    orphaned *o = argument;
    o->set = cu.ctx_set(o->context);
    (void)pthread_barrier_wait(o->barrier);
    (void)pthread_barrier_wait(o->barrier); /* destroyed meanwhile */
    o->before = cu.ctx_get(&o->current_before);
    o->failed = gpu_every_call(&gpu, VRP_STREAM_LEGACY);
    o->after = cu.ctx_get(&o->current_after);
    (void)cu.ctx_set(NULL);
    return NULL;
}

static void destroyed_context_of_the_application_is_no_matter(void **state) {
    pthread_barrier_t barrier;
    pthread_t thread;
    orphaned o = {.barrier = &barrier};
    (void)state;
    if (cu.ctx_create(&o.context, 0, cu.device) != 0)
        skip(); /* a device in exclusive mode has one context only */
    assert_int_equal(cu.ctx_set(cu.primary), 0);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, orphaned_work, &o), 0);
    (void)pthread_barrier_wait(&barrier);
    int destroyed = cu.ctx_destroy(o.context);
    (void)pthread_barrier_wait(&barrier);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_barrier_destroy(&barrier), 0);
    assert_int_equal(o.set, 0);
    assert_int_equal(destroyed, 0);
    if (o.failed != NULL)
        fail_msg("%s failed", o.failed);
    assert_int_equal(o.after, o.before);
    assert_ptr_equal(o.current_after, o.current_before);
    assert_null(gpu_every_call(&gpu, VRP_STREAM_LEGACY));
}

/* A stream of another context is refused, and the driver lives on. */
static void stream_of_another_context_is_refused(void **state) {
    vrpt_cu other = NULL, stream = NULL;
    vrp_event event = 0;
    (void)state;
    if (cu.ctx_create(&other, 0, cu.device) != 0)
        skip();
    assert_int_equal(cu.stream_create(&stream, VRPT_CU_NON_BLOCKING), 0);
    assert_int_equal(cu.ctx_set(cu.primary), 0);
    VRPT_OK(GPU(event_create, &event));
    vrp_status status = GPU(event_record, event, gpu_number(stream));
    VRPT_OK(GPU(event_destroy, event));
    assert_int_equal(cu.ctx_set(other), 0);
    assert_int_equal(cu.stream_destroy(stream), 0);
    assert_int_equal(cu.ctx_destroy(other), 0);
    assert_int_equal(cu.ctx_set(cu.primary), 0);
    assert_int_not_equal(status, VRP_OK);
    assert_int_not_equal(status, VRP_SHUT_DOWN);
    assert_int_not_equal(status, VRP_DEVICE_LOST);
    assert_null(gpu_every_call(&gpu, VRP_STREAM_LEGACY));
}

/* ---- the runtime ---------------------------------------------------------------------------- */

static struct {
    int (*peek)(void);
    int (*get)(void);
    int (*set_device)(int device);
    int (*free)(void *ptr);
    int (*malloc)(void **out, size_t bytes);
} runtime;

static int runtime_find(void) {
    static const char *const libraries[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so"};
    static const char *const symbols[] = {"cudaPeekAtLastError", "cudaGetLastError",
                                          "cudaSetDevice", "cudaFree", "cudaMalloc"};
    void *found[5];
    void *library = NULL;
    for (size_t i = 0; i < VRPT_COUNT(libraries) && library == NULL; i++)
        library = dlopen(libraries[i], RTLD_NOW);
    if (library == NULL)
        return 0;
    for (size_t i = 0; i < VRPT_COUNT(symbols); i++)
        if ((found[i] = dlsym(library, symbols[i])) == NULL)
            return 0;
    memcpy(&runtime.peek, &found[0], sizeof found[0]);
    memcpy(&runtime.get, &found[1], sizeof found[1]);
    memcpy(&runtime.set_device, &found[2], sizeof found[2]);
    memcpy(&runtime.free, &found[3], sizeof found[3]);
    memcpy(&runtime.malloc, &found[4], sizeof found[4]);
    return runtime.set_device(cu.device) == 0 && runtime.free(NULL) == 0;
}

/* Calls that fail, in the driver and inside a pool that gets over it. */
static void fail_often(void) {
    vrp_devptr ptr = 0;
    vrp_handle handle = 0;
    assert_int_not_equal(GPU(mem_alloc, too_much, &ptr), VRP_OK);
    assert_int_not_equal(GPU(handle_create, too_much, &handle), VRP_OK);
    assert_int_not_equal(GPU(unmap, 4096, gpu.info.granularity_bytes), VRP_OK);
    for (int32_t backing = VRP_BACKING_VMM; backing <= VRP_BACKING_MALLOC; backing++) {
        vrp_pool_config config = {.struct_size = sizeof config, .backing = backing};
        vrp_pool *pool = NULL;
        VRPT_OK(vrp_pool_create(gpu.driver, &config, &pool));
        VRPT_STATUS(vrp_alloc(pool, too_much, VRP_STREAM_LEGACY, &ptr), VRP_OUT_OF_DEVICE_MEMORY);
        VRPT_STATUS(vrp_alloc(pool, gpu.info.total_bytes - 4096, VRP_STREAM_LEGACY, &ptr),
                    VRP_OUT_OF_DEVICE_MEMORY);
        VRPT_OK(vrp_alloc(pool, 32 * VRPT_MIB, VRP_STREAM_LEGACY, &ptr));
        VRPT_OK(vrp_free(pool, ptr, VRP_STREAM_LEGACY));
        VRPT_OK(vrp_trim(pool, 0, VRP_TRIM_WAIT, NULL));
        VRPT_OK(vrp_pool_destroy(pool, 0));
    }
}

static void last_error_of_the_runtime_is_the_applications(void **state) {
    enum { CUDA_ERROR_MEMORY_ALLOCATION = 2 };
    void *ptr = NULL;
    (void)state;
    if (!runtime_find())
        skip();
    (void)runtime.get();
    assert_int_equal(runtime.peek(), 0);
    fail_often();
    assert_int_equal(runtime.peek(), 0); /* none of ours shows */
    assert_int_equal(runtime.malloc(&ptr, too_much), CUDA_ERROR_MEMORY_ALLOCATION);
    fail_often();
    assert_int_equal(runtime.peek(), CUDA_ERROR_MEMORY_ALLOCATION); /* its own stays */
    assert_int_equal(runtime.get(), CUDA_ERROR_MEMORY_ALLOCATION);
    assert_int_equal(runtime.peek(), 0);
}

/* ---- the backing ------------------------------------------------------------------------------
 */

static void backing_has_a_reason(void **state) {
    vrp_pool *pool = NULL;
    char text[160] = "";
    uint64_t reclaimer = 7;
    (void)state;
    VRPT_OK(vrp_pool_create(gpu.driver, NULL, &pool));
    VRPT_OK(vrp_pool_backing_reason_get(pool, text, sizeof text));
    VRPT_OK(vrp_pool_knob_get(pool, VRP_KNOB_RECLAIMER, &reclaimer));
    VRPT_OK(vrp_pool_destroy(pool, 0));
    assert_string_equal(text, "vmm: the device supports it");
    assert_int_equal(reclaimer, 1); /* a device that works by itself */
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handles_are_exported_where_asked_for),
        cmocka_unit_test(range_has_a_dma_buf_where_the_device_can),
        cmocka_unit_test(plain_memory_has_an_ipc_handle),
        cmocka_unit_test(peers_are_checked_when_the_driver_is_made),
        cmocka_unit_test(peer_has_access_to_what_is_mapped),
        cmocka_unit_test(current_device_of_the_thread_is_no_matter),
        cmocka_unit_test(destroyed_context_of_the_application_is_no_matter),
        cmocka_unit_test(stream_of_another_context_is_refused),
        cmocka_unit_test(last_error_of_the_runtime_is_the_applications),
        cmocka_unit_test(backing_has_a_reason),
    };
    int status = gpu_main_begin(argc, argv);
    if (status != 0)
        return status;
    status = cmocka_run_group_tests_name("cuda beside others", tests, NULL, NULL);
    vrp_driver_destroy(gpu.driver);
    return status;
}
