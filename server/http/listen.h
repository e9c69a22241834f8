/*
 * listen.h - opens the listening socket and makes room for connections in the table of file
 * descriptors. It replaces libmicrohttpd's own code, which cannot say why it failed.
 */
#ifndef HTTP_LISTEN_H
#define HTTP_LISTEN_H

#include <stdbool.h>
#include <stddef.h>

/* Listens on a numeric IPv4 or IPv6 address ("::" takes IPv4 as well) and on *port, where 0 stands
 * for a free port. Returns the socket, with the real port in *port and the kind of the address in
 * *ipv6; or -1 with the reason in error[0..size). */
int listen_open(const char *address, unsigned *port, bool *ipv6, char *error, size_t size);

/* Ends the listening of `fd`, so that connections are refused from now on. The descriptor stays
 * open for the threads that still wait on it: it becomes a socket to which nobody connects. Returns
 * false if no descriptor is free; then nothing changes. */
bool listen_end(int fd);

/* Raises the limit on open files as far as allowed. Returns how many of `wanted` connections the
 * limit then admits. */
unsigned listen_reserve_files(unsigned wanted);

#endif
