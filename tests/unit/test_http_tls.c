/*
 * test_http_tls.c - the pairs of certificate and key that the server holds. test_tls.c in tests/api
 * has the handshakes.
 */
#include "http/tls.h"

#include <criterion/criterion.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/tls.h"

/* A replaced pair is released. A pair has more than a kilobyte. With a sanitizer, mallinfo2() says
 * nothing, and the sanitizer itself finds the leak. */
Test(http_tls, a_reload_releases_the_old_pair) {
    enum {
        TIMES = 16
    };
    char folder[] = "/tmp/attentiond-pair-XXXXXX", certificate[64], key[64], error[256] = "";
    cr_assert_not_null(mkdtemp(folder));
    snprintf(certificate, sizeof certificate, "%s/certificate", folder);
    snprintf(key, sizeof key, "%s/key", folder);
    cr_assert(tls_make_pair("pair", false, 24L * 3600, certificate, key));
    struct tls *tls = tls_load(certificate, key, error, sizeof error);
    cr_assert_not_null(tls, "%s", error);
    size_t before = 0;
    for (int i = 0; i < 2 * TIMES; i++) {
        cr_assert(tls_reload(tls, error, sizeof error), "%s", error);
        before = i + 1 == TIMES ? mallinfo2().uordblks : before;
    }
    cr_expect_lt(mallinfo2().uordblks, before + (size_t)1024 * TIMES / 2);
    tls_free(tls);
    unlink(certificate);
    unlink(key);
    cr_expect_eq(rmdir(folder), 0);
}
