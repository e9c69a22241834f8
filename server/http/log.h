/*
 * log.h - the http room's few lines on stderr. Each bad request makes libmicrohttpd write, so the
 * rate is bounded, and so that a client cannot forge lines, control characters are escaped.
 */
#ifndef HTTP_LOG_H
#define HTTP_LOG_H

#include <stdarg.h>

/* Writes one line "attentiond: ...", at most 10 of them in a minute. From any thread. */
__attribute__((format(printf, 1, 2))) void http_log(const char *format, ...);

/* The same in the form of libmicrohttpd's MHD_LogCallback. */
__attribute__((format(printf, 2, 0))) void http_log_mhd(void *unused, const char *format,
                                                        va_list arguments);

#endif
