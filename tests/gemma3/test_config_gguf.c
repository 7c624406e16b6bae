/* SPDX-License-Identifier: MIT */
/* Configurations in GGUF metadata, and the rules for what files leave out. */

#include "support_config.h"

#include <math.h>

static const t_size small = {.layers = 7,
                             .hidden = 64,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_dim = 32,
                             .feed_forward = 96,
                             .context = 4096,
                             .window = 4};

/* The keys of a file of this size, and an embedding. */
static t_gguf text_file(const t_size *size, const char *skip) {
    t_gguf g = {.skip = skip};
    t_put_text_keys(&g, size);
    t_tensor(&g, "token_embd.weight", G3_Q8_0, size->hidden, 50, 0, 0);
    return g;
}

static void a_whole_file(void **state) {
    (void)state;
    t_gguf g = text_file(&small, NULL);
    const g3_config config = t_config_ok(&g);
    assert_string_equal(config.name, "Made");
    assert_int_equal(config.text.layers, 7);
    assert_int_equal(config.text.hidden, 64);
    assert_int_equal(config.text.heads, 4);
    assert_int_equal(config.text.kv_heads, 2);
    assert_int_equal(config.text.head_dim, 32);
    assert_int_equal(config.text.feed_forward, 96);
    assert_int_equal(config.text.vocab, 50);
    assert_int_equal(config.text.context, 4096);
    assert_int_equal(config.text.window, 4);
    assert_true(config.text.norm_eps == 1e-6f);
    assert_true(config.text.attention_scale == 1 / sqrt(32));
    t_check_layers(&config, 1);
    assert_false(config.vision.present);
    assert_int_equal(config.tokens.bos, 2);
    assert_int_equal(config.tokens.pad, 0);
    assert_int_equal(config.tokens.unknown, 3);
    assert_int_equal(config.tokens.image, G3_NO_ID);
    assert_int_equal(config.tokens.stop_count, 1);
    assert_int_equal(config.tokens.stop[0], 1);
}

static void keys_that_may_be_absent(void **state) {
    (void)state;
    static const char *const keys[] = {"gemma3.rope.freq_base",
                                       "gemma3.attention.layer_norm_rms_epsilon",
                                       "gemma3.attention.value_length"};
    for (size_t i = 0; i < VRPT_COUNT(keys); i++) {
        t_gguf g = text_file(&small, keys[i]);
        const g3_config config = t_config_ok(&g);
        t_check_layers(&config, 1);
        assert_true(config.text.norm_eps == 1e-6f);
    }
    t_gguf heads = text_file(&small, "gemma3.attention.head_count_kv");
    assert_int_equal(t_config_ok(&heads).text.kv_heads, 4);
    t_gguf length = {.skip = "gemma3.attention.key_length",
                     .skip_too = "gemma3.attention.value_length"};
    t_put_text_keys(&length, &small);
    t_tensor(&length, "token_embd.weight", G3_F32, 64, 50, 0, 0);
    assert_int_equal(t_config_ok(&length).text.head_dim, 16); /* 64 / 4 */
    t_gguf ids = {.skip = "tokenizer.ggml.eos_token_id", .skip_too = "tokenizer.ggml.bos_token_id"};
    t_put_text_keys(&ids, &small);
    t_u32(&ids, "tokenizer.ggml.eot_token_id", 46);
    t_tensor(&ids, "token_embd.weight", G3_F32, 64, 50, 0, 0);
    const g3_config config = t_config_ok(&ids);
    assert_int_equal(config.tokens.bos, G3_NO_ID);
    assert_int_equal(config.tokens.stop_count, 1);
    assert_int_equal(config.tokens.stop[0], 46);
}

static void keys_that_must_be_there(void **state) {
    (void)state;
    static const char *const keys[] = {
        "general.architecture",
        "gemma3.context_length",
        "gemma3.embedding_length",
        "gemma3.block_count",
        "gemma3.feed_forward_length",
        "gemma3.attention.head_count",
        "gemma3.attention.sliding_window",
        "token_embd.weight",
    };
    for (size_t i = 0; i < VRPT_COUNT(keys); i++) {
        t_gguf g = {.skip = keys[i]};
        t_put_text_keys(&g, &small);
        t_tensor(&g, "token_embd.weight", G3_Q8_0, 64, 50, 0, 0);
        t_config_fails(&g, G3_INVALID, keys[i], "is missing");
    }
}

/* factor of global layers: in the file, or by the length of the context. */
static void rope_scaling(void **state) {
    (void)state;
    static const struct {
        uint32_t context;
        const char *type;
        const char *key; /* NULL: no factor */
        float factor;
        double expected;
    } right[] = {
        {32768, NULL, NULL, 0, 1},
        {131071, NULL, NULL, 0, 1},
        {131072, NULL, NULL, 0, 8},
        {131072, "linear", "gemma3.rope.scaling.factor", 8, 8},
        {131072, "linear", "gemma3.rope.scaling.factor", 1, 1},
        {131072, NULL, "gemma3.rope.scaling.factor", 4, 4},
        {131072, NULL, "gemma3.rope.scale_linear", 2, 2},
        {131072, "none", NULL, 0, 1},
        {131072, "linear", NULL, 0, 8},
        {4096, "linear", "gemma3.rope.scaling.factor", 8, 8},
    };
    for (size_t i = 0; i < VRPT_COUNT(right); i++) {
        t_size size = small;
        size.context = right[i].context;
        t_gguf g = text_file(&size, NULL);
        if (right[i].type != NULL)
            t_string(&g, "gemma3.rope.scaling.type", right[i].type);
        if (right[i].key != NULL)
            t_f32(&g, right[i].key, right[i].factor);
        const g3_config config = t_config_ok(&g);
        t_check_layers(&config, right[i].expected);
    }
    static const float nonsense[] = {0, -1, -8, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < VRPT_COUNT(nonsense); i++) {
        t_gguf g = text_file(&small, NULL);
        t_string(&g, "gemma3.rope.scaling.type", "linear");
        t_f32(&g, "gemma3.rope.scaling.factor", nonsense[i]);
        t_config_fails(&g, G3_INVALID, "key 'gemma3.rope.scaling.factor' at offset",
                       "RoPE scaling factor is");
    }
    t_gguf yarn = text_file(&small, NULL);
    t_string(&yarn, "gemma3.rope.scaling.type", "yarn");
    t_config_fails(&yarn, G3_UNSUPPORTED, "gemma3.rope.scaling.type", NULL);
    t_gguf bare = text_file(&small, NULL);
    t_string(&bare, "gemma3.rope.scaling.type", "linear");
    t_config_fails(&bare, G3_INVALID, "gemma3.rope.scaling.factor", "is missing");
    t_gguf whole = text_file(&small, NULL);
    t_u32(&whole, "gemma3.rope.scaling.factor", 8);
    t_config_fails(&whole, G3_INVALID, "gemma3.rope.scaling.factor", "a float");
}

static void rope_bases(void **state) {
    (void)state;
    t_gguf g = text_file(&small, "gemma3.rope.freq_base");
    t_f32(&g, "gemma3.rope.freq_base_swa", 5e4f);
    g.skip = NULL;
    t_f32(&g, "gemma3.rope.freq_base", 5e5f);
    const g3_config config = t_config_ok(&g);
    assert_true(t_rope_base(&config, 0) == 5e4 && t_rope_base(&config, 5) == 5e5);
    t_gguf zero = text_file(&small, NULL);
    t_f32(&zero, "gemma3.rope.freq_base_swa", 0);
    t_config_fails(&zero, G3_INVALID, "RoPE base of local layers", NULL);
}

static void patterns(void **state) {
    (void)state;
    static const uint8_t local[7] = {0, 0, 1, 1, 1, 1, 0};
    t_gguf period = text_file(&small, NULL);
    t_u32(&period, "gemma3.attention.sliding_window_pattern", 2);
    const g3_config two = t_config_ok(&period);
    t_gguf list = text_file(&small, NULL);
    t_array(&list, "gemma3.attention.sliding_window_pattern", 7, 7, local, 7);
    const g3_config listed = t_config_ok(&list);
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(two.text.global[i], i % 2 == 1);
        assert_int_equal(listed.text.global[i], local[i] == 0);
    }
    t_gguf zero = text_file(&small, NULL);
    t_u32(&zero, "gemma3.attention.sliding_window_pattern", 0);
    t_config_fails(&zero, G3_INVALID, "sliding_window_pattern", "is 0");
    t_gguf few = text_file(&small, NULL);
    t_array(&few, "gemma3.attention.sliding_window_pattern", 7, 6, local, 6);
    t_config_fails(&few, G3_INVALID, "sliding_window_pattern", "per layer");
}

/* Only the model of 62 layers has a scale that is not of its head size. */
static void attention_scales(void **state) {
    (void)state;
    static const struct {
        t_size size;
        double scalar;
    } models[] = {
        {{18, 640, 4, 1, 256, 2048, 32768, 512}, 256},
        {{26, 1152, 4, 1, 256, 6912, 32768, 512}, 256},
        {{34, 2560, 8, 4, 256, 10240, 131072, 1024}, 256},
        {{48, 3840, 16, 8, 256, 15360, 131072, 1024}, 256},
        {{62, 5376, 32, 16, 128, 21504, 131072, 1024}, 168},
    };
    for (size_t i = 0; i < VRPT_COUNT(models); i++) {
        t_gguf g = text_file(&models[i].size, NULL);
        const g3_config config = t_config_ok(&g);
        assert_true(fabs(config.text.attention_scale - 1 / sqrt(models[i].scalar)) < 1e-16);
        assert_int_equal(config.text.window, models[i].size.window);
        t_check_layers(&config, i < 2 ? 1 : 8);
    }
}

static void what_the_engine_does_not_run(void **state) {
    (void)state;
    static const char *const caps[] = {"gemma3.final_logit_softcapping",
                                       "gemma3.attn_logit_softcapping"};
    for (size_t i = 0; i < VRPT_COUNT(caps); i++) {
        t_gguf g = text_file(&small, NULL);
        t_f32(&g, caps[i], 30);
        t_config_fails(&g, G3_UNSUPPORTED, caps[i], "soft-capping");
    }
    static const char *const names[] = {"llama", "gemma3n", "gemma2", "clip", ""};
    for (size_t i = 0; i < VRPT_COUNT(names); i++) {
        t_gguf g = {0};
        char text[64];
        (void)snprintf(text, sizeof text, "'%s'", names[i]);
        t_string(&g, "general.architecture", names[i]);
        t_config_fails(&g, G3_UNSUPPORTED, "general.architecture", text);
    }
    t_gguf causal = text_file(&small, NULL);
    t_bool(&causal, "gemma3.attention.causal", 0);
    t_config_fails(&causal, G3_UNSUPPORTED, "gemma3.attention.causal", NULL);
    t_gguf values = text_file(&small, "gemma3.attention.value_length");
    values.skip = NULL;
    t_u32(&values, "gemma3.attention.value_length", 16);
    t_config_fails(&values, G3_UNSUPPORTED, "value_length", NULL);
    t_gguf part = text_file(&small, NULL);
    t_u32(&part, "gemma3.rope.dimension_count", 16);
    t_config_fails(&part, G3_UNSUPPORTED, "dimension_count", NULL);
}

static void values_out_of_bounds(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        const char *part;
    } wrong[] = {
        {"gemma3.block_count", 0, "layers"},
        {"gemma3.block_count", 257, "layers"},
        {"gemma3.block_count", UINT32_MAX, "layers"},
        {"gemma3.embedding_length", 0, "hidden size"},
        {"gemma3.attention.head_count", 0, "number of heads"},
        {"gemma3.attention.head_count", 257, "number of heads"},
        {"gemma3.attention.head_count_kv", 3, "4 heads"},
        {"gemma3.attention.sliding_window", 0, "sliding window"},
        {"gemma3.attention.sliding_window", UINT32_MAX, "sliding window"},
        {"gemma3.context_length", 0, "context length"},
        {"gemma3.context_length", UINT32_MAX, "context length"},
        {"tokenizer.ggml.bos_token_id", UINT32_MAX,
         "4294967295 is outside the vocabulary of 50 rows"},
        {"tokenizer.ggml.eos_token_id", UINT32_MAX,
         "4294967295 is outside the vocabulary of 50 rows"},
        {"tokenizer.ggml.unknown_token_id", UINT32_MAX,
         "4294967295 is outside the vocabulary of 50 rows"},
        {"tokenizer.ggml.padding_token_id", UINT32_MAX,
         "4294967295 is outside the vocabulary of 50 rows"},
    };
    for (size_t i = 0; i < VRPT_COUNT(wrong); i++) {
        t_gguf g = text_file(&small, wrong[i].key);
        g.skip = NULL;
        t_u32(&g, wrong[i].key, wrong[i].value);
        t_config_fails(&g, G3_INVALID, wrong[i].part, NULL);
    }
    t_gguf type = text_file(&small, "gemma3.block_count");
    type.skip = NULL;
    t_string(&type, "gemma3.block_count", "7");
    t_config_fails(&type, G3_INVALID, "gemma3.block_count", "an integer");
    t_gguf empty = text_file(&small, "token_embd.weight");
    const uint64_t none[2] = {64, 0};
    t_entry(&empty, "token_embd.weight", 2, none, 2, G3_F32, 0);
    t_config_fails(&empty, G3_INVALID, "vocabulary is 0", NULL);
}

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_file),
        cmocka_unit_test(keys_that_may_be_absent),
        cmocka_unit_test(keys_that_must_be_there),
        cmocka_unit_test(rope_scaling),
        cmocka_unit_test(rope_bases),
        cmocka_unit_test(patterns),
        cmocka_unit_test(attention_scales),
        cmocka_unit_test(what_the_engine_does_not_run),
        cmocka_unit_test(values_out_of_bounds),
    };
    return cmocka_run_group_tests_name("config_gguf", tests, NULL, NULL);
}
