/*
 * refuse.h - how the accessors refuse a value. Each function fills the error with CODEC_CONTENT,
 * the pointer of the value and a message. Private to as_value.c and as_tensor.c.
 */
#ifndef CODEC_REFUSE_H
#define CODEC_REFUSE_H

#include <math.h>

#include "codec/codec.h"
#include "codec/json/document.h"
#include "codec/json/number.h"

/* The `element` that stands for the value itself. */
#define DOCUMENT_WHOLE   ((size_t)-1)

/* The largest whole numbers of which float32 and float64 tell each from all others. The next number
 * may have been another one in the body, because it is rounded when it is read. */
#define DOCUMENT_EXACT32 INT64_C(16777215)
#define DOCUMENT_EXACT64 INT64_C(9007199254740991)

/* Returns false for a whole number so large that the body may have held a different one. `narrow`:
 * the number was read as float32. */
static inline bool document_is_exact(double number, bool narrow) {
    return fabs(number) <= (double)(narrow ? DOCUMENT_EXACT32 : DOCUMENT_EXACT64);
}

/* Refuses an element of a tensor, by its index among all elements, or the DOCUMENT_WHOLE value. The
 * message begins with the name of the place: "K/3/1 " and the rest. Returns false. */
bool document_refuse(const struct codec_document *document, const struct codec_value *value,
                     size_t element, struct codec_error *error, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Refuses a number of a tensor, which must be `rule`. If it is the first number out of range of the
 * tensor's type, the message quotes the client's text. Of a number that may have been another one
 * there, it shows three digits. Returns false. */
__attribute__((cold)) bool document_refuse_element(const struct codec_document *document,
                                                   const struct codec_value *value,
                                                   const struct codec_tensor *tensor,
                                                   size_t element, const char *rule,
                                                   struct codec_error *error);

/* Returns the tensor of a value if its rank is min_rank to max_rank. Otherwise refuses the value,
 * which must be `wanted`, and returns NULL. In an array that is no tensor, the first element at
 * fault is named. */
struct codec_tensor *document_find_tensor(const struct codec_document *document,
                                          const struct codec_value *value, const char *wanted,
                                          int min_rank, int max_rank, struct codec_error *error);

/* Refuses a value, which must be `wanted`, and says what it is instead: "an array of numbers".
 * Returns false. */
bool document_refuse_kind(const struct codec_document *document, const struct codec_value *value,
                          const char *wanted, struct codec_error *error);

/* Writes the shortest text that reads back as this number, as a float if it is `narrow`. Returns
 * `text`. */
const char *document_number_text(double number, bool narrow, char text[NUMBER_SIZE + 1]);

#endif
