/* SPDX-License-Identifier: MIT */
/* The real model: chunks, kernels and precisions agree, and it knows its capitals. */
#include <math.h>
#include <string.h>

#include "support_real.h"

#include "engine/sampler.h"
#include "engine/session.h"
#include "text/template.h"
#include "vrp_test.h"

typedef struct real {
    g3_memory memory;
    g3_model *model;
    g3_tokenizer *tokenizer;
} real;

static void open_real(real *r, g3_precision precision) {
    g3_error error = {{0}};
    g3_checkpoint *checkpoint = NULL;
    if (g3_checkpoint_open(real_model_path(), NULL, &checkpoint, &error) != G3_OK ||
        g3_tokenizer_open(checkpoint, &r->tokenizer, &error) != G3_OK ||
        g3_memory_open("sim:1GiB", VRP_BACKING_AUTO, &r->memory, &error) != G3_OK ||
        g3_model_load(&r->memory, checkpoint, precision, G3_FAULT_NONE, NULL, NULL, &r->model,
                      &error) != G3_OK)
        fail_msg("%s", error.text);
    g3_checkpoint_close(checkpoint);
}

static void close_real(real *r) {
    g3_error error = {{0}};
    uint64_t left = 1;
    g3_model_free(r->model);
    g3_tokenizer_close(r->tokenizer);
    assert_int_equal(g3_memory_close(&r->memory, &left, &error), G3_OK);
    assert_int_equal(left, 0);
}

static void encode(const real *r, const char *text, g3_prompt *prompt) {
    *prompt = (g3_prompt){0};
    assert_int_equal(g3_ids_append(&prompt->ids, g3_tokenizer_special(r->tokenizer)->bos, NULL),
                     G3_OK);
    assert_int_equal(
        g3_tokenizer_encode(r->tokenizer, text, strlen(text), false, &prompt->ids, NULL), G3_OK);
}

static const char passage[] =
    "The river rises in the hills behind the town, where nobody goes in winter. It is narrow "
    "there, and cold, and a child can jump over it. By the time it reaches the mill it carries "
    "boats. 강은 마을 뒤의 언덕에서 시작됩니다. 겨울에는 아무도 가지 않는 곳입니다. The miller "
    "keeps a list of the boats, 1 to 48, with the day on which each of them came.";

/* Logits of the passage's last position and of the three tokens after it. */
static void run(const real *r, uint32_t chunk, float *logits) {
    g3_error error = {{0}};
    g3_session *session = NULL;
    g3_prompt prompt;
    const size_t vocab = r->model->output.rows;
    const g3_session_options options = {.context = 512, .chunk = chunk, .kv_type = G3_KV_F16};
    encode(r, passage, &prompt);
    if (g3_session_create(r->model, &options, &session, &error) != G3_OK ||
        g3_session_prefill(session, &prompt, NULL, logits, &error) != G3_OK)
        fail_msg("%s", error.text);
    for (int32_t i = 1; i < 4; i++)
        if (g3_session_decode(session, 500 * i, logits + (size_t)i * vocab, &error) != G3_OK)
            fail_msg("%s", error.text);
    g3_session_destroy(session);
    g3_prompt_free(&prompt);
}

static double distance(const float *a, const float *b, size_t count) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)a[i] * (double)a[i];
    }
    return sqrt(difference / size);
}

/* Any chunk size gives the same bits. Returns the largest distance between the kernels
 * of this CPU; *out_logits is to be freed. */
static double agree(g3_precision precision, float **out_logits, size_t *out_count) {
    const uint32_t chunks[] = {1, 7, 64};
    real r;
    open_real(&r, precision);
    const size_t count = 4 * (size_t)r.model->output.rows;
    float *logits = malloc(count * sizeof *logits), *other = malloc(count * sizeof *other);
    assert_non_null(logits);
    assert_non_null(other);
    run(&r, 512, logits);
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        run(&r, chunks[i], other);
        if (memcmp(other, logits, count * sizeof *logits) != 0)
            fail_msg("chunks of %u give other logits", chunks[i]);
    }
    double largest = 0;
    const g3_isa best = g3_isa_current();
    for (int isa = (int)best - 1; isa >= 0; isa--) {
        assert_int_equal(g3_isa_set((g3_isa)isa), 0);
        run(&r, 512, other);
        largest = fmax(largest, distance(logits, other, count));
    }
    assert_int_equal(g3_isa_set(best), 0);
    close_real(&r);
    free(other);
    *out_logits = logits;
    *out_count = count;
    return largest;
}

/* In float32 kernels differ by rounding. In 8 bits a sum that rounds otherwise puts an
 * activation on the next of its 255 steps here and there, which spreads: kernels then
 * differ by as much as the steps themselves cost, and not by more. */
static void chunks_kernels_and_precisions_agree(void **state) {
    (void)state;
    float *exact, *rounded;
    size_t count;
    const double rounding = agree(G3_FLOAT32, &exact, &count);
    const double steps = agree(G3_INT8, &rounded, &count);
    const double cost = distance(exact, rounded, count);
    printf("kernels differ by %.2g in float32, %.2g in int8; int8 costs %.2g\n", rounding, steps,
           cost);
    assert_true(rounding < 1e-3);
    assert_true(cost > 1e-3 && cost < 8e-2);
    assert_true(steps < 2 * cost);
    free(exact);
    free(rounded);
}

/* What the model says next, greedily, until a newline or for so many tokens. */
static void goes_on(const real *r, const char *text, size_t tokens, const char *expected) {
    g3_error error = {{0}};
    g3_session *session = NULL;
    g3_prompt prompt;
    g3_string out = {0};
    g3_stream_decoder decoder = {0};
    float *logits = malloc(r->model->output.rows * sizeof(float));
    assert_non_null(logits);
    const g3_session_options options = {.context = 512, .kv_type = G3_KV_F16};
    encode(r, text, &prompt);
    g3_status status = g3_session_create(r->model, &options, &session, &error);
    if (status == G3_OK)
        status = g3_session_prefill(session, &prompt, NULL, logits, &error);
    for (size_t i = 0; i < tokens && status == G3_OK; i++) {
        g3_sampler greedy = {.temperature = 0};
        int32_t id = 0;
        status = g3_sample(&greedy, logits, g3_tokenizer_size(r->tokenizer), NULL, &id, &error);
        if (status == G3_OK)
            status = g3_stream_decode(&decoder, r->tokenizer, id, &out, &error);
        if (status == G3_OK)
            status = g3_session_decode(session, id, logits, &error);
    }
    if (status != G3_OK)
        fail_msg("%s", error.text);
    if (strncmp(out.bytes, expected, strlen(expected)) != 0)
        fail_msg("\"%s\" goes on with \"%s\"", text, out.bytes);
    g3_string_free(&out);
    g3_prompt_free(&prompt);
    g3_session_destroy(session);
    free(logits);
}

/* In a dialogue as the chat writes it, with every set of kernels. */
static void it_knows_two_capitals(void **state) {
    (void)state;
    real r;
    open_real(&r, G3_INT8);
    const g3_isa best = g3_isa_current();
    for (int isa = (int)best; isa >= 0; isa--) {
        assert_int_equal(g3_isa_set((g3_isa)isa), 0);
        goes_on(&r,
                G3_DIALOGUE_INTRODUCTION "\nUser: What is the capital of France?\nAssistant:", 8,
                " The capital of France is Paris.\n");
        goes_on(&r,
                G3_DIALOGUE_INTRODUCTION "\nUser: 대한민국의 수도는 어디인가요?\nAssistant:", 10,
                " 대한민국 수도는 서울입니다.\n");
    }
    assert_int_equal(g3_isa_set(best), 0);
    close_real(&r);
}

int main(void) {
    if (real_model_path() == NULL)
        return VRPT_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_kernels_and_precisions_agree),
        cmocka_unit_test(it_knows_two_capitals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
