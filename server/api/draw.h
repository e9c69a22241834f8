/*
 * draw.h - {"random": ...} as a request says it: the generator of the whole request, and a matrix
 * to be drawn from it. Draws nothing and keeps nothing.
 */
#ifndef API_DRAW_H
#define API_DRAW_H

#include "codec/codec.h"

enum {
    DRAW_MAX_RANK = 4
};

struct draw {
    attn_draw draw;
    int rank;
    size_t shape[DRAW_MAX_RANK];
    const struct codec_value *discard; /* a list of draws that come before it, or NULL */
};

/* The one of a request. */
struct draw_generator {
    attn_generator kind;
    attn_random *random; /* owned; NULL if the request names none */
};

/* Creates what the top-level "random" asks for. */
bool draw_generator_read(const struct codec_document *document, struct draw_generator *generator,
                         struct codec_error *error);

/* Is there one? If not, it is missing for `value`. */
bool draw_generator_check(const struct codec_document *document, const struct codec_value *value,
                          const struct draw_generator *generator, struct codec_error *error);

/* Reads an object {"random": ...} and checks all but what its size takes. `may_discard`: it may
 * have draws before it. */
bool draw_read(const struct codec_document *document, const struct codec_value *object,
               const struct draw_generator *generator, bool may_discard, struct draw *out,
               struct codec_error *error);

#endif
