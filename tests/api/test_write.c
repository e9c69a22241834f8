/*
 * test_write.c - PUT and DELETE /layers/{name}: what they answer, what is refused, and that the old
 * file stays as it was when the disk is full or fails. tests/hostile/uploads.py kills the daemon
 * while it takes files.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "support/binary.h"
#include "support/client.h"
#include "support/daemon.h"
#include "support/expect.h"
#include "support/json.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define KEY          "Authorization: Bearer a-key-that-may-write\r\n"

static char folder[32], keys[64];

static void start_writable(void) {
    strcpy(folder, "/tmp/layers-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(keys, sizeof keys, "%s/keys", folder);
    FILE *file = fopen(keys, "w");
    cr_assert_not_null(file);
    fputs("a-key-that-may-write\n", file);
    cr_assert_eq(fclose(file), 0);
    daemon_start((const char *const[]){"--layers", folder, "--layers-writable", "64KiB",
                                       "--api-key-file", keys, NULL});
}

static void end_writable(void) {
    char command[128];
    daemon_end();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

/* The weights of a call; `columns` is the size of its output. */
static char *make_file(size_t columns, size_t *size) {
    const struct binary_call weights = {
        "/multi-head-attention",
        "\"heads\":2",
        NULL,
        {{"W_Q", {4, 4}, 0}, {"W_K", {4, 4}, 0}, {"W_V", {4, 4}, 0}, {"W_O", {4, columns}, 0}}};
    return binary_safetensors(&weights, "F32", size);
}

/* Sends a request, and expects a status and a part of the answer. */
static void expect_status(const char *method, const char *path, const char *headers,
                          const void *body, size_t size, int status, const char *part) {
    struct client_response response;
    cr_assert(client_request(the_daemon.port, method, path, headers, body, size, &response));
    cr_expect_eq(response.status, status, "%s %s: %d %.*s", method, path, response.status,
                 (int)response.size, response.body);
    cr_expect_not_null(strstr(response.body, part), "%s %s: %.*s", method, path, (int)response.size,
                       response.body);
    client_response_free(&response);
}

/* Sends a file whose output has so many columns. */
static void put_weights_file(const char *path, size_t columns, int status, const char *part) {
    size_t size;
    char *file = make_file(columns, &size);
    expect_status("PUT", path, KEY, file, size, status, part);
    free(file);
}

/* Returns how many files the folder has, the one of the keys included. */
static size_t count_files(void) {
    size_t count = 0;
    DIR *stream = opendir(folder);
    cr_assert_not_null(stream);
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(stream);
    return count;
}

/* Waits until the folder has so many files. The time limit of the test bounds the wait. */
static void await_files(size_t count) {
    while (count_files() != count) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

/* Expects that the model serves an output of so many columns, and that the folder has so many
 * files. */
static void expect_folder(size_t columns, size_t files) {
    char part[32];
    if (columns > 0) {
        snprintf(part, sizeof part, "\"d_out\":%zu,", columns);
        expect_status("GET", "/layers/small.attention", KEY, "", 0, 200, part);
    } else {
        expect_status("GET", "/layers/small.attention", KEY, "", 0, 404, "no layer");
    }
    cr_expect_eq(count_files(), files);
}

TestSuite(write, .init = start_writable, .fini = end_writable, .timeout = 60);

Test(write, stores_replaces_and_removes_a_model) {
    put_weights_file("/layers/small", 3, 201, "\"replaced\":false");
    expect_folder(3, 2);
    put_weights_file("/layers/small.safetensors", 5, 200, "\"replaced\":true");
    expect_folder(5, 2);
    expect_status("POST", "/layers/small.attention/attention", KEY, "{\"X\":[[1,2,3,4]]}", 17, 200,
                  "\"weights\"");
    expect_status("DELETE", "/layers/small", KEY, "", 0, 200, "\"removed\":true");
    expect_folder(0, 1);
    expect_status("DELETE", "/layers/small", KEY, "", 0, 404, "there is no model small");
}

Test(write, takes_a_file_in_chunks) {
    static const char head[] =
        "PUT /layers/small HTTP/1.1\r\nHost: a\r\n" KEY "Transfer-Encoding: chunked\r\n\r\n";
    struct client_connection connection;
    struct client_response response;
    char text[64];
    size_t size;
    char *file = make_file(3, &size);
    cr_assert(client_open(&connection, the_daemon.port));
    cr_assert(client_send(&connection, head, sizeof head - 1));
    for (size_t at = 0; at < size; at += 100) {
        const size_t part = size - at < 100 ? size - at : 100;
        const int length = snprintf(text, sizeof text, "%zx\r\n", part);
        cr_assert(client_send(&connection, text, (size_t)length));
        cr_assert(client_send(&connection, file + at, part));
        cr_assert(client_send(&connection, "\r\n", 2));
    }
    cr_assert(client_send(&connection, "0\r\n\r\n", 5));
    cr_assert(client_receive(&connection, false, &response));
    cr_expect_eq(response.status, 201, "%s", response.body);
    client_response_free(&response);
    client_close(&connection);
    expect_folder(3, 2);
    free(file);
}

Test(write, refuses_what_is_wrong_and_leaves_nothing) {
    static const char names[] = "the characters A-Z, a-z, 0-9";
    char large[70000] = "", path[256];
    size_t size;
    char *file = make_file(3, &size);
    put_weights_file("/layers/small", 3, 201, "");
    expect_status("PUT", "/layers/small", KEY, "{}", 2, 422, "small.safetensors has no header");
    expect_status("PUT", "/layers/small", KEY, "", 0, 422, "small.safetensors has no header");
    expect_status("PUT", "/layers/small", KEY, file, size - 1, 422, "small.safetensors");
    expect_status("PUT", "/layers/small", KEY, large, sizeof large, 413, "--layers-writable");
    expect_status("PUT", "/layers/small", NULL, file, size, 401, "needs a key");
    expect_status("DELETE", "/layers/small", NULL, "", 0, 401, "needs a key");
    expect_status("PUT", "/layers/.hidden", KEY, file, size, 422, names);
    expect_status("PUT", "/layers/a%20b", KEY, file, size, 422, names);
    expect_status("DELETE", "/layers/a%2Fb", KEY, "", 0, 404, "there is nothing at");
    snprintf(path, sizeof path, "/layers/%0129d", 0);
    expect_status("PUT", path, KEY, file, size, 422, names);
    expect_status("POST", "/layers/small", KEY, "", 0, 405, "GET, HEAD, PUT, DELETE");
    expect_folder(3, 2);
    free(file);
}

Test(write, leaves_models_of_other_files_alone) {
    char path[256];
    size_t size;
    char *file = make_file(3, &size);
    snprintf(path, sizeof path, "%s/deep", folder);
    cr_assert_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/deep/model.safetensors", folder);
    FILE *stream = fopen(path, "wb");
    cr_assert_not_null(stream);
    cr_assert_eq(fwrite(file, 1, size, stream), size);
    cr_assert_eq(fclose(stream), 0);
    put_weights_file("/layers/small", 3, 201, ""); /* and the folder is read anew */
    expect_status("PUT", "/layers/deep", KEY, file, size, 422, "deep/model.safetensors");
    expect_status("DELETE", "/layers/deep", KEY, "", 0, 422, "deep/model.safetensors");
    expect_status("GET", "/layers/deep.attention", KEY, "", 0, 200, "\"d_out\":3");
    free(file);
}

Test(write, drops_a_file_whose_client_leaves) {
    static const char head[] =
        "PUT /layers/small HTTP/1.1\r\nHost: a\r\n" KEY "Content-Length: 1000\r\n\r\nnot all of it";
    struct client_connection connection;
    cr_assert(client_open(&connection, the_daemon.port));
    cr_assert(client_send(&connection, head, sizeof head - 1));
    await_files(2);
    client_close(&connection);
    await_files(1);
    expect_folder(0, 1);
}

/* ------------------------------------------------------------------------------- broken disks */

/* Lets a system call fail with this error in the daemon that is started next. */
static void break_call(unsigned number, unsigned error) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog program = {.len = COUNT(code), .filter = code};
    cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    cr_assert_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* A daemon in which a system call fails stores no file, and the old one stays. */
static void keep_the_old_file(unsigned number, unsigned error, int status, const char *part) {
    put_weights_file("/layers/small", 3, 201, "");
    cr_assert_eq(daemon_stop(), 0);
    break_call(number, error);
    daemon_start((const char *const[]){"--layers", folder, "--layers-writable", "64KiB",
                                       "--api-key-file", keys, NULL});
    put_weights_file("/layers/small", 5, status, part);
    expect_folder(3, 2);
    put_weights_file("/layers/other", 5, status, part);
    expect_folder(3, 2);
}

Test(write, survives_a_disk_that_fails) {
    keep_the_old_file(SYS_fsync, EIO, 500, "cannot be written to the disk");
}

Test(write, survives_a_disk_that_is_full_at_the_end) {
    keep_the_old_file(SYS_fsync, ENOSPC, 507, "cannot be written to the disk");
}

/* Starts a daemon in which files cannot change their names, or only a new file cannot get one. */
static void start_with_broken_names(unsigned number, unsigned error) {
    put_weights_file("/layers/small", 3, 201, "");
    cr_assert_eq(daemon_stop(), 0);
    break_call(number, error);
    daemon_start((const char *const[]){"--layers", folder, "--layers-writable", "64KiB",
                                       "--api-key-file", keys, NULL});
}

Test(write, survives_an_exchange_that_fails) {
    start_with_broken_names(SYS_renameat2, EIO);
    put_weights_file("/layers/small", 5, 500, "cannot get its name");
    expect_folder(3, 2);
}

Test(write, replaces_files_where_names_cannot_be_exchanged) {
    start_with_broken_names(SYS_renameat2, EINVAL);
    put_weights_file("/layers/small", 5, 200, "");
    expect_folder(5, 2);
}

#ifdef SYS_renameat
Test(write, survives_a_renaming_that_fails) {
    start_with_broken_names(SYS_renameat, EIO);
    put_weights_file("/layers/other", 5, 500, "cannot get its name");
    expect_folder(3, 2);
}
#endif

/* The lists of models are open to everyone, but the layers in them need a key. */
Test(write, lists_show_layers_to_clients_with_a_key_only) {
    static const struct {
        const char *method, *path;
    } lists[] = {{"GET", "/v2/models"}, {"POST", "/v2/repository/index"}};
    put_weights_file("/layers/small", 3, 201, "");
    for (size_t i = 0; i < COUNT(lists); i++) {
        struct client_response response;
        expect_status(lists[i].method, lists[i].path, KEY, "", 0, 200, "small.attention");
        cr_assert(
            client_request(the_daemon.port, lists[i].method, lists[i].path, "", "", 0, &response));
        cr_expect_eq(response.status, 200);
        cr_expect_null(strstr(response.body, "small"), "%s", response.body);
        client_response_free(&response);
    }
}

/* The files that an index names belong to one model, also those that are no model alone. */
Test(write, leaves_the_files_of_an_index_alone) {
    static const char index[] = "big.safetensors.index.json", shard[] = "big-1-of-1.safetensors";
    static const char map[] = "{\"weight_map\":{\"W_Q\":\"big-1-of-1.safetensors\"}}";
    char path[256];
    size_t size;
    char *file = make_file(3, &size);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i == 0 ? index : shard);
        FILE *stream = fopen(path, "wb");
        cr_assert_not_null(stream);
        const size_t bytes = i == 0 ? sizeof map - 1 : size;
        cr_assert_eq(fwrite(i == 0 ? map : file, 1, bytes, stream), bytes);
        cr_assert_eq(fclose(stream), 0);
    }
    expect_status("DELETE", "/layers/big-1-of-1", KEY, "", 0, 422, "a part of another model");
    expect_status("PUT", "/layers/big-1-of-1", KEY, file, size, 422, "a part of another model");
    expect_status("GET", "/layers/big.attention", KEY, "", 0, 200, "\"d_out\":3");
    free(file);
}

static void start_with_a_full_disk(void) {
    start_writable();
    put_weights_file("/layers/small", 3, 201, "");
    cr_assert_eq(daemon_stop(), 0);
    signal(SIGXFSZ, SIG_IGN); /* the daemon inherits it */
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct rlimit little = {256, limit.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &little), 0);
    daemon_start((const char *const[]){"--layers", folder, "--layers-writable", "64KiB",
                                       "--api-key-file", keys, NULL});
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

Test(full_disk, keeps_the_old_file, .init = start_with_a_full_disk, .fini = end_writable,
     .timeout = 60) {
    put_weights_file("/layers/small", 5, 507, "cannot be written");
    expect_folder(3, 2);
}

Test(write_options, need_layers_and_keys, .timeout = 20) {
    char output[4096];
    cr_expect_eq(daemon_run("--layers-writable 1MiB", output, sizeof output), 2);
    cr_expect_not_null(strstr(output, "--layers-writable needs --layers, too"), "%s", output);
    cr_expect_eq(daemon_run("--layers-writable 1MiB --layers /tmp", output, sizeof output), 2);
    cr_expect_not_null(strstr(output, "--layers-writable needs --api-key-file, too"), "%s", output);
}
