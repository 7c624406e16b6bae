/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_VOCABULARY_H
#define GEMMA3_VOCABULARY_H

/* Inside of the tokenizer: the tables that the readers of the three file formats
 * fill and the encoder looks things up in.
 *
 * A token has its text as the file writes it, a key (the text with U+2581 for
 * every space: how text looks when it is matched) and a piece (the text with a
 * space for every U+2581: what it prints).
 *
 * Which of two neighbours merge first is a number per pair, smaller first, the
 * leftmost of equals. Where it comes from differs by format and is kept exact:
 * SentencePiece (GGUF, tokenizer.model) orders by the score of the merged token,
 * however it is split; a tokenizer.json orders by the place of the pair in its
 * list, so that two splits of one token can rank differently ("a" "aa" and "aa"
 * "a"), and a pair that is not listed never merges.
 *
 * Of tokens with the same text the lowest id wins (a tokenizer.json has each text once). */

#include "../files/hash.h"
#include "tokenizer.h"

/* Numbers as in GGUF and in SentencePiece. */
typedef enum g3_token_kind {
    G3_TOKEN_NONE = 0, /* a gap among the ids */
    G3_TOKEN_NORMAL = 1,
    G3_TOKEN_UNKNOWN = 2,
    G3_TOKEN_CONTROL = 3,
    G3_TOKEN_USER = 4,   /* cut out of any text before merging begins */
    G3_TOKEN_UNUSED = 5, /* merges, but is split again before it is given out */
    G3_TOKEN_BYTE = 6
} g3_token_kind;

#define G3_TOKEN_BYTES 4096u /* longest text of a token */

/* Places are offsets into the vocabulary's bytes. */
typedef struct g3_token {
    uint32_t text, text_count;
    uint32_t key, key_count;
    uint32_t piece, piece_count;
    uint32_t rank; /* from the score */
    uint32_t kind; /* g3_token_kind */
} g3_token;

/* The place in the array is the rank. */
typedef struct g3_merge {
    int32_t left, right, result;
} g3_merge;

/* A tree of the bytes of all texts that are cut out. Node 0 is the root; child
 * and sibling 0: none. */
typedef struct g3_node {
    uint32_t child, sibling;
    int32_t user, control; /* the token that ends here, of either kind */
    uint8_t byte;
} g3_node;

struct g3_tokenizer {
    g3_token *tokens;
    size_t count, capacity;
    char *bytes;
    size_t byte_count, byte_capacity;
    g3_hash_key key; /* of both tables */
    uint32_t *table; /* id + 1 of mergeable tokens by key, 0: free */
    size_t table_mask;
    uint32_t longest; /* key of a mergeable token, in bytes */
    g3_node *nodes;
    size_t node_count, node_capacity;
    g3_merge *merges;
    size_t merge_count, merge_capacity;
    uint32_t *pairs; /* index + 1 into merges by left and right */
    size_t pair_mask;
    bool by_list;  /* merges come from the list, else from scores */
    bool made_up;  /* the checkpoint brought none: bytes */
    bool no_bytes; /* what has no token becomes <unk> although byte tokens exist */
    int32_t byte_id[256];
    g3_special special;
};

/* Makes room for one more element of `size` bytes in *array, which has *capacity. */
g3_status g3_grow(void *array, size_t *capacity, size_t count, size_t size, g3_error *error);

/* An empty vocabulary. A reader puts tokens and merges in, sets special ids that
 * the file names by number, and finishes it; on failure it closes it. */
g3_status g3_vocabulary_create(g3_tokenizer **out_vocabulary, g3_error *error);

/* Puts a token at an id, in any order; an id that was set before is replaced.
 * kind outside of g3_token_kind counts as normal. Errors: INVALID (id, length,
 * a score that is not a number), HOST_MEMORY. */
g3_status g3_vocabulary_set(g3_tokenizer *vocabulary, int64_t id, const char *text, size_t count,
                            int64_t kind, float score, g3_error *error);
g3_status g3_vocabulary_add_merge(g3_tokenizer *vocabulary, int32_t left, int32_t right,
                                  int32_t result, g3_error *error);
/* Builds the tables. Errors: INVALID (nothing in it; a special id outside; no way
 * to write any byte), HOST_MEMORY. */
g3_status g3_vocabulary_finish(g3_tokenizer *vocabulary, g3_error *error);

/* The mergeable token with this key, G3_NO_ID if there is none. */
int32_t g3_vocabulary_find(const g3_tokenizer *vocabulary, const char *key, size_t count);
/* The listed merge of two tokens, NULL if there is none. */
const g3_merge *g3_vocabulary_merge(const g3_tokenizer *vocabulary, int32_t left, int32_t right);

/* The longest token that is cut out at the beginning of key[count]: its id, and
 * its bytes in *out_count; G3_NO_ID if there is none. */
int32_t g3_vocabulary_cut(const g3_tokenizer *vocabulary, const char *key, size_t count,
                          bool parse_special, size_t *out_count);

/* More tokens from the files beside a tokenizer.model (added_tokens.json and
 * tokenizer_config.json in `folder`); neither has to be there. */
g3_status g3_vocabulary_add_from_folder(g3_tokenizer *vocabulary, const char *folder,
                                        g3_error *error);

static inline bool g3_token_is_control(const g3_token *token) {
    return token->kind == G3_TOKEN_CONTROL || token->kind == G3_TOKEN_UNKNOWN;
}

#endif
