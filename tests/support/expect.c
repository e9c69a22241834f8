/* expect.c - the expectations that several suites of tests/api have of a response. */
#include "support/expect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/daemon.h"

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

void expect_texts(const char *got, const char *expected, const char *what, const char *about) {
    while (*expected != '\0') {
        char text[256];
        const size_t size = strcspn(expected, "|");
        cr_assert_lt(size, sizeof text);
        snprintf(text, sizeof text, "%.*s", (int)size, expected);
        expect_text(got, text, what, about);
        expected += size + (expected[size] == '|');
    }
}

void expect_answer(const char *method, const char *path, const char *headers, const char *body,
                   int status, const char *says) {
    struct client_response response;
    char about[160];
    cr_assert(client_request(the_daemon.port, method, path, headers, body, strlen(body), &response),
              "%s: no answer", path);
    snprintf(about, sizeof about, "%s %s %.100s", method, path, body);
    cr_expect_eq(response.status, status, "%s: %d %.600s", about, response.status, response.body);
    expect_texts(response.body, says, "answer", about);
    client_response_free(&response);
}

void expect_bare_error(const struct client_response *response, int status, const char *about,
                       struct cJSON **error) {
    *error = json_parse(response->body, response->size);
    cr_expect(response->status == status, "%s: status %d, not %d: %.600s", about, response->status,
              status, response->body);
    expect_header(response, about, "Content-Type", "application/json");
    expect_header(response, about, "Inference-Header-Content-Length", NULL);
    cr_expect(strncmp(response->body, "{\"error\":\"", 10) == 0 &&
                  json_size(*error) == (status == 409 ? 2 : 1) &&
                  json_text(json_get(*error, "error")) != NULL,
              "%s: no error: %.600s", about, response->body);
}

void expect_problem(const struct client_response *response, int status, const char *about,
                    struct cJSON **problem) {
    char media_type[64] = "", id[160] = "";
    double number = 0;
    *problem = json_parse(response->body, response->size);
    cr_expect(response->status == status, "%s: status %d, not %d: %.600s", about, response->status,
              status, response->body);
    client_header(response, "Content-Type", media_type, sizeof media_type);
    client_header(response, "X-Request-Id", id, sizeof id);
    cr_expect(strcmp(media_type, "application/problem+json") == 0, "%s: media type \"%s\"", about,
              media_type);
    cr_expect(json_is_object(*problem), "%s: no problem document: %.600s", about, response->body);
    expect_text(json_text(json_get(*problem, "type")), "about:blank", "type", about);
    cr_expect(json_number(json_get(*problem, "status"), &number) && (int)number == status,
              "%s: the member status is %g", about, number);
    const char *request_id = json_text(json_get(*problem, "request_id"));
    cr_expect(request_id != NULL && id[0] != '\0' && strcmp(request_id, id) == 0,
              "%s: request_id \"%s\" in the body, \"%s\" in the header", about,
              request_id != NULL ? request_id : "(none)", id);
}

void expect_outputs(const struct client_response *response, const char *about,
                    struct binary_answer *answer) {
    char message[256] = "", length[32] = "0";
    client_header(response, "Inference-Header-Content-Length", length, sizeof length);
    const size_t header = strtoul(length, NULL, 10);
    cr_assert_eq(response->status, 200, "%s: %d %.300s", about, response->status, response->body);
    expect_header(response, about, "Content-Type",
                  header > 0 ? "application/octet-stream" : "application/json");
    cr_assert(binary_read_inference(answer, response->body, response->size, header, message),
              "%s: %s", about, message);
}

void expect_file(const struct client_response *response, const char *about,
                 struct binary_answer *answer) {
    char message[256] = "";
    cr_assert_eq(response->status, 200, "%s: %d %.300s", about, response->status, response->body);
    expect_header(response, about, "Content-Type", "application/vnd.safetensors");
    cr_assert(binary_read_safetensors(answer, response->body, response->size, message), "%s: %s",
              about, message);
}

void expect_refused(struct client_response *response, const char *path, int status,
                    const char *says, const char *about) {
    const bool bare = strncmp(path, "/v2", 3) == 0;
    struct cJSON *json;
    (bare ? expect_bare_error : expect_problem)(response, status, about, &json);
    expect_texts(json_text(json_get(json, bare ? "error" : "detail")), says, "text", about);
    json_free(json);
    client_response_free(response);
    const char *good = bare ? "{" BINARY_QKV "}" : "{\"X\":[[1,2]]}";
    struct client_response next = daemon_ask_shared(
        "POST", bare ? "/v2/models/attention/infer" : "/softmax", "", good, strlen(good));
    cr_expect_eq(next.status, 200, "%s: then %d %.600s", about, next.status, next.body);
    client_response_free(&next);
}
