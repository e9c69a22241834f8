/*
 * listen.h - opens the listening socket and makes room for connections in the table of file
 * descriptors. Own code instead of libmicrohttpd's because it knows why it failed.
 */
#ifndef HTTP_LISTEN_H
#define HTTP_LISTEN_H

#include <stdbool.h>
#include <stddef.h>

/* Listens on a numeric IPv4 or IPv6 address ("::" takes IPv4 as well). Returns the socket and the
 * port in *port, or -1 with the reason in error[0..size). */
int listen_open(const char *address, unsigned *port, bool *ipv6, char *error, size_t size);

/* Ends the listening of `fd`: connections are refused from now on. The descriptor stays open, as a
 * socket that nobody connects to, for whoever still waits on it. False if there is no descriptor to
 * spare; then nothing changes. */
bool listen_end(int fd);

/* How many of `wanted` connections the limit on open files admits, after raising it as far as
 * allowed. */
unsigned listen_reserve_files(unsigned wanted);

#endif
