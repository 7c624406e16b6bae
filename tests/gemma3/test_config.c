/* SPDX-License-Identifier: MIT */
/* Configurations of Hugging Face folders: the published files (which leave out
 * what is a default of the classes), both spellings, and refusals. */

#include "support_config.h"

#include <math.h>

/* As the files on the hub are, but for fields that nothing here reads. */
static const char config_270m[] =
    "{\"_sliding_window_pattern\":6,\"architectures\":[\"Gemma3ForCausalLM\"],"
    "\"attention_bias\":false,\"attn_logit_softcapping\":null,\"bos_token_id\":2,"
    "\"eos_token_id\":1,\"final_logit_softcapping\":null,\"head_dim\":256,"
    "\"hidden_activation\":\"gelu_pytorch_tanh\",\"hidden_size\":640,"
    "\"intermediate_size\":2048,\"max_position_embeddings\":32768,"
    "\"model_type\":\"gemma3_text\",\"num_attention_heads\":4,\"num_hidden_layers\":18,"
    "\"num_key_value_heads\":1,\"pad_token_id\":0,\"query_pre_attn_scalar\":256,"
    "\"rms_norm_eps\":1e-06,\"rope_local_base_freq\":10000.0,\"rope_scaling\":null,"
    "\"rope_theta\":1000000.0,\"sliding_window\":512,\"use_bidirectional_attention\":false,"
    "\"vocab_size\":262144}";
static const char config_1b[] =
    "{\"architectures\":[\"Gemma3ForCausalLM\"],\"attention_bias\":false,"
    "\"attn_logit_softcapping\":null,\"cache_implementation\":\"hybrid\","
    "\"eos_token_id\":[1,106],\"head_dim\":256,\"hidden_size\":1152,"
    "\"intermediate_size\":6912,\"max_position_embeddings\":32768,"
    "\"model_type\":\"gemma3_text\",\"num_attention_heads\":4,\"num_hidden_layers\":26,"
    "\"num_key_value_heads\":1,\"query_pre_attn_scalar\":256,\"rope_local_base_freq\":10000,"
    "\"rope_scaling\":null,\"rope_theta\":1000000,\"sliding_window\":512,"
    "\"sliding_window_pattern\":6,\"vocab_size\":262144}";

#define MULTIMODAL(text)                                                                     \
    "{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"boi_token_index\":255999,"    \
    "\"eoi_token_index\":256000,\"eos_token_id\":[1,106],\"image_token_index\":262144,"      \
    "\"initializer_range\":0.02,\"mm_tokens_per_image\":256,\"model_type\":\"gemma3\","      \
    "\"text_config\":{" text "\"model_type\":\"gemma3_text\","                               \
    "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"},\"sliding_window\":1024},"   \
    "\"vision_config\":{\"hidden_size\":1152,\"image_size\":896,\"intermediate_size\":4304," \
    "\"model_type\":\"siglip_vision_model\",\"num_attention_heads\":16,"                     \
    "\"num_hidden_layers\":27,\"patch_size\":14,\"vision_use_head\":false}}"
static const char config_4b[] =
    MULTIMODAL("\"hidden_size\":2560,\"intermediate_size\":10240,\"num_hidden_layers\":34,");
static const char config_12b[] =
    MULTIMODAL("\"hidden_size\":3840,\"intermediate_size\":15360,\"num_attention_heads\":16,"
               "\"num_hidden_layers\":48,\"num_key_value_heads\":8,");
static const char config_27b[] =
    MULTIMODAL("\"head_dim\":128,\"hidden_size\":5376,\"intermediate_size\":21504,"
               "\"num_attention_heads\":32,\"num_hidden_layers\":62,\"num_key_value_heads\":16,"
               "\"query_pre_attn_scalar\":168,");

static const struct {
    const char *json;
    g3_text_config text; /* global is checked by t_check_layers */
    int vision;
} published[] = {
    {config_270m,
     {.layers = 18,
      .hidden = 640,
      .heads = 4,
      .kv_heads = 1,
      .head_dim = 256,
      .feed_forward = 2048,
      .vocab = 262144,
      .context = 32768,
      .window = 512,
      .rope_factor_global = 1,
      .attention_scale = 256},
     0},
    {config_1b,
     {.layers = 26,
      .hidden = 1152,
      .heads = 4,
      .kv_heads = 1,
      .head_dim = 256,
      .feed_forward = 6912,
      .vocab = 262144,
      .context = 32768,
      .window = 512,
      .rope_factor_global = 1,
      .attention_scale = 256},
     0},
    {config_4b,
     {.layers = 34,
      .hidden = 2560,
      .heads = 8,
      .kv_heads = 4,
      .head_dim = 256,
      .feed_forward = 10240,
      .vocab = 262208,
      .context = 131072,
      .window = 1024,
      .rope_factor_global = 8,
      .attention_scale = 256},
     1},
    {config_12b,
     {.layers = 48,
      .hidden = 3840,
      .heads = 16,
      .kv_heads = 8,
      .head_dim = 256,
      .feed_forward = 15360,
      .vocab = 262208,
      .context = 131072,
      .window = 1024,
      .rope_factor_global = 8,
      .attention_scale = 256},
     1},
    {config_27b,
     {.layers = 62,
      .hidden = 5376,
      .heads = 32,
      .kv_heads = 16,
      .head_dim = 128,
      .feed_forward = 21504,
      .vocab = 262208,
      .context = 131072,
      .window = 1024,
      .rope_factor_global = 8,
      .attention_scale = 168},
     1},
};

static void check_text(const g3_text_config *got, const g3_text_config *expected) {
    assert_int_equal(got->layers, expected->layers);
    assert_int_equal(got->hidden, expected->hidden);
    assert_int_equal(got->heads, expected->heads);
    assert_int_equal(got->kv_heads, expected->kv_heads);
    assert_int_equal(got->head_dim, expected->head_dim);
    assert_int_equal(got->feed_forward, expected->feed_forward);
    assert_int_equal(got->vocab, expected->vocab);
    assert_int_equal(got->context, expected->context);
    assert_int_equal(got->window, expected->window);
    assert_true(got->norm_eps == 1e-6f);
    assert_true(fabs(got->attention_scale * sqrt(expected->attention_scale) - 1) < 1e-15);
}

static void published_files(void **state) {
    (void)state;
    for (size_t i = 0; i < VRPT_COUNT(published); i++) {
        const g3_hf_config read = t_hf_ok(published[i].json, NULL);
        const g3_vision_config *vision = &read.config.vision;
        const g3_token_config *tokens = &read.config.tokens;
        check_text(&read.config.text, &published[i].text);
        t_check_layers(&read.config, published[i].text.rope_factor_global);
        assert_true(read.tied);
        assert_int_equal(vision->present, published[i].vision);
        assert_int_equal(tokens->bos, 2);
        assert_int_equal(tokens->pad, 0);
        assert_int_equal(tokens->stop[0], 1);
        assert_int_equal(tokens->stop_count, i == 0 ? 1 : 2);
        assert_int_equal(tokens->image_begin, published[i].vision ? 255999 : G3_NO_ID);
        assert_int_equal(tokens->image_end, published[i].vision ? 256000 : G3_NO_ID);
        assert_int_equal(tokens->image, published[i].vision ? 262144 : G3_NO_ID);
        if (!published[i].vision)
            continue;
        assert_int_equal(vision->layers, 27);
        assert_int_equal(vision->hidden, 1152);
        assert_int_equal(vision->heads, 16);
        assert_int_equal(vision->feed_forward, 4304);
        assert_int_equal(vision->image_size, 896);
        assert_int_equal(vision->patch_size, 14);
        assert_int_equal(vision->tokens, 256);
        assert_true(vision->norm_eps == 1e-6f && vision->mean[0] == 0.5f && vision->std[2] == 0.5f);
    }
}

/* The scale of the 27B model, to all digits. */
static void attention_scale_of_27b(void **state) {
    (void)state;
    const g3_hf_config read = t_hf_ok(config_27b, NULL);
    assert_true(fabs(read.config.text.attention_scale - 0.0771516749810459) < 1e-15);
    const g3_hf_config other = t_hf_ok(config_4b, NULL);
    assert_true(other.config.text.attention_scale == 0.0625);
}

/* A small text model with fields added; later ones win over none. */
#define SMALL(more)                                                               \
    "{\"model_type\":\"gemma3_text\",\"hidden_size\":64,\"num_hidden_layers\":7," \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,"        \
    "\"intermediate_size\":96,\"vocab_size\":300,\"sliding_window\":4" more "}"

static void rope_in_both_spellings(void **state) {
    (void)state;
    static const struct {
        const char *json;
        double factor;
    } right[] = {
        {SMALL(""), 1},
        {SMALL(",\"rope_scaling\":null"), 1},
        {SMALL(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":8}"), 8},
        {SMALL(",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":1.0}"), 1},
        {SMALL(",\"rope_scaling\":{\"rope_type\":\"default\"}"), 1},
        {SMALL(",\"rope_parameters\":null"), 1},
        {SMALL(",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8.0,"
               "\"rope_theta\":1000000},\"sliding_attention\":{\"rope_theta\":10000,"
               "\"rope_type\":\"default\"}}"),
         8},
        {SMALL(",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e6}}"), 1},
    };
    for (size_t i = 0; i < VRPT_COUNT(right); i++) {
        const g3_hf_config read = t_hf_ok(right[i].json, NULL);
        t_check_layers(&read.config, right[i].factor);
    }
    const g3_hf_config bases =
        t_hf_ok(SMALL(",\"rope_theta\":5e5,\"rope_local_base_freq\":2e4"), NULL);
    assert_true(bases.config.text.rope_base_global == 5e5);
    assert_true(bases.config.text.rope_base_local == 2e4);
    const g3_hf_config nested = t_hf_ok(
        SMALL(",\"rope_theta\":1,\"rope_parameters\":{\"full_attention\":{\"rope_theta\":7e5},"
              "\"sliding_attention\":{\"rope_theta\":3e4}}"),
        NULL);
    assert_true(nested.config.text.rope_base_global == 7e5);
    assert_true(nested.config.text.rope_base_local == 3e4);
}

static void rope_that_is_wrong(void **state) {
    (void)state;
    static const struct {
        const char *json;
        g3_status status;
        const char *part;
    } wrong[] = {
        {SMALL(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}"), G3_INVALID, "factor is 0"},
        {SMALL(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":-8.0}"), G3_INVALID, "is -8"},
        {SMALL(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"8\"}"), G3_INVALID,
         "rope_scaling.factor: a number"},
        {SMALL(",\"rope_scaling\":{\"type\":\"linear\"}"), G3_INVALID, "rope_scaling.factor"},
        {SMALL(",\"rope_scaling\":{\"factor\":8}"), G3_INVALID, "rope_scaling.rope_type"},
        {SMALL(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":8}"), G3_UNSUPPORTED, "rope_type"},
        {SMALL(",\"rope_scaling\":8"), G3_INVALID, "rope_scaling: an object"},
        {SMALL(",\"rope_parameters\":{\"rope_theta\":1e6}"), G3_INVALID, "rope_parameters"},
        {SMALL(",\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":\"linear\","
               "\"factor\":8}}"),
         G3_UNSUPPORTED, "local layers are never scaled"},
        {SMALL(",\"rope_theta\":0"), G3_INVALID, "base of global layers is 0"},
        {SMALL(",\"rope_local_base_freq\":-1"), G3_INVALID, "base of local layers is -1"},
    };
    for (size_t i = 0; i < VRPT_COUNT(wrong); i++)
        t_hf_fails(wrong[i].json, wrong[i].status, wrong[i].part, NULL);
}

static void kinds_of_layers(void **state) {
    (void)state;
    static const struct {
        const char *json;
        const char *global;
    } right[] = {
        {SMALL(""), "0000010"},
        {SMALL(",\"sliding_window_pattern\":2"), "0101010"},
        {SMALL(",\"_sliding_window_pattern\":3"), "0010010"},
        {SMALL(",\"sliding_window_pattern\":1"), "1111111"},
        {SMALL(",\"sliding_window_pattern\":9"), "0000000"},
        {SMALL(",\"sliding_window_pattern\":2,\"layer_types\":[\"full_attention\","
               "\"full_attention\",\"sliding_attention\",\"sliding_attention\","
               "\"sliding_attention\",\"sliding_attention\",\"full_attention\"]"),
         "1100001"},
    };
    for (size_t i = 0; i < VRPT_COUNT(right); i++) {
        const g3_hf_config read = t_hf_ok(right[i].json, NULL);
        for (uint32_t j = 0; j < 7; j++)
            assert_int_equal(read.config.text.global[j], right[i].global[j] == '1');
        assert_int_equal(read.config.text.window, 4); /* counts the query's own key */
    }
    t_hf_fails(SMALL(",\"sliding_window_pattern\":0"), G3_INVALID, "sliding_window_pattern", NULL);
    t_hf_fails(SMALL(",\"layer_types\":[\"full_attention\"]"), G3_INVALID, "layer_types", NULL);
    t_hf_fails(SMALL(",\"layer_types\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"]"),
               G3_UNSUPPORTED, "layer_types", NULL);
    t_hf_fails(SMALL(",\"layer_types\":[1,2,3,4,5,6,7]"), G3_UNSUPPORTED, "layer_types", NULL);
}

static void ids_that_end_answers(void **state) {
    (void)state;
    g3_hf_config read = t_hf_ok(SMALL(""), NULL);
    assert_int_equal(read.config.tokens.stop_count, 1); /* the class's default */
    assert_int_equal(read.config.tokens.stop[0], 1);
    read = t_hf_ok(SMALL(",\"eos_token_id\":1"), "{\"eos_token_id\":[1,106]}");
    assert_int_equal(read.config.tokens.stop_count, 2);
    assert_int_equal(read.config.tokens.stop[1], 106);
    read = t_hf_ok(SMALL(",\"eos_token_id\":null,\"pad_token_id\":null"), "{\"eos_token_id\":7}");
    assert_int_equal(read.config.tokens.stop_count, 1);
    assert_int_equal(read.config.tokens.stop[0], 7);
    assert_int_equal(read.config.tokens.pad, G3_NO_ID);
    read = t_hf_ok(SMALL(",\"eos_token_id\":-1,\"pad_token_id\":-1"), NULL); /* none, too */
    assert_int_equal(read.config.tokens.stop_count, 1);
    assert_int_equal(read.config.tokens.stop[0], 1);
    assert_int_equal(read.config.tokens.pad, G3_NO_ID);
    t_hf_fails(SMALL(",\"eos_token_id\":-2"), G3_INVALID, "eos_token_id", NULL);
    t_hf_fails(SMALL(",\"eos_token_id\":4294967295"), G3_INVALID, "eos_token_id", NULL);
    t_hf_fails(SMALL(",\"eos_token_id\":[1,\"a\"]"), G3_INVALID, "eos_token_id", NULL);
    t_hf_fails(SMALL(",\"bos_token_id\":4294967295"), G3_INVALID, "bos_token_id", NULL);
    t_hf_fails(SMALL(",\"eos_token_id\":[1,2,3,4,5,6,7,8,9]"), G3_UNSUPPORTED, "eos_token_id",
               NULL);
}

#define TINY_MM(top, text)                                                                     \
    "{\"model_type\":\"gemma3\"," top "\"text_config\":{\"hidden_size\":64,\"vocab_size\":64," \
    "\"num_hidden_layers\":2,\"sliding_window\":4" text "},\"vision_config\":{\"patch_size\":14}}"

/* What a folder names has to be a row; what the classes start with need not be, whether
 * the writer spelt it out or not. */
static void ids_outside_the_vocabulary(void **state) {
    (void)state;
    static const struct {
        const char *json, *part;
    } wrong[] = {
        {TINY_MM("", ",\"eos_token_id\":64"), "text_config.eos_token_id: 64 is outside"},
        {TINY_MM("\"eos_token_id\":[1,5000],", ""), "config.json: eos_token_id: 5000 is outside"},
        {TINY_MM("", ",\"bos_token_id\":64"), "text_config.bos_token_id: 64"},
        {TINY_MM("", ",\"pad_token_id\":262144"), "text_config.pad_token_id: 262144"},
        {TINY_MM("\"boi_token_index\":100000,", ""), "boi_token_index: 100000"},
        {TINY_MM("\"eoi_token_id\":64,", ""), "eoi_token_id: 64"},
        {TINY_MM("\"image_token_index\":1048577,", ""), "image_token_index: 1048577"},
    };
    for (size_t i = 0; i < VRPT_COUNT(wrong); i++)
        t_hf_fails(wrong[i].json, G3_INVALID, wrong[i].part, "vocabulary of");
    g3_hf_config read = t_hf_ok(TINY_MM("", ""), "{\"eos_token_id\":[1,106]}");
    assert_int_equal(read.config.tokens.stop[1], 106);
    assert_int_equal(read.config.tokens.image_begin, 255999);
    read = t_hf_ok(TINY_MM("\"boi_token_index\":255999,\"eoi_token_index\":256000,"
                           "\"image_token_index\":262144,",
                           ",\"eos_token_id\":63"),
                   NULL);
    assert_int_equal(read.config.tokens.image_end, 256000);
    assert_int_equal(read.config.tokens.stop[0], 63);
    read = t_hf_ok(TINY_MM("\"image_token_index\":64,\"boi_token_index\":63,", ""), NULL);
    assert_int_equal(read.config.tokens.image, 64); /* only a placeholder */
    assert_int_equal(read.config.tokens.image_begin, 63);
}

/* Errors name the whole key. */
static void keys_in_messages(void **state) {
    (void)state;
    static const struct {
        const char *json, *key, *part;
    } wrong[] = {
        {SMALL(",\"rms_norm_eps\":1e-60"), "config.json: rms_norm_eps: ", "epsilon of the norms"},
        {SMALL(",\"rms_norm_eps\":2"), "config.json: rms_norm_eps: ", "is 2"},
        {SMALL(",\"rope_theta\":1e308"), "config.json: rope_theta", "1e+308"},
        {SMALL(",\"rope_local_base_freq\":0.5"), "config.json: rope_theta of sliding", "0.5"},
        {SMALL(",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":1e-300}"),
         "config.json: factor", "1e-300"},
        {SMALL(",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":1e7}"),
         "config.json: factor", "1e+07"},
        {TINY_MM("", ",\"head_dim\":33"), "config.json: text_config.head_dim: ", "33 is odd"},
        {TINY_MM("", ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\"}}"),
         "config.json: text_config.rope_parameters.full_attention.factor", "missing"},
        {TINY_MM("\"mm_tokens_per_image\":3,", ""),
         "config.json: mm_tokens_per_image: ", "3 tokens"},
    };
    for (size_t i = 0; i < VRPT_COUNT(wrong); i++)
        t_hf_fails(wrong[i].json, G3_INVALID, wrong[i].key, wrong[i].part);
    g3_hf_config read;
    g3_error error = {{0}};
    t_expect(t_hf(SMALL(""), "{\"eos_token_id\":\"x\"}", &read, &error), G3_INVALID, &error,
             "generation_config.json: eos_token_id", NULL);
    assert_null(strstr(error.text, " config.json"));
    assert_int_not_equal(error.text[0], 'c');
}

static void what_the_engine_does_not_run(void **state) {
    (void)state;
    static const struct {
        const char *json;
        const char *part;
    } refused[] = {
        {SMALL(",\"final_logit_softcapping\":30.0"), "final_logit_softcapping: soft-capping"},
        {SMALL(",\"attn_logit_softcapping\":50"), "attn_logit_softcapping: soft-capping"},
        {SMALL(",\"use_bidirectional_attention\":true"), "use_bidirectional_attention"},
        {SMALL(",\"use_bidirectional_attention\":\"all\""), "use_bidirectional_attention"},
        {SMALL(",\"attention_bias\":true"), "attention_bias"},
        {SMALL(",\"hidden_activation\":\"gelu\""), "gelu_pytorch_tanh"},
        {SMALL(",\"quantization_config\":{}"), "quantization_config"},
        {SMALL(",\"architectures\":[\"LlamaForCausalLM\"]"), "'LlamaForCausalLM'"},
        {SMALL(",\"architectures\":[\"Gemma3TextModel\"]"), "'Gemma3TextModel'"},
        {"{\"model_type\":\"gemma3n\"}", "'gemma3n'"},
        {"{\"model_type\":\"gemma3\",\"text_config\":{\"use_bidirectional_attention\":true}}",
         "text_config.use_bidirectional_attention"},
        {"{\"model_type\":\"gemma3\",\"vision_config\":{\"hidden_act\":\"quick_gelu\"}}",
         "vision_config.hidden_act"},
        {"{\"model_type\":\"gemma3\",\"vision_config\":{\"num_channels\":1}}",
         "vision_config.num_channels"},
        {"{\"model_type\":\"gemma3\",\"vision_config\":{\"model_type\":\"clip\"}}",
         "vision_config.model_type"},
    };
    for (size_t i = 0; i < VRPT_COUNT(refused); i++)
        t_hf_fails(refused[i].json, G3_UNSUPPORTED, refused[i].part, NULL);
}

static void sizes_out_of_bounds(void **state) {
    (void)state;
    static const struct {
        const char *json;
        const char *part;
    } wrong[] = {
        {"{}", "model_type"},
        {"[]", "not an object"},
        {"{\"model_type\":\"gemma3\",\"text_config\":3}", "text_config: an object"},
        {SMALL(",\"max_position_embeddings\":0"), "context length is 0"},
        {SMALL(",\"max_position_embeddings\":1048577"), "context length is 1048577"},
        {SMALL(",\"max_position_embeddings\":-1"), "max_position_embeddings"},
        {SMALL(",\"max_position_embeddings\":4294967296"), "max_position_embeddings"},
        {SMALL(",\"max_position_embeddings\":32768.0"), "max_position_embeddings"},
        {SMALL(",\"max_position_embeddings\":null"), "max_position_embeddings"},
        {SMALL(",\"rms_norm_eps\":0"), "epsilon"},
        {SMALL(",\"query_pre_attn_scalar\":0"), "query_pre_attn_scalar"},
        {SMALL(",\"query_pre_attn_scalar\":-256"), "query_pre_attn_scalar"},
        {"{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":0}", "layers is 0"},
        {"{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":257}", "layers is 257"},
        {"{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":4294967295}", "layers is"},
        {"{\"model_type\":\"gemma3_text\",\"hidden_size\":65537}", "hidden size"},
        {"{\"model_type\":\"gemma3_text\",\"num_key_value_heads\":3}", "8 heads"},
        {"{\"model_type\":\"gemma3_text\",\"num_key_value_heads\":0}", "key/value heads"},
        {"{\"model_type\":\"gemma3_text\",\"num_key_value_heads\":9}", "key/value heads"},
        {"{\"model_type\":\"gemma3_text\",\"head_dim\":513}", "head size"},
        {"{\"model_type\":\"gemma3_text\",\"head_dim\":31}", "odd"},
        {"{\"model_type\":\"gemma3_text\",\"vocab_size\":0}", "vocabulary"},
        {"{\"model_type\":\"gemma3_text\",\"sliding_window\":0}", "sliding window"},
        {"{\"model_type\":\"gemma3\",\"vision_config\":{}}", "256 tokens of an image"},
        {"{\"model_type\":\"gemma3\",\"mm_tokens_per_image\":2,\"vision_config\":{}}", "square"},
        {"{\"model_type\":\"gemma3\",\"mm_tokens_per_image\":0,\"vision_config\":{}}", "tokens"},
        {"{\"model_type\":\"gemma3\",\"vision_config\":{\"patch_size\":0}}", "patch size"},
        {"{\"model_type\":\"gemma3\",\"vision_config\":{\"patch_size\":15}}", "multiple"},
        {"{\"model_type\":\"gemma3\",\"vision_config\":{\"num_attention_heads\":7}}", "heads"},
    };
    for (size_t i = 0; i < VRPT_COUNT(wrong); i++)
        t_hf_fails(wrong[i].json, G3_INVALID, wrong[i].part, NULL);
}

static void an_output_of_its_own(void **state) {
    (void)state;
    assert_false(t_hf_ok(SMALL(",\"tie_word_embeddings\":false"), NULL).tied);
    assert_true(t_hf_ok(SMALL(",\"tie_word_embeddings\":true"), NULL).tied);
    assert_false(t_hf_ok("{\"model_type\":\"gemma3\",\"tie_word_embeddings\":false}", NULL).tied);
}

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_files),
        cmocka_unit_test(attention_scale_of_27b),
        cmocka_unit_test(rope_in_both_spellings),
        cmocka_unit_test(rope_that_is_wrong),
        cmocka_unit_test(kinds_of_layers),
        cmocka_unit_test(ids_that_end_answers),
        cmocka_unit_test(ids_outside_the_vocabulary),
        cmocka_unit_test(keys_in_messages),
        cmocka_unit_test(what_the_engine_does_not_run),
        cmocka_unit_test(sizes_out_of_bounds),
        cmocka_unit_test(an_output_of_its_own),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
