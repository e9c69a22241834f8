/*
 * embed.S - puts the web pages and openapi.yaml into the daemon, so that it needs no files. Each
 * row of build/assets/assets.inc is one file. At asset_NUMBER are the plain file, its gzip form and
 * its brotli form, one after the other.
 */
    .section .rodata

#define ASSET(number, plain, gzip, brotli, ...)             \
    .global asset_##number;                                 \
    .hidden asset_##number;                                 \
    .type asset_##number, %object;                          \
    asset_##number: .incbin plain; .incbin gzip; .incbin brotli; \
    .size asset_##number, . - asset_##number;
#include <assets.inc>

    .section .note.GNU-stack, "", %progbits
