/* SPDX-License-Identifier: MIT */
/* The pool against a plain model, over random operation sequences.
 *
 *   prop_pool          200,000 operations over both backings (environment
 *                      VRAMPOOL_TEST_SEED and VRAMPOOL_TEST_OPS choose others)
 *   prop_pool FILE     replays a saved failure and says every operation
 *
 * A sequence that fails is chopped while it still fails, and what is left is
 * saved as prop_pool_BACKING.failed (or VRAMPOOL_TEST_SAVE) and said as bytes. */

#include "ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCE_OPS = 2500, CHOPS_MAX = 600 };

static vrpt_run run;

static uint8_t *random_bytes(uint64_t seed, int32_t backing, size_t count) {
    uint8_t *bytes = malloc(count);
    vrpt_rng rng = {seed};
    for (size_t i = 0; bytes != NULL && i < count; i += 8) {
        uint64_t some = vrpt_rng_next(&rng);
        memcpy(bytes + i, &some, 8);
    }
    if (bytes != NULL)
        bytes[0] = backing == VRP_BACKING_MALLOC;
    return bytes;
}

static void without(uint8_t *to, const uint8_t *from, size_t count, size_t at, size_t gone) {
    memcpy(to, from, at);
    memcpy(to + at, from + at + gone, count - at - gone);
}

/* Takes pieces out, large ones first, as long as what is left fails. */
static size_t chop(uint8_t *bytes, size_t count) {
    uint8_t *shorter = malloc(count);
    int tries = 0;
    if (shorter == NULL)
        return count;
    if ((run.op + 2) * VRPT_OP_BYTES < count)
        count = (run.op + 2) * VRPT_OP_BYTES; /* what came after the failure */
    for (size_t piece = count / 16 * VRPT_OP_BYTES; piece >= VRPT_OP_BYTES;) {
        int took = 0;
        for (size_t at = VRPT_OP_BYTES; at + piece <= count && tries < CHOPS_MAX; tries++) {
            without(shorter, bytes, count, at, piece);
            if (vrpt_run_bytes(&run, shorter, count - piece, 0)) {
                at += piece;
                continue;
            }
            count -= piece;
            memcpy(bytes, shorter, count);
            took = 1;
        }
        if (tries >= CHOPS_MAX || (piece == VRPT_OP_BYTES && !took))
            break;
        if (piece > VRPT_OP_BYTES)
            piece = piece / 2 / VRPT_OP_BYTES * VRPT_OP_BYTES;
    }
    free(shorter);
    return count;
}

static void save(const uint8_t *bytes, size_t count) {
    const char *name = getenv("VRAMPOOL_TEST_SAVE");
    if (name == NULL || *name == '\0')
        name = bytes[0] & 1 ? "prop_pool_malloc.failed" : "prop_pool_vmm.failed";
    FILE *file = fopen(name, "wb");
    if (file == NULL)
        return;
    (void)fwrite(bytes, 1, count, file);
    (void)fclose(file);
    (void)fprintf(stderr, "%zu operations are left, saved as %s:\n", count / VRPT_OP_BYTES - 1,
                  name);
    for (size_t i = 0; i < count && i < 400; i++)
        (void)fprintf(stderr, "%02x%s", bytes[i], i % 32 == 31 ? "\n" : "");
    (void)fprintf(stderr, "\n");
}

static void sequences(int32_t backing) {
    uint64_t seed = vrpt_env_number("VRAMPOOL_TEST_SEED", 20240);
    uint64_t wanted = vrpt_env_number("VRAMPOOL_TEST_OPS", 200000) / 2;
    size_t bytes_each = (SEQUENCE_OPS + 1) * VRPT_OP_BYTES;
    uint64_t refused = 0;
    for (uint64_t done = 0; done < wanted; done += SEQUENCE_OPS, seed++) {
        uint8_t *bytes = random_bytes(seed, backing, bytes_each);
        assert_non_null(bytes);
        int good = vrpt_run_bytes(&run, bytes, bytes_each, 0);
        refused += run.refused;
        if (!good) {
            char why[sizeof run.t.why];
            memcpy(why, run.t.why, sizeof why);
            (void)fprintf(stderr, "seed %llu fails after operation %zu: %s\n",
                          (unsigned long long)seed, run.op, why);
            size_t left = chop(bytes, bytes_each);
            save(bytes, left);
            free(bytes);
            fail_msg("seed %llu: %s", (unsigned long long)seed, why);
        }
        free(bytes);
    }
    assert_true(refused > wanted / 1000); /* the refusals were exercised as well */
}

static void pool_follows_the_model_with_vmm(void **state) {
    (void)state;
    sequences(VRP_BACKING_VMM);
}

static void pool_follows_the_model_with_malloc(void **state) {
    (void)state;
    sequences(VRP_BACKING_MALLOC);
}

static int replay(const char *name) {
    static uint8_t bytes[1 << 20];
    FILE *file = fopen(name, "rb");
    if (file == NULL)
        return 2;
    size_t count = fread(bytes, 1, sizeof bytes, file);
    (void)fclose(file);
    int good = vrpt_run_bytes(&run, bytes, count, 1);
    (void)fprintf(stderr, "%s\n", good ? "holds" : run.t.why);
    return !good;
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_follows_the_model_with_vmm),
        cmocka_unit_test(pool_follows_the_model_with_malloc),
    };
    if (argc > 1)
        return replay(argv[1]);
    return cmocka_run_group_tests_name("prop_pool", tests, NULL, NULL);
}
