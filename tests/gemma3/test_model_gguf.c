/* SPDX-License-Identifier: MIT */
/* The published 270M model in Q4_K_M: what is in the file. Skipped where it is
 * not there. */

#include "support_bytes.h"
#include "support_real.h"

#include "files/checkpoint.h"
#include "files/gguf.h"

static const char *path;

static void tensors_and_types(void **state) {
    (void)state;
    static const struct {
        const char *name;
        g3_type type;
        uint64_t columns, rows;
    } some[] = {
        {"token_embd.weight", G3_Q8_0, 640, 262144},
        {"output_norm.weight", G3_F32, 640, 1},
        {"blk.0.attn_q.weight", G3_Q5_0, 640, 1024},
        {"blk.0.attn_k.weight", G3_Q5_0, 640, 256},
        {"blk.0.attn_v.weight", G3_Q8_0, 640, 256},
        {"blk.0.attn_output.weight", G3_Q4_K, 1024, 640},
        {"blk.0.ffn_down.weight", G3_Q6_K, 2048, 640},
        {"blk.17.ffn_gate.weight", G3_Q5_0, 640, 2048},
        {"blk.17.post_ffw_norm.weight", G3_F32, 640, 1},
    };
    g3_gguf *gguf = NULL;
    g3_error error = {{0}};
    t_expect(g3_gguf_open(path, &gguf, &error), G3_OK, &error, NULL, NULL);
    assert_int_equal(g3_gguf_tensor_count(gguf), 236);
    for (size_t i = 0; i < VRPT_COUNT(some); i++) {
        const g3_tensor *tensor = g3_gguf_find(gguf, some[i].name);
        assert_non_null(tensor);
        assert_int_equal(tensor->type, some[i].type);
        assert_int_equal(tensor->dims[0], some[i].columns);
        assert_int_equal(tensor->dims[1], some[i].rows);
    }
    size_t norms = 0;
    for (size_t i = 0; i < g3_gguf_tensor_count(gguf); i++) {
        const g3_tensor *tensor = g3_gguf_tensor(gguf, i);
        assert_int_equal(tensor->offset % 32, 0);
        norms += tensor->type == G3_F32;
    }
    assert_int_equal(norms, 18 * 6 + 1);
    g3_gguf_close(gguf);
}

/* 262144 texts, the turn tokens among them. */
static void vocabulary(void **state) {
    (void)state;
    g3_gguf *gguf = NULL;
    g3_error error = {{0}};
    g3_array tokens = {0};
    g3_array scores = {0};
    g3_array types = {0};
    bool found = false;
    assert_int_equal(g3_gguf_open(path, &gguf, &error), G3_OK);
    assert_int_equal(g3_gguf_array(gguf, "tokenizer.ggml.tokens", &tokens, &found, &error), G3_OK);
    assert_true(found && tokens.count == 262144);
    assert_int_equal(g3_gguf_array(gguf, "tokenizer.ggml.scores", &scores, &found, &error), G3_OK);
    assert_true(found && scores.count == 262144);
    assert_int_equal(g3_gguf_array(gguf, "tokenizer.ggml.token_type", &types, &found, &error),
                     G3_OK);
    assert_true(found && types.count == 262144);
    assert_true(g3_array_number(&types, 0) == 3 && g3_array_number(&types, 5) == 4);
    assert_true(g3_array_number(&scores, 0) == -1000);
    uint64_t cursor = 0;
    g3_text text = {0};
    uint64_t count = 0;
    while (g3_array_next_string(&tokens, &cursor, &text)) {
        if (count == 105)
            assert_memory_equal(text.bytes, "<start_of_turn>", 15);
        if (count == 106)
            assert_memory_equal(text.bytes, "<end_of_turn>", 13);
        if (count == 255999)
            assert_memory_equal(text.bytes, "<start_of_image>", 16);
        count++;
    }
    assert_int_equal(count, 262144);
    g3_gguf_close(gguf);
}

static void configuration(void **state) {
    (void)state;
    g3_checkpoint *checkpoint = NULL;
    g3_error error = {{0}};
    t_expect(g3_checkpoint_open(path, NULL, &checkpoint, &error), G3_OK, &error, NULL, NULL);
    const g3_config *config = g3_checkpoint_config(checkpoint);
    const g3_text_config *text = &config->text;
    assert_string_equal(config->name, "Gemma 3 270m");
    assert_true(text->layers == 18 && text->hidden == 640 && text->heads == 4);
    assert_true(text->kv_heads == 1 && text->head_dim == 256 && text->feed_forward == 2048);
    assert_true(text->vocab == 262144 && text->context == 32768 && text->window == 512);
    assert_true(text->rope_base_global == 1e6 && text->rope_base_local == 1e4);
    assert_true(text->rope_factor_global == 1 && text->attention_scale == 0.0625);
    assert_true(text->norm_eps == 1e-6f);
    for (uint32_t i = 0; i < 18; i++)
        assert_int_equal(text->global[i], i == 5 || i == 11 || i == 17);
    assert_false(config->vision.present);
    assert_true(config->tokens.bos == 2 && config->tokens.unknown == 3 && config->tokens.pad == 0);
    assert_true(config->tokens.stop_count == 1 && config->tokens.stop[0] == 1);
    assert_true(g3_checkpoint_norms_shifted(checkpoint));
    assert_int_equal(g3_checkpoint_tensor_bytes(checkpoint), 246587904);
    assert_null(g3_checkpoint_tensor(checkpoint, "output.weight"));
    g3_checkpoint_close(checkpoint);
}

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    path = real_model_path();
    if (path == NULL)
        return VRPT_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_and_types),
        cmocka_unit_test(vocabulary),
        cmocka_unit_test(configuration),
    };
    return cmocka_run_group_tests_name("model_gguf", tests, NULL, NULL);
}
