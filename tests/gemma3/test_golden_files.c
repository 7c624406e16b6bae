/* SPDX-License-Identifier: MIT */
/* The small reference models: their configurations, and that every tensor is
 * read where the Python libraries wrote it. */

#include "support_bytes.h"

#include "files/checkpoint.h"
#include "files/safetensors.h"

#include <math.h>

static g3_checkpoint *open_golden(const char *name) {
    char path[512];
    g3_checkpoint *checkpoint = NULL;
    g3_error error = {{0}};
    (void)snprintf(path, sizeof path, "%s/tests/golden/%s", VRPT_SOURCE_DIR, name);
    if (g3_checkpoint_open(path, NULL, &checkpoint, &error) != G3_OK)
        fail_msg("%s", error.text);
    assert_string_equal(g3_checkpoint_config(checkpoint)->name, name);
    assert_false(g3_checkpoint_norms_shifted(checkpoint));
    return checkpoint;
}

static void expect_tensor(const g3_checkpoint *checkpoint, const char *name, uint64_t columns,
                          uint64_t rows) {
    const g3_tensor *tensor = g3_checkpoint_tensor(checkpoint, name);
    if (tensor == NULL)
        fail_msg("no %s", name);
    assert_int_equal(tensor->type, G3_BF16);
    assert_int_equal(tensor->dims[0], columns);
    assert_int_equal(tensor->dims[1], rows);
    assert_int_equal(tensor->bytes, 2 * columns * rows * tensor->dims[2] * tensor->dims[3]);
}

static void tiny_text(void **state) {
    (void)state;
    g3_checkpoint *checkpoint = open_golden("tiny-text");
    const g3_config *config = g3_checkpoint_config(checkpoint);
    const g3_text_config *text = &config->text;
    assert_true(text->layers == 12 && text->hidden == 64 && text->heads == 4);
    assert_true(text->kv_heads == 1 && text->head_dim == 32 && text->feed_forward == 128);
    assert_true(text->vocab == 384 && text->context == 4096 && text->window == 8);
    assert_true(text->rope_base_global == 1e6 && text->rope_base_local == 1e4);
    assert_true(text->rope_factor_global == 1 && text->norm_eps == 1e-6f);
    assert_true(text->attention_scale == 1 / sqrt(32));
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(text->global[i], i == 5 || i == 11);
    assert_false(config->vision.present);
    assert_true(config->tokens.bos == 2 && config->tokens.pad == 0);
    assert_true(config->tokens.stop_count == 1 && config->tokens.stop[0] == 1);
    assert_int_equal(config->tokens.image, G3_NO_ID);
    expect_tensor(checkpoint, "token_embd.weight", 64, 384);
    expect_tensor(checkpoint, "blk.11.ffn_down.weight", 128, 64);
    expect_tensor(checkpoint, "blk.10.attn_k.weight", 64, 32);
    assert_int_equal(g3_checkpoint_tensor_bytes(checkpoint), 1138304);
    g3_checkpoint_close(checkpoint);
}

static void tiny_mm(void **state) {
    (void)state;
    g3_checkpoint *checkpoint = open_golden("tiny-mm");
    const g3_config *config = g3_checkpoint_config(checkpoint);
    const g3_vision_config *vision = &config->vision;
    assert_true(config->text.layers == 7 && config->text.hidden == 96 && config->text.window == 16);
    assert_true(config->text.rope_factor_global == 8 && config->text.vocab == 512);
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(config->text.global[i], i == 5);
    assert_true(vision->present && vision->layers == 2 && vision->hidden == 48);
    assert_true(vision->heads == 3 && vision->feed_forward == 96 && vision->image_size == 56);
    assert_true(vision->patch_size == 14 && vision->tokens == 4 && vision->norm_eps == 1e-6f);
    assert_true(config->tokens.image_begin == 509 && config->tokens.image_end == 510);
    assert_int_equal(config->tokens.image, 511);
    expect_tensor(checkpoint, "v.patch_embd.weight", 14, 14);
    assert_true(g3_checkpoint_tensor(checkpoint, "v.patch_embd.weight")->dims[3] == 48);
    expect_tensor(checkpoint, "v.position_embd.weight", 48, 16);
    expect_tensor(checkpoint, "v.blk.1.ffn_up.bias", 96, 1);
    expect_tensor(checkpoint, "mm.input_projection.weight", 96, 48);
    g3_checkpoint_close(checkpoint);
}

/* Old spelling of RoPE, a pattern of three, four files, another norm epsilon. */
static void tiny_window(void **state) {
    (void)state;
    g3_checkpoint *checkpoint = open_golden("tiny-window");
    const g3_config *config = g3_checkpoint_config(checkpoint);
    assert_true(config->text.window == 9 && config->text.rope_factor_global == 4);
    assert_true(config->text.norm_eps == 1e-5f && config->vision.tokens == 16);
    assert_true(config->text.attention_scale == 1 / sqrt(40));
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(config->text.global[i], i % 3 == 2);
    assert_string_not_equal(g3_checkpoint_tensor(checkpoint, "token_embd.weight")->path,
                            g3_checkpoint_tensor(checkpoint, "v.post_ln.bias")->path);
    g3_checkpoint_close(checkpoint);
}

/* The checkpoint's tensor is the file's, byte for byte. */
static void tensors_lie_where_they_were_written(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"blk.3.attn_q_norm.weight", "model.layers.3.self_attn.q_norm.weight"},
        {"blk.0.ffn_norm.weight", "model.layers.0.pre_feedforward_layernorm.weight"},
        {"blk.0.post_attention_norm.weight", "model.layers.0.post_attention_layernorm.weight"},
        {"output_norm.weight", "model.norm.weight"},
    };
    char path[512];
    g3_safetensors *file = NULL;
    g3_error error = {{0}};
    g3_checkpoint *checkpoint = open_golden("tiny-text");
    (void)snprintf(path, sizeof path, "%s/tests/golden/tiny-text/model.safetensors",
                   VRPT_SOURCE_DIR);
    assert_int_equal(g3_safetensors_open(path, &file, &error), G3_OK);
    for (size_t i = 0; i < VRPT_COUNT(names); i++) {
        const g3_tensor *ours = g3_checkpoint_tensor(checkpoint, names[i][0]);
        const g3_st_tensor *theirs = g3_safetensors_find(file, names[i][1]);
        assert_int_equal(ours->offset, theirs->offset);
        assert_int_equal(ours->bytes, theirs->bytes);
        assert_memory_equal(ours->data, theirs->data, theirs->bytes);
    }
    g3_safetensors_close(file);
    g3_checkpoint_close(checkpoint);
}

/* References hold ids and finite numbers. */
static void expected_outputs_can_be_read(void **state) {
    (void)state;
    char path[512];
    g3_safetensors *file = NULL;
    g3_error error = {{0}};
    (void)snprintf(path, sizeof path, "%s/tests/golden/tiny-mm/expected.safetensors",
                   VRPT_SOURCE_DIR);
    t_expect(g3_safetensors_open(path, &file, &error), G3_OK, &error, NULL, NULL);
    const g3_st_tensor *ids = g3_safetensors_find(file, "turn0.input_ids");
    const g3_st_tensor *logits = g3_safetensors_find(file, "turn0.logits");
    assert_true(ids != NULL && logits != NULL && logits->type == G3_ST_F32);
    const uint64_t tokens = ids->shape[ids->dim_count - 1];
    assert_int_equal(logits->shape[logits->dim_count - 1], 512);
    assert_int_equal(logits->bytes, tokens * 512 * 4);
    for (uint64_t i = 0; i < tokens; i++)
        assert_true(g3_st_int(ids, i) >= 0 && g3_st_int(ids, i) < 512);
    for (uint64_t i = 0; i < tokens * 512; i++)
        assert_true(isfinite(g3_st_float(logits, i)) && fabsf(g3_st_float(logits, i)) < 1000);
    g3_safetensors_close(file);
}

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_text),
        cmocka_unit_test(tiny_mm),
        cmocka_unit_test(tiny_window),
        cmocka_unit_test(tensors_lie_where_they_were_written),
        cmocka_unit_test(expected_outputs_can_be_read),
    };
    return cmocka_run_group_tests_name("golden_files", tests, NULL, NULL);
}
