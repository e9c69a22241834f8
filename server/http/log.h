/*
 * log.h - lines on standard error or in a file: for people, or JSON. What clients make
 * libmicrohttpd say is bounded in rate, and so that nobody can forge lines, what is not plain ASCII
 * is written as '?'. Bodies and keys are never logged.
 */
#ifndef HTTP_LOG_H
#define HTTP_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "http/http.h"

/* Begins to log as these say; before, it is text on standard error. Borrows the path. False with
 * the reason. */
bool http_log_open(const struct http_log_options *options, char *error, size_t size);

/* Opens the file again, after it was moved away. On failure the old one stays, and gets a line. */
void http_log_reopen(void);

/* Writes one line, at most 10 of them in a minute. From any thread. */
__attribute__((format(printf, 1, 2))) void http_log(const char *format, ...);

/* The same in the form of libmicrohttpd's MHD_LogCallback. */
__attribute__((format(printf, 2, 0))) void http_log_mhd(void *unused, const char *format,
                                                        va_list arguments);

/* Does anybody want a line for each request? */
bool http_log_wants_requests(void);

/* The line of a request, at most 1000 in a second: the rest is counted. `client` is its address. */
void http_log_request(const struct http_request *request, const struct http_record *record,
                      const char *client);

#endif
