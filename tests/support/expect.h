/*
 * expect.h - what several suites of tests/api expect of a response. An unmet expectation fails the
 * test, and the test goes on.
 */
#ifndef SUPPORT_EXPECT_H
#define SUPPORT_EXPECT_H

#include "support/binary.h"
#include "support/client.h"
#include "support/json.h"

/* The response has this header with this value, or no such header if `value` is NULL. `about` names
 * the request in the message. */
void expect_header(const struct client_response *response, const char *about, const char *name,
                   const char *value);

/* `got` contains `expected`. `what` names the text and `about` the request in the message. */
void expect_text(const char *got, const char *expected, const char *what, const char *about);

/* `got` contains each of these texts, which '|' separates, in any order. */
void expect_texts(const char *got, const char *expected, const char *what, const char *about);

/* Sends a request on a connection of its own, and expects this status and each of `says` in the
 * body of the answer, as in expect_texts(). `headers` is as in client_request(). */
void expect_answer(const char *method, const char *path, const char *headers, const char *body,
                   int status, const char *says);

/* The response is a problem document of this status, with the members that every problem has. The
 * document is parsed into *problem, which is owned: json_free(). */
void expect_problem(const struct client_response *response, int status, const char *about,
                    struct cJSON **problem);

/* The response is an error of the Open Inference Protocol of this status: {"error": "..."}. It is
 * parsed into *error, which is owned: json_free(). */
void expect_bare_error(const struct client_response *response, int status, const char *about,
                       struct cJSON **error);

/* The response is a 200 with tensors in the Open Inference Protocol, or in safetensors. They are
 * read into *answer, which is owned: binary_free(). If they cannot be read, the test ends. */
void expect_outputs(const struct client_response *response, const char *about,
                    struct binary_answer *answer);
void expect_file(const struct client_response *response, const char *about,
                 struct binary_answer *answer);

/* The response, which is freed, is a refusal of this status by the endpoint at `path`: a bare error
 * below /v2, and otherwise a problem document. Its text contains each of `says`, as in
 * expect_texts(). Then the shared connection must serve a good request of the same kind. */
void expect_refused(struct client_response *response, const char *path, int status,
                    const char *says, const char *about);

#endif
