/* SPDX-License-Identifier: MIT */
/* Parts of a conversation taken out or replaced: what is left is as if it had been so
 * from the beginning. */
#include "session_support.h"

/* Dropping a middle piece gives what a conversation without it would have given, also
 * where the rings have wrapped and where a picture is among what is dropped or moved. */
static void what_is_dropped_was_never_there(void **state) {
    (void)state;
    loaded l;
    load(&l, "tiny-mm", "sim:64MiB", G3_FAULT_NONE);
    float *expected = new_logits(&l), *logits = new_logits(&l);
    const g3_image a = make_image(1, 30, 30), b = make_image(2, 10, 60);
    for (uint32_t head = 4; head <= 60; head += 28) {
        g3_prompt first, second, third;
        random_prompt(&l, 1, head, &first);
        random_prompt(&l, 2, 20, &second);
        random_prompt(&l, 3, 11, &third);
        insert_picture(&l, &second, 3);
        insert_picture(&l, &third, 5);
        g3_session *session = open_session(&l, 256, 16);
        assert_ok(g3_session_prefill(session, &first, NULL, NULL, error));
        assert_ok(g3_session_prefill(session, &third, &b, NULL, error));
        assert_ok(g3_session_decode(session, 9, expected, error));
        g3_session_destroy(session);

        session = open_session(&l, 256, 16);
        assert_ok(g3_session_prefill(session, &first, NULL, NULL, error));
        assert_ok(g3_session_prefill(session, &second, &a, NULL, error));
        assert_ok(g3_session_prefill(session, &third, &b, NULL, error));
        const uint32_t end = head + (uint32_t)second.ids.count;
        assert_int_equal(g3_session_drop(session, head + 4, end, NULL), G3_INVALID);
        assert_ok(g3_session_drop(session, head, end, error));
        assert_ok(g3_session_decode(session, 9, logits, error));
        assert_memory_equal(logits, expected, l.model->output.rows * sizeof(float));

        /* And back by one, and again. */
        const uint32_t last = g3_session_length(session) - 1;
        assert_ok(g3_session_drop(session, last, last + 1, error));
        assert_ok(g3_session_decode(session, 9, logits, error));
        assert_memory_equal(logits, expected, l.model->output.rows * sizeof(float));
        g3_session_destroy(session);
        g3_prompt_free(&first);
        g3_prompt_free(&second);
        g3_prompt_free(&third);
    }
    free(a.rgb);
    free(b.rgb);
    free(expected);
    free(logits);
    unload(&l);
}

/* Other ids in the place of some, more or fewer, in front of a picture and behind one. */
static void what_is_replaced_is_as_if_it_had_been_so(void **state) {
    (void)state;
    loaded l;
    load(&l, "tiny-mm", "sim:64MiB", G3_FAULT_NONE);
    float *expected = new_logits(&l), *logits = new_logits(&l);
    const g3_image images[] = {make_image(1, 30, 30), make_image(2, 10, 60)};
    const uint32_t tokens = l.model->config.vision.tokens;
    const struct {
        uint32_t begin, end;
        size_t count;
        int pictures; /* that stay */
    } cases[] = {{0, 3, 7, 2},
                 {0, 9, 2, 2},
                 {2, 2, 5, 2},
                 {4, 4, 0, 2},
                 {1, 10 + tokens, 3, 1},
                 {10 + tokens, 12 + tokens, 30, 2},
                 {0, 25 + 2 * tokens, 4, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        g3_prompt other, whole;
        random_prompt(&l, 7, 30, &other);
        random_prompt(&l, 1, 30, &whole);
        insert_picture(&l, &whole, 10);
        insert_picture(&l, &whole, 20 + tokens);
        g3_session *session = open_session(&l, 256, 16);
        assert_ok(g3_session_prefill(session, &whole, images, NULL, error));
        assert_int_equal(g3_session_replace(session, 0, 11, other.ids.ids, 3, NULL), G3_INVALID);
        assert_int_equal(g3_session_replace(session, 0, 3, &whole.ids.ids[10], 1, NULL),
                         G3_INVALID);
        assert_int_equal(g3_session_replace(session, 3, 2, other.ids.ids, 1, NULL), G3_INVALID);
        assert_ok(g3_session_replace(session, cases[i].begin, cases[i].end, other.ids.ids,
                                     cases[i].count, error));
        assert_ok(g3_session_decode(session, 9, logits, error));

        /* The same prompt from the beginning. */
        g3_prompt made = {0};
        for (uint32_t at = 0; at < cases[i].begin; at++)
            assert_ok(g3_ids_append(&made.ids, whole.ids.ids[at], error));
        for (size_t at = 0; at < cases[i].count; at++)
            assert_ok(g3_ids_append(&made.ids, other.ids.ids[at], error));
        for (size_t at = cases[i].end; at < whole.ids.count; at++)
            assert_ok(g3_ids_append(&made.ids, whole.ids.ids[at], error));
        g3_image_span spans[2];
        for (size_t at = 0, next = 0; at < made.ids.count; at++)
            if (made.ids.ids[at] == l.model->config.tokens.image) {
                spans[next] = (g3_image_span){at, tokens, next};
                next++;
                at += tokens - 1;
            }
        made.images = spans;
        made.image_count = (size_t)cases[i].pictures;
        assert_int_equal(g3_session_length(session), made.ids.count + 1);
        assert_memory_equal(g3_session_ids(session), made.ids.ids,
                            made.ids.count * sizeof(int32_t));
        g3_session *fresh = open_session(&l, 256, 16);
        assert_ok(g3_session_prefill(fresh, &made, images + 2 - cases[i].pictures, NULL, error));
        assert_ok(g3_session_decode(fresh, 9, expected, error));
        assert_memory_equal(logits, expected, l.model->output.rows * sizeof(float));
        g3_session_destroy(fresh);

        g3_prompt_free(&other);
        random_prompt(&l, 8, 256, &other);
        const uint32_t length = g3_session_length(session);
        assert_int_equal(g3_session_replace(session, 0, 0, other.ids.ids, 256, NULL),
                         G3_CONTEXT_FULL);
        assert_int_equal(g3_session_length(session), length);
        g3_session_destroy(session);
        g3_ids_free(&made.ids);
        g3_prompt_free(&other);
        g3_prompt_free(&whole);
    }
    free(images[0].rgb);
    free(images[1].rgb);
    free(expected);
    free(logits);
    unload(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_dropped_was_never_there),
        cmocka_unit_test(what_is_replaced_is_as_if_it_had_been_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
