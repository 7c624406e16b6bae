/* SPDX-License-Identifier: MIT */
#include "hash.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

g3_hash_key g3_hash_key_make(void) {
    g3_hash_key key;
    if (getrandom(&key, sizeof key, GRND_NONBLOCK) != (ssize_t)sizeof key) {
        struct timespec now = {0};
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        key.word[0] = (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec;
        key.word[1] = (uint64_t)(uintptr_t)&key ^ (uint64_t)(uintptr_t)&g3_hash;
    }
    return key;
}

static uint64_t turned(uint64_t value, unsigned bits) {
    return value << bits | value >> (64 - bits);
}

static void mix(uint64_t v[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = turned(v[1], 13) ^ v[0];
    v[3] = turned(v[3], 16) ^ v[2];
    v[0] = turned(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = turned(v[1], 17) ^ v[2];
    v[3] = turned(v[3], 21) ^ v[0];
    v[2] = turned(v[2], 32);
}

static void take(uint64_t v[4], uint64_t word) {
    v[3] ^= word;
    mix(v);
    v[0] ^= word;
}

uint64_t g3_hash(const g3_hash_key *key, const void *bytes, size_t count) {
    const uint8_t *at = bytes;
    size_t left = count;
    uint64_t v[4] = {
        key->word[0] ^ UINT64_C(0x736f6d6570736575),
        key->word[1] ^ UINT64_C(0x646f72616e646f6d),
        key->word[0] ^ UINT64_C(0x6c7967656e657261),
        key->word[1] ^ UINT64_C(0x7465646279746573),
    };
    for (; left >= 8; left -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        take(v, word);
    }
    uint64_t last = (uint64_t)count << 56;
    for (size_t i = 0; i < left; i++)
        last |= (uint64_t)at[i] << (8 * i);
    take(v, last);
    v[2] ^= 0xff;
    mix(v);
    mix(v);
    mix(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
