/*
 * test_grammar.c - promise 13: a text that is not JSON gets one correct 400 with the byte at fault,
 * and the connection takes the next request. unit/test_codec_grammar.c reads all texts of
 * data/grammar.txt; here one good and one bad text of each list are sent to the service, as a body
 * and as the value of a matrix. data/refusals.txt has what RFC 8259 leaves to the reader. The tests
 * know the service by its socket only.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/json.h"
#include "support/rows.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum {
    MOST = 64 * 1024 /* bytes of the longest body */
};

TestSuite(grammar, .init = daemon_start_connected, .fini = daemon_end, .timeout = 1200);

/* Sends the body and returns the status of the answer. *offset is the offset in the problem, or -1
 * if there is none. Then sends a correct request, which must be answered. */
static int post_text(const char *body, size_t size, long *offset) {
    static const char good[] = "{\"X\":[0,0]}";
    double number = -1;
    struct client_response response = daemon_ask_shared("POST", "/softmax", "", body, size);
    const int status = response.status;
    struct cJSON *answer = json_parse(response.body, response.size);
    json_number(json_get(answer, "offset"), &number);
    *offset = (long)number;
    json_free(answer);
    client_response_free(&response);
    response = daemon_ask_shared("POST", "/softmax", "", good, sizeof good - 1);
    cr_expect(response.status == 200 && strcmp(response.body, "{\"output\":[0.5,0.5]}\n") == 0,
              "%.200s: afterwards %d %s", body, response.status, response.body);
    client_response_free(&response);
    return status;
}

/* A good text is JSON without a fault, but it need not be a call. A bad text that is a value may go
 * on with the brace that follows it, so the fault may be found a byte or two later. */
static void expect_text_in(const char *before, const char *text, const char *after, long offset) {
    char body[512];
    long got;
    const int size = snprintf(body, sizeof body, "%s%s%s", before, text, after);
    const int status = post_text(body, (size_t)size, &got);
    const long first = offset + (long)strlen(before), last = first + 2 * (long)strlen(after);
    if (offset < 0) {
        cr_expect((status == 422 || (status == 200 && *before != '\0')) && got == -1,
                  "%s: %d, offset %ld", body, status, got);
    } else {
        cr_expect(status == 400 && got >= first && got <= last, "%s: %d, offset %ld, not %ld", body,
                  status, got, first);
    }
}

Test(grammar, promise_13_texts_as_bodies_and_as_values) {
    static struct rows rows;
    char text[ROWS_BYTES];
    bool good = false, bad = false, value = false;
    size_t count = 0;
    rows_open(&rows, "grammar.txt");
    while (rows_next(&rows)) {
        if (rows.line[0] == '=') {
            good = bad = false;
            value = strcmp(rows.line, "= bias") != 0;
            continue;
        }
        const long offset = rows_grammar(&rows, text);
        bool *sent = offset < 0 ? &good : &bad;
        if (!*sent) {
            *sent = true;
            count++;
            expect_text_in("", text, "", offset);
            if (value) {
                expect_text_in("{\"X\":", text, "}", offset);
            }
        }
    }
    cr_expect_eq(count, 10);
    rows_close(&rows);
}

/* Numbers are rounded. RFC 8259 would let a reader refuse these. */
Test(grammar, promise_13_numbers_that_are_rounded) {
    static const char *const numbers[] = {"321e-10000000",
                                          "1e-400",
                                          "1e-60",
                                          "100000000000000000000",
                                          "9007199254740993",
                                          "-321321321321321321321321321321",
                                          "-0",
                                          "0e999999",
                                          "0.1000000000000000055511151231257827"};
    for (size_t i = 0; i < COUNT(numbers); i++) {
        char body[64];
        long offset;
        const int size = snprintf(body, sizeof body, "{\"X\":[%s]}", numbers[i]);
        cr_expect_eq(post_text(body, (size_t)size, &offset), 200, "%s", body);
    }
}

/* A body of `depth` levels is accepted up to 16 levels, whatever its length. */
static void expect_depth(const char *opening, size_t depth, char closing) {
    static char body[MOST];
    const size_t each = strlen(opening);
    size_t size = 0;
    long offset;
    cr_assert_lt(depth * (each + 1), MOST);
    for (; size < depth * each; size += each) {
        memcpy(body + size, opening, each);
    }
    if (each > 1) { /* the innermost member needs a value */
        body[size++] = '0';
    }
    memset(body + size, closing, depth);
    const int status = post_text(body, size + depth, &offset);
    cr_expect(depth <= 16 ? status == 422 && offset == -1
                          : status == 400 && offset == (long)(16 * each),
              "%zu x %s: %d, offset %ld", depth, opening, status, offset);
}

Test(grammar, promise_16_depth_of_bodies) {
    static const size_t depths[] = {1, 15, 16, 17, 18, 10000};
    for (size_t i = 0; i < COUNT(depths); i++) {
        expect_depth("[", depths[i], ']');
        expect_depth("{\"a\":", depths[i], '}');
    }
}
