/* SPDX-License-Identifier: MIT */
/* Models in Hugging Face folders: names of every generation of the format, files
 * through an index, and folders that do not hold what they should. */

#include "support_model.h"

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    t_folder_make(folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    t_folder_remove(folder);
    return 0;
}

/* Writes what the writer holds under this name. */
static void write_tensors(t_st *s, const char *name) {
    char path[256];
    t_bytes file = t_st_finish(s);
    t_file_write(folder, name, file.data, file.count, path);
    t_free(&file);
}

static g3_checkpoint *open_at(const char *path) {
    g3_checkpoint *checkpoint = NULL;
    g3_error error = {{0}};
    if (g3_checkpoint_open(path, NULL, &checkpoint, &error) != G3_OK)
        fail_msg("%s", error.text);
    return checkpoint;
}

static void open_fails(g3_status expected, const char *part, const char *other) {
    g3_checkpoint *checkpoint = NULL;
    g3_error error = {{0}};
    t_expect(g3_checkpoint_open(folder, NULL, &checkpoint, &error), expected, &error, part, other);
    assert_null(checkpoint);
}

static void expect_dims(const g3_checkpoint *checkpoint, const char *name, uint64_t d0, uint64_t d1,
                        uint64_t d2, uint64_t d3) {
    const g3_tensor *tensor = g3_checkpoint_tensor(checkpoint, name);
    const uint64_t dims[4] = {d0, d1, d2, d3};
    if (tensor == NULL)
        fail_msg("no %s", name);
    assert_string_equal(tensor->name, name);
    assert_int_equal(tensor->type, G3_BF16);
    assert_memory_equal(tensor->dims, dims, sizeof dims);
}

static void check_text(const g3_checkpoint *checkpoint) {
    expect_dims(checkpoint, "token_embd.weight", 64, T_VOCAB, 1, 1);
    expect_dims(checkpoint, "output_norm.weight", 64, 1, 1, 1);
    expect_dims(checkpoint, "blk.1.attn_q.weight", 64, 128, 1, 1);
    expect_dims(checkpoint, "blk.0.attn_output.weight", 128, 64, 1, 1);
    expect_dims(checkpoint, "blk.1.ffn_down.weight", 96, 64, 1, 1);
    expect_dims(checkpoint, "blk.0.post_ffw_norm.weight", 64, 1, 1, 1);
}

static void check_vision(const g3_checkpoint *checkpoint) {
    assert_true(g3_checkpoint_config(checkpoint)->vision.present);
    expect_dims(checkpoint, "v.patch_embd.weight", 7, 7, 3, 32);
    expect_dims(checkpoint, "v.position_embd.weight", 32, 16, 1, 1);
    expect_dims(checkpoint, "v.blk.1.ffn_up.weight", 32, 48, 1, 1);
    expect_dims(checkpoint, "v.blk.1.ffn_down.bias", 32, 1, 1, 1);
    expect_dims(checkpoint, "mm.input_projection.weight", 64, 32, 1, 1);
    expect_dims(checkpoint, "mm.soft_emb_norm.weight", 32, 1, 1, 1);
}

static void names_of_every_generation(void **state) {
    (void)state;
    static const char *const texts[] = {"model.", "language_model.model.", "model.language_model."};
    static const char *const towers[] = {"vision_tower.vision_model.", "vision_tower.",
                                         "model.vision_tower.vision_model.", "model.vision_tower."};
    static const char *const projectors[] = {"multi_modal_projector.",
                                             "model.multi_modal_projector."};
    t_text_write(folder, "config.json", T_CONFIG_VISION);
    for (size_t i = 0; i < VRPT_COUNT(texts); i++)
        for (size_t j = 0; j < VRPT_COUNT(towers); j++)
            for (size_t k = 0; k < VRPT_COUNT(projectors); k++) {
                t_st s = {0};
                t_put_text_tensors(&s, texts[i], T_VOCAB);
                t_put_vision_tensors(&s, towers[j], projectors[k]);
                write_tensors(&s, "model.safetensors");
                g3_checkpoint *checkpoint = open_at(folder);
                check_text(checkpoint);
                check_vision(checkpoint);
                assert_false(g3_checkpoint_norms_shifted(checkpoint));
                assert_null(g3_checkpoint_gguf(checkpoint));
                assert_string_equal(g3_checkpoint_path(checkpoint), folder);
                assert_string_equal(g3_checkpoint_config(checkpoint)->name,
                                    strrchr(folder, '/') + 1);
                g3_checkpoint_close(checkpoint);
            }
}

/* The whole config.json beside text tensors only is a text model. */
static void vision_tensors_all_or_none(void **state) {
    (void)state;
    t_text_write(folder, "config.json", T_CONFIG_VISION);
    t_st s = {0};
    t_put_text_tensors(&s, "language_model.model.", T_VOCAB);
    write_tensors(&s, "model.safetensors");
    g3_checkpoint *checkpoint = open_at(folder);
    assert_false(g3_checkpoint_config(checkpoint)->vision.present);
    check_text(checkpoint);
    assert_null(g3_checkpoint_tensor(checkpoint, "v.post_ln.bias"));
    g3_checkpoint_close(checkpoint);
    static const struct {
        const char *skip;
        const char *missing;
    } some[] = {
        {"vision_tower.encoder.layers.1.mlp.fc1.bias",
         "'vision_tower.encoder.layers.1.mlp.fc1.bias' is missing"},
        {"vision_tower.*", "embeddings.patch_embedding.weight' is missing"},
        {"multi_modal_projector.*", "mm_soft_emb_norm.weight' is missing"},
    };
    for (size_t i = 0; i < VRPT_COUNT(some); i++) {
        s.skip = some[i].skip;
        t_put_text_tensors(&s, "language_model.model.", T_VOCAB);
        t_put_vision_tensors(&s, "vision_tower.", "multi_modal_projector.");
        write_tensors(&s, "model.safetensors");
        open_fails(G3_INVALID, folder, some[i].missing);
    }
}

static void heads_that_are_tied_or_not(void **state) {
    (void)state;
    static const char *const names[] = {"lm_head.weight", "language_model.lm_head.weight"};
    for (int tied = 0; tied < 2; tied++)
        for (size_t i = 0; i < 3; i++) {
            char json[512];
            (void)snprintf(json, sizeof json,
                           "{\"model_type\":\"gemma3_text\",\"vocab_size\":40,"
                           "\"tie_word_embeddings\":%s,%s}",
                           tied ? "true" : "false", T_TEXT_FIELDS);
            t_text_write(folder, "config.json", json);
            t_st s = {0};
            t_put_text_tensors(&s, "model.", T_VOCAB);
            if (i < 2)
                t_st_named(&s, "", names[i], T_VOCAB, 64);
            write_tensors(&s, "model.safetensors");
            if (!tied && i == 2) {
                open_fails(G3_INVALID, "lm_head.weight' is missing", NULL);
                continue;
            }
            g3_checkpoint *checkpoint = open_at(folder);
            assert_int_equal(g3_checkpoint_tensor(checkpoint, "output.weight") != NULL, !tied);
            g3_checkpoint_close(checkpoint);
        }
}

static void rows_that_the_config_does_not_say(void **state) {
    (void)state;
    t_text_write(folder, "config.json", T_CONFIG_TEXT);
    t_st s = {0};
    t_put_text_tensors(&s, "model.", T_VOCAB + 64);
    write_tensors(&s, "model.safetensors");
    open_fails(G3_INVALID, "'model.embed_tokens.weight' at offset",
               "shape [64, 104], [64, 40] is expected");
    /* Rows that nobody named, and each of the two published sizes for the other. */
    t_text_write(folder, "config.json", "{\"model_type\":\"gemma3_text\"," T_TEXT_FIELDS "}");
    t_put_text_tensors(&s, "model.", T_VOCAB + 64);
    write_tensors(&s, "model.safetensors");
    g3_checkpoint *unnamed = open_at(folder);
    assert_int_equal(g3_checkpoint_config(unnamed)->text.vocab, T_VOCAB + 64);
    g3_checkpoint_close(unnamed);
    t_text_write(folder, "config.json",
                 "{\"model_type\":\"gemma3_text\",\"vocab_size\":262208," T_TEXT_FIELDS "}");
    t_put_text_tensors(&s, "model.", 262144);
    write_tensors(&s, "model.safetensors");
    g3_checkpoint *padded = open_at(folder);
    assert_int_equal(g3_checkpoint_config(padded)->text.vocab, 262144);
    g3_checkpoint_close(padded);
    static const uint32_t rows[] = {262144, 262208};
    for (size_t i = 0; i < VRPT_COUNT(rows); i++) {
        char json[512];
        (void)snprintf(json, sizeof json,
                       "{\"model_type\":\"gemma3_text\",\"vocab_size\":%" PRIu32 "," T_TEXT_FIELDS
                       "}",
                       rows[i]);
        t_text_write(folder, "config.json", json);
        t_put_text_tensors(&s, "model.", rows[i]);
        write_tensors(&s, "model.safetensors");
        g3_checkpoint *checkpoint = open_at(folder);
        assert_int_equal(g3_checkpoint_config(checkpoint)->text.vocab, rows[i]);
        g3_checkpoint_close(checkpoint);
    }
}

static void tensors_that_are_wrong(void **state) {
    (void)state;
    t_text_write(folder, "config.json", T_CONFIG_TEXT);
    static const struct {
        const char *dtype, *shape;
        size_t bytes;
        const char *part;
    } wrong[] = {
        {"I32", "[64]", 256, "has type I32; F32, F16 or BF16 is needed"},
        {"F64", "[64]", 512, "has type F64; F32, F16 or BF16 is needed"},
        {"BF16", "[1,1,1,1,64]", 128, "5 dimensions"},
        {"BF16", "[]", 2, "shape [1], [64] is expected"},
        {"BF16", "[0]", 0, "shape [0], [64] is expected"},
        {"F32", "[1,64]", 256, NULL}, /* fits */
    };
    for (size_t i = 0; i < VRPT_COUNT(wrong); i++) {
        t_st s = {.skip = "model.norm.weight"};
        t_put_text_tensors(&s, "model.", T_VOCAB);
        s.skip = NULL;
        t_st_tensor(&s, "model.norm.weight", wrong[i].dtype, wrong[i].shape, wrong[i].bytes);
        t_st_tensor(&s, "model.something_else", "F8_E4M3", "[3]", 3); /* is nobody's business */
        write_tensors(&s, "model.safetensors");
        if (wrong[i].part != NULL)
            open_fails(i < 2 ? G3_UNSUPPORTED : G3_INVALID, "norm.weight' at offset",
                       wrong[i].part);
        else
            g3_checkpoint_close(open_at(folder));
    }
}

/* Layer 1 in a second file. */
static void write_two_files(void) {
    t_st s = {.skip = "model.layers.1.*"};
    t_put_text_tensors(&s, "model.", T_VOCAB);
    write_tensors(&s, "model-1.safetensors");
    s.skip = "model.layers.0.*";
    t_put_text_tensors(&s, "model.", T_VOCAB);
    write_tensors(&s, "model-2.safetensors");
}

/* An index of both; `first` is where it says that model.norm.weight is. */
static void write_index(const char *first) {
    t_st s = {0};
    char path[256];
    g3_safetensors *file = NULL;
    t_bytes json = {0};
    t_put_text_tensors(&s, "model.", T_VOCAB);
    t_bytes bytes = t_st_finish(&s);
    assert_int_equal(g3_safetensors_parse(bytes.data, bytes.count, "all", &file, NULL), G3_OK);
    t_put(&json, "{\"metadata\":{},\"weight_map\":{", 29);
    for (size_t i = 0; i < g3_safetensors_count(file); i++) {
        char entry[256];
        const char *name = g3_safetensors_at(file, i)->name;
        const char *in = strncmp(name, "model.layers.1.", 15) == 0 ? "model-2.safetensors"
                                                                   : "model-1.safetensors";
        (void)snprintf(entry, sizeof entry, "%s\"%s\":\"%s\"", i == 0 ? "" : ",", name,
                       strcmp(name, "model.norm.weight") == 0 ? first : in);
        t_put(&json, entry, strlen(entry));
    }
    t_put(&json, "}}", 2);
    t_file_write(folder, "model.safetensors.index.json", json.data, json.count, path);
    g3_safetensors_close(file);
    t_free(&bytes);
    t_free(&json);
}

static void files_through_an_index(void **state) {
    (void)state;
    char path[256];
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    (void)unlink(path);
    t_text_write(folder, "config.json", T_CONFIG_TEXT);
    open_fails(G3_IO, folder, "neither model.safetensors nor model.safetensors.index.json");
    write_two_files();
    write_index("model-1.safetensors");
    g3_checkpoint *checkpoint = open_at(folder);
    check_text(checkpoint);
    assert_non_null(
        strstr(g3_checkpoint_tensor(checkpoint, "blk.1.ffn_up.weight")->path, "model-2"));
    assert_non_null(
        strstr(g3_checkpoint_tensor(checkpoint, "blk.0.ffn_up.weight")->path, "model-1"));
    g3_checkpoint_close(checkpoint);
    static const char *const outside[] = {"../model-1.safetensors", "/etc/passwd", "..", ".", "",
                                          "a/model-1.safetensors",  "..\\\\x"};
    for (size_t i = 0; i < VRPT_COUNT(outside); i++) {
        write_index(outside[i]);
        open_fails(G3_INVALID, "'model.norm.weight'", "file in the folder");
    }
    write_index("absent.safetensors");
    open_fails(G3_IO, "absent.safetensors", "No such file");
    write_index("config.json");
    open_fails(G3_INVALID, "config.json", "header");
    static const struct {
        const char *json;
        const char *part;
    } wrong[] = {
        {"{}", "no weight_map"},
        {"{\"weight_map\":{}}", "no weight_map"},
        {"{\"weight_map\":{\"a\":1}}", "file in the folder"},
        {"{\"weight_map\":{\"a\":\"model-1.safetensors\"}}", "'a' is not in 'model-1.safetensors'"},
        {"{\"weight_map\":{\"a\":\"x\",\"a\":\"x\"}}", "twice"},
        {"{\"weight_map\":", "JSON"},
    };
    for (size_t i = 0; i < VRPT_COUNT(wrong); i++) {
        t_text_write(folder, "model.safetensors.index.json", wrong[i].json);
        open_fails(G3_INVALID, "model.safetensors.index.json", wrong[i].part);
    }
}

/* Many links to one file whose header is large. */
static void headers_are_bounded_in_all(void **state) {
    (void)state;
    static const char entries[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
                                  "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}";
    const uint64_t count = (uint64_t)51 << 20;
    char path[256], link_path[256];
    t_bytes file = {0};
    char *header = malloc(count);
    assert_non_null(header);
    memset(header, ' ', count);
    memcpy(header, entries, sizeof entries - 1);
    t_put_u64(&file, count);
    t_put(&file, header, count);
    free(header);
    t_text_write(folder, "config.json", T_CONFIG_TEXT);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    (void)unlink(path);
    t_file_write(folder, "one.safetensors", file.data, file.count, path);
    t_free(&file);
    (void)snprintf(link_path, sizeof link_path, "%s/two.safetensors", folder);
    assert_int_equal(symlink(path, link_path), 0);
    t_text_write(folder, "model.safetensors.index.json",
                 "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"one.safetensors\"}}");
    open_fails(G3_INVALID, "embed_tokens.weight' is missing", NULL);
    t_text_write(folder, "model.safetensors.index.json",
                 "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}");
    open_fails(G3_INVALID, "model.safetensors.index.json", "headers of its files");
    (void)unlink(path);
    (void)unlink(link_path);
}

static void configurations_that_are_wrong(void **state) {
    (void)state;
    char path[256];
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    (void)unlink(path);
    open_fails(G3_IO, "config.json", "No such file");
    t_text_write(folder, "config.json", "{\"model_type\":\"gemma3_text\"");
    open_fails(G3_INVALID, "config.json", "line 1");
    t_text_write(folder, "config.json",
                 "{\"model_type\":\"gemma3_text\",\"vocab_size\":1,"
                 "\"vocab_size\":2}");
    open_fails(G3_INVALID, "config.json", "twice");
    t_text_write(folder, "config.json", "{\"model_type\":\"llama\"}");
    open_fails(G3_UNSUPPORTED, "config.json", "'llama'");
    t_text_write(folder, "config.json", T_CONFIG_TEXT);
    t_text_write(folder, "generation_config.json", "[1]");
    open_fails(G3_INVALID, folder, "not an object");
    t_text_write(folder, "generation_config.json", "{\"eos_token_id\":\"a\"}");
    open_fails(G3_INVALID, "generation_config.json", "eos_token_id");
    t_text_write(folder, "generation_config.json", "{\"eos_token_id\":[1,5]}");
    t_text_write(folder, "preprocessor_config.json", "{\"image_mean\":[0.1,0.2,0.3]}");
    t_text_write(folder, "config.json", T_CONFIG_VISION);
    t_st s = {0};
    t_put_text_tensors(&s, "model.", T_VOCAB);
    t_put_vision_tensors(&s, "vision_tower.", "multi_modal_projector.");
    write_tensors(&s, "model.safetensors");
    g3_checkpoint *checkpoint = open_at(folder);
    const g3_config *config = g3_checkpoint_config(checkpoint);
    assert_int_equal(config->tokens.stop_count, 2);
    assert_int_equal(config->tokens.stop[1], 5);
    assert_true(config->vision.mean[1] == 0.2f && config->vision.std[1] == 0.5f);
    g3_checkpoint_close(checkpoint);
    t_text_write(folder, "preprocessor_config.json", "{\"image_std\":[0.5,0,0.5]}");
    open_fails(G3_INVALID, folder, "deviation of pixels is 0");
    t_text_write(folder, "preprocessor_config.json", "{\"image_std\":[0.5]}");
    open_fails(G3_INVALID, "preprocessor_config.json", "image_std");
}

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_every_generation),
        cmocka_unit_test(vision_tensors_all_or_none),
        cmocka_unit_test(heads_that_are_tied_or_not),
        cmocka_unit_test(rows_that_the_config_does_not_say),
        cmocka_unit_test(tensors_that_are_wrong),
        cmocka_unit_test(files_through_an_index),
        cmocka_unit_test(configurations_that_are_wrong),
        cmocka_unit_test(headers_are_bounded_in_all),
    };
    return cmocka_run_group_tests_name("folder", tests, make_folder, remove_folder);
}
