/*
 * test_layer_lists.c - the lists of stored layers: their pages, what their parameters may be, the
 * memory that they take, and that a client without a key sees none of them.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/json.h"
#include "support/layer_folder.h"

#define KEY "Authorization: Bearer the-key-of-a-reader\r\n"

static void put_files(void) {
    char path[128];
    layer_folder_begin();
    layer_file_model("m.safetensors", "", 12, 1, 1, 1);
    layer_file_model("a.safetensors", "", 1, 1, 1, 1);
    layer_file_text("b.safetensors", "");
    layer_file_text("z.safetensors", "");
    layer_file_text("d.safetensors", ""); /* two models of one name are refused, and on one page */
    snprintf(path, sizeof path, "%sd", layer_folder);
    cr_assert_eq(mkdir(path, 0700), 0);
    layer_file_text("d/model.safetensors", "");
    layer_file_text("f (1)+\n.safetensors", ""); /* no name of a model and no target of a request */
}

static void start_with_keys(void) {
    char keys[128];
    put_files();
    snprintf(keys, sizeof keys, "%skeys", layer_folder);
    layer_file_text("keys", "the-key-of-a-reader\n");
    layer_folder_serve((const char *const[]){"--api-key-file", keys, NULL});
}

/* Returns the body of an answer, owned, after checking its status. */
static char *ask_as(const char *headers, const char *method, const char *path, int status) {
    struct client_response response;
    cr_assert(client_request(the_daemon.port, method, path, headers, "", 0, &response));
    cr_expect_eq(response.status, status, "%s %s: %d %s", method, path, response.status,
                 response.body);
    char *body = strdup(response.body);
    client_response_free(&response);
    return body;
}

/* Appends the names of a list of layers and files to a text. */
static void add_names(char *text, const struct cJSON *list) {
    for (const struct cJSON *entry = json_first(list); entry != NULL; entry = json_next(entry)) {
        const struct cJSON *name = json_get(entry, "name");
        strcat(strcat(text, json_text(name != NULL ? name : json_get(entry, "model"))), " ");
    }
}

/* Asks for all pages of this many entries. Returns their number, and the names on them. */
static size_t ask_pages(size_t limit, char layers[static 512], char refused[static 512]) {
    char path[256];
    size_t pages = 0;
    layers[0] = refused[0] = '\0';
    snprintf(path, sizeof path, "/layers?limit=%zu", limit);
    for (bool more = true; more; pages++) {
        char *body = ask_as(KEY, "GET", path, 200);
        struct cJSON *page = json_parse(body, strlen(body));
        add_names(layers, json_get(page, "layers"));
        add_names(refused, json_get(page, "refused"));
        more = json_get(page, "next") != NULL;
        if (more) {
            snprintf(path, sizeof path, "/layers?limit=%zu&after=%s", limit,
                     json_text(json_get(page, "next")));
        }
        json_free(page);
        free(body);
    }
    return pages;
}

TestSuite(layer_lists, .init = start_with_keys, .fini = layer_folder_stop, .timeout = 1200);

Test(layer_lists, have_every_name_once_on_pages_of_any_size) {
    static const size_t limits[] = {1, 2, 3, 14, 15, 1000}, pages[] = {17, 9, 6, 2, 2, 1};
    char layers[512], refused[512];
    for (size_t i = 0; i < COUNT(limits); i++) {
        cr_expect_eq(ask_pages(limits[i], layers, refused), pages[i], "limit %zu", limits[i]);
        cr_expect_str_eq(layers, "a.h.0 m.h.0 m.h.1 m.h.2 m.h.3 m.h.4 m.h.5 m.h.6 m.h.7 m.h.8 "
                                 "m.h.9 m.h.10 m.h.11 ");
        cr_expect_str_eq(refused, "b d d f??1???? z ");
    }
}

Test(layer_lists, begin_after_names_that_do_not_exist) {
    static const struct {
        const char *after, *first;
    } rows[] = {{"", "\"a.h.0\""}, {"a.h.00", "\"m.h.0\""}, {"m.h.9a", "\"m.h.10\""}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        char path[64], part[64];
        snprintf(path, sizeof path, "/layers?after=%s", rows[i].after);
        snprintf(part, sizeof part, "{\"layers\":[{\"name\":%s", rows[i].first);
        char *body = ask_as(KEY, "GET", path, 200);
        cr_expect_eq(strncmp(body, part, strlen(part)), 0, "%s: %.80s", path, body);
        free(body);
    }
    char *body = ask_as(KEY, "GET", "/layers?after=z", 200);
    cr_expect_str_eq(body, "{\"layers\":[],\"refused\":[]}\n");
    free(body);
}

/* Whether a layer exists makes no difference to a client without a key. */
Test(layer_lists, are_empty_for_clients_without_a_key) {
    static const struct {
        const char *method, *path; /* %s is the name of a layer */
    } rows[] = {{"GET", "/v2/models/%s"},
                {"GET", "/v2/models/%s/ready"},
                {"GET", "/v2/models/%s/config"},
                {"GET", "/v2/models/%s/stats"},
                {"GET", "/v2/models/%s/versions/1"},
                {"GET", "/v2/models/%s/versions/1/ready"},
                {"POST", "/v2/models/%s/infer"},
                {"POST", "/v2/models/%s/versions/1/infer"},
                {"POST", "/v2/repository/models/%s/load"},
                {"POST", "/v2/repository/models/%s/unload"},
                {"GET", "/layers/%s"},
                {"POST", "/layers/%s/attention"}};
    static const char *const names[] = {"m.h.11", "m.h.12", "b"};
    for (size_t i = 0; i < COUNT(rows); i++) {
        int statuses[COUNT(names)];
        for (size_t k = 0; k < COUNT(names); k++) {
            struct client_response response;
            char path[128];
            snprintf(path, sizeof path, rows[i].path, names[k]);
            cr_assert(client_request(the_daemon.port, rows[i].method, path, "", "", 0, &response));
            statuses[k] = response.status;
            cr_expect(response.status == 401 || response.status == 404, "%s: %d", path,
                      response.status);
            client_response_free(&response);
        }
        cr_expect(statuses[0] == statuses[1] && statuses[0] == statuses[2], "%s", rows[i].path);
    }
    free(ask_as(KEY, "GET", "/v2/models/m.h.11/ready", 200));
    free(ask_as(KEY, "GET", "/v2/models/m.h.12/ready", 404));
    free(ask_as("", "GET", "/v2/models/attention/ready", 200));
}

static void start_with_many(void) {
    put_files();
    layer_file_model("many.safetensors", "", 9000, 1, 1, 1);
    layer_folder_serve((const char *const[]){"--max-memory", "1MiB", NULL});
}

static void start_with_several_pages(void) {
    layer_folder_begin();
    layer_file_model("many.safetensors", "", 2500, 1, 1, 1);
    layer_folder_serve((const char *const[]){"--max-memory", "64MiB", NULL});
}

/* Several tasks make a list of so many layers. */
Test(many_layers, stand_once_in_lists_of_all, .init = start_with_several_pages,
     .fini = layer_folder_stop, .timeout = 1200) {
    static const char *const paths[][2] = {{"GET", "/v2/models"}, {"POST", "/v2/repository/index"}};
    for (size_t i = 0; i < COUNT(paths); i++) {
        char *body = ask_as("", paths[i][0], paths[i][1], 200), *at = body;
        struct cJSON *list = json_parse(body, strlen(body));
        const struct cJSON *names = i == 0 ? json_get(list, "models") : list;
        const size_t others = json_size(names) - 2500;
        cr_expect(others > 0 && others < 10, "%zu", others);
        for (size_t j = 0; j < 2500 && at != NULL; j++) {
            char name[32];
            snprintf(name, sizeof name, "\"many.h.%zu\"", j);
            at = strstr(at, name);
            cr_expect_not_null(at, "%s: %s", paths[i][1], name);
        }
        json_free(list);
        free(body);
    }
}

/* A list counts in the account of its request, as every other answer does. */
Test(many_layers, count_in_the_memory_of_a_request, .init = start_with_many,
     .fini = layer_folder_stop, .timeout = 1200) {
    static const struct {
        const char *method, *path;
    } large[] = {
        {"GET", "/layers?limit=1000"}, {"GET", "/v2/models"}, {"POST", "/v2/repository/index"}};
    for (size_t i = 0; i < COUNT(large); i++) {
        char *body = ask_as("", large[i].method, large[i].path, 413);
        cr_expect_not_null(strstr(body, "--max-memory"), "%s", body);
        free(body);
    }
    char *body = ask_as("", "GET", "/layers?limit=100&after=many.h.8898", 200);
    cr_expect_not_null(strstr(body, "\"many.h.8998\""), "%s", body);
    cr_expect_not_null(strstr(body, "\"next\":\"many.h.8998\""), "%s", body);
    free(body);
    cr_expect_eq(daemon_metric("attentiond_layers"), 9013);
    cr_expect_eq(daemon_metric("attentiond_layers_refused"), 5);
    /* The lists have given their catalogues back, so nothing keeps the weights of a file that
     * goes. */
    free(ask_as("", "POST", "/v2/repository/models/many.h.7/load", 200));
    cr_expect_gt(daemon_metric("attentiond_layers_packed_bytes"), 0);
    layer_file_remove("many.safetensors");
    daemon_await_metric("attentiond_layers_packed_bytes", 0);
}
