/* SPDX-License-Identifier: MIT */
/* Vocabularies and texts: the first byte chooses the form of what follows, a
 * SentencePiece model (0), a tokenizer.json (1), a GGUF file (2), or a text for the
 * vocabulary of the tiny golden checkpoint (3). A vocabulary that loads encodes the
 * input itself; ids are inside it, and where every byte has a token the text comes
 * back. */

#include "fuzz.h"

#include "files/gguf.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TINY VRPT_SOURCE_DIR "/tests/golden/tiny-mm/tokenizer.json"

static void require(int holds, const char *what) {
    if (holds)
        return;
    (void)fprintf(stderr, "fuzz_tokenizer: %s\n", what);
    abort();
}

/* The bytes as a file with a name. */
static g3_status read_as_file(const uint8_t *data, size_t size, int json, g3_tokenizer **out,
                              g3_error *error) {
    char path[64];
    int file = memfd_create("vocabulary", 0);
    g3_status status;
    if (file < 0 || write(file, data, size) != (ssize_t)size) {
        if (file >= 0)
            (void)close(file);
        return G3_IO;
    }
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    status =
        json ? g3_tokenizer_from_json(path, out, error) : g3_tokenizer_from_model(path, out, error);
    (void)close(file);
    return status;
}

static g3_status read_vocabulary(uint8_t form, const uint8_t *data, size_t size, g3_tokenizer **out,
                                 g3_error *error) {
    g3_gguf *gguf = NULL;
    g3_status status;
    switch (form) {
    case 0:
    case 1:
        return read_as_file(data, size, form == 1, out, error);
    case 2:
        status = g3_gguf_parse(data, size, "input", &gguf, error);
        if (status == G3_OK)
            status = g3_tokenizer_from_gguf(gguf, out, error);
        g3_gguf_close(gguf);
        return status;
    default:
        return g3_tokenizer_from_json(TINY, out, error);
    }
}

/* The tokenizer reads U+2581 as a space. */
static int has_mark(const uint8_t *data, size_t size) {
    return size > 0 && memmem(data, size, "\xE2\x96\x81", 3) != NULL;
}

static void check_text(const g3_tokenizer *tokenizer, const uint8_t *data, size_t size,
                       int all_bytes) {
    g3_ids ids = {0};
    g3_string whole = {0};
    g3_string streamed = {0};
    g3_stream_decoder decoder = {{0}, 0};
    g3_error error;
    for (int special = 0; special < 2; special++) {
        ids.count = whole.count = 0;
        require(g3_tokenizer_encode(tokenizer, (const char *)data, size, special, &ids, &error) ==
                    G3_OK,
                "a text is refused");
        for (size_t i = 0; i < ids.count; i++) {
            size_t count;
            const char *piece = g3_tokenizer_piece(tokenizer, ids.ids[i], &count);
            require(ids.ids[i] >= 0 && (size_t)ids.ids[i] < g3_tokenizer_size(tokenizer),
                    "an id outside the vocabulary");
            require(!all_bytes || special || !g3_tokenizer_is_control(tokenizer, ids.ids[i]),
                    "a control token in typed text");
            require(g3_string_append(&whole, piece, count, &error) == G3_OK, "memory");
            require(g3_stream_decode(&decoder, tokenizer, ids.ids[i], &streamed, &error) == G3_OK,
                    "memory");
        }
        require(g3_stream_finish(&decoder, &streamed, &error) == G3_OK, "memory");
        if (all_bytes && !special && !has_mark(data, size))
            require(whole.count == size && (size == 0 || memcmp(whole.bytes, data, size) == 0),
                    "a text does not come back");
    }
    g3_ids_free(&ids);
    g3_string_free(&whole);
    g3_string_free(&streamed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static g3_tokenizer *tiny;
    g3_tokenizer *tokenizer = NULL;
    g3_error error;
    if (size == 0)
        return 0;
    uint8_t form = data[0] & 3;
    if (form == 3) {
        if (tiny == NULL)
            require(read_vocabulary(form, NULL, 0, &tiny, &error) == G3_OK, "no tiny vocabulary");
        check_text(tiny, data + 1, size - 1, 1);
        return 0;
    }
    if (read_vocabulary(form, data + 1, size - 1, &tokenizer, &error) == G3_OK)
        check_text(tokenizer, data + 1, size - 1, 0);
    else
        require(tokenizer == NULL, "a failure that leaves a tokenizer");
    g3_tokenizer_close(tokenizer);
    return 0;
}
