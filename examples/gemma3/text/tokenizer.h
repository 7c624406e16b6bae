/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_TOKENIZER_H
#define GEMMA3_TOKENIZER_H

/* Gemma-3's tokenizer: SentencePiece BPE with byte fallback, from a GGUF file,
 * a tokenizer.json or a tokenizer.model. Immutable once made: any thread may
 * use it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../files/checkpoint.h"
#include "../files/error.h"

typedef struct g3_tokenizer g3_tokenizer;

/* From whatever the checkpoint has: its GGUF, else in its folder tokenizer.json,
 * else tokenizer.model, else a vocabulary of bytes (g3_tokenizer_made_up).
 * Errors: INVALID (no vocabulary and too few ids for one of bytes; special id outside the
 * vocabulary; hostile file), IO, HOST_MEMORY. */
g3_status g3_tokenizer_open(const g3_checkpoint *checkpoint, g3_tokenizer **out_tokenizer,
                            g3_error *error);
g3_status g3_tokenizer_from_gguf(const struct g3_gguf *gguf, g3_tokenizer **out_tokenizer,
                                 g3_error *error);
g3_status g3_tokenizer_from_json(const char *path, g3_tokenizer **out_tokenizer, g3_error *error);
g3_status g3_tokenizer_from_model(const char *path, g3_tokenizer **out_tokenizer, g3_error *error);
/* One token for each byte, beside the special ids that the configuration names. */
g3_status g3_tokenizer_of_bytes(const g3_config *config, g3_tokenizer **out_tokenizer,
                                g3_error *error);
bool g3_tokenizer_made_up(const g3_tokenizer *tokenizer);
void g3_tokenizer_close(g3_tokenizer *tokenizer); /* NULL is allowed */

size_t g3_tokenizer_size(const g3_tokenizer *tokenizer); /* ids are below it */

/* Ids by meaning, G3_NO_ID where the vocabulary has none. */
typedef struct g3_special {
    int32_t bos, eos, pad, unknown;
    int32_t turn_begin, turn_end; /* <start_of_turn>, <end_of_turn> */
    int32_t image_begin, image_end,
        image; /* <start_of_image>, <end_of_image>, <image_soft_token> */
} g3_special;
const g3_special *g3_tokenizer_special(const g3_tokenizer *tokenizer);

typedef struct g3_ids {
    int32_t *ids; /* malloc'ed; free with g3_ids_free */
    size_t count;
    size_t capacity;
} g3_ids;
void g3_ids_free(g3_ids *ids);
g3_status g3_ids_append(g3_ids *ids, int32_t id, g3_error *error);

/* Appends the ids of `count` bytes of text (any bytes; invalid UTF-8 becomes
 * byte tokens). parse_special: texts of control tokens become these tokens;
 * otherwise they are ordinary text. User-defined tokens (newline and space runs,
 * tags) are always recognised. No <bos> is added. Time is n log n, and
 * n times the longest such token (at most 256 bytes).
 * Errors: HOST_MEMORY. On failure ids is as before. */
g3_status g3_tokenizer_encode(const g3_tokenizer *tokenizer, const char *text, size_t count,
                              bool parse_special, g3_ids *ids, g3_error *error);

/* The bytes of one token: a piece with its spaces, a single byte, or nothing for
 * control tokens and ids outside. The result belongs to the tokenizer. */
const char *g3_tokenizer_piece(const g3_tokenizer *tokenizer, int32_t id, size_t *out_count);
/* The token's own text, control tokens too ("<end_of_turn>"), for people. */
const char *g3_tokenizer_text(const g3_tokenizer *tokenizer, int32_t id, size_t *out_count);
bool g3_tokenizer_is_control(const g3_tokenizer *tokenizer, int32_t id);

/* Streaming output: takes tokens, gives only whole UTF-8 sequences; bytes that
 * can never become one are replaced by U+FFFD. */
typedef struct g3_stream_decoder {
    uint8_t held[4];
    uint32_t held_count;
} g3_stream_decoder;
/* Appends to out (a growing malloc'ed string, NUL-terminated). */
typedef struct g3_string {
    char *bytes;
    size_t count;
    size_t capacity;
} g3_string;
void g3_string_free(g3_string *string);
g3_status g3_string_append(g3_string *string, const char *bytes, size_t count, g3_error *error);
g3_status g3_stream_decode(g3_stream_decoder *decoder, const g3_tokenizer *tokenizer, int32_t id,
                           g3_string *out, g3_error *error);
/* The end of an answer: what is still held becomes U+FFFD. */
g3_status g3_stream_finish(g3_stream_decoder *decoder, g3_string *out, g3_error *error);

#endif
