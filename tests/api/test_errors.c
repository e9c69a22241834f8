/*
 * test_errors.c - what the service answers to the bodies of data/refusals.txt: the status, the
 * words of `detail`, and where `pointer` and `offset` lead. Every answer is a sound problem
 * document or, below /v2, a sound error of the Open Inference Protocol. After it the connection
 * takes the next request. The tests know the service by its socket only.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/expect.h"
#include "support/json.h"
#include "support/rows.h"

TestSuite(errors, .timeout = 1200);

/* A row of data/refusals.txt. */
struct refusal {
    char name[96]; /* the line and the endpoint */
    int status;
    char place[80], body[ROWS_BYTES + sizeof(uint64_t)], texts[ROWS_BYTES];
    size_t size; /* bytes of the body */
};

static void read_refusal(const struct rows *rows, struct refusal *row) {
    int at = 0;
    char line[ROWS_LINE];
    strcpy(line, rows->line);
    cr_assert_eq(sscanf(line, "%d %79[^:]: %n", &row->status, row->place, &at), 2, "%s", line);
    char *body = strchr(line, ':') + 2, *texts = strstr(body, " => ");
    if (texts != NULL) {
        *texts = '\0';
    }
    row->size = rows_expand(rows, body, row->body);
    if (row->place[0] == '@') {
        const uint64_t header = row->size - strtoul(row->place + 1, NULL, 10);
        memmove(row->body + sizeof header, row->body, row->size);
        memcpy(row->body, &header, sizeof header);
        row->size += sizeof header;
    }
    rows_expand(rows, texts != NULL ? texts + strlen(" => ") : "", row->texts);
}

static void expect_pointer(const char *got, const struct refusal *row) {
    const char *expected = strcmp(row->place, "-") == 0 ? "" : row->place;
    const size_t size = strlen(expected);
    if (strcmp(expected, "*") == 0) {
        return;
    }
    got = got != NULL ? got : "";
    cr_expect(strncmp(got, expected, size) == 0 &&
                  (got[size] == '\0' || (size > 0 && got[size] == '/')),
              "%s: pointer \"%s\", not \"%s\"", row->name, got, expected);
}

/* The line and the column must be those of the offset. */
static void expect_offset(const struct cJSON *problem, const struct refusal *row) {
    double offset = -1, line = 0, column = 0, lines = 1, columns = 1;
    for (size_t i = 0; i < strtoul(row->place, NULL, 10); i++) {
        lines += row->body[i] == '\n';
        columns =
            row->body[i] == '\n' ? 1 : columns + (((unsigned char)row->body[i] & 0xC0) != 0x80);
    }
    cr_expect(json_number(json_get(problem, "offset"), &offset) && offset == atof(row->place),
              "%s: offset %g, not %s", row->name, offset, row->place);
    cr_expect(json_number(json_get(problem, "line"), &line) && line == lines &&
                  json_number(json_get(problem, "column"), &column) && column == columns,
              "%s: line %g column %g, not %g and %g", row->name, line, column, lines, columns);
}

static void expect_row(const struct refusal *row, const char *path,
                       const struct client_response *response) {
    struct cJSON *problem;
    const bool bare = strncmp(path, "/v2/", 4) == 0;
    (bare ? expect_bare_error : expect_problem)(response, row->status, row->name, &problem);
    expect_texts(json_text(json_get(problem, bare ? "error" : "detail")), row->texts, "detail",
                 row->name);
    if (bare || row->place[0] == '@') {
        json_free(problem);
        return;
    }
    if (row->status == 422) {
        expect_pointer(json_text(json_get(problem, "pointer")), row);
    } else {
        expect_offset(problem, row);
    }
    json_free(problem);
}

/* Sends the row on a connection of its own, and once more on the shared one, which must then take a
 * good request. */
static void try_row(const struct refusal *row, const char *path) {
    static const char good[] = "{\"X\":[[1]]}";
    struct client_response response;
    char headers[128] = "Content-Type: application/json\r\n";
    if (row->place[0] == '+') {
        snprintf(headers, sizeof headers,
                 "Content-Type: application/octet-stream\r\n"
                 "Inference-Header-Content-Length: %zu\r\n",
                 row->size - strtoul(row->place, NULL, 10));
    } else if (row->place[0] == '@') {
        strcpy(headers, "Content-Type: application/vnd.safetensors\r\n");
    }
    cr_assert(
        client_request(the_daemon.port, "POST", path, headers, row->body, row->size, &response),
        "%s: no answer", row->name);
    expect_row(row, path, &response);
    client_response_free(&response);
    response = daemon_ask_shared("POST", path, headers, row->body, row->size);
    cr_expect_eq(response.status, row->status, "%s: status %d", row->name, response.status);
    client_response_free(&response);
    response = daemon_ask_shared("POST", "/attention", "", good, strlen(good));
    cr_expect(response.status == 200 &&
                  strcmp(response.body, "{\"output\":[[1]],\"weights\":[[1]]}\n") == 0,
              "%s: afterwards %d %s", row->name, response.status, response.body);
    client_response_free(&response);
}

/* One test has all rows, because a daemon for each row would be slow. The messages name the row. */
Test(errors, say_what_is_wrong_and_where, .init = daemon_start_connected, .fini = daemon_end) {
    static struct rows rows;
    static struct refusal row;
    char paths[ROWS_LINE] = "", path[80];
    size_t count = 0;
    rows_open(&rows, "refusals.txt");
    while (rows_next(&rows)) {
        if (rows.line[0] == '=') {
            strcpy(paths, rows.line + 1);
            continue;
        }
        read_refusal(&rows, &row);
        const char *left = paths;
        for (int size; sscanf(left, "%79s%n", path, &size) == 1; left += size, count++) {
            snprintf(row.name, sizeof row.name, "line %u, %s", rows.number, path);
            try_row(&row, path);
        }
    }
    cr_expect_gt(count, 600);
    rows_close(&rows);
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
    expect_long_list(SCALING "\"short_factor\":[", 32769, "]}}}",
                     "\"/rotary/scaling/short_factor\"",
                     "short_factor must have at most 32768 numbers, not 32769");
    expect_long_list("{\"X\":[[1]],\"scale\":[", 65537, "]}", "\"/scale\"",
                     "scale must have at most 65536 numbers, not 65537");
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
