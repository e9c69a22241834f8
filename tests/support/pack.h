/*
 * pack.h - gzip, zstd and deflate in both directions, and decompression of brotli, for tests. It
 * uses the libraries themselves and none of the server's code. Results are owned: free(). NULL
 * means that it failed.
 */
#ifndef SUPPORT_PACK_H
#define SUPPORT_PACK_H

#include <stddef.h>

/* Compresses the bytes, with a checksum. `coding` is "gzip", "zstd", "deflate", which is the format
 * of zlib, or "bare deflate", which has neither a header nor a checksum. */
char *pack(const char *coding, const void *bytes, size_t size, size_t *packed);

/* Decompresses a whole body, also of "br", and appends a NUL. Returns NULL if it is corrupt or not
 * one whole stream. */
char *unpack(const char *coding, const void *bytes, size_t size, size_t *unpacked);

/* Compresses `blocks` times 100000 equal bytes, in 700 or 25000 (zstd) times fewer bytes.
 * The streams of zlib have no end, and the zstd frame has no checksum. */
char *pack_repeated(const char *coding, char byte, size_t blocks, size_t *packed);

/* Makes a zstd frame that asks for this window (RFC 8878, 3.1.1.1.2) and holds the bytes
 * uncompressed, at most 128 KiB. */
char *pack_window(unsigned char window, const void *bytes, size_t size, size_t *packed);

#endif
