/* pack.c - compresses and decompresses for tests. */
#include "support/pack.h"

#include <brotli/decode.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum {
    BLOCK = 100000, /* no multiple of the sizes at which the server makes a pause */
    LARGEST_WINDOW = 15
};

/* Returns what tells zlib the format of this coding; 0 if the coding is not one of zlib. */
static int zlib_format(const char *coding) {
    return strcmp(coding, "gzip") == 0           ? LARGEST_WINDOW + 16
           : strcmp(coding, "deflate") == 0      ? LARGEST_WINDOW
           : strcmp(coding, "bare deflate") == 0 ? -LARGEST_WINDOW
                                                 : 0;
}

char *pack(const char *coding, const void *bytes, size_t size, size_t *packed) {
    const size_t room = ZSTD_compressBound(size) + size / 100 + 100;
    char *out = malloc(room);
    bool good = out != NULL;
    if (good && zlib_format(coding) != 0) {
        z_stream z = {.next_in = (Bytef *)bytes, .avail_in = (uInt)size};
        z.next_out = (Bytef *)out;
        z.avail_out = (uInt)room;
        good =
            deflateInit2(&z, 6, Z_DEFLATED, zlib_format(coding), 8, Z_DEFAULT_STRATEGY) == Z_OK &&
            deflate(&z, Z_FINISH) == Z_STREAM_END;
        *packed = z.total_out;
        deflateEnd(&z);
    } else if (good) {
        ZSTD_CCtx *z = ZSTD_createCCtx();
        ZSTD_CCtx_setParameter(z, ZSTD_c_checksumFlag, 1);
        *packed = ZSTD_compress2(z, out, room, bytes, size);
        good = !ZSTD_isError(*packed);
        ZSTD_freeCCtx(z);
    }
    if (!good) {
        free(out);
        return NULL;
    }
    return out;
}

/* Decompresses into out[0..room). Returns false if it does not fit or is not one whole stream. */
static bool unpack_into(const char *coding, const void *bytes, size_t size, char *out, size_t room,
                        size_t *unpacked) {
    if (strcmp(coding, "br") == 0) {
        const uint8_t *next_in = bytes;
        uint8_t *next_out = (uint8_t *)out;
        BrotliDecoderState *brotli = BrotliDecoderCreateInstance(NULL, NULL, NULL);
        size_t left = room;
        const bool whole = BrotliDecoderDecompressStream(brotli, &size, &next_in, &left, &next_out,
                                                         NULL) == BROTLI_DECODER_RESULT_SUCCESS;
        *unpacked = room - left;
        BrotliDecoderDestroyInstance(brotli);
        return whole && size == 0;
    }
    if (zlib_format(coding) == 0) {
        ZSTD_DCtx *z = ZSTD_createDCtx();
        ZSTD_inBuffer from = {bytes, size, 0};
        ZSTD_outBuffer to = {out, room, 0};
        const size_t status = ZSTD_decompressStream(z, &to, &from);
        *unpacked = to.pos;
        ZSTD_freeDCtx(z);
        return status == 0 && from.pos == size;
    }
    z_stream z = {.next_in = (Bytef *)bytes, .avail_in = (uInt)size};
    z.next_out = (Bytef *)out;
    z.avail_out = (uInt)room;
    const bool good = inflateInit2(&z, zlib_format(coding)) == Z_OK &&
                      inflate(&z, Z_FINISH) == Z_STREAM_END && z.avail_in == 0;
    *unpacked = z.total_out;
    inflateEnd(&z);
    return good;
}

char *unpack(const char *coding, const void *bytes, size_t size, size_t *unpacked) {
    for (size_t room = 4 * size + 1024; room < (size_t)1 << 30; room *= 4) {
        char *out = malloc(room + 1);
        if (out != NULL && unpack_into(coding, bytes, size, out, room, unpacked)) {
            out[*unpacked] = '\0';
            return out;
        }
        const bool full = out != NULL && *unpacked == room;
        free(out);
        if (!full) {
            break;
        }
    }
    return NULL;
}

/* Makes a header and `blocks` copies of one block. A copy can be decompressed without the block
 * before it. */
static char *zlib_repeated(int format, char byte, size_t blocks, size_t *packed) {
    static unsigned char bytes[BLOCK], block[8192];
    z_stream z = {0};
    deflateInit2(&z, 6, Z_DEFLATED, format, 8, Z_DEFAULT_STRATEGY);
    z.next_out = block;
    z.avail_out = sizeof block;
    deflate(&z, Z_FULL_FLUSH); /* the header */
    const size_t header = z.total_out;
    memset(bytes, byte, sizeof bytes);
    z.next_in = bytes;
    z.avail_in = sizeof bytes;
    deflate(&z, Z_FULL_FLUSH);
    const size_t size = z.total_out - header;
    deflateEnd(&z);
    char *out = malloc(header + blocks * size);
    if (out != NULL) {
        memcpy(out, block, header);
        for (size_t i = 0; i < blocks; i++) {
            memcpy(out + header + i * size, block + header, size);
        }
        *packed = header + blocks * size;
    }
    return out;
}

static char *put_zstd_header(char *out, unsigned char window) {
    static const unsigned char magic[] = {0x28, 0xb5, 0x2f, 0xfd, 0};
    memcpy(out, magic, sizeof magic);
    out[sizeof magic] = (char)window;
    return out + sizeof magic + 1;
}

/* Writes the three bytes before a block: whether it is the last, its kind (0: plain bytes, 1: one
 * byte that is repeated), and its size. */
static char *put_zstd_block(char *out, bool last, unsigned kind, size_t size) {
    const size_t header = (size_t)last | kind << 1 | size << 3;
    for (int i = 0; i < 3; i++) {
        *out++ = (char)(header >> 8 * i & 0xff);
    }
    return out;
}

char *pack_repeated(const char *coding, char byte, size_t blocks, size_t *packed) {
    if (zlib_format(coding) != 0) {
        return zlib_repeated(zlib_format(coding), byte, blocks, packed);
    }
    char *out = malloc(6 + 4 * blocks);
    if (out == NULL) {
        return NULL;
    }
    char *at = put_zstd_header(out, 7 << 3); /* a window of 128 KiB */
    for (size_t i = 1; i <= blocks; i++) {
        at = put_zstd_block(at, i == blocks, 1, BLOCK);
        *at++ = byte;
    }
    *packed = (size_t)(at - out);
    return out;
}

char *pack_window(unsigned char window, const void *bytes, size_t size, size_t *packed) {
    char *out = malloc(9 + size);
    if (out == NULL) {
        return NULL;
    }
    char *at = put_zstd_block(put_zstd_header(out, window), true, 0, size);
    if (size > 0) {
        memcpy(at, bytes, size);
    }
    *packed = 9 + size;
    return out;
}
