/*
 * error.h - filling a codec_error: messages that are always valid UTF-8 and never echo more than 64
 * bytes of the client, and RFC 6901 pointers. Private to the codec.
 */
#ifndef CODEC_ERROR_H
#define CODEC_ERROR_H

#include <stdarg.h>

#include "codec/codec.h"

enum {
    CODEC_ECHO = 64,        /* bytes of the client in a message, at most */
    CODEC_QUOTE_SIZE = 112, /* room for them with their control characters escaped */
};

/* Sets the status and the message and clears everything else. */
void codec_error_set(struct codec_error *error, enum codec_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void codec_error_message(struct codec_error *error, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* Each appends one step to the pointer. False if it does not fit: the pointer then stays at the
 * parent. */
bool codec_pointer_name(struct codec_error *error, const char *name, size_t size);
bool codec_pointer_index(struct codec_error *error, size_t index);

/* What to call the place of the pointer in a message: its last name and the indices after it
 * ("K/3/1"), or "the body". */
void codec_pointer_label(const struct codec_error *error, char label[CODEC_QUOTE_SIZE]);

/* Valid UTF-8 of the client, cut to CODEC_ECHO bytes, with control characters escaped. */
void codec_quote(char quoted[CODEC_QUOTE_SIZE], const char *text, size_t size);

#endif
