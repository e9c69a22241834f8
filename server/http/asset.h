/*
 * asset.h - chooses the form of an asset that answers a request: the coding that Accept-Encoding
 * prefers, or a 304 if the client has the asset already (If-None-Match; RFC 9110 section 13.1.2).
 * It does not know connections.
 */
#ifndef HTTP_ASSET_H
#define HTTP_ASSET_H

#include "http/framing.h"
#include "http/http.h"

/* Gives a response that has an asset the form that a request with these headers asks for, or makes
 * it a 304. Returns the coding of the body. */
enum coding asset_choose(struct http_response *response, const struct framing_header *headers,
                         size_t count);

#endif
