/* tls.c - the TLS client of the tests and their certificates, made with GnuTLS. */
#include "support/tls.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* -------------------------------------------------------------------------------- certificates */

static bool write_file(const char *path, const gnutls_datum_t *data) {
    FILE *file = fopen(path, "w");
    const bool written = file != NULL && fwrite(data->data, 1, data->size, file) == data->size;
    return file != NULL && fclose(file) == 0 && written;
}

static bool fill_certificate(gnutls_x509_crt_t certificate, gnutls_x509_privkey_t key,
                             const char *name, long seconds) {
    const time_t now = time(NULL);
    static const unsigned char loopback[] = {127, 0, 0, 1}, serial[] = {1};
    return gnutls_x509_crt_set_version(certificate, 3) >= 0 &&
           gnutls_x509_crt_set_serial(certificate, serial, sizeof serial) >= 0 &&
           gnutls_x509_crt_set_activation_time(certificate, now + seconds - 86400) >= 0 &&
           gnutls_x509_crt_set_expiration_time(certificate, now + seconds) >= 0 &&
           gnutls_x509_crt_set_dn_by_oid(certificate, GNUTLS_OID_X520_COMMON_NAME, 0, name,
                                         (unsigned)strlen(name)) >= 0 &&
           gnutls_x509_crt_set_subject_alt_name(certificate, GNUTLS_SAN_DNSNAME, "localhost", 9,
                                                GNUTLS_FSAN_APPEND) >= 0 &&
           gnutls_x509_crt_set_subject_alt_name(certificate, GNUTLS_SAN_IPADDRESS, loopback,
                                                sizeof loopback, GNUTLS_FSAN_APPEND) >= 0 &&
           gnutls_x509_crt_set_key(certificate, key) >= 0 &&
           gnutls_x509_crt_sign2(certificate, certificate, key, GNUTLS_DIG_SHA256, 0) >= 0;
}

bool tls_make_pair(const char *name, bool rsa, long seconds, const char *certificate_path,
                   const char *key_path) {
    gnutls_x509_privkey_t key = NULL;
    gnutls_x509_crt_t certificate = NULL;
    gnutls_datum_t key_text = {0}, certificate_text = {0};
    const bool made =
        gnutls_x509_privkey_init(&key) >= 0 && gnutls_x509_crt_init(&certificate) >= 0 &&
        gnutls_x509_privkey_generate(key, rsa ? GNUTLS_PK_RSA : GNUTLS_PK_ECDSA,
                                     rsa ? 2048 : GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1),
                                     0) >= 0 &&
        fill_certificate(certificate, key, name, seconds) &&
        gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN,
                                          &key_text) >= 0 &&
        gnutls_x509_crt_export2(certificate, GNUTLS_X509_FMT_PEM, &certificate_text) >= 0 &&
        write_file(certificate_path, &certificate_text) && write_file(key_path, &key_text);
    gnutls_free(key_text.data);
    gnutls_free(certificate_text.data);
    gnutls_x509_crt_deinit(certificate);
    gnutls_x509_privkey_deinit(key);
    return made;
}

/* ------------------------------------------------------------------------------- the connection */

struct layer {
    struct client_layer layer; /* the first member, so that the pointers are equal */
    gnutls_session_t session;
    gnutls_certificate_credentials_t credentials;
};

static ssize_t layer_send(struct client_layer *layer, const void *bytes, size_t size) {
    ssize_t result;
    do {
        result = gnutls_record_send(((struct layer *)layer)->session, bytes, size);
    } while (result == GNUTLS_E_INTERRUPTED);
    return result;
}

/* Receives again after a record without data, such as a ticket. GNUTLS_E_AGAIN may also mean that
 * the time limit of the socket has passed, so the loop ends after 60 seconds. */
static ssize_t layer_receive(struct client_layer *layer, void *bytes, size_t size) {
    const time_t begun = time(NULL);
    ssize_t result;
    do {
        result = gnutls_record_recv(((struct layer *)layer)->session, bytes, size);
    } while ((result == GNUTLS_E_INTERRUPTED || result == GNUTLS_E_AGAIN) &&
             time(NULL) - begun < 60);
    return result;
}

static void layer_close(struct client_layer *layer_) {
    struct layer *layer = (struct layer *)layer_;
    gnutls_deinit(layer->session);
    gnutls_certificate_free_credentials(layer->credentials);
    free(layer);
}

static gnutls_session_t session_of(struct client_connection *connection) {
    return ((struct layer *)connection->layer)->session;
}

static bool set_up(struct layer *layer, int fd, const char *priorities) {
    const bool good =
        gnutls_init(&layer->session, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL) >= 0 &&
        gnutls_certificate_allocate_credentials(&layer->credentials) >= 0 &&
        gnutls_credentials_set(layer->session, GNUTLS_CRD_CERTIFICATE, layer->credentials) >= 0 &&
        (priorities != NULL ? gnutls_priority_set_direct(layer->session, priorities, NULL)
                            : gnutls_set_default_priority(layer->session)) >= 0;
    if (good) {
        gnutls_transport_set_int(layer->session, fd);
    }
    return good;
}

static bool open_with(struct client_connection *connection, unsigned port, const char *priorities,
                      const gnutls_datum_t *data) {
    if (!client_open(connection, port)) {
        return false;
    }
    struct layer *layer = calloc(1, sizeof *layer);
    int result = -1;
    if (layer != NULL) {
        layer->layer = (struct client_layer){layer_send, layer_receive, layer_close};
        connection->layer = &layer->layer;
        if (set_up(layer, connection->fd, priorities) &&
            (data == NULL ||
             gnutls_session_set_data(layer->session, data->data, data->size) >= 0)) {
            do {
                result = gnutls_handshake(layer->session);
            } while (result < 0 && !gnutls_error_is_fatal(result) && result != GNUTLS_E_AGAIN);
        }
    }
    if (result < 0) {
        client_close(connection);
    }
    return result >= 0;
}

bool tls_open(struct client_connection *connection, unsigned port, const char *priorities) {
    return open_with(connection, port, priorities, NULL);
}

bool tls_open_again(struct client_connection *connection, unsigned port,
                    struct client_connection *before) {
    gnutls_datum_t data = {0};
    const bool opened = gnutls_session_get_data2(session_of(before), &data) >= 0 &&
                        open_with(connection, port, NULL, &data);
    gnutls_free(data.data);
    return opened;
}

bool tls_resumed(struct client_connection *connection) {
    return gnutls_session_is_resumed(session_of(connection)) != 0;
}

void tls_peer_name(struct client_connection *connection, char name[static 64]) {
    unsigned count = 0;
    size_t size = 64;
    const gnutls_datum_t *list = gnutls_certificate_get_peers(session_of(connection), &count);
    gnutls_x509_crt_t certificate = NULL;
    name[0] = '\0';
    if (count > 0 && gnutls_x509_crt_init(&certificate) >= 0) {
        if (gnutls_x509_crt_import(certificate, &list[0], GNUTLS_X509_FMT_DER) >= 0) {
            gnutls_x509_crt_get_dn_by_oid(certificate, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name,
                                          &size);
        }
        gnutls_x509_crt_deinit(certificate);
    }
}

const char *tls_version(struct client_connection *connection) {
    return gnutls_protocol_get_name(gnutls_protocol_get_version(session_of(connection)));
}

bool tls_request(unsigned port, const char *priorities, const char *method, const char *path,
                 const void *body, size_t size, struct client_response *out) {
    struct client_connection connection;
    char head[512];
    *out = (struct client_response){0};
    snprintf(
        head, sizeof head,
        "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
        method, path, size);
    if (!tls_open(&connection, port, priorities)) {
        return false;
    }
    const bool received = client_send(&connection, head, strlen(head)) &&
                          client_send(&connection, body, size) &&
                          client_receive(&connection, false, out);
    client_close(&connection);
    return received;
}

/* -------------------------------------------------------------------------------------- digests */

bool tls_sha256(const void *bytes, size_t size, unsigned char digest[static 32]) {
    return gnutls_hash_fast(GNUTLS_DIG_SHA256, bytes, size, digest) >= 0;
}
