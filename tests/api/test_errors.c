/*
 * test_errors.c - what the service answers to the bodies of support/bad_requests.h: the status, the
 * words of `detail`, and where `pointer` and `offset` lead. Every answer is a sound problem
 * document or, below /v2, a sound error of the Open Inference Protocol. After it the connection
 * takes the next request. The tests know the service by its socket only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "support/bad_requests.h"
#include "support/client.h"
#include "support/daemon.h"
#include "support/expect.h"
#include "support/json.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

TestSuite(errors, .timeout = 120);

static void expect_pointer(const char *got, const char *expected, const char *name) {
    size_t size = strlen(expected);
    if (strcmp(expected, ANYWHERE) == 0)
        return;
    if (size == 0)
        cr_expect(got == NULL || got[0] == '\0', "%s: pointer \"%s\"", name, got);
    else
        cr_expect(got != NULL && strncmp(got, expected, size) == 0 &&
                      (got[size] == '\0' || got[size] == '/'),
                  "%s: pointer \"%s\", not \"%s\"", name, got != NULL ? got : "(none)", expected);
}

/* The line and the column must be those of the offset. */
static void expect_place(const struct cJSON *problem, const struct bad_request *row,
                         const char *name) {
    double line = 0, column = 0, lines = 1, columns = 1;
    for (size_t i = 0; i < row->offset; i++) {
        lines += row->body[i] == '\n';
        columns =
            row->body[i] == '\n' ? 1 : columns + (((unsigned char)row->body[i] & 0xC0) != 0x80);
    }
    cr_expect(json_number(json_get(problem, "line"), &line) && line == lines &&
                  json_number(json_get(problem, "column"), &column) && column == columns,
              "%s: line %g column %g, not %g and %g", name, line, column, lines, columns);
}

static void expect_row(const struct bad_request *row, const char *path,
                       const struct client_response *response) {
    char name[96];
    struct cJSON *problem;
    const bool bare = strncmp(path, "/v2/", 4) == 0;
    snprintf(name, sizeof name, "%s: %s", path, row->name);
    if (bare)
        expect_bare_error(response, row->status, name, &problem);
    else
        expect_problem(response, row->status, name, &problem);
    const char *detail = json_text(json_get(problem, bare ? "error" : "detail"));
    for (size_t i = 0; i < COUNT(row->detail) && row->detail[i] != NULL; i++)
        expect_text(detail, row->detail[i], "detail", name);
    double offset = -1;
    if (bare) {
        json_free(problem);
        return;
    }
    if (row->status == 422)
        expect_pointer(json_text(json_get(problem, "pointer")), row->pointer, name);
    else {
        cr_expect(json_number(json_get(problem, "offset"), &offset) &&
                      (size_t)offset == row->offset,
                  "%s: offset %g, not %zu: %s", name, offset, row->offset, response->body);
        expect_place(problem, row, name);
    }
    json_free(problem);
}

/* One test has all rows, because a daemon for each row would be slow. The messages name the row. */
Test(errors, say_what_is_wrong_and_where, .init = daemon_start_plain, .fini = daemon_end) {
    for (size_t t = 0; t < bad_request_list_count; t++)
        for (const struct bad_request *row = bad_request_lists[t].rows; row->name != NULL; row++) {
            struct client_response response;
            bool answered = client_request(the_daemon.port, "POST", bad_request_lists[t].path,
                                           "Content-Type: application/json\r\n", row->body,
                                           row->size, &response);
            cr_assert(answered, "%s: %s: no answer", bad_request_lists[t].path, row->name);
            expect_row(row, bad_request_lists[t].path, &response);
            client_response_free(&response);
        }
}

/* Posts a call in which `count` ones stand between `before` and `after`. */
static void expect_long_list(const char *before, size_t count, const char *after,
                             const char *pointer, const char *detail) {
    char *body = malloc(strlen(before) + 2 * count + strlen(after) + 1), *end = body;
    cr_assert_not_null(body);
    end += sprintf(end, "%s", before);
    for (size_t i = 0; i < count; i++) {
        *end++ = '1';
        *end++ = ',';
    }
    sprintf(end - 1, "%s", after); /* in place of the last comma */
    struct client_response response;
    cr_assert(client_request(the_daemon.port, "POST", "/attention",
                             "Content-Type: application/json\r\n", body, strlen(body), &response));
    cr_expect_eq(response.status, 422, "%s: %s", pointer, response.body);
    cr_expect_not_null(strstr(response.body, pointer), "%s: %s", pointer, response.body);
    cr_expect_not_null(strstr(response.body, detail), "%s: %s", pointer, response.body);
    client_response_free(&response);
    free(body);
}

/* A list that no call can have is refused before it is copied. */
Test(errors, lists_that_are_too_long, .init = daemon_start_plain, .fini = daemon_end) {
#define SCALING                                                                                    \
    "{\"X\":[[1,2]],\"rotary\":{\"scaling\":{\"rope_type\":\"longrope\",\"original_max_position_"  \
    "embeddings\":8,\"long_factor\":[1],"
    expect_long_list("{\"X\":[[1]],\"lengths\":[", 4097, "]}", "\"/lengths\"",
                     "lengths has 4097 numbers; it must have one for each batch item");
    expect_long_list(
        SCALING "\"short_factor\":[", 32768, "]}}}", "\"/rotary\"",
        "short_factor of rotary has 32768 numbers; it must have one for each of the 1");
    expect_long_list(
        SCALING "\"short_factor\":[", 32769, "]}}}", "\"/rotary/scaling/short_factor\"",
        "short_factor has 32769 numbers; it must have one for each pair of columns that "
        "turn, and a head has at most 32768 pairs");
}

Test(errors, leave_the_connection_usable, .init = daemon_start_plain, .fini = daemon_end) {
    static const char good[] = "{\"X\":[[1]]}";
    struct client_connection connection;
    struct client_response response;
    cr_assert(client_open(&connection, the_daemon.port));
    for (size_t t = 0; t < bad_request_list_count; t++)
        for (const struct bad_request *row = bad_request_lists[t].rows; row->name != NULL; row++) {
            cr_assert(client_post(&connection, bad_request_lists[t].path, row->body, row->size,
                                  &response));
            cr_expect(response.status == row->status, "%s: %s: status %d",
                      bad_request_lists[t].path, row->name, response.status);
            client_response_free(&response);
            cr_assert(client_post(&connection, "/attention", good, strlen(good), &response));
            cr_expect(response.status == 200 &&
                          strcmp(response.body, "{\"output\":[[1]],\"weights\":[[1]]}\n") == 0,
                      "%s: %s: afterwards %d %s", bad_request_lists[t].path, row->name,
                      response.status, response.body);
            client_response_free(&response);
        }
    client_close(&connection);
}
