/*
 * tensors.h - answers whose results are bytes: a header, and the tensors after it. The tensors are
 * sent from where they were computed.
 *
 * To add a format of bodies and answers: grep -rn API_SAFETENSORS server shows most places; its
 * media type stands here, and tensors.c writes it. decoder.c knows a body by its headers, and adds
 * its tensors and options to a build; format.c chooses the form of an answer. The bytes of a format
 * are read and written in a file of server/codec/, and the names of its types are a column of
 * CODEC_TYPES in binary.h, which each macro over it takes. Add a body to tests/support/binary.c,
 * rows to tests/data/exchanges.txt, a fuzz target, its media types to openapi.yaml and
 * server/clients/README.md, and what reads it to files.js and worker.js of the explorer.
 */
#ifndef API_TENSORS_H
#define API_TENSORS_H

#include "api/api.h"
#include "codec/binary.h"

#define TENSORS_SAFETENSORS "application/vnd.safetensors" /* the media type */

/* An answer with binary tensors. Zero-initialise. It is a part of the request, so it lives until
 * its last byte is sent. */
struct tensors_answer {
    struct codec_results results; /* the tensors that are sent, in this order */
    struct codec_buffer header;   /* the bytes before the tensors */
    size_t unchecked; /* numbers that tensors_check() must check before the response is filled */
    /* Only tensors.c uses the rest: the next number to be looked at, and then the next byte to be
     * sent. */
    bool in_results; /* the byte is behind the header */
    size_t result;   /* the index of its result */
    size_t offset;   /* its offset in the header or in the result */
};

/* Lists the results of an answer in request->tensors. Returns false after filling the response if
 * there is no memory. */
bool tensors_list(struct api_request *request, const struct codec_items *items);

/* Answers with the header and the results of request->tensors. Answers with a 422 if a number is
 * out of the range of its type, and with a 503 or a 413 if there is no memory. While
 * request->tensors.unchecked is not 0, the response is not filled yet. */
void tensors_send(struct api_request *request);

/* Checks the next numbers, at most `most`, and fills the response after the last one. Does nothing
 * if there are none. */
void tensors_check(struct api_request *request, size_t most);

/* Answers with the results in a list of items as safetensors, as tensors_send() does, and frees the
 * list. */
void tensors_reply(struct api_request *request, struct codec_items *items);

#endif
