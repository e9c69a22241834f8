/*
 * health_check.h - `attentiond --health-check`: asks a running server whether it lives. For
 * container images that hold no curl. Knows no libmicrohttpd: it is a client.
 */
#ifndef HEALTH_CHECK_H
#define HEALTH_CHECK_H

/* GET /health/live at `address` and `port`; the unspecified addresses mean loopback. Returns the
 * exit status: 0 if 200 came within 3 seconds, else 1 with a line on stderr. */
int health_check(const char *address, unsigned port);

#endif
