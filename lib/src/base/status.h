/*
 * status.h - how the library reports what went wrong: a status and, if the caller wants it, the
 * argument at fault and a message with the rule and the values.
 */
#ifndef ATTN_STATUS_H
#define ATTN_STATUS_H

#include "attention.h"

/* Fills `error` (may be NULL) and returns `status`. `argument` is "" if no argument is at fault.
 * The compiler places calls of a function that is `cold` apart from the code that usually runs, so
 * that a small call needs less of the instruction cache. */
attn_status attn_fail(attn_error *error, attn_status status, const char *argument,
                      const char *format, ...) __attribute__((cold, format(printf, 4, 5)));

/* The two errors that are no argument's fault: an allocation failed; a size of the call as a whole
 * does not fit. Both fill `error` (may be NULL) and return the status. */
__attribute__((cold)) attn_status attn_no_memory(attn_error *error);
__attribute__((cold)) attn_status attn_too_large(attn_error *error);

/* Names the sequence that an error is about, and returns `status`. Does nothing if that is no
 * error, or one of memory. */
attn_status attn_of_sequence(attn_error *error, attn_status status, size_t index);

/* Returns from the calling function if `expression` is not ATTN_OK. A function may use it only
 * while it holds nothing that it would have to free. */
#define ATTN_TRY(expression)                                                                       \
    do {                                                                                           \
        attn_status attn_try_status = (expression);                                                \
        if (attn_try_status != ATTN_OK) {                                                          \
            return attn_try_status;                                                                \
        }                                                                                          \
    } while (0)

#endif
