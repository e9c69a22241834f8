/* coding.c reads Accept and Accept-Encoding, compresses answers, and inflates bodies. */
#define _GNU_SOURCE /* memrchr */
#include "http/coding.h"

#include <assert.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
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

/* ------------------------------------------------------------------ Accept and Accept-Encoding */

static bool is_space(char c) {
    return c == ' ' || c == '\t';
}

static const char *skip_space(const char *at, const char *end) {
    while (at < end && is_space(*at)) {
        at++;
    }
    return at;
}

/* Reads the weight that follows a name (RFC 9110 section 12.4.2), in thousandths. Returns 1000 if
 * nothing follows, and -1 if what follows is not a weight. */
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

/* An entry of a list: a name, and its parameters up to `end`. */
struct entry {
    const char *name, *rest, *end;
};

/* Reads the next entry of a list, which may be empty. Returns false at the end of the list. */
static bool next_entry(const char **at, const char *end, struct entry *entry) {
    if (*at >= end) {
        return false;
    }
    const char *comma = memchr(*at, ',', (size_t)(end - *at));
    entry->end = comma != NULL ? comma : end;
    entry->name = entry->rest = skip_space(*at, entry->end);
    while (entry->rest < entry->end && *entry->rest != ';' && !is_space(*entry->rest)) {
        entry->rest++;
    }
    *at = comma != NULL ? comma + 1 : end;
    return true;
}

int http_accepts(const char *accept, const char *type) {
    const char *end = accept != NULL ? accept + strlen(accept) : NULL;
    const size_t size = strlen(type);
    for (struct entry entry; next_entry(&accept, end, &entry);) {
        if ((size_t)(entry.rest - entry.name) == size && strncasecmp(entry.name, type, size) == 0) {
            /* Other parameters may stand before and after the weight. */
            int weight = -1;
            for (const char *to = entry.end, *from;
                 weight < 0 && (from = memrchr(entry.rest, ';', (size_t)(to - entry.rest))) != NULL;
                 to = from) {
                weight = read_weight(from, to);
            }
            return weight >= 0 ? weight : 1000;
        }
    }
    return -1;
}

/* The weight of each coding; that of "*" is at CODING_UNKNOWN. -1 = not given. */
struct weights {
    int of[CODING_UNKNOWN + 1];
};

/* Reads the weights of a header, and skips entries that are malformed. */
static void read_weights(struct weights *weights, const struct framing_header *header) {
    const char *at = header->value, *end = at + header->value_size;
    for (struct entry entry; next_entry(&at, end, &entry);) {
        const size_t size = (size_t)(entry.rest - entry.name);
        const enum coding coding = framing_coding(entry.name, size);
        const int weight = read_weight(entry.rest, entry.end);
        if (weight >= 0 && (coding != CODING_UNKNOWN || (size == 1 && *entry.name == '*'))) {
            weights->of[coding] = weight;
        }
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

/* A compressor, and the bytes that it has not taken. */
struct packer {
    enum coding coding;
    z_stream zlib;
    ZSTD_CCtx *zstd;
    const char *bytes;
    size_t left;
    bool done, failed; /* all is written after PACK_END; it can do no more */
};

static void release_body(const struct http_response *response) {
    if (response->release != NULL) {
        response->release((void *)response->body);
    }
}

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

/* Compresses the bytes of the packer. Returns how many bytes were written, at most `room`. */
static size_t pack(struct packer *packer, enum packing how, char *out, size_t room) {
    const size_t left = packer->left;
    size_t written;
    if (is_zlib(packer->coding)) {
        static const int flush[] = {Z_NO_FLUSH, Z_SYNC_FLUSH, Z_FINISH};
        z_stream *zlib = &packer->zlib;
        zlib->next_in = (Bytef *)(uintptr_t)packer->bytes;
        zlib->avail_in = (uInt)left;
        zlib->next_out = (Bytef *)out;
        zlib->avail_out = (uInt)room;
        const int status = deflate(zlib, flush[how]);
        packer->left = zlib->avail_in;
        packer->done = status == Z_STREAM_END;
        packer->failed = !packer->done && status != Z_OK && status != Z_BUF_ERROR;
        written = room - zlib->avail_out;
    } else {
        static const ZSTD_EndDirective end[] = {ZSTD_e_continue, ZSTD_e_flush, ZSTD_e_end};
        ZSTD_inBuffer from = {packer->bytes, left, 0};
        ZSTD_outBuffer to = {out, room, 0};
        const size_t hint = ZSTD_compressStream2(packer->zstd, &to, &from, end[how]);
        packer->left -= from.pos;
        packer->done = how == PACK_END && hint == 0;
        packer->failed = ZSTD_isError(hint) != 0;
        written = to.pos;
    }
    packer->bytes += left - packer->left;
    return written;
}

/* A streamed body that compresses another one. */
struct packed_stream {
    struct http_response plain;
    struct packer packer;
    bool last; /* the plain body has ended */
    char piece[PIECE];
};

static bool read_packed(void *stream_, char *out, size_t room, size_t *size) {
    struct packed_stream *stream = stream_;
    struct packer *packer = &stream->packer;
    *size = 0;
    for (int pieces = 0; !packer->done && *size <= room / 2 && pieces < MOST_PIECES;) {
        if (packer->left == 0 && !stream->last) {
            packer->bytes = stream->piece;
            if (!stream->plain.read((void *)stream->plain.body, stream->piece, PIECE,
                                    &packer->left)) {
                return false;
            }
            stream->last = packer->left == 0;
            pieces++;
        }
        *size += pack(packer,
                      stream->last            ? PACK_END
                      : pieces == MOST_PIECES ? PACK_FLUSH
                                              : PACK_MORE,
                      out + *size, room - *size);
        if (packer->failed) {
            return false;
        }
    }
    return true;
}

static void free_packed(void *stream_) {
    struct packed_stream *stream = stream_;
    packer_close(&stream->packer);
    release_body(&stream->plain);
    free(stream);
}

static bool compress_stream(struct http_response *response, enum coding coding) {
    struct packed_stream *stream = malloc(sizeof *stream);
    if (stream == NULL || !packer_open(&stream->packer, coding, 0)) {
        free(stream);
        return false;
    }
    stream->plain = *response;
    stream->last = false;
    response->body = stream;
    response->size = 0; /* nobody knows it yet */
    response->read = read_packed;
    response->release = free_packed;
    return true;
}

static bool compress_whole(struct http_response *response, enum coding coding, bool must) {
    const size_t size = response->size;
    if (size > INT_MAX) {
        return false;
    }
    const size_t room = must ? size + size / 256 + 128 : size - 1; /* enough for random bytes */
    struct packer packer;
    char *out = malloc(room);
    if (out == NULL || !packer_open(&packer, coding, size)) {
        free(out);
        return false;
    }
    packer.bytes = response->body;
    packer.left = size;
    const size_t written = pack(&packer, PACK_END, out, room);
    packer_close(&packer);
    if (!packer.done) {
        free(out);
        return false;
    }
    release_body(response);
    response->body = out;
    response->size = written;
    response->release = free;
    return true;
}

bool coding_compress(struct http_response *response, enum coding coding, bool must) {
    const bool streams = response->read != NULL, unknown = streams && response->size == 0;
    if (!unknown && response->size < (must ? 1 : SMALL)) {
        return false;
    }
    return streams ? compress_stream(response, coding) : compress_whole(response, coding, must);
}

size_t coding_stream_memory(enum coding coding) {
    return is_zlib(coding) ? (size_t)ZLIB_STREAM : (size_t)ZSTD_STREAM;
}

/* -------------------------------------------------------------------------- bodies of requests */

struct coding_reader {
    enum coding coding;
    z_stream zlib;
    ZSTD_DStream *zstd;
    unsigned header; /* bytes that were given to zstd one by one */
    bool begun;      /* zlib has got the first byte */
    bool ended;
    int fault; /* 0, or the status of the refusal, for which `text` is the reason */
    char text[192];
};

static __attribute__((cold, format(printf, 3, 4))) void
set_fault(struct coding_reader *reader, int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->text, sizeof reader->text, format, arguments);
    va_end(arguments);
    reader->fault = status;
}

static void set_no_memory(struct coding_reader *reader) {
    set_fault(reader, 503, "the server has no memory left for this request");
}

static void set_corrupt(struct coding_reader *reader, const char *reason) {
    set_fault(reader, 400, "the body is not valid %s: %s", coding_name(reader->coding), reason);
}

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
        set_no_memory(reader);
    } else if (!reader->ended && status != Z_OK && status != Z_BUF_ERROR) {
        set_corrupt(reader, zlib->msg != NULL ? zlib->msg : "it needs a dictionary");
    }
    *size = zlib->avail_in;
    return room - zlib->avail_out;
}

static void note_zstd_fault(struct coding_reader *reader, size_t hint) {
    const ZSTD_ErrorCode code = ZSTD_getErrorCode(hint);
    if (code == ZSTD_error_memory_allocation) {
        set_no_memory(reader);
    } else if (code == ZSTD_error_frameParameter_windowTooLarge) {
        set_fault(reader, 413,
                  "the zstd window of the body is larger than %d MiB, which is a fixed limit",
                  1 << (ZSTD_READ_LOG - 20));
    } else {
        set_corrupt(reader, ZSTD_getErrorName(hint));
    }
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
                set_corrupt(reader, "it does not begin with a frame");
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
    if (!reader->ended && reader->fault == 0) {
        written = is_zlib(reader->coding) ? read_zlib(reader, bytes, size, out, room)
                                          : read_zstd(reader, bytes, size, out, room);
    }
    if (reader->ended && *size > 0) {
        set_fault(reader, 400, "the body goes on after the end of its %s stream",
                  coding_name(reader->coding));
    }
    if (reader->fault != 0) {
        *size = written = 0;
    }
    return written;
}

void coding_end(struct coding_reader *reader) {
    if (!reader->ended && reader->fault == 0) {
        set_fault(reader, 400, "the body ends before the end of its %s stream",
                  coding_name(reader->coding));
    }
}

int coding_fault(const struct coding_reader *reader, const char **text) {
    *text = reader->text;
    return reader->fault;
}

size_t coding_memory(const struct coding_reader *reader) {
    return sizeof *reader +
           (is_zlib(reader->coding) ? (size_t)ZLIB_MEMORY : ZSTD_sizeof_DStream(reader->zstd));
}
