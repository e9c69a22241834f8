/*
 * coding.h - content codings (RFC 9110 section 8.4): which one a request has and an answer gets,
 * and the bytes themselves. gzip by zlib, zstd by libzstd; coding.c is the only file that includes
 * their headers. Memory is bounded: a request's coding by its window (32 KiB of gzip, 8 MiB of
 * zstd), an answer's by less than 1 MiB. Knows nothing of connections and of limits on bodies.
 */
#ifndef HTTP_CODING_H
#define HTTP_CODING_H

#include <stdbool.h>
#include <stddef.h>

#include "http/framing.h"
#include "http/http.h"

/* What a 415 says in Accept-Encoding. */
#define CODING_NAMES "gzip, zstd"

/* Sets of codings that an answer may have. */
enum {
    CODINGS_MADE = 1 << CODING_GZIP | 1 << CODING_ZSTD,    /* by coding_compress */
    CODINGS_STORED = 1 << CODING_GZIP | 1 << CODING_BROTLI /* of assets */
};

/* The coding, one of this set or none, that these headers ask an answer to have (RFC 9110 section
 * 12.5.3); of those that are equally welcome the one that packs best. `*must`: the same answer
 * without a coding is ruled out. What cannot be met counts as not said. */
enum coding coding_choose(const struct framing_header *headers, size_t count, unsigned codings,
                          bool *must);

/* Gives the body of the response this coding. False: it keeps what it has, because that is not
 * longer or there is no memory. A streamed body stays streamed; its `read` then may write less than
 * there is room for, but 0 bytes only at its end. */
bool coding_compress(struct http_response *response, enum coding coding, bool must);

/* Bytes of memory that a streamed body of this coding takes until its end, at most. */
size_t coding_stream_memory(enum coding coding);

/* "gzip", "zstd", "br"; of CODING_NONE "identity". */
const char *coding_name(enum coding coding);

/* ------------------------------------------------------------------------- bodies of requests */

struct coding_reader;

/* NULL if there is no memory. `coding` is not CODING_NONE. */
struct coding_reader *coding_reader_create(enum coding coding);

/* NULL is fine. */
void coding_reader_free(struct coding_reader *reader);

/* The next bytes of the body as it is meant, at most `room`, from the next *size bytes as they were
 * sent, of which those left over are the last: *size becomes their number. Less than `room` means
 * that all were taken and there is no more in them. */
size_t coding_read(struct coding_reader *reader, const void *bytes, size_t *size, void *out,
                   size_t room);

/* All bytes were given: a body that ends early becomes a fault. */
void coding_end(struct coding_reader *reader);

/* What is wrong: a status and a sentence for it in text[0..size); 0 if nothing is. */
int coding_fault(const struct coding_reader *reader, char *text, size_t size);

/* Bytes of memory that it holds. */
size_t coding_memory(const struct coding_reader *reader);

#endif
