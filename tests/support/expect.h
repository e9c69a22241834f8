/*
 * expect.h - what several suites of tests/api expect of a response. An unmet expectation fails the
 * test, and the test goes on.
 */
#ifndef SUPPORT_EXPECT_H
#define SUPPORT_EXPECT_H

#include "support/client.h"
#include "support/json.h"

/* The response has this header with this value, or no such header if `value` is NULL. `about` names
 * the request in the message. */
void expect_header(const struct client_response *response, const char *about, const char *name,
                   const char *value);

/* `got` contains `expected`. `what` names the text and `about` the request in the message. */
void expect_text(const char *got, const char *expected, const char *what, const char *about);

/* The response is a problem document of this status, with the members that every problem has. The
 * document is parsed into *problem, which is owned: json_free(). */
void expect_problem(const struct client_response *response, int status, const char *about,
                    struct cJSON **problem);

/* The response is an error of the Open Inference Protocol of this status: {"error": "..."}. It is
 * parsed into *error, which is owned: json_free(). */
void expect_bare_error(const struct client_response *response, int status, const char *about,
                       struct cJSON **error);

#endif
