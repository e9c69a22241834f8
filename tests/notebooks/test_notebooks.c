/*
 * test_notebooks.c - the notebooks and the golden data, sent to the running daemon.
 *
 * Every NAME.request.json beside this file is posted as it is, in one piece, in two pieces and in
 * chunks. The answer must be what NAME.expected.json says, with the same members and no others. A
 * case of data/golden_attention.json and golden_seeded.json has request and expectation in one
 * object. README.md describes the files. The tests do not know how anything is computed, and
 * include no header of lib or server.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/json.h"

static const char *const case_keys[] = {"path",     "title",     "notebook", "note",
                                        "source",   "request",   "expect",   "decimals",
                                        "absolute", "tolerance", "status"};

/* ------------------------------------------------------------------------------------ one case */

static bool known_key(const char *name) {
    for (size_t i = 0; i < COUNT(case_keys); i++)
        if (strcmp(name, case_keys[i]) == 0)
            return true;
    return false;
}

/* Reads `key` of a case for one member of its "expect". The value is one number for all members, or
 * an object that has a number for each. */
static bool allowance(const struct cJSON *test_case, const char *key, const char *member,
                      double *number) {
    const struct cJSON *value = json_get(test_case, key);
    if (json_is_object(value))
        value = json_get(value, member);
    return json_number(value, number);
}

static bool member_is_near(const struct cJSON *test_case, const struct cJSON *expect,
                           const struct cJSON *answer, struct json_difference *difference) {
    const char *name = json_name(expect);
    double decimals = 0, absolute = 0, relative = 0;
    allowance(test_case, "absolute", name, &absolute);
    allowance(test_case, "tolerance", name, &relative);
    /* The printed number is rounded, so half a unit of its last digit is allowed, and a little more
     * for the conversion of that digit to binary. */
    if (allowance(test_case, "decimals", name, &decimals))
        absolute += 0.5000001 * pow(10, -decimals);
    return json_near(json_get(answer, name), expect, absolute, relative, difference);
}

static void check_answer(const char *name, const struct cJSON *test_case,
                         const struct client_response *response) {
    struct cJSON *answer = json_parse(response->body, response->size);
    const struct cJSON *expect = json_get(test_case, "expect");
    cr_expect(json_is_object(answer), "%s: the answer is no JSON object: %.200s", name,
              response->body);
    cr_expect(json_size(expect) > 0, "%s: the case expects nothing", name);

    size_t compared = 0;
    const struct cJSON *member = NULL;
    for (member = json_first(expect); member != NULL; member = json_next(member)) {
        struct json_difference difference;
        bool near = member_is_near(test_case, member, answer, &difference);
        cr_expect(near, "%s: /%s%s %s", name, json_name(member), difference.pointer,
                  difference.message);
        compared += difference.numbers;
    }
    cr_expect(compared > 0, "%s: not one number was compared", name);
    for (member = json_first(answer); member != NULL; member = json_next(member))
        cr_expect(json_get(expect, json_name(member)) != NULL, "%s: /%s was not asked for", name,
                  json_name(member));
    cr_expect_eq(json_size(answer), json_size(expect), "%s: %zu members, expected %zu", name,
                 json_size(answer), json_size(expect));
    json_free(answer);
}

static bool same_body(const struct client_response *a, const struct client_response *b) {
    return a->status == b->status && a->size == b->size && memcmp(a->body, b->body, a->size) == 0;
}

static bool send_head(struct client_connection *connection, const char *path, const char *framing) {
    char head[256];
    int size = snprintf(head, sizeof head,
                        "POST %s HTTP/1.1\r\nHost: localhost\r\n"
                        "Content-Type: application/json\r\n%s\r\n\r\n",
                        path, framing);
    return size > 0 && (size_t)size < sizeof head && client_send(connection, head, (size_t)size);
}

static bool send_chunk(struct client_connection *connection, const char *bytes, size_t size) {
    char line[32];
    int length = snprintf(line, sizeof line, "%zx\r\n", size);
    return client_send(connection, line, (size_t)length) && client_send(connection, bytes, size) &&
           client_send(connection, "\r\n", 2);
}

/* Sends the body once in two pieces and once in chunks, on one connection. Each must get the answer
 * of the whole body. The cuts fall anywhere, most often inside a number. */
static bool pieces_give_the_same(unsigned port, const char *path, const char *body, size_t size,
                                 const struct client_response *whole) {
    struct client_connection connection;
    struct client_response halves = {0}, chunks = {0};
    char framing[64];
    const size_t cut = size / 2, step = size / 7 + 1;
    if (!client_open(&connection, port))
        return false;
    snprintf(framing, sizeof framing, "Content-Length: %zu", size);
    bool same = send_head(&connection, path, framing) && client_send(&connection, body, cut) &&
                client_send(&connection, body + cut, size - cut) &&
                client_receive(&connection, false, &halves) && same_body(&halves, whole) &&
                send_head(&connection, path, "Transfer-Encoding: chunked");
    for (size_t at = 0; same && at < size; at += step)
        same = send_chunk(&connection, body + at, size - at < step ? size - at : step);
    same = same && client_send(&connection, "0\r\n\r\n", 5) &&
           client_receive(&connection, false, &chunks) && same_body(&chunks, whole);
    client_response_free(&halves);
    client_response_free(&chunks);
    client_close(&connection);
    return same;
}

static void run_case(unsigned port, const char *name, const struct cJSON *test_case,
                     const char *body, size_t size) {
    struct client_response response = {0};
    double status = 200;
    const char *path = json_text(json_get(test_case, "path"));
    const struct cJSON *key = NULL;
    for (key = json_first(test_case); key != NULL; key = json_next(key))
        cr_expect(known_key(json_name(key)), "%s: unknown key \"%s\"", name, json_name(key));
    json_number(json_get(test_case, "status"), &status);

    if (path == NULL || !client_request(port, "POST", path, "Content-Type: application/json\r\n",
                                        body, size, &response)) {
        cr_expect_fail("%s: no path or no answer", name);
    } else if (response.status != (int)status) {
        cr_expect_fail("%s: status %d, expected %d: %.300s", name, response.status, (int)status,
                       response.body);
    } else {
        check_answer(name, test_case, &response);
        cr_expect(pieces_give_the_same(port, path, body, size, &response),
                  "%s: the body in pieces gave another answer", name);
    }
    client_response_free(&response);
}

/* ------------------------------------------------------------------------------- the notebooks */

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length > tail && strcmp(text + length - tail, end) == 0;
}

static int is_request(const struct dirent *entry) {
    return ends_with(entry->d_name, ".request.json");
}

static int is_expected(const struct dirent *entry) {
    return ends_with(entry->d_name, ".expected.json");
}

/* Reads tests/notebooks/NAME.KIND.json, where request_file is NAME.request.json. Returns owned:
 * free(). */
static char *read_beside(const char *request_file, const char *kind, size_t *size) {
    char path[1024];
    int stem = (int)(strlen(request_file) - strlen(".request.json"));
    int length = snprintf(path, sizeof path, "%s/notebooks/%.*s.%s.json", TESTS_DIR, stem,
                          request_file, kind);
    return length > 0 && (size_t)length < sizeof path ? json_read_file(path, size) : NULL;
}

static void run_notebook(unsigned port, const char *file) {
    size_t request_size = 0, expected_size = 0;
    char *request = read_beside(file, "request", &request_size);
    char *expected = read_beside(file, "expected", &expected_size);
    struct cJSON *test_case = expected == NULL ? NULL : json_parse(expected, expected_size);
    if (request == NULL || test_case == NULL)
        cr_expect_fail("%s: it or its expected.json is missing or no JSON", file);
    else
        run_case(port, file, test_case, request, request_size);
    json_free(test_case);
    free(expected);
    free(request);
}

Test(notebooks, every_request_is_answered_as_the_notebook_prints) {
    struct dirent **files = NULL, **expected = NULL;
    int count = scandir(TESTS_DIR "/notebooks", &files, is_request, alphasort);
    int expected_count = scandir(TESTS_DIR "/notebooks", &expected, is_expected, alphasort);
    cr_assert(count > 0, "no *.request.json in " TESTS_DIR "/notebooks");
    cr_expect_eq(count, expected_count, "%d requests but %d expected answers", count,
                 expected_count);
    daemon_start(NULL);
    for (int i = 0; i < count; i++) {
        run_notebook(the_daemon.port, files[i]->d_name);
        free(files[i]);
    }
    daemon_end();
    for (int i = 0; i < expected_count; i++)
        free(expected[i]);
    free(expected);
    free(files);
}

/* ----------------------------------------------------------------------------- the golden data */

static void run_golden(const char *file) {
    size_t size = 0, count = 0;
    char path[1024];
    snprintf(path, sizeof path, "%s/data/%s", TESTS_DIR, file);
    char *text = json_read_file(path, &size);
    cr_assert_not_null(text, "no %s", path);
    struct cJSON *cases = json_parse(text, size);
    cr_assert(json_is_array(cases), "%s is no JSON array", file);
    daemon_start(NULL);
    const struct cJSON *c = NULL;
    for (c = json_first(cases); c != NULL; c = json_next(c), count++) {
        char name[160];
        const char *title = json_text(json_get(c, "title"));
        snprintf(name, sizeof name, "%s %zu (%s)", file, count, title == NULL ? "untitled" : title);
        char *request = json_print(json_get(c, "request"));
        if (request == NULL)
            cr_expect_fail("%s: no request", name);
        else
            run_case(the_daemon.port, name, c, request, strlen(request));
        free(request);
    }
    cr_expect(count > 0, "%s holds no case", file);
    daemon_end();
    json_free(cases);
    free(text);
}

Test(notebooks, golden_data_agrees) {
    run_golden("golden_attention.json");
}

Test(notebooks, golden_draws_and_words_agree) {
    run_golden("golden_seeded.json");
}

/* ------------------------------------------------------------------- the comparison can say no */

static bool texts_are_near(const char *got, const char *expect, double absolute, double relative,
                           struct json_difference *difference) {
    struct cJSON *a = json_parse(got, strlen(got)), *b = json_parse(expect, strlen(expect));
    cr_assert(a != NULL && b != NULL);
    bool near = json_near(a, b, absolute, relative, difference);
    json_free(a);
    json_free(b);
    return near;
}

Test(notebooks, comparison_refuses_what_differs) {
    static const struct {
        const char *got, *expect, *pointer;
        double absolute, relative;
    } differing[] = {
        {"[[1,2],[3,4.1]]", "[[1,2],[3,4]]", "/1/1", 0.01, 0.02},
        {"[[1,2],[3]]", "[[1,2],[3,4]]", "/1", 9, 9},
        {"[[1,2,0]]", "[[1,2]]", "/0", 9, 9},
        {"[[1],2]", "[1,2]", "/0", 9, 9},
        {"[1]", "[[1,2]]", "/0", 9, 9},
        {"[1,null]", "[1,2]", "/1", 9, 9},
        {"[1,2]", "[1,null]", "/1", 9, 9},
        {"[1,1e-30]", "[1,0]", "/1", 0, 0.1},
        {"[[1],[0,1e-30]]", "[[1],[0,0]]", "/1/1", 9, 9},
        {"[1000,1.002]", "[1000,1]", "/1", 0, 1e-6},
        {"{\"a\":1,\"b\":2}", "{\"a\":1}", "", 9, 9},
        {"{\"a\":1,\"a\":1}", "{\"a\":1}", "", 9, 9},
        {"{\"a\":{}}", "{\"a\":{\"b\":2}}", "/a/b", 9, 9},
        {"[true]", "[1]", "/0", 9, 9},
        {"\"x\"", "\"y\"", "", 9, 9},
    };
    struct json_difference difference;
    for (size_t i = 0; i < COUNT(differing); i++) {
        cr_expect_not(texts_are_near(differing[i].got, differing[i].expect, differing[i].absolute,
                                     differing[i].relative, &difference),
                      "%s passed for %s", differing[i].got, differing[i].expect);
        cr_expect_str_eq(difference.pointer, differing[i].pointer, "%s: %s at %s", differing[i].got,
                         difference.message, difference.pointer);
    }
    cr_expect_null(json_parse("[1] x", 5));
    cr_expect_null(json_parse("[NaN]", 5));
}

Test(notebooks, comparison_takes_what_is_near) {
    struct json_difference difference;
    cr_expect(texts_are_near("[[1,2],[3,4.01]]", "[[1,2],[3,4]]", 0.02, 0, &difference));
    cr_expect_eq(difference.numbers, 4);
    cr_expect(texts_are_near("[1000,1.0005]", "[1000,1]", 0, 1e-6, NULL), "scale of the row");
    cr_expect(texts_are_near("[null,-0.0]", "[null,0]", 0, 0, NULL));
    cr_expect(texts_are_near("{\"b\":[2],\"a\":1}", "{\"a\":1,\"b\":[2]}", 0, 0, NULL));
}
