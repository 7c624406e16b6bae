/* SPDX-License-Identifier: MIT */
/* A prompt that is stopped on its way leaves the conversation as it was. */
#include "session_support.h"

static int stop_after(void *user) {
    int *left = user;
    return (*left)-- <= 0;
}

static void a_stop_between_chunks_leaves_the_conversation(void **state) {
    (void)state;
    loaded l;
    load(&l, "tiny-text", "sim:64MiB", G3_FAULT_NONE);
    float *expected = new_logits(&l), *logits = new_logits(&l);
    g3_prompt first, second;
    random_prompt(&l, 1, 30, &first);
    random_prompt(&l, 2, 50, &second);
    int left = 1000;
    g3_session *session = NULL;
    const g3_session_options options = {
        .context = 128, .chunk = 10, .stop = stop_after, .user = &left};
    assert_ok(g3_session_create(l.model, &options, &session, error));
    assert_ok(g3_session_prefill(session, &first, NULL, NULL, error));
    left = 3;
    assert_int_equal(g3_session_prefill(session, &second, NULL, logits, NULL), G3_STOPPED);
    assert_int_equal(g3_session_length(session), 30);
    left = 1000;
    assert_ok(g3_session_prefill(session, &second, NULL, logits, error));
    g3_session_destroy(session);

    session = open_session(&l, 128, 10);
    assert_ok(g3_session_prefill(session, &first, NULL, NULL, error));
    assert_ok(g3_session_prefill(session, &second, NULL, expected, error));
    assert_memory_equal(logits, expected, l.model->output.rows * sizeof(float));
    g3_session_destroy(session);
    g3_prompt_free(&first);
    g3_prompt_free(&second);
    free(expected);
    free(logits);
    unload(&l);
}

/* Also while a picture is encoded, whose layers take long. */
static void a_stop_inside_a_picture_leaves_the_conversation(void **state) {
    (void)state;
    loaded l;
    load(&l, "tiny-mm", "sim:64MiB", G3_FAULT_NONE);
    float *expected = new_logits(&l), *logits = new_logits(&l);
    g3_prompt prompt;
    random_prompt(&l, 1, 30, &prompt);
    insert_picture(&l, &prompt, 9);
    const g3_image image = make_image(3, 20, 31);
    g3_session *session = open_session(&l, 128, 0);
    assert_ok(g3_session_prefill(session, &prompt, &image, expected, error));
    g3_session_destroy(session);

    int left = 0, stops = 0;
    const g3_session_options options = {
        .context = 128, .kv_type = G3_KV_F32, .stop = stop_after, .user = &left};
    assert_ok(g3_session_create(l.model, &options, &session, error));
    g3_status status = G3_STOPPED;
    for (; status == G3_STOPPED && stops < 100; stops++) {
        left = stops;
        status = g3_session_prefill(session, &prompt, &image, logits, NULL);
        g3_memory_report report;
        assert_ok(g3_memory_report_get(&l.memory, &report, error));
        assert_int_equal(report.temporary_bytes, 0);
        assert_int_equal(g3_session_length(session), status == G3_OK ? prompt.ids.count : 0);
    }
    /* Once before the only chunk, once before every layer of the tower. */
    assert_int_equal(stops - 1, 1 + (int)l.model->config.vision.layers);
    assert_int_equal(status, G3_OK);
    assert_memory_equal(logits, expected, l.model->output.rows * sizeof(float));
    g3_session_destroy(session);
    g3_prompt_free(&prompt);
    free(image.rgb);
    free(expected);
    free(logits);
    unload(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_between_chunks_leaves_the_conversation),
        cmocka_unit_test(a_stop_inside_a_picture_leaves_the_conversation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
