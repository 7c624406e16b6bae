/* SPDX-License-Identifier: MIT */
/* A SentencePiece model file: the protocol buffer ModelProto of
 * sentencepiece_model.proto, of which only the pieces are read. */

#include "../files/map.h"
#include "vocabulary.h"

#include <stdio.h>
#include <string.h>

#define MOST_BYTES ((size_t)256 << 20) /* of a tokenizer.model */

/* A part of the file that is still to be read. */
typedef struct reader {
    const uint8_t *bytes;
    size_t count, at;
} reader;

typedef struct field {
    uint32_t number, wire; /* 0 varint, 1 and 5: 8 and 4 bytes, 2: a part */
    uint64_t value;        /* of a varint */
    reader part;           /* of the others */
} field;

static bool read_varint(reader *r, uint64_t *out_value) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (r->at == r->count)
            return false;
        uint8_t byte = r->bytes[r->at++];
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *out_value = value;
            return true;
        }
    }
    return false;
}

static bool read_field(reader *r, field *out) {
    uint64_t tag, length;
    if (!read_varint(r, &tag) || tag >> 3 == 0 || tag >> 3 > UINT32_MAX)
        return false;
    out->number = (uint32_t)(tag >> 3);
    out->wire = (uint32_t)(tag & 7);
    out->value = 0;
    out->part = (reader){0};
    switch (out->wire) {
    case 0:
        return read_varint(r, &out->value);
    case 1:
        length = 8;
        break;
    case 2:
        if (!read_varint(r, &length))
            return false;
        break;
    case 5:
        length = 4;
        break;
    default: /* groups are not in this format */
        return false;
    }
    if (length > r->count - r->at)
        return false;
    out->part = (reader){r->bytes + r->at, (size_t)length, 0};
    r->at += (size_t)length;
    return true;
}

/* Message SentencePiece: 1 the text, 2 the score, 3 the type. */
static g3_status read_piece(reader r, size_t id, g3_tokenizer *v, g3_error *error) {
    reader text = {(const uint8_t *)"", 0, 0};
    float score = 0;
    int64_t kind = G3_TOKEN_NORMAL;
    while (r.at < r.count) {
        field f;
        if (!read_field(&r, &f))
            return g3_fail(error, G3_INVALID, "piece %zu is cut off or no protocol buffer", id);
        if (f.number == 1 && f.wire == 2)
            text = f.part;
        else if (f.number == 2 && f.wire == 5)
            memcpy(&score, f.part.bytes, sizeof score);
        else if (f.number == 3 && f.wire == 0)
            kind = f.value > G3_TOKEN_BYTE ? G3_TOKEN_NORMAL : (int64_t)f.value;
    }
    return g3_vocabulary_set(v, (int64_t)id, (const char *)text.bytes, text.count, kind, score,
                             error);
}

/* Message TrainerSpec: 3 is the kind of model, of which 2 is BPE. */
static g3_status check_trainer(reader r, g3_error *error) {
    while (r.at < r.count) {
        field f;
        if (!read_field(&r, &f))
            return g3_fail(error, G3_INVALID, "the trainer's part is cut off");
        if (f.number == 3 && f.wire == 0 && f.value != 2)
            return g3_fail(error, G3_UNSUPPORTED,
                           "a SentencePiece model of kind %llu; only 2 (BPE) is read",
                           (unsigned long long)f.value);
    }
    return G3_OK;
}

/* Message NormalizerSpec: 3 puts a space in front of every text. */
static g3_status check_normalizer(reader r, g3_error *error) {
    while (r.at < r.count) {
        field f;
        if (!read_field(&r, &f))
            return g3_fail(error, G3_INVALID, "the normalizer's part is cut off");
        if (f.number == 3 && f.wire == 0 && f.value != 0)
            return g3_fail(error, G3_UNSUPPORTED,
                           "a SentencePiece model with add_dummy_prefix, which is not done");
    }
    return G3_OK;
}

static g3_status read_model(reader r, g3_tokenizer *v, g3_error *error) {
    size_t pieces = 0;
    while (r.at < r.count) {
        size_t offset = r.at;
        field f;
        g3_status status = G3_OK;
        if (!read_field(&r, &f))
            return g3_fail(error, G3_INVALID, "cut off or no protocol buffer at offset %zu",
                           offset);
        if (f.number == 1 && f.wire == 2)
            status = read_piece(f.part, pieces++, v, error);
        else if (f.number == 2 && f.wire == 2)
            status = check_trainer(f.part, error);
        else if (f.number == 3 && f.wire == 2)
            status = check_normalizer(f.part, error);
        if (status != G3_OK)
            return status;
    }
    return G3_OK;
}

static g3_status add_from_beside(g3_tokenizer *vocabulary, const char *path, g3_error *error) {
    char folder[4096];
    const char *end = strrchr(path, '/');
    if (end == NULL)
        return g3_vocabulary_add_from_folder(vocabulary, ".", error);
    if ((size_t)(end - path) + 1 >= sizeof folder)
        return g3_fail(error, G3_INVALID, "the path of the vocabulary is too long");
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(end - path) + 1, path);
    return g3_vocabulary_add_from_folder(vocabulary, folder, error);
}

g3_status g3_tokenizer_from_model(const char *path, g3_tokenizer **out_tokenizer, g3_error *error) {
    g3_map map;
    g3_tokenizer *vocabulary = NULL;
    g3_status status = g3_map_open(path, &map, error);
    *out_tokenizer = NULL;
    if (status != G3_OK)
        return status;
    if (map.count > MOST_BYTES)
        status = g3_fail(error, G3_INVALID, "larger than %zu bytes", MOST_BYTES);
    if (status == G3_OK)
        status = g3_vocabulary_create(&vocabulary, error);
    if (status == G3_OK)
        status = read_model((reader){map.bytes, map.count, 0}, vocabulary, error);
    g3_map_close(&map);
    if (status == G3_OK)
        status = add_from_beside(vocabulary, path, error);
    if (status == G3_OK)
        status = g3_vocabulary_finish(vocabulary, error);
    if (status != G3_OK) {
        g3_tokenizer_close(vocabulary);
        return g3_fail_in(error, status, path);
    }
    *out_tokenizer = vocabulary;
    return G3_OK;
}
