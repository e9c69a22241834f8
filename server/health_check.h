/*
 * health_check.h - `attentiond --health-check`, which asks a running server whether it is alive.
 * Container images without curl need it. It is a client and does not use libmicrohttpd.
 */
#ifndef HEALTH_CHECK_H
#define HEALTH_CHECK_H

#include <stdbool.h>

/* Sends GET /health/live to a numeric `address` and `port`, over TLS if `tls` is set. The addresses
 * 0.0.0.0 and :: mean this machine. No certificate is verified. Returns the exit status, which is 0
 * if the server answers with the status 200 within 3 seconds. Otherwise it is 1, and a line on
 * standard error says why. */
int health_check(const char *address, unsigned port, bool tls);

#endif
