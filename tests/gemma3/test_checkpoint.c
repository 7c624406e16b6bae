/* SPDX-License-Identifier: MIT */
/* Models in GGUF files: what is found under which name, and what is said about
 * files that do not hold what they should. */

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

static void write_gguf(t_gguf *g, const char *name, char out_path[256]) {
    t_bytes file = t_finish(g);
    t_file_write(folder, name, file.data, file.count, out_path);
    t_free(&file);
}

static g3_checkpoint *open_ok(const char *path, const char *mmproj) {
    g3_checkpoint *checkpoint = NULL;
    g3_error error = {{0}};
    if (g3_checkpoint_open(path, mmproj, &checkpoint, &error) != G3_OK)
        fail_msg("%s", error.text);
    return checkpoint;
}

static void open_fails(const char *path, const char *mmproj, g3_status expected, const char *part,
                       const char *other) {
    g3_checkpoint *checkpoint = NULL;
    g3_error error = {{0}};
    t_expect(g3_checkpoint_open(path, mmproj, &checkpoint, &error), expected, &error, part, other);
    assert_null(checkpoint);
}

/* The shape of a tensor, unused dimensions 1. */
static void expect_tensor(const g3_checkpoint *checkpoint, const char *name, g3_type type,
                          uint64_t d0, uint64_t d1, uint64_t d2, uint64_t d3) {
    const g3_tensor *tensor = g3_checkpoint_tensor(checkpoint, name);
    const uint64_t dims[4] = {d0, d1, d2, d3};
    if (tensor == NULL)
        fail_msg("no %s", name);
    assert_string_equal(tensor->name, name);
    assert_int_equal(tensor->type, type);
    assert_memory_equal(tensor->dims, dims, sizeof dims);
}

static void a_text_file(void **state) {
    (void)state;
    char path[256];
    t_gguf g = {0};
    t_put_text_model(&g, T_VOCAB);
    t_tensor(&g, "something.else", G3_F32, 8, 0, 0, 0); /* is nobody's business */
    const uint64_t five = 5;
    t_pad(&g, &g.data);
    t_entry(&g, "some.ids", 1, &five, 1, 26, g.data.count); /* I32 */
    t_put_pattern(&g.data, 20);
    write_gguf(&g, "text.gguf", path);
    g3_checkpoint *checkpoint = open_ok(path, NULL);
    const g3_config *config = g3_checkpoint_config(checkpoint);
    assert_string_equal(config->name, "Made");
    assert_int_equal(config->text.vocab, T_VOCAB);
    assert_false(config->vision.present);
    assert_true(g3_checkpoint_norms_shifted(checkpoint));
    assert_non_null(g3_checkpoint_gguf(checkpoint));
    assert_string_equal(g3_checkpoint_path(checkpoint), path);
    expect_tensor(checkpoint, "token_embd.weight", G3_Q8_0, 64, T_VOCAB, 1, 1);
    expect_tensor(checkpoint, "blk.1.attn_q.weight", G3_Q4_0, 64, 128, 1, 1);
    expect_tensor(checkpoint, "blk.0.ffn_down.weight", G3_Q4_0, 96, 64, 1, 1);
    expect_tensor(checkpoint, "blk.1.attn_k_norm.weight", G3_F32, 32, 1, 1, 1);
    assert_null(g3_checkpoint_tensor(checkpoint, "output.weight"));
    assert_null(g3_checkpoint_tensor(checkpoint, "blk.2.attn_q.weight"));
    assert_null(g3_checkpoint_tensor(checkpoint, "something.else"));
    const uint64_t layer =
        4 * (4 * 64 + 2 * 32) + (64 * 128 * 2 + 64 * 64 * 2 + 64 * 96 * 3) / 32 * 18;
    assert_int_equal(g3_checkpoint_tensor_bytes(checkpoint),
                     T_VOCAB * 64 / 32 * 34 + 256 + 2 * layer);
    g3_checkpoint_close(checkpoint);
    g3_checkpoint_close(NULL);
}

/* Bytes can be let go of and are read again from the file. */
static void bytes_that_are_done_can_be_read_again(void **state) {
    (void)state;
    char path[256];
    t_gguf g = {0};
    t_put_text_model(&g, 4000);
    write_gguf(&g, "large.gguf", path);
    g3_checkpoint *checkpoint = open_ok(path, NULL);
    const g3_tensor *embedding = g3_checkpoint_tensor(checkpoint, "token_embd.weight");
    uint8_t *copy = malloc(embedding->bytes);
    assert_non_null(copy);
    memcpy(copy, embedding->data, embedding->bytes);
    g3_checkpoint_done(checkpoint, embedding);
    assert_memory_equal(copy, embedding->data, embedding->bytes);
    g3_checkpoint_done(checkpoint, g3_checkpoint_tensor(checkpoint, "output_norm.weight"));
    free(copy);
    g3_checkpoint_close(checkpoint);
}

/* Rows are those of the tensor, with the placeholder's row and without. */
static void vocabularies_of_both_sizes(void **state) {
    (void)state;
    static const uint32_t rows[] = {262144, 262208};
    for (size_t i = 0; i < VRPT_COUNT(rows); i++)
        for (int output = 0; output < 2; output++) {
            char path[256];
            t_gguf g = {0};
            t_put_text_model(&g, rows[i]);
            if (output)
                t_tensor(&g, "output.weight", G3_Q4_0, 64, rows[i], 0, 0);
            write_gguf(&g, "vocab.gguf", path);
            g3_checkpoint *checkpoint = open_ok(path, NULL);
            assert_int_equal(g3_checkpoint_config(checkpoint)->text.vocab, rows[i]);
            assert_int_equal(g3_checkpoint_tensor(checkpoint, "output.weight") != NULL, output);
            g3_checkpoint_close(checkpoint);
        }
}

static void a_tensor_that_is_missing(void **state) {
    (void)state;
    static const char *const names[] = {"output_norm.weight", "blk.0.attn_q.weight",
                                        "blk.1.post_ffw_norm.weight", "token_embd.weight"};
    for (size_t i = 0; i < VRPT_COUNT(names); i++) {
        char path[256];
        char text[64];
        t_gguf g = {.skip = names[i]};
        t_put_text_model(&g, T_VOCAB);
        write_gguf(&g, "missing.gguf", path);
        (void)snprintf(text, sizeof text, "tensor '%s' is missing", names[i]);
        open_fails(path, NULL, G3_INVALID, path, text);
    }
}

static void a_tensor_of_another_shape_or_type(void **state) {
    (void)state;
    static const struct {
        const char *name;
        g3_type type;
        uint64_t d0, d1;
        g3_status status;
        const char *part;
    } wrong[] = {
        {"blk.1.attn_q.weight", G3_F32, 64, 64, G3_INVALID, "shape [64, 64], [64, 128] is"},
        {"blk.1.attn_q.weight", G3_F32, 128, 64, G3_INVALID, "shape [128, 64], [64, 128] is"},
        {"blk.0.ffn_norm.weight", G3_F32, 32, 0, G3_INVALID, "shape [32], [64] is"},
        {"output_norm.weight", G3_Q8_0, 64, 0, G3_UNSUPPORTED, "type Q8_0; F32, F16 or BF16"},
    };
    for (size_t i = 0; i < VRPT_COUNT(wrong); i++) {
        char path[256];
        char text[64];
        t_gguf g = {.skip = wrong[i].name};
        t_put_text_model(&g, T_VOCAB);
        g.skip = NULL;
        t_tensor(&g, wrong[i].name, wrong[i].type, wrong[i].d0, wrong[i].d1, 0, 0);
        write_gguf(&g, "shape.gguf", path);
        (void)snprintf(text, sizeof text, "tensor '%s' at offset", wrong[i].name);
        open_fails(path, NULL, wrong[i].status, path, text);
        open_fails(path, NULL, wrong[i].status, wrong[i].part, NULL);
    }
    char path[256];
    const uint64_t none[2] = {64, 0};
    t_gguf empty = {.skip = "blk.0.attn_v.weight"};
    t_entry(&empty, "blk.0.attn_v.weight", 2, none, 2, G3_Q4_0, 0);
    t_put_text_model(&empty, T_VOCAB);
    write_gguf(&empty, "none.gguf", path);
    open_fails(path, NULL, G3_INVALID, "'blk.0.attn_v.weight'", "shape [64, 0], [64, 64] is");
}

static void vision_in_a_second_file(void **state) {
    (void)state;
    char text[256];
    char mmproj[256];
    t_gguf g = {0};
    t_put_text_model(&g, T_VOCAB);
    write_gguf(&g, "text.gguf", text);
    for (int swapped = 0; swapped < 2; swapped++) {
        t_put_mmproj(&g, swapped);
        write_gguf(&g, "mmproj.gguf", mmproj);
        g3_checkpoint *checkpoint = open_ok(text, mmproj);
        const g3_vision_config *vision = &g3_checkpoint_config(checkpoint)->vision;
        assert_true(vision->present);
        assert_int_equal(vision->layers, 2);
        assert_int_equal(vision->hidden, 32);
        assert_int_equal(vision->heads, 2);
        assert_int_equal(vision->feed_forward, 48);
        assert_int_equal(vision->image_size, 28);
        assert_int_equal(vision->patch_size, 7);
        assert_int_equal(vision->tokens, 4);
        assert_true(vision->mean[0] == 0.5f && vision->std[2] == 0.25f);
        assert_true(vision->norm_eps == 1e-6f);
        expect_tensor(checkpoint, "v.patch_embd.weight", G3_F16, 7, 7, 3, 32);
        expect_tensor(checkpoint, "v.blk.1.ffn_up.weight", G3_F16, 32, 48, 1, 1);
        expect_tensor(checkpoint, "v.blk.1.ffn_up.bias", G3_F32, 48, 1, 1, 1);
        expect_tensor(checkpoint, "v.blk.1.ffn_down.weight", G3_F16, 48, 32, 1, 1);
        expect_tensor(checkpoint, "v.blk.1.ffn_down.bias", G3_F32, 32, 1, 1, 1);
        expect_tensor(checkpoint, "mm.input_projection.weight", G3_F16, 64, 32, 1, 1);
        assert_string_equal(g3_checkpoint_tensor(checkpoint, "mm.soft_emb_norm.weight")->path,
                            mmproj);
        assert_string_equal(g3_checkpoint_tensor(checkpoint, "blk.0.ffn_up.weight")->path, text);
        g3_checkpoint_close(checkpoint);
    }
}

static void vision_files_that_are_wrong(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        g3_status status;
        const char *part;
    } wrong[] = {
        {"clip.vision.projection_dim", 96, G3_INVALID, "embedding_length"},
        {"clip.vision.projector.scale_factor", 0, G3_INVALID, "is 0"},
        {"clip.vision.projector.scale_factor", 3, G3_INVALID, "does not divide"},
        {"clip.vision.patch_size", 0, G3_INVALID, "patch size is 0"},
        {"clip.vision.patch_size", 8, G3_INVALID, "does not divide"},
        {"clip.vision.image_size", 8400, G3_INVALID, "image size is 8400"},
        {"clip.vision.block_count", 3, G3_INVALID, "v.blk.2.ln1.weight"},
        {"clip.vision.block_count", 0, G3_INVALID, "vision layers"},
        {"clip.vision.attention.head_count", 3, G3_INVALID, "3 heads"},
        {"clip.vision.embedding_length", 64, G3_INVALID, "[7, 7, 3, 64] is expected"},
    };
    static const char *const missing[] = {"clip.vision.image_size", "clip.projector_type",
                                          "clip.vision.block_count", "v.post_ln.bias",
                                          "mm.input_projection.weight"};
    char text[256];
    char mmproj[256];
    t_gguf g = {0};
    t_put_text_model(&g, T_VOCAB);
    write_gguf(&g, "text.gguf", text);
    for (size_t i = 0; i < VRPT_COUNT(wrong); i++) {
        g.skip = wrong[i].key;
        t_put_mmproj(&g, 0);
        g.skip = NULL;
        t_u32(&g, wrong[i].key, wrong[i].value);
        write_gguf(&g, "mmproj.gguf", mmproj);
        open_fails(text, mmproj, wrong[i].status, mmproj, wrong[i].part);
    }
    for (size_t i = 0; i < VRPT_COUNT(missing); i++) {
        g.skip = missing[i];
        t_put_mmproj(&g, 0);
        write_gguf(&g, "mmproj.gguf", mmproj);
        open_fails(text, mmproj, G3_INVALID, missing[i], "is missing");
    }
    g.skip = "clip.projector_type";
    t_put_mmproj(&g, 0);
    g.skip = NULL;
    t_string(&g, "clip.projector_type", "mlp");
    write_gguf(&g, "mmproj.gguf", mmproj);
    open_fails(text, mmproj, G3_UNSUPPORTED, mmproj, "clip.projector_type");
    open_fails(text, text, G3_UNSUPPORTED, text, "'gemma3'; 'clip'");
    open_fails(mmproj, NULL, G3_UNSUPPORTED, mmproj, "'clip'; 'gemma3'");
}

static void what_is_no_model(void **state) {
    (void)state;
    char path[256];
    open_fails("/nowhere/model.gguf", NULL, G3_IO, "/nowhere/model.gguf", "No such file");
    open_fails(folder, "/nowhere", G3_INVALID, folder, "mmproj");
    t_file_write(folder, "empty.gguf", "", 0, path);
    open_fails(path, NULL, G3_INVALID, path, "empty");
    t_file_write(folder, "text.txt", "hello", 5, path);
    open_fails(path, NULL, G3_INVALID, path, "not a GGUF file");
    t_gguf g = {0};
    const uint16_t parts = 3;
    t_put_text_model(&g, T_VOCAB);
    t_raw(&g, "split.count", 2, &parts, 2);
    write_gguf(&g, "split.gguf", path);
    open_fails(path, NULL, G3_UNSUPPORTED, path, "one of 3 parts");
    t_gguf nameless = {.skip = "general.name"};
    t_put_text_model(&nameless, T_VOCAB);
    write_gguf(&nameless, "from-the-path.gguf", path);
    g3_checkpoint *checkpoint = open_ok(path, NULL);
    assert_string_equal(g3_checkpoint_config(checkpoint)->name, "from-the-path");
    g3_checkpoint_close(checkpoint);
}

/* A whole model cut at every byte of its header and tables, and at some of its
 * data. */
static void a_model_cut_anywhere_is_refused(void **state) {
    (void)state;
    t_gguf g = {0};
    t_put_text_model(&g, T_VOCAB);
    t_bytes file = t_finish(&g);
    for (size_t count = 0; count < file.count; count += count < 4096 ? 1 : 61) {
        uint8_t *copy = NULL;
        g3_gguf *gguf = NULL;
        g3_error error = {{0}};
        assert_int_equal(t_parse(file.data, count, &copy, &gguf, &error), G3_INVALID);
        free(copy);
    }
    t_free(&file);
}

int main(int argc, char **argv) {
    (void)argc;
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_file),
        cmocka_unit_test(bytes_that_are_done_can_be_read_again),
        cmocka_unit_test(vocabularies_of_both_sizes),
        cmocka_unit_test(a_tensor_that_is_missing),
        cmocka_unit_test(a_tensor_of_another_shape_or_type),
        cmocka_unit_test(vision_in_a_second_file),
        cmocka_unit_test(vision_files_that_are_wrong),
        cmocka_unit_test(what_is_no_model),
        cmocka_unit_test(a_model_cut_anywhere_is_refused),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, make_folder, remove_folder);
}
