/*
 * test_error_heads.c - what the service answers to unknown paths, methods that a path does not have
 * and media types that it does not take, and which media types it takes. The tests know the service
 * by its socket only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/expect.h"
#include "support/json.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct bad_head {
    const char *method, *path, *headers;
    int status;
    const char *detail;
    const char *allow;
};

static const struct bad_head heads[] = {
    {"GET", "/nowhere", NULL, 404, "/nowhere", NULL},
    {"POST", "/atention", NULL, 404, "at /atention; did you mean /attention? /docs", NULL},
    {"POST", "/Attention", NULL, 404, "did you mean /attention?", NULL},
    {"POST", "/attention/", NULL, 404, "did you mean /attention?", NULL},
    {"POST", "//attention", NULL, 404, "did you mean /attention?", NULL},
    {"GET", "/attention/1", NULL, 404, "did you mean /attention?", NULL},
    {"POST", "/v1/attention", NULL, 404, "did you mean /attention?", NULL},
    {"POST", "/api/v1/attention", NULL, 404, "did you mean /attention?", NULL},
    {"POST", "/self_attention", NULL, 404, "did you mean /self-attention?", NULL},
    {"POST", "/multihead_attention", NULL, 404, "did you mean /multi-head-attention?", NULL},
    {"POST", "/layers/a/atention", NULL, 404, "did you mean /layers/{name}/attention?", NULL},
    {"POST", "/v2/model/softmax/infer", NULL, 404, "did you mean /v2/models/{model}/infer?", NULL},
    {"GET", "/health", NULL, 404, "did you mean /health/live?", NULL},
    {"GET", "/healthz", NULL, 404, "did you mean /health/live?", NULL},
    {"GET", "/v2/health", NULL, 404, "did you mean /v2/health/live?", NULL},
    {"GET", "/openapi", NULL, 404, "did you mean /openapi.yaml?", NULL},
    {"GET", "/a/b/c/d/e/f/g/h/i/health", NULL, 404, "i/health; /docs shows every path", NULL},
    {"GET", "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", NULL, 404, "a; /docs shows", NULL},
    {"GET", "/attention", NULL, 405, "GET", "POST"},
    {"PUT", "/self-attention", NULL, 405, "PUT", "POST"},
    {"DELETE", "/multi-head-attention", NULL, 405, "DELETE", "POST"},
    {"GET", "/softmax?X=1", NULL, 405, "GET", "POST"},
    {"GET", "/embeddings", NULL, 405, "GET", "POST"},
    {"POST", "/health/live", NULL, 405, "POST", "GET, HEAD"},
    {"POST", "/health/ready", NULL, 405, "POST", "GET, HEAD"},
    {"DELETE", "/version", NULL, 405, "DELETE", "GET, HEAD"},
    {"PUT", "/openapi.yaml", NULL, 405, "PUT", "GET, HEAD"},
    {"POST", "/", NULL, 405, "POST", "GET, HEAD"},
    {"DELETE", "/docs", NULL, 405, "DELETE", "GET, HEAD"},
    {"POST", "/assets/a.js", NULL, 405, "POST", "GET, HEAD"},
    {"GET", "/assets/main.js", NULL, 404, "main.js", NULL},
    {"GET", "/assets/", NULL, 404, "/assets/", NULL},
    {"GET", "/assets/a/b", NULL, 404, "/assets/a/b", NULL},
    {"GET", "/assets/..%2Findex.html", NULL, 404, "/assets/../index.html", NULL},
    {"GET", "/docs/a", NULL, 404, "/docs/a", NULL},
    {"POST", "/attention?causal=true", "", 422, "\"?causal=true\"; options belong in the body",
     NULL},
    {"POST", "/v2/models/attention/infer?dtype=float64", "", 422, "options belong in the body",
     NULL},
    {"POST", "/attention", "Content-Type: text/plain\r\n", 415, "text/plain", NULL},
    {"POST", "/attention", "Content-Type: text/plain; charset=utf-8\r\n", 415, "text/plain", NULL},
    {"POST", "/attention", "Content-Type: application/octet-stream\r\n", 415, "application/json",
     NULL},
    {"POST", "/attention", "Content-Type: application/jsonl\r\n", 415, "application/jsonl", NULL},
    {"POST", "/attention", "Content-Type: json\r\n", 415, "application/json", NULL},
    {"POST", "/self-attention", "Content-Type: application/xml\r\n", 415, "application/xml", NULL},
    {"POST", "/multi-head-attention", "Content-Type: multipart/form-data; boundary=x\r\n", 415,
     "JSON is such as {\"X\": [[1]], \"W_Q\": [[1]], \"W_K\": [[1]], \"W_V\": [[1]]}", NULL},
    {"POST", "/softmax", "Content-Type: application/x-yaml\r\n", 415, "application/x-yaml", NULL},
    {"POST", "/embeddings", "Content-Type: text/html\r\n", 415, "text/html", NULL},
    {"POST", "/softmax", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", 415,
     "gzip", NULL},
    {"GET", "/v2/", NULL, 404, "/v2/", NULL},
    {"GET", "/v2/models/embeddings", NULL, 404, "the models are attention,", NULL},
    {"GET", "/v2/models/softmax/versions/2", NULL, 404, "/v2/models/softmax/versions/2", NULL},
    {"GET", "/v2/models/none/ready", NULL, 404, "there is no model at", NULL},
    {"GET", "/v2/models/none/config", NULL, 404, "there is no model at", NULL},
    {"GET", "/v2/models/none/versions/1/stats", NULL, 404, "there is no model at", NULL},
    {"POST", "/v2/models/none/infer", NULL, 404, "there is no model at", NULL},
    {"GET", "/v2/models/softmax/infer", NULL, 405, "GET", "POST"},
    {"POST", "/v2/models/softmax", NULL, 405, "POST", "GET, HEAD"},
    {"GET", "/v2/repository/index", NULL, 405, "GET", "POST"},
    {"POST", "/v2/models/softmax/infer", "Content-Type: application/vnd.safetensors\r\n", 415,
     "it must be application/json or application/octet-stream", NULL},
    {"POST", "/v2/models/softmax/infer", "Inference-Header-Content-Length: 0\r\n", 400,
     "which is at least 1", NULL},
    {"POST", "/v2/repository/models/softmax/load", NULL, 501, "always loaded", NULL},
    {"POST", "/v2/repository/models/softmax/unload", NULL, 501, "always loaded", NULL},
};

Test(errors, unknown_paths_methods_and_media_types, .init = daemon_start_plain,
     .fini = daemon_end) {
    static const char body[] = "{\"X\":[[1]]}";
    for (size_t i = 0; i < COUNT(heads); i++) {
        const struct bad_head *row = &heads[i];
        struct client_response response;
        struct cJSON *problem;
        char allow[64] = "", name[128];
        bool has_body = strcmp(row->method, "GET") != 0 && strcmp(row->method, "DELETE") != 0;
        snprintf(name, sizeof name, "%s %s %.40s", row->method, row->path,
                 row->headers != NULL ? row->headers : "");
        bool answered =
            client_request(the_daemon.port, row->method, row->path, row->headers,
                           has_body ? body : NULL, has_body ? strlen(body) : 0, &response);
        cr_assert(answered, "%s: no answer", name);
        const bool bare = strncmp(row->path, "/v2/", 4) == 0;
        if (bare)
            expect_bare_error(&response, row->status, name, &problem);
        else
            expect_problem(&response, row->status, name, &problem);
        const char *key = bare ? "error" : "detail";
        expect_text(json_text(json_get(problem, key)), row->detail, key, name);
        bool has_allow = client_header(&response, "Allow", allow, sizeof allow);
        cr_expect(has_allow == (row->allow != NULL), "%s: Allow: %s", name, allow);
        if (row->allow != NULL)
            cr_expect(strcmp(allow, row->allow) == 0, "%s: Allow: %s", name, allow);
        json_free(problem);
        client_response_free(&response);
    }
}

/* The body of a form has the type that curl -d sends, so only its content tells the two apart. */
Test(errors, a_form_is_named, .init = daemon_start_plain, .fini = daemon_end) {
    static const char *const paths[] = {"/attention", "/v2/models/softmax/infer"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        expect_answer("POST", paths[i], "Content-Type: application/x-www-form-urlencoded\r\n",
                      "Q=1", 400, "; the body must be JSON, such as {|}, and not a form");
    }
}

/* A body that may be JSON as soon as it is sent in another way gets no example. */
Test(errors, bodies_that_may_be_json, .init = daemon_start_plain, .fini = daemon_end) {
    static const char *const bodies[] = {"\xff\xfe{", "\xfe\xff", "\xef\xbb\xbf{}", "\x1f\x8b"};
    for (size_t i = 0; i < COUNT(bodies); i++) {
        struct client_response response;
        cr_assert(client_request(the_daemon.port, "POST", "/attention", NULL, bodies[i],
                                 strlen(bodies[i]), &response));
        cr_expect(response.status == 400 && strstr(response.body, "such as") == NULL, "%d %s",
                  response.status, response.body);
        client_response_free(&response);
    }
}

/* Returns the first object in a text, without its escapes; owned. */
static char *example_in(const char *text) {
    char *json = calloc(strlen(text) + 1, 1), *end = json;
    size_t depth = 0;
    for (text = strstr(text, "such as {") + strlen("such as "); *text != '\0'; text++) {
        if (*text != '\\') {
            *end++ = *text;
        }
        depth += *text == '{';
        depth -= *text == '}';
        if (depth == 0) {
            break;
        }
    }
    return json;
}

/* Whoever sends the example of a message gets an answer. */
Test(errors, the_examples_of_messages_are_right, .init = daemon_start_plain, .fini = daemon_end) {
    static const char *const paths[] = {"/attention",
                                        "/self-attention",
                                        "/multi-head-attention",
                                        "/softmax",
                                        "/embeddings",
                                        "/v2/models/attention/infer",
                                        "/v2/models/softmax/infer"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct client_response response;
        cr_assert(client_request(the_daemon.port, "POST", paths[i], NULL, "", 0, &response));
        char *example = example_in(response.body);
        client_response_free(&response);
        cr_assert(client_request(the_daemon.port, "POST", paths[i], NULL, example, strlen(example),
                                 &response));
        cr_expect_eq(response.status, 200, "%s: %s: %s", paths[i], example, response.body);
        client_response_free(&response);
        free(example);
    }
}

/* curl -d sends the media type of a form unless an option names another. Some clients send none. */
static const char *const accepted[] = {
    NULL,
    "Content-Type: application/json\r\n",
    "Content-Type: application/json; charset=utf-8\r\n",
    "Content-Type: Application/JSON;charset=UTF-8\r\n",
    "Content-Type: application/x-www-form-urlencoded\r\n",
    "Content-Type: application/json\r\nContent-Encoding: identity\r\n",
};

Test(errors, media_types_of_json_and_of_curl_are_none, .init = daemon_start_plain,
     .fini = daemon_end) {
    static const char body[] = "{\"X\":[0]}";
    for (size_t i = 0; i < COUNT(accepted); i++) {
        struct client_response response;
        cr_assert(client_request(the_daemon.port, "POST", "/softmax", accepted[i], body,
                                 strlen(body), &response));
        cr_expect(response.status == 200 && strcmp(response.body, "{\"output\":[1]}\n") == 0,
                  "%s: %d %s", accepted[i], response.status, response.body);
        client_response_free(&response);
    }
}
