/*
 * bad_requests_rows.h - how the rows of bad_requests*.c are written, and the lists of other files.
 */
#ifndef SUPPORT_BAD_REQUESTS_ROWS_H
#define SUPPORT_BAD_REQUESTS_ROWS_H

#include "support/bad_requests.h"

/* A body that is not JSON from the byte `offset_` on. SAID also has texts of the detail. */
#define SYNTAX_OF(name_, body_, size_, offset_)                                                    \
    { .name = name_, .body = body_, .size = size_, .status = 400, .offset = offset_ }
#define SYNTAX(name_, body_, offset_) SYNTAX_OF(name_, body_, sizeof(body_) - 1, offset_)
#define SAID(name_, body_, offset_, ...)                                                           \
    {                                                                                              \
        .name = name_, .body = body_, .size = sizeof(body_) - 1, .status = 400, .offset = offset_, \
        .detail = {                                                                                \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
/* A body with a wrong value at `pointer_`, and texts of the detail. */
#define CONTENT(name_, body_, pointer_, ...)                                                       \
    {                                                                                              \
        .name = name_, .body = body_, .size = sizeof(body_) - 1, .status = 422,                    \
        .pointer = pointer_, .detail = {                                                           \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

#define END_OF_ROWS                                                                                \
    { .name = NULL }

/* A call that is correct except perhaps for its options: two queries, two keys, one head, two
 * columns. */
#define QKV           "\"Q\":[[1,2],[3,4]],\"K\":[[1,0],[0,1]],\"V\":[[5,6],[7,8]]"
#define CALL(options) "{" QKV "," options "}"

extern const struct bad_request bad_draws[], bad_drawn_heads[], bad_embeddings[]; /* _draws.c */
extern const struct bad_request bad_turns[], bad_extra_keys[];                    /* _turns.c */
extern const struct bad_request bad_calls[], bad_weights[], bad_logits[];         /* _beginners.c */

#endif
