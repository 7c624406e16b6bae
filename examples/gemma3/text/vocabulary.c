/* SPDX-License-Identifier: MIT */
#include "vocabulary.h"

#include <stdlib.h>
#include <string.h>

#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */
enum {
    SPACE_MARK_BYTES = 3,
    CUT_BYTES = 256 /* of a text that is looked for at every place; real ones have 93 */
};

g3_status g3_grow(void *array, size_t *capacity, size_t count, size_t size, g3_error *error) {
    if (count < *capacity)
        return G3_OK;
    size_t room = count < 64 ? 64 : count + count / 2 + 1;
    void *old, *grown;
    if (room > SIZE_MAX / size)
        return g3_fail(error, G3_HOST_MEMORY, "out of memory for text");
    memcpy(&old, array, sizeof old);
    grown = realloc(old, room * size);
    if (grown == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "out of memory for text: %zu bytes", room * size);
    memcpy(array, &grown, sizeof grown);
    *capacity = room;
    return G3_OK;
}

g3_status g3_vocabulary_create(g3_tokenizer **out_vocabulary, g3_error *error) {
    g3_tokenizer *vocabulary = calloc(1, sizeof *vocabulary);
    *out_vocabulary = NULL;
    if (vocabulary == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "out of memory for the vocabulary");
    vocabulary->special = (g3_special){G3_NO_ID, G3_NO_ID, G3_NO_ID, G3_NO_ID, G3_NO_ID,
                                       G3_NO_ID, G3_NO_ID, G3_NO_ID, G3_NO_ID};
    vocabulary->key = g3_hash_key_make();
    /* Never NULL, also when all texts are empty. */
    g3_status status = g3_grow(&vocabulary->bytes, &vocabulary->byte_capacity, 0, 1, error);
    if (status != G3_OK) {
        g3_tokenizer_close(vocabulary);
        return status;
    }
    *out_vocabulary = vocabulary;
    return G3_OK;
}

void g3_tokenizer_close(g3_tokenizer *tokenizer) {
    if (tokenizer == NULL)
        return;
    free(tokenizer->tokens);
    free(tokenizer->bytes);
    free(tokenizer->table);
    free(tokenizer->nodes);
    free(tokenizer->merges);
    free(tokenizer->pairs);
    free(tokenizer);
}

/* Room for `count` more bytes of text; their place in *out_place. */
static g3_status add_bytes(g3_tokenizer *v, size_t count, uint32_t *out_place, g3_error *error) {
    if (count > UINT32_MAX - v->byte_count)
        return g3_fail(error, G3_INVALID, "the texts of the vocabulary take more than 4 GiB");
    if (v->byte_count + count > 0) {
        g3_status status =
            g3_grow(&v->bytes, &v->byte_capacity, v->byte_count + count - 1, 1, error);
        if (status != G3_OK)
            return status;
    }
    *out_place = (uint32_t)v->byte_count;
    v->byte_count += count;
    return G3_OK;
}

/* A score as a number that is smaller for a higher score. */
static uint32_t rank_of_score(float score) {
    float value = score + 0.0F; /* -0 and 0 are equal */
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & UINT32_C(0x80000000)) != 0 ? bits : ~(bits | UINT32_C(0x80000000));
}

static g3_status make_room(g3_tokenizer *v, size_t id, g3_error *error) {
    while (v->count <= id) {
        g3_status status = g3_grow(&v->tokens, &v->capacity, v->count, sizeof v->tokens[0], error);
        if (status != G3_OK)
            return status;
        v->tokens[v->count++] = (g3_token){.kind = G3_TOKEN_NONE};
    }
    return G3_OK;
}

g3_status g3_vocabulary_set(g3_tokenizer *vocabulary, int64_t id, const char *text, size_t count,
                            int64_t kind, float score, g3_error *error) {
    uint32_t place = 0;
    g3_status status;
    if (id < 0 || id > G3_MAX_VOCAB) /* one more than rows: the image placeholder */
        return g3_fail(error, G3_INVALID, "token id %lld is not between 0 and %d", (long long)id,
                       G3_MAX_VOCAB);
    if (count > G3_TOKEN_BYTES)
        return g3_fail(error, G3_INVALID, "token %lld is longer than %u bytes", (long long)id,
                       G3_TOKEN_BYTES);
    if (score != score)
        return g3_fail(error, G3_INVALID, "the score of token %lld is not a number", (long long)id);
    status = make_room(vocabulary, (size_t)id, error);
    if (status == G3_OK)
        status = add_bytes(vocabulary, count, &place, error);
    if (status != G3_OK)
        return status;
    if (count > 0)
        memcpy(vocabulary->bytes + place, text, count);
    vocabulary->tokens[id] = (g3_token){
        .text = place,
        .text_count = (uint32_t)count,
        .rank = rank_of_score(score),
        .kind = kind > G3_TOKEN_NONE && kind <= G3_TOKEN_BYTE ? (uint32_t)kind : G3_TOKEN_NORMAL,
    };
    return G3_OK;
}

g3_status g3_vocabulary_add_merge(g3_tokenizer *vocabulary, int32_t left, int32_t right,
                                  int32_t result, g3_error *error) {
    g3_status status;
    if (vocabulary->merge_count >= UINT32_MAX / 4)
        return g3_fail(error, G3_INVALID, "too many merges");
    status = g3_grow(&vocabulary->merges, &vocabulary->merge_capacity, vocabulary->merge_count,
                     sizeof vocabulary->merges[0], error);
    if (status == G3_OK)
        vocabulary->merges[vocabulary->merge_count++] = (g3_merge){left, right, result};
    return status;
}

/* ---- What tokens are -------------------------------------------------------- */

/* Converters give these different types (control, user-defined, normal), so that
 * the text decides. The other columns of g3_special in the same order. */
static const char *const special_texts[] = {
    "<bos>",
    "<eos>",
    "<pad>",
    "<unk>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<start_of_image>",
    "<end_of_image>",
    "<image_soft_token>",
};
enum { SPECIALS = sizeof special_texts / sizeof special_texts[0] };

static int32_t *special_id(g3_special *special, int index) {
    switch (index) {
    case 0:
        return &special->bos;
    case 1:
        return &special->eos;
    case 2:
        return &special->pad;
    case 3:
        return &special->unknown;
    case 4:
        return &special->turn_begin;
    case 5:
        return &special->turn_end;
    case 6:
        return &special->image_begin;
    case 7:
        return &special->image_end;
    default:
        return &special->image;
    }
}

static int hex(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* The byte of a text like "<0x0A>", -1 for others. */
static int byte_of_text(const char *text, size_t count) {
    if (count != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = hex(text[3]), low = hex(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static int special_of_text(const char *text, size_t count) {
    for (int i = 0; i < SPECIALS; i++)
        if (strlen(special_texts[i]) == count && memcmp(special_texts[i], text, count) == 0)
            return i;
    return -1;
}

/* Special ids that the file names hold where no token has the text; a text comes
 * first because files name <end_of_turn> as the end of a sequence. */
static void settle_kinds(g3_tokenizer *v) {
    bool seen[SPECIALS] = {false};
    for (int i = 0; i < 256; i++)
        v->byte_id[i] = G3_NO_ID;
    for (size_t id = 0; id < v->count; id++) {
        g3_token *token = &v->tokens[id];
        const char *text = v->bytes + token->text;
        if (token->kind == G3_TOKEN_NONE || token->text_count < 5 || text[0] != '<')
            continue;
        int special = special_of_text(text, token->text_count);
        int byte = byte_of_text(text, token->text_count);
        if (special >= 0) {
            if (!seen[special])
                *special_id(&v->special, special) = (int32_t)id;
            seen[special] = true;
            token->kind = G3_TOKEN_CONTROL;
        } else if (byte >= 0) {
            token->kind = G3_TOKEN_BYTE;
            if (v->byte_id[byte] == G3_NO_ID)
                v->byte_id[byte] = (int32_t)id;
        }
    }
    /* A type "byte" with another text is a text like any other. */
    for (size_t id = 0; id < v->count; id++) {
        g3_token *token = &v->tokens[id];
        if (token->kind == G3_TOKEN_BYTE &&
            byte_of_text(v->bytes + token->text, token->text_count) < 0)
            token->kind = G3_TOKEN_NORMAL;
    }
}

/* Copies a text with every `from` written as `to`; both places stay as they are
 * when it has none. */
static g3_status replaced(g3_tokenizer *v, const g3_token *token, const char *from, const char *to,
                          uint32_t *place, uint32_t *count, g3_error *error) {
    size_t from_count = strlen(from), to_count = strlen(to), made = 0, found = 0;
    *place = token->text;
    *count = token->text_count;
    if (memmem(v->bytes + token->text, token->text_count, from, from_count) == NULL)
        return G3_OK;
    for (size_t i = 0; i + from_count <= token->text_count; i++)
        found += memcmp(v->bytes + token->text + i, from, from_count) == 0;
    g3_status status =
        add_bytes(v, token->text_count + found * to_count - found * from_count, place, error);
    if (status != G3_OK)
        return status;
    const char *text = v->bytes + token->text;
    char *out = v->bytes + *place;
    for (size_t i = 0; i < token->text_count;) {
        if (i + from_count <= token->text_count && memcmp(text + i, from, from_count) == 0) {
            memcpy(out + made, to, to_count);
            made += to_count;
            i += from_count;
        } else {
            out[made++] = text[i++];
        }
    }
    *count = (uint32_t)made;
    return G3_OK;
}

static g3_status make_texts(g3_tokenizer *v, g3_error *error) {
    for (size_t id = 0; id < v->count; id++) {
        g3_token *token = &v->tokens[id];
        g3_status status =
            replaced(v, token, " ", SPACE_MARK, &token->key, &token->key_count, error);
        if (status == G3_OK && token->kind == G3_TOKEN_BYTE) {
            status = add_bytes(v, 1, &token->piece, error);
            token->piece_count = 1;
            if (status == G3_OK)
                v->bytes[token->piece] =
                    (char)byte_of_text(v->bytes + token->text, token->text_count);
        } else if (status == G3_OK && !g3_token_is_control(token)) {
            status = replaced(v, token, SPACE_MARK, " ", &token->piece, &token->piece_count, error);
        }
        if (status != G3_OK)
            return status;
    }
    return G3_OK;
}

/* ---- Tables ------------------------------------------------------------------ */

/* At most half full. */
static uint32_t *make_table(size_t entries, size_t *out_mask, g3_error *error) {
    size_t slots = 16;
    while (slots < entries * 2)
        slots *= 2;
    uint32_t *table = calloc(slots, sizeof *table);
    *out_mask = slots - 1;
    if (table == NULL)
        (void)g3_fail(error, G3_HOST_MEMORY, "out of memory for the vocabulary");
    return table;
}

/* The slot of a key: its own or the free one where it belongs. */
static size_t key_slot(const g3_tokenizer *v, const char *key, size_t count) {
    size_t slot = (size_t)g3_hash(&v->key, key, count) & v->table_mask;
    for (; v->table[slot] != 0; slot = (slot + 1) & v->table_mask) {
        const g3_token *token = &v->tokens[v->table[slot] - 1];
        if (token->key_count == count && memcmp(v->bytes + token->key, key, count) == 0)
            break;
    }
    return slot;
}

static bool mergeable(const g3_token *token) {
    return (token->kind == G3_TOKEN_NORMAL || token->kind == G3_TOKEN_USER ||
            token->kind == G3_TOKEN_UNUSED) &&
           token->key_count > 0;
}

static g3_status index_keys(g3_tokenizer *v, g3_error *error) {
    v->table = make_table(v->count, &v->table_mask, error);
    if (v->table == NULL)
        return G3_HOST_MEMORY;
    for (size_t id = 0; id < v->count; id++) {
        const g3_token *token = &v->tokens[id];
        if (!mergeable(token))
            continue;
        size_t slot = key_slot(v, v->bytes + token->key, token->key_count);
        if (v->table[slot] == 0)
            v->table[slot] = (uint32_t)id + 1;
        if (token->key_count > v->longest)
            v->longest = token->key_count;
    }
    return G3_OK;
}

int32_t g3_vocabulary_find(const g3_tokenizer *vocabulary, const char *key, size_t count) {
    if (count == 0 || count > vocabulary->longest)
        return G3_NO_ID;
    uint32_t entry = vocabulary->table[key_slot(vocabulary, key, count)];
    return entry == 0 ? G3_NO_ID : (int32_t)(entry - 1);
}

static size_t pair_slot(const g3_tokenizer *v, int32_t left, int32_t right) {
    const int32_t both[] = {left, right};
    size_t slot = (size_t)g3_hash(&v->key, both, sizeof both) & v->pair_mask;
    for (; v->pairs[slot] != 0; slot = (slot + 1) & v->pair_mask) {
        const g3_merge *merge = &v->merges[v->pairs[slot] - 1];
        if (merge->left == left && merge->right == right)
            break;
    }
    return slot;
}

static bool makes_its_result(const g3_tokenizer *v, const g3_merge *merge) {
    const g3_token *left = &v->tokens[merge->left], *right = &v->tokens[merge->right];
    const g3_token *result = &v->tokens[merge->result];
    const char *key = v->bytes + result->key;
    return mergeable(result) && result->key_count == left->key_count + right->key_count &&
           memcmp(key, v->bytes + left->key, left->key_count) == 0 &&
           memcmp(key + left->key_count, v->bytes + right->key, right->key_count) == 0;
}

/* A pair that is listed twice has its last rank, as in the tokenizers library.
 * Text never merges into a control token or a byte. */
static g3_status index_merges(g3_tokenizer *v, g3_error *error) {
    v->pairs = make_table(v->merge_count, &v->pair_mask, error);
    if (v->pairs == NULL)
        return G3_HOST_MEMORY;
    for (size_t i = 0; i < v->merge_count; i++) {
        const g3_merge *merge = &v->merges[i];
        if (makes_its_result(v, merge)) /* no token was renamed since */
            v->pairs[pair_slot(v, merge->left, merge->right)] = (uint32_t)i + 1;
    }
    return G3_OK;
}

const g3_merge *g3_vocabulary_merge(const g3_tokenizer *vocabulary, int32_t left, int32_t right) {
    uint32_t entry = vocabulary->pairs[pair_slot(vocabulary, left, right)];
    return entry == 0 ? NULL : &vocabulary->merges[entry - 1];
}

static uint32_t child_of(const g3_tokenizer *v, uint32_t node, uint8_t byte) {
    uint32_t child = v->nodes[node].child;
    while (child != 0 && v->nodes[child].byte != byte)
        child = v->nodes[child].sibling;
    return child;
}

static g3_status add_node(g3_tokenizer *v, uint32_t parent, uint8_t byte, uint32_t *out_node,
                          g3_error *error) {
    g3_status status =
        g3_grow(&v->nodes, &v->node_capacity, v->node_count, sizeof v->nodes[0], error);
    if (status != G3_OK)
        return status;
    *out_node = (uint32_t)v->node_count++;
    v->nodes[*out_node] = (g3_node){.user = G3_NO_ID, .control = G3_NO_ID, .byte = byte};
    if (*out_node != 0) {
        v->nodes[*out_node].sibling = v->nodes[parent].child;
        v->nodes[parent].child = *out_node;
    }
    return G3_OK;
}

static g3_status add_cut(g3_tokenizer *v, size_t id, g3_error *error) {
    const g3_token *token = &v->tokens[id];
    uint32_t node = 0;
    if (token->key_count > CUT_BYTES)
        return g3_fail(error, G3_INVALID, "token %zu is cut out of texts and longer than %d bytes",
                       id, CUT_BYTES);
    for (uint32_t i = 0; i < token->key_count; i++) {
        uint8_t byte = (uint8_t)v->bytes[token->key + i];
        uint32_t child = child_of(v, node, byte);
        if (child == 0) {
            g3_status status = add_node(v, node, byte, &child, error);
            if (status != G3_OK)
                return status;
        }
        node = child;
    }
    if (node == 0) /* an empty text */
        return G3_OK;
    int32_t *place = token->kind == G3_TOKEN_USER ? &v->nodes[node].user : &v->nodes[node].control;
    if (*place == G3_NO_ID)
        *place = (int32_t)id;
    return G3_OK;
}

static g3_status index_cuts(g3_tokenizer *v, g3_error *error) {
    uint32_t root;
    g3_status status = add_node(v, 0, 0, &root, error);
    for (size_t id = 0; status == G3_OK && id < v->count; id++)
        if (v->tokens[id].kind == G3_TOKEN_USER || g3_token_is_control(&v->tokens[id]))
            status = add_cut(v, id, error);
    return status;
}

int32_t g3_vocabulary_cut(const g3_tokenizer *vocabulary, const char *key, size_t count,
                          bool parse_special, size_t *out_count) {
    int32_t best = G3_NO_ID;
    uint32_t node = 0;
    for (size_t i = 0; i < count; i++) {
        node = child_of(vocabulary, node, (uint8_t)key[i]);
        if (node == 0)
            break;
        const g3_node *end = &vocabulary->nodes[node];
        int32_t id = parse_special && end->control != G3_NO_ID ? end->control : end->user;
        if (id != G3_NO_ID) {
            best = id;
            *out_count = i + 1;
        }
    }
    return best;
}

/* ---- The whole ----------------------------------------------------------------- */

static g3_status check(const g3_tokenizer *v, g3_error *error) {
    g3_special special = v->special;
    for (int i = 0; i < SPECIALS; i++) {
        int32_t id = *special_id(&special, i);
        if (id != G3_NO_ID && (id < 0 || (size_t)id >= v->count))
            return g3_fail(error, G3_INVALID,
                           "the id of %s, %ld, is outside the vocabulary of %zu tokens",
                           special_texts[i], (long)id, v->count);
    }
    for (int i = 0; i < 256; i++)
        if ((v->byte_id[i] == G3_NO_ID || v->no_bytes) && special.unknown == G3_NO_ID)
            return g3_fail(error, G3_INVALID,
                           "the vocabulary has neither a token for byte 0x%02X nor <unk>",
                           (unsigned)i);
    return G3_OK;
}

g3_status g3_vocabulary_finish(g3_tokenizer *vocabulary, g3_error *error) {
    g3_status status;
    if (vocabulary->count == 0)
        return g3_fail(error, G3_INVALID, "the vocabulary is empty");
    settle_kinds(vocabulary);
    status = check(vocabulary, error);
    if (status == G3_OK)
        status = make_texts(vocabulary, error);
    if (status == G3_OK)
        status = index_keys(vocabulary, error);
    if (status == G3_OK)
        status = index_cuts(vocabulary, error);
    if (status == G3_OK && vocabulary->by_list)
        status = index_merges(vocabulary, error);
    return status;
}
