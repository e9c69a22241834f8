/*
 * generated.h - the matrices that a request does not contain but describes: matrices that are
 * drawn, and the rows of an embedding that the words of the request stand for.
 *
 * request.c calls generated_make() before the handler. From then on these matrices are tensors of
 * the body, whose shapes are known and whose numbers are still zero. The handler checks and plans
 * with them, so nothing is drawn for a request that is refused. request.c then puts the phases that
 * fill the tensors before those of the handler's work.
 */
#ifndef API_GENERATED_H
#define API_GENERATED_H

#include "api/call/draw.h"
#include "codec/codec.h"
#include "jobs/jobs.h"

struct fields;
struct generated_draw;

/* Zero-initialise. Part of the request. */
struct generated {
    /* Handlers and answers read these members. */
    struct codec_words *words;   /* of "text" or "tokens", NULL if neither is given */
    const struct codec_value *x; /* the embedded words, which stand in place of X, or NULL */
    double cost;                 /* multiply-adds that take as long as filling the tensors */

    /* Only generated.c reads the rest. */
    attn_dtype dtype; /* the dtype of the matrices of the body */
    struct draw_generator generator;
    size_t elements;              /* numbers of all draws together */
    struct generated_draw *draws; /* in the order in which the request names them */
    size_t draw_count, draw_capacity;
    size_t next;      /* the draw that the next task goes on with */
    size_t drawn;     /* elements of that draw that are drawn already */
    attn_tensor rows; /* the embedding */
    char *embedded;   /* the rows of the words, borrowed from the body; NULL without an embedding */
    struct job_phases drawing, copying;
};

/* Returns the number of parts that a handler has to plan for: the heads of all batch items, and
 * some for each packed sequence. It follows from "heads" and from the shapes of the matrices, given
 * or to be drawn. The result is at least 1 and at most 2^20, because a handler refuses more at
 * once. A member that is wrong counts as 1, because the handler refuses it. */
double generated_parts(const struct fields *fields, const struct codec_document *document);

/* Reads the words and the draws of a request, checks them, and makes a tensor of each, which takes
 * its memory from the account. The embedded words become X in `fields`. The generated matrices
 * borrow from the document. Returns false with the error set. */
bool generated_make(struct generated *generated, struct fields *fields,
                    struct codec_document *document, struct codec_error *error);

/* Puts what fills the tensors before the phases of a job. */
void generated_begin(struct generated *generated, struct job *job);

/* Frees what the account does not own, and leaves zeros, which may be freed again. */
void generated_free(struct generated *generated);

#endif
