/*
 * health_check.h - `attentiond --health-check`: asks a running server whether it lives. For
 * container images that hold no curl. Knows no libmicrohttpd: it is a client.
 */
#ifndef HEALTH_CHECK_H
#define HEALTH_CHECK_H

#include <stdbool.h>

/* GET /health/live at `address` and `port`, over TLS or not; the unspecified addresses mean
 * loopback. No certificate is verified. Returns the exit status: 0 if 200 came within 3 seconds,
 * else 1 with a line on stderr. */
int health_check(const char *address, unsigned port, bool tls);

#endif
