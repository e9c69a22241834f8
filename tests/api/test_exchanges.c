/*
 * test_exchanges.c - what the service answers to the requests of data/exchanges.txt: the status,
 * headers and texts. Every refusal is a sound problem document or, below /v2, a sound error of the
 * Open Inference Protocol. After a POST the connection takes the next request. The tests know the
 * service by its socket only.
 */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/expect.h"
#include "support/json.h"
#include "support/rows.h"

TestSuite(exchanges, .timeout = 1200);

/* A row of data/exchanges.txt. */
struct exchange {
    char name[96]; /* the line, the method and the path */
    char method[8], path[400];
    char headers[1024], sent[ROWS_BYTES], answered[ROWS_BYTES];
    const char *body;
    size_t size;
    int status;
    const char *wanted; /* headers, and what follows them */
};

/* Returns whether a header in brackets begins here, and not an array of JSON. */
static bool is_header(const char *text) {
    return text[0] == '[' && (isalpha((unsigned char)text[1]) || text[1] == '+');
}

static void read_exchange(struct rows *rows, struct exchange *row) {
    char *answer = strstr(rows->line, " => "), *headers = row->headers;
    int at;
    cr_assert_not_null(answer, "line %u", rows->number);
    *answer = '\0';
    const char *left = row->sent, *end = left + rows_expand(rows, rows->line, row->sent);
    cr_assert_eq(sscanf(left, "%7s %399s%n", row->method, row->path, &at), 2, "line %u",
                 rows->number);
    snprintf(row->name, sizeof row->name, "line %u, %s %.60s", rows->number, row->method,
             row->path);
    size_t binary = 0;
    for (left += at; left[0] == ' ' && is_header(left + 1); left = strchr(left, ']') + 1) {
        if (left[2] == '+') {
            binary = strtoul(left + 3, NULL, 10);
        } else {
            headers += sprintf(headers, "%.*s\r\n", (int)strcspn(left + 2, "]"), left + 2);
        }
    }
    *headers = '\0';
    row->body = left < end ? left + 1 : left;
    row->size = (size_t)(end - row->body);
    if (binary > 0) {
        sprintf(headers, "Inference-Header-Content-Length: %zu\r\n", row->size - binary);
    }
    rows_expand(rows, answer + strlen(" => "), row->answered);
    row->status = (int)strtol(row->answered, (char **)&row->wanted, 10);
}

/* Expects the headers in brackets. Returns what follows them. */
static const char *expect_headers(const struct client_response *response,
                                  const struct exchange *row) {
    const char *left = row->wanted;
    for (; left[0] == ' ' && is_header(left + 1); left = strchr(left, ']') + 1) {
        char name[64], value[256];
        cr_assert_eq(sscanf(left, " [%63[^:]: %255[^]]", name, value), 2, "%s: %s", row->name,
                     left);
        expect_header(response, row->name, name, strcmp(value, "-") == 0 ? NULL : value);
    }
    return left;
}

/* Expects that `got` has each of the texts with '|' between them, and none of those that begin with
 * '!'. A line may end after a '|', so spaces there do not count. */
static void expect_each(const char *got, const char *texts, const char *about) {
    for (size_t size; *texts != '\0'; texts += size + (texts[size] == '|')) {
        char text[512];
        texts += strspn(texts, " ");
        size = strcspn(texts, "|");
        snprintf(text, sizeof text, "%.*s", (int)size, texts);
        const bool absent = text[0] == '!';
        cr_expect(got != NULL && (strstr(got, text + absent) == NULL) == absent,
                  "%s: \"%s\" and \"%s\"", about, got != NULL ? got : "(none)", text);
    }
}

static void expect_exchange(const struct client_response *response, const struct exchange *row) {
    char allow[64];
    const char *left = expect_headers(response, row), *text = response->body;
    const bool bare = strncmp(row->path, "/v2", 3) == 0;
    struct cJSON *problem = NULL;
    if (row->status >= 400) {
        (bare ? expect_bare_error : expect_problem)(response, row->status, row->name, &problem);
        text = json_text(json_get(problem, bare ? "error" : "detail"));
    }
    cr_expect_eq(response->status, row->status, "%s: %d %.300s", row->name, response->status,
                 response->body);
    cr_expect_eq(client_header(response, "Allow", allow, sizeof allow), row->status == 405, "%s",
                 row->name);
    if (left[0] == '=') {
        const size_t size = strlen(left + 2);
        cr_expect(response->size == size + 1 && strncmp(text, left + 2, size) == 0, "%s: %s, not%s",
                  row->name, text, left + 1);
    } else if (left[0] == ':') {
        expect_each(text, left + 2, row->name);
    } else {
        cr_expect_eq(left[0], '\0', "%s: %s", row->name, left);
    }
    json_free(problem);
}

/* HEAD has the headers of GET, also Content-Length, and no body (RFC 9110). */
static void expect_head(const struct client_response *whole, const struct exchange *row) {
    char length[32];
    snprintf(length, sizeof length, "%zu", whole->size);
    struct client_response head = daemon_ask("HEAD", row->path, row->headers);
    cr_expect(head.status == 200 && head.size == 0, "%s: HEAD gets %d and %zu bytes", row->name,
              head.status, head.size);
    expect_headers(&head, row);
    expect_header(&head, row->name, "Content-Length", length);
    client_response_free(&head);
}

/* Sends a row on a connection of its own, and a POST once more on the shared one. */
static void try_exchange(const struct exchange *row) {
    struct client_response response;
    cr_assert(client_request(the_daemon.port, row->method, row->path, row->headers, row->body,
                             row->size, &response),
              "%s: no answer", row->name);
    expect_exchange(&response, row);
    if (strcmp(row->method, "GET") == 0 && row->status == 200) {
        expect_head(&response, row);
    }
    client_response_free(&response);
    if (strcmp(row->method, "POST") == 0) {
        response = daemon_ask_shared("POST", row->path, row->headers, row->body, row->size);
        cr_expect_eq(response.status, row->status, "%s: status %d", row->name, response.status);
        client_response_free(&response);
    }
    if (row->status == 413) { /* the daemon does not read a body that is too long */
        client_close(&the_connection);
        daemon_connect();
    }
}

/* Starts the daemon with the options of a line. */
static void start_with(char *line) {
    const char *options[16] = {NULL};
    size_t count = 0;
    for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " ")) {
        cr_assert_lt(count, 15);
        options[count++] = word;
    }
    daemon_start_with(options);
}

/* One test has all rows, because a daemon for each row would be slow. The messages name the row. */
Test(exchanges, have_the_answers_of_their_rows) {
    static struct rows rows;
    static struct exchange row;
    size_t count = 0;
    bool started = false;
    rows_open(&rows, "exchanges.txt");
    for (; rows_next(&rows); count++) {
        if (rows.line[0] != '$') {
            read_exchange(&rows, &row);
            try_exchange(&row);
            continue;
        }
        if (started) {
            daemon_end();
        }
        start_with(rows.line + 1);
        started = true;
    }
    daemon_end();
    cr_expect_gt(count, 250);
    rows_close(&rows);
}
