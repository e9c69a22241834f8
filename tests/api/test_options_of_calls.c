/*
 * test_options_of_calls.c - every option and every result of every endpoint, whose answers
 * data/answers.txt has, and what the daemon says of itself. The tests know the service by its
 * socket only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/json.h"
#include "support/rows.h"

TestSuite(options_of_calls, .init = daemon_start_plain, .fini = daemon_end, .timeout = 1200);

/* Is an answer the wanted one? A * in it stands for a number that is measured. */
static bool fits(const char *answer, const char *wanted) {
    while (*wanted != '\0') {
        if (*wanted == '*') {
            const size_t size = strspn(answer, "0123456789.e+-");
            if (size == 0) {
                return false;
            }
            answer += size;
            wanted++;
        } else if (*answer++ != *wanted++) {
            return false;
        }
    }
    return *answer == '\0';
}

/* Sends the rows of data/answers.txt. */
Test(options_of_calls, have_the_answers_that_were_worked_out) {
    static struct rows rows;
    char paths[ROWS_LINE] = "", path[80], body[ROWS_BYTES], wanted[ROWS_BYTES];
    size_t count = 0;
    rows_open(&rows, "answers.txt");
    while (rows_next(&rows)) {
        char *answer = strstr(rows.line, " => ");
        if (rows.line[0] == '=') {
            strcpy(paths, rows.line + 1);
            continue;
        }
        cr_assert_not_null(answer, "line %u", rows.number);
        *answer = '\0';
        const size_t size = rows_expand(&rows, rows.line, body);
        strcpy(wanted + rows_expand(&rows, answer + strlen(" => "), wanted), "\n");
        const char *left = paths;
        for (int length; sscanf(left, "%79s%n", path, &length) == 1; left += length, count++) {
            struct client_response response;
            cr_assert(client_request(the_daemon.port, "POST", path,
                                     "Content-Type: application/json\r\n", body, size, &response),
                      "line %u, %s: no answer", rows.number, path);
            cr_expect(response.status == 200 && fits(response.body, wanted),
                      "line %u, %s:\n     %d %s expected %s", rows.number, path, response.status,
                      response.body, wanted);
            client_response_free(&response);
        }
    }
    cr_expect_gt(count, 140);
    rows_close(&rows);
}

/* The same compiler makes the tests and the daemon. */
#ifdef __clang__
#define COMPILER "clang "
#else
#define COMPILER "GCC "
#endif

Test(options_of_calls, version_names_what_runs) {
    double threads = 0;
    struct client_response response = daemon_ask("GET", "/version", NULL);
    struct cJSON *version = json_parse(response.body, response.size);
    const char *name = json_text(json_get(version, "name"));
    const char *number = json_text(json_get(version, "version"));
    const char *compiler = json_text(json_get(version, "compiler"));
    const char *blas = json_text(json_get(version, "blas"));
    const char *core = json_text(json_get(version, "blas_core"));
    const char *kernels = json_text(json_get(version, "kernels"));
    cr_expect(name != NULL && strcmp(name, "attentiond") == 0, "%s", response.body);
    cr_assert(number != NULL && *number != '\0', "%s", response.body);
    cr_expect(compiler != NULL && strstr(compiler, COMPILER) == compiler &&
                  strspn(compiler + strlen(COMPILER), "0123456789.") >= 4,
              "%s", response.body);
    cr_expect(blas != NULL && strncmp(blas, "OpenBLAS ", 9) == 0, "%s", response.body);
    cr_expect(core != NULL && core[0] != '\0', "%s", response.body);
    cr_expect(kernels != NULL && kernels[0] != '\0', "%s", response.body);
    cr_expect(json_number(json_get(version, "threads"), &threads) && threads >= 1, "%s",
              response.body);
    json_free(version);
    client_response_free(&response);
}

/* Quoted versions are those of models. */
Test(options_of_calls, openapi_has_this_version) {
    size_t size = 0, found = 0;
    char *file = json_read_file(TESTS_DIR "/../openapi.yaml", &size);
    cr_assert(file != NULL);
    struct client_response response = daemon_ask("GET", "/version", NULL);
    struct cJSON *version = json_parse(response.body, response.size);
    const char *number = json_text(json_get(version, "version"));
    cr_assert(number != NULL, "%s", response.body);
    for (const char *at = file; (at = strstr(at, " version: ")) != NULL; found++) {
        at += strlen(" version: ");
        const size_t length = strcspn(at, "\n");
        cr_expect(*at == '"' || (length == strlen(number) && strncmp(at, number, length) == 0),
                  "openapi.yaml has the version %.*s: %s", (int)length, at, response.body);
    }
    cr_expect_gt(found, 0);
    json_free(version);
    client_response_free(&response);
    free(file);
}

Test(options_of_calls, openapi_is_the_file) {
    size_t size = 0;
    char *file = json_read_file(TESTS_DIR "/../openapi.yaml", &size);
    cr_assert(file != NULL);
    struct client_response response = daemon_ask("GET", "/openapi.yaml", NULL);
    cr_expect(response.size == size && memcmp(response.body, file, size) == 0,
              "%zu bytes are served, the file has %zu, or they differ", response.size, size);
    free(file);
    client_response_free(&response);
}
