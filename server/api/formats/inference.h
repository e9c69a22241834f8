/*
 * inference.h - the Open Inference Protocol v2: what the JSON of a request says, and the answer.
 * The protocol is described at https://github.com/kserve/open-inference-protocol, and its binary
 * tensors at https://github.com/triton-inference-server/server (docs/protocol). models.c has the
 * endpoints that describe the models.
 */
#ifndef API_INFERENCE_H
#define API_INFERENCE_H

#include <string.h>

#include "api/formats/decoder.h"
#include "layers/layers.h"

#define INFERENCE_PATH "/v2" /* all paths of the protocol are this one or below it */

/* Returns the route of a model, such as /attention for the name "attention", or NULL if no endpoint
 * has this name. */
const struct api_route *inference_model(const struct api_state *state, const char *name);

/* Returns the first route from this one on that is a model, or NULL. */
const struct api_route *inference_endpoint(const struct api_route *route);

/* Finds the endpoint or the stored layer that is the model of the path; its route becomes that of
 * the request. A client that needs a key and has none sees no stored layer. Returns false after
 * filling the response with a 404 that names the models. */
bool inference_find(struct api_request *request);

/* Answers with this 404. */
void inference_refuse_model(struct api_request *request);

/* Makes a list of the results that an endpoint with these fields can return. They have no numbers.
 * Returns false if there is no memory; the caller frees the list in any case. */
bool inference_outputs(struct codec_results *outputs, unsigned fields, struct account *account);

/* Reads the length of the JSON from the header Inference-Header-Content-Length; NULL: it is not
 * given, and the whole body is JSON. Returns false if it is no number of at least 1. */
bool inference_length(const char *text, size_t *length);

/* Adds the tensors and options of decoder->document to the call, and fills the members for the
 * answer. Errors: CODEC_CONTENT; the message names the tensor. */
bool inference_read(struct decoder *decoder, struct build *build, struct codec_error *error);

/* Returns whether `name` is the result that is asked for, or a part of it: "top_k.indices" is a
 * part of "top_k". */
static inline bool inference_is_part(const char *asked, const char *name) {
    const size_t size = strlen(asked);
    return strncmp(asked, name, size) == 0 && (name[size] == '\0' || name[size] == '.');
}

/* Answers with the results in a list of items, and frees the list. Errors: as reply_json() and
 * tensors_send(). */
void inference_reply(struct api_request *request, struct codec_items *items, int digits);

#endif
