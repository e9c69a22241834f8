/*
 * framing.h - checks whether the head of a request is sound. These are pure functions over a list
 * of headers, without a socket. libmicrohttpd 0.9.75 accepts most of what request smuggling is made
 * of (Content-Length beside Transfer-Encoding, names that end in a space, HTTP/1.9, folded lines,
 * ...); this filter refuses it. Version 1.x refuses some of it before the filter sees it, with a
 * page of its own. The filter does not know connections, paths that exist, or limits on bodies.
 */
#ifndef HTTP_FRAMING_H
#define HTTP_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FRAMING_MAX_HEADERS = 64,
    FRAMING_MAX_URI = 2048,
    FRAMING_MAX_ID = 128
};

/* The verdict on a raw (not percent-decoded) request target. */
enum framing_uri {
    FRAMING_URI_SOUND,
    FRAMING_URI_BAD,
    FRAMING_URI_LONG,
    FRAMING_URI_COUNT
};

/* A header. Names and values have a size, so that a NUL inside them is seen. */
struct framing_header {
    const char *name;
    size_t name_size;
    const char *value;
    size_t value_size;
};

/* The codings of bodies; coding.h says which are understood and which are made. Of two codings that
 * are equally welcome the later one is made. */
enum coding {
    CODING_NONE,    /* "identity" */
    CODING_DEFLATE, /* "deflate", which is the format of zlib */
    CODING_GZIP,    /* "gzip" or "x-gzip" */
    CODING_ZSTD,
    CODING_BROTLI, /* "br", which only assets have */
    CODING_UNKNOWN
};

struct framing_head {
    const char *method;
    const char *version;
    enum framing_uri uri;
    const struct framing_header *headers;
    size_t count; /* FRAMING_MAX_HEADERS + 1 stands for "more" */
    bool codings; /* a body may be compressed; otherwise a compressed one is refused */
    /* The raw target in the buffer into which the head was read, or NULL. If it is set, the method,
     * the version and all names and values point into the same buffer: the head is `size` bytes
     * long and begins with the method. The parser has put a NUL for each byte that ended one of
     * these parts. So whatever the parser passed over is still between them. */
    const char *target;
    size_t target_size, size;
};

struct framing_result {
    int status; /* 0: sound; otherwise the status to refuse the request with */
    bool close; /* afterwards, nobody can know where the next request on the connection begins */
    char detail[192];        /* the rule and the value that broke it */
    uint64_t content_length; /* 0 = no such header; UINT64_MAX if larger than that */
    enum coding coding;      /* the body has CODING_NONE, _DEFLATE, _GZIP or _ZSTD */
    bool expects_continue;
    /* The first header of each name, or NULL. */
    const struct framing_header *content_type;
    const struct framing_header *request_id;
    const struct framing_header *authorization;
    const struct framing_header *origin;
    const struct framing_header *accept;
    const struct framing_header *inference_header; /* Inference-Header-Content-Length */
    bool is_preflight; /* OPTIONS with an Access-Control-Request-Method */
};

/* Judges the request target as it was sent, with its query. */
enum framing_uri framing_check_uri(const char *raw);

/* Checks a head and fills the whole result, also if it refuses the request. */
void framing_check(const struct framing_head *head, struct framing_result *result);

/* Returns whether the header has this name, in upper or lower case. */
bool framing_is(const struct framing_header *header, const char *name);

/* Returns the coding of this name, in upper or lower case. */
enum coding framing_coding(const char *name, size_t size);

/* Writes the media type of a Content-Type header (NULL: none) in lower case and without its
 * parameters. A type that does not fit is cut off: it is none that the server knows. */
void framing_media_type(const struct framing_header *header, char *out, size_t size);

/* Returns whether the header (NULL: none) holds a request id that may be echoed, which is
 * 1..FRAMING_MAX_ID visible ASCII characters. */
bool framing_is_id(const struct framing_header *header);

#endif
