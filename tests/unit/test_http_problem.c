/*
 * test_http_problem.c tests problem documents: their members, their escaping, and that they are
 * valid UTF-8 whatever bytes go in; and request ids.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "http/http.h"
#include "http/request_id.h"
#include "support/count.h"

static const struct http_request request = {
    .method = "GET", .path = "/", .media_type = "", .id = "id-1"};

/* Returns the body as a string, which the caller frees. */
static char *problem(int status, const char *detail, const char *pointer,
                     const struct http_place *place) {
    struct http_response response = {0};
    http_problem(&response, &request, status, detail, pointer, place);
    cr_assert_eq(response.status, status);
    cr_assert_str_eq(response.media_type, "application/problem+json");
    char *body = strndup(response.body, response.size);
    cr_assert_eq(strlen(body), response.size);
    response.release((void *)response.body);
    return body;
}

Test(http_problem, all_members) {
    char *body = problem(422, "K has 48 columns but Q has 64", "/K",
                         &(struct http_place){.offset = 17, .line = 2, .column = 5});
    cr_expect_str_eq(
        body, "{\"type\":\"about:blank\",\"title\":\"Unprocessable Content\",\"status\":422,"
              "\"detail\":\"K has 48 columns but Q has 64\",\"pointer\":\"/K\",\"offset\":17,"
              "\"line\":2,\"column\":5,\"request_id\":\"id-1\"}\n");
    free(body);
}

Test(http_problem, members_left_out) {
    char *body = problem(404, "", NULL, NULL);
    cr_expect_str_eq(body, "{\"type\":\"about:blank\",\"title\":\"Not Found\",\"status\":404,"
                           "\"detail\":\"\",\"request_id\":\"id-1\"}\n");
    free(body);
    struct http_response response = {0};
    http_problem(&response, &request, 503, "x", "", &(struct http_place){0, 1, 1});
    body = strndup(response.body, response.size);
    cr_expect_str_eq(body,
                     "{\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,"
                     "\"detail\":\"x\",\"pointer\":\"\",\"offset\":0,\"line\":1,\"column\":1,"
                     "\"request_id\":\"id-1\"}\n");
    response.release((void *)response.body);
    free(body);
}

Test(http_problem, text_is_always_json) {
    static const struct {
        const char *in, *out;
    } texts[] = {
        {"a\"b\\c/d", "a\\\"b\\\\c/d"},
        {"\x01\t\n\x1f\x7f", "\\u0001\\u0009\\u000a\\u001f\\u007f"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
         "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        /* The text ends in the middle of a character of two, three or four bytes. */
        {"a\xc3", "a"},
        {"a\xe2\x82", "a"},
        {"a\xe2", "a"},
        {"a\xf0\x9f\x98", "a"},
        /* These are not UTF-8: a lone continuation byte, overlong forms, a surrogate, a character
         * beyond U+10FFFF, and a broken sequence. */
        {"a\x80z", "a\xef\xbf\xbdz"},
        {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xe0\x80\xafz", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz"},
        {"\xed\xa0\x80z", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz"},
        {"\xf4\x90\x80\x80z", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz"},
        {"\xe2\x28\xa1z", "\xef\xbf\xbd(\xef\xbf\xbdz"},
        {"\xffz", "\xef\xbf\xbdz"},
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        char *body = problem(400, texts[i].in, NULL, NULL);
        const char *detail = strstr(body, "\"detail\":\"") + strlen("\"detail\":\"");
        cr_expect_eq(strncmp(detail, texts[i].out, strlen(texts[i].out)), 0, "%s", body);
        cr_expect_eq(strncmp(detail + strlen(texts[i].out), "\",\"request_id\"", 14), 0, "%s",
                     body);
        free(body);
    }
}

Test(http_problem, longest_text) {
    char text[10000];
    memset(text, 1, sizeof text); /* each byte becomes six */
    text[sizeof text - 1] = '\0';
    char *body = problem(400, text, text, &(struct http_place){UINT64_MAX, UINT64_MAX, UINT64_MAX});
    cr_expect_str_eq(body + strlen(body) - strlen("\"request_id\":\"id-1\"}\n"),
                     "\"request_id\":\"id-1\"}\n");
    cr_expect_lt(strlen(body), 32768);
    free(body);
}

Test(http_problem, inference_errors_have_the_detail_alone) {
    static const struct http_request bare = {
        .method = "GET", .path = "/v2", .media_type = "", .id = "id-1", .inference = true};
    char text[10000];
    struct http_response response = {0};
    http_problem(&response, &bare, 422, "a \"b\"\n\xff", "/K", &(struct http_place){1, 2, 3});
    static const char wanted[] = "{\"error\":\"a \\\"b\\\"\\u000a\xef\xbf\xbd\"}\n";
    cr_expect_eq(response.status, 422);
    cr_expect_str_eq(response.media_type, "application/json");
    cr_expect_eq(response.size, sizeof wanted - 1);
    cr_expect_eq(memcmp(response.body, wanted, response.size), 0, "%s", (char *)response.body);
    response.release((void *)response.body);
    memset(text, 1, sizeof text); /* each byte becomes six */
    text[sizeof text - 1] = '\0';
    http_problem(&response, &bare, 400, text, NULL, NULL);
    cr_expect_eq(response.size, (size_t)2048 * 6 + strlen("{\"error\":\"\"}\n"));
    response.release((void *)response.body);
}

Test(http_problem, made_ids) {
    enum {
        IDS = 1000
    };
    static char ids[IDS][REQUEST_ID_SIZE];
    struct request_ids source, other;
    request_ids_init(&source);
    request_ids_init(&other);
    for (int i = 0; i < IDS; i++) {
        request_ids_next(&source, ids[i]);
        cr_expect_eq(strspn(ids[i], "0123456789abcdef"), REQUEST_ID_SIZE - 1);
        for (int j = 0; j < i; j++) {
            cr_expect_str_neq(ids[i], ids[j]);
        }
    }
    char first[REQUEST_ID_SIZE];
    request_ids_next(&other, first);
    cr_expect_str_neq(first, ids[0], "two processes count alike");
}
