/* SPDX-License-Identifier: MIT */
/* Text to ids: special texts are cut out, what lies between is merged pair by
 * pair from single characters, best pair first. The characters are a linked list
 * in one array and the candidates a heap, so that n characters take n log n steps
 * and no recursion. */

#include "utf8.h"
#include "vocabulary.h"

#include <stdlib.h>
#include <string.h>

#define MOST_TEXT ((size_t)256 << 20) /* bytes of one call */
enum { NOTHING = -1 };

/* A run of characters that have become one. Merging extends the left one; the
 * right one stays as it was, so that the way a token came about can be followed
 * back: `last` is the symbol that was merged in last, and its `before` the one
 * before it. */
typedef struct symbol {
    uint32_t start, count; /* bytes of the fragment */
    int32_t prev, next;
    int32_t id;
    int32_t last, before;
    uint32_t alive;
} symbol;

/* Two neighbours that may merge: `count` is their bytes together, which tells
 * whether they are still what they were. */
typedef struct candidate {
    uint32_t rank;
    int32_t left;
    uint32_t count;
    int32_t id; /* of the result */
} candidate;

typedef struct work {
    const g3_tokenizer *vocabulary;
    const char *text; /* of the fragment */
    symbol *symbols;
    size_t symbol_count, symbol_capacity;
    candidate *heap;
    size_t heap_count, heap_capacity;
    int32_t *stack;
    size_t stack_capacity;
    bool after_unknown; /* <unk> was the last: neighbours share one */
    g3_ids *ids;
    g3_error *error;
} work;

/* ---- The heap ------------------------------------------------------------------ */

static bool before(const candidate *a, const candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static g3_status heap_push(work *w, candidate entry) {
    g3_status status =
        g3_grow(&w->heap, &w->heap_capacity, w->heap_count, sizeof w->heap[0], w->error);
    if (status != G3_OK)
        return status;
    size_t at = w->heap_count++;
    while (at > 0 && before(&entry, &w->heap[(at - 1) / 2])) {
        w->heap[at] = w->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    w->heap[at] = entry;
    return G3_OK;
}

static candidate heap_pop(work *w) {
    candidate top = w->heap[0];
    candidate entry = w->heap[--w->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= w->heap_count)
            break;
        if (child + 1 < w->heap_count && before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!before(&w->heap[child], &entry))
            break;
        w->heap[at] = w->heap[child];
        at = child;
    }
    w->heap[at] = entry;
    return top;
}

/* ---- Merging ------------------------------------------------------------------- */

/* Makes the pair of a symbol and its right neighbour a candidate, if it may merge. */
static g3_status consider(work *w, int32_t left) {
    if (left == NOTHING || w->symbols[left].next == NOTHING)
        return G3_OK;
    const symbol *a = &w->symbols[left];
    const symbol *b = &w->symbols[a->next];
    candidate entry = {.left = left, .count = a->count + b->count};
    if (w->vocabulary->by_list) {
        const g3_merge *merge = NULL;
        if (a->id != G3_NO_ID && b->id != G3_NO_ID)
            merge = g3_vocabulary_merge(w->vocabulary, a->id, b->id);
        if (merge == NULL)
            return G3_OK;
        entry.id = merge->result;
        entry.rank = (uint32_t)(merge - w->vocabulary->merges);
    } else {
        entry.id = g3_vocabulary_find(w->vocabulary, w->text + a->start, entry.count);
        if (entry.id == G3_NO_ID)
            return G3_OK;
        entry.rank = w->vocabulary->tokens[entry.id].rank;
    }
    return heap_push(w, entry);
}

static g3_status split_characters(work *w, size_t count) {
    const uint8_t *bytes = (const uint8_t *)w->text;
    w->symbol_count = 0;
    for (size_t at = 0; at < count;) {
        uint32_t length;
        if (g3_utf8_next(bytes + at, count - at, &length) != G3_UTF8_WHOLE)
            length = 1; /* such a byte stands for itself */
        g3_status status = g3_grow(&w->symbols, &w->symbol_capacity, w->symbol_count,
                                   sizeof w->symbols[0], w->error);
        if (status != G3_OK)
            return status;
        int32_t index = (int32_t)w->symbol_count++;
        w->symbols[index] = (symbol){
            .start = (uint32_t)at,
            .count = length,
            .prev = index - 1,
            .next = at + length < count ? index + 1 : NOTHING,
            .id = g3_vocabulary_find(w->vocabulary, w->text + at, length),
            .last = NOTHING,
            .before = NOTHING,
            .alive = 1,
        };
        at += length;
    }
    return G3_OK;
}

static g3_status merge(work *w) {
    g3_status status = G3_OK;
    w->heap_count = 0;
    for (size_t i = 0; status == G3_OK && i + 1 < w->symbol_count; i++)
        status = consider(w, (int32_t)i);
    while (status == G3_OK && w->heap_count > 0) {
        candidate best = heap_pop(w);
        symbol *a = &w->symbols[best.left];
        if (a->alive == 0 || a->next == NOTHING)
            continue;
        int32_t right = a->next;
        symbol *b = &w->symbols[right];
        if (a->count + b->count != best.count)
            continue;
        b->alive = 0;
        b->before = a->last;
        a->last = right;
        a->count = best.count;
        a->id = best.id;
        a->next = b->next;
        if (a->next != NOTHING)
            w->symbols[a->next].prev = best.left;
        status = consider(w, a->prev);
        if (status == G3_OK)
            status = consider(w, best.left);
    }
    return status;
}

/* ---- Giving out -------------------------------------------------------------------- */

static g3_status give(work *w, int32_t id) {
    w->after_unknown = false;
    return g3_ids_append(w->ids, id, w->error);
}

static g3_status give_bytes(work *w, uint32_t start, uint32_t count) {
    const g3_tokenizer *v = w->vocabulary;
    for (uint32_t i = start; i < start + count; i++) {
        int32_t id = v->no_bytes ? G3_NO_ID : v->byte_id[(uint8_t)w->text[i]];
        g3_status status = G3_OK;
        if (id != G3_NO_ID) {
            status = give(w, id);
        } else if (!w->after_unknown) {
            status = give(w, v->special.unknown);
            w->after_unknown = true;
        }
        if (status != G3_OK)
            return status;
    }
    return G3_OK;
}

/* Takes the last merge of a symbol back: it is then what it was before, and
 * *out_right what it was merged with. */
static void take_back(work *w, int32_t index, int32_t *out_right) {
    symbol *a = &w->symbols[index];
    *out_right = a->last;
    a->count -= w->symbols[a->last].count;
    a->last = w->symbols[a->last].before;
    a->id = g3_vocabulary_find(w->vocabulary, w->text + a->start, a->count);
}

/* Pieces of type "unused" serve merging only: they fall apart again. */
static g3_status give_symbol(work *w, int32_t index) {
    size_t depth = 0;
    for (;;) {
        symbol *a = &w->symbols[index];
        g3_status status;
        bool usable = a->id != G3_NO_ID && w->vocabulary->tokens[a->id].kind != G3_TOKEN_UNUSED;
        if (!usable && a->last != NOTHING) {
            int32_t right;
            status = g3_grow(&w->stack, &w->stack_capacity, depth, sizeof w->stack[0], w->error);
            if (status != G3_OK)
                return status;
            take_back(w, index, &right);
            w->stack[depth++] = right;
            continue;
        }
        status = usable ? give(w, a->id) : give_bytes(w, a->start, a->count);
        if (status != G3_OK || depth == 0)
            return status;
        index = w->stack[--depth];
    }
}

static g3_status encode_fragment(work *w, const char *text, size_t count) {
    if (count == 0)
        return G3_OK;
    w->text = text;
    g3_status status = split_characters(w, count);
    if (status == G3_OK)
        status = merge(w);
    for (int32_t i = 0; status == G3_OK && i != NOTHING; i = w->symbols[i].next)
        status = give_symbol(w, i);
    return status;
}

/* ---- The whole text --------------------------------------------------------------- */

/* The text with U+2581 for spaces; malloc'ed. */
static char *normalised(const char *text, size_t count, size_t *out_count) {
    size_t spaces = 0, made = 0;
    for (size_t i = 0; i < count; i++)
        spaces += text[i] == ' ';
    char *out = malloc(count + 2 * spaces + 1);
    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        if (text[i] == ' ') {
            memcpy(out + made, "\xE2\x96\x81", 3);
            made += 3;
        } else {
            out[made++] = text[i];
        }
    }
    *out_count = made;
    return out;
}

static g3_status encode_cut(work *w, const char *text, size_t count, bool parse_special) {
    size_t begin = 0, at = 0;
    while (at < count) {
        size_t length = 0;
        int32_t id =
            g3_vocabulary_cut(w->vocabulary, text + at, count - at, parse_special, &length);
        if (id == G3_NO_ID) {
            at++;
            continue;
        }
        g3_status status = encode_fragment(w, text + begin, at - begin);
        if (status == G3_OK)
            status = give(w, id);
        if (status != G3_OK)
            return status;
        at += length;
        begin = at;
    }
    return encode_fragment(w, text + begin, count - begin);
}

g3_status g3_tokenizer_encode(const g3_tokenizer *tokenizer, const char *text, size_t count,
                              bool parse_special, g3_ids *ids, g3_error *error) {
    work w = {.vocabulary = tokenizer, .ids = ids, .error = error};
    size_t old_count = ids->count, length = 0;
    if (count == 0)
        return G3_OK;
    if (count > MOST_TEXT)
        return g3_fail(error, G3_INVALID, "a text of %zu bytes is longer than %zu", count,
                       MOST_TEXT);
    char *key = normalised(text, count, &length);
    if (key == NULL)
        return g3_fail(error, G3_HOST_MEMORY, "out of memory for a text of %zu bytes", count);
    g3_status status = encode_cut(&w, key, length, parse_special);
    if (status != G3_OK)
        ids->count = old_count;
    free(key);
    free(w.symbols);
    free(w.heap);
    free(w.stack);
    return status;
}
