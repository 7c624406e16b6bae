/* SPDX-License-Identifier: MIT */
#ifndef BENCH_ADAPTORS_H
#define BENCH_ADAPTORS_H

/* The allocators that are compared, and how each is found. */

#include "adaptor.h"

typedef struct bench_peer {
    const char *id;      /* "torch-expandable" */
    const char *library; /* a shared object among the adaptors; NULL: built in */
    const char *variant;
    const char *environment; /* of PYTORCH_CUDA_ALLOC_CONF; NULL: unset */
    int on_sim;              /* it runs on the simulated device too */
} bench_peer;

extern const bench_peer bench_peers[];
extern const size_t bench_peer_count;

/* NULL: there is no such peer. */
const bench_peer *bench_peer_find(const char *id);

/* Its table, or NULL and why not in `out_reason`. `folder` holds the shared
 * objects; NULL where there are none. */
const bench_adaptor *bench_peer_load(const bench_peer *peer, const char *folder, char *out_reason,
                                     size_t reason_bytes);

/* Built in. */
extern const bench_adaptor bench_adaptor_vrampool, bench_adaptor_none;
extern const bench_adaptor bench_adaptor_cuda_malloc, bench_adaptor_cuda_async;

#endif
