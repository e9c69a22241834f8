/*
 * tls.h - a TLS client for the tests, and certificates that are made as they are needed. It is the
 * only place of the tests that knows GnuTLS, and it shares no code with the server. Its functions
 * return false when they fail, and they never fail a test.
 */
#ifndef SUPPORT_TLS_H
#define SUPPORT_TLS_H

#include <stdbool.h>

#include "support/client.h"

/* Writes a self-signed certificate for localhost and its key, both in PEM. It is valid for one day,
 * which ends `seconds` from now, so a negative number makes an expired one. */
bool tls_make_pair(const char *name, bool rsa, long seconds, const char *certificate_path,
                   const char *key_path);

/* Opens a connection with a handshake. `priorities` is a priority string of GnuTLS, or NULL for its
 * default. Any certificate is trusted. The functions client_* take the connection. */
bool tls_open(struct client_connection *connection, unsigned port, const char *priorities);

/* Opens a connection with the session of an earlier one, which the server may resume. */
bool tls_open_again(struct client_connection *connection, unsigned port,
                    struct client_connection *before);

bool tls_resumed(struct client_connection *connection);

/* Copies the common name of the server's certificate, or "" if there is none. */
void tls_peer_name(struct client_connection *connection, char name[static 64]);

/* Returns "TLS1.2" or "TLS1.3". */
const char *tls_version(struct client_connection *connection);

/* Sends a request over TLS, as client_request() does. */
bool tls_request(unsigned port, const char *priorities, const char *method, const char *path,
                 const void *body, size_t size, struct client_response *out);

/* Computes the SHA-256 of the bytes. */
bool tls_sha256(const void *bytes, size_t size, unsigned char digest[static 32]);

#endif
