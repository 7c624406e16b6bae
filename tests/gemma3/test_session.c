/* SPDX-License-Identifier: MIT */
/* The inference cache and the conversation: chunks, failures in the middle,
 * giving everything back. */
#include "session_support.h"

/* ---- What a position sees ------------------------------------------------------ */

static void a_window_counts_the_token_itself(void **state) {
    (void)state;
    size_t low, high;
    g3_visible(false, 4, 6, 0, &low, &high);
    assert_int_equal(low, 3);
    assert_int_equal(high, 7);
    g3_visible(false, 4, 2, 0, &low, &high);
    assert_int_equal(low, 0);
    assert_int_equal(high, 3);
    g3_visible(false, 4, 3, 0, &low, &high);
    assert_int_equal(low, 0);
    g3_visible(false, 4, 4, 0, &low, &high);
    assert_int_equal(low, 1);
    g3_visible(true, 4, 600, 0, &low, &high);
    assert_int_equal(low, 0);
    assert_int_equal(high, 601);
    g3_visible(false, 512, 511, 0, &low, &high);
    assert_int_equal(low, 0);
    g3_visible(false, 512, 512, 0, &low, &high);
    assert_int_equal(low, 1);
}

/* Text x2, picture A x5, text, picture B x5, text x2: the masks by hand. */
static void pictures_see_themselves_whole_and_only_what_came_before(void **state) {
    (void)state;
    const size_t ends[15] = {0, 0, 7, 7, 7, 7, 7, 0, 13, 13, 13, 13, 13, 0, 0};
    for (size_t query = 0; query < 15; query++) {
        for (size_t key = 0; key < 15; key++) {
            const bool same = ends[query] != 0 && ends[query] == ends[key];
            for (int global = 0; global < 2; global++) {
                const bool expected = (key <= query || same) && (global == 1 || key + 3 > query);
                size_t low, high;
                g3_visible(global == 1, 3, query, ends[query], &low, &high);
                if ((key >= low && key < high) != expected)
                    fail_msg("query %zu, key %zu, %s layer", query, key,
                             global == 1 ? "global" : "local");
            }
        }
    }
}

/* ---- Chunks ---------------------------------------------------------------------- */

/* Logits of a prompt with a picture and of some tokens after it. */
enum { AFTER = 20 };
static void conversation(loaded *l, uint32_t chunk, float *logits) {
    const size_t vocab = l->model->output.rows;
    g3_session *session = open_session(l, 256, chunk);
    g3_prompt prompt;
    random_prompt(l, 1, 37, &prompt);
    insert_picture(l, &prompt, 9);
    const g3_image image = make_image(3, 20, 31);
    assert_ok(g3_session_prefill(session, &prompt, &image, logits, error));
    for (int32_t i = 0; i < AFTER; i++)
        assert_ok(g3_session_decode(session, 10 + i, logits + (size_t)(i + 1) * vocab, error));
    assert_int_equal(g3_session_length(session), prompt.ids.count + AFTER);
    g3_prompt_free(&prompt);
    free(image.rgb);
    g3_session_destroy(session);
}

static void every_chunk_size_gives_the_same_logits(const char *name) {
    loaded l;
    load(&l, name, "sim:64MiB", G3_FAULT_NONE);
    const size_t bytes = (AFTER + 1) * l.model->output.rows * sizeof(float);
    float *expected = malloc(bytes), *logits = malloc(bytes);
    assert_non_null(expected);
    assert_non_null(logits);
    conversation(&l, 1000, expected);
    const uint32_t chunks[] = {1, 5, 8, 9, 16, 21};
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        memset(logits, 0, bytes);
        conversation(&l, chunks[i], logits);
        if (memcmp(expected, logits, bytes) != 0)
            fail_msg("%s: chunks of %u give other logits", name, chunks[i]);
    }
    free(expected);
    free(logits);
    unload(&l);
}

static void chunks_do_not_change_a_bit(void **state) {
    (void)state;
    every_chunk_size_gives_the_same_logits("tiny-mm");
    every_chunk_size_gives_the_same_logits("tiny-window");
}

/* ---- Failures in the middle --------------------------------------------------------- */

/* With a budget of activations that grows in small steps, a turn fails at every
 * request for them; each time the conversation is as before, and in the end the
 * logits are those of a turn that never failed. */
static void a_turn_that_finds_no_memory_leaves_the_conversation(void **state) {
    (void)state;
    loaded l;
    load(&l, "tiny-mm", "sim:64MiB", G3_FAULT_NONE);
    const size_t bytes = l.model->output.rows * sizeof(float);
    float *expected = new_logits(&l), *logits = new_logits(&l);
    g3_prompt first, second;
    random_prompt(&l, 1, 40, &first);
    random_prompt(&l, 2, 30, &second);
    insert_picture(&l, &second, 4);
    const g3_image image = make_image(5, 40, 40);

    g3_session *session = open_session(&l, 512, 16);
    assert_ok(g3_session_prefill(session, &first, NULL, logits, error));
    assert_ok(g3_session_prefill(session, &second, &image, expected, error));
    g3_session_destroy(session);

    session = open_session(&l, 512, 16);
    assert_ok(g3_session_prefill(session, &first, NULL, logits, error));
    g3_memory_report before;
    assert_ok(g3_memory_report_get(&l.memory, &before, error));
    int failures = 0, done = 0;
    for (uint64_t budget = 512; done == 0; budget += budget / 8 / 512 * 512 + 512) {
        assert_int_equal(vrp_tag_budget_set(l.memory.pool, VRP_TAG_ACTIVATION, budget), VRP_OK);
        g3_error why = {{0}};
        g3_status status = g3_session_prefill(session, &second, &image, logits, &why);
        g3_memory_report report;
        assert_ok(g3_memory_report_get(&l.memory, &report, error));
        assert_int_equal(report.temporary_bytes, 0);
        if (status == G3_OK) {
            done = 1;
            continue;
        }
        assert_int_equal(status, G3_DEVICE_MEMORY);
        assert_true(why.text[0] != '\0');
        assert_int_equal(g3_session_length(session), first.ids.count);
        assert_int_equal(report.kv_bytes, before.kv_bytes);
        failures++;
    }
    assert_true(failures > 10);
    assert_memory_equal(logits, expected, bytes);
    assert_int_equal(vrp_tag_budget_set(l.memory.pool, VRP_TAG_ACTIVATION, 0), VRP_OK);

    g3_session_destroy(session);
    g3_prompt_free(&first);
    g3_prompt_free(&second);
    free(image.rgb);
    free(expected);
    free(logits);
    unload(&l);
}

static uint64_t kv_now(loaded *l) {
    g3_memory_report report;
    assert_ok(g3_memory_report_get(&l->memory, &report, error));
    return report.kv_bytes;
}

/* A prompt whose cache fits but whose step does not: what the cache grew by goes back, and
 * of an empty conversation all of it. */
static void a_refused_turn_gives_its_cache_back(void **state) {
    (void)state;
    loaded l;
    load(&l, "tiny-mm", "sim:64MiB", G3_FAULT_NONE);
    g3_prompt prompt, large;
    random_prompt(&l, 1, 40, &prompt);
    random_prompt(&l, 2, 3000, &large);
    g3_session *session = open_session(&l, 4000, 512);
    uint64_t before = 0;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(kv_now(&l), before);
        assert_int_equal(vrp_tag_budget_set(l.memory.pool, VRP_TAG_ACTIVATION, 2048), VRP_OK);
        g3_error why = {{0}};
        assert_int_equal(g3_session_prefill(session, &large, NULL, NULL, &why), G3_DEVICE_MEMORY);
        assert_int_equal(kv_now(&l), before);
        assert_int_equal(vrp_tag_budget_set(l.memory.pool, VRP_TAG_ACTIVATION, 0), VRP_OK);
        assert_ok(g3_session_prefill(session, &prompt, NULL, NULL, error));
        before = kv_now(&l);
        assert_true(before > 0);
    }
    assert_ok(g3_session_reserve(session, 2000, error));
    assert_true(kv_now(&l) > before);
    g3_session_shrink(session);
    assert_int_equal(kv_now(&l), before);
    assert_ok(g3_session_drop(session, 0, 80, error));
    assert_int_equal(kv_now(&l), 0);
    assert_int_equal(g3_session_reserve(session, 4001, NULL), G3_CONTEXT_FULL);
    g3_session_destroy(session);
    g3_prompt_free(&prompt);
    g3_prompt_free(&large);
    unload(&l);
}

/* Backing ahead takes what the device has free; where that is not enough it disturbs
 * nothing and counts as nothing. */
static void backing_ahead_trims_nothing(void **state) {
    (void)state;
    loaded l;
    load(&l, "tiny-mm", "sim:32MiB", G3_FAULT_NONE);
    g3_prompt prompt;
    random_prompt(&l, 1, 1000, &prompt);
    g3_session *session = open_session(&l, 4096, 1000);
    assert_ok(g3_session_prefill(session, &prompt, NULL, NULL, error));
    assert_ok(g3_session_reserve(session, 2000, error));
    assert_int_equal(kv_now(&l) >= 2000 * 512, 1);
    g3_session_shrink(session);
    /* Another pool takes the rest of the device; what the turn needed stays idle in ours. */
    vrp_pool *other = NULL;
    const vrp_pool_config config = {.struct_size = sizeof config};
    assert_int_equal(vrp_pool_create(l.memory.driver, &config, &other), VRP_OK);
    vrp_devptr rest = 0;
    vrp_stats before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
    uint64_t free_bytes = 0, total = 0;
    assert_int_equal(vrp_pool_device_memory_get(l.memory.pool, &free_bytes, &total), VRP_OK);
    assert_true(free_bytes >= 2 * VRPT_MIB);
    const vrp_alloc_info info = {.struct_size = sizeof info,
                                 .bytes = free_bytes,
                                 .stream = l.memory.stream,
                                 .tag = VRP_TAG_OTHER};
    assert_int_equal(vrp_alloc_ex(other, &info, &rest), VRP_OK);
    assert_int_equal(vrp_pool_stats_get(l.memory.pool, &before), VRP_OK);
    const uint64_t kv = kv_now(&l), retries = l.memory.retries, failures = l.memory.failures;
    g3_error why = {{0}};
    assert_int_equal(g3_session_reserve(session, 4096, &why), G3_DEVICE_MEMORY);
    assert_true(why.text[0] != '\0');
    assert_int_equal(vrp_pool_stats_get(l.memory.pool, &after), VRP_OK);
    assert_int_equal(after.trims, before.trims);
    assert_int_equal(after.trimmed_bytes, before.trimmed_bytes);
    assert_int_equal(after.reserved_bytes.current, before.reserved_bytes.current);
    assert_int_equal(l.memory.retries, retries);
    assert_int_equal(l.memory.failures, failures);
    assert_int_equal(kv_now(&l), kv);
    assert_true(g3_session_has_room(session));
    assert_int_equal(kv_now(&l), kv);
    assert_int_equal(vrp_pool_destroy(other, VRP_DESTROY_FORCE), VRP_OK);
    g3_session_destroy(session);
    g3_prompt_free(&prompt);
    unload(&l);
}

/* A chunk that does not fit is taken in smaller ones. */
static void smaller_chunks_are_tried(void **state) {
    (void)state;
    loaded l;
    load(&l, "tiny-text", "sim:64MiB", G3_FAULT_NONE);
    float *expected = new_logits(&l), *logits = new_logits(&l);
    g3_prompt prompt;
    random_prompt(&l, 3, 400, &prompt);
    g3_session *session = open_session(&l, 512, 400);
    assert_ok(g3_session_prefill(session, &prompt, NULL, expected, error));
    vrp_group_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(vrp_tag_stats_get(l.memory.pool, VRP_TAG_ACTIVATION, &stats), VRP_OK);
    g3_session_destroy(session);

    session = open_session(&l, 512, 400);
    assert_int_equal(
        vrp_tag_budget_set(l.memory.pool, VRP_TAG_ACTIVATION, stats.allocated_bytes.peak / 3),
        VRP_OK);
    const uint64_t retries = l.memory.retries;
    g3_error why = {{0}};
    assert_int_equal(g3_session_prefill(session, &prompt, NULL, logits, &why), G3_OK);
    assert_string_equal(why.text, ""); /* nothing of the larger chunks */
    assert_true(l.memory.retries > retries);
    assert_memory_equal(logits, expected, l.model->output.rows * sizeof(float));
    g3_session_destroy(session);
    g3_prompt_free(&prompt);
    free(expected);
    free(logits);
    unload(&l);
}

/* ---- Memory --------------------------------------------------------------------------- */

static uint64_t allocated(const loaded *l) { return vrp_pool_allocated_bytes(l->memory.pool); }

/* The same conversation again and again, cleared in between: what is held after each
 * is what was held after the first, and after a clear only the weights are left. */
static void nothing_stays_behind(void **state) {
    (void)state;
    loaded l;
    load(&l, "tiny-mm", "sim:64MiB", G3_FAULT_NONE);
    const uint64_t weights = allocated(&l);
    g3_session *session = open_session(&l, 512, 0);
    uint64_t after_first = 0;
    for (uint32_t round = 0; round < 30; round++) {
        g3_prompt prompt;
        random_prompt(&l, round, 50, &prompt);
        insert_picture(&l, &prompt, 9);
        insert_picture(&l, &prompt, 30);
        const g3_image images[] = {make_image(round, 16 + 7 * round, 200 - 5 * round),
                                   make_image(round, 64, 64)};
        assert_ok(g3_session_prefill(session, &prompt, images, NULL, error));
        for (int32_t i = 0; i < 5; i++)
            assert_ok(g3_session_decode(session, 20 + i, NULL, error));
        if (round == 0)
            after_first = allocated(&l);
        assert_int_equal(allocated(&l), after_first);
        g3_memory_report report;
        assert_ok(g3_memory_report_get(&l.memory, &report, error));
        assert_int_equal(report.temporary_bytes, 0);
        assert_int_equal(report.weights_bytes, weights);
        assert_ok(g3_session_clear(session, error));
        assert_int_equal(g3_session_length(session), 0);
        assert_int_equal(allocated(&l), weights);
        assert_int_equal(vrp_empty_cache(l.memory.pool, NULL), VRP_OK);
        assert_true(vrp_pool_reserved_bytes(l.memory.pool) <= weights + 4 * VRPT_MIB);
        free(images[0].rgb);
        free(images[1].rgb);
        g3_prompt_free(&prompt);
    }
    g3_session_destroy(session);
    unload(&l);
}

/* A cache that grows from 256 to 4096 positions never holds an old and a new copy, and
 * a budget is a ceiling that gives a clean answer. */
static void the_cache_grows_in_place(void **state) {
    (void)state;
    loaded l;
    load(&l, "tiny-text", "sim:256MiB", G3_FAULT_NONE);
    g3_session *session = open_session(&l, 4096, 256);
    for (uint32_t step = 0; step < 8; step++) {
        g3_prompt prompt;
        random_prompt(&l, step, 256, &prompt);
        assert_ok(g3_session_prefill(session, &prompt, NULL, NULL, error));
        vrp_group_stats kv = {.struct_size = sizeof kv};
        assert_int_equal(vrp_tag_stats_get(l.memory.pool, VRP_TAG_KV, &kv), VRP_OK);
        assert_int_equal(kv.allocated_bytes.peak, kv.allocated_bytes.current);
        /* 2 global layers of 2 * 32 floats a position; 10 rings of 8. */
        const uint64_t least = (step + 1) * 256u * 2 * 2 * 32 * 4 + 10 * 8 * 2 * 32 * 4;
        assert_in_range(kv.requested_bytes.current, least, least);
        g3_prompt_free(&prompt);
    }
    vrp_group_stats kv = {.struct_size = sizeof kv};
    assert_int_equal(vrp_tag_stats_get(l.memory.pool, VRP_TAG_KV, &kv), VRP_OK);
    assert_int_equal(
        vrp_tag_budget_set(l.memory.pool, VRP_TAG_KV, kv.allocated_bytes.current + 4096), VRP_OK);
    g3_prompt prompt;
    random_prompt(&l, 77, 1000, &prompt);
    g3_error error = {{0}};
    assert_int_equal(g3_session_prefill(session, &prompt, NULL, NULL, &error), G3_DEVICE_MEMORY);
    assert_int_equal(g3_session_length(session), 8 * 256);
    prompt.ids.count = 8;
    assert_int_equal(g3_session_decode(session, 5, NULL, &error), G3_OK);
    g3_prompt_free(&prompt);
    g3_session_destroy(session);
    unload(&l);
}

/* A long prompt holds logits of one position, not of all. */
static void logits_of_the_last_position_only(void **state) {
    (void)state;
    loaded l;
    load(&l, "tiny-text", "sim:256MiB", G3_FAULT_NONE);
    const uint64_t vocab = l.model->output.rows;
    uint64_t peaks[2];
    for (int with = 0; with < 2; with++) {
        float *logits = new_logits(&l);
        g3_prompt prompt;
        random_prompt(&l, 4, 2000, &prompt);
        g3_session *session = open_session(&l, 2048, 2048);
        assert_int_equal(vrp_pool_peaks_reset(l.memory.pool), VRP_OK);
        assert_ok(g3_session_prefill(session, &prompt, NULL, with == 1 ? logits : NULL, error));
        vrp_stats stats = {.struct_size = sizeof stats};
        assert_int_equal(vrp_pool_stats_get(l.memory.pool, &stats), VRP_OK);
        peaks[with] = stats.requested_bytes.peak;
        g3_session_destroy(session);
        g3_prompt_free(&prompt);
        free(logits);
    }
    assert_true(peaks[1] < peaks[0] + 20 * vocab * sizeof(float));
    unload(&l);
}

/* ---- Prompts that are wrong ------------------------------------------------------------ */

static void expect_refused(g3_session *session, const g3_prompt *prompt, const g3_image *images,
                           g3_status status, const char *word) {
    const uint32_t length = g3_session_length(session);
    g3_error error = {{0}};
    assert_int_equal(g3_session_prefill(session, prompt, images, NULL, &error), status);
    if (strstr(error.text, word) == NULL)
        fail_msg("\"%s\" says nothing of \"%s\"", error.text, word);
    assert_int_equal(g3_session_length(session), length);
}

static void wrong_prompts_are_refused(void **state) {
    (void)state;
    loaded l;
    load(&l, "tiny-mm", "sim:64MiB", G3_FAULT_NONE);
    g3_session *session = open_session(&l, 64, 16);
    const g3_image image = make_image(1, 8, 8);
    g3_prompt prompt;
    random_prompt(&l, 1, 10, &prompt);
    assert_ok(g3_session_prefill(session, &prompt, NULL, NULL, error));

    const int32_t kept = prompt.ids.ids[4];
    prompt.ids.ids[4] = (int32_t)l.model->config.text.vocab;
    expect_refused(session, &prompt, NULL, G3_INVALID, "vocabulary");
    prompt.ids.ids[4] = -1;
    expect_refused(session, &prompt, NULL, G3_INVALID, "vocabulary");
    prompt.ids.ids[4] = l.model->config.tokens.image;
    expect_refused(session, &prompt, NULL, G3_INVALID, "picture");
    prompt.ids.ids[4] = kept;

    insert_picture(&l, &prompt, 4);
    expect_refused(session, &prompt, NULL, G3_INVALID, "none were given");
    prompt.images[0].tokens--;
    expect_refused(session, &prompt, &image, G3_INVALID, "positions");
    prompt.images[0].tokens++;
    prompt.images[0].begin = prompt.ids.count - 1;
    expect_refused(session, &prompt, &image, G3_INVALID, "picture 1");
    prompt.images[0].begin = 4;
    prompt.images[0].image = 1;
    expect_refused(session, &prompt, &image, G3_INVALID, "picture 1");
    prompt.images[0].image = 0;
    assert_ok(g3_session_prefill(session, &prompt, &image, NULL, error));
    g3_prompt_free(&prompt);

    random_prompt(&l, 2, 60, &prompt);
    expect_refused(session, &prompt, NULL, G3_CONTEXT_FULL, "context");
    prompt.ids.count = 0;
    expect_refused(session, &prompt, NULL, G3_INVALID, "empty");
    g3_prompt_free(&prompt);
    free(image.rgb);
    g3_session_destroy(session);

    const g3_session_options wide = {.context = 5000};
    g3_error error = {{0}};
    assert_int_equal(g3_session_create(l.model, &wide, &session, &error), G3_INVALID);
    unload(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_counts_the_token_itself),
        cmocka_unit_test(pictures_see_themselves_whole_and_only_what_came_before),
        cmocka_unit_test(chunks_do_not_change_a_bit),
        cmocka_unit_test(a_turn_that_finds_no_memory_leaves_the_conversation),
        cmocka_unit_test(a_refused_turn_gives_its_cache_back),
        cmocka_unit_test(backing_ahead_trims_nothing),
        cmocka_unit_test(smaller_chunks_are_tried),
        cmocka_unit_test(nothing_stays_behind),
        cmocka_unit_test(the_cache_grows_in_place),
        cmocka_unit_test(logits_of_the_last_position_only),
        cmocka_unit_test(wrong_prompts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
