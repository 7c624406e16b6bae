/* SPDX-License-Identifier: MIT */
/* Weights on their way from the files into the pool. */

#include "support_model.h"

#include "engine/model.h"
#include "vrampool/inspect.h"

static char folder[64];
static char text_path[256], vision_path[256];

static void write_gguf(t_gguf *g, const char *name, char out_path[256]) {
    t_bytes file = t_finish(g);
    t_file_write(folder, name, file.data, file.count, out_path);
    t_free(&file);
}

static g3_checkpoint *written(g3_type projection) {
    g3_checkpoint *checkpoint = NULL;
    g3_error error = {{0}};
    t_gguf text = {0}, vision = {0};
    t_put_text_model(&text, T_VOCAB);
    write_gguf(&text, "text.gguf", text_path);
    t_put_mmproj_of(&vision, 0, projection);
    write_gguf(&vision, "vision.gguf", vision_path);
    if (g3_checkpoint_open(text_path, vision_path, &checkpoint, &error) != G3_OK)
        fail_msg("%s", error.text);
    return checkpoint;
}

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

/* The projector lies the other way round in the file, also where it is quantised. */
static void the_projection_is_turned(void **state) {
    (void)state;
    const g3_type types[] = {G3_F32, G3_F16, G3_BF16, G3_Q8_0, G3_Q4_0};
    for (size_t t = 0; t < VRPT_COUNT(types); t++) {
        g3_checkpoint *checkpoint = written(types[t]);
        const g3_tensor *tensor = g3_checkpoint_tensor(checkpoint, "mm.input_projection.weight");
        g3_memory memory;
        g3_model *model = NULL;
        g3_error error = {{0}};
        float file[64], row[32];
        assert_int_equal(g3_memory_open("sim:64MiB", VRP_BACKING_AUTO, &memory, &error), G3_OK);
        if (g3_model_load(&memory, checkpoint, G3_FLOAT32, G3_FAULT_NONE, NULL, NULL, &model,
                          &error) != G3_OK)
            fail_msg("%s", error.text);
        assert_int_equal(model->vision.projection.rows, 64);
        assert_int_equal(model->vision.projection.columns, 32);
        int differ = 0;
        for (uint32_t column = 0; column < 32; column++) {
            g3_dequantise(tensor->type, tensor->data + column * (tensor->bytes / 32), 64, file);
            for (uint32_t r = 0; r < 64; r++) {
                g3_matrix_row(&model->vision.projection, r, row);
                assert_memory_equal(&row[column], &file[r], sizeof file[r]);
                differ += r > 0 && memcmp(&file[r], &file[r - 1], sizeof file[r]) != 0;
            }
        }
        assert_true(differ > 100);
        g3_model_free(model);
        g3_checkpoint_close(checkpoint);
        assert_int_equal(g3_memory_close(&memory, NULL, &error), G3_OK);
    }
}

/* Refused at each request in turn, a load leaves nothing. */
static void a_load_that_fails_leaves_nothing(void **state) {
    (void)state;
    g3_checkpoint *checkpoint = written(G3_F16);
    g3_memory memory;
    g3_error error = {{0}};
    int failures = 0;
    bool done = false;
    assert_int_equal(g3_memory_open("sim:64MiB", VRP_BACKING_AUTO, &memory, &error), G3_OK);
    for (uint64_t budget = 512; !done; budget += 512) {
        g3_model *model = NULL;
        assert_int_equal(vrp_tag_budget_set(memory.pool, VRP_TAG_WEIGHTS, budget), VRP_OK);
        const g3_status status = g3_model_load(&memory, checkpoint, G3_FLOAT32, G3_FAULT_NONE, NULL,
                                               NULL, &model, &error);
        done = status == G3_OK;
        failures += !done;
        if (!done) {
            assert_int_equal(status, G3_DEVICE_MEMORY);
            assert_null(model);
            assert_non_null(strstr(error.text, "loading weights"));
        }
        g3_model_free(model);
        assert_int_equal(vrp_pool_allocated_bytes(memory.pool), 0);
    }
    assert_true(failures > 50);
    uint64_t left = 1;
    g3_checkpoint_close(checkpoint);
    assert_int_equal(g3_memory_close(&memory, &left, &error), G3_OK);
    assert_int_equal(left, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_projection_is_turned, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_load_that_fails_leaves_nothing, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests_name("load", tests, NULL, NULL);
}
