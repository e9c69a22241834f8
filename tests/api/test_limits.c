/*
 * test_limits.c - the limits that --max-body and --max-work set. A request over a limit gets a 413
 * that names the limit, and one under it gets its answer. The tests know the service by its socket
 * only.
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

static const char *const computing[] = {"/attention", "/self-attention", "/multi-head-attention",
                                        "/softmax"};

/* Makes a correct body for the path, of about 2 * rows * columns bytes. Returns owned: free(). */
static char *long_question(const char *path, size_t rows, size_t columns) {
    char *text = malloc(4 * (rows * columns + 2 * rows + columns) + 256), *at = text;
    cr_assert(text != NULL);
    at += sprintf(at, "{\"X\":[");
    for (size_t i = 0; i < rows; i++) {
        at += sprintf(at, "%s[", i > 0 ? "," : "");
        for (size_t j = 0; j < columns; j++)
            at += sprintf(at, "%s1", j > 0 ? "," : "");
        at += sprintf(at, "]");
    }
    at += sprintf(at, "]");
    bool projected =
        strcmp(path, "/self-attention") == 0 || strcmp(path, "/multi-head-attention") == 0;
    for (size_t w = 0; projected && w < 3; w++) {
        at += sprintf(at, ",\"W_%c\":[", "QKV"[w]);
        for (size_t j = 0; j < columns; j++)
            at += sprintf(at, "%s[1]", j > 0 ? "," : "");
        at += sprintf(at, "]");
    }
    sprintf(at, "}");
    return text;
}

/* `said` is in the detail, or it is the end of it if `last` is set. */
static void expect_detail(const char *path, const char *body, const char *said, bool last) {
    struct client_response response;
    struct cJSON *problem;
    cr_assert(client_request(the_daemon.port, "POST", path, NULL, body, strlen(body), &response),
              "%s: no answer", path);
    expect_problem(&response, 413, path, &problem);
    const char *detail = json_text(json_get(problem, "detail"));
    expect_text(detail, said, "detail", path);
    cr_expect(!last || strcmp(detail + strlen(detail) - strlen(said), said) == 0, "%s", detail);
    json_free(problem);
    client_response_free(&response);
}

static void expect_too_large(const char *path, const char *body, const char *said) {
    expect_detail(path, body, said, false);
}

Test(errors, body_over_its_limit) {
    static const char *const arguments[] = {"--max-body", "1024", NULL};
    daemon_start(arguments);
    for (size_t i = 0; i < COUNT(computing); i++) {
        char *small = long_question(computing[i], 10, 10),
             *large = long_question(computing[i], 25, 25);
        cr_assert(strlen(small) < 1024 && strlen(large) > 1024);
        expect_answer("POST", computing[i], NULL, small, 200, "");
        expect_too_large(computing[i], large, "1024");
        expect_too_large(computing[i], large, "--max-body; as a binary tensor a number of float32");
        expect_answer("POST", computing[i], NULL, small, 200, "");
        free(small);
        free(large);
    }
    char *text = long_question("/embeddings", 25, 25);
    expect_detail("/embeddings", text, "--max-body", true); /* it takes no binary tensors */
    free(text);
    daemon_end();
}

/* A call that is too large with its weights. */
static const char many_keys[] =
    "{\"random\":{\"generator\":\"numpy\",\"seed\":1},\"X\":{\"random\":\"rand\",\"shape\":"
    "[2,500,8]},\"return\":";

/* The 413 of memory names the largest result. What it says would fit does fit. */
Test(errors, memory_over_its_limit) {
    static const struct {
        const char *results, *said;
    } rows[] = {
        {"[\"output\",\"weights\"]}", "\"weights\" takes 1.91 MiB of it, and with \"return\": "
                                      "[\"output\"] the request would fit"},
        {"[\"top_k\",\"scores\",\"output\"],\"top_k\":300}",
         "\"top_k\" takes 3.43 MiB of it, and with \"return\": [\"output\"] the request would fit"},
        {"[\"lse\",\"scores\"]}", "\"scores\" takes 1.91 MiB of it"},
    };
    static const char *const plain[] = {"--max-memory", "1MiB", NULL};
    char body[512];
    daemon_start(plain);
    for (size_t i = 0; i < COUNT(rows); i++) {
        snprintf(body, sizeof body, "%s%s", many_keys, rows[i].results);
        expect_too_large("/attention", body, rows[i].said);
        expect_too_large("/attention", body, "--max-memory; ");
    }
    snprintf(body, sizeof body, "%s[\"output\"]}", many_keys);
    expect_answer("POST", "/attention", NULL, body, 200, "");
    daemon_end();
}

/* The hint to ask for less is left out if nothing would fit. A request that is too large for the
 * memory of all requests is no 503, because it would never be answered. */
Test(errors, memory_that_is_never_there) {
    static const struct {
        const char *option, *value, *said;
    } rows[] = {
        {"--max-memory", "128KiB",
         "operator sets with --max-memory; \"weights\" takes 1.91 MiB of it"},
        {"--total-memory", "1MiB",
         "operator sets with --total-memory; \"weights\" takes 1.91 MiB of it"},
    };
    char body[512];
    snprintf(body, sizeof body, "%s[\"output\",\"weights\"]}", many_keys);
    for (size_t i = 0; i < COUNT(rows); i++) {
        daemon_start((const char *const[]){rows[i].option, rows[i].value, NULL});
        expect_detail("/attention", body, rows[i].said, i == 0);
        daemon_end();
    }
}

/* A request that took too long although it was alone would take too long again. */
Test(errors, no_time) {
    static const struct {
        const char *limit, *timeout, *said;
    } rows[] = {
        {"60", ",\"timeout\":0.0001}",
         "within 0.0001 s, the \"timeout\" of the request: give it more"},
        {"0.001", "}", "--compute-timeout: ask for less, because no other request is computed"},
    };
    char body[512], value[32];
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct client_response response;
        struct cJSON *problem;
        snprintf(body, sizeof body, "%s[\"output\"]%s", many_keys, rows[i].timeout);
        memcpy(strstr(body, "[2,500,8]"), "[8,999,8]", 9);
        daemon_start((const char *const[]){"--compute-timeout", rows[i].limit, NULL});
        cr_assert(client_request(the_daemon.port, "POST", "/attention", NULL, body, strlen(body),
                                 &response));
        cr_expect_not(client_header(&response, "Retry-After", value, sizeof value));
        expect_problem(&response, 503, rows[i].said, &problem);
        expect_text(json_text(json_get(problem, "detail")), rows[i].said, "detail", rows[i].limit);
        json_free(problem);
        client_response_free(&response);
        daemon_end();
    }
}

Test(errors, inference_over_its_limit) {
    static const char *const arguments[] = {"--max-body", "1024", NULL};
    static const char path[] = "/v2/models/softmax/infer", start[] = "{\"inputs\":[]}";
    struct client_response response;
    struct cJSON *error;
    char body[2048];
    memset(body, ' ', sizeof body);
    memcpy(body, start, sizeof start - 1);
    daemon_start(arguments);
    cr_assert(client_request(the_daemon.port, "POST", path, NULL, body, sizeof body, &response));
    expect_bare_error(&response, 413, path, &error);
    expect_text(json_text(json_get(error, "error")), "1024", "error", path);
    json_free(error);
    client_response_free(&response);
    daemon_end();
}

Test(errors, work_over_its_limit) {
    static const char *const arguments[] = {"--max-work", "1000000", NULL};
    daemon_start(arguments);
    for (size_t i = 0; i < COUNT(computing); i++) {
        if (strcmp(computing[i], "/softmax") == 0) {
            continue; /* the work of a softmax is too small */
        }
        char *small = long_question(computing[i], 4, 4),
             *large = long_question(computing[i], 300, 300);
        expect_answer("POST", computing[i], NULL, small, 200, "");
        expect_too_large(computing[i], large, "1000000");
        free(small);
        free(large);
    }
    daemon_end();
}
