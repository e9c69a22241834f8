/*
 * test_http_asset.c tests which form of an asset answers which headers, without a socket.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "http/asset.h"
#include "http/coding.h"
#include "support/count.h"

static const struct http_asset asset = {
    .media_type = "text/plain",
    .tag = "W/\"tag\"",
    .plain = {"plain", 5},
    .gzip = {"gz", 2},
    .brotli = {"b", 1},
};

static struct http_response response;

/* Chooses the form for a request with these values of Accept-Encoding and If-None-Match; NULL = no
 * such header. */
static enum coding choose(const struct http_asset *of, const char *accept, const char *match) {
    struct framing_header headers[] = {{"Host", 4, "a", 1}, {0}, {0}};
    size_t count = 1;
    if (accept != NULL) {
        headers[count++] = (struct framing_header){"accept-encoding", 15, accept, strlen(accept)};
    }
    if (match != NULL) {
        headers[count++] = (struct framing_header){"if-none-match", 13, match, strlen(match)};
    }
    response = (struct http_response){
        .status = 200, .body = of->plain.bytes, .size = of->plain.size, .asset = of};
    return asset_choose(&response, headers, count);
}

Test(http_asset, coding) {
    static const struct {
        const char *accept;
        enum coding coding;
    } wishes[] = {
        {NULL, CODING_NONE},
        {"", CODING_NONE},
        {"br", CODING_BROTLI},
        {"gzip, deflate, br, zstd", CODING_BROTLI},
        {"gzip, deflate", CODING_GZIP},
        {"gzip, br;q=0.9", CODING_GZIP},
        {"br;q=0, *", CODING_GZIP},
        {"*", CODING_BROTLI},
        {"zstd", CODING_NONE},
        {"identity, br;q=0.5", CODING_NONE},
        {"gzip;q=0, br;q=0, identity;q=0", CODING_NONE},
        {"br;q=2, brr, b", CODING_NONE},
    };
    for (size_t i = 0; i < COUNT(wishes); i++) {
        const enum coding coding = choose(&asset, wishes[i].accept, NULL);
        const struct http_form *form = coding == CODING_GZIP     ? &asset.gzip
                                       : coding == CODING_BROTLI ? &asset.brotli
                                                                 : &asset.plain;
        cr_expect_eq(coding, wishes[i].coding, "%s: %s", wishes[i].accept, coding_name(coding));
        cr_expect(response.status == 200 && response.body == form->bytes &&
                      response.size == form->size,
                  "%s", wishes[i].accept);
    }
}

/* An asset that is too small to be compressed has only its plain form. */
Test(http_asset, only_plain) {
    const struct http_asset small = {.tag = "W/\"tag\"", .plain = {"plain", 5}};
    cr_expect_eq(choose(&small, "br, gzip", NULL), CODING_NONE);
    cr_expect(response.body == small.plain.bytes && response.size == 5);
}

Test(http_asset, if_none_match) {
    static const struct {
        const char *match;
        int status;
    } rows[] = {
        {"W/\"tag\"", 304},
        {"\"tag\"", 304},
        {"*", 304},
        {"\"a,b\", W/\"tag\"", 304},
        {"\t\"x\" ,, ,\"tag\",\"y\"", 304},
        {"W/\"x\",W/\"tag\"", 304},
        {"", 200},
        {"tag", 200},
        {"\"ta\"", 200},
        {"\"tag2\"", 200},
        {"\"TAG\"", 200},
        {"\"tag", 200},
        {"\"", 200},
        {"W/", 200},
        {"W", 200},
        {"w/\"tag\"", 200},
        {"nonsense, \"tag\"", 200},
        {"\"a \"tag\"", 200},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const enum coding coding = choose(&asset, "br", rows[i].match);
        cr_expect_eq(response.status, rows[i].status, "%s", rows[i].match);
        cr_expect_eq(coding, response.status == 304 ? CODING_NONE : CODING_BROTLI);
    }
}
