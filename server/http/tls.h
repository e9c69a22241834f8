/*
 * tls.h - TLS 1.2 and 1.3 by GnuTLS, whose headers are included by tls.c alone. For the server: the
 * certificate and its key, which can be read again while connections use the old ones. For the
 * health check: a client. Knows nothing of HTTP or libmicrohttpd.
 */
#ifndef HTTP_TLS_H
#define HTTP_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* ---------------------------------------------------------------------------------- the server */

struct tls;
struct tls_pair; /* a certificate and its key, as long as a connection needs them */

/* The versions and ciphers, as GnuTLS's priority string. */
extern const char tls_priorities[];

/* Reads PEM files: the certificate with the chain that follows it, and the key of the certificate.
 * Borrows the paths. One that is not valid at this time gets a line in the log. NULL with the
 * reason in error[0..size). */
struct tls *tls_load(const char *certificate, const char *key, char *error, size_t size);

/* Reads the files again, for the connections to come. On failure, false with the reason, the old
 * pair stays. */
bool tls_reload(struct tls *tls, char *error, size_t size);

void tls_free(struct tls *tls); /* after the last tls_end; NULL is fine */

/* Gives a new session, a gnutls_session_t before its handshake, the present pair. Whoever calls it
 * calls tls_end when the session is gone. From any thread. NULL: the session has no certificate. */
struct tls_pair *tls_begin(struct tls *tls, void *session);
void tls_end(struct tls_pair *pair); /* NULL is fine */

/* What libmicrohttpd asks for a certificate (MHD_OPTION_HTTPS_CERT_CALLBACK2) in sessions that
 * tls_begin gave none: it has none either, so their handshakes fail. */
void *tls_no_certificate(void);

/* ---------------------------------------------------------------------------------- the client */

struct tls_client;

/* A client on a connected, non-blocking socket, which it borrows. It believes any certificate: it
 * asks a server whose address it knows whether it lives. NULL if memory runs out. */
struct tls_client *tls_client_new(int fd);

/* As send and recv, after a handshake. -1 with errno; EAGAIN: call it again when the socket is
 * ready for what tls_client_awaits says, POLLIN or POLLOUT. */
ssize_t tls_client_send(struct tls_client *client, const void *bytes, size_t size);
ssize_t tls_client_receive(struct tls_client *client, void *bytes, size_t size);
short tls_client_awaits(const struct tls_client *client);

void tls_client_free(struct tls_client *client); /* NULL is fine */

#endif
