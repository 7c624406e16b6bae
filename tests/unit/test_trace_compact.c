/* SPDX-License-Identifier: MIT */
/* The compact format: what is written comes back, and what is damaged does
 * not. The recorded traces are read whole. */

#include <zstd.h>

#include "trace/compact.h"
#include "trace_support.h"

static void write_events(const char *path, const vrp_trace_event *events, size_t count,
                         size_t batch) {
    vrp_trace_writer *writer = NULL;
    assert_int_equal(vrp_trace_writer_open(path, &writer), VRP_OK);
    for (size_t at = 0; at < count; at += batch) {
        size_t part = count - at < batch ? count - at : batch;
        assert_int_equal(vrp_trace_write(writer, events + at, part), VRP_OK);
    }
    assert_int_equal(vrp_trace_writer_close(writer), VRP_OK);
}

/* Numbers of all magnitudes. */
static uint64_t any_number(uint64_t *seed) {
    uint64_t shift = trace_random(seed) & 63;
    return trace_random(seed) >> shift;
}

static vrp_trace_event any_event(uint64_t *seed, uint64_t time_us) {
    vrp_trace_event event = {.kind = (uint8_t)(trace_random(seed) & 3), .time_us = time_us};
    if (event.kind == VRP_TRACE_MARKER) {
        event.marker = (uint8_t)(trace_random(seed) % 6);
        return event;
    }
    event.id = any_number(seed);
    if (event.kind == VRP_TRACE_ALLOC) {
        event.bytes = any_number(seed);
        event.stream = (uint32_t)any_number(seed);
        event.failed = trace_random(seed) % 10 == 0;
    }
    return event;
}

/* Events that no recorder would write, in more than two blocks. */
static void any_events_come_back(void **state) {
    (void)state;
    size_t count = 2 * VRPI_BLOCK_EVENTS + 1000;
    trace_all all = {.count = count, .events = malloc(count * sizeof *all.events)};
    assert_non_null(all.events);
    uint64_t seed = 11;
    for (size_t i = 0; i < count; i++)
        all.events[i] = any_event(&seed, i == 0 ? 5 : all.events[i - 1].time_us + (seed & 7));
    all.events[count - 1].time_us = UINT64_MAX;
    trace_file file;
    trace_file_make(&file);
    size_t batches[] = {1, 1000, count};
    for (size_t i = 0; i < VRPT_COUNT(batches); i++) {
        trace_all again;
        write_events(file.path, all.events, count, batches[i]);
        trace_read(&again, file.path, batches[VRPT_COUNT(batches) - 1 - i]);
        assert_same_events(&all, &again);
        assert_int_equal(again.line, count);
        trace_all_free(&again);
    }
    trace_all_free(&all);
    (void)remove(file.path);
}

static void whole_blocks_and_none_come_back(void **state) {
    (void)state;
    trace_all all = {.events = calloc(VRPI_BLOCK_EVENTS, sizeof *all.events)};
    assert_non_null(all.events);
    trace_file file;
    trace_file_make(&file);
    trace_all again;
    write_events(file.path, all.events, 0, 1);
    trace_read(&again, file.path, 64);
    assert_same_events(&all, &again);
    trace_all_free(&again);
    all.count = VRPI_BLOCK_EVENTS;
    write_events(file.path, all.events, all.count, all.count);
    trace_read(&again, file.path, 64);
    assert_same_events(&all, &again);
    trace_all_free(&again);
    trace_all_free(&all);
    (void)remove(file.path);
}

static void csv_and_compact_say_the_same(void **state) {
    (void)state;
    trace_file csv;
    trace_file compact;
    trace_file_make(&csv);
    trace_file_make(&compact);
    trace_all from;
    trace_read_text(&from, &csv,
                    TRACE_HEAD "a,0,4096,0,0\na,1,512,1,3\nm,load,100\nf,0,5\nc,0,2\na,2,512,1,1\n"
                               "m,request,0\nf,2,70000\nm,step,1\n");
    write_events(compact.path, from.events, from.count, 4);
    trace_all again;
    trace_read(&again, compact.path, 64);
    assert_same_events(&from, &again);
    trace_all_free(&again);
    /* Also inside gzip. */
    size_t count = 0;
    unsigned char *bytes = trace_file_get(compact.path, &count);
    trace_file_put_gzip(&compact, bytes, count, "wb");
    free(bytes);
    trace_read(&again, compact.path, 64);
    assert_same_events(&from, &again);
    trace_all_free(&again);
    trace_all_free(&from);
    (void)remove(csv.path);
    (void)remove(compact.path);
}

#define SMALL_EVENTS 40

/* A small file of one block, as bytes. */
static unsigned char *small_file(const trace_file *file, size_t *out_count) {
    vrp_trace_event events[SMALL_EVENTS];
    uint64_t seed = 3;
    for (size_t i = 0; i < SMALL_EVENTS; i++)
        events[i] = any_event(&seed, 10 * i);
    write_events(file->path, events, SMALL_EVENTS, SMALL_EVENTS);
    return trace_file_get(file->path, out_count);
}

static void assert_error(const trace_file *file, const unsigned char *bytes, size_t count) {
    trace_all all;
    trace_file_put(file, bytes, count);
    trace_read(&all, file->path, 7);
    assert_int_not_equal(all.status, VRP_OK);
    assert_non_null(strstr(all.message, file->path));
    trace_all_free(&all);
}

static void a_cut_file_is_refused_wherever_it_is_cut(void **state) {
    (void)state;
    trace_file file;
    trace_file_make(&file);
    size_t count = 0;
    unsigned char *bytes = small_file(&file, &count);
    for (size_t cut = 0; cut < count; cut++)
        assert_error(&file, bytes, cut);
    free(bytes);
    (void)remove(file.path);
}

static void a_changed_byte_is_noticed_wherever_it_is(void **state) {
    (void)state;
    trace_file file;
    trace_file_make(&file);
    size_t count = 0;
    unsigned char *bytes = small_file(&file, &count);
    for (size_t at = 0; at < count; at++) {
        unsigned char flip = (unsigned char)(1u << at % 8);
        bytes[at] ^= flip;
        assert_error(&file, bytes, count);
        bytes[at] ^= flip;
    }
    bytes[count] = 0;
    assert_error(&file, bytes, count + 1); /* there is room for one byte more */
    free(bytes);
    (void)remove(file.path);
}

static void put_sum(unsigned char *to, const unsigned char *bytes, size_t count) {
    vrpi_put32(to, (uint32_t)crc32_z(crc32_z(0, NULL, 0), bytes, count));
}

static void another_version_is_refused(void **state) {
    (void)state;
    trace_file file;
    trace_file_make(&file);
    size_t count = 0;
    unsigned char *bytes = small_file(&file, &count);
    vrpi_put32(bytes + 8, VRPI_COMPACT_VERSION + 1);
    put_sum(bytes + 12, bytes, 12);
    trace_file_put(&file, bytes, count);
    trace_all all;
    trace_read(&all, file.path, 7);
    assert_int_equal(all.status, VRP_INVALID_ARGUMENT);
    assert_non_null(strstr(all.message, "version 2 is not known"));
    free(bytes);
    (void)remove(file.path);
}

/* Writes a file with one block of these raw bytes, its checksums right. */
static void put_raw_block(const trace_file *file, const unsigned char *head, uint32_t events,
                          const unsigned char *raw, size_t raw_bytes) {
    unsigned char bytes[8192];
    unsigned char *block = bytes + VRPI_HEAD_BYTES;
    size_t known = VRPI_BLOCK_HEAD_BYTES - 4;
    memcpy(bytes, head, VRPI_HEAD_BYTES);
    size_t packed = ZSTD_compress(block + known, 4096, raw, raw_bytes, 1);
    assert_false(ZSTD_isError(packed));
    block[0] = VRPI_BLOCK_TYPE;
    vrpi_put32(block + 1, events);
    vrpi_put32(block + 5, (uint32_t)raw_bytes);
    vrpi_put32(block + 9, (uint32_t)packed);
    unsigned char sum[4];
    put_sum(sum, block, known + packed); /* the data follows the fields: no gap yet */
    memmove(block + VRPI_BLOCK_HEAD_BYTES, block + known, packed);
    memcpy(block + known, sum, sizeof sum);
    trace_file_put(file, bytes, VRPI_HEAD_BYTES + VRPI_BLOCK_HEAD_BYTES + packed);
}

/* Checksums keep accidents out, not malice: the reader must stay within its
 * bounds for any columns. Without an end record no such file is good. */
static void hostile_columns_do_no_harm(void **state) {
    (void)state;
    trace_file file;
    trace_file_make(&file);
    size_t count = 0;
    unsigned char *bytes = small_file(&file, &count);
    unsigned char raw[4096];
    const unsigned char *block = bytes + VRPI_HEAD_BYTES;
    size_t raw_bytes =
        ZSTD_decompress(raw, sizeof raw, block + VRPI_BLOCK_HEAD_BYTES, vrpi_get32(block + 9));
    assert_false(ZSTD_isError(raw_bytes));
    uint64_t seed = 5;
    for (int i = 0; i < 1000; i++) {
        unsigned char changed[4096];
        memcpy(changed, raw, raw_bytes);
        size_t length = raw_bytes;
        for (uint64_t n = trace_random(&seed) % 4; n > 0; n--)
            changed[trace_random(&seed) % raw_bytes] = (unsigned char)trace_random(&seed);
        if (trace_random(&seed) % 4 == 0) /* the lengths of the columns */
            changed[trace_random(&seed) % 28] = (unsigned char)trace_random(&seed);
        if (trace_random(&seed) % 8 == 0)
            length = trace_random(&seed) % raw_bytes;
        uint32_t events =
            trace_random(&seed) % 4 ? SMALL_EVENTS : (uint32_t)(trace_random(&seed) % 70000);
        put_raw_block(&file, bytes, events, changed, length);
        trace_all all;
        trace_read(&all, file.path, 16);
        assert_int_equal(all.status, VRP_CORRUPTED);
        assert_true(all.count <= SMALL_EVENTS);
        trace_all_free(&all);
    }
    free(bytes);
    (void)remove(file.path);
}

static void the_writer_refuses_what_it_cannot_say(void **state) {
    (void)state;
    const vrp_trace_event good = {.kind = VRP_TRACE_ALLOC, .bytes = 1, .time_us = 10};
    const vrp_trace_event bad[] = {
        {.kind = 4, .time_us = 10},
        {.kind = VRP_TRACE_ALLOC, .failed = 2, .time_us = 10},
        {.kind = VRP_TRACE_ALLOC, .marker = VRP_MARKER_TURN, .time_us = 10},
        {.kind = VRP_TRACE_FREE, .failed = 1, .time_us = 10},
        {.kind = VRP_TRACE_MARKER, .marker = 6, .time_us = 10},
        {.kind = VRP_TRACE_FREE, .time_us = 9}, /* back in time */
    };
    trace_file file;
    trace_file_make(&file);
    vrp_trace_writer *writer = NULL;
    assert_int_equal(vrp_trace_writer_open(file.path, &writer), VRP_OK);
    assert_int_equal(vrp_trace_write(writer, &good, 1), VRP_OK);
    for (size_t i = 0; i < VRPT_COUNT(bad); i++) {
        vrp_trace_event both[] = {good, bad[i]};
        assert_int_equal(vrp_trace_write(writer, both, 2), VRP_INVALID_ARGUMENT);
    }
    assert_int_equal(vrp_trace_write(writer, NULL, 1), VRP_INVALID_ARGUMENT);
    assert_int_equal(vrp_trace_write(writer, NULL, 0), VRP_OK);
    assert_int_equal(vrp_trace_writer_close(writer), VRP_OK);
    trace_all all;
    trace_read(&all, file.path, 8);
    assert_int_equal(all.status, VRP_OK);
    assert_int_equal(all.count, 1); /* nothing of a refused call was written */
    trace_all_free(&all);
    (void)remove(file.path);
    writer = NULL;
    assert_int_equal(vrp_trace_writer_open("/nowhere/at/all", &writer), VRP_INVALID_ARGUMENT);
    assert_int_equal(vrp_trace_writer_open(NULL, &writer), VRP_INVALID_ARGUMENT);
    assert_int_equal(vrp_trace_writer_open(file.path, NULL), VRP_INVALID_ARGUMENT);
    assert_int_equal(vrp_trace_writer_close(NULL), VRP_INVALID_ARGUMENT);
    assert_null(writer);
    if (access("/dev/full", W_OK) != 0)
        return;
    assert_int_equal(vrp_trace_writer_open("/dev/full", &writer), VRP_OK);
    assert_int_equal(vrp_trace_write(writer, &good, 1), VRP_OK);
    assert_int_equal(vrp_trace_writer_close(writer), VRP_INTERNAL);
}

/* Three readings give the same events, which are those that were recorded. */
static void recorded_traces_are_whole(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t events;
        size_t kinds[4];
    } traces[] = {
        {"gemma3_12b_chat", 3481753, {1741398, 1740323, 13, 19}},
        {"gemma3_270m_train", 407179, {203926, 203210, 3, 40}},
        {"three_models_streams", 947690, {473930, 473593, 92, 75}},
    };
    for (size_t i = 0; i < VRPT_COUNT(traces); i++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/bench/traces/%s.vrpt", VRPT_SOURCE_DIR,
                       traces[i].name);
        trace_all all;
        trace_read(&all, path, 65536);
        assert_int_equal(all.status, VRP_OK);
        assert_int_equal(all.count, traces[i].events);
        size_t kinds[4] = {0};
        for (size_t k = 0; k < all.count; k++)
            kinds[all.events[k].kind]++;
        assert_memory_equal(kinds, traces[i].kinds, sizeof kinds);
        for (size_t batch = 1000; batch < 3000; batch += 1000) {
            trace_all again;
            trace_read(&again, path, batch);
            assert_same_events(&all, &again);
            trace_all_free(&again);
        }
        trace_all_free(&all);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_events_come_back),
        cmocka_unit_test(whole_blocks_and_none_come_back),
        cmocka_unit_test(csv_and_compact_say_the_same),
        cmocka_unit_test(a_cut_file_is_refused_wherever_it_is_cut),
        cmocka_unit_test(a_changed_byte_is_noticed_wherever_it_is),
        cmocka_unit_test(another_version_is_refused),
        cmocka_unit_test(hostile_columns_do_no_harm),
        cmocka_unit_test(the_writer_refuses_what_it_cannot_say),
        cmocka_unit_test(recorded_traces_are_whole),
    };
    (void)argc;
    (void)argv;
    return cmocka_run_group_tests_name("trace_compact", tests, NULL, NULL);
}
