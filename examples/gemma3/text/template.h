/* SPDX-License-Identifier: MIT */
#ifndef GEMMA3_TEMPLATE_H
#define GEMMA3_TEMPLATE_H

/* Gemma-3's chat format as token ids. Text of people and of the model never
 * becomes a control token; exactly one <bos> begins a conversation. */

#include "tokenizer.h"

/* Where an image stands among the ids: `tokens` placeholders from `begin`. */
typedef struct g3_image_span {
    size_t begin;
    size_t tokens;
    size_t image; /* index of the image among those given, in order */
} g3_image_span;

typedef struct g3_prompt {
    g3_ids ids;
    g3_image_span *images; /* malloc'ed */
    size_t image_count;
} g3_prompt;
void g3_prompt_free(g3_prompt *prompt);

typedef enum g3_role { G3_ROLE_SYSTEM, G3_ROLE_USER, G3_ROLE_MODEL } g3_role;

/* One message. images: how many pictures it brings; G3_IMAGE_MARK in the text
 * says where each goes; pictures without a mark go in front of the text. More
 * marks than pictures is INVALID. A mark is a private sequence that typed text
 * cannot contain (G3_IMAGE_MARK begins with the byte 0x1D, which
 * g3_template_clean takes out of typed text). */
#define G3_IMAGE_MARK "\x1dimage\x1d"
typedef struct g3_message {
    g3_role role;
    const char *text;
    size_t count;
    size_t images;
} g3_message;

/* How turns are told apart. Instruction-tuned models were made for Gemma's control
 * tokens. A base model has never seen them and answers them with noise: for it a
 * conversation is written as plain text, "User: ...\nAssistant: ...\n", an answer is one
 * paragraph, and nothing keeps typed text from imitating a speaker's name. */
typedef enum g3_style { G3_STYLE_TURNS = 0, G3_STYLE_DIALOGUE = 1 } g3_style;

/* What a dialogue begins with where nobody gave a system text: it shows a base model
 * what is expected, in two languages. */
#define G3_DIALOGUE_INTRODUCTION                                                     \
    "A conversation with a helpful assistant that answers in the user's language.\n" \
    "\n"                                                                             \
    "User: What is the largest planet?\n"                                            \
    "Assistant: The largest planet in our solar system is Jupiter.\n"                \
    "User: 하늘은 무슨 색인가요?\n"                                         \
    "Assistant: 하늘은 파란색입니다."

/* The style a checkpoint was made for. TURNS: a GGUF file or a folder that brings a
 * chat template, a GGUF file that ends answers with <end_of_turn> or is called "it",
 * "instruct" or "chat" by general.finetune or general.name, or a folder that says nothing
 * of its tokenizer. DIALOGUE: all others, and vocabularies without turn tokens. Errors: IO,
 * INVALID (a tokenizer_config.json that is no JSON), HOST_MEMORY. */
g3_status g3_style_of(const g3_checkpoint *checkpoint, const g3_tokenizer *tokenizer,
                      g3_style *out_style, g3_error *error);

typedef struct g3_template {
    const g3_tokenizer *tokenizer;
    uint32_t image_tokens;                 /* per picture; 0: the model takes none */
    int32_t image_begin, image_end, image; /* ids, of the config or the tokenizer */
    g3_style style;
} g3_template;

/* Appends to a prompt what a new turn adds to a conversation.
 *
 * g3_template_begin: <bos>, if the prompt is empty.
 * g3_template_turn: "<start_of_turn>user\n" system + "\n\n" + text (trimmed)
 *   "<end_of_turn>\n<start_of_turn>model\n". system may be NULL or empty: none.
 *   Every picture is
 *   "\n\n<start_of_image>" tokens "<end_of_image>\n\n".
 * g3_template_answer_end: "<end_of_turn>\n", what follows the model's answer; with
 *   ended true the model itself produced <end_of_turn> and it is in the
 *   conversation already.
 * Errors: INVALID (marks and pictures do not agree, a model without vision, a
 * vocabulary without turn tokens), HOST_MEMORY. On failure the prompt is as before. */
g3_status g3_template_begin(const g3_template *format, g3_prompt *prompt, g3_error *error);
g3_status g3_template_turn(const g3_template *format, const char *system, const g3_message *user,
                           g3_prompt *prompt, g3_error *error);
g3_status g3_template_answer_end(const g3_template *format, bool ended, g3_prompt *prompt,
                                 g3_error *error);

/* A whole list of messages, with <bos> in front if the prompt is empty and the
 * generation prompt at the end if asked.
 * Leading system messages are joined by blank lines and go in front of the first
 * user message (in a dialogue: of its speaker's name); messages of one role in a row are joined by
 * a blank line; an empty message is a turn with empty text. INVALID: a model's message first, a
 * system message later, no user message. */
g3_status g3_template_messages(const g3_template *format, const g3_message *messages, size_t count,
                               bool generation_prompt, g3_prompt *prompt, g3_error *error);

/* Takes the byte 0x1D out of typed text, in place; returns the new length. */
size_t g3_template_clean(char *text, size_t count);

#endif
