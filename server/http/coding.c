/* coding.c reads Accept-Encoding, compresses answers, and inflates the bodies of requests. */
#include "http/coding.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum {
    GZIP = 16,               /* added to the logarithm of a window, this tells zlib to use gzip */
    ZLIB_READ_LOG = 15,      /* 32 KiB, the largest window that gzip and deflate have */
    ZLIB_MEMORY = 48 * 1024, /* bytes for inflating with such a window, and a little more */
    ZSTD_READ_LOG = 23,      /* 8 MiB, the largest window that RFC 9659 allows a content coding */
    ZSTD_HEADER = 18,        /* bytes of the longest header of a frame */
    ZSTD_WRITE_LOG = 17,     /* 128 KiB: in numbers, a larger window finds hardly more */
    /* The level of all codings. Level 6 of gzip and level 3 of zstd make bodies a tenth shorter at
     * best, and take twice the time. */
    LEVEL = 1,
    SMALL = 1024,             /* bytes: a shorter body fits in a packet anyway */
    PIECE = 32 * 1024,        /* bytes of a streamed body that are compressed at a time */
    ZLIB_STREAM = 320 * 1024, /* memory for compressing a streamed body, PIECE included */
    ZSTD_STREAM = 1 << 20,    /* the same memory for zstd */
    /* The pieces that one read takes, so that a body that shrinks to nothing keeps no thread. */
    MOST_PIECES = 2
};

const char *coding_name(enum coding coding) {
    static const char *const names[] = {"identity", "deflate", "gzip", "zstd", "br"};
    assert(coding < CODING_UNKNOWN);
    return names[coding];
}

/* ----------------------------------------------------------------------------- Accept-Encoding */

static bool is_space(char c) {
    return c == ' ' || c == '\t';
}

static const char *skip_space(const char *at, const char *end) {
    while (at < end && is_space(*at)) {
        at++;
    }
    return at;
}

/* Reads the weight that follows the name of a coding (RFC 9110 section 12.4.2), in thousandths.
 * Returns 1000 if nothing follows, and -1 if what follows is not a weight. */
static int read_weight(const char *at, const char *end) {
    at = skip_space(at, end);
    if (at == end) {
        return 1000;
    }
    if (*at != ';') {
        return -1;
    }
    at = skip_space(at + 1, end);
    if (end - at < 3 || (*at != 'q' && *at != 'Q') || at[1] != '=' || at[2] < '0' || at[2] > '1') {
        return -1;
    }
    int weight = (at[2] - '0') * 1000;
    at += 3;
    if (at < end && *at == '.') {
        at++;
        for (int unit = 100; unit > 0 && at < end && *at >= '0' && *at <= '9'; unit /= 10) {
            weight += (*at++ - '0') * unit;
        }
    }
    return skip_space(at, end) == end && weight <= 1000 ? weight : -1;
}

/* The weight of each coding; that of "*" is at CODING_UNKNOWN. -1 = not given. */
struct weights {
    int of[CODING_UNKNOWN + 1];
};

/* Reads the weights of a header, and skips entries that are malformed. */
static void read_weights(struct weights *weights, const struct framing_header *header) {
    const char *at = header->value, *end = at + header->value_size;
    while (at < end) {
        at = skip_space(at, end);
        const char *name = at;
        while (at < end && *at != ',' && *at != ';' && !is_space(*at)) {
            at++;
        }
        const size_t size = (size_t)(at - name);
        const enum coding coding = framing_coding(name, size);
        const char *next = memchr(at, ',', (size_t)(end - at));
        const int weight = read_weight(at, next != NULL ? next : end);
        if (weight >= 0 && (coding != CODING_UNKNOWN || (size == 1 && *name == '*'))) {
            weights->of[coding] = weight;
        }
        at = next != NULL ? next + 1 : end;
    }
}

enum coding coding_choose(const struct framing_header *headers, size_t count, unsigned codings,
                          bool *must) {
    struct weights weights = {{-1, -1, -1, -1, -1, -1}};
    for (size_t i = 0; i < count; i++) {
        if (framing_is(&headers[i], "Accept-Encoding")) {
            read_weights(&weights, &headers[i]);
        }
    }
    const int any = weights.of[CODING_UNKNOWN];
    enum coding best = CODING_NONE;
    int most = 0;
    for (enum coding coding = CODING_NONE + 1; coding < CODING_UNKNOWN; coding++) {
        const int weight = weights.of[coding] >= 0 ? weights.of[coding] : any;
        if ((codings >> coding & 1) != 0 && weight > 0 && weight >= most) {
            best = coding;
            most = weight;
        }
    }
    /* If "identity" is not named, no coding is the last choice, and only "*;q=0" rules it out. */
    const int none = weights.of[CODING_NONE] >= 0 ? weights.of[CODING_NONE] : any != 0;
    *must = most > 0 && none == 0;
    return most > 0 && most >= none ? best : CODING_NONE;
}

/* --------------------------------------------------------------------------- bodies of answers */

enum packing {
    PACK_MORE,
    PACK_FLUSH, /* the bytes written so far decode to all the bytes given so far */
    PACK_END
};

struct packer {
    enum coding coding;
    z_stream zlib;
    ZSTD_CCtx *zstd;
};

/* Returns whether the coding is one of zlib. */
static bool is_zlib(enum coding coding) {
    return coding == CODING_GZIP || coding == CODING_DEFLATE;
}

/* Opens a packer for a body of `size` bytes. A size of 0 stands for a streamed body, for which all
 * memory is taken now. */
static bool packer_open(struct packer *packer, enum coding coding, size_t size) {
    *packer = (struct packer){.coding = coding};
    if (is_zlib(coding)) {
        /* A window of 8 KiB costs a small body a fifth of the time, which is mostly spent on
         * memory. */
        const int window = size > 0 && size <= 1 << 13 ? 13 : 15;
        return deflateInit2(&packer->zlib, LEVEL, Z_DEFLATED,
                            coding == CODING_GZIP ? window + GZIP : window, window - 7,
                            Z_DEFAULT_STRATEGY) == Z_OK;
    }
    ZSTD_inBuffer in = {"", 0, 0};
    ZSTD_outBuffer out = {NULL, 0, 0};
    packer->zstd = ZSTD_createCCtx();
    if (packer->zstd != NULL &&
        !ZSTD_isError(ZSTD_CCtx_setParameter(packer->zstd, ZSTD_c_compressionLevel, LEVEL)) &&
        !ZSTD_isError(ZSTD_CCtx_setParameter(packer->zstd, ZSTD_c_windowLog, ZSTD_WRITE_LOG)) &&
        (size > 0 ||
         !ZSTD_isError(ZSTD_compressStream2(packer->zstd, &out, &in, ZSTD_e_continue)))) {
        return true;
    }
    ZSTD_freeCCtx(packer->zstd);
    return false;
}

static void packer_close(struct packer *packer) {
    if (is_zlib(packer->coding)) {
        deflateEnd(&packer->zlib);
    } else {
        ZSTD_freeCCtx(packer->zstd);
    }
}

/* Compresses the next *size bytes and writes *written bytes, at most `room`. *size becomes the
 * number of bytes that were not taken, which are the last ones. *done becomes whether, at PACK_END,
 * all is written. Returns false if it fails. */
static bool pack(struct packer *packer, const void *bytes, size_t *size, void *out, size_t room,
                 size_t *written, enum packing how, bool *done) {
    if (is_zlib(packer->coding)) {
        static const int flush[] = {Z_NO_FLUSH, Z_SYNC_FLUSH, Z_FINISH};
        z_stream *zlib = &packer->zlib;
        zlib->next_in = (Bytef *)(uintptr_t)bytes;
        zlib->avail_in = (uInt)*size;
        zlib->next_out = out;
        zlib->avail_out = (uInt)room;
        const int status = deflate(zlib, flush[how]);
        *size = zlib->avail_in;
        *written = room - zlib->avail_out;
        *done = status == Z_STREAM_END;
        return status == Z_OK || status == Z_BUF_ERROR || *done;
    }
    static const ZSTD_EndDirective end[] = {ZSTD_e_continue, ZSTD_e_flush, ZSTD_e_end};
    ZSTD_inBuffer from = {bytes, *size, 0};
    ZSTD_outBuffer to = {out, room, 0};
    const size_t left = ZSTD_compressStream2(packer->zstd, &to, &from, end[how]);
    *size -= from.pos;
    *written = to.pos;
    *done = how == PACK_END && left == 0;
    return !ZSTD_isError(left);
}

static bool compress_whole(struct http_response *response, enum coding coding, bool must) {
    const size_t size = response->size;
    if (size > INT_MAX || (size < SMALL && !must) || size == 0) {
        return false;
    }
    const size_t room = must ? size + size / 256 + 128 : size - 1; /* enough for random bytes */
    struct packer packer;
    char *out = malloc(room);
    if (out == NULL || !packer_open(&packer, coding, size)) {
        free(out);
        return false;
    }
    size_t left = size, written = 0;
    bool done = false;
    pack(&packer, response->body, &left, out, room, &written, PACK_END, &done);
    packer_close(&packer);
    if (!done) {
        free(out);
        return false;
    }
    if (response->release != NULL) {
        response->release((void *)(uintptr_t)response->body);
    }
    response->body = out;
    response->size = written;
    response->release = free;
    return true;
}

/* A streamed body that compresses another one. */
struct packed_stream {
    void *body;
    bool (*read)(void *body, char *out, size_t room, size_t *size);
    void (*release)(void *body);
    struct packer packer;
    size_t at, size; /* piece[at..size) is not yet compressed */
    bool last;       /* the other body has ended */
    bool done;       /* nothing more is to be written */
    char piece[PIECE];
};

static bool read_packed(void *stream_, char *out, size_t room, size_t *size) {
    struct packed_stream *stream = stream_;
    *size = 0;
    for (int pieces = 0; !stream->done && *size <= room / 2 && pieces < MOST_PIECES;) {
        if (stream->at == stream->size && !stream->last) {
            if (!stream->read(stream->body, stream->piece, PIECE, &stream->size)) {
                return false;
            }
            stream->at = 0;
            stream->last = stream->size == 0;
            pieces++;
        }
        size_t left = stream->size - stream->at, written;
        const enum packing how = stream->last            ? PACK_END
                                 : pieces == MOST_PIECES ? PACK_FLUSH
                                                         : PACK_MORE;
        if (!pack(&stream->packer, stream->piece + stream->at, &left, out + *size, room - *size,
                  &written, how, &stream->done)) {
            return false;
        }
        stream->at = stream->size - left;
        *size += written;
    }
    return true;
}

static void free_packed(void *stream_) {
    struct packed_stream *stream = stream_;
    packer_close(&stream->packer);
    if (stream->release != NULL) {
        stream->release(stream->body);
    }
    free(stream);
}

static bool compress_stream(struct http_response *response, enum coding coding, bool must) {
    if (response->size > 0 && response->size < SMALL && !must) {
        return false;
    }
    struct packed_stream *stream = malloc(sizeof *stream);
    if (stream == NULL || !packer_open(&stream->packer, coding, 0)) {
        free(stream);
        return false;
    }
    stream->body = (void *)(uintptr_t)response->body;
    stream->read = response->read;
    stream->release = response->release;
    stream->at = stream->size = 0;
    stream->last = stream->done = false;
    response->body = stream;
    response->size = 0; /* nobody knows it yet */
    response->read = read_packed;
    response->release = free_packed;
    return true;
}

size_t coding_stream_memory(enum coding coding) {
    return is_zlib(coding) ? (size_t)ZLIB_STREAM : (size_t)ZSTD_STREAM;
}

bool coding_compress(struct http_response *response, enum coding coding, bool must) {
    return response->read != NULL ? compress_stream(response, coding, must)
                                  : compress_whole(response, coding, must);
}

/* -------------------------------------------------------------------------- bodies of requests */

enum fault {
    FAULT_NONE,
    FAULT_NO_MEMORY,
    FAULT_WINDOW,
    FAULT_CORRUPT,
    FAULT_MORE, /* bytes follow the end of the stream */
    FAULT_SHORT /* the body ends before its stream does */
};

struct coding_reader {
    enum coding coding;
    z_stream zlib;
    ZSTD_DStream *zstd;
    unsigned header; /* bytes that were given to zstd one by one */
    bool begun;      /* zlib has got the first byte */
    bool ended;
    enum fault fault;
    const char *reason; /* static; why the fault is FAULT_CORRUPT */
};

struct coding_reader *coding_reader_create(enum coding coding) {
    struct coding_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        return NULL;
    }
    reader->coding = coding;
    if (is_zlib(coding)) {
        const int window = coding == CODING_GZIP ? ZLIB_READ_LOG + GZIP : ZLIB_READ_LOG;
        if (inflateInit2(&reader->zlib, window) == Z_OK) {
            return reader;
        }
    } else {
        reader->zstd = ZSTD_createDStream();
        if (reader->zstd != NULL && !ZSTD_isError(ZSTD_DCtx_setParameter(
                                        reader->zstd, ZSTD_d_windowLogMax, ZSTD_READ_LOG))) {
            return reader;
        }
        ZSTD_freeDStream(reader->zstd);
    }
    free(reader);
    return NULL;
}

void coding_reader_free(struct coding_reader *reader) {
    if (reader == NULL) {
        return;
    }
    if (is_zlib(reader->coding)) {
        inflateEnd(&reader->zlib);
    } else {
        ZSTD_freeDStream(reader->zstd);
    }
    free(reader);
}

/* Returns whether a body of deflate that begins with this byte has the header of zlib. The four
 * bits that name its method are 8. A bare deflate stream could have them only if it began with a
 * block that is not compressed, and only if bits there that mean nothing were not 0. */
static bool is_zlib_header(unsigned char first) {
    return (first & 15) == Z_DEFLATED;
}

static size_t read_zlib(struct coding_reader *reader, const void *bytes, size_t *size, void *out,
                        size_t room) {
    z_stream *zlib = &reader->zlib;
    assert(*size <= UINT_MAX && room <= UINT_MAX);
    if (reader->coding == CODING_DEFLATE && !reader->begun && *size > 0 &&
        !is_zlib_header(*(const unsigned char *)bytes)) {
        inflateReset2(zlib, -ZLIB_READ_LOG); /* a negative window stands for bare deflate */
    }
    reader->begun |= *size > 0;
    zlib->next_in = (Bytef *)(uintptr_t)bytes;
    zlib->avail_in = (uInt)*size;
    zlib->next_out = out;
    zlib->avail_out = (uInt)room;
    const int status = inflate(zlib, Z_NO_FLUSH);
    reader->ended = status == Z_STREAM_END;
    if (status == Z_MEM_ERROR) {
        reader->fault = FAULT_NO_MEMORY;
    } else if (!reader->ended && status != Z_OK && status != Z_BUF_ERROR) {
        reader->fault = FAULT_CORRUPT;
        reader->reason = zlib->msg != NULL ? zlib->msg : "it needs a dictionary";
    }
    *size = zlib->avail_in;
    return room - zlib->avail_out;
}

static void note_zstd_fault(struct coding_reader *reader, size_t hint) {
    const ZSTD_ErrorCode code = ZSTD_getErrorCode(hint);
    reader->fault = code == ZSTD_error_memory_allocation               ? FAULT_NO_MEMORY
                    : code == ZSTD_error_frameParameter_windowTooLarge ? FAULT_WINDOW
                                                                       : FAULT_CORRUPT;
    reader->reason = ZSTD_getErrorName(hint);
}

/* The header is given to zstd byte by byte, for two reasons. First, a library may be able to read
 * the formats before RFC 8878; so only the magic number of a frame gets through. Second, zstd
 * decodes a frame that it gets as a whole in another way, with other checks; then the result would
 * depend on how the body was cut into pieces. */
static size_t read_zstd(struct coding_reader *reader, const void *bytes, size_t *size, void *out,
                        size_t room) {
    static const unsigned char magic[4] = {0x28, 0xB5, 0x2F, 0xFD};
    ZSTD_inBuffer from = {bytes, 0, 0};
    ZSTD_outBuffer to = {out, room, 0};
    size_t hint;
    do {
        from.size = *size;
        if (reader->header < ZSTD_HEADER && from.pos < *size) {
            const unsigned char next = ((const unsigned char *)bytes)[from.pos];
            if (reader->header < sizeof magic && next != magic[reader->header]) {
                reader->fault = FAULT_CORRUPT;
                reader->reason = "it does not begin with a frame";
                return 0;
            }
            reader->header++;
            from.size = from.pos + 1;
        }
        hint = ZSTD_decompressStream(reader->zstd, &to, &from);
    } while (!ZSTD_isError(hint) && hint != 0 && from.pos < *size && to.pos < room);
    reader->ended = hint == 0;
    if (ZSTD_isError(hint)) {
        note_zstd_fault(reader, hint);
    }
    *size -= from.pos;
    return to.pos;
}

size_t coding_read(struct coding_reader *reader, const void *bytes, size_t *size, void *out,
                   size_t room) {
    size_t written = 0;
    if (!reader->ended && reader->fault == FAULT_NONE) {
        written = is_zlib(reader->coding) ? read_zlib(reader, bytes, size, out, room)
                                          : read_zstd(reader, bytes, size, out, room);
    }
    if (reader->ended && *size > 0) {
        reader->fault = FAULT_MORE;
    }
    if (reader->fault != FAULT_NONE) {
        *size = written = 0;
    }
    return written;
}

void coding_end(struct coding_reader *reader) {
    if (!reader->ended && reader->fault == FAULT_NONE) {
        reader->fault = FAULT_SHORT;
    }
}

int coding_fault(const struct coding_reader *reader, char *text, size_t size) {
    const char *name = coding_name(reader->coding);
    switch (reader->fault) {
    case FAULT_NONE:
        return 0;
    case FAULT_NO_MEMORY:
        snprintf(text, size, "the server has no memory left for this request");
        return 503;
    case FAULT_WINDOW:
        snprintf(text, size,
                 "the zstd window of the body is larger than %d MiB, which is a fixed limit",
                 1 << (ZSTD_READ_LOG - 20));
        return 413;
    case FAULT_CORRUPT:
        snprintf(text, size, "the body is not valid %s: %s", name, reader->reason);
        return 400;
    case FAULT_MORE:
        snprintf(text, size, "the body goes on after the end of its %s stream", name);
        return 400;
    case FAULT_SHORT:
        break;
    }
    snprintf(text, size, "the body ends before the end of its %s stream", name);
    return 400;
}

size_t coding_memory(const struct coding_reader *reader) {
    return sizeof *reader +
           (is_zlib(reader->coding) ? (size_t)ZLIB_MEMORY : ZSTD_sizeof_DStream(reader->zstd));
}
