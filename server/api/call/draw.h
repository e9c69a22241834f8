/*
 * draw.h - how a request describes what is drawn: the generator of the request, and a matrix
 * {"random": ...}. These functions only read and check; generated.c draws.
 */
#ifndef API_DRAW_H
#define API_DRAW_H

#include "codec/codec.h"

/* A matrix that is to be drawn. */
struct draw {
    attn_draw draw;
    int rank;
    size_t shape[ATTN_MAX_RANK];
    /* "discard": an array of draws that are made before this one and thrown away; NULL = none. */
    const struct codec_value *discard;
};

/* The generator of a request, from which all its draws are made. */
struct draw_generator {
    attn_generator kind;
    attn_random *random; /* owned; NULL if the request has no "random" */
};

/* Reads the value of the top-level key "random" and creates its generator. Errors: CODEC_CONTENT,
 * CODEC_NO_MEMORY; returns false with the error set. */
bool draw_generator_read(const struct codec_document *document, const struct codec_value *value,
                         struct draw_generator *generator, struct codec_error *error);

/* Returns false with the error set if the request has no generator, so that `value` cannot be
 * drawn. */
bool draw_generator_check(const struct codec_document *document, const struct codec_value *value,
                          const struct draw_generator *generator, struct codec_error *error);

/* Reads an object {"random": ...} and checks everything but the memory that it takes. The object
 * may have "discard" if `may_discard`. Returns false with the error set. */
bool draw_read(const struct codec_document *document, const struct codec_value *object,
               const struct draw_generator *generator, bool may_discard, struct draw *out,
               struct codec_error *error);

#endif
