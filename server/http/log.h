/*
 * log.h - lines on standard error or in a file: for people, or JSON. Each line has its time.
 * Clients cannot fill the log: the lines that they cause are limited in rate. They cannot forge
 * lines either: whatever is not plain ASCII is written as '?'. Bodies and keys are never logged.
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

/* Opens the file again, after it was moved away. False if there is none, or if that fails: then the
 * old one stays, and gets a line. */
bool http_log_reopen(void);

/* Writes what the operator has caused, such as a start. There is no limit. `level` is "info",
 * "warning" or "error". From any thread. */
__attribute__((format(printf, 2, 3))) void http_log(const char *level, const char *format, ...);

/* Counts a request that was refused, for the next summary. `reason` is static. From any thread. */
void http_log_refused(const char *reason);

/* Writes one line about all requests that were refused since the last such line. No line is written
 * if there are none, or if the last such line is less than a minute old and this is not the `last`
 * call. It is called about once a second. */
void http_log_summary(bool last);

/* Writes a warning of libmicrohttpd's, at most 10 of them in a minute, since clients may cause it.
 * This is its MHD_LogCallback. From any thread. */
__attribute__((format(printf, 2, 0))) void http_log_mhd(void *unused, const char *format,
                                                        va_list arguments);

/* Does anybody want a line for each request? */
bool http_log_wants_requests(void);

/* The line of a request, at most 1000 in a second: the rest is counted. `client` is its address. */
void http_log_request(const struct http_request *request, const struct http_record *record,
                      const char *client);

#endif
