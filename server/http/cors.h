/*
 * cors.h - which origins of web pages may ask (Fetch standard, "CORS protocol").
 */
#ifndef HTTP_CORS_H
#define HTTP_CORS_H

#include <stdbool.h>
#include <stddef.h>

/* Is origin[0..size) in the comma-separated list, or is the list "*"? NULL lists nobody. */
bool cors_allows(const char *list, const char *origin, size_t size);

#endif
