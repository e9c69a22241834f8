/*
 * error.h - how a codec_error is filled: with a message that is valid UTF-8 and repeats at most 64
 * bytes of what the client sent, and with a pointer by RFC 6901. Private to the codec.
 */
#ifndef CODEC_ERROR_H
#define CODEC_ERROR_H

#include <stdarg.h>

#include "codec/codec.h"

enum {
    CODEC_ECHO = 64,        /* most bytes of the client that a message repeats */
    CODEC_QUOTE_SIZE = 112, /* room for these bytes with their control characters escaped */
};

/* Sets the status and the message, and clears everything else. The compiler places calls of a
 * function that is `cold` apart from the code that usually runs, so that a small request needs less
 * of the instruction cache. */
void codec_error_set(struct codec_error *error, enum codec_status status, const char *format, ...)
    __attribute__((cold, format(printf, 3, 4)));

/* Sets the message alone. */
void codec_error_message(struct codec_error *error, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* Each appends one step to the pointer. False if it does not fit; the pointer is unchanged then. */
bool codec_pointer_name(struct codec_error *error, const char *name, size_t size);
bool codec_pointer_index(struct codec_error *error, size_t index);

/* Makes the name that a message gives to the place of the pointer: its last name and the indices
 * after it ("K/3/1"), or "the body" if it has no name. */
void codec_pointer_label(const struct codec_error *error, char label[CODEC_QUOTE_SIZE]);

/* Copies valid UTF-8 of the client, cut to CODEC_ECHO bytes at a whole character, with control
 * characters escaped. */
void codec_quote(char quoted[CODEC_QUOTE_SIZE], const char *text, size_t size);

#endif
