/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_HASH_H
#define GEMMA3_HASH_H

/* Hashes of what files hold. A key that differs from run to run keeps a file from being
 * made so that its names fall into one place of a table: SipHash with one round a word and
 * three at the end (Aumasson and Bernstein, "SipHash: a fast short-input PRF"). */

#include <stddef.h>
#include <stdint.h>

typedef struct g3_hash_key {
    uint64_t word[2];
} g3_hash_key;

/* A key of the system's random numbers; where there are none, of addresses and the time. */
g3_hash_key g3_hash_key_make(void);

uint64_t g3_hash(const g3_hash_key *key, const void *bytes, size_t count);

#endif
