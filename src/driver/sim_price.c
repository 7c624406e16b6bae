/* SPDX-License-Identifier: MIT */
/* Names of the driver calls and what they cost on an H200 (driver 580): the
 * host time of one call, linear between the sizes that were measured. */

#include "vrampool/sim.h"

#include <stddef.h>

typedef struct price_row {
    uint64_t bytes;
    uint32_t ns;
} price_row;

typedef struct price_list {
    const price_row *rows; /* by size; NULL: the same for every size */
    size_t count;
    uint32_t flat_ns;
} price_list;

#define MIB(n) ((uint64_t)(n) << 20)
#define VMM_ROWS(a, b, c, d, e, f)                                                             \
    {                                                                                          \
        {MIB(2), a}, {MIB(8), b}, {MIB(32), c}, {MIB(128), d}, {MIB(512), e}, { MIB(2048), f } \
    }
#define MALLOC_ROWS(a, b, c, d)                                    \
    {                                                              \
        {MIB(1), a}, {MIB(32), b}, {MIB(512), c}, { MIB(2048), d } \
    }

static const price_row mem_alloc_rows[] = MALLOC_ROWS(30000, 34000, 64000, 112000);
static const price_row mem_free_rows[] = MALLOC_ROWS(26000, 41000, 161000, 529000);
static const price_row reserve_rows[] = VMM_ROWS(400, 500, 1800, 1500, 1600, 1800);
static const price_row unreserve_rows[] = VMM_ROWS(400, 400, 1800, 1600, 1800, 2100);
static const price_row create_rows[] = VMM_ROWS(7300, 7200, 7700, 8000, 13500, 24600);
static const price_row release_rows[] = VMM_ROWS(8200, 9700, 16100, 37800, 132000, 486000);
static const price_row map_rows[] = VMM_ROWS(600, 600, 500, 500, 600, 700);
static const price_row access_rows[] = VMM_ROWS(18600, 18200, 39000, 38600, 49900, 86000);
static const price_row unmap_rows[] = VMM_ROWS(13200, 13100, 20700, 20400, 24400, 37600);

#define BY_SIZE(rows) \
    { rows, sizeof rows / sizeof rows[0], 0 }
#define FLAT(ns) \
    { NULL, 0, ns }

static const price_list prices[VRP_SIM_CALL_COUNT] = {
    [VRP_SIM_CALL_DEVICE_INFO] = FLAT(0),
    [VRP_SIM_CALL_MEM_INFO] = FLAT(4000),
    [VRP_SIM_CALL_EVENT_CREATE] = FLAT(160),
    [VRP_SIM_CALL_EVENT_DESTROY] = FLAT(0),
    [VRP_SIM_CALL_EVENT_RECORD] = FLAT(310),
    [VRP_SIM_CALL_EVENT_QUERY] = FLAT(140),
    /* Blocking costs the time that passes meanwhile, which the clock has. */
    [VRP_SIM_CALL_EVENT_SYNCHRONIZE] = FLAT(0),
    [VRP_SIM_CALL_SYNCHRONIZE] = FLAT(0),
    [VRP_SIM_CALL_MEM_ALLOC] = BY_SIZE(mem_alloc_rows),
    [VRP_SIM_CALL_MEM_FREE] = BY_SIZE(mem_free_rows),
    [VRP_SIM_CALL_ADDRESS_RESERVE] = BY_SIZE(reserve_rows),
    [VRP_SIM_CALL_ADDRESS_FREE] = BY_SIZE(unreserve_rows),
    [VRP_SIM_CALL_HANDLE_CREATE] = BY_SIZE(create_rows),
    [VRP_SIM_CALL_HANDLE_RELEASE] = BY_SIZE(release_rows),
    [VRP_SIM_CALL_MAP] = BY_SIZE(map_rows),
    [VRP_SIM_CALL_SET_ACCESS] = BY_SIZE(access_rows),
    [VRP_SIM_CALL_UNMAP] = BY_SIZE(unmap_rows),
    [VRP_SIM_CALL_STREAM_WAIT_EVENT] = FLAT(300),
    [VRP_SIM_CALL_CONTEXT_RECORD] = FLAT(159),
    [VRP_SIM_CALL_STREAM_ID] = FLAT(50),
    [VRP_SIM_CALL_STREAM_IS_CAPTURING] = FLAT(50),
    [VRP_SIM_CALL_EXPORT] = FLAT(10000),    /* not measured */
    [VRP_SIM_CALL_COPY_ASYNC] = FLAT(4000), /* as a kernel launch: the copy itself overlaps */
};

static const char *const names[VRP_SIM_CALL_COUNT] = {
    [VRP_SIM_CALL_DEVICE_INFO] = "cuDeviceGetAttribute",
    [VRP_SIM_CALL_MEM_INFO] = "cuMemGetInfo",
    [VRP_SIM_CALL_EVENT_CREATE] = "cuEventCreate",
    [VRP_SIM_CALL_EVENT_DESTROY] = "cuEventDestroy",
    [VRP_SIM_CALL_EVENT_RECORD] = "cuEventRecord",
    [VRP_SIM_CALL_EVENT_QUERY] = "cuEventQuery",
    [VRP_SIM_CALL_EVENT_SYNCHRONIZE] = "cuEventSynchronize",
    [VRP_SIM_CALL_SYNCHRONIZE] = "cuCtxSynchronize",
    [VRP_SIM_CALL_MEM_ALLOC] = "cuMemAlloc",
    [VRP_SIM_CALL_MEM_FREE] = "cuMemFree",
    [VRP_SIM_CALL_ADDRESS_RESERVE] = "cuMemAddressReserve",
    [VRP_SIM_CALL_ADDRESS_FREE] = "cuMemAddressFree",
    [VRP_SIM_CALL_HANDLE_CREATE] = "cuMemCreate",
    [VRP_SIM_CALL_HANDLE_RELEASE] = "cuMemRelease",
    [VRP_SIM_CALL_MAP] = "cuMemMap",
    [VRP_SIM_CALL_SET_ACCESS] = "cuMemSetAccess",
    [VRP_SIM_CALL_UNMAP] = "cuMemUnmap",
    [VRP_SIM_CALL_STREAM_WAIT_EVENT] = "cuStreamWaitEvent",
    [VRP_SIM_CALL_CONTEXT_RECORD] = "cuCtxRecordEvent",
    [VRP_SIM_CALL_STREAM_ID] = "cuStreamGetId",
    [VRP_SIM_CALL_STREAM_IS_CAPTURING] = "cuStreamIsCapturing",
    [VRP_SIM_CALL_COPY_ASYNC] = "cuMemcpyAsync",
    [VRP_SIM_CALL_EXPORT] = "cuMemExportToShareableHandle",
};

const char *vrp_sim_call_name(int32_t call) {
    return call >= 0 && call < (int32_t)VRP_SIM_CALL_COUNT ? names[call] : NULL;
}

uint64_t vrp_sim_price_ns(int32_t call, uint64_t bytes) {
    const price_list *list;
    size_t i = 1;
    if (call < 0 || call >= (int32_t)VRP_SIM_CALL_COUNT)
        return 0;
    list = &prices[call];
    if (list->rows == NULL)
        return list->flat_ns;
    if (bytes <= list->rows[0].bytes)
        return list->rows[0].ns;
    if (bytes >= list->rows[list->count - 1].bytes)
        return list->rows[list->count - 1].ns;
    while (bytes > list->rows[i].bytes)
        i++;
    {
        const price_row *low = &list->rows[i - 1];
        const price_row *high = &list->rows[i];
        int64_t rise = (int64_t)high->ns - (int64_t)low->ns;
        int64_t along = (int64_t)(bytes - low->bytes);
        return (uint64_t)((int64_t)low->ns + rise * along / (int64_t)(high->bytes - low->bytes));
    }
}
