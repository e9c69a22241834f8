/* expect.c - the expectations that several suites of tests/api have of a response. */
#include "support/expect.h"

#include <criterion/criterion.h>
#include <string.h>

void expect_header(const struct client_response *response, const char *about, const char *name,
                   const char *value) {
    char got[512];
    const bool there = client_header(response, name, got, sizeof got);
    cr_expect(value != NULL ? there && strcmp(got, value) == 0 : !there, "%s: %s: %s, not %s",
              about, name, there ? got : "none", value != NULL ? value : "none");
}

void expect_text(const char *got, const char *expected, const char *what, const char *about) {
    cr_expect(got != NULL && strstr(got, expected) != NULL, "%s: the %s \"%s\" does not say \"%s\"",
              about, what, got != NULL ? got : "(none)", expected);
}

void expect_bare_error(const struct client_response *response, int status, const char *about,
                       struct cJSON **error) {
    *error = json_parse(response->body, response->size);
    cr_expect(response->status == status, "%s: status %d, not %d: %s", about, response->status,
              status, response->body);
    expect_header(response, about, "Content-Type", "application/json");
    cr_expect(strncmp(response->body, "{\"error\":\"", 10) == 0 && json_size(*error) == 1 &&
                  json_text(json_get(*error, "error")) != NULL,
              "%s: no error: %s", about, response->body);
}

void expect_problem(const struct client_response *response, int status, const char *about,
                    struct cJSON **problem) {
    char media_type[64] = "", id[160] = "";
    double number = 0;
    *problem = json_parse(response->body, response->size);
    cr_expect(response->status == status, "%s: status %d, not %d: %s", about, response->status,
              status, response->body);
    client_header(response, "Content-Type", media_type, sizeof media_type);
    client_header(response, "X-Request-Id", id, sizeof id);
    cr_expect(strcmp(media_type, "application/problem+json") == 0, "%s: media type \"%s\"", about,
              media_type);
    cr_expect(json_is_object(*problem), "%s: no problem document: %s", about, response->body);
    expect_text(json_text(json_get(*problem, "type")), "about:blank", "type", about);
    cr_expect(json_number(json_get(*problem, "status"), &number) && (int)number == status,
              "%s: the member status is %g", about, number);
    const char *request_id = json_text(json_get(*problem, "request_id"));
    cr_expect(request_id != NULL && id[0] != '\0' && strcmp(request_id, id) == 0,
              "%s: request_id \"%s\" in the body, \"%s\" in the header", about,
              request_id != NULL ? request_id : "(none)", id);
}
