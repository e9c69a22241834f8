/*
 * test_http_access.c tests keys from a file, and origins of web pages.
 */
#include <criterion/criterion.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "http/cors.h"
#include "http/keys.h"
#include "support/count.h"

static char path[] = "/tmp/attentiond-keys-XXXXXX";
static char error[256];

static void write_file(const char *text) {
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_eq(fputs(text, file) < 0, 0);
    cr_assert_eq(fclose(file), 0);
}

static void create_file(void) {
    const int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
}

static void remove_file(void) {
    unlink(path);
}

TestSuite(http_access, .init = create_file, .fini = remove_file);

#define SIXTEEN "0123456789abcdef"

static bool match(struct keys *keys, const char *value) {
    return keys_match(keys, value, strlen(value));
}

Test(http_access, keys_of_a_file_match) {
    char longest[KEYS_LONGEST + 16] = "Bearer ", text[KEYS_LONGEST + 2000];
    memset(longest + 7, 'x', KEYS_LONGEST);
    /* The end of a long comment is not a key. */
    snprintf(text, sizeof text,
             "# for the class%*sAtTheEndOfAComment\n\n%s\r\n%s\n~another!key~~~~~~", 1000, "",
             SIXTEEN, longest + 7);
    write_file(text);
    struct keys *keys = keys_load(path, error, sizeof error);
    cr_assert_not_null(keys, "%s", error);
    cr_expect(match(keys, "Bearer " SIXTEEN));
    cr_expect(match(keys, "bearer " SIXTEEN));
    cr_expect(match(keys, "Bearer ~another!key~~~~~~"));
    cr_expect(match(keys, longest));
    static const char *const others[] = {
        "",
        "Bearer",
        "Bearer ",
        "Bearer  " SIXTEEN,
        "Bearer " SIXTEEN " ",
        "Bearer " SIXTEEN "0",
        "Bearer 0123456789abcde",
        "Bearer 1123456789abcdef",
        "Bearer 0123456789abcdeF",
        "Basic " SIXTEEN,
        SIXTEEN,
        "Bearer # for the class",
        "Bearer AtTheEndOfAComment",
    };
    for (size_t i = 0; i < COUNT(others); i++) {
        cr_expect_not(match(keys, others[i]), "%s", others[i]);
    }
    longest[KEYS_LONGEST + 7] = 'x';
    cr_expect_not(match(keys, longest));
    cr_expect_not(keys_match(keys, "Bearer " SIXTEEN "\0", 24), "a NUL is a character");
    keys_free(keys);
}

Test(http_access, files_that_are_refused) {
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "the file has no key"},
        {"# none\n\n", "the file has no key"},
        {SIXTEEN "\nshort\n", "line 2: a key has 16 to 256 characters, but this one has 5"},
        {"\n0123456789 abcdef\n", "line 2: a key consists of visible ASCII characters"},
        {"0123456789\xC3\xA4xbcdef\n", "line 1: a key consists of visible ASCII characters"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        write_file(cases[i].text);
        cr_expect_null(keys_load(path, error, sizeof error));
        cr_expect_str_eq(error, cases[i].error);
    }
    unlink(path);
    cr_expect_null(keys_load(path, error, sizeof error));
    cr_expect_str_eq(error, "No such file or directory");
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_null(keys_load(path, error, sizeof error)); /* a pipe into which nobody writes */
    cr_expect_str_eq(error, "this is not a regular file");
}

Test(http_access, keys_change_whole_or_not_at_all) {
    write_file(SIXTEEN "\n");
    struct keys *keys = keys_load(path, error, sizeof error);
    cr_assert_not_null(keys);
    write_file("a-new-key-of-ours\nbad\n");
    cr_expect_not(keys_reload(keys, error, sizeof error));
    cr_expect(match(keys, "Bearer " SIXTEEN));
    cr_expect_not(match(keys, "Bearer a-new-key-of-ours"));
    write_file("a-new-key-of-ours\n");
    cr_expect(keys_reload(keys, error, sizeof error));
    cr_expect_not(match(keys, "Bearer " SIXTEEN));
    cr_expect(match(keys, "Bearer a-new-key-of-ours"));
    keys_free(keys);
}

/* Keys that were replaced are released, and so are keys that were refused. With a sanitizer,
 * mallinfo2() says nothing, and leaks are reported. */
Test(http_access, reloads_leave_no_memory) {
    write_file(SIXTEEN "\n");
    struct keys *keys = keys_load(path, error, sizeof error);
    cr_assert_not_null(keys);
    struct mallinfo2 before = {0}, after;
    for (int i = 0; i < 20; i++) {
        write_file(i % 2 ? "a-new-key-of-ours\n" : "bad\n");
        cr_expect_eq(keys_reload(keys, error, sizeof error), i % 2);
        before = i == 3 ? mallinfo2() : before;
    }
    after = mallinfo2();
    cr_expect_lt(after.uordblks + after.hblkhd, before.uordblks + before.hblkhd + 4096,
                 "sixteen reloads hold memory");
    keys_free(keys);
}

Test(http_access, origins) {
    static const char list[] = "https://a.example,http://localhost:3000";
    static const struct {
        const char *list, *origin;
        bool allowed;
    } cases[] = {
        {list, "https://a.example", true},
        {list, "http://localhost:3000", true},
        {list, "https://a.exampl", false},
        {list, "https://a.example,", false},
        {list, "http://localhost", false},
        {list, "HTTPS://A.EXAMPLE", false},
        {list, "null", false},
        {list, "", false},
        {"*", "https://a.example", true},
        {"*", "null", true},
        {"*", "", false},
        {NULL, "https://a.example", false},
        {",,", "", false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        cr_expect_eq(cors_allows(cases[i].list, cases[i].origin, strlen(cases[i].origin)),
                     cases[i].allowed, "\"%s\"", cases[i].origin);
    }
}
