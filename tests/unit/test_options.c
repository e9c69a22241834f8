/*
 * test_options.c - the options of the daemon: flags, variables, defaults, ranges and messages.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "options.h"
#include "support/count.h"

static char error[512];

/* Reads the options from up to three arguments; NULL = no argument. */
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
    cr_expect_str_eq(o.http.address, "127.0.0.1");
    cr_expect_eq(o.http.port, 8080);
    cr_expect(o.http.threads >= 1 && o.http.threads <= 4);
    cr_expect_eq(o.http.max_body, 64u << 20);
    cr_expect_eq(o.http.max_connections, 1000);
    cr_expect_eq(o.http.idle_timeout, 30);
    cr_expect(o.max_memory > 0 && o.max_memory <= 512u << 20); /* less in a small container */
    cr_expect_eq(o.max_work, 1e12);
    cr_expect_not(o.health_check);
}

Test(options, both_forms) {
    struct server_options o;
    cr_assert_eq(read_flags(&o, "--port", "0", "--health-check"), OPTIONS_READY);
    cr_expect_eq(o.http.port, 0);
    cr_expect(o.health_check);
    cr_assert_eq(read_flags(&o, "--port=65535", "--address=::1", "--max-work=2.5e9"),
                 OPTIONS_READY);
    cr_expect_eq(o.http.port, 65535);
    cr_expect_str_eq(o.http.address, "::1");
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
        cr_expect_eq(o.http.max_body, sizes[i].value, "%s", sizes[i].text);
    }
}

Test(options, flag_beats_environment_beats_default) {
    struct server_options o;
    setenv("ATTENTIOND_PORT", "9001", 1);
    setenv("ATTENTIOND_IO_THREADS", "3", 1);
    setenv("ATTENTIOND_MAX_CONNECTIONS", "", 1);
    cr_assert_eq(read_flags(&o, "--port=9002", NULL, NULL), OPTIONS_READY);
    cr_expect_eq(o.http.port, 9002);
    cr_expect_eq(o.http.threads, 3);
    cr_expect_eq(o.http.max_connections, 1000, "an empty variable is not set");
    cr_assert_eq(read_flags(&o, NULL, NULL, NULL), OPTIONS_READY);
    cr_expect_eq(o.http.port, 9001);
}

Test(options, variable_of_a_kubernetes_service_is_no_port) {
    struct server_options o;
    setenv("ATTENTIOND_PORT", "tcp://10.0.0.7:80", 1);
    cr_assert_eq(read_flags(&o, NULL, NULL, NULL), OPTIONS_READY, "%s", error);
    cr_expect_eq(o.http.port, 8080);
    setenv("ATTENTIOND_MAX_BODY", "tcp://10.0.0.7:80", 1);
    cr_expect_eq(read_flags(&o, NULL, NULL, NULL), OPTIONS_BAD, "this holds for no other variable");
}

/* A misspelt variable stops the start, because the option that it means may protect the service. */
Test(options, a_variable_that_is_no_option) {
    static const struct {
        const char *name, *words;
    } bad[] = {
        {"ATTENTIOND_API_KEY_FLIE", "did you mean ATTENTIOND_API_KEY_FILE?"},
        {"ATTENTIOND_API_KEYS_FILE", "did you mean ATTENTIOND_API_KEY_FILE?"},
        {"ATTENTION_API_KEY_FILE", "did you mean ATTENTIOND_API_KEY_FILE?"},
        {"attentiond_api_key_file", "did you mean ATTENTIOND_API_KEY_FILE?"},
        {"ATTENTIOND_TLS_CERTIFICAT", "did you mean ATTENTIOND_TLS_CERTIFICATE?"},
        {"ATTENTIOND-API-KEY-FILE", "ATTENTIOND-API-KEY-FILE is no option"},
        {"ATTENTIOND_AUTHENTICATION", "ATTENTIOND_AUTHENTICATION is no option; --help"},
        {"ATTENTIOND_API_KEY", "ATTENTIOND_API_KEY is no option"},
        {"ATTENTIOND_EXPORT", "ATTENTIOND_EXPORT is no option"},
        {"ATTENTIOND_KEY", "in the file that ATTENTIOND_API_KEY_FILE names"},
    };
    static const struct {
        const char *name, *value;
    } good[] = {
        {"ATTENTIOND_SERVICE_HOST", "10.0.0.7"},
        {"ATTENTIOND_SERVICE_PORT", "80"},
        {"ATTENTIOND_SERVICE_PORT_HTTP", "80"},
        {"ATTENTIOND_PORT_80_TCP", "tcp://10.0.0.7:80"},
        {"ATTENTIOND_PORT_80_TCP_PROTO", "tcp"},
        {"ATTENTIOND_CANARY_PORT", "tcp://10.0.0.7:80"},
        {"ATTENTIOND_URL", "http://127.0.0.1:8080"},
        {"ATTENTION_ISA", ""},
        {"HOME", "/"},
    };
    struct server_options o;
    for (size_t i = 0; i < COUNT(good); i++) {
        setenv(good[i].name, good[i].value, 1);
        cr_expect_eq(read_flags(&o, NULL, NULL, NULL), OPTIONS_READY, "%s: %s", good[i].name,
                     error);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        setenv(bad[i].name, "keys.txt", 1);
        cr_expect_eq(read_flags(&o, NULL, NULL, NULL), OPTIONS_BAD, "%s", bad[i].name);
        cr_expect_not_null(strstr(error, bad[i].words), "%s: %s", bad[i].name, error);
        unsetenv(bad[i].name);
    }
    setenv("ATTENTIOND_KEY", "the key of a client", 1);
    cr_expect_eq(read_flags(&o, "--api-key-file", "keys", NULL), OPTIONS_READY, "%s", error);
}

/* An empty variable of a file that protects the service is no variable that is not set. */
Test(options, an_empty_path_of_keys) {
    static const char *const names[] = {"ATTENTIOND_API_KEY_FILE", "ATTENTIOND_TLS_CERTIFICATE",
                                        "ATTENTIOND_TLS_KEY"};
    for (size_t i = 0; i < COUNT(names); i++) {
        struct server_options o;
        setenv(names[i], "", 1);
        cr_expect_eq(read_flags(&o, NULL, NULL, NULL), OPTIONS_BAD, "%s", names[i]);
        cr_expect(strstr(error, names[i]) != NULL && strstr(error, "is empty") != NULL, "%s",
                  error);
        unsetenv(names[i]);
    }
}

Test(options, bad_values) {
    static const struct {
        const char *flag, *value;
        const char *words; /* the message has these, the flag and the value */
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
        {"--max-body", "10GB", "; its units are KiB, MiB and GiB"},
        {"--total-memory", "1.5GiB", "a whole number of bytes"},
        {"--idle-timeout", "30s", "must be a whole number of seconds in 1..86400, not"},
        {"--compute-timeout", "1m", "must be a number in 0.001..86400, not"},
        {"--compression", "true", "must be no or yes, not"},
        {"--log-format", "xml", "must be text or json, not"},
        {"--max-body", "MiB", "1KiB..64GiB"},
        {"--max-connections", "0", "1..1000000"},
        {"--idle-timeout", "0", "1..86400"},
        {"--max-memory", "1KiB", "64KiB..1024GiB"},
        {"--max-work", "0.5", "1..1e18"},
        {"--max-work", "inf", "1..1e18"},
        {"--max-work", "nan", "1..1e18"},
        {"--max-work", "1e999", "1..1e18"},
        {"--address", "localhost", "must be an IPv4 or IPv6 address, as in 127.0.0.1, not"},
        {"--address", "127.0.0.256", "IPv4 or IPv6"},
        {"--address", "", "IPv4 or IPv6"},
        {"--frame-ancestors", "*",
         "must be origins with commas between, none with * or [, at most"},
        {"--frame-ancestors", "https://*.example", "none with * or ["},
        {"--frame-ancestors", "http://[::1]:8888", "none with * or ["},
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

/* Both options that take origins have one check. What it lets through goes into headers. */
Test(options, lists_of_origins) {
    static const char *const good[] = {"http://localhost:8888", "https://notebooks.example.org",
                                       "https://a,http://127.0.0.1:1,https://b-c.d:65535",
                                       "vscode-webview://0a1b-2c3d"};
    static const char *const bad[] = {
        "",           ",",           "https://a,",           ",https://a",  "https://a,,https://b",
        "a.example",  "https://",    "//a.example",          "https:",      "https://a, https://b",
        "https://a/", "https://a/b", "https://a;script-src", "HTTPS://a",   "https://A",
        "'self'",     "'none'",      "https://a?b",          "https://a#",  "https://b@a",
        "https://a:", "https://a:*", "https://a:123456",     "https://.a",  "https://a..b",
        "https://a ", " https://a",  "https://a\r\nb: c",    "https://a\n", "https://a\thttp://b",
        "null",       "*,https://a", "https://a,*",          "**",          "https://\x7f",
        "https://é",  "https://a'",  "https://a\"",          "https://[",   "https://a https://b"};
    static const char *const flags[] = {"--cors-origins", "--frame-ancestors"};
    for (size_t i = 0; i < COUNT(flags); i++) {
        struct server_options o;
        for (size_t j = 0; j < COUNT(good); j++) {
            cr_expect_eq(read_flags(&o, flags[i], good[j], NULL), OPTIONS_READY, "%s", error);
        }
        for (size_t j = 0; j < COUNT(bad); j++) {
            cr_expect_eq(read_flags(&o, flags[i], bad[j], NULL), OPTIONS_BAD, "%s \"%s\"", flags[i],
                         bad[j]);
            cr_expect(strstr(error, flags[i]) && strstr(error, bad[j]) &&
                          strstr(error, "origins with commas between") &&
                          strstr(error, "at most 4096 bytes, in lower case and without a path"),
                      "%s", error);
        }
        char list[4096 + 2] = "https://";
        memset(list + strlen(list), 'a', 4096 - strlen(list));
        cr_expect_eq(read_flags(&o, flags[i], list, NULL), OPTIONS_READY, "%s", error);
        list[4096] = 'a';
        cr_expect_eq(read_flags(&o, flags[i], list, NULL), OPTIONS_BAD, "%s", flags[i]);
    }
}

/* ---------------------------------------------------------------------- each option alone */

#define MEMBER(name)                                                                               \
    offsetof(struct server_options, name), sizeof(((struct server_options *)NULL)->name)

enum member_kind {
    IS_TEXT,
    IS_BOOL,
    IS_UNSIGNED,
    IS_SIZE,
    IS_REAL
};

/* Each option that takes a value, with the least and the largest value, and a wrong value on either
 * side. The two options for TLS are not here, because neither is allowed without the other. */
static const struct member {
    const char *flag, *least, *less, *most, *more;
    double number; /* `most` as a number */
    enum member_kind kind;
    size_t offset, size;
} members[] = {
    {"--address", "0.0.0.0", "a", "::", "::g", 0, IS_TEXT, MEMBER(http.address)},
    {"--port", "0", "-1", "65535", "65536", 65535, IS_UNSIGNED, MEMBER(http.port)},
    {"--api-key-file", "k", "", "key", "", 0, IS_TEXT, MEMBER(http.api_key_file)},
    {"--cors-origins", "*", "", "http://a,http://b", "", 0, IS_TEXT, MEMBER(http.cors_origins)},
    {"--frame-ancestors", "http://a", "a", "http://a,http://b", "*", 0, IS_TEXT,
     MEMBER(frame_ancestors)},
    {"--io-threads", "1", "0", "64", "65", 64, IS_UNSIGNED, MEMBER(http.threads)},
    {"--workers", "1", "0", "64", "65", 64, IS_UNSIGNED, MEMBER(jobs.threads)},
    {"--max-body", "1KiB", "1023", "64GiB", "68719476737", 0x1p36, IS_SIZE, MEMBER(http.max_body)},
    {"--compression", "no", "", "yes", "Yes", 1, IS_BOOL, MEMBER(http.compression)},
    {"--max-connections", "1", "0", "1000000", "1000001", 1e6, IS_UNSIGNED,
     MEMBER(http.max_connections)},
    {"--idle-timeout", "1", "0", "86400", "86401", 86400, IS_UNSIGNED, MEMBER(http.idle_timeout)},
    {"--header-timeout", "1", "0", "86400", "86401", 86400, IS_UNSIGNED,
     MEMBER(http.header_timeout)},
    {"--body-timeout", "1", "0", "86400", "86401", 86400, IS_UNSIGNED, MEMBER(http.body_timeout)},
    {"--write-timeout", "1", "0", "86400", "86401", 86400, IS_UNSIGNED, MEMBER(http.write_timeout)},
    {"--compute-timeout", "0.001", "0.0009", "86400", "86400.1", 86400, IS_REAL,
     MEMBER(compute_timeout)},
    {"--drain-delay", "0", "-1", "3600", "3601", 3600, IS_UNSIGNED, MEMBER(http.drain_delay)},
    {"--drain-timeout", "0", "-1", "3600", "3601", 3600, IS_UNSIGNED, MEMBER(http.drain_timeout)},
    {"--max-memory", "64KiB", "65535", "1024GiB", "1025GiB", 0x1p40, IS_SIZE, MEMBER(max_memory)},
    {"--max-work", "1", "0.9", "1e18", "1.1e18", 1e18, IS_REAL, MEMBER(max_work)},
    {"--total-memory", "1MiB", "1048575", "1024GiB", "1025GiB", 0x1p40, IS_SIZE,
     MEMBER(total_memory)},
    {"--max-queue", "1", "0.9", "1e18", "1.1e18", 1e18, IS_REAL, MEMBER(jobs.max_cost)},
    {"--log-format", "text", "", "json", "xml", 1, IS_BOOL, MEMBER(http.log.json)},
    {"--log-requests", "no", "", "yes", "y", 1, IS_BOOL, MEMBER(http.log.requests)},
    {"--layers", "l", "", "layers", "", 0, IS_TEXT, MEMBER(layers.folder)},
    {"--layers-memory", "1MiB", "1048575", "1024GiB", "1025GiB", 0x1p40, IS_SIZE,
     MEMBER(layers.memory)},
    {"--log-file", "f", "", "file", "", 0, IS_TEXT, MEMBER(http.log.file)},
};

/* Returns the variable of an option: ATTENTIOND_MAX_BODY stands for --max-body. */
static const char *variable_of(const struct member *m) {
    static char name[64];
    char *out = stpcpy(name, "ATTENTIOND_");
    for (const char *c = m->flag + 2; *c != '\0'; c++) {
        *out++ = *c == '-' ? '_' : (char)(*c - 'a' + 'A');
    }
    *out = '\0';
    return name;
}

static void expect_most(const struct member *m, const struct server_options *options,
                        const char *source) {
    const void *place = (const char *)options + m->offset;
    const double number = m->kind == IS_BOOL       ? *(const bool *)place
                          : m->kind == IS_UNSIGNED ? *(const unsigned *)place
                          : m->kind == IS_SIZE     ? (double)*(const size_t *)place
                          : m->kind == IS_REAL     ? *(const double *)place
                                                   : 0;
    cr_expect_eq(number, m->number, "%s: %g", source, number);
    if (m->kind == IS_TEXT) {
        cr_expect_str_eq(*(const char *const *)place, m->most, "%s", source);
    }
}

/* The flag and the variable of an option set its own member, and no other one. */
Test(options, each_sets_its_own_member) {
    struct server_options usual, by_flag, by_variable;
    cr_assert_eq(read_flags(&usual, NULL, NULL, NULL), OPTIONS_READY);
    for (size_t i = 0; i < COUNT(members); i++) {
        const struct member *m = &members[i];
        cr_assert_eq(read_flags(&by_flag, m->flag, m->most, NULL), OPTIONS_READY, "%s", error);
        setenv(variable_of(m), m->most, 1);
        cr_assert_eq(read_flags(&by_variable, NULL, NULL, NULL), OPTIONS_READY, "%s", error);
        unsetenv(variable_of(m));
        expect_most(m, &by_flag, m->flag);
        expect_most(m, &by_variable, variable_of(m));
        for (size_t j = 0; j < COUNT(members); j++) {
            const size_t offset = members[j].offset, size = members[j].size;
            const char *was = (const char *)&usual + offset;
            cr_expect(i == j || (memcmp((const char *)&by_flag + offset, was, size) == 0 &&
                                 memcmp((const char *)&by_variable + offset, was, size) == 0),
                      "%s changes what %s is for", m->flag, members[j].flag);
        }
    }
}

Test(options, each_has_its_bounds) {
    for (size_t i = 0; i < COUNT(members); i++) {
        const struct member *m = &members[i];
        struct server_options o;
        cr_expect_eq(read_flags(&o, m->flag, m->least, NULL), OPTIONS_READY, "%s", error);
        cr_expect_eq(read_flags(&o, m->flag, m->most, NULL), OPTIONS_READY, "%s", error);
        cr_expect_eq(read_flags(&o, m->flag, m->less, NULL), OPTIONS_BAD, "%s %s", m->flag,
                     m->less);
        cr_expect_eq(read_flags(&o, m->flag, m->more, NULL), OPTIONS_BAD, "%s %s", m->flag,
                     m->more);
    }
}

/* The table above has all options of --help that take a value, except the two for TLS, which need
 * one another. */
Test(options, help_has_each) {
    static const char *const more[] = {"--health-check", "--help",    "--version",
                                       "0..65535",       "64MiB",     "1e+12",
                                       "scalar",         "is in use", "ATTENTION_ISA"};
    struct server_options o;
    char *text = NULL;
    size_t size = 0, valued = 0;
    cr_expect_eq(read_flags(&o, "--help", NULL, NULL), OPTIONS_HELP);
    cr_expect_eq(read_flags(&o, "-h", NULL, NULL), OPTIONS_HELP);
    cr_expect_eq(read_flags(&o, "--version", NULL, NULL), OPTIONS_VERSION);
    FILE *file = open_memstream(&text, &size);
    options_print_help(file);
    fclose(file);
    for (const char *at = text; (at = strstr(at, ", default ")) != NULL; at++) {
        valued++;
    }
    cr_expect_eq(valued, COUNT(members) + 2);
    for (size_t i = 0; i < COUNT(members); i++) {
        cr_expect(strstr(text, members[i].flag) && strstr(text, variable_of(&members[i])), "%s",
                  members[i].flag);
    }
    for (size_t i = 0; i < COUNT(more); i++) {
        cr_expect_not_null(strstr(text, more[i]), "%s", more[i]);
    }
    free(text);
}

Test(options, certificate_and_key_come_together) {
    struct server_options o;
    cr_expect_eq(read_flags(&o, "--tls-certificate", "a", NULL), OPTIONS_BAD);
    cr_expect_str_eq(error, "--tls-certificate needs --tls-key, too");
    cr_expect_eq(read_flags(&o, "--tls-key", "b", NULL), OPTIONS_BAD);
    cr_expect_str_eq(error, "--tls-key needs --tls-certificate, too");
    setenv("ATTENTIOND_TLS_CERTIFICATE", "a", 1);
    cr_expect_eq(read_flags(&o, "--tls-key", "b", NULL), OPTIONS_READY, "%s", error);
    cr_expect_str_eq(o.http.tls_certificate, "a");
    cr_expect_str_eq(o.http.tls_key, "b");
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
    cr_expect_not_null(strstr(error, "ATTENTION_ISA is \"sse9\", but this machine runs scalar"),
                       "%s", error);
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
        "--health-check=1", "--por=1", "",      "=",  "-h=1",   "-help"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct server_options o;
        cr_expect_eq(read_flags(&o, bad[i], NULL, NULL), OPTIONS_BAD, "%s", bad[i]);
        cr_expect_neq(error[0], '\0', "%s", bad[i]);
    }
}

Test(options, what_is_meant_is_named) {
    static const struct {
        const char *argument, *said;
    } rows[] = {
        {"--prot", "there is no option \"--prot\"; did you mean --port? --help lists all"},
        {"--host", "there is no option \"--host\"; did you mean --address?"},
        {"--host=0.0.0.0", "did you mean --address?"},
        {"--bind", "did you mean --address?"},
        {"--thread", "there is no option \"--thread\"; --help lists all"},
        {"--threads", "did you mean --workers?"},
        {"--max-memroy=1GiB", "did you mean --max-memory?"},
        {"--tls-cert", "there is no option \"--tls-cert\"; --help lists all"},
        {"--cert", "did you mean --tls-certificate?"},
        {"-p", "did you mean --port?"},
        {"-v", "did you mean --version?"},
        {"-port", "did you mean --port?"},
        {"9000",
         "\"9000\" is no option: each one begins with --, as in --port 9000; --help lists all"},
        {"PORT=9000", "\"PORT=9000\" is no option: each one begins with --"},
        {"--a-name-that-is-longer-than-every-option=1", "; --help lists all"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct server_options o;
        cr_expect_eq(read_flags(&o, rows[i].argument, NULL, NULL), OPTIONS_BAD);
        cr_expect_not_null(strstr(error, rows[i].said), "%s: %s", rows[i].argument, error);
    }
}
