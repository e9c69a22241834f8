/*
 * asset.h - which form of an asset answers a request: the coding that Accept-Encoding prefers, or a
 * 304 if the client has it (If-None-Match; RFC 9110 section 13.1.2). Knows nothing of connections.
 */
#ifndef HTTP_ASSET_H
#define HTTP_ASSET_H

#include "http/framing.h"
#include "http/http.h"

/* Makes the body of this response, which has an asset, what a request with these headers wants, or
 * the response a 304. Returns the coding of its body. */
enum coding asset_choose(struct http_response *response, const struct framing_header *headers,
                         size_t count);

#endif
