/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_SESSION_INTERNAL_H
#define GEMMA3_SESSION_INTERNAL_H

/* What session.c and session_replace.c share. */

#include "forward.h"
#include "session.h"

struct g3_session {
    g3_model *model;
    g3_session_options options;
    vrp_scope scope;
    g3_cache cache;
    g3_ids ids;
    uint32_t cached;
    g3_picture *pictures;
    size_t picture_count, picture_capacity;
};

/* The cache keeps no position at or beyond `length`. */
void g3_session_cut_cache(g3_session *session, uint32_t length);
/* INVALID: no row of the embedding, or the placeholder of a picture that nobody gave; the
 * text says so of position `at`. */
g3_status g3_session_check_id(const g3_session *session, int32_t id, size_t at, g3_error *error);
/* CONTEXT_FULL: more positions than the context has. */
g3_status g3_session_check_room(const g3_session *session, uint64_t positions, g3_error *error);

#endif
