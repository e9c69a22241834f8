/*
 * test_options.c - the daemon's configuration: flags, environment, defaults, ranges, messages.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "options.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static char error[256];

/* Reads up to three arguments. */
static enum options_result read_flags(struct server_options *options, const char *a, const char *b,
                                      const char *c) {
    const char *argv[] = {"attentiond", a, b, c, NULL};
    int argc = 1 + (a != NULL) + (b != NULL) + (c != NULL);
    error[0] = '\0';
    return options_read(options, argc, (char *const *)argv, error, sizeof error);
}

Test(options, defaults) {
    struct server_options o;
    cr_assert_eq(read_flags(&o, NULL, NULL, NULL), OPTIONS_READY);
    cr_expect_str_eq(o.address, "127.0.0.1");
    cr_expect_eq(o.port, 8080);
    cr_expect(o.io_threads >= 1 && o.io_threads <= 4);
    cr_expect_eq(o.max_body, 64u << 20);
    cr_expect_eq(o.max_connections, 1000);
    cr_expect_eq(o.idle_timeout, 30);
    cr_expect_eq(o.max_memory, 512u << 20);
    cr_expect_eq(o.max_work, 1e12);
    cr_expect_not(o.health_check);
}

Test(options, both_forms) {
    struct server_options o;
    cr_assert_eq(read_flags(&o, "--port", "0", "--health-check"), OPTIONS_READY);
    cr_expect_eq(o.port, 0);
    cr_expect(o.health_check);
    cr_assert_eq(read_flags(&o, "--port=65535", "--address=::1", "--max-work=2.5e9"),
                 OPTIONS_READY);
    cr_expect_eq(o.port, 65535);
    cr_expect_str_eq(o.address, "::1");
    cr_expect_eq(o.max_work, 2.5e9);
}

Test(options, sizes) {
    static const struct {
        const char *text;
        size_t value;
    } sizes[] = {{"1024", 1024},
                 {"1KiB", 1024},
                 {"3MiB", 3u << 20},
                 {"2GiB", (size_t)2 << 30},
                 {"64GiB", (size_t)64 << 30}};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        struct server_options o;
        cr_assert_eq(read_flags(&o, "--max-body", sizes[i].text, NULL), OPTIONS_READY, "%s", error);
        cr_expect_eq(o.max_body, sizes[i].value, "%s", sizes[i].text);
    }
}

Test(options, flag_beats_environment_beats_default) {
    struct server_options o;
    setenv("ATTENTIOND_PORT", "9001", 1);
    setenv("ATTENTIOND_IO_THREADS", "3", 1);
    setenv("ATTENTIOND_MAX_CONNECTIONS", "", 1);
    cr_assert_eq(read_flags(&o, "--port=9002", NULL, NULL), OPTIONS_READY);
    cr_expect_eq(o.port, 9002);
    cr_expect_eq(o.io_threads, 3);
    cr_expect_eq(o.max_connections, 1000, "an empty variable is not set");
    cr_assert_eq(read_flags(&o, NULL, NULL, NULL), OPTIONS_READY);
    cr_expect_eq(o.port, 9001);
}

Test(options, variable_of_a_kubernetes_service_is_no_port) {
    struct server_options o;
    setenv("ATTENTIOND_PORT", "tcp://10.0.0.7:80", 1);
    cr_assert_eq(read_flags(&o, NULL, NULL, NULL), OPTIONS_READY, "%s", error);
    cr_expect_eq(o.port, 8080);
}

Test(options, bad_values) {
    static const struct {
        const char *flag, *value;
        const char *words; /* in the message, beside flag and value */
    } bad[] = {
        {"--port", "65536", "0..65535"},
        {"--port", "-1", "0..65535"},
        {"--port", "", "0..65535"},
        {"--port", " 80", "0..65535"},
        {"--port", "80x", "0..65535"},
        {"--port", "8.5", "0..65535"},
        {"--port", "99999999999999999999999", "0..65535"},
        {"--io-threads", "0", "1..64"},
        {"--io-threads", "65", "1..64"},
        {"--max-body", "1023", "1KiB..64GiB"},
        {"--max-body", "65GiB", "1KiB..64GiB"},
        {"--max-body", "1KB", "1KiB..64GiB"},
        {"--max-body", "1e6", "1KiB..64GiB"},
        {"--max-body", "MiB", "1KiB..64GiB"},
        {"--max-connections", "0", "1..1000000"},
        {"--idle-timeout", "0", "1..86400"},
        {"--max-memory", "1KiB", "64KiB..1024GiB"},
        {"--max-work", "0.5", "1..1e18"},
        {"--max-work", "inf", "1..1e18"},
        {"--max-work", "nan", "1..1e18"},
        {"--max-work", "1e999", "1..1e18"},
        {"--address", "localhost", "IPv4 or IPv6"},
        {"--address", "127.0.0.256", "IPv4 or IPv6"},
        {"--address", "", "IPv4 or IPv6"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct server_options o;
        cr_expect_eq(read_flags(&o, bad[i].flag, bad[i].value, NULL), OPTIONS_BAD, "%s %s",
                     bad[i].flag, bad[i].value);
        cr_expect(strstr(error, bad[i].flag) && strstr(error, bad[i].value) &&
                      strstr(error, bad[i].words),
                  "%s %s: \"%s\"", bad[i].flag, bad[i].value, error);
    }
}

Test(options, certificate_and_key_come_together) {
    struct server_options o;
    cr_expect_eq(read_flags(&o, "--tls-certificate", "a", NULL), OPTIONS_BAD);
    cr_expect_str_eq(error, "--tls-certificate needs --tls-key beside it");
    cr_expect_eq(read_flags(&o, "--tls-key", "b", NULL), OPTIONS_BAD);
    cr_expect_str_eq(error, "--tls-key needs --tls-certificate beside it");
    setenv("ATTENTIOND_TLS_CERTIFICATE", "a", 1);
    cr_expect_eq(read_flags(&o, "--tls-key", "b", NULL), OPTIONS_READY, "%s", error);
    cr_expect_str_eq(o.tls_certificate, "a");
    cr_expect_str_eq(o.tls_key, "b");
}

Test(options, bad_variable_is_named) {
    struct server_options o;
    setenv("ATTENTIOND_IDLE_TIMEOUT", "soon", 1);
    cr_expect_eq(read_flags(&o, NULL, NULL, NULL), OPTIONS_BAD);
    cr_expect(strstr(error, "ATTENTIOND_IDLE_TIMEOUT") && strstr(error, "\"soon\""), "%s", error);
}

Test(options, kernels_that_this_cpu_does_not_run_are_refused) {
    struct server_options o;
    setenv("ATTENTION_ISA", "sse9", 1);
    cr_expect_eq(read_flags(&o, NULL, NULL, NULL), OPTIONS_BAD);
    const attn_build_info build = attn_build();
    cr_expect_not_null(strstr(error, "ATTENTION_ISA is \"sse9\", but this CPU runs scalar"), "%s",
                       error);
    for (size_t i = 0; build.usable_kernels[i] != NULL; i++) {
        cr_expect_not_null(strstr(error, build.usable_kernels[i]), "%s", error);
    }
}

Test(options, kernels_that_this_cpu_runs_are_taken) {
    struct server_options o;
    setenv("ATTENTION_ISA", "scalar", 1);
    cr_expect_eq(read_flags(&o, NULL, NULL, NULL), OPTIONS_READY, "%s", error);
}

Test(options, unknown_and_misused_flags) {
    static const char *const bad[] = {
        "--prot",           "-p",      "serve", "--", "--port", "--help=yes",
        "--health-check=1", "--por=1", "",      "="};
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct server_options o;
        cr_expect_eq(read_flags(&o, bad[i], NULL, NULL), OPTIONS_BAD, "%s", bad[i]);
        cr_expect_neq(error[0], '\0', "%s", bad[i]);
    }
}

Test(options, help_tells_everything) {
    static const char *const words[] = {
        "--address", "ATTENTIOND_ADDRESS", "127.0.0.1",     "--port",
        "8080",      "0..65535",           "--io-threads",  "--max-body",
        "64MiB",     "--max-connections",  "1000",          "--idle-timeout",
        "30",        "--max-memory",       "512MiB",        "--max-work",
        "1e+12",     "--health-check",     "--help",        "--version",
        "scalar",    "the last",           "ATTENTION_ISA", "default"};
    struct server_options o;
    cr_expect_eq(read_flags(&o, "--help", NULL, NULL), OPTIONS_HELP);
    cr_expect_eq(read_flags(&o, "--version", NULL, NULL), OPTIONS_VERSION);
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    options_print_help(file);
    fclose(file);
    for (size_t i = 0; i < COUNT(words); i++)
        cr_expect_not_null(strstr(text, words[i]), "%s", words[i]);
    free(text);
}
