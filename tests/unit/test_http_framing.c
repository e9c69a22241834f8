/*
 * test_http_framing.c - tests of the filter of request heads, which is a pure function. These are
 * heads that libmicrohttpd may refuse itself, or that it hands over in other parts.
 * data/framing.txt has those that reach the filter with every libmicrohttpd, and
 * api/test_framing.c the limits.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "http/framing.h"
#include "support/count.h"

/* A header. The sizes are counted, because a NUL may be inside the name or the value. */
#define H(name_, value_)                                                                           \
    {                                                                                              \
        .name = name_, .name_size = sizeof(name_) - 1, .value = value_,                            \
        .value_size = sizeof(value_) - 1                                                           \
    }
#define HOST            H("Host", "a")
#define THREE           LENGTH("3")
#define LENGTH(value)   H("Content-Length", value)
#define TRANSFER(value) H("Transfer-Encoding", value)
#define CODING(value)   H("Content-Encoding", value)

struct head_case {
    const char *what;
    const char *method, *version;
    int status; /* 0: sound */
    struct framing_header headers[4];
};

static const struct head_case heads[] = {
    {"plain", "GET", "HTTP/1.1", 0, {HOST}},
    {"HTTP/1.0 needs no Host", "GET", "HTTP/1.0", 0, {H("A", "")}},
    {"content length", "POST", "HTTP/1.1", 0, {HOST, LENGTH("03")}},
    {"chunked in any case", "POST", "HTTP/1.1", 0, {HOST, H("transfer-encoding", "Chunked")}},
    {"100-continue", "POST", "HTTP/1.1", 0, {HOST, THREE, H("Expect", "100-Continue")}},
    {"identity", "POST", "HTTP/1.1", 0, {HOST, THREE, CODING("identity")}},
    {"tab and Latin-1 in a value", "GET", "HTTP/1.1", 0, {HOST, H("A", "b\tc\xe9")}},
    {"HTTP/2.0", "GET", "HTTP/2.0", 505, {HOST}},
    {"no Host", "GET", "HTTP/1.1", 400, {H("A", "b")}},
    {"two Hosts in 1.0", "GET", "HTTP/1.0", 400, {HOST, HOST}},
    {"empty name", "GET", "HTTP/1.1", 400, {HOST, {"", 0, "b", 1}}},
    {"space before colon", "POST", "HTTP/1.1", 400, {HOST, H("Content-Length ", "3")}},
    {"tab in a name", "GET", "HTTP/1.1", 400, {HOST, H("A\tb", "c")}},
    {"NUL in a name", "GET", "HTTP/1.1", 400, {HOST, H("A\0b", "c")}},
    {"parenthesis in a name", "GET", "HTTP/1.1", 400, {HOST, H("A(b)", "c")}},
    {"NUL in a value", "GET", "HTTP/1.1", 400, {HOST, H("A", "b\0c")}},
    {"CR in a value", "GET", "HTTP/1.1", 400, {HOST, H("A", "b\rc")}},
    {"DEL in a value", "GET", "HTTP/1.1", 400, {HOST, H("A", "b\x7f")}},
    {"length and chunked", "POST", "HTTP/1.1", 400, {HOST, THREE, TRANSFER("chunked")}},
    {"signed length", "POST", "HTTP/1.1", 400, {HOST, LENGTH("+3")}},
    {"list of lengths", "POST", "HTTP/1.1", 400, {HOST, LENGTH("3,3")}},
    {"no length", "POST", "HTTP/1.1", 411, {HOST}},
    {"no length of OPTIONS", "OPTIONS", "HTTP/1.1", 0, {HOST}},
    {"length 0", "POST", "HTTP/1.1", 0, {HOST, LENGTH("0")}},
    {"a length that became a name", "POST", "HTTP/1.1", 411, {HOST, H("Content-Length58", "")}},
    {"empty length", "POST", "HTTP/1.1", 400, {HOST, LENGTH("")}},
    {"gzip, chunked", "POST", "HTTP/1.1", 501, {HOST, TRANSFER("gzip, chunked")}},
    {"xchunked", "POST", "HTTP/1.1", 501, {HOST, TRANSFER("xchunked")}},
    {"identity as transfer", "POST", "HTTP/1.1", 501, {HOST, TRANSFER("identity")}},
    {"empty transfer", "POST", "HTTP/1.1", 501, {HOST, TRANSFER("")}},
    {"chunked twice", "POST", "HTTP/1.1", 400, {HOST, TRANSFER("chunked"), TRANSFER("chunked")}},
    {"chunked in 1.0", "POST", "HTTP/1.0", 400, {HOST, TRANSFER("chunked")}},
    {"other expectation", "POST", "HTTP/1.1", 417, {HOST, THREE, H("Expect", "tea")}},
    {"gzip", "POST", "HTTP/1.1", 415, {HOST, THREE, CODING("gzip")}},
    {"gzip, identity", "POST", "HTTP/1.1", 415, {HOST, THREE, CODING("gzip, identity")}},
    {"two codings", "POST", "HTTP/1.1", 415, {HOST, THREE, CODING("identity"), CODING("br")}},
};

static void check_case(const struct head_case *c, struct framing_result *result) {
    struct framing_head head = {.method = c->method, .version = c->version, .headers = c->headers};
    while (head.count < COUNT(c->headers) && c->headers[head.count].name != NULL) {
        head.count++;
    }
    framing_check(&head, result);
}

Test(http_framing, heads) {
    for (size_t i = 0; i < COUNT(heads); i++) {
        struct framing_result result;
        check_case(&heads[i], &result);
        cr_expect_eq(result.status, heads[i].status, "%s: %d (%s), not %d", heads[i].what,
                     result.status, result.detail, heads[i].status);
        if (heads[i].status == 0) {
            continue;
        }
        cr_expect(heads[i].status != 411 ||
                      strcmp(result.detail, "the request has no Content-Length and no chunks; send "
                                            "JSON as the body, for example with curl -d '{}'") == 0,
                  "%s: %s", heads[i].what, result.detail);
        /* The connection stays usable only if the coding of the body is refused. */
        cr_expect_eq(result.close, result.status != 415, "%s: close is %d", heads[i].what,
                     result.close);
        cr_expect_neq(result.detail[0], '\0', "%s: no detail", heads[i].what);
    }
}

Test(http_framing, codings) {
    static const struct {
        const char *first, *second;
        int status;
        enum coding coding;
    } cases[] = {
        {"gzip", "identity", 0, CODING_GZIP},
        {"identity", "X-GZip", 0, CODING_GZIP},
        {"ZSTD", "identity", 0, CODING_ZSTD},
        {"identity", "identity", 0, CODING_NONE},
        {"gzip", "gzip", 415, CODING_NONE},
        {"gzip", "zstd", 415, CODING_NONE},
        {"gzip, zstd", "identity", 415, CODING_NONE},
        {"Deflate", "identity", 0, CODING_DEFLATE},
        {"deflate", "gzip", 415, CODING_NONE},
        {"x-deflate", "identity", 415, CODING_NONE},
        {"gzip", "br", 415, CODING_NONE},
        {"", "identity", 415, CODING_NONE},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct framing_header headers[] = {
            HOST,
            THREE,
            {"Content-Encoding", 16, cases[i].first, strlen(cases[i].first)},
            {"content-encoding", 16, cases[i].second, strlen(cases[i].second)}};
        const struct framing_head head = {.method = "POST",
                                          .version = "HTTP/1.1",
                                          .headers = headers,
                                          .count = COUNT(headers),
                                          .codings = true};
        struct framing_result result;
        framing_check(&head, &result);
        cr_expect_eq(result.status, cases[i].status, "%s: %d", cases[i].first, result.status);
        cr_expect(!result.close && (result.status != 0 || result.coding == cases[i].coding), "%s",
                  cases[i].first);
    }
}

Test(http_framing, content_length) {
    static const struct {
        const char *text;
        uint64_t value;
    } lengths[] = {
        {"0", 0},
        {"00012", 12},
        {"9223372036854775808", UINT64_C(1) << 63},
        {"18446744073709551615", UINT64_MAX},
        {"18446744073709551616", UINT64_MAX},
        {"99999999999999999999999999", UINT64_MAX},
    };
    for (size_t i = 0; i < COUNT(lengths); i++) {
        const struct framing_header headers[] = {
            HOST, {"Content-Length", 14, lengths[i].text, strlen(lengths[i].text)}};
        const struct framing_head head = {
            .method = "POST", .version = "HTTP/1.1", .headers = headers, .count = 2};
        struct framing_result result;
        framing_check(&head, &result);
        cr_expect_eq(result.status, 0, "%s", lengths[i].text);
        cr_expect_eq(result.content_length, lengths[i].value, "%s", lengths[i].text);
    }
}

/* Bytes between two parts of a head are refused, unless another libmicrohttpd hides the layout. */
Test(http_framing, gaps_between_the_parts) {
    static char texts[][32] = {"GET\0/\0HTTP/1.0\0\0A\0b", "GET\0/\0HTTP/1.0\0\0: c\0\0A\0b"};
    static const size_t sizes[] = {23, 28};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char *name = texts[i] + sizes[i] - 7; /* four bytes follow the value: two line ends */
        const struct framing_header header = {name, 1, name + 2, 1};
        struct framing_head head = {.method = texts[i],
                                    .target = texts[i] + 4,
                                    .target_size = 1,
                                    .version = texts[i] + 6,
                                    .size = sizes[i],
                                    .headers = &header,
                                    .count = 1};
        struct framing_result result;
        framing_check(&head, &result);
        cr_expect_eq(result.status, i == 0 ? 0 : 400, "%zu: %d", i, result.status);
        head.target = NULL;
        framing_check(&head, &result);
        cr_expect_eq(result.status, 0);
    }
}

Test(http_framing, long_values_are_cut_in_details) {
    char value[4096];
    memset(value, 'x', sizeof value);
    const struct framing_header headers[] = {HOST, {"Transfer-Encoding", 17, value, sizeof value}};
    const struct framing_head head = {
        .method = "POST", .version = "HTTP/1.1", .headers = headers, .count = 2};
    struct framing_result result;
    framing_check(&head, &result);
    cr_expect_eq(result.status, 501);
    cr_expect_lt(strlen(result.detail), 128);
}

Test(http_framing, targets) {
    static const char *const sound[] = {"/",         "*",    "/health/live?x=/../&y=%20",
                                        "/a..b/..c", "/%7e", "http://h/a"};
    static const char *const bad[] = {"",          "/a b", "/\\",  "/a\tb",   "/\x7f",
                                      "/\xc3\xa9", "/%00", "/%0a", "/%7F",    "/%",
                                      "/%2",       "/%zz", "/..",  "/a/../b", "/a/..?x"};
    char longest[FRAMING_MAX_URI + 2];
    for (size_t i = 0; i < COUNT(sound); i++) {
        cr_expect_eq(framing_check_uri(sound[i]), FRAMING_URI_SOUND, "%s", sound[i]);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        cr_expect_eq(framing_check_uri(bad[i]), FRAMING_URI_BAD, "%s", bad[i]);
    }
    memset(longest, '/', sizeof longest);
    longest[FRAMING_MAX_URI] = '\0';
    cr_expect_eq(framing_check_uri(longest), FRAMING_URI_SOUND);
    longest[FRAMING_MAX_URI] = '/';
    longest[FRAMING_MAX_URI + 1] = '\0';
    cr_expect_eq(framing_check_uri(longest), FRAMING_URI_LONG);
}

Test(http_framing, media_types) {
    static const struct {
        const char *header, *type;
    } types[] = {
        {"application/json", "application/json"},
        {"Application/JSON; charset=utf-8", "application/json"},
        {"application/json;charset=utf-8", "application/json"},
        {"application/json \t; x", "application/json"},
        {"", ""},
        {";", ""},
    };
    char type[32];
    for (size_t i = 0; i < COUNT(types); i++) {
        struct framing_header header = {"Content-Type", 12, types[i].header,
                                        strlen(types[i].header)};
        framing_media_type(&header, type, sizeof type);
        cr_expect_str_eq(type, types[i].type);
    }
    framing_media_type(NULL, type, sizeof type);
    cr_expect_str_eq(type, "");
    struct framing_header longer =
        H("Content-Type", "application/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    framing_media_type(&longer, type, sizeof type);
    cr_expect_eq(strlen(type), sizeof type - 1);
}

Test(http_framing, request_ids) {
    char bytes[FRAMING_MAX_ID + 1];
    memset(bytes, '~', sizeof bytes);
    struct framing_header id = {"X-Request-Id", 12, bytes, FRAMING_MAX_ID};
    cr_expect(framing_is_id(&id));
    id.value_size = FRAMING_MAX_ID + 1;
    cr_expect_not(framing_is_id(&id));
    id.value_size = 0;
    cr_expect_not(framing_is_id(&id));
    cr_expect_not(framing_is_id(NULL));
    id = (struct framing_header)H("X-Request-Id", "a b");
    cr_expect_not(framing_is_id(&id));
    id = (struct framing_header)H("X-Request-Id", "\xe9");
    cr_expect_not(framing_is_id(&id));
}
