/*
 * pack.h - gzip, zstd and, one way, brotli for tests, by the libraries themselves and by none of
 * the server's code. Results are malloc'ed; NULL if it fails.
 */
#ifndef SUPPORT_PACK_H
#define SUPPORT_PACK_H

#include <stddef.h>

/* `coding` is "gzip" or "zstd". Both with a checksum. */
char *pack(const char *coding, const void *bytes, size_t size, size_t *packed);

/* All of a body, also of "br", and a NUL behind it. NULL too if it is corrupt or not one whole
 * stream. */
char *unpack(const char *coding, const void *bytes, size_t size, size_t *unpacked);

/* So many times 100000 of one byte, in 700 or 25000 times fewer bytes; gzip without its end, zstd
 * without a checksum. */
char *pack_repeated(const char *coding, char byte, size_t blocks, size_t *packed);

/* One zstd frame that asks for this window (RFC 8878 section 3.1.1.1.2) and holds the bytes, at
 * most 128 KiB, as they are. */
char *pack_window(unsigned char window, const void *bytes, size_t size, size_t *packed);

#endif
