/*
 * build.h - the body of a call, built of a request whose tensors are bytes: what the JSON body of
 * the endpoint would be. The handlers and the table of fields therefore know only JSON. A reader of
 * a format adds tensors and options to an object, which becomes the root of the document.
 */
#ifndef API_BUILD_H
#define API_BUILD_H

#include "codec/binary.h"

/* A tensor that the request describes. Everything is borrowed from the document. */
struct build_tensor {
    const char *name;
    struct codec_tensor_spec spec;  /* build_add_tensor() sets `own_type` and `exact` */
    const struct codec_value *data; /* the array of its elements; NULL: its bytes follow */
    struct codec_value *member;     /* its place in the call; build_add_tensor() sets it */
};

struct build {
    struct codec_document *document; /* borrowed; the JSON that the client sent */
    struct codec_value *call;        /* the object */
    struct codec_value *expected;    /* its member whose tensors are results; NULL: there is none */
    size_t max_values;               /* values outside of arrays of numbers in an option */
    struct build_tensor tensors[CODEC_MAX_TENSORS];
    size_t tensor_count;
};

/* Begins a call without members. Returns false if there is no memory. */
bool build_begin(struct build *build, struct codec_document *document, size_t max_values);

/* Adds a tensor. One with a name such as "expected.output" becomes a member of an object, and keeps
 * its own float type. Errors: CODEC_NO_MEMORY; CODEC_CONTENT for more than CODEC_MAX_TENSORS
 * tensors, and for a name that is there. */
bool build_add_tensor(struct build *build, const struct build_tensor *tensor,
                      struct codec_error *error);

/* Finds the float type of the document when all tensors are there, from those that do not keep
 * their own and from the options, which are added after it; NULL: there are none. *floats becomes
 * the type of float results: that of the tensors of floats, if all have the same type and there is
 * no option "dtype". Errors: CODEC_NO_MEMORY. */
bool build_find_dtype(struct build *build, const struct codec_value *options,
                      enum codec_type *floats, struct codec_error *error);

/* Adds a member that is no tensor. Returns NULL with the error set: CODEC_NO_MEMORY; CODEC_CONTENT
 * for a name that is there. */
struct codec_value *build_add_member(struct build *build, const char *name, enum codec_kind kind,
                                     struct codec_error *error);

/* Adds an option: a number, a boolean, or a text, which is read as JSON if it is JSON. Errors: as
 * build_add_member(); CODEC_CONTENT for any other value. */
bool build_add_option(struct build *build, const char *name, const struct codec_value *value,
                      struct codec_error *error);

/* Ends the call, which becomes the root of the document. Arrays of the request become tensors, and
 * `stream` gets the tensors whose bytes follow. Errors: as codec_stream_add(), codec_move_tensor()
 * and codec_move_texts(). */
bool build_end(struct build *build, struct codec_stream *stream, struct codec_error *error);

#endif
