/*
 * coding.h - content codings (RFC 9110 section 8.4): which coding an answer gets, and the coding
 * and decoding of bodies. gzip and deflate are by zlib and zstd by libzstd; coding.c is the only
 * file that includes their headers. Memory is bounded: for the body of a request by the window of
 * its coding (32 KiB of gzip and deflate, 8 MiB of zstd), for an answer by less than 1 MiB. This
 * file does not know connections or limits on bodies.
 */
#ifndef HTTP_CODING_H
#define HTTP_CODING_H

#include <stdbool.h>
#include <stddef.h>

#include "http/framing.h"
#include "http/http.h"

/* The codings that a request may have: the Accept-Encoding header of a 415. */
#define CODING_NAMES "gzip, zstd, deflate"

/* Sets of codings that an answer may have: a coding c is in the set if bit 1 << c is set. */
enum {
    /* coding_compress makes these. */
    CODINGS_MADE = 1 << CODING_DEFLATE | 1 << CODING_GZIP | 1 << CODING_ZSTD,
    CODINGS_STORED = 1 << CODING_GZIP | 1 << CODING_BROTLI /* assets have these */
};

/* Returns the coding that these headers ask an answer to have (RFC 9110 section 12.5.3): one of the
 * set `codings`, or CODING_NONE. Among codings that are equally welcome it is the one that packs
 * best. *must becomes whether the client rules out the answer without a coding. A wish that cannot
 * be met counts as if it were not there. */
enum coding coding_choose(const struct framing_header *headers, size_t count, unsigned codings,
                          bool *must);

/* Compresses the body of the response. A streamed body stays streamed, and its size is not known
 * any more; its `read` may then write less than there is room for, but 0 bytes only at the end of
 * the body. Returns false if the body stays as it is, because there is no memory or the compressed
 * body would not be shorter; `must` allows it to be longer. */
bool coding_compress(struct http_response *response, enum coding coding, bool must);

/* Returns the most bytes of memory that a streamed body of this coding takes until its end. */
size_t coding_stream_memory(enum coding coding);

/* Returns "identity" (for CODING_NONE), "deflate", "gzip", "zstd" or "br". */
const char *coding_name(enum coding coding);

/* ------------------------------------------------------------------------- bodies of requests */

struct coding_reader;

/* Creates a reader for a body of this coding, which is gzip, zstd or deflate. Some clients leave
 * out the header and the checksum of deflate, so such a body is read, too. Returns owned; NULL if
 * memory runs out. */
struct coding_reader *coding_reader_create(enum coding coding);

/* NULL is fine. */
void coding_reader_free(struct coding_reader *reader);

/* Decodes the next *size bytes of the body and writes the result, at most `room` bytes. Returns how
 * many bytes were written. *size becomes the number of bytes that were not taken, which are the
 * last ones. If less than `room` is written, all bytes were taken and decoded. */
size_t coding_read(struct coding_reader *reader, const void *bytes, size_t *size, void *out,
                   size_t room);

/* Says that there are no more bytes. A body that ends too early then has a fault. */
void coding_end(struct coding_reader *reader);

/* Returns what is wrong with the body, as a status with a sentence, which lives as long as the
 * reader; 0 with an empty text if nothing is. */
int coding_fault(const struct coding_reader *reader, const char **text);

/* Returns how many bytes of memory the reader holds. */
size_t coding_memory(const struct coding_reader *reader);

#endif
