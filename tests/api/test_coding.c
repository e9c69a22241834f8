/*
 * test_coding.c - compressed bodies and answers over a socket. With --compression yes they mean the
 * same as plain ones; a bad body is refused and the connection stays. Without the option, no body
 * and no answer is compressed.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/binary.h"
#include "support/client.h"
#include "support/daemon.h"
#include "support/expect.h"
#include "support/json.h"
#include "support/pack.h"
#include "support/wait.h"

#define LENGTH "Inference-Header-Content-Length"

TestSuite(coding, .init = daemon_start_compressing, .fini = daemon_end, .timeout = 1200);
TestSuite(no_coding, .fini = daemon_end, .timeout = 1200);

/* Asks on the shared connection, and expects that the daemon does not close it. */
static struct client_response ask_and_keep(const char *method, const char *path,
                                           const char *headers, const void *body, size_t size) {
    struct client_response response = daemon_ask_shared(method, path, headers, body, size);
    expect_header(&response, path, "Connection", NULL);
    return response;
}

/* Returns the Vary header of answers: an Accept header chooses the format of those outside of the
 * Open Inference Protocol. */
static const char *vary_of(const char *path) {
    return strncmp(path, "/v2", 3) == 0 ? "Accept-Encoding" : "Accept, Accept-Encoding";
}

/* Asks for the answer in this coding, and checks that it inflates to the plain one. */
static void expect_coded(const char *path, const char *headers, const void *body, size_t size,
                         const char *coding, const struct client_response *plain) {
    char all[512], length[32] = "";
    size_t unpacked = 0;
    snprintf(all, sizeof all, "%sAccept-Encoding: %s\r\n", headers, coding);
    struct client_response response = ask_and_keep("POST", path, all, body, size);
    expect_header(&response, coding, "Content-Encoding", coding);
    expect_header(&response, coding, "Vary", vary_of(path));
    const bool binary = client_header(plain, LENGTH, length, sizeof length);
    expect_header(&response, coding, LENGTH, binary ? length : NULL);
    cr_expect_eq(response.status, plain->status);
    cr_expect_lt(response.size, plain->size);
    char *got = unpack(coding, response.body, response.size, &unpacked);
    cr_expect(got != NULL && unpacked == plain->size && memcmp(got, plain->body, unpacked) == 0,
              "%s: %zu bytes", coding, unpacked);
    free(got);
    client_response_free(&response);
}

/* Sends the body with these headers, plain and in each coding, and asks for the answer plain and in
 * each coding. All answers must be the same. */
static void expect_same(const char *path, const char *headers, const char *body, size_t size) {
    static const char *const names[] = {"gzip", "zstd", "deflate", "x-gzip"};
    struct client_response plain = ask_and_keep("POST", path, headers, body, size);
    cr_expect_eq(plain.status, 200, "%s", plain.body);
    expect_header(&plain, path, "Content-Encoding", NULL);
    expect_header(&plain, path, "Vary", vary_of(path));
    for (size_t i = 0; i < COUNT(names); i++) {
        char all[320];
        size_t packed_size;
        char *packed = pack(names[i] + (i == 3 ? 2 : 0), body, size, &packed_size);
        snprintf(all, sizeof all, "%sContent-Encoding: %s\r\n", headers, names[i]);
        struct client_response response = ask_and_keep("POST", path, all, packed, packed_size);
        cr_expect(response.status == 200 && response.size == plain.size &&
                      memcmp(response.body, plain.body, plain.size) == 0,
                  "%s: %d %.200s", names[i], response.status, response.body);
        client_response_free(&response);
        for (size_t k = 0; k < 3; k++) {
            expect_coded(path, all, packed, packed_size, names[k], &plain);
        }
        free(packed);
    }
    for (size_t k = 0; k < 3; k++) {
        expect_coded(path, headers, body, size, names[k], &plain);
    }
    client_response_free(&plain);
}

Test(coding, a_notebook) {
    size_t size;
    char *body = json_read_file(TESTS_DIR "/notebooks/000-attention-stages.request.json", &size);
    cr_assert_not_null(body);
    expect_same("/attention", "", body, size);
    free(body);
}

/* Binary tensors in both directions. The first answer is one block, and the second is sent in
 * parts. The length of the JSON before tensors counts the bytes before they are compressed. */
Test(coding, binary_tensors) {
    const struct binary_call calls[] = {binary_rich, binary_long};
    for (size_t i = 0; i < COUNT(calls); i++) {
        const struct binary_call *call = &calls[i];
        char options[2048], headers[128];
        size_t header, size;
        const struct binary_call binary = binary_with(call, "\"binary_data_output\":true", options);
        char *body = binary_inference(&binary, "FP32", ~0u, "", &header, &size);
        snprintf(headers, sizeof headers, LENGTH ": %zu\r\n", header);
        expect_same("/v2/models/attention/infer", headers, body, size);
        free(body);
        body = binary_safetensors(call, "F32", &size);
        expect_same("/attention", "Content-Type: application/vnd.safetensors\r\n", body, size);
        free(body);
    }
}

/* One answer has 300 KB. The other has 10 MB and comes in chunks. */
Test(coding, long_answers) {
    for (size_t rows = 150; rows <= 900; rows += 750) {
        size_t size;
        char *body = json_rows("\"return\":[\"weights\"]", rows, &size);
        expect_same("/attention", "", body, size);
        free(body);
    }
}

/* A mask of ones, which a correct client may send, is compressed so well that the daemon takes
 * many turns to inflate it. It must not be refused as an attack. */
Test(coding, a_body_of_ones_is_none_to_be_refused) {
    enum {
        ROWS = 1400
    };
    static char body[ROWS * ROWS * 2 + ROWS * 8 + 100];
    size_t size = (size_t)sprintf(body, "{\"return\":[\"output\"],\"X\":[[1]");
    for (size_t i = 1; i < ROWS; i++) {
        size += (size_t)sprintf(body + size, ",[1]");
    }
    size += (size_t)sprintf(body + size, "],\"mask\":[");
    for (size_t i = 0; i < ROWS; i++) {
        body[size++] = i > 0 ? ',' : ' ';
        for (size_t k = 0; k < ROWS; k++) {
            body[size++] = k > 0 ? ',' : '[';
            body[size++] = '1';
        }
        body[size++] = ']';
    }
    size += (size_t)sprintf(body + size, "]}");
    expect_same("/attention", "", body, size);
}

/* Each chunk has one byte. */
Test(coding, chunked_bodies) {
    static const char text[] = "{\"X\":[[1,2],[3,4]]}";
    static const char *const names[] = {"gzip", "zstd", "deflate"};
    for (size_t i = 0; i < COUNT(names); i++) {
        char header[64];
        size_t size;
        char *packed = pack(names[i], text, sizeof text - 1, &size);
        snprintf(header, sizeof header, "Content-Encoding: %s\r\n", names[i]);
        struct client_response response = daemon_ask_in_chunks("/softmax", header, packed, size, 1);
        cr_expect_eq(response.status, 200, "%s", response.body);
        client_response_free(&response);
        free(packed);
    }
}

/* ------------------------------------------------------------------------------ what is refused */

static void expect_coding_refused(const char *coding, const void *body, size_t size, int status,
                                  const char *detail) {
    char header[128];
    snprintf(header, sizeof header, "Content-Encoding: %s\r\n", coding);
    struct client_response response = ask_and_keep("POST", "/softmax", header, body, size);
    cr_expect_eq(response.status, status, "%s: %d %s", coding, response.status, response.body);
    cr_expect_not_null(strstr(response.body, detail), "%s", response.body);
    expect_header(&response, coding, "Accept-Encoding",
                  status == 415 ? "gzip, zstd, deflate" : NULL);
    client_response_free(&response);
}

Test(coding, streams_that_are_none) {
    static const char text[] = "{\"X\":[[1,2],[3,4]]}";
    static const char *const names[] = {"gzip", "zstd", "deflate"};
    for (size_t i = 0; i < COUNT(names); i++) {
        size_t size;
        char *packed = pack(names[i], text, sizeof text - 1, &size), twice[256];
        cr_assert_lt(2 * size, sizeof twice);
        memcpy(twice, packed, size);
        memcpy(twice + size, packed, size);
        /* The first byte of an object could be that of a bare deflate stream. */
        expect_coding_refused(names[i], text, sizeof text - 1, 400,
                              i < 2 ? "is not valid " : "ends before the end of its ");
        expect_coding_refused(names[i], "null", 4, 400, "is not valid ");
        expect_coding_refused(names[i], "", 0, 400, "ends before the end of its ");
        expect_coding_refused(names[i], packed, size - 1, 400, "ends before the end of its ");
        expect_coding_refused(names[i], twice, size + 1, 400, "goes on after the end of its ");
        expect_coding_refused(names[i], twice, 2 * size, 400, "goes on after the end of its ");
        twice[size - 3] = (char)(twice[size - 3] ^ 1); /* a byte of the checksum or of the length */
        expect_coding_refused(names[i], twice, size, 400, "is not valid ");
        free(packed);
    }
}

/* The offset counts bytes of the inflated body. */
Test(coding, bad_json_is_found_where_it_is) {
    static const char text[] = "{\"X\":[[1,2],[3,]]}";
    size_t size;
    char *packed = pack("zstd", text, sizeof text - 1, &size);
    expect_coding_refused("zstd", packed, size, 400, "\"offset\":15");
    free(packed);
}

/* The bodies inflate to about 1 MiB. The daemon makes a pause while zstd's decoder still holds the
 * last block, which must arrive, too. */
Test(coding, what_is_left_in_the_decoder_comes_too) {
    for (size_t blocks = 9; blocks < 23; blocks++) {
        char offset[64];
        size_t size;
        char *packed = pack_repeated("zstd", ' ', blocks, &size);
        snprintf(offset, sizeof offset, "\"offset\":%zu,", blocks * 100000);
        expect_coding_refused("zstd", packed, size, 400, offset);
        free(packed);
    }
}

/* 10 GB, which gzip and deflate compress to 14 MB and zstd to 300 KB. White space may be JSON, so
 * it is inflated up to the limit. Zero bytes are no JSON, so they are refused at once. */
Test(coding, bombs) {
    static const char *const names[] = {"gzip", "zstd", "deflate"};
    for (size_t i = 0; i < COUNT(names); i++) {
        size_t size;
        char *packed = pack_repeated(names[i], ' ', 100000, &size);
        expect_coding_refused(names[i], packed, size, 413,
                              "decompressed; this server takes at most 67108864, a limit that its "
                              "operator sets with --max-body");
        free(packed);
        packed = pack_repeated(names[i], '\0', 100000, &size);
        expect_coding_refused(names[i], packed, size, 400, "\"offset\":0");
        free(packed);
    }
}

/* The memory of a decoder counts as memory of the request. */
Test(no_coding, a_window_counts) {
    static const char text[] = "{\"X\":[[1,2],[3,4]]}";
    size_t size;
    char *packed = pack_window(13 << 3, text, sizeof text - 1, &size);
    daemon_start_with(
        (const char *const[]){"--compression", "yes", "--total-memory", "4MiB", NULL});
    for (int i = 0; i < 3; i++) { /* the memory is given back each time */
        struct client_response response =
            ask_and_keep("POST", "/softmax", "Content-Encoding: zstd\r\n", packed, size);
        /* A 413 and not a 503, because the window is larger than all memory. */
        cr_expect_eq(response.status, 413, "%s", response.body);
        client_response_free(&response);
        char *small = pack_window(8 << 3, text, sizeof text - 1, &size);
        response = ask_and_keep("POST", "/softmax", "Content-Encoding: zstd\r\n", small, size);
        cr_expect_eq(response.status, 200, "%s", response.body);
        client_response_free(&response);
        free(small);
    }
    free(packed);
}

/* ------------------------------------------------------------------------------------- the rest */

/* The answer has 3.2 MB of weights. Compressing it takes up to 1 MiB more. Each worker counts its
 * scratch memory, so their number is fixed. */
Test(no_coding, a_long_answer_without_memory_for_its_coding_is_plain) {
    char value[16];
    size_t size;
    char *body = json_rows("\"return\":[\"weights\"]", 900, &size);
    for (int enough = 0; enough < 2; enough++) {
        daemon_start_with((const char *const[]){"--compression", "yes", "--workers", "2",
                                                "--total-memory", enough ? "6MiB" : "5MiB", NULL});
        for (int i = 0; i < 3; i++) { /* the memory is given back each time */
            struct client_response response =
                ask_and_keep("POST", "/attention", "Accept-Encoding: zstd\r\n", body, size);
            cr_expect_eq(response.status, 200, "%s", response.body);
            cr_expect_eq(client_header(&response, "Content-Encoding", value, sizeof value), enough);
            client_response_free(&response);
        }
        if (!enough) {
            daemon_end();
        }
    }
    free(body);
}

static double bytes_counted(void) {
    struct client_response response = ask_and_keep("GET", "/metrics", "", "", 0);
    const double number = daemon_metric_on(response.body, "attentiond_request_bytes_total");
    cr_assert(!isnan(number));
    client_response_free(&response);
    return number;
}

/* The metric counts the bytes as they were sent, not inflated. Counters may be late. */
Test(coding, metrics) {
    size_t packed_size;
    char *packed = pack_repeated("zstd", ' ', 300, &packed_size); /* takes many turns to inflate */
    const double before = bytes_counted();
    struct client_response response =
        ask_and_keep("POST", "/attention", "Content-Encoding: zstd\r\n", packed, packed_size);
    cr_expect_eq(response.status, 400);
    double after;
    WAIT_UNTIL((after = bytes_counted()) > before);
    cr_expect_float_eq(after - before, (double)packed_size, 0.5);
    client_response_free(&response);
    free(packed);
}
