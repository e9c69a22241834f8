/*
 * log.h - writes lines on standard error or in a file, as text or as JSON. Each line has its time.
 * Clients cannot fill the log, because the lines that they cause are limited in rate. They cannot
 * forge lines either, because '?' is written for every byte that is not plain ASCII. Bodies and
 * keys are never logged.
 */
#ifndef HTTP_LOG_H
#define HTTP_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "http/http.h"

/* Begins to log as the options say; until then, lines are text on standard error. Borrows the path.
 * Returns false with the reason in error[0..size). */
bool http_log_open(const struct http_log_options *options, char *error, size_t size);

/* Opens the log file again after it was moved away. Returns false if there is no log file or if
 * this fails; in the latter case the old file stays and gets a line. */
bool http_log_reopen(void);

/* Writes a line about something that the operator has caused, such as a start, without a limit.
 * `level` is "info", "warning" or "error". May be called from any thread. */
__attribute__((format(printf, 2, 3))) void http_log(const char *level, const char *format, ...);

/* Counts a request that was refused, for the next summary. `reason` is static. May be called from
 * any thread. */
void http_log_refused(const char *reason);

/* Writes a summary: one line about all requests that were refused since the last summary. No line
 * is written if there are none, or if the last summary is less than a minute old and this is not
 * the `last` call. The caller calls this about once a second. */
void http_log_summary(bool last);

/* Writes a warning of libmicrohttpd, at most 10 of them in a minute, because clients may cause
 * them. It has the type of MHD_LogCallback. May be called from any thread. */
__attribute__((format(printf, 2, 0))) void http_log_mhd(void *unused, const char *format,
                                                        va_list arguments);

/* Returns whether the options ask for a line for each request. */
bool http_log_wants_requests(void);

/* Writes the line of a request, at most 1000 in a second; the others are counted. `client` is the
 * address of the client. May be called from any thread. */
void http_log_request(const struct http_request *request, const struct http_record *record,
                      const char *client);

#endif
