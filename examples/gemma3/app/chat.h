/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_CHAT_H
#define GEMMA3_CHAT_H

/* The parts of `gemma3 chat`. One thread; everything hangs on one g3_chat. */

#include "../engine/sampler.h"
#include "../engine/session.h"
#include "../text/template.h"
#include "input.h"
#include "options.h"
#include "recorder.h"
#include "script.h"

#define G3_CHAT_STYLE_AUTO (-1) /* what the checkpoint was made for */

typedef struct g3_chat_options {
    const char *model, *mmproj, *device;
    const char *script, *stats_json, *trace;
    g3_texts images, system;
    uint64_t context, chunk, max_tokens, seed, top_k, threads;
    double temperature, top_p;
    int32_t kv_type, precision, backing;
    int32_t style; /* g3_style, or G3_CHAT_STYLE_AUTO */
    g3_optimizer_options optimizer;
    bool stats, quiet;
} g3_chat_options;

/* The command line into options; defaults where it says nothing. */
g3_parsed g3_chat_options_parse(int argc, char **argv, g3_chat_options *out_options);

/* Ids that end an answer: those of the files and of the tokenizer. */
typedef struct g3_stops {
    int32_t ids[G3_MAX_STOP_IDS + 2];
    size_t count;
} g3_stops;
void g3_stops_collect(const g3_token_config *config, const g3_special *special,
                      g3_stops *out_stops);
bool g3_stops_has(const g3_stops *stops, int32_t id);

typedef enum g3_end {
    G3_END_TURN = 0,        /* the model ended its answer */
    G3_END_MAX_TOKENS = 1,  /* --max-tokens */
    G3_END_INTERRUPTED = 2, /* Ctrl-C */
    G3_END_CONTEXT = 3,     /* no position is left */
    G3_END_MEMORY = 4,      /* refused for device memory */
    G3_END_FAILED = 5       /* anything else; the text says what */
} g3_end;
const char *g3_end_text(g3_end end);

/* A call of the optimizer. */
typedef struct g3_decision {
    bool called;
    vrp_optimizer_report report;
} g3_decision;

/* A turn: its texts, where it is in the cache, and its figures. */
typedef struct g3_turn {
    uint64_t index;        /* from 1, over the whole run */
    uint64_t conversation; /* from 1; every /clear begins the next */
    char *user;            /* malloc'ed; NULL once its conversation was cleared */
    size_t user_count;
    char *answer; /* as user */
    size_t answer_count;
    bool added;                        /* the message is in the conversation */
    bool dropped;                      /* and was, until /shorten took it out */
    uint32_t prompt_begin, prompt_end; /* positions of what the message added */
    g3_end end;
    int32_t stop_id; /* the token that ended the answer, never printed; or G3_NO_ID */
    g3_error error;  /* of ends that are failures */
    size_t images;
    size_t prompt_tokens, new_tokens;
    double prompt_seconds, answer_seconds;
    uint32_t length;                                   /* of the conversation afterwards */
    g3_memory_report memory;                           /* before the optimizer's step */
    uint64_t peak_activation_bytes, peak_vision_bytes; /* in the turn */
    uint64_t trims_inside;          /* calls of trim while the turn was at work */
    uint64_t released_inside_bytes; /* bytes that left the pool meanwhile, by whatever cause */
    uint64_t retries;               /* requests that went through after a trim */
    g3_decision step, idle;
    g3_memory_report after; /* and afterwards */
} g3_turn;

typedef struct g3_clear {
    uint64_t after_turn;
    uint64_t reserved_before_bytes, reserved_after_bytes;
    uint64_t allocated_after_bytes, weights_bytes;
} g3_clear;

typedef struct g3_shortening {
    uint64_t after_turn;
    uint32_t length_before, length_after;
    size_t turns_dropped;
} g3_shortening;

/* A picture for the next message, of the size that the model takes. */
typedef struct g3_attachment {
    g3_image image;
    char *path;
} g3_attachment;

typedef struct g3_chat {
    g3_chat_options options;
    g3_memory memory;
    bool memory_open;
    g3_checkpoint *checkpoint;
    g3_tokenizer *tokenizer;
    g3_model *model;
    g3_session *session;
    vrp_optimizer *optimizer; /* NULL: off */
    g3_recorder *recorder;    /* NULL: no trace */
    g3_input input;
    bool scripted, colour;

    g3_template format;
    g3_stops stops;
    g3_sampler sampler;
    g3_candidate *candidates; /* [vocab] */
    float *logits;            /* [vocab] */

    char *system_text; /* or NULL */
    bool begun;        /* <bos> and the system text are in the conversation */
    int32_t unfed;     /* the last token that was printed, not in the cache yet; or G3_NO_ID */
    g3_attachment pictures[G3_MAX_TEXTS];
    size_t picture_count;

    g3_turn *turns;
    size_t turn_count, turn_room;
    uint64_t conversation;
    g3_clear *clears;
    size_t clear_count;
    g3_shortening *shortenings;
    size_t shortening_count;
    uint64_t idle_calls, idle_acts, idle_released_bytes;
    uint64_t peak_allocated_bytes, peak_reserved_bytes;
    /* What the JSON says once everything is closed. */
    char name[64];
    uint64_t weights_bytes, device_bytes;
    uint32_t context;
    size_t refused;  /* turns that memory or context did not allow */
    size_t mistakes; /* script lines that could not be done, turns that failed */
} g3_chat;

/* ---- chat_open.c ---------------------------------------------------------- */

/* Opens everything in order; on failure g3_chat_close still has to be called. */
g3_status g3_chat_open(g3_chat *chat, g3_error *error);
/* Gives everything back, writes the JSON and ends the trace. The exit status. */
int g3_chat_close(g3_chat *chat);
/* After an interrupt, asked by the engine between chunks. */
int g3_chat_stop(void *user);

/* ---- turn.c ---------------------------------------------------------------- */

/* One turn with the waiting pictures: the message, the answer as it comes, then
 * the optimizer's step. What goes wrong is told; the conversation stays whole. */
void g3_chat_turn(g3_chat *chat, const char *text, size_t count);

/* ---- prompt.c --------------------------------------------------------------- */

/* The ids of a message and of what has to stand in front of it. first: as the first
 * message of a conversation, whatever there is by now. The prompt is the caller's. */
g3_status g3_chat_prompt(const g3_chat *chat, bool first, const char *text, size_t count,
                         size_t images, g3_prompt *out_prompt, g3_error *error);

/* ---- actions.c: what lines with a slash do ------------------------------------ */

/* A picture for the next message; false: it could not be had, which was told. */
bool g3_chat_image(g3_chat *chat, const char *path);
void g3_chat_pictures_drop(g3_chat *chat);
void g3_chat_clear(g3_chat *chat);
void g3_chat_empty(g3_chat *chat);
void g3_chat_shorten(g3_chat *chat, uint64_t most);
/* Tells of a line that could not be done, and counts it. */
void g3_chat_mistake(g3_chat *chat, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- boundary.c: the optimizer ------------------------------------------------- */

/* Between turns: one step and, in a script, one call for idle work. */
void g3_chat_boundary(g3_chat *chat, g3_turn *turn);
/* While the program waits for a line: a g3_idle_fn. */
bool g3_chat_idle(void *user);
/* "looked: gap 41.2 MiB is above 32.0 MiB; gave back 40.0 MiB in 0.31 ms". */
void g3_decision_text(const g3_decision *decision, char *text, size_t text_bytes);

/* Figures for people. */
static inline double g3_mib(uint64_t bytes) { return (double)bytes / 1048576.0; }
static inline double g3_per_second(size_t tokens, double seconds) {
    return seconds > 0.0 ? (double)tokens / seconds : 0.0;
}

/* ---- report.c -------------------------------------------------------------------- */

void g3_report_layers(const g3_memory_report *report);
void g3_report_turn(const g3_chat *chat, const g3_turn *turn);
void g3_report_now(g3_chat *chat);

/* ---- save.c ------------------------------------------------------------------------ */

/* Writes the conversation to `path` and its figures to `path`.json, both new. */
void g3_chat_save(g3_chat *chat, const char *path);

/* ---- stats.c ----------------------------------------------------------------------- */

struct json_t;
/* A new object with the figures of one turn; NULL: no host memory. */
struct json_t *g3_stats_turn(const g3_turn *turn);
/* The whole run; left: what the device held after closing. As above. */
struct json_t *g3_stats_run(const g3_chat *chat, const char *pool_check,
                            const vrp_optimizer_stats *optimizer, uint64_t left);

#endif
