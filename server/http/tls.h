/*
 * tls.h - TLS 1.2 and 1.3 by GnuTLS, whose headers only tls.c includes. The server gets a
 * certificate with its key; both can be read again while connections use the old ones. The health
 * check gets a client. This file does not know HTTP or libmicrohttpd.
 */
#ifndef HTTP_TLS_H
#define HTTP_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* ---------------------------------------------------------------------------------- the server */

struct tls;
struct tls_pair; /* a certificate and its key, which lives as long as a connection needs it */

/* The priority string of GnuTLS, with the versions and ciphers. */
extern const char tls_priorities[];

/* Reads PEM files: the certificate with the chain that follows it, and the key of the certificate.
 * Borrows the paths. A certificate that is not valid at this time gets a line in the log. Returns
 * owned; NULL with the reason in error[0..size). */
struct tls *tls_load(const char *certificate, const char *key, char *error, size_t size);

/* Reads the files again, for the connections to come. Returns false with the reason if this fails;
 * the old pair then stays. */
bool tls_reload(struct tls *tls, char *error, size_t size);

void tls_free(struct tls *tls); /* must follow the last tls_end; NULL is fine */

/* Gives the present pair to a new session, a gnutls_session_t before its handshake. Returns the
 * pair, for which the caller calls tls_end when the session is gone; NULL if the session has no
 * certificate. May be called from any thread. */
struct tls_pair *tls_begin(struct tls *tls, void *session);
void tls_end(struct tls_pair *pair); /* NULL is fine */

/* Sends bytes in a session after its handshake, if the socket takes them at once. */
void tls_send(void *session, const void *bytes, size_t size);

/* Returns the function that libmicrohttpd asks for a certificate (MHD_OPTION_HTTPS_CERT_CALLBACK2)
 * in sessions to which tls_begin gave none. It has none either, so their handshakes fail. */
void *tls_no_certificate(void);

/* ---------------------------------------------------------------------------------- the client */

struct http_tls_client;

/* Creates a client on a connected socket, which it borrows. It accepts any certificate, because it
 * only asks a server at a known address whether it is alive. Returns owned; NULL if memory runs
 * out. */
struct http_tls_client *http_tls_client_new(int fd);

/* The next two do what send and recv do, after a handshake. They return -1 with errno. After EAGAIN
 * of the second one, call it again: GnuTLS has read a message of its own. */
ssize_t http_tls_client_send(struct http_tls_client *client, const void *bytes, size_t size);
ssize_t http_tls_client_receive(struct http_tls_client *client, void *bytes, size_t size);

void http_tls_client_free(struct http_tls_client *client); /* NULL is fine */

#endif
