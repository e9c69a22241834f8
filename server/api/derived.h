/*
 * derived.h - what a request leaves to be made before it is computed: the matrices that are to be
 * drawn, and the rows of an embedding that its words stand for. A handler calls prepare_matrices()
 * before it reads any matrix. From then on these are tensors of the body, of known shape and still
 * zero: the handler checks and plans as if they were there, and nothing is drawn for a request that
 * is refused. app.c then runs the job of prepare_job() instead of the work's own.
 */
#ifndef API_DERIVED_H
#define API_DERIVED_H

#include "api/draw.h"
#include "codec/codec.h"
#include "jobs/jobs.h"

struct api_request;
struct prepare_draw;

/* Zero-initialise; owned by the exchange. */
struct prepare {
    /* For the handler and its answer. */
    struct codec_words *words;   /* of text or tokens; NULL if neither is given */
    const struct codec_value *x; /* the embedded words, in place of X; NULL if there are none */
    double cost;                 /* in multiply-adds */

    /* Of derived.c alone. */
    struct account *account; /* what counts the draws */
    attn_dtype dtype;        /* of the body's matrices */
    struct draw_generator generator;
    size_t elements;            /* of all draws */
    struct prepare_draw *draws; /* in their order */
    size_t draw_count, draw_capacity;
    size_t batches;     /* tasks of all draws */
    size_t next, drawn; /* the next draw, and how many of its elements are drawn */
    attn_tensor rows;   /* of the embedding */
    char *embedded;     /* those of the words, NULL if there are none */
    struct job job, *then;
};

/* Returns the number of parts that a handler has to plan for: the heads of all batch items. It is
 * read from the shapes of the body's matrices, whether they are given or to be drawn. The result is
 * at least 1 and at most 2^20, because a handler refuses more at once. A member that is wrong
 * counts as 1: the handler refuses it. */
double prepare_parts(const struct codec_document *document);

/* Does all that needs no time: words, shapes, limits, memory. False with the error set. */
bool prepare_matrices(const struct api_request *request, struct codec_error *error);

/* The job that makes what is to be made and then does what `then` does, which is borrowed and is
 * `then` itself if nothing is to be made. `done`, `owner` and the deadline are for the caller to
 * fill. */
struct job *prepare_job(struct prepare *prepare, struct job *then);

/* Frees what it owns and leaves zeros, which may be freed again. */
void prepare_free(struct prepare *prepare);

#endif
