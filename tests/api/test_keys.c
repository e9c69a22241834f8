/*
 * test_keys.c - SIGHUP reads the file of --api-key-file again. data/exchanges.txt has which
 * requests need a key, and what a refusal says. The tests know the service by its socket only.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/wait.h"

static int status_with(const char *method, const char *path, const char *headers) {
    struct client_response response;
    char value[256] = "";
    const char *body = strcmp(method, "POST") == 0 ? "{\"X\":[[1]]}" : "";
    cr_assert(
        client_request(the_daemon.port, method, path, headers, body, strlen(body), &response));
    if (response.status == 401) {
        cr_expect(client_header(&response, "WWW-Authenticate", value, sizeof value));
        cr_expect_str_eq(value, "Bearer");
    }
    client_response_free(&response);
    return response.status;
}

static void write_key(const char *path, const char *key) {
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fprintf(file, "# the key\n%s\n", key);
    cr_assert_eq(fclose(file), 0);
}

#define OLD_KEY "Authorization: Bearer the-first-key-of-all\r\n"
#define NEW_KEY "Authorization: Bearer another-key-instead\r\n"

Test(daemon, needs_a_key_and_reads_keys_again) {
    char path[] = "/tmp/attentiond-keys-XXXXXX", output[4096], words[128];
    const int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    snprintf(words, sizeof words, "--port 0 --api-key-file %s", path);
    cr_expect_eq(daemon_run(words, output, sizeof output), 1, "an empty file");
    cr_expect_not_null(strstr(output, "the file has no key"), "%s", output);
    write_key(path, "the-first-key-of-all");
    daemon_start((const char *const[]){"--api-key-file", path, NULL});
    cr_expect_eq(status_with("POST", "/attention", OLD_KEY), 200);
    cr_expect_eq(status_with("POST", "/attention", NEW_KEY), 401);
    cr_expect_eq(status_with("HEAD", "/version", NULL), 401);
    write_key(path, "another-key-instead");
    kill(the_daemon.pid, SIGHUP);
    WAIT_UNTIL(status_with("GET", "/version", NEW_KEY) == 200);
    cr_expect_eq(status_with("GET", "/version", OLD_KEY), 401);
    unlink(path);
    kill(the_daemon.pid, SIGHUP);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    cr_expect_eq(status_with("GET", "/version", NEW_KEY), 200, "the keys stay");
    daemon_end();
}
