/*
 * cors.h - the origins whose web pages may use the service (Fetch standard, "CORS protocol").
 */
#ifndef HTTP_CORS_H
#define HTTP_CORS_H

#include <stdbool.h>
#include <stddef.h>

/* Returns whether origin[0..size) is in the comma-separated list, or the list is "*". A list of
 * NULL is empty. */
bool cors_allows(const char *list, const char *origin, size_t size);

#endif
