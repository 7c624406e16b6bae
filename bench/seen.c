/* SPDX-License-Identifier: MIT */
/* The ids that a trace has used. */

#include "seen.h"

#include <stdlib.h>
#include <string.h>

enum { AHEAD = 65536, WORD_BITS = 64 };

static int is_set(const bench_seen *seen, uint64_t id) {
    return id / WORD_BITS < seen->words &&
           (seen->bits[id / WORD_BITS] >> (id % WORD_BITS) & 1u) != 0;
}

static int make_room(bench_seen *seen, uint64_t id) {
    uint64_t words = seen->words == 0 ? AHEAD / WORD_BITS : seen->words;
    while (id / WORD_BITS >= words)
        words *= 2;
    if (words == seen->words)
        return 1;
    uint64_t *bits = realloc(seen->bits, words * sizeof *bits);
    if (bits == NULL)
        return 0;
    memset(bits + seen->words, 0, (words - seen->words) * sizeof *bits);
    seen->bits = bits;
    seen->words = words;
    return 1;
}

static int add_sparse(bench_seen *seen, uint64_t id, int *out_there) {
    if (seen->sparse.entries == NULL && !bench_table_init(&seen->sparse))
        return 0;
    return bench_table_add(&seen->sparse, id, out_there) != NULL;
}

int bench_seen_add(bench_seen *seen, uint64_t id, int *out_there) {
    /* Which of the two takes an id changes as the count grows: both are asked. */
    *out_there = is_set(seen, id) ||
                 (seen->sparse.entries != NULL && bench_table_find(&seen->sparse, id) != NULL);
    if (*out_there)
        return 0;
    if (id / 8 >= seen->count + AHEAD) {
        if (!add_sparse(seen, id, out_there))
            return 0;
    } else {
        if (!make_room(seen, id))
            return 0;
        seen->bits[id / WORD_BITS] |= UINT64_C(1) << (id % WORD_BITS);
    }
    seen->count++;
    return 1;
}

void bench_seen_free(bench_seen *seen) {
    free(seen->bits);
    bench_table_free(&seen->sparse);
    memset(seen, 0, sizeof *seen);
}
