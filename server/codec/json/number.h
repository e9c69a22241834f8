/*
 * number.h - decimal text to binary numbers and back, exactly and whatever the locale is. Before
 * they read, the callers check the grammar of JSON; before they write, they check that the number
 * is finite. number_floats.inc has the quick way to write an array of floats, and decimal.h that to
 * read a number. number.cc, the only C++ of the project, does the rest with libstdc++'s <charconv>.
 */
#ifndef CODEC_NUMBER_H
#define CODEC_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of `out` that number_write_*() may write over. The number has at most 24 of them. */
enum {
    NUMBER_SIZE = 40
};

/* Reads text[0..size), which is a number by the grammar of RFC 8259, and rounds it to nearest, ties
 * to even. A number that is too small becomes a denormal or a zero, with its sign. A number that is
 * too large becomes an infinity with its sign, and the result is false. */
bool number_read_double(const char *text, size_t size, double *out);

/* Compares the magnitudes of a text and of the finite double nearest to it, which is not 0: above 0
 * if the text is larger, 0 if they are equal. Only the first 120 digits of the double count. */
int number_side(const char *text, size_t size, double value);

/* Each writes a finite number as a JSON number, without NUL, and returns its length.
 * number_write_float() and number_write_double() write the fewest digits that read back as the same
 * value. number_write_rounded() writes at most `digits` significant digits (1 to 17), rounded as
 * printf rounds, without zeros at the end. It rounds down where rounding up would leave the range
 * of double. */
size_t number_write_float(char *out, float value);
size_t number_write_double(char *out, double value);
size_t number_write_rounded(char *out, double value, int digits);
size_t number_write_int64(char *out, int64_t value);

/* Writes floats as number_write_float() does, or null for one that is not finite, each with a comma
 * after it. Between rows of `row` numbers "],[" stands in its place. Needs NUMBER_SIZE + 1 bytes
 * for each and returns the end. The other two are this function in vectors of 16 bytes and, on x86
 * with AVX2, of 32 bytes. */
char *number_write_floats(char *out, const float *values, size_t count, size_t row);
char *number_write_floats_plain(char *out, const float *values, size_t count, size_t row);
#if defined(__x86_64__)
#define NUMBER_WIDE
char *number_write_floats_wide(char *out, const float *values, size_t count, size_t row);
#endif

#ifdef __cplusplus
}
#endif

#endif
