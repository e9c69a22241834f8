/*
 * decoder.h - the request decoder: it reads the body of a request with matrices, from its first
 * byte to the document that the handler gets. A body is JSON, or its tensors are bytes: in
 * safetensors, or in the Open Inference Protocol, where JSON describes the tensors and their bytes
 * follow it. The bytes then go straight into the matrices of the document.
 */
#ifndef API_DECODER_H
#define API_DECODER_H

#include "api/api.h"
#include "api/formats/build.h"

/* A result that a request in the Open Inference Protocol asks for. */
struct decoder_output {
    const char *name; /* borrowed from the document */
    bool binary;
};

struct decoder {
    enum api_format format;
    unsigned fields;   /* the bit FIELDS_AT_* of the endpoint */
    const char *model; /* borrowed; the name of the endpoint */
    bool is_web_form;  /* the Content-Type says that the body is a form, as that of curl -d does */
    size_t json_size;  /* bytes of the JSON before the tensors; SIZE_MAX: all is JSON, or unknown */
    struct account *account; /* borrowed; counts all memory; NULL before decoder_open() */

    /* The answer needs these members of a request whose tensors are bytes. */
    enum codec_type floats; /* the type of float results */
    const char *id;         /* borrowed from the document, or NULL */
    bool binary;            /* results are binary unless their output says otherwise */
    struct decoder_output *outputs;
    size_t output_count; /* 0: all results */
    size_t output_capacity;

    /* Only decoder.c uses the rest. */
    enum decoder_stage {
        DECODER_IN_PREFIX, /* the eight bytes with the length of the JSON */
        DECODER_IN_JSON,
        DECODER_IN_TENSORS
    } stage;
    size_t seen;       /* bytes of the prefix or of the JSON so far */
    size_t text_bytes; /* of the texts among the tensors; inference.c sets it */
    unsigned char prefix[8];
    struct codec_reader *reader;     /* owned; reads the JSON, or NULL */
    struct codec_document *document; /* owned until decoder_finish() hands it over */
    struct codec_stream *stream;     /* NULL while no bytes of tensors are expected */
};

/* Finds the format of the body from the headers of the request. The format of its answer says
 * whether the path is one of the Open Inference Protocol. The decoder of the request is all zeros
 * before. Returns false after filling the response if the headers are wrong. */
bool decoder_begin(struct api_request *request);

/* Returns what the 413 of a body that is too long says about a shorter form of it, or an empty
 * text. */
const char *decoder_shorter(const struct http_request *request);

/* Prepares for the first byte. `json` says how a body in JSON is read. Returns false if there
 * is no memory. */
bool decoder_open(struct decoder *decoder, const struct codec_options *json);

/* Takes the next bytes of the body, which may be cut anywhere. Returns false with the error set. */
bool decoder_feed(struct decoder *decoder, const void *bytes, size_t size,
                  struct codec_error *error);

/* Return how much JSON the handler will look at: its values outside of matrices, and its bytes
 * outside of matrices, binary texts included. The data of inputs in the Open Inference Protocol
 * count as half as many bytes, because they are checked and converted before the call. */
size_t decoder_values(const struct decoder *decoder);
size_t decoder_bytes(const struct decoder *decoder);

/* Ends the body. Returns the document for the handler, owned, or NULL with the error set. */
struct codec_document *decoder_finish(struct decoder *decoder, struct codec_error *error);

/* Frees the reader, and the document if decoder_finish() has not handed it over. */
void decoder_drop(struct decoder *decoder);

#endif
