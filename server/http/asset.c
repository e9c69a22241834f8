/* asset.c compares entity tags and chooses a form of an asset. */
#include "http/asset.h"
#include "http/coding.h"

#include <string.h>

/* Returns the next entity tag of a list and its size: either "*", or the opaque part of a tag with
 * its quotes, without W/. Returns NULL if no tag follows, or if the list is malformed there. */
static const char *next_tag(const char *at, const char *end, size_t *size) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == ',')) {
        at++;
    }
    if (end - at > 2 && at[0] == 'W' && at[1] == '/') {
        at += 2;
    }
    if (at == end || (*at != '"' && *at != '*')) {
        return NULL;
    }
    const char *close = *at == '*' ? at : memchr(at + 1, '"', (size_t)(end - at - 1));
    *size = close != NULL ? (size_t)(close + 1 - at) : 0;
    return close != NULL ? at : NULL;
}

/* Returns whether an If-None-Match header names the tag. This is the weak comparison: a tag means
 * the same with W/ and without. */
static bool has_tag(const struct framing_header *header, const char *tag) {
    const char *end = header->value + header->value_size, *opaque = strchr(tag, '"');
    size_t size;
    for (const char *at = next_tag(header->value, end, &size); at != NULL;
         at = next_tag(at + size, end, &size)) {
        if (*at == '*' || (size == strlen(opaque) && memcmp(at, opaque, size) == 0)) {
            return true;
        }
    }
    return false;
}

enum coding asset_choose(struct http_response *response, const struct framing_header *headers,
                         size_t count) {
    const struct http_asset *asset = response->asset;
    bool must;
    enum coding coding = coding_choose(headers, count, CODINGS_STORED, &must);
    const struct http_form *form = coding == CODING_GZIP     ? &asset->gzip
                                   : coding == CODING_BROTLI ? &asset->brotli
                                                             : &asset->plain;
    if (form->size == 0) {
        form = &asset->plain;
        coding = CODING_NONE;
    }
    response->body = form->bytes;
    response->size = form->size;
    for (size_t i = 0; i < count; i++) {
        if (framing_is(&headers[i], "If-None-Match") && has_tag(&headers[i], asset->tag)) {
            response->status = 304;
            return CODING_NONE;
        }
    }
    return coding;
}
