/*
 * framing.h - is the head of this request sound? Pure functions over a list of headers, no socket.
 * libmicrohttpd 0.9.75 accepts most of what request smuggling is made of (Content-Length beside
 * Transfer-Encoding, names that end in a space, HTTP/1.9, folded lines, ...); this filter refuses
 * it. 1.x refuses part of it before it comes here, with a page of its own.
 * It knows nothing of connections, paths that exist, or limits on bodies.
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

/* Names and values are counted bytes, so that a NUL inside is seen. */
struct framing_header {
    const char *name;
    size_t name_size;
    const char *value;
    size_t value_size;
};

/* The codings of bodies that are known here, see coding.h. */
enum coding {
    CODING_NONE, /* "identity" */
    CODING_GZIP, /* and "x-gzip" */
    CODING_ZSTD,
    CODING_BROTLI, /* of assets only */
    CODING_UNKNOWN
};

struct framing_head {
    const char *method;
    const char *version;
    enum framing_uri uri;
    const struct framing_header *headers;
    size_t count; /* FRAMING_MAX_HEADERS + 1 stands for "more" */
    bool codings; /* a body may have one; else that is a refusal */
    /* Where the head was read, or NULL. Then the method, the version and all names and values point
     * into the same `size` bytes from the method on, as they came, and a NUL stands for each byte
     * that ended one of them: what the parser passed over is still between them. */
    const char *target;
    size_t target_size, size;
};

struct framing_result {
    int status;       /* 0: sound; otherwise the status to refuse the request with */
    bool close;       /* the connection cannot be trusted to be at a request boundary afterwards */
    char detail[192]; /* the rule and the value that broke it */
    uint64_t content_length; /* 0 without one; UINT64_MAX if it is larger than that */
    enum coding coding;      /* of the body: none, gzip or zstd */
    bool expects_continue;
    const struct framing_header *content_type; /* the first one, or NULL; likewise below */
    const struct framing_header *request_id;
    const struct framing_header *authorization;
    const struct framing_header *origin;
    bool is_preflight; /* OPTIONS with an Access-Control-Request-Method */
};

/* `raw` is the request target as it was sent, with its query. */
enum framing_uri framing_check_uri(const char *raw);

void framing_check(const struct framing_head *head, struct framing_result *result);

/* Is this its name? */
bool framing_is(const struct framing_header *header, const char *name);

enum coding framing_coding(const char *name, size_t size);

/* Writes the media type of a Content-Type header (NULL: none) in lower case and without its
 * parameters. One that does not fit is cut: it is none that anybody serves. */
void framing_media_type(const struct framing_header *header, char *out, size_t size);

/* A request id that may be echoed: 1..FRAMING_MAX_ID visible ASCII characters. */
bool framing_is_id(const struct framing_header *header);

#endif
