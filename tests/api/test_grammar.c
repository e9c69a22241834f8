/*
 * test_grammar.c - promise 13: a text that is not JSON gets one correct 400 with the byte at fault,
 * and the connection takes the next request. Every text of support/grammar.h is sent as a body and
 * as the value of a matrix. RFC 8259 leaves some texts to the reader; the list here says what the
 * service does with them. The tests know the service by its socket only.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/grammar.h"
#include "support/json.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum {
    MOST = 64 * 1024 /* bytes of the longest body */
};

TestSuite(grammar, .init = daemon_start_connected, .fini = daemon_end, .timeout = 120);

/* Sends the body and returns the status of the answer. *offset is the offset in the problem, or -1
 * if there is none. Then sends a correct request, which must be answered. */
static int post_text(const char *body, size_t size, long *offset) {
    struct client_response response;
    char type[64] = "";
    double number = -1;
    cr_assert(client_post(&the_connection, "/softmax", body, size, &response), "%.200s: no answer",
              body);
    const int status = response.status;
    struct cJSON *answer = json_parse(response.body, response.size);
    cr_expect(json_is_object(answer), "%.200s: no JSON: %s", body, response.body);
    client_header(&response, "Content-Type", type, sizeof type);
    cr_expect_str_eq(type, status == 200 ? "application/json" : "application/problem+json",
                     "%.200s: %s", body, type);
    json_number(json_get(answer, "offset"), &number);
    *offset = (long)number;
    json_free(answer);
    client_response_free(&response);

    static const char good[] = "{\"X\":[0,0]}";
    cr_assert(client_post(&the_connection, "/softmax", good, sizeof good - 1, &response));
    cr_expect(response.status == 200 && strcmp(response.body, "{\"output\":[0.5,0.5]}\n") == 0,
              "%.200s: afterwards %d %s", body, response.status, response.body);
    client_response_free(&response);
    return status;
}

/* A good text is JSON without a fault, but it need not be a call. */
static void expect_body(const struct grammar_case *row) {
    long offset;
    const int status = post_text(row->text, strlen(row->text), &offset);
    if (row->offset == GOOD) {
        cr_expect(status == 422 && offset == -1, "%s: %d, offset %ld", row->text, status, offset);
    } else {
        cr_expect(status == 400 && offset == row->offset, "%s: %d, offset %ld, not %ld", row->text,
                  status, offset, row->offset);
    }
}

/* Sends the text as a value. The text may go on with the brace that follows it, so the fault may be
 * found a byte or two later. */
static void expect_value(const struct grammar_case *row) {
    enum {
        BEFORE = 5 /* the bytes of {"X": */
    };
    char body[512];
    long offset;
    const int size = snprintf(body, sizeof body, "{\"X\":%s}", row->text);
    const int status = post_text(body, (size_t)size, &offset);
    if (row->offset == GOOD) {
        cr_expect((status == 200 || status == 422) && offset == -1, "%s: %d, offset %ld", body,
                  status, offset);
    } else {
        const long first = row->offset + BEFORE;
        cr_expect(status == 400 && offset >= first && offset <= first + 2,
                  "%s: %d, offset %ld, not %ld", body, status, offset, first);
    }
}

Test(grammar, promise_13_texts_as_bodies_and_as_values) {
    size_t good = 0, bad = 0;
    for (size_t i = 0; i < GRAMMAR_LISTS; i++) {
        for (size_t j = 0; j < grammar_lists[i].count; j++) {
            const struct grammar_case *row = &grammar_lists[i].cases[j];
            *(row->offset == GOOD ? &good : &bad) += 1;
            expect_body(row);
            if (i != GRAMMAR_BIAS) {
                expect_value(row);
            }
        }
    }
    cr_expect(good >= 95 && bad >= 188, "the public suites have 95 and 188, this one %zu and %zu",
              good, bad);
}

/* A text that RFC 8259 lets a reader accept or refuse. It is sent as the value X of a softmax in
 * float32. */
struct verdict {
    const char *name, *text;
    size_t size;
    int status;
    long offset; /* the byte at fault in the text, if the status is 400 */
};

#define VERDICT(name_, text_, status_, offset_)                                                    \
    {                                                                                              \
        .name = name_, .text = text_, .size = sizeof(text_) - 1, .status = status_,                \
        .offset = offset_                                                                          \
    }
#define TAKEN(name, text)          VERDICT(name, text, 200, -1)
#define NO_NUMBER(name, text)      VERDICT(name, text, 422, -1)
#define REFUSED(name, text, where) VERDICT(name, text, 400, where)

static const struct verdict verdicts[] = {
    /* Numbers are rounded. One that is not finite in float32 is refused. */
    NO_NUMBER("positive, beyond double", "[2e400]"),
    NO_NUMBER("negative, beyond double", "[-2e400]"),
    NO_NUMBER("beyond float32 only", "[1e39]"),
    NO_NUMBER("negative, beyond float32 only", "[-1e39]"),
    NO_NUMBER("an exponent of 40 digits", "[0.4e0012345678901234567890123456789012345678]"),
    NO_NUMBER("a large exponent with a sign", "[-1.5e+9999]"),
    NO_NUMBER("a long number with a large exponent", "[123321e100000]"),
    NO_NUMBER("a whole number of 48 digits", "[123456789012345678901234567890123456789012345678]"),
    TAKEN("a small exponent", "[321e-10000000]"),
    TAKEN("below the least double", "[1e-400]"),
    TAKEN("below the least float32", "[1e-60]"),
    TAKEN("a whole number beyond 2^64", "[100000000000000000000]"),
    TAKEN("a whole number of 30 digits", "[-321321321321321321321321321321]"),
    TAKEN("one beyond 2^53", "[9007199254740993]"),
    TAKEN("minus zero", "[-0]"),
    TAKEN("zero with a large exponent", "[0e999999]"),
    TAKEN("more digits than a double has", "[0.1000000000000000055511151231257827]"),
    /* Strings hold whole characters of UTF-8 and no NUL. */
    REFUSED("a first surrogate alone", "[\"\\uDADA\"]", 8),
    REFUSED("a first surrogate and a letter", "[\"\\uDADAb\"]", 8),
    REFUSED("a first surrogate and another character", "[\"\\uD888\\u1234\"]", 8),
    REFUSED("a first surrogate and a line end", "[\"\\uD800\\n\"]", 9),
    REFUSED("two first surrogates", "[\"\\uD800\\uD800\\n\"]", 8),
    REFUSED("a second surrogate alone", "[\"\\uDFAA\"]", 2),
    REFUSED("surrogates in the wrong order", "[\"\\uDd1e\\uD834\"]", 2),
    REFUSED("a surrogate in UTF-8", "[\"\xED\xA0\x80\"]", 3),
    REFUSED("a continuation byte alone", "[\"\x81\"]", 2),
    REFUSED("a byte of Latin-1", "[\"\xE9\"]", 3),
    REFUSED("a byte that is never in UTF-8", "[\"\xFF\"]", 2),
    REFUSED("beyond the last character", "[\"\xF4\xBF\xBF\xBF\"]", 3),
    REFUSED("two bytes for a slash", "[\"\xC0\xAF\"]", 2),
    REFUSED("six bytes for a character", "[\"\xFC\x83\xBF\xBF\xBF\xBF\"]", 2),
    REFUSED("six bytes for a NUL", "[\"\xFC\x80\x80\x80\x80\x80\"]", 2),
    REFUSED("a cut character", "[\"\xE0\xFF\"]", 3),
    REFUSED("UTF-16 with its mark, little end first", "\xFF\xFE[\0\"\0\xE9\0\"\0]\0", 0),
    REFUSED("UTF-16, little end first", "[\0\"\0\xE9\0\"\0]\0", 1),
    REFUSED("UTF-16, big end first", "\0[\0\"\0\xE9\0\"\0]", 0),
    REFUSED("a NUL that is written as an escape", "[\"a\\u0000b\"]", 3),
    REFUSED("a NUL between", "[1,\0 2]", 3),
    REFUSED("a NUL in a text", "[\"a\0b\"]", 3),
    REFUSED("a NUL after a number", "[1\0]", 2),
    /* An object has each name once, and nothing is deeper than 16. */
    REFUSED("one name twice", "{\"a\":1,\"a\":1}", 7),
    REFUSED("one name twice, with other values", "{\"a\":\"b\",\"a\":\"c\"}", 9),
    REFUSED("an object 16 deep", "[[[[[[[[[[[[[[[{}]]]]]]]]]]]]]]]", 15),
    REFUSED("a mark before an object", "\xEF\xBB\xBF{}", 0),
};

Test(grammar, promise_13_verdicts_on_what_is_left_to_us) {
    for (size_t i = 0; i < COUNT(verdicts); i++) {
        const struct verdict *row = &verdicts[i];
        char body[256] = "{\"X\":";
        long offset;
        memcpy(body + 5, row->text, row->size);
        body[5 + row->size] = '}';
        const int status = post_text(body, row->size + 6, &offset);
        const long expected = row->status == 400 ? row->offset + 5 : -1;
        cr_expect(status == row->status && offset == expected, "%s: %d, offset %ld, not %d, %ld",
                  row->name, status, offset, row->status, expected);
    }
    cr_expect_geq(COUNT(verdicts), 35);
}

/* A body of `depth` levels is accepted up to 16 levels, whatever its length. */
static void expect_depth(const char *opening, size_t depth, const char *closing) {
    static char body[MOST];
    size_t size = 0;
    long offset;
    const size_t each = strlen(opening);
    cr_assert(depth * (each + strlen(closing)) < MOST);
    for (size_t i = 0; i < depth; i++, size += each) {
        memcpy(body + size, opening, each);
    }
    if (each > 1) { /* the innermost member needs a value */
        body[size++] = '0';
    }
    for (size_t i = 0; i < depth; i++) {
        body[size++] = closing[0];
    }
    const int status = post_text(body, size, &offset);
    if (depth <= 16) {
        cr_expect(status == 422 && offset == -1, "%zu x %s: %d", depth, opening, status);
    } else {
        cr_expect(status == 400 && offset == (long)(16 * each), "%zu x %s: %d, offset %ld", depth,
                  opening, status, offset);
    }
}

Test(grammar, promise_16_depth_of_bodies) {
    for (size_t depth = 1; depth < 10000; depth = depth < 20 ? depth + 1 : depth * 2) {
        expect_depth("[", depth, "]");
        expect_depth("{\"a\":", depth, "}");
    }
}
