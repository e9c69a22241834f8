/*
 * ask.h - what the fuzz targets share that ask the app: a request from its body to its answer in
 * one process, without a socket and without workers, and what must hold for every answer.
 */
#ifndef FUZZ_ASK_H
#define FUZZ_ASK_H

#include "api/api.h"
#include "codec/binary.h"
#include "support/app.h"

/* Sets the stored layers of the app, which are borrowed. Without this call there are none. */
void fuzz_serve_layers(struct layers *layers);

/* Asks the app. `tight`: its limits are too small for some requests. `step` chooses among four
 * sizes of the pieces in which the body comes; with 0 it comes as a whole. `leaves`: the client
 * leaves in the middle of the body. Requires that the status is one of the API, that an error is
 * what its path promises, that an answer in JSON is JSON, that all memory is given back, and
 * that the answer is that to a whole body if the client stays and the limits are wide. The caller
 * frees the body of the answer. */
void fuzz_ask(bool tight, const struct http_request *request, const uint8_t *data, size_t size,
              unsigned step, bool leaves, struct app_answer *answer);

/* Returns the bytes of the object or array that begins a body, by its brackets; 0 if it has no
 * end. */
size_t fuzz_json_size(const uint8_t *bytes, size_t size);

/* Parses JSON, which must be valid. Returns owned: codec_document_free(). */
struct codec_document *fuzz_parse(const char *text, size_t size);

/* Returns the text under a key of an object, which must be there. Borrowed. */
const char *fuzz_text(const struct codec_document *document, const struct codec_value *object,
                      const char *key);

/* Returns the type of this name, which must be one of `names`. */
enum codec_type fuzz_type(const char *name, const char *const names[static CODEC_TYPE_COUNT]);

/* Returns the product of a shape in an answer: 1 for a shape without axes. */
size_t fuzz_elements(const struct codec_document *document, const struct codec_value *shape);

/* Requires that the numbers of a result are finite. Only masked_scores and lse may have minus
 * infinity. */
void fuzz_require_numbers(const char *name, enum codec_type type, const char *bytes, size_t size);

#endif
