/*
 * tensors.h - answers whose results are bytes: a header, and the tensors after it. The tensors are
 * sent from where they were computed.
 */
#ifndef API_TENSORS_H
#define API_TENSORS_H

#include "api/api.h"
#include "codec/binary.h"

#define TENSORS_SAFETENSORS "application/vnd.safetensors" /* the media type */

/* An answer with binary tensors. Zero-initialise. Owned by the exchange in app.c, so it lives until
 * its last byte is sent. */
struct tensors_answer {
    struct codec_results results; /* the tensors that are sent, in this order */
    struct codec_buffer header;   /* what stands before them */
    struct account *account;      /* borrowed; counts both */
    size_t header_counted;        /* bytes of the header that are taken from the account */
    size_t next, done; /* the tensor that the next bytes are of, and its bytes so far; the header is
                          number 0 */
};

/* Lists the results of an answer in request->tensors. Returns false after filling `response` if
 * there is no memory. */
bool tensors_list(const struct api_request *request, struct http_response *response,
                  const struct codec_item *items, size_t count);

/* Answers with the header and the results of request->tensors. Answers with a 422 if a number is
 * out of the range of its type, and with a 503 or a 413 if there is no memory. */
void tensors_send(const struct api_request *request, struct http_response *response);

/* Answers with the results of the items as safetensors. */
void tensors_reply(const struct api_request *request, struct http_response *response,
                   const struct codec_item *items, size_t count);

void tensors_free(struct tensors_answer *answer);

#endif
