/*
 * tls.h - a TLS client for the tests, and certificates made as they are needed. The only place of
 * the tests that knows GnuTLS. Shares no code with the server; nothing here fails a test: it
 * returns false.
 */
#ifndef SUPPORT_TLS_H
#define SUPPORT_TLS_H

#include <stdbool.h>

#include "support/client.h"

/* Writes a certificate for localhost that signs itself, and its key, as PEM. It is valid from a day
 * before `seconds` from now to `seconds` from now, so a negative number makes an expired one. */
bool tls_make_pair(const char *name, bool rsa, long seconds, const char *certificate_path,
                   const char *key_path);

/* Opens a connection and shakes hands. `priorities` are GnuTLS's; NULL for its own. Any certificate
 * is believed. client_* take the connection. */
bool tls_open(struct client_connection *connection, unsigned port, const char *priorities);

/* The same with the session of a connection before, which is resumed if the server wants to. */
bool tls_open_again(struct client_connection *connection, unsigned port,
                    struct client_connection *before);

bool tls_resumed(struct client_connection *connection);

/* The name in the server's certificate; "" if there is none. */
void tls_peer_name(struct client_connection *connection, char name[static 64]);

/* "TLS1.2" or "TLS1.3". */
const char *tls_version(struct client_connection *connection);

/* One request on a connection of its own, as client_request. */
bool tls_request(unsigned port, const char *priorities, const char *method, const char *path,
                 const void *body, size_t size, struct client_response *out);

/* The SHA-256 of the bytes. */
bool tls_sha256(const void *bytes, size_t size, unsigned char digest[static 32]);

#endif
