/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_SUPPORT_TOKENIZER_H
#define GEMMA3_SUPPORT_TOKENIZER_H

/* Vocabularies made in memory, and shorthands of encoding and decoding. */

#include "support_gguf.h"
#include "text/tokenizer.h"

typedef struct t_vocabulary {
    t_bytes texts, scores, types;
    uint32_t count;
} t_vocabulary;

/* Adds a token; its id. */
static inline int32_t t_token(t_vocabulary *v, const char *text, float score, int32_t type) {
    t_put_string(&v->texts, text);
    t_put(&v->scores, &score, 4);
    t_put(&v->types, &type, 4);
    return (int32_t)v->count++;
}

static inline void t_all_bytes(t_vocabulary *v) {
    for (unsigned i = 0; i < 256; i++) {
        char text[8];
        (void)snprintf(text, sizeof text, "<0x%02X>", i);
        (void)t_token(v, text, 0, 6);
    }
}

/* The pairs of a GGUF file for it; the vocabulary is empty afterwards. */
static inline void t_put_vocabulary(t_gguf *g, t_vocabulary *v) {
    t_string(g, "tokenizer.ggml.model", "llama");
    t_array(g, "tokenizer.ggml.tokens", 8, v->count, v->texts.data, v->texts.count);
    t_array(g, "tokenizer.ggml.scores", 6, v->count, v->scores.data, v->scores.count);
    t_array(g, "tokenizer.ggml.token_type", 5, v->count, v->types.data, v->types.count);
    t_free(&v->texts);
    t_free(&v->scores);
    t_free(&v->types);
    *v = (t_vocabulary){0};
}

/* Reads the vocabulary of a file; the writer is empty afterwards. */
static inline g3_status t_read_vocabulary(t_gguf *g, g3_tokenizer **out, g3_error *error) {
    t_bytes file = t_finish(g);
    uint8_t *copy = NULL;
    g3_gguf *gguf = NULL;
    t_expect(t_parse(file.data, file.count, &copy, &gguf, error), G3_OK, error, NULL, NULL);
    g3_status status = g3_tokenizer_from_gguf(gguf, out, error);
    g3_gguf_close(gguf);
    free(copy);
    t_free(&file);
    return status;
}

static inline g3_tokenizer *t_open(t_vocabulary *v) {
    t_gguf g = {0};
    g3_tokenizer *tokenizer = NULL;
    g3_error error = {{0}};
    t_put_vocabulary(&g, v);
    t_expect(t_read_vocabulary(&g, &tokenizer, &error), G3_OK, &error, NULL, NULL);
    assert_non_null(tokenizer);
    return tokenizer;
}

static inline g3_ids t_encode_bytes(const g3_tokenizer *tokenizer, const void *text, size_t count,
                                    bool special) {
    g3_ids ids = {0};
    g3_error error = {{0}};
    char *copy = malloc(count == 0 ? 1 : count); /* exactly this size */
    assert_non_null(copy);
    if (count > 0)
        memcpy(copy, text, count);
    t_expect(g3_tokenizer_encode(tokenizer, copy, count, special, &ids, &error), G3_OK, &error,
             NULL, NULL);
    free(copy);
    return ids;
}

static inline void t_same_ids(const char *text, const g3_ids *got, const int32_t *ids,
                              size_t count) {
    size_t same = 0;
    while (same < got->count && same < count && got->ids[same] == ids[same])
        same++;
    if (same < got->count || same < count)
        fail_msg("'%.60s': id %zu of %zu is %d, not %d of %zu", text, same, got->count,
                 same < got->count ? got->ids[same] : -1, same < count ? ids[same] : -1, count);
}

/* Expects these ids, ended by -1. */
static inline void t_expect_ids(const g3_tokenizer *tokenizer, const char *text, bool special,
                                const int32_t *ids) {
    g3_ids got = t_encode_bytes(tokenizer, text, strlen(text), special);
    size_t count = 0;
    while (ids[count] >= 0)
        count++;
    t_same_ids(text, &got, ids, count);
    g3_ids_free(&got);
}
#define T_IDS(...) ((const int32_t[]){__VA_ARGS__, -1})

static inline g3_string t_decode(const g3_tokenizer *tokenizer, const int32_t *ids, size_t count) {
    g3_stream_decoder decoder = {0};
    g3_string out = {0};
    g3_error error = {{0}};
    for (size_t i = 0; i < count; i++)
        assert_int_equal(g3_stream_decode(&decoder, tokenizer, ids[i], &out, &error), G3_OK);
    assert_int_equal(g3_stream_finish(&decoder, &out, &error), G3_OK);
    return out;
}

/* The bytes of all pieces, put together, are the text again. */
static inline void t_round_trip(const g3_tokenizer *tokenizer, const void *text, size_t count) {
    g3_ids ids = t_encode_bytes(tokenizer, text, count, false);
    t_bytes bytes = {0};
    for (size_t i = 0; i < ids.count; i++) {
        size_t length;
        const char *piece = g3_tokenizer_piece(tokenizer, ids.ids[i], &length);
        assert_false(g3_tokenizer_is_control(tokenizer, ids.ids[i]));
        t_put(&bytes, piece, length);
    }
    assert_int_equal(bytes.count, count);
    if (count > 0)
        assert_memory_equal(bytes.data, text, count);
    t_free(&bytes);
    g3_ids_free(&ids);
}

/* Random bytes, half of them from characters that make tokens, never U+2581: it
 * is a space to the tokenizer. */
static inline size_t t_random_text(vrpt_rng *rng, char *out, size_t most) {
    static const char *const parts[] = {" ",
                                        "  ",
                                        "a",
                                        "the",
                                        "\n",
                                        "\n\n\n",
                                        "\t",
                                        "<",
                                        "e",
                                        "t",
                                        "\xEA\xB0\x80",
                                        "\xF0\x9F\xA6\x99",
                                        "\xE2\x96",
                                        "\x81",
                                        "\xC3\xA9",
                                        "<b>",
                                        "1",
                                        "<eos>",
                                        "\xFF",
                                        "\r\n"};
    size_t count = 0, wanted = (size_t)vrpt_rng_below(rng, most - 8);
    while (count < wanted) {
        if (vrpt_rng_below(rng, 2) == 0) {
            out[count++] = (char)vrpt_rng_below(rng, 256);
        } else {
            const char *part = parts[vrpt_rng_below(rng, VRPT_COUNT(parts))];
            memcpy(out + count, part, strlen(part));
            count += strlen(part);
        }
        if (count >= 3 && memcmp(out + count - 3, "\xE2\x96\x81", 3) == 0)
            out[count - 1] = '-';
    }
    return count;
}

/* ---- SentencePiece models --------------------------------------------------------------- */

static inline void t_put_varint(t_bytes *bytes, uint64_t value) {
    uint8_t made[10];
    size_t count = 0;
    for (; value >= 0x80; value >>= 7)
        made[count++] = (uint8_t)(value | 0x80);
    made[count++] = (uint8_t)value;
    t_put(bytes, made, count);
}

/* Not inline: gcc then takes the growing array for one that is too short. */
__attribute__((noinline, unused)) static void t_put_part(t_bytes *bytes, uint32_t field,
                                                         const void *data, size_t count) {
    t_put_varint(bytes, field << 3 | 2);
    t_put_varint(bytes, count);
    t_put(bytes, data, count);
}

static inline void t_put_piece(t_bytes *bytes, const char *text, float score, uint32_t kind) {
    t_bytes piece = {0};
    t_put_part(&piece, 1, text, strlen(text));
    t_put_varint(&piece, 2 << 3 | 5);
    t_put(&piece, &score, 4);
    if (kind != 1) {
        t_put_varint(&piece, 3 << 3 | 0);
        t_put_varint(&piece, kind);
    }
    t_put_varint(&piece, 99 << 3 | 1); /* a field of a later version */
    t_put_u64(&piece, 1);
    t_put_part(bytes, 1, piece.data, piece.count);
    t_free(&piece);
}

#endif
