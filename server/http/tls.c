/*
 * tls.c has the certificates of the server and the client of the health check. A pair is a set of
 * GnuTLS's credentials that never changes. Every session gets the pair that is present at its
 * beginning and counts as a user of it until the session is gone. So a reload only changes which
 * pair the next session gets. Tickets that resume sessions belong to a pair as well: after a
 * reload, no ticket spares the handshake that shows the new certificate.
 */
#include "http/tls.h"

#include "http/file.h"
#include "http/log.h"

#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LARGEST_FILE = 1 << 20 /* bytes */
};

struct tls_pair {
    unsigned users; /* sessions, and struct tls while the pair is present; its lock guards this */
    struct tls *tls;
    gnutls_certificate_credentials_t credentials;
    gnutls_datum_t ticket_key;
};

struct tls {
    const char *certificate, *key; /* paths */
    pthread_mutex_t lock;
    struct tls_pair *present;
};

/* Only forward secrecy and authenticated encryption are allowed. All of TLS 1.3 has both, and every
 * client of TLS 1.2 has had them for ten years. The order of the server counts, and X25519 comes
 * first because clients send a key share for it; with another group the handshake would take one
 * more round. */
const char tls_priorities[] =
    "SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL:+ECDHE-ECDSA:+ECDHE-RSA:"
    "-MAC-ALL:+AEAD:-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1:+GROUP-SECP384R1:%SERVER_PRECEDENCE";

/* ---------------------------------------------------------------------------------------- files */

static bool read_file(const char *path, gnutls_datum_t *out, char *error, size_t size) {
    FILE *file = file_open(path, error, size);
    if (file == NULL) {
        return false;
    }
    out->data = malloc(LARGEST_FILE + 1);
    out->size = out->data != NULL ? (unsigned)fread(out->data, 1, LARGEST_FILE + 1, file) : 0;
    bool good = false;
    if (out->data == NULL) {
        snprintf(error, size, "out of memory");
    } else if (ferror(file)) {
        snprintf(error, size, "%s", strerror(errno));
    } else if (out->size > LARGEST_FILE) {
        snprintf(error, size, "the file has more than %d bytes", LARGEST_FILE);
    } else {
        good = true;
    }
    fclose(file);
    return good;
}

/* Overwrites and frees the text of a file, which may hold a key. */
static void wipe(gnutls_datum_t *data) {
    if (data->data != NULL) {
        gnutls_memset(data->data, 0, data->size);
    }
    free(data->data);
    *data = (gnutls_datum_t){0};
}

/* Logs a warning if the certificate is not valid at this time. It is used all the same, because the
 * clients decide. */
static void warn_of_time(const char *path, gnutls_x509_crt_t certificate) {
    const time_t now = time(NULL), begin = gnutls_x509_crt_get_activation_time(certificate),
                 end = gnutls_x509_crt_get_expiration_time(certificate);
    const time_t *broken = begin != (time_t)-1 && now < begin ? &begin
                           : end != (time_t)-1 && now > end   ? &end
                                                              : NULL;
    struct tm date;
    char text[64];
    if (broken != NULL && gmtime_r(broken, &date) != NULL &&
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &date) > 0) {
        http_log("warning",
                 broken == &end ? "the certificate in %s expired on %s"
                                : "the certificate in %s is not valid before %s",
                 path, text);
    }
}

/* Reads the chain of certificates. The caller owns them and their array. */
static bool read_certificates(const char *path, gnutls_x509_crt_t **list, unsigned *count,
                              char *error, size_t size) {
    gnutls_datum_t text = {0};
    char reason[128];
    int result = 0;
    bool good = read_file(path, &text, reason, sizeof reason);
    if (good) {
        result = gnutls_x509_crt_list_import2(list, count, &text, GNUTLS_X509_FMT_PEM, 0);
        good = result >= 0;
        snprintf(reason, sizeof reason, "the file has no certificate in PEM form: %s",
                 gnutls_strerror(result));
    }
    if (good) {
        warn_of_time(path, (*list)[0]);
    } else {
        snprintf(error, size, "the certificate in %s cannot be read: %s", path, reason);
    }
    wipe(&text);
    return good;
}

/* Reads the key into `key`, which the caller owns, also on failure. */
static bool read_key(const char *path, gnutls_x509_privkey_t key, char *error, size_t size) {
    gnutls_datum_t text = {0};
    char reason[128];
    bool good = read_file(path, &text, reason, sizeof reason);
    if (good) {
        const int result =
            gnutls_x509_privkey_import2(key, &text, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN);
        good = result >= 0;
        snprintf(reason, sizeof reason, "the file has no key in PEM form without a password: %s",
                 gnutls_strerror(result));
    }
    if (!good) {
        snprintf(error, size, "the key in %s cannot be read: %s", path, reason);
    }
    wipe(&text);
    return good;
}

/* ---------------------------------------------------------------------------------------- pairs */

static void pair_free(struct tls_pair *pair) {
    if (pair == NULL) {
        return;
    }
    if (pair->credentials != NULL) {
        gnutls_certificate_free_credentials(pair->credentials);
    }
    if (pair->ticket_key.data != NULL) {
        gnutls_memset(pair->ticket_key.data, 0, pair->ticket_key.size);
    }
    gnutls_free(pair->ticket_key.data);
    free(pair);
}

/* Fills a pair with credentials and a key for tickets, both of which pair_free frees. */
static bool pair_fill(struct tls_pair *pair, gnutls_x509_crt_t *chain, unsigned count,
                      gnutls_x509_privkey_t key, char *error, size_t size) {
    int result = gnutls_certificate_allocate_credentials(&pair->credentials);
    if (result >= 0) {
        result = gnutls_certificate_set_x509_key(pair->credentials, chain, (int)count, key);
    }
    if (result >= 0) {
        result = gnutls_session_ticket_key_generate(&pair->ticket_key);
    }
    if (result == GNUTLS_E_CERTIFICATE_KEY_MISMATCH) {
        snprintf(error, size, "the key in %s does not belong to the certificate in %s",
                 pair->tls->key, pair->tls->certificate);
    } else if (result < 0) {
        snprintf(error, size, "the certificate in %s cannot be used: %s", pair->tls->certificate,
                 gnutls_strerror(result));
    }
    return result >= 0;
}

static struct tls_pair *pair_load(struct tls *tls, char *error, size_t size) {
    struct tls_pair *pair = calloc(1, sizeof *pair);
    gnutls_x509_crt_t *chain = NULL;
    gnutls_x509_privkey_t key = NULL;
    unsigned count = 0;
    bool good = false;
    if (pair == NULL || gnutls_x509_privkey_init(&key) < 0) {
        snprintf(error, size, "out of memory");
        goto done;
    }
    pair->users = 1;
    pair->tls = tls;
    good = read_certificates(tls->certificate, &chain, &count, error, size) &&
           read_key(tls->key, key, error, size) && pair_fill(pair, chain, count, key, error, size);
done:
    for (unsigned i = 0; i < count; i++) {
        gnutls_x509_crt_deinit(chain[i]);
    }
    gnutls_free(chain);
    gnutls_x509_privkey_deinit(key);
    if (!good) {
        pair_free(pair);
        pair = NULL;
    }
    return pair;
}

struct tls_pair *tls_begin(struct tls *tls, void *session) {
    pthread_mutex_lock(&tls->lock);
    struct tls_pair *pair = tls->present;
    pair->users++;
    pthread_mutex_unlock(&tls->lock);
    if (gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, pair->credentials) < 0) {
        tls_end(pair);
        return NULL;
    }
    /* The result is ignored, because a session works without tickets. */
    gnutls_session_ticket_enable_server(session, &pair->ticket_key);
    return pair;
}

void tls_send(void *session, const void *bytes, size_t size) {
    gnutls_record_send(session, bytes, size);
}

void tls_end(struct tls_pair *pair) {
    if (pair == NULL) {
        return;
    }
    struct tls *tls = pair->tls;
    pthread_mutex_lock(&tls->lock);
    const bool last = --pair->users == 0;
    pthread_mutex_unlock(&tls->lock);
    if (last) {
        pair_free(pair);
    }
}

/* ----------------------------------------------------------------------------------- the server */

bool tls_reload(struct tls *tls, char *error, size_t size) {
    struct tls_pair *pair = pair_load(tls, error, size);
    if (pair == NULL) {
        return false;
    }
    pthread_mutex_lock(&tls->lock);
    struct tls_pair *old = tls->present;
    tls->present = pair;
    pthread_mutex_unlock(&tls->lock);
    tls_end(old);
    return true;
}

struct tls *tls_load(const char *certificate, const char *key, char *error, size_t size) {
    struct tls *tls = calloc(1, sizeof *tls);
    if (tls == NULL) {
        snprintf(error, size, "out of memory");
        return NULL;
    }
    tls->certificate = certificate;
    tls->key = key;
    pthread_mutex_init(&tls->lock, NULL);
    if (!tls_reload(tls, error, size)) {
        tls_free(tls);
        return NULL;
    }
    return tls;
}

void tls_free(struct tls *tls) {
    if (tls == NULL) {
        return;
    }
    tls_end(tls->present);
    pthread_mutex_destroy(&tls->lock);
    free(tls);
}

static int no_certificate(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                          gnutls_pcert_st **certificates, unsigned *count,
                          gnutls_ocsp_data_st **ocsp, unsigned *ocsp_count, gnutls_privkey_t *key,
                          unsigned *flags) {
    (void)session;
    (void)info;
    *certificates = NULL;
    *ocsp = NULL;
    *key = NULL;
    *count = *ocsp_count = *flags = 0;
    return -1;
}

void *tls_no_certificate(void) {
    return (void *)(uintptr_t)no_certificate;
}

/* ----------------------------------------------------------------------------------- the client */

struct http_tls_client {
    gnutls_session_t session;
    gnutls_certificate_credentials_t credentials;
    bool ready; /* the handshake is over */
};

struct http_tls_client *http_tls_client_new(int fd) {
    struct http_tls_client *client = calloc(1, sizeof *client);
    if (client == NULL || gnutls_init(&client->session, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL) < 0 ||
        gnutls_set_default_priority(client->session) < 0 ||
        gnutls_certificate_allocate_credentials(&client->credentials) < 0 ||
        gnutls_credentials_set(client->session, GNUTLS_CRD_CERTIFICATE, client->credentials) < 0) {
        http_tls_client_free(client);
        errno = ENOMEM;
        return NULL;
    }
    gnutls_transport_set_int(client->session, fd);
    return client;
}

/* Turns a result of GnuTLS into that of a system call. If an error came from the socket, errno is
 * set already. */
static ssize_t as_system_call(ssize_t result) {
    if (result >= 0) {
        return result;
    }
    if (result == GNUTLS_E_AGAIN || result == GNUTLS_E_INTERRUPTED) {
        errno = EAGAIN;
    } else if (result == GNUTLS_E_PREMATURE_TERMINATION) {
        errno = ECONNRESET;
    } else if (result != GNUTLS_E_PULL_ERROR && result != GNUTLS_E_PUSH_ERROR) {
        errno = EPROTO;
    }
    return -1;
}

static ssize_t shake_hands(struct http_tls_client *client) {
    ssize_t result;
    do {
        result = client->ready ? 0 : gnutls_handshake(client->session);
    } while (result == GNUTLS_E_WARNING_ALERT_RECEIVED);
    client->ready = result >= 0;
    return result;
}

ssize_t http_tls_client_send(struct http_tls_client *client, const void *bytes, size_t size) {
    ssize_t result = shake_hands(client);
    if (result >= 0) {
        result = gnutls_record_send(client->session, bytes, size);
    }
    return as_system_call(result);
}

ssize_t http_tls_client_receive(struct http_tls_client *client, void *bytes, size_t size) {
    ssize_t result = shake_hands(client);
    if (result >= 0) {
        result = gnutls_record_recv(client->session, bytes, size);
    }
    return as_system_call(result);
}

void http_tls_client_free(struct http_tls_client *client) {
    if (client == NULL) {
        return;
    }
    if (client->session != NULL) {
        gnutls_deinit(client->session);
    }
    if (client->credentials != NULL) {
        gnutls_certificate_free_credentials(client->credentials);
    }
    free(client);
}
