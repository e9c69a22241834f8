/*
 * test_http_coding.c tests what Accept-Encoding asks for, bodies that are compressed and read in
 * pieces of every size, and compressed bodies with every byte wrong or missing.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/coding.h"
#include "support/count.h"
#include "support/pack.h"
#include "support/rng.h"
#include "support/scale.h"

TestSuite(http_coding, .timeout = 60);

static const enum coding codings[] = {CODING_GZIP, CODING_ZSTD, CODING_DEFLATE};

/* ----------------------------------------------------------------------------- Accept-Encoding */

/* The values of one or two Accept-Encoding headers, the coding that they ask for, and whether they
 * rule out an answer without a coding. */
static const struct {
    const char *values[2];
    enum coding coding;
    bool must;
} wishes[] = {
    {{NULL}, CODING_NONE, false},
    {{""}, CODING_NONE, false},
    {{"gzip"}, CODING_GZIP, false},
    {{"GZip"}, CODING_GZIP, false},
    {{"x-gzip"}, CODING_GZIP, false},
    {{"zstd"}, CODING_ZSTD, false},
    {{"identity"}, CODING_NONE, false},
    {{"br"}, CODING_NONE, false},
    {{"deflate, br"}, CODING_DEFLATE, false},
    {{"Deflate"}, CODING_DEFLATE, false},
    {{"gzip, deflate"}, CODING_GZIP, false},
    {{"deflate, gzip"}, CODING_GZIP, false},
    {{"gzip;q=0.9, deflate"}, CODING_DEFLATE, false},
    {{"zstd;q=0.1", "deflate;q=0.2"}, CODING_DEFLATE, false},
    {{"deflate;q=0"}, CODING_NONE, false},
    {{"x-deflate, zlib"}, CODING_NONE, false},
    {{"gzip, deflate, br, zstd"}, CODING_ZSTD, false},
    {{"gzip", "zstd"}, CODING_ZSTD, false},
    {{"br", "gzip"}, CODING_GZIP, false},
    {{"gzip;q=1, zstd;q=0.9"}, CODING_GZIP, false},
    {{"gzip;q=0.5,zstd;q=0.5"}, CODING_ZSTD, false},
    {{"gzip;q=0"}, CODING_NONE, false},
    {{"gzip;q=0.0, zstd;q=0.000"}, CODING_NONE, false},
    {{"gzip;q=0.001"}, CODING_GZIP, false},
    {{"gzip;q=1.000"}, CODING_GZIP, false},
    {{"gzip ; Q=0.5\t,\tzstd\t; q=0.25 "}, CODING_GZIP, false},
    {{",, gzip ,,"}, CODING_GZIP, false},
    /* "*" stands for every coding that is not named. */
    {{"*"}, CODING_ZSTD, false},
    {{"*;q=0"}, CODING_NONE, false},
    {{"zstd;q=0, *"}, CODING_GZIP, false},
    {{"gzip;q=0.5, *;q=0.1"}, CODING_GZIP, false},
    {{"gzip, *;q=0"}, CODING_GZIP, true},
    {{"gzip;q=0, zstd;q=0, *"}, CODING_DEFLATE, false},
    {{"gzip;q=0, zstd;q=0, deflate;q=0, *"}, CODING_NONE, false},
    {{"deflate, *;q=0"}, CODING_DEFLATE, true},
    /* No coding is a choice if it is named; otherwise it is the last choice. */
    {{"identity, gzip;q=0.5"}, CODING_NONE, false},
    {{"identity;q=0.5, gzip;q=0.5"}, CODING_GZIP, false},
    {{"identity;q=0.5, gzip"}, CODING_GZIP, false},
    {{"identity;q=0, gzip"}, CODING_GZIP, true},
    {{"gzip", "identity;q=0"}, CODING_GZIP, true},
    {{"identity;q=0, *"}, CODING_ZSTD, true},
    {{"identity;q=0.1, *;q=0"}, CODING_NONE, false},
    /* These wishes cannot be met, so they count as if they were not there. */
    {{"identity;q=0"}, CODING_NONE, false},
    {{"br, identity;q=0"}, CODING_NONE, false},
    /* These entries are malformed, so they count as if they were not there. */
    {{"gzip;q=2"}, CODING_NONE, false},
    {{"gzip;q=1.001"}, CODING_NONE, false},
    {{"gzip;q=0.1234"}, CODING_NONE, false},
    {{"gzip;q=-1"}, CODING_NONE, false},
    {{"gzip;q="}, CODING_NONE, false},
    {{"gzip;q"}, CODING_NONE, false},
    {{"gzip;"}, CODING_NONE, false},
    {{"gzip;level=1"}, CODING_NONE, false},
    {{"gzip zstd"}, CODING_NONE, false},
    {{"gzip;q=0.5;q=1, zstd;q=0.1"}, CODING_ZSTD, false},
    {{"gzipp, xzstd, **"}, CODING_NONE, false},
};

Test(http_coding, accept_encoding) {
    for (size_t i = 0; i < COUNT(wishes); i++) {
        struct framing_header headers[] = {{"Host", 4, "zstd", 4}, {0}, {0}};
        size_t count = 1;
        bool must = true;
        for (size_t k = 0; k < 2 && wishes[i].values[k] != NULL; k++) {
            const char *value = wishes[i].values[k];
            headers[count++] = (struct framing_header){"accept-encoding", 15, value, strlen(value)};
        }
        const enum coding coding = coding_choose(headers, count, CODINGS_MADE, &must);
        cr_expect(coding == wishes[i].coding && must == wishes[i].must, "\"%s\": %s, must %d",
                  wishes[i].values[0] != NULL ? wishes[i].values[0] : "none", coding_name(coding),
                  must);
    }
}

/* --------------------------------------------------------------------------------------- bodies */

/* Returns a text of random digits with a comma at every third place, so that it can be
 * compressed. */
static char *make_digits(size_t size) {
    struct rng rng = {7};
    char *text = malloc(size + 1);
    cr_assert_not_null(text);
    for (size_t i = 0; i < size; i++) {
        text[i] = (char)(i % 3 == 0 ? ',' : '0' + rng_between(&rng, 0, 9));
    }
    text[size] = '\0';
    return text;
}

static size_t freed;

static void count_freed(void *body) {
    freed++;
    free(body);
}

struct streamed {
    const char *text;
    size_t at, size;
    bool breaks;
};

static bool read_streamed(void *body_, char *out, size_t room, size_t *size) {
    struct streamed *body = body_;
    *size = body->size - body->at < room ? body->size - body->at : room;
    memcpy(out, body->text + body->at, *size);
    body->at += *size;
    return !body->breaks;
}

static void expect_unpacks(enum coding coding, const void *bytes, size_t size, const char *text,
                           size_t text_size, const char *what) {
    size_t unpacked = 0;
    char *got = unpack(coding_name(coding), bytes, size, &unpacked);
    cr_expect(got != NULL && unpacked == text_size && memcmp(got, text, text_size) == 0,
              "%s, %s of %zu bytes: %zu", what, coding_name(coding), text_size, unpacked);
    free(got);
}

Test(http_coding, whole_bodies) {
    for (size_t i = 0; i < COUNT(codings); i++) {
        for (size_t size = 1024; size < 2000000; size = size * 3 + 1) {
            char *text = make_digits(size);
            struct http_response response = {.body = strdup(text), .size = size};
            response.release = count_freed;
            freed = 0;
            cr_assert(coding_compress(&response, codings[i], false));
            cr_expect_eq(freed, 1);
            cr_expect_lt(response.size, size);
            expect_unpacks(codings[i], response.body, response.size, text, size, "whole");
            response.release((void *)(uintptr_t)response.body);
            free(text);
        }
    }
}

Test(http_coding, what_is_small_or_does_not_shrink_stays_unless_it_must) {
    struct rng rng = {3};
    static char noise[100000];
    for (size_t i = 0; i < sizeof noise; i++) {
        noise[i] = (char)rng_between(&rng, 0, 255);
    }
    static const size_t sizes[] = {1, 2, 100, 1023, sizeof noise};
    for (size_t i = 0; i < COUNT(codings); i++) {
        for (size_t k = 0; k < COUNT(sizes); k++) {
            struct http_response response = {.body = noise, .size = sizes[k]};
            cr_expect_not(coding_compress(&response, codings[i], false));
            cr_expect(response.body == noise && response.size == sizes[k]);
            cr_assert(coding_compress(&response, codings[i], true), "%zu bytes", sizes[k]);
            expect_unpacks(codings[i], response.body, response.size, noise, sizes[k], "must");
            response.release((void *)(uintptr_t)response.body);
        }
        struct http_response empty = {.status = 204};
        cr_expect_not(coding_compress(&empty, codings[i], true));
    }
}

/* Reads a streamed body, `room` bytes at a time. Each piece goes into a block of its own, so a
 * sanitizer sees every write beyond it. Returns owned. */
static char *read_stream(struct http_response *response, size_t room, size_t *size) {
    char *out = NULL, *piece = malloc(room);
    FILE *all = open_memstream(&out, size);
    size_t part;
    cr_assert(piece != NULL && all != NULL);
    do {
        cr_assert(response->read((void *)(uintptr_t)response->body, piece, room, &part));
        cr_assert_leq(part, room);
        cr_assert_eq(fwrite(piece, 1, part, all), part);
    } while (part > 0);
    cr_assert_eq(fclose(all), 0);
    free(piece);
    return out;
}

static void try_stream(enum coding coding, const char *text, size_t size, size_t room) {
    struct streamed *body = malloc(sizeof *body);
    *body = (struct streamed){text, 0, size, false};
    struct http_response response = {.body = body, .read = read_streamed, .release = count_freed};
    cr_assert(coding_compress(&response, coding, false));
    size_t packed_size;
    char *packed = read_stream(&response, room, &packed_size);
    freed = 0;
    response.release((void *)(uintptr_t)response.body);
    cr_expect_eq(freed, 1);
    expect_unpacks(coding, packed, packed_size, text, size, "streamed");
    free(packed);
}

/* Among these are rooms that end within the bytes that a flush writes, and texts of zeros, of which
 * compression leaves nearly nothing. */
Test(http_coding, streamed_bodies) {
    static const size_t sizes[] = {0, 1, 32767, 32768, 32769, 300000, 3000000};
    static const size_t rooms[] = {1, 2, 3, 7, 100, 4096, 32768, 1 << 20};
    static char zeros[3000000];
    /* Slow runs take only the small sizes. */
    const size_t count = COUNT(sizes) - (test_scale(100) < 100 ? 2 : 0);
    memset(zeros, '0', sizeof zeros);
    for (size_t i = 0; i < COUNT(codings); i++) {
        for (size_t k = 0; k < count; k++) {
            char *text = make_digits(sizes[k]);
            for (size_t r = sizes[k] > 100000 ? 3 : 0; r < COUNT(rooms); r++) {
                try_stream(codings[i], text, sizes[k], rooms[r]);
                try_stream(codings[i], zeros, sizes[k], rooms[r]);
            }
            free(text);
        }
    }
}

/* A stream whose size is known is compressed from 1024 bytes on, or if the client takes no other
 * form. */
Test(http_coding, streams_of_a_known_size) {
    static char text[1024];
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < COUNT(codings); i++) {
        for (size_t size = sizeof text - 1; size <= sizeof text; size++) {
            for (int must = 0; must < 2; must++) {
                struct streamed *body = malloc(sizeof *body);
                *body = (struct streamed){text, 0, size, false};
                struct http_response response = {
                    .body = body, .size = size, .read = read_streamed, .release = count_freed};
                cr_expect_eq(coding_compress(&response, codings[i], must != 0),
                             size == sizeof text || must != 0, "%zu bytes, %d", size, must);
                response.release((void *)(uintptr_t)response.body);
            }
        }
    }
}

Test(http_coding, a_stream_that_breaks_off_does_so_compressed) {
    for (size_t i = 0; i < COUNT(codings); i++) {
        struct streamed *body = malloc(sizeof *body);
        *body = (struct streamed){"text", 0, 4, true};
        struct http_response response = {
            .body = body, .read = read_streamed, .release = count_freed};
        char out[64];
        size_t size;
        cr_assert(coding_compress(&response, codings[i], false));
        cr_expect_not(response.read((void *)(uintptr_t)response.body, out, sizeof out, &size));
        response.release((void *)(uintptr_t)response.body);
    }
}

/* -------------------------------------------------------------------- reading compressed bodies */

struct result {
    int status; /* 0: sound */
    size_t size;
    char *bytes; /* the inflated body: `limit` + `room` bytes at most */
    char fault[192];
};

/* Inflates a body as the server does: in pieces of `step` bytes, and at most `room` bytes at a
 * time, until more than `limit` bytes are there. */
static struct result inflate_all(enum coding coding, const char *bytes, size_t size, size_t step,
                                 size_t room, size_t limit) {
    struct coding_reader *reader = coding_reader_create(coding);
    struct result result = {.bytes = malloc(limit + room)};
    const char *text = "";
    cr_assert(reader != NULL && result.bytes != NULL);
    for (size_t at = 0; at < size && result.size <= limit && result.status == 0;) {
        size_t left = step < size - at ? step : size - at, part;
        const size_t piece = left;
        do {
            part = coding_read(reader, bytes + at + piece - left, &left, result.bytes + result.size,
                               room);
            result.size += part;
            result.status = coding_fault(reader, &text);
        } while (part == room && result.size <= limit);
        cr_expect(left == 0 || result.size > limit, "%zu bytes were not taken", left);
        at += piece;
    }
    if (result.size <= limit) {
        coding_end(reader);
        result.status = coding_fault(reader, &text);
    }
    snprintf(result.fault, sizeof result.fault, "%s", text);
    cr_expect_eq(result.status == 0, result.fault[0] == '\0', "%d \"%s\"", result.status,
                 result.fault);
    cr_expect_lt(coding_memory(reader), (size_t)9 << 20);
    coding_reader_free(reader);
    return result;
}

static bool is_text(const struct result *result, const char *text, size_t size) {
    return result->status == 0 && result->size == size && memcmp(result->bytes, text, size) == 0;
}

Test(http_coding, pieces_of_every_size) {
    enum {
        SIZE = 600
    };
    char *text = make_digits(SIZE);
    for (size_t i = 0; i < COUNT(codings); i++) {
        size_t size;
        char *packed = pack(coding_name(codings[i]), text, SIZE, &size);
        for (size_t step = 1; step <= size; step++) {
            for (size_t room = 1; room <= SIZE + 1; room += room < 8 ? 1 : 37) {
                struct result result = inflate_all(codings[i], packed, size, step, room, SIZE);
                cr_expect(is_text(&result, text, SIZE), "%s in %zu, %zu: %d",
                          coding_name(codings[i]), step, room, result.status);
                free(result.bytes);
            }
        }
        free(packed);
    }
    free(text);
}

/* A wrong byte does not matter, or it gives a 400 or a 413, because all codings have a
 * checksum. */
Test(http_coding, every_byte_wrong_or_missing) {
    enum {
        SIZE = 500
    };
    char *text = make_digits(SIZE);
    size_t refused = 0;
    for (size_t i = 0; i < COUNT(codings); i++) {
        size_t size;
        char *packed = pack(coding_name(codings[i]), text, SIZE, &size);
        for (size_t at = 0; at < size; at++) {
            for (unsigned flip = 1; flip < 256; flip = flip < 128 ? flip * 2 : flip + 127) {
                packed[at] = (char)((unsigned char)packed[at] ^ flip);
                struct result result = inflate_all(codings[i], packed, size, 100, 64, 1 << 20);
                cr_expect(
                    is_text(&result, text, SIZE) || result.status == 400 || result.status == 413,
                    "%s, byte %zu ^ %u: %d", coding_name(codings[i]), at, flip, result.status);
                refused += result.status == 400;
                free(result.bytes);
                packed[at] = (char)((unsigned char)packed[at] ^ flip);
            }
            struct result result = inflate_all(codings[i], packed, at, 100, 64, 1 << 20);
            cr_expect_eq(result.status, 400, "%s of %zu bytes", coding_name(codings[i]), at);
            free(result.bytes);
        }
        free(packed);
    }
    cr_expect_gt(refused, 1000);
    free(text);
}

Test(http_coding, nothing_may_follow) {
    static const char text[] = "{\"X\":[[1,2]]}";
    for (size_t i = 0; i < COUNT(codings); i++) {
        size_t size;
        char *packed = pack(coding_name(codings[i]), text, sizeof text - 1, &size);
        char *twice = malloc(2 * size);
        memcpy(twice, packed, size);
        memcpy(twice + size, packed, size); /* a second member of gzip or frame of zstd */
        for (size_t more = 0; more <= size; more++) {
            for (size_t step = 1; step < size + more + 2; step = step * 2 + 1) {
                struct result result =
                    inflate_all(codings[i], twice, size + more, step, 1000, 1000);
                cr_expect_eq(result.status, more == 0 ? 0 : 400, "%zu more bytes in %zu", more,
                             step);
                free(result.bytes);
            }
        }
        free(twice);
        free(packed);
    }
}

Test(http_coding, a_window_has_8_mib_at_most) {
    static const struct {
        unsigned char window;
        int status;
    } windows[] = {{0, 0}, {13 << 3, 0}, {(13 << 3) + 1, 413}, {14 << 3, 413}, {0xff, 413}};
    for (size_t i = 0; i < COUNT(windows); i++) {
        size_t size;
        char *packed = pack_window(windows[i].window, "text", 4, &size);
        struct result result = inflate_all(CODING_ZSTD, packed, size, 1000, 1000, 1000);
        cr_expect_eq(result.status, windows[i].status, "%02x: %d", windows[i].window,
                     result.status);
        cr_expect(result.status == 0 || strstr(result.fault, "larger than 8 MiB") != NULL, "%s",
                  result.fault);
        free(result.bytes);
        free(packed);
    }
}

/* Some clients send deflate without the header and the checksum of zlib. */
Test(http_coding, deflate_may_be_bare) {
    enum {
        SIZE = 600
    };
    size_t size, zeros_size;
    char *text = make_digits(SIZE), *packed = pack("bare deflate", text, SIZE, &size);
    char *zeros = pack_repeated("bare deflate", 0, 100000, &zeros_size);
    for (size_t step = 1; step <= size; step++) {
        for (size_t room = 1; room <= SIZE + 1; room += room < 8 ? 1 : 37) {
            struct result result = inflate_all(CODING_DEFLATE, packed, size, step, room, SIZE);
            cr_expect(is_text(&result, text, SIZE), "%zu, %zu: %d", step, room, result.status);
            free(result.bytes);
        }
        struct result result = inflate_all(CODING_DEFLATE, packed, size - step, 7, 64, SIZE);
        cr_expect_eq(result.status, 400, "%zu bytes are missing", step);
        free(result.bytes);
    }
    packed = realloc(packed, size + 1);
    packed[size] = '\0';
    struct result more = inflate_all(CODING_DEFLATE, packed, size + 1, 7, 64, SIZE);
    cr_expect_eq(more.status, 400, "a byte more");
    struct result bomb = inflate_all(CODING_DEFLATE, zeros, zeros_size, 32768, 32768, 1 << 20);
    cr_expect(bomb.status == 0 && bomb.size > 1 << 20 && bomb.size <= (1 << 20) + 32768);
    free(more.bytes);
    free(bomb.bytes);
    free(zeros);
    free(packed);
    free(text);
}

/* A body that begins as zlib does is not bare: all of its header must be right. */
Test(http_coding, deflate_with_a_wrong_header) {
    static const struct {
        const char *what;
        unsigned char bytes[2];
    } headers[] = {
        {"no multiple of 31", {0x78, 0x9d}},
        {"a dictionary", {0x78, 0xbb}},
        {"a window of 64 KiB", {0x88, 0x1c}},
        {"gzip", {0x1f, 0x8b}},
    };
    for (size_t i = 0; i < COUNT(headers); i++) {
        size_t size;
        char *packed = pack("deflate", "[1,2]", 5, &size);
        memcpy(packed, headers[i].bytes, 2);
        for (size_t step = 1; step <= size; step++) {
            struct result result = inflate_all(CODING_DEFLATE, packed, size, step, 64, 64);
            cr_expect_eq(result.status, 400, "%s: %d", headers[i].what, result.status);
            free(result.bytes);
        }
        free(packed);
    }
}
